package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// clockCases: what if the clock is set while the store runs?
func clockCases() []testCase {
	return []testCase{
		{"Now is the clock given", p8, clockNow},
		{"never runs backwards", p8, clockMonotonic},
		{"an hour back loses nothing", p1, clockBackNothingLost},
		{"an hour back keeps ready ready", p8, clockBackReady},
		{"an hour back keeps leases", p3, clockBackLease},
		{"an hour back, then a push", p2, clockBackPush},
		{"a day forward", p8, clockForward},
		{"a day forward and back", p8, clockThereAndBack},
		{"wake-up after a step back", p11, clockBackWake},
		{"behind for less than 5 s", p8, clockWobble},
		{"ahead for a moment keeps instants and what is left of delays", p8, clockAheadDelays},
		{"ahead for a moment makes no lease longer or shorter", p3, clockAheadLeases},
		{"ahead for a moment keeps tokens", p4, clockAheadTokens},
		{"ahead for a moment remembers no longer", p7, clockAheadKept},
		{"ahead for a moment remembers as long as messages ask", p7, clockAheadRemembered},
		{"ahead for a moment, when messages were delivered and ended", p8, clockAheadRecords},
		{"back behind the time from which the dead are kept", p1, clockBackDead},
		{"ahead for a moment tells of what happened then", p11, clockAheadEvents},
		{"ten years ahead for a moment", p8, clockAheadYears},
		{"two steps leave a lease that ran out ready", p8, clockTwoSteps},
		{"a step at once", p8, clockStepAtOnce},
		{"a step, then reopened", p8, clockStepReopened},
		{"an examination tells of a clock that is ahead, and of its last step", p8, clockExamined},
	}
}

// clockKeeper returns the storekit.ClockKeeper of the store, or skips the case.
func (s *harness) clockKeeper() storekit.ClockKeeper {
	s.Helper()
	k, err := punctual.As[storekit.ClockKeeper](s.store)
	if err != nil {
		s.Skipf("skipped: the case needs a ClockKeeper: %v", err)
	}
	return k
}

func (s *harness) clockState() storekit.ClockState {
	s.Helper()
	state, err := s.clockKeeper().Clock(s.ctx)
	if err != nil {
		s.fail("Clock: unexpected error: %v", err)
	}
	return state
}

// ahead sets the clock ahead for as long as do takes, and returns the step of the store's clock
// that follows.
func (s *harness) ahead(by time.Duration, do func()) storekit.ClockStep {
	s.Helper()
	steps := s.clockState().Steps
	s.advance(by)
	s.now()
	do()
	s.advance(-by)
	if state := s.clockState(); state.Ahead <= storekit.StepBeyond {
		s.fail("a clock that was ahead by %v for a moment leaves the store's clock ahead by %v; the case needs more than %v", by, state.Ahead, storekit.StepBeyond)
	}
	// A store may look at the clock each second, in real time.
	for end := time.Now().Add(s.opener.waitLimit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s.advance(time.Second)
		s.now()
		state := s.clockState()
		if state.Steps == steps {
			continue
		}
		if state.Steps != steps+1 || state.Ahead > storekit.StepBeyond || state.Last.To.After(s.clock.Now()) || state.Last.From.Sub(state.Last.To) <= storekit.StepBeyond {
			s.fail("the clock that was given says %v; after the step the state is %+v, want one step back to that clock", s.clock.Now(), state)
		}
		return state.Last
	}
	s.fail("the store's clock does not follow a clock that was set back: %+v", s.clockState())
	return storekit.ClockStep{}
}

// soon waits until a message of a topic can be claimed, because a store may carry messages over a
// step after the step.
func (s *harness) soon(c punctual.Claim) punctual.Delivery {
	s.Helper()
	for end := time.Now().Add(s.opener.waitLimit); ; time.Sleep(time.Millisecond) {
		if ds := s.claim(c); len(ds) == 1 {
			return ds[0]
		} else if len(ds) > 1 || time.Now().After(end) {
			s.fail("a claim from %v at %v returned %v; want exactly one message", c.Topics, s.now(), ids(ds))
		}
	}
}

