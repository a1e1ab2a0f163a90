package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// contractCases: what does a store answer where its author might have guessed? Each case has its
// sentence in store.go, message.go or inspector.go.
func contractCases() []testCase {
	return []testCase{
		{"a time that the verb or change does not use", p13, contractUnusedTime},
		{"an error text that the verb does not keep", p13, contractUnusedText},
		{"a topic named again in a claim", p12, contractTopicAgain},
		{"a claim that finds nothing", p13, contractNothing},
		{"the longest wait", p11, contractLongestWait},
		{"which error comes first", p13, contractFirstError},
		{"calls without items", p13, contractNoItems},
		{"which error of an item comes first", p13, contractFirstItemError},
		{"an expiry beyond the last due time", p9, contractExpiryBeyond},
		{"a topic paused and resumed while claims wait", p11, contractPausedWhileWaiting},
		{"when a lapse is recorded", p6, contractLapse},
		{"a lapse that no claim meets", p6, contractLapseUnmet},
		{"a token twice in one call", p4, contractTokenTwice},
		{"an ID twice in one amend", p13, contractAmendTwice},
		{"a result names its message", p7, contractResultNames},
		{"settings that change during pushes", p13, contractPausedDuringPushes},
		{"questions about a topic that does not exist", p13, contractUnknownTopic},
	}
}

func contractUnusedTime(s *harness) {
	d := bringLeased(s)
	for _, v := range []punctual.Verb{punctual.SettleAck, punctual.SettleDiscard, punctual.SettleRelease} {
		for _, delay := range []time.Duration{1, time.Minute, 1<<63 - 1, -1} {
			s.wantErr(s.settle(d, v, delay), punctual.ErrInvalid, "%s with a delay of %v", v, delay)
		}
	}
	s.wantState(orders, x, punctual.StateLeased)
	s.ack(d)
	s.push(order(x, time.Hour))
	for _, a := range []punctual.Amendment{cancel(orders, x), remove(orders, x), cancel(orders, "y"), remove(orders, "y")} {
		for _, delay := range []time.Duration{1, time.Minute, 1<<63 - 1, -1} {
			a.Delay = delay
			s.outcome(a, punctual.ErrInvalid, fmt.Sprint("given a delay of ", delay))
		}
		a.Delay = 0
		for _, due := range []time.Time{noon, limits.MaxDue.Add(time.Hour)} {
			a.Due = due
			s.outcome(a, punctual.ErrInvalid, fmt.Sprint("given the due time ", due))
		}
	}
	s.wantState(orders, x, punctual.StateScheduled)
	s.advance(time.Hour)
	s.ack(s.one(orders))
}

func contractUnusedText(s *harness) {
	bringReady(s)
	for _, v := range []punctual.Verb{punctual.SettleSnooze, punctual.SettleRelease, punctual.SettleExtend, punctual.SettleAck} {
		d := s.one(orders)
		if len(d.Failures) != 0 {
			s.fail("before a %s the history is %v; want none", v, d.Failures)
		}
		delay := time.Duration(0)
		if v == punctual.SettleExtend {
			delay = time.Minute
		}
		b := punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: v, Delay: delay, Error: "not kept"}
		s.wantErr(s.settleAs(b), nil, "%s with an error text", v)
		if v == punctual.SettleExtend {
			s.done(d, punctual.SettleRelease, 0)
		}
	}
	s.wantState(orders, x, punctual.StateNone)
}

