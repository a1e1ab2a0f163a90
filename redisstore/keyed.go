package redisstore

import (
	"context"
	"crypto/sha256"
	"strconv"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// A call with a key of its caller's (storekit.Request) may be sent again, also through another
// Store over the same server. Each script of the call leaves a record, unless it has decided
// nothing, like a claim that has leased nothing or a push that met another version of the settings.
// A copy of the script finds that record. The record of a call without a key stands under the
// caller, which is a slot of this Store, and has the number of the call. With a key the record
// stands under the key, and has the sum of the call's content.

// keyed is a call with a key.
type keyed struct {
	storekit.Request
	sum storekit.Sum
}

// Repeats implements storekit.Repeater: answers are kept for a minute, and a copy of a call gets
// the answer through any Store over the same server.
func (s *Store) Repeats() time.Duration { return script.RecordWindow * time.Millisecond }

// keyOf returns the key of a call with the sum of its content, or nil if the call has no key.
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

// part returns the key of the script for some items of the call; items is empty for a claim. A copy
// of the call sends the same items in the same scripts, so its scripts have the same keys.
func (k *keyed) part(items []int) *script.Key {
	if k == nil {
		return nil
	}
	return &script.Key{Field: fieldOf(k.Key, items), Content: k.sum[:], Again: len(items) == 0 && !k.First}
}

// fieldOf returns the field that has the record of a script. The items are part of the field,
// because they say which of the scripts of the call it is: each run of consecutive items is named
// by its first item and by its length. When some of the items are sent again, because their topics
// had to be looked up, their script thus has another field than the one before.
func fieldOf(key string, items []int) []byte {
	if len(items) == 0 {
		items = []int{0} // a claim
	}
	var of []byte
	for n := 0; n < len(items); {
		end := n + 1
		for end < len(items) && items[end] == items[end-1]+1 {
			end++
		}
		of = append(strconv.AppendInt(of, int64(items[n]), 10), ' ')
		of = append(strconv.AppendInt(of, int64(end-n), 10), ' ')
		n = end
	}
	sum := sha256.Sum256(append(of, key...))
	return sum[:16]
}

// keyedClaims are the claims with a key that are under way in a Store, one for each key.
type keyedClaims struct {
	mu sync.Mutex
	of map[string]*keyedClaim // guarded by mu: by key
}

// keyedClaim is a claim with a key that is under way.
type keyedClaim struct {
	end  func()
	done chan struct{} // closed when the claim has ended
}

// begin registers a claim, and returns leave, which is to be called when the claim has ended. If a
// claim with the same key is under way begin returns that one instead. end ends the claim early.
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

// Undelivered gives back messages that a Claim with this context returned, but that did not reach
// the caller of that claim. Their attempts do not count. Messages that a copy of the claim was
// given as well stay leased. ds is all that one Claim returned, or all of one topic.
func (s *Store) Undelivered(ctx context.Context, ds []punctual.Delivery) error {
	_, err := call(ctx, s, "undelivered", "", nil, func() (struct{}, error) {
		return struct{}{}, storekit.Plain(s.leases.undelivered(ctx, ds))
	})
	return err
}
