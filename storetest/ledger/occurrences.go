package ledger

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storetest/promise"
)

// Occurrences is the rule of the ledger for recurring schedules: each time that the definition of a
// schedule gives is stored once or counted as left out, and nothing else is stored, whatever was
// killed, lost or edited meanwhile. It judges one schedule, by what those who put it and those who
// met its occurrences were told. The zero value is ready. Its methods are safe for concurrent use.
//
// A put that was answered holds for the times after it. One without an answer may hold or not,
// until the next put is answered: a time that not all definitions give which may hold then may be
// stored or not.
type Occurrences struct {
	mu sync.Mutex
	// puts are the definitions in the order of their puts. Guarded by mu.
	puts []*putting
	// stored has when each ID was stored: more than one instant tells that it was stored more than
	// once. Guarded by mu.
	stored map[string]map[int64]bool
}

// putting is one schedule.Put. Its definition holds for the times after some instant from begin to
// end, by the store's clock.
type putting struct {
	schedule   schedule.Schedule
	begin, end int64
	answered   bool
}

// Putting notes that s is about to be put when the store's clock shows now. When the answer says
// that it was put, the caller calls done with the store's clock after the answer.
func (o *Occurrences) Putting(s schedule.Schedule, now time.Time) (done func(now time.Time)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := &putting{schedule: s, begin: now.UnixMilli()}
	o.puts = append(o.puts, p)
	return func(now time.Time) {
		o.mu.Lock()
		defer o.mu.Unlock()
		p.end, p.answered = now.UnixMilli(), true
	}
}

// Refused takes back the last Putting, because its answer said that nothing was changed.
func (o *Occurrences) Refused() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.puts = o.puts[:len(o.puts)-1]
}

// Stored notes that somebody has seen an occurrence, in a delivery or a list. created is when its
// message was stored.
func (o *Occurrences) Stored(id string, created time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stored == nil {
		o.stored = make(map[string]map[int64]bool)
	}
	if o.stored[id] == nil {
		o.stored[id] = make(map[int64]bool)
	}
	o.stored[id][created.UnixMilli()] = true
}

// Judge returns what is wrong, given the schedule as it is when no duty runs any more. Every
// occurrence that is or was in the store must have been noted by Stored before. now is the store's
// clock.
func (o *Occurrences) Judge(info schedule.Info, now time.Time) (problems []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	decided := int64(0) // the times up to here are decided
	for _, t := range info.Last {
		decided = max(decided, t.At.UnixMilli())
	}
	times, err := o.times(max(decided, now.UnixMilli()))
	if err != nil {
		return []string{err.Error()}
	}
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, id := range slices.Sorted(maps.Keys(o.stored)) {
		switch {
		case times[id].may == nil:
			say("%s: %s was stored and is no time of the schedule", promise.P1, id)
		case len(o.stored[id]) > 1:
			say("%s: %s was stored %d times, at %v", promise.P1, id, len(o.stored[id]), slices.Sorted(maps.Keys(o.stored[id])))
		}
	}
	var missing []string
	for _, id := range slices.Sorted(maps.Keys(times)) {
		if times[id].at <= decided && times[id].must && o.stored[id] == nil {
			missing = append(missing, id)
		}
	}
	if left := info.Counts.Missed + info.Counts.Skipped; int64(len(missing)) > left {
		say("%s: %d times were not stored, and the schedule counts %d that it left out: %.1000q", promise.P1, len(missing), left, missing)
	}
	if info.Counts.Stored != int64(len(o.stored)) {
		say("%s: the schedule counts %d stored, and there were %d", promise.P13, info.Counts.Stored, len(o.stored))
	}
	if !info.Overdue.IsZero() {
		say("%s: the time %v is not decided", promise.P1, info.Overdue)
	}
	return problems
}

// occurrenceTime is a time that some definition gives.
type occurrenceTime struct {
	at int64
	// may are the definitions that may have held then and give it; nil is none. must tells that all
	// that may have held give it.
	may  []int
	must bool
}

// times returns the times up to an instant that the definitions give, by the IDs of their
// occurrences.
func (o *Occurrences) times(to int64) (map[string]occurrenceTime, error) {
	out := make(map[string]occurrenceTime)
	for i, p := range o.puts {
		end := to
		for _, next := range o.puts[i+1:] {
			if next.answered {
				end = min(end, next.end)
			}
		}
		const step = 100
		for after := time.UnixMilli(p.begin); ; {
			s := p.schedule
			s.From, s.Until = laterOf(s.From, time.UnixMilli(p.begin+1)), time.Time{} // without Until, a schedule that has no time left is no error here
			preview, err := s.Preview(after, step)
			if err != nil {
				return nil, fmt.Errorf("definition %d: %w", i+1, err)
			}
			for _, n := range preview.Next {
				at := n.At.UnixMilli()
				if at > end || !p.schedule.Until.IsZero() && n.At.After(p.schedule.Until) {
					break
				}
				t := out[n.ID]
				t.at, t.may = at, append(t.may, i)
				out[n.ID] = t
			}
			if len(preview.Next) < step || preview.Next[step-1].At.UnixMilli() > end {
				break
			}
			after = preview.Next[step-1].At
		}
	}
	for id, t := range out {
		t.must = o.holds(t)
		out[id] = t
	}
	return out, nil
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// holds tells whether each definition that may have held at a time gives it.
func (o *Occurrences) holds(t occurrenceTime) bool {
	first := -1 // the last definition that was certainly put before the time
	for i, p := range o.puts {
		if p.answered && p.end < t.at {
			first = i
		}
	}
	if first < 0 {
		return false // there may have been no schedule yet
	}
	for i, p := range o.puts[first:] {
		if p.begin < t.at && !slices.Contains(t.may, first+i) {
			return false
		}
	}
	return true
}
