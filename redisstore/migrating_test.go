package redisstore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

// P13, P14: the move of a slot was broken off, so its servers refuse scripts there until somebody
// ends the move. Calls to its topic say so, and say how. Claims of several topics go on with the
// others.
func TestSlowSlotThatStaysMigrating(t *testing.T) {
	cluster := redisrig.StartCluster(t, 3, 0)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	closeAtEnd(t, client.Close)
	s := openStore(t, client, nil)
	far := time.Unix(1, 0)
	push(t, s, punctual.NewMessage{ID: "stuck", Due: far}, punctual.NewMessage{Topic: "other", ID: "first", Due: far})
	push(t, s, punctual.NewMessage{Topic: "orders@bills", ID: "there", Delay: time.Hour})
	worked := held(t, s, "A")[0]
	follow := []punctual.Settlement{then(worked, punctual.SettleAck, punctual.NewMessage{Topic: "orders@bills", ID: "A~bill", Delay: time.Hour})}
	number, err := cluster.Slot(ordersKey)
	if err != nil {
		t.Fatal(err)
	}
	slot, from := strconv.Itoa(number), cluster.Owner(t, ordersKey)
	to := cluster.Nodes[0]
	if to == from {
		to = cluster.Nodes[1]
	}
	do(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", do(t, from, "CLUSTER", "MYID"))
	do(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", do(t, to, "CLUSTER", "MYID"))
	_, err = s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "more"}})
	wantDefinite(t, "a push to a slot that is being moved", err, punctual.ErrOverloaded)
	if err == nil || !strings.Contains(err.Error(), "redis-cli --cluster fix") {
		t.Errorf("P13: %v does not say how the move is ended", err)
	}
	errs, err := s.Settle(t.Context(), follow)
	wantDefinite(t, "a settlement with follow-ups in a slot that is being moved", errors.Join(append(errs, err)...), punctual.ErrOverloaded)
	both := punctual.Claim{Topics: []string{"orders", "other"}, Max: 1, Wait: 10 * time.Second}
	for _, id := range []string{"first", "second"} {
		begun := time.Now()
		claiming, end := context.WithTimeout(t.Context(), time.Minute)
		var ds []punctual.Delivery
		for len(ds) == 0 && claiming.Err() == nil { // a claim may return the error of the topic that fails, and is made again
			ds, err = s.Claim(claiming, both)
		}
		end()
		if len(ds) != 1 || ds[0].ID != id {
			t.Fatalf("P14: claimed %+v, %v; want %s of the other topic", ds, err, id)
		}
		t.Logf("%s was claimed after %v", id, time.Since(begun))
		push(t, s, punctual.NewMessage{Topic: "other", ID: "second", Due: far})
	}
	for _, n := range []*redisrig.Server{from, to} {
		do(t, n, "CLUSTER", "SETSLOT", slot, "STABLE")
	}
	settled(t, s, follow)
	if got := idsOf(t, s, "orders@bills"); !slices.Equal(got, []string{"A~bill", "there"}) {
		t.Errorf("P1: when the move was ended there are %q; want the follow-up beside the one that was there", got)
	}
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: 10 * time.Second})
	if err != nil || len(ds) != 1 || ds[0].ID != "stuck" {
		t.Errorf("P1: when the move was ended %+v, %v was claimed; want stuck", ds, err)
	}
}
