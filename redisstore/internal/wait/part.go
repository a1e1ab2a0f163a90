package wait

import "github.com/punctualmq/punctual/internal/heap"

// topic is a topic that claims wait for, or have waited for. Waiter.mu guards all fields.
type topic struct {
	name    string
	parts   []*part
	members []membership // in the wait lists that have the topic
	wanted  int64        // when a claim last waited for the topic in a wait list that has been removed since
	ready   int          // how many partitions are ready
	turn    int          // counts the partitions that nextFor has checked, so that a topic's partitions are asked in rotation
}

// part is a partition of such a topic. Waiter.mu guards all fields but the first two.
type part struct {
	Part
	topic *topic

	node  string // the node that served the partition when it was last asked, or was to be asked
	phase phase  // changed by Waiter.enter alone
	place int    // in Waiter.times, -1 in all phases but scheduled

	next       next
	poll       poll
	last       last
	cleanup    cleanup
	contention contention

	asked   *ask  // the claim attempt, in phase asking
	reading *read // the pipeline that reads the next due times, in phase polling from when it is about to be sent
	// overtakenAsks are the claim attempts, and overtakenReads the pipelines, that took too long
	// and are still under way, so that others may ask and read the partition. Each is mostOvertaken
	// at most: a further one that takes too long keeps its place.
	overtakenAsks, overtakenReads int
}

// phase is what happens to a partition at the moment, or what it waits for. A partition is in one
// phase at a time.
type phase uint8

const (
	resting   phase = iota // nothing happens: nobody waits for the partition, or its next phase is being decided
	scheduled              // the partition waits for the time of its next poll: it is in Waiter.times
	ready                  // it waits for a claim to ask, because a message is due or the store is to tidy the partition
	polling                // its next due times are being read
	asking                 // a claim is asking for messages
)

// busy reports whether an answer is under way that decides the next phase of the partition.
func (ph phase) busy() bool { return ph == polling || ph == asking }

// next says when and why a partition is polled next.
type next struct {
	at       int64 // when a poll can find something, or is to be made in any case
	then     int64 // before that time at most one message is due, as far as is known
	due      bool  // a message is known to be due at that time, so that a claim asks then without a read before
	expected bool  // the message was known before its time came, so every process that waits asks at the same moment
}

// poll is the poll under way, or else the latest one: a read of next due times, or an attempt of a
// claim.
type poll struct {
	begun   int64
	noticed int64 // the earliest due time that was notified since it began; Never if there was none
	dirty   bool  // since it began something has changed that its answer may not show, so another poll is to follow at once
	crowded bool  // with it more partitions of the node were read than one pipeline takes
}

// last is about polls that have ended.
type last struct {
	begun     int64 // when the last one that ended without an error began; -Never before the first
	err       error // of the last one that ended
	skippedAt int64 // when a poll was last left out, because nobody waited
	stale     bool  // nobody had waited for more than pollEvery before a claim came, and no poll was answered since then
}

// cleanup says when a claim is to let the store tidy an idle partition.
type cleanup struct {
	polls int  // how many polls there were where nothing was known to be due, since the last one that tidied
	now   bool // the next claim that asks lets the store tidy
}

// byTime is the order of Waiter.times: the partition that is to be polled next comes first.
var byTime = heap.Order[*part]{
	Before: func(a, b *part) bool { return a.next.at < b.next.at },
	Place:  func(p *part) *int { return &p.place },
}

// enter brings a partition into a phase, and keeps what depends on the phase: Waiter.times, and the
// counts of ready partitions. The caller sets p.next.at before it enters phase scheduled. After a
// change of p.next.at in that phase it enters the phase again. Called with mu held.
func (w *Waiter) enter(p *part, to phase) {
	switch p.phase {
	case scheduled:
		if to == scheduled {
			byTime.Fix(w.times, p)
			return
		}
		byTime.Remove(&w.times, p)
	case ready:
		if to == ready {
			return
		}
		w.ready--
		if p.topic.ready--; p.topic.ready == 0 {
			p.topic.markReady()
		}
	}
	p.phase = to
	switch to {
	case scheduled:
		byTime.Push(&w.times, p)
	case ready:
		w.ready++
		if p.topic.ready++; p.topic.ready == 1 {
			p.topic.markReady()
		}
	}
}
