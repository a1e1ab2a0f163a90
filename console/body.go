package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"unicode/utf8"
)

// bodyView is a body as a page shows it.
type bodyView struct {
	// Kind is how the body is shown: "json", "text" or "hex". Kinds are all the ways in which this
	// body can be shown.
	Kind  string
	Kinds []string
	Text  string
	// Bytes is the length of the body. Cut is true if Text has only the beginning of what is shown.
	Cut   bool
	Bytes int
}

// shownBody is how many bytes of a body a page shows as text. In hexadecimal a page shows a
// sixteenth of that: 256 lines of 16 bytes.
const shownBody = 64 << 10

// bodyAs returns a body in the form that kind names. If the body cannot be shown in that form, or
// kind is "", the first of Kinds is used.
func bodyAs(body []byte, kind string) *bodyView {
	v := &bodyView{Kinds: []string{"hex"}, Bytes: len(body)}
	if utf8.Valid(body) {
		v.Kinds = []string{"text", "hex"}
	}
	isJSON := len(body) > 0 && json.Valid(body)
	if isJSON {
		v.Kinds = []string{"json", "text", "hex"}
	}
	v.Kind = v.Kinds[0]
	for _, k := range v.Kinds {
		if k == kind {
			v.Kind = k
		}
	}
	switch v.Kind {
	case "json":
		var indented bytes.Buffer
		if err := json.Indent(&indented, body, "", "  "); err == nil {
			body = indented.Bytes()
		}
		v.Text, v.Cut = textOf(body)
	case "text":
		v.Text, v.Cut = textOf(body)
	default:
		if v.Cut = len(body) > shownBody/16; v.Cut {
			body = body[:shownBody/16]
		}
		v.Text = hex.Dump(body)
	}
	return v
}

func textOf(body []byte) (text string, cut bool) {
	if cut = len(body) > shownBody; cut {
		body = body[:shownBody]
		for !utf8.Valid(body) {
			body = body[:len(body)-1]
		}
	}
	return visible(string(body)), cut
}
