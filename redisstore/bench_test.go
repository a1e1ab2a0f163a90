package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/redis/go-redis/v9"
)

// Through the Store itself; the benchmarks of the whole, with Queue and Worker, are in bench/.

func benchStore(b *testing.B) *Store {
	c := redis.NewClient(&redis.Options{Addr: shared.Addr})
	closeAtEnd(b, c.Close)
	return openStore(b, c, &Options{Prefix: fresh()})
}

func BenchmarkPush(b *testing.B) {
	for _, size := range []int{1, 64, 500} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := benchStore(b)
			body := make([]byte, 200)
			_, _ = rand.Read(body) // never fails
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					ms := make([]punctual.NewMessage, size)
					for i := range ms {
						ms[i] = punctual.NewMessage{Topic: "orders", Body: body, Delay: time.Hour}
					}
					if _, err := s.Push(context.Background(), ms); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

func BenchmarkDrain(b *testing.B) {
	for _, size := range []int{64, 500} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := benchStore(b)
			body := make([]byte, 200)
			b.StopTimer()
			total := b.N * size
			for left := total; left > 0; left -= 1000 {
				ms := make([]punctual.NewMessage, min(left, 1000))
				for i := range ms {
					ms[i] = punctual.NewMessage{Topic: "orders", Body: body, Due: time.Unix(1, 0)}
				}
				if _, err := s.Push(context.Background(), ms); err != nil {
					b.Fatal(err)
				}
			}
			b.StartTimer()
			var clients sync.WaitGroup
			for range 8 {
				clients.Go(func() { drain(b, s, size) })
			}
			clients.Wait()
			b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

func drain(b *testing.B, s *Store, size int) {
	for {
		ds, err := s.Claim(context.Background(), punctual.Claim{Topics: []string{"orders"}, Max: size})
		if err != nil {
			b.Error(err)
		}
		if len(ds) == 0 {
			return
		}
		ss := make([]punctual.Settlement, len(ds))
		for i, d := range ds {
			ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
		}
		if _, err := s.Settle(context.Background(), ss); err != nil {
			b.Error(err)
		}
	}
}
