package redisstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/punctualmq/punctual"
)

// never is a time that no clock reaches, as the scripts name it: 2^53-1 ms.
const never int64 = 1<<53 - 1

// Claim leases due messages; see punctual.Store. It looks into each topic with one script,
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
		ds, err := s.look(ctx, &c, nil, c.Topics)
		return claimed(ds, err)
	}
	return s.claimOrWait(ctx, &c)
}

func (s *Store) claimOrWait(ctx context.Context, c *punctual.Claim) ([]punctual.Delivery, error) {
	deadline := min(s.clock.guess()/1000+punctual.CeilDuration(c.Wait), never)
	w := s.waits.join(c.Topics)
	defer s.waits.leave(w)
	for topics := c.Topics; ; {
		ds, err := s.look(ctx, c, w, topics)
		if len(ds) > 0 || err != nil || s.clock.guess()/1000 >= deadline {
			return claimed(ds, err)
		}
		if topics, err = s.sleep(ctx, w, deadline); err != nil {
			return claimed(nil, err)
		}
	}
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

// sleep waits until it is this waiter's turn to look into some topics, which it returns,
// or its time is over.
func (s *Store) sleep(ctx context.Context, w *waiter, deadline int64) ([]string, error) {
	over, stop := s.clock.after(deadline)
	defer stop()
	select {
	case <-w.wake:
	case <-over:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.closing:
		return nil, errClosed()
	}
	return s.waits.turns(w), nil
}

// look leases what is due now in some topics.
func (s *Store) look(ctx context.Context, c *punctual.Claim, w *waiter, topics []string) ([]punctual.Delivery, error) {
	var ds []punctual.Delivery
	for _, topic := range topics {
		if len(ds) == c.Max {
			break
		}
		got, err := s.lookInto(ctx, c, w, topic, c.Max-len(ds))
		ds = append(ds, got...)
		if err != nil {
			return ds, err
		}
	}
	return ds, nil
}

// lookInto leases up to n messages of a topic, and tells those who wait for it when the next
// will be due.
func (s *Store) lookInto(ctx context.Context, c *punctual.Claim, w *waiter, topic string, n int) (ds []punctual.Delivery, err error) {
	l := s.waits.begin(w, topic)
	next := never
	defer func() { s.waits.end(l, next) }()
	p := s.names.partition(topic)
	for len(ds) < n {
		var got []punctual.Delivery
		got, next, err = s.claimSome(ctx, c, p, min(n-len(ds), scriptItems))
		ds = append(ds, got...)
		if err != nil || next > s.clock.floorMillis() {
			return ds, err
		}
	}
	return ds, nil
}

// claimSome leases what one script may, and tells when the next message needs attention.
func (s *Store) claimSome(ctx context.Context, c *punctual.Claim, p partition, n int) ([]punctual.Delivery, int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, never, err
	}
	ctx = context.WithoutCancel(ctx)
	a, err := s.runPartition(ctx, claimScript, p, n, punctual.CeilDuration(c.Lease), scriptBytes)
	if err != nil {
		return nil, never, err
	}
	next, until, token, leased := a.int(), a.int(), a.int(), a.string()
	if a.bad {
		return nil, never, badReply(claimScript)
	}
	ds, err := unpackClaimed(p.topic, token, leased)
	if err != nil {
		return nil, never, fmt.Errorf("topic %s: %w", p.topic, err)
	}
	for i := range ds {
		ds[i].Delivered, ds[i].LeaseUntil = punctual.FromMillis(a.now), punctual.FromMillis(until)
	}
	return ds, next, nil
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
