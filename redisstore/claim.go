package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/punctualmq/punctual"
)

// never is a time that no clock reaches, as the scripts name it: 2^53-1 ms.
const never int64 = 1<<53 - 1

// Claim leases due messages; see punctual.Store. It looks into each partition with one script,
// and again only when a look can find something. A look that has begun is not broken off when
// ctx ends, so that no lease is given that nobody knows of.
func (s *Store) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	if c.Wait == 0 {
		ds, err := s.look(ctx, &c, nil, s.everywhere(c.Topics))
		return claimed(ds, err)
	}
	return s.claimOrWait(ctx, &c)
}

// claimOrWait looks where a look can find something, as far as this process knows, and
// everywhere before it gives up: a hint may have been lost.
func (s *Store) claimOrWait(ctx context.Context, c *punctual.Claim) ([]punctual.Delivery, error) {
	deadline := min(s.clock.guess()/1000+punctual.CeilDuration(c.Wait), never)
	w := s.waits.join(c.Topics)
	defer s.waits.leave(w)
	for {
		if err := s.sleep(ctx, w, deadline); err != nil {
			return claimed(nil, err)
		}
		last := s.clock.guess()/1000 >= deadline
		spots := s.spotsOf(s.waits.turns(w))
		if last {
			spots = s.everywhere(c.Topics)
		}
		ds, err := s.look(ctx, c, w, spots)
		if len(ds) > 0 || err != nil || last {
			return claimed(ds, err)
		}
	}
}

// spot is a partition to look into, with what was known of its topic when that was decided.
type spot struct {
	partition
	known *layout
}

// everywhere is all partitions of some topics, those of a topic beginning with another one
// each time.
func (s *Store) everywhere(topics []string) []spot {
	var spots []spot
	first := int(s.looks.Add(1))
	for _, topic := range topics {
		l := s.layouts.known(topic)
		for n := range l.size() {
			spots = append(spots, spot{s.names.partition(topic, (first+n)%l.size()), l})
		}
	}
	return spots
}

// claimed is what a claim answers. What was leased before something failed is handed out; the
// next claim meets the failure.
func claimed(ds []punctual.Delivery, err error) ([]punctual.Delivery, error) {
	switch {
	case len(ds) > 0:
		return ds, nil
	case err != nil:
		return nil, fmt.Errorf("claim: %w", err)
	}
	return []punctual.Delivery{}, nil
}

// sleep waits until it is this waiter's turn to look, or its time is over.
func (s *Store) sleep(ctx context.Context, w *waiter, deadline int64) error {
	over, stop := s.clock.after(deadline)
	defer stop()
	select {
	case <-w.wake:
	case <-over:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return errClosed()
	}
	return nil
}

func (s *Store) spotsOf(ps []partition) []spot {
	spots := make([]spot, 0, len(ps))
	for _, p := range ps {
		spots = append(spots, spot{p, s.layouts.known(p.topic)})
	}
	return spots
}

// look leases what is due now in some partitions, and in those that it hears of on the way.
func (s *Store) look(ctx context.Context, c *punctual.Claim, w *waiter, spots []spot) ([]punctual.Delivery, error) {
	var ds []punctual.Delivery
	for i := 0; i < len(spots) && len(ds) < c.Max; i++ {
		got, version, err := s.lookInto(ctx, c, w, spots[i].partition, c.Max-len(ds))
		ds = joined(ds, got)
		if err != nil {
			return ds, err
		}
		if known := spots[i].known; known != nil && version != known.version {
			if spots, err = s.lookFurther(ctx, spots, i, version); err != nil {
				return ds, err
			}
		}
	}
	return ds, nil
}

// joined appends more to ds. Most often one of them is empty, and nothing is copied.
func joined(ds, more []punctual.Delivery) []punctual.Delivery {
	if len(ds) == 0 {
		return more
	}
	return append(ds, more...)
}

// lookFurther puts the partitions of a topic that nobody knew of behind spot i, which has found
// another version than was known. It asks once per look and topic.
func (s *Store) lookFurther(ctx context.Context, spots []spot, i int, seen int64) ([]spot, error) {
	old := spots[i]
	l, err := s.renew(ctx, old.partition, seen, old.known)
	if err != nil {
		return nil, err
	}
	for j := range spots {
		if spots[j].topic == old.topic {
			spots[j].known = nil
		}
	}
	var more []spot
	for n := old.known.size(); n < l.size(); n++ {
		more = append(more, spot{partition: s.names.partition(old.topic, n)})
	}
	return slices.Insert(spots, i+1, more...), nil
}

// lookInto leases up to n messages of a partition, and tells those who wait for it when the
// next will be due. It returns the version of the settings there.
func (s *Store) lookInto(ctx context.Context, c *punctual.Claim, w *waiter, p partition, n int) (ds []punctual.Delivery, version int64, err error) {
	l := s.waits.begin(w, p)
	next := never
	defer func() { s.waits.end(l, next, len(ds), err) }()
	for len(ds) < n {
		var got []punctual.Delivery
		got, next, version, err = s.claimSome(ctx, c, p, min(n-len(ds), scriptItems))
		ds = joined(ds, got)
		if err != nil || next > s.clock.floorMillis() {
			return ds, version, err
		}
	}
	return ds, version, nil
}

// claimSome leases what one script may, and tells when the next message needs attention and
// the version of the settings.
func (s *Store) claimSome(ctx context.Context, c *punctual.Claim, p partition, n int) (ds []punctual.Delivery, next, version int64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, never, 0, err
	}
	ctx = context.WithoutCancel(ctx)
	a, err := s.runPartition(ctx, claimScript, p, n, punctual.CeilDuration(c.Lease), scriptBytes)
	if err != nil {
		return nil, never, 0, err
	}
	next, until, token, leased := a.int(), a.int(), a.int(), a.string()
	if a.bad {
		return nil, never, 0, badReply(claimScript)
	}
	ds, err = unpackClaimed(p.topic, token, leased)
	if err != nil {
		return nil, never, 0, fmt.Errorf("topic %s: %w", p.topic, err)
	}
	for i := range ds {
		ds[i].Delivered, ds[i].LeaseUntil = punctual.FromMillis(a.now), punctual.FromMillis(until)
	}
	return ds, next, a.version, nil
}

// unpackClaimed reads what claim.lua has leased: three arrays, one behind the other.
func unpackClaimed(topic string, token int64, leased string) ([]punctual.Delivery, error) {
	ids := decoder{b: leased}
	n := ids.unpackArray()
	messages := ids
	messages.skipStrings(n)
	n = min(n, messages.unpackArray())
	states := messages
	states.skipStrings(n)
	n = min(n, states.unpackArray())
	ds := make([]punctual.Delivery, 0, min(n, scriptItems))
	for range n {
		d, err := delivery(topic, token, strings.Clone(ids.unpackString()), messages.unpackString(), states.unpackString())
		if err != nil {
			return nil, err
		}
		ds = append(ds, d)
	}
	if ids.bad || messages.bad || states.bad {
		return nil, badReply(claimScript)
	}
	return ds, nil
}

// delivery is a message under a lease. state is empty if this is the first one.
func delivery(topic string, token int64, id, message, state string) (punctual.Delivery, error) {
	m, err := decodeMessage(id, message)
	if err != nil {
		return punctual.Delivery{}, err
	}
	m.attempt = 1
	if state != "" {
		if err := m.addState(id, state); err != nil {
			return punctual.Delivery{}, err
		}
	}
	return punctual.Delivery{Message: m.message(topic, id), Token: token, Failures: m.failures}, nil
}
