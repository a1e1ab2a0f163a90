package wire

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/punctualmq/punctual"
)

// What a request can hold many of is bounded while it is decoded. A few bytes of JSON become a whole Go value, so a
// request within the limit of its bytes could take many times their memory.

// Take counts bytes of memory that a request takes beside its text, before they are kept. An error ends the request.
type Take func(bytes int64) error

// What an item and a header take beside their text. That is the value in a request, what the store says of it, and its part of
// an answer.
const (
	itemBytes   = 1 << 10
	headerBytes = 128
)

// ItemBytes is what n items take.
func ItemBytes(n int) int64 { return int64(n) * itemBytes }

// each reads an array one element at a time, so that what is refused is not kept.
type each[T any] struct {
	most int
	do   func(*T) error
	err  error // of do
	n    int
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

// decode is DecodeRequest for what has e in it. An error of e.do is returned as it is.
func (e *each[T]) decode(data []byte, into any) error {
	err := DecodeRequest(data, into)
	if e.err != nil {
		return e.err
	}
	return err
}

// DecodePush reads the items of a push, an array or a PushRequest, and calls do with each. It ends with the first error.
// Beyond most items it is an ErrTooLarge.
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

// Size is what the item takes in memory.
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

// Items are those of one request, at most punctual.MaxBatch of them. More are a punctual.ErrTooLarge.
type Items[T any] []T

// UnmarshalJSONFrom reads an array.
func (s *Items[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return decodeAtMost(d, (*[]T)(s), punctual.MaxBatch, "items")
}

// TopicNames are those of one claim, at most punctual.MaxClaimTopics of them. More are a punctual.ErrTooLarge.
type TopicNames []string

// UnmarshalJSONFrom reads an array.
func (s *TopicNames) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return decodeAtMost(d, (*[]string)(s), punctual.MaxClaimTopics, "topics")
}

// HeaderMap are the headers of a message, at most maxHeaders of them. More are a punctual.ErrTooLarge.
type HeaderMap map[string]string

// maxHeaders is above what fits into punctual.MaxHeaderBytes. No two names are equal, and there are 257 of less than two bytes.
const maxHeaders = punctual.MaxHeaderBytes/2 + 130

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

// decodeAtMost reads an array of at most so many elements.
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
