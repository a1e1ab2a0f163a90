package storetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// claimCases: which messages does a claim return, and in which order?
func claimCases() []testCase {
	return []testCase{
		{"earliest first", p12, claimEarliest},
		{"earliest first after every move", p12, claimMoved},
		{"released comes first again", p12, claimReleased},
		{"topics in the order given", p12, claimTopicsInOrder},
		{"topic named twice", p3, claimTopicTwice},
		{"no more than Max", p3, claimMax},
		{"no more than PerTopic of each topic", p14, claimPerTopic},
		{"one holder", p3, claimOneHolder},
		{"a thousand due in the same millisecond", p3, claimSameInstant},
		{"lease of the topic", p3, claimTopicLease},
		{"lease of the claim", p3, claimOwnLease},
		{"lease of broken milliseconds", p3, claimFineLease},
		{"slower than its lease", p3, claimSlow},
		{"due in a month, leased for seconds", p3, claimLongDelay},
		{"nothing due", p2, claimNothing},
		{"unknown topic", p13, claimUnknownTopic},
		{"history comes along", p6, claimHistory},
		{"ended context leases nothing", p13, claimEndedContext},
		{"malformed claim", p13, claimMalformed},
		{"lease from the clock in whole milliseconds", p3, claimLeaseFromClock},
		{"ready until a claim meets it", p13, claimReadyUntilMet},
	}
}

func claimEarliest(s *harness) {
	delays := []int{50, 10, 40, 20, 30, 0}
	for _, ms := range delays {
		s.push(order(fmt.Sprintf("o-%02d", ms), time.Duration(ms)*time.Millisecond))
	}
	s.advance(time.Second)
	first := s.take(orders, 2)
	s.wantOrder(slices.Concat(first, s.take(orders, 10)), "o-00", "o-10", "o-20", "o-30", "o-40", "o-50")
}

// claimMoved: the order follows the time that a message has now, not the one that its push gave it.
func claimMoved(s *harness) {
	s.push(order("rescheduled", time.Millisecond))
	s.push(order("retried", 0))
	s.push(order("still", 20*time.Millisecond))
	s.push(order("earlier", time.Hour))
	s.done(s.one(orders), punctual.SettleRetry, 10*time.Millisecond)
	s.amend(reschedule(orders, "rescheduled", 30*time.Millisecond))
	s.amend(reschedule(orders, "earlier", 5*time.Millisecond))
	s.push(order("run out", 0))
	if ds := s.claim(punctual.Claim{Topics: []string{orders}, Max: 1, Lease: 15 * time.Millisecond}); len(ds) != 1 {
		s.fail("a claim returned %v; want the message whose lease is to run out", ids(ds))
	}
	s.advance(time.Second)
	s.wantOrder(s.take(orders, 10), "earlier", "retried", "run out", "still", "rescheduled")
}

func claimReleased(s *harness) {
	s.push(order("first", 0))
	s.push(order("second", time.Millisecond))
	s.advance(time.Second)
	ds := s.take(orders, 1)
	if len(ds) != 1 {
		s.fail("a claim of one message returned %v", ids(ds))
	}
	s.wantOrder(slices.Concat(ds, s.take(orders, 1)), "first", "second")
	s.done(ds[0], punctual.SettleRelease, 0)
	s.push(order("third", 0))
	s.wantOrder(s.take(orders, 2), ds[0].ID, "third")
}

func claimTopicsInOrder(s *harness) {
	for i := range 4 {
		s.push(punctual.NewMessage{Topic: mails, ID: fmt.Sprint("m", i)})
		s.push(order(fmt.Sprint("o", i), time.Duration(i)*time.Millisecond))
	}
	s.advance(time.Second)
	both := punctual.Claim{Topics: []string{orders, "none", mails}, Max: 5}
	var got []string
	for range 2 {
		for _, d := range s.claim(both) {
			got = append(got, d.Topic)
		}
	}
	if want := strings.Repeat(orders+" ", 4) + strings.Repeat(mails+" ", 4); strings.Join(got, " ")+" " != want {
		s.fail("a claim from orders, then mails, returned topics %v; want all of orders first although mails were due earlier", got)
	}
}

