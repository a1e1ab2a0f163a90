package redisstore

import (
	"context"
	"fmt"

	"github.com/punctualmq/punctual/storekit"
	"github.com/redis/go-redis/v9"
)

// Examine reports what a store on this client would stand on, without opening one; see
// storekit.Examiner. Of the options Prefix, Durability and Replicas count, and options that Open
// would refuse are an error. It is for stores that refuse to open; an open store has a method of
// the same name.
func Examine(ctx context.Context, client redis.UniversalClient, o *Options) ([]storekit.Finding, error) {
	s, err := newStore(client, o)
	if err != nil {
		return nil, fmt.Errorf("examine redis store: %w", err)
	}
	return s.health.Examine(ctx)
}

// Examine reports what the store stands on; see storekit.Examiner. It does so also when the store
// has failed.
func (s *Store) Examine(ctx context.Context) ([]storekit.Finding, error) {
	if err := s.calls.BeginAnyway(ctx); err != nil {
		return nil, fmt.Errorf("examine: %w", err)
	}
	defer s.calls.End()
	return s.health.Examine(ctx)
}