// info returns a message once it is as settled says, as soon does.
func (s *harness) info(topic, id string, settled func(punctual.Info) bool) punctual.Info {
	s.Helper()
	for end := time.Now().Add(s.opener.waitLimit); ; time.Sleep(time.Millisecond) {
		if i := s.get(topic, id); settled(i) || time.Now().After(end) {
			return i
		}
	}
}

func clockWobble(s *harness) {
	d := bringLeased(s)
	last := s.now()
	for _, back := range []time.Duration{time.Hour, storekit.StepBeyond, time.Hour, 2 * storekit.StepBeyond} {
		s.advance(-back)
		for range 4 { // less than StepAfter in all
			s.advance(time.Second)
			if now := s.now(); now.Before(last) {
				s.fail("the clock was behind by %v for less than %v, and the store's clock went back from %v to %v", back, storekit.StepAfter, last, now)
			}
			last = s.now()
		}
		s.advance(back)
		last = s.now()
	}
	if state := s.clockState(); state.Steps != 0 || state.Ahead != 0 {
		s.fail("after a clock that was back within %v the state is %+v; want no step", storekit.StepAfter, state)
	}
	s.ack(d)
}

// clockAheadDelays: a topic for each way to a due time, so that a claim shows which message is due.
func clockAheadDelays(s *harness) {
	const by = 2 * time.Hour
	retry := func(id string, x punctual.Settlement) {
		s.push(punctual.NewMessage{Topic: id, ID: id})
		d := s.one(id)
		x.Topic, x.ID, x.Token = id, id, d.Token
		if err := s.settleAs(x); err != nil {
			s.fail("%s: unexpected error: %v", id, err)
		}
	}
	s.push(punctual.NewMessage{Topic: "delay-before", ID: "delay-before", Delay: time.Hour})
	retry("retry-before", punctual.Settlement{Verb: punctual.SettleRetry, Delay: time.Hour})
	instant := noon.Add(4 * time.Hour)
	s.push(punctual.NewMessage{Topic: "moved-to-instant", ID: "moved-to-instant"})
	due := map[string]time.Duration{} // what is left of the delay
	step := s.ahead(by, func() {
		for _, x := range []struct {
			name string
			left time.Duration
		}{{"pushed-at-once", 0}, {"pushed-with-delay", time.Minute}} {
			s.push(punctual.NewMessage{Topic: x.name, ID: x.name, Delay: x.left})
			due[x.name] = x.left
		}
		s.push(punctual.NewMessage{Topic: "named", ID: "named", Due: instant})
		s.push(punctual.NewMessage{Topic: "named-while-ahead", ID: "named-while-ahead", Due: noon.Add(time.Hour)})
		retry("retried", punctual.Settlement{Verb: punctual.SettleRetry, Delay: 2 * time.Minute})
		retry("snoozed", punctual.Settlement{Verb: punctual.SettleSnooze, Delay: 3 * time.Minute})
		retry("released", punctual.Settlement{Verb: punctual.SettleRelease})
		retry("snoozed-until", punctual.Settlement{Verb: punctual.SettleSnooze, Due: instant})
		due["retried"], due["snoozed"], due["released"] = 2*time.Minute, 3*time.Minute, 0
		s.push(punctual.NewMessage{Topic: "rescheduled", ID: "rescheduled", Due: instant})
		s.outcome(punctual.Amendment{Topic: "rescheduled", ID: "rescheduled", Change: punctual.ChangeReschedule, Delay: 4 * time.Minute}, nil, "scheduled")
		due["rescheduled"] = 4 * time.Minute
		s.outcome(punctual.Amendment{Topic: "moved-to-instant", ID: "moved-to-instant", Change: punctual.ChangeReschedule, Due: instant}, nil, "ready")
	})
	wants := map[string]time.Time{
		"delay-before": noon.Add(time.Hour), "retry-before": noon.Add(time.Hour), "named": instant, "named-while-ahead": noon.Add(time.Hour),
		"snoozed-until": instant, "moved-to-instant": instant,
	}
	for topic, left := range due {
		wants[topic] = step.To.Add(left)
	}
	s.dueTimes(wants)
}

