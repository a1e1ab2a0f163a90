package redisstore

import (
	"cmp"
	"context"
	"errors"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/record"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// Finished returns the finished record of a message; see punctual.FinishedKeeper.
func (s *Store) Finished(ctx context.Context, topic, id string) (punctual.Finished, error) {
	check := cmp.Or(storekit.CheckTopic(topic), storekit.CheckID(id))
	return call(ctx, s, "finished", id+" of "+topic, check, func() (punctual.Finished, error) {
		f, err := atHome(ctx, s, topic, id, s.finishedFrom)
		if errors.Is(err, punctual.ErrNotFound) {
			err = storekit.Plain(storekit.NoFinishedRecordError(topic, id))
		}
		return f, err
	})
}

// finishedFrom asks one partition for a finished record, and returns the version of the settings there.
func (s *Store) finishedFrom(ctx context.Context, p keys.Partition, id string) (punctual.Finished, int64, error) {
	a, err := s.route.Run(ctx, script.Finished, p, nil, id)
	if err != nil {
		return punctual.Finished{}, 0, err
	}
	if len(a.Items) == 0 {
		return punctual.Finished{}, a.Version, punctual.ErrNotFound
	}
	raw := a.Text()
	if a.Bad {
		return punctual.Finished{}, 0, script.BadReply(script.Finished)
	}
	f, err := record.ReadFinished(p.Topic, id, raw)
	if err == nil && storekit.Millis(f.KeptUntil) <= a.Now {
		err = punctual.ErrNotFound
	}
	return f, a.Version, err
}
