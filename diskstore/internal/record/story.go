package record

import (
	"encoding/binary"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/storekit"
)

// What is kept of a finished message has a time first, as AppendTime writes it:
//
//	until(8)                                          when it is forgotten
//	version(1)=1 flags(1)
//	len outcome                                       uvarint, bytes
//	at created firstDue due                           varint each, ms
//	delivered                if flags&flagDelivered   varint, ms
//	attempts                                          uvarint
//	count { attempt, at, len error }                  failures, oldest first
//
// The compatibility rules are those of Record: a new field takes a new flag and stands before the failures.

const storyVersion = 1

const flagDelivered = 1

// EncodeStory returns the bytes of a story, without the topic and the ID.
func EncodeStory(f *punctual.Finished) []byte {
	b := AppendTime(make([]byte, 0, 64+64*len(f.Failures)), storekit.Millis(f.KeptUntil))
	var flags byte
	if !f.Delivered.IsZero() {
		flags |= flagDelivered
	}
	b = appendString(append(b, storyVersion, flags), string(f.Outcome))
	b = binary.AppendVarint(b, storekit.Millis(f.At))
	b = binary.AppendVarint(b, storekit.Millis(f.Created))
	b = binary.AppendVarint(b, storekit.Millis(f.FirstDue))
	b = binary.AppendVarint(b, storekit.Millis(f.Due))
	if flags&flagDelivered != 0 {
		b = binary.AppendVarint(b, storekit.Millis(f.Delivered))
	}
	return appendFailures(binary.AppendUvarint(b, uint64(f.Attempt)), f.Failures)
}

// DecodeStory is the inverse of EncodeStory.
func DecodeStory(b []byte) (punctual.Finished, error) {
	if len(b) < 10 {
		return punctual.Finished{}, errkind.Corruptf("story of %d bytes is cut short", len(b))
	}
	version, flags, d := b[8], b[9], Decoder{Rest: b[10:]}
	if version != storyVersion {
		return punctual.Finished{}, errkind.Corruptf("story has version %d, this program reads %d", version, storyVersion)
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
		return punctual.Finished{}, errkind.Corruptf("story of %d bytes is cut short, or longer than it says", len(b))
	}
	return f, nil
}
