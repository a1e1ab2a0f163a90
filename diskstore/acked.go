package diskstore

import (
	"cmp"
	"context"
	"slices"
)

// An ack needs no fsync of its own: to lose one in a power cut means one more delivery. So it
// is written to the claim log, which outlives the process, and reported; the message stays
// on disk, remembered as acked, until the housekeeper deletes it with thousands of others in one
// transaction, or a transaction that meets it does. The acked frames of a segment of the
// claim log are needed until those deletions are durable.

// acked is a message that is finished but still on disk.
type acked struct {
	topic *topic
	key   pos
	id    string
}

const (
	reapKick  = 2048   // how many acked messages make the housekeeper delete them at once
	reapLimit = 8192   // deleted in one transaction
	ackedMax  = 64_000 // beyond that acks wait for the deletion
)

// ack finishes a leased message in memory. Called with mu held; the sequencer is not
// needed, so whoever holds it and acts on a message must look again, under mu, whether
// it was acked meanwhile (seize, remove, unlink).
func (s *Store) ack(e *entry) acked {
	s.unlink(e)
	a := acked{e.topic, e.key, e.id}
	s.addAcked(a)
	return a
}

// addAcked notes that a message on disk is finished. Called with mu held.
func (s *Store) addAcked(a acked) {
	s.acked[a.key.seq] = a
	a.topic.acked++
}

// logAcks makes acks outlive the process. When the claim log does not take them, they are
// made durable by deleting the messages.
func (s *Store) logAcks(ctx context.Context, done []acked) error {
	if len(done) == 0 {
		return nil
	}
	err := s.logClaims(ackedPayload(done))
	if err != nil {
		s.log.Warn("the claim log takes no acks; deleting the messages at once", "dir", s.dir, "error", err)
	}
	s.mu.Lock()
	n := len(s.acked)
	s.mu.Unlock()
	switch {
	case err != nil:
		return s.reapDurably(ctx)
	case n > ackedMax:
		return s.reap(ctx)
	case n >= reapKick:
		s.kickDuties()
	}
	return nil
}

// reap deletes all acked messages from disk.
func (s *Store) reap(ctx context.Context) error {
	for {
		tx, err := s.begin(ctx)
		if err != nil {
			return err
		}
		more := tx.reap()
		if err := s.commit(ctx, tx); err != nil || !more {
			return err
		}
	}
}

// reapDurably is reap that returns when all that was changed before is durable too, above all
// what others have reaped. It needs a transaction of its own, even if nothing is left to delete.
func (s *Store) reapDurably(ctx context.Context) error {
	if err := s.reap(ctx); err != nil {
		return err
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	tx.set(metaKey("clock"), appendTime(nil, tx.ms))
	return s.commit(ctx, tx)
}

// reap adds the deletion of acked messages, up to reapLimit, and tells whether there are more.
func (tx *txn) reap() (more bool) {
	s := tx.s
	s.mu.Lock()
	as := make([]acked, 0, min(len(s.acked), reapLimit))
	for _, a := range s.acked {
		if len(as) == reapLimit {
			more = true
			break
		}
		as = append(as, a)
	}
	for _, a := range as {
		s.dropAcked(a)
	}
	s.mu.Unlock()
	// Neighbours on disk are written one after the other, which is several times cheaper.
	slices.SortFunc(as, func(a, b acked) int {
		return cmp.Or(cmp.Compare(a.topic.num, b.topic.num), cmp.Compare(a.key.ms, b.key.ms), cmp.Compare(a.key.seq, b.key.seq))
	})
	for _, a := range as {
		tx.takeLive(a.topic, a.key, a.id)
		tx.count(a.topic, -1, 0)
	}
	return more
}

// reapOne deletes the message if it is acked, and tells whether it is.
func (tx *txn) reapOne(seq uint64) bool {
	s := tx.s
	s.mu.Lock()
	a, ok := s.acked[seq]
	if ok {
		s.dropAcked(a)
	}
	s.mu.Unlock()
	if ok {
		tx.takeLive(a.topic, a.key, a.id)
		tx.count(a.topic, -1, 0)
	}
	return ok
}

// dropAcked forgets that a message was acked, because it leaves the disk. Called with mu held.
func (s *Store) dropAcked(a acked) {
	delete(s.acked, a.key.seq)
	a.topic.acked--
}
