package rule

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/punctualmq/punctual/internal/cron"
)

// mostEarlier bounds State.Earlier, so that the record of a schedule that is changed again and
// again while no duty runs does not grow without end.
const mostEarlier = 4

// MaxSkip is the most times that a schedule has in State.Skip.
const MaxSkip = 100

// ErrNever says that a definition has no time from now on.
var ErrNever = errors.New("it never comes")

// ErrBehind says that a definition was changed too often while its times wait for a duty.
var ErrBehind = errors.New("no duty has taken up the times of its former definitions: start one, or delete the schedule")

// New returns a schedule that comes for the first time after now.
func New(d Definition, now int64, zones *cron.Zones) (*Record, error) {
	t, err := d.Read(zones)
	if err != nil {
		return nil, err
	}
	r := &Record{V: Version, Definition: d, State: State{Created: now, Changed: now, Revision: 1}}
	if r.State.Next = t.Next(t.Behind(now)); r.State.Next.At == 0 {
		return nil, never(d.Timing)
	}
	return r, nil
}

func never(t Timing) error {
	switch {
	case t.Until != 0:
		return fmt.Errorf("no time is left until %s: %w", stamp(t.Until), ErrNever)
	case len(t.Except) > 0:
		return fmt.Errorf("every time falls on a day that is excepted: %w", ErrNever)
	}
	return fmt.Errorf("no time is left: %w", ErrNever)
}

// Redefine gives r the definition d, and returns whether that changes anything. Counters, pause and
// skipped times stay. The times of the former definition that have come and are not decided still
// count, and those of the new one count from now on, or behind the latest time that is decided if
// the clock is not past that. Where this process cannot find the times of a former definition, only
// the first of those that have come counts, and behind it the times of the new one. No time counts
// any more if as many occurrences as the new Limit are stored already. The same definition changes
// nothing, unless this process knows other zone data and finds another next time with them.
func (r *Record) Redefine(d Definition, now int64, zones *cron.Zones) (changed bool, err error) {
	t, err := d.Read(zones)
	if err != nil {
		return false, err
	}
	moved := !r.Timing.equal(d.Timing)
	mark := r.State.Mark
	if moved && mark.At != 0 {
		mark = t.Behind(mark.At) // in another zone the offset of the former one means nothing
	}
	from := t.Behind(now)
	if mark.At >= now { // the latest time that is decided is now, or the clock has been set back since
		from = mark
	}
	next := t.Next(from)
	if next.At == 0 && moved {
		return false, never(d.Timing)
	}
	var earlier []Earlier
	if old := r.State.Next; old.At != 0 && old.At <= now {
		next, earlier = old, r.State.Earlier
		if moved {
			earlier = append(slices.Clone(earlier), Earlier{Timing: r.Timing, End: now})
		}
		unknown := func(e Earlier) bool { _, err := e.Read(zones); return err != nil }
		if slices.ContainsFunc(earlier, unknown) { // such as one whose zone is not known here, which a new definition is to mend
			next, earlier = t.Behind(old.At), nil
		}
	}
	if d.Limit > 0 && r.State.Stored >= d.Limit {
		next, earlier = Time{}, nil
	}
	switch {
	case r.Definition.Equal(&d) && next == r.State.Next:
		return false, nil
	case len(earlier) > mostEarlier:
		return false, ErrBehind
	}
	r.State.Earlier = earlier
	r.Definition, r.State.Next, r.State.Mark = d, next, mark
	r.touch(now)
	return true, nil
}

// stepBeyond is by how much the store's clock is behind what it said before at least after a step
// (storekit.StepBeyond), in milliseconds. The clocks of the nodes of a cluster differ by less.
const stepBeyond = 2000

// Ahead returns the latest time that r has decided, or at which it was changed, if that is so far
// ahead of now that the store's clock must have stepped back since. Otherwise Ahead returns 0.
func (r *Record) Ahead(now int64) int64 {
	if latest := max(r.State.Mark.At, r.State.Changed); latest > now+stepBeyond {
		return latest
	}
	return 0
}

// Forget has r come again after the instant from, because the store's clock was ahead when r
// decided about the times after that. Those of them that were stored are skipped when they come, as
// far as r knows them, because an occurrence is stored once. The others come again. Where this
// process cannot find the times of r, r stays as it is; Decide says so, and Redefine mends it.
func (r *Record) Forget(from, now int64, zones *cron.Zones) {
	t, err := r.Timing.Read(zones)
	if err != nil {
		return
	}
	st := &r.State
	st.Ran = slices.DeleteFunc(st.Ran, func(at int64) bool { // also so that none of them, which wait for their times now, counts as an overlap
		if at > from {
			st.Skip = append(st.Skip, at)
		}
		return at > from
	})
	slices.Sort(st.Skip)
	st.Left = slices.DeleteFunc(st.Left, func(l Left) bool { return l.At > from })
	st.Earlier, st.SkipTo, st.Watch, st.Created = nil, min(st.SkipTo, from), min(st.Watch, from), min(st.Created, now)
	if st.Paused != nil {
		st.Paused.At = min(st.Paused.At, now)
	}
	st.Mark = t.Behind(from)
	if st.Next = t.Next(st.Mark); r.Limit > 0 && st.Stored >= r.Limit {
		st.Next = Time{}
	}
	r.touch(now)
}

