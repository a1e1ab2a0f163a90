package memstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/heap"
	"github.com/punctualmq/punctual/storekit"
)

// kept is what is kept of a finished message: its ID alone, or its finished record.
type kept struct {
	punctual.Finished
	until int64 // when it is forgotten, in ms
	index int   // in its queue
}

// keptUntil keeps one thing for each ID, each until a time of its own.
type keptUntil struct {
	byID  map[string]*kept
	queue []*kept // the same, by byEnd
}

// put keeps x, in place of an earlier one with its ID.
func (k *keptUntil) put(x *kept) {
	k.forget(x.ID)
	k.byID[x.ID] = x
	byEnd.Push(&k.queue, x)
}

// forget drops what is kept of an ID, if anything is.
func (k *keptUntil) forget(id string) {
	if x := k.byID[id]; x != nil {
		delete(k.byID, id)
		byEnd.Remove(&k.queue, x)
	}
}

// sweep drops what is kept until now.
func (k *keptUntil) sweep(now int64) {
	for len(k.queue) > 0 && k.queue[0].until <= now {
		k.forget(k.queue[0].ID)
	}
}

// byEnd is the order of what is kept by the time at which it is forgotten.
var byEnd = heap.Order[*kept]{
	Before: func(a, b *kept) bool { return a.until < b.until },
	Place:  func(x *kept) *int { return &x.index },
}

// keep keeps of a message that finishes now what its topic asks for.
func (t *topic) keep(m *message, outcome punctual.Outcome, now instant) {
	until := m.Keep(&t.settings, now.ms)
	if until.ID > 0 {
		t.remembered.put(&kept{Finished: punctual.Finished{ID: m.id}, until: until.ID})
	}
	if until.Record == 0 {
		return
	}
	f := punctual.Finished{
		ID: m.id, Topic: m.topic, Outcome: outcome, At: now.time(), Created: storekit.FromMillis(m.created),
		FirstDue: storekit.FromMillis(m.FirstDue), Due: storekit.FromMillis(m.Due), Attempt: m.Attempts,
		Failures: m.failures, KeptUntil: storekit.FromMillis(until.Record),
	}
	if m.Token != 0 {
		f.Delivered = storekit.FromMillis(m.delivered)
	}
	t.stories.put(&kept{Finished: f, until: until.Record})
}

// Finished implements punctual.FinishedKeeper.
func (s *Store) Finished(ctx context.Context, topic, id string) (punctual.Finished, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, _, err := s.enterTopic(ctx, topic)
	if err = cmp.Or(err, storekit.CheckID(id)); err != nil {
		return punctual.Finished{}, err
	}
	if t == nil || t.stories.byID[id] == nil {
		return punctual.Finished{}, storekit.NoStoryError(topic, id)
	}
	f := t.stories.byID[id].Finished
	f.Failures = slices.Clone(f.Failures)
	return f, nil
}
