package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/compare"
)

// recorded reads all pages of a list of finished records and checks that each is well formed.
func (s *harness) recorded(q punctual.FinishedQuery) []punctual.Finished {
	s.Helper()
	k, err := s.keeper()
	if err != nil {
		s.fail("the store keeps no finished records any more: %v", err)
	}
	all, err := compare.FinishedList(s.ctx, k, q)
	if err != nil {
		s.fail("%v", err)
	}
	return all
}

// wantRecorded compares the IDs of a list, read with pages of several sizes from both ends, with
// the wanted ones in order. Each record must be what Finished returns.
func (s *harness) wantRecorded(q punctual.FinishedQuery, want ...string) {
	s.Helper()
	k, err := s.keeper()
	if err != nil {
		s.fail("the store keeps no finished records any more: %v", err)
	}
	for _, q.Descending = range []bool{false, true} {
		wanted := slices.Clone(want)
		if q.Descending {
			slices.Reverse(wanted)
		}
		for _, q.Limit = range []int{1, 2, max(len(want), 1), 0} {
			var got []string
			for _, f := range s.recorded(q) {
				got = append(got, f.ID)
				alone, err := k.Finished(s.ctx, q.Topic, f.ID)
				if d := compare.Finished(f, alone, false); err != nil || d != "" {
					s.fail("the record of %s in a list differs from that by itself: %s, %v", f.ID, d, err)
				}
			}
			if !slices.Equal(got, wanted) {
				s.fail("a list of finished records (outcome %q, limit %d, from %v to %v, descending %v) shows %v; want %v", q.Outcome, q.Limit, q.From, q.To, q.Descending, got, wanted)
			}
		}
	}
}

// finish has a message of a topic finish now with an outcome.
func (s *harness) finish(topic, id string, how punctual.Outcome) {
	s.Helper()
	switch how {
	case punctual.OutcomeAcked:
		s.push(punctual.NewMessage{Topic: topic, ID: id})
		s.ack(s.one(topic))
	case punctual.OutcomeCancelled:
		s.push(punctual.NewMessage{Topic: topic, ID: id, Delay: time.Hour})
		s.outcome(cancel(topic, id), nil, "to be cancelled")
	case punctual.OutcomeExpired:
		s.push(punctual.NewMessage{Topic: topic, ID: id, Due: s.now().Add(-time.Hour), ExpireAfter: time.Minute, DropExpired: true})
		s.none(topic, "when its message has expired")
	}
}

// outcomesOf has the outcomes in the order in which finishSome uses them.
var outcomesOf = storekit.Outcomes()

// finishTogether pushes messages in one call and cancels them in another.
func (s *harness) finishTogether(topic string, ids ...string) {
	s.Helper()
	var ms []punctual.NewMessage
	for _, id := range ids {
		ms = append(ms, punctual.NewMessage{Topic: topic, ID: id, Delay: time.Hour})
	}
	s.pushAll(ms...)
	s.cancelAll(topic, ids...)
}

// cancelAll cancels messages in one call.
func (s *harness) cancelAll(topic string, ids ...string) {
	s.Helper()
	var cancels []punctual.Amendment
	for _, id := range ids {
		cancels = append(cancels, cancel(topic, id))
	}
	done, err := s.store.Amend(s.ctx, cancels)
	if err != nil || len(done) != len(ids) {
		s.fail("%d cancels: %d results, %v", len(ids), len(done), err)
	}
	for i, d := range done {
		if d.Err != nil {
			s.fail("cancel of %s/%s: %v", topic, ids[i], d.Err)
		}
	}
}

// finishSome has n messages of orders finish, a second apart, the first one now, and returns their
// IDs in that order. It is not the order of the IDs.
func (s *harness) finishSome(n int) (ids []string) {
	s.Helper()
	for i := range n {
		id := fmt.Sprintf("%02d", i*7%n)
		s.finish(orders, id, outcomesOf[i%3])
		ids = append(ids, id)
		s.advance(time.Second)
	}
	return ids
}

func finishedList(s *harness) {
	s.keep(orders, time.Hour)
	s.wantRecorded(punctual.FinishedQuery{Topic: orders})
	s.wantRecorded(punctual.FinishedQuery{Topic: "never-heard-of"})
	ids := s.finishSome(10)
	s.pushAll(order("scheduled", time.Hour), order("leased", 0))
	s.one(orders)
	s.wantRecorded(punctual.FinishedQuery{Topic: orders}, ids...)
	s.wantRecorded(punctual.FinishedQuery{Topic: mails})
	if s.opener.reopen != nil {
		s.reopen()
		s.wantRecorded(punctual.FinishedQuery{Topic: orders}, ids...)
	}
	for range 101 - 10 {
		s.finish(orders, "", punctual.OutcomeAcked)
	}
	k, err := s.keeper()
	if err != nil {
		s.fail("%v", err)
	}
	p, err := k.ListFinished(s.ctx, punctual.FinishedQuery{Topic: orders})
	if err != nil || len(p.Records) != 100 || p.Next == "" {
		s.fail("a list without a limit of 101 finished records shows %d, goes on at %q, %v; want 100 and a cursor", len(p.Records), p.Next, err)
	}
}

