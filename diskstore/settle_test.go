package diskstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/storekit"
)

func isClaims(op fsOp) bool { return strings.HasPrefix(op.name, "claims-") }

// crashed opens what is left of the rig's disk after a kill, or after a power cut that takes all
// that was not synced.
func (r *rig) crashed(clock storekit.Clock, powerCut bool) *Store {
	r.t.Helper()
	percent := 100
	if powerCut {
		percent = 0
	}
	mem := r.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(1, 1))})
	return openAt(r.t, "store", &Options{fs: hookFS{mem, func(fsOp) error { return nil }}, Logger: quiet, Clock: clock})
}

// leasedStore opens a store on a rig's disk, with the message a under a lease.
func leasedStore(t *testing.T) (*rig, *Store, *storekit.ManualClock, punctual.Delivery) {
	t.Helper()
	r, clock := newRig(t), storekit.NewManualClock(testStart)
	r.opt.Clock, r.opt.claimLimit = clock, 0
	s, err := Open("store", &r.opt)
	if err != nil {
		t.Fatal(err)
	}
	push(t, s, punctual.NewMessage{Topic: "o", ID: "a"})
	ds := claim(t, s, "o", 1)
	if len(ds) != 1 {
		t.Fatalf("claimed %+v", ds)
	}
	return r, s, clock, ds[0]
}

func settlement(d punctual.Delivery, v punctual.Verb) []punctual.Settlement {
	return []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: v}}
}

// TestExtendThatIsHalfDone: when the claim log does not take an extension, the extension is in
// force in memory. So the error must not say that it certainly did not happen.
func TestExtendThatIsHalfDone(t *testing.T) {
	for _, with := range [][]punctual.Verb{{}, {punctual.SettleSnooze}} {
		r, s, _, d := leasedStore(t)
		defer closeStore(t, s)
		push(t, s, punctual.NewMessage{Topic: "o", ID: "b"})
		other := claim(t, s, "o", 1)[0]
		r.faults.set(func(_ int, op fsOp) error {
			if op.kind == "write" && isClaims(op) {
				return errSpace
			}
			return nil
		})
		defer r.faults.set(nil)
		ss := settlement(d, punctual.SettleExtend)
		for _, v := range with {
			ss = append(ss, settlement(other, v)...)
		}
		errs, err := s.Settle(t.Context(), ss)
		if _, hits, _ := r.faults.state(); hits == 0 {
			t.Fatal("no write of the claim log failed")
		}
		if !errors.Is(err, punctual.ErrIndeterminate) || !errors.Is(err, punctual.ErrNoSpace) || punctual.Definite(err) {
			t.Errorf("P13: an extension, with %v, that the claim log does not take: %v, %v; want ErrIndeterminate and ErrNoSpace", with, errs, err)
		}
	}
}

// TestAckBesideOneThatCannotBeRead: an ack that needs no transaction, and an extension, are in the
// claim log before the transaction of the same call is applied. When the call fails because the
// disk does not read the record of another item, a kill leaves them all the same. So the error must
// not say that the call certainly did not happen. The item alone changes nothing, and its error
// says so.
func TestAckBesideOneThatCannotBeRead(t *testing.T) { alone(t, ackBesideOneThatCannotBeRead) }

