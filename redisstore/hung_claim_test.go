package redisstore

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/redistest"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/redis/go-redis/v9"
)

// P11, P14: the connection of one claim hangs for longer than the others wait. One of them finds what is due, or the same one over
// another connection.
func TestHungClaimAndOtherClaims(t *testing.T) {
	server := redistest.Start(t)
	for _, n := range []int{1, 4} {
		loadScripts(t, server)
		p := redistest.StartProxy(t, server)
		client := redis.NewClient(&redis.Options{Addr: p.Addr, Dialer: p.Dial, ReadTimeout: 10 * time.Second})
		closeAtEnd(t, client.Close)
		s := openStore(t, client, &Options{Prefix: fresh()})
		push(t, s, punctual.NewMessage{Topic: "orders", ID: "far", Delay: time.Hour})
		ctx, end := context.WithCancel(t.Context())
		found := make(chan punctual.Delivery, n)
		var claims sync.WaitGroup
		for range n {
			claims.Go(func() {
				ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: time.Minute})
				if err == nil && len(ds) > 0 {
					found <- ds[0]
				}
			})
		}
		waitUntil(t, "all claims sleep", func() bool {
			waiting, quiet := s.waits.waiter.Waiting("orders")
			return waiting == n && quiet
		})
		held := p.Hold(runs(script.Claim)).Paused()
		push(t, s, punctual.NewMessage{Topic: "orders", ID: "x"})
		held.Await()
		select {
		case d := <-found:
			t.Logf("%d claims: found after %v", n, d.Late())
		case <-time.After(5 * time.Second): // the connection that hangs is given up after 10 s
			t.Errorf("P11, P14: of %d claims one hangs, and none finds the message; want that within a second", n)
		}
		held.Resume()
		end()
		claims.Wait()
	}
}
