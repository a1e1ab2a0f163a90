package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
)

// P10: the keys that a deleted topic leaves expire, within a day, but no longer expire when the
// topic comes into being again.
func TestDeletedTopicLeavesNothing(t *testing.T) {
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), &Options{Partitions: 4})
	fill := func() {
		t.Helper()
		situations(t, s)
		for i := range 32 {
			push(t, s, punctual.NewMessage{ID: strings.Repeat("x", 1+i), Delay: time.Hour})
		}
	}
	wantTTL := func(most time.Duration) {
		t.Helper()
		for n := range 4 {
			left, err := s.client.PTTL(t.Context(), s.names.Partition("orders", n).Keys()[keys.Settings]).Result()
			if err != nil || most == 0 && left != -1 || most > 0 && (left <= most/2 || left > most) {
				t.Errorf("P10: what partition %d knows goes in %v, %v; want within %v", n, left, err, most)
			}
		}
	}
	remove := func() {
		t.Helper()
		if _, err := s.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	wantTTL(0)
	remove()
	for _, key := range strings.Fields(do(t, server, "KEYS", "*")) {
		if left, err := s.client.PTTL(t.Context(), key).Result(); err != nil || left == -1 && !strings.HasSuffix(key, ":store") {
			t.Errorf("P10: the topic was deleted and left %s for ever, %v", key, err)
		}
	}
	wantTTL(24 * time.Hour)
	fill()
	wantTTL(0)
}

// P1, P4: a topic is deleted, the settings that it has left are removed, and it is made again with
// another number of partitions. A process that knew the old topic finds the IDs of the new one
// where they are now, and tokens go on growing.
func TestTopicComesAgainWhenAllIsForgotten(t *testing.T) {
	server := redisrig.Start(t)
	old, other := openStore(t, connect(t, server), &Options{Partitions: 4}), openStore(t, connect(t, server), &Options{Partitions: 8})
	id := wanderer()
	push(t, old, punctual.NewMessage{ID: id, Due: time.Unix(1, 0)})
	first := claimOne(t, old, 0)
	if _, err := other.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		if key := other.names.Partition("orders", n).Keys()[keys.Settings]; do(t, server, "UNLINK", key) != "1" {
			t.Fatalf("this test shows nothing: there was no %s", key)
		}
	}
	push(t, other, punctual.NewMessage{ID: id, Due: time.Unix(1, 0)})
	rs, err := old.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: id}})
	if err != nil || rs[0].Status != punctual.PushDuplicate {
		t.Errorf("P7: push by a process that knew the former topic = %+v, %v; want a duplicate", rs, err)
	}
	d := claimOne(t, old, time.Minute)
	if d.Token <= first.Token {
		t.Errorf("P4: token %d after %d", d.Token, first.Token)
	}
	ack(t, old, d)
	wantSound(t, other)
}
