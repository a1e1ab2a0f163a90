package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/health"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/storekit"
)

var replicated = Options{Durability: punctual.Replicated}

// needWaitAOF returns where the servers are new enough for class replicated. On older ones it
// checks that a store refuses them, and skips the test.
func needWaitAOF(t *testing.T, s *redisrig.Server, c redis.UniversalClient) {
	t.Helper()
	if hasWaitAOF(t, s) {
		return
	}
	_, err := Open(t.Context(), c, &replicated)
	if !errors.Is(err, punctual.ErrDurability) || !strings.Contains(err.Error(), health.OldestReplicated) {
		t.Errorf("P1: an old server was opened for class replicated with error %v; want ErrDurability that names the version", err)
	}
	t.Skipf("NOT TESTED: class replicated on this server. It needs Redis or Valkey %s or newer; make test runs this on Valkey, too, where that is installed", health.OldestReplicated)
}

// pair is a primary with one replica, both syncing every write, that can give class replicated;
// see needWaitAOF.
func pair(t *testing.T) (primary, replica *redisrig.Server) {
	t.Helper()
	primary = redisrig.Start(t, "--appendfsync", "always")
	replica = redisrig.StartReplica(t, primary, "--appendfsync", "always")
	needWaitAOF(t, primary, connect(t, primary))
	return primary, replica
}

// P1, P13: what class replicated does when no replica can be waited for, on servers of any version.
// A change that promises something is made and says that it may be lost, also when it is repeated.
// Claims and settlements do not wait. (Open would refuse such a server.)
func TestReplicasCannotBeWaitedFor(t *testing.T) {
	server := redisrig.Start(t)
	plain := openStore(t, connect(t, server), nil)
	held := situations(t, plain)
	s, err := newStore(connect(t, server), &Options{Durability: punctual.Replicated, ReplicaTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, s.Close)
	waits := map[string]bool{"push": true, "cancel": true, "reschedule": true, "requeue": true, "configure": true, "purge": true}
	before := calls(t, server)
	for range 2 {
		_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "x", Delay: time.Hour}})
		wantIndeterminate(t, "a push that nobody confirmed", err)
		if !route.IsUnconfirmed(err) || !strings.Contains(err.Error(), "it is stored") {
			t.Errorf("P13: a push that nobody confirmed = %v; want that it is stored", err)
		}
		if m, err := plain.Get(t.Context(), "orders", "x"); err != nil || m.ID != "x" {
			t.Errorf("P1: get = %+v, %v; want what was pushed", m, err)
		}
	}
	if n := calls(t, server) - before; n < 4 || n > 8 {
		t.Errorf("two pushes and two reads ran %d scripts; want each push with one of confirm", n)
	}
	for name, change := range changes(s, held) {
		if err := change(t.Context()); waits[name] != route.IsUnconfirmed(err) {
			t.Errorf("P1: %s = %v; want it unconfirmed: %v", name, err, waits[name])
		}
	}
}

// openReplicated opens a store as soon as the replicas are there for their primary. A replica that
// has just got all data first writes a new append-only file.
func openReplicated(t *testing.T, c redis.UniversalClient, o *Options) *Store {
	t.Helper()
	for waitLimit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s, err := Open(t.Context(), c, o)
		if err == nil {
			closeAtEnd(t, s.Close)
			return s
		}
		if !errors.Is(err, punctual.ErrDurability) || time.Now().After(waitLimit) {
			t.Fatal(err)
		}
	}
}

// stopped halts a server. A replica is then still there for its primary, and confirms nothing.
func stopped(t *testing.T, s *redisrig.Server) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
}

func goOn(t *testing.T, s *redisrig.Server) {
	t.Helper()
	if err := s.Continue(); err != nil {
		t.Fatal(err)
	}
}

