package lifecycle

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Step is a step of a store's clock back, in Unix milliseconds: the clock said From, and says To
// since.
type Step struct{ From, To int64 }

// Moves reports whether the step moves what was set at since (Message.Since): it was set while the
// clock was ahead.
func (s Step) Moves(since int64) bool { return since > s.To }

// Carry makes the facts of a live or dead message those after the step. What was set by a length
// while the clock was ahead keeps what is left of that length, so no lease and no delay becomes
// longer, and what was ready by a delay stays ready. An instant that somebody named stays where it
// is. So does what was set before the clock was set ahead. For example, the clock is two hours
// ahead at 12:00, and says 14:00: a retry after 2 minutes is due at 14:02. The clock steps back at
// 12:01, from 14:01 to 12:01, and the retry moves to 12:02. A message that was pushed for 13:00 is
// scheduled again.
//
// Carry may come any time after the step, and again: what it has moved was set at To or before, and
// does not move again. It reports whether anything has changed.
func (s Step) Carry(m *Message) bool {
	back := s.From - s.To
	if m.Reason != "" {
		died, _ := s.CarryEnd(m.Died, m.Died)
		changed := died != m.Died
		m.Died = died
		return changed
	}
	if !s.Moves(m.Since) {
		return false
	}
	due := m.Due
	switch {
	case m.Token != 0:
		m.LeaseUntil -= back
		// It has come by then, whoever named it, because the message was delivered. So it also has
		// come at a later step, which does not move a lease given before.
		due = min(due, m.Since-back)
	case due > s.To: // otherwise a release has left a due time from before, from which the expiry counts
		due -= back
	}
	if m.FirstDue == m.Due {
		m.FirstDue = due
	}
	m.Due, m.Since = due, m.Since-back
	return true
}

// CarryEnd returns the times after the step of what has ended at ended and is kept until until.
// What was past its retention stays so.
func (s Step) CarryEnd(ended, until int64) (newEnded, newUntil int64) {
	if !s.Moves(ended) {
		return ended, until
	}
	back := s.From - s.To
	return ended - back, until - back
}

// CarryFinished makes the times of a finished record those after the step: when the message ended,
// and when its last lease began if the clock was ahead then, too. So Delivered is never after At.
// The due times stay, because a record does not say who named them.
func (s Step) CarryFinished(f *punctual.Finished) {
	ended, until := s.CarryEnd(storekit.Millis(f.At), storekit.Millis(f.KeptUntil))
	if !f.Delivered.IsZero() {
		began, _ := s.CarryEnd(storekit.Millis(f.Delivered), 0)
		f.Delivered = storekit.FromMillis(min(began, ended))
	}
	f.At, f.KeptUntil = storekit.FromMillis(ended), storekit.FromMillis(until)
}
