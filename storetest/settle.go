package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// settleCases: what can the holder of a lease do?
func settleCases() []testCase {
	return []testCase{
		{"ack finishes", p1, settleAck},
		{"ack twice", p4, settleAckTwice},
		{"retry", p6, settleRetry},
		{"retry by the topic's backoff", p6, settleBackoff},
		{"last backoff delay repeats", p6, settleBackoffEnd},
		{"snooze does not count", p6, settleSnooze},
		{"release does not count", p6, settleRelease},
		{"release keeps the due time", p12, settleReleaseDue},
		{"first due time", p12, settleFirstDue},
		{"discard", p6, settleDiscard},
		{"extend", p3, settleExtend},
		{"extend by the topic's lease", p3, settleExtendDefault},
		{"extend to a shorter lease", p3, settleExtendShorter},
		{"every verb after the lease ran out", p4, settleLate},
		{"long error text", p6, settleLongError},
		{"items take effect in order", p13, settleInOrder},
		{"results per item", p13, settleBatch},
		{"one failure among many", p1, settleOneOfMany},
		{"malformed items", p13, settleMalformed},
		{"retry and snooze beyond the end of time", p9, settleBeyond},
		{"retry and snooze to an instant", p2, settleDue},
		{"retry and snooze to an instant in the past", p12, settleDuePast},
		{"retry and snooze to broken milliseconds", p2, settleDueFine},
		{"retry to an instant counts", p6, settleDueCounts},
		{"an instant that may not be", p9, settleDueMalformed},
	}
}

// Verbs are all verbs that a settlement may have.
func Verbs() []punctual.Verb {
	return []punctual.Verb{
		punctual.SettleAck, punctual.SettleRetry, punctual.SettleSnooze,
		punctual.SettleDiscard, punctual.SettleRelease, punctual.SettleExtend,
	}
}

// settleVerb settles by the verb, with a delay of a minute if the verb may have one.
func (s *harness) settleVerb(d punctual.Delivery, v punctual.Verb) error {
	s.Helper()
	switch v {
	case punctual.SettleRetry, punctual.SettleSnooze, punctual.SettleExtend:
		return s.settle(d, v, time.Minute)
	}
	return s.settle(d, v, 0)
}

func settleAck(s *harness) {
	bringAcked(s)
	s.wantState(orders, x, punctual.StateNone)
	for range 3 {
		s.advance(24 * time.Hour)
		s.none(orders, "days after the ack")
	}
}

func settleAckTwice(s *harness) {
	d := bringAcked(s)
	for _, v := range Verbs() {
		s.wantErr(s.settleVerb(d, v), punctual.ErrLeaseLost, "%s after the ack", v)
	}
	s.wantState(orders, x, punctual.StateNone)
}

func settleRetry(s *harness) {
	d := bringLeased(s)
	s.settleAs(punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: punctual.SettleRetry, Delay: time.Minute, Error: "no route"})
	s.wantState(orders, x, punctual.StateScheduled)
	d = s.dueAt(noon.Add(time.Minute), "the end of the retry delay")
	if d.Attempt != 2 || len(d.Failures) != 1 {
		s.fail("after one retry the delivery is attempt %d with history %v; want 2 and one failure", d.Attempt, d.Failures)
	}
	if f := d.Failures[0]; f.Attempt != 1 || f.Error != "no route" || !f.At.Equal(noon) {
		s.fail("the failure is recorded as %+v; want attempt 1 at %v: no route", f, noon)
	}
}

func settleBackoff(s *harness) {
	list := []time.Duration{2 * time.Minute, 10 * time.Minute, 10 * time.Minute, time.Hour}
	s.configure(orders, punctual.SettingsPatch{Backoff: &punctual.Backoff{Delays: list}})
	bringReady(s)
	for i, delay := range list {
		s.done(s.one(orders), punctual.SettleRetry, punctual.UseBackoff)
		s.clock.Set(s.dueAtOnly(delay, fmt.Sprintf("delay %d of the backoff list", i+1)))
	}
}

// dueAtOnly moves the clock to 1 ms before the end of the delay, checks that nothing is due, and
// returns the end of the delay.
func (s *harness) dueAtOnly(delay time.Duration, what string) time.Time {
	s.Helper()
	at := s.clock.Now().Add(delay)
	s.clock.Set(at.Add(-time.Millisecond))
	s.under(p2, func() { s.none(orders, "1 ms before "+what) })
	return at
}

