package worker

import (
	"math"
	"slices"
	"testing"
)

func TestDrawOrderFollowsTheWeights(t *testing.T) {
	topics, weights := []string{"a", "b", "c"}, []int{1, 2, 7}
	const draws = 30_000
	first, second := map[string]int{}, map[string]int{}
	for range draws {
		order := drawOrder(topics, weights)
		sorted := slices.Clone(order)
		slices.Sort(sorted)
		if !slices.Equal(sorted, topics) {
			t.Fatalf("order %q is not a permutation of %q", order, topics)
		}
		first[order[0]]++
		if order[0] == "c" {
			second[order[1]]++
		}
	}
	// The standard deviation of a share is less than 0.004.
	near := func(what string, got, of int, want float64) {
		if share := float64(got) / float64(of); math.Abs(share-want) > 0.03 {
			t.Errorf("%s: share %.3f, want %.3f", what, share, want)
		}
	}
	near("a first", first["a"], draws, 0.1)
	near("b first", first["b"], draws, 0.2)
	near("c first", first["c"], draws, 0.7)
	near("a second behind c", second["a"], first["c"], 1.0/3)
	if !slices.Equal(topics, []string{"a", "b", "c"}) {
		t.Errorf("the topics given were changed: %q", topics)
	}
}

func TestPacingGrowsToItsBound(t *testing.T) {
	var p backoff
	for i := range 100 {
		most := longestBackoff
		if i < 7 {
			most = min(shortestBackoff<<i, longestBackoff)
		}
		if d := p.next(); d <= most/2 || d > most {
			t.Errorf("delay %d is %v, want it in (%v, %v]", i, d, most/2, most)
		}
	}
}
