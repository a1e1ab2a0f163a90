package storetest

import (
	"cmp"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/compare"
)

// finishedCases: is the finished record of a finished message kept, as long as the topic asks and
// no longer?
func finishedCases() []testCase {
	return []testCase{
		{"refused where none is kept", p13, finishedRefused},
		{"nothing by default", p13, finishedDefault},
		{"every end", p13, finishedEnds},
		{"how late", p13, finishedLate},
		{"with its failures", p13, finishedFailures},
		{"kept for as long as asked", p13, finishedForgotten},
		{"fixed when it finishes", p13, finishedFixed},
		{"kept again", p13, finishedKeptAgain},
		{"does not hold the ID", p7, finishedFree},
		{"remembered and kept", p7, finishedRemembered},
		{"of the last one with the ID", p13, finishedAgain},
		{"no finished record of what is not finished", p13, finishedNot},
		{"gone with its topic", p13, finishedDeleted},
		{"many in one call", p13, finishedMany},
		{"malformed and unknown", p13, finishedMalformed},
		{"list", p13, finishedList},
		{"list by time and outcome", p13, finishedListFiltered},
		{"list of equal times", p13, finishedListEqualTimes},
		{"list after the retention was changed", p13, finishedListRetentions},
		{"list of what finished again", p13, finishedListAgain},
		{"list while records come and go", p13, finishedListChanging},
		{"list beside other topics", p13, finishedListBeside},
		{"list of what is gone", p13, finishedListGone},
		{"list of few among many", p13, finishedListFew},
		{"malformed list", p13, finishedListMalformed},
	}
}

func (s *harness) keeper() (punctual.FinishedKeeper, error) { return compare.Keeper(s.ctx, s.store) }

// keep has the finished records of a topic kept, or skips the case when the store keeps none.
func (s *harness) keep(topic string, d time.Duration) {
	s.Helper()
	if _, err := s.keeper(); err != nil {
		s.Skipf("skipped: the case needs a FinishedKeeper: %v", err)
	}
	s.configure(topic, punctual.SettingsPatch{FinishedRetention: &d})
}

// record returns the finished record of the ID in orders. The case fails when none is kept.
func (s *harness) record(id string) punctual.Finished {
	s.Helper()
	k, err := s.keeper()
	if err != nil {
		s.fail("the store keeps finished records no more: %v", err)
	}
	f, err := k.Finished(s.ctx, orders, id)
	if err != nil {
		s.fail("Finished of %s/%s: unexpected error: %v", orders, id, err)
	}
	return f
}

// noRecord checks that no finished record of the ID is kept in orders. when says in which
// situation.
func (s *harness) noRecord(id, when string) {
	s.Helper()
	k, err := s.keeper()
	if err != nil {
		s.fail("the store keeps finished records no more: %v", err)
	}
	_, err = k.Finished(s.ctx, orders, id)
	s.wantErr(err, punctual.ErrNotFound, "%s, Finished of %s/%s", when, orders, id)
}

// wantRecord compares the finished record in orders of the ID of want with want.
func (s *harness) wantRecord(want punctual.Finished, when string) {
	s.Helper()
	if d := compare.Finished(s.record(want.ID), want, false); d != "" {
		s.fail("the finished record of %s/%s, %s: %s", want.Topic, want.ID, when, d)
	}
}

// recordOfX returns the finished record of orders/x when it was pushed at noon, due at once, never
// leased, and ended now, and the record is kept for an hour.
func (s *harness) recordOfX(how punctual.Outcome) punctual.Finished {
	s.Helper()
	now := s.now()
	return punctual.Finished{
		ID: x, Topic: orders, Outcome: how, At: now, Created: noon, FirstDue: noon, Due: noon, KeptUntil: now.Add(time.Hour),
	}
}

func finishedRefused(s *harness) {
	s.inspector()
	if _, err := s.keeper(); err == nil {
		s.Skipf("skipped: the store keeps finished messages")
	}
	want := s.defaults()
	_, err := s.inspector().Configure(s.ctx, orders, punctual.SettingsPatch{FinishedRetention: ptr(time.Hour), MaxAttempts: ptr(3)})
	s.wantErr(err, punctual.ErrUnsupported, "Configure with a FinishedRetention in a store that keeps none")
	s.wantSettings(orders, want)
	s.wantTopics()
	s.configure(orders, punctual.SettingsPatch{FinishedRetention: ptr(time.Duration(0))})
}

