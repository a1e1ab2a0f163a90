package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// sweepItems bounds the rows of one kind that one statement of a sweep or a purge removes.
const sweepItems = 5000

// sweep removes what no answer depends on any more: dead messages, finished records and remembered IDs past their retention, and the
// rows of deleted topics.
func (s *Store) sweep(ctx context.Context) error {
	expired, err := s.numbers(ctx, "topics_past_retention", s.reading())
	if err != nil {
		return err
	}
	for _, number := range expired {
		if err := s.sweepPastRetention(ctx, number); err != nil {
			return err
		}
	}
	dropped, err := s.numbers(ctx, "topics_dropped", nil)
	if err != nil {
		return err
	}
	for _, number := range dropped {
		if err := s.sweepTopic(ctx, number); err != nil {
			return err
		}
	}
	return nil
}

// numbers reads the numbers of topics that the statement returns.
func (s *Store) numbers(ctx context.Context, statement string, args []any) (found []int32, err error) {
	err = s.read(ctx, func() *step {
		found = nil
		return s.step().add(statement, args, func(rows scanner) error {
			var n int32
			err := rows.Scan(&n)
			found = append(found, n)
			return err
		})
	})
	return found, err
}

// sweepPastRetention removes the dead messages, finished records and remembered IDs of a topic that are past their retention.
func (s *Store) sweepPastRetention(ctx context.Context, number int32) error {
	for _, sweep := range []string{"past_retention", "finished_past_retention"} {
		if err := s.repeat(ctx, sweep, func() []any { return s.writing(number, sweepItems) }); err != nil {
			return err
		}
	}
	return nil
}

// sweepTopic removes the messages and finished records of a deleted topic, and then forgets the topic.
func (s *Store) sweepTopic(ctx context.Context, number int32) error {
	for _, sweep := range []string{"topic_sweep", "finished_sweep"} {
		if err := s.repeat(ctx, sweep, func() []any { return []any{number, sweepItems} }); err != nil {
			return err
		}
	}
	return s.write(ctx, func() *step { return s.step().add("topic_swept", []any{number}, nil) })
}

// repeat runs a statement that removes some rows, each time in a transaction of its own, until it finds none.
func (s *Store) repeat(ctx context.Context, statement string, args func() []any) error {
	for {
		var n int64
		err := s.write(ctx, func() *step {
			x := s.step()
			x.Queue(s.sql.text(statement), args()...).Query(func(rows pgx.Rows) error {
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