// dueTimes checks that each topic's only message, in state scheduled or ready, is delivered at its
// time and not before. While a store's clock waits for the one that was set back, a delay that was
// set by it goes on, so a time may also be up to 10 s earlier.
func (s *harness) dueTimes(wants map[string]time.Time) {
	s.Helper()
	late := s.now() // nothing can come earlier
	for _, topic := range slices.SortedFunc(maps.Keys(wants), func(a, b string) int { return wants[a].Compare(wants[b]) }) {
		want := wants[topic]
		first := want.Add(-10 * time.Second)
		if first.After(late) && s.now().Before(first) {
			s.clock.Set(first)
			if s.now().Before(first) || s.now().After(first.Add(time.Second)) {
				s.fail("the store's clock says %v after its source was set to %v", s.now(), first)
			}
			s.none(topic, fmt.Sprintf("10 s before its time, %v,", want))
		}
		if s.now().Before(want) {
			s.clock.Set(want)
		}
		d := s.soon(punctual.Claim{Topics: []string{topic}, Max: 10})
		if d.Due.After(want) || d.Due.Before(first) {
			s.fail("%s is due at %v; want %v or up to 10 s earlier", topic, d.Due, want)
		}
		s.ack(d)
	}
}

func clockAheadLeases(s *harness) {
	const by = 2 * time.Hour
	lease := func(topic string, length time.Duration) punctual.Delivery {
		s.push(punctual.NewMessage{Topic: topic, ID: topic})
		return s.claim(punctual.Claim{Topics: []string{topic}, Max: 1, Lease: length})[0]
	}
	long := lease("long-before", 3*time.Hour)
	short := lease("short-before", time.Hour)
	extended := lease("extended-while-ahead", 3*time.Hour)
	var within, over punctual.Delivery
	step := s.ahead(by, func() {
		within = lease("while-ahead", 10*time.Minute)
		over = lease("ran-out-while-ahead", time.Minute)
		s.done(extended, punctual.SettleExtend, 20*time.Minute)
		s.advance(2 * time.Minute)
		s.now()
		s.wantState(over.Topic, over.ID, punctual.StateReady)
		s.advance(-2 * time.Minute)
	})
	// The lease that ran out while the clock was ahead stays so, and the next one has its whole
	// length.
	again := s.soon(punctual.Claim{Topics: []string{over.Topic}, Max: 1, Lease: time.Minute})
	if again.LeaseUntil.Sub(s.now()) > time.Minute {
		s.fail("after the step %v: %+v; want a lease of a minute", step, again)
	}
	s.ack(again)
	s.wantErr(s.settle(over, punctual.SettleAck, 0), punctual.ErrLeaseLost, "ack of the lease that had run out")
	for _, x := range []struct {
		d     punctual.Delivery
		until time.Time // at the latest
		give  time.Duration
	}{
		{long, noon.Add(3 * time.Hour), 0},
		{short, noon.Add(time.Hour), 0},
		{within, step.To.Add(10 * time.Minute), 3 * time.Minute},
		{extended, step.To.Add(20 * time.Minute), 3 * time.Minute},
	} {
		s.none(x.d.Topic, "while its lease lasts")
		if s.hasInspector() {
			got := s.info(x.d.Topic, x.d.ID, func(i punctual.Info) bool { return !i.LeaseUntil.After(x.until) }).LeaseUntil
			if got.After(x.until) || got.Before(x.until.Add(-x.give)) {
				s.fail("the lease %s ends at %v after the step %+v; want %v or up to %v earlier", x.d.Topic, got, step, x.until, x.give)
			}
		}
	}
	s.clock.Set(step.To.Add(20 * time.Minute))
	s.ack(s.soon(punctual.Claim{Topics: []string{within.Topic}, Max: 10}))
	s.ack(s.soon(punctual.Claim{Topics: []string{extended.Topic}, Max: 10}))
	s.ack(short)
	s.ack(long)
}

