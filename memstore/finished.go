package memstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/heap"
	"github.com/punctualmq/punctual/storekit"
)

// story is what is kept of a finished message.
type story struct {
	punctual.Finished
	until int64 // when it is forgotten, in ms
	index int   // in its queue
}

// tell keeps the story of a message that finishes now, in place of an earlier one of the ID.
func (t *topic) tell(m *message, outcome punctual.Outcome, now instant, keep int64) {
	x := &story{until: now.ms + keep, Finished: punctual.Finished{
		ID: m.ID, Topic: m.Topic, Outcome: outcome, At: now.time(),
		Created: m.Created, FirstDue: m.FirstDue, Due: m.Due, Attempt: m.Attempt,
		Failures: m.failures, KeptUntil: storekit.FromMillis(now.ms + keep),
	}}
	if m.token != 0 {
		x.Delivered = storekit.FromMillis(m.delivered)
	}
	t.forgetStory(t.stories[x.ID])
	t.stories[x.ID] = x
	byEnd.Push(&t.ending, x)
}

func (t *topic) forgetStory(x *story) {
	if x != nil {
		delete(t.stories, x.ID)
		byEnd.Remove(&t.ending, x)
	}
}

// byEnd is the order of stories by the time at which they are forgotten.
var byEnd = heap.Order[*story]{
	Before: func(a, b *story) bool { return a.until < b.until },
	Place:  func(x *story) *int { return &x.index },
}

// Finished implements punctual.FinishedKeeper.
func (s *Store) Finished(ctx context.Context, topic, id string) (punctual.Finished, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, _, err := s.enterTopic(ctx, topic)
	if err = cmp.Or(err, storekit.CheckID(id)); err != nil {
		return punctual.Finished{}, err
	}
	if t == nil || t.stories[id] == nil {
		return punctual.Finished{}, storekit.NoStoryError(topic, id)
	}
	f := t.stories[id].Finished
	f.Failures = slices.Clone(f.Failures)
	return f, nil
}
