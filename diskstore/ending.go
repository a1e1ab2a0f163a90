package diskstore

import (
	"context"
	"log/slog"
	"sync"

	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// A claim encounters messages that must not be delivered any more: cancelled under their last
// lease, expired, or out of attempts. It hands them over to one goroutine, which ends those of all
// claims, many in one transaction. So a backlog of expired messages costs only as many transactions
// as it fills, whatever the Max of the claims is, and a call that waits for the write lock waits
// for one of these transactions at most.

const (
	// endBatch is how many messages one transaction ends at most. Topics share it equally, so that
	// a topic with few messages to end does not wait for one with many (P14).
	endBatch = 1000
	// endBytes is what messages that wait for their end may cost in memory. Topics share that, too.
	// While a topic has its share waiting, claims reserve nothing more in the topic.
	endBytes = 16 << 20
)

// endings are the messages that wait for their end, by topic.
type endings struct {
	s *Store

	mu      sync.Mutex // taken before the lock of the index
	running bool       // guarded by mu: the goroutine runs
	// queues are those that have messages to be ended, or being ended; the next batch begins with
	// the first one. byTopic has the same queues. Guarded by mu.
	queues  []*endQueue
	byTopic map[string]*endQueue
}

// endQueue has the messages of one topic that wait for their end. All but topic is guarded by
// endings.mu.
type endQueue struct {
	topic   string
	waiting []*memory.Reserved
	bytes   int64 // what the waiting messages cost
	// added and ended count messages since the queue was made.
	added, ended uint64
	changed      chan struct{} // closed and replaced when ended or err changes
	err          error         // why messages were put back; they count as ended then
}

// handed is a mark in a queue. It is reached when as many messages of the queue have been ended as
// the mark says, for example all that a claim has handed over and all before them.
type handed struct {
	q    *endQueue
	mark uint64
}

func costOfEnding(c *memory.Reserved) int64 { return memory.MessageBytes + int64(len(c.Record)) }

// add hands over a message that a claim has reserved. The caller is between State.Enter and
// State.Leave.
func (e *endings) add(c *memory.Reserved) handed {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.byTopic[c.Topic.Name]
	if q == nil {
		q = &endQueue{topic: c.Topic.Name, changed: make(chan struct{})}
		if e.byTopic == nil {
			e.byTopic = make(map[string]*endQueue)
		}
		e.byTopic[c.Topic.Name] = q
		e.queues = append(e.queues, q)
	}
	q.waiting = append(q.waiting, c)
	q.bytes += costOfEnding(c)
	q.added++
	if !e.running {
		e.running = true
		e.s.state.Go(e.run)
	}
	return handed{q, q.added}
}

// full tells whether the waiting messages of a topic cost as much as its share allows. The mark
// next is reached when one more message of the topic is ended.
func (e *endings) full(topic string) (next handed, full bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.byTopic[topic]
	if q == nil || q.bytes < endBytes/int64(len(e.queues)) {
		return handed{}, false
	}
	return handed{q, q.ended + 1}, true
}

// progress tells whether all messages up to a mark have been ended, or put back because of err. If
// not, changed is closed once some of them have.
func (e *endings) progress(h handed) (changed <-chan struct{}, reached bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h.q.ended >= h.mark {
		return nil, true, h.q.err
	}
	return h.q.changed, false, nil
}

// run ends messages until none waits. After an error none waits, because the method ended puts all
// of them back.
func (e *endings) run() {
	for from, batch := e.next(); len(batch) > 0; from, batch = e.next() {
		e.ended(from, len(batch), e.s.endUndeliverable(context.Background(), batch))
	}
}

// next returns the next batch, an equal share of each queue, and how many messages are from each.
// The batch is empty when no message waits; then the goroutine ends.
func (e *endings) next() (from map[*endQueue]int, batch []*memory.Reserved) {
	e.mu.Lock()
	defer e.mu.Unlock()
	from = make(map[*endQueue]int)
	share := endBatch
	if len(e.queues) > 0 {
		share = max(1, endBatch/len(e.queues))
	}
	seen := 0
	for ; seen < len(e.queues) && len(batch) < endBatch; seen++ {
		q := e.queues[seen]
		n := min(share, len(q.waiting))
		for _, c := range q.waiting[:n] {
			q.bytes -= costOfEnding(c)
		}
		batch = append(batch, q.waiting[:n]...)
		clear(q.waiting[:n])
		from[q], q.waiting = n, q.waiting[n:]
	}
	e.queues = append(e.queues[seen:len(e.queues):len(e.queues)], e.queues[:seen]...) // those that gave messages come last
	e.running = len(batch) > 0
	return from, batch
}

// ended notes that a batch of n messages has been ended. After an error, what could not be ended of
// the batch was put back, and ended puts back all that waits, so that later claims encounter the
// messages again.
func (e *endings) ended(from map[*endQueue]int, n int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.s.state.LogSeldom(slog.LevelWarn, "messages that must not be delivered could not be ended; the next claim will try again", "messages", n, "error", err)
	}
	left := e.queues[:0]
	for _, q := range e.queues {
		q.ended += uint64(from[q])
		if err != nil {
			e.s.index.PutBack(q.waiting)
			q.waiting, q.bytes, q.ended, q.err = nil, 0, q.added, err
		}
		if from[q] > 0 || err != nil {
			close(q.changed)
			q.changed = make(chan struct{})
		}
		if q.ended < q.added {
			left = append(left, q)
		} else {
			delete(e.byTopic, q.topic)
		}
	}
	clear(e.queues[len(left):])
	e.queues = left
}

// endUndeliverable ends messages that claims have handed over, in as many transactions as they
// need. It puts back those that it could not end.
func (s *Store) endUndeliverable(ctx context.Context, undeliverable []*memory.Reserved) error {
	for next := 0; next < len(undeliverable); {
		done, err := s.writer.Some(ctx, next, len(undeliverable), func(tx *writer.Tx, i int) error {
			endUndeliverable(tx, undeliverable[i])
			return nil
		})
		if err != nil {
			s.index.PutBack(undeliverable[next:]) // leaves out those that have left memory, because their end may be on disk
			return err
		}
		next = done
	}
	return nil
}

// endUndeliverable ends one message, unless another transaction has detached it since the claim, or
// the clock has stepped back. Its end is dated with the transaction. That began after the claim had
// read the clock, so what had to end then has to end now.
func endUndeliverable(tx *writer.Tx, c *memory.Reserved) {
	if d, ok := tx.DetachReserved(c); ok {
		tx.Apply(d, c.Message, lifecycle.Meet(&c.Message.Message, c.Settings, tx.Ms))
	}
}
