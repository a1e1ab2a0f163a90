package pgstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// SettleTx is Store.Settle for one message in a transaction of the caller's: what a handler has
// written there, the end of its message and the message's follow-ups take effect when the
// transaction commits, or none of them does.
//
// When the transaction is rolled back, in whole or to a savepoint, the lease and the token stay, so
// the holder can settle again. An error of the settlement itself leaves the transaction whole:
// ErrLeaseLost, ErrCancelled, the ErrInvalid or ErrTooLarge of a wrong settlement, or why a
// follow-up was refused. Nothing of the settlement is in the transaction then, with one exception:
// a retry, snooze or release that returns ErrCancelled has ended the message as cancelled. The
// caller rolls back, because what it has written may belong to a message that somebody else works
// on now. After any other error the transaction must be rolled back; see Tx.
//
// Until the transaction ends, its message and those with the IDs of its follow-ups are locked.
// Claims pass by them, also when the lease runs out meanwhile. A renewal of the lease, and a cancel
// of the message, wait for up to a second and then get ErrOverloaded. Other messages are not held
// up. So a handler calls SettleTx last, and commits. In a Worker the handler then returns
// punctual.Settled.
//
// Waiting claims see the follow-ups, and that there is room below MaxLeases, within a second of the
// commit, or at the due times of the follow-ups if these are later. At repeatable read and
// serializable a message that was changed since the transaction's snapshot, such as one that was
// claimed since, is a serialization failure.
func (s *Store) SettleTx(ctx context.Context, tx Tx, x punctual.Settlement) error {
	errs, err := s.settleTx(ctx, tx, []punctual.Settlement{x})
	if err != nil {
		return err
	}
	return errs[0]
}

// SettleManyTx is SettleTx for many messages, with an answer for each, in order. A settlement that
// is refused does not stop the others, which take effect if the caller commits all the same.
//
// The error is nil only if every settlement succeeded. Otherwise it wraps a *punctual.BatchError
// that says how many did not, or it is what has failed for the call as a whole; then there are no
// answers.
func (s *Store) SettleManyTx(ctx context.Context, tx Tx, ss []punctual.Settlement) ([]error, error) {
	errs, err := s.settleTx(ctx, tx, ss)
	if err != nil {
		return nil, err
	}
	if err := punctual.NewBatchError("settle", errs); err != nil {
		return errs, fmt.Errorf("settle: %w", err)
	}
	return errs, nil
}

func (s *Store) settleTx(ctx context.Context, tx Tx, ss []punctual.Settlement) ([]error, error) {
	return call(ctx, s, "settle", "", storekit.CheckBatch(len(ss)), func() ([]error, error) {
		c := newSettling(s, ss)
		c.within = true
		return c.out, inCallers(ctx, s, tx, func(w *callersTransaction) error {
			for _, part := range c.parts() {
				if err := c.settleWithin(ctx, w, part); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// settleWithin carries out a part in the caller's transaction. Before it knows that it can write
// everything it makes topics, which may stay, and stores new messages, which it removes again if
// another transaction has taken the ID of one.
func (c *settling) settleWithin(ctx context.Context, w *callersTransaction, part []int) error {
	for range tries {
		_, write, err := c.lockAndDecide(ctx, w, c.holdTopics(part), part, func(l *locked) error {
			return w.proveAbsent(ctx, l, namesOfAll(part, c.name))
		})
		if err != nil {
			return err
		}
		if len(write.unknown) > 0 {
			if err := c.s.topics.create(ctx, w, write.unknown, c.then.topicsOfKeys(part), 0); err != nil {
				return err
			}
			continue
		}
		rows, err := c.then.insert(ctx, w, write.inserted)
		if err != nil {
			return err
		}
		if len(rows) < len(write.inserted) { // another transaction has taken an ID since the locks
			if err := w.send(ctx, c.s.db.step().add("remove", storedArgs(rows), nil)); err != nil {
				return err
			}
			continue
		}
		return w.change(ctx, write)
	}
	return errIDTaken
}

// holdTopics begins a step that keeps the topics of a part from being deleted: the topics of
// follow-ups as a push does, those of the settled messages as an amendment does.
func (c *settling) holdTopics(part []int) *step {
	x, settled := c.s.db.step(), distinct(part, func(i int) string { return c.ss[i].Topic })
	keep := settled
	if c.then != nil {
		if followed := c.then.topics(part); len(followed) > 0 {
			x, keep = c.s.db.shareTopics(followed, 0), slices.Concat(settled, followed)
		}
	}
	return x.add("topics_hold", []any{c.s.db.class, settled}, nil).add("topics_keep", []any{keep}, nil)
}

// storedArgs returns the arguments of remove.sql for messages that were stored.
func storedArgs(rows []stored) []any {
	numbers, ids := make([]int32, len(rows)), make([]string, len(rows))
	for i, r := range rows {
		numbers[i], ids[i] = r.topic, r.id
	}
	return []any{numbers, ids}
}
