package record

import (
	"fmt"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// The story of a finished message (hash h), which the scripts write:
//
//	version(3 bits)=1 flags(3 bits) outcome(2 bits) at(6) keep(5) created(6) due(7, signed)
//	[at less the beginning of the lease(5)] [firstDue(7, signed)] [attempt(4) failures(1) { failure }]
//
// A failure is that of a state. The flags say what is there. Without attempts there was one if there is a lease, else none.
const (
	storyVersion   = 1
	storyDelivered = 4
	storyMoved     = 8
	storyAttempts  = 16
)

// outcomes by their number in a story.
var outcomes = [...]punctual.Outcome{punctual.OutcomeAcked, punctual.OutcomeCancelled, punctual.OutcomeExpired}

// ReadStory reads a story. Nothing of the record stays part of it.
func ReadStory(topic, id, story string) (punctual.Finished, error) {
	d := decoder{b: story}
	kind := d.byte()
	outcome, version := kind&3, kind>>5
	at := int64(d.littleEndian(6))
	until := at + int64(d.littleEndian(5))
	created, due := int64(d.littleEndian(6)), d.signed56()
	first := due
	f := punctual.Finished{ID: id, Topic: topic}
	if kind&storyDelivered != 0 {
		f.Attempt, f.Delivered = 1, storekit.FromMillis(at-int64(d.littleEndian(5)))
	}
	if kind&storyMoved != 0 {
		first = d.signed56()
	}
	if kind&storyAttempts != 0 {
		f.Attempt = int(d.uint32())
		for range d.byte() {
			f.Failures = append(f.Failures, d.failure())
		}
	}
	if d.bad || d.b != "" || version != storyVersion || int(outcome) >= len(outcomes) {
		return punctual.Finished{}, fmt.Errorf("story of message %s has version %d and %d bytes; this program reads version %d: %w", id, version, len(story), storyVersion, punctual.ErrCorrupt)
	}
	f.Outcome, f.At, f.KeptUntil = outcomes[outcome], storekit.FromMillis(at), storekit.FromMillis(until)
	f.Created, f.Due, f.FirstDue = storekit.FromMillis(created), storekit.FromMillis(due), storekit.FromMillis(first)
	return f, nil
}

// signed56 reads a time of 7 bytes, which may lie before 1970.
func (d *decoder) signed56() int64 { return int64(d.littleEndian(7)<<8) >> 8 }