func clockAheadTokens(s *harness) {
	d := bringLeased(s)
	var later punctual.Delivery
	s.ahead(24*time.Hour, func() { later = s.one(orders) }) // the lease ran out
	if later.Token <= d.Token {
		s.fail("token %d follows %d", later.Token, d.Token)
	}
	s.wantErr(s.settle(d, punctual.SettleAck, 0), punctual.ErrLeaseLost, "ack with the token from before the clock was ahead")
	s.done(later, punctual.SettleRetry, 0)
	last := s.soon(punctual.Claim{Topics: []string{orders}, Max: 10})
	if last.Token <= later.Token {
		s.fail("after the step token %d follows %d", last.Token, later.Token)
	}
	s.wantErr(s.settle(later, punctual.SettleAck, 0), punctual.ErrLeaseLost, "ack with the token from while the clock was ahead")
	s.ack(last)
}

func clockAheadKept(s *harness) {
	s.configure(orders, punctual.SettingsPatch{DedupeWindow: ptr(10 * time.Minute), DeadRetention: ptr(20 * time.Minute)})
	step := s.ahead(24*time.Hour, func() {
		s.push(order("acked", 0))
		s.ack(s.one(orders))
		s.push(order("dead", 0))
		s.done(s.one(orders), punctual.SettleDiscard, 0)
	})
	s.wantState(orders, "dead", punctual.StateDead)
	if r := s.try(order("acked", 0)); r.Status != punctual.PushDuplicate {
		s.fail("push of an ID that is remembered for 10 minutes: %q, %v; want a duplicate", r.Status, r.Err)
	}
	died := s.info(orders, "dead", func(i punctual.Info) bool { return !i.Died.After(s.now()) }).Died
	if died.After(s.now()) {
		s.fail("a message died at %v, and it is %v", died, s.now())
	}
	s.clock.Set(step.To.Add(10 * time.Minute))
	for end := time.Now().Add(s.opener.waitLimit); time.Now().Before(end) && s.try(order("acked", time.Hour)).Status != punctual.PushStored; {
		time.Sleep(time.Millisecond)
	}
	s.wantState(orders, "acked", punctual.StateScheduled)
	s.clock.Set(step.To.Add(20 * time.Minute))
	s.wantState(orders, "dead", punctual.StateNone)
}

// clockAheadRemembered: an ID that its message has remembered is kept for what is left of that time
// if it finished while the clock was ahead, and until the same instant as ever if it finished
// before. What was past its time stays so.
func clockAheadRemembered(s *harness) {
	finish := func(id string, remember time.Duration) {
		s.push(punctual.NewMessage{Topic: orders, ID: id, Remember: remember})
		s.ack(s.one(orders))
	}
	stored := func(id string) bool { return s.try(order(id, 1000*time.Hour)).Status == punctual.PushStored }
	long, half := 48*time.Hour, 30*time.Minute
	finish("before", long)
	finish("longer before", 300*24*time.Hour)
	step := s.ahead(24*time.Hour, func() {
		finish("past", time.Minute)
		finish("meanwhile", half)
		s.advance(2 * time.Minute)
		s.now()
		s.advance(-2 * time.Minute)
	})
	for end := time.Now().Add(s.opener.waitLimit); !stored("past"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.fail("an ID that was forgotten before the step %+v is remembered after it", step)
		}
	}
	for _, x := range []struct {
		id         string
		last, gone time.Time
	}{
		{"meanwhile", step.To.Add(half - 3*time.Minute), step.To.Add(half)},
		{"before", noon.Add(long - time.Minute), noon.Add(long)},
		{"longer before", noon.Add(300*24*time.Hour - time.Minute), noon.Add(300 * 24 * time.Hour)},
	} {
		s.clock.Set(x.last)
		if stored(x.id) {
			s.fail("after the step %+v the ID %q is forgotten at %v; want it remembered", step, x.id, x.last)
		}
		s.clock.Set(x.gone)
		for end := time.Now().Add(s.opener.waitLimit); !stored(x.id); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				s.fail("after the step %+v the ID %q is remembered at %v; want it forgotten", step, x.id, x.gone)
			}
		}
	}
}

