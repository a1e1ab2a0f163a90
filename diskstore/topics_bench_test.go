//go:build unix

package diskstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/storekit"
)

// These benchmarks measure sweeps and many topics. Each is one run of a scenario on a real disk:
//
//	go test -run '^$' -bench 'Sweep|Remember|Topics' -benchtime 1x ./diskstore

// sweepStore opens a store in a new directory on the disk of the tests.
func sweepStore(b *testing.B, o *Options) *Store {
	b.Helper()
	s, err := Open(b.TempDir(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

func sweepPush(b *testing.B, s *Store, ms []punctual.NewMessage) {
	if _, err := s.Push(context.Background(), ms); err != nil {
		b.Error(err)
	}
}

func sweepConfigure(b *testing.B, s *Store, topic string, p punctual.SettingsPatch) {
	if _, err := s.Configure(context.Background(), topic, p); err != nil {
		b.Error(err)
	}
}

// longest calls do again and again, with a pause before each call, until stop is called. stop
// returns how long the longest call took and how many calls there were.
func longest(b *testing.B, pause time.Duration, do func() error) (stop func() (time.Duration, int)) {
	done, ended := make(chan struct{}), make(chan struct{})
	var most time.Duration
	n := 0
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(pause):
			}
			began := time.Now()
			if err := do(); err != nil {
				b.Error(err)
				return
			}
			most = max(most, time.Since(began))
			n++
		}
	}()
	return func() (time.Duration, int) {
		close(done)
		<-ended
		return most, n
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkSweepDead lets the retention of 400,000 dead messages end at once.
func BenchmarkSweepDead(b *testing.B) {
	const n, batch = 400_000, 1000
	for range b.N {
		clock, keep := storekit.NewManualClock(testStart), time.Hour
		s := sweepStore(b, &Options{Clock: clock, Logger: quiet})
		sweepConfigure(b, s, "dead", punctual.SettingsPatch{DeadRetention: &keep})
		for i := 0; i < n; i += batch {
			fill := make([]punctual.NewMessage, batch)
			for j := range fill {
				fill[j] = punctual.NewMessage{Topic: "dead", ID: strconv.Itoa(i + j), Body: make([]byte, 200)}
			}
			sweepPush(b, s, fill)
			ds, err := s.Claim(b.Context(), punctual.Claim{Topics: []string{"dead"}, Max: batch})
			if err != nil || len(ds) != batch {
				b.Fatal(len(ds), err)
			}
			ss := make([]punctual.Settlement, batch)
			for j, d := range ds {
				ss[j] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleDiscard}
			}
			if _, err := s.Settle(b.Context(), ss); err != nil {
				b.Fatal(err)
			}
			clock.Advance(time.Millisecond)
		}
		sweepPush(b, s, []punctual.NewMessage{{Topic: "other", ID: "a", Delay: 100 * time.Hour}})
		stopGet := longest(b, time.Millisecond, func() error {
			_, err := s.Get(context.Background(), "other", "a")
			return err
		})
		stopPush := longest(b, time.Millisecond, func() error {
			_, err := s.Push(context.Background(), []punctual.NewMessage{{Topic: "other", Delay: 100 * time.Hour}})
			return err
		})
		began := time.Now()
		clock.Advance(2 * time.Hour)
		for left := int64(1); left > 0; {
			time.Sleep(20 * time.Millisecond)
			release := holdWriteLock(b, s)
			left = s.topics.Get("dead").Disk.Dead()
			release()
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/sweep")
		get, gets := stopGet()
		push, pushes := stopPush()
		b.ReportMetric(ms(get), "ms-longest-get")
		b.ReportMetric(float64(gets), "gets")
		b.ReportMetric(ms(push), "ms-longest-push")
		b.ReportMetric(float64(pushes), "pushes")
	}
}

// BenchmarkSweepFinished lets 100,000 remembered IDs be forgotten at once.
func BenchmarkSweepFinished(b *testing.B) {
	const n, batch = 100_000, 1000
	for range b.N {
		clock, keep := storekit.NewManualClock(testStart), time.Hour
		s := sweepStore(b, &Options{Clock: clock, Logger: quiet})
		sweepConfigure(b, s, "done", punctual.SettingsPatch{DedupeWindow: &keep})
		for i := 0; i < n; i += batch {
			fill, as := make([]punctual.NewMessage, batch), make([]punctual.Amendment, batch)
			for j := range fill {
				fill[j] = punctual.NewMessage{Topic: "done", ID: strconv.Itoa(i + j), Delay: time.Hour}
				as[j] = punctual.Amendment{Change: punctual.ChangeCancel, Topic: "done", ID: strconv.Itoa(i + j)}
			}
			sweepPush(b, s, fill)
			if _, err := s.Amend(b.Context(), as); err != nil {
				b.Fatal(err)
			}
		}
		stopPush := longest(b, time.Millisecond, func() error {
			_, err := s.Push(context.Background(), []punctual.NewMessage{{Topic: "other", Delay: 100 * time.Hour}})
			return err
		})
		began := time.Now()
		clock.Advance(2 * time.Hour)
		for some := true; some; {
			time.Sleep(20 * time.Millisecond)
			snap := s.db.Snapshot()
			keys, err := snap.Keys()
			if err := errors.Join(err, snap.Close()); err != nil {
				b.Fatal(err)
			}
			some = keys[database.Forgotten] > 0
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/sweep")
		push, _ := stopPush()
		b.ReportMetric(ms(push), "ms-longest-push")
	}
}

// BenchmarkRemember pushes and cancels for ten seconds each, in a topic that does not remember IDs,
// and in topics that remember them for a second and for a minute.
func BenchmarkRemember(b *testing.B) {
	for _, keep := range []time.Duration{0, time.Second, time.Minute} {
		b.Run(keep.String(), func(b *testing.B) {
			for range b.N {
				s := sweepStore(b, nil)
				sweepConfigure(b, s, "t", punctual.SettingsPatch{DedupeWindow: &keep})
				var pairs atomic.Int64
				var wg sync.WaitGroup
				end := time.Now().Add(10 * time.Second)
				for w := range 16 {
					wg.Go(func() {
						for i := 0; time.Now().Before(end); i++ {
							const batch = 20
							fill, as := make([]punctual.NewMessage, batch), make([]punctual.Amendment, batch)
							for j := range fill {
								id := fmt.Sprintf("%d-%d-%d", w, i, j)
								fill[j] = punctual.NewMessage{Topic: "t", ID: id, Delay: time.Hour, Body: make([]byte, 200)}
								as[j] = punctual.Amendment{Change: punctual.ChangeCancel, Topic: "t", ID: id}
							}
							sweepPush(b, s, fill)
							if _, err := s.Amend(context.Background(), as); err != nil {
								b.Error(err)
							}
							pairs.Add(batch)
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(pairs.Load())/10, "pairs/s")
			}
		})
	}
}

// fillTopics pushes per messages into each of n topics.
func fillTopics(b *testing.B, s *Store, prefix string, n, per int) {
	var fill []punctual.NewMessage
	for i := range n {
		for range per {
			fill = append(fill, punctual.NewMessage{Topic: prefix + strconv.Itoa(i), Delay: time.Hour + time.Duration(i)*time.Second})
		}
		if len(fill) >= 4000 || i == n-1 {
			sweepPush(b, s, fill)
			fill = fill[:0]
		}
	}
}

func each(n, workers int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	wg.Wait()
}

// BenchmarkDeleteTopics deletes 8,000 topics, then makes and deletes 500 more one by one.
func BenchmarkDeleteTopics(b *testing.B) {
	for range b.N {
		s := sweepStore(b, nil)
		remove := func(prefix string) func(i int) {
			return func(i int) {
				if _, err := s.DeleteTopic(context.Background(), prefix+strconv.Itoa(i)); err != nil {
					b.Error(err)
				}
			}
		}
		fillTopics(b, s, "a", 8000, 2)
		began := time.Now()
		each(8000, 8, remove("a"))
		b.ReportMetric(time.Since(began).Seconds(), "s-delete-8000")
		began = time.Now()
		for i := range 500 {
			sweepPush(b, s, []punctual.NewMessage{{Topic: "b" + strconv.Itoa(i), ID: "a", Delay: time.Hour}})
			remove("b")(i)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s-make-and-delete-500")
	}
}

// BenchmarkTopicsMany measures pushes, idling and Topics beside 100,000 topics with ten pending
// messages each.
func BenchmarkTopicsMany(b *testing.B) {
	for range b.N {
		s := sweepStore(b, nil)
		fillTopics(b, s, "topic-", 100_000, 10)
		if err := s.db.Flush(); err != nil {
			b.Fatal(err)
		}
		push := func() error {
			_, err := s.Push(context.Background(), []punctual.NewMessage{{Topic: "other", Delay: time.Hour}})
			return err
		}
		waitUntil(b, "the marks of the filling are written", func() bool { return idle(b, s) })
		stop := longest(b, time.Millisecond, push)
		time.Sleep(5 * watermarkInterval / 2) // watermarks are written two or three times meanwhile
		most, n := stop()
		b.ReportMetric(ms(most), "ms-longest-push")
		b.ReportMetric(float64(n), "pushes")

		waitUntil(b, "the marks of the pushes are written", func() bool { return idle(b, s) })
		before, began := cpuTime(b), time.Now()
		time.Sleep(2 * watermarkInterval) // the idle time over which the CPU time is measured
		b.ReportMetric(100*(cpuTime(b)-before).Seconds()/time.Since(began).Seconds(), "%-of-a-core-idle")

		turn := longest(b, time.Millisecond, func() error {
			err := s.writer.Locked(context.Background(), func(*writer.Tx) error { return nil })
			return err
		})
		began = time.Now()
		if ts, err := s.Topics(b.Context()); err != nil || len(ts) != 100_001 {
			b.Fatal(len(ts), err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s-topics")
		most, _ = turn()
		b.ReportMetric(ms(most), "ms-turn-during-topics")
	}
}

// idle tells whether maintenance has no watermark to write and the database neither flushes nor
// compacts.
func idle(b *testing.B, s *Store) bool {
	b.Helper()
	release := holdWriteLock(b, s)
	marked := s.db.NextNumber() == s.watermarksAt && !s.db.HasStale()
	release()
	m := s.db.Stats()
	return marked && m.Compacting == 0 && m.Flushing == 0
}

// BenchmarkTopicsRetention asks for one message beside 50,000 topics that have a retention.
func BenchmarkTopicsRetention(b *testing.B) {
	for range b.N {
		s := sweepStore(b, nil)
		keep := time.Hour
		each(50_000, 64, func(i int) { sweepConfigure(b, s, strconv.Itoa(i), punctual.SettingsPatch{DeadRetention: &keep}) })
		sweepPush(b, s, []punctual.NewMessage{{Topic: "1", ID: "a", Delay: time.Hour}})
		var took []time.Duration
		for range 50 {
			began := time.Now()
			if _, err := s.Get(b.Context(), "1", "a"); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		b.ReportMetric(ms(took[len(took)/2]), "ms-get-p50")
		b.ReportMetric(ms(took[len(took)-1]), "ms-get-max")
	}
}

// cpuTime returns how much CPU time the process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
