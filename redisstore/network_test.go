package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	netrig "github.com/punctualmq/punctual/internal/rigs/net"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

// P1, P11: the network between clients and server carries nothing in one direction, for longer than
// clients wait; then everything arrives that was sent meanwhile.
func TestNetworkCut(t *testing.T) {
	for _, d := range []netrig.Direction{netrig.ToServer, netrig.FromServer} {
		t.Run(d.String(), func(t *testing.T) {
			server := redisrig.Start(t)
			w := netrig.StartWire(t, server.Addr)
			var hooks []*timeouts // of the producer's client and of the consumer's
			clients := func() redis.UniversalClient {
				c, x := redis.NewClient(&redis.Options{Addr: w.Addr, ReadTimeout: 500 * time.Millisecond}), &timeouts{}
				closeAtEnd(t, c.Close)
				c.AddHook(x)
				hooks = append(hooks, x)
				return c
			}
			trouble(t, clients, func() {
				for range 3 {
					pushedMore(t, server)
					w.Cut(d)
					w.AwaitHeld(t, d, 1)
					awaitTimeouts(hooks)
					w.Mend(d)
				}
				pushedMore(t, server)
			})
		})
	}
}

// P1: the network between a primary and its replica carries nothing in one direction. Pushes are
// refused meanwhile, and acks pass. Messages that were reported as stored are at the replica when
// the primary is lost.
func TestReplicaCutOff(t *testing.T) {
	for _, d := range []netrig.Direction{netrig.ToServer, netrig.FromServer} {
		t.Run(d.String(), func(t *testing.T) {
			primary := redisrig.Start(t, "--appendfsync", "always")
			client := connect(t, primary)
			needWaitAOF(t, primary, client)
			w := netrig.StartWire(t, primary.Addr)
			replica := redisrig.StartReplicaOver(t, w, primary, "--appendfsync", "always")
			o := replicated
			o.ReplicaTimeout, o.checkEvery = 200*time.Millisecond, 10*time.Millisecond
			s := openReplicated(t, client, &o)
			held := situations(t, s)
			w.Cut(d)
			awaitRefusal(t, s, "replicas 0 of 1")
			w.AwaitHeld(t, d, 1)
			ack(t, s, held)
			w.Mend(d)
			awaitPushes(t, s)

			stored := make(chan string, 1<<16)
			ctx, end := context.WithCancel(t.Context())
			go func() {
				defer close(stored)
				pushUntil(ctx, s, stored)
			}()
			for range 100 { // well under way
				<-stored
			}
			w.Cut(d)
			w.AwaitHeld(t, d, 1)
			awaitRefusal(t, s, "replicas 0 of 1") // behind pushes that nobody confirmed
			if err := primary.Kill(); err != nil {
				t.Fatal(err)
			}
			end()
			do(t, replica, "REPLICAOF", "NO", "ONE")
			after := openStore(t, connect(t, replica), nil)
			for id := range stored {
				if _, err := after.Get(t.Context(), "orders", id); err != nil {
					t.Errorf("P1: %s was reported as stored and is not there after the failover: %v", id, err)
				}
			}
		})
	}
}

// P2, P3, P4, P8: the clock of the replica that takes over is ahead or behind. By the store's
// clock, which never runs backwards, no message comes early and no lease ends early.
func TestFailoverToAnotherClock(t *testing.T) {
	for _, ahead := range []time.Duration{-3 * time.Second, -300 * time.Millisecond, 3 * time.Second} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			primary := redisrig.Start(t)
			replica := redisrig.StartShiftedReplica(t, primary)
			if err := replica.Shift(ahead); err != nil {
				t.Fatal(err)
			}
			var serving atomic.Pointer[redisrig.Server]
			serving.Store(primary)
			client := redis.NewClient(&redis.Options{Addr: "primary", Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, serving.Load().Addr)
			}})
			closeAtEnd(t, client.Close)
			s := openStore(t, client, nil)
			push(t, s, punctual.NewMessage{ID: "held", Due: time.Unix(1, 0)})
			held := claimFor(t, s, 2*time.Second)
			missing := map[string]bool{"held": true}
			for i := range 40 {
				id := fmt.Sprint(i)
				push(t, s, punctual.NewMessage{ID: id, Delay: time.Duration(i*100) * time.Millisecond})
				missing[id] = true
			}
			before := now(t, s)
			awaitReplica(t, primary)
			if err := primary.Kill(); err != nil {
				t.Fatal(err)
			}
			do(t, replica, "REPLICAOF", "NO", "ONE")
			if off := time.Until(serverTime(t, replica)) - ahead; off.Abs() > 200*time.Millisecond {
				t.Fatalf("this test shows nothing: the clock of the replica is off by %v more than %v", off, ahead)
			}
			serving.Store(replica)
			if after := now(t, s); after.Before(before) {
				t.Errorf("P8: the clock went back from %v to %v", before, after)
			}
			for limit := time.Now().Add(time.Minute); len(missing) > 0; {
				if time.Now().After(limit) {
					t.Fatalf("P1: %d messages were not delivered after the failover", len(missing))
				}
				ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 10, Wait: time.Second, Lease: time.Hour})
				if err != nil && !errors.Is(err, punctual.ErrUnreachable) {
					t.Fatal(err)
				}
				for _, d := range ds {
					delete(missing, d.ID)
					if d.Late() < 0 || d.Delivered.Before(before) {
						t.Errorf("P2: %s, due %v, was delivered at %v; before the failover it was %v", d.ID, d.Due, d.Delivered, before)
					}
					if d.ID == "held" && d.Delivered.Before(held.LeaseUntil) {
						t.Errorf("P3: delivered at %v under a lease until %v", d.Delivered, held.LeaseUntil)
					}
					if d.ID == "held" && d.Token <= held.Token {
						t.Errorf("P4: token %d was given out after token %d", d.Token, held.Token)
					}
				}
			}
			errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: held.Topic, ID: held.ID, Token: held.Token, Verb: punctual.SettleAck}})
			if err != nil || !errors.Is(errs[0], punctual.ErrLeaseLost) {
				t.Errorf("P4: the first holder's ack: %v, %v; want ErrLeaseLost", errs, err)
			}
			wantSound(t, s)
		})
	}
}

// claimFor claims one message for some time.
func claimFor(t *testing.T, s *Store, lease time.Duration) punctual.Delivery {
	t.Helper()
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Lease: lease})
	if err != nil || len(ds) != 1 {
		t.Fatalf("claimed %v, %v; want one message", ds, err)
	}
	return ds[0]
}
