package diskstore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/storekit"
)

// purgeStep is how many messages one transaction of a purge removes at most, unless it clears the
// topic.
const purgeStep = 1000

// clearTries is how often a purge tries to clear a topic, because what stays may change between the
// read and the transaction.
const clearTries = 3

// Purge removes messages; see punctual.Inspector. All live messages of a topic, or all dead ones,
// as a rule go in one atomic step when they are 1000 or more and at most 10,000 others stay.
// Otherwise each thousand is one atomic step. Then Purge removes nothing that is pushed after it
// has begun, and it leaves out a message that is not in the given state and bounds any more when
// its turn comes. But a purge of StateNone goes on until, at one instant, its bounds have no live
// message from before it began.
func (s *Store) Purge(ctx context.Context, q punctual.PurgeQuery) (int64, error) {
	if err := s.admit(ctx, storekit.CheckTopic(q.Topic)); err != nil {
		return 0, fmt.Errorf("purge: %w", err)
	}
	if err := s.state.Enter(); err != nil {
		return 0, fmt.Errorf("purge: %w", err)
	}
	defer s.state.Leave()
	if q.State > punctual.StateDead {
		return 0, fmt.Errorf("purge of unknown state %d: %w", q.State, punctual.ErrInvalid)
	}
	p := purge{
		s: s, topic: q.Topic, state: q.State,
		span: spanOf(q.From.IsZero(), storekit.CeilMillis(q.From), q.To.IsZero(), storekit.CeilMillis(q.To)),
	}
	err := p.run(ctx)
	if err != nil && p.removed > 0 {
		err = errkind.HalfDone(err)
	}
	if err != nil {
		return p.removed, fmt.Errorf("purge messages of %s, %d removed so far: %w", q.Topic, p.removed, err)
	}
	return p.removed, nil
}

// purge is a Purge on its way.
type purge struct {
	s       *Store
	topic   string
	state   punctual.State // StateNone: all but the dead
	span    span
	below   uint64 // messages with this number or a higher one were pushed after the purge had begun
	removed int64
}

func (p *purge) run(ctx context.Context) error {
	if cleared, err := p.clear(ctx); err != nil || cleared {
		return err
	}
	err := p.s.writer.Locked(ctx, func(*writer.Tx) error {
		p.below = p.s.db.NextNumber()
		return nil
	})
	if err != nil {
		return err
	}
	if p.state != punctual.StateNone {
		return p.pass(ctx, p.state)
	}
	// While the messages of one state are purged, one may go over into the other state, or to a
	// place on its timeline that the purge has passed. A message claimed between the two passes is
	// in neither. So the purge is done only when a view of one instant has no such message.
	for {
		for _, state := range []punctual.State{punctual.StateLeased, punctual.StateNone} {
			if err := p.pass(ctx, state); err != nil {
				return err
			}
		}
		if left, err := p.matches(ctx, p.span, 1, punctual.StateLeased, punctual.StateNone); err != nil || len(left) == 0 {
			return err
		}
	}
}

// clear removes all that the purge wants in one transaction, if that is all live messages of the
// topic or all dead ones. cleared is false, and none of these is removed, when the purge wants
// others, when they are too few or too many other messages stay (database.DB.Clear), or when what
// stays has changed at each of the clearTries.
func (p *purge) clear(ctx context.Context) (cleared bool, err error) {
	of := database.Live
	switch {
	case p.span != span{from: record.MinPosition, to: record.MaxPosition}:
		return false, nil
	case p.state == punctual.StateDead:
		of = database.Dead
		if err := p.s.sweepAll(ctx, p.topic); err != nil { // because messages past their retention do not count as removed
			return false, err
		}
	case p.state != punctual.StateNone:
		return false, nil
	}
	for range clearTries {
		var c *database.Clear
		err := p.s.writer.Locked(ctx, func(*writer.Tx) error {
			if t := p.s.topics.Get(p.topic); t != nil {
				c = p.s.db.Clear(t.Disk, of, p.s.opt.clearFrom)
			}
			return nil
		})
		if err != nil || c == nil {
			return false, err
		}
		if err := c.Read(); err != nil {
			return false, err
		}
		if p.s.opt.purging != nil {
			p.s.opt.purging(p.state)
		}
		if cleared, err := p.clearCurrent(ctx, c, of); err != nil || cleared {
			return cleared, err
		}
	}
	return false, nil
}

// clearCurrent clears the topic if what stays is still as it was read.
func (p *purge) clearCurrent(ctx context.Context, c *database.Clear, of database.Order) (cleared bool, err error) {
	tx, err := p.s.writer.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer tx.Close(&err)
	if !c.Current() {
		return false, nil
	}
	t := p.s.topics.Get(p.topic)
	if of == database.Dead {
		if err := p.s.sweepRest(tx, t); err != nil {
			return false, err
		}
	}
	n := tx.Clear(t, c, of)
	p.s.sweeps.plan(t)
	if err := tx.Commit(ctx); err != nil {
		return false, err
	}
	p.removed = n
	return true, p.s.db.FlushRanges()
}

// pass goes once through the messages of a state and removes them; StateNone stands for those that
// are live and not leased.
func (p *purge) pass(ctx context.Context, state punctual.State) error {
	if p.s.opt.purging != nil {
		p.s.opt.purging(state)
	}
	b := p.span
	for {
		found, err := p.matches(ctx, b, purgeStep, state)
		if err != nil || len(found) == 0 {
			return err
		}
		n, err := p.remove(ctx, found)
		if err != nil {
			return err
		}
		p.removed += n
		last := found[len(found)-1].at
		b.from = record.Position{Ms: last.Ms, Seq: last.Seq + 1}
	}
}