func finishedDefault(s *harness) {
	s.keep(mails, time.Hour)
	bringAcked(s)
	s.noRecord(x, "in a topic that keeps none")
	bringCancelled(s)
	s.noRecord(x, "in a topic that keeps none")
}

func finishedEnds(s *harness) {
	ends := map[string]struct {
		finish  func(s *harness)
		outcome punctual.Outcome
		leased  bool // under a lease that began at noon
		ranOut  bool // a claim has noted that nobody answered
	}{
		"acked": {func(s *harness) { s.ack(bringHeld(s)) }, punctual.OutcomeAcked, true, false},
		"acked and cancelled": {func(s *harness) {
			d := bringHeld(s)
			s.outcome(cancel(orders, x), punctual.ErrLeased, isLeased)
			s.ack(d)
		}, punctual.OutcomeAcked, true, false},
		"cancelled": {func(s *harness) {
			bringReady(s)
			s.advance(time.Second)
			s.outcome(cancel(orders, x), nil, isReady)
		}, punctual.OutcomeCancelled, false, false},
		"cancelled after its lease ran out": {func(s *harness) {
			s.clock.Set(bringHeld(s).LeaseUntil)
			s.outcome(cancel(orders, x), nil, isRunOut)
		}, punctual.OutcomeCancelled, true, false},
		"cancelled while leased, and retried": {func(s *harness) {
			d := bringHeld(s)
			s.outcome(cancel(orders, x), punctual.ErrLeased, isLeased)
			s.wantErr(s.settle(d, punctual.SettleRetry, 0), punctual.ErrCancelled, "retry of a cancelled message")
		}, punctual.OutcomeCancelled, true, false},
		"cancelled while leased, and met by a claim": {func(s *harness) {
			d := bringHeld(s)
			s.outcome(cancel(orders, x), punctual.ErrLeased, isLeased)
			s.clock.Set(d.LeaseUntil)
			s.none(orders, "after the lease of a cancelled message")
		}, punctual.OutcomeCancelled, true, true},
		"cancelled while leased, and rescheduled": {func(s *harness) {
			d := bringHeld(s)
			s.outcome(cancel(orders, x), punctual.ErrLeased, isLeased)
			s.clock.Set(d.LeaseUntil)
			s.outcome(reschedule(orders, x, time.Hour), punctual.ErrNotFound, isRunOut)
		}, punctual.OutcomeCancelled, true, false},
		"dropped": {func(s *harness) {
			s.push(punctual.NewMessage{Topic: orders, ID: x, ExpireAfter: time.Second, DropExpired: true})
			s.advance(time.Minute)
			s.none(orders, "when its message has expired")
		}, punctual.OutcomeExpired, false, false},
	}
	for name, end := range ends {
		s := newHarness(s.T, s.promise, s.opener)
		s.keep(orders, time.Hour)
		end.finish(s)
		want := s.recordOfX(end.outcome)
		if end.leased {
			want.Attempt, want.Delivered = 1, noon
		}
		if end.ranOut {
			want.Failures = []punctual.Failure{{Attempt: 1, At: s.now(), Error: storekit.LeaseRanOut}}
		}
		s.wantRecord(want, name)
		s.wantState(orders, x, punctual.StateNone)
		s.checkSound()
		if s.opener.reopen == nil {
			continue
		}
		s.reopen()
		s.wantRecord(want, name+" and reopened")
		s.checkSound()
	}
}

// bringHeld pushes and leases orders/x, and lets a second pass.
func bringHeld(s *harness) punctual.Delivery {
	d := bringLeased(s)
	s.advance(time.Second)
	return d
}

