package pgstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// P10: the bodies of a claim are bounded over all its topics, and what it leaves is there for the next claim at once.
func TestBytesOfAClaim(t *testing.T) {
	t.Parallel()
	const each, body = 5, claimBytes / 8
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true, MaxBody: body})
	topics := []string{"a", "b", "c", "d"}
	want := 0
	for _, topic := range topics {
		for i := range each {
			if rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: topic, ID: fmt.Sprint(i), Body: make([]byte, body), Due: time.Unix(int64(i), 0)}}); err != nil || rs[0].Err != nil {
				t.Fatal(rs, err)
			}
			want++
		}
	}
	for _, wait := range []time.Duration{0, time.Minute} {
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: topics, Max: 1000, Wait: wait, Lease: time.Hour})
		if err != nil || len(ds) == 0 {
			t.Fatalf("claim: %v, %v", ds, err)
		}
		want -= len(ds)
		if n := len(ds) * body; n > claimBytes+body || n < claimBytes/2 {
			t.Errorf("P10: a claim over %d topics brought %d bodies of %d bytes; want about %d bytes in all", len(topics), len(ds), body, claimBytes)
		}
		if wait > 0 { // so another claim that waits looks at once, and not with the next poll
			s.waits.mu.Lock()
			if last := s.waits.topics[ds[len(ds)-1].Topic]; last.at > s.clock.guess()/1000 {
				t.Errorf("P11: the topic whose messages a claim has left is thought to have none until %v", time.UnixMilli(last.at))
			}
			s.waits.mu.Unlock()
		}
		for i, d := range ds {
			if i > 0 && d.Topic < ds[i-1].Topic {
				t.Errorf("a claim brought %s of topic %s behind one of topic %s; want the topics in their order", d.ID, d.Topic, ds[i-1].Topic)
			}
		}
	}
	one, err := s.Claim(t.Context(), punctual.Claim{Topics: topics[3:], Max: 1000, Lease: time.Hour})
	if err != nil || len(one) != want || want == 0 {
		t.Errorf("a third claim brought %d, %v; want the %d that are left", len(one), err, want)
	}
}
