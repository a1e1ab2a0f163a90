package pgstore

import (
	"cmp"
	"context"
	"math"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Finished returns the finished record of a message; see punctual.FinishedKeeper.
func (s *Store) Finished(ctx context.Context, topic, id string) (punctual.Finished, error) {
	check := cmp.Or(storekit.CheckTopic(topic), storekit.CheckID(id))
	return call(ctx, s, "finished", id+" in "+topic, check, func() (punctual.Finished, error) {
		f, err := s.inspector.finished(ctx, topic, id)
		if err == nil {
			err = s.db.settled(ctx) // the commit of an ack may not have waited for the disk
		}
		switch {
		case err != nil:
			return punctual.Finished{}, err
		case f == nil:
			return punctual.Finished{}, storekit.Plain(storekit.NoFinishedRecordError(topic, id))
		}
		return *f, nil
	})
}

// finished reads a finished record; f is nil if there is none.
func (i *inspector) finished(ctx context.Context, topic, id string) (f *punctual.Finished, err error) {
	err = i.db.read(ctx, func() *step {
		f = nil
		return i.db.step().add("finished", i.db.reading(topic, id), func(rows scanner) (err error) {
			f, err = i.scanFinished(rows, topic, id)
			return err
		})
	})
	return f, err
}

// scanFinished reads a row of finished.sql.
func (i *inspector) scanFinished(rows scanner, topic, id string) (*punctual.Finished, error) {
	f := &finishedRow{Finished: punctual.Finished{ID: id, Topic: topic}}
	if err := rows.Scan(f.columns()...); err != nil {
		return nil, err
	}
	i.db.clock.hear(f.micros)
	return &f.Finished, f.decode()
}

// finishedRow is a row of the table finished as it is read. decode puts its columns into the
// record.
type finishedRow struct {
	punctual.Finished
	micros, ended, until, created, first, due int64
	leased                                    *int64
	failures                                  [][]byte
}

// columns returns where the clock and the columns of a record go, but for topic and ID.
func (f *finishedRow) columns() []any {
	return []any{&f.micros, &f.Outcome, &f.ended, &f.until, &f.created, &f.first, &f.due, &f.leased, &f.Attempt, &f.failures}
}

func (f *finishedRow) decode() (err error) {
	f.At, f.KeptUntil = storekit.FromMillis(f.ended), storekit.FromMillis(f.until)
	f.Created, f.FirstDue, f.Due = storekit.FromMillis(f.created), storekit.FromMillis(f.first), storekit.FromMillis(f.due)
	if f.leased != nil {
		f.Delivered = storekit.FromMillis(*f.leased)
	}
	f.Failures, err = decodeFailures(f.failures)
	return err
}

// ListFinished returns one page of a topic's finished records; see punctual.FinishedKeeper.
func (s *Store) ListFinished(ctx context.Context, q punctual.FinishedQuery) (punctual.FinishedPage, error) {
	q, err := storekit.CheckFinished(q)
	after, wrong := storekit.ParseFinishedPlace(q.After)
	return call(ctx, s, "list", "of finished messages in "+q.Topic, cmp.Or(err, wrong), func() (punctual.FinishedPage, error) {
		page, err := s.inspector.listFinished(ctx, &q, after)
		if err == nil {
			err = s.db.settled(ctx) // the commit of an ack may not have waited for the disk
		}
		return page, err
	})
}

// listFinished reads a page. The statement returns up to one record more than the page may have,
// which shows whether there is another page.
func (i *inspector) listFinished(ctx context.Context, q *punctual.FinishedQuery, after storekit.FinishedPlace) (page punctual.FinishedPage, err error) {
	first, last := storekit.FinishedSpan(q, 0) // the statement has the clock
	statement := "list_finished"
	switch {
	case q.Descending && q.After == "":
		statement, after.Until = "list_finished_back", math.MaxInt64
	case q.Descending:
		statement, last = "list_finished_back", min(last, after.Until)
	case q.After == "":
		after.Until = math.MinInt64
	default:
		first = max(first, after.Until)
	}
	looks := storekit.ReadLimit
	if q.From.IsZero() && q.To.IsZero() && q.Outcome == "" {
		looks = q.Limit + 1 // the query selects every record
	}
	err = i.db.read(ctx, func() *step {
		page = punctual.FinishedPage{Records: []punctual.Finished{}}
		args := []any{q.Topic, first, last, after.Until, after.ID, storekit.CeilMillis(q.From), endOf(q.To), string(q.Outcome), q.Limit + 1, looks}
		return i.db.step().add(statement, i.db.reading(args...), func(rows scanner) error {
			f := finishedRow{Finished: punctual.Finished{Topic: q.Topic}}
			var selected, ends bool
			columns := f.columns()
			if err := rows.Scan(append(append([]any{columns[0], &f.ID}, columns[1:]...), &selected, &ends)...); err != nil {
				return err
			}
			i.db.clock.hear(f.micros)
			if err := f.decode(); err != nil {
				return err
			}
			switch {
			case len(page.Records) == q.Limit:
				page.Next = storekit.PlaceOfFinished(&page.Records[q.Limit-1]).String()
				return nil
			case ends:
				page.Next = storekit.PlaceOfFinished(&f.Finished).String()
			}
			if selected {
				page.Records = append(page.Records, f.Finished)
			}
			return nil
		})
	})
	return page, err
}
