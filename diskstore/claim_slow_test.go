package diskstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// TestLapsedLeaseIsNotHandedOut: a write of the claim log takes longer than the lease lasts. Nobody
// gets a lease that has ended, and no attempt is counted, because nobody saw one.
func TestLapsedLeaseIsNotHandedOut(t *testing.T) {
	k := newKillRig(t)
	push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
	var slow atomic.Int32
	var armed atomic.Bool // the first write of each claim is slow
	k.faults.set(func(_ int, op fsOp) error {
		if op.kind == "write" && strings.HasPrefix(op.name, "claims-") && armed.CompareAndSwap(true, false) {
			slow.Add(1)
			k.clock.Advance(time.Minute)
		}
		return nil
	})
	for range 3 {
		armed.Store(true)
		if ds := claim(t, k, "o", 10); len(ds) != 0 {
			t.Errorf("P3 one holder: a lease until %v was handed out at %v", ds[0].LeaseUntil, k.clock.Now())
		}
	}
	if slow.Load() != 3 {
		t.Fatalf("the claim log was slow %d times, want 3", slow.Load())
	}
	mustBeSound(t, k.Store)
	files := k.killed()
	ds := claim(t, k, "o", 10)
	mustBeAttempt(t, ds, 1)
	if len(ds) == 1 && len(ds[0].Failures) != 0 {
		t.Errorf("the history is %+v, want none: nobody had it", ds[0].Failures)
	}
	again := claim(t, k.reopened(files), "o", 10)
	mustBeAttempt(t, again, 1)
	if len(again) == 1 && len(again[0].Failures) != 0 {
		t.Errorf("P6: after kill -9 the history is %+v, want none: the claims had answered that they have nothing", again[0].Failures)
	}
}

// claimThatLapses makes a claim an hour later, whose lease runs out while the claim log is written.
func claimThatLapses(t *testing.T, k *killRig) {
	t.Helper()
	k.clock.Advance(time.Hour)
	var slow atomic.Bool
	k.faults.set(func(_ int, op fsOp) error {
		if op.kind == "write" && strings.HasPrefix(op.name, "claims-") && slow.CompareAndSwap(false, true) {
			k.clock.Advance(time.Minute)
		}
		return nil
	})
	if ds := claim(t, k, "o", 10); len(ds) != 0 || !slow.Load() {
		t.Fatalf("claimed %+v, slow %v; want nothing from a slow claim log", ds, slow.Load())
	}
}

// TestLapsedLeaseLeavesTheOneBefore: the attempt before the one that nobody saw is still counted
// after kill -9.
func TestLapsedLeaseLeavesTheOneBefore(t *testing.T) {
	k := newKillRig(t)
	push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
	mustBeAttempt(t, claim(t, k, "o", 10), 1)
	claimThatLapses(t, k)
	ds := claim(t, k.reopened(k.killed()), "o", 10)
	mustBeAttempt(t, ds, 2)
	if len(ds) == 1 && len(ds[0].Failures) != 1 {
		t.Errorf("P6: the history is %+v, want the first attempt's lease that ran out", ds[0].Failures)
	}
}

// TestLapsedLeaseEndsTheOneBefore: a claim leases a message again whose lease has run out, and the
// new lease runs out, too, while the claim log is written. The first holder has lost its lease,
// after a kill as before it. If its extension were accepted before the kill, the message would be
// delivered to somebody else after the kill, while the extended lease still ran.
func TestLapsedLeaseEndsTheOneBefore(t *testing.T) {
	k := newKillRig(t)
	push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
	first := claim(t, k, "o", 1)[0]
	claimThatLapses(t, k)
	extend := settlement(first, punctual.SettleExtend)
	extend[0].Delay = 3 * time.Hour
	for _, s := range []*Store{k.Store, k.reopened(k.killed())} {
		errs, err := s.Settle(t.Context(), extend)
		if err != nil || !errors.Is(errs[0], punctual.ErrLeaseLost) {
			t.Errorf("P3 one holder, P4 fencing: the first holder extends its lease: %v, %v; want ErrLeaseLost before and after a kill", errs, err)
		}
	}
	mustBeAttempt(t, claim(t, k, "o", 1), 2)
	mustBeSound(t, k.Store)
}

