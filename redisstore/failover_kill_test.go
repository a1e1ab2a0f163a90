package redisstore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/keys"

	"github.com/punctualmq/punctual/storetest/ledger"
)

// failovers is how many of each kind the ordinary test run makes; PUNCTUAL_FAILOVERS asks for
// another number.
const failovers = 2

// failoverProcess is the number under which failovers stand in the journal.
const failoverProcess = auditProcess - 1

// failoverRun is a killRun of class replicated: in each round a primary is killed and its replica
// takes over.
type failoverRun struct {
	*killRun
	rounds int
	nodes  []*redisrig.Server
}

func newFailoverRun(t *testing.T, url string, nodes []*redisrig.Server) *failoverRun {
	k := &failoverRun{
		killRun: newKillRun(t, ledger.KeepsConfirmed, url, "replicated"), nodes: nodes,
		rounds: ledger.FromEnv(t, "PUNCTUAL_FAILOVERS", failovers),
	}
	k.ledger.Expected = append(k.ledger.Expected, "durability")
	// Replicas and Sentinels have connections, too, without the name of a library.
	k.quiet = func() bool {
		return !slices.ContainsFunc(nodes, func(n *redisrig.Server) bool {
			return strings.Contains(do(t, n, "CLIENT", "LIST"), "lib-name=go-redis")
		})
	}
	k.caughtUp = k.awaitReplicas
	return k
}

// killPrimary kills the primary of some topics; no topics stand for all. i is the number of the
// round.
func (k *failoverRun) killPrimary(i int, primary *redisrig.Server, topics []string) {
	e := ledger.Line{Call: ledger.LineFailover, N: ledger.FirstCall(failoverProcess) + int64(i), At: time.Now().UnixMilli(), Topics: topics}
	k.journal.Write(e)
	k.kill(primary)
	e.Answer, e.At = true, time.Now().UnixMilli()
	k.journal.Write(e)
}

// awaitPushes waits until a push to one of some topics was stored; no topics stand for all. The
// push must have begun after all that the journal has now.
func (k *failoverRun) awaitPushes(topics []string) {
	seen := 0
	if err := ledger.ReadJournal(k.path, func(ledger.Line) { seen++ }); err != nil {
		k.t.Fatal(err)
	}
	waitUntil(k.t, "messages are stored behind the failover", func() bool {
		begun, line, found := make(map[int64][]ledger.Fact), 0, false
		err := ledger.ReadJournal(k.path, func(e ledger.Line) {
			if line++; line <= seen || e.Call != ledger.CallPush {
				return
			}
			if !e.Answer {
				begun[e.N] = e.Facts
				return
			}
			for i, asked := range begun[e.N] {
				its := len(topics) == 0 || slices.Contains(topics, asked.Topic)
				found = found || its && i < len(e.Facts) && e.Facts[i].Status == "stored"
			}
		})
		if err != nil {
			k.t.Fatal(err)
		}
		return found
	})
}

// awaitReplicas waits until the replicas have all changes, and notes in the ledger that from then
// on none of these may be lost.
func (k *failoverRun) awaitReplicas() {
	for _, n := range k.nodes {
		if strings.Contains(do(k.t, n, "INFO", "replication"), "role:master") {
			awaitReplica(k.t, n)
		}
	}
	k.ledger.Kept()
}

// P1 to P8: processes work while Sentinel fails over, again and again, every second time to a
// replica that has not received the last changes.
func TestSlowReplicatedKillsBehindSentinel(t *testing.T) {
	t.Parallel()
	sentinel := redisrig.StartSentinel(t, "--appendfsync", "always")
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: sentinel.Name, SentinelAddrs: []string{sentinel.Addr}})
	closeAtEnd(t, client.Close)
	needWaitAOF(t, sentinel.Nodes[0], client)
	// A server that is slow on a loaded machine must not be taken for dead: then there were two
	// primaries for a moment.
	if _, err := sentinel.Do("SENTINEL", "SET", sentinel.Name, "down-after-milliseconds", "5000"); err != nil {
		t.Fatal(err)
	}
	k := newFailoverRun(t, "redis+sentinel://"+sentinel.Addr+"/"+sentinel.Name, sentinel.Nodes)
	primary := sentinel.Nodes[0]
	k.run(k.rounds, func(i int) {
		k.pause(200, 700)
		next := sentinel.Other(primary)
		if i%2 == 1 { // the replica falls behind
			stopped(t, next)
			k.pause(100, 500)
		}
		k.killPrimary(i, primary, nil)
		if i%2 == 1 {
			goOn(t, next)
		}
		if err := sentinel.AwaitPrimary(next); err != nil {
			t.Fatal(err)
		}
		if err := sentinel.Rejoin(primary); err != nil {
			t.Fatal(err)
		}
		primary = next
		k.awaitPushes(nil)
		k.pause(200, 700)
		// The number of a configuration grows with each failover.
		if text, err := sentinel.Do("SENTINEL", "MASTER", sentinel.Name); err != nil || !strings.Contains(text+"\n", fmt.Sprintf("config-epoch\n%d\n", i+1)) {
			t.Fatalf("this test shows nothing: Sentinel has failed over another number of times than %d: %s, %v", i+1, text, err)
		}
	})
	k.audit(client)
	t.Logf("%d failovers with %d calls under way", k.rounds, k.underWay)
}

