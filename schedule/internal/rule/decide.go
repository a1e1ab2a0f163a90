package rule

import (
	"fmt"
	"slices"

	"github.com/punctualmq/punctual/internal/cron"
)

// Fate is what has become of an occurrence that was stored.
type Fate int

// What has become of an occurrence.
const (
	Gone Fate = iota // finished, cancelled or deleted: the store has no message with its ID
	Live             // scheduled, ready or leased
	Dead
)

const (
	// mostTimes bounds the times that one step goes through, so that a step takes a fraction of a
	// second. A schedule for each second whose duty comes back after a year takes 631 steps if it
	// leaves those times out.
	mostTimes = 50_000
	// MostStored is the most occurrences that one step stores.
	MostStored = 50
)

// Question is what a step has to know of the store before it decides.
type Question struct {
	// Last, if not 0, is the occurrence whose Fate decides about overlap.
	Last int64
	// Watched are the occurrences, the latest first, whose Fates decide about the pause after
	// MaxDead dead ones.
	Watched []int64
}

// Question returns what the step of r has to know.
func (r *Record) Question() (q Question) {
	if n := len(r.State.Ran); r.Overlap != OverlapAllow && n > 0 {
		q.Last = r.State.Ran[n-1]
	}
	if r.MaxDead > 0 {
		for _, at := range slices.Backward(r.State.Ran) {
			if at > r.State.Watch {
				q.Watched = append(q.Watched, at)
			}
		}
	}
	return q
}

// Occasion is what a step is decided by.
type Occasion struct {
	// Now is the store's clock, in Unix milliseconds.
	Now int64
	// Delay is that of the schedule; see the function Delay.
	Delay int64
	// Fates are those of the occurrences that Question asks for.
	Fates map[int64]Fate
	// Room is how many occurrences may be stored, 1 to MostStored: fewer than that when their
	// bodies are large.
	Room int
}

// Step is what a step does, beside the change of its Record.
type Step struct {
	// Store are the times whose occurrences are to be stored.
	Store []int64
	// Cancel, if not 0, is the occurrence to cancel before that.
	Cancel int64
	// Missed and Skipped are how many times were left out, and Left those of them that were left
	// out last, at most 10. Accounts has all of them, added up by the reason.
	Missed, Skipped int64
	Left            []Left
	Accounts        []Account
	// Paused is set when the step has paused the schedule, because the occurrences before are dead.
	Paused bool
}

// Account is how many times were left out for a reason: the first, the last and how many from the
// one to the other.
type Account struct {
	Why         Why
	First, Last int64
	Count       int64
}

// Decide goes through the times that have come, from State.Next on, and decides about each. It
// changes r accordingly. If it cannot decide about all of them, because there are many, State.Next
// has come afterwards, too, and the next step goes on. An error says that this process cannot find
// the times, for instance because it lacks the zone; r is then as it was.
func (r *Record) Decide(o Occasion, zones *cron.Zones) (Step, error) {
	if r.State.Paused != nil || r.State.Next.At == 0 {
		return Step{}, nil
	}
	if r.tooManyDead(o.Fates) {
		r.State.Paused = &Pause{At: o.Now, Note: deadNote(r.MaxDead)}
		r.touch(o.Now)
		return Step{Paused: true}, nil
	}
	w, err := r.walk(zones)
	if err != nil {
		return Step{}, err
	}
	s := step{record: r, Occasion: o}
	for n := 0; n < mostTimes && w.time.At != 0 && w.time.At+o.Delay <= o.Now; n++ {
		if !s.take(w.time.At) {
			break
		}
		r.State.Mark = w.time
		w.advance()
	}
	s.finish(w.time.At == 0 || w.time.At+o.Delay > o.Now)
	r.State.Next = w.time
	r.State.Earlier = w.earlier
	if len(w.earlier) == 0 {
		r.State.Earlier = nil
	}
	if r.Limit > 0 && r.State.Stored >= r.Limit {
		r.State.Next, r.State.Earlier = Time{}, nil
	}
	r.State.Skip = slices.DeleteFunc(r.State.Skip, func(at int64) bool { return at <= r.State.Mark.At })
	return s.Step, nil
}

// step is a Step that is being decided.
type step struct {
	Step
	Occasion
	record *Record
	// missed is the latest time that was missed, for MissedLatest; 0 for none.
	missed int64
}

// take decides about one time, and returns false when it has to wait for the next step.
func (s *step) take(at int64) bool {
	r := s.record
	late := s.Now-at-s.Delay > r.Grace
	switch {
	case at <= r.State.SkipTo:
		s.leave(at, WhyPaused)
	case slices.Contains(r.State.Skip, at):
		s.leave(at, WhySkipped)
	case late && r.Missed == MissedNone:
		s.leave(at, WhyMissed)
	case late && r.Missed == MissedLatest:
		if s.missed != 0 {
			s.leave(s.missed, WhyMissed)
		}
		s.missed = at
	case len(s.Store) == s.Room:
		return false
	default:
		s.Store = append(s.Store, at)
	}
	return true
}

