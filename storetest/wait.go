package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// waitCases: does a waiting claim wake when, and only when, there is something?
func waitCases() []testCase {
	return []testCase{
		{"woken by a push", p11, waitPush},
		{"woken by a push of another topic it waits for", p11, waitOtherTopic},
		{"woken by a push that is due far ahead", p11, waitFarPush},
		{"woken by the due time", p11, waitDue},
		{"looks again each second", p11, waitWithoutNotice},
		{"woken by a push that is due earlier", p11, waitEarlierPush},
		{"woken by a reschedule to earlier", p11, waitReschedule},
		{"woken by a reschedule to now", p11, waitRescheduleNow},
		{"woken by a replacing push", p11, waitReplace},
		{"woken by the next when the first was cancelled", p11, waitFirstCancelled},
		{"woken by the next when the first was moved to later", p11, waitFirstMoved},
		{"woken by a lease that runs out", p11, waitLeaseEnd},
		{"woken by a shortened lease", p11, waitExtend},
		{"woken by a release", p11, waitRelease},
		{"woken by a retry", p11, waitRetry},
		{"woken by a requeue", p11, waitRequeue},
		{"woken by a resumed topic", p11, waitResume},
		{"never early", p2, waitNotEarly},
		{"every waiter gets one", p3, waitMany},
		{"one message wakes one of many", p3, waitOneOfMany},
		{"ends when the wait is over", p11, waitOver},
		{"ends with its context", p13, waitCancelled},
		{"ends with its deadline", p13, waitDeadline},
		{"ends when the store closes", p13, waitClose},
	}
}

// rounds is how often a wake-up is tried. Whether the claim already sleeps when the event comes is
// up to the scheduler, so both orders are met.
const rounds = 20

// asleep lets the waiting claim run until it probably sleeps. Nothing depends on it.
func asleep() {
	for range 100 {
		runtime.Gosched()
	}
}

// wakeUp runs several rounds: it calls scene, starts a claim that waits, calls event, expects that
// the claim returns orders/x, and acks the message.
func (s *harness) wakeUp(after string, scene, event func()) {
	s.Helper()
	for i := range rounds {
		scene()
		w := s.wait(s.ctx, punctual.Claim{Topics: []string{mails, orders}, Max: 1, Wait: time.Hour})
		if i%2 == 0 {
			asleep()
		}
		event()
		s.ack(w.wakes(x, after))
	}
}

func waitPush(s *harness) {
	s.wakeUp("a push", func() {}, func() { s.push(order(x, 0)) })
}

func waitOtherTopic(s *harness) {
	for range rounds {
		w := s.wait(s.ctx, punctual.Claim{Topics: []string{"a", "b", mails}, Max: 1, Wait: time.Hour})
		asleep()
		s.push(punctual.NewMessage{Topic: "c", ID: x, IfExists: punctual.IfExistsReplace, Delay: time.Hour})
		s.push(punctual.NewMessage{Topic: mails, ID: "m"})
		s.ack(w.wakes("m", "a push"))
		if r := s.amend(cancel("c", x)); r.Err != nil {
			s.fail("cancel of c/x: %v", r.Err)
		}
	}
}

// waitFarPush: while no message is pending a claim may sleep without polling. So the store must
// notify it of the first message, however far ahead that is due.
func waitFarPush(s *harness) {
	for _, ahead := range []time.Duration{3 * time.Second, 11 * time.Second, time.Minute, 59 * time.Minute} {
		s.wakeUp(fmt.Sprintf("the due time, %v ahead, of a message pushed meanwhile", ahead), func() {}, func() {
			s.push(order(x, ahead))
			s.advance(ahead)
		})
	}
}

// suddenClock is a clock that can be put forward without a notice to those who wait for a time:
// their waits last as long as before. A machine that was suspended, or whose clock is set, does the
// same.
type suddenClock struct {
	*storekit.ManualClock
	ahead atomic.Int64 // how far it is ahead of the ManualClock, in ns
}

