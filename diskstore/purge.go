package diskstore

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// purgeStep is how many messages one transaction of a purge removes.
const purgeStep = 1000

// Purge removes messages; see punctual.Inspector. Each thousand is one atomic step.
func (s *Store) Purge(ctx context.Context, q punctual.PurgeQuery) (int64, error) {
	if err := punctual.CheckTopic(q.Topic); err != nil {
		return 0, fmt.Errorf("purge: %w", err)
	}
	if err := s.enter(); err != nil {
		return 0, fmt.Errorf("purge: %w", err)
	}
	defer s.calls.Done()
	if q.State > punctual.StateDead {
		return 0, fmt.Errorf("purge of unknown state %d: %w", q.State, punctual.ErrInvalid)
	}
	states := []punctual.State{q.State}
	if q.State == punctual.StateNone {
		states = []punctual.State{punctual.StateLeased, punctual.StateReady, punctual.StateScheduled}
	}
	var total int64
	for _, state := range states {
		n, err := s.purgeState(ctx, q, state)
		if total += n; err != nil {
			return total, fmt.Errorf("purge %s messages of %s, %d removed so far: %w", state, q.Topic, total, err)
		}
	}
	return total, nil
}

func (s *Store) purgeState(ctx context.Context, q punctual.PurgeQuery, state punctual.State) (total int64, err error) {
	b := spanOf(q.From.IsZero(), punctual.CeilMillis(q.From), q.To.IsZero(), punctual.CeilMillis(q.To))
	for {
		victims, err := s.victims(ctx, q.Topic, state, b)
		if err != nil || len(victims) == 0 {
			return total, err
		}
		n, err := s.remove(ctx, q.Topic, state, victims)
		if total += n; err != nil {
			return total, err
		}
		last := victims[len(victims)-1].at
		b.from = pos{last.ms, last.seq + 1}
	}
}

// victim is a message to be purged: its ID, where it stands in the list of its state, and
// where it is stored.
type victim struct {
	id      string
	kind    byte
	at, key pos
}

// victims finds the next messages of a state in a span.
func (s *Store) victims(ctx context.Context, topic string, state punctual.State, b span) ([]victim, error) {
	tv, err := s.lookTopic(ctx, topic)
	if err != nil {
		return nil, err
	}
	defer tv.close()
	if tv.t == nil {
		return nil, nil
	}
	var out []victim
	err = tv.scan(ctx, state, b, func(kind byte, at, key pos) (bool, error) {
		i, err := tv.info(kind, key)
		out = append(out, victim{i.ID, kind, at, key})
		return len(out) < purgeStep, err
	})
	return out, err
}

// remove purges those victims that are still where they were found and in that state.
func (s *Store) remove(ctx context.Context, topic string, state punctual.State, victims []victim) (n int64, err error) {
	tx, err := s.begin(ctx)
	if err != nil {
		return 0, err
	}
	t := s.topicNamed(topic)
	if t == nil {
		s.abort(tx)
		return 0, nil
	}
	for _, v := range victims {
		f, err := tx.find(t, v.id)
		if err != nil {
			s.abandonTxn(tx)
			return 0, err
		}
		if f.place != (place{v.kind, v.key}) || f.state != state {
			continue
		}
		if tx.remove(t, f) {
			tx.setPlace(t, v.id, place{})
			n++
		}
	}
	return n, s.commit(ctx, tx)
}

// DeleteTopic removes a topic with everything in it; see punctual.Inspector.
func (s *Store) DeleteTopic(ctx context.Context, name string) (int64, error) {
	if err := punctual.CheckTopic(name); err != nil {
		return 0, fmt.Errorf("delete topic: %w", err)
	}
	if err := s.enter(); err != nil {
		return 0, fmt.Errorf("delete topic: %w", err)
	}
	defer s.calls.Done()
	if t := s.topicNamed(name); t != nil {
		if err := s.sweepDead(ctx, t); err != nil {
			return 0, fmt.Errorf("delete topic %s: %w", name, err)
		}
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return 0, fmt.Errorf("delete topic %s: %w", name, err)
	}
	t := s.topicNamed(name)
	if t == nil {
		s.abort(tx)
		return 0, fmt.Errorf("delete topic %s: %w", name, punctual.ErrNotFound)
	}
	n := t.live + t.dead - s.ackedOf(t)
	tx.deleteTopic(t)
	if err := s.commit(ctx, tx); err != nil {
		return 0, fmt.Errorf("delete topic %s: %w", name, err)
	}
	return n, nil
}

// deleteTopic removes all keys and entries of a topic. What is left are keys of 'x', which
// the housekeeper drops when their time comes; numbers of topics are not used again.
func (tx *txn) deleteTopic(t *topic) {
	for _, kind := range []byte{keyLive, keyDead, keyID, keyFinished} {
		prefix := topicKey(kind, t.num)
		if err := tx.b.DeleteRange(prefix, upper(prefix), nil); err != nil {
			panic(err) // a batch only fails when it was closed, which is our mistake
		}
	}
	tx.delete(append([]byte{keyTopic}, t.name...))
	tx.delete(topicKey(keyCounts, t.num))
	tx.delete(topicKey(keyMark, t.num))
	s := tx.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.live {
		if e.topic == t {
			s.unlink(e)
		}
	}
	for seq, e := range s.unsynced {
		if e.topic == t {
			delete(s.unsynced, seq)
		}
	}
	for _, a := range s.acked {
		if a.topic == t {
			s.dropAcked(a)
		}
	}
	delete(s.topics, t.name)
	s.deleted = append(s.deleted, t.num)
}

func (s *Store) ackedOf(t *topic) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.acked
}

func msDuration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
