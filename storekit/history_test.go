package storekit

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/punctualmq/punctual/limits"
)

func TestTrimError(t *testing.T) {
	short := strings.Repeat("x", limits.MaxErrorBytes)
	if got := TrimError(short); got != short {
		t.Errorf("a text of %d bytes was changed", len(short))
	}
	long := strings.Repeat("x", 5000)
	got := TrimError(long)
	if len(got) != limits.MaxErrorBytes || !strings.Contains(got, "5000 bytes in all") || !strings.HasPrefix(got, "xxx") {
		t.Errorf("5000 bytes were cut to %d: %q", len(got), got)
	}
	if !utf8.ValidString(got) {
		t.Errorf("the cut text is not valid UTF-8: %q", got)
	}
}

// TestTrimErrorCutsBetweenCharacters: wherever the cut falls, what is left of the text is whole
// characters, as many as there is room for.
func TestTrimErrorCutsBetweenCharacters(t *testing.T) {
	for _, char := range []string{"x", "é", "字", "😀"} {
		for shift := range 4 {
			long := strings.Repeat("x", shift) + strings.Repeat(char, 2000)
			got := TrimError(long)
			kept, note, cut := strings.Cut(got, "…")
			if !cut || note != fmt.Sprintf(" (%d bytes in all)", len(long)) {
				t.Fatalf("%d characters of %d bytes were cut to %q", 2000, len(char), got)
			}
			if !utf8.ValidString(got) || !strings.HasPrefix(long, kept) {
				t.Errorf("the text was cut inside a character of %d bytes: %q", len(char), got)
			}
			if len(got) > limits.MaxErrorBytes || len(got) <= limits.MaxErrorBytes-len(char) {
				t.Errorf("a text of characters of %d bytes was cut to %d bytes; want as many as fit in %d", len(char), len(got), limits.MaxErrorBytes)
			}
		}
	}
	// At the limit itself nothing is cut, and one byte more is.
	for _, char := range []string{"é", "字", "😀"} {
		text := strings.Repeat(char, limits.MaxErrorBytes/len(char))
		text += strings.Repeat("x", limits.MaxErrorBytes-len(text))
		if TrimError(text) != text {
			t.Errorf("a text of %d bytes was changed", len(text))
		}
		if got := TrimError(text + "x"); !utf8.ValidString(got) || len(got) > limits.MaxErrorBytes {
			t.Errorf("a text of %d bytes was cut to %q", len(text)+1, got)
		}
	}
}
