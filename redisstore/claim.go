package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/clock"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/redisstore/internal/topics"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
	"github.com/punctualmq/punctual/storekit"
	"github.com/redis/go-redis/v9"
)

// Claim leases due messages; see punctual.Store. When ctx ends, Claim still takes in the answer to
// a script that was sent, so that no message is leased without anybody knowing. Once Claim has
// found messages it waits for a further script only shortly, and what that script leases later is
// given back.
func (s *Store) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	checked := c
	if len(c.Topics) > 1 && s.waits.waiter.Knows(c.Topics) { // checked before, and to check many again takes longer than to compare them
		checked.Topics = c.Topics[:1]
	}
	return call(ctx, s, "claim", "", storekit.CheckClaim(&checked), func() ([]punctual.Delivery, error) {
		key, err := s.keyOf(ctx, func() storekit.Sum { return storekit.SumOfClaim(c) })
		switch {
		case err != nil:
			return nil, err
		case len(c.IDs) > 0:
			return claimed(s.claimIDs(ctx, &c, key))
		case key != nil:
			return claimed(s.claimKeyed(ctx, c, key))
		}
		return claimed(s.claimOnce(ctx, &c))
	})
}

// claimOnce carries out a claim without a key, or one step of a claim with a key.
func (s *Store) claimOnce(ctx context.Context, c *punctual.Claim) ([]punctual.Delivery, error) {
	if c.Wait == 0 {
		return s.scanner.claim(ctx, c)
	}
	s.waits.listener.Start()
	until := s.clock.Now() + min(storekit.CeilDuration(c.Wait), clock.Never/2000)*1000
	r := wait.Request{Topics: c.Topics, Max: c.Max, PerTopic: c.PerTopic, Lease: c.Lease, Until: until, Alone: claimKey(ctx) != nil}
	ds, err := s.waits.waiter.Claim(ctx, r, s.closing, s.calls.ErrClosed())
	if len(ds) > 0 {
		ds, err = s.leases.unexpired(ctx, ds, nil)
	}
	return ds, err
}

// distinct leaves out topics that are named again, because a partition that is asked twice under
// one key answers with the same leases twice.
func distinct(topics []string) (once []string) {
	seen := make(map[string]bool, len(topics))
	for _, t := range topics {
		if !seen[t] {
			once = append(once, t)
		}
		seen[t] = true
	}
	return once
}

type claimKeyName struct{}

// claimKey returns the key of the claim that is under way in ctx, or nil if it has none.
func claimKey(ctx context.Context) *keyed {
	k, _ := ctx.Value(claimKeyName{}).(*keyed)
	return k
}

// firstStep is how long a copy of a claim waits for messages before it checks once more what the
// earlier copies have leased. The time doubles.
const firstStep = time.Second

// claimKeyed carries out a claim with a key, which may have copies in this process and in others.
// Each partition has a record of what a key has leased there, so that copies together lease once.
// Of the copies that come to this Store one is under way at a time; the others wait for it. A claim
// that may have been sent before first reads the records for what its earlier copies have leased.
// It reads them again while it waits, because such a copy may still be under way in another
// process. A claim whose request names a time after which it must not be carried out ends at that
// time.
func (s *Store) claimKeyed(ctx context.Context, c punctual.Claim, k *keyed) ([]punctual.Delivery, error) {
	ctx = context.WithValue(ctx, claimKeyName{}, k)
	c.Topics = distinct(c.Topics)
	until := s.clock.Time().Add(c.Wait)
	late := !k.NotAfter.IsZero() && !k.NotAfter.After(until)
	if late {
		until = k.NotAfter
	}
	passed := func() bool { return late && !until.After(s.clock.Time()) }
	ctx, end := context.WithCancel(ctx)
	defer end()
	for {
		leave, other := s.keyed.begin(k.Key, end)
		if other == nil {
			defer leave()
			break
		}
		if passed() {
			other.end() // the time of the request is over, so this copy was sent to learn what became of the claim
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.closing:
			return nil, s.calls.ErrClosed()
		}
	}
	for step := firstStep; ; step *= 2 {
		if !k.First {
			ds, known, err := s.leasedBefore(ctx, &c)
			if known || err != nil {
				return s.leases.unexpired(ctx, ds, err)
			}
		}
		left := until.Sub(s.clock.Time())
		if passed() {
			return nil, fmt.Errorf("the claim must not be carried out any more: %w", context.DeadlineExceeded)
		}
		c.Wait = max(left, 0)
		if !k.First {
			c.Wait = min(c.Wait, step)
		}
		last := c.Wait >= left
		ds, err := s.claimOnce(ctx, &c)
		if len(ds) > 0 || err != nil || last && !late {
			return ds, err
		}
	}
}

// leasedBefore returns what earlier copies of a claim have leased, as far as it is still leased,
// and whether any of them has leased something. Partitions that do not answer are left out, because
// leases there run out; when none answers that is an error.
func (s *Store) leasedBefore(ctx context.Context, c *punctual.Claim) (ds []punctual.Delivery, known bool, err error) {
	targets, err := s.allPartitions(ctx, c.Topics)
	field := string(fieldOf(claimKey(ctx).Key, nil))
	asked := false
	for some := range slices.Chunk(targets, wait.PartsAtOnce) {
		there := make([][2]*redis.BoolCmd, len(some))
		_, _ = s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error { // what goes wrong is in each command
			for i, p := range some {
				there[i] = [2]*redis.BoolCmd{pipe.HExists(ctx, p.Records(0), field), pipe.HExists(ctx, p.Records(1), field)}
			}
			return nil
		})
		for i, p := range some {
			e := cmp.Or(there[i][0].Err(), there[i][1].Err())
			if e != nil {
				err = cmp.Or(err, unread(e))
				continue
			}
			asked = true
			if !there[i][0].Val() && !there[i][1].Val() {
				continue
			}
			got, _, found, e := s.leases.some(ctx, c.Lease, p, min(c.Max, script.Items), false)
			if errors.Is(e, punctual.ErrInvalid) {
				return nil, false, e
			}
			ds, known = append(ds, got...), known || found.token != 0
		}
	}
	if asked {
		err = nil
	}
	return ds, known, cmp.Or(ctx.Err(), err)
}

// allPartitions returns all partitions of some topics, and looks up the topics that are not known.
// The error is why a topic was left out.
func (s *Store) allPartitions(ctx context.Context, names []string) (targets []keys.Partition, err error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	layouts, errs := route.Each(ctx, s.route, names, func(topic string) (*topics.Layout, error) { return s.topics.Get(ctx, topic) })
	for _, topic := range names {
		err = cmp.Or(err, errs[topic])
		if l := layouts[topic]; l != nil {
			for n := range l.Size() {
				targets = append(targets, s.names.Partition(topic, n))
			}
		}
	}
	return targets, err
}

// claimed makes the result of Claim. Messages that were leased before something failed are returned
// without the error, which the next claim will encounter.
func claimed(ds []punctual.Delivery, err error) ([]punctual.Delivery, error) {
	switch {
	case len(ds) > 0:
		return ds, nil
	case err != nil:
		return nil, err
	}
	return []punctual.Delivery{}, nil
}
