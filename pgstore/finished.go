package pgstore

import (
	"cmp"
	"context"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Finished returns the finished record of a message; see punctual.FinishedKeeper.
func (s *Store) Finished(ctx context.Context, topic, id string) (punctual.Finished, error) {
	check := cmp.Or(storekit.CheckTopic(topic), storekit.CheckID(id))
	return call(ctx, s, "finished", id+" in "+topic, check, func() (punctual.Finished, error) {
		f, err := s.finished(ctx, topic, id)
		if err == nil {
			err = s.settled(ctx) // the commit of an ack may not have waited for the disk
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

// finished reads a finished record; f is nil if none is kept.
func (s *Store) finished(ctx context.Context, topic, id string) (f *punctual.Finished, err error) {
	err = s.read(ctx, func() *step {
		f = nil
		return s.step().add("finished", s.reading(topic, id), func(rows scanner) (err error) {
			f, err = s.scanFinished(rows, topic, id)
			return err
		})
	})
	return f, err
}

// scanFinished reads a row of finished.sql.
func (s *Store) scanFinished(rows scanner, topic, id string) (*punctual.Finished, error) {
	f := &punctual.Finished{ID: id, Topic: topic}
	var micros, ended, until, created, first, due int64
	var leased *int64
	var failures [][]byte
	if err := rows.Scan(&micros, &f.Outcome, &ended, &until, &created, &first, &due, &leased, &f.Attempt, &failures); err != nil {
		return nil, err
	}
	s.clock.hear(micros)
	f.At, f.KeptUntil = storekit.FromMillis(ended), storekit.FromMillis(until)
	f.Created, f.FirstDue, f.Due = storekit.FromMillis(created), storekit.FromMillis(first), storekit.FromMillis(due)
	if leased != nil {
		f.Delivered = storekit.FromMillis(*leased)
	}
	var err error
	f.Failures, err = decodeFailures(failures)
	return f, err
}
