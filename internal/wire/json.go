package wire

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/punctualmq/punctual"
)

// DecodeRequest reads one JSON value strictly: a duplicate name, an unknown name, text that is not
// UTF-8, very deep nesting and data behind the value are an ErrInvalid that names the place. More
// items, topics or headers than a request may have are an ErrTooLarge.
func DecodeRequest(data []byte, into any) error {
	if err := json.Unmarshal(data, into, json.RejectUnknownMembers(true)); err != nil {
		return malformed(data, err)
	}
	return nil
}

// DecodeAnswer reads one JSON value as DecodeRequest does, but ignores unknown names, because a
// newer server may send them.
func DecodeAnswer(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return malformed(data, err)
	}
	return nil
}

// Encode returns v as JSON, with the members of maps in the order of their names. It fails on text
// that is not UTF-8.
func Encode(v any) ([]byte, error) { return json.Marshal(v, json.Deterministic(true)) }

// EncodeText returns v as JSON for a terminal or a script. Where Encode fails on text that is not
// UTF-8, EncodeText writes � in place of each invalid byte.
func EncodeText(v any) ([]byte, error) {
	return json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
}

// Lines iterates over the lines of NDJSON that are not blank, with their numbers from 1.
func Lines(data []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		number := 0
		for line := range bytes.Lines(data) {
			number++
			if line = bytes.TrimSpace(line); len(line) > 0 && !yield(number, line) {
				return
			}
		}
	}
}

// malformed turns an error of the decoder into one that says what is wrong and where, in terms of
// JSON and not of Go.
func malformed(data []byte, err error) error {
	if e := (*json.SemanticError)(nil); errors.As(err, &e) {
		if errors.Is(e.Err, punctual.ErrTooLarge) {
			return fmt.Errorf("JSON %s: %w", place(e.JSONPointer, e.ByteOffset), e.Err)
		}
		return fmt.Errorf("JSON %s: %s: %w", place(e.JSONPointer, e.ByteOffset), semantics(e), punctual.ErrInvalid)
	}
	if e := (*jsontext.SyntacticError)(nil); errors.As(err, &e) {
		return fmt.Errorf("JSON %s: %s: %w", place(e.JSONPointer, e.ByteOffset), syntax(data, e), punctual.ErrInvalid)
	}
	return fmt.Errorf("JSON: %w (%w)", punctual.ErrInvalid, err)
}

func place(at jsontext.Pointer, offset int64) string {
	if at == "" {
		return fmt.Sprintf("at byte %d", offset)
	}
	if len(at) > 200 {
		at = at[:200] + "…"
	}
	return fmt.Sprintf("at %q, byte %d", string(at), offset)
}

func syntax(data []byte, e *jsontext.SyntacticError) string {
	switch {
	case errors.Is(e.Err, io.ErrUnexpectedEOF) && len(bytes.TrimSpace(data)) == 0:
		return "there is nothing where a JSON value is expected"
	case errors.Is(e.Err, io.ErrUnexpectedEOF):
		return "the value is not complete"
	case errors.Is(e.Err, jsontext.ErrDuplicateName):
		return "the name is given twice"
	case !utf8.Valid(data):
		return "text that is not UTF-8: give bytes as body_base64"
	}
	return e.Err.Error()
}

func semantics(e *json.SemanticError) string {
	switch {
	case errors.Is(e.Err, json.ErrUnknownName):
		return "the name is not known" + namesOf(e.GoType)
	case errors.Is(e.Err, punctual.ErrInvalid):
		return trimKind(e.Err.Error())
	}
	if wanted := kindOf(e.GoType); wanted != "" && e.JSONKind != jsontext.KindInvalid {
		return fmt.Sprintf("%s where %s is expected", given(e.JSONKind), wanted)
	}
	if e.Err != nil {
		return e.Err.Error()
	}
	return "not of the form that is expected"
}

// namesOf returns ": use " and the members of the struct t, or "" if t is none.
func namesOf(t reflect.Type) string {
	var names []string
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name != "":
				names = append(names, name)
			case f.Anonymous:
				add(f.Type)
			}
		}
	}
	if t == nil || t.Kind() != reflect.Struct {
		return ""
	}
	add(t)
	return ": use " + strings.Join(names, ", ")
}

func given(k jsontext.Kind) string {
	switch k {
	case jsontext.KindBeginArray:
		return "an array"
	case jsontext.KindBeginObject:
		return "an object"
	case jsontext.KindString, jsontext.KindNumber:
		return "a " + k.String()
	}
	return k.String()
}

// kindOf names the JSON value that a Go type is decoded from, or returns "".
func kindOf(t reflect.Type) string {
	if t == nil {
		return ""
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "a string"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string of standard base64"
		}
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return ""
}
