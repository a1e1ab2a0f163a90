package script

import "testing"

// An answer that is something else is noticed.
func TestListRefusesOther(t *testing.T) {
	for _, items := range [][]any{nil, {"text"}, {[]any{"text", int64(1)}}, {[]any{nil}}} {
		r := Reader{Items: items}
		if got := r.List(); !r.Bad {
			t.Errorf("P13: %v was read as %v", items, got)
		}
	}
}