// match is a message to be purged: its ID, where it stands in the list of its state, and its
// number.
type match struct {
	id  string
	at  record.Position
	seq uint64
}

// matches finds up to limit messages of the given states in a span, as they are at one instant.
func (p *purge) matches(ctx context.Context, b span, limit int, states ...punctual.State) ([]match, error) {
	tv, err := p.s.snapshotTopic(ctx, p.topic)
	if err != nil {
		return nil, err
	}
	defer tv.close()
	if tv.Num == 0 {
		return nil, nil
	}
	var out []match
	for _, state := range states {
		if len(out) == limit {
			break
		}
		err = tv.scan(ctx, state, b, func(order database.Order, at, key record.Position) (bool, error) {
			if key.Seq >= p.below {
				return true, nil
			}
			i, err := tv.info(order, key)
			out = append(out, match{i.ID, at, key.Seq})
			return len(out) < limit, err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// remove removes those matches that are still there and that the purge still wants, and returns how
// many these were.
func (p *purge) remove(ctx context.Context, found []match) (n int64, err error) {
	err = p.s.writer.Do(ctx, func(tx *writer.Tx) error {
		t := p.s.topics.Get(p.topic)
		if t == nil {
			return nil
		}
		for _, v := range found {
			f, err := tx.Find(t, v.id, nil)
			if err != nil {
				return err
			}
			if f.Exists() && f.Place.At.Seq == v.seq && p.wants(f) && remove(tx, f) {
				n++
			}
		}
		return nil
	})
	return n, err
}

// wants tells whether the purge takes a message, as it is now.
func (p *purge) wants(f writer.Found) bool {
	if f.State != p.state && (p.state != punctual.StateNone || f.State == punctual.StateDead) {
		return false
	}
	at := f.Place.At
	if f.State != punctual.StateDead {
		at.Ms = f.Next
	}
	return !at.Less(p.span.from) && at.Less(p.span.to)
}

// DeleteTopic removes a topic with everything in it, and its companions; see punctual.Inspector.
func (s *Store) DeleteTopic(ctx context.Context, name string) (int64, error) {
	if err := s.admit(ctx, storekit.CheckTopic(name)); err != nil {
		return 0, fmt.Errorf("delete topic: %w", err)
	}
	if err := s.state.Enter(); err != nil {
		return 0, fmt.Errorf("delete topic: %w", err)
	}
	defer s.state.Leave()
	n, err := s.deleteTopic(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("delete topic %s: %w", name, err)
	}
	return n, nil
}

// deleteTopic deletes a topic and its companions in one transaction, so that nobody sees a
// companion without its topic.
func (s *Store) deleteTopic(ctx context.Context, name string) (n int64, err error) {
	for _, t := range s.topics.Family(name) { // because messages past their retention do not count as removed
		if err := s.sweepAll(ctx, t.Name); err != nil {
			return 0, err
		}
	}
	keys, err := s.readFamilyKeys(ctx, name)
	if err != nil {
		return 0, err
	}
	tx, err := s.writer.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer tx.Close(&err)
	family := s.topics.Family(name)
	if len(family) == 0 {
		return 0, cmp.Or(tx.Commit(ctx), punctual.ErrNotFound) // its deletion may not be durable yet
	}
	parent, _ := storekit.Companion(name)
	var waiting int64
	if out := s.topics.Get(storekit.OutTopic(name)); out != nil {
		waiting = out.Disk.Live() - int64(len(out.Memory.View().Acked))
	}
	if err := storekit.CheckDelete(name, s.topics.Get(parent).Settings(), waiting); err != nil {
		return 0, cmp.Or(tx.Commit(ctx), err) // what it rests on may not be durable yet
	}
	for _, t := range family {
		if err := s.sweepRest(tx, t); err != nil {
			return 0, err
		}
		k := keys[t]
		if tx.Full() {
			k = nil // then a few ranges are deleted instead of many keys, so that the transaction stays small
		}
		n += tx.DeleteTopic(t, k)
		s.sweeps.plan(t)
	}
	if err := tx.Commit(ctx); err != nil {
		return 0, err
	}
	return n, s.db.FlushRanges()
}

// familyKeys is about how many keys a deletion of a topic and its companions reads before it takes
// the write lock. Companions whose keys were not read any more are deleted by ranges.
const familyKeys = 16 * database.DeleteSingly

// readFamilyKeys reads the keys of a topic and of its companions, without the write lock.
func (s *Store) readFamilyKeys(ctx context.Context, name string) (map[*topics.Topic]*database.TopicKeys, error) {
	keys, n := make(map[*topics.Topic]*database.TopicKeys), 0
	for _, t := range s.topics.Family(name) {
		if n >= familyKeys {
			break
		}
		k, err := s.readTopicKeys(ctx, t)
		if err != nil {
			return nil, err
		}
		if k != nil {
			keys[t] = k
			n += k.Len()
		}
	}
	return keys, nil
}

// readTopicKeys reads the keys of a topic as they are at one instant; nil if the topic is deleted.
// The write lock is held only at that instant.
func (s *Store) readTopicKeys(ctx context.Context, t *topics.Topic) (keys *database.TopicKeys, err error) {
	err = s.writer.Locked(ctx, func(*writer.Tx) error {
		if s.topics.Get(t.Name) == t {
			keys = s.db.TopicKeys(t.Disk)
		}
		return nil
	})
	if err != nil || keys == nil {
		return nil, err
	}
	return keys, keys.Read()
}

func msDuration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