// contractTopicAgain: a topic that is named several times counts at its first place alone, and
// PerTopic bounds it once, whether the claim waits or not.
func contractTopicAgain(s *harness) {
	for _, wait := range []time.Duration{0, time.Hour} {
		for i := range 4 {
			s.push(order(fmt.Sprint("o", i), 0))
			s.push(punctual.NewMessage{Topic: mails, ID: fmt.Sprint("m", i)})
		}
		for _, step := range []struct {
			max, perTopic int
			want          string
		}{{8, 2, "oomm"}, {3, 0, "oom"}, {8, 1, "m"}} {
			c := punctual.Claim{Topics: []string{orders, mails, orders, mails, orders}, Max: step.max, PerTopic: step.perTopic, Wait: wait}
			got := ""
			for _, d := range s.claim(c) {
				got += d.ID[:1]
				s.ack(d)
			}
			if wait > 0 && got != "" && len(got) < len(step.want) { // a claim that waits may return the messages that come first
				c.Topics = c.Topics[:2]
				c.Wait, c.Max = 0, len(step.want)-len(got)
				if of := strings.Count(got, "o"); c.PerTopic > 0 && of == c.PerTopic {
					c.Topics = []string{mails}
				}
				for _, d := range s.claim(c) {
					got += d.ID[:1]
					s.ack(d)
				}
			}
			if got != step.want {
				s.fail("a claim of %d, at most %d of each topic, from %v with a wait of %v returned %q; want %q", step.max, step.perTopic, c.Topics, wait, got, step.want)
			}
		}
	}
}

func contractNothing(s *harness) {
	s.push(order("later", 10*time.Hour))
	s.push(punctual.NewMessage{Topic: "expired", DropExpired: true, ExpireAfter: time.Millisecond})
	s.advance(time.Second)
	topics := []string{orders, "never-heard-of", "expired"}
	if s.hasInspector() {
		s.push(punctual.NewMessage{Topic: "paused"})
		s.configure("paused", punctual.SettingsPatch{DeliveryPaused: ptr(true)})
		topics = append(topics, "paused")
	}
	for _, topic := range topics {
		ds, err := s.store.Claim(s.ctx, punctual.Claim{Topics: []string{topic}, Max: 10})
		s.wantNothing(ds, err, "a claim from "+topic)
		w := s.wait(s.ctx, punctual.Claim{Topics: []string{topic}, Max: 10, Wait: 50 * time.Millisecond})
		s.advanceUntil(w, time.Hour)
		ds, err = w.result("its wait was over")
		s.wantNothing(ds, err, "a claim from "+topic+" whose wait was over")
	}
}

// wantNothing checks that a claim returned no error, and a slice that is empty but not nil.
func (s *harness) wantNothing(ds []punctual.Delivery, err error, what string) {
	s.Helper()
	if err != nil || ds == nil || len(ds) != 0 {
		s.fail("%s returned %#v, %v; want an empty slice, not nil, and no error", what, ds, err)
	}
}

// advanceUntil moves the clock on by a millisecond at a time until the claim has returned, by limit
// at most.
func (s *harness) advanceUntil(w *waiter, limit time.Duration) {
	s.Helper()
	end := time.Now().Add(s.opener.waitLimit)
	for moved := time.Duration(0); time.Now().Before(end) && moved < limit; moved += time.Millisecond {
		s.advance(time.Millisecond)
		select {
		case <-w.done:
			return
		case <-time.After(100 * time.Microsecond):
		}
	}
}

func contractLongestWait(s *harness) {
	for _, wait := range []time.Duration{1<<63 - 1, 1<<63 - 1 - time.Hour} {
		w := s.wait(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: wait})
		asleep()
		s.push(order(x, 0))
		s.ack(w.wakes(x, "a push"))
	}
}

// namedCall is a call of a method whose error alone counts.
type namedCall struct {
	name string
	call func(ctx context.Context) error
}

