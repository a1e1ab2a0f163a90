// Package memory has the messages that a store keeps in memory, and decides which of them is
// delivered next. Each message is on the timeline of its topic, in exactly one state:
//
//	pending    its transaction is not durable yet
//	window     near its due time, mostly with its record
//	reserved   a claim is about to deliver it, or it waits to be ended
//	leased     under a lease, which may have run out
//	acked      acked, and still on disk
//
// All other messages are on disk alone. A live message that is deleted from disk, or moved there,
// first leaves memory as a Detached value, or with all messages of its topic by Clear or Drop. Only
// this package makes a Detached, so no message can be deleted while a claim may still deliver it.
//
// Every method of Index and Topic is one atomic step under one lock, except LoadHint, which needs
// no lock because it returns a channel that never changes. The package reads no files, starts no
// goroutines, and does not lock the write lock of the store: methods that need it say that they are
// called with it held.
package memory

import (
	"sync"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// Never stands for "nothing is due", in Unix milliseconds. It sorts after every real time.
const Never int64 = 1<<63 - 1

// Index has the messages in memory of all topics. Its methods are safe for concurrent use.
type Index struct {
	// notify wakes claims that would sleep past a time; see New.
	notify func(topic string, at int64)
	// loadHint holds one hint for the loader.
	loadHint chan struct{}

	mu sync.Mutex // guards all below, and the fields of Topic and message
	// topics by name.
	topics map[string]*Topic
	// leased are the messages in state leased, by token.
	leased map[int64]*message
	// acked is how many messages are in that state.
	acked int
	// remembering is how many leased messages have message.remembers.
	remembering int
	tokens      tokens
	steps       uint64 // how often the clock has stepped back; see Step
	// account adds up what the messages cost.
	account account
	// inWindow are the topics with messages in the window, inHand those with messages in another
	// state.
	inWindow, inHand topicSet
	// toLoad are the topics to load ahead, by the time of the next message on disk: a queue of
	// byDiskNext.
	toLoad []*Topic
	// loaderUntil is what NextLoad has returned last. crowded says that the loader waits for room.
	loaderUntil int64
	crowded     bool
}

// New returns an index without topics, whose messages may cost limit bytes. The index calls notify
// when a message of a topic is due at a time, so that claims that would sleep past that time wake.
// It holds its lock then, so notify must not call the index.
func New(limit int64, notify func(topic string, at int64)) *Index {
	return &Index{
		notify: notify, loadHint: make(chan struct{}, 1), topics: make(map[string]*Topic), leased: make(map[int64]*message),
		account: account{limit: limit}, inWindow: topicSet{place: func(t *Topic) *int { return &t.windowAt }},
		inHand: topicSet{place: func(t *Topic) *int { return &t.inHandAt }},
	}
}

// AddTopic adds a topic that has no messages. Nobody may change the settings afterwards;
// Topic.Configure replaces them.
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

// TokenBlock is how many lease tokens are reserved on disk at a time, so that none is given out
// twice.
const TokenBlock = 1 << 26

// tokens are the lease tokens that may be given out: [next, limit).
type tokens struct{ next, limit int64 }

// StartTokens sets the next lease token. Tokens below limit may be given out.
func (x *Index) StartTokens(next, limit int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tokens = tokens{next, limit}
}

// TokensLow tells whether less than half a block of lease tokens is left. The next transaction
// reserves more.
func (x *Index) TokensLow() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.tokens.limit-x.tokens.next < TokenBlock/2
}

// Leases returns the leases of all leased and reserved messages. Of a message that a claim has
// reserved it returns the lease that the claim is writing to the claim log, because the log may
// have it already, or else the last lease if there was one.
func (x *Index) Leases() (leases []record.Lease) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, t := range x.inHand.topics {
		for _, m := range t.leases {
			leases = append(leases, m.lease)
		}
		for _, m := range t.reserved {
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
