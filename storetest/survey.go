package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/compare"
)

func (s *harness) surveyor() storekit.Surveyor {
	s.Helper()
	s.inspector()
	v, err := punctual.As[storekit.Surveyor](s.store)
	if err != nil {
		s.Skipf("skipped: the case needs a Surveyor: %v", err)
	}
	return v
}

// inspectSurvey: a survey has the statistics that Topics returns, and counts by due time, for all
// topics together except those that the query leaves out, and for the largest ones.
func inspectSurvey(s *harness) {
	v := s.surveyor()
	edges := []time.Time{s.now().Add(-time.Hour), s.now().Add(time.Minute), s.now().Add(2 * time.Minute), s.now().Add(time.Hour)}
	query := storekit.SurveyQuery{Edges: edges, Largest: 2, Without: []string{"hidden"}}
	if got, err := v.Survey(s.ctx, query); err != nil || len(got.Topics)+len(got.Largest) > 0 || !slices.Equal(got.All.Counts, []int64{0, 0, 0}) || !got.At.Equal(s.now()) {
		s.fail("a survey of an empty store: %+v, %v", got, err)
	}
	for i, delay := range []time.Duration{0, 0, 0, time.Millisecond, time.Minute - time.Millisecond, time.Minute, 2 * time.Minute, time.Hour - time.Millisecond, time.Hour} {
		s.push(order(fmt.Sprint(i), delay))
	}
	s.push(punctual.NewMessage{Topic: mails, ID: x, Delay: 90 * time.Second})
	for i := range 3 {
		s.push(punctual.NewMessage{Topic: "more", ID: fmt.Sprint(i), Delay: 30 * time.Second})
		for k := range 7 {
			s.push(punctual.NewMessage{Topic: "hidden", ID: fmt.Sprint(i, "-", k), Delay: 30 * time.Second})
		}
	}
	s.done(s.take(orders, 1)[0], punctual.SettleDiscard, 0)
	s.take(orders, 1)
	got, err := v.Survey(s.ctx, query)
	if err != nil {
		s.fail("Survey: %v", err)
	}
	s.wantSameStats(got.Topics)
	s.wantDue(got.All, storekit.DueCounts{Counts: []int64{2 + 3, 1 + 1, 2}, Overdue: 2, Beyond: 1})
	if len(got.Largest) != 2 {
		s.fail("the 2 largest topics are %+v", got.Largest)
	}
	s.wantDue(got.Largest[0], storekit.DueCounts{Topic: orders, Counts: []int64{2, 1, 2}, Overdue: 2, Beyond: 1})
	s.wantDue(got.Largest[1], storekit.DueCounts{Topic: "more", Counts: []int64{3, 0, 0}})
}

// wantSameStats compares the topics of a survey with those that the Inspector counts.
func (s *harness) wantSameStats(got []punctual.TopicStats) {
	s.Helper()
	want, err := s.inspector().Topics(s.ctx)
	if err != nil || len(got) != len(want) {
		s.fail("a survey has %d topics and Topics %d, %v", len(got), len(want), err)
	}
	for i := range want {
		if d := compare.Stats(got[i], want[i]); d != "" {
			s.fail("a survey and Topics differ: %s", d)
		}
	}
}

func (s *harness) wantDue(got, want storekit.DueCounts) {
	s.Helper()
	if got.Topic != want.Topic || !slices.Equal(got.Counts, want.Counts) || got.Overdue != want.Overdue || got.Beyond != want.Beyond {
		s.fail("a survey has %+v; want %+v", got, want)
	}
}

// inspectNextDue: NextDue says how many messages of a topic are ready, up to
// storekit.MaxReadyCount, and the due time of the one that is claimed next.
func inspectNextDue(s *harness) {
	v := s.surveyor()
	if got, err := v.NextDue(s.ctx); err != nil || len(got.Topics) > 0 || !got.At.Equal(s.now()) {
		s.fail("the next due times of an empty store: %+v, %v", got, err)
	}
	for i := range storekit.MaxReadyCount + 1 {
		s.push(order(fmt.Sprint(i), time.Duration(i)*time.Millisecond))
	}
	s.push(punctual.NewMessage{Topic: mails, ID: x, Delay: time.Hour})
	s.configure(mails, punctual.SettingsPatch{DeliveryPaused: new(true)})
	heads := func(ready int64, due time.Time) {
		s.Helper()
		got, err := v.NextDue(s.ctx)
		if err != nil || len(got.Topics) != 2 || got.Topics[0].Topic != mails || got.Topics[1].Topic != orders {
			s.fail("NextDue: %+v, %v", got, err)
		}
		if h := got.Topics[0]; h.Ready != 0 || !h.Due.IsZero() || !h.Settings.DeliveryPaused {
			s.fail("the next due time of a topic in which nothing is ready: %+v", h)
		}
		if h := got.Topics[1]; h.Ready != ready || !h.Due.Equal(due) {
			s.fail("%d are ready, the first since %v; want %d since %v", h.Ready, h.Due, ready, due)
		}
	}
	heads(1, noon)
	s.advance(2 * time.Millisecond)
	s.done(s.take(orders, 1)[0], punctual.SettleAck, 0)
	s.take(orders, 1)
	heads(1, noon.Add(2*time.Millisecond))
	s.advance(time.Minute) // so that the lease has run out
	heads(storekit.MaxReadyCount, noon.Add(2*time.Millisecond))
}

func inspectSurveyMalformed(s *harness) {
	v := s.surveyor()
	two := []time.Time{noon, noon.Add(time.Hour)}
	for name, q := range map[string]storekit.SurveyQuery{
		"one edge":           {Edges: two[:1]},
		"equal edges":        {Edges: []time.Time{noon, noon.Add(time.Millisecond - 1)}},
		"edges that go back": {Edges: []time.Time{noon.Add(time.Hour), noon}},
		"10001 edges":        {Edges: make([]time.Time, storekit.MaxEdges+1)},
		"101 topics":         {Edges: two, Largest: storekit.MaxLargest + 1},
		"a negative number":  {Edges: two, Largest: -1},
		"a bad topic":        {Edges: two, Without: []string{"a b"}},
	} {
		_, err := v.Survey(s.ctx, q)
		s.wantErr(err, punctual.ErrInvalid, "a survey with %s", name)
	}
}
