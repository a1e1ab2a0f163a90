// Package memory knows every message that a store has in memory. Each of them is on the timeline of
// its topic, in exactly one state:
//
//	pending    its transaction is applied, and not durable yet
//	window     near its due time, with its record
//	taken      a claim has it and has not made the lease yet
//	leased     under a lease, which may have run out
//	finished   acked, and still on disk
//
// All other messages are on disk alone. What leaves memory because it leaves the disk, or moves on it, does so as a
// Detached value, which only this package makes.
//
// Every method of Index and Topic is one atomic step under one lock. The package knows neither files, nor
// the write lock of the store, nor goroutines. A method that says so is called with the write lock held.
package memory

import (
	"sync"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// Never is a time that no clock reaches, in Unix milliseconds.
const Never int64 = 1<<63 - 1

// Index is what a store has in memory, over all topics. Its methods are safe for concurrent use.
type Index struct {
	// notify hints claims that would sleep past a time; see New.
	notify func(topic string, at int64)
	// loadHint holds one hint for the loader.
	loadHint chan struct{}

	mu sync.Mutex // guards all below, and the fields of Topic and message
	// topics by name.
	topics map[string]*Topic
	// leased are the messages in state leased, by token.
	leased map[int64]*message
	// finished is how many messages are in that state.
	finished int
	// remembering is how many leased messages have message.remembers.
	remembering int
	tokens      tokens
	// account says what all that costs.
	account account
	// inWindow are the topics with messages in the window, inHand those with messages in another state.
	inWindow, inHand topicSet
	// toLoad are the topics to load ahead, by the time of the next message on disk: a queue of byDiskNext.
	toLoad []*Topic
	// loaderUntil is when the loader wakes by itself; crowded tells that it waits for room.
	loaderUntil int64
	crowded     bool
}

// New returns an index without topics, whose messages may cost limit bytes. With notify it hints claims that wait for a topic
// and would sleep past a time. It calls that with its lock held; notify calls nothing of the index.
func New(limit int64, notify func(topic string, at int64)) *Index {
	return &Index{
		notify: notify, loadHint: make(chan struct{}, 1), topics: make(map[string]*Topic), leased: make(map[int64]*message),
		account: account{limit: limit}, inWindow: topicSet{place: func(t *Topic) *int { return &t.windowAt }},
		inHand: topicSet{place: func(t *Topic) *int { return &t.inHandAt }},
	}
}

// AddTopic adds a topic that has no messages. The settings stay as they are.
func (x *Index) AddTopic(name string, num uint32, settings *punctual.Settings) *Topic {
	t := &Topic{
		Name: name, Num: num, x: x, settings: settings, messages: make(map[uint64]*message),
		loaded: record.MinPosition, diskNext: record.MaxPosition, toLoadAt: -1, windowAt: -1, inHandAt: -1,
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.topics[name] = t
	return t
}

// TokenBlock is how many lease tokens are reserved on disk at a time, so that none is given out twice.
const TokenBlock = 1 << 26

// tokens are the lease tokens that may be given out: [next, limit).
type tokens struct{ next, limit int64 }

// StartTokens has lease tokens begin with next. Those below limit may be given out.
func (x *Index) StartTokens(next, limit int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tokens = tokens{next, limit}
}

// TokensLow tells that less than half a block of lease tokens is left. The next transaction will reserve more.
func (x *Index) TokensLow() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.tokens.limit-x.tokens.next < TokenBlock/2
}

// Leases are the leases that there are, and those that a claim is about to make.
func (x *Index) Leases() (leases []record.Lease) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, t := range x.inHand.topics {
		for _, m := range t.leases {
			leases = append(leases, m.lease)
		}
		for _, m := range t.taken {
			switch {
			case m.granted != nil:
				leases = append(leases, *m.granted)
			case m.lease.Token != 0:
				leases = append(leases, m.lease)
			}
		}
	}
	return leases
}