func finishedLate(s *harness) {
	s.keep(orders, time.Hour)
	s.push(order(x, time.Minute))
	s.advance(time.Minute + 1500*time.Millisecond)
	d := s.one(orders)
	s.done(d, punctual.SettleSnooze, 10*time.Second)
	s.advance(12 * time.Second)
	d = s.one(orders)
	delivered := s.now()
	s.advance(3 * time.Second)
	s.done(d, punctual.SettleExtend, time.Hour)
	s.ack(d)
	want := s.recordOfX(punctual.OutcomeAcked)
	want.FirstDue, want.Due = noon.Add(time.Minute), noon.Add(time.Minute+11500*time.Millisecond)
	want.Attempt, want.Delivered = 1, delivered
	s.wantRecord(want, "snoozed and acked")
	if f := s.record(x); f.ReadyFor() != 2*time.Second || f.TotalLate() != 13500*time.Millisecond {
		s.fail("a finished record says it was ready for %v, late %v in all; want 2s, 13.5s", f.ReadyFor(), f.TotalLate())
	}
}

func finishedFailures(s *harness) {
	s.keep(orders, time.Hour)
	d := bringLeased(s)
	s.settleAs(punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: punctual.SettleRetry, Delay: time.Second, Error: "no route"})
	s.advance(time.Second)
	s.clock.Set(s.one(orders).LeaseUntil)
	second := s.now()
	d = s.one(orders)
	s.advance(time.Second)
	s.ack(d)
	want := s.recordOfX(punctual.OutcomeAcked)
	want.Due, want.Attempt, want.Delivered = noon.Add(time.Second), 3, second
	want.Failures = []punctual.Failure{{Attempt: 1, At: noon, Error: "no route"}, {Attempt: 2, At: second, Error: storekit.LeaseRanOut}}
	s.wantRecord(want, "acked with the third attempt")

	// A message that was given back has no lease, so its record has no Delivered.
	s.push(punctual.NewMessage{Topic: orders, ID: "y"})
	d = s.one(orders)
	s.settleAs(punctual.Settlement{Topic: orders, ID: "y", Token: d.Token, Verb: punctual.SettleRetry, Delay: time.Hour, Error: "no route"})
	s.outcome(cancel(orders, "y"), nil, isRetried)
	if f := s.record("y"); !f.Delivered.IsZero() || f.Attempt != 1 || len(f.Failures) != 1 || f.ReadyFor() != 0 || f.TotalLate() != 0 {
		s.fail("the finished record of a message that was retried and cancelled: %+v; want no delivery, attempt 1, one failure", f)
	}
}

func finishedForgotten(s *harness) {
	s.keep(orders, time.Hour)
	bringAcked(s)
	s.advance(time.Hour - time.Millisecond)
	s.record(x)
	s.advance(2 * time.Millisecond)
	s.noRecord(x, "an hour after it finished")
	s.checkSound()
	s.configure(orders, punctual.SettingsPatch{FinishedRetention: ptr(limits.MaxFinishedRetention)})
	s.noRecord(x, "after its time was over and a longer one was asked for")
	bringAcked(s)
	if f := s.record(x); !f.KeptUntil.Equal(f.At.Add(limits.MaxFinishedRetention)) {
		s.fail("a finished record is kept until %v; want %v later than %v", f.KeptUntil, limits.MaxFinishedRetention, f.At)
	}
}

func finishedFixed(s *harness) {
	s.keep(orders, time.Hour)
	bringAcked(s)
	s.configure(orders, punctual.SettingsPatch{FinishedRetention: ptr(time.Duration(0))})
	s.push(order("y", 0))
	s.ack(s.one(orders))
	s.noRecord("y", "after the topic keeps none any more")
	s.advance(time.Hour - time.Millisecond)
	s.record(x)
	s.advance(2 * time.Millisecond)
	s.noRecord(x, "an hour after it finished")
}

// finishedKeptAgain: a topic whose FinishedRetention was set to 0 and above 0 again keeps finished
// records again, whether or not a message finished in between.
func finishedKeptAgain(s *harness) {
	for n := range 2 {
		s.keep(orders, time.Hour)
		s.keep(orders, 0)
		if n > 0 {
			s.push(order("none", 0))
			s.ack(s.one(orders))
			s.noRecord("none", "in a topic that keeps none just then")
		}
		s.keep(orders, time.Hour)
		id := fmt.Sprint("again-", n)
		s.push(order(id, 0))
		s.ack(s.one(orders))
		if f := s.record(id); f.Outcome != punctual.OutcomeAcked {
			s.fail("the finished record of %s: %+v; want acked", id, f)
		}
	}
}