// clockAheadRecords: when a lease began and when a message ended move together, so that no record
// says that a message ended before it was delivered, or was delivered in the future.
func clockAheadRecords(s *harness) {
	s.keep(orders, 1000*time.Hour)
	var both, within punctual.Delivery
	s.push(order("delivered before", 0))
	before := s.claim(punctual.Claim{Topics: []string{orders}, Max: 1, Lease: 10 * time.Hour})[0]
	step := s.ahead(2*time.Hour, func() {
		s.push(order("both", 0))
		both = s.one(orders)
		s.advance(time.Second)
		s.ack(both)
		s.ack(before)
		s.push(order("ended after", 0))
		within = s.claim(punctual.Claim{Topics: []string{orders}, Max: 1, Lease: time.Hour})[0]
		s.advance(-time.Second)
	})
	s.ack(within)
	back := step.From.Sub(step.To)
	for id, want := range map[string]struct{ delivered, at time.Time }{
		"delivered before": {before.Delivered, both.Delivered.Add(time.Second - back)},
		"both":             {both.Delivered.Add(-back), both.Delivered.Add(time.Second - back)},
		"ended after":      {within.Delivered.Add(-back), s.now()},
	} {
		if !within.Delivered.After(step.To) || !both.Delivered.After(step.To) || !before.Delivered.Before(step.To) {
			s.fail("the deliveries at %v, %v and %v are not around the step %+v", before.Delivered, both.Delivered, within.Delivered, step)
		}
		var f punctual.Finished
		for end := time.Now().Add(s.opener.waitLimit); ; time.Sleep(time.Millisecond) {
			if f = s.record(id); !f.At.After(s.now()) && !f.Delivered.After(s.now()) || time.Now().After(end) {
				break
			}
		}
		if f.At.Sub(want.at).Abs() > time.Millisecond || f.Delivered.Sub(want.delivered).Abs() > time.Millisecond {
			s.fail("after the step %+v the record of %q says delivered %v, ended %v; want %v, %v", step, id, f.Delivered, f.At, want.delivered, want.at)
		}
		if f.ReadyFor() < 0 || f.TotalLate() < 0 {
			s.fail("after the step %+v the record of %q says ready for %v, late %v in all", step, id, f.ReadyFor(), f.TotalLate())
		}
	}
}

// clockBackDead: a store may have written down up to when the dead were past their retention. After
// a step behind that time, it must not count for what is dead now.
func clockBackDead(s *harness) {
	s.configure(orders, punctual.SettingsPatch{DeadRetention: ptr(time.Hour)})
	s.push(order("past", 0))
	s.done(s.one(orders), punctual.SettleDiscard, 0)
	s.advance(2 * time.Hour)
	s.configure(orders, punctual.SettingsPatch{DeadRetention: ptr(1000 * time.Hour)})
	s.push(order("dead", 0))
	s.done(s.one(orders), punctual.SettleDiscard, 0)
	s.wantState(orders, "past", punctual.StateNone)
	died := s.now()
	s.advance(2 * time.Hour)
	s.now()
	s.advance(-2 * time.Hour)
	if state, err := s.clockKeeper().StepClock(s.ctx); err != nil || !state.Last.To.Equal(died) {
		s.fail("StepClock = %+v, %v; want a step to %v", state, err, died)
	}
	if got := s.get(orders, "dead").Died; !got.Equal(died) {
		s.fail("a message that died at %v, the time after the step, died at %v now", died, got)
	}
	s.advance(-300 * 24 * time.Hour)
	if state, err := s.clockKeeper().StepClock(s.ctx); err != nil || state.Steps != 2 {
		s.fail("StepClock = %+v, %v; want a second step", state, err)
	}
	s.push(order("dead after", 0))
	s.done(s.one(orders), punctual.SettleDiscard, 0)
	s.wantState(orders, "dead", punctual.StateDead)
	s.wantState(orders, "dead after", punctual.StateDead)
	s.wantState(orders, "past", punctual.StateNone)
}

func clockAheadEvents(s *harness) {
	s.tells(punctual.EventPushed)
	s.ahead(2*time.Hour, func() { s.push(order(x, 0)) })
	d := s.soon(punctual.Claim{Topics: []string{told}, Max: 10}) // and not when the clock is there again
	if e, err := event.Parse(d.Body); err != nil || e.ID != x {
		s.fail("the event of the push is %+v, %v", e, err)
	}
}

