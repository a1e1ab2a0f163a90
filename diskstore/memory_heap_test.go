//go:build !race && cgo

package diskstore

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// TestSlowManyTopicsShareTheBound is not run under the race detector, which has the database allocate more on the heap. So
// make test runs it by itself. What is due in many topics, none of which has many messages, is kept within one bound,
// and comes all the same.
func TestSlowManyTopicsShareTheBound(t *testing.T) {
	const topics, each, size, bound = 12, 64, 256 << 10, 4 << 20
	s := openAt(t, t.TempDir(), &Options{Clock: storekit.NewManualClock(testStart), MemoryBytes: bound})
	before := heapInUse(t, s)
	for i := range each {
		var ms []punctual.NewMessage
		for topic := range topics {
			ms = append(ms, punctual.NewMessage{Topic: fmt.Sprint(topic), ID: fmt.Sprint(i), Body: make([]byte, size)})
		}
		push(t, s, ms...)
	}
	if used := heapInUse(t, s) - before; used > 8*bound {
		t.Errorf("P10 bounded: %d MiB of heap hold %d MiB of due messages; the bound for messages is %d MiB",
			used>>20, topics*each*size>>20, bound>>20)
	}
	for topic := range topics {
		got := 0
		for ds := claim(t, s, fmt.Sprint(topic), each); len(ds) > 0; ds = claim(t, s, fmt.Sprint(topic), each) {
			for _, d := range ds {
				if d.ID != fmt.Sprint(got) || len(d.Body) != size {
					t.Fatalf("P12 order: %s of %d bytes came as number %d", d.ID, len(d.Body), got)
				}
				got++
			}
		}
		if got != each {
			t.Errorf("P1 no loss: %d of %d messages came from topic %d", got, each, topic)
		}
	}
}

// heapInUse is what is reachable on the heap while the database holds nothing in memory tables.
func heapInUse(t *testing.T, s *Store) int64 {
	t.Helper()
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
