package redisstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
)

// soon is far longer than the calls take that must not be held up, and shorter than a node hangs.
const soon = 10 * time.Second

// hungNode is a store in a cluster of which one node hangs once halt was called.
type hungNode struct {
	*Store
	node        *redisrig.Server
	hung, sound string // topics on that node, and on another one
}

// onHungNode opens a store in a cluster, and pushes the given messages to a topic on a node that
// halt will stop, and to one on another node.
func onHungNode(t *testing.T, ms ...punctual.NewMessage) hungNode {
	t.Helper()
	cluster := redisrig.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	closeAtEnd(t, client.Close)
	h := hungNode{Store: openStore(t, client, nil)}
	owner := func(topic string) *redisrig.Server {
		return cluster.Owner(t, h.names.Partition(topic, 0).Keys()[0])
	}
	// The node of the store's own keys is not the one that hangs, so that nothing but the topic is
	// missing.
	base := cluster.Owner(t, h.names.Store())
	for i := 0; h.hung == "" || h.sound == ""; i++ {
		topic := fmt.Sprint("topic", i)
		switch {
		case owner(topic) == base:
			h.sound = topic
		case h.hung == "":
			h.hung = topic
		default:
			continue
		}
		push(t, h.Store, punctual.NewMessage{Topic: topic, ID: "far", Delay: time.Hour})
		for _, m := range ms {
			m.Topic = topic
			push(t, h.Store, m)
		}
	}
	h.node = owner(h.hung)
	return h
}

// halt stops the node until the test lets it go on, or ends.
func (h *hungNode) halt(t *testing.T) {
	t.Helper()
	if err := h.node.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.node.Continue(); err != nil {
			t.Error(err)
		}
	})
	direct := redis.NewClient(&redis.Options{Addr: h.node.Addr, ReadTimeout: 200 * time.Millisecond, MaxRetries: -1})
	defer direct.Close()
	if err := direct.Ping(t.Context()).Err(); err == nil {
		t.Fatal("this test shows nothing: the node of the hung topic answers")
	}
}

// wantBeside fails the test unless a call for both nodes was soon done for the sound one. Its item
// for the hung node must have an error that is definite exactly if nothing was sent.
func wantBeside(t *testing.T, what string, begun time.Time, err, hung, sound error, sent bool) {
	t.Helper()
	took := time.Since(begun)
	if err != nil || sound != nil || took > soon {
		t.Errorf("P14: %s for a hung node and a sound one: %v, and %v for the sound one, after %v; want that done within %v", what, err, sound, took, soon)
	}
	want := punctual.ErrUnreachable
	if sent {
		want = punctual.ErrIndeterminate
	}
	if !errors.Is(hung, want) || punctual.Definite(hung) == sent {
		t.Errorf("P13: %s for a hung node: %v; want %v", what, hung, want)
	}
}

// A node is slow for longer than wait.LateAfter and goes on. Calls that need nobody else wait for
// it: those sent before it counted as failing, and those that came then.
func TestSlowNode(t *testing.T) {
	h := onHungNode(t, punctual.NewMessage{ID: "a", Due: time.Unix(1, 0)})
	h.halt(t)
	name := h.Store.route.Node(wait.Part{Topic: h.hung})
	claimed := make(chan error, 1)
	go func() {
		ds, err := h.Claim(t.Context(), punctual.Claim{Topics: []string{h.hung}, Max: 1})
		if err == nil && len(ds) != 1 {
			err = fmt.Errorf("%d messages", len(ds))
		}
		claimed <- err
	}()
	for deadline := time.Now().Add(30 * time.Second); !h.route.Nodes.Failing(name); {
		if time.Now().After(deadline) {
			t.Fatal("this test shows nothing: a node that does not answer does not count as failing")
		}
		time.Sleep(time.Millisecond)
	}
	resumed := make(chan error, 1)
	time.AfterFunc(wait.LateAfter/2, func() { resumed <- h.node.Continue() })
	if _, err := h.Push(t.Context(), []punctual.NewMessage{{Topic: h.hung, ID: "b"}}); err != nil {
		t.Errorf("a push to a node that was slow: %v; want it stored", err)
	}
	if err := <-claimed; err != nil {
		t.Errorf("a claim from a node that was slow: %v; want its message", err)
	}
	if err := <-resumed; err != nil {
		t.Fatal(err)
	}
}

