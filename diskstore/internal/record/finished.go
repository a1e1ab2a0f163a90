package record

import (
	"encoding/binary"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/storekit"
)

// A finished record begins with a time, as AppendTime writes it:
//
//	until(8)                                          when the record is deleted
//	version(1)=1 flags(1)                             flags: 1 delivered
//	len outcome                                       uvarint, bytes
//	at created firstDue due                           varint each, ms
//	delivered                if flags&flagDelivered   varint, ms
//	attempts                                          uvarint
//	count { attempt, at, len error }                  failures, oldest first; at is a varint in ms, the others uvarint
//
// The compatibility rules are those of Record: a new field takes a new flag and stands before the
// failures.

const finishedVersion = 1

const flagDelivered = 1

// EncodeFinished returns the bytes of a finished record, without the topic and the ID.
func EncodeFinished(f *punctual.Finished) []byte {
	b := AppendTime(make([]byte, 0, 64+64*len(f.Failures)), storekit.Millis(f.KeptUntil))
	var flags byte
	if !f.Delivered.IsZero() {
		flags |= flagDelivered
	}
	b = appendString(append(b, finishedVersion, flags), string(f.Outcome))
	b = binary.AppendVarint(b, storekit.Millis(f.At))
	b = binary.AppendVarint(b, storekit.Millis(f.Created))
	b = binary.AppendVarint(b, storekit.Millis(f.FirstDue))
	b = binary.AppendVarint(b, storekit.Millis(f.Due))
	if flags&flagDelivered != 0 {
		b = binary.AppendVarint(b, storekit.Millis(f.Delivered))
	}
	return appendFailures(binary.AppendUvarint(b, uint64(f.Attempt)), f.Failures)
}

// DecodeFinished is the inverse of EncodeFinished.
func DecodeFinished(b []byte) (punctual.Finished, error) {
	if len(b) < 10 {
		return punctual.Finished{}, errkind.Corruptf("finished record of %d bytes is cut short", len(b))
	}
	version, flags, d := b[8], b[9], Decoder{Rest: b[10:]}
	if version != finishedVersion {
		return punctual.Finished{}, errkind.Corruptf("finished record has version %d, this program reads %d", version, finishedVersion)
	}
	if flags&^flagDelivered != 0 {
		return punctual.Finished{}, errkind.Corruptf("finished record has flags %#x, of which this program knows %#x", flags, flagDelivered)
	}
	f := punctual.Finished{
		KeptUntil: storekit.FromMillis(Time(b)), Outcome: punctual.Outcome(d.String()),
		At: storekit.FromMillis(d.Varint()), Created: storekit.FromMillis(d.Varint()),
		FirstDue: storekit.FromMillis(d.Varint()), Due: storekit.FromMillis(d.Varint()),
	}
	if flags&flagDelivered != 0 {
		f.Delivered = storekit.FromMillis(d.Varint())
	}
	f.Attempt, f.Failures = int(d.Uvarint()), d.failures()
	if d.Bad || len(d.Rest) > 0 {
		return punctual.Finished{}, errkind.Corruptf("finished record of %d bytes is cut short, or longer than it says", len(b))
	}
	return f, nil
}