// TestNobodyTakesWhatIsBeingLeased: the claim log hangs while a lease is written to it. No other
// claim takes the message meanwhile, even if the lease ends, because that would count an attempt
// that nobody saw. An amendment does take the message.
func TestNobodyTakesWhatIsBeingLeased(t *testing.T) {
	for _, change := range []punctual.Change{0, punctual.ChangeCancel, punctual.ChangeReschedule} {
		t.Run(fmt.Sprint("change ", change), func(t *testing.T) {
			k := newKillRig(t)
			push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
			held, release := make(chan struct{}, 1), make(chan struct{})
			k.faults.hang(func(op fsOp) chan struct{} {
				if op.kind == "write" && strings.HasPrefix(op.name, "claims-") && len(held) == 0 {
					held <- struct{}{}
					return release
				}
				return nil
			})
			got := make(chan []punctual.Delivery, 1)
			go func() { got <- claim(t, k, "o", 1) }()
			waitUntil(t, "the claim log is written", func() bool { return len(held) == 1 })
			if change == 0 {
				k.clock.Advance(time.Minute)
				if ds := claim(t, k, "o", 1); len(ds) != 0 {
					t.Errorf("P3 one holder: %+v was claimed while another claim had it in hand", ds)
				}
			} else {
				amended := make(chan error)
				go func() {
					out, err := k.Amend(t.Context(), []punctual.Amendment{{Change: change, Topic: "o", ID: "a"}})
					if err == nil && out[0].Err != nil {
						err = fmt.Errorf("amend: %w", out[0].Err)
					}
					amended <- err
				}()
				waitUntil(t, "the change is applied", func() bool { // but not answered, because its durable marker waits for the claim log
					in := k.index.Stats()
					return in.Window+in.Held == 0
				})
				defer func() {
					if err := <-amended; err != nil {
						t.Error(err)
					}
				}()
			}
			close(release)
			if ds := <-got; len(ds) != 0 {
				t.Errorf("P3 one holder, P5 cancel is definite: %+v was handed out at %v", ds, k.clock.Now())
			}
			if change != punctual.ChangeCancel {
				waitUntil(t, "the message is claimed", func() bool {
					ds := claim(t, k, "o", 1)
					if len(ds) == 1 {
						mustBeAttempt(t, ds, 1)
					}
					return len(ds) == 1
				})
			}
			mustBeAccounted(t, k.Store, 1000)
		})
	}
}

// slowDisk is a store in which a step of a claim of topic "slow" has to wait until release is
// called. Its topic "quick" has message q.
type slowDisk struct {
	*killRig
	release func()
}

// slowKinds are what a claim may have to wait for. comes says whether message s of topic slow is
// delivered in the end.
var slowKinds = []struct {
	name  string
	comes bool
	make  func(t *testing.T) slowDisk
}{
	{"load", true, func(t *testing.T) slowDisk {
		k := newKillRig(t)
		push(t, k, punctual.NewMessage{Topic: "slow", ID: "s", Delay: time.Hour})
		push(t, k, punctual.NewMessage{Topic: "quick", ID: "q"})
		release := holdWriteLock(t, k.Store) // as a slow transaction would
		k.clock.Advance(2 * time.Hour)
		return slowDisk{k, release}
	}},
	{"dead-letter", false, func(t *testing.T) slowDisk {
		k := newKillRig(t)
		push(t, k, punctual.NewMessage{Topic: "slow", ID: "s", ExpireAfter: time.Second})
		push(t, k, punctual.NewMessage{Topic: "quick", ID: "q"})
		k.clock.Advance(time.Hour)
		release := make(chan struct{})
		k.faults.hang(func(op fsOp) chan struct{} {
			if op.kind == "sync" && isLog(op) {
				return release
			}
			return nil
		})
		return slowDisk{k, func() { close(release) }}
	}},
}

