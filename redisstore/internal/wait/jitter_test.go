package wait

import (
	"maps"
	"slices"
	"testing"
)

// Processes that find in vain what was due look a little later, by chance, and at once again
// when they are alone.
func TestJitter(t *testing.T) {
	p := &part{}
	if at := p.withJitter(1000); at != 1000 {
		t.Errorf("put off to %d at first; want not at all", at)
	}
	for range 10 {
		p.adapt(0)
	}
	late := map[int64]bool{}
	for range 1000 {
		late[(p.withJitter(1000)-1000)/1000] = true
	}
	if len(late) != maxJitter+1 || !late[0] || !late[maxJitter] {
		t.Errorf("put off by %v ms; want 0 to %d", slices.Sorted(maps.Keys(late)), maxJitter)
	}
	if at := p.withJitter(Never); at != Never {
		t.Errorf("never was put off to %d", at)
	}
	for range 4 {
		p.adapt(1)
	}
	if at := p.withJitter(1000); at != 1000 {
		t.Errorf("put off to %d after finding something; want not at all", at)
	}
}