func ackBesideOneThatCannotBeRead(t *testing.T) {
	for _, c := range []struct {
		name     string
		what     []punctual.Settlement // what the same call does with a
		want     string                // what becomes of a by the kill
		definite bool
	}{
		{"alone", nil, "ready", true},
		{"with an ack", []punctual.Settlement{{Verb: punctual.SettleAck}}, "", false},
		{"with an extension", []punctual.Settlement{{Verb: punctual.SettleExtend, Delay: time.Hour}}, "leased", false},
	} {
		r, clock := newRig(t), storekit.NewManualClock(testStart)
		reads := &failingReads{FS: r.opt.fs}
		r.opt.fs, r.opt.Clock, r.opt.claimLimit = reads, clock, 0
		s, err := Open("store", &r.opt)
		if err != nil {
			t.Fatal(err)
		}
		push(t, s, punctual.NewMessage{Topic: "o", ID: "a"}, punctual.NewMessage{Topic: "o", ID: "b"})
		ds := claim(t, s, "o", 2)
		for i := range c.what {
			c.what[i].Topic, c.what[i].ID, c.what[i].Token = "o", "a", ds[0].Token
		}
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
		reads.armed.Store(true)
		errs, err := s.Settle(t.Context(), append(c.what, settlement(ds[1], punctual.SettleSnooze)...))
		if reads.failed.Load() == 0 {
			t.Fatalf("%s: no read failed: %v, %v", c.name, errs, err)
		}
		if !errors.Is(err, punctual.ErrStoreFailed) || punctual.Definite(err) != c.definite {
			t.Errorf("P13: %s: settlements of which one cannot be read: %v, %v; want ErrStoreFailed, definite %v", c.name, errs, err, c.definite)
		}
		clock.Advance(time.Minute)
		young := r.crashed(clock, false)
		if i, err := young.Get(t.Context(), "o", "a"); i.State.String() != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: after a kill a is %q, %v; want %q", c.name, i.State, err, c.want)
		}
		closeStore(t, young)
		if err := s.Close(); !errors.Is(err, punctual.ErrStoreFailed) {
			t.Errorf("%s: close: %v, want ErrStoreFailed", c.name, err)
		}
	}
}

// underWay tells whether some goroutine is in all of the functions given.
func underWay(functions ...string) bool {
	buf := make([]byte, 4<<20)
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		in := true
		for _, f := range functions {
			in = in && strings.Contains(g, f)
		}
		if in {
			return true
		}
	}
	return false
}

// TestAckThatTheClaimLogDoesNotTake: such an ack is answered when the message is deleted durably,
// not before, because nothing else would show the ack after a kill.
func TestAckThatTheClaimLogDoesNotTake(t *testing.T) {
	r, s, clock, d := leasedStore(t)
	defer closeStore(t, s)
	gate := make(chan struct{})
	var refused atomic.Int64
	r.faults.set(func(_ int, op fsOp) error {
		if op.kind == "write" && isClaims(op) {
			refused.Add(1)
			return errSpace
		}
		return nil
	})
	r.faults.hang(func(op fsOp) chan struct{} {
		if op.kind == "sync" && isLog(op) {
			return gate
		}
		return nil
	})
	answered := make(chan error, 1)
	go func() {
		errs, err := s.Settle(context.Background(), settlement(d, punctual.SettleAck))
		answered <- errors.Join(append(errs, err)...)
	}()
	for !underWay("(*Store).Settle", "(*Tx).commit(") && len(answered) == 0 {
		runtime.Gosched()
	}
	early := len(answered) > 0
	if early {
		t.Errorf("P1, P13: an ack that is in no log was answered with %v while its deletion was not durable", <-answered)
	}
	r.faults.set(nil)
	r.faults.hang(nil)
	close(gate)
	if early {
		return
	}
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if refused.Load() == 0 {
		t.Fatal("no write of the claim log failed")
	}
	young := r.crashed(clock, true)
	clock.Advance(time.Hour)
	if ds := claim(t, young, "o", 1); len(ds) != 0 {
		t.Error("an ack that was answered is undone by a power cut, though its deletion was to be durable")
	}
	mustBeSound(t, young)
}

