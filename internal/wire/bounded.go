package wire

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// The number of items, follow-ups, topics and message headers of a request is bounded while the
// request is decoded. A few bytes of JSON become a whole Go value, so a request within the limit of
// its bytes could otherwise take many times as much memory.

// Take counts bytes of memory that a request is about to take beside its text. An error ends the
// decoding of the request.
type Take func(bytes int64) error

// The memory that an item and a header take beside their text: for the value in the request, for
// the store's result, and for their part of the answer.
const (
	itemBytes   = 1 << 10
	headerBytes = 128
)

// ItemBytes returns how many bytes of memory n items take beside their text.
func ItemBytes(n int) int64 { return int64(n) * itemBytes }

// each decodes an array by calling do with one element at a time, so that refused elements are not
// kept in memory. It fails beyond most elements.
type each[T any] struct {
	most int
	do   func(*T) error
	err  error // the error that do returned
	n    int   // elements read
}

// UnmarshalJSONFrom reads an array.
func (e *each[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != jsontext.KindBeginArray {
		var none []T
		return json.UnmarshalDecode(d, &none) // null, or the error
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for k := d.PeekKind(); k != jsontext.KindEndArray && k != jsontext.KindInvalid; k = d.PeekKind() {
		if e.n == e.most {
			return tooMany(e.most, "items")
		}
		e.n++
		var item T
		if err := json.UnmarshalDecode(d, &item); err != nil {
			return err
		}
		if e.err = e.do(&item); e.err != nil {
			return e.err
		}
	}
	_, err := d.ReadToken()
	return err
}

// decode calls DecodeRequest with a value that contains e. It returns an error of e.do as it is,
// without the place in the JSON.
func (e *each[T]) decode(data []byte, into any) error {
	err := DecodeRequest(data, into)
	if e.err != nil {
		return e.err
	}
	return err
}

// DecodePush reads the items of a push, which is an array or a PushRequest, and calls do with each
// of them. It ends with the first error. More than most items are an ErrTooLarge.
func DecodePush(data []byte, most int, do func(*PushItem) error) error {
	e := each[PushItem]{most: most, do: do}
	if text := bytes.TrimSpace(data); len(text) > 0 && text[0] == '[' {
		return e.decode(data, &e)
	}
	r := struct {
		Messages *each[PushItem] `json:"messages"`
	}{&e}
	if err := e.decode(data, &r); err != nil {
		if e.err != nil || errors.Is(err, punctual.ErrTooLarge) {
			return err
		}
		return fmt.Errorf("many messages are an array, an object with messages, or lines with Content-Type %s: %w", TypeNDJSON, err)
	}
	return nil
}

// DecodeSettle reads the items of a SettleRequest as DecodePush does.
func DecodeSettle(data []byte, most int, do func(*SettleItem) error) error {
	e := each[SettleItem]{most: most, do: do}
	return e.decode(data, &struct {
		Settlements *each[SettleItem] `json:"settlements"`
	}{&e})
}

// DecodeAmend reads the items of an AmendRequest as DecodePush does.
func DecodeAmend(data []byte, most int, do func(*AmendItem) error) error {
	e := each[AmendItem]{most: most, do: do}
	return e.decode(data, &struct {
		Amendments *each[AmendItem] `json:"amendments"`
	}{&e})
}

// Size returns about how many bytes of memory the item takes.
func (p *PushItem) Size() int64 {
	n := itemBytes + int64(len(p.Topic)+len(p.ID)+len(p.Body.Text)+len(p.Body.Base64))
	return n + sizeInMemory(p.Headers.Text) + sizeInMemory(p.Headers.Base64)
}

func sizeInMemory(h map[string]string) int64 {
	n := int64(0)
	for name, value := range h {
		n += headerBytes + int64(len(name)+len(value))
	}
	return n
}

// Items are the items of one request. Decoding more than limits.MaxBatch of them is a
// punctual.ErrTooLarge.
type Items[T any] []T

// UnmarshalJSONFrom reads an array.
func (s *Items[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return decodeAtMost(d, (*[]T)(s), limits.MaxBatch, "items")
}

// TopicNames are the topics of one claim. Decoding more than limits.MaxClaimTopics of them is a
// punctual.ErrTooLarge.
type TopicNames []string

// UnmarshalJSONFrom reads an array.
func (s *TopicNames) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return decodeAtMost(d, (*[]string)(s), limits.MaxClaimTopics, "topics")
}

// HeaderMap is the headers of a message, or those that a message has to have. Decoding more than
// maxHeaders of them is a punctual.ErrTooLarge.
type HeaderMap map[string]string

// maxHeaders is more than how many headers fit into limits.MaxHeaderBytes. Names differ, and only
// 257 of them have fewer than two bytes, so nearly all headers take at least two.
const maxHeaders = limits.MaxHeaderBytes/2 + 130

// UnmarshalJSONFrom reads an object.
func (m *HeaderMap) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != jsontext.KindBeginObject {
		return json.UnmarshalDecode(d, (*map[string]string)(m)) // null, or the error
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	out := make(HeaderMap)
	for d.PeekKind() == jsontext.KindString {
		if len(out) == maxHeaders {
			return tooMany(maxHeaders, "headers")
		}
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		key, value := name.String(), ""
		if err := json.UnmarshalDecode(d, &value); err != nil {
			return err
		}
		out[key] = value
	}
	*m = out
	_, err := d.ReadToken()
	return err
}

// Days are the days on which a schedule does not come. Decoding more than MaxExcept of them is a
// punctual.ErrTooLarge.
type Days []string

// MaxExcept is how many days schedule.Schedule.Except has at most.
const MaxExcept = 400

// UnmarshalJSONFrom reads an array.
func (s *Days) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return decodeAtMost(d, (*[]string)(s), MaxExcept, "days")
}

// decodeAtMost reads an array of at most most elements. what names them in the error for more.
func decodeAtMost[T any](d *jsontext.Decoder, into *[]T, most int, what string) error {
	if d.PeekKind() != jsontext.KindBeginArray {
		return json.UnmarshalDecode(d, into) // null, or the error
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	out := []T{}
	for k := d.PeekKind(); k != jsontext.KindEndArray && k != jsontext.KindInvalid; k = d.PeekKind() {
		if len(out) == most {
			return tooMany(most, what)
		}
		var zero T
		out = append(out, zero)
		if err := json.UnmarshalDecode(d, &out[len(out)-1]); err != nil {
			return err
		}
	}
	*into = out
	_, err := d.ReadToken()
	return err
}

func tooMany(most int, what string) error {
	return fmt.Errorf("more than %d %s: send fewer: %w", most, what, punctual.ErrTooLarge)
}
