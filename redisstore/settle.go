package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/punctualmq/punctual"
)

// What settle.lua says of a settlement.
const (
	settleDone      = 0
	settleLost      = 1
	settleCancelled = 2
	settleTooFar    = 3
)

// Settle finishes, gives back, gives up or extends leases; see punctual.Store.
func (s *Store) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	if err := punctual.CheckBatch(len(ss)); err != nil {
		return nil, err
	}
	results := make([]error, len(ss))
	groups := newGroups(func(i int) partition { return s.names.partitionOf(ss[i].Topic, ss[i].ID) })
	for i := range ss {
		if results[i] = ss[i].Check(); results[i] == nil {
			groups.add(i, len(ss[i].Error))
		}
	}
	err := groups.run(func(p partition, items []int) error { return s.settleIn(ctx, p, ss, results, items) })
	if err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	return results, nil
}

func (s *Store) settleIn(ctx context.Context, p partition, ss []punctual.Settlement, results []error, items []int) error {
	args := make([]any, 1, 1+3*len(items))
	args[0] = s.sender
	for _, i := range items {
		args = append(args, ss[i].ID, settleHead(&ss[i]), punctual.TrimError(ss[i].Error))
	}
	a, err := s.runPartition(ctx, settleScript, p, args...)
	if err != nil {
		return err
	}
	s.waits.hint(p.topic, a.int())
	for _, i := range items {
		results[i] = settled(&ss[i], a.int())
	}
	if a.bad {
		return badReply(settleScript)
	}
	return nil
}

func settleHead(x *punctual.Settlement) []byte {
	delay, chance := int64(-1), 0.0
	if x.Delay == punctual.UseBackoff && x.Verb == punctual.SettleRetry {
		chance = rand.Float64()
	} else {
		delay = punctual.CeilDuration(x.Delay)
	}
	b := appendDouble(make([]byte, 0, 25), x.Token)
	b = append(b, byte(x.Verb))
	b = appendDouble(b, delay)
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(chance))
}

func settled(x *punctual.Settlement, status int64) error {
	switch status {
	case settleDone:
		return nil
	case settleLost:
		return fmt.Errorf("%s of %s in %s: %w", x.Verb, x.ID, x.Topic, punctual.ErrLeaseLost)
	case settleCancelled:
		return fmt.Errorf("%s of %s in %s: %w", x.Verb, x.ID, x.Topic, punctual.ErrCancelled)
	}
	return tooFar(fmt.Sprintf("%s of %s in %s after %v", x.Verb, x.ID, x.Topic, x.Delay))
}
