package diskstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/claimlog"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// killRig is a store whose files are in memory, so that a test can see what a kill -9 would leave:
// the files as they were written, synced or not.
type killRig struct {
	*Store
	t      *testing.T
	mem    *vfs.MemFS
	clock  *storekit.ManualClock
	faults *faults
}

func newKillRig(t *testing.T) *killRig {
	k := &killRig{t: t, mem: vfs.NewCrashableMem(), clock: storekit.NewManualClock(testStart), faults: &faults{}}
	k.Store = openAt(t, "store", &Options{fs: hookFS{k.mem, k.faults.hook}, Clock: k.clock, byHand: true})
	return k
}

// killed returns the file system as a kill at this moment leaves it.
func (k *killRig) killed() *vfs.MemFS {
	return k.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// reopened opens a store on what a kill left, an hour later by the clock.
func (k *killRig) reopened(files *vfs.MemFS) *Store {
	k.clock.Advance(time.Hour)
	return openAt(k.t, "store", &Options{fs: files, Clock: k.clock})
}

// slowClaim is a claim that stops between its two steps.
type slowClaim struct{ *attempt }

// reserve is the first step of a claim: it reserves the message, which no other claim encounters
// then.
func (k *killRig) reserve() slowClaim {
	k.t.Helper()
	c := slowClaim{&attempt{s: k.Store, c: &punctual.Claim{Max: 10, Lease: limits.MinLease}, now: k.Store.clock.ms(), stop: func() {}}}
	if _, err := c.reserveFrom(k.t.Context(), "o"); err != nil || len(c.got) != 1 {
		k.t.Fatalf("reserved %d messages, %v, want 1", len(c.got), err)
	}
	return c
}

// finishClaim is the second step of a claim: it grants the leases, writes them to the claim log,
// and makes them.
func (k *killRig) finishClaim(c slowClaim) []punctual.Delivery {
	k.t.Helper()
	ds, err := k.deliver(k.index.Grant(c.got, c.c.Lease, k.Store.clock.ms))
	if err != nil {
		k.t.Fatal(err)
	}
	return ds
}

// waiting begins a claim of another consumer and returns when the claim sleeps. The channel gets
// its error.
func (k *killRig) waiting() <-chan error {
	k.t.Helper()
	done := make(chan error, 1)
	go func() {
		ds, err := k.Claim(context.Background(), punctual.Claim{Topics: []string{"o"}, Max: 10, Wait: time.Hour})
		if len(ds) > 0 {
			err = fmt.Errorf("%d messages were delivered", len(ds))
		}
		done <- err
	}()
	waitUntil(k.t, "a claim sleeps", func() bool { return len(done) > 0 || underWay("(*killRig).waiting", "(*waiter).sleep") })
	return done
}

// rotate replaces the claim log, as maintenance does when a segment is full. It fails the test if
// older segments are left, because the test would show nothing then.
func (k *killRig) rotate() {
	k.t.Helper()
	num := k.claims.Segment() + 1
	if err := k.replaceFullSegment(k.t.Context()); err != nil {
		k.t.Error(err)
	}
	segments, err := claimlog.Segments(k.mem, "store")
	if err != nil || len(segments) == 0 || segments[0] < num {
		k.t.Errorf("the claim log was not replaced: segments %v, %v, want none before %d", segments, err, num)
	}
}

func mustBeAttempt(t *testing.T, ds []punctual.Delivery, want int) {
	t.Helper()
	if len(ds) != 1 || ds[0].ID != "a" || ds[0].Attempt != want {
		t.Errorf("P6 attempts are durable: got %+v, want attempt %d of a", ds, want)
	}
}

// TestClaimLogIsReplacedDuringAClaim: the new segment is written between the two steps of a claim,
// then the process is killed. The attempt that was handed out must count, and not the earlier lease
// of the message, if it had one, with which the new segment begins.
func TestClaimLogIsReplacedDuringAClaim(t *testing.T) {
	k := newKillRig(t)
	push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
	for attempt := 1; attempt <= 3; attempt++ { // the first of a message without a lease, the others of one whose lease ran out
		slow := k.reserve()
		k.rotate()
		mustBeAttempt(t, k.finishClaim(slow), attempt)
		files := k.killed()
		mustBeAttempt(t, claim(t, k.reopened(files), "o", 10), attempt+1)
	}
}

// TestKilledDuringAClaim: the claim log is replaced between the two steps of a claim, and the
// process is killed before the claim has written its lease. The attempts before must still count.
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
			slow := k.reserve()
			k.rotate()
			files := k.killed()
			k.index.PutBack(slow.got)
			ds := claim(t, k.reopened(files), "o", 10)
			mustBeAttempt(t, ds, 2)
			if len(ds) == 1 && (len(ds[0].Failures) != 1 || ds[0].Failures[0].Attempt != 1) {
				t.Errorf("the history is %+v, want the one failure of attempt 1", ds[0].Failures)
			}
		})
	}
}

