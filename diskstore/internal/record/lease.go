package record

import (
	"cmp"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Lease is what the claim log keeps of a leased message.
type Lease struct {
	Topic   uint32   // the topic's number
	At      Position // of the message on disk
	Token   int64
	Renewed uint64 // how often this lease was extended or moved by a step of the clock
	Attempt int    // the attempt that it began, from 1
	Until   int64  // Unix milliseconds
	Since   int64  // when the lease was granted or last extended (lifecycle.Message.Since); 0 if that is not known
	// Due is the due time of the message if a step of the clock has moved it, which At does not
	// follow; otherwise 0.
	Due     int64
	Expired []punctual.Failure // earlier attempts whose leases ran out, which the record does not have yet
}

// AddTo adds to r what the leases since r was written have changed: the attempts, the failures, the
// token and the end of the last lease, and what a step of the clock has moved. If there was no such
// lease, the token of l is 0 and AddTo changes nothing.
func (l *Lease) AddTo(r *Record) {
	if l.Token == 0 {
		return
	}
	r.Attempts, r.Token, r.LeaseUntil, r.Newest, r.Since = l.Attempt, l.Token, l.Until, l.Token, l.Since
	if l.Due != 0 {
		if r.FirstDue == r.Due {
			r.FirstDue = l.Due
		}
		r.Due = l.Due
	}
	for _, f := range l.Expired {
		r.Failures = storekit.AddFailure(r.Failures, f)
	}
}

// Carry makes the lease what it is after a step of the clock. It reports whether the lease has
// changed. In the claim log the changed lease counts, and not the one before, because it has been
// renewed more often.
func (l *Lease) Carry(s lifecycle.Step) bool {
	m := lifecycle.Message{Due: cmp.Or(l.Due, l.At.Ms), Since: l.Since, Token: l.Token, LeaseUntil: l.Until}
	if !s.Carry(&m) {
		return false
	}
	l.Until, l.Since = m.LeaseUntil, m.Since
	l.Renewed++
	if m.Due != l.At.Ms {
		l.Due = m.Due
	}
	return true
}

// Step is a step of the store's clock back, in Unix milliseconds. Count is how many steps there
// were with this one; 0 if there was none.
type Step struct {
	Count int64
	lifecycle.Step
}

// Told returns the step as a storekit.ClockState has it: zero if there was none.
func (s Step) Told() (count int64, last storekit.ClockStep) {
	if s.Count > 0 {
		last = storekit.ClockStep{From: storekit.FromMillis(s.From), To: storekit.FromMillis(s.To)}
	}
	return s.Count, last
}