// malformedCalls returns calls of the methods whose arguments can be wrong. Each call is wrong as a
// whole: malformed or too large.
func (s *harness) malformedCalls() []namedCall {
	calls := []namedCall{
		{"Push of too many", func(ctx context.Context) error {
			_, err := s.store.Push(ctx, make([]punctual.NewMessage, limits.MaxBatch+1))
			return err
		}},
		{"Claim of no topics", func(ctx context.Context) error {
			_, err := s.store.Claim(ctx, punctual.Claim{Max: 1, Wait: time.Hour})
			return err
		}},
		{"Settle of too many", func(ctx context.Context) error {
			_, err := s.store.Settle(ctx, make([]punctual.Settlement, limits.MaxBatch+1))
			return err
		}},
		{"Amend of too many", func(ctx context.Context) error {
			_, err := s.store.Amend(ctx, make([]punctual.Amendment, limits.MaxBatch+1))
			return err
		}},
	}
	in, err := punctual.As[punctual.Inspector](s.store)
	if err != nil {
		return calls
	}
	calls = append(calls, []namedCall{
		{"Get of no topic", func(ctx context.Context) error { _, err := in.Get(ctx, "", x); return err }},
		{"Get of no ID", func(ctx context.Context) error { _, err := in.Get(ctx, orders, ""); return err }},
		{"List of no state", func(ctx context.Context) error { _, err := in.List(ctx, punctual.ListQuery{Topic: orders}); return err }},
		{"Stats of no topic", func(ctx context.Context) error { _, err := in.Stats(ctx, ""); return err }},
		{"Forecast of no buckets", func(ctx context.Context) error {
			_, err := in.Forecast(ctx, punctual.ForecastQuery{Step: time.Minute})
			return err
		}},
		{"Settings of no topic", func(ctx context.Context) error { _, err := in.Settings(ctx, ""); return err }},
		{"Configure of no topic", func(ctx context.Context) error { _, err := in.Configure(ctx, "", punctual.SettingsPatch{}); return err }},
		{"Configure with no attempts", func(ctx context.Context) error {
			_, err := in.Configure(ctx, orders, punctual.SettingsPatch{MaxAttempts: ptr(0)})
			return err
		}},
		{"Configure with a jitter that is no number", func(ctx context.Context) error {
			_, err := in.Configure(ctx, orders, punctual.SettingsPatch{Backoff: &punctual.Backoff{Base: 1, Max: 1, Jitter: math.NaN()}})
			return err
		}},
		{"Purge of no topic", func(ctx context.Context) error { _, err := in.Purge(ctx, punctual.PurgeQuery{}); return err }},
		{"DeleteTopic of no topic", func(ctx context.Context) error { _, err := in.DeleteTopic(ctx, ""); return err }},
	}...)
	if k, err := punctual.As[punctual.FinishedKeeper](s.store); err == nil {
		calls = append(calls,
			namedCall{"Finished of no ID", func(ctx context.Context) error { _, err := k.Finished(ctx, orders, ""); return err }},
			namedCall{"ListFinished of no topic", func(ctx context.Context) error { _, err := k.ListFinished(ctx, punctual.FinishedQuery{}); return err }})
	}
	if v, err := punctual.As[storekit.Surveyor](s.store); err == nil {
		calls = append(calls, namedCall{"Survey of no edges", func(ctx context.Context) error { _, err := v.Survey(ctx, storekit.SurveyQuery{}); return err }})
	}
	return calls
}

// contractFirstError: closed comes before an ended context, and that before what is wrong with the
// call.
func contractFirstError(s *harness) {
	bringReady(s)
	ended, end := context.WithCancel(s.ctx)
	end()
	late, stop := context.WithDeadline(s.ctx, time.Now().Add(-time.Second))
	defer stop()
	calls := s.malformedCalls()
	for _, c := range calls {
		if err := c.call(s.ctx); !errors.Is(err, punctual.ErrInvalid) && !errors.Is(err, punctual.ErrTooLarge) {
			s.fail("%s: got error %v; want %v or %v", c.name, err, punctual.ErrInvalid, punctual.ErrTooLarge)
		}
		s.wantErr(c.call(ended), context.Canceled, "%s with a cancelled context", c.name)
		s.wantErr(c.call(late), context.DeadlineExceeded, "%s behind its deadline", c.name)
	}
	_, err := s.store.Now(ended)
	s.wantErr(err, context.Canceled, "Now with a cancelled context")
	s.ack(s.one(orders))
	s.closeStore()
	for _, c := range calls {
		s.wantErr(c.call(s.ctx), punctual.ErrClosed, "%s after Close", c.name)
		s.wantErr(c.call(ended), punctual.ErrClosed, "%s after Close with a cancelled context", c.name)
	}
}

