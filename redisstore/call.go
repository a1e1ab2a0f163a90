package redisstore

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// A call with a key of its caller's (storekit.Request) may be sent again through another Store. Its record has the key
// in place of the caller, and the sum of its content in place of the number. Each script of the call has one.

// keyed is a call with a key.
type keyed struct {
	storekit.Request
	sum storekit.Sum
}

// Repeats implements storekit.Repeater: a minute. Whichever Store over the same server a copy is sent to, it is answered as the
// first one was.
func (s *Store) Repeats() time.Duration { return script.RecordWindow * time.Millisecond }

// keyOf returns the key of a call, or nil if it has none.
func (s *Store) keyOf(ctx context.Context, sum func() storekit.Sum) (*keyed, error) {
	r, ok := storekit.RequestOf(ctx)
	if !ok {
		return nil, nil
	}
	if err := storekit.CheckRequest(r, s.clock.Time(), s.Repeats()); err != nil {
		return nil, err
	}
	return &keyed{r, sum()}, nil
}

// part is that of the script for some items of the call; a claim has none. A copy has the same items in the same scripts.
func (k *keyed) part(items []int) *script.Key {
	if k == nil {
		return nil
	}
	return &script.Key{Field: fieldOf(k.Key, items), Content: k.sum[:], Again: len(items) == 0 && !k.First}
}

// fieldOf is the field of that script's record. Which items it has, the first one and their number tell.
func fieldOf(key string, items []int) []byte {
	first, n := 0, 1
	if len(items) > 0 {
		first, n = items[0], len(items)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %s", first, n, key))
	return sum[:16]
}

// keyedClaims are the claims with a key that are under way in this process, one for each key.
type keyedClaims struct {
	mu sync.Mutex
	of map[string]*keyedClaim // guarded by mu: by key
}

type keyedClaim struct {
	end  func()
	done chan struct{} // closed when it has ended
}

// begin notes a claim and returns what is to be called when it has ended. If a claim with the same key is under way it
// returns that one.
func (c *keyedClaims) begin(key string, end func()) (leave func(), other *keyedClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.of[key]; other != nil {
		return nil, other
	}
	if c.of == nil {
		c.of = make(map[string]*keyedClaim)
	}
	this := &keyedClaim{end, make(chan struct{})}
	c.of[key] = this
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.of, key)
		close(this.done)
	}, nil
}

// Undelivered gives back what a Claim with this context returned and did not reach its caller, the attempts uncounted.
// What a copy of the claim was given as well stays leased. ds is all of what one Claim returned, or all of a topic's.
func (s *Store) Undelivered(ctx context.Context, ds []punctual.Delivery) error {
	_, err := call(ctx, s, "undelivered", "", nil, func() (struct{}, error) {
		return struct{}{}, plainly(s.leases.undelivered(ctx, ds))
	})
	return err
}