// whileItMoves moves the clock until the claim returns.
func (k *killRig) whileItMoves(c punctual.Claim) (ds []punctual.Delivery, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ds, err = k.Claim(k.t.Context(), c)
	}()
	for giveUp := time.Now().Add(waitLimit); ; k.clock.Advance(slowWait * time.Millisecond) {
		select {
		case <-done:
			return ds, err
		case <-time.After(time.Millisecond):
			if time.Now().After(giveUp) {
				return nil, fmt.Errorf("the claim hangs")
			}
		}
	}
}

// TestClaimDoesNotWaitForASlowTopic: a claim of two topics returns with the message of the one,
// although the other has a message to load while the write lock is held, or a message to end while
// the fsync of the log hangs.
func TestClaimDoesNotWaitForASlowTopic(t *testing.T) {
	for _, kind := range slowKinds {
		for _, topics := range [][]string{{"quick", "slow"}, {"slow", "quick"}} {
			t.Run(kind.name+"/"+topics[0]+" first", func(t *testing.T) {
				k := kind.make(t)
				ds, err := k.whileItMoves(punctual.Claim{Topics: topics, Max: 10, Lease: time.Minute})
				if err != nil || len(ds) != 1 || ds[0].ID != "q" || !ds[0].LeaseUntil.After(k.clock.Now()) {
					t.Errorf("P14 isolation: a claim got %+v, %v at %v; want q under a lease that lasts", ds, err, k.clock.Now())
				}
				k.release()
				k.mustComeThrough(kind.comes)
			})
		}
	}
}

// TestClaimWaitsForASlowTopicAlone: a claim that has nothing else to deliver waits for the slow
// step, also when its Wait is 0.
func TestClaimWaitsForASlowTopicAlone(t *testing.T) {
	for _, kind := range slowKinds {
		t.Run(kind.name, func(t *testing.T) {
			k := kind.make(t)
			got := make(chan []punctual.Delivery, 1)
			go func() { got <- claim(t, k, "slow", 10) }()
			for range 50 {
				k.clock.Advance(slowWait * time.Millisecond)
				time.Sleep(time.Millisecond) // nothing depends on it
			}
			if len(got) > 0 {
				t.Errorf("a claim returned %+v while its topic could not be read", <-got)
			}
			k.release()
			if ds := <-got; (len(ds) == 1) != kind.comes {
				t.Errorf("a claim returned %+v", ds)
			}
		})
	}
}

// mustComeThrough fails the test unless message s of topic slow is delivered in the end, or is dead
// if it does not come.
func (k *killRig) mustComeThrough(comes bool) {
	if comes {
		ds, err := k.Claim(k.t.Context(), punctual.Claim{Topics: []string{"slow"}, Max: 10})
		if err != nil || len(ds) != 1 || ds[0].ID != "s" || ds[0].Attempt != 1 {
			k.t.Errorf("P1 no loss: got %+v, %v; want the first attempt of s", ds, err)
		}
		return
	}
	waitUntil(k.t, "the expired message is dead", func() bool {
		info, err := k.Get(k.t.Context(), "slow", "s")
		return err == nil && info.State == punctual.StateDead && info.Reason == punctual.ReasonExpired
	})
}

// TestWaiterIsHintedWhileItPolls: a message that comes between the poll of a waiting claim and its
// sleep must wake the claim, however far ahead the message is due, because the claim may have found
// no message, and would sleep until its Wait is over.
func TestWaiterIsHintedWhileItPolls(t *testing.T) {
	k := newKillRig(t)
	w := k.waiters.add([]string{"o"})
	defer k.waiters.remove(w)
	due := testStart.Add(2 * time.Hour)
	hinted := func(when string) {
		t.Helper()
		due = due.Add(-time.Minute) // it is the first of its topic
		push(t, k, punctual.NewMessage{Topic: "o", Due: due})
		select {
		case <-w.hint:
		default:
			t.Errorf("P11 wake-ups are only that: a push due in an hour or more does not wake a claim that %s", when)
		}
	}
	hinted("has not slept yet")
	now := k.Store.clock.ms()
	for _, next := range []int64{now, now - 1000} {
		if err := w.sleep(t.Context(), k.state.Ended(), k.Store.clock, next, 1000*time.Second); err != nil { // returns at once, because next has come
			t.Fatal(err)
		}
		hinted("has slept until its time and polls again")
	}
	w.hint <- struct{}{}
	if err := w.sleep(t.Context(), k.state.Ended(), k.Store.clock, never, 1000*time.Second); err != nil {
		t.Fatal(err)
	}
	hinted("was woken and polls again")
}

