package diskstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// BenchmarkPushInMemory pushes messages, 1 or 100 at a time, from as many callers as there are
// processors. The files are in memory, so the benchmark measures the store and not the disk.
func BenchmarkPushInMemory(b *testing.B) {
	for _, many := range []int{1, 100} {
		b.Run(fmt.Sprint(many, " at a time"), func(b *testing.B) {
			s, err := Open("store", &Options{fs: vfs.NewMem(), Clock: storekit.NewManualClock(testStart), Logger: quiet})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					ms := make([]punctual.NewMessage, many)
					for i := range ms {
						ms[i] = punctual.NewMessage{Topic: "o", Body: make([]byte, 100), Delay: time.Hour}
					}
					if _, err := s.Push(b.Context(), ms); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*many), "ns/message")
		})
	}
}

// BenchmarkClaimAck claims messages that are due and acks them, 1 or 100 at a time. The files are
// in memory, so the benchmark measures the store and not the disk. Maintenance deletes acked
// messages, unless the topic keeps or tells something of them: then the ack does.
func BenchmarkClaimAck(b *testing.B) {
	hour := time.Hour
	for _, c := range []struct {
		name string
		many int
		set  punctual.SettingsPatch
	}{
		{"1 at a time", 1, punctual.SettingsPatch{}},
		{"100 at a time", 100, punctual.SettingsPatch{}},
		{"100 at a time, IDs remembered", 100, punctual.SettingsPatch{DedupeWindow: &hour}},
		{"100 at a time, finished records kept", 100, punctual.SettingsPatch{FinishedRetention: &hour}},
		{"100 at a time, acks told of", 100, punctual.SettingsPatch{Emit: ptr(punctual.EventAcked)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			many := c.many
			s, err := Open("store", &Options{fs: vfs.NewMem(), Clock: storekit.NewManualClock(testStart), MemoryBytes: 1 << 30, Logger: quiet})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			if _, err := s.Configure(b.Context(), "o", c.set); err != nil {
				b.Fatal(err)
			}
			const batch = 1000
			for n := 0; n < b.N*many; n += batch {
				ms := make([]punctual.NewMessage, batch)
				for i := range ms {
					ms[i] = punctual.NewMessage{Topic: "o", Body: make([]byte, 100)}
				}
				if _, err := s.Push(b.Context(), ms); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				ds, err := s.Claim(b.Context(), punctual.Claim{Topics: []string{"o"}, Max: many, Lease: time.Minute})
				if err != nil || len(ds) != many {
					b.Fatalf("claimed %d, %v; want %d", len(ds), err, many)
				}
				ss := make([]punctual.Settlement, len(ds))
				for i, d := range ds {
					ss[i] = punctual.Settlement{Topic: "o", ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
				}
				if _, err := s.Settle(b.Context(), ss); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*many), "ns/message")
		})
	}
}
