package record

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Lease is what the claim log keeps of a leased message.
type Lease struct {
	Topic   uint32   // the topic's number
	At      Position // where the message stands on disk
	Token   int64
	Renewed uint64             // how often this lease was extended
	Attempt int                // the attempt that it began, from 1
	Until   int64              // Unix milliseconds
	Expired []punctual.Failure // earlier attempts whose leases ran out, which the record does not have yet
}

// AddTo adds to a record what the leases since it was written have added. Without such a lease, which token 0 tells, it
// adds nothing.
func (l *Lease) AddTo(r *Record) {
	if l.Token == 0 {
		return
	}
	r.Attempts, r.Token, r.LeaseUntil, r.Newest = l.Attempt, l.Token, l.Until, l.Token
	for _, f := range l.Expired {
		r.Failures = storekit.AddFailure(r.Failures, f)
	}
}
