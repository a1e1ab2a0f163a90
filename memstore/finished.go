package memstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/heap"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// kept is what is kept of a finished message: its ID alone, or its finished record.
type kept struct {
	punctual.Finished
	until int64 // when the entry is removed, in Unix ms; an entry for an ID alone sets only ID and At of Finished
	index int   // its place in keptUntil.queue
}

// keptUntil keeps at most one entry for each ID, each entry until a time of its own.
type keptUntil struct {
	byID  map[string]*kept
	queue []*kept // the same entries, in the order byEnd
}

// put adds x, in place of an earlier entry with its ID.
func (k *keptUntil) put(x *kept) {
	k.forget(x.ID)
	k.byID[x.ID] = x
	byEnd.Push(&k.queue, x)
}

// forget removes the entry of an ID, if there is one.
func (k *keptUntil) forget(id string) {
	if x := k.byID[id]; x != nil {
		delete(k.byID, id)
		byEnd.Remove(&k.queue, x)
	}
}

// sweep removes the entries that were to be kept until now or an earlier time. now is in Unix
// milliseconds.
func (k *keptUntil) sweep(now int64) {
	for len(k.queue) > 0 && k.queue[0].until <= now {
		k.forget(k.queue[0].ID)
	}
}

// step carries the entries over a step of the clock.
func (k *keptUntil) step(s lifecycle.Step) {
	for _, x := range k.queue {
		x.KeptUntil = storekit.FromMillis(x.until) // of an ID alone, too
		s.CarryFinished(&x.Finished)
		x.until = storekit.Millis(x.KeptUntil)
	}
	byEnd.Sort(k.queue)
}

// byEnd orders entries by the time at which they are removed.
var byEnd = heap.Order[*kept]{
	Before: func(a, b *kept) bool { return a.until < b.until },
	Place:  func(x *kept) *int { return &x.index },
}

// keep adds the ID and the finished record of a message that finishes now, as far as the message or
// its topic asks for them.
func (t *topic) keep(m *message, outcome punctual.Outcome, now instant) {
	until := m.Keep(&t.settings, now.ms)
	if until.ID > 0 {
		t.remembered.put(&kept{Finished: punctual.Finished{ID: m.id, At: now.time()}, until: until.ID})
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
	t.records.put(&kept{Finished: f, until: until.Record})
}

// Finished implements punctual.FinishedKeeper.
func (s *Store) Finished(ctx context.Context, topic, id string) (punctual.Finished, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, _, err := s.enterTopic(ctx, topic)
	if err = cmp.Or(err, storekit.CheckID(id)); err != nil {
		return punctual.Finished{}, err
	}
	if t == nil || t.records.byID[id] == nil {
		return punctual.Finished{}, storekit.NoFinishedRecordError(topic, id)
	}
	f := t.records.byID[id].Finished
	f.Failures = slices.Clone(f.Failures)
	return f, nil
}

// ListFinished implements punctual.FinishedKeeper. For each page it reads all records of the topic,
// and sorts those that q selects from its cursor on.
func (s *Store) ListFinished(ctx context.Context, q punctual.FinishedQuery) (punctual.FinishedPage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enter(ctx)
	if err != nil {
		return punctual.FinishedPage{}, err
	}
	if q, err = storekit.CheckFinished(q); err != nil {
		return punctual.FinishedPage{}, err
	}
	after, err := storekit.ParseFinishedPlace(q.After)
	if err != nil {
		return punctual.FinishedPage{}, err
	}
	records := []punctual.Finished{}
	t := s.existing(q.Topic, now)
	if t == nil {
		return punctual.FinishedPage{Records: records}, nil
	}
	order := storekit.FinishedOrder(&q)
	for _, x := range t.records.queue {
		if storekit.SelectsFinished(&q, &x.Finished) && (q.After == "" || order(storekit.PlaceOfFinished(&x.Finished), after) > 0) {
			records = append(records, x.Finished)
		}
	}
	page := storekit.FirstFinished(&q, records)
	for i := range page.Records {
		page.Records[i].Failures = slices.Clone(page.Records[i].Failures)
	}
	return page, nil
}