// TestClaimIsSlowerThanItsLease: the machine holds a claim up between its two steps for
// longer than a lease lasts. Each attempt must be counted once, and an amendment
// meanwhile must find the message as the last attempt left it.
func TestClaimIsSlowerThanItsLease(t *testing.T) {
	t.Run("another claim", func(t *testing.T) {
		k := newKillRig(t)
		push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
		for attempt := 1; attempt <= 5; attempt += 2 {
			slow := k.reserve()
			k.clock.Advance(time.Minute)
			if ds := claim(t, k, "o", 10); len(ds) != 0 {
				t.Fatalf("P3 one holder: %+v was claimed while another claim had it in hand", ds)
			}
			mustBeAttempt(t, k.finishClaim(slow), attempt)
			if ds := claim(t, k, "o", 10); len(ds) != 0 {
				t.Fatalf("P3 one holder: %+v was claimed under a lease that has just begun", ds)
			}
			k.clock.Advance(time.Second)
			mustBeAttempt(t, claim(t, k, "o", 10), attempt+1)
			k.clock.Advance(time.Minute)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		k := newKillRig(t)
		push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
		slow := k.reserve()
		k.clock.Advance(time.Minute)
		out, err := k.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "o", ID: "a"}})
		if err != nil || out[0].Err != nil {
			t.Fatalf("cancel: %+v, %v", out, err)
		}
		if ds := k.finishClaim(slow); len(ds) != 0 {
			t.Errorf("P5 cancel is definite: %+v was handed out after its cancel", ds)
		}
	})
	t.Run("reschedule", func(t *testing.T) {
		k := newKillRig(t)
		push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
		if err := settle(t, k, claim(t, k, "o", 1)[0], punctual.SettleRetry); err != nil {
			t.Fatal(err)
		}
		slow := k.reserve()
		k.clock.Advance(time.Minute)
		out, err := k.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: "o", ID: "a"}})
		if err != nil || out[0].Err != nil {
			t.Fatalf("reschedule: %+v, %v", out, err)
		}
		if ds := k.finishClaim(slow); len(ds) != 0 {
			t.Errorf("P3 one holder: %+v was handed out at its old time", ds)
		}
		mustBeAttempt(t, claim(t, k, "o", 10), 2)
	})
}

// TestClaimReturnsNothingTwice: while a claim ends an expired message, more time passes than its
// leases last. The claim must not lease the other message twice, and that lease begins after this
// time.
func TestClaimReturnsNothingTwice(t *testing.T) {
	k := newKillRig(t)
	push(t, k, punctual.NewMessage{Topic: "o", ID: "expired", ExpireAfter: time.Millisecond}, punctual.NewMessage{Topic: "o", ID: "a"})
	k.clock.Advance(time.Second)
	begun := k.clock.Now()
	k.faults.set(func(_ int, op fsOp) error {
		if op.kind == "sync" && isLog(op) {
			k.clock.Advance(time.Minute)
		}
		return nil
	})
	ds, err := k.Claim(t.Context(), punctual.Claim{Topics: []string{"o"}, Max: 10, Lease: limits.MinLease})
	if err != nil {
		t.Fatal(err)
	}
	mustBeAttempt(t, ds, 1)
	k.faults.set(nil)
	if took := k.clock.Now().Sub(begun); took < time.Minute {
		t.Fatalf("the claim took %v, want longer than its leases last", took)
	}
	if info, err := k.Get(t.Context(), "o", "expired"); err != nil || info.State != punctual.StateDead {
		t.Errorf("the expired message is %s, %v, want dead", info.State, err)
	}
	if now := k.clock.Now(); len(ds) == 1 && !ds[0].LeaseUntil.After(now) {
		t.Errorf("P3 one holder: a lease until %v was handed out at %v", ds[0].LeaseUntil, now)
	}
	k.clock.Advance(time.Second)
	mustBeAttempt(t, claim(t, k, "o", 10), 2)
}

