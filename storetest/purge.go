package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/compare"
)

// purgeCases: does a purge remove what was named, all of it and nothing else?
func purgeCases() []testCase {
	return []testCase{
		{"by state", p13, purgeByState},
		{"all but the dead", p13, purgeLive},
		{"between two times", p13, purgeRange},
		{"what becomes ready meanwhile", p13, purgeRipening},
		{"takes leases away", p4, purgeLeased},
		{"one topic only", p1, purgeOneTopic},
		{"purged are never delivered", p13, purgeHolds},
		{"malformed", p13, purgeMalformed},
	}
}

// purge purges, and must remove exactly want messages. It skips the case when the store has no
// Inspector.
func (s *harness) purge(q punctual.PurgeQuery, want int64) {
	s.Helper()
	n, err := s.inspector().Purge(s.ctx, q)
	if err != nil {
		s.fail("Purge: unexpected error: %v", err)
	}
	if n != want {
		s.fail("a purge of %q messages from %v to %v removed %d; want %d", q.State, q.From, q.To, n, want)
	}
}

func purgeByState(s *harness) {
	s.inspector()
	for _, state := range States() {
		t := newHarness(s.T, s.promise, s.opener)
		t.fillStates(5)
		t.purge(punctual.PurgeQuery{Topic: orders, State: state}, 5)
		for _, other := range States() {
			if other == state {
				t.wantList(punctual.ListQuery{Topic: orders, State: other})
			} else {
				t.wantList(punctual.ListQuery{Topic: orders, State: other}, stateIDs(other, 0, 5)...)
			}
		}
		t.purge(punctual.PurgeQuery{Topic: orders, State: state}, 0)
		t.checkSound()
	}
}

func purgeLive(s *harness) {
	s.inspector()
	s.fillStates(5)
	s.purge(punctual.PurgeQuery{Topic: orders}, 15)
	s.wantList(punctual.ListQuery{Topic: orders, State: punctual.StateDead}, stateIDs(punctual.StateDead, 0, 5)...)
	s.advance(24 * time.Hour)
	s.none(orders, "a day after the purge")
}

func purgeRange(s *harness) {
	s.inspector()
	for _, state := range States() {
		t := newHarness(s.T, s.promise, s.opener)
		t.fillStates(6)
		all := t.list(punctual.ListQuery{Topic: orders, State: state})
		t.purge(punctual.PurgeQuery{Topic: orders, State: state, From: compare.SortTime(all[5])}, 1)
		t.purge(punctual.PurgeQuery{Topic: orders, State: state, To: compare.SortTime(all[1])}, 1)
		t.purge(punctual.PurgeQuery{Topic: orders, State: state, From: compare.SortTime(all[2]), To: compare.SortTime(all[3])}, 1)
		t.purge(punctual.PurgeQuery{Topic: orders, State: state, From: compare.SortTime(all[2]), To: compare.SortTime(all[2])}, 0)
		t.wantList(punctual.ListQuery{Topic: orders, State: state}, all[1].ID, all[3].ID, all[4].ID)
		t.checkSound()
	}
}

// hurrying is a clock that goes on by a step whenever somebody reads it.
type hurrying struct {
	*storekit.ManualClock
	step atomic.Int64
}

func (c *hurrying) Now() time.Time {
	c.Advance(time.Duration(c.step.Load()))
	return c.ManualClock.Now()
}

// purgeRipening lets time pass while a purge runs. Messages become ready and leases run out at one
// of its steps, in each run at a later one.
func purgeRipening(s *harness) {
	const n, step = 10, 10 * time.Millisecond
	s.inspector()
	clock := &hurrying{ManualClock: s.clock}
	s.store = s.opener.open(clock)
	for run := range 16 {
		at := time.Duration(run)*step + step/2
		ms := make([]punctual.NewMessage, n)
		for i := range ms {
			ms[i] = order(fmt.Sprint("held ", i), 0)
		}
		s.pushAll(ms...)
		length := max(at, limits.MinLease)
		if ds := s.claim(punctual.Claim{Topics: []string{orders}, Max: n, Lease: length}); len(ds) != n {
			s.fail("a claim of %d ready messages returned %d", n, len(ds))
		}
		for i := range ms {
			ms[i] = order(fmt.Sprint(i), at)
		}
		s.pushAll(ms...)
		s.push(order("far", time.Hour))
		before := s.now()
		clock.step.Store(int64(step))
		got, err := s.inspector().Purge(s.ctx, punctual.PurgeQuery{Topic: orders})
		clock.step.Store(0)
		if err != nil || got != 2*n+1 {
			s.fail("a purge of %d live messages, most of which became ready after %v of the %v that it took, removed %d, error %v",
				2*n+1, at, s.now().Sub(before), got, err)
		}
		s.wantStats(punctual.TopicStats{Topic: orders, Settings: s.settings(orders)})
	}
	s.advance(24 * time.Hour)
	s.none(orders, "a day after all were purged")
}

func purgeLeased(s *harness) {
	s.inspector()
	d := bringLeased(s)
	s.purge(punctual.PurgeQuery{Topic: orders, State: punctual.StateLeased}, 1)
	s.wantFenced(d, "after the message was purged")
	s.wantState(orders, x, punctual.StateNone)
	s.advance(time.Minute)
	s.none(orders, "after the lease of a purged message would have run out")
}

func purgeOneTopic(s *harness) {
	s.inspector()
	for _, topic := range []string{orders, mails, orders + "2", "order"} {
		s.push(punctual.NewMessage{Topic: topic, ID: x})
	}
	s.purge(punctual.PurgeQuery{Topic: orders}, 1)
	s.purge(punctual.PurgeQuery{Topic: "never-heard-of"}, 0)
	for _, topic := range []string{mails, orders + "2", "order"} {
		s.ack(s.one(topic))
	}
}

func purgeHolds(s *harness) {
	in := s.inspector()
	for i := range 1000 {
		s.push(order(fmt.Sprint(i), time.Duration(i%10)*time.Second))
	}
	ctx, end := context.WithTimeout(s.ctx, s.opener.waitLimit)
	defer end()
	if n, err := in.Purge(ctx, punctual.PurgeQuery{Topic: orders, From: noon.Add(5 * time.Second)}); err != nil || n != 500 {
		s.fail("Purge of the later half of 1000 messages: %d, %v", n, err)
	}
	s.advance(time.Hour)
	ds := s.take(orders, 1000)
	for _, d := range ds {
		if !d.Due.Before(noon.Add(5 * time.Second)) {
			s.fail("%s, due %v, was purged and delivered", d.ID, d.Due)
		}
	}
	if len(ds) != 500 {
		s.Fatalf("%s: 500 messages were not purged, %d delivered", p1, len(ds))
	}
}

func purgeMalformed(s *harness) {
	in := s.inspector()
	s.push(order(x, 0))
	for name, q := range map[string]punctual.PurgeQuery{
		"no topic":         {},
		"a bad topic":      {Topic: "a b"},
		"an unknown state": {Topic: orders, State: 9},
	} {
		_, err := in.Purge(s.ctx, q)
		s.wantErr(err, punctual.ErrInvalid, "a purge with %s", name)
	}
	s.ack(s.one(orders))
}
