package pgstore

import (
	"context"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Amend cancels, reschedules, requeues or deletes by ID; see punctual.Store.
func (s *Store) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	return call(ctx, s, "amend", "", storekit.CheckBatch(len(as)), func() ([]punctual.Amended, error) {
		c := s.amendingOf(as)
		refuse := func(i int, err error) { c.out[i] = punctual.Amended{Err: err} }
		return c.out, inParts(c.parts(), func(part []int) error {
			ctx, end := within(ctx)
			defer end()
			return besideHeld(part, len(as) > 1, func(patience time.Duration, group []int) (left []int, err error) {
				return group, c.amendOwn(ctx, patience, group)
			}, refuse)
		}, refuse)
	})
}

// amendOwn amends messages in a transaction of the store's own, which waits so long at most for one that somebody holds.
func (c *amending) amendOwn(ctx context.Context, patience time.Duration, part []int) error {
	var l *locked
	err := c.s.transact(ctx, func(ctx context.Context, tx *transaction) (x *step, err error) {
		brief := c.s.step().add("patience", []any{lockTimeoutOf(patience)}, nil)
		if l, err = c.s.lockNames(ctx, tx, brief, part, c.name); err != nil {
			return nil, err
		}
		return c.amend(l, part), nil
	})
	if err == nil {
		c.s.waits.moved(l)
	}
	return err
}

// amending is a call of Amend.
type amending struct {
	s   *Store
	as  []punctual.Amendment
	out []punctual.Amended

	within bool // a transaction of the caller's, whose commit answers
}

// amendingOf checks amendments.
func (s *Store) amendingOf(as []punctual.Amendment) *amending {
	c := &amending{s: s, as: as, out: make([]punctual.Amended, len(as))}
	for i := range as {
		c.out[i].Err = storekit.CheckAmendment(&as[i])
	}
	return c
}

// parts are those of the amendments that are in order.
func (c *amending) parts() [][]int {
	var fit []int
	for i := range c.out {
		if c.out[i].Err == nil {
			fit = append(fit, i)
		}
	}
	return parts(fit, c.name, func(int) int { return 0 })
}

func (c *amending) name(i int) name { return name{c.as[i].Topic, c.as[i].ID} }

// amend decides about the locked messages of a part, and returns the step that changes them.
func (c *amending) amend(l *locked, part []int) *step {
	write := c.s.changes()
	for _, i := range part {
		c.out[i] = c.decide(i, l, write)
		write.refused = write.refused || c.out[i].Err != nil && !c.within
	}
	return write.step()
}

// decide says what becomes of a message that somebody names.
func (c *amending) decide(i int, l *locked, write *changes) (out punctual.Amended) {
	a := &c.as[i]
	due, err := l.dueAt(a.Due, a.Delay)
	if err != nil && storekit.Moves(a.Change) {
		return punctual.Amended{Err: err}
	}
	set, r := l.settings[a.Topic], l.rows[c.name(i)]
	state := punctual.StateNone
	if r != nil {
		state = r.state(l.now, set)
	}
	switch {
	case state == punctual.StateNone:
		err = punctual.ErrNotFound
	case a.Change == punctual.ChangeDelete:
		write.remove(r)
	case a.Change == punctual.ChangeRequeue:
		err = requeue(r, state, due, write)
	case state == punctual.StateDead:
		return punctual.Amended{Err: storekit.AmendDeadError(a)}
	case a.Change == punctual.ChangeCancel:
		err = cancel(r, state, l, set, write)
	default:
		err = reschedule(r, state, due, l, set, write)
	}
	if err != nil {
		return punctual.Amended{Err: storekit.AmendError(a, err)}
	}
	if storekit.Moves(a.Change) {
		out.Due = storekit.FromMillis(due)
	}
	return out
}

func cancel(r *row, state punctual.State, l *locked, set *punctual.Settings, write *changes) error {
	if state != punctual.StateLeased {
		write.finish(r, punctual.OutcomeCancelled, set, l.now)
		return nil
	}
	if !r.cancelled {
		r.cancelled = true
		write.update(r, nil)
	}
	return punctual.ErrLeased
}

// reschedule moves a message that nobody works on. One that was cancelled under a lease that has run out must not come back
// by this (P5): it ends here instead.
func reschedule(r *row, state punctual.State, due int64, l *locked, set *punctual.Settings, write *changes) error {
	if state == punctual.StateLeased {
		return punctual.ErrLeased
	}
	if r.cancelled {
		write.finish(r, punctual.OutcomeCancelled, set, l.now)
		return punctual.ErrNotFound
	}
	r.moveTo(due)
	r.wait()
	write.update(r, nil)
	return nil
}

func requeue(r *row, state punctual.State, due int64, write *changes) error {
	if state != punctual.StateDead {
		return punctual.ErrNotDead
	}
	r.moveTo(due)
	r.attempts = 0
	r.wait()
	write.update(r, nil)
	return nil
}
