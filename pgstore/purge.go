package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Purge removes messages without delivering them; see punctual.Inspector. It goes by the states that they have when it begins, and
// takes effect in steps of at most 5000.
func (s *Store) Purge(ctx context.Context, q punctual.PurgeQuery) (int64, error) {
	var n int64 // also beside an error
	_, err := call(ctx, s, "purge", "of "+q.Topic, storekit.CheckTopic(q.Topic), func() (_ int64, err error) {
		if q.State > punctual.StateDead {
			return 0, storekit.Plain(fmt.Errorf("purge of state %d: use scheduled, ready, leased or dead: %w", q.State, punctual.ErrInvalid))
		}
		if n, err = s.purge(ctx, q); err != nil && n > 0 {
			err = fmt.Errorf("%d messages were purged before: %w", n, halfDone(err))
		}
		return n, err
	})
	return n, err
}

// purge goes through a topic in steps.
func (s *Store) purge(ctx context.Context, q punctual.PurgeQuery) (total int64, err error) {
	micros, err := s.tick(ctx)
	if err != nil {
		return 0, err
	}
	from, to, now := storekit.CeilMillis(q.From), endOf(q.To), micros/1000
	at := &purged{last: new(string)} // before all
	for at.last != nil {
		statement, args := "purge_live", []any{q.Topic, int32(q.State), from, to, now, sweepItems, at.died, *at.last}
		if q.State == punctual.StateDead {
			statement, args = "purge_dead", append(args[:1], from, to, now, sweepItems, at.died, *at.last)
		}
		if at, err = s.purgeSome(ctx, statement, args); err != nil {
			return total, err
		}
		total += int64(len(at.ids))
	}
	return total, nil
}

// purged is the answer of purge_live.sql and purge_dead.sql.
type purged struct {
	died   int64    // where to go on: a time of death, for the dead,
	last   *string  // and an ID; nil when there is no more
	number *int32   // the topic's
	ids    []string // of the messages that were locked
}

// purgeSome locks what a step of a purge removes, and then removes it. One statement cannot do both: it does not see the row
// that a change has left for which it waited.
func (s *Store) purgeSome(ctx context.Context, statement string, args []any) (found *purged, err error) {
	var micros int64
	err = s.transact(ctx, func(ctx context.Context, tx *transaction) (*step, error) {
		found = &purged{}
		x := s.step().add(statement, s.writing(args...), func(rows scanner) error {
			return rows.Scan(&micros, &found.died, &found.last, &found.number, &found.ids)
		})
		if err := tx.send(ctx, x); err != nil || len(found.ids) == 0 {
			return nil, err
		}
		return s.step().add("remove", []any{slices.Repeat([]int32{*found.number}, len(found.ids)), found.ids}, nil), nil
	})
	if err == nil {
		s.clock.hear(micros)
	}
	return found, err
}

// halfDone marks the error of a call of which an earlier part took effect.
func halfDone(err error) error {
	return fmt.Errorf("%w (%w)", punctual.ErrIndeterminate, err)
}

// DeleteTopic removes a topic and its companions with all that they hold; see punctual.Inspector. It takes effect in one
// atomic step; the rows of the messages are removed afterwards.
func (s *Store) DeleteTopic(ctx context.Context, topic string) (int64, error) {
	return call(ctx, s, "delete topic", topic, storekit.CheckTopic(topic), func() (int64, error) {
		numbers, n, err := s.dropTopic(ctx, topic)
		if err != nil {
			return 0, err
		}
		if len(numbers) == 0 {
			return 0, storekit.Plain(errNoTopic(topic))
		}
		for _, number := range numbers {
			if err := s.sweepTopic(ctx, number); err != nil { // the sweep of a process tries again
				s.opt.Logger.Debug("the messages of a deleted topic were not all removed", "topic", topic, "error", err)
			}
		}
		return n, nil
	})
}

const (
	// deletionLockWait is how long the deletion of a topic waits for a lock, at most. Pushes to topics that share its lock wait behind it.
	deletionLockWait = 100 * time.Millisecond
	// deletionPause is how long they go on then.
	deletionPause = 200 * time.Millisecond
)

// dropTopic removes a topic and its companions, and counts what goes with them; numbers is empty where there is no such topic. It tries
// again as long as a transaction is open that has pushed to one of them.
func (s *Store) dropTopic(ctx context.Context, topic string) (numbers []int32, n int64, err error) {
	ctx, end := within(ctx)
	defer end()
	for waited := false; ; waited = true {
		numbers, n, err = s.dropTopicNow(ctx, topic)
		waits := errors.Is(err, errLockTimeout)
		if !waits && (!waited || !ended(err) || errors.Is(err, punctual.ErrIndeterminate)) {
			return numbers, n, err
		}
		if err := sleep(ctx, deletionPause); err != nil {
			return nil, 0, fmt.Errorf("a transaction is open that has pushed to the topic, or to one that shares its lock: end it, or try again: %w (%w)", punctual.ErrOverloaded, err)
		}
	}
}

// dropTopicNow removes a topic and its companions unless a push to one of them is under way for longer than a moment. None is under way
// meanwhile.
func (s *Store) dropTopicNow(ctx context.Context, topic string) (numbers []int32, n int64, err error) {
	err = s.transact(ctx, func(ctx context.Context, tx *transaction) (*step, error) {
		numbers, n = nil, 0
		x := s.step().add("lock_wait", []any{lockTimeoutOf(deletionLockWait)}, nil).add("topic_close", []any{s.class, topic}, nil)
		x.add("topic_drop", s.writing(topic), func(rows scanner) error {
			var number int32
			var held int64
			err := rows.Scan(&number, &held)
			numbers, n = append(numbers, number), n+held
			return err
		})
		return nil, tx.send(ctx, x)
	})
	return numbers, n, err
}
