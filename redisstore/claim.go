package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/clock"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/record"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/redisstore/internal/topics"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
	"github.com/punctualmq/punctual/storekit"
	"github.com/redis/go-redis/v9"
)

// Claim leases due messages; see punctual.Store. It asks each partition with one script,
// and again only when that can find something. A script that was sent is not given up when
// ctx ends, so that no lease is given that nobody knows of. With messages in hand it waits for a
// further one only shortly, and what that leases later is given back.
func (s *Store) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	if err := storekit.CheckClaim(&c); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	key, err := s.keyOf(ctx, func() storekit.Sum { return storekit.SumOfClaim(c) })
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	if key != nil {
		return claimed(s.claimKeyed(ctx, c, key))
	}
	return claimed(s.claimOnce(ctx, &c))
}

// claimOnce is a claim without a key, or a part of the waiting of one.
func (s *Store) claimOnce(ctx context.Context, c *punctual.Claim) ([]punctual.Delivery, error) {
	if c.Wait == 0 {
		return s.claimNow(ctx, c)
	}
	s.waits.listener.Start()
	until := s.clock.Now() + min(storekit.CeilDuration(c.Wait), clock.Never/2000)*1000
	r := wait.Request{Topics: c.Topics, Max: c.Max, PerTopic: c.PerTopic, Lease: c.Lease, Until: until, Alone: claimKey(ctx) != nil}
	ds, err := s.waits.waiter.Claim(ctx, r, s.closing, errClosed())
	if len(ds) > 0 {
		ds, err = s.unexpired(ctx, ds, nil)
	}
	return ds, err
}

// distinct leaves out topics that are named again. A partition that is asked twice under one key gives the same leases twice.
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

// claimKey is the key of a claim that is under way in ctx, or nil.
func claimKey(ctx context.Context) *keyed {
	k, _ := ctx.Value(claimKeyName{}).(*keyed)
	return k
}

// firstStep is how long a claim that may have been sent before waits until it looks once more for what was leased then.
// The time doubles.
const firstStep = time.Second

