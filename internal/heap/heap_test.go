package heap

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type item struct{ key, place int }

var byKey = Order[*item]{
	Before: func(a, b *item) bool { return a.key < b.key },
	Place:  func(x *item) *int { return &x.place },
}

// TestQueue makes random changes, and compares the queue with a plain list.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q []*item
		var all []*item
		pick := func() *item {
			if len(all) == 0 {
				t.Skip("nothing to pick")
			}
			return all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "how many") {
					x := &item{key: rapid.IntRange(0, 20).Draw(t, "key"), place: -1}
					all = append(all, x)
					byKey.Push(&q, x)
				}
			},
			"fix": func(t *rapid.T) {
				x := pick()
				x.key = rapid.IntRange(0, 20).Draw(t, "key")
				byKey.Fix(q, x)
			},
			"remove": func(t *rapid.T) {
				for range rapid.IntRange(1, min(40, max(1, len(all)))).Draw(t, "how many") {
					x := pick()
					byKey.Remove(&q, x)
					all = slices.DeleteFunc(all, func(y *item) bool { return y == x })
					if x.place != -1 {
						t.Fatalf("an item that is out has place %d", x.place)
					}
				}
			},
			"": func(t *rapid.T) {
				if len(q) != len(all) || cap(q) > 256 && cap(q) > 5*len(q) {
					t.Fatalf("the queue has %d items in %d, want %d", len(q), cap(q), len(all))
				}
				for i, x := range q {
					if x.place != i || i > 0 && x.key < q[(i-1)/2].key || !slices.Contains(all, x) {
						t.Fatalf("item %d at %d has place %d, below %d", x.key, i, x.place, q[(i-1)/2].key)
					}
				}
			},
		})
		limit, below := rapid.IntRange(0, 21).Draw(t, "limit"), 0
		for _, x := range all {
			if x.key < limit {
				below++
			}
		}
		if first := First(q, func(x *item) bool { return x.key < limit }); len(first) != below {
			t.Fatalf("%d items are below %d, want %d", len(first), limit, below)
		}
		for last := 0; len(q) > 0; {
			x := q[0]
			if byKey.Remove(&q, x); x.key < last {
				t.Fatalf("%d comes behind %d", x.key, last)
			}
			last = x.key
		}
	})
}
