package redisstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/health"
)

// throughFailover stores messages that fall due during a failover, and makes sure that the replica
// has them. It expects a consumer that was waiting all the time to get them all. By class volatile
// a failover loses only what the replica had not received.
func throughFailover(t *testing.T, client redis.UniversalClient, owner *redisrig.Server, failover func()) {
	t.Helper()
	producer, consumer := openStore(t, client, nil), openStore(t, client, nil)
	missing := make(map[string]bool)
	for i := range 300 {
		id := fmt.Sprint(i)
		push(t, producer, punctual.NewMessage{ID: id, Delay: time.Duration(i*10) * time.Millisecond})
		missing[id] = true
	}
	awaitReplica(t, owner)
	ctx, end := context.WithCancel(context.Background())
	delivered := make(chan string, 1000)
	go func() {
		defer close(delivered)
		consumeAll(ctx, consumer, delivered)
	}()
	delete(missing, <-delivered) // by now the consumer has begun to listen to notifications, too
	failover()
	if len(delivered) >= len(missing) {
		t.Error("this test shows nothing: all messages were delivered before the failover")
	}
	waitLimit := time.After(time.Minute)
	for len(missing) > 0 {
		select {
		case id := <-delivered:
			delete(missing, id)
		case <-waitLimit:
			t.Fatalf("P1: %d messages that the replica had were not delivered after the failover", len(missing))
		}
	}
	push(t, producer, punctual.NewMessage{ID: "after"})
	for id := range delivered {
		if id == "after" {
			break
		}
	}
	end()
	for range delivered {
	}
	if r, err := producer.Check(t.Context(), nil); err != nil || len(r.Problems) > 0 {
		t.Errorf("after the failover: %q, %v", r.Problems, err)
	}
}

// awaitReplica waits until a replica has all that its primary has. WAIT would not do: it
// tells only of what was written on its own connection.
func awaitReplica(t *testing.T, primary *redisrig.Server) {
	t.Helper()
	for {
		info := health.ParseInfo(do(t, primary, "INFO", "replication"))
		if strings.Contains(info["slave0"], "state=online,offset="+info["master_repl_offset"]+",") {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestSentinelFailover(t *testing.T) {
	sentinel := redisrig.StartSentinel(t)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: sentinel.Name, SentinelAddrs: []string{sentinel.Addr}})
	closeAtEnd(t, client.Close)
	throughFailover(t, client, sentinel.Nodes[0], func() {
		if err := sentinel.Nodes[0].Kill(); err != nil {
			t.Fatal(err)
		}
		if err := sentinel.AwaitPrimary(sentinel.Nodes[1]); err != nil {
			t.Fatal(err)
		}
	})
}

// Behind Sentinel the class is volatile unless class replicated was asked for, even if each server
// syncs each change, because a failover may lose the latest changes. An examination names class
// replicated, which would keep them.
func TestSentinelDurability(t *testing.T) {
	sentinel := redisrig.StartSentinel(t, "--appendfsync", "always")
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: sentinel.Name, SentinelAddrs: []string{sentinel.Addr}})
	closeAtEnd(t, client.Close)
	s := openStore(t, client, nil)
	if s.Durability() != punctual.Volatile {
		t.Errorf("P1: behind Sentinel durability is %q; want volatile", s.Durability())
	}
	found, err := s.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f := finding(t, found, "durability"); !strings.Contains(f.Remedy, "replicated") {
		t.Errorf("%+v; want the class that would do", f)
	}
}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	cluster := redisrig.StartCluster(t, 3, 1)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	closeAtEnd(t, client.Close)
	owner := cluster.Owner(t, ordersKey)
	throughFailover(t, client, owner, func() {
		if err := owner.Kill(); err != nil {
			t.Fatal(err)
		}
	})
}

// ordersKey is one of the keys of topic orders.
const ordersKey = "punctual:{orders#0}:g"

// Z16: the topic's slot goes from node to node under load.
func TestClassic_Z16_Resharding(t *testing.T) {
	cluster := redisrig.StartCluster(t, 3, 0)
	clients := func() redis.UniversalClient {
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		closeAtEnd(t, c.Close)
		return c
	}
	trouble(t, clients, func() {
		for i := range 20 {
			before := cluster.Owner(t, ordersKey)
			pushedMore(t, before)
			if err := cluster.Move(ordersKey, cluster.Nodes[i%3]); err != nil {
				t.Fatal(err)
			}
			if i > 0 && cluster.Owner(t, ordersKey) == before { // at first it may be there already
				t.Fatal("this test shows nothing: the slot has not moved")
			}
		}
		pushedMore(t, cluster.Owner(t, ordersKey))
	})
	sentOn := 0
	for _, n := range cluster.Nodes {
		sentOn += errorReplies(t, n, "MOVED") + errorReplies(t, n, "ASK")
	}
	if sentOn == 0 {
		t.Error("this test shows nothing: no request came to a node that had given the slot away")
	}
}

// P4: a replica that takes over may not know of the last claims. Their tokens are not given
// again all the same.
func TestTokensOfLostClaims(t *testing.T) {
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), nil)
	push(t, s, punctual.NewMessage{ID: "a", Due: time.Unix(1, 0)}, punctual.NewMessage{ID: "b", Due: time.Unix(1, 0)})
	known := do(t, server, "HGET", "punctual:{orders#0}:g", "token")
	var lost int64
	for range 2 {
		lost = max(lost, claimOne(t, s, 0).Token)
	}
	if do(t, server, "HGET", "punctual:{orders#0}:g", "token") == known {
		t.Fatal("this test shows nothing: the claims have not raised the token")
	}
	do(t, server, "HSET", "punctual:{orders#0}:g", "token", known)
	for at := now(t, s); !now(t, s).After(at); { // a failover takes longer
		time.Sleep(time.Millisecond)
	}
	push(t, s, punctual.NewMessage{ID: "c", Due: time.Unix(1, 0)})
	if d := claimOne(t, s, 0); d.Token <= lost {
		t.Errorf("P4: token %d after a claim with %d was lost", d.Token, lost)
	}
}

func now(t *testing.T, s *Store) time.Time {
	t.Helper()
	at, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return at
}
