package diskstore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/storekit"
)

// Finished returns the finished record of a message; see punctual.FinishedKeeper.
func (s *Store) Finished(ctx context.Context, topic, id string) (punctual.Finished, error) {
	if err := s.admit(ctx, cmp.Or(storekit.CheckTopic(topic), storekit.CheckID(id))); err != nil {
		return punctual.Finished{}, fmt.Errorf("finished: %w", err)
	}
	tv, err := s.snapshotInto(ctx, topic, func(*topicView, *topics.Topic) error { return nil })
	if err != nil {
		return punctual.Finished{}, fmt.Errorf("finished: %w", err)
	}
	defer tv.close()
	f, ok, err := tv.snap.Finished(tv.Num, id) // nothing is kept in topic 0, which is none
	if err != nil {
		return punctual.Finished{}, fmt.Errorf("finished: %w", err)
	}
	if f.Topic = topic; !ok || storekit.Millis(f.KeptUntil) <= tv.now {
		return punctual.Finished{}, storekit.NoFinishedRecordError(topic, id)
	}
	return f, nil
}
