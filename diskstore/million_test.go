//go:build !race

package diskstore

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/ledger"
)

// TestSlowMillionDueAtOnce: a million messages due in one millisecond are delivered once each, with
// bounded memory, while a message of another topic is delivered at once. make test has a tenth of
// them, which is several times what the memory holds. The build tag leaves the test out under the
// race detector, which makes it ten times slower.
func TestSlowMillionDueAtOnce(t *testing.T) {
	const batch = 5000
	n, memory := 100_000, int64(2<<20)
	if ledger.Tortured() {
		n, memory = 1_000_000, 16<<20
	}
	clock := storekit.NewManualClock(testStart)
	s := openAt(t, t.TempDir(), &Options{Clock: clock, MemoryBytes: memory})
	due := testStart.Add(20 * time.Second) // so far ahead that the messages do not stay in memory when they are pushed
	for i := 0; i < n; i += batch {
		ms := make([]punctual.NewMessage, batch)
		for j := range ms {
			ms[j] = punctual.NewMessage{Topic: "herd", ID: strconv.Itoa(i + j), Due: due}
		}
		push(t, s, ms...)
	}
	clock.Set(due)
	d := newHerd(t, s, n)
	var claimers sync.WaitGroup
	for range 8 {
		claimers.Go(d.claimAll)
	}
	for i := range 20 {
		push(t, s, punctual.NewMessage{Topic: "bystander", ID: fmt.Sprint(i)})
		if ds := claim(t, s, "bystander", 1); len(ds) != 1 {
			t.Errorf("a herd in one topic hides the message of another")
		}
	}
	claimers.Wait()
	if d.left != 0 {
		t.Errorf("P1 no loss: %d of %d messages did not come", d.left, n)
	}
	st, err := s.Stats(t.Context(), "herd")
	if err != nil || st.Live() != 0 || st.Dead != 0 {
		t.Errorf("afterwards: %+v, %v; want nothing left", st, err)
	}
}

type herd struct {
	t *testing.T
	s *Store

	mu   sync.Mutex
	seen []bool // guarded by mu
	left int    // guarded by mu
}

func newHerd(t *testing.T, s *Store, n int) *herd {
	return &herd{t: t, s: s, seen: make([]bool, n), left: n}
}

// claimAll claims and acks until nothing is due.
func (h *herd) claimAll() {
	for {
		ds, err := h.s.Claim(context.Background(), punctual.Claim{Topics: []string{"herd"}, Max: 500})
		if err != nil {
			h.t.Errorf("claim: %v", err)
		}
		if len(ds) == 0 {
			return
		}
		ss := make([]punctual.Settlement, len(ds))
		for i, d := range ds {
			ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
		}
		h.note(ds)
		if _, err := h.s.Settle(context.Background(), ss); err != nil {
			h.t.Errorf("ack: %v", err)
			return
		}
	}
}

func (h *herd) note(ds []punctual.Delivery) {
	near := h.s.index.Stats().Bytes
	if near > h.s.opt.MemoryBytes+1000 {
		h.t.Errorf("P10 bounded: %d bytes of messages are in memory with a bound of %d", near, h.s.opt.MemoryBytes)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range ds {
		i, err := strconv.Atoi(d.ID)
		if err != nil || h.seen[i] {
			h.t.Errorf("P3 one holder: %s came twice", d.ID)
			continue
		}
		h.seen[i] = true
		h.left--
	}
}
