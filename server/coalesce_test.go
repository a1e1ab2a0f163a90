package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// heldStore is a store whose first push, and those of a topic called "slow", wait until pass is
// closed. It notes how many items each push has.
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

// Close waits for a call of the store that is under way, so that the caller may close the store
// then.
func TestCloseWaitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &heldStore{Store: memstore.New(nil), pass: make(chan struct{})}
		defer store.Close()
		s, err := New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := s.store.Push(t.Context(), []punctual.NewMessage{{Topic: "t"}}); err != nil {
				t.Errorf("push: %v", err)
			}
		})
		synctest.Wait()
		var closed atomic.Bool
		all.Go(func() { s.Close(); closed.Store(true) })
		synctest.Wait()
		if closed.Load() {
			t.Error("Close returned while a push of the store was under way")
		}
		close(store.pass)
		all.Wait()
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

// hanging is a store whose amendments, or whose clock after an amendment, hang until their context
// ends or free is closed.
type hanging struct {
	*memstore.Store
	amends   bool          // amendments hang, otherwise the clock
	amended  atomic.Bool   // an amendment was made
	free     chan struct{} // closed by a test that fails, so that it ends
	underWay atomic.Int64  // calls that hang
}

func (s *hanging) hang(ctx context.Context) error {
	s.underWay.Add(1)
	defer s.underWay.Add(-1)
	select {
	case <-ctx.Done():
	case <-s.free:
	}
	return ctx.Err()
}

func (s *hanging) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	if s.amends {
		if err := s.hang(ctx); err != nil {
			return nil, err
		}
	}
	defer s.amended.Store(true)
	return s.Store.Amend(ctx, as)
}

func (s *hanging) Now(ctx context.Context) (time.Time, error) {
	if s.amended.Load() {
		if err := s.hang(ctx); err != nil {
			return time.Time{}, err
		}
	}
	return s.Store.Now(ctx)
}

// An amendment with a key outlives its request, but not StoreTime, so that Close returns.
func TestCloseWaitsForAmendmentsNoLongerThanStoreTime(t *testing.T) {
	const limit = 5 * time.Second
	for _, amends := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := &hanging{Store: memstore.New(nil), amends: amends, free: make(chan struct{})}
			defer store.Close()
			s, err := New(store, &Options{Limits: Limits{StoreTime: limit}})
			if err != nil {
				t.Fatal(err)
			}
			r := &rig{t, store.Store, s}
			push(t, r, punctual.NewMessage{Topic: "t", ID: "a", Delay: time.Hour})
			ctx, hangUp := context.WithCancel(t.Context())
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				ask(s, r.request("DELETE /v1/topics/t/messages/a", "", "Punctual-Request: k").WithContext(ctx))
			}()
			synctest.Wait()
			hangUp()
			<-gone
			if n := store.underWay.Load(); n != 1 {
				t.Fatalf("this test shows nothing: %d calls of the store are under way, want 1 that has outlived its request", n)
			}
			began, closed := time.Now(), make(chan struct{})
			go func() {
				defer close(closed)
				s.Close()
			}()
			select {
			case <-closed:
			case <-time.After(time.Hour):
				close(store.free)
				<-closed
			}
			if took := time.Since(began); took > limit {
				t.Errorf("P10: Close took %v while an amendment hung; want %v at most", took, limit)
			}
		})
	}
}
