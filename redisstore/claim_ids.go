package redisstore

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// claimIDs carries out a claim of messages by ID. It asks the partitions where the IDs are at home,
// side by side, and in each round for as many IDs as the claim may still lease.
func (s *Store) claimIDs(ctx context.Context, c *punctual.Claim, key *keyed) ([]punctual.Delivery, error) {
	x := &claimingIDs{s: s, c: c, key: key, place: make(map[string]int, len(c.IDs)), asked: make(map[keys.Partition]bool)}
	defer x.end()
	var left []int // places of the IDs that no script has read, each ID once
	for i, id := range c.IDs {
		if _, named := x.place[id]; !named {
			x.place[id] = i
			left = append(left, i)
		}
	}
	most := cmp.Or(c.Max, len(c.IDs))
	var err error
	for len(left) > 0 && len(x.ds) < most && err == nil && !x.over {
		n := min(len(left), most-len(x.ds))
		var unread []int
		unread, err = x.round(ctx, left[:n])
		left = append(unread, left[n:]...)
	}
	slices.SortFunc(x.ds, func(a, b punctual.Delivery) int { return x.place[a.ID] - x.place[b.ID] })
	return s.leases.unexpired(ctx, x.ds, err)
}

// claimingIDs is a claim by ID on its way.
type claimingIDs struct {
	s     *Store
	c     *punctual.Claim
	key   *keyed
	place map[string]int // of each ID in c.IDs
	items []item         // of the round
	read  map[int]bool   // the places that a script has read in the round

	mu    sync.Mutex
	ds    []punctual.Delivery     // guarded by mu while a round is under way
	asked map[keys.Partition]bool // guarded by mu
	over  bool                    // guarded by mu while a round is under way: an earlier copy of the claim had leases, which have ended
	ended bool                    // guarded by mu: nobody takes in further answers
}

func (x *claimingIDs) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
}

// round asks for the IDs at some places, and returns the places that no script has read, because
// the messages before them were large.
func (x *claimingIDs) round(ctx context.Context, places []int) (unread []int, err error) {
	x.items, x.read = make([]item, len(x.c.IDs)), make(map[int]bool)
	for i := range x.items {
		x.items[i] = item{topic: x.c.Topics[0], done: true}
	}
	for _, i := range places {
		x.items[i].done = false
	}
	var failed error
	j := routing{
		s: x.s, items: x.items, id: func(i int) string { return x.c.IDs[i] }, pack: x.pack, ask: x.ask,
		refuse: func(_ int, err error) { failed = cmp.Or(failed, err) },
	}
	err = cmp.Or(j.run(ctx), failed)
	return slices.DeleteFunc(slices.Clone(places), func(i int) bool { return x.read[i] }), err
}

// pack makes the arguments of claim.lua.
func (x *claimingIDs) pack(c *chunk) []any {
	args := []any{len(c.Items), storekit.CeilDuration(x.c.Lease), script.Bytes, script.Flag(false)}
	for _, i := range c.Items {
		args = append(args, x.c.IDs[i])
	}
	return args
}

// ask claims some messages in a partition. As in any claim it goes on when ctx ends. The first
// script in a partition has the record of the claim's key there, which Undelivered looks for.
func (x *claimingIDs) ask(ctx context.Context, c *chunk, args []any) (int64, func() error, error) {
	p, items := c.Partition, c.Items
	x.mu.Lock()
	if !x.asked[p] {
		x.asked[p], items = true, nil
	}
	x.mu.Unlock()
	a, err := x.s.route.Run(context.WithoutCancel(ctx), script.ClaimIDs, p, x.key.part(items), args...)
	if err != nil {
		return 0, nil, err
	}
	ds, version, got, err := x.s.leases.leased(p, a)
	if err != nil {
		return 0, nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		x.s.leases.giveBack(ctx, ds)
		return version, nil, nil
	}
	x.ds = append(x.ds, ds...)
	x.over = x.over || got.token != 0 && len(ds) == 0
	return version, func() error {
		for n, i := range c.Items {
			x.read[i] = int64(n) < got.next || x.read[i]
		}
		for i := range ds {
			x.items[x.place[ds[i].ID]].done = true
		}
		return nil
	}, nil
}
