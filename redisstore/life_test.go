package redisstore

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/storekit"
)

// lives are lives of messages in topics that use nothing beside push, claim and ack (and, in one
// case, a duplicate window), with the commands that they cost the server: the scripts and what
// these call. As long as the lines stay as they are, a new feature costs nothing where nobody uses
// it. So whoever changes a line has to say why every message is to cost that much more.
var lives = []struct {
	name    string
	ids     []string      // of the messages that are pushed, claimed and acked together; "" has the store make one up
	window  time.Duration // of the topic
	general bool          // the scripts take their general paths
	want    string
}{
	{
		"one message, its ID made up",
		[]string{""},
		0, false,
		"evalsha 3, hdel 1, hlen 1, hmget 7, hset 6, publish 1, zadd 2, zmscore 1, zrange 5, zrangebyscore 1, zrem 1, zremrangebyrank 1",
	},
	{
		"one message with an ID",
		[]string{"A-17"},
		0, false,
		"evalsha 3, hdel 1, hlen 1, hmget 8, hset 6, publish 1, zadd 2, zmscore 2, zrange 5, zrangebyscore 1, zrem 1, zremrangebyrank 1",
	},
	{
		"16 messages", make([]string, 16), 0, false,
		"evalsha 3, hdel 1, hlen 1, hmget 8, hset 6, publish 1, zadd 2, zcard 1, zmscore 1, zrange 5, zrangebyscore 1, zrem 3, zremrangebyrank 1",
	},
	{
		"one message with an ID that is remembered",
		[]string{"A-17"},
		time.Hour, false,
		"evalsha 3, hdel 1, hlen 1, hmget 8, hset 6, publish 1, zadd 3, zmscore 2, zrange 5, zrangebyscore 2, zrem 1, zremrangebyrank 1",
	},
	{
		"one message, its ID made up, on general paths",
		[]string{""},
		0, true,
		"evalsha 3, hdel 2, hlen 6, hmget 12, hset 6, publish 1, zadd 2, zcard 15, zmscore 1, zrange 4, zrangebyscore 1, zrem 1, zremrangebyrank 1",
	},
	{
		"one message with an ID, on general paths",
		[]string{"A-17"},
		0, true,
		"evalsha 3, hdel 2, hlen 6, hmget 12, hset 6, publish 1, zadd 2, zcard 15, zmscore 2, zrange 4, zrangebyscore 1, zrem 1, zremrangebyrank 1",
	},
	{
		"16 messages, on general paths", make([]string, 16), 0, true,
		"evalsha 3, hdel 2, hlen 6, hmget 14, hset 6, publish 1, zadd 2, zcard 15, zmscore 1, zrange 4, zrangebyscore 1, zrem 3, zremrangebyrank 1",
	},
	{
		// Each key of which no further message is known costs a search.
		"16 messages of four keys", sixteen(4), 0, false,
		"evalsha 3, hdel 3, hlen 9, hmget 20, hset 11, publish 1, zadd 5, zcard 14, zmscore 2, zrange 10, zrangebylex 12, zrangebyscore 2, zrem 7",
	},
	{
		"16 messages of 16 keys", sixteen(16), 0, false,
		"evalsha 3, hdel 3, hlen 9, hmget 17, hset 11, publish 1, zadd 5, zcard 14, zmscore 2, zrange 10, zrangebylex 32, zrangebyscore 2, zrem 7",
	},
}

// sixteen returns 16 IDs with so many stems.
func sixteen(stems int) (ids []string) {
	for i := range 16 {
		ids = append(ids, fmt.Sprintf("k%d~%d", i%stems, i))
	}
	return ids
}

// A life of a message costs exactly the commands that lives names.
func TestCommandsOfALife(t *testing.T) {
	server := redisrig.Start(t)
	loadScripts(t, server)
	for _, life := range lives {
		// A claim of this millisecond does not sweep.
		clock := storekit.NewManualClock(time.UnixMilli(1_800_000_000_007))
		s := openStore(t, connect(t, server), &Options{Prefix: fresh(), clock: clock, general: func() bool { return life.general }, checkEvery: time.Hour})
		keyed := strings.Contains(life.ids[0], "~") // the stems are keys
		if keyed {
			if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{Keyed: &keyed}); err != nil {
				t.Fatal(err)
			}
		}
		push(t, s, punctual.NewMessage{ID: "before", Delay: time.Hour}) // makes the topic
		if life.window > 0 {
			if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{DedupeWindow: &life.window}); err != nil {
				t.Fatal(err)
			}
		}
		got := commandsOf(t, server, func() {
			ms := make([]punctual.NewMessage, len(life.ids))
			for i, id := range life.ids {
				ms[i] = punctual.NewMessage{Topic: "orders", ID: id, Body: []byte("a body")}
				if keyed {
					ms[i].Key = storekit.Stem(id)
				}
			}
			push(t, s, ms...)
			ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: len(ms)})
			if err != nil || len(ds) != len(ms) {
				t.Fatalf("claimed %d of %d, %v", len(ds), len(ms), err)
			}
			settled(t, s, acks(ds))
		})
		if got != life.want {
			t.Errorf("the life of %s costs\n%s\nand is to cost\n%s", life.name, got, life.want)
		}
	}
}

// commandsOf returns the commands that a server carries out for a call, each with how often it
// does.
func commandsOf(t *testing.T, server *redisrig.Server, call func()) string {
	t.Helper()
	before := commandCounts(t, server)
	call()
	after := commandCounts(t, server)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if n := after[name] - before[name]; n > 0 {
			out = append(out, fmt.Sprint(name, " ", n))
		}
	}
	return strings.Join(out, ", ")
}

// commandCounts returns how often a server has carried out each command, without INFO, by which
// this test asks.
func commandCounts(t *testing.T, server *redisrig.Server) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	for _, m := range regexp.MustCompile(`cmdstat_([^:]+):calls=([0-9]+)`).FindAllStringSubmatch(do(t, server, "INFO", "commandstats"), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		if m[1] != "info" {
			counts[m[1]] = n
		}
	}
	return counts
}
