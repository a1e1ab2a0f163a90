package diskstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/storekit"
)

// TestClaimByIDFromDiskAlone: a message that is on disk alone is found by its ID, and gets into
// memory alone, without those that are due before it (P10).
func TestClaimByIDFromDiskAlone(t *testing.T) {
	clock := storekit.NewManualClock(testStart)
	s := openAt(t, t.TempDir(), &Options{Clock: clock, MemoryBytes: 40 * memory.MessageBytes})
	const n = 500
	for i := range n {
		push(t, s, punctual.NewMessage{Topic: "o", ID: fmt.Sprint(i), Delay: time.Duration(i) * time.Millisecond})
	}
	clock.Advance(time.Minute)
	last := fmt.Sprint(n - 1)
	if st := s.index.Stats(); st.Window+st.Held >= n/2 {
		t.Fatalf("%d messages are in memory: this test shows nothing", st.Window+st.Held)
	}
	for attempt := range 2 {
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"o"}, IDs: []string{last}})
		if err != nil || len(ds) != 1 || ds[0].ID != last || ds[0].Attempt != 1+attempt {
			t.Fatalf("a claim of the last of %d messages got %+v, %v; want attempt %d", n, ds, err, 1+attempt)
		}
		if st := s.index.Stats(); st.Window+st.Held >= n/2 || st.Held != 1 {
			t.Fatalf("behind it %d messages are in the window, and %d are leased", st.Window, st.Held)
		}
		clock.Advance(time.Minute)
	}
	if r := mustBeSound(t, s); r.Live != n {
		t.Errorf("a scan counts %d messages; want %d", r.Live, n)
	}
}
