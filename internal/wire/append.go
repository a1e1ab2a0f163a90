package wire

import (
	"encoding/base64"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/storekit"
)

// The answers to a push, a claim and a settle are written as JSON nearly without reflection,
// because reflection would take most of the time of such an answer. The bytes are exactly those
// that Encode writes for PushAnswer, ClaimAnswer and SettleAnswer, which a test compares.

// jsonWriter collects JSON in b. A method with a parameter name appends one member. name is the
// member's name with its quotes and its colon, and with the comma or brace in front of it.
type jsonWriter struct {
	b   []byte
	err error // about the first text that was not UTF-8, or the first value that could not be encoded
}

func (w *jsonWriter) raw(s string) { w.b = append(w.b, s...) }

func quote[T ~string | ~[]byte](w *jsonWriter, s T) {
	var err error
	if w.b, err = jsontext.AppendQuote(w.b, s); err != nil && w.err == nil {
		w.err = storekit.Invalidf("%q is not UTF-8", string(s))
	}
}

func (w *jsonWriter) text(name, value string) {
	w.raw(name)
	quote(w, value)
}

// textIf appends a member unless its value is empty.
func (w *jsonWriter) textIf(name, value string) {
	if value != "" {
		w.text(name, value)
	}
}

func (w *jsonWriter) number(name string, n int64) {
	w.raw(name)
	w.b = strconv.AppendInt(w.b, n, 10)
}

func (w *jsonWriter) time(name string, t time.Time) {
	w.raw(name)
	w.b = append(w.b, '"')
	w.b = notation.AppendTime(w.b, t)
	w.b = append(w.b, '"')
}

func (w *jsonWriter) body(body []byte) {
	from := len(w.b)
	w.raw(`,"body":`)
	b, err := jsontext.AppendQuote(w.b, body)
	if err == nil {
		w.b = b
		return
	}
	w.b = append(w.b[:from], `,"body_base64":"`...)
	w.b = base64.StdEncoding.AppendEncode(w.b, body)
	w.b = append(w.b, '"')
}

func (w *jsonWriter) headers(h map[string]string) {
	if len(h) == 0 {
		w.raw(`,"headers":{}`)
		return
	}
	parts := HeadersOf(h)
	w.object(`,"headers":{`, parts.Text)
	if len(parts.Base64) > 0 {
		w.object(`,"headers_base64":{`, parts.Base64)
	}
}

func (w *jsonWriter) object(name string, m map[string]string) {
	w.raw(name)
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		quote(w, key)
		w.b = append(w.b, ':')
		quote(w, m[key])
	}
	w.b = append(w.b, '}')
}

// value appends a member of any type with Encode, for values that are rare.
func (w *jsonWriter) value(name string, v any) {
	w.raw(name)
	data, err := Encode(v)
	if err != nil && w.err == nil {
		w.err = err
	}
	w.b = append(w.b, data...)
}

func or(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

func jsonPushAnswer(rs []punctual.PushResult) ([]byte, error) {
	w := &jsonWriter{b: make([]byte, 0, 140*len(rs)+16)}
	w.raw(`{"results":[`)
	for i := range rs {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.pushResult(&rs[i])
	}
	w.raw(`]}`)
	return w.b, w.err
}

// EncodePushLines returns the answer to a push of NDJSON: one result on each line.
func EncodePushLines(rs []punctual.PushResult) ([]byte, error) {
	w := new(jsonWriter)
	for i := range rs {
		w.pushResult(&rs[i])
		w.b = append(w.b, '\n')
	}
	return w.b, w.err
}

func (w *jsonWriter) pushResult(r *punctual.PushResult) {
	from := len(w.b)
	w.textIf(`,"id":`, r.ID)
	w.textIf(`,"topic":`, r.Topic)
	if !r.Due.IsZero() {
		w.time(`,"due":`, r.Due)
	}
	w.textIf(`,"result":`, r.Status.String())
	w.textIf(`,"existing":`, r.Existing.String())
	if r.Err != nil {
		w.value(`,"error":`, ItemProblem(r.Err))
	}
	if len(w.b) == from {
		w.b = append(w.b, '{')
	}
	w.b[from] = '{'
	w.b = append(w.b, '}')
}

func jsonClaimAnswer(out io.Writer, ds []punctual.Delivery) error {
	size := 0
	for i := range ds {
		size += len(ds[i].Body)*4/3 + 420
	}
	w := &jsonWriter{b: make([]byte, 0, min(size, 2*pieceBytes))}
	w.raw(`{"messages":[`)
	for i := range ds {
		if len(w.b) >= pieceBytes {
			if _, err := out.Write(w.b); err != nil {
				return err
			}
			w.b = w.b[:0]
		}
		d := &ds[i]
		w.text(or(i == 0, `{"id":`, `,{"id":`), d.ID)
		w.text(`,"topic":`, d.Topic)
		w.number(`,"token":"`, d.Token)
		w.b = append(w.b, '"')
		w.body(d.Body)
		w.headers(d.Headers)
		w.time(`,"due":`, d.Due)
		w.time(`,"first_due":`, d.FirstDue)
		w.time(`,"created":`, d.Created)
		w.time(`,"delivered":`, d.Delivered)
		w.number(`,"late_ms":`, max(0, d.Late().Milliseconds()))
		w.number(`,"total_late_ms":`, max(0, d.TotalLate().Milliseconds()))
		w.time(`,"lease_until":`, d.LeaseUntil)
		w.number(`,"attempt":`, int64(d.Attempt))
		if d.MaxAttempts != 0 {
			w.number(`,"max_attempts":`, int64(d.MaxAttempts))
		}
		if !d.Expires.IsZero() {
			w.time(`,"expires":`, d.Expires)
		}
		if d.DropExpired {
			w.raw(`,"drop_expired":true`)
		}
		w.attributes(storekit.AttributesOf(&d.Message))
		if !d.Turn.IsZero() {
			w.time(`,"turn":`, d.Turn)
		}
		if len(d.Failures) > 0 {
			w.value(`,"failures":`, failuresOf(d.Failures))
		}
		w.b = append(w.b, '}')
		if w.err != nil {
			return w.err
		}
	}
	w.raw(`]}`)
	_, err := out.Write(w.b)
	return err
}

// pieceBytes is the size at which a part of a large answer is written out.
const pieceBytes = 64 << 10

func jsonSettleAnswer(ss []punctual.Settlement, errs []error) ([]byte, error) {
	w := &jsonWriter{b: make([]byte, 0, 70*len(ss)+16)}
	w.raw(`{"results":[`)
	for i := range ss {
		w.text(or(i == 0, `{"topic":`, `,{"topic":`), ss[i].Topic)
		w.text(`,"id":`, ss[i].ID)
		if errs[i] != nil {
			w.value(`,"error":`, ItemProblem(errs[i]))
		}
		w.b = append(w.b, '}')
	}
	w.raw(`]}`)
	return w.b, w.err
}