// TestExtensionBesideAChangeThatIsGivenUp: the caller gives up a call of an extension and a snooze
// while the fsync of the snooze hangs. The extension is in force in memory, where others see it, so
// it must survive a kill.
func TestExtensionBesideAChangeThatIsGivenUp(t *testing.T) {
	k := newKillRig(t)
	push(t, k, punctual.NewMessage{Topic: "o", ID: "a"}, punctual.NewMessage{Topic: "o", ID: "b"})
	ds := claim(t, k, "o", 2)
	if len(ds) != 2 {
		t.Fatalf("claimed %d, want 2", len(ds))
	}
	held, release := make(chan struct{}, 1), make(chan struct{})
	k.faults.hang(func(op fsOp) chan struct{} {
		if op.kind == "sync" && isLog(op) {
			select {
			case held <- struct{}{}:
			default:
			}
			return release
		}
		return nil
	})
	ctx, giveUp := context.WithCancel(t.Context())
	settled := make(chan error)
	go func() {
		_, err := k.Settle(ctx, []punctual.Settlement{
			{Topic: "o", ID: ds[0].ID, Token: ds[0].Token, Verb: punctual.SettleExtend, Delay: 3 * time.Hour},
			{Topic: "o", ID: ds[1].ID, Token: ds[1].Token, Verb: punctual.SettleSnooze},
		})
		settled <- err
	}()
	waitUntil(t, "the fsync hangs", func() bool { return len(held) == 1 })
	giveUp()
	if err := <-settled; punctual.Definite(err) {
		t.Errorf("P13: a call that was given up while the disk hung: %v, want an error that is not definite", err)
	}
	files := k.killed()
	close(release)
	if again := claim(t, k.reopened(files), "o", 10); len(again) > 1 || len(again) == 1 && again[0].ID == ds[0].ID {
		t.Errorf("P3 one holder: claimed %+v an hour after a kill; the lease of %s was extended by three", again, ds[0].ID)
	}
}

// TestExtensionBeforeAnAckThatIsNotLogged: an ack changes memory before an extension of the same
// lease is in the claim log. The extension is logged and answered, then the process is killed
// before the ack is logged. The extension survives that.
func TestExtensionBeforeAnAckThatIsNotLogged(t *testing.T) {
	k := newKillRig(t)
	push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
	d := claim(t, k, "o", 1)[0]
	st := punctual.Settlement{Topic: "o", ID: "a", Token: d.Token, Verb: punctual.SettleExtend, Delay: 3 * time.Hour}
	told, done := k.index.Settle([]punctual.Settlement{st}, k.Store.clock.ms)
	if !done || told.Errs[0] != nil {
		t.Fatalf("extend: %v, in memory %v", told.Errs, done)
	}
	st.Verb, st.Delay = punctual.SettleAck, 0
	if acked, done := k.index.Settle([]punctual.Settlement{st}, k.Store.clock.ms); !done || acked.Errs[0] != nil {
		t.Fatalf("ack: %v, in memory %v", acked.Errs, done)
	}
	if acks, err := k.logChanges(told.Acked, told.Extended); errors.Join(acks, err) != nil {
		t.Fatal(acks, err)
	}
	if ds := claim(t, k.reopened(k.killed()), "o", 1); len(ds) != 0 {
		t.Errorf("P3 one holder: %+v was claimed an hour after a kill, the lease having been extended by three", ds[0])
	}
}
