// Package familyrig has a store for tests of follow-ups that reaches only a family of topics in one
// step, as a store does whose topics lie on different servers.
package familyrig

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Store is a store over another one, which itself reaches all topics. Store refuses follow-ups in
// another family or another partition with ErrUnsupported. All methods are safe for concurrent use.
type Store struct {
	store punctual.Store
	// partitions is into how many the topics are divided, as far as follow-ups are concerned.
	partitions uint32
	// silent stores do not tell which follow-ups are within reach (Reaches); their Abilities say
	// storekit.ReachFamily as those of others do.
	silent bool

	mu sync.Mutex
	// refused counts the settlements that were refused. Guarded by mu.
	refused int
}

// New returns a Store over s whose topics have so many partitions. A silent one does not tell
// beforehand what it reaches, so that its callers have to try.
func New(s punctual.Store, partitions int, silent bool) *Store {
	return &Store{store: s, partitions: uint32(partitions), silent: silent}
}

// Unwrap returns the store below.
func (s *Store) Unwrap() punctual.Store { return s.store }

// Refused returns how many settlements were refused because a follow-up was out of reach.
func (s *Store) Refused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// Abilities implements storekit.AbilityReporter.
func (s *Store) Abilities(context.Context) (storekit.Abilities, error) {
	return storekit.Abilities{Follow: storekit.ReachFamily}, nil
}

// Reaches implements storekit.Reacher.
func (s *Store) Reaches(_ context.Context, topic, id string, m *punctual.NewMessage) (bool, error) {
	if s.silent {
		return false, fmt.Errorf("a silent store: %w", punctual.ErrUnsupported)
	}
	return s.reaches(topic, id, m), nil
}

func (s *Store) reaches(topic, id string, m *punctual.NewMessage) bool {
	from, _ := storekit.Companion(topic)
	to, _ := storekit.Companion(m.Topic)
	return from == to && (m.ID == "" || s.home(m.ID) == s.home(id))
}

// home returns the partition of an ID.
func (s *Store) home(id string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(storekit.Stem(id)))
	return h.Sum32() % s.partitions
}

// Settle implements punctual.Store.
func (s *Store) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	answers := make([]error, len(ss))
	var passed []punctual.Settlement
	var at []int
	for i, x := range ss {
		for j := range x.Then {
			if !s.reaches(x.Topic, x.ID, &x.Then[j]) {
				answers[i] = storekit.FollowUpError(j, fmt.Errorf("%s is out of reach: %w", x.Then[j].Topic, punctual.ErrUnsupported))
				break
			}
		}
		if answers[i] == nil {
			passed, at = append(passed, x), append(at, i)
		}
	}
	s.mu.Lock()
	s.refused += len(ss) - len(passed)
	s.mu.Unlock()
	got, err := s.store.Settle(ctx, passed)
	for i := range got {
		answers[at[i]] = got[i]
	}
	return answers, err
}

// Push implements punctual.Store.
func (s *Store) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return s.store.Push(ctx, ms)
}

// Claim implements punctual.Store.
func (s *Store) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	return s.store.Claim(ctx, c)
}

// Amend implements punctual.Store.
func (s *Store) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	return s.store.Amend(ctx, as)
}

// Now implements punctual.Store.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.store.Now(ctx) }

// Close implements punctual.Store.
func (s *Store) Close() error { return s.store.Close() }
