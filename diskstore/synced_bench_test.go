package diskstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// These benchmarks measure what it costs that answers wait for the fsync of the changes on which
// they rest. In three of them 64 callers push new messages, push an ID that is in use, or do both
// by turns. In the last one a reader gets a message while 64 callers push.

const benchCallers = 64

func benchStore(b *testing.B) *Store {
	s, err := Open(b.TempDir(), &Options{Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	benchPush(b, s, "taken")
	return s
}

func benchPush(b *testing.B, s *Store, id string) {
	rs, err := s.Push(b.Context(), []punctual.NewMessage{{Topic: "o", ID: id, Body: make([]byte, 200), Delay: time.Hour}})
	if err != nil || rs[0].Err != nil {
		b.Error(err, rs)
	}
}

// benchAll makes b.N calls from many callers at once.
func benchAll(b *testing.B, call func(n int64)) {
	var n atomic.Int64
	var callers sync.WaitGroup
	b.ResetTimer()
	for range benchCallers {
		callers.Go(func() {
			for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
				call(i)
			}
		})
	}
	callers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

func BenchmarkPush(b *testing.B) {
	s := benchStore(b)
	benchAll(b, func(n int64) { benchPush(b, s, fmt.Sprint(n)) })
}

func BenchmarkPushDuplicate(b *testing.B) {
	s := benchStore(b)
	benchAll(b, func(int64) { benchPush(b, s, "taken") })
}

func BenchmarkPushHalfDuplicates(b *testing.B) {
	s := benchStore(b)
	benchAll(b, func(n int64) {
		if n%2 == 0 {
			benchPush(b, s, "taken")
		} else {
			benchPush(b, s, fmt.Sprint(n))
		}
	})
}

func BenchmarkGetDuringPushes(b *testing.B) {
	s := benchStore(b)
	var stop atomic.Bool
	var pushers, begun sync.WaitGroup
	begun.Add(benchCallers)
	for p := range benchCallers {
		pushers.Go(func() {
			benchPush(b, s, fmt.Sprint(p))
			begun.Done()
			for n := 0; !stop.Load(); n++ {
				benchPush(b, s, fmt.Sprintf("%d-%d", p, n))
			}
		})
	}
	begun.Wait()
	b.ResetTimer()
	for range b.N {
		if _, err := s.Get(b.Context(), "o", "taken"); err != nil {
			b.Error(err)
		}
	}
	b.StopTimer()
	stop.Store(true)
	pushers.Wait()
}