func settleBackoffEnd(s *harness) {
	s.configure(orders, punctual.SettingsPatch{Backoff: &punctual.Backoff{Delays: []time.Duration{time.Second, time.Minute}}})
	bringReady(s)
	for i := range 6 {
		s.done(s.one(orders), punctual.SettleRetry, punctual.UseBackoff)
		delay := time.Minute
		if i == 0 {
			delay = time.Second
		}
		s.clock.Set(s.dueAtOnly(delay, fmt.Sprintf("the backoff after failed attempt %d", i+1)))
	}
}

func settleSnooze(s *harness) {
	s.push(punctual.NewMessage{Topic: orders, ID: x, MaxAttempts: 2})
	s.done(s.one(orders), punctual.SettleRetry, 0)
	for range 50 {
		d := s.one(orders)
		if d.Attempt != 2 || len(d.Failures) != 1 {
			s.fail("after snoozes the delivery is attempt %d with history %v; want 2 and only the first failure", d.Attempt, d.Failures)
		}
		s.done(d, punctual.SettleSnooze, time.Second)
		s.advance(time.Second)
	}
	s.ack(s.one(orders))
}

func settleRelease(s *harness) {
	s.push(punctual.NewMessage{Topic: orders, ID: x, MaxAttempts: 1})
	for range 50 {
		d := s.one(orders)
		if d.Attempt != 1 || len(d.Failures) != 0 {
			s.fail("after releases the delivery is attempt %d with history %v; want 1 and none", d.Attempt, d.Failures)
		}
		s.done(d, punctual.SettleRelease, 0)
	}
	s.ack(s.one(orders))
}

func settleReleaseDue(s *harness) {
	bringReady(s)
	s.advance(10 * time.Second)
	d := s.one(orders)
	s.advance(time.Second)
	s.done(d, punctual.SettleRelease, 0)
	if d = s.one(orders); !d.Due.Equal(noon) {
		s.fail("a released message is due %v; want as before, %v", d.Due, noon)
	}
}

// settleFirstDue: a retry and a snooze move the due time alone, a release and an extension move
// neither; a reschedule and a requeue set the first due time, too.
func settleFirstDue(s *harness) {
	for _, expire := range []time.Duration{0, 24 * time.Hour} {
		t := newHarness(s.T, s.promise, s.opener)
		want := func(first, due time.Time, when string) {
			t.Helper()
			if !t.hasInspector() {
				return
			}
			if i := t.get(orders, x); !i.FirstDue.Equal(first) || !i.Due.Equal(due) {
				t.fail("%s a message is first due %v, now due %v; want %v and %v", when, i.FirstDue, i.Due, first, due)
			}
		}
		t.push(punctual.NewMessage{Topic: orders, ID: x, Delay: time.Second, ExpireAfter: expire, MaxAttempts: 5})
		first := noon.Add(time.Second)
		want(first, first, "after a push")
		t.advance(time.Minute)
		for _, v := range []punctual.Verb{punctual.SettleRetry, punctual.SettleSnooze, punctual.SettleRelease, punctual.SettleExtend} {
			d := t.one(orders)
			if !d.FirstDue.Equal(first) || d.TotalLate() != t.now().Sub(first) || d.Late() != t.now().Sub(d.Due) {
				t.fail("before a %s a delivery is first due %v, late %v, in all %v; want %v, %v, %v", v, d.FirstDue, d.Late(), d.TotalLate(), first, t.now().Sub(d.Due), t.now().Sub(first))
			}
			due := d.Due
			if v == punctual.SettleRetry || v == punctual.SettleSnooze {
				due = t.now().Add(time.Minute)
			}
			t.wantErr(t.settleVerb(d, v), nil, "%s", v)
			want(first, due, "after a "+v.String())
			t.advance(time.Minute)
		}
		d := t.one(orders) // the lease had run out
		want(first, d.Due, "under a lease that follows one that ran out")
		if t.opener.reopen != nil {
			t.reopen()
			want(first, d.Due, "reopened")
		}
		t.done(d, punctual.SettleRetry, time.Hour)
		moved := t.now().Add(time.Minute)
		t.outcome(reschedule(orders, x, time.Minute), nil, isRetried)
		want(moved, moved, "after a reschedule")
		t.advance(2 * time.Minute)
		t.done(t.one(orders), punctual.SettleDiscard, 0)
		want(moved, moved, "dead,")
		t.outcome(requeue(orders, x, time.Hour), nil, isDead)
		again := t.now().Add(time.Hour)
		want(again, again, "after a requeue")
		t.push(punctual.NewMessage{Topic: orders, ID: "never claimed", Delay: time.Hour, ExpireAfter: expire})
		t.outcome(reschedule(orders, "never claimed", 0), nil, isScheduled)
		if d := t.one(orders); d.ID != "never claimed" || !d.FirstDue.Equal(t.now()) {
			t.fail("rescheduled before it was ever claimed, %s is first due %v; want %v", d.ID, d.FirstDue, t.now())
		}
	}
}

