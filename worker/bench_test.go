package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/worker"
)

// BenchmarkWorker measures claim, handle and ack of messages that are due. Over the store in memory
// it shows what a worker costs, because that store does little itself.
func BenchmarkWorker(b *testing.B) {
	for _, slots := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("memstore/slots=%d", slots), func(b *testing.B) { drain(b, memstore.New(nil), slots, 1) })
	}
	b.Run("memstore/slots=64/topics=4", func(b *testing.B) { drain(b, memstore.New(nil), 64, 4) })
	b.Run("diskstore/slots=64", func(b *testing.B) {
		s, err := diskstore.Open(b.TempDir(), &diskstore.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		drain(b, s, 64, 1)
	})
}

// drain has b.N messages of some topics handled.
func drain(b *testing.B, store punctual.Store, slots, topics int) {
	s := &countingStore{Store: store}
	defer s.Close()
	ms := make([]punctual.NewMessage, b.N)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: fmt.Sprint("t", i%topics), ID: fmt.Sprint(i)}
	}
	if _, err := punctual.NewQueue(s, nil).PushMany(b.Context(), ms); err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	var n atomic.Int64
	w := worker.New(s, &worker.Config{Concurrency: slots, Logger: slog.New(slog.DiscardHandler)})
	for i := range topics {
		w.Handle(fmt.Sprint("t", i), punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
			if n.Add(1) == int64(b.N) {
				close(done)
			}
			return nil
		}))
	}
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime(b)
	if err := w.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	<-done
	if err := w.Stop(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/float64(s.claims.Load()), "msgs/claim")
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// cpuTime is the processor time that the process has used so far. On a machine that others use too
// it says more than the time that passed.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type countingStore struct {
	punctual.Store
	claims atomic.Int64
}

func (s *countingStore) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	s.claims.Add(1)
	return s.Store.Claim(ctx, c)
}
