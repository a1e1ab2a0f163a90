package storekit

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// Attributes are the fields of a message that are set by its push, stay with it until its end and
// come back with each delivery and in each list, without a part in the order of messages. They
// travel and are stored as one block of bytes, so that a further attribute needs a field here and
// in [punctual.NewMessage] and [punctual.Message], but no change of any store's format.
// CONTRIBUTING.md lists what else to touch.
//
// A block is empty when every attribute has its zero value. Else it is, by ascending tag and each
// tag once:
//
//	tag       uvarint, from 1
//	length    uvarint, the number of bytes of the value
//	value     as the tag says:
//	          1 remember: uvarint, ms, not 0
//	          2 timeout: uvarint, ms, not 0
//	          3 key: the bytes, not none
//
// A store that writes blocks keeps their bytes as they came, so that the tags of a newer program
// survive a retry by an older one.
type Attributes struct {
	// Remember is NewMessage.Remember and Timeout NewMessage.Timeout. In the block they are rounded
	// up to whole milliseconds.
	Remember, Timeout time.Duration
	// Key is NewMessage.Key. Unlike the others it has a part in the order of messages.
	Key string
}

const (
	tagRemember = 1
	tagTimeout  = 2
	tagKey      = 3
)

// NewAttributes returns the attributes of a message that is to be pushed.
func NewAttributes(m *punctual.NewMessage) Attributes {
	return Attributes{m.Remember, m.Timeout, m.Key}
}

// AttributesOf returns the attributes of a stored message.
func AttributesOf(m *punctual.Message) Attributes {
	return Attributes{m.Remember, m.Timeout, m.Key}
}

// Whole returns the attributes as a block has them, in whole milliseconds. None may be negative.
func (a Attributes) Whole() Attributes {
	return Attributes{WholeMillis(a.Remember), WholeMillis(a.Timeout), a.Key}
}

// SetNew gives m the attributes a.
func (a Attributes) SetNew(m *punctual.NewMessage) {
	m.Remember, m.Timeout, m.Key = a.Remember, a.Timeout, a.Key
}

// Set gives m the attributes a.
func (a Attributes) Set(m *punctual.Message) {
	m.Remember, m.Timeout, m.Key = a.Remember, a.Timeout, a.Key
}

// Check returns an ErrInvalid that says which attribute no push may have, or nil.
func (a Attributes) Check() error {
	if a.Remember < 0 || a.Remember > limits.MaxFinishedRetention {
		return Invalidf("ID remembered for %v: use at most %v, or 0 for the topic's window", a.Remember, limits.MaxFinishedRetention)
	}
	if a.Timeout < 0 || a.Timeout > limits.MaxTimeout {
		return Invalidf("timeout %v: use at most %v, or 0 for that of the worker", a.Timeout, limits.MaxTimeout)
	}
	if a.Key != "" {
		return CheckKey(a.Key)
	}
	return nil
}

// Block returns the attributes as a block of bytes, nil for none. No attribute may be negative.
func (a Attributes) Block() []byte {
	var block []byte
	if a.Remember != 0 {
		block = appendNumber(block, tagRemember, uint64(CeilDuration(a.Remember)))
	}
	if a.Timeout != 0 {
		block = appendNumber(block, tagTimeout, uint64(CeilDuration(a.Timeout)))
	}
	if a.Key != "" {
		block = append(binary.AppendUvarint(append(block, tagKey), uint64(len(a.Key))), a.Key...)
	}
	return block
}

func appendNumber(b []byte, tag, value uint64) []byte {
	var digits [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(digits[:], value)
	b = binary.AppendUvarint(b, tag)
	b = binary.AppendUvarint(b, uint64(n))
	return append(b, digits[:n]...)
}

// ReadAttributes reads a block. It passes over tags that it does not know. What is no block is an
// error without a kind, to which the caller adds what the block belongs to and what kind of error
// that makes.
func ReadAttributes(block []byte) (a Attributes, err error) {
	last := uint64(0)
	for rest := block; len(rest) > 0; {
		tag, n := binary.Uvarint(rest)
		length, m := uint64(0), 0
		if n > 0 {
			length, m = binary.Uvarint(rest[n:])
		}
		if n <= 0 || m <= 0 || length > uint64(len(rest)-n-m) {
			return Attributes{}, fmt.Errorf("attributes of %d bytes are cut short", len(block))
		}
		if tag <= last {
			return Attributes{}, fmt.Errorf("attributes: tag %d stands behind %d", tag, last)
		}
		last = tag
		value := rest[n+m:][:length]
		rest = rest[n+m+int(length):]
		switch tag {
		case tagRemember:
			a.Remember, err = millisOf(value)
		case tagTimeout:
			a.Timeout, err = millisOf(value)
		case tagKey:
			a.Key = string(value)
		}
		if err != nil {
			return Attributes{}, fmt.Errorf("attributes: tag %d: %w", tag, err)
		}
	}
	return a, nil
}

// millisOf reads a number of milliseconds that takes up all of value and is not 0.
func millisOf(value []byte) (time.Duration, error) {
	ms, n := binary.Uvarint(value)
	if n <= 0 || n != len(value) || ms == 0 || ms > math.MaxInt64/uint64(time.Millisecond) {
		return 0, fmt.Errorf("% x is no number of milliseconds", value)
	}
	return time.Duration(ms) * time.Millisecond, nil
}