func settleDiscard(s *harness) {
	d := bringLeased(s)
	s.advance(time.Second)
	s.settleAs(punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: punctual.SettleDiscard, Error: "poison"})
	s.advance(24 * time.Hour)
	s.none(orders, "a day after the discard")
	s.wantDead(orders, x, punctual.ReasonDiscarded)
	if !s.hasInspector() {
		return
	}
	info := s.get(orders, x)
	if info.Attempt != 1 || !info.Died.Equal(noon.Add(time.Second)) || !info.LeaseUntil.IsZero() {
		s.fail("a discarded message shows attempt %d, died %v, lease until %v; want 1, %v, zero", info.Attempt, info.Died, info.LeaseUntil, noon.Add(time.Second))
	}
	if len(info.Failures) != 1 || info.Failures[0].Error != "poison" || info.Failures[0].Attempt != 1 {
		s.fail("a discarded message has history %v; want the error of the discard", info.Failures)
	}
}

func settleExtend(s *harness) {
	d := bringLeased(s)
	s.advance(20 * time.Second)
	s.done(d, punctual.SettleExtend, time.Minute)
	s.advance(time.Minute - time.Millisecond)
	s.none(orders, "1 ms before the end of the extended lease")
	s.done(d, punctual.SettleExtend, time.Minute)
	s.advance(time.Minute - time.Millisecond)
	s.none(orders, "1 ms before the end of the lease extended twice")
	s.advance(time.Millisecond)
	again := s.one(orders)
	if again.Attempt != 2 {
		s.Fatalf("%s: after a lease that was extended ran out the delivery is attempt %d; want 2", p6, again.Attempt)
	}
	s.wantErr(s.settle(d, punctual.SettleExtend, time.Minute), punctual.ErrLeaseLost, "extend of a lease that ran out and was claimed again")
}

func settleExtendDefault(s *harness) {
	d := bringLeased(s)
	s.advance(29 * time.Second)
	s.done(d, punctual.SettleExtend, 0)
	s.advance(30*time.Second - time.Millisecond)
	s.none(orders, "1 ms before the end of a lease extended by the topic's 30s")
	s.advance(time.Millisecond)
	s.one(orders)
}

func settleExtendShorter(s *harness) {
	d := bringLeased(s)
	s.done(d, punctual.SettleExtend, time.Second)
	s.advance(time.Second - time.Millisecond)
	s.none(orders, "1 ms before the end of the shortened lease")
	s.advance(time.Millisecond)
	s.one(orders)
}

// settleLate: the end of a lease alone does not end its token. The holder may still settle while
// nobody has claimed or changed the message.
func settleLate(s *harness) {
	for i, v := range Verbs() {
		t := s
		if i > 0 {
			t = newHarness(s.T, s.promise, s.opener)
		}
		d := bringRunOut(t)
		t.advance(time.Second)
		if err := t.settleVerb(d, v); err != nil {
			t.fail("%s after the lease ran out, before anybody claimed again: unexpected error: %v", v, err)
		}
		t.wantState(orders, x, map[punctual.Verb]punctual.State{
			punctual.SettleRetry: punctual.StateScheduled, punctual.SettleSnooze: punctual.StateScheduled,
			punctual.SettleDiscard: punctual.StateDead, punctual.SettleRelease: punctual.StateReady, punctual.SettleExtend: punctual.StateLeased,
		}[v])
		if v == punctual.SettleExtend {
			t.none(orders, "while the lease taken up again lasts")
			t.ack(d)
		}
	}
}

