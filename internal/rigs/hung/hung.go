// Package hungrig has a store for tests of isolation (P14): the calls for one topic hang, those for
// others do not.
package hungrig

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// Topic is the topic whose calls hang.
const Topic = "hung"

// Store is a store in which some calls for Topic hang, as if the topic were on a node that does not
// answer. Such a call returns when its caller leaves or the test calls Mend. All methods are safe
// for concurrent use.
//
// Store has no Unwrap, so that no call for Topic can go past it.
type Store struct {
	store  punctual.Store
	ops    []string
	mended chan struct{}

	mu sync.Mutex
	// hanging counts the calls that hang now. Guarded by mu.
	hanging int
}

// New returns a Store over s in which the named operations hang: "push", "amend", "claim", or the
// name of a verb.
func New(s punctual.Store, ops ...string) *Store {
	return &Store{store: s, ops: ops, mended: make(chan struct{})}
}

// Mend lets all calls go on. It is called once.
func (s *Store) Mend() { close(s.mended) }

// WantHanging fails the test unless a call hangs.
func (s *Store) WantHanging(t *testing.T) {
	t.Helper()
	if s.Hanging() == 0 {
		t.Error("no call hangs, so this test shows nothing")
	}
}

// Hanging is how many calls hang now.
func (s *Store) Hanging() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hanging
}

// Push implements punctual.Store.
func (s *Store) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	for _, m := range ms {
		if err := s.pass(ctx, "push", m.Topic); err != nil {
			return nil, err
		}
	}
	return s.store.Push(ctx, ms)
}

// Amend implements punctual.Store.
func (s *Store) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	for _, a := range as {
		if err := s.pass(ctx, "amend", a.Topic); err != nil {
			return nil, err
		}
	}
	return s.store.Amend(ctx, as)
}

// Claim implements punctual.Store.
func (s *Store) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if err := s.pass(ctx, "claim", c.Topics...); err != nil {
		return nil, err
	}
	return s.store.Claim(ctx, c)
}

// Settle implements punctual.Store.
func (s *Store) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	for _, x := range ss {
		if err := s.pass(ctx, x.Verb.String(), x.Topic); err != nil {
			return nil, err
		}
	}
	return s.store.Settle(ctx, ss)
}

// Now implements punctual.Store. It never hangs, because the clock belongs to no topic.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.store.Now(ctx) }

// Close implements punctual.Store. It never hangs.
func (s *Store) Close() error { return s.store.Close() }

// pass hangs if op hangs and Topic is among the topics.
func (s *Store) pass(ctx context.Context, op string, topics ...string) error {
	if !slices.Contains(s.ops, op) || !slices.Contains(topics, Topic) {
		return nil
	}
	s.count(1)
	defer s.count(-1)
	select {
	case <-s.mended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w: %w", op, punctual.ErrIndeterminate, ctx.Err())
	}
}

func (s *Store) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hanging += n
}
