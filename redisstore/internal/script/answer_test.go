package script

import "testing"

// P13: List notices a value that is no array of texts.
func TestListRefusesOther(t *testing.T) {
	for _, items := range [][]any{nil, {"text"}, {[]any{"text", int64(1)}}, {[]any{nil}}} {
		r := Reader{Items: items}
		if got := r.List(); !r.Bad {
			t.Errorf("P13: %v was read as %v", items, got)
		}
	}
}
