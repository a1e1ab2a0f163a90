package diskstore

import (
	"context"
	"sync"

	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/internal/heap"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Maintenance removes what is past its retention: dead messages, remembered IDs and finished
// records. It does so in small steps. A step takes the write lock for a moment to begin, reads what
// is to go without the lock, and takes the lock again for the one transaction that removes it, so
// that other transactions can run meanwhile and between two steps.
//
// What is past its retention and not removed yet is not visible, because every reader compares with
// the clock, for example with RetentionEnd and in Tx.Find of package writer, in Tx.Remembered of
// package database, and in Store.Finished.

const (
	sweepLimit = 1000 // how many messages, IDs or records one step removes at most
	sweepSteps = 50   // how many steps of a kind are made in one round, so that other maintenance gets its turn
)

// sweeps has the topics whose dead messages are to be swept, and when.
type sweeps struct {
	mu      sync.Mutex
	topics  []*sweep                 // guarded by mu: a queue of bySweep
	planned map[*topics.Topic]*sweep // guarded by mu; the same by topic
}

// sweep says from when on the first dead message of a topic may be past its retention: at, in Unix
// milliseconds. sweeps.mu guards its fields.
type sweep struct {
	topic *topics.Topic
	at    int64
	place int // its index in the queue
}

// plan notes when the first dead message of a topic may be past its retention, after the dead
// messages or the settings of the topic have changed. Called with the write lock held, or before
// the store is in use.
func (p *sweeps) plan(t *topics.Topic) {
	at := int64(never)
	if from := t.Disk.DeadFrom(); from != record.MaxPosition {
		at = lifecycle.DeadUntil(from.Ms, t.Settings())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.planned[t]
	switch wanted := at != never; {
	case !wanted && s != nil:
		bySweep.Remove(&p.topics, s)
		delete(p.planned, t)
	case wanted && s != nil:
		s.at = at
		bySweep.Fix(p.topics, s)
	case wanted:
		if p.planned == nil {
			p.planned = make(map[*topics.Topic]*sweep)
		}
		s = &sweep{topic: t, at: at}
		p.planned[t] = s
		bySweep.Push(&p.topics, s)
	}
}

// due returns a topic with dead messages whose retention may be over at now, or nil.
func (p *sweeps) due(now int64) *topics.Topic {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.topics) > 0 && p.topics[0].at <= now {
		return p.topics[0].topic
	}
	return nil
}

// each calls f for the topics that are due at now.
func (p *sweeps) each(now int64, f func(t *topics.Topic)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range heap.First(p.topics, func(s *sweep) bool { return s.at <= now }) {
		f(s.topic)
	}
}

// bySweep is the order of sweeps by time.
var bySweep = heap.Order[*sweep]{
	Before: func(a, b *sweep) bool { return a.at < b.at },
	Place:  func(s *sweep) *int { return &s.place },
}

// sweep removes some of what is past its retention, and tells whether there may be more.
func (s *Store) sweep(ctx context.Context) (more bool, err error) {
	for _, of := range []database.Order{database.Remembered, database.FinishedRecords} {
		left := true
		for i := 0; i < sweepSteps && left && err == nil; i++ {
			if left = s.db.ForgetDue(of, s.clock.ms()); left {
				left, err = s.sweepFinished(ctx, of)
			}
		}
		more = more || left
	}
	for range sweepSteps {
		t := s.sweeps.due(s.clock.ms())
		if t == nil || err != nil {
			return more, err
		}
		_, err = s.sweepDead(ctx, t)
	}
	return true, err
}

// sweepDead removes the next dead messages of a topic that are past their retention, up to
// sweepLimit, and tells whether there may be more.
func (s *Store) sweepDead(ctx context.Context, t *topics.Topic) (more bool, err error) {
	var step *database.DeadSweep
	err = s.writer.Locked(ctx, func(tx *writer.Tx) (err error) {
		if step, err = tx.Maintenance().SweepDead(t.Disk, writer.RetentionEnd(t.Settings(), tx.Ms), sweepLimit); step == nil {
			s.sweeps.plan(t)
		}
		return err
	})
	if step == nil || err != nil {
		return false, err
	}
	if err := step.Read(); err != nil {
		return false, err
	}
	tx, err := s.writer.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer tx.Close(&err)
	if more, err = tx.Maintenance().RemoveSwept(step); err != nil {
		return false, err
	}
	if s.sweeps.plan(t); tx.Maintenance().Size() == 0 {
		return false, nil
	}
	return more, tx.Commit(ctx)
}

// sweepAll removes all dead messages of a topic that are past their retention, if there is that
// topic. Others may pass theirs before the next transaction begins; see sweepRest.
func (s *Store) sweepAll(ctx context.Context, name string) error {
	for {
		t := s.topics.Get(name)
		if t == nil {
			return nil
		}
		if more, err := s.sweepDead(ctx, t); err != nil || !more {
			return err
		}
	}
}

// sweepRest removes, in the given transaction, the dead messages that have passed their retention
// since sweepAll; there are few.
func (s *Store) sweepRest(tx *writer.Tx, t *topics.Topic) error {
	step, err := tx.Maintenance().SweepDead(t.Disk, writer.RetentionEnd(t.Settings(), tx.Ms), int(t.Disk.Dead()))
	if step == nil || err != nil {
		return err
	}
	if err := step.Read(); err != nil {
		return err
	}
	_, err = tx.Maintenance().RemoveSwept(step)
	s.sweeps.plan(t)
	return err
}

// sweepFinished deletes the next remembered IDs (database.Remembered) or finished records
// (database.FinishedRecords) that are past their retention, up to sweepLimit, and tells whether
// there may be more.
func (s *Store) sweepFinished(ctx context.Context, of database.Order) (more bool, err error) {
	s.forgetting.Lock()
	defer s.forgetting.Unlock()
	var step *database.ForgetSweep
	err = s.writer.Locked(ctx, func(tx *writer.Tx) (err error) {
		step, err = tx.Maintenance().SweepFinished(of, sweepLimit)
		return err
	})
	if err != nil {
		return false, err
	}
	if err := step.Read(); err != nil {
		return false, err
	}
	tx, err := s.writer.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer tx.Close(&err)
	if more = tx.Maintenance().ForgetSwept(step); tx.Maintenance().Size() == 0 {
		return false, nil
	}
	return more, tx.Commit(ctx)
}