func settleLongError(s *harness) {
	text := strings.Repeat("é", limits.MaxErrorBytes)
	for _, v := range []punctual.Verb{punctual.SettleRetry, punctual.SettleDiscard} {
		s.push(punctual.NewMessage{Topic: orders, ID: x, IfExists: punctual.IfExistsReplace})
		d := s.one(orders)
		if err := s.settleAs(punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: v, Error: text}); err != nil {
			s.fail("%s with a long error text: unexpected error: %v", v, err)
		}
		if o := s.amend(requeue(orders, x, 0)); o.Err != nil && !errors.Is(o.Err, punctual.ErrNotDead) {
			s.fail("requeue after %s: %v; want it requeued or not dead", v, o.Err)
		}
		d = s.one(orders)
		if len(d.Failures) != 1 || d.Failures[0].Error != storekit.TrimError(text) {
			s.fail("after %s with an error of %d bytes the history is %.200v; want the text shortened by TrimError", v, len(text), d.Failures)
		}
		s.ack(d)
	}
}

func settleInOrder(s *harness) {
	d := bringLeased(s)
	of := func(v punctual.Verb, delay time.Duration) punctual.Settlement {
		return punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: v, Delay: delay}
	}
	errs, err := s.store.Settle(s.ctx, []punctual.Settlement{
		of(punctual.SettleExtend, time.Minute), of(punctual.SettleRetry, time.Second), of(punctual.SettleAck, 0), of(punctual.SettleExtend, time.Hour),
	})
	if err != nil || len(errs) != 4 {
		s.fail("settle: %v, %v", errs, err)
	}
	for i, want := range []error{nil, nil, punctual.ErrLeaseLost, punctual.ErrLeaseLost} {
		s.wantErr(errs[i], want, "item %d of extend, retry, ack, extend with one token", i+1)
	}
	s.advance(time.Second)
	s.ack(s.one(orders))
}

func settleBatch(s *harness) {
	for i := range 6 {
		s.push(order(fmt.Sprint(i), time.Duration(i)*time.Millisecond))
	}
	s.advance(time.Second)
	ds := s.take(orders, 6)
	if len(ds) != 6 {
		s.fail("claimed %v; want all 6", ids(ds))
	}
	var batch []punctual.Settlement
	for i, d := range ds {
		batch = append(batch, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token + int64(i%2)*1000, Verb: punctual.SettleAck})
	}
	batch[2].Verb = 99
	errs, err := s.store.Settle(s.ctx, batch)
	if err != nil || len(errs) != 6 {
		s.fail("settle of 6 leases: %v, %v", errs, err)
	}
	for i, want := range []error{nil, punctual.ErrLeaseLost, punctual.ErrInvalid, punctual.ErrLeaseLost, nil, punctual.ErrLeaseLost} {
		s.wantErr(errs[i], want, "item %d of a mixed batch", i)
	}
	s.advance(time.Minute)
	if got := slices.Sorted(slices.Values(ids(s.take(orders, 10)))); !slices.Equal(got, []string{"1", "2", "3", "5"}) {
		s.fail("after acks of 0 and 4 came back %q; want 1, 2, 3 and 5", got)
	}
}

// settleOneOfMany: whichever message of a batch is retried, it alone comes back.
func settleOneOfMany(s *harness) {
	const n = 5
	for k := range n {
		for i := range n {
			s.push(order(fmt.Sprint(i), 0))
		}
		var batch []punctual.Settlement
		for _, d := range s.take(orders, n) {
			verb := punctual.SettleAck
			if d.ID == fmt.Sprint(k) {
				verb = punctual.SettleRetry
			}
			batch = append(batch, punctual.Settlement{Topic: orders, ID: d.ID, Token: d.Token, Verb: verb})
		}
		if errs, err := s.store.Settle(s.ctx, batch); errors.Join(append(errs, err)...) != nil {
			s.fail("acks and one retry: %v, %v", errs, err)
		}
		d := s.one(orders)
		if d.ID != fmt.Sprint(k) || d.Attempt != 2 {
			s.fail("of %d messages number %d was retried; %s came back as attempt %d", n, k, d.ID, d.Attempt)
		}
		s.ack(d)
		s.advance(time.Hour)
		s.none(orders, "after all were acked")
	}
}

