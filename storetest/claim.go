package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
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
		{"one holder", p3, claimOneHolder},
		{"a thousand due in the same millisecond", p3, claimSameInstant},
		{"lease of the topic", p3, claimTopicLease},
		{"lease of the claim", p3, claimOwnLease},
		{"lease of broken milliseconds", p3, claimFineLease},
		{"due in a month, leased for seconds", p3, claimLongDelay},
		{"nothing due", p2, claimNothing},
		{"unknown topic", p13, claimUnknownTopic},
		{"history comes along", p6, claimHistory},
		{"ended context leases nothing", p13, claimEndedContext},
		{"malformed claim", p13, claimMalformed},
	}
}

func claimEarliest(s *subject) {
	delays := []int{50, 10, 40, 20, 30, 0}
	for _, ms := range delays {
		s.push(order(fmt.Sprintf("o-%02d", ms), time.Duration(ms)*time.Millisecond))
	}
	s.advance(time.Second)
	first := s.take(orders, 2)
	s.wantOrder(slices.Concat(first, s.take(orders, 10)), "o-00", "o-10", "o-20", "o-30", "o-40", "o-50")
}

// claimMoved: the order follows the time in force, not that of the push.
func claimMoved(s *subject) {
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

func claimReleased(s *subject) {
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

func claimTopicsInOrder(s *subject) {
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

func claimTopicTwice(s *subject) {
	for i := range 3 {
		s.push(order(fmt.Sprint(i), 0))
	}
	ds := s.claim(punctual.Claim{Topics: []string{orders, orders, mails, orders}, Max: 10})
	if len(ds) != 3 {
		s.fail("a claim that names a topic three times returned %v; want each of 3 messages once", ids(ds))
	}
}

func claimMax(s *subject) {
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

func claimOneHolder(s *subject) {
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

func claimSameInstant(s *subject) {
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

func claimTopicLease(s *subject) {
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

func claimOwnLease(s *subject) {
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
func claimFineLease(s *subject) {
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

// claimLongDelay: the length of a lease has nothing to do with how long a message waits.
func claimLongDelay(s *subject) {
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

func claimNothing(s *subject) {
	s.none(orders, "on an empty store")
	s.push(order(x, time.Hour))
	s.none(orders, "an hour before the only message")
	ds := s.claim(punctual.Claim{Topics: []string{orders}, Max: 1, Lease: time.Minute})
	if len(ds) != 0 {
		s.fail("claimed %v an hour early", ids(ds))
	}
}

func claimUnknownTopic(s *subject) {
	s.none("never-heard-of", "before anything was pushed")
	s.push(order(x, 0))
	ds := s.claim(punctual.Claim{Topics: []string{"never-heard-of", orders}, Max: 2})
	if len(ds) != 1 {
		s.fail("a claim from an unknown topic and orders returned %v; want x of orders", ids(ds))
	}
}

func claimHistory(s *subject) {
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

// claimEndedContext: a claim that returns an error has leased nothing.
func claimEndedContext(s *subject) {
	bringReady(s)
	ctx, end := context.WithCancel(s.ctx)
	end()
	ds, err := s.store.Claim(ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: time.Hour})
	if err == nil && len(ds) == 1 {
		return // what was due at once may still be handed out
	}
	s.wantErr(err, context.Canceled, "a claim with an ended context")
	if d := s.one(orders); d.Attempt != 1 {
		s.fail("a claim with an ended context used up an attempt: the next is %d", d.Attempt)
	}
}

func claimMalformed(s *subject) {
	bringReady(s)
	long := strings.Repeat("t", punctual.MaxTopicBytes+1)
	bad := map[string]punctual.Claim{
		"no topics":                 {Max: 1},
		"an empty topic":            {Topics: []string{orders, ""}, Max: 1},
		"a topic with a space":      {Topics: []string{"a b"}, Max: 1},
		"a topic of 129 bytes":      {Topics: []string{long}, Max: 1},
		"Max 0":                     {Topics: []string{orders}},
		"Max -1":                    {Topics: []string{orders}, Max: -1},
		"Max beyond MaxClaim":       {Topics: []string{orders}, Max: punctual.MaxClaim + 1},
		"a negative wait":           {Topics: []string{orders}, Max: 1, Wait: -1},
		"a negative lease":          {Topics: []string{orders}, Max: 1, Lease: -time.Second},
		"a lease shorter than 10ms": {Topics: []string{orders}, Max: 1, Lease: punctual.MinLease - 1},
		"a lease longer than 24h":   {Topics: []string{orders}, Max: 1, Lease: punctual.MaxLease + 1},
	}
	for name, c := range bad {
		ds, err := s.store.Claim(s.ctx, c)
		s.wantErr(err, punctual.ErrInvalid, "a claim with %s", name)
		if len(ds) != 0 {
			s.fail("a claim with %s leased %v", name, ids(ds))
		}
	}
	if d := s.one(orders); d.Attempt != 1 {
		s.fail("malformed claims used up attempts: the next is %d", d.Attempt)
	}
}
