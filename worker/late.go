package worker

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// giveUpLate gives up the claims that take too long, and ends the rests that are over.
func (p *poller) giveUpLate() {
	now := time.Now()
	if a := p.second; a != nil && a.isLate(now) {
		p.second, a.late = nil, time.Time{}
		p.warnLate(a)
	}
	if a := p.whole; a != nil {
		if a.isLate(now) {
			p.giveUp(a)
		}
		if t := p.polls[0]; len(p.polls) == 1 && !t.rest.After(now) {
			t.rest = time.Time{}
		}
		return
	}
	for _, t := range p.polls {
		if !t.rest.After(now) {
			t.rest = time.Time{}
		}
		if a := t.asked; a != nil && a.isLate(now) {
			p.giveUp(a)
		}
	}
}

// isLate reports whether the claim takes too long and has not been given up yet.
func (a *ask) isLate(now time.Time) bool { return !a.late.IsZero() && !a.late.After(now) }

// giveUp frees the slots and topics of a claim that takes too long, so that other claims can have
// them. It ends a claim of several topics; a claim of one topic goes on (see poll.go).
func (p *poller) giveUp(a *ask) {
	a.late, a.givenUp = time.Time{}, true
	if len(a.polls) == 1 {
		a.polls[0].late++
	} else {
		a.cancel()
	}
	p.w.slots.settle(a.reserved, nil)
	p.w.dispatch(p.s, p.w.slots.enqueue(nil)) // messages that were claimed ahead may have the slots now
	p.divide(a)
	if !a.suspected { // a suspected claim may simply have found nothing
		p.warnLate(a)
	}
}

func (p *poller) warnLate(a *ask) {
	for _, t := range a.polls {
		p.w.outage.Failed(t, context.DeadlineExceeded, "a claim does not return; its topics are asked for again, in other claims",
			"topics", someOf(a.claim.Topics), "after", a.mayTake())
	}
}

// divide frees the topics of a from that claim and puts them into groups: of one topic each, unless
// topics outnumber the slots.
func (p *poller) divide(a *ask) {
	each := 1
	if p.outnumbered() {
		groups := make(map[int]bool)
		for _, t := range p.polls {
			groups[t.group] = true
		}
		n := max(2, min(mostGroups, p.w.slots.total-len(groups)))
		each = (len(a.polls) + n - 1) / n
	}
	p.free(a)
	p.divided = true
	for some := range slices.Chunk(a.polls, each) {
		p.groups++
		for _, t := range some {
			t.group = p.groups
		}
	}
}

// free notes that a claim is no longer under way for its topics.
func (p *poller) free(a *ask) {
	if p.whole == a {
		p.whole = nil
		return
	}
	for _, t := range a.polls {
		t.asked = nil
	}
}

// someOf returns the first ten topics and the number of the others, for a log.
func someOf(topics []string) []string {
	const most = 10
	if len(topics) <= most {
		return topics
	}
	return append(slices.Clone(topics[:most]), fmt.Sprintf("and %d more", len(topics)-most))
}

// suspectFirst is called with the messages that the second of two long claims has brought. If there
// are any it gives the first claim lateCall to return, because that claim may hang and its slots
// are needed. If the message has no slot beside those of the first claim, that claim is given up at
// once.
func (p *poller) suspectFirst(ms []*message) {
	a := p.whole
	if len(ms) == 0 || a == nil || a.claim.Wait != longWait {
		return
	}
	a.suspected = true
	if p.w.slots.roomBeside(ms[0].route, a.reserved) {
		a.late = earlier(a.late, time.Now().Add(lateCall))
		return
	}
	p.giveUp(a)
}

// dispatchLate dispatches the messages of a claim that was given up. Its slots were freed then, so
// a message for which there is no free slot is given back.
func (p *poller) dispatchLate(ms []*message) {
	kept := ms[:0]
	for _, m := range ms {
		if p.w.slots.tryOccupy(m.route) {
			kept = append(kept, m)
			continue
		}
		p.s.running.Go(func() { _ = p.w.finish(m, unstarted("its claim was late")) }) // finish reports what goes wrong
	}
	p.w.dispatch(p.s, kept)
}
