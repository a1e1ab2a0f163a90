package punctual_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	hungrig "github.com/punctualmq/punctual/internal/rigs/hung"
	"github.com/punctualmq/punctual/memstore"
)

// The calls of a Queue for a topic that hangs delay those for other topics by at most 1 s (P14). Each test first shows that the
// call for the hung topic hangs, and then that the calls for the other topics return.

// healthy are the topics beside the hung one.
var healthy = []string{"a", "b", "c"}

// isolated is how long a healthy topic may have to wait for a hung one (P14).
const isolated = time.Second

// eachOwn calls f for the hung topic, waits until it hangs, and calls f for each healthy one. It returns those for which f
// returned in time.
func eachOwn(t *testing.T, s *hungrig.Store, f func(topic string)) (inTime []string) {
	t.Helper()
	var mu sync.Mutex
	call := func(topic string) {
		f(topic)
		mu.Lock()
		defer mu.Unlock()
		inTime = append(inTime, topic)
	}
	var calls sync.WaitGroup
	calls.Go(func() { call(hungrig.Topic) })
	synctest.Wait()
	s.WantHanging(t)
	for _, topic := range healthy {
		calls.Go(func() { call(topic) })
	}
	time.Sleep(isolated)
	synctest.Wait()
	s.WantHanging(t)
	mu.Lock()
	out := slices.Sorted(slices.Values(inTime))
	mu.Unlock()
	s.Mend()
	calls.Wait()
	return out
}

func TestQueuePushesBesideAHungTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hungrig.New(memstore.New(nil), "push")
		q := punctual.NewQueue(s, nil)
		got := eachOwn(t, s, func(topic string) {
			if _, err := q.Push(t.Context(), topic, nil); err != nil {
				t.Errorf("push to %s: %v", topic, err)
			}
		})
		if !slices.Equal(got, healthy) {
			t.Errorf("P14: within %v pushes to %q returned, want those to %q", isolated, got, healthy)
		}
	})
}

func TestQueueCancelsBesideAHungTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hungrig.New(memstore.New(nil), "amend")
		q := punctual.NewQueue(s, nil)
		got := eachOwn(t, s, func(topic string) {
			if err := q.Cancel(t.Context(), topic, "x"); !errors.Is(err, punctual.ErrNotFound) {
				t.Errorf("cancel in %s: %v", topic, err)
			}
		})
		if !slices.Equal(got, healthy) {
			t.Errorf("P14: within %v cancels in %q returned, want those in %q", isolated, got, healthy)
		}
	})
}