func claimTopicTwice(s *harness) {
	for i := range 3 {
		s.push(order(fmt.Sprint(i), 0))
	}
	ds := s.claim(punctual.Claim{Topics: []string{orders, orders, mails, orders}, Max: 10})
	if len(ds) != 3 {
		s.fail("a claim that names a topic three times returned %v; want each of 3 messages once", ids(ds))
	}
}

func claimMax(s *harness) {
	for i := range 10 {
		s.push(order(fmt.Sprint(i), 0))
		s.push(punctual.NewMessage{Topic: mails, ID: fmt.Sprint(i)})
	}
	for _, n := range []int{1, 2, 12, 5} {
		ds := s.claim(punctual.Claim{Topics: []string{orders, mails}, Max: n})
		if len(ds) != n {
			s.fail("a claim of %d messages, with as many due, returned %d", n, len(ds))
		}
		for _, d := range ds {
			s.ack(d)
		}
	}
}

// claimPerTopic: with PerTopic a topic with a backlog leaves room in a claim for the topics named
// after it.
func claimPerTopic(s *harness) {
	for i := range 10 {
		s.push(order(fmt.Sprint(i), 0))
		if i < 3 {
			s.push(punctual.NewMessage{Topic: mails, ID: fmt.Sprint(i)})
		}
	}
	s.push(punctual.NewMessage{Topic: mails, ID: "gone", ExpireAfter: time.Millisecond, DropExpired: true})
	s.advance(time.Second)
	for _, step := range []struct {
		topics               []string
		max, perTopic        int
		wantOrders, wantMail int
	}{
		{[]string{orders, mails}, 10, 2, 2, 2},
		{[]string{orders, mails}, 3, 2, 2, 1},
		{[]string{orders, mails, orders}, 10, 2, 2, 0}, // nothing is left of mails
		{[]string{orders}, 3, 5, 3, 0},
		{[]string{orders, "none"}, 5, 0, 1, 0},
	} {
		ds := s.claim(punctual.Claim{Topics: step.topics, Max: step.max, PerTopic: step.perTopic})
		got := map[string]int{}
		for _, d := range ds {
			got[d.Topic]++
			s.ack(d)
		}
		if got[orders] != step.wantOrders || got[mails] != step.wantMail {
			s.fail("a claim of %d from %v, at most %d of each, returned %d and %d; want %d and %d", step.max, step.topics, step.perTopic, got[orders], got[mails], step.wantOrders, step.wantMail)
		}
	}
}

func claimOneHolder(s *harness) {
	for i := range 20 {
		s.push(order(fmt.Sprint(i), 0))
	}
	held := make(map[string]bool)
	for range 10 {
		for _, d := range s.take(orders, 3) {
			if held[d.ID] {
				s.fail("%s was delivered again while its lease lasts until %v", d.ID, d.LeaseUntil)
			}
			held[d.ID] = true
		}
	}
	if len(held) != 20 {
		s.Fatalf("%s: %d of 20 messages were delivered", p1, len(held))
	}
	s.advance(30*time.Second - time.Millisecond)
	s.none(orders, "1 ms before all leases end")
	s.advance(time.Millisecond)
	if ds := s.take(orders, 100); len(ds) != 20 {
		s.Fatalf("%s: %d of 20 messages came back when their leases ran out", p1, len(ds))
	}
}

func claimSameInstant(s *harness) {
	const n = 1000
	batch := make([]punctual.NewMessage, n)
	for i := range batch {
		batch[i] = punctual.NewMessage{Topic: orders, ID: fmt.Sprint(i), Due: noon.Add(time.Minute)}
	}
	s.pushAll(batch...)
	s.clock.Set(noon.Add(time.Minute - time.Millisecond))
	s.none(orders, "1 ms before a thousand are due")
	s.advance(time.Millisecond)
	seen := make(map[string]bool)
	for range n / 100 {
		for _, d := range s.take(orders, 100) {
			if seen[d.ID] {
				s.fail("%s of a thousand due at once was delivered twice", d.ID)
			}
			seen[d.ID] = true
			s.ack(d)
		}
	}
	if len(seen) != n {
		s.Fatalf("%s: %d of %d messages due in the same millisecond were delivered", p1, len(seen), n)
	}
	s.advance(time.Hour)
	s.none(orders, "after all were acked")
}

