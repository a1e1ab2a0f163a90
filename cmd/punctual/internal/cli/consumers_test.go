package cli

import (
	"context"
	"testing"
	"time"

	"github.com/punctualmq/punctual/storekit"
)

// reporter tells of consumers of topic t.
type reporter storekit.Consumers

func (r *reporter) Consumers(_ context.Context, topic string) (storekit.Consumers, error) {
	if topic != "t" {
		return storekit.Consumers{Since: r.Since}, nil
	}
	return storekit.Consumers(*r), nil
}

func TestConsumers(t *testing.T) {
	r := newRig(t)
	r.run("consumers", "t").exits(1, "does not know who claims", "--store")
	r.run("consumers").exits(exitUsage)
	seen := start.Add(-time.Second + 123*time.Microsecond) // cut down to milliseconds
	r.reporter = &reporter{
		All: []storekit.Consumer{
			{User: "ann", Name: "host/12", Address: "10.0.0.1", Waiting: 1, Leases: 7, NextEnd: start.Add(time.Minute), Claimed: 9, Settled: 2, LastSeen: seen},
			{Address: "10.0.0.2", Waiting: 2, LastSeen: seen},
		},
		Others: storekit.Consumer{Leases: 3, LastSeen: seen}, Since: start.Add(-time.Hour),
	}
	r.run("consumers", "t").ok().contains("ann host/12", "10.0.0.1", "all others", "2026-11-20T10:01:00.000Z")
	r.run("consumers", "t", "--json").ok().prints(
		`{"topic":"t","user":"ann","address":"10.0.0.1","name":"host/12","waiting":1,"leases":7,"next_end":"2026-11-20T10:01:00.000Z","claimed":9,"settled":2,"last_seen":"2026-11-20T09:59:59.000Z"}
{"topic":"t","address":"10.0.0.2","waiting":2,"leases":0,"claimed":0,"settled":0,"last_seen":"2026-11-20T09:59:59.000Z"}
{"topic":"t","others":true,"waiting":0,"leases":3,"claimed":0,"settled":0,"last_seen":"2026-11-20T09:59:59.000Z"}
`)
	r.run("consumers", "u", "--json").ok().prints("")
	r.run("consumers", "u").exits(0, "no consumers seen since 2026-11-20T09:00:00.000Z").prints("")
}
