package diskstore

import (
	"encoding/binary"
	"fmt"
)

// The keys of the database. Numbers are big endian; time is the Unix milliseconds as
// int64 with the sign bit flipped, so that keys sort in order of time.
//
//	'M' "version"                      -> uint32       format version
//	'M' "seq"                          -> uint64       all message numbers below are used up
//	'M' "token"                        -> uint64       all lease tokens below are used up
//	'M' "clock"                        -> int64        the store's clock has passed this
//	'M' "txn"                          -> uint64       number of the last transaction
//	'T' name                           -> topic(4) settings as JSON
//	'n' topic(4)                       -> live(8) dead(8)   how many messages there are
//	'w' topic(4)                       -> time(8) seq(8)    watermark: no 'm' key lies below
//	'm' topic(4) due(8) seq(8)         -> record       a live message, in order of due time
//	'd' topic(4) died(8) seq(8)        -> record       a dead message, in order of death
//	'i' topic(4) id                    -> kind(1) time(8) seq(8)   where the message with this ID is
//	'f' topic(4) id                    -> until(8)     a finished ID that is remembered
//	'x' until(8) topic(4) id           -> empty        finished IDs in the order they are forgotten
//
// Every 'm' has its 'i' with kind live, every 'd' its 'i' with kind dead, and the reverse;
// 'n' counts them, and every 'f' has its 'x'. Check verifies it. An 'x' may have outlived its
// 'f', or be earlier than it when the ID was finished again.
//
// The law of change: a new kind of key gets a new letter; the meaning of a letter never
// changes. A change that an older program would misread raises formatVersion, gets a step where
// Open compares versions (readMeta), and golden directories of every released version stay in testdata.
const formatVersion = 1

const (
	keyMeta     = 'M'
	keyTopic    = 'T'
	keyCounts   = 'n'
	keyMark     = 'w'
	keyLive     = 'm'
	keyDead     = 'd'
	keyID       = 'i'
	keyFinished = 'f'
	keyForget   = 'x'
)

// pos is a place in the order of one topic: a time and, among equals, the order of
// arrival. seq names one stored message for ever.
type pos struct {
	ms  int64
	seq uint64
}

func (p pos) less(q pos) bool { return p.ms < q.ms || p.ms == q.ms && p.seq < q.seq }

// minPos and maxPos bound every position.
var (
	minPos = pos{ms: -1 << 63}
	maxPos = pos{ms: 1<<63 - 1, seq: 1<<64 - 1}
)

func appendTime(b []byte, ms int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(ms)^1<<63)
}

func getTime(b []byte) int64 { return int64(binary.BigEndian.Uint64(b) ^ 1<<63) }

// posKey is the key of a message in the order 'm' or 'd'.
func posKey(kind byte, topic uint32, p pos) []byte {
	b := make([]byte, 0, 21)
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, topic)
	b = appendTime(b, p.ms)
	return binary.BigEndian.AppendUint64(b, p.seq)
}

func parsePosKey(key []byte) (topic uint32, p pos, err error) {
	if len(key) != 21 {
		return 0, pos{}, corruptf("key %x has %d bytes instead of 21", key, len(key))
	}
	return binary.BigEndian.Uint32(key[1:]), pos{getTime(key[5:]), binary.BigEndian.Uint64(key[13:])}, nil
}

// topicKey is the key of a topic's counts or watermark, and the prefix of its other keys.
func topicKey(kind byte, topic uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{kind}, topic)
}

func idKey(kind byte, topic uint32, id string) []byte {
	b := make([]byte, 0, 5+len(id))
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, topic)
	return append(b, id...)
}

func forgetKey(until int64, topic uint32, id string) []byte {
	b := make([]byte, 0, 13+len(id))
	b = appendTime(append(b, keyForget), until)
	b = binary.BigEndian.AppendUint32(b, topic)
	return append(b, id...)
}

func parseForgetKey(key []byte) (until int64, topic uint32, id string, err error) {
	if len(key) < 13 {
		return 0, 0, "", corruptf("key %x has %d bytes, too few", key, len(key))
	}
	return getTime(key[1:]), binary.BigEndian.Uint32(key[9:]), string(key[13:]), nil
}

// upper is the smallest key behind all keys that begin with prefix.
func upper(prefix []byte) []byte {
	b := append([]byte(nil), prefix...)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]++
		if b[i] != 0 {
			return b[:i+1]
		}
	}
	return nil
}

// place is where the message with an ID is: the value of an 'i' key.
type place struct {
	kind byte // keyLive, keyDead, or 0 for nowhere
	pos  pos
}

func (p place) append(b []byte) []byte {
	b = appendTime(append(b, p.kind), p.pos.ms)
	return binary.BigEndian.AppendUint64(b, p.pos.seq)
}

func parsePlace(v []byte) (place, error) {
	if len(v) != 17 || v[0] != keyLive && v[0] != keyDead {
		return place{}, corruptf("place of an ID is %x", v)
	}
	return place{v[0], pos{getTime(v[1:]), binary.BigEndian.Uint64(v[9:])}}, nil
}

func parsePos(v []byte) (pos, error) {
	if len(v) != 16 {
		return pos{}, corruptf("position %x has %d bytes instead of 16", v, len(v))
	}
	return pos{getTime(v), binary.BigEndian.Uint64(v[8:])}, nil
}

func (p pos) append(b []byte) []byte {
	return binary.BigEndian.AppendUint64(appendTime(b, p.ms), p.seq)
}

func (p pos) String() string { return fmt.Sprintf("%d/%d", p.ms, p.seq) }
