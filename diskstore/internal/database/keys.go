package database

import (
	"encoding/binary"

	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// The keys of the database. Numbers are big endian; time is the Unix milliseconds as
// int64 with the sign bit flipped, so that keys sort in order of time.
//
//	'M' "version"                      -> uint32       format version
//	'M' "seq"                          -> uint64       all message numbers below are used up
//	'M' "token"                        -> uint64       all lease tokens below are used up
//	'M' "clock"                        -> time(8)      the store's clock has passed this
//	'M' "topic"                        -> uint32       all topic numbers below are used up
//	'M' "txn"                          -> uint64       number of the last transaction
//	'M' "step"                         -> count(8) from(8) to(8) carry(1)   the last step of the store's clock, the count-th, and
//	                                                   whether there may be something left to carry over it (1)
//	'M' "single"                       -> uint64       messages with this number or a later one are deleted by single deletions
//	'T' name                           -> topic(4) settings as JSON
//	'n' topic(4)                       -> live(8) dead(8)   how many messages there are
//	'w' topic(4)                       -> time(8) seq(8)    watermark: no 'm' key lies below
//	'm' topic(4) due(8) seq(8)         -> record       a live message, in order of due time
//	'd' topic(4) died(8) seq(8)        -> record       a dead message, in order of death
//	'i' topic(4) id                    -> kind(1) time(8) seq(8) [1]   where the message with this ID is (kind is
//	                                                   'm' or 'd'), and whether its record has a Remember
//	'f' topic(4) id                    -> until(8) ended(8)   a finished ID that is remembered. ended is when the message
//	                                                   finished; it is missing in stores from before it was kept
//	'x' until(8) topic(4) id           -> empty        finished IDs in the order they are forgotten
//	's' topic(4) id                    -> record       finished record of the message with this ID that finished last
//	'u' until(8) topic(4) id           -> empty        finished records in the order they are deleted
//
// Every 'm' has its 'i' with kind 'm', every 'd' its 'i' with kind 'd', and the reverse. 'n' counts
// them. Every 'f' has its 'x', and every 's' its 'u'. Snapshot.VerifyTopic and Snapshot.VerifyRest
// check all this. There may be an 'x' whose 'f' or topic was deleted, and an 'x' with another time
// than its 'f', when a message with the ID has finished again. The same goes for 'u' and 's'. 'M'
// "topic" is missing until a topic is made.
//
// The compatibility rules: a new kind of key gets a new letter; the meaning of a letter never
// changes. A change that an older program would misread raises the format, and gets a step where
// Load compares versions. Golden directories of every released version stay in testdata.
const (
	keyTopic     = 'T'
	keyCounts    = 'n'
	keyWatermark = 'w'
	keyLive      = 'm'
	keyDead      = 'd'
	keyID        = 'i'
	keyFinished  = 'f'
	keyForget    = 'x'
	keyRecord    = 's'
	keyRecordEnd = 'u'
)

// Order is an order of messages, finished IDs or finished records, and the letter of its keys.
type Order byte

// The orders.
const (
	Live               Order = keyLive      // live messages, by due time
	Dead               Order = keyDead      // dead messages, by time of death
	Remembered         Order = keyFinished  // finished IDs
	Forgotten          Order = keyForget    // finished IDs, by the time at which they are forgotten
	FinishedRecords    Order = keyRecord    // finished records
	FinishedRecordEnds Order = keyRecordEnd // finished records, by the time at which they are deleted
)

// Place is the position of the message with an ID, and its order. The zero Place is nowhere.
type Place struct {
	Order Order // Live, Dead, or 0 for nowhere
	At    record.Position
	// Remembers says that the message's record has a time for which the ID is remembered.
	Remembers bool
	// Own says that the transaction which asks has itself written the place.
	Own bool
}

// Nowhere tells whether there is no message with the ID.
func (p Place) Nowhere() bool { return p.Order == 0 }

func parsePlace(v []byte) (Place, error) {
	remembers := len(v) == 18 && v[17] == 1
	if len(v) != 17 && !remembers || v[0] != keyLive && v[0] != keyDead {
		return Place{}, errkind.Corruptf("place of an ID is %x", v)
	}
	at, err := record.ParsePosition(v[1:17])
	return Place{Order: Order(v[0]), At: at, Remembers: remembers}, err
}

// value is the inverse of parsePlace.
func (p Place) value() []byte {
	b := p.At.Append(append(make([]byte, 0, 18), byte(p.Order)))
	if p.Remembers {
		b = append(b, 1)
	}
	return b
}

// The keys of values that hold for the whole store.
const (
	metaVersion = "Mversion"
	metaSeq     = "Mseq"
	metaToken   = "Mtoken"
	metaClock   = "Mclock"
	metaTopic   = "Mtopic"
	metaTxn     = "Mtxn"
	metaStep    = "Mstep"
)

func nameKey(topic string) []byte { return append([]byte{keyTopic}, topic...) }

// topicKey is the key of a topic's counts or watermark, and the prefix of its keys of the kinds
// 'm', 'd', 'i', 'f' and 's'.
func topicKey(kind byte, topic uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{kind}, topic)
}

// posKey is the key of a message in the order of the live or of the dead.
func posKey(order Order, topic uint32, p record.Position) []byte {
	b := make([]byte, 0, 21)
	b = append(b, byte(order))
	b = binary.BigEndian.AppendUint32(b, topic)
	return p.Append(b)
}

func parsePosKey(key []byte) (record.Position, error) {
	if len(key) != 21 {
		return record.Position{}, errkind.Corruptf("key %x has %d bytes instead of 21", key, len(key))
	}
	return record.ParsePosition(key[5:])
}

func idKey(kind byte, topic uint32, id string) []byte {
	b := make([]byte, 0, 5+len(id))
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, topic)
	return append(b, id...)
}

// forgetKey is the key of an ID in an order of deletion: keyForget or keyRecordEnd.
func forgetKey(kind byte, until int64, topic uint32, id string) []byte {
	b := make([]byte, 0, 13+len(id))
	b = record.AppendTime(append(b, kind), until)
	b = binary.BigEndian.AppendUint32(b, topic)
	return append(b, id...)
}

func parseForgetKey(key []byte) (until int64, topic uint32, id string, err error) {
	if len(key) < 13 {
		return 0, 0, "", errkind.Corruptf("key %x has %d bytes, too few", key, len(key))
	}
	return record.Time(key[1:]), binary.BigEndian.Uint32(key[9:]), string(key[13:]), nil
}

// after is the smallest key that sorts after all keys that begin with prefix; nil, which stands for
// no bound, if there is none.
func after(prefix []byte) []byte {
	b := append([]byte(nil), prefix...)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]++
		if b[i] != 0 {
			return b[:i+1]
		}
	}
	return nil
}

// beUint reads a big-endian number of up to 8 bytes.
func beUint(b []byte) uint64 {
	var v uint64
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}
