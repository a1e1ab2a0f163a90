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
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/limits"
)

// P11: nine of ten messages that fall due in one of many topics are claimed at most a second later
// than a bare client gets answers at that time. The bare client measures how loaded the machine is.
// That holds with notifications and without: a message that is due more than 2 s ahead is not
// notified, so the polls have to find it. The test logs how late both were.
func TestSlowManyTopics(t *testing.T) {
	const many, probes = limits.MaxClaimTopics, 50
	server := redisrig.Start(t)
	s, producer, bare := openStore(t, connect(t, server), nil), openStore(t, connect(t, server), nil), connect(t, server)
	topics := make([]string, many)
	ms := make([]punctual.NewMessage, many)
	for i := range topics {
		topics[i] = fmt.Sprint("topic", i)
		ms[i] = punctual.NewMessage{Topic: topics[i], ID: "far", Delay: time.Hour}
	}
	push(t, producer, ms...)
	if n := do(t, server, "ZCARD", s.names.Topics()); n != strconv.Itoa(many) {
		t.Fatalf("this test shows nothing: there are %s topics", n)
	}
	claim := func() time.Duration {
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
	claim()
	// One script for each topic reads its settings; nothing else needs a script but the push, the
	// claim, the ack and a few more claims.
	if n := calls(t, server) - before; n > many+100 {
		t.Errorf("P10: the first claim of %d topics ran %d scripts", many, n)
	}
	// answer returns how long after a time the server answers a client as often as a claim and an
	// ack need it to.
	answer := func(due time.Time) time.Duration {
		time.Sleep(time.Until(due))
		var last time.Time
		for range 4 {
			var err error
			if last, err = bare.Time(context.Background()).Result(); err != nil {
				t.Error(err)
			}
		}
		return last.Sub(due)
	}
	// compare has messages fall due in some of the topics, together or one after the other, and
	// claims them.
	compare := func(what string, together int, delay time.Duration) {
		var late, answered []time.Duration
		for first := 0; first < probes; first += together {
			ms := make([]punctual.NewMessage, together)
			for i := range ms {
				ms[i] = punctual.NewMessage{Topic: topics[(first+i)*7919%many], ID: what, Delay: delay}
			}
			push(t, producer, ms...)
			due := time.Now().Add(delay)
			var working sync.WaitGroup
			working.Go(func() {
				for range together {
					late = append(late, claim())
				}
			})
			working.Go(func() {
				for range together {
					answered = append(answered, answer(due))
				}
			})
			working.Wait()
		}
		slices.Sort(late)
		slices.Sort(answered)
		const half, most = probes / 2, probes * 9 / 10
		t.Logf("%s: %d messages in %d topics were late by %v (median), %v (p90); a bare client by %v, %v", what, probes, many, late[half], late[most], answered[half], answered[most])
		if late[most] > answered[most]+time.Second {
			t.Errorf("P11: %s: in %d topics messages were late by %v, a bare client by %v; want at most a second more", what, many, late, answered)
		}
	}
	compare("notified", 1, 20*time.Millisecond)
	compare("not notified", probes, 3*time.Second)
}
