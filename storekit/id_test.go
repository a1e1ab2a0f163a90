package storekit

import (
	"slices"
	"testing"
	"time"

	"github.com/punctualmq/punctual/limits"
)

func TestNewIDSortsByTime(t *testing.T) {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var ids []string
	for i := range 100 {
		ids = append(ids, NewID(start.Add(time.Duration(i)*time.Millisecond)))
	}
	if !slices.IsSorted(ids) {
		t.Errorf("IDs of ascending milliseconds are not in order: %v", ids)
	}
}

func TestNewIDIsUniqueAndValid(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	seen := map[string]bool{}
	for range 10_000 {
		id := NewID(now)
		if err := CheckID(id); err != nil || len(id) != 26 {
			t.Fatalf("ID %q: %v: want 26 printable characters", id, err)
		}
		if seen[id] {
			t.Fatalf("ID %q came twice", id)
		}
		seen[id] = true
	}
}

func TestNewIDOutsideOfItsTimes(t *testing.T) {
	for _, now := range []time.Time{{}, time.Unix(-1, 0), limits.MaxDue, limits.MaxDue.AddDate(20000, 0, 0)} {
		if err := CheckID(NewID(now)); err != nil {
			t.Errorf("ID for %v: %v", now, err)
		}
	}
}