// clockTwoSteps: the time at which a message was due before its lease stays in the past, also when
// the clock steps back twice.
func clockTwoSteps(s *harness) {
	keeper := s.clockKeeper()
	s.push(punctual.NewMessage{Topic: orders, ID: x, Due: noon.Add(2 * time.Hour)})
	s.advance(3 * time.Hour)
	if ds := s.claim(punctual.Claim{Topics: []string{orders}, Max: 1, Lease: time.Minute}); len(ds) != 1 {
		s.fail("no lease to begin with")
	}
	s.advance(2 * time.Minute)
	s.push(order("y", 24*time.Hour)) // so that all parts of the store have seen the time
	for i, by := range []time.Duration{4 * time.Hour, time.Second} {
		s.advance(-by)
		if state, err := keeper.StepClock(s.ctx); err != nil || state.Steps != int64(i+1) {
			s.fail("StepClock = %+v, %v; want step %d", state, err, i+1)
		}
		if !s.hasInspector() {
			continue
		}
		if stats, err := s.inspector().Stats(s.ctx, orders); err != nil || stats.Ready != 1 || stats.NextDue.After(s.now()) || stats.NextDue.IsZero() {
			s.fail("at %v the topic has %+v, %v; want a message that is ready", s.now(), stats, err)
		}
	}
	s.ack(s.soon(punctual.Claim{Topics: []string{orders}, Max: 10}))
}

func clockAheadYears(s *harness) {
	s.push(order("before", time.Hour))
	step := s.ahead(10*365*24*time.Hour, func() {
		s.ack(s.one(orders)) // due long ago by that clock
		s.push(order("while ahead", time.Minute))
	})
	s.none(orders, "before the minute is over")
	s.push(order("after", 2*time.Minute))
	s.clock.Set(step.To.Add(time.Minute))
	if d := s.soon(punctual.Claim{Topics: []string{orders}, Max: 10}); d.ID != "while ahead" {
		s.fail("%s was delivered; want while ahead", d.ID)
	}
	s.clock.Set(s.clock.Now().Add(2 * time.Minute))
	if ds := s.take(orders, 10); len(ds) == 0 || ds[len(ds)-1].ID != "after" {
		s.fail("%v were delivered; want after", ids(ds))
	}
}

func clockStepAtOnce(s *harness) {
	keeper := s.clockKeeper()
	s.advance(time.Hour)
	s.now()
	s.push(order(x, time.Minute))
	s.advance(-time.Hour)
	if state := s.clockState(); state.Ahead != time.Hour || state.Steps != 0 {
		s.fail("an hour ahead the state is %+v", state)
	}
	state, err := keeper.StepClock(s.ctx)
	if err != nil || state.Ahead != 0 || state.Steps != 1 || state.Last.From.Sub(state.Last.To) != time.Hour || !state.Now.Equal(s.now()) {
		s.fail("StepClock = %+v, %v; want one step back of an hour", state, err)
	}
	if now := s.now(); !now.Equal(noon) {
		s.fail("after the step the store's clock says %v; want %v", now, noon)
	}
	if again, err := keeper.StepClock(s.ctx); err != nil || again.Steps != 1 {
		s.fail("a second StepClock = %+v, %v; want no other step", again, err)
	}
	s.none(orders, "before its delay is over")
	s.advance(time.Minute)
	s.ack(s.one(orders))
}

func clockStepReopened(s *harness) {
	step := s.ahead(24*time.Hour, func() { s.push(order(x, time.Minute)) })
	s.reopen()
	if now := s.now(); now.After(step.To.Add(time.Minute)) || now.Before(step.To) {
		s.fail("reopened after the step %+v the store's clock says %v", step, now)
	}
	if state := s.clockState(); state.Ahead != 0 || state.Steps > 0 && state.Last != step {
		s.fail("reopened after the step %+v the state is %+v", step, state)
	}
	s.none(orders, "before its delay is over")
	s.clock.Set(step.To.Add(time.Minute))
	s.ack(s.soon(punctual.Claim{Topics: []string{orders}, Max: 10}))
}