// TestExtensionOutlivesTheProcess: an extended lease survives a kill, and ends when its extension
// says.
func TestExtensionOutlivesTheProcess(t *testing.T) {
	r, s, clock, d := leasedStore(t)
	defer closeStore(t, s)
	ss := settlement(d, punctual.SettleExtend)
	ss[0].Delay = time.Hour
	if errs, err := s.Settle(t.Context(), ss); errors.Join(errs[0], err) != nil {
		t.Fatal(errs, err)
	}
	clock.Advance(59 * time.Minute)
	young := r.crashed(clock, false)
	if ds := claim(t, young, "o", 1); len(ds) != 0 {
		t.Errorf("P3 one holder: a lease extended by an hour before a kill was over after 59 minutes")
	}
	if info, err := young.Get(t.Context(), "o", "a"); err != nil || info.State != punctual.StateLeased || !info.LeaseUntil.Equal(testStart.Add(time.Hour)) {
		t.Errorf("the extended lease after a kill: %v until %v, %v", info.State, info.LeaseUntil, err)
	}
	clock.Advance(time.Minute)
	if ds := claim(t, young, "o", 1); len(ds) != 1 || ds[0].Attempt != 2 {
		t.Errorf("P6: after the end of the extended lease %+v came, want the second attempt", ds)
	}
	if err := settle(t, young, d, punctual.SettleAck); !errors.Is(err, punctual.ErrLeaseLost) {
		t.Errorf("P4 fencing: ack by the first holder: %v", err)
	}
}

// TestAckOutlivesTheProcess: an ack survives a kill while the message is still on disk, because the
// test keeps maintenance from deleting the message.
func TestAckOutlivesTheProcess(t *testing.T) {
	r, s, clock, d := leasedStore(t)
	defer closeStore(t, s)
	release := holdWriteLock(t, s)
	err := settle(t, s, d, punctual.SettleAck)
	young := r.crashed(clock, false)
	release()
	if err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Hour)
	if ds := claim(t, young, "o", 1); len(ds) != 0 {
		t.Error("a message was delivered again that had been acked before a kill")
	}
	if r := mustBeSound(t, young); r.Live != 0 {
		t.Errorf("%d live messages after the ack, want none", r.Live)
	}
}

