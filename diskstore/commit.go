package diskstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/punctualmq/punctual"
)

// txn is one change of the store: what it writes, and the messages that enter the
// timelines once it is durable. It is made with the sequencer held:
//
//	tx, err := s.begin(ctx)         take the sequencer
//	...                             read, decide, fill tx; take away from memory
//	err = s.commit(ctx, tx)         apply; give the sequencer back; wait for the fsync;
//	                                then put the new messages on their timelines
//
// A txn that changes nothing is given back with s.abort(tx).
type txn struct {
	s     *Store
	b     *pebble.Batch
	num   uint64    // its number, from finish on
	now   time.Time // the store's clock, fine
	ms    int64     // the same in whole milliseconds, rounded down
	moved []*topic  // topics whose counts changed, each once
	added []*entry  // messages to put on their timelines
	// pushed are the messages that this txn stores under an ID of the caller's, by the key
	// of the ID; the database does not know them yet.
	pushed map[string]*entry
}

// sequencerWait is how long a call waits for its turn before it is refused as overload.
const sequencerWait = 10 * time.Second

// begin waits for the sequencer and begins a transaction.
func (s *Store) begin(ctx context.Context) (*txn, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	select {
	case <-s.sequencer:
	default:
		if err := s.waitTurn(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.usable(); err != nil {
		s.sequencer <- struct{}{}
		return nil, err
	}
	return s.newTxn(), nil
}

// newTxn begins a transaction. Called with the sequencer held.
func (s *Store) newTxn() *txn {
	now := s.clock.now()
	return &txn{s: s, b: s.db.NewBatch(), now: now, ms: punctual.Millis(now)}
}

func (s *Store) waitTurn(ctx context.Context) error {
	timer := time.NewTimer(sequencerWait)
	defer timer.Stop()
	select {
	case <-s.sequencer:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the store: %w", ended(ctx))
	case <-s.failed:
		return s.failure()
	case <-s.closing:
		return s.usable()
	case <-timer.C:
		return fmt.Errorf("waited %v for the store's turn: %w", sequencerWait, punctual.ErrOverloaded)
	}
}

// abort gives the sequencer back without having changed anything.
func (s *Store) abort(tx *txn) {
	tx.b.Close()
	s.sequencer <- struct{}{}
}

// commit applies the transaction, gives the sequencer back and waits until it is
// durable. When it returns an error the outcome is open, and often the store has failed.
func (s *Store) commit(ctx context.Context, tx *txn) error {
	if tx.b.Empty() {
		s.abort(tx)
		return nil
	}
	s.finish(tx)
	s.commits.Add(1)
	done := make(chan error, 1)
	go s.carryOut(tx, done)
	timer := time.NewTimer(s.opt.CommitTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the disk: %w: %w", punctual.ErrIndeterminate, ended(ctx))
	case <-timer.C:
		s.fail(fmt.Errorf("the disk did not answer for %v", s.opt.CommitTimeout))
	case <-s.failed:
	}
	return s.cutShort()
}

// finish adds what every transaction writes: its number, counts, and numbers when they run
// short.
func (s *Store) finish(tx *txn) {
	s.txns++
	tx.num = s.txns
	tx.set(metaKey("txn"), binary.BigEndian.AppendUint64(nil, tx.num))
	for _, t := range tx.moved {
		v := binary.BigEndian.AppendUint64(nil, uint64(t.live))
		v = binary.BigEndian.AppendUint64(v, uint64(t.dead))
		tx.set(topicKey(keyCounts, t.num), v)
	}
	s.lowerMarks(tx)
	s.reserve(tx)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range tx.added {
		s.unsynced[e.key.seq] = e
	}
}

// carryOut runs a commit to its end, in a goroutine of its own because the database
// may hang, or stop it (stopHere). done is buffered.
func (s *Store) carryOut(tx *txn, done chan<- error) {
	defer s.commits.Done()
	err := s.db.ApplyNoSyncWait(tx.b, pebble.Sync)
	if err == nil {
		s.sequencer <- struct{}{}
		err = tx.b.SyncWait()
	}
	if err != nil {
		s.fail(classify("write to the log", err))
		done <- s.cutShort()
		return
	}
	s.claims.witness(tx.num)
	s.publish(tx.added)
	done <- tx.b.Close()
}

// publish puts messages that are durable now on their timelines and wakes those who wait.
func (s *Store) publish(added []*entry) {
	if len(added) == 0 {
		return
	}
	soon := s.clock.ms() + nearHorizon
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range added {
		if s.unsynced[e.key.seq] != e {
			continue // taken away, or moved, before it was durable
		}
		delete(s.unsynced, e.key.seq)
		s.place(e, soon)
	}
}

// place puts a message that is on disk on its timeline: into memory if the timeline is
// loaded up to it, or can be because nothing on disk lies between.
func (s *Store) place(e *entry, soon int64) {
	t := e.topic
	switch {
	case e.key.less(t.loaded) || e.key == t.loaded:
	case e.key.less(t.diskNext) && e.key.ms <= soon:
		t.loaded = e.key
	default:
		if e.key.less(t.diskNext) {
			t.diskNext = e.key
			s.wake(t, e.key.ms)
		}
		return
	}
	s.addNear(e)
	s.evict(t)
	s.wake(t, e.next)
}

// set writes a key.
func (tx *txn) set(key, value []byte) {
	if err := tx.b.Set(key, value, nil); err != nil {
		panic(err) // a batch only fails when it was closed, which is our mistake
	}
}

func (tx *txn) delete(key []byte) {
	if err := tx.b.Delete(key, nil); err != nil {
		panic(err)
	}
}

// count changes a topic's counts.
func (tx *txn) count(t *topic, live, dead int64) {
	t.live += live
	t.dead += dead
	for _, m := range tx.moved {
		if m == t {
			return
		}
	}
	tx.moved = append(tx.moved, t)
}

// lookup returns where the message with an ID is; kind 0 when there is none.
func (tx *txn) lookup(t *topic, id string) (place, error) {
	v, err := tx.s.get(idKey(keyID, t.num, id))
	if err != nil || v == nil {
		return place{}, err
	}
	return parsePlace(v)
}

// setPlace writes where the message with an ID is; kind 0 removes the ID.
func (tx *txn) setPlace(t *topic, id string, p place) {
	key := idKey(keyID, t.num, id)
	if p.kind == 0 {
		tx.delete(key)
	} else {
		tx.set(key, p.append(make([]byte, 0, 17)))
	}
}

// putLive writes a message and where it is, and puts it on its timeline when durable.
func (tx *txn) putLive(t *topic, seq uint64, r *record) *entry {
	rec := r.encode()
	p := pos{r.due, seq}
	tx.set(posKey(keyLive, t.num, p), rec)
	tx.setPlace(t, r.id, place{keyLive, p})
	e := &entry{topic: t, key: p, next: r.due}
	if r.due <= tx.ms+nearHorizon {
		e.rec = rec
	}
	tx.added = append(tx.added, e)
	return e
}

// takeLive removes a live message from disk, and its ID unless another record takes it.
func (tx *txn) takeLive(t *topic, p pos, id string) {
	tx.delete(posKey(keyLive, t.num, p))
	if id != "" {
		tx.setPlace(t, id, place{})
	}
}

// rememberFinished keeps the ID of a message that is finished for as long as the topic asks.
func (tx *txn) rememberFinished(t *topic, id string) {
	if t.settings.Remember <= 0 {
		return
	}
	until := tx.ms + punctual.CeilDuration(t.settings.Remember)
	tx.set(idKey(keyFinished, t.num, id), appendTime(nil, until))
	tx.set(forgetKey(until, t.num, id), nil)
}

// get reads a key; nil if it is not there. The value is the caller's.
func (s *Store) get(key []byte) ([]byte, error) {
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, s.readError("read", err)
	}
	v = append([]byte(nil), v...)
	return v, closer.Close()
}

// getRecord reads a message that must be there.
func (s *Store) getRecord(kind byte, t *topic, p pos) (*record, error) {
	v, err := s.get(posKey(kind, t.num, p))
	if err != nil {
		return nil, err
	}
	if v == nil {
		err := corruptf("message %v of topic %s is named by its ID but not there", p, t.name)
		s.fail(err)
		return nil, err
	}
	r, err := decodeRecord(v)
	if err != nil {
		return nil, s.readError("topic "+t.name, err)
	}
	return r, nil
}

// lowerMarks lowers the watermarks of topics that get a message below theirs.
func (s *Store) lowerMarks(tx *txn) {
	for _, e := range tx.added {
		if t := e.topic; e.key.less(t.mark) {
			s.setMark(tx, t, e.key)
		}
	}
}

func (s *Store) setMark(tx *txn, t *topic, p pos) {
	s.mu.Lock()
	t.mark = p
	s.mu.Unlock()
	tx.set(topicKey(keyMark, t.num), p.append(nil))
}

// numbers are the message numbers that may be given out, in [next, limit).
type numbers struct{ next, limit uint64 }

// Numbers and tokens are reserved on disk in blocks, so that none is given out twice.
const (
	seqBlock   = 1 << 20
	tokenBlock = 1 << 26
)

// newSeq gives out a message number. reserve keeps MaxBatch and more in stock.
func (tx *txn) newSeq() uint64 {
	tx.s.numbers.next++
	return tx.s.numbers.next - 1
}

// reserve extends the blocks of numbers and tokens in this transaction when less than half
// is left. Tokens may be used before the transaction is durable: claims stop at the old limit,
// which is raised here only because half a block is still in stock below it.
func (s *Store) reserve(tx *txn) {
	if s.numbers.limit-s.numbers.next < seqBlock/2 {
		s.numbers.limit += seqBlock
		tx.set(metaKey("seq"), binary.BigEndian.AppendUint64(nil, s.numbers.limit))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens.limit-s.tokens.next < tokenBlock/2 {
		s.tokens.limit += tokenBlock
		tx.set(metaKey("token"), binary.BigEndian.AppendUint64(nil, uint64(s.tokens.limit)))
	}
}

func metaKey(name string) []byte { return append([]byte{keyMeta}, name...) }