// Calls of each kind work with class replicated. The suite is not run with it, because the scripts
// do the same as without, and it would only wait for disks.
func TestReplicated(t *testing.T) {
	primary, _ := pair(t)
	s := openReplicated(t, connect(t, primary), &replicated)
	if got := s.Durability(); got != punctual.Replicated {
		t.Errorf("P1: durability %q; want replicated", got)
	}
	held := situations(t, s)
	all := changes(s, held)
	for _, name := range []string{"push", "claim", "extend", "retry", "cancel", "reschedule", "requeue", "configure", "purge"} {
		if err := all[name](t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r, err := s.Check(t.Context(), nil); err != nil || len(r.Problems) > 0 {
		t.Errorf("check: %q, %v", r.Problems, err)
	}
	if n, err := s.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Errorf("delete: %d, %v", n, err)
	}
	found, err := s.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f := finding(t, found, "durability"); f.Value != string(punctual.Replicated) || f.Severity != storekit.SeverityGood {
		t.Errorf("%+v; want replicated", f)
	}
}

// L11: a change that no replica has confirmed is not called done, also not by a second
// try that finds it there.
func TestClassic_L11_Unconfirmed(t *testing.T) {
	primary, replica := pair(t)
	o := replicated
	o.ReplicaTimeout, o.checkEvery = 100*time.Millisecond, time.Hour
	s := openReplicated(t, connect(t, primary), &o)
	held := situations(t, s)
	stopped(t, replica)
	again := []punctual.NewMessage{{Topic: "orders", ID: "again"}}
	all := changes(s, held)
	all["push again"] = func(ctx context.Context) error { _, err := s.Push(ctx, again); return err }
	for _, name := range []string{"push again", "push again", "push", "cancel", "reschedule", "requeue", "purge"} {
		err := all[name](t.Context())
		for errors.Is(err, punctual.ErrDurability) { // the check that follows a failure was faster
			s.health.Refuse(nil)
			err = all[name](t.Context())
		}
		if !errors.Is(err, punctual.ErrIndeterminate) || punctual.Definite(err) || !strings.Contains(err.Error(), "replicas 0 of 1") {
			t.Errorf("P13: %s that no replica confirmed = %v; want ErrIndeterminate with how many did", name, err)
		}
	}
	goOn(t, replica)
	awaitPushes(t, s)
}

// Claims and acks do not wait for replicas, because a failover that loses one only has the message
// delivered once more. Pushes wait.
func TestReplicatedClaimsDoNotWait(t *testing.T) {
	primary, replica := pair(t)
	s := openReplicated(t, connect(t, primary), &replicated)
	held := situations(t, s)
	stopped(t, replica)
	for _, name := range []string{"claim", "extend", "ack"} {
		if err := changes(s, held)[name](t.Context()); err != nil {
			t.Errorf("%s while the replica hangs: %v; want it to pass", name, err)
		}
	}
	_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders"}})
	wantIndeterminate(t, "push while the replica hangs", err)
	goOn(t, replica)
}

// A server out of memory refuses pushes, and lets calls pass that free memory: a cancel, which is
// confirmed, and an ack.
func TestReplicatedOutOfMemory(t *testing.T) {
	primary, _ := pair(t)
	s := openReplicated(t, connect(t, primary), &replicated)
	held := situations(t, s)
	do(t, primary, "CONFIG", "SET", "maxmemory", "1")
	if err := changes(s, held)["push"](t.Context()); !errors.Is(err, punctual.ErrNoSpace) || !punctual.Definite(err) {
		t.Errorf("P13: push to a server out of memory = %v; want ErrNoSpace", err)
	}
	for _, name := range []string{"cancel", "ack"} {
		if err := changes(s, held)[name](t.Context()); err != nil {
			t.Errorf("%s on a server out of memory = %v; want it to pass", name, err)
		}
	}
}

// While a server does not give the class that was asked for, pushes are refused, until it gives the
// class again. Acks go on.
func TestReplicaLost(t *testing.T) {
	primary, replica := pair(t)
	o := replicated
	o.ReplicaTimeout, o.checkEvery = 100*time.Millisecond, 10*time.Millisecond
	s := openReplicated(t, connect(t, primary), &o)
	held := situations(t, s)
	stopped(t, replica)
	awaitRefusal(t, s, "replicas 0 of 1")
	ack(t, s, held)
	goOn(t, replica)
	awaitPushes(t, s)
}

// awaitRefusal pushes until pushes are refused with an ErrDurability, which must have a text.
func awaitRefusal(t *testing.T, s *Store, text string) {
	t.Helper()
	for {
		_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders"}})
		if errors.Is(err, punctual.ErrDurability) {
			if !punctual.Definite(err) || !strings.Contains(err.Error(), text) {
				t.Errorf("P13: refused with %v; want it definite, with %q", err, text)
			}
			return
		}
		if err != nil && !errors.Is(err, punctual.ErrIndeterminate) {
			t.Fatalf("P13: push = %v; want ErrIndeterminate or ErrDurability", err)
		}
	}
}

// awaitPushes pushes until pushes pass.
func awaitPushes(t *testing.T, s *Store) {
	t.Helper()
	for {
		_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders"}})
		if err == nil {
			return
		}
		if !errors.Is(err, punctual.ErrDurability) && !errors.Is(err, punctual.ErrIndeterminate) {
			t.Fatalf("P13: push = %v; want ErrDurability until it passes", err)
		}
		time.Sleep(time.Millisecond)
	}
}

// A replica without an append-only file is not enough for class replicated, and neither are fewer
// replicas than were asked for.
func TestReplicaWithoutFile(t *testing.T) {
	primary := redisrig.Start(t, "--appendfsync", "always")
	redisrig.StartReplica(t, primary, "--appendonly", "no")
	client := connect(t, primary)
	needWaitAOF(t, primary, client)
	o := replicated
	o.ReplicaTimeout = 100 * time.Millisecond
	if _, err := Open(t.Context(), client, &o); !errors.Is(err, punctual.ErrDurability) || !strings.Contains(err.Error(), "on the replicas") {
		t.Errorf("P1: open with a replica that has no file = %v; want ErrDurability that names it", err)
	}
	o.Replicas = 2
	if _, err := Open(t.Context(), client, &o); !errors.Is(err, punctual.ErrDurability) || !strings.Contains(err.Error(), "2 replicas") {
		t.Errorf("P1: open for 2 replicas with one = %v; want ErrDurability that names how many", err)
	}
}

// P1: messages that were reported as stored are there after a failover, although the replica hung
// before the primary was killed.
func TestReplicatedFailover(t *testing.T) {
	sentinel := redisrig.StartSentinel(t, "--appendfsync", "always")
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: sentinel.Name, SentinelAddrs: []string{sentinel.Addr}})
	closeAtEnd(t, client.Close)
	needWaitAOF(t, sentinel.Nodes[0], client)
	o := replicated
	o.ReplicaTimeout = 200 * time.Millisecond
	s := openReplicated(t, client, &o)
	stored := make(chan string, 1<<16)
	ctx, end := context.WithCancel(t.Context())
	go func() {
		defer close(stored)
		pushUntil(ctx, s, stored)
	}()
	for range 100 { // well under way
		<-stored
	}
	stopped(t, sentinel.Nodes[1])
	pushedMore(t, sentinel.Nodes[0]) // not confirmed by anybody
	if err := sentinel.Nodes[0].Kill(); err != nil {
		t.Fatal(err)
	}
	goOn(t, sentinel.Nodes[1])
	if err := sentinel.AwaitPrimary(sentinel.Nodes[1]); err != nil {
		t.Fatal(err)
	}
	end()
	after := openStore(t, connect(t, sentinel.Nodes[1]), nil)
	for id := range stored {
		if _, err := after.Get(t.Context(), "orders", id); err != nil {
			t.Errorf("P1: %s was reported as stored and is not there after the failover: %v", id, err)
		}
	}
}

