package redisstore

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

// T06: connections may be dead without either end noticing. Those for commands and the one for
// notifications are replaced without anybody's help.
func TestClassic_T06_HalfOpenConnections(t *testing.T) {
	server := redisrig.Start(t)
	p := redisrig.StartProxy(t, server)
	clients := func() redis.UniversalClient {
		c := redis.NewClient(&redis.Options{Addr: p.Addr, ReadTimeout: time.Second})
		closeAtEnd(t, c.Close)
		return c
	}
	// The server does not notice that old subscriptions are dead, so their number only grows.
	subscriptions := func() int { return subscribers(t, server, "punctual:{orders#0}:notify") }
	hasty := func(s *Store) { s.waits.listen(200 * time.Millisecond) }
	troubleFor(t, clients, hasty, func() {
		for range 3 {
			before := await(subscriptions, 1)
			pushedMore(t, server)
			frozen := p.Freeze()
			pushedMore(t, server)
			await(subscriptions, before+1)
			frozen.Happened()
		}
	})
}

// await waits until a number is at least so high.
func await(number func() int, least int) int {
	for {
		if n := number(); n >= least {
			return n
		}
		time.Sleep(time.Millisecond)
	}
}

func subscribers(t *testing.T, server *redisrig.Server, channel string) int {
	t.Helper()
	reply := strings.Fields(do(t, server, "PUBSUB", "NUMSUB", channel))
	n, err := strconv.Atoi(reply[len(reply)-1])
	if err != nil {
		t.Fatalf("PUBSUB NUMSUB: %q", reply)
	}
	return n
}