// contractNoItems: a call without items passes the same checks as any other, and returns an empty
// slice.
func contractNoItems(s *harness) {
	ended, end := context.WithCancel(s.ctx)
	end()
	calls := map[string]func(ctx context.Context) (int, bool, error){
		"push": func(ctx context.Context) (int, bool, error) {
			rs, err := s.store.Push(ctx, nil)
			return len(rs), rs == nil, err
		},
		"settle": func(ctx context.Context) (int, bool, error) {
			rs, err := s.store.Settle(ctx, []punctual.Settlement{})
			return len(rs), rs == nil, err
		},
		"amend": func(ctx context.Context) (int, bool, error) {
			rs, err := s.store.Amend(ctx, nil)
			return len(rs), rs == nil, err
		},
	}
	for name, call := range calls {
		if n, isNil, err := call(s.ctx); n != 0 || isNil || err != nil {
			s.fail("%s of nothing: %d results, nil %v, error %v; want an empty slice, not nil, and no error", name, n, isNil, err)
		}
		_, _, err := call(ended)
		s.wantErr(err, context.Canceled, "%s of nothing with a cancelled context", name)
	}
	s.closeStore()
	for name, call := range calls {
		_, _, err := call(s.ctx)
		s.wantErr(err, punctual.ErrClosed, "%s of nothing after Close", name)
	}
}

// contractFirstItemError: a settlement that is malformed is ErrInvalid whatever the store knows of
// the message. Next comes the token, then a cancel, and then a time beyond limits.MaxDue.
func contractFirstItemError(s *harness) {
	const beyond = 1<<63 - 1 // leads beyond limits.MaxDue from the time that is set below
	s.clock.Set(limits.MaxDue.Add(-24 * time.Hour))
	for _, v := range []punctual.Verb{punctual.SettleRetry, punctual.SettleSnooze} {
		s.push(order(x, 0))
		d := s.one(orders)
		stale := d
		stale.Token++
		s.wantErr(s.settle(stale, v, -2), punctual.ErrInvalid, "%s after a negative delay, with a wrong token", v)
		s.wantErr(s.settle(stale, v, beyond), punctual.ErrLeaseLost, "%s beyond %v, with a wrong token", v, limits.MaxDue)
		s.wantErr(s.settle(d, v, beyond), punctual.ErrInvalid, "%s beyond %v", v, limits.MaxDue)
		s.outcome(cancel(orders, x), punctual.ErrLeased, isLeased)
		s.wantErr(s.settle(d, v, -2), punctual.ErrInvalid, "%s after a negative delay, of a cancelled message", v)
		s.wantErr(s.settle(stale, v, beyond), punctual.ErrLeaseLost, "%s beyond %v of a cancelled message, with a wrong token", v, limits.MaxDue)
		s.wantErr(s.settle(d, v, beyond), punctual.ErrCancelled, "%s beyond %v of a cancelled message", v, limits.MaxDue)
		s.wantState(orders, x, punctual.StateNone)
		s.push(punctual.NewMessage{Topic: orders, ID: x, MaxAttempts: 1})
		d = s.one(orders)
		s.wantErr(s.settle(d, v, beyond), punctual.ErrInvalid, "%s beyond %v of the last attempt", v, limits.MaxDue)
		s.ack(d)
	}
}