// P1 to P8: processes work while nodes of a cluster fail over, again and again. In one round of
// five slots of the other nodes are moved meanwhile.
func TestSlowReplicatedKillsInCluster(t *testing.T) {
	t.Parallel()
	// A node that is slow on a loaded machine must not be taken for dead.
	cluster := redisrig.StartCluster(t, 3, 1, "--appendfsync", "always", "--cluster-node-timeout", "3500")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	closeAtEnd(t, client.Close)
	needWaitAOF(t, cluster.Nodes[0], client)
	var hosts []string
	for _, n := range cluster.Nodes {
		hosts = append(hosts, n.Addr)
	}
	k := newFailoverRun(t, "redis+cluster://"+strings.Join(hosts, ","), cluster.Nodes)
	c := &clusterRun{failoverRun: k, cluster: cluster, slots: make(map[string]int), keys: make(map[string]string)}
	for _, topic := range ledger.WorkloadTopics() {
		key := keys.Names{Prefix: keys.DefaultPrefix}.Partition(topic, 0).Keys()[0]
		slot, err := cluster.Slot(key)
		if err != nil {
			t.Fatal(err)
		}
		c.keys[topic], c.slots[topic] = key, slot
	}
	resharded := 0
	k.run(k.rounds, func(i int) {
		reshard := i%5 == 1
		if reshard {
			resharded++
		}
		c.failOver(i, reshard)
	})
	k.audit(client)
	t.Logf("%d failovers with %d calls under way, %d of them while %d slots were moved", k.rounds, k.underWay, resharded, c.moved)
}

// clusterRun is a failoverRun on a cluster.
type clusterRun struct {
	*failoverRun
	cluster *redisrig.Cluster
	slots   map[string]int    // by topic
	keys    map[string]string // one of each topic
	moved   int64             // how many slots were moved while a primary was away
}

// failOver kills the primary of a busy topic, and waits until its replica serves and the cluster is
// sound again.
func (c *clusterRun) failOver(i int, reshard bool) {
	c.pause(200, 700)
	primaries := c.cluster.Primaries()
	busy := ledger.WorkloadTopics()[i%4]
	victim := c.cluster.Owner(c.t, c.keys[busy])
	var its, others []string
	for topic, slot := range c.slots {
		if primaries[victim](slot) {
			its = append(its, topic)
		} else {
			others = append(others, topic)
		}
	}
	stop := func() {}
	if reshard {
		delete(primaries, victim)
		stop = c.moveSlots(others, slices.Collect(maps.Keys(primaries)))
	}
	c.killPrimary(i, victim, its)
	waitUntil(c.t, "a replica has taken over", func() bool {
		for _, serves := range c.cluster.Primaries() {
			if serves(c.slots[busy]) {
				return true
			}
		}
		return false
	})
	stop()
	if err := victim.Restart(); err != nil {
		c.t.Fatal(err)
	}
	if err := c.cluster.AwaitSound(); err != nil {
		c.t.Fatal(err)
	}
	c.awaitPushes(its)
	c.pause(200, 700)
	after := c.cluster.Primaries()
	for n := range primaries {
		if n != victim && after[n] == nil {
			c.t.Fatalf("this test shows nothing: the node at %s, which was not killed, was replaced too", n.Addr)
		}
	}
}

// moveSlots moves the slots of some topics to and fro between two primaries, one slot after the
// other, until stop is called. It returns when the first slot was moved, or could not be.
func (c *clusterRun) moveSlots(topics []string, primaries []*redisrig.Server) (stop func()) {
	first, ended := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	var moved atomic.Int64
	all.Go(func() {
		var once sync.Once
		defer once.Do(func() { close(first) })
		for n := 0; ; n++ {
			topic, to := topics[n/2%len(topics)], primaries[n%2]
			has, err := c.moveSlot(topic, to)
			if err != nil {
				c.t.Errorf("move of the slot of topic %s: %v", topic, err)
				return
			}
			if has {
				moved.Add(1)
				once.Do(func() { close(first) })
			}
			select {
			case <-ended:
				return
			default:
			}
		}
	})
	<-first
	before := moved.Load()
	return func() {
		close(ended)
		all.Wait()
		n := moved.Load() - before
		c.moved += n
		if n == 0 {
			c.t.Error("this test shows nothing: no slot was moved while the primary was away")
		}
	}
}

// moveSlot moves the slot of a topic to a primary, and reports whether the slot was not there
// before and is there now.
func (c *clusterRun) moveSlot(topic string, to *redisrig.Server) (moved bool, err error) {
	has := func() bool {
		serves := c.cluster.Primaries()[to]
		return serves != nil && serves(c.slots[topic])
	}
	if has() {
		return false, nil
	}
	// While a primary is away, the others serve nobody for a moment.
	for limit := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if err = c.cluster.Move(c.keys[topic], to); err == nil || time.Now().After(limit) {
			return err == nil && has(), err
		}
	}
}
