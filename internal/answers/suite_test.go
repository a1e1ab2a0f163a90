package answers_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/answers"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/races"
	"github.com/punctualmq/punctual/storetest/random"
)

// The suite runs with storetest.WithLossyClaims, because a claim whose callers have all left gives
// back what it leased.
func TestStore(t *testing.T)  { storetest.Run(t, open, storetest.WithLossyClaims()) }
func TestRandom(t *testing.T) { random.Run(t, open) }
func TestRaces(t *testing.T)  { races.Run(t, open, storetest.WithLossyClaims()) }

// keyed is a store that gives a new key to every call without one.
type keyed struct {
	*answers.Store
	punctual.Inspector
	storekit.Checker
	punctual.FinishedKeeper
	storekit.AbilityReporter
	storekit.TopicNamer
	calls atomic.Int64
}

func open(t *testing.T, clock storekit.Clock) punctual.Store {
	below := memstore.New(&memstore.Options{Clock: clock})
	s := &keyed{Store: answers.New(below, nil), Inspector: below, Checker: below, FinishedKeeper: below, AbilityReporter: below, TopicNamer: below}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func (s *keyed) name(ctx context.Context) context.Context {
	if _, ok := storekit.RequestOf(ctx); ok {
		return ctx
	}
	return storekit.WithRequest(ctx, storekit.Request{Key: fmt.Sprintf("own-%d", s.calls.Add(1))})
}

func (s *keyed) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return s.Store.Push(s.name(ctx), ms)
}

func (s *keyed) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	return s.Store.Claim(s.name(ctx), c)
}

func (s *keyed) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	return s.Store.Settle(s.name(ctx), ss)
}

func (s *keyed) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	return s.Store.Amend(s.name(ctx), as)
}
