package memstore

import (
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// BenchmarkClaimAck pushes, claims and acks messages, 100 at a time, beside 10,000 that are due
// later.
func BenchmarkClaimAck(b *testing.B) {
	const many, later = 100, 10_000
	s := New(&Options{Clock: storekit.NewManualClock(start)})
	ms := make([]punctual.NewMessage, many)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "orders", Delay: time.Hour, Body: make([]byte, 100)}
	}
	for range later / many {
		if _, err := s.Push(b.Context(), ms); err != nil {
			b.Fatal(err)
		}
	}
	for i := range ms {
		ms[i].Delay = 0
	}
	ss := make([]punctual.Settlement, many)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Push(b.Context(), ms); err != nil {
			b.Fatal(err)
		}
		ds, err := s.Claim(b.Context(), punctual.Claim{Topics: []string{"orders"}, Max: many})
		if err != nil || len(ds) != many {
			b.Fatalf("claimed %d, %v; want %d", len(ds), err, many)
		}
		for i, d := range ds {
			ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
		}
		if _, err := s.Settle(b.Context(), ss); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*many), "ns/message")
}