func (c *suddenClock) by() time.Duration { return time.Duration(c.ahead.Load()) }

func (c *suddenClock) Now() time.Time { return c.ManualClock.Now().Add(c.by()) }

func (c *suddenClock) After(t time.Time) (<-chan time.Time, func()) {
	return c.ManualClock.After(t.Add(-c.by()))
}

// waitWithoutNotice: while something is pending, a waiting claim polls once a second. The case
// allows two seconds, because the claim may read the clock only after the case has begun to move
// it.
func waitWithoutNotice(s *harness) {
	c := &suddenClock{ManualClock: s.clock}
	s.store = s.opener.open(c)
	for range rounds {
		s.push(order(x, time.Hour))
		w := s.wait(s.ctx, punctual.Claim{Topics: []string{mails, orders}, Max: 1, Wait: 10 * time.Hour})
		asleep()
		c.ahead.Add(int64(time.Hour))
		for range 20 {
			s.advance(100 * time.Millisecond)
			asleep()
		}
		s.ack(w.wakes(x, "its due time came without a notice, and two seconds more"))
	}
}

func waitDue(s *harness) {
	s.wakeUp("its due time came",
		func() { s.push(order(x, time.Minute)) },
		func() { s.advance(time.Minute) })
}

func waitEarlierPush(s *harness) {
	s.push(order("later", 40*time.Minute))
	s.wakeUp("the due time of a message pushed meanwhile", func() {}, func() {
		s.push(order(x, time.Second))
		s.advance(time.Second)
	})
}

func waitReschedule(s *harness) {
	s.wakeUp("a reschedule to earlier", func() { s.push(order(x, 10*time.Hour)) }, func() {
		s.outcome(reschedule(orders, x, time.Second), nil, isScheduled)
		s.advance(time.Second)
	})
}

func waitRescheduleNow(s *harness) {
	s.wakeUp("a reschedule to now", func() { s.push(order(x, 10*time.Hour)) }, func() {
		s.outcome(reschedule(orders, x, 0), nil, isScheduled)
	})
}

func waitReplace(s *harness) {
	s.wakeUp("a replacing push that is due now", func() { s.push(order(x, 10*time.Hour)) }, func() {
		m := order(x, 0)
		m.IfExists = punctual.IfExistsReplace
		s.wantPush(s.try(m), punctual.PushReplaced, isScheduled)
	})
}

// waitFirstCancelled: a claim that sleeps until the due time of a message that is cancelled
// meanwhile must wait for the next message then.
func waitFirstCancelled(s *harness) {
	s.wakeUp("the first was cancelled and its own due time came", func() {
		s.push(order("first", time.Second))
		s.push(order(x, time.Minute))
	}, func() {
		s.outcome(cancel(orders, "first"), nil, isScheduled)
		s.advance(time.Second)
		asleep()
		s.advance(59 * time.Second)
	})
}

func waitFirstMoved(s *harness) {
	s.push(order("first", time.Second))
	s.wakeUp("the first was moved to later and its own due time came", func() {
		s.outcome(reschedule(orders, "first", time.Second), nil, isScheduled)
		s.push(order(x, time.Minute))
	}, func() {
		s.outcome(reschedule(orders, "first", 10*time.Hour), nil, isScheduled)
		s.advance(time.Second)
		asleep()
		s.advance(59 * time.Second)
	})
}

func waitLeaseEnd(s *harness) {
	s.wakeUp("its lease ran out", func() { bringLeased(s) }, func() { s.advance(30 * time.Second) })
}

func waitExtend(s *harness) {
	var d punctual.Delivery
	s.wakeUp("its lease was made shorter and ran out", func() { d = bringLeased(s) }, func() {
		s.done(d, punctual.SettleExtend, time.Second)
		s.advance(time.Second)
	})
}

