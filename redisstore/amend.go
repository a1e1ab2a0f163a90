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
	x := amending{s: s, as: as, results: make([]punctual.Outcome, len(as))}
	j := journey{s: s, stops: make([]stop, len(as)), homes: x.homes, ask: x.ask}
	for i := range as {
		x.results[i].Err = checkAmendment(&as[i])
		j.stops[i] = stop{topic: as[i].Topic, done: x.results[i].Err != nil}
	}
	x.stops = j.stops
	if err := j.run(ctx); err != nil {
		return nil, fmt.Errorf("amend: %w", err)
	}
	return x.results, nil
}

// amending is an Amend on its way.
type amending struct {
	s       *Store
	as      []punctual.Amendment
	results []punctual.Outcome
	stops   []stop
}

// homes are those that a message may be in: the newest first, so that one that leaves an older
// home and comes to a newer one meanwhile was in none of them at some instant.
func (x *amending) homes(l *layout, i int) []int { return l.homes(x.as[i].ID) }

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

// ask amends some messages in a partition. Those that it does not have are for the next one.
func (x *amending) ask(ctx context.Context, _ *layout, c *chunk) (int64, error) {
	args := make([]any, 1, 1+2*len(c.items))
	args[0] = x.s.sender
	for _, i := range c.items {
		args = append(args, x.as[i].ID, amendHead(&x.as[i]))
	}
	a, err := x.s.runPartition(ctx, amendScript, c.p, args...)
	if err != nil {
		return 0, err
	}
	x.s.waits.hint(c.p, a.int())
	for _, i := range c.items {
		x.results[i] = amended(&x.as[i], punctual.OutcomeStatus(a.int()), a.int())
		x.stops[i].done = x.results[i].Status != punctual.NotFound
	}
	if a.bad {
		return 0, badReply(amendScript)
	}
	return a.version, nil
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
