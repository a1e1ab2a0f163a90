package diskstore

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/punctualmq/punctual"
)

// The housekeeper writes down watermarks and the clock, forgets what is past its
// retention, keeps lease tokens in stock and replaces full segments of the claim log. Nothing
// depends on when it does so.

const (
	dutyInterval = time.Second
	markInterval = 10 * time.Second // how often watermarks and the clock are written
	sweepLimit   = 1000             // records removed in one transaction
)

// runDuties is the housekeeper's goroutine; it ends with the store.
func (s *Store) runDuties() {
	ticker := time.NewTicker(dutyInterval)
	defer ticker.Stop()
	marked := time.Now()
	for {
		select {
		case <-s.closing:
			return
		case <-s.failed:
			return
		case <-ticker.C:
		case <-s.dutyKick:
		}
		withMarks := time.Since(marked) >= markInterval
		if withMarks {
			marked = time.Now()
		}
		if err := s.doDuties(withMarks); err != nil && s.usable() == nil {
			s.log.Warn("housekeeping failed and will be tried again", "dir", s.dir, "error", err)
		}
	}
}

// kickDuties hints the housekeeper.
func (s *Store) kickDuties() {
	select {
	case s.dutyKick <- struct{}{}:
	default:
	}
}

func (s *Store) doDuties(withMarks bool) error {
	ctx := context.Background()
	if s.claims.full() {
		if err := s.replaceClaims(ctx); err != nil {
			return err
		}
	}
	if err := s.reap(ctx); err != nil {
		return err
	}
	if withMarks || s.tokensLow() {
		if err := s.writeMarks(ctx); err != nil {
			return err
		}
	}
	for _, t := range s.allTopics() {
		if err := s.sweepDead(ctx, t); err != nil {
			return err
		}
	}
	return s.sweepFinished(ctx)
}

func (s *Store) allTopics() []*topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	ts := make([]*topic, 0, len(s.topics))
	for _, t := range s.topics {
		ts = append(ts, t)
	}
	return ts
}

func (s *Store) tokensLow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens.limit-s.tokens.next < tokenBlock/2
}

// writeMarks writes watermarks and the clock if there was anything to do since the last time.
func (s *Store) writeMarks(ctx context.Context) error {
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	if s.numbers.next == s.markedAt && !s.tokensLow() {
		s.abort(tx)
		return nil
	}
	s.saveMarks(tx)
	return s.commit(ctx, tx)
}

// saveMarks adds watermarks and the clock to a transaction. Acked messages go first, since a
// watermark does not pass them: a power cut may still undo the ack.
func (s *Store) saveMarks(tx *txn) {
	for tx.reap() {
	}
	s.markedAt = s.numbers.next
	tx.set(metaKey("clock"), appendTime(nil, tx.ms))
	for _, t := range s.allTopics() {
		if p := s.lowest(t, tx.ms); p != t.mark {
			s.setMark(tx, t, p)
		}
	}
}

// lowest is the place of a topic's first message that is not dead, or now if it has none.
func (s *Store) lowest(t *topic, now int64) pos {
	s.mu.Lock()
	defer s.mu.Unlock()
	low := t.diskNext
	if e := t.near.head(); e != nil && e.key.less(low) {
		low = e.key
	}
	for _, e := range t.leased {
		if e.key.less(low) {
			low = e.key
		}
	}
	for _, e := range s.unsynced {
		if e.topic == t && e.key.less(low) {
			low = e.key
		}
	}
	for _, a := range s.acked {
		if a.topic == t && a.key.less(low) {
			low = a.key
		}
	}
	if low == maxPos {
		return pos{ms: now}
	}
	return low
}

// sweepDead removes the dead messages whose retention is over.
func (s *Store) sweepDead(ctx context.Context, t *topic) error {
	s.mu.Lock()
	keep := punctual.CeilDuration(t.settings.DeadRetention)
	s.mu.Unlock()
	for keep > 0 {
		tx, err := s.begin(ctx)
		if err != nil {
			return err
		}
		n, err := tx.sweepDead(t, pos{ms: tx.ms - keep + 1})
		if err != nil {
			s.abandonTxn(tx)
			return err
		}
		if err := s.commit(ctx, tx); err != nil || n < sweepLimit {
			return err
		}
	}
	return nil
}