// P14: one topic of a claim is on a node that hangs. The claim gets the messages of the others,
// whether it waits or not, also those that become due later. Once the node goes on, its messages
// are claimed.
func TestHungNodeAndClaims(t *testing.T) {
	h := onHungNode(t)
	push(t, h.Store, punctual.NewMessage{Topic: h.hung, ID: "kept", Due: time.Unix(1, 0)})
	h.halt(t)
	both := []string{h.hung, h.sound}
	for i, c := range []punctual.Claim{
		{Topics: both, Max: 1, Wait: time.Minute},
		{Topics: both, Max: 1, Wait: time.Minute},
		{Topics: both, Max: 10},
	} {
		id := fmt.Sprint(i)
		m := punctual.NewMessage{Topic: h.sound, ID: id, Due: time.Unix(1, 0)}
		if i == 1 {
			m.Due, m.Delay = time.Time{}, time.Second
		}
		push(t, h.Store, m)
		begun := time.Now()
		ds, err := h.Claim(t.Context(), c)
		if took := time.Since(begun); err != nil || len(ds) != 1 || ds[0].ID != id || took > soon {
			t.Errorf("P14: claim %+v of a hung node and a sound one returned %v, %v after %v; want the message of the sound one within %v", c, ds, err, took, soon)
		}
	}
	if ds, err := h.Claim(t.Context(), punctual.Claim{Topics: both, Max: 1}); !errors.Is(err, punctual.ErrUnreachable) {
		t.Errorf("P13: a claim that could not look everywhere returned %v, %v; want ErrUnreachable", ds, err)
	}
	if err := h.node.Continue(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the message of the hung node is claimed", func() bool {
		ds, err := h.Claim(t.Context(), punctual.Claim{Topics: both, Max: 1, Wait: time.Second})
		return err == nil && len(ds) == 1 && ds[0].ID == "kept"
	})
}

// P14: items of a call that are for other nodes than one that hangs are answered, each by itself.
// Once the node is known to hang nothing is sent there, until it answers again.
func TestHungNodeAndCalls(t *testing.T) {
	h := onHungNode(t, punctual.NewMessage{ID: "held", Due: time.Unix(1, 0)})
	held := make(map[string]punctual.Delivery)
	for _, topic := range []string{h.hung, h.sound} {
		ds, err := h.Claim(t.Context(), punctual.Claim{Topics: []string{topic}, Max: 1})
		if err != nil || len(ds) != 1 {
			t.Fatalf("claim: %v, %v", ds, err)
		}
		held[topic] = ds[0]
	}
	h.halt(t)
	calls := []struct {
		name string
		call func() (err, hung, sound error)
	}{
		{"push", func() (err, hung, sound error) {
			rs, err := h.Push(t.Context(), []punctual.NewMessage{{Topic: h.hung, ID: "x", Delay: time.Hour}, {Topic: h.sound, ID: "x", Delay: time.Hour}})
			if err != nil {
				return err, nil, nil
			}
			return nil, rs[0].Err, rs[1].Err
		}},
		{"reschedule", func() (err, hung, sound error) {
			a := punctual.Amendment{Change: punctual.ChangeReschedule, ID: "far", Delay: time.Hour}
			b := a
			a.Topic, b.Topic = h.hung, h.sound
			rs, err := h.Amend(t.Context(), []punctual.Amendment{a, b})
			if err != nil {
				return err, nil, nil
			}
			return nil, rs[0].Err, rs[1].Err
		}},
		{"extension", func() (err, hung, sound error) {
			var ss []punctual.Settlement
			for _, topic := range []string{h.hung, h.sound} {
				ss = append(ss, punctual.Settlement{Topic: topic, ID: "held", Token: held[topic].Token, Verb: punctual.SettleExtend, Delay: time.Hour})
			}
			rs, err := h.Settle(t.Context(), ss)
			if err != nil {
				return err, nil, nil
			}
			return nil, rs[0], rs[1]
		}},
	}
	for i, c := range calls {
		begun := time.Now()
		err, hung, sound := c.call()
		wantBeside(t, c.name, begun, err, hung, sound, i == 0)
	}
	if err := h.node.Continue(); err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		waitUntil(t, c.name+" passes again", func() bool {
			err, hung, sound := c.call()
			return err == nil && hung == nil && sound == nil
		})
	}
}
