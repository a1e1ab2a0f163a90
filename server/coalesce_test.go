package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// heldStore is a store whose first push, and those of a topic called "slow", wait until pass is closed. It notes how many items each push has.
type heldStore struct {
	*memstore.Store
	pass chan struct{}

	mu    sync.Mutex
	sizes []int // guarded by mu
}

func (s *heldStore) note(n int, topic string) {
	s.mu.Lock()
	s.sizes = append(s.sizes, n)
	first := len(s.sizes) == 1
	s.mu.Unlock()
	if first || topic == "slow" {
		<-s.pass
	}
}

func (s *heldStore) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	s.note(len(ms), ms[0].Topic)
	return s.Store.Push(ctx, ms)
}

// Pushes that come while one is under way go together, and each gets the results of its own items.
func TestPushesAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &heldStore{Store: memstore.New(nil), pass: make(chan struct{})}
		defer store.Close()
		s, err := New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var all sync.WaitGroup
		push := func(i int) {
			all.Go(func() {
				ms := []punctual.NewMessage{{Topic: "t", ID: fmt.Sprint("a", i)}, {Topic: ""}, {Topic: "t", ID: fmt.Sprint("b", i)}}
				rs, err := s.store.Push(t.Context(), ms)
				if err != nil || len(rs) != 3 || rs[0].ID != ms[0].ID || !errors.Is(rs[1].Err, punctual.ErrInvalid) || rs[2].ID != ms[2].ID {
					t.Errorf("push %d: %+v, %v", i, rs, err)
				}
			})
		}
		push(0)
		synctest.Wait()
		for i := range 9 {
			push(i + 1)
		}
		synctest.Wait()
		close(store.pass)
		all.Wait()
		store.mu.Lock()
		defer store.mu.Unlock()
		if len(store.sizes) != 2 || store.sizes[0] != 3 || store.sizes[1] != 27 {
			t.Errorf("calls of %v items; want one of 3, and one with the 27 that came meanwhile", store.sizes)
		}
	})
}

// P14: a topic that hangs does not stop the others.
func TestASlowTopicGoesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &heldStore{Store: memstore.New(nil), pass: make(chan struct{}), sizes: []int{0}}
		defer store.Close()
		s, err := New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		hangs := make(chan error, 1)
		go func() {
			_, err := s.store.Push(t.Context(), []punctual.NewMessage{{Topic: "slow", ID: "x"}})
			hangs <- err
		}()
		synctest.Wait()
		if rs, err := s.store.Push(t.Context(), []punctual.NewMessage{{Topic: "quick", ID: "y"}}); err != nil || rs[0].Err != nil {
			t.Errorf("%+v, %v", rs, err)
		}
		select {
		case err := <-hangs:
			t.Errorf("this test shows nothing: the slow push ended with %v", err)
		default:
		}
		close(store.pass)
		if err := <-hangs; err != nil {
			t.Error(err)
		}
	})
}