// TestClaimThatFailsPutsItsMessagesBack: a claim whose claim log could not be written leaves
// nothing behind. It wakes the claim that waits, which meets the same failure at once, and the next
// claim gets the message with the same attempt.
func TestClaimThatFailsPutsItsMessagesBack(t *testing.T) {
	k := newKillRig(t)
	push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
	for attempt := 1; attempt <= 3; attempt++ {
		k.index.PutBack(k.reserve().got)
		slow := k.reserve()
		woken := k.waiting()
		k.faults.set(func(_ int, op fsOp) error {
			if op.kind == "write" && strings.HasPrefix(op.name, "claims-") {
				return errSpace
			}
			return nil
		})
		_, before, _ := k.faults.state()
		ds, err := k.deliver(k.index.Grant(slow.got, 0, k.Store.clock.ms))
		if _, hits, _ := k.faults.state(); hits == before {
			t.Fatal("the claim log was not written to")
		}
		if !errors.Is(err, punctual.ErrNoSpace) || len(ds) > 0 {
			t.Fatalf("handed out %+v, %v without a note in the claim log, want ErrNoSpace", ds, err)
		}
		if !within(t, "a claim that waits for what was put back", func() { err = <-woken }) {
			return
		}
		if !errors.Is(err, punctual.ErrNoSpace) {
			t.Errorf("P11: the claim that waited ended with %v, want ErrNoSpace, because nothing may follow a torn frame", err)
		}
		k.faults.set(nil)
		k.rotate()
		mustBeAttempt(t, claim(t, k, "o", 10), attempt)
		k.clock.Advance(time.Minute)
	}
	if in := k.index.Stats(); in.Window != 0 || in.WindowBytes != 0 || in.Held != 1 || len(k.index.Leases()) != 1 {
		t.Errorf("after the failures: %d in the window of %d bytes, %d leased; want one lease", in.Window, in.WindowBytes, in.Held)
	}
	mustBeAccounted(t, k.Store, 1000)
}

// TestClaimLogIsReplacedBeforeASettlementIsWritten: a settlement takes its lease out of memory
// before the database's log is written. A segment of the claim log that has the lease must not be
// deleted before that, because a kill in between would take the attempt back.
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
	<-begun // from here on the database's log is not written, because its writer waits for this fsync
	before := k.transactions(t)
	go func() {
		if err := settle(t, k, d, punctual.SettleRetry); err != nil {
			t.Error(err)
		}
		done <- struct{}{}
	}()
	waitUntil(t, "the settlement is applied", func() bool { return k.transactions(t) > before })
	rotated := make(chan struct{})
	go func() { k.rotate(); close(rotated); done <- struct{}{} }()
	waitUntil(t, "the claim log is replaced, or that waits for the settlement", func() bool {
		select {
		case <-rotated:
			return true
		default:
			return k.writer.Awaited(before + 1)
		}
	})
	close(release)
	for range cap(done) {
		<-done
	}
	if files == nil {
		t.Fatal("no segment of the claim log was deleted")
	}
	mustBeAttempt(t, claim(t, k.reopened(files), "o", 10), 2)
}

// transactions returns the number of the last transaction. It takes the write lock, so that none is
// being filled.
func (k *killRig) transactions(t *testing.T) uint64 {
	defer holdWriteLock(t, k.Store)()
	return k.db.LastTxn()
}
