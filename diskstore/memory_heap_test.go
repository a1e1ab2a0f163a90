package diskstore

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// TestSlowManyTopicsShareTheBound: what is due in many topics, none of which has many messages,
// takes heap in proportion to the one bound for memory, and is delivered all the same.
func TestSlowManyTopicsShareTheBound(t *testing.T) {
	const topics, each, size, bound = 12, 64, 256 << 10, 4 << 20
	s := openAt(t, t.TempDir(), &Options{Clock: storekit.NewManualClock(testStart), MemoryBytes: bound, CacheBytes: 1})
	fill := func() {
		for i := range each {
			var ms []punctual.NewMessage
			for topic := range topics {
				ms = append(ms, punctual.NewMessage{Topic: fmt.Sprint(topic), ID: fmt.Sprint(i), Body: make([]byte, size)})
			}
			push(t, s, ms...)
		}
	}
	// Without cgo the buffers of the database are on the heap. They begin small, and each is larger
	// than the one before. So they grow to their full size before the first measurement.
	fill()
	for topic := range topics {
		if _, err := s.DeleteTopic(t.Context(), fmt.Sprint(topic)); err != nil {
			t.Fatal(err)
		}
	}
	waitUntil(t, "the database has done its work", func() bool {
		heapInUse(t, s)
		m := s.db.Stats()
		return m.Flushing+m.Compacting == 0
	})
	before := heapInUse(t, s)
	fill()
	// A compaction holds a buffer that was written to a table. So the heap may come down only when
	// the compaction has ended.
	var used int64
	what := fmt.Sprintf("%d MiB of heap are enough beside %d MiB of due messages, with a bound of %d MiB for messages in memory (P10)",
		8*bound>>20, topics*each*size>>20, bound>>20)
	waitUntil(t, what, func() bool {
		used = heapInUse(t, s) - before
		return used <= 8*bound
	})
	t.Logf("%d MiB of heap are used, and were %d MiB before", used>>20, before>>20)
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

// heapInUse returns how many bytes on the heap are reachable after the database has written its
// buffers to tables.
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
