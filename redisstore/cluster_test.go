package redisstore

import (
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/redistest"
	"github.com/punctualmq/punctual/storetest"
	"github.com/redis/go-redis/v9"
)

// The whole suite on a Redis Cluster of three primaries and three replicas: topics fall
// on different nodes.
func TestCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 1, "--appendonly", "no")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	closeAtEnd(t, client.Close)
	open := func(t *testing.T, clock punctual.Clock) punctual.Store {
		return openStore(t, client, &Options{Prefix: fresh(), clock: clock})
	}
	t.Run("suite", func(t *testing.T) { storetest.Run(t, open, storetest.WithReopen(reopen)) })
	t.Run("races", func(t *testing.T) { storetest.RunRaces(t, open) })
}