func clockNow(s *harness) {
	for _, d := range []time.Duration{0, time.Millisecond, time.Hour, 300 * 24 * time.Hour} {
		s.advance(d)
		if got := s.now(); !got.Equal(s.clock.Now()) || got.Location() != time.UTC {
			s.fail("the store's clock says %v; want that of the clock given, %v, in UTC", got, s.clock.Now())
		}
	}
}

func clockMonotonic(s *harness) {
	last := s.now()
	for _, d := range []time.Duration{
		time.Second, -time.Hour, time.Minute, -time.Millisecond, -24 * time.Hour, time.Hour, 0, 23*time.Hour + time.Minute, time.Hour, 400 * time.Hour, -1,
	} {
		s.advance(d)
		for range 3 {
			now := s.now()
			// The clock may step back once it has been behind for storekit.StepAfter.
			if stepped := d >= storekit.StepAfter && now.Equal(s.clock.Now().Truncate(time.Millisecond)); now.Before(last) && !stepped {
				s.fail("after a step of %v the store's clock went back from %v to %v", d, last, now)
			}
			if floor := s.clock.Now().Truncate(time.Millisecond); now.Before(floor) {
				s.fail("after a step of %v the store's clock says %v, behind the clock given, %v", d, now, floor)
			}
			last = now
		}
	}
}

// until moves the clock on until the store's own clock has reached t.
func (s *harness) until(t time.Time, step time.Duration) {
	s.Helper()
	for range 100_000 {
		if !s.now().Before(t) {
			return
		}
		s.advance(step)
	}
	s.Fatalf("%s: the store's clock stands at %v and does not reach %v", p8, s.now(), t)
}

func clockBackNothingLost(s *harness) {
	for i := range 10 {
		s.push(order(fmt.Sprint(i), time.Duration(i*10)*time.Minute))
	}
	s.advance(35 * time.Minute)
	got := len(s.take(orders, 2))
	s.advance(-time.Hour)
	for range 30 {
		for _, d := range s.take(orders, 100) {
			s.ack(d)
			got++
		}
		s.advance(5 * time.Minute)
	}
	s.until(noon.Add(90*time.Minute), time.Minute)
	for _, d := range s.take(orders, 100) {
		s.ack(d)
		got++
	}
	if got != 12 { // two leases ran out
		s.fail("of 10 messages, 2 claimed and forgotten, %d were delivered in all around a step of an hour back; want 12", got)
	}
}

func clockBackReady(s *harness) {
	s.push(order("before", time.Minute))
	s.advance(time.Minute)
	s.now() // the store has shown this time, so its clock must not go back behind it
	s.wantState(orders, "before", punctual.StateReady)
	s.advance(-time.Hour)
	s.wantState(orders, "before", punctual.StateReady)
	s.ack(s.one(orders))
}

func clockBackLease(s *harness) {
	d := bringLeased(s)
	s.advance(-time.Hour)
	s.none(orders, "while the lease lasts, after a step of an hour back,")
	s.until(d.LeaseUntil.Add(-time.Millisecond), time.Second)
	if s.now().Before(d.LeaseUntil) {
		s.none(orders, "before the end of the lease")
	}
	s.until(d.LeaseUntil, time.Second)
	again := s.one(orders)
	if again.Attempt != 2 {
		s.fail("after a lease that spanned a step back the delivery is attempt %d; want 2", again.Attempt)
	}
	s.ack(again)
}

func clockBackPush(s *harness) {
	s.advance(-time.Hour)
	at := s.now()
	r := s.push(order(x, time.Minute))
	if want := at.Add(time.Minute); r.Due.Before(want) || r.Due.After(want.Add(time.Millisecond)) {
		s.Fatalf("%s: after a step back a delay of a minute from %v is due %v", p8, at, r.Due)
	}
	for range 200 {
		if ds := s.take(orders, 1); len(ds) == 1 {
			s.ack(ds[0])
			return
		}
		s.advance(time.Minute)
	}
	s.Fatalf("%s: a message pushed after a step back was not delivered", p1)
}

