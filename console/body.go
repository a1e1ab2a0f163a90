package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"unicode/utf8"
)

// bodyView is a body as a page shows it.
type bodyView struct {
	// Kind is how the body is shown: "json", "text" or "hex". Kinds are the ways in which it can be shown.
	Kind  string
	Kinds []string
	Text  string
	// Bytes is the length of the body. Cut is true if Text has only its beginning.
	Cut   bool
	Bytes int
}

// shownBody is how many bytes of a body a page shows as text. In hexadecimal it shows a sixteenth of that, because a line holds 16 bytes.
const shownBody = 64 << 10

// bodyAs returns a body as the kind says, or in the first kind that fits if it cannot be shown so.
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
