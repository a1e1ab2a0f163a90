package redisstore

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/redistest"
)

// P11: what falls due in one of many topics is claimed soon, with notifications and, in a topic that another process
// has made, without. It prints how late it was.
func TestManyTopics(t *testing.T) {
	many := 2_000
	if tortured() {
		many = 10_000
	}
	const probes = 100
	const loaded = time.Minute // what a busy machine stays below, and a topic that nobody looks at does not
	server := redistest.Start(t)
	s := openStore(t, connect(t, server), nil)
	producer := openStore(t, connect(t, server), nil)
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
	claim := func() punctual.Delivery {
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: topics, Max: 1, Wait: 10 * time.Minute})
		if err != nil || len(ds) != 1 {
			t.Fatalf("claimed %v, %v; want a message", ds, err)
		}
		return ds[0]
	}
	push(t, producer, punctual.NewMessage{Topic: topics[many/2], ID: "first"})
	begun := time.Now()
	ack(t, s, claim())
	if took := time.Since(begun); took > loaded {
		t.Errorf("P11: the first claim of %d topics took %v", many, took)
	}
	t.Logf("the first claim of %d topics took %v", many, time.Since(begun))
	var late []time.Duration
	for i := range probes {
		push(t, producer, punctual.NewMessage{Topic: topics[i*7919%many], ID: "x", Delay: 20 * time.Millisecond})
		d := claim()
		late = append(late, d.Delivered.Sub(d.Due))
		ack(t, s, d)
	}
	slices.Sort(late)
	t.Logf("%d messages in %d topics were late by %v (median), %v (p99)", probes, many, late[probes/2], late[probes*99/100])
	if late[probes/2] > loaded {
		t.Errorf("P11: in %d topics messages were late by %v", many, late)
	}
}