// claimKeyed is a claim with a key. In each partition there is one record of what it has leased, so a copy leases nothing there.
// One that may have been sent before looks first where that has leased something. It looks again while it waits,
// because the earlier one may still be under way in another process. One that is under way in this process it waits
// for. It ends when its request says so.
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
			other.end() // its caller only asks what became of it
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.closing:
			return nil, errClosed()
		}
	}
	for step := firstStep; ; step *= 2 {
		if !k.First {
			ds, known, err := s.leasedBefore(ctx, &c)
			if known || err != nil {
				return s.unexpired(ctx, ds, err)
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

// leasedBefore returns what an earlier copy of a claim has leased, as far as it is still leased, and whether there was one.
// Partitions that do not answer are left out, unless none does: leases there run out.
func (s *Store) leasedBefore(ctx context.Context, c *punctual.Claim) (ds []punctual.Delivery, known bool, err error) {
	targets, err := s.allPartitions(ctx, c.Topics)
	field := string(fieldOf(claimKey(ctx).Key, nil))
	asked := false
	for some := range slices.Chunk(targets, wait.HeadsAtOnce) {
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
			got, _, found, e := s.claimSome(ctx, c.Lease, p, min(c.Max, script.Items), false)
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

// allPartitions is all partitions of some topics, of which it asks where they are not known. The error is that of a topic that
// is left out.
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

// target is a partition to ask, with what was known of its topic when that was decided.
type target struct {
	keys.Partition
	known *topics.Layout
}

// targetsOf is all partitions of some topics, those of a topic beginning with another one
// each time.
func (s *Store) targetsOf(topics []string) []target {
	var targets []target
	first := int(s.claims.Add(1))
	for _, topic := range topics {
		l := s.topics.Known(topic)
		for n := range l.Size() {
			targets = append(targets, target{s.names.Partition(topic, (first+n)%l.Size()), l})
		}
	}
	return targets
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

// claimNow leases what is due now in all partitions, and in those that it hears of on the way. It fails if it has found
// nothing and could not ask everywhere.
func (s *Store) claimNow(ctx context.Context, c *punctual.Claim) ([]punctual.Delivery, error) {
	targets, failed := s.withSomethingDue(ctx, s.targetsOf(c.Topics))
	l := scan{s: s, c: c, cursor: cursor{targets: targets}}
	for l.stale || l.at < len(l.targets) && len(l.ds) < c.Max {
		f := l.further(ctx)
		l.ds = joined(l.ds, f.ds)
		if f.err != nil || f.slow {
			return s.unexpired(ctx, l.ds, f.err)
		}
		failed = cmp.Or(failed, f.skipped)
		l.cursor = f.cursor
	}
	return s.unexpired(ctx, l.ds, failed)
}

// fewTargets is how many partitions are asked without having read their heads.
const fewTargets = 16

// withSomethingDue leaves out partitions that have nothing due, or cannot be reached: then it returns why as well.
func (s *Store) withSomethingDue(ctx context.Context, targets []target) ([]target, error) {
	if len(targets) <= fewTargets {
		return targets, nil
	}
	type part struct {
		node    string
		targets []int
	}
	var parts []*part
	last := make(map[string]*part)
	for i := range targets {
		node := s.route.Node(partOf(targets[i].Partition))
		p := last[node]
		if p == nil || len(p.targets) == wait.HeadsAtOnce {
			p = &part{node: node}
			last[node] = p
			parts = append(parts, p)
		}
		p.targets = append(p.targets, i)
	}
	var mu sync.Mutex
	heads := make([]wait.Head, len(targets)) // guarded by mu until this returns
	asked := make([]bool, len(targets))      // guarded by mu until this returns
	left := false                            // guarded by mu: this returns
	var works []route.Work
	for _, p := range parts {
		names := make([]wait.Part, len(p.targets))
		for i, n := range p.targets {
			names[i] = partOf(targets[n].Partition)
		}
		works = append(works, route.Work{Node: p.node, Run: func(late func()) {
			if !s.route.Nodes.Await(ctx, p.node, late) {
				return
			}
			call := s.route.Nodes.Begin(p.node, names[0], late)
			got := s.waits.Heads(p.node, names)
			call.End(got[0].Err == nil)
			mu.Lock()
			defer mu.Unlock()
			for i, n := range p.targets {
				if !left {
					heads[n], asked[n] = got[i], true
				}
			}
		}})
	}
	s.route.FanOut(works)
	mu.Lock()
	defer mu.Unlock()
	left = true
	var some []target
	var failed error
	now := s.clock.Now()
	for i := range targets {
		switch {
		case !asked[i]:
			failed = wait.NotAnswering(s.route.Node(partOf(targets[i].Partition)))
		case heads[i].Err != nil:
			failed = heads[i].Err
		case heads[i].At <= now || targets[i].known == topics.Unknown:
			some = append(some, targets[i])
		}
	}
	return some, failed
}

// scan is a claim that asks one partition after the other.
type scan struct {
	s  *Store
	c  *punctual.Claim
	ds []punctual.Delivery
	cursor
}

// cursor is where a claim has to ask.
type cursor struct {
	targets []target
	at      int  // the next of targets
	stale   bool // the last one has another version than was known: seen
	seen    int64
}

// found is what a step brings.
type found struct {
	ds   []punctual.Delivery
	slow bool // nobody waits for it any more
	err  error
	// skipped is why a partition was left out.
	skipped error
	cursor
}

// step asks the next partition, or asks for what was not known of the topic of the last one.
func (l scan) step(ctx context.Context) found {
	f := found{cursor: l.cursor}
	if l.stale {
		f.stale = false
		f.targets, f.err = l.s.addPartitions(ctx, slices.Clone(l.targets), l.at-1, l.seen)
		return f
	}
	target := l.targets[l.at]
	n := l.room(target.Topic)
	if n <= 0 {
		f.at++
		return f
	}
	f.ds, f.seen, f.err = l.s.claimPartition(ctx, l.c, target.Partition, n)
	f.stale = f.err == nil && target.known != nil && f.seen != target.known.Version
	f.at++
	return f
}

// room is how many messages of a topic the claim may take besides those that it has.
func (l scan) room(topic string) int {
	n := l.c.Max - len(l.ds)
	if l.c.PerTopic == 0 {
		return n
	}
	left := l.c.PerTopic
	for i := range l.ds {
		if l.ds[i].Topic == topic {
			left--
		}
	}
	return min(n, left)
}

// furtherTime is for how long a claim with messages in hand waits for a further script, in ms. That is
// far longer than a script takes, and far shorter than most leases.
const furtherTime int64 = 500

// further is a step. With messages in hand it takes at most furtherTime, because their leases run. A node that does not
// answer is left out. What is found later is given back.
func (l scan) further(ctx context.Context) found {
	at := l.at
	if l.stale {
		at--
	}
	p := partOf(l.targets[at].Partition)
	node := l.s.route.Node(p)
	if len(l.ds) == 0 && node == "" {
		return l.step(ctx)
	}
	skip := found{skipped: wait.NotAnswering(node), cursor: cursor{targets: l.targets, at: at + 1}}
	// Where this is the last chance to bring anything, a node that is slow is waited for.
	last := len(l.ds) == 0 && at == len(l.targets)-1
	if l.s.route.Nodes.Failing(node) && !(last && l.s.route.Nodes.Await(ctx, node, func() {})) {
		return skip
	}
	var over <-chan time.Time
	if len(l.ds) > 0 {
		timer, stop := l.s.clock.After(l.s.clock.Now() + furtherTime*1000)
		defer stop()
		over = timer
	}
	asking, leave := context.WithCancel(ctx)
	defer leave()
	done, late := make(chan found), make(chan struct{})
	l.s.calls.Go(func() { // the call is under way, so Close waits for this, too
		call := l.s.route.Nodes.Begin(node, p, func() {
			if !last {
				close(late)
			}
		})
		f := l.step(asking)
		call.End(f.err == nil)
		select {
		case done <- f:
		case <-asking.Done():
			l.s.release(asking, f.ds)
		}
	})
	ended := ctx.Done()
	if len(l.ds) == 0 {
		ended = nil // no lease is given that nobody knows of
	}
	select {
	case f := <-done:
		return f
	case <-late:
		return skip
	case <-over:
	case <-ended:
	}
	return found{slow: true}
}

// expired reports whether a lease has ended, by the store's clock.
func (s *Store) expired(d *punctual.Delivery) bool {
	return storekit.CeilMillis(d.LeaseUntil) <= s.clock.Guess()/1000
}

// unexpired is what a claim returns of what it has leased. That is only what is still leased by the store's clock
// (P3), also when the server was last heard of long ago. The rest is given back unstarted, unless another claim has
// it by then.
func (s *Store) unexpired(ctx context.Context, ds []punctual.Delivery, err error) ([]punctual.Delivery, error) {
	now := s.clock.Guess() / 1000
	over := func(d punctual.Delivery) bool { return storekit.CeilMillis(d.LeaseUntil) <= now }
	if !slices.ContainsFunc(ds, over) {
		return ds, err
	}
	var lapsed []punctual.Delivery
	for _, d := range ds {
		if over(d) {
			lapsed = append(lapsed, d)
		}
	}
	ds = slices.DeleteFunc(ds, over)
	if len(ds) == 0 {
		s.release(ctx, lapsed)
		return nil, err
	}
	late, stop := s.clock.After(s.clock.Now() + furtherTime*1000) // the leases of ds run
	defer stop()
	given := make(chan struct{})
	s.calls.Go(func() {
		defer close(given)
		s.release(ctx, lapsed)
	})
	select {
	case <-given:
	case <-late:
	}
	return ds, err
}

// release releases what was leased and is not handed out, the attempts uncounted. What another claim has taken
// meanwhile it leaves alone.
func (s *Store) release(ctx context.Context, ds []punctual.Delivery) {
	if len(ds) == 0 {
		return
	}
	if err := s.undelivered(context.WithoutCancel(ctx), ds); err != nil {
		s.opt.Logger.Warn("redis store: a claim took long and could not give back what it had leased; it comes again, with one attempt more", "messages", len(ds), "error", err)
	}
}

// joined appends more to ds. Most often one of them is empty, and nothing is copied.
func joined(ds, more []punctual.Delivery) []punctual.Delivery {
	if len(ds) == 0 {
		return more
	}
	return append(ds, more...)
}

// addPartitions puts the partitions of a topic that nobody knew of behind target i, which has found
// another version than was known. It asks once per claim and topic.
func (s *Store) addPartitions(ctx context.Context, targets []target, i int, seen int64) ([]target, error) {
	old := targets[i]
	l, err := s.topics.Renew(ctx, old.Partition, seen, old.known)
	if err != nil {
		return nil, err
	}
	for j := range targets {
		if targets[j].Topic == old.Topic {
			targets[j].known = nil
		}
	}
	var more []target
	for n := old.known.Size(); n < l.Size(); n++ {
		more = append(more, target{Partition: s.names.Partition(old.Topic, n)})
	}
	return slices.Insert(targets, i+1, more...), nil
}

// claimPartition leases up to n messages of a partition. It returns the version of the settings there.
func (s *Store) claimPartition(ctx context.Context, c *punctual.Claim, p keys.Partition, n int) (ds []punctual.Delivery, version int64, err error) {
	for len(ds) < n {
		if err := ctx.Err(); err != nil {
			return ds, version, err
		}
		got, seen, next, err := s.claimSome(ctx, c.Lease, p, min(n-len(ds), script.Items), false)
		ds, version = joined(ds, got), seen
		if err != nil || next.next > next.now || next.token != 0 && claimKey(ctx) != nil {
			return ds, version, err
		}
	}
	return ds, version, nil
}

// heads is when the next message of a partition needs attention, and the partition's clock, in ms.
type heads struct {
	next, now int64
	// token is that of what the call has leased, also if nothing of that is left; 0 when it has leased nothing.
	token int64
}

// claimSome leases what one script may, and returns the version of the settings and when to ask again. It does not
// mind when ctx ends, so that no lease is given that nobody knows of.
func (s *Store) claimSome(ctx context.Context, lease time.Duration, p keys.Partition, n int, tidy bool) (ds []punctual.Delivery, version int64, got heads, err error) {
	got.next = clock.Never
	ctx = context.WithoutCancel(ctx)
	a, err := s.route.Run(ctx, script.Claim, p, claimKey(ctx).part(nil), n, storekit.CeilDuration(lease), script.Bytes, script.Flag(tidy))
	if err != nil {
		return nil, 0, got, err
	}
	next, at, until, token := a.Int(), a.Int(), a.Int(), a.Int()
	ids, messages, states := a.List(), a.List(), a.List()
	if a.Bad || len(messages) != len(ids) || len(states) > len(ids) {
		return nil, 0, got, script.BadReply(script.Claim)
	}
	begun, end := storekit.FromMillis(at), storekit.FromMillis(until)
	ds = make([]punctual.Delivery, len(ids))
	for i := range ids {
		state := ""
		if i < len(states) {
			state = states[i]
		}
		if ds[i], err = delivery(p.Topic, token, ids[i], messages[i], state); err != nil {
			return nil, 0, got, fmt.Errorf("topic %s: %w", p.Topic, err)
		}
		ds[i].Delivered, ds[i].LeaseUntil = begun, end
	}
	return ds, a.Version, heads{next: next, now: a.Now, token: token}, nil
}

// delivery is a message under a lease. state is empty if this is the first one.
func delivery(topic string, token int64, id, message, state string) (punctual.Delivery, error) {
	m, err := record.Read(id, message, state)
	if err != nil {
		return punctual.Delivery{}, err
	}
	if state == "" {
		m.Attempt = 1
	}
	return punctual.Delivery{Message: m.In(topic, id), Token: token, Failures: m.Failures}, nil
}
