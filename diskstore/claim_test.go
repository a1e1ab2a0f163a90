package diskstore

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
)

// killRig is a store in memory of which a test can see what a kill -9 would leave: the files as
// they were written, synced or not.
type killRig struct {
	*Store
	t      *testing.T
	mem    *vfs.MemFS
	clock  *punctual.ManualClock
	faults *faults
}

func newKillRig(t *testing.T) *killRig {
	k := &killRig{t: t, mem: vfs.NewCrashableMem(), clock: punctual.NewManualClock(testStart), faults: &faults{}}
	k.Store = openAt(t, "store", &Options{fs: hookFS{k.mem, k.faults.hook}, Clock: k.clock})
	return k
}

// killed is the file system as a kill at this moment leaves it.
func (k *killRig) killed() *vfs.MemFS {
	return k.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// reopened is the store on what a kill left, when every lease has run out.
func (k *killRig) reopened(files *vfs.MemFS) *Store {
	k.clock.Advance(time.Hour)
	return openAt(k.t, "store", &Options{fs: files, Clock: k.clock})
}

// take is the first step of a claim: the message is taken off its timeline.
func (k *killRig) take() []*claimed {
	k.t.Helper()
	cs, _, _ := k.Store.take("o", k.Store.clock.ms(), 10, punctual.MinLease)
	if len(cs) != 1 {
		k.t.Fatalf("took %d messages, want 1", len(cs))
	}
	return cs
}

// handOut is the second step.
func (k *killRig) handOut(cs []*claimed) []punctual.Delivery {
	k.t.Helper()
	ds, err := k.Store.handOut(k.t.Context(), cs)
	if err != nil {
		k.t.Fatal(err)
	}
	return ds
}

// rotate is what the housekeeper does with a full segment of the claim log.
func (k *killRig) rotate() {
	k.t.Helper()
	if err := k.replaceClaims(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}

func mustBeAttempt(t *testing.T, ds []punctual.Delivery, want int) {
	t.Helper()
	if len(ds) != 1 || ds[0].ID != "a" || ds[0].Attempt != want {
		t.Errorf("P6 attempts are durable: got %+v, want attempt %d of a", ds, want)
	}
}

// TestClaimLogIsReplacedDuringAClaim: the new segment is written between the two steps of a
// claim, then the process is killed. The attempt that was handed out must count, not the
// state in which the new segment met the message.
func TestClaimLogIsReplacedDuringAClaim(t *testing.T) {
	k := newKillRig(t)
	push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
	for attempt := 1; attempt <= 3; attempt++ { // of a scheduled message, then of one whose lease ran out
		taken := k.take()
		k.rotate()
		mustBeAttempt(t, k.handOut(taken), attempt)
		files := k.killed()
		mustBeAttempt(t, claim(t, k.reopened(files), "o", 10), attempt+1)
	}
}

// TestKilledDuringAClaim: the same, but the process is killed before the claim has counted its
// attempt. Those that were counted before must still count.
func TestKilledDuringAClaim(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(*killRig)
	}{
		{"after a retry", func(k *killRig) {
			if err := settle(t, k, claim(t, k, "o", 1)[0], punctual.SettleRetry); err != nil {
				t.Fatal(err)
			}
		}},
		{"after a lease ran out", func(k *killRig) { claim(t, k, "o", 1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKillRig(t)
			push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
			c.before(k)
			k.clock.Advance(time.Minute)
			taken := k.take()
			k.rotate()
			files := k.killed()
			k.undo(taken)
			ds := claim(t, k.reopened(files), "o", 10)
			mustBeAttempt(t, ds, 2)
			if len(ds) == 1 && (len(ds[0].Failures) != 1 || ds[0].Failures[0].Attempt != 1) {
				t.Errorf("the history is %+v, want the one failure of attempt 1", ds[0].Failures)
			}
		})
	}
}

// TestClaimIsSlowerThanItsLease: a claim that the machine holds up between its two steps for
// longer than the lease lasts. Attempts must be counted once each, and an amendment
// meanwhile must find the message as the last attempt left it.
func TestClaimIsSlowerThanItsLease(t *testing.T) {
	t.Run("another claim", func(t *testing.T) {
		k := newKillRig(t)
		push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
		for attempt := 1; attempt <= 5; attempt += 2 {
			slow := k.take()
			k.clock.Advance(time.Minute)
			if ds := claim(t, k, "o", 10); len(ds) != 0 {
				t.Fatalf("P3 one holder: %+v was claimed while another claim had it in hand", ds)
			}
			mustBeAttempt(t, k.handOut(slow), attempt)
			mustBeAttempt(t, claim(t, k, "o", 10), attempt+1)
			k.clock.Advance(time.Minute)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		k := newKillRig(t)
		push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
		slow := k.take()
		k.clock.Advance(time.Minute)
		out, err := k.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "o", ID: "a"}})
		if err != nil || out[0].Status != punctual.Cancelled {
			t.Fatalf("cancel: %+v, %v", out, err)
		}
		if ds := k.handOut(slow); len(ds) != 0 {
			t.Errorf("P5 cancel is definite: %+v was handed out after its cancel", ds)
		}
	})
	t.Run("reschedule", func(t *testing.T) {
		k := newKillRig(t)
		push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
		if err := settle(t, k, claim(t, k, "o", 1)[0], punctual.SettleRetry); err != nil {
			t.Fatal(err)
		}
		slow := k.take()
		k.clock.Advance(time.Minute)
		out, err := k.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: "o", ID: "a"}})
		if err != nil || out[0].Status != punctual.Rescheduled {
			t.Fatalf("reschedule: %+v, %v", out, err)
		}
		if ds := k.handOut(slow); len(ds) != 0 {
			t.Errorf("P3 one holder: %+v was handed out at its old time", ds)
		}
		mustBeAttempt(t, claim(t, k, "o", 10), 2)
	})
}