func finishedListFiltered(s *harness) {
	s.keep(orders, time.Hour)
	ids := s.finishSome(12)
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Second) }
	for n, r := range []struct {
		from, to   time.Time
		first, end int
	}{
		{at(3), time.Time{}, 3, 12},
		{at(3).Add(time.Millisecond), time.Time{}, 4, 12},
		{at(3).Add(-time.Nanosecond), time.Time{}, 3, 12},
		{time.Time{}, at(3), 0, 3},
		{time.Time{}, at(3).Add(time.Nanosecond), 0, 4},
		{at(3), at(9), 3, 9},
		{at(3), at(3), 3, 3},
		{at(-10), at(100), 0, 12},
		{at(12), at(100), 12, 12},
		{at(-100), at(0), 0, 0},
		{time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), limits.MaxDue, 0, 12},
	} {
		for _, how := range []punctual.Outcome{"", outcomesOf[n%3]} {
			var want []string
			for i := r.first; i < r.end; i++ {
				if how == "" || outcomesOf[i%3] == how {
					want = append(want, ids[i])
				}
			}
			s.wantRecorded(punctual.FinishedQuery{Topic: orders, From: r.from, To: r.to, Outcome: how}, want...)
		}
	}
}

// finishedListEqualTimes: many messages that finish in the same millisecond, in one call and in
// several, are listed by ID, and each once at the borders of pages.
func finishedListEqualTimes(s *harness) {
	const n = 150
	s.keep(orders, time.Hour)
	var want []string
	for _, prefix := range []string{"b", "a", "c"} {
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprintf("%s-%03d", prefix, i*7%n))
		}
		s.finishTogether(orders, ids...)
		want = append(want, ids...)
	}
	s.finish(orders, want[0], punctual.OutcomeCancelled) // the same ID once more in the same millisecond
	slices.Sort(want)
	s.advance(time.Millisecond)
	s.finish(orders, "a later one", punctual.OutcomeAcked)
	want = append(want, "a later one")
	for _, descending := range []bool{false, true} {
		for _, limit := range []int{64, 3 * n, 3*n + 1, 3*n + 2} {
			var got []string
			for _, f := range s.recorded(punctual.FinishedQuery{Topic: orders, Limit: limit, Descending: descending}) {
				got = append(got, f.ID)
			}
			if descending {
				slices.Reverse(got)
			}
			if !slices.Equal(got, want) {
				s.fail("a list of %d messages that finished at once and one later (limit %d, descending %v) shows %d: %v", 3*n, limit, descending, len(got), got)
			}
		}
	}
	s.wantRecorded(punctual.FinishedQuery{Topic: orders, Outcome: punctual.OutcomeAcked}, "a later one")
}

// finishedListRetentions: records are listed by the end of their own retention, and selected by
// when their messages finished.
func finishedListRetentions(s *harness) {
	week := 7 * 24 * time.Hour
	s.keep(orders, week)
	s.finish(orders, "week", punctual.OutcomeAcked)
	s.advance(time.Minute)
	s.keep(orders, time.Hour)
	s.finish(orders, "hour", punctual.OutcomeAcked)
	s.advance(time.Minute)
	s.keep(orders, limits.MaxFinishedRetention)
	s.finish(orders, "year", punctual.OutcomeCancelled)
	s.advance(time.Minute)
	s.keep(orders, time.Millisecond)
	s.finish(orders, "moment", punctual.OutcomeAcked)
	s.keep(orders, 0)
	s.finish(orders, "none", punctual.OutcomeAcked)
	s.wantRecorded(punctual.FinishedQuery{Topic: orders}, "moment", "hour", "week", "year")
	s.wantRecorded(punctual.FinishedQuery{Topic: orders, To: noon.Add(time.Minute)}, "week")
	s.wantRecorded(punctual.FinishedQuery{Topic: orders, From: noon.Add(time.Minute)}, "moment", "hour", "year")
	s.wantRecorded(punctual.FinishedQuery{Topic: orders, From: noon.Add(time.Minute), To: noon.Add(3 * time.Minute)}, "hour", "year")
	s.wantRecorded(punctual.FinishedQuery{Topic: orders, From: noon.Add(3 * time.Minute)}, "moment")
	s.advance(time.Millisecond)
	s.wantRecorded(punctual.FinishedQuery{Topic: orders}, "hour", "week", "year")
	s.advance(time.Hour)
	s.wantRecorded(punctual.FinishedQuery{Topic: orders}, "week", "year")
	s.wantRecorded(punctual.FinishedQuery{Topic: orders, From: noon, To: noon.Add(time.Minute)}, "week")
	s.advance(week)
	s.wantRecorded(punctual.FinishedQuery{Topic: orders}, "year")
	s.advance(limits.MaxFinishedRetention)
	s.wantRecorded(punctual.FinishedQuery{Topic: orders})
	s.checkSound()
}

