package duty_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/duty"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/worker"
)

// The figures of schedules in docs/schedules.md:
//
//	go test ./duty -run xxx -bench 'Occurrence|PushAndAck' -benchtime 20000x -count 5
//	go test ./duty -run xxx -bench 'Lateness|Idle' -benchtime 1x

// stores are those that the benchmarks use.
var stores = map[string]func(b *testing.B) punctual.Store{
	"memory": func(*testing.B) punctual.Store { return memstore.New(nil) },
	"disk": func(b *testing.B) punctual.Store {
		s, err := diskstore.Open(b.TempDir(), &diskstore.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		return s
	},
}

func eachStore(b *testing.B, f func(b *testing.B, store punctual.Store, q *punctual.Queue)) {
	for _, name := range []string{"memory", "disk"} {
		b.Run(name, func(b *testing.B) {
			store := stores[name](b)
			defer store.Close()
			f(b, store, punctual.NewQueue(store, nil))
		})
	}
}

// schedules stores n schedules that come each hour, for the first time at due.
func schedules(b *testing.B, store punctual.Store, q *punctual.Queue, topic string, n int, due time.Time) {
	b.Helper()
	s := schedule.Schedule{Topic: topic, Name: "s", Spec: "@every 1h", Missed: schedule.MissedLatest, Overlap: schedule.OverlapAllow, Body: []byte("a body of some thirty bytes ...")}
	if _, err := schedule.Put(b.Context(), q, s); err != nil {
		b.Fatal(err)
	}
	in, err := punctual.As[punctual.Inspector](store)
	if err != nil {
		b.Fatal(err)
	}
	first, err := in.Get(b.Context(), topic+"@cron", "s")
	if err != nil {
		b.Fatal(err)
	}
	was := fmt.Sprintf(`"next":{"at":%d`, first.Due.UnixMilli())
	body := []byte(strings.Replace(string(first.Body), was, fmt.Sprintf(`"next":{"at":%d`, due.Truncate(time.Second).UnixMilli()), 1))
	if bytes.Equal(body, first.Body) && !due.Equal(first.Due) {
		b.Fatalf("the stored form has no %s: %s", was, body)
	}
	for i := 0; i < n; i += 1000 { // copies of the first schedule under other names
		ms := make([]punctual.NewMessage, min(1000, n-i))
		for j := range ms {
			ms[j] = punctual.NewMessage{Topic: topic + "@cron", ID: fmt.Sprint("s", i+j), Body: body, Due: due}
		}
		if _, err := q.PushMany(b.Context(), ms); err != nil {
			b.Fatal(err)
		}
	}
	if err := schedule.Delete(b.Context(), q, topic, "s"); err != nil {
		b.Fatal(err)
	}
}

// cpu is the processor time of this process.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// until waits until a condition holds.
func until(b *testing.B, holds func() bool) {
	b.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.Fatal("after two minutes not yet")
		}
	}
}

func ready(b *testing.B, store punctual.Store, topic string) int64 {
	in, err := punctual.As[punctual.Inspector](store)
	if err != nil {
		b.Fatal(err)
	}
	s, err := in.Stats(b.Context(), topic)
	if err != nil {
		return 0 // there is no such topic yet
	}
	return s.Ready
}

// BenchmarkOccurrence stores the occurrences of as many schedules as there are rounds, which have
// all come.
func BenchmarkOccurrence(b *testing.B) {
	eachStore(b, func(b *testing.B, store punctual.Store, q *punctual.Queue) {
		schedules(b, store, q, "t", b.N, time.Now().Truncate(time.Hour))
		b.ResetTimer()
		before := cpu(b)
		var settled atomic.Int64
		stop := runDuties(b, store, &punctual.Observer{OnSettle: func(_ context.Context, s punctual.Settlement, _ time.Duration, err error) {
			if err == nil && s.Verb == punctual.SettleAck {
				settled.Add(1)
			}
		}})
		until(b, func() bool { return settled.Load() == int64(b.N) })
		b.StopTimer()
		if n := ready(b, store, "t"); n != int64(b.N) {
			b.Fatalf("%d occurrences of %d", n, b.N)
		}
		b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "µs-cpu/op")
		stop()
	})
}

// BenchmarkPushAndAck pushes as many messages as there are rounds, from 64 goroutines, and has a
// worker ack them.
func BenchmarkPushAndAck(b *testing.B) {
	eachStore(b, func(b *testing.B, store punctual.Store, q *punctual.Queue) {
		var all sync.WaitGroup
		w := worker.New(store, &worker.Config{Concurrency: 64, Logger: slog.New(slog.DiscardHandler)})
		all.Add(b.N)
		w.Handle("t", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
			all.Done()
			return nil
		}))
		if err := w.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		before := cpu(b)
		b.ResetTimer()
		const callers = 64
		for c := range callers {
			go func() {
				for i := c; i < b.N; i += callers {
					if _, err := q.Push(b.Context(), "t", []byte("a body of some thirty bytes ..."), punctual.ID(fmt.Sprint("m", i))); err != nil {
						b.Error(err)
					}
				}
			}()
		}
		all.Wait()
		b.StopTimer()
		b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "µs-cpu/op")
		if err := w.Stop(b.Context()); err != nil {
			b.Error(err)
		}
	})
}

