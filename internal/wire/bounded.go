package wire

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/punctualmq/punctual"
)

// What a request can hold many of is bounded while it is decoded. A few bytes of JSON become a whole Go value, so a
// request within the limit of its bytes could take many times their memory.

// Items are those of one request, at most punctual.MaxBatch of them. More are a punctual.ErrTooLarge.
type Items[T any] []T

// UnmarshalJSONFrom reads an array.
func (s *Items[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return decodeAtMost(d, (*[]T)(s), punctual.MaxBatch, "items")
}

// TopicNames are those of one claim, at most maxTopicNames of them. More are a punctual.ErrTooLarge.
type TopicNames []string

const maxTopicNames = 100_000

// UnmarshalJSONFrom reads an array.
func (s *TopicNames) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return decodeAtMost(d, (*[]string)(s), maxTopicNames, "topics")
}

// HeaderMap are the headers of a message, at most maxHeaders of them. More are a punctual.ErrTooLarge.
type HeaderMap map[string]string

// maxHeaders is above what fits into punctual.MaxHeaderBytes, since no two names are equal.
const maxHeaders = punctual.MaxHeaderBytes + 1

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