func claimTopicLease(s *harness) {
	s.push(order("before", 0))
	if d := s.one(orders); !d.LeaseUntil.Equal(noon.Add(30 * time.Second)) {
		s.fail("without settings the lease lasts %v; want 30s", d.LeaseUntil.Sub(noon))
	}
	s.push(order("after", 0))
	s.configure(orders, punctual.SettingsPatch{Lease: ptr(5 * time.Minute)})
	if d := s.one(orders); !d.LeaseUntil.Equal(noon.Add(5 * time.Minute)) {
		s.fail("with a topic's lease of 5m it lasts %v", d.LeaseUntil.Sub(noon))
	}
}

func claimOwnLease(s *harness) {
	for _, topic := range []string{orders, mails} {
		s.push(punctual.NewMessage{Topic: topic, ID: x})
	}
	for _, d := range s.claim(punctual.Claim{Topics: []string{orders, mails}, Max: 2, Lease: time.Hour}) {
		if !d.LeaseUntil.Equal(noon.Add(time.Hour)) {
			s.fail("with a lease of 1h in the claim it lasts %v", d.LeaseUntil.Sub(noon))
		}
	}
	s.advance(time.Hour - time.Millisecond)
	s.none(orders, "1 ms before the end of the claim's own lease")
}

// claimFineLease: a lease is not shorter than asked for.
func claimFineLease(s *harness) {
	for _, f := range fractions() {
		length := 10*time.Millisecond + f
		s.push(order(x, 0))
		ds := s.claim(punctual.Claim{Topics: []string{orders}, Max: 1, Lease: length})
		if len(ds) != 1 {
			s.fail("claimed %v; want %s", ids(ds), x)
		}
		if got := ds[0].LeaseUntil.Sub(ds[0].Delivered); got < length || got >= length+time.Millisecond {
			s.fail("a lease of %v lasts %v; want it rounded up to whole milliseconds", length, got)
		}
		s.done(ds[0], punctual.SettleExtend, length)
		s.advance(length.Truncate(time.Millisecond))
		s.none(orders, "within the last broken millisecond of an extended lease")
		s.advance(time.Millisecond)
		s.ack(s.one(orders))
	}
}

// claimSlow: the clock goes on by an hour after one of the readings of a claim, as it does for a
// process that was suspended. What the claim returns is still leased at the time that the claim
// read last. If it returns nothing, it has used up no attempt.
func claimSlow(s *harness) {
	if s.opener.elsewhere {
		s.Skipf("skipped: the case cannot tell which readings of the clock are the claim's own")
	}
	for n := range 6 {
		clock := &jumpingClock{Clock: storekit.NewManualClock(noon)}
		t := &harness{T: s.T, promise: s.promise, opener: s.opener, ctx: s.ctx, store: s.opener.open(clock)}
		t.pushAll(order(x, 0), order("y", time.Hour))
		clock.jumpAfter(n + 1)
		c := punctual.Claim{Topics: []string{orders}, Max: 2, Lease: time.Minute}
		ds := t.claim(c)
		seen, jumped := clock.stay()
		if n == 0 && !jumped {
			t.fail("the claim has not read the clock")
		}
		for _, d := range ds {
			if !d.LeaseUntil.After(seen) {
				t.fail("the clock jumped at reading %d of a claim, and it returned %s under a lease until %v although it had read %v", n+1, d.ID, d.LeaseUntil, seen)
			}
		}
		if len(ds) == 0 {
			for _, d := range t.claim(c) {
				if d.Attempt != 1 {
					t.fail("%s is in attempt %d, the first one having been given back by a claim that took too long", d.ID, d.Attempt)
				}
			}
		}
	}
}

// jumpingClock stands still, but for one jump to an hour later. The jump wakes nobody who waits.
// Only readings in the goroutine of claimSlow count, because those in the store's own goroutines
// say nothing of what the claim knows.
type jumpingClock struct {
	storekit.Clock

	mu     sync.Mutex
	ahead  time.Duration // guarded by mu
	toJump int           // how many readings that count come until it jumps; 0 or less for never; guarded by mu
	seen   time.Time     // what the last reading that counts returned; guarded by mu
}