func finishedFree(s *harness) {
	s.keep(orders, time.Hour)
	bringAcked(s)
	want := s.recordOfX(punctual.OutcomeAcked)
	want.Attempt, want.Delivered = 1, noon
	s.advance(time.Second)
	for i, on := range []punctual.IfExists{punctual.IfExistsKeep, punctual.IfExistsFail, punctual.IfExistsReplaceDead, punctual.IfExistsReplace} {
		s.wantPush(s.try(second(on)), punctual.PushStored, isAcked)
		s.wantState(orders, x, punctual.StateScheduled)
		s.wantRecord(want, "while its ID is used again")
		s.outcome(cancel(orders, x), nil, isScheduled)
		want = s.recordOfX(punctual.OutcomeCancelled)
		want.Created, want.Due, want.FirstDue = s.now(), s.now().Add(2*time.Hour), s.now().Add(2*time.Hour)
		s.wantRecord(want, fmt.Sprint("cancelled, for the time ", i+1))
		s.advance(time.Second)
	}
}

func finishedRemembered(s *harness) {
	s.keep(orders, time.Hour)
	s.configure(orders, punctual.SettingsPatch{DedupeWindow: ptr(2 * time.Hour)})
	bringAcked(s)
	s.wantPush(s.try(second(punctual.IfExistsKeep)), punctual.PushDuplicate, "acked, remembered and kept")
	s.record(x)
	s.advance(time.Hour + time.Millisecond)
	s.noRecord(x, "an hour after it finished, while its ID is remembered")
	s.wantPush(s.try(second(punctual.IfExistsKeep)), punctual.PushDuplicate, "acked and remembered")
	s.wantPush(s.try(second(punctual.IfExistsReplace)), punctual.PushStored, "acked and remembered")
	s.outcome(cancel(orders, x), nil, isScheduled)
	s.configure(orders, punctual.SettingsPatch{DedupeWindow: ptr(time.Minute)})
	s.wantPush(s.try(second(punctual.IfExistsReplace)), punctual.PushStored, "cancelled and remembered")
	s.outcome(cancel(orders, x), nil, isScheduled)
	s.advance(2 * time.Minute)
	s.wantPush(s.try(second(punctual.IfExistsKeep)), punctual.PushStored, "cancelled and forgotten")
	if f := s.record(x); f.Outcome != punctual.OutcomeCancelled {
		s.fail("the finished record of a cancelled message says %q", f.Outcome)
	}
}

func finishedAgain(s *harness) {
	s.keep(orders, 2*time.Hour)
	bringAcked(s)
	s.configure(orders, punctual.SettingsPatch{FinishedRetention: ptr(time.Hour)})
	s.push(punctual.NewMessage{Topic: orders, ID: x})
	s.outcome(cancel(orders, x), nil, isReady)
	want := s.recordOfX(punctual.OutcomeCancelled)
	s.wantRecord(want, "finished for the second time")
	s.advance(time.Hour + time.Millisecond)
	s.noRecord(x, "an hour after its message was cancelled, and less than two after an earlier one was acked,")
	s.checkSound()
	// The other way round: the retention of the first record ends while that of the second one
	// lasts.
	bringAcked(s)
	s.configure(orders, punctual.SettingsPatch{FinishedRetention: ptr(3 * time.Hour)})
	s.push(punctual.NewMessage{Topic: orders, ID: x})
	s.outcome(cancel(orders, x), nil, isReady)
	s.advance(2 * time.Hour)
	if f := s.record(x); f.Outcome != punctual.OutcomeCancelled {
		s.fail("the finished record of the second of two says %q; want %q", f.Outcome, punctual.OutcomeCancelled)
	}
}