func runDuties(b *testing.B, store punctual.Store, o *punctual.Observer) (stop func()) {
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- duty.Run(ctx, store, &duty.Config{Logger: slog.New(slog.DiscardHandler), Observer: o}) }()
	return func() {
		end()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

// BenchmarkLateness has 10,000 schedules, each of which comes once a minute, spread over it, and
// measures for a minute how late their occurrences are stored.
func BenchmarkLateness(b *testing.B) {
	eachStore(b, func(b *testing.B, store punctual.Store, q *punctual.Queue) {
		const n = 10_000
		var all sync.WaitGroup
		for c := range 32 {
			all.Go(func() {
				for i := c; i < n; i += 32 {
					s := schedule.Schedule{Topic: "t", Name: fmt.Sprint("s", i), Spec: "* * * * *", Spread: time.Minute, Overlap: schedule.OverlapAllow}
					if _, err := schedule.Put(b.Context(), q, s); err != nil {
						b.Error(err)
					}
				}
			})
		}
		all.Wait()
		defer runDuties(b, store, nil)()
		begin := time.Now().Truncate(time.Minute).Add(time.Minute) // the beginning of the minute that is measured
		time.Sleep(time.Until(begin) + 62*time.Second)
		var late []time.Duration
		for m, err := range q.List(b.Context(), punctual.ListQuery{Topic: "t", State: punctual.StateReady, From: begin, To: begin.Add(time.Minute), Limit: 10_000}) {
			if err != nil {
				b.Fatal(err)
			}
			late = append(late, m.Created.Sub(m.Due))
		}
		slices.Sort(late)
		if len(late) < n*9/10 {
			b.Fatalf("only %d occurrences in a minute", len(late))
		}
		b.ReportMetric(float64(len(late)), "occurrences")
		b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, "ms-p50")
		b.ReportMetric(float64(late[len(late)*99/100].Microseconds())/1000, "ms-p99")
		b.ReportMetric(float64(late[len(late)-1].Microseconds())/1000, "ms-max")
	})
}

// BenchmarkIdle measures what 100,000 schedules that come within the hour cost while none of them
// comes, beside as many messages of their size with a worker that waits for them: memory, and
// processor time for a second.
func BenchmarkIdle(b *testing.B) {
	const n = 100_000
	measure := func(b *testing.B, fill func(), serve func() (stop func())) {
		heap := func() uint64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		empty := heap()
		fill()
		stop := serve()
		defer stop()
		time.Sleep(3 * time.Second)
		b.ReportMetric(float64(int64(heap()-empty))/n, "B/item")
		before := cpu(b)
		const idle = 20 * time.Second
		time.Sleep(idle)
		b.ReportMetric(float64((cpu(b)-before).Microseconds())/idle.Seconds(), "µs-cpu/s")
	}
	due := time.Now().Add(30 * time.Minute)
	b.Run("schedules", func(b *testing.B) {
		eachStore(b, func(b *testing.B, store punctual.Store, q *punctual.Queue) {
			measure(b, func() { schedules(b, store, q, "t", n, due) }, func() func() { return runDuties(b, store, nil) })
		})
	})
	b.Run("messages", func(b *testing.B) {
		eachStore(b, func(b *testing.B, store punctual.Store, q *punctual.Queue) {
			body := make([]byte, scheduleBytes(b))
			fill := func() {
				for i := 0; i < n; i += 1000 {
					ms := make([]punctual.NewMessage, 1000)
					for j := range ms {
						ms[j] = punctual.NewMessage{Topic: "t", ID: fmt.Sprint("s", i+j), Body: body, Due: due}
					}
					if _, err := q.PushMany(b.Context(), ms); err != nil {
						b.Fatal(err)
					}
				}
			}
			measure(b, fill, func() func() {
				w := worker.New(store, &worker.Config{Concurrency: 64, Logger: slog.New(slog.DiscardHandler)})
				w.Handle("t", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error { return nil }))
				if err := w.Start(b.Context()); err != nil {
					b.Fatal(err)
				}
				return func() {
					if err := w.Stop(context.Background()); err != nil {
						b.Error(err)
					}
				}
			})
		})
	})
}

// scheduleBytes is how long the stored form of the schedules of this file is.
func scheduleBytes(b *testing.B) int {
	store := memstore.New(nil)
	defer store.Close()
	schedules(b, store, punctual.NewQueue(store, nil), "t", 1, time.Now().Add(time.Hour))
	m, err := store.Get(b.Context(), "t@cron", "s0")
	if err != nil {
		b.Fatal(err)
	}
	return len(m.Body)
}
