package memstore

import (
	"context"
	"fmt"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Check implements punctual.Checker: it verifies the invariants that the comments of this
// package state. A problem is a bug of the store.
func (s *Store) Check(ctx context.Context, progress func(read int64)) (punctual.CheckReport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enter(ctx)
	if err != nil {
		return punctual.CheckReport{}, err
	}
	c := checker{maxToken: s.token}
	for name := range s.topics {
		c.topic(name, s.existing(name, now))
		if progress != nil {
			progress(c.report.Live + c.report.Dead)
		}
	}
	return c.report, nil
}

// maxProblems is how many problems a CheckReport holds at most.
const maxProblems = 100

// checker collects a report.
type checker struct {
	report   punctual.CheckReport
	maxToken int64
}

// hold notes a problem unless the invariant is kept.
func (c *checker) hold(kept bool, format string, args ...any) {
	if !kept && len(c.report.Problems) < maxProblems {
		c.report.Problems = append(c.report.Problems, fmt.Sprintf(format, args...))
	}
}

func (c *checker) topic(name string, t *topic) {
	c.report.Topics++
	c.report.Live += int64(len(t.live))
	c.report.Dead += int64(len(t.dead))
	c.hold(len(t.messages) == len(t.live)+len(t.dead), "topic %s: %d messages by ID, %d live and %d dead by time", name, len(t.messages), len(t.live), len(t.dead))
	c.hold(len(t.finished) == len(t.memory), "topic %s: %d finished IDs, %d by time", name, len(t.finished), len(t.memory))
	c.queue(name+" live", t.live, t.messages)
	c.queue(name+" dead", t.dead, t.messages)
	c.queue(name+" finished", t.memory, t.finished)
	for _, m := range t.live {
		c.live(name, m)
	}
	for _, m := range t.dead {
		c.hold(m.reason != "", "topic %s: dead %s has no reason", name, m.ID)
		c.hold(m.token == 0 && !m.cancelRequested, "topic %s: dead %s has a lease", name, m.ID)
	}
	c.hold(len(t.stories) == len(t.ending), "topic %s: %d stories by ID, %d by time", name, len(t.stories), len(t.ending))
	for i, x := range t.ending {
		c.hold(x.index == i && t.stories[x.ID] == x, "topic %s: the story of %s is not where it is by ID and by time", name, x.ID)
		c.hold(!byEnd.Before(x, t.ending[max(0, i-1)/2]), "topic %s: the story of %s ends before the one above it", name, x.ID)
	}
	for id := range t.finished {
		c.hold(t.messages[id] == nil, "topic %s: %s is stored and finished", name, id)
	}
}

func (c *checker) queue(name string, q []*message, byID map[string]*message) {
	for i, m := range q {
		c.hold(m.index == i, "topic %s: %s has index %d at %d", name, m.ID, m.index, i)
		c.hold(!byTime.Before(m, q[max(0, i-1)/2]), "topic %s: %s is earlier than the message above it", name, m.ID)
		c.hold(byID[m.ID] == m, "topic %s: %s is not found by its ID", name, m.ID)
	}
}

func (c *checker) live(name string, m *message) {
	c.hold(m.Topic == name, "topic %s: %s says it is of topic %s", name, m.ID, m.Topic)
	c.hold(m.reason == "", "topic %s: live %s has reason %s", name, m.ID, m.reason)
	c.hold(m.token <= c.maxToken, "topic %s: %s has token %d, the newest is %d", name, m.ID, m.token, c.maxToken)
	c.hold(m.Attempt >= 0, "topic %s: %s has %d attempts", name, m.ID, m.Attempt)
	if m.token == 0 {
		c.hold(m.at == storekit.Millis(m.Due), "topic %s: %s is due %v and waits until %v", name, m.ID, m.Due, storekit.FromMillis(m.at))
		c.hold(!m.cancelRequested, "topic %s: %s has no lease and is to be cancelled after it", name, m.ID)
	}
}