func finishedNot(s *harness) {
	for name, bring := range map[string]func(s *harness){
		"dead": func(s *harness) { bringDead(s) },
		"dead and purged": func(s *harness) {
			bringDead(s)
			s.purge(punctual.PurgeQuery{Topic: orders, State: punctual.StateDead}, 1)
		},
		"dead and past its time": func(s *harness) {
			bringDead(s)
			s.configure(orders, punctual.SettingsPatch{DeadRetention: ptr(time.Second)})
			s.advance(time.Minute)
		},
		"dead and replaced":      func(s *harness) { bringDead(s); s.try(second(punctual.IfExistsReplace)) },
		"scheduled":              func(s *harness) { bringScheduled(s) },
		"scheduled and replaced": func(s *harness) { bringScheduled(s); s.try(second(punctual.IfExistsReplace)) },
		"scheduled and purged":   func(s *harness) { bringScheduled(s); s.purge(punctual.PurgeQuery{Topic: orders}, 1) },
		"leased":                 func(s *harness) { bringLeased(s) },
		"leased and purged": func(s *harness) {
			bringLeased(s)
			s.purge(punctual.PurgeQuery{Topic: orders, State: punctual.StateLeased}, 1)
		},
		"leased, and to be cancelled": func(s *harness) { bringLeasedCancelled(s) },
		"released":                    func(s *harness) { s.done(bringLeased(s), punctual.SettleRelease, 0) },
	} {
		s := newHarness(s.T, s.promise, s.opener)
		s.keep(orders, time.Hour)
		bring(s)
		s.noRecord(x, name)
		s.checkSound()
	}
}

func finishedDeleted(s *harness) {
	s.keep(orders, time.Hour)
	bringAcked(s)
	s.record(x)
	if n, err := s.inspector().DeleteTopic(s.ctx, orders); err != nil || n != 0 {
		s.fail("DeleteTopic of a topic with a finished record alone: %d, %v; want 0", n, err)
	}
	s.noRecord(x, "after its topic was deleted")
	s.checkSound()
	s.push(order(x, 0))
	s.noRecord(x, "after its topic was deleted and came again")
	s.keep(orders, time.Hour)
	s.ack(s.one(orders))
	s.record(x)
}

// finishedMany finishes 300 messages by acks in one call, and 300 by cancels in another one. A
// store may carry out such a call in several steps.
func finishedMany(s *harness) {
	const n = 300
	s.keep(orders, time.Hour)
	var ms []punctual.NewMessage
	for i := range n {
		ms = append(ms, order(fmt.Sprint("acked-", i), 0), order(fmt.Sprint("cancelled-", i), time.Hour))
	}
	s.pushAll(ms...)
	ds := s.take(orders, n)
	var acks []punctual.Settlement
	for _, d := range ds {
		acks = append(acks, ackOf(d))
	}
	errs, err := s.store.Settle(s.ctx, acks)
	if err = cmp.Or(append(errs, err)...); err != nil || len(errs) != n {
		s.fail("%d acks: %d results, %v", n, len(errs), err)
	}
	var cancelled []string
	for i := range n {
		cancelled = append(cancelled, fmt.Sprint("cancelled-", i))
	}
	s.cancelAll(orders, cancelled...)
	for i := range n {
		for _, how := range []punctual.Outcome{punctual.OutcomeAcked, punctual.OutcomeCancelled} {
			if f := s.record(fmt.Sprintf("%s-%d", how, i)); f.Outcome != how || !f.At.Equal(noon) {
				s.fail("the finished record of %s says %q at %v; want %q at %v", f.ID, f.Outcome, f.At, how, noon)
			}
		}
	}
	s.advance(time.Hour + time.Millisecond)
	s.noRecord("acked-0", "an hour later")
	s.noRecord(fmt.Sprint("cancelled-", n-1), "an hour later")
}

func finishedMalformed(s *harness) {
	s.keep(orders, time.Hour)
	k, err := s.keeper()
	if err != nil {
		s.fail("%v", err)
	}
	_, err = k.Finished(s.ctx, "no topic", x)
	s.wantErr(err, punctual.ErrInvalid, "Finished of a malformed topic")
	_, err = k.Finished(s.ctx, orders, "")
	s.wantErr(err, punctual.ErrInvalid, "Finished of an empty ID")
	_, err = k.Finished(s.ctx, "never-heard-of", x)
	s.wantErr(err, punctual.ErrNotFound, "Finished in an unknown topic")
	s.noRecord(x, "before there was such a message")
	want := s.settings(orders)
	for _, bad := range []time.Duration{-1, limits.MaxFinishedRetention + 1, 1<<63 - 1} {
		_, err := s.inspector().Configure(s.ctx, orders, punctual.SettingsPatch{FinishedRetention: &bad})
		s.wantErr(err, punctual.ErrInvalid, "Configure with a FinishedRetention of %v", bad)
	}
	s.wantSettings(orders, want)
}
