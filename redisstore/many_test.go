package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/redistest"
)

// P11: what falls due in one of many topics is claimed at most a second later than in the only topic of another process, with
// notifications and without. (What is due more than 2 s ahead is not notified, so the polls have to find it.) The other process measures
// how loaded the machine is. It prints how late both were.
func TestManyTopics(t *testing.T) {
	many := 2_000
	if tortured() {
		many = 10_000
	}
	const probes = 50
	server := redistest.Start(t)
	s, producer, alone := openStore(t, connect(t, server), nil), openStore(t, connect(t, server), nil), openStore(t, connect(t, server), nil)
	topics := make([]string, many)
	ms := make([]punctual.NewMessage, many)
	for i := range topics {
		topics[i] = fmt.Sprint("topic", i)
		ms[i] = punctual.NewMessage{Topic: topics[i], ID: "far", Delay: time.Hour}
	}
	push(t, producer, append(ms, punctual.NewMessage{ID: "far", Delay: time.Hour})...)
	if n := do(t, server, "ZCARD", s.names.Topics()); n != strconv.Itoa(many+1) {
		t.Fatalf("this test shows nothing: there are %s topics", n)
	}
	claim := func(s *Store, topics []string) time.Duration {
		ds, err := s.Claim(context.Background(), punctual.Claim{Topics: topics, Max: 1, Wait: time.Minute})
		if err != nil || len(ds) != 1 {
			t.Errorf("P11: claimed %v, %v; want a message", ds, err)
			return time.Hour
		}
		d := ds[0]
		errs, err := s.Settle(context.Background(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}})
		if err != nil || errs[0] != nil {
			t.Errorf("ack of %s: %v, %v", d.ID, err, errs)
		}
		return d.Late()
	}
	before := calls(t, server)
	push(t, producer, punctual.NewMessage{Topic: topics[many/2], ID: "first", Due: time.Unix(1, 0)})
	claim(s, topics)
	// Each topic is asked for its settings; nothing else needs a script but the push, the claim, the ack and a few more claims.
	if n := calls(t, server) - before; n > many+100 {
		t.Errorf("P10: the first claim of %d topics ran %d scripts", many, n)
	}
	// both has messages fall due in some of the topics, and as many in the one that is alone, and claims them.
	both := func(what string, n int, delay time.Duration) {
		ms := make([]punctual.NewMessage, 0, 2*n)
		for i := range n {
			topic := topics[(int(delay)+i)*7919%many]
			ms = append(ms, punctual.NewMessage{Topic: topic, ID: fmt.Sprint(what, i), Delay: delay}, punctual.NewMessage{Topic: "orders", ID: fmt.Sprint(what, i), Delay: delay})
		}
		var late [2][]time.Duration
		claimAll := func(n int) {
			var claiming sync.WaitGroup
			claiming.Go(func() {
				for range n {
					late[0] = append(late[0], claim(s, topics))
				}
			})
			claiming.Go(func() {
				for range n {
					late[1] = append(late[1], claim(alone, []string{"orders"}))
				}
			})
			claiming.Wait()
		}
		if delay > 2*time.Second { // all at once, as each takes that long
			push(t, producer, ms...)
			claimAll(n)
		} else {
			for i := range n {
				push(t, producer, ms[2*i:2*i+2]...)
				claimAll(1)
			}
		}
		for _, of := range late {
			slices.Sort(of)
		}
		most := n * 9 / 10
		t.Logf("%s: %d messages in %d topics were late by %v (median), %v (p90); in one topic by %v, %v", what, n, many, late[0][n/2], late[0][most], late[1][n/2], late[1][most])
		if late[0][most] > late[1][most]+time.Second {
			t.Errorf("P11: %s: in %d topics messages were late by %v, in one by %v; want at most a second more", what, many, late[0], late[1])
		}
	}
	both("notified", probes, 20*time.Millisecond)
	both("not notified", probes, 3*time.Second)
}
