package view

import "testing"

func TestBarsNeverHideACount(t *testing.T) {
	for _, c := range []struct {
		n, most int64
		want    string
	}{{0, 0, ""}, {0, 10, ""}, {1, 1000000, "▏"}, {10, 10, "██████████"}, {5, 10, "█████"}, {9, 16, "█████▋"}} {
		if got := Bar(c.n, c.most, 10); got != c.want {
			t.Errorf("bar of %d of %d is %q, want %q", c.n, c.most, got, c.want)
		}
	}
}
