package redisstore

import (
	"context"
	"fmt"

	"github.com/punctualmq/punctual"
)

// Purge removes messages; see punctual.Inspector. Each 500 are one atomic step.
func (s *Store) Purge(ctx context.Context, q punctual.PurgeQuery) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.calls.Done()
	if err := punctual.CheckTopic(q.Topic); err != nil {
		return 0, fmt.Errorf("purge: %w", err)
	}
	if q.State > punctual.StateDead {
		return 0, fmt.Errorf("purge of state %d: use scheduled, ready, leased or dead: %w", q.State, punctual.ErrInvalid)
	}
	states := []punctual.State{q.State}
	if q.State == punctual.StateNone {
		states = []punctual.State{punctual.StateLeased, punctual.StateReady, punctual.StateScheduled}
	}
	var total int64
	for _, state := range states {
		n, err := s.purge(ctx, s.names.partition(q.Topic), newSelection(state, q.From, q.To))
		if total += n; err == nil {
			continue
		}
		err = fmt.Errorf("purge of %s, %d removed so far: %w", q.Topic, total, err)
		if total > 0 {
			err = halfDone(err)
		}
		return total, err
	}
	return total, nil
}

// purge removes what is selected, going on behind the last removed, so that it ends even
// when others push faster.
func (s *Store) purge(ctx context.Context, p partition, sel selection) (total int64, err error) {
	var after place
	for {
		a, err := s.runPartition(ctx, purgeScript, p, sel.args(after, scriptItems)...)
		if err != nil {
			return total, err
		}
		n := a.int()
		after = place{at: a.int(), id: a.string()}
		if a.bad {
			return total, badReply(purgeScript)
		}
		if total += n; n < scriptItems {
			return total, nil
		}
	}
}

// DeleteTopic removes a topic with everything in it, in one atomic step; see
// punctual.Inspector.
func (s *Store) DeleteTopic(ctx context.Context, topic string) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.calls.Done()
	if err := punctual.CheckTopic(topic); err != nil {
		return 0, fmt.Errorf("delete topic: %w", err)
	}
	n, err := s.deleteTopic(ctx, s.names.partition(topic))
	if err != nil {
		return 0, fmt.Errorf("delete topic %s: %w", topic, err)
	}
	return n, nil
}

// deleteTopic takes the name out of the set of topics first: whoever makes the topic anew
// after it is gone enters the name again.
func (s *Store) deleteTopic(ctx context.Context, p partition) (int64, error) {
	_, exists, err := s.stats(ctx, p)
	if err != nil {
		return 0, err
	}
	if !exists {
		return 0, punctual.ErrNotFound
	}
	if _, err := s.run(ctx, registryScript, []string{s.names.topics()}, []any{"remove", p.topic}); err != nil {
		return 0, err
	}
	a, err := s.runPartition(ctx, deleteScript, p)
	if err != nil {
		return 0, err
	}
	n := a.int()
	if a.bad {
		return 0, badReply(deleteScript)
	}
	if !a.exists {
		return 0, punctual.ErrNotFound
	}
	return n, nil
}