func clockForward(s *harness) {
	d := bringLeased(s)
	for i := range 5 {
		s.push(order(fmt.Sprint("within", i), time.Duration(i+1)*time.Hour))
		s.push(order(fmt.Sprint("beyond", i), time.Duration(i+25)*time.Hour))
	}
	s.advance(24 * time.Hour)
	ds := s.take(orders, 100)
	if len(ds) != 6 {
		s.fail("a day forward a claim returned %v; want the 5 messages due within that day and the one whose lease ran out", ids(ds))
	}
	s.wantErr(s.settle(d, punctual.SettleAck, 0), punctual.ErrLeaseLost, "ack of a lease that ended when the clock went a day forward and that was claimed again")
	for _, d := range ds {
		s.ack(d)
	}
	s.none(orders, "after all that was due was acked")
}

func clockThereAndBack(s *harness) {
	s.push(order("within", time.Hour))
	s.push(order("beyond", 48*time.Hour))
	s.advance(24 * time.Hour)
	s.now()
	s.advance(-24 * time.Hour)
	s.ack(s.one(orders))
	s.until(noon.Add(48*time.Hour), time.Hour)
	if d := s.one(orders); d.ID != "beyond" {
		s.fail("%s was delivered; want beyond", d.ID)
	}
}

func clockBackWake(s *harness) {
	s.push(order(x, time.Hour))
	// The lease is so long that it does not run out while the clock goes on and the answer of the
	// claim is on its way.
	w := s.wait(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: 100 * time.Hour, Lease: limits.MaxLease})
	asleep()
	s.advance(-time.Hour)
	end := time.Now().Add(s.opener.waitLimit)
	for time.Now().Before(end) && s.now().Before(noon.Add(10*time.Hour)) {
		asleep()
		select {
		case <-w.done:
			s.ack(w.wakes(x, "its due time came in spite of a step back"))
			return
		default:
		}
		s.advance(time.Second)
	}
	s.ack(w.wakes(x, "its due time came in spite of a step back"))
}

// clockExamined: "the store says so everywhere" (P8) begins with its storekit.Examiner, from which
// doctor, servers and consoles have it.
func clockExamined(s *harness) {
	examiner, err := punctual.As[storekit.Examiner](s.store)
	if err != nil {
		s.Skipf("skipped: the case needs an Examiner: %v", err)
	}
	wants := func(when, name string, severity storekit.Severity, texts ...string) {
		s.Helper()
		found, err := examiner.Examine(s.ctx)
		if err != nil {
			s.fail("%s: Examine: unexpected error: %v", when, err)
		}
		found = slices.DeleteFunc(found, func(f storekit.Finding) bool { return f.Name != name })
		if severity == 0 && len(found) == 0 {
			return
		}
		if len(found) != 1 || found[0].Severity != severity {
			s.fail("%s: findings %q: %+v; want one that is %v", when, name, found, severity)
		}
		for _, text := range texts {
			if f := found[0]; !strings.Contains(f.Value+". "+f.Remedy, text) {
				s.fail("%s: finding %+v; want %q in it", when, f, text)
			}
		}
	}
	follows := s.clockState().Follows
	if follows == "" {
		s.fail("the state %+v does not say whose clock the store's clock follows", s.clockState())
	}
	s.push(order(x, time.Hour))
	wants("at first", "store's clock", storekit.SeverityGood, follows)
	wants("at first", "clock steps", 0)
	step := s.ahead(24*time.Hour, func() {
		s.advance(-24 * time.Hour)
		if state := s.clockState(); state.Ahead < 23*time.Hour || state.Steps != 0 {
			s.fail("a day ahead the state is %+v", state)
		}
		wants("a day ahead", "store's clock", storekit.SeverityWarning, "0m0s ahead of", follows, "after 5s", "punctual clock", "NTP")
		s.advance(24 * time.Hour)
	})
	wants("after the step", "store's clock", storekit.SeverityGood)
	wants("after the step", "clock steps", storekit.SeverityWarning, "1, the last one", step.From.Format(time.RFC3339), step.To.Format(time.RFC3339), follows, "NTP")
	s.advance(25 * time.Hour)
	wants("the day after", "clock steps", storekit.SeverityGood, step.To.Format(time.RFC3339))
}
