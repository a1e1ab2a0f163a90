package term

import (
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/text"
)

// Printable makes text that came from messages safe to show: control and format characters, with
// which a message could steer the terminal, become �. Line breaks and tabs stay.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return '�'
	}, s)
}

// OneLine is Printable text in one line of at most n columns, with single spaces in the place of
// line breaks and other white space.
func OneLine(s string, n int) string {
	s = strings.Join(strings.Fields(Printable(s)), " ")
	return text.Snip(s, n, "…")
}
