// Package lifecycle holds the rules of a message's life: what a push, a claim, a settlement or an
// amendment makes of a message, and what is kept of a message that has ended. It is for authors of
// stores, so that each rule stands once.
//
// A store brings the facts of a message and the settings of its topic, calls one function, and
// carries out the [Decision]: it moves the message to the Place, appends the failure to the
// history, and writes the facts, which the function has changed. Every function is pure: it does no
// I/O, keeps no state, reads no clock, and allocates only for errors and for texts that it has to
// shorten or to make valid UTF-8. Chance comes in by the jitter of a backoff alone. Functions may
// be called concurrently for different messages; the caller keeps others away from one message
// while it is decided on.
//
// Times are Unix milliseconds by the store's clock, and lengths are milliseconds rounded up. The
// parameter now is one reading of that clock. Where a delay counts from now it is a time.Time, as
// finely as the store knows it.
//
// The caller decides whether an item is well formed (storekit.CheckPush and the like), whether the
// topic exists, and whether it is paused: it asks Settings.PushPaused before Push, and
// Settings.DeliveryPaused before Meet. FollowUp asks for PushPaused itself.
//
// The file testdata/decisions.txt shows every decision, to be read by people. Package
// storetest/transitions compares the stores that repeat these rules in Lua and SQL with the store
// in memory, which calls this package.
package lifecycle

import "github.com/punctualmq/punctual"

// Place is where a message goes by a decision.
type Place uint8

const (
	// Stay leaves the message where it is. None of its facts has changed, so there is nothing to
	// write.
	Stay Place = iota
	// Waiting puts the message on the timeline at Message.Due, without a lease. It may have been
	// leased or dead before.
	Waiting
	// Leased keeps or puts the message under a lease that ends at Message.LeaseUntil. A fact has
	// changed: the lease is new or extended, or a cancel was noted.
	Leased
	// Dead puts the message to the dead, as of Message.Died.
	Dead
	// Finished takes the message out: it was acked, cancelled or dropped. Message.Keep says what is
	// kept of it. Its facts are those that it had at the end, for its finished record; a Token
	// other than 0 tells that it was under a lease.
	Finished
	// Removed takes the message out without a trace: no finished record, and its ID is free.
	Removed
)

var placeNames = [...]string{"stay", "waiting", "leased", "dead", "finished", "removed"}

// String returns the place's word, for tests and logs.
func (p Place) String() string {
	if int(p) < len(placeNames) {
		return placeNames[p]
	}
	return "invalid"
}

// Decision is what becomes of a message. It may stand beside an error: a retry of a cancelled
// message finishes that, and its answer is ErrCancelled. So a caller carries out the decision
// whatever the error is.
type Decision struct {
	To      Place
	Outcome punctual.Outcome // how it ended, if To is Finished
	// Failed tells that an attempt has failed. Then Failure is to be appended to the history
	// (storekit.AddFailure). A message that finishes has the failure in its finished record, too.
	// The text is trimmed (storekit.TrimError).
	Failed  bool
	Failure punctual.Failure
}
