package record

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/punctualmq/punctual/diskstore/internal/errkind"
)

// Position is a place in the order of one topic: a time and, among equals, the order of arrival.
type Position struct {
	Ms  int64  // Unix milliseconds
	Seq uint64 // the number of the message, which no other message of the store ever gets
}

// Stored is a message as it is on disk.
type Stored struct {
	At     Position
	Record []byte
}

// MinPosition and MaxPosition bound every position.
var (
	MinPosition = Position{Ms: math.MinInt64}
	MaxPosition = Position{Ms: math.MaxInt64, Seq: math.MaxUint64}
)

// Less tells whether p comes before q.
func (p Position) Less(q Position) bool { return p.Ms < q.Ms || p.Ms == q.Ms && p.Seq < q.Seq }

// Next returns the first position after p. MaxPosition has none, so Next returns it unchanged.
func (p Position) Next() Position {
	switch {
	case p.Seq < MaxPosition.Seq:
		return Position{p.Ms, p.Seq + 1}
	case p.Ms < MaxPosition.Ms:
		return Position{Ms: p.Ms + 1}
	}
	return p
}

// Prev returns the last position before p. MinPosition has none, so Prev returns it unchanged.
func (p Position) Prev() Position {
	switch {
	case p.Seq > 0:
		return Position{p.Ms, p.Seq - 1}
	case p.Ms > MinPosition.Ms:
		return Position{p.Ms - 1, math.MaxUint64}
	}
	return p
}

// Append appends the 16 bytes of a position, which sort as positions do.
func (p Position) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint64(AppendTime(b, p.Ms), p.Seq)
}

// ParsePosition reads what Append wrote.
func ParsePosition(b []byte) (Position, error) {
	if len(b) != 16 {
		return Position{}, errkind.Corruptf("position %x has %d bytes instead of 16", b, len(b))
	}
	return Position{Time(b), binary.BigEndian.Uint64(b[8:])}, nil
}

// String returns time and number, for errors about damage.
func (p Position) String() string { return fmt.Sprintf("%d/%d", p.Ms, p.Seq) }

// AppendTime appends the 8 bytes of a time in Unix milliseconds. They sort as times do.
func AppendTime(b []byte, ms int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(ms)^1<<63)
}

// Time reads the 8 bytes that AppendTime wrote.
func Time(b []byte) int64 { return int64(binary.BigEndian.Uint64(b) ^ 1<<63) }