// finishedListAgain: the record of a later message takes the place of that of an earlier one with
// its ID, whichever is kept longer.
func finishedListAgain(s *harness) {
	s.keep(orders, time.Hour)
	for _, id := range []string{"a", "b", "c"} {
		s.finish(orders, id, punctual.OutcomeAcked)
		s.advance(time.Second)
	}
	s.wantRecorded(punctual.FinishedQuery{Topic: orders}, "a", "b", "c")
	s.finish(orders, "a", punctual.OutcomeCancelled)
	s.wantRecorded(punctual.FinishedQuery{Topic: orders}, "b", "c", "a")
	s.wantRecorded(punctual.FinishedQuery{Topic: orders, Outcome: punctual.OutcomeAcked}, "b", "c")
	s.wantRecorded(punctual.FinishedQuery{Topic: orders, To: noon.Add(2 * time.Second)}, "b")
	s.keep(orders, time.Minute)
	s.finish(orders, "c", punctual.OutcomeAcked)
	s.wantRecorded(punctual.FinishedQuery{Topic: orders}, "c", "b", "a")
	s.advance(time.Minute)
	s.wantRecorded(punctual.FinishedQuery{Topic: orders}, "b", "a")
	s.finish(orders, "b", punctual.OutcomeAcked)
	s.finish(orders, "b", punctual.OutcomeCancelled) // both in one millisecond
	s.wantRecorded(punctual.FinishedQuery{Topic: orders}, "b", "a")
	s.checkSound()

	// The same holds for messages that finished together, whose records a store may keep as one
	// entry.
	s.keep(mails, time.Hour)
	s.finishTogether(mails, "a", "b", "c")
	s.wantRecorded(punctual.FinishedQuery{Topic: mails}, "a", "b", "c")
	s.advance(time.Second)
	s.finish(mails, "a", punctual.OutcomeAcked)
	s.advance(time.Second)
	s.finish(mails, "b", punctual.OutcomeCancelled)
	s.wantRecorded(punctual.FinishedQuery{Topic: mails}, "c", "a", "b")
	s.wantRecorded(punctual.FinishedQuery{Topic: mails, Outcome: punctual.OutcomeCancelled}, "c", "b")
	s.checkSound()
}

// finishedListChanging: a list can be continued from a cursor while records are added, replaced and
// removed. It shows no record twice; an ID that finished again comes with its new record.
func finishedListChanging(s *harness) {
	s.keep(orders, time.Hour)
	ids := s.finishSome(10)
	k, err := s.keeper()
	if err != nil {
		s.fail("%v", err)
	}
	page := func(q punctual.FinishedQuery) punctual.FinishedPage {
		s.Helper()
		p, err := k.ListFinished(s.ctx, q)
		if err != nil || len(p.Records) != 4 || p.Next == "" {
			s.fail("ListFinished of %+v: %d records, next %q, %v; want 4 and a next", q, len(p.Records), p.Next, err)
		}
		return p
	}
	first := page(punctual.FinishedQuery{Topic: orders, Limit: 4})
	last := page(punctual.FinishedQuery{Topic: orders, Limit: 4, Descending: true})
	s.finish(orders, "new", punctual.OutcomeAcked)
	s.finish(orders, ids[3], punctual.OutcomeAcked) // the record at which the first cursor stands
	s.finish(orders, ids[4], punctual.OutcomeAcked) // the one behind it
	s.wantRest(punctual.FinishedQuery{Topic: orders, Limit: 3, After: first.Next}, append(slices.Clone(ids[5:]), sorted("new", ids[3], ids[4])...))
	s.wantRest(punctual.FinishedQuery{Topic: orders, Limit: 3, After: last.Next, Descending: true}, []string{ids[5], ids[2], ids[1], ids[0]})
	s.clock.Set(noon.Add(time.Hour + 7*time.Second)) // the first eight are past their retention, among them those of both cursors
	s.wantRest(punctual.FinishedQuery{Topic: orders, Limit: 3, After: first.Next}, append(slices.Clone(ids[8:]), sorted("new", ids[3], ids[4])...))
	s.wantRest(punctual.FinishedQuery{Topic: orders, Limit: 3, After: last.Next, Descending: true}, nil)
}

func sorted(ids ...string) []string {
	slices.Sort(ids)
	return ids
}