// pushUntil pushes until ctx ends, and sends the IDs of the messages that were reported as stored.
func pushUntil(ctx context.Context, s *Store, stored chan<- string) {
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprint(i)
		rs, err := s.Push(ctx, []punctual.NewMessage{{Topic: "orders", ID: id, Delay: time.Hour}})
		if err == nil && rs[0].Status == punctual.PushStored {
			stored <- id
		}
	}
}

// On a cluster a push waits for the replicas of the node that has its topic.
func TestReplicatedCluster(t *testing.T) {
	cluster := redisrig.StartCluster(t, 3, 1, "--appendfsync", "always")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	closeAtEnd(t, client.Close)
	needWaitAOF(t, cluster.Nodes[0], client)
	o := replicated
	o.ReplicaTimeout, o.checkEvery = 2*time.Second, time.Hour // a disk that others use takes long
	s := openReplicated(t, client, &o)
	for i := range 20 {
		push(t, s, punctual.NewMessage{Topic: fmt.Sprint("topic", i)})
	}
	if err := cluster.Move("punctual:{topic1#0}:g", cluster.Owner(t, "punctual:{topic2#0}:g")); err != nil {
		t.Fatal(err)
	}
	push(t, s, punctual.NewMessage{Topic: "topic1"}) // at first sent to the node that had the topic before
	owner := cluster.Owner(t, ordersKey)
	for i, n := range cluster.Nodes[:3] {
		if n == owner {
			stopped(t, cluster.Nodes[3+i])
			defer goOn(t, cluster.Nodes[3+i])
		}
	}
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders"}}); !errors.Is(err, punctual.ErrIndeterminate) {
		t.Errorf("P1: push to a node whose replica hangs = %v; want ErrIndeterminate", err)
	}
}