func settleMalformed(s *harness) {
	d := bringLeased(s)
	base := punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: punctual.SettleAck}
	bad := map[string]func(*punctual.Settlement){
		"no topic":                  func(b *punctual.Settlement) { b.Topic = "" },
		"a bad topic":               func(b *punctual.Settlement) { b.Topic = "a b" },
		"no ID":                     func(b *punctual.Settlement) { b.ID = "" },
		"an ID of 129 bytes":        func(b *punctual.Settlement) { b.ID = strings.Repeat("i", 129) },
		"no verb":                   func(b *punctual.Settlement) { b.Verb = 0 },
		"an unknown verb":           func(b *punctual.Settlement) { b.Verb = 7 },
		"a negative retry":          func(b *punctual.Settlement) { b.Verb, b.Delay = punctual.SettleRetry, -2 },
		"a snooze by backoff":       func(b *punctual.Settlement) { b.Verb, b.Delay = punctual.SettleSnooze, punctual.UseBackoff },
		"a negative extension":      func(b *punctual.Settlement) { b.Verb, b.Delay = punctual.SettleExtend, -time.Second },
		"an extension under 10ms":   func(b *punctual.Settlement) { b.Verb, b.Delay = punctual.SettleExtend, limits.MinLease-1 },
		"an extension beyond 24h":   func(b *punctual.Settlement) { b.Verb, b.Delay = punctual.SettleExtend, limits.MaxLease+1 },
		"an ack with negative wait": func(b *punctual.Settlement) { b.Delay = -1 },
	}
	for name, spoil := range bad {
		b := base
		spoil(&b)
		s.wantErr(s.settleAs(b), punctual.ErrInvalid, "a settlement with %s", name)
	}
	s.wantState(orders, x, punctual.StateLeased)
	s.ack(d)
}

// settleBeyond: a retry or snooze to a time after limits.MaxDue changes nothing, also in the last
// attempt.
func settleBeyond(s *harness) {
	for _, attempts := range []int{1, 2} {
		t := newHarness(s.T, s.promise, s.opener)
		t.clock.Set(limits.MaxDue.Add(-time.Hour))
		t.push(punctual.NewMessage{Topic: orders, ID: x, MaxAttempts: attempts})
		d := t.one(orders)
		for _, v := range []punctual.Verb{punctual.SettleRetry, punctual.SettleSnooze} {
			t.wantErr(t.settle(d, v, time.Hour+time.Millisecond), punctual.ErrInvalid, "%s to after %v", v, limits.MaxDue)
			t.wantState(orders, x, punctual.StateLeased)
		}
		t.done(d, punctual.SettleSnooze, time.Hour)
		t.clock.Set(limits.MaxDue)
		if d = t.one(orders); d.Attempt != 1 || len(d.Failures) != 0 {
			t.fail("refused settlements left attempt %d with history %v; want 1 and none", d.Attempt, d.Failures)
		}
	}
}

// settleTo settles by a verb to an instant.
func (s *harness) settleTo(d punctual.Delivery, v punctual.Verb, due time.Time) error {
	s.Helper()
	return s.settleAs(punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: v, Due: due, Error: errorOf(v)})
}

// errorOf is the text that a verb adds to the history, if it adds any.
func errorOf(v punctual.Verb) string {
	if v == punctual.SettleRetry || v == punctual.SettleDiscard {
		return "by " + v.String()
	}
	return ""
}

// givingBack are the verbs that may have a due time.
func givingBack() []punctual.Verb {
	return []punctual.Verb{punctual.SettleRetry, punctual.SettleSnooze}
}

func settleDue(s *harness) {
	for _, v := range givingBack() {
		t := newHarness(s.T, s.promise, s.opener)
		d := bringLeased(t)
		t.advance(time.Second)
		due := noon.Add(time.Hour)
		t.wantErr(t.settleTo(d, v, due), nil, "%s to an instant", v)
		t.wantErr(t.settleTo(d, v, due), punctual.ErrLeaseLost, "%s again", v)
		t.wantState(orders, x, punctual.StateScheduled)
		if e := t.dueAt(due, "the instant of a "+v.String()); !e.Due.Equal(due) || !e.FirstDue.Equal(noon) {
			t.fail("%s to %v: the delivery is due %v, first %v; want %v first", v, due, e.Due, e.FirstDue, noon)
		}
		t.wantErr(t.settleTo(t.bringAgain(v), v, limits.MaxDue), nil, "%s to the last due time", v)
		if t.hasInspector() {
			if i := t.get(orders, x); !i.Due.Equal(limits.MaxDue) {
				t.fail("%s to the last due time: due %v", v, i.Due)
			}
		}
	}
}

// bringAgain replaces orders/x by a message that is due at once, and leases that. v is for the text
// of a failure.
func (s *harness) bringAgain(v punctual.Verb) punctual.Delivery {
	s.Helper()
	if r := s.try(punctual.NewMessage{Topic: orders, ID: x, IfExists: punctual.IfExistsReplace}); r.Err != nil {
		s.fail("replacing push before a %s: %v", v, r.Err)
	}
	return s.one(orders)
}

