package record

import (
	"fmt"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// The finished record of a message (hash h), which the scripts write:
//
//	version(3 bits)=1 flags(3 bits) outcome(2 bits) at(6) keep(5) created(6) due(7, signed)
//	[at less the beginning of the lease(5)] [firstDue(7, signed)] [attempt(4) failures(1) { failure }]
//
// A failure is encoded as in a state. The flags say which of the parts in brackets are there.
// Without the field attempt the message had one attempt if the beginning of a lease is there, and
// none otherwise.
const (
	finishedVersion   = 1
	finishedDelivered = 4
	finishedMoved     = 8
	finishedAttempts  = 16
)

// outcomes has the outcomes by their number in a finished record.
var outcomes = [...]punctual.Outcome{punctual.OutcomeAcked, punctual.OutcomeCancelled, punctual.OutcomeExpired}

// OutcomeNumber returns the number of an outcome in a finished record.
func OutcomeNumber(o punctual.Outcome) int { return slices.Index(outcomes[:], o) }

// ReadFinished decodes a finished record. The result refers to no memory of raw. A record that is
// cut off, is too long, or has another version or an unknown outcome is ErrCorrupt.
func ReadFinished(topic, id, raw string) (punctual.Finished, error) {
	d := decoder{b: raw}
	kind := d.byte()
	outcome, version := kind&3, kind>>5
	at := int64(d.littleEndian(6))
	until := at + int64(d.littleEndian(5))
	created, due := int64(d.littleEndian(6)), d.signed56()
	first := due
	f := punctual.Finished{ID: id, Topic: topic}
	if kind&finishedDelivered != 0 {
		f.Attempt, f.Delivered = 1, storekit.FromMillis(at-int64(d.littleEndian(5)))
	}
	if kind&finishedMoved != 0 {
		first = d.signed56()
	}
	if kind&finishedAttempts != 0 {
		f.Attempt = int(d.uint32())
		for range d.byte() {
			f.Failures = append(f.Failures, d.failure())
		}
	}
	if d.bad || d.b != "" || version != finishedVersion || int(outcome) >= len(outcomes) {
		return punctual.Finished{}, fmt.Errorf("finished record of message %s has version %d and %d bytes; this program reads version %d: %w", id, version, len(raw), finishedVersion, punctual.ErrCorrupt)
	}
	f.Outcome, f.At, f.KeptUntil = outcomes[outcome], storekit.FromMillis(at), storekit.FromMillis(until)
	f.Created, f.Due, f.FirstDue = storekit.FromMillis(created), storekit.FromMillis(due), storekit.FromMillis(first)
	return f, nil
}

// signed56 reads a time of 7 bytes, which may lie before 1970.
func (d *decoder) signed56() int64 { return int64(d.littleEndian(7)<<8) >> 8 }
