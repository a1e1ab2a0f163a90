package record

import (
	"encoding/binary"
	"math"
)

// Scripts take lists of short values as one value in the form of msgpack (msgpack.org), because
// Redis and this program are both quicker with one value than with thousands. Only what the scripts
// need is here: arrays, strings and numbers.

const (
	packFixString = 0xa0 // and the length, below 32
	packFloat64   = 0xcb
	packString8   = 0xd9
	packString16  = 0xda
	packString32  = 0xdb
	packArray32   = 0xdd
)

// PackedBytes bounds how many bytes a packed number, the head of an array or the head of a string
// has.
const PackedBytes = 9

// PackArray packs the head of an array, of which n values follow.
func PackArray(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(append(b, packArray32), uint32(n))
}

// PackNumber packs whole numbers below 2^53, and fractions.
func PackNumber(b []byte, x float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, packFloat64), math.Float64bits(x))
}

// PackString packs a text.
func PackString(b []byte, s string) []byte {
	return append(PackStringHead(b, len(s)), s...)
}

// PackStringHead packs the head of a text, of which n bytes follow.
func PackStringHead(b []byte, n int) []byte {
	switch {
	case n < 32:
		return append(b, packFixString|byte(n))
	case n < 1<<8:
		return append(b, packString8, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, packString16), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, packString32), uint32(n))
}
