package punctual_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// BenchmarkWorker measures what a worker adds to a store in memory: claim, handle, ack.
func BenchmarkWorker(b *testing.B) {
	for _, hands := range []int{1, 16, 64} {
		b.Run(fmt.Sprint("hands=", hands), func(b *testing.B) {
			s := &countingStore{Store: memstore.New(nil)}
			defer s.Close()
			ms := make([]punctual.NewMessage, b.N)
			for i := range ms {
				ms[i] = punctual.NewMessage{Topic: "t", ID: fmt.Sprint(i)}
			}
			if _, err := punctual.NewQueue(s, nil).PushMany(b.Context(), ms); err != nil {
				b.Fatal(err)
			}
			done := make(chan struct{})
			var n atomic.Int64
			w := punctual.NewWorker(s, &punctual.WorkerConfig{Concurrency: hands, Logger: slog.New(slog.DiscardHandler)})
			w.Handle("t", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
				if n.Add(1) == int64(b.N) {
					close(done)
				}
				return nil
			}))
			b.ReportAllocs()
			b.ResetTimer()
			if err := w.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			<-done
			if err := w.Stop(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/float64(s.claims.Load()), "msgs/claim")
		})
	}
}

type countingStore struct {
	*memstore.Store
	claims atomic.Int64
}

func (s *countingStore) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	s.claims.Add(1)
	return s.Store.Claim(ctx, c)
}