// TestAckedMeanwhile: an ack does not wait for the write lock. So it may come when a transaction
// has found the message and has not yet detached it. Then the ack counts, and the transaction finds
// no message.
func TestAckedMeanwhile(t *testing.T) {
	for name, change := range map[string]func(tx *writer.Tx, f writer.Found) error{
		"cancel":     changeFound(punctual.ChangeCancel),
		"reschedule": changeFound(punctual.ChangeReschedule),
		"delete":     changeFound(punctual.ChangeDelete),
		"replace or purge": func(tx *writer.Tx, f writer.Found) error {
			if remove(tx, f) {
				return errors.New("the message was removed a second time")
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, s, clock, d := leasedStore(t)
			defer closeStore(t, s)
			err := s.writer.Do(t.Context(), func(tx *writer.Tx) error {
				f, err := tx.Find(s.topics.Get("o"), "a", nil)
				if err != nil || !f.Exists() {
					t.Errorf("the message is not found: %v", err)
				}
				if err := settle(t, s, d, punctual.SettleAck); err != nil {
					t.Errorf("ack: %v", err)
				}
				if err := change(tx, f); err != nil {
					t.Errorf("P5 cancel is definite, P7: %v", err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			clock.Advance(time.Hour)
			if ds := claim(t, s, "o", 1); len(ds) != 0 {
				t.Errorf("a message came back that had been acked: %+v", ds[0])
			}
			if r := mustBeSound(t, s); r.Live != 0 {
				t.Errorf("%d live messages, want none", r.Live)
			}
		})
	}
}

// changeFound returns a function that amends a message that was found before and acked since.
func changeFound(c punctual.Change) func(tx *writer.Tx, f writer.Found) error {
	return func(tx *writer.Tx, f writer.Found) error {
		answer, err := amendFound(tx, f, &punctual.Amendment{Topic: "o", ID: f.ID, Change: c}, nil, tx.Now)
		if err == nil && !errors.Is(answer.Err, punctual.ErrNotFound) {
			err = fmt.Errorf("%v for a message that was acked, want ErrNotFound", answer.Err)
		}
		return err
	}
}

// TestRetentionEndsToTheMillisecond: a dead message is there up to the last millisecond of its
// retention, and not at its end, although maintenance has not removed it.
func TestRetentionEndsToTheMillisecond(t *testing.T) {
	_, s, _, d := leasedStore(t)
	defer closeStore(t, s)
	if _, err := s.Configure(t.Context(), "o", punctual.SettingsPatch{DeadRetention: ptr(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if err := settle(t, s, d, punctual.SettleDiscard); err != nil {
		t.Fatal(err)
	}
	tx, err := s.writer.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close(&err)
	died := s.topics.Get("o").Disk.DeadFrom().Ms
	for _, step := range []struct {
		by    time.Duration
		there bool
	}{{time.Hour - time.Millisecond, true}, {time.Hour, false}} {
		tx.Ms = died + step.by.Milliseconds()
		f, err := tx.Find(s.topics.Get("o"), "a", nil)
		if err != nil || f.Exists() != step.there {
			t.Errorf("%v after it died, with a retention of an hour, a dead message is there: %v, %v; want %v", step.by, f.Exists(), err, step.there)
		}
		if (tx.Maintenance().Size() == 0) != step.there {
			t.Error("a dead message whose retention is over is not deleted by who meets it")
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestAnswersWaitForTheClaimLog: a kill takes back a settlement that is not in the claim log yet,
// so no answer rests on it before (P13).
func TestAnswersWaitForTheClaimLog(t *testing.T) {
	cases := []struct {
		name string
		verb punctual.Verb
		ask  func(context.Context, *Store) (string, error)
		want string
	}{
		{"get of an acked message", punctual.SettleAck, got, "none"},
		{"ack of an acked message", punctual.SettleAck, settledAs(punctual.SettleAck), "lease_lost"},
		{"get of an extended message", punctual.SettleExtend, got, `leased "" false`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r, s, _, d := leasedStore(t)
			defer closeStore(t, s)
			gate, writing := make(chan struct{}), make(chan struct{})
			var once sync.Once
			r.faults.hang(func(op fsOp) (hang chan struct{}) {
				if op.kind == "write" && isClaims(op) {
					once.Do(func() { hang = gate; close(writing) })
				}
				return hang
			})
			settled := make(chan error, 1)
			go func() { settled <- settle(t, s, d, c.verb) }()
			<-writing
			answer := make(chan result, 1)
			go func() {
				text, err := c.ask(context.Background(), s)
				answer <- result{text, err}
			}()
			for len(answer) == 0 && !underWay("(*Writer).waitLogged(") {
				runtime.Gosched()
			}
			if len(answer) > 0 {
				t.Error("P13: the answer was there before the claim log was written")
			}
			close(gate)
			if err := <-settled; err != nil {
				t.Error(err)
			}
			if a := <-answer; a.err != nil || a.text != c.want {
				t.Errorf("the answer is %q, %v; want %q", a.text, a.err, c.want)
			}
		})
	}
}

// refuseClaims has the disk refuse all writes of the claim log, as a full one does. refused counts
// them.
func (f *faults) refuseClaims(refused *atomic.Int64) {
	f.set(func(_ int, op fsOp) error {
		if op.kind == "write" && isClaims(op) {
			refused.Add(1)
			return errSpace
		}
		return nil
	})
}

// TestAckThatIsNowhere: the claim log refuses an ack, and the call of the ack is given up before it
// has deleted the message instead. Then a kill undoes the ack. So whoever is told that the message
// is gone, or the lease lost, has deleted the message first.
func TestAckThatIsNowhere(t *testing.T) {
	for _, c := range []struct {
		name string
		ask  func(context.Context, *Store) (string, error)
		want string
	}{
		{"get", got, "none"},
		{"ack", settledAs(punctual.SettleAck), "lease_lost"},
		{"settle in a transaction", settledAs(punctual.SettleDiscard), "lease_lost"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKillRig(t)
			push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
			d := claim(t, k, "o", 1)[0]
			var refused atomic.Int64
			k.faults.refuseClaims(&refused)
			release := holdWriteLock(t, k.Store)
			ctx, giveUp := context.WithCancel(t.Context())
			given := make(chan error, 1)
			go func() {
				_, err := k.Settle(ctx, settlement(d, punctual.SettleAck))
				given <- err
			}()
			waitUntil(t, "the ack waits for the write lock", func() bool { return underWay("(*Store).Settle(", "(*Writer).waitForLock(") })
			giveUp()
			err := <-given
			release()
			if refused.Load() == 0 || !errors.Is(err, punctual.ErrIndeterminate) {
				t.Fatalf("an ack was given up with %v after %d refused writes of the claim log, want ErrIndeterminate after one", err, refused.Load())
			}
			before := k.killed()
			text, err := c.ask(t.Context(), k.Store)
			after := k.killed()
			if err != nil || text != c.want {
				t.Errorf("after the ack the answer is %q, %v; want %q", text, err, c.want)
			}
			if text, err := got(t.Context(), k.reopened(before)); err != nil || text == "none" {
				t.Fatalf("killed before the answer, the message is %q, %v; want the ack undone", text, err)
			}
			if text, err := got(t.Context(), k.reopened(after)); err != nil || text != "none" {
				t.Errorf("P13: killed after the answer, the message is %q, %v; want none", text, err)
			}
		})
	}
}

// TestAnswersWaitForAcksThatTheClaimLogRefuses: the claim log refuses an ack, and another call sees
// the ack before the call of the ack has deleted the message. The answer of that other call waits
// until the deletion is durable, because a kill would undo the ack (P13).
func TestAnswersWaitForAcksThatTheClaimLogRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		with []punctual.Verb // what the call of the ack does with a second message
		pass int             // how many writes of the database's log the disk makes before it hangs
	}{
		{"ack", nil, 0},
		{"ack beside a transaction", []punctual.Verb{punctual.SettleSnooze}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKillRig(t)
			push(t, k, punctual.NewMessage{Topic: "o", ID: "a"}, punctual.NewMessage{Topic: "o", ID: "b"})
			ds := claim(t, k, "o", 2)
			ss := settlement(ds[0], punctual.SettleAck)
			for _, v := range c.with {
				ss = append(ss, settlement(ds[1], v)...)
			}
			var refused atomic.Int64
			k.faults.refuseClaims(&refused)
			writing, write, gate := make(chan struct{}, 100), make(chan struct{}), make(chan struct{})
			writes := 0
			k.faults.hang(func(op fsOp) chan struct{} {
				switch {
				case op.kind == "write" && isClaims(op):
					writing <- struct{}{}
					return write
				case op.kind == "write" && isLog(op):
					if writes++; writes > c.pass {
						return gate
					}
				}
				return nil
			})
			// The calls get the write lock in the order in which they begin to wait for it: the one
			// that asks before the one of the ack.
			waiting := func(call string) func() bool {
				return func() bool { return underWay(call, "(*Writer).waitForLock(") }
			}
			release := holdWriteLock(t, k.Store)
			settled, answer := make(chan error, 1), make(chan result, 1)
			ack := func() {
				errs, err := k.Settle(context.Background(), ss)
				settled <- errors.Join(append(errs, err)...)
			}
			ask := func() {
				text, err := got(context.Background(), k.Store)
				answer <- result{text, err}
			}
			go ack()
			if c.with == nil {
				<-writing // memory has the ack
				go ask()
				waitUntil(t, "the question waits for the write lock", waiting("(*Store).Get("))
				close(write)
				waitUntil(t, "the ack waits for the write lock", waiting("(*Store).Settle("))
			} else {
				close(write)
				waitUntil(t, "the ack waits for the write lock", waiting("(*Store).Settle("))
				go ask()
				waitUntil(t, "the question waits for the write lock", waiting("(*Store).Get("))
			}
			release()
			waitUntil(t, "the question waits for the disk, or is answered", func() bool {
				return len(answer) > 0 || underWay("(*Store).Get(", "(*Writer).Barrier(", "(*Writer).waitDurable(") ||
					underWay("(*Store).Get(", "(*Writer).Barrier(", "(*Tx).commit(")
			})
			early, files := len(answer) > 0, k.killed()
			select {
			case err := <-settled:
				t.Fatalf("the ack was answered with %v while the disk hung", err)
			default:
			}
			k.faults.set(nil)
			k.faults.hang(nil)
			close(gate)
			if err := <-settled; err != nil {
				t.Error(err)
			}
			if refused.Load() == 0 {
				t.Fatal("the claim log refused no ack")
			}
			if a := <-answer; a.err != nil || a.text != "none" {
				t.Errorf("the answer is %q, %v; want none", a.text, a.err)
			}
			text, err := got(t.Context(), k.reopened(files))
			if err != nil || text == "none" {
				t.Fatalf("killed while the disk hung, the message is %q, %v; want the ack undone", text, err)
			}
			if early {
				t.Errorf("P13: the message was told to be gone before it was deleted; killed at that moment it is %q", text)
			}
			if text, err := got(t.Context(), k.reopened(k.killed())); err != nil || text != "none" {
				t.Errorf("P1, P13: killed after the answers, the message is %q, %v; want none", text, err)
			}
		})
	}
}

// TestClaimLogIsWrittenBeforeTheFsync: acks and extensions in a call that also needs a transaction
// survive a kill already during the fsync of that transaction, because other calls can see them by
// then.
func TestClaimLogIsWrittenBeforeTheFsync(t *testing.T) {
	for verb, want := range map[punctual.Verb]string{punctual.SettleAck: "none", punctual.SettleExtend: `leased "" false`} {
		t.Run(verb.String(), func(t *testing.T) {
			r, s, clock, d := leasedStore(t)
			defer closeStore(t, s)
			push(t, s, punctual.NewMessage{Topic: "o", ID: "b"})
			other := claim(t, s, "o", 1)[0]
			gate, syncing := make(chan struct{}), make(chan struct{})
			var once sync.Once
			r.faults.hang(func(op fsOp) (hang chan struct{}) {
				if op.kind == "sync" && isLog(op) {
					once.Do(func() { hang = gate; close(syncing) })
				}
				return hang
			})
			settled := make(chan error, 1)
			go func() {
				ss := append(settlement(d, verb), settlement(other, punctual.SettleSnooze)...)
				if verb == punctual.SettleExtend {
					ss[0].Delay = time.Hour
				}
				errs, err := s.Settle(context.Background(), ss)
				settled <- errors.Join(append(errs, err)...)
			}()
			<-syncing
			young := r.crashed(clock, false)
			close(gate)
			if err := <-settled; err != nil {
				t.Fatal(err)
			}
			clock.Advance(30 * time.Minute)
			if text, err := got(t.Context(), young); err != nil || text != want {
				t.Errorf("P13: killed during the fsync the message is %q, %v; want %q", text, err, want)
			}
		})
	}
}

// TestPushBesideAnAck: an ack needs no write lock, so it may come at any moment of a push of the
// same ID. The items before the ack are answered as duplicates of a leased message, and the first
// one after it is stored.
func TestPushBesideAnAck(t *testing.T) {
	s := openAt(t, "store", memOptions(vfs.NewMem()))
	defer closeStore(t, s)
	m := punctual.NewMessage{Topic: "o", ID: "a", Due: time.Unix(1, 0)}
	met := 0
	for range 500 {
		push(t, s, m)
		d := claim(t, s, "o", 1)[0]
		acked := make(chan error, 1)
		go func() {
			errs, err := s.Settle(context.Background(), settlement(d, punctual.SettleAck))
			acked <- errors.Join(append(errs, err)...)
		}()
		rs, err := s.Push(t.Context(), slices.Repeat([]punctual.NewMessage{m}, 100))
		if err := errors.Join(err, <-acked); err != nil {
			t.Fatal(err)
		}
		for i, r := range rs {
			if r.Status == punctual.PushStored {
				met += min(i, 1)
				settleAll(t, s, claim(t, s, "o", 1), punctual.SettleAck)
				break
			}
			if r.Status != punctual.PushDuplicate || r.Existing != punctual.StateLeased {
				t.Fatalf("P7: push %d beside an ack says %v of a message that is %q; want it stored, or the other leased", i, r.Status, r.Existing)
			}
		}
	}
	if met == 0 {
		t.Error("no ack came during a push")
	}
	t.Logf("%d acks came during a push", met)
}