func waitRelease(s *harness) {
	var d punctual.Delivery
	s.wakeUp("a release", func() { d = bringLeased(s) }, func() { s.done(d, punctual.SettleRelease, 0) })
}

func waitRetry(s *harness) {
	for _, v := range []punctual.Verb{punctual.SettleRetry, punctual.SettleSnooze} {
		var d punctual.Delivery
		s.wakeUp(fmt.Sprint("a ", v), func() { d = bringLeased(s) }, func() {
			s.done(d, v, time.Second)
			s.advance(time.Second)
		})
	}
}

func waitRequeue(s *harness) {
	s.wakeUp("a requeue", func() { bringDead(s) }, func() {
		s.outcome(requeue(orders, x, 0), nil, isDead)
	})
}

func waitResume(s *harness) {
	s.wakeUp("its topic was resumed", func() {
		s.configure(orders, punctual.SettingsPatch{DeliveryPaused: ptr(true)})
		s.push(order(x, 0))
	}, func() {
		s.configure(orders, punctual.SettingsPatch{DeliveryPaused: ptr(false)})
	})
}

// waitNotEarly moves the clock up to the due time in steps, and the claim must not return before.
// Then wakes also checks that Delivery.Delivered is not before the due time.
func waitNotEarly(s *harness) {
	for range rounds {
		r := s.push(order(x, 10*time.Millisecond+300*time.Microsecond))
		w := s.wait(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: time.Hour})
		for s.clock.Now().Before(r.Due) {
			asleep()
			select {
			case <-w.done:
				s.fail("a waiting claim returned %v, %v at %v; the message is due %v", ids(w.ds), w.err, s.clock.Now(), r.Due)
			default:
			}
			s.advance(500 * time.Microsecond)
		}
		s.ack(w.wakes(x, "its due time came"))
	}
}

func waitMany(s *harness) {
	const n = 16
	for range 5 {
		waiters := make([]*waiter, n)
		for i := range waiters {
			waiters[i] = s.wait(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: time.Hour})
		}
		asleep()
		for i := range n {
			s.push(order(fmt.Sprint(i), time.Duration(i%2)*time.Second))
		}
		s.advance(time.Second)
		seen := make(map[string]bool)
		for _, w := range waiters {
			ds, err := w.result("as many pushes as waiters")
			if err != nil || len(ds) != 1 || seen[ds[0].ID] {
				s.fail("a waiting claim of one message returned %v, %v; others got %v", ids(ds), err, seen)
			}
			seen[ds[0].ID] = true
			s.ack(ds[0])
		}
	}
}

func waitOneOfMany(s *harness) {
	const n = 8
	s.inspector()
	ctx, end := context.WithCancel(s.ctx)
	defer end()
	waiters := make([]*waiter, n)
	for i := range waiters {
		waiters[i] = s.wait(ctx, punctual.Claim{Topics: []string{orders}, Max: 5, Wait: time.Hour})
	}
	asleep()
	s.push(order(x, 0))
	s.awaitTaken(orders)
	end()
	got := 0
	for _, w := range waiters {
		ds, err := w.result("its context ended")
		if err != nil && !errors.Is(err, context.Canceled) {
			s.fail("a claim whose context ended returned %v", err)
		}
		got += len(ds)
	}
	switch {
	case got == 0 && s.opener.lossyClaims:
		s.awaitGivenBack(orders, x)
	case got != 1:
		s.fail("%d waiting claims together received one message %d times", n, got)
	}
}

// awaitGivenBack waits until a message is ready again that was leased to a claim which has ended.
// The clock stands still, so the lease has not run out: the store has given the message back.
func (s *harness) awaitGivenBack(topic, id string) {
	s.Helper()
	var info punctual.Info
	for end := time.Now().Add(s.opener.waitLimit); time.Now().Before(end); runtime.Gosched() {
		if info = s.get(topic, id); info.State == punctual.StateReady && info.Attempt == 0 {
			return
		}
	}
	s.fail("the message of a claim that ended without it is %v after %d attempts; want ready after none", info.State, info.Attempt)
}

