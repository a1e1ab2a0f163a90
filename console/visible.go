package console

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible returns s with these characters, which could deceive a reader, written as escapes:
// control characters, format characters such as marks of text direction, separators of lines and
// paragraphs, and bytes that are not UTF-8. Line feeds and tabs stay.
func visible(s string) string {
	if !strings.ContainsFunc(s, deceives) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02X`, s[i])
		case deceives(r) && r != utf8.RuneError:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func deceives(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case r == utf8.RuneError:
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)
}

// Text returns a text that comes from the store in the form that visible gives it.
func (f *frame) Text(s string) string { return visible(s) }