func (c *jumpingClock) Now() time.Time {
	mine := calledBy("claimSlow")
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock.Now().Add(c.ahead)
	if !mine {
		return now
	}
	c.seen = now
	if c.toJump--; c.toJump == 0 {
		c.ahead += time.Hour
	}
	return now
}

// calledBy reports whether the function of this package with the given name is on the stack of the
// calling goroutine.
func calledBy(function string) bool {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, "/storetest."+function) {
			return true
		}
		if !more {
			return false
		}
	}
}

// jumpAfter has the clock jump after the n-th reading from now on.
func (c *jumpingClock) jumpAfter(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.toJump = n
}

// stay has the clock jump no more, and returns what the last reading that counts returned and
// whether the clock has jumped.
func (c *jumpingClock) stay() (seen time.Time, jumped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.toJump = 0
	return c.seen, c.ahead > 0
}

// claimLongDelay: the length of a lease has nothing to do with how long a message waits.
func claimLongDelay(s *harness) {
	const month = 30 * 24 * time.Hour
	s.push(order(x, month))
	for range 30 {
		s.none(orders, "within the month before the message is due")
		s.advance(24*time.Hour - time.Millisecond)
	}
	s.advance(30 * time.Millisecond)
	s.ack(s.one(orders))
	s.advance(month)
	s.none(orders, "a month after the ack")
}

func claimNothing(s *harness) {
	s.none(orders, "on an empty store")
	s.push(order(x, time.Hour))
	s.none(orders, "an hour before the only message")
	ds := s.claim(punctual.Claim{Topics: []string{orders}, Max: 1, Lease: time.Minute})
	if len(ds) != 0 {
		s.fail("claimed %v an hour early", ids(ds))
	}
}

func claimUnknownTopic(s *harness) {
	s.none("never-heard-of", "before anything was pushed")
	s.push(order(x, 0))
	ds := s.claim(punctual.Claim{Topics: []string{"never-heard-of", orders}, Max: 2})
	if len(ds) != 1 {
		s.fail("a claim from an unknown topic and orders returned %v; want x of orders", ids(ds))
	}
}

func claimHistory(s *harness) {
	bringReady(s)
	for i := range 3 {
		d := s.one(orders)
		if d.Attempt != i+1 || len(d.Failures) != i {
			s.fail("delivery %d is attempt %d with history %v", i+1, d.Attempt, d.Failures)
		}
		s.settleAs(punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: punctual.SettleRetry, Error: fmt.Sprint("error ", i+1)})
		for j, f := range d.Failures {
			if f.Attempt != j+1 || f.Error != fmt.Sprint("error ", j+1) || !f.At.Equal(noon.Add(time.Duration(j)*time.Second)) {
				s.fail("delivery %d carries failure %+v at place %d", i+1, f, j)
			}
		}
		s.advance(time.Second)
	}
}

// claimEndedContext: a claim whose context has ended returns the error of the context and leases
// nothing, although a message is due.
func claimEndedContext(s *harness) {
	bringReady(s)
	ctx, end := context.WithCancel(s.ctx)
	end()
	ds, err := s.store.Claim(ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: time.Hour})
	s.noneWith(err, ds)
	s.wantEnded(err, "claim")
	if d := s.one(orders); d.Attempt != 1 {
		s.fail("a claim with an ended context used up an attempt: the next is %d", d.Attempt)
	}
}

