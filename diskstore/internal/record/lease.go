package record

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Lease is what the claim log keeps of a leased message.
type Lease struct {
	Topic   uint32   // the topic's number
	At      Position // of the message on disk
	Token   int64
	Renewed uint64             // how often this lease was extended
	Attempt int                // the attempt that it began, from 1
	Until   int64              // Unix milliseconds
	Expired []punctual.Failure // earlier attempts whose leases ran out, which the record does not have yet
}

// AddTo adds to r what the leases since r was written have changed: the attempts, the failures, and the token and the end of the
// last lease. If there was no such lease, the token of l is 0 and AddTo changes nothing.
func (l *Lease) AddTo(r *Record) {
	if l.Token == 0 {
		return
	}
	r.Attempts, r.Token, r.LeaseUntil, r.Newest = l.Attempt, l.Token, l.Until, l.Token
	for _, f := range l.Expired {
		r.Failures = storekit.AddFailure(r.Failures, f)
	}
}