// settleDuePast: the message is ready at once, keeps the instant in the past as its due time, and
// is claimed in the order of it.
func settleDuePast(s *harness) {
	for _, v := range givingBack() {
		t := newHarness(s.T, s.promise, s.opener)
		d := bringLeased(t)
		t.push(order(x+"~waits", 0))
		t.advance(time.Minute)
		past := noon.Add(-24 * time.Hour)
		t.wantErr(t.settleTo(d, v, past), nil, "%s to an instant in the past", v)
		t.wantState(orders, x, punctual.StateReady)
		ds := t.take(orders, 10)
		t.wantOrder(ds, x, x+"~waits")
		for _, e := range ds {
			if e.ID == x && (!e.Due.Equal(past) || !e.FirstDue.Equal(noon)) {
				t.fail("%s to %v: the delivery is due %v, first %v", v, past, e.Due, e.FirstDue)
			}
		}
	}
}

func settleDueFine(s *harness) {
	for _, v := range givingBack() {
		for _, f := range fractions() {
			t := newHarness(s.T, s.promise, s.opener)
			t.wantErr(t.settleTo(bringLeased(t), v, noon.Add(time.Minute+f)), nil, "%s to broken milliseconds", v)
			t.dueAt(noon.Add(time.Minute+time.Millisecond), "the instant rounded up")
		}
	}
}

// settleDueCounts: the attempt of a retry counts and that of a snooze does not, and the retry of
// the last attempt makes the message dead.
func settleDueCounts(s *harness) {
	s.push(punctual.NewMessage{Topic: orders, ID: x, MaxAttempts: 2})
	due := noon
	for range 3 {
		due = due.Add(time.Minute)
		s.wantErr(s.settleTo(s.one(orders), punctual.SettleSnooze, due), nil, "snooze to an instant")
		s.clock.Set(due)
	}
	d := s.one(orders)
	if d.Attempt != 1 || len(d.Failures) != 0 {
		s.fail("snoozed to an instant three times, a delivery is attempt %d with history %v; want 1 and none", d.Attempt, d.Failures)
	}
	due = due.Add(time.Minute)
	s.wantErr(s.settleTo(d, punctual.SettleRetry, due), nil, "retry to an instant")
	s.clock.Set(due)
	if d = s.one(orders); d.Attempt != 2 || len(d.Failures) != 1 || d.Failures[0].Error != errorOf(punctual.SettleRetry) {
		s.fail("retried to an instant, a delivery is attempt %d with history %v; want 2 and one failure", d.Attempt, d.Failures)
	}
	s.wantErr(s.settleTo(d, punctual.SettleRetry, due.Add(time.Minute)), nil, "the last retry to an instant")
	s.wantDead(orders, x, punctual.ReasonAttemptsUsedUp)
}

func settleDueMalformed(s *harness) {
	d := bringLeased(s)
	early := time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, v := range Verbs() {
		for what, due := range map[string]time.Time{"beyond the last one": limits.MaxDue.Add(time.Nanosecond), "before the year 1": early} {
			s.wantErr(s.settleTo(d, v, due), punctual.ErrInvalid, "%s to a due time %s", v, what)
		}
		if v != punctual.SettleRetry && v != punctual.SettleSnooze {
			s.wantErr(s.settleTo(d, v, noon.Add(time.Hour)), punctual.ErrInvalid, "%s to a due time", v)
			continue
		}
		both := punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: v, Due: noon, Delay: time.Second}
		s.wantErr(s.settleAs(both), punctual.ErrInvalid, "%s with a due time and a delay", v)
	}
	backoff := punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: punctual.SettleRetry, Due: noon, Delay: punctual.UseBackoff}
	s.wantErr(s.settleAs(backoff), punctual.ErrInvalid, "retry with a due time and by the backoff")
	s.wantState(orders, x, punctual.StateLeased)
	if s.hasInspector() {
		if i := s.get(orders, x); !i.Due.Equal(noon) || !i.LeaseUntil.Equal(d.LeaseUntil) || i.Attempt != 1 {
			s.fail("refused settlements left due %v, lease until %v, attempt %d", i.Due, i.LeaseUntil, i.Attempt)
		}
	}
	s.ack(d)
}