// wantRest compares the IDs that a list shows from a cursor on.
func (s *harness) wantRest(q punctual.FinishedQuery, want []string) {
	s.Helper()
	var got []string
	for _, f := range s.recorded(q) {
		got = append(got, f.ID)
	}
	if !slices.Equal(got, want) {
		s.fail("a list of finished records from a cursor on (descending %v) shows %v; want %v", q.Descending, got, want)
	}
}

// finishedListBeside: the records of other topics, older, newer and of the same time, with the same
// IDs, are not in the list.
func finishedListBeside(s *harness) {
	topics := []string{mails, orders, "others"}
	for _, topic := range topics {
		s.keep(topic, time.Hour)
	}
	want := make(map[string][]string)
	for i := range 12 {
		for j, topic := range topics {
			if (i+j)%3 == 0 || i%4 == 0 {
				id := fmt.Sprint(string(rune('a'+i)), i%2*j)
				s.finish(topic, id, punctual.OutcomeAcked)
				want[topic] = append(want[topic], id)
			}
		}
		s.advance(time.Duration(i%2) * time.Millisecond)
	}
	for _, topic := range topics {
		s.wantRecorded(punctual.FinishedQuery{Topic: topic}, want[topic]...)
	}
}

func finishedListGone(s *harness) {
	s.keep(orders, time.Hour)
	ids := s.finishSome(4)
	s.pushAll(order("scheduled", time.Hour), order("dead", 0))
	s.done(s.one(orders), punctual.SettleDiscard, 0)
	s.purge(punctual.PurgeQuery{Topic: orders}, 1)
	s.wantRecorded(punctual.FinishedQuery{Topic: orders}, ids...) // a purge leaves the finished records
	if n, err := s.inspector().DeleteTopic(s.ctx, orders); err != nil || n != 1 {
		s.fail("DeleteTopic: %d, %v; want 1", n, err)
	}
	s.wantRecorded(punctual.FinishedQuery{Topic: orders})
	s.keep(orders, time.Hour)
	s.wantRecorded(punctual.FinishedQuery{Topic: orders})
	s.finish(orders, ids[2], punctual.OutcomeAcked)
	s.wantRecorded(punctual.FinishedQuery{Topic: orders}, ids[2])
}

// finishedListFew: a list finds the few records that it selects, from both ends, although there are
// more others than a store reads for one page (storekit.ReadLimit).
func finishedListFew(s *harness) {
	const chunk, chunks = 250, storekit.ReadLimit * 5 / 4 / 250
	s.keep(orders, time.Hour)
	var few []string
	for n := range chunks {
		if n%(chunks/2) == chunks/4 {
			few = append(few, fmt.Sprint("few-", n))
			s.finish(orders, few[len(few)-1], punctual.OutcomeAcked)
		}
		var ids []string
		for i := range chunk {
			ids = append(ids, fmt.Sprintf("many-%02d-%03d", n, i))
		}
		s.finishTogether(orders, ids...)
		s.advance(time.Second)
	}
	s.wantRecorded(punctual.FinishedQuery{Topic: orders, Outcome: punctual.OutcomeAcked}, few...)
	s.wantRecorded(punctual.FinishedQuery{Topic: orders, Outcome: punctual.OutcomeExpired})
	s.wantRecorded(punctual.FinishedQuery{Topic: orders, To: noon.Add(chunks / 2 * time.Second), Outcome: punctual.OutcomeAcked}, few[0])
	for _, descending := range []bool{false, true} {
		if got := s.recorded(punctual.FinishedQuery{Topic: orders, Limit: 10_000, Descending: descending}); len(got) != chunk*chunks+len(few) {
			s.fail("a list of %d finished records (descending %v) shows %d", chunk*chunks+len(few), descending, len(got))
		}
	}
}

func finishedListMalformed(s *harness) {
	s.keep(orders, time.Hour)
	k, err := s.keeper()
	if err != nil {
		s.fail("%v", err)
	}
	s.finish(orders, x, punctual.OutcomeAcked)
	for name, q := range map[string]punctual.FinishedQuery{
		"no topic":             {},
		"a bad topic":          {Topic: "a b"},
		"an unknown outcome":   {Topic: orders, Outcome: "lost"},
		"a negative limit":     {Topic: orders, Limit: -1},
		"a limit of 10001":     {Topic: orders, Limit: 10_001},
		"from later than to":   {Topic: orders, From: noon.Add(time.Nanosecond), To: noon},
		"a broken cursor":      {Topic: orders, After: "\x00 no cursor"},
		"a cursor of no place": {Topic: orders, After: "bm9wZQ"},
	} {
		p, err := k.ListFinished(s.ctx, q)
		s.wantErr(err, punctual.ErrInvalid, "a list of finished records with %s", name)
		if len(p.Records) > 0 {
			s.fail("a list of finished records with %s shows %d", name, len(p.Records))
		}
	}
}