// touch notes that r was changed. State.Revision makes the due times of a paused schedule differ
// from one change to the next.
func (r *Record) touch(now int64) {
	r.State.Changed = now
	r.State.Revision++
}

// Pause pauses r, or changes the note of the pause.
func (r *Record) Pause(by, note string, now int64) {
	since := now
	if r.State.Paused != nil {
		since = r.State.Paused.At
	}
	r.State.Paused = &Pause{At: since, By: by, Note: note}
	r.touch(now)
}

// Resume ends the pause, and returns whether there was one. The times that came meanwhile count as
// skipped, unless catchUp is set: then those later than Grace count as missed, so that
// Definition.Missed says what becomes of them. Occurrences up to now do not count for MaxDead any
// more.
func (r *Record) Resume(catchUp bool, now int64) bool {
	if r.State.Paused == nil {
		return false
	}
	r.State.Paused = nil
	r.State.Watch = now
	if !catchUp {
		r.State.SkipTo = now
	}
	r.touch(now)
	return true
}

// Skip leaves out the next n times, or fewer if the schedule ends before, and returns them.
func (r *Record) Skip(n int, now int64, zones *cron.Zones) ([]int64, error) {
	if len(r.State.Skip)+n > MaxSkip {
		return nil, fmt.Errorf("%d times are skipped already: skip at most %d in all", len(r.State.Skip), MaxSkip)
	}
	times, err := r.Upcoming(n, zones)
	if err != nil {
		return nil, err
	}
	r.State.Skip = append(r.State.Skip, times...)
	slices.Sort(r.State.Skip)
	r.touch(now)
	return times, nil
}

// Upcoming returns the next n times that are to come, the times that have come and are not decided
// yet among them. There are fewer when the schedule ends. A pause does not change them.
func (r *Record) Upcoming(n int, zones *cron.Zones) (times []int64, err error) {
	if r.State.Next.At == 0 {
		return nil, nil
	}
	w, err := r.walk(zones)
	if err != nil {
		return nil, err
	}
	if r.Limit > 0 {
		n = int(min(int64(n), r.Limit-r.State.Stored))
	}
	if first := r.State.SkipTo; w.time.At <= first {
		w.skipTo(first)
	}
	for ; len(times) < n && w.time.At != 0; w.advance() {
		if !slices.Contains(r.State.Skip, w.time.At) {
			times = append(times, w.time.At)
		}
	}
	return times, nil
}

// skipTo goes to the first time after an instant.
func (w *walk) skipTo(end int64) {
	for len(w.earlier) > 0 && w.earlier[0].End <= end {
		w.earlier, w.times = w.earlier[1:], w.times[1:]
	}
	w.time = w.successor().Behind(max(end, w.time.At))
	w.advance()
}

// Due returns when the schedule needs attention next: at its next time that is not skipped, later
// by delay. It is last for a schedule that is paused or has ended, less some milliseconds that
// differ from one change to the next, so that a change that was prepared before another one is
// refused.
func (r *Record) Due(delay, last int64, zones *cron.Zones) (int64, error) {
	atRest := last - r.State.Revision%1000
	if r.State.Paused != nil {
		return atRest, nil
	}
	next, err := r.Upcoming(1, zones)
	if err != nil {
		return 0, err
	}
	if len(next) == 0 {
		return atRest, nil
	}
	return next[0] + delay, nil
}

// Between returns the times of the definition from one instant to another, both included and at
// most n, whatever State says.
func (r *Record) Between(from, to int64, n int, zones *cron.Zones) (times []int64, err error) {
	t, err := r.Read(zones)
	if err != nil {
		return nil, err
	}
	for at := t.Next(t.Behind(from - 1)); at.At != 0 && at.At <= to && len(times) < n; at = t.Next(at) {
		times = append(times, at.At)
	}
	return times, nil
}

// Latest returns the last n times that were decided, of those that State keeps, the latest first.
// Why is empty for times that were stored.
func (r *Record) Latest(n int) []Left {
	all := slices.Clone(r.State.Left)
	for _, at := range r.State.Ran {
		all = append(all, Left{At: at})
	}
	slices.SortFunc(all, func(a, b Left) int { return cmp.Compare(b.At, a.At) })
	return all[:min(n, len(all))]
}
