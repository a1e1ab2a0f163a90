package pgstore

import (
	"context"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Survey counts all topics and what is due between times in one reading; see storekit.Surveyor. It
// reads all messages.
func (s *Store) Survey(ctx context.Context, q storekit.SurveyQuery) (storekit.Survey, error) {
	return call(ctx, s, "survey", "", storekit.CheckSurvey(q), func() (storekit.Survey, error) {
		out, err := s.inspector.survey(ctx, q)
		if err == nil {
			err = s.db.settled(ctx)
		}
		return out, err
	})
}

func (i *inspector) survey(ctx context.Context, q storekit.SurveyQuery) (out storekit.Survey, err error) {
	edges := make([]int64, len(q.Edges))
	for i, e := range q.Edges {
		edges[i] = storekit.CeilMillis(e)
	}
	without := append([]string{}, q.Without...)
	var micros int64
	err = i.db.readAll(ctx, func() *step {
		steps := len(edges) - 1
		out = storekit.Survey{Topics: []punctual.TopicStats{}, All: storekit.DueCounts{Counts: make([]int64, steps)}}
		x := i.db.step().add("now", i.db.reading(), i.db.micros(&micros)) // also of a store without topics
		return x.add("survey", i.db.reading(edges, q.Largest, without), func(rows scanner) error {
			var r surveyRow
			if err := r.scan(rows, &micros); err != nil {
				return err
			}
			if r.step != nil {
				r.addTo(&out, steps)
				return nil
			}
			t, err := r.stats(&i.db.settings)
			out.Topics = append(out.Topics, t)
			return err
		})
	})
	if err != nil {
		return out, err
	}
	i.db.clock.hear(micros)
	out.At = storekit.FromMillis(micros / 1000)
	return out, nil
}

// surveyRow is a row of survey.sql, about a topic, or about a step of one topic or of all topics
// together.
type surveyRow struct {
	topic                          *string
	settings                       []byte
	scheduled, ready, leased, dead *int64
	next, waiting                  *int64
	step                           *int32 // nil in a row about a topic
	n, size                        *int64
}

func (r *surveyRow) scan(rows scanner, micros *int64) error {
	return rows.Scan(micros, &r.topic, &r.settings, &r.scheduled, &r.ready, &r.leased, &r.dead, &r.next, &r.waiting, &r.step, &r.n, &r.size)
}

// stats returns the statistics in a row about a topic.
func (r *surveyRow) stats(settings *storekit.SettingsReader) (t punctual.TopicStats, err error) {
	t = punctual.TopicStats{Topic: *r.topic, Scheduled: *r.scheduled, Ready: *r.ready, Leased: *r.leased, Dead: *r.dead, Waiting: *r.waiting}
	if r.next != nil {
		t.NextDue = storekit.FromMillis(*r.next)
	}
	t.Settings, err = settings.Decode(r.settings)
	return t, err
}

// addTo adds a row about a step to the survey. The rows about the steps of one topic come one
// behind the other.
func (r *surveyRow) addTo(out *storekit.Survey, steps int) {
	c := &out.All
	if r.topic != nil {
		if last := len(out.Largest) - 1; last < 0 || out.Largest[last].Topic != *r.topic {
			out.Largest = append(out.Largest, storekit.DueCounts{Topic: *r.topic, Counts: make([]int64, steps)})
		}
		c = &out.Largest[len(out.Largest)-1]
	}
	switch at := int(*r.step); {
	case at < 0:
		c.Overdue += *r.n
	case at > steps:
		c.Beyond += *r.n
	case at > 0:
		c.Counts[at-1] += *r.n
	}
}

// NextDue returns for every topic the due time of the ready message that is claimed next, and
// counts its ready messages up to storekit.MaxReadyCount; see storekit.Surveyor.
func (s *Store) NextDue(ctx context.Context) (storekit.NextDueTimes, error) {
	return call(ctx, s, "next due times of the topics", "", nil, func() (storekit.NextDueTimes, error) { return s.inspector.topicsNextDue(ctx) })
}

func (i *inspector) topicsNextDue(ctx context.Context) (out storekit.NextDueTimes, err error) {
	var micros int64
	err = i.db.read(ctx, func() *step {
		out.Topics = []storekit.TopicNextDue{}
		return i.db.step().add("topic_heads", i.db.reading(storekit.MaxReadyCount), func(rows scanner) error {
			var name *string
			var settings []byte
			var due *int64
			var h storekit.TopicNextDue
			if err := rows.Scan(&micros, &name, &settings, &h.Ready, &due); err != nil || name == nil {
				return err
			}
			h.Topic = *name
			if due != nil {
				h.Due = storekit.FromMillis(*due)
			}
			var err error
			h.Settings, err = i.db.settings.Decode(settings)
			out.Topics = append(out.Topics, h)
			return err
		})
	})
	if err == nil {
		err = i.db.settled(ctx)
	}
	if err != nil {
		return out, err
	}
	i.db.clock.hear(micros)
	out.At = storekit.FromMillis(micros / 1000)
	return out, nil
}
