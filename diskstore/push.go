package diskstore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

// Push stores messages; see punctual.Store. It returns after the fsync, which it shares
// with everyone who waits at that moment.
func (s *Store) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	if err := punctual.CheckBatch(len(ms)); err != nil {
		return nil, err
	}
	if err := s.enter(); err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	defer s.calls.Done()
	if err := s.space.check(); err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	results := make([]punctual.PushResult, len(ms))
	for i := range ms {
		r := &results[i]
		*r, err = tx.push(&ms[i])
		if err != nil {
			s.abandonTxn(tx)
			return nil, fmt.Errorf("push: %w", err)
		}
	}
	if err := s.commit(ctx, tx); err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	return results, nil
}

// push adds one message to the transaction. The error is one of reading the
// database; a refused message has its reason in the result.
func (tx *txn) push(m *punctual.NewMessage) (punctual.PushResult, error) {
	res := punctual.PushResult{ID: m.ID, Topic: m.Topic}
	if res.Err = m.Check(tx.s.opt.MaxBody); res.Err != nil {
		return res, nil
	}
	var due time.Time
	if due, res.Err = punctual.DueAt(tx.now, m.Due, m.Delay); res.Err != nil {
		return res, nil
	}
	t := tx.topic(m.Topic)
	if t.settings.PausedIn {
		res.Err = fmt.Errorf("topic %s takes no messages: %w", t.name, punctual.ErrPaused)
		return res, nil
	}
	if m.ID == "" {
		res.ID, res.Due, res.Status = punctual.NewID(tx.now), due, punctual.PushStored
		tx.store(t, res.ID, due, m)
		return res, nil
	}
	return tx.pushNamed(t, m, due)
}

// store adds a message that is new to the transaction.
func (tx *txn) store(t *topic, id string, due time.Time, m *punctual.NewMessage) *entry {
	r := &record{
		id: id, maxAttempts: m.MaxAttempts, created: tx.ms, due: punctual.Millis(due),
		expireAfter: punctual.CeilDuration(m.ExpireAfter), dropExpired: m.DropExpired,
		headers: m.Headers, body: m.Body,
	}
	r.moveTo(r.due)
	tx.count(t, 1, 0)
	return tx.putLive(t, tx.newSeq(), r)
}

// pushNamed pushes a message whose ID its pusher chose (P7).
func (tx *txn) pushNamed(t *topic, m *punctual.NewMessage, due time.Time) (punctual.PushResult, error) {
	res := punctual.PushResult{ID: m.ID, Topic: m.Topic, Due: due, Status: punctual.PushStored}
	old, err := tx.find(t, m.ID)
	if err != nil {
		return res, err
	}
	remembered := false
	if !old.exists() {
		if remembered, err = tx.remembered(t, m.ID); err != nil {
			return res, err
		}
	}
	switch {
	case !old.exists() && !remembered:
	case !old.exists() && m.OnDuplicate == punctual.ReplaceFirst:
		tx.delete(idKey(keyFinished, t.num, m.ID)) // the ID is in use again
	case m.OnDuplicate == punctual.FailDuplicate:
		return punctual.PushResult{ID: m.ID, Topic: m.Topic, Err: fmt.Errorf("push %s to %s: %w", m.ID, t.name, punctual.ErrDuplicate)}, nil
	case m.OnDuplicate == punctual.KeepFirst:
		res.Status, res.Due, res.Existing = punctual.PushDuplicate, old.due, old.state
		return res, nil
	case tx.remove(t, old):
		res.Status = punctual.PushReplaced
	}
	e := tx.store(t, m.ID, due, m)
	if tx.pushed == nil {
		tx.pushed = make(map[string]*entry)
	}
	tx.pushed[string(idKey(keyID, t.num, m.ID))] = e
	return res, nil
}

// found is a message that holds an ID.
type found struct {
	place place
	fresh *entry // set when this very transaction stores it
	state punctual.State
	due   time.Time
}

func (f found) exists() bool { return f.place.kind != 0 }

