package pgstore

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"
)

// keyPlace is a key of a topic, behind which keys are read.
type keyPlace struct {
	number int32
	key    string
}

// healKeys looks at some keys behind a place, and has claims look at those at which none would look
// any more, so that an error in the program costs seconds and no message. It returns where the next
// call goes on.
func (r *remover) healKeys(ctx context.Context, at keyPlace, log *slog.Logger) (next keyPlace, err error) {
	var healed []string
	var micros int64
	err = r.db.write(ctx, func() *step {
		return r.db.step().add("keys_heal", r.db.writing(at.number, at.key), func(rows scanner) error {
			var number *int32
			var key *string
			err := rows.Scan(&micros, &number, &key, &healed)
			next = keyPlace{orZero(number), orZero(key)}
			return err
		})
	})
	if err != nil {
		return at, err
	}
	if len(healed) > 0 {
		log.Error("no claim would have looked at some keys of topics any more, whose messages would not have come; claims look now", "keys", healed)
	}
	return next, nil
}

// sweepItems bounds the rows of one kind that one statement of a sweep or a purge removes.
const sweepItems = 5000

// remover removes messages, finished records and topics: those that a caller names, and those that
// were kept for long enough. It has no state.
type remover struct{ db *database }

// sweep removes what no answer depends on any more: dead messages, finished records and remembered
// IDs past their retention, and the rows of deleted topics.
func (r *remover) sweep(ctx context.Context) error {
	expired, err := r.numbers(ctx, "topics_past_retention", r.db.reading())
	if err != nil {
		return err
	}
	for _, number := range expired {
		if err := r.sweepPastRetention(ctx, number); err != nil {
			return err
		}
	}
	dropped, err := r.numbers(ctx, "topics_dropped", nil)
	if err != nil {
		return err
	}
	for _, number := range dropped {
		if _, err := r.sweepTopic(ctx, droppedTopic{number: number}, &r.db.class); err != nil {
			return err
		}
	}
	return nil
}

// numbers reads the numbers of topics that the statement returns.
func (r *remover) numbers(ctx context.Context, statement string, args []any) (found []int32, err error) {
	err = r.db.read(ctx, func() *step {
		found = nil
		return r.db.step().add(statement, args, func(rows scanner) error {
			var n int32
			err := rows.Scan(&n)
			found = append(found, n)
			return err
		})
	})
	return found, err
}

// sweepPastRetention removes the dead messages, finished records and remembered IDs of a topic that
// are past their retention.
func (r *remover) sweepPastRetention(ctx context.Context, number int32) error {
	for _, sweep := range []string{"past_retention", "finished_past_retention"} {
		if err := r.repeat(ctx, sweep, func() []any { return r.db.writing(number, sweepItems) }); err != nil {
			return err
		}
	}
	return nil
}

// droppedTopic is a topic that was deleted.
type droppedTopic struct {
	number    int32
	retention int64 // of its dead messages, in ms; 0 for ever
	at        int64 // when it was deleted, in ms
}

// sweepTopic removes the messages and finished records of a deleted topic, and then forgets the
// topic, unless others have locked some of the messages, which later sweeps remove. It counts the
// messages, but for dead ones past their retention, also beside an error. unless, if not nil, is
// the class of locks of sweep_hold.sql: while somebody has that lock, the messages stay.
func (r *remover) sweepTopic(ctx context.Context, topic droppedTopic, unless *int32) (counted int64, err error) {
	for rows := int64(1); rows > 0; {
		var n int64
		err := r.db.write(ctx, func() *step {
			return r.db.step().add("topic_sweep", []any{topic.number, sweepItems, topic.retention, topic.at, unless}, func(r scanner) error { return r.Scan(&rows, &n) })
		})
		if err != nil {
			return counted, err
		}
		counted += n
	}
	var left int64
	err = r.db.read(ctx, func() *step {
		return r.db.step().add("topic_left", []any{topic.number, topic.retention, topic.at}, func(r scanner) error { return r.Scan(&left) })
	})
	if counted += left; err != nil {
		return counted, err
	}
	if err := r.repeat(ctx, "finished_sweep", func() []any { return []any{topic.number, sweepItems} }); err != nil {
		return counted, err
	}
	return counted, r.db.write(ctx, func() *step { return r.db.step().add("topic_swept", []any{topic.number}, nil) })
}

// repeat runs a statement that removes some rows, each time in a transaction of its own, until it
// finds none.
func (r *remover) repeat(ctx context.Context, statement string, args func() []any) error {
	for {
		var n int64
		err := r.db.write(ctx, func() *step {
			x := r.db.step()
			x.Queue(r.db.sql.text(statement), args()...).Query(func(rows pgx.Rows) error {
				rows.Close()
				n = rows.CommandTag().RowsAffected()
				return rows.Err()
			})
			return x
		})
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
	}
}
