package redisstore

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/script"
)

// P11, P14: the connection of one claim hangs. Another claim finds what is due meanwhile, or the
// same claim does so over another connection.
func TestHungClaimAndOtherClaims(t *testing.T) {
	server := redisrig.Start(t)
	for _, n := range []int{1, 4} {
		loadScripts(t, server)
		p := redisrig.StartProxy(t, server)
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
			t.Errorf("P11, P14: of %d claims one hangs, and none finds the message; want that within 5 s", n)
		}
		held.Resume()
		end()
		claims.Wait()
	}
}

// P11: the connection of a poll hangs. The partition is polled again over another connection,
// before the client gives the first one up.
func TestHungPollAndNextPolls(t *testing.T) {
	server := redisrig.Start(t)
	p := redisrig.StartProxy(t, server)
	client := redis.NewClient(&redis.Options{Addr: p.Addr, Dialer: p.Dial, ReadTimeout: 10 * time.Second})
	closeAtEnd(t, client.Close)
	s := openStore(t, client, &Options{Prefix: fresh()})
	push(t, s, punctual.NewMessage{Topic: "orders", ID: "far", Delay: time.Hour})
	ctx, end := context.WithCancel(t.Context())
	var claims sync.WaitGroup
	claims.Go(func() {
		_, _ = s.Claim(ctx, punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: time.Minute}) // it is ended
	})
	defer claims.Wait()
	defer end()
	waitUntil(t, "the claim sleeps", func() bool {
		waiting, quiet := s.waits.waiter.Waiting("orders")
		return waiting == 1 && quiet
	})
	due := s.names.Partition("orders", 0).Keys()[0]
	reads := func(words []string) bool { return strings.EqualFold(words[0], "zrange") && words[1] == due }
	held := p.Hold(reads).Paused()
	defer held.Resume()
	held.Await()
	polls := p.Count(reads)
	begun := time.Now()
	waitUntil(t, "three polls beside the one that hangs", func() bool { return polls.Seen() >= 3 })
	if took := time.Since(begun); took > 8*time.Second { // the connection that hangs is given up after 10 s
		t.Errorf("P11: a poll hangs, and three others follow after %v only; want one after half a second, and one each second then", took)
	}
}
