package duties

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest/promise"
)

// tally judges the copies for groups: each message that came due has one copy in each group, and
// one that was cancelled before has none. Its methods are safe for concurrent use.
type tally struct {
	mu sync.Mutex
	// messages has what is known of each ID. Guarded by mu.
	messages map[string]*fate
}

// fate is what became of a message, as far as its pusher was told.
type fate struct {
	pushed    bool // the push was answered; otherwise the message may be there or not
	cancelled bool // certainly
	maybe     bool // a cancel has no answer, or one that leaves open whether the message is copied
}

func newTally() *tally { return &tally{messages: make(map[string]*fate)} }

func (t *tally) note(id string, f func(*fate)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.messages[id] == nil {
		t.messages[id] = &fate{}
	}
	f(t.messages[id])
}

func (t *tally) pushing(id string)    { t.note(id, func(*fate) {}) }
func (t *tally) pushed(id string)     { t.note(id, func(f *fate) { f.pushed = true }) }
func (t *tally) cancelling(id string) { t.note(id, func(f *fate) { f.maybe = true }) }

// cancelled takes the answer of a cancel. ErrNotFound says that the message was copied already, so
// its copies are there, unless its push was not answered.
func (t *tally) cancelled(id string, err error) {
	t.note(id, func(f *fate) {
		switch {
		case err == nil:
			f.cancelled, f.maybe = true, false
		case errors.Is(err, punctual.ErrNotFound):
			f.maybe = false
		}
		// After ErrLeased both are possible: the attempt under way copies the message or fails, and
		// no other attempt follows.
	})
}

// settled waits until all that is left in the topic is dead, and judges what each group has.
func (t *tally) settled(b *bench, groups []string) {
	b.Helper()
	b.until(promise.P1, "nothing is left to copy", func() bool {
		s, err := b.in.Stats(b.Context(), b.topic)
		return err == nil && s.Live() == 0
	})
	if dead := b.ids(b.topic); len(dead) > 0 {
		b.Errorf("%s: %d messages were not copied: %q", promise.P1, len(dead), dead[:min(5, len(dead))])
	}
	has := make([][]string, len(groups))
	for i, g := range groups {
		has[i] = b.ids(b.group(g))
	}
	for _, problem := range t.judge(groups, has) {
		b.Error(problem)
	}
}

// judge returns what is wrong with the IDs that the groups have. has[i] has those of groups[i], and
// must be sorted.
func (t *tally) judge(groups []string, has [][]string) (problems []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, g := range groups {
		for _, id := range has[i] {
			switch first, _, again := strings.Cut(id, "~"); {
			case again:
				problems = append(problems, fmt.Sprintf("%s: group %s has %s twice, also as %s", promise.P1, g, first, id))
			case t.messages[id] == nil:
				problems = append(problems, fmt.Sprintf("%s: group %s has %s, which nobody pushed", promise.P1, g, id))
			case t.messages[id].cancelled:
				problems = append(problems, fmt.Sprintf("%s: group %s has %s, which was cancelled", promise.P5, g, id))
			}
			if !slices.Equal(has[0], has[i]) && !slices.Contains(has[0], id) {
				problems = append(problems, fmt.Sprintf("%s: group %s has %s, group %s not", promise.P1, g, id, groups[0]))
			}
		}
		for id, f := range t.messages {
			if _, there := slices.BinarySearch(has[i], id); f.pushed && !f.cancelled && !f.maybe && !there {
				problems = append(problems, fmt.Sprintf("%s: group %s has no %s", promise.P1, g, id))
			}
			if _, there := slices.BinarySearch(has[i], id); !there && slices.Contains(has[0], id) {
				problems = append(problems, fmt.Sprintf("%s: group %s has no %s, group %s has", promise.P1, g, id, groups[0]))
			}
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}
