package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/punctualmq/punctual"
)

// What settle.lua says of a settlement that was not simply done.
const (
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
	groups := newGroups(s.names)
	for i := range ss {
		if results[i] = ss[i].Check(); results[i] == nil {
			groups.add(lane{ss[i].Topic, partitionOfToken(ss[i].Token), true}, i, len(ss[i].Error))
		}
	}
	var done atomic.Bool
	err := groups.run(func(c *chunk) error {
		err := s.settleIn(ctx, c.p, ss, results, c.items)
		if err == nil {
			done.Store(true)
		}
		return err
	})
	switch {
	case err != nil && done.Load():
		return nil, fmt.Errorf("settle: %w", halfDone(err))
	case err != nil:
		return nil, fmt.Errorf("settle: %w", err)
	}
	return results, nil
}

func (s *Store) settleIn(ctx context.Context, p partition, ss []punctual.Settlement, results []error, items []int) error {
	a, err := s.runPartition(ctx, settleScript, p, s.sender, packSettle(ss, items))
	if err != nil {
		return err
	}
	s.waits.hint(p, a.int())
	for !a.bad && len(a.items) > 0 {
		n, status := a.int(), a.int()
		if n < 0 || n >= int64(len(items)) {
			a.bad = true
			break
		}
		i := items[n]
		results[i] = notSettled(&ss[i], status)
	}
	if a.bad {
		return badReply(settleScript)
	}
	return nil
}

// packSettle packs settlements for settle.lua.
func packSettle(ss []punctual.Settlement, items []int) []byte {
	size := packedBytes
	for _, i := range items {
		size += 5*packedBytes + len(ss[i].ID) + len(ss[i].Error)
	}
	b := packArray(make([]byte, 0, size), 5*len(items))
	for _, i := range items {
		x := &ss[i]
		b = packString(b, x.ID)
		b = packNumber(b, float64(x.Token))
		b = packNumber(b, float64(x.Verb))
		b = packNumber(b, settleDelay(x))
		b = packString(b, punctual.TrimError(x.Error))
	}
	return b
}

// settleDelay is the delay in ms, or what stands for the topic's backoff: -1, less the chance
// of this message.
func settleDelay(x *punctual.Settlement) float64 {
	if x.Delay == punctual.UseBackoff && x.Verb == punctual.SettleRetry {
		return -1 - rand.Float64()
	}
	return float64(punctual.CeilDuration(x.Delay))
}

func notSettled(x *punctual.Settlement, status int64) error {
	switch status {
	case settleLost:
		return fmt.Errorf("%s of %s in %s: %w", x.Verb, x.ID, x.Topic, punctual.ErrLeaseLost)
	case settleCancelled:
		return fmt.Errorf("%s of %s in %s: %w", x.Verb, x.ID, x.Topic, punctual.ErrCancelled)
	}
	return tooFar(fmt.Sprintf("%s of %s in %s after %v", x.Verb, x.ID, x.Topic, x.Delay))
}
