package diskstore

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// The loader brings the start of a timeline from disk into memory before it is due, so
// that nothing waits for the disk when the time comes. It holds the sequencer, so nothing is
// added or deleted on disk while it reads; claims, and transactions that become durable
// meanwhile, work on memory only and are met under mu when the batch is merged.

const (
	loadMessages = 4096    // a batch at most
	loadBytes    = 4 << 20 // and in bytes
	loadAhead    = 2_000   // how far ahead of now a batch reaches, ms
	loadLead     = 1_000   // how long before the next message on disk is due it is loaded, ms
)

// loadedMessage is one message that the loader has read.
type loadedMessage struct {
	key pos
	rec []byte
}

// load brings the next batch of a timeline into memory.
func (s *Store) load(ctx context.Context, t *topic) error {
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer s.abort(tx)
	s.mu.Lock()
	from, evicted, until := t.loaded, t.evicted, tx.ms+loadAhead
	need := t.diskNext.ms <= until
	s.mu.Unlock()
	if !need {
		return nil
	}
	batch, next, err := s.readTimeline(t, from, until)
	if err != nil {
		return fmt.Errorf("load messages of topic %s: %w", t.name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.evicted == evicted { // else the part behind the cut would be missed
		s.merge(t, batch, next, until)
	}
	return nil
}

// readTimeline reads messages behind from that are due until then, and where the first one
// stands that it left.
func (s *Store) readTimeline(t *topic, from pos, until int64) (batch []loadedMessage, next pos, err error) {
	it, err := s.iterate(keyLive, t, pos{from.ms, from.seq + 1}, maxPos)
	if err != nil {
		return nil, pos{}, err
	}
	defer it.Close()
	size := 0
	next = maxPos
	for ok := it.First(); ok; ok = it.Next() {
		_, p, err := parsePosKey(it.Key())
		if err != nil {
			return nil, pos{}, s.readError("topic "+t.name, err)
		}
		if next = p; p.ms > until || len(batch) >= loadMessages || size >= loadBytes {
			return batch, next, nil
		}
		rec := append([]byte(nil), it.Value()...)
		batch = append(batch, loadedMessage{p, rec})
		size += len(rec)
		next = maxPos
	}
	if err := it.Error(); err != nil {
		return nil, pos{}, s.readError("topic "+t.name, err)
	}
	return batch, next, nil
}

// merge puts a batch on the timeline. Called with mu held.
func (s *Store) merge(t *topic, batch []loadedMessage, next pos, until int64) {
	for _, m := range batch {
		if _, ok := s.unsynced[m.key.seq]; ok {
			continue // not durable yet; it will find the timeline loaded up to it
		}
		if s.live[m.key.seq] != nil {
			continue // leased, or just pushed
		}
		if _, ok := s.acked[m.key.seq]; ok {
			continue
		}
		s.addNear(&entry{topic: t, key: m.key, next: m.key.ms, rec: m.rec})
	}
	reached := pos{ms: until, seq: 1<<64 - 1}
	if !reached.less(next) {
		reached = from(batch, t.loaded)
	}
	if t.loaded.less(reached) {
		t.loaded = reached
	}
	t.diskNext = next
	s.evict(t)
}

// from is the place of the last message of a batch, or old if it is empty.
func from(batch []loadedMessage, old pos) pos {
	if len(batch) == 0 {
		return old
	}
	return batch[len(batch)-1].key
}

// addNear puts a message into the near part of its timeline. Called with mu held.
func (s *Store) addNear(e *entry) {
	t := e.topic
	e.state = near
	s.live[e.key.seq] = e
	s.nearBytes += e.cost()
	t.nears++
	t.near.add(e, t.nears)
}

// dropNear takes a message out of the near part. Called with mu held.
func (s *Store) dropNear(e *entry) {
	s.nearBytes -= e.cost()
	e.topic.nears--
}

// evictMin is how many near messages a topic keeps in any case.
const evictMin = 256

// evict cuts the near part of a timeline in half while all of them cost too much: the
// later half is on disk anyway and will be loaded again. Called with mu held.
func (s *Store) evict(t *topic) {
	if s.nearBytes <= s.opt.NearBytes || t.nears < evictMin {
		return
	}
	cut := t.near.cut()
	for _, i := range cut {
		s.dropNear(i.e)
		i.e.state = gone
		delete(s.live, i.e.key.seq)
	}
	if len(cut) == 0 {
		return
	}
	first := cut[0].e.key
	t.evicted++
	t.loaded = before(first)
	if first.less(t.diskNext) {
		t.diskNext = first
	}
}

// forget takes a message out of memory, wherever it is there, because it leaves the disk or
// moves on it. Called with the sequencer held.
func (s *Store) forget(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unsynced, seq)
	if e := s.live[seq]; e != nil {
		s.unlink(e)
	}
}

// unlink takes an entry out of memory. Called with mu held.
func (s *Store) unlink(e *entry) {
	if e.state == near {
		s.dropNear(e)
	}
	delete(s.live, e.key.seq)
	delete(e.topic.leased, e.key.seq)
	delete(s.byToken, e.token)
	e.state = gone
}

// iterate returns an iterator over a topic's messages of one kind from one place, which is
// never below the watermark, up to another. It must be closed.
func (s *Store) iterate(kind byte, t *topic, from, to pos) (*pebble.Iterator, error) {
	hi := upper(topicKey(kind, t.num))
	if to != maxPos {
		hi = posKey(kind, t.num, to)
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: posKey(kind, t.num, from), UpperBound: hi})
	if err != nil {
		return nil, s.readError("read topic "+t.name, err)
	}
	return it, nil
}

// runLoader loads what will be due soon, until the store closes.
func (s *Store) runLoader() {
	for {
		wait, stop := s.clock.after(s.nextLoad(), maxSleep)
		select {
		case <-s.closing:
			stop()
			return
		case <-s.failed:
			stop()
			return
		case <-wait:
		}
		stop()
		s.loadAll()
	}
}

// nextLoad is when the loader has work to do as things stand.
func (s *Store) nextLoad() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := never
	for _, t := range s.topics {
		if t.diskNext != maxPos && s.nearBytes < s.opt.NearBytes/2 {
			next = min(next, t.diskNext.ms-loadLead)
		}
	}
	return next
}

// loadAll loads a batch of every topic that needs one.
func (s *Store) loadAll() {
	soon := s.clock.ms() + loadLead
	s.mu.Lock()
	var due []*topic
	for _, t := range s.topics {
		if t.diskNext.ms <= soon && s.nearBytes < s.opt.NearBytes/2 {
			due = append(due, t)
		}
	}
	s.mu.Unlock()
	for _, t := range due {
		if err := s.load(context.Background(), t); err != nil && s.usable() == nil {
			s.log.Warn("loading ahead failed; claims will try again", "topic", t.name, "error", err)
		}
	}
}