// contractExpiryBeyond: an expiry beyond limits.MaxDue is stored as the millisecond after
// limits.MaxDue, so the message is delivered at any time at which one can be due.
func contractExpiryBeyond(s *harness) {
	never := limits.MaxDue.Add(time.Millisecond)
	m := punctual.NewMessage{Topic: orders, ID: x, Due: limits.MaxDue.Add(-time.Hour), ExpireAfter: 2 * time.Hour}
	want := func(t time.Time, when string) {
		s.Helper()
		if !t.Equal(never) {
			s.fail("%s the expiry of a message that expires beyond %v is %v; want %v", when, limits.MaxDue, t, never)
		}
	}
	s.push(m)
	m.ID, m.ExpireAfter = "longest", 1<<63-1
	s.push(m)
	if s.opener.reopen != nil {
		s.reopen()
	}
	for _, id := range []string{x, "longest"} {
		if s.hasInspector() {
			want(s.get(orders, id).Expires, "scheduled,")
		}
		s.outcome(reschedule(orders, id, 0), nil, isScheduled)
	}
	longest := storekit.FromMillis(storekit.Millis(noon) + (1<<63-1)/1_000_000 + 1) // some 292 years later, rounded up to milliseconds
	soon := map[string]time.Time{x: noon.Add(2 * time.Hour), "longest": longest}
	both := func() []punctual.Delivery {
		s.Helper()
		// A claim may return the message of one partition before the other partitions have
		// answered. What is leased there for the claim then goes back, but the next claim may come
		// first.
		ds := s.take(orders, 10)
		for end := time.Now().Add(s.opener.waitLimit); len(ds) < 2 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			ds = append(ds, s.take(orders, 10)...)
		}
		if len(ds) != 2 {
			s.Fatalf("%s: at %v of two messages %v were delivered; want both", p1, s.now(), ids(ds))
		}
		return ds
	}
	for _, d := range both() {
		if !d.Expires.Equal(soon[d.ID]) {
			s.fail("moved to noon, %s expires at %v; want %v", d.ID, d.Expires, soon[d.ID])
		}
		s.done(d, punctual.SettleRelease, 0)
	}
	s.clock.Set(limits.MaxDue.Add(-time.Second))
	for _, id := range []string{x, "longest"} {
		s.outcome(reschedule(orders, id, 0), nil, isReady)
	}
	s.clock.Set(limits.MaxDue)
	for _, d := range both() {
		want(d.Expires, "delivered,")
	}
}

// contractPausedWhileWaiting: a pause does not end the claims that wait. While it lasts they get
// nothing of the topic, and its end wakes them.
func contractPausedWhileWaiting(s *harness) {
	s.inspector()
	for i := range rounds {
		w := s.wait(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: 10 * time.Hour})
		if i%2 == 0 {
			asleep()
		}
		s.configure(orders, punctual.SettingsPatch{DeliveryPaused: ptr(true)})
		s.push(order(x, 0))
		s.advance(time.Minute)
		asleep()
		select {
		case <-w.done:
			s.fail("a claim that waits returned %v, %v while its topic was paused", ids(w.ds), w.err)
		default:
		}
		s.configure(orders, punctual.SettingsPatch{DeliveryPaused: ptr(false)})
		s.ack(w.wakes(x, "its topic was resumed"))
	}
}

// contractLapse: a lease that ran out is recorded by the claim that meets the message next, with
// the time of that claim.
func contractLapse(s *harness) {
	s.poison(2)
	s.one(orders)
	s.advance(30 * time.Second)
	lapsed := s.now()
	s.advance(time.Hour)
	met := s.now()
	if s.hasInspector() && len(s.get(orders, x).Failures) != 0 {
		s.fail("an hour behind the end of its lease, and before a claim, a message has the history %v; want none", s.get(orders, x).Failures)
	}
	d := s.one(orders)
	want := []punctual.Failure{{Attempt: 1, At: met, Error: storekit.LeaseRanOut}}
	if !slices.EqualFunc(d.Failures, want, sameFailure) {
		s.fail("a lease ended at %v, and a claim met the message at %v; its history is %+v; want %+v", lapsed, met, d.Failures, want)
	}
	s.advance(time.Hour)
	died := s.now()
	s.none(orders, "when the last lease ran out")
	s.wantDead(orders, x, punctual.ReasonAttemptsUsedUp)
	if !s.hasInspector() {
		return
	}
	want = append(want, punctual.Failure{Attempt: 2, At: died, Error: storekit.LeaseRanOut})
	if info := s.get(orders, x); !info.Died.Equal(died) || !slices.EqualFunc(info.Failures, want, sameFailure) {
		s.fail("the claim at %v ended a message: it died at %v with history %+v; want that time and %+v", died, info.Died, info.Failures, want)
	}
}

func sameFailure(a, b punctual.Failure) bool {
	return a.Attempt == b.Attempt && a.Error == b.Error && a.At.Equal(b.At)
}