// awaitTaken waits until one of the waiting claims has leased a message of the topic.
func (s *harness) awaitTaken(topic string) {
	s.Helper()
	end := time.Now().Add(s.opener.waitLimit)
	for time.Now().Before(end) {
		if st, err := s.inspector().Stats(s.ctx, topic); err == nil && st.Leased > 0 {
			return
		}
		runtime.Gosched()
	}
	s.fail("no waiting claim took the message that was pushed to %s", topic)
}

// waitOver moves the clock on while real time passes too, because a store may measure the wait by
// either.
func waitOver(s *harness) {
	s.push(order(x, 10*time.Hour))
	w := s.wait(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: 50 * time.Millisecond})
	end := time.Now().Add(s.opener.waitLimit)
	for moved := time.Duration(0); time.Now().Before(end) && moved < time.Hour; moved += time.Millisecond {
		s.advance(time.Millisecond)
		select {
		case <-w.done:
			end = time.Time{}
		case <-time.After(100 * time.Microsecond):
		}
	}
	if ds, err := w.result("its wait was over"); err != nil || len(ds) != 0 {
		s.fail("a claim whose wait was over returned %v, %v; want nothing and no error", ids(ds), err)
	}
}

func waitCancelled(s *harness) {
	s.push(order(x, time.Hour))
	for range rounds {
		ctx, end := context.WithCancel(s.ctx)
		w := s.wait(ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: 10 * time.Hour})
		asleep()
		end()
		ds, err := w.result("its context ended")
		s.wantErr(err, context.Canceled, "a waiting claim whose context was cancelled, with %v", ids(ds))
	}
	s.advance(time.Hour)
	if d := s.oneAfterEnded(orders); d.Attempt != 1 {
		s.fail("claims that ended with their context used up attempts: the next is %d", d.Attempt)
	}
}

// oneAfterEnded claims one message, as the method one does, after waiting claims have ended with
// their contexts. Where the answers of claims may be lost, one of those claims may have leased the
// message, so that it comes only when the store has given it back.
func (s *harness) oneAfterEnded(topic string) punctual.Delivery {
	s.Helper()
	if s.opener.lossyClaims {
		for end := time.Now().Add(s.opener.waitLimit); time.Now().Before(end); runtime.Gosched() {
			if ds := s.take(topic, 1); len(ds) == 1 {
				return ds[0]
			}
		}
	}
	return s.one(topic)
}

func waitDeadline(s *harness) {
	ctx, end := context.WithTimeout(s.ctx, 5*time.Millisecond)
	defer end()
	ds, err := s.wait(ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: 10 * time.Hour}).result("its deadline passed")
	s.wantErr(err, context.DeadlineExceeded, "a waiting claim whose deadline passed, with %v", ids(ds))
}

func waitClose(s *harness) {
	s.push(order(x, time.Hour))
	waiters := make([]*waiter, 4)
	for i := range waiters {
		waiters[i] = s.wait(s.ctx, punctual.Claim{Topics: []string{orders, mails}, Max: 1, Wait: 10 * time.Hour})
	}
	asleep()
	s.closeStore()
	for _, w := range waiters {
		ds, err := w.result("the store was closed")
		s.wantErr(err, punctual.ErrClosed, "a claim that waited when the store was closed, with %v", ids(ds))
	}
}

// closeStore closes the store. Afterwards the case may only check that calls return ErrClosed.
func (s *harness) closeStore() {
	s.Helper()
	s.closed = true
	if err := s.callClose(); err != nil {
		s.fail("Close: unexpected error: %v", err)
	}
}

// callClose returns what Close of the store returns. The case fails when Close does not return
// within its waitLimit.
func (s *harness) callClose() (err error) {
	s.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = s.store.Close()
	}()
	if !s.ends(done) {
		s.fail("Close has not returned after %v", s.opener.waitLimit)
	}
	return err
}
