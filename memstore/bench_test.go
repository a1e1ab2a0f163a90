package memstore

import (
	"fmt"
	"slices"
	"strconv"
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

// BenchmarkDrain drains 100,000 messages, 500 at a time: of a topic without keys, and of one with
// 1,000 keys, of each of which one message is leased at a time.
func BenchmarkDrain(b *testing.B) {
	const all, many, keys = 100_000, 500, 1_000
	for _, keyed := range []bool{false, true} {
		b.Run(fmt.Sprintf("keyed=%v", keyed), func(b *testing.B) {
			ms := make([]punctual.NewMessage, many)
			for b.Loop() {
				s, one := New(nil), 1
				if keyed {
					if _, err := s.Configure(b.Context(), "orders", punctual.SettingsPatch{Keyed: &keyed, MaxKeyLeases: &one}); err != nil {
						b.Fatal(err)
					}
				}
				for i := range all / many {
					for j := range ms {
						ms[j] = punctual.NewMessage{Topic: "orders", Body: make([]byte, 100)}
						if keyed {
							ms[j].Key = strconv.Itoa((i*many + j) % keys)
						}
					}
					if _, err := s.Push(b.Context(), ms); err != nil {
						b.Fatal(err)
					}
				}
				for left := all; left > 0; {
					ds, err := s.Claim(b.Context(), punctual.Claim{Topics: []string{"orders"}, Max: many})
					if err != nil || len(ds) == 0 {
						b.Fatalf("claimed %d, %v", len(ds), err)
					}
					ss := make([]punctual.Settlement, len(ds))
					for i, d := range ds {
						ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
					}
					if _, err := s.Settle(b.Context(), ss); err != nil {
						b.Fatal(err)
					}
					left -= len(ds)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*all), "ns/message")
		})
	}
}

// BenchmarkClaimBesideBlocked claims and acks a message of one key beside a million ready messages
// of another one that is full, and beside none.
func BenchmarkClaimBesideBlocked(b *testing.B) {
	for _, blocked := range []int{0, 1_000_000} {
		b.Run(fmt.Sprintf("blocked=%d", blocked), func(b *testing.B) {
			s, yes, one := New(nil), true, 1
			if _, err := s.Configure(b.Context(), "orders", punctual.SettingsPatch{Keyed: &yes, MaxKeyLeases: &one}); err != nil {
				b.Fatal(err)
			}
			for range blocked / 10_000 {
				ms := make([]punctual.NewMessage, 10_000)
				for i := range ms {
					ms[i] = punctual.NewMessage{Topic: "orders", Key: "blocked", Due: start}
				}
				if _, err := s.Push(b.Context(), ms); err != nil {
					b.Fatal(err)
				}
			}
			claim := punctual.Claim{Topics: []string{"orders"}, Max: 1, Lease: 24 * time.Hour}
			if _, err := s.Claim(b.Context(), claim); err != nil {
				b.Fatal(err)
			}
			var took []time.Duration
			for b.Loop() {
				if _, err := s.Push(b.Context(), []punctual.NewMessage{{Topic: "orders", Key: "other", Due: start}}); err != nil {
					b.Fatal(err)
				}
				begun := time.Now()
				ds, err := s.Claim(b.Context(), claim)
				took = append(took, time.Since(begun))
				if err != nil || len(ds) != 1 || ds[0].Key != "other" {
					b.Fatal(ds, err)
				}
				if _, err := s.Settle(b.Context(), []punctual.Settlement{{Topic: "orders", ID: ds[0].ID, Token: ds[0].Token, Verb: punctual.SettleAck}}); err != nil {
					b.Fatal(err)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "ns/p99")
		})
	}
}
