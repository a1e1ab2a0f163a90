package redisstore

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/duties"
	"github.com/punctualmq/punctual/storetest/ledger"

	"github.com/punctualmq/punctual/storetest/races"
)

// clusterGroups matches the groups of the suite that make test runs on a cluster: those whose calls
// meet several partitions or topics, or depend on which nodes there are when they read, wait and
// end. The rules of one message are decided in one partition, by the scripts that TestConformance,
// TestSlowTransitions and the random histories of TestSlowPartitions try on one server.
var clusterGroups = regexp.MustCompile("/(claim|wait|then|topics|companions|inspect|purge|finished|events|clock|together|large|isolation|repeat|contract|close|reopen)/")

// perVerb matches the case of group then that tries each verb in every state of an ID, one message
// after the other. make test leaves it out on a cluster.
var perVerb = regexp.MustCompile("/then/each_verb,")

// The suite on a Redis Cluster of three primaries and three replicas: topics and their partitions
// fall on different nodes. make torture runs all groups of the suite, and runs it with topics of
// one partition, too.
func TestSlowCluster(t *testing.T) {
	t.Parallel()
	cluster := redisrig.StartCluster(t, 3, 1, "--appendonly", "no")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	closeAtEnd(t, client.Close)
	const slack = time.Minute // six servers on one machine; what a late node does to others has tests of its own
	open := func(t *testing.T, clock storekit.Clock) punctual.Store {
		return openStore(t, client, &Options{Prefix: fresh(), clock: clock, slack: slack})
	}
	if ledger.Tortured() {
		t.Run("suite", func(t *testing.T) { storetest.Run(t, open, storetest.WithReopen(reopen)) })
	}
	t.Run("partitions", func(t *testing.T) {
		divided := func(t *testing.T, clock storekit.Clock) punctual.Store {
			if !ledger.Tortured() && (!clusterGroups.MatchString(t.Name()) || perVerb.MatchString(t.Name())) {
				t.Skip("skipped: only in make torture")
			}
			return openStore(t, client, &Options{Prefix: fresh(), Partitions: 4, clock: clock, slack: slack})
		}
		storetest.Run(t, divided, storetest.WithReopen(reopen), storetest.WithPartitions(func(id string) int { return keys.Home(id, 4) }))
	})
	t.Run("schedules", func(t *testing.T) {
		duties.RunSchedules(t, func(t *testing.T, clock storekit.Clock) punctual.Store {
			return openStore(t, client, &Options{Prefix: fresh(), Partitions: 4, clock: clock, slack: slack})
		})
	})
	t.Run("least rights", func(t *testing.T) { clusterLeastRights(t, cluster) })
	t.Run("races", func(t *testing.T) { races.Run(t, open, storetest.WithLossyClaims()) })
}

// On a cluster the rights that docs/format-redis.md names are enough, with +cluster.
func clusterLeastRights(t *testing.T, cluster *redisrig.Cluster) {
	for _, n := range cluster.Nodes {
		do(t, n, append([]string{"ACL", "SETUSER", "punctual", "on", ">secret"}, strings.Fields(leastRights)...)...)
		do(t, n, "ACL", "SETUSER", "punctual", "+cluster")
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: "punctual", Password: "secret"})
	closeAtEnd(t, client.Close)
	s := openStore(t, client, nil)
	for i := range 20 {
		push(t, s, punctual.NewMessage{Topic: fmt.Sprint("topic", i)})
	}
	if all, err := s.Topics(t.Context()); err != nil || len(all) != 20 {
		t.Errorf("%d topics, %v; want 20", len(all), err)
	}
}