// TestClaimReturnsNothingTwice: while a claim buries an expired message, the leases that it has just
// made run out. It must not take those messages again.
func TestClaimReturnsNothingTwice(t *testing.T) {
	k := newKillRig(t)
	push(t, k, punctual.NewMessage{Topic: "o", ID: "expired", ExpireAfter: time.Millisecond}, punctual.NewMessage{Topic: "o", ID: "a"})
	k.clock.Advance(time.Second)
	k.faults.set(func(_ int, op fsOp) error {
		if op.kind == "sync" && isLog(op) {
			k.clock.Advance(time.Minute)
		}
		return nil
	})
	ds, err := k.Claim(t.Context(), punctual.Claim{Topics: []string{"o"}, Max: 10, Lease: punctual.MinLease})
	if err != nil {
		t.Fatal(err)
	}
	mustBeAttempt(t, ds, 1)
	k.faults.set(nil)
	mustBeAttempt(t, claim(t, k, "o", 10), 2)
}

// TestClaimThatFailsPutsItsMessagesBack: nothing of a claim whose log could not be written
// remains, and who waits learns that the message is there.
func TestClaimThatFailsPutsItsMessagesBack(t *testing.T) {
	k := newKillRig(t)
	push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
	for attempt := 1; attempt <= 3; attempt++ {
		k.undo(k.take())
		k.faults.set(func(_ int, op fsOp) error {
			if op.kind == "write" && strings.HasPrefix(op.name, "claims-") {
				return errSpace
			}
			return nil
		})
		if ds, err := k.Store.handOut(t.Context(), k.take()); err == nil {
			t.Fatalf("handed out %+v without a note in the claim log", ds)
		}
		k.faults.set(nil)
		k.rotate() // nothing may follow a torn frame
		mustBeAttempt(t, claim(t, k, "o", 10), attempt)
		k.clock.Advance(time.Minute)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if topic := k.topics["o"]; topic.nears != 0 || k.nearBytes != 0 || len(topic.leased) != 1 || len(k.byToken) != 1 {
		t.Errorf("after the failures: %d near of %d bytes, %d leased, %d tokens; want one lease", topic.nears, k.nearBytes, len(topic.leased), len(k.byToken))
	}
}

// TestClaimLogIsReplacedBeforeASettlementIsWritten: a settlement takes its lease out of memory before
// the database's log is written. A segment of the claim log that knows the lease must last
// until then, or a kill in between takes the attempt.
func TestClaimLogIsReplacedBeforeASettlementIsWritten(t *testing.T) {
	k := newKillRig(t)
	push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
	d := claim(t, k, "o", 1)[0]
	held, release := make(chan struct{}), make(chan struct{})
	var files *vfs.MemFS
	k.faults.hang(func(op fsOp) chan struct{} {
		switch {
		case files == nil && op.kind == "remove" && strings.HasPrefix(op.name, "claims-"):
			files = k.killed()
			if err := files.Remove(files.PathJoin("store", op.name)); err != nil {
				t.Error(err)
			}
		case op.kind == "sync" && isLog(op) && held != nil:
			close(held)
			held = nil
			return release
		}
		return nil
	})
	begun := held
	done := make(chan struct{}, 3)
	go func() { push(t, k, punctual.NewMessage{Topic: "p"}); done <- struct{}{} }()
	<-begun // from here on the database's log is not written: its writer waits for this fsync
	before := k.transactions()
	go func() {
		if err := settle(t, k, d, punctual.SettleRetry); err != nil {
			t.Error(err)
		}
		done <- struct{}{}
	}()
	k.until(func() bool { return k.transactions() > before })
	rotated := make(chan struct{})
	go func() { k.rotate(); close(rotated); done <- struct{}{} }()
	k.until(func() bool {
		select {
		case <-rotated:
			return true
		default:
			return k.transactions() > before+1 // the rotation waits for one of its own
		}
	})
	close(release)
	for range cap(done) {
		<-done
	}
	mustBeAttempt(t, claim(t, k.reopened(files), "o", 10), 2)
}

// transactions is how many there were, none of them in the making.
func (k *killRig) transactions() uint64 {
	<-k.sequencer
	defer func() { k.sequencer <- struct{}{} }()
	return k.txns
}

// until waits for a condition that is sure to come.
func (k *killRig) until(cond func() bool) {
	for !cond() {
		time.Sleep(time.Millisecond)
	}
}
