package importer

import (
	"encoding/binary"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/punctualmq/punctual"
)

// Redisson's delayed queue NAME is a sorted set, scores in milliseconds, and a list with the same
// members in the order of their coming.
const (
	redissonSet  = "redisson_delay_queue_timeout:"
	redissonList = "redisson_delay_queue:"
)

// Codec is how the bodies in Redisson's queue were encoded, and what becomes of them.
type Codec string

// The codecs.
const (
	// CodecRaw keeps the bytes as they are, whatever wrote them.
	CodecRaw Codec = "raw"
	// CodecString keeps them, too, and refuses what is not UTF-8: for Redisson's StringCodec.
	CodecString Codec = "string"
	// CodecJSON keeps them and refuses what is not JSON: for JsonJacksonCodec.
	CodecJSON Codec = "json"
	// CodecJSONText takes the text out of a JSON string: for strings written by JsonJacksonCodec.
	CodecJSONText Codec = "json-text"
)

// describeRedisson names the keys. Redisson puts the name into braces unless it has some.
func (s *source) describeRedisson(c Codec) {
	tagged := s.name
	if !strings.Contains(tagged, "{") {
		tagged = "{" + tagged + "}"
	}
	s.set, s.list, s.unit = redissonSet+tagged, redissonList+tagged, time.Millisecond
	s.read = func(e *entry) (punctual.NewMessage, *problem) { return readRedisson(e, s.name, c) }
}

// redissonName tells the queue of a sorted set's key.
func redissonName(key string) (string, bool) {
	name := strings.TrimPrefix(key, redissonSet)
	if inner, ok := strings.CutPrefix(name, "{"); ok && strings.Index(inner, "}") == len(inner)-1 {
		return inner[:len(inner)-1], true
	}
	return name, true
}

func readRedisson(e *entry, queue string, c Codec) (m punctual.NewMessage, p *problem) {
	value, ok := unpack(e.member)
	if !ok {
		return m, problemf(BadLayout, "the member is not an element of Redisson's delayed queue: its lengths do not fit")
	}
	body, p := c.decode(value)
	if p != nil {
		return m, p
	}
	m.ID = makeID(Redisson, queue, formatScore(e.score), e.member)
	m.Body = body
	return m, nil
}

// unpack takes the value out of a member. Since Redisson 3.21.1 that is
//
//	8 (1 byte) random (8 bytes) length (8 bytes, little-endian) value
//
// and before it was
//
//	random (8 bytes) length (8 bytes, little-endian) value
//
// which Redisson has the server pack, so that the length is a C long of the server: 8 bytes on
// every 64-bit Unix. The first form is tried first, because the second one fits it only when its
// first random byte is 8 and its value is a single zero byte.
func unpack(member string) (value string, ok bool) {
	if v, ok := lengthFirst(member, 9); ok && member[0] == 8 {
		return v, true
	}
	return lengthFirst(member, 8)
}

// lengthFirst returns what follows a length at the given offset, if it is all that follows.
func lengthFirst(s string, at int) (string, bool) {
	if len(s) < at+8 {
		return "", false
	}
	rest := s[at+8:]
	return rest, binary.LittleEndian.Uint64([]byte(s[at:at+8])) == uint64(len(rest))
}

func (c Codec) decode(value string) ([]byte, *problem) {
	switch c {
	case CodecString:
		if !utf8.ValidString(value) {
			return nil, problemf(BadBody, "the body is not a string in UTF-8: use --codec raw")
		}
	case CodecJSON:
		if !json.Valid([]byte(value)) {
			return nil, problemf(BadBody, "the body is not JSON: use --codec raw")
		}
	case CodecJSONText:
		var text string
		if err := json.Unmarshal([]byte(value), &text); err != nil || value == "null" {
			return nil, problemf(BadBody, "the body is not a JSON string: use --codec json or raw")
		}
		return []byte(text), nil
	}
	return []byte(value), nil
}
