package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// Amend cancels, reschedules or requeues messages by ID; see punctual.Store.
func (s *Store) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Outcome, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	if err := punctual.CheckBatch(len(as)); err != nil {
		return nil, err
	}
	results := make([]punctual.Outcome, len(as))
	groups := newGroups(func(i int) partition { return s.names.partitionOf(as[i].Topic, as[i].ID) })
	for i := range as {
		if results[i].Err = checkAmendment(&as[i]); results[i].Err == nil {
			groups.add(i, 0)
		}
	}
	err := groups.run(func(p partition, items []int) error { return s.amendIn(ctx, p, as, results, items) })
	if err != nil {
		return nil, fmt.Errorf("amend: %w", err)
	}
	return results, nil
}

func checkAmendment(a *punctual.Amendment) error {
	if err := a.Check(); err != nil {
		return err
	}
	if a.Change == punctual.ChangeCancel || a.Due.IsZero() {
		return nil
	}
	_, err := punctual.DueAt(time.Time{}, a.Due, 0)
	return err
}

func (s *Store) amendIn(ctx context.Context, p partition, as []punctual.Amendment, results []punctual.Outcome, items []int) error {
	args := make([]any, 1, 1+2*len(items))
	args[0] = s.sender
	for _, i := range items {
		args = append(args, as[i].ID, amendHead(&as[i]))
	}
	a, err := s.runPartition(ctx, amendScript, p, args...)
	if err != nil {
		return err
	}
	s.waits.hint(p.topic, a.int())
	for _, i := range items {
		results[i] = amended(&as[i], punctual.OutcomeStatus(a.int()), a.int())
	}
	if a.bad {
		return badReply(amendScript)
	}
	return nil
}

func amendHead(a *punctual.Amendment) []byte {
	b := append(make([]byte, 0, 10), byte(a.Change))
	switch {
	case a.Change == punctual.ChangeCancel:
		return append(appendDouble(b, 0), 0)
	case a.Due.IsZero():
		return append(appendDouble(b, float64(punctual.CeilDuration(a.Delay))), 0)
	}
	return append(appendDouble(b, float64(punctual.CeilMillis(a.Due))), 1)
}

func amended(a *punctual.Amendment, status punctual.OutcomeStatus, due int64) punctual.Outcome {
	switch status {
	case punctual.OutcomeNone:
		return punctual.Outcome{Err: tooFar(fmt.Sprintf("%s of %s in %s after %v", a.Change, a.ID, a.Topic, a.Delay))}
	case punctual.Rescheduled, punctual.Requeued:
		return punctual.Outcome{Status: status, Due: punctual.FromMillis(due)}
	}
	return punctual.Outcome{Status: status}
}