func claimMalformed(s *harness) {
	bringReady(s)
	long := strings.Repeat("t", limits.MaxTopicBytes+1)
	many := make([]string, limits.MaxClaimTopics+1)
	for i := range many {
		many[i] = fmt.Sprint(orders, i)
	}
	bad := map[string]punctual.Claim{
		"no topics":                 {Max: 1},
		"1001 topics":               {Topics: append([]string{orders}, many[1:]...), Max: 1},
		"an empty topic":            {Topics: []string{orders, ""}, Max: 1},
		"a topic with a space":      {Topics: []string{"a b"}, Max: 1},
		"a topic of 129 bytes":      {Topics: []string{long}, Max: 1},
		"Max 0":                     {Topics: []string{orders}},
		"Max -1":                    {Topics: []string{orders}, Max: -1},
		"Max beyond MaxClaim":       {Topics: []string{orders}, Max: limits.MaxClaim + 1},
		"PerTopic -1":               {Topics: []string{orders}, Max: 1, PerTopic: -1},
		"a negative wait":           {Topics: []string{orders}, Max: 1, Wait: -1},
		"a negative lease":          {Topics: []string{orders}, Max: 1, Lease: -time.Second},
		"a lease shorter than 10ms": {Topics: []string{orders}, Max: 1, Lease: limits.MinLease - 1},
		"a lease longer than 24h":   {Topics: []string{orders}, Max: 1, Lease: limits.MaxLease + 1},
	}
	for name, c := range bad {
		ds, err := s.store.Claim(s.ctx, c)
		s.wantErr(err, punctual.ErrInvalid, "a claim with %s", name)
		s.noneWith(err, ds)
	}
	many[limits.MaxClaimTopics-1] = orders
	ds := s.claim(punctual.Claim{Topics: many[:limits.MaxClaimTopics], Max: 1})
	if len(ds) != 1 || ds[0].Attempt != 1 {
		s.fail("a claim of 1000 topics, behind malformed ones, got %+v; want the message in its first attempt", ds)
	}
}

// claimLeaseFromClock: a lease ends at the store's clock, rounded down, plus its length, rounded
// up.
func claimLeaseFromClock(s *harness) {
	for _, f := range fractions() {
		t := newHarness(s.T, s.promise, s.opener)
		t.push(order(x, 0))
		t.clock.Set(noon.Add(time.Second + f))
		ds := t.claim(punctual.Claim{Topics: []string{orders}, Max: 1, Lease: time.Minute + 1})
		want := noon.Add(time.Second + time.Minute + time.Millisecond)
		if len(ds) != 1 || !ds[0].Delivered.Equal(noon.Add(time.Second)) || !ds[0].LeaseUntil.Equal(want) {
			t.fail("%v after a whole second a claim with a lease of 1m1ns returned %+v; want one delivered at the second until %v", f, ds, want)
		}
		t.done(ds[0], punctual.SettleExtend, time.Hour+1)
		if want := noon.Add(time.Second + time.Hour + time.Millisecond); t.hasInspector() && !t.get(orders, x).LeaseUntil.Equal(want) {
			t.fail("%v after a whole second an extension to 1h1ns lasts until %v; want %v", f, t.get(orders, x).LeaseUntil, want)
		}
	}
}

// claimReadyUntilMet: messages that a claim must end are ready, in lists and counts, until a claim
// meets them.
func claimReadyUntilMet(s *harness) {
	s.inspector()
	s.push(punctual.NewMessage{Topic: orders, ID: "expired", ExpireAfter: time.Minute})
	s.push(punctual.NewMessage{Topic: orders, ID: "dropped", ExpireAfter: time.Minute, DropExpired: true})
	s.push(punctual.NewMessage{Topic: mails, ID: "used up", MaxAttempts: 1})
	s.push(punctual.NewMessage{Topic: mails, ID: "cancelled"})
	s.take(mails, 2)
	s.amend(cancel(mails, "cancelled"))
	s.advance(time.Hour)
	set := s.defaults()
	for topic, names := range map[string][]string{orders: {"expired", "dropped"}, mails: {"used up", "cancelled"}} {
		s.wantStats(punctual.TopicStats{Topic: topic, Ready: 2, NextDue: noon, Settings: set})
		if got := s.list(punctual.ListQuery{Topic: topic, State: punctual.StateReady}); len(got) != 2 {
			s.fail("%d messages of %s are listed as ready before a claim met them; want 2", len(got), topic)
		}
		for _, id := range names {
			s.wantState(topic, id, punctual.StateReady)
		}
		s.wantForecast(punctual.ForecastQuery{Topic: topic, Step: time.Minute, Buckets: 1}, []int64{0}, 2, 0)
		s.none(topic, "when all that are ready are to be ended")
		s.wantStats(punctual.TopicStats{Topic: topic, Dead: 1, Settings: set})
	}
	s.wantDead(orders, "expired", punctual.ReasonExpired)
	s.wantDead(mails, "used up", punctual.ReasonAttemptsUsedUp)
}
