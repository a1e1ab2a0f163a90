package memstore

import (
	"context"
	"fmt"

	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Check implements storekit.Checker: it verifies the invariants that the comments of this package
// state. A problem that it finds is a bug in the store.
func (s *Store) Check(ctx context.Context, progress func(read int64)) (storekit.CheckReport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enter(ctx)
	if err != nil {
		return storekit.CheckReport{}, err
	}
	c := checker{maxToken: s.token}
	for name := range s.topics {
		c.topic(name, s.existing(name, now))
		c.companion(name, s)
		if progress != nil {
			progress(c.report.Live + c.report.Dead)
		}
	}
	return c.report, nil
}

// maxProblems is the most problems that a storekit.CheckReport has.
const maxProblems = 100

// checker makes the report of a Check. maxToken is the newest token of the store.
type checker struct {
	report   storekit.CheckReport
	maxToken int64
}

// holds adds a problem to the report unless the invariant is true.
func (c *checker) holds(invariant bool, format string, args ...any) {
	if !invariant && len(c.report.Problems) < maxProblems {
		c.report.Problems = append(c.report.Problems, fmt.Sprintf(format, args...))
	}
}

func (c *checker) topic(name string, t *topic) {
	c.report.Topics++
	alive := 0
	for m := range t.alive() {
		alive++
		c.live(name, m)
	}
	c.report.Live += int64(alive)
	c.report.Dead += int64(len(t.dead))
	c.holds(len(t.messages) == alive+len(t.dead), "topic %s: %d messages by ID, %d live and %d dead by time", name, len(t.messages), alive, len(t.dead))
	c.queue(name, &t.live, t)
	c.queue(name, &t.dead, t)
	c.keys(name, t)
	leased := 0
	for _, m := range t.live {
		if m.Token != 0 {
			leased++
		}
	}
	c.holds(t.leased == nil || leased == len(t.leased), "topic %s: %d leases, %d are counted for its bound", name, leased, len(t.leased))
	for _, m := range t.dead {
		c.holds(m.Reason != "", "topic %s: dead %s has no reason", name, m.id)
		c.holds(m.Token == 0 && !m.CancelRequested, "topic %s: dead %s has a lease", name, m.id)
	}
	c.kept(name, "the ID", &t.remembered)
	c.kept(name, "the record", &t.records)
	for id := range t.remembered.byID {
		c.holds(t.messages[id] == nil, "topic %s: %s is stored and finished", name, id)
	}
}

// companion checks what a companion has from the topic that it belongs to.
func (c *checker) companion(name string, s *Store) {
	parent, companion := storekit.Companion(name)
	if companion == "" {
		return
	}
	t, p := s.topics[name], s.topics[parent]
	c.holds(p != nil, "topic %s: there is no topic %s, which it belongs to", name, parent)
	c.holds(p == nil || p.settings.Partitions == t.settings.Partitions, "topic %s: it has %d partitions, but not topic %s", name, t.settings.Partitions, parent)
	c.holds(!t.settings.PushPaused, "topic %s: pushes to a companion are paused", name)
}

func (c *checker) queue(name string, q *[]*message, t *topic) {
	for i, m := range *q {
		c.holds(m.index == i && m.queue == q, "topic %s: %s has index %d at %d, or is in another queue", name, m.id, m.index, i)
		c.holds(!t.order(q).Before(m, (*q)[max(0, i-1)/2]), "topic %s: %s is earlier than the message above it", name, m.id)
		c.holds(t.messages[m.id] == m, "topic %s: %s is not found by its ID", name, m.id)
	}
}

// keys checks what the topic keeps of its keys: the invariants of key.
func (c *checker) keys(name string, t *topic) {
	leases, heads := map[*key]int{}, map[*key]int{}
	for _, m := range t.live {
		k := m.key
		c.holds((k == nil) == (m.attributes.Key == ""), "topic %s: %s with the key %q is not counted for it", name, m.id, m.attributes.Key)
		switch {
		case k == nil:
		case m.Token != 0:
			leases[k]++
		default:
			heads[k]++
			c.holds(k.head == m, "topic %s: %s stands before the key %s, whose head it is not", name, m.id, k.name)
		}
	}
	for _, k := range t.keys {
		c.queue(name, &k.waiting, t)
		c.holds(k.leases == leases[k], "topic %s: key %s has %d leases, and counts %d", name, k.name, leases[k], k.leases)
		mayLead := !lifecycle.KeyFull(&t.settings, k.leases) && heads[k]+len(k.waiting) > 0
		c.holds(mayLead == (heads[k] == 1) && heads[k] <= 1, "topic %s: key %s has %d heads, %d leases and %d that wait", name, k.name, heads[k], k.leases, len(k.waiting))
		if k.head != nil && len(k.waiting) > 0 {
			c.holds(!t.order(&k.waiting).Before(k.waiting[0], k.head), "topic %s: key %s has the head %s, before which %s comes", name, k.name, k.head.id, k.waiting[0].id)
		}
		c.holds(k.idle || !k.empty(), "topic %s: key %s is empty and is never forgotten", name, k.name)
	}
}

func (c *checker) kept(name, what string, k *keptUntil) {
	c.holds(len(k.byID) == len(k.queue), "topic %s: %s of %d finished messages by ID, %d by time", name, what, len(k.byID), len(k.queue))
	for i, x := range k.queue {
		c.holds(x.index == i && k.byID[x.ID] == x, "topic %s: %s of the finished %s is not where it is by ID and by time", name, what, x.ID)
		c.holds(!byEnd.Before(x, k.queue[max(0, i-1)/2]), "topic %s: %s of the finished %s ends before the one above it", name, what, x.ID)
	}
}

func (c *checker) live(name string, m *message) {
	c.holds(m.topic == name, "topic %s: %s says it is of topic %s", name, m.id, m.topic)
	c.holds(m.Reason == "", "topic %s: live %s has reason %s", name, m.id, m.Reason)
	c.holds(m.Token <= c.maxToken, "topic %s: %s has token %d, the newest is %d", name, m.id, m.Token, c.maxToken)
	c.holds(m.Attempts >= 0, "topic %s: %s has %d attempts", name, m.id, m.Attempts)
	if m.Token == 0 {
		c.holds(m.LeaseUntil == 0 && !m.CancelRequested, "topic %s: %s has no lease, but the end or the cancel of one", name, m.id)
	}
}
