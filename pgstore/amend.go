package pgstore

import (
	"context"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Amend cancels, reschedules, requeues or deletes by ID; see punctual.Store.
func (s *Store) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	return call(ctx, s, "amend", "", storekit.CheckBatch(len(as)), func() ([]punctual.Amended, error) {
		c := newAmending(s, as)
		refuse := func(i int, err error) { c.out[i] = punctual.Amended{Err: err} }
		return c.out, inParts(c.parts(), func(part []int) error {
			ctx, end := within(ctx)
			defer end()
			return besideHeld(part, len(as) > 1, func(lockWait time.Duration, group []int) (left []int, err error) {
				return group, c.amendOwn(ctx, lockWait, group)
			}, refuse)
		}, refuse)
	})
}

// amendOwn amends messages in a transaction of the store's own, which waits for the lock of each
// message no longer than lockWait.
func (c *amending) amendOwn(ctx context.Context, lockWait time.Duration, part []int) error {
	var l *locked
	var write *changes
	err := c.s.db.transact(ctx, func(ctx context.Context, tx *transaction) (x *step, err error) {
		first := c.s.db.step().add("lock_wait", []any{lockTimeoutOf(lockWait)}, nil)
		if l, err = c.s.db.lockNames(ctx, tx, first, part, c.name); err != nil {
			return nil, err
		}
		write = c.amend(l, part)
		return write.all(), nil
	})
	if err == nil {
		c.s.waits.moved(l)
		c.s.waits.told(write.events, write.room...)
	}
	return err
}

// amending is a call of Amend, AmendManyTx, CancelTx or RescheduleTx.
type amending struct {
	s   *Store
	as  []punctual.Amendment
	out []punctual.Amended

	within bool // it works in a transaction of the caller's, whose commit makes the answers durable
}

// newAmending checks the amendments, and notes the errors of those that are malformed.
func newAmending(s *Store, as []punctual.Amendment) *amending {
	c := &amending{s: s, as: as, out: make([]punctual.Amended, len(as))}
	for i := range as {
		c.out[i].Err = storekit.CheckAmendment(&as[i])
	}
	return c
}

// parts divides the amendments that passed the checks.
func (c *amending) parts() [][]int {
	var fit []int
	for i := range c.out {
		if c.out[i].Err == nil {
			fit = append(fit, i)
		}
	}
	return parts(fit, c.name, func(int) int { return 0 }, nil)
}

func (c *amending) name(i int) messageName { return messageName{c.as[i].Topic, c.as[i].ID} }

// amend decides about the locked messages of a part, and returns what becomes of them.
func (c *amending) amend(l *locked, part []int) *changes {
	write := c.s.db.changes()
	for _, i := range part {
		c.out[i] = c.decide(i, l, write)
		write.refused = write.refused || c.out[i].Err != nil && !c.within
	}
	return write
}

// decide adds to write what becomes of the message that an amendment names, and returns the answer
// to the amendment.
func (c *amending) decide(i int, l *locked, write *changes) punctual.Amended {
	a := &c.as[i]
	due, err := lifecycle.AmendDue(a, time.UnixMicro(l.micros))
	if err != nil {
		return punctual.Amended{Err: err}
	}
	r, set := l.rows[c.name(i)], l.settings[a.Topic]
	if r == nil {
		return punctual.Amended{Err: storekit.AmendError(a, punctual.ErrNotFound)}
	}
	d, out := lifecycle.Amend(&r.Message, r.state(l.now, set), a, due, l.now)
	write.apply(r, d, set, l.now)
	return out
}
