package wire

import (
	"encoding/base64"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/storekit"
)

// Time is an instant in RFC 3339 and UTC, with three digits of milliseconds, or more if the time is
// finer.
type Time time.Time

// IsZero lets omitzero leave out the zero time.
func (t Time) IsZero() bool { return time.Time(t).IsZero() }

// AppendText appends the time as notation.FormatTime writes it.
func (t Time) AppendText(b []byte) ([]byte, error) {
	return notation.AppendTime(b, time.Time(t)), nil
}

// UnmarshalText reads a time as notation.ParseTime does. It also reads times in the year 10000,
// which RFC 3339 cannot write, because leases and expiries of messages that are due shortly before
// limits.MaxDue end in that year.
func (t *Time) UnmarshalText(text []byte) error {
	rest, behind := strings.CutPrefix(string(text), "10000-")
	if behind {
		text = []byte("2000-" + rest) // a leap year like 10000
	}
	v, err := notation.ParseTime(string(text))
	if behind {
		v = v.AddDate(8000, 0, 0)
	}
	*t = Time(v.UTC())
	return err
}

// Duration is a length of time as package notation writes it.
type Duration time.Duration

// AppendText appends the duration as notation.FormatDuration writes it.
func (d Duration) AppendText(b []byte) ([]byte, error) {
	return append(b, notation.FormatDuration(time.Duration(d))...), nil
}

// UnmarshalText reads a duration as notation.ParseDuration does.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := notation.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// Given is a text that a request may leave out but not give empty. An empty text is an error that
// names its place, because a shell sends one for a variable that is not set. The value "" means
// that it was left out.
type Given string

// UnmarshalText reads text that is not empty.
func (g *Given) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return storekit.Invalidf("the text is empty: give a value, or leave the name out")
	}
	*g = Given(text)
	return nil
}

// DurationText returns d for a member or parameter that may be left out: "" for 0.
func DurationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return notation.FormatDuration(d)
}

// TimeText returns t for a member or parameter that may be left out: "" for the zero Time.
func TimeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return notation.FormatTime(t)
}

// ParseDurationText is the inverse of DurationText. Its error names field.
func ParseDurationText(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := notation.ParseDuration(text)
	return d, inField(field, err)
}

// ParseTimeText is the inverse of TimeText. Its error names field.
func ParseTimeText(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := notation.ParseTime(text)
	return t.UTC(), inField(field, err)
}

// Text is a body that is UTF-8. A request may have any other JSON value but null in its place: the
// body is then the text of that value, as the request has it. Nil means that there is no body.
type Text []byte

// MarshalJSONTo writes the body as a string.
func (t Text) MarshalJSONTo(e *jsontext.Encoder) error {
	return e.WriteToken(jsontext.String(string(t))) // WriteValue would parse the text again
}

// UnmarshalJSONFrom decodes a string and keeps the text of any other value. Null means no body.
func (t *Text) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	switch v.Kind() {
	case jsontext.KindNull:
		*t = nil
	case jsontext.KindString:
		*t, err = jsontext.AppendUnquote(make([]byte, 0, len(v)), v)
	default:
		*t = append(make(Text, 0, len(v)), v...)
	}
	return err
}

// Body is a message's body, either as Text, which is UTF-8, or as Base64.
type Body struct {
	Text   Text   `json:"body,omitzero"`
	Base64 []byte `json:"body_base64,omitzero"`
}

// BodyOf returns body for an answer or request, without a copy.
func BodyOf(body []byte) Body {
	if body == nil {
		body = []byte{}
	}
	if utf8.Valid(body) {
		return Body{Text: body}
	}
	return Body{Base64: body}
}

// bodyToPush is BodyOf for a message to push. It takes Base64 also for text that would be longer in
// quotes, such as zero bytes, each of which is six bytes in JSON. So a large body has at most about
// 4/3 of its bytes in a request.
func bodyToPush(body []byte) Body {
	quoted := len(body)
	for _, c := range body {
		switch {
		case c == '"', c == '\\':
			quoted++
		case c < ' ':
			quoted += 5
		}
	}
	if quoted > base64.StdEncoding.EncodedLen(len(body)) {
		return Body{Base64: body}
	}
	return BodyOf(body)
}

// Bytes returns the body, nil if it is empty. If Text and Base64 are both given, or neither is, it
// returns an ErrInvalid.
func (b Body) Bytes() ([]byte, error) {
	switch {
	case b.Text != nil && b.Base64 != nil:
		return nil, storekit.Invalidf("\"body\" and \"body_base64\" are both given: use one")
	case b.Text == nil && b.Base64 == nil:
		return nil, storekit.Invalidf("\"body\" is missing: give it, or \"body_base64\"; it may be empty")
	case len(b.Text) > 0:
		return b.Text, nil
	case len(b.Base64) > 0:
		return b.Base64, nil
	}
	return nil, nil
}

// Headers are a message's headers. Text has the headers whose name and value are UTF-8, Base64 the
// others, with name and value encoded.
type Headers struct {
	Text   HeaderMap `json:"headers,omitzero"`
	Base64 HeaderMap `json:"headers_base64,omitempty"`
}

// HeadersOf returns h for an answer or request. Text is h itself if everything in h is UTF-8.
func HeadersOf(h map[string]string) Headers {
	text := true
	for name, value := range h {
		text = text && utf8.ValidString(name) && utf8.ValidString(value)
	}
	if text {
		if h == nil {
			h = map[string]string{}
		}
		return Headers{Text: h}
	}
	out := Headers{Text: map[string]string{}, Base64: map[string]string{}}
	for name, value := range h {
		if utf8.ValidString(name) && utf8.ValidString(value) {
			out.Text[name] = value
		} else {
			out.Base64[encodeBase64(name)] = encodeBase64(value)
		}
	}
	return out
}

// Map returns the headers as one map, nil if there are none. It may share h.Text. A header that is
// malformed or given twice is an ErrInvalid.
func (h Headers) Map() (map[string]string, error) {
	if len(h.Base64) == 0 {
		if len(h.Text) == 0 {
			return nil, nil
		}
		return h.Text, nil
	}
	out := make(map[string]string, len(h.Text)+len(h.Base64))
	for name, value := range h.Text {
		out[name] = value
	}
	for name, value := range h.Base64 {
		n, err := decodeBase64(name)
		if err != nil {
			return nil, storekit.Invalidf("\"headers_base64\": the name %q is not standard base64", name)
		}
		v, err := decodeBase64(value)
		if err != nil {
			return nil, storekit.Invalidf("\"headers_base64\": the value of %q is not standard base64", name)
		}
		if _, twice := out[n]; twice {
			return nil, storekit.Invalidf("the header %q is given twice", n)
		}
		out[n] = v
	}
	return out, nil
}

// checkText returns an ErrInvalid unless s is UTF-8, which JSON needs.
func checkText(what, s string) error {
	if !utf8.ValidString(s) {
		return storekit.Invalidf("%s %q is not UTF-8", what, s)
	}
	return nil
}

func trimKind(text string) string { return strings.TrimSuffix(text, ": "+punctual.ErrInvalid.Error()) }