// find returns the message that holds an ID, stored or stored by this transaction.
func (tx *txn) find(t *topic, id string) (found, error) {
	if e := tx.pushed[string(idKey(keyID, t.num, id))]; e != nil {
		f := found{place: place{keyLive, e.key}, fresh: e, due: punctual.FromMillis(e.key.ms)}
		f.state = tx.s.stateOf(nil, e.key, tx.ms)
		return f, nil
	}
	p, err := tx.lookup(t, id)
	if err != nil || p.kind == 0 {
		return found{}, err
	}
	if p.kind == keyDead {
		return tx.findDead(t, id, p)
	}
	s := tx.s
	if tx.reapOne(p.pos.seq) {
		return found{}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return found{place: p, due: punctual.FromMillis(p.pos.ms), state: s.stateOf(s.live[p.pos.seq], p.pos, tx.ms)}, nil
}

// findDead returns a dead message, unless its topic's retention is over: then it goes.
func (tx *txn) findDead(t *topic, id string, p place) (found, error) {
	if keep := punctual.CeilDuration(t.settings.DeadRetention); keep > 0 && p.pos.ms+keep <= tx.ms {
		tx.removeDead(t, p.pos, id)
		return found{}, nil
	}
	r, err := tx.s.getRecord(keyDead, t, p.pos)
	if err != nil {
		return found{}, err
	}
	return found{place: p, due: punctual.FromMillis(r.due), state: punctual.StateDead}, nil
}

// stateOf is the state of a live message. Called with mu held, or e nil.
func (s *Store) stateOf(e *entry, p pos, now int64) punctual.State {
	switch {
	case e != nil && e.state == leased && now < e.next:
		return punctual.StateLeased
	case p.ms <= now:
		return punctual.StateReady
	}
	return punctual.StateScheduled
}

// remove takes a message away so that another can have its ID. It is false when the message
// was acked since it was found.
func (tx *txn) remove(t *topic, f found) bool {
	switch {
	case f.place.kind == keyDead:
		tx.delete(posKey(keyDead, t.num, f.place.pos))
		tx.count(t, 0, -1)
		return true
	case f.fresh != nil:
		tx.added = slices.DeleteFunc(tx.added, func(e *entry) bool { return e == f.fresh })
	default:
		tx.s.forget(f.place.pos.seq)
		if tx.reapOne(f.place.pos.seq) {
			return false
		}
	}
	tx.takeLive(t, f.place.pos, "")
	tx.count(t, -1, 0)
	return true
}

// removeDead deletes a dead message with its ID.
func (tx *txn) removeDead(t *topic, p pos, id string) {
	tx.delete(posKey(keyDead, t.num, p))
	tx.setPlace(t, id, place{})
	tx.count(t, 0, -1)
}

// remembered tells whether the ID is that of a finished message that the topic remembers.
func (tx *txn) remembered(t *topic, id string) (bool, error) {
	v, err := tx.s.get(idKey(keyFinished, t.num, id))
	if err != nil || v == nil {
		return false, err
	}
	if len(v) != 8 {
		return false, corruptf("remembered ID %s of topic %s has the time %x", id, t.name, v)
	}
	return getTime(v) > tx.ms, nil
}

// topic returns a topic, making it in this transaction when it is new.
func (tx *txn) topic(name string) *topic {
	s := tx.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[name]; t != nil {
		return t
	}
	t := newTopic(name, s.topicNum)
	s.topicNum++
	s.topics[name] = t
	tx.putTopic(t)
	return t
}

// putTopic writes a topic's number and settings.
func (tx *txn) putTopic(t *topic) {
	settings, err := json.Marshal(t.settings)
	if err != nil {
		panic(err) // plain numbers and flags always encode; check refuses NaN
	}
	tx.set(append([]byte{keyTopic}, t.name...), append(binary.BigEndian.AppendUint32(nil, t.num), settings...))
}

// abandonTxn gives up a transaction that a read error stopped halfway. What it took away
// from memory is still on disk, so memory no longer tells the truth and the store ends.
func (s *Store) abandonTxn(tx *txn) {
	s.fail(fmt.Errorf("a change could not be finished because reading failed"))
	s.abort(tx)
}
