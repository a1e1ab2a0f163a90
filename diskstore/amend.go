package diskstore

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// Amend cancels, reschedules or requeues messages by ID; see punctual.Store.
func (s *Store) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Outcome, error) {
	if err := punctual.CheckBatch(len(as)); err != nil {
		return nil, err
	}
	if err := s.enter(); err != nil {
		return nil, fmt.Errorf("amend: %w", err)
	}
	defer s.calls.Done()
	outcomes := make([]punctual.Outcome, 0, len(as))
	for len(as) > 0 {
		n := untilRepeat(as)
		out, err := s.amendDistinct(ctx, as[:n])
		if err != nil && len(outcomes) > 0 {
			err = halfDone(err)
		}
		if err != nil {
			return nil, err
		}
		outcomes, as = append(outcomes, out...), as[n:]
	}
	return outcomes, nil
}

// untilRepeat returns how many amendments there are until one names a message again. A
// transaction does not see its own writes, so that one starts the next transaction.
func untilRepeat(as []punctual.Amendment) int {
	type name struct{ topic, id string }
	seen := make(map[name]bool, len(as))
	for i, a := range as {
		if n := (name{a.Topic, a.ID}); seen[n] {
			return i
		} else {
			seen[n] = true
		}
	}
	return len(as)
}

func (s *Store) amendDistinct(ctx context.Context, as []punctual.Amendment) ([]punctual.Outcome, error) {
	tx, err := s.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("amend: %w", err)
	}
	out := make([]punctual.Outcome, len(as))
	for i := range as {
		if out[i], err = tx.amend(&as[i]); err != nil {
			s.abandonTxn(tx)
			return nil, fmt.Errorf("amend: %w", err)
		}
	}
	if err := s.commit(ctx, tx); err != nil {
		return nil, fmt.Errorf("amend: %w", err)
	}
	return out, nil
}

// amend adds one amendment to the transaction. The error is one of reading the database.
func (tx *txn) amend(a *punctual.Amendment) (punctual.Outcome, error) {
	if err := a.Check(); err != nil {
		return punctual.Outcome{Err: err}, nil
	}
	t := tx.s.topicNamed(a.Topic)
	if t == nil {
		return punctual.Outcome{Status: punctual.NotFound}, nil
	}
	f, err := tx.find(t, a.ID)
	if err != nil {
		return punctual.Outcome{}, err
	}
	switch {
	case !f.exists():
		return punctual.Outcome{Status: punctual.NotFound}, nil
	case a.Change == punctual.ChangeRequeue:
		return tx.requeue(t, f, a)
	case f.state == punctual.StateDead:
		return punctual.Outcome{Status: punctual.NotFound}, nil
	case a.Change == punctual.ChangeCancel:
		return tx.cancel(t, f, a)
	}
	return tx.reschedule(t, f, a)
}

// cancel removes a message, or marks it when it is leased (P5).
func (tx *txn) cancel(t *topic, f found, a *punctual.Amendment) (punctual.Outcome, error) {
	switch _, seized, acked := tx.seize(f); {
	case acked:
		return punctual.Outcome{Status: punctual.NotFound}, nil
	case !seized:
		return punctual.Outcome{Status: punctual.TooLate}, tx.markCancelled(t, f)
	}
	tx.finishMessage(t, f.place.pos, a.ID)
	return punctual.Outcome{Status: punctual.Cancelled}, nil
}

// seize takes a message out of memory unless somebody holds a lease on it at this very
// moment, or it was acked since it was found; from then on no claim can return it. e is its
// entry, nil if it was not in memory.
func (tx *txn) seize(f found) (e *entry, seized, acked bool) {
	s := tx.s
	s.mu.Lock()
	defer s.mu.Unlock()
	seq := f.place.pos.seq
	e = s.live[seq]
	if e != nil && e.state == leased && s.clock.ms() < e.next {
		return nil, false, false
	}
	if _, acked = s.acked[seq]; acked {
		return nil, false, true
	}
	delete(s.unsynced, seq)
	if e != nil {
		s.unlink(e)
	}
	return e, true, false
}

// markCancelled sees to it that a leased message gets no further attempt.
func (tx *txn) markCancelled(t *topic, f found) error {
	r, err := tx.s.getRecord(keyLive, t, f.place.pos)
	if err != nil {
		return err
	}
	r.cancel = true
	tx.set(posKey(keyLive, t.num, f.place.pos), r.encode())
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	if e := tx.s.live[f.place.pos.seq]; e != nil {
		e.cancel = true
	}
	return nil
}

// reschedule moves a message that is not leased, with all that its leases added.
func (tx *txn) reschedule(t *topic, f found, a *punctual.Amendment) (punctual.Outcome, error) {
	due, err := tx.when(a)
	if err != nil {
		return punctual.Outcome{Err: err}, nil
	}
	r, err := tx.s.getRecord(keyLive, t, f.place.pos)
	if err != nil {
		return punctual.Outcome{}, err
	}
	e, seized, acked := tx.seize(f)
	switch {
	case acked:
		return punctual.Outcome{Status: punctual.NotFound}, nil
	case !seized:
		return punctual.Outcome{Status: punctual.TooLate}, nil
	}
	if r.cancel {
		// It was to get no attempt after its last lease, which ran out.
		tx.finishMessage(t, f.place.pos, a.ID)
		return punctual.Outcome{Status: punctual.NotFound}, nil
	}
	if e != nil {
		e.addTo(r)
	}
	return tx.moveTo(t, f, r, due), nil
}

func (tx *txn) moveTo(t *topic, f found, r *record, due time.Time) punctual.Outcome {
	r.moveTo(punctual.Millis(due))
	tx.takeLive(t, f.place.pos, "")
	tx.putLive(t, f.place.pos.seq, r)
	return punctual.Outcome{Status: punctual.Rescheduled, Due: due}
}

// requeue moves a dead message back to the living, its attempts starting anew.
func (tx *txn) requeue(t *topic, f found, a *punctual.Amendment) (punctual.Outcome, error) {
	if f.state != punctual.StateDead {
		return punctual.Outcome{Status: punctual.NotDead}, nil
	}
	due, err := tx.when(a)
	if err != nil {
		return punctual.Outcome{Err: err}, nil
	}
	r, err := tx.s.getRecord(keyDead, t, f.place.pos)
	if err != nil {
		return punctual.Outcome{}, err
	}
	r.dead, r.died, r.reason, r.cancel, r.attempts = false, 0, "", false, 0
	r.moveTo(punctual.Millis(due))
	tx.delete(posKey(keyDead, t.num, f.place.pos))
	tx.count(t, 1, -1)
	tx.putLive(t, f.place.pos.seq, r)
	return punctual.Outcome{Status: punctual.Requeued, Due: due}, nil
}

// when is the due time that an amendment asks for.
func (tx *txn) when(a *punctual.Amendment) (time.Time, error) {
	return punctual.DueAt(tx.now, a.Due, a.Delay)
}

func (s *Store) topicNamed(name string) *topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.topics[name]
}