// finish ends the step. complete is true if all times that have come were taken.
func (s *step) finish(complete bool) {
	r := s.record
	if s.missed != 0 {
		// One occurrence makes up for all the times that were missed: the latest of them, unless a
		// later time is stored anyway or waits for the next step.
		if complete && len(s.Store) == 0 {
			s.Store = []int64{s.missed}
		} else {
			s.leave(s.missed, WhyMissed)
		}
	}
	s.overlap()
	if left := r.Limit - r.State.Stored; r.Limit > 0 && int64(len(s.Store)) > left {
		s.Store = s.Store[:left]
	}
	r.State.Stored += int64(len(s.Store))
	r.State.Missed += s.Missed
	r.State.Skipped += s.Skipped
	r.State.Ran = last(append(r.State.Ran, s.Store...))
	r.State.Left = last(append(r.State.Left, s.Left...))
}

// overlap leaves out times of Store as Definition.Overlap says. An occurrence that this step stores
// counts as not finished when the next one of them comes.
func (s *step) overlap() {
	r := s.record
	if len(s.Store) == 0 || r.Overlap == OverlapAllow {
		return
	}
	before := int64(0)
	if n := len(r.State.Ran); n > 0 && s.Fates[r.State.Ran[n-1]] == Live {
		before = r.State.Ran[n-1]
	}
	from, to := 0, 1 // Store[from:to] stays
	switch {
	case r.Overlap == OverlapReplace:
		s.Cancel = before
		from, to = len(s.Store)-1, len(s.Store)
	case before != 0:
		to = 0
	}
	for i, at := range s.Store {
		if i < from || i >= to {
			s.leave(at, WhyOverlap)
		}
	}
	s.Store = s.Store[from:to]
}

func (s *step) leave(at int64, why Why) {
	if why == WhyMissed {
		s.Missed++
	} else {
		s.Skipped++
	}
	s.Left = last(append(s.Left, Left{at, why}))
	i := slices.IndexFunc(s.Accounts, func(a Account) bool { return a.Why == why })
	if i < 0 {
		i = len(s.Accounts)
		s.Accounts = append(s.Accounts, Account{Why: why, First: at})
	}
	s.Accounts[i].Last = max(s.Accounts[i].Last, at)
	s.Accounts[i].First = min(s.Accounts[i].First, at)
	s.Accounts[i].Count++
}

// last returns the last elements of list, as many as a State keeps.
func last[T any](list []T) []T {
	if n := len(list) - kept; n > 0 {
		return slices.Clone(list[n:])
	}
	return list
}

// tooManyDead tells whether the last MaxDead occurrences that have ended are dead.
func (r *Record) tooManyDead(fates map[int64]Fate) bool {
	dead := 0
	for _, at := range r.Question().Watched {
		switch fates[at] {
		case Dead:
			dead++
		case Gone:
			return false
		}
		if dead == r.MaxDead {
			return true
		}
	}
	return false
}

func deadNote(n int) string {
	if n == 1 {
		return "the last occurrence is dead"
	}
	return fmt.Sprintf("the last %d occurrences are dead", n)
}

// walk goes through the times of a schedule.
type walk struct {
	time    Time
	now     *Times // of the definition
	earlier []Earlier
	times   []*Times // of each of earlier
}

// walk begins at State.Next.
func (r *Record) walk(zones *cron.Zones) (*walk, error) {
	w := &walk{time: r.State.Next, earlier: r.State.Earlier}
	var err error
	if w.now, err = r.Timing.Read(zones); err != nil {
		return nil, err
	}
	for _, e := range w.earlier {
		t, err := e.Timing.Read(zones)
		if err != nil {
			return nil, err
		}
		w.times = append(w.times, t)
	}
	return w, nil
}

// advance goes to the time that follows.
func (w *walk) advance() {
	after := w.time
	for len(w.earlier) > 0 {
		end := w.earlier[0].End
		if next := w.times[0].Next(after); next.At != 0 && next.At <= end {
			w.time = next
			return
		}
		w.earlier, w.times = w.earlier[1:], w.times[1:]
		after = w.successor().Behind(max(end, after.At)) // the successor may have another zone, where the offset of after means nothing
	}
	w.time = w.now.Next(after)
}

// successor is what holds after the first of earlier was taken away.
func (w *walk) successor() *Times {
	if len(w.times) > 0 {
		return w.times[0]
	}
	return w.now
}
