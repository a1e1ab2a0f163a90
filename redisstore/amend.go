package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/record"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// Amend cancels, reschedules, requeues or deletes messages by ID; see punctual.Store.
func (s *Store) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	return call(ctx, s, "amend", "", storekit.Plain(storekit.CheckBatch(len(as))), func() ([]punctual.Amended, error) { return s.amend(ctx, as) })
}

func (s *Store) amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	key, err := s.keyOf(ctx, func() storekit.Sum { return storekit.SumOfAmend(as) })
	if err != nil {
		return nil, err
	}
	x := amending{s: s, as: as, key: key, results: make([]punctual.Amended, len(as))}
	j := routing{
		s: s, items: make([]item, len(as)), id: func(i int) string { return as[i].ID }, pack: x.pack, ask: x.ask,
		refuse: func(i int, err error) { x.results[i] = punctual.Amended{Err: storekit.AmendError(&as[i], err)} },
	}
	for i := range as {
		x.results[i].Err = checkAmendment(&as[i])
		j.items[i] = item{topic: as[i].Topic, bytes: script.StateBytes, done: x.results[i].Err != nil}
	}
	x.items = j.items
	return x.results, j.run(ctx)
}

// amending is an Amend on its way.
type amending struct {
	s       *Store
	as      []punctual.Amendment
	key     *keyed
	results []punctual.Amended
	items   []item
}

func checkAmendment(a *punctual.Amendment) error {
	if err := storekit.CheckAmendment(a); err != nil {
		return err
	}
	if !storekit.Moves(a.Change) || a.Due.IsZero() {
		return nil
	}
	_, err := storekit.DueAt(time.Time{}, a.Due, 0)
	return err
}

// pack makes the arguments of amend.lua.
func (x *amending) pack(c *chunk) []any {
	args := make([]any, 0, 2*len(c.Items))
	for _, i := range c.Items {
		args = append(args, x.as[i].ID, amendHead(&x.as[i]))
	}
	return args
}

// ask amends some messages in a partition. A message that the partition does not have may be in
// another one if the settings have another version; then the message goes into the next round.
func (x *amending) ask(ctx context.Context, c *chunk, args []any) (int64, func() error, error) {
	a, err := x.s.route.Run(ctx, script.Amend, c.Partition, x.key.part(c.Items), args...)
	if err != nil {
		return 0, nil, err
	}
	x.s.waits.notify(c.Partition, a.Int())
	return a.Version, func() error {
		for _, i := range c.Items {
			status := a.Int()
			x.results[i] = amended(&x.as[i], status, a.Int())
			x.items[i].done = status != amendNotFound
		}
		if a.Bad {
			return script.BadReply(script.Amend)
		}
		return nil
	}, nil
}

func amendHead(a *punctual.Amendment) []byte {
	b := append(make([]byte, 0, 18), byte(a.Change))
	switch {
	case !storekit.Moves(a.Change):
		b = append(record.AppendDouble(b, 0), 0)
	case a.Due.IsZero():
		b = append(record.AppendDouble(b, float64(storekit.CeilDuration(a.Delay))), 0)
	default:
		b = append(record.AppendDouble(b, float64(storekit.CeilMillis(a.Due))), 1)
	}
	if !a.IfDue.IsZero() {
		b = record.AppendDouble(b, float64(storekit.CeilMillis(a.IfDue)))
	}
	return b
}

// The statuses with which amend.lua answers, one for each amendment.
const (
	amendTooFar = iota
	amendCancelled
	amendRescheduled
	amendRequeued
	amendLeased
	amendNotFound
	amendNotDead
	amendDeleted
	amendDead
	amendChanged
)

func amended(a *punctual.Amendment, status, due int64) punctual.Amended {
	switch status {
	case amendTooFar:
		return punctual.Amended{Err: tooFar(fmt.Sprintf("%s of %s in %s after %v", a.Change, a.ID, a.Topic, a.Delay))}
	case amendCancelled, amendDeleted:
		return punctual.Amended{}
	case amendRescheduled, amendRequeued:
		return punctual.Amended{Due: storekit.FromMillis(due)}
	case amendLeased:
		return punctual.Amended{Err: storekit.AmendError(a, punctual.ErrLeased)}
	case amendDead:
		return punctual.Amended{Err: storekit.AmendDeadError(a)}
	case amendChanged:
		return punctual.Amended{Err: storekit.ChangedError(a.Topic, a.ID, storekit.FromMillis(due))}
	case amendNotDead:
		return punctual.Amended{Err: storekit.AmendError(a, punctual.ErrNotDead)}
	}
	return punctual.Amended{Err: storekit.AmendError(a, punctual.ErrNotFound)}
}