// sweepDead removes up to sweepLimit dead messages that died before to.
func (tx *txn) sweepDead(t *topic, to pos) (n int, err error) {
	it, err := tx.s.iterate(keyDead, t, minPos, to)
	if err != nil {
		return 0, err
	}
	defer it.Close()
	for ok := it.First(); ok && n < sweepLimit; ok = it.Next() {
		_, p, err := parsePosKey(it.Key())
		if err != nil {
			return n, err
		}
		r, err := decodeRecord(it.Value())
		if err != nil {
			return n, err
		}
		tx.removeDead(t, p, r.id)
		n++
	}
	return n, it.Error()
}

// sweepFinished forgets finished IDs whose time is over.
func (s *Store) sweepFinished(ctx context.Context) error {
	for {
		tx, err := s.begin(ctx)
		if err != nil {
			return err
		}
		n, err := tx.sweepFinished()
		if err != nil {
			s.abandonTxn(tx)
			return err
		}
		if err := s.commit(ctx, tx); err != nil || n < sweepLimit {
			return err
		}
	}
}

func (tx *txn) sweepFinished() (n int, err error) {
	it, err := tx.s.db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{keyForget}, UpperBound: appendTime([]byte{keyForget}, tx.ms+1),
	})
	if err != nil {
		return 0, err
	}
	defer it.Close()
	for ok := it.First(); ok && n < sweepLimit; ok = it.Next() {
		_, num, id, err := parseForgetKey(it.Key())
		if err != nil {
			return n, err
		}
		key := idKey(keyFinished, num, id)
		until, err := tx.s.get(key)
		if err != nil {
			return n, err
		}
		if len(until) == 8 && getTime(until) <= tx.ms {
			tx.delete(key)
		}
		tx.delete(it.Key())
		n++
	}
	return n, it.Error()
}

// replaceClaims replaces the segments of the claim log by one with what is still needed.
func (s *Store) replaceClaims(ctx context.Context) error {
	return s.rotateClaims(func() error { return s.reapDurably(ctx) })
}

// rotateClaims begins a new segment of the claim log, writes all leases of this moment into
// it, makes durable what the database must know of all others, with reap, and then deletes the
// older segments. Claims and acks go on meanwhile, into the new segment.
//
// A lease that memory does not know any more was ended by an ack or by a transaction. Until the
// deletion of the message or the transaction is in the database's log, the older segments are all
// that a kill leaves of its attempt.
func (s *Store) rotateClaims(reap func() error) error {
	num := s.claims.next()
	err := s.bounded("begin a segment of the claim log", func() error {
		if err := s.claims.start(num); err != nil {
			return err
		}
		if err := s.claims.append(witnessPayload(s.claims.witnessed())); err != nil {
			return err
		}
		if err := s.logAllLeases(); err != nil {
			return err
		}
		return s.claims.sync()
	})
	if err == nil {
		err = reap()
	}
	if err != nil {
		return err
	}
	return s.bounded("delete old segments of the claim log", func() error { return s.claims.removeBefore(num) })
}

// logAllLeases appends every lease that there is. A message that a claim has taken and not
// leased yet appears with its last lease, if it had one; the claim appends the new lease itself.
func (s *Store) logAllLeases() error {
	s.mu.Lock()
	var leases []lease
	for _, t := range s.topics {
		for _, e := range t.leased {
			if e.held() {
				leases = append(leases, e.lease())
			}
		}
	}
	s.mu.Unlock()
	for len(leases) > 0 {
		n := min(len(leases), punctual.MaxClaim)
		if err := s.claims.append(leasePayload(leases[:n])); err != nil {
			return err
		}
		leases = leases[n:]
	}
	return nil
}