// contractLapseUnmet: a settlement with the old token, or a reschedule, that comes before the next
// claim records no lapse.
func contractLapseUnmet(s *harness) {
	for _, step := range []struct {
		name     string
		do       func(t *harness, d punctual.Delivery)
		attempt  int
		failures int
	}{
		{"release", func(t *harness, d punctual.Delivery) { t.done(d, punctual.SettleRelease, 0) }, 1, 0},
		{"snooze", func(t *harness, d punctual.Delivery) { t.done(d, punctual.SettleSnooze, 0) }, 1, 0},
		{"retry", func(t *harness, d punctual.Delivery) { t.done(d, punctual.SettleRetry, 0) }, 2, 1},
		{"reschedule", func(t *harness, _ punctual.Delivery) { t.outcome(reschedule(orders, x, 0), nil, isRunOut) }, 2, 0},
	} {
		t := newHarness(s.T, s.promise, s.opener)
		d := bringRunOut(t)
		step.do(t, d)
		if d := t.one(orders); d.Attempt != step.attempt || len(d.Failures) != step.failures || step.failures == 1 && d.Failures[0].Error == storekit.LeaseRanOut {
			t.fail("a lease ran out, then came a %s: the next is attempt %d with history %v; want %d and %d failures, none of them the lapse",
				step.name, d.Attempt, d.Failures, step.attempt, step.failures)
		}
	}
}

// contractTokenTwice: after an ack a second settlement with the same token is refused, in a call
// with many such pairs.
func contractTokenTwice(s *harness) {
	const n = 20
	batch := make([]punctual.NewMessage, n)
	for i := range batch {
		batch[i] = order(fmt.Sprint(i), 0)
	}
	for _, second := range []punctual.Verb{punctual.SettleAck, punctual.SettleDiscard, punctual.SettleRetry, punctual.SettleExtend} {
		s.pushAll(batch...)
		var ss []punctual.Settlement
		for _, d := range s.take(orders, n) {
			again := ackOf(d)
			again.Verb = second
			ss = append(ss, ackOf(d), again)
		}
		errs, err := s.store.Settle(s.ctx, ss)
		if err != nil || len(errs) != 2*n {
			s.fail("settle: %d results, %v", len(errs), err)
		}
		for i, got := range errs {
			want := error(nil)
			if i%2 == 1 {
				want = punctual.ErrLeaseLost
			}
			s.wantErr(got, want, "item %d of an ack and a %s of each token", i, second)
		}
		s.advance(time.Hour)
		s.none(orders, "after all were acked")
	}
}

// contractAmendTwice: of several changes of one message in a call each finds what the one before
// has left.
func contractAmendTwice(s *harness) {
	s.push(order(x, time.Hour))
	s.push(order("y", time.Hour))
	got, err := s.store.Amend(s.ctx, []punctual.Amendment{
		reschedule(orders, x, time.Minute), reschedule(orders, "y", 3*time.Minute), reschedule(orders, x, 2*time.Minute), remove(orders, "y"), remove(orders, "y"),
	})
	if err != nil || len(got) != 5 {
		s.fail("amend: %v, %v", got, err)
	}
	for i, want := range []time.Duration{time.Minute, 3 * time.Minute, 2 * time.Minute, 0, 0} {
		due := noon.Add(want)
		if want == 0 {
			due = time.Time{}
		}
		if !got[i].Due.Equal(due) {
			s.fail("change %d of two messages, twice each, reports due %v; want %v", i+1, got[i].Due, due)
		}
	}
	s.wantErr(got[4].Err, punctual.ErrNotFound, "the second delete of one message in a call")
	s.clock.Set(s.dueAtOnly(2*time.Minute, "the due time of the second of two reschedules in one call"))
	s.ack(s.one(orders))
}

// contractResultNames: a result names the message, also one that was refused.
func contractResultNames(s *harness) {
	bringReady(s)
	names := func(r punctual.PushResult, topic, id, when string) {
		s.Helper()
		if r.Topic != topic || r.ID != id {
			s.fail("the result of a push %s names %q in %q; want %q in %q", when, r.ID, r.Topic, id, topic)
		}
	}
	bad := order(x, -1)
	names(s.try(bad), orders, x, "that is malformed")
	bad.ID = ""
	names(s.try(bad), orders, "", "that is malformed and has no ID")
	names(s.try(second(punctual.IfExistsKeep)), orders, x, "of a taken ID")
	names(s.try(second(punctual.IfExistsFail)), orders, x, "of a taken ID that is refused")
	names(s.try(punctual.NewMessage{Topic: orders, ID: x, Due: limits.MaxDue.Add(time.Hour)}), orders, x, "beyond the last due time")
	if !s.hasInspector() {
		return
	}
	s.configure(orders, punctual.SettingsPatch{PushPaused: ptr(true)})
	names(s.try(order(x, 0)), orders, x, "to a paused topic")
	made := order("", 0)
	if r := s.try(made); r.Topic != orders || r.ID == "" {
		s.fail("the result of a push without an ID to a paused topic names %q in %q; want an ID that the store has made, in %q", r.ID, r.Topic, orders)
	}
}

// contractPausedDuringPushes: for each message that is pushed during a change of PushPaused the old
// or the new setting counts. For a message that is pushed when the change has returned, the new one
// does.
func contractPausedDuringPushes(s *harness) {
	in := s.inspector()
	s.configure(orders, punctual.SettingsPatch{})
	const pushers, each = 3, 40
	var stored, refused, running atomic.Int64
	running.Store(pushers)
	s.clients(pushers+1, func(client int) error {
		if client < pushers {
			defer running.Add(-1)
			for i := range each {
				rs, err := s.store.Push(s.ctx, []punctual.NewMessage{order(fmt.Sprint(client, "-", i, "a"), 0), order(fmt.Sprint(client, "-", i, "b"), 0)})
				if err != nil {
					return err
				}
				for _, r := range rs {
					switch {
					case r.Err == nil && r.Status == punctual.PushStored:
						stored.Add(1)
					case errors.Is(r.Err, punctual.ErrPaused) && r.Status == punctual.PushNone:
						refused.Add(1)
					default:
						return fmt.Errorf("push of %s while the topic is paused and resumed: status %q, error %w", r.ID, r.Status, r.Err)
					}
				}
			}
			return nil
		}
		for paused := true; running.Load() > 0; paused = !paused {
			if _, err := in.Configure(s.ctx, orders, punctual.SettingsPatch{PushPaused: ptr(paused)}); err != nil {
				return err
			}
			rs, err := s.store.Push(s.ctx, []punctual.NewMessage{{Topic: orders, ID: "after", IfExists: punctual.IfExistsReplace, Delay: time.Hour}})
			if err != nil {
				return err
			}
			if errors.Is(rs[0].Err, punctual.ErrPaused) != paused {
				return fmt.Errorf("push behind a change of PushPaused to %v: %w", paused, rs[0].Err)
			}
		}
		return nil
	})
	s.configure(orders, punctual.SettingsPatch{PushPaused: ptr(false)})
	if n := stored.Load() + refused.Load(); n != 2*pushers*each {
		s.fail("%d of %d pushes were stored or refused", n, 2*pushers*each)
	}
	if ds := s.take(orders, limits.MaxClaim); int64(len(ds)) != stored.Load() {
		s.fail("%d messages were delivered; %d pushes were stored, %d refused", len(ds), stored.Load(), refused.Load())
	}
}

// contractUnknownTopic: a topic that does not exist is empty for Purge, List and Forecast, Get
// returns ErrNotFound, and none of these calls creates the topic.
func contractUnknownTopic(s *harness) {
	in := s.inspector()
	n, err := in.Purge(s.ctx, punctual.PurgeQuery{Topic: orders})
	if err != nil || n != 0 {
		s.fail("Purge of an unknown topic: %d, %v; want nothing and no error", n, err)
	}
	p, err := in.List(s.ctx, punctual.ListQuery{Topic: orders, State: punctual.StateReady})
	if err != nil || len(p.Messages) != 0 || p.Next != "" {
		s.fail("List of an unknown topic: %+v, %v; want an empty page and no error", p, err)
	}
	s.wantForecast(punctual.ForecastQuery{Topic: orders, Step: time.Minute, Buckets: 2}, []int64{0, 0}, 0, 0)
	_, err = in.Get(s.ctx, orders, x)
	s.wantErr(err, punctual.ErrNotFound, "Get in an unknown topic")
	s.wantTopics()
}
