package redisstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/health"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// The class that a server gives is reported, and one that it cannot give is refused with the
// setting to change.
func TestDurability(t *testing.T) {
	tests := map[string]struct {
		args       []string
		class      punctual.Durability
		setting    string // that a refusal of fsync names
		replicated string // that a refusal of replicated names, where the version would do
	}{
		"always":      {[]string{"--appendfsync", "always"}, punctual.Fsync, "", "1 replicas"},
		"everysec":    {[]string{"--appendfsync", "everysec"}, punctual.Volatile, "appendfsync", "1 replicas"},
		"no log":      {[]string{"--appendonly", "no"}, punctual.Volatile, "appendonly", "appendonly"},
		"no CONFIG":   {[]string{"--appendfsync", "always", "--rename-command", "CONFIG", ""}, punctual.Volatile, "CONFIG", "1 replicas"},
		"AOF, no say": {[]string{"--appendfsync", "no"}, punctual.Volatile, "appendfsync", "appendfsync"},
		"rewrites": {
			[]string{"--appendfsync", "always", "--no-appendfsync-on-rewrite", "yes"},
			punctual.Volatile, "no-appendfsync-on-rewrite", "1 replicas",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server := redisrig.Start(t, tt.args...)
			client := connect(t, server)
			remedy := func(want punctual.Durability) string {
				switch {
				case want == punctual.Fsync:
					return tt.setting
				case !hasWaitAOF(t, server):
					return "7.2.0 or newer"
				}
				return tt.replicated
			}
			if got := openStore(t, client, nil).Durability(); got != tt.class {
				t.Errorf("P1: durability is %q; want %q", got, tt.class)
			}
			openStore(t, client, &Options{Durability: punctual.Volatile})
			for _, want := range []punctual.Durability{punctual.Fsync, punctual.Replicated} {
				s, err := Open(t.Context(), client, &Options{Durability: want})
				switch {
				case want == tt.class:
					if err != nil {
						t.Errorf("P1: %s was refused: %v", want, err)
						continue
					}
					closeAtEnd(t, s.Close)
				case !errors.Is(err, punctual.ErrDurability) || !strings.Contains(err.Error(), remedy(want)):
					t.Errorf("P1: opened for %s with error %v; want ErrDurability that names %q", want, err, remedy(want))
				}
			}
		})
	}
}

// hasWaitAOF reports whether a server is new enough for class replicated.
func hasWaitAOF(t testing.TB, s *redisrig.Server) bool {
	t.Helper()
	return !health.Older(health.ParseInfo(do(t, s, "INFO", "server"))["redis_version"], health.OldestReplicated)
}

// L12: a server that may evict messages is refused.
func TestClassic_L12_Eviction(t *testing.T) {
	server := redisrig.Start(t)
	client := connect(t, server)
	for _, policy := range []string{"allkeys-lru", "volatile-lru", "allkeys-random", "volatile-ttl"} {
		do(t, server, "CONFIG", "SET", "maxmemory-policy", policy)
		if _, err := Open(t.Context(), client, nil); !errors.Is(err, punctual.ErrDurability) || !strings.Contains(err.Error(), "noeviction") {
			t.Errorf("P1: open with maxmemory-policy %s = %v; want ErrDurability that names the right one", policy, err)
		}
	}
}

// L12: a change of the server while the store is open is noticed by the next check: another class
// of durability, eviction, and a data set that was wiped.
func TestSettingsOfServerChange(t *testing.T) {
	server := redisrig.Start(t, "--appendfsync", "always")
	var log bytes.Buffer
	s := openStore(t, connect(t, server), &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	s.health.Check()
	if s.Durability() != punctual.Fsync || log.Len() > 0 {
		t.Errorf("without a change: %q, log %s", s.Durability(), &log)
	}
	do(t, server, "CONFIG", "SET", "appendfsync", "everysec")
	s.health.Check()
	if s.Durability() != punctual.Volatile || !strings.Contains(log.String(), "appendfsync") {
		t.Errorf("P1: after appendfsync was changed: %q, log %s", s.Durability(), &log)
	}
	do(t, server, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	s.health.Check()
	if !strings.Contains(log.String(), "noeviction") {
		t.Errorf("P1: after maxmemory-policy was changed the log says %s", &log)
	}
	do(t, server, "FLUSHALL")
	s.health.Check()
	if _, err := s.Now(t.Context()); !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("P13: after a look at a wiped data set: %v; want ErrStoreFailed", err)
	}
}

// A store in a format that the program does not know is refused and left as it is. Open and an
// examination say what to do.
func TestOtherFormats(t *testing.T) {
	server := redisrig.Start(t, "--enable-debug-command", "yes")
	for format, remedy := range map[string]string{"1": "another prefix", "3": "the version of Punctual that wrote it"} {
		do(t, server, "HSET", "punctual:store", "format", format, "epoch", "x")
		before := do(t, server, "DEBUG", "DIGEST")
		if _, err := Open(t.Context(), connect(t, server), nil); !errors.Is(err, punctual.ErrUnsupported) || !strings.Contains(err.Error(), remedy) {
			t.Errorf("open of format %s = %v; want ErrUnsupported with %q", format, err, remedy)
		}
		all, err := Examine(t.Context(), connect(t, server), nil)
		if err != nil {
			t.Fatal(err)
		}
		f := finding(t, all, "data set")
		if f.Severity != storekit.SeverityBad || f.Value != "format "+format || !strings.Contains(f.Remedy, remedy) {
			t.Errorf("format %s: %+v; want it bad, with %q", format, f, remedy)
		}
		if after := do(t, server, "DEBUG", "DIGEST"); after != before {
			t.Errorf("format %s: the data was changed", format)
		}
	}
}

func TestUnfitClients(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": shared.Addr}})
	closeAtEnd(t, ring.Close)
	if _, err := Open(t.Context(), ring, nil); !errors.Is(err, punctual.ErrUnsupported) {
		t.Errorf("open with a Ring = %v; want ErrUnsupported", err)
	}
	for _, prefix := range []string{"{a}", "a}", strings.Repeat("p", 129)} {
		if _, err := Open(t.Context(), connect(t, shared), &Options{Prefix: prefix}); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("open with prefix %q = %v; want ErrInvalid", prefix, err)
		}
	}
	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	closeAtEnd(t, gone.Close)
	if _, err := Open(t.Context(), gone, nil); !errors.Is(err, punctual.ErrUnreachable) || !punctual.Definite(err) {
		t.Errorf("open where nobody listens = %v; want ErrUnreachable", err)
	}
}

// The rights that docs/format-redis.md names are enough, and notifications work with them.
func TestLeastRights(t *testing.T) {
	server := redisrig.Start(t)
	do(t, server, append([]string{"ACL", "SETUSER", "punctual", "on", ">secret"}, strings.Fields(leastRights)...)...)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "punctual", Password: "secret"})
	closeAtEnd(t, client.Close)
	o := &Options{clock: storekit.NewManualClock(time.Unix(1_800_000_000, 0))}
	producer, consumer := openStore(t, client, o), openStore(t, client, o)
	got := make(chan punctual.Delivery, 1)
	go func() {
		ds, err := consumer.Claim(context.Background(), orders(time.Hour))
		if err != nil || len(ds) != 1 {
			t.Errorf("claim: %v, %v", ds, err)
			close(got)
			return
		}
		got <- ds[0]
	}()
	awaitAsleep(t, consumer, 1)
	push(t, producer, punctual.NewMessage{ID: "x"})
	if d, ok := <-got; ok { // woken by the notification: the clock stands still
		ack(t, consumer, d)
	}
	if _, err := producer.Check(t.Context(), nil); err != nil {
		t.Errorf("check: %v", err)
	}
	if got := producer.Durability(); got != punctual.Volatile {
		t.Errorf("durability %q", got)
	}
}

// leastRights are those of docs/format-redis.md.
const leastRights = "~punctual:* &punctual:* -@all +eval +evalsha +pexpire +persist +@hash +@sortedset +unlink +time +publish +subscribe +unsubscribe +pubsub|numsub +ping +info +hello +config|get"

// The page and the test name the same rights.
func TestRightsInDocuments(t *testing.T) {
	text, err := os.ReadFile("../docs/format-redis.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n"+leastRights+"\n") {
		t.Errorf("docs/format-redis.md does not name the rights that are tested: %s", leastRights)
	}
}

// Every command that scripts call is one that lua/rights.lua tries, which runs when a store is
// opened.
func TestRightsAreTried(t *testing.T) {
	files, err := filepath.Glob("internal/script/lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	called := regexp.MustCompile(`call\('([A-Z]+)'`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range called.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(script.Rights.Text, "{'"+m[1]+"'") {
				t.Errorf("%s calls %s, which lua/rights.lua does not try", file, m[1])
			}
		}
	}
}

// A user who lacks a right that the calls need is refused when the store is opened, with the name
// of the right. A user who only lacks a right to notifications, or to CONFIG GET, is not refused.
func TestLackingRights(t *testing.T) {
	server := redisrig.Start(t)
	commands := map[string]bool{"ping": true, "info": true, "time": true, "evalsha": true, "eval": true}
	called := regexp.MustCompile(`call\('([A-Z]+)'`)
	for _, sc := range scripts() {
		for _, m := range called.FindAllStringSubmatch(sc.Text, -1) {
			commands[strings.ToLower(m[1])] = true
		}
	}
	delete(commands, "publish") // without it claims only come late
	if !commands["hstrlen"] || len(commands) < 27 {
		t.Fatalf("this test shows nothing: the scripts seem to run only %v", slices.Sorted(maps.Keys(commands)))
	}
	open := func(rights ...string) (logged string, opened error) {
		do(t, server, append([]string{"ACL", "SETUSER", "punctual", "reset", "on", ">secret"}, rights...)...)
		client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "punctual", Password: "secret"})
		closeAtEnd(t, client.Close)
		var log bytes.Buffer
		s, err := Open(t.Context(), client, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err == nil {
			closeAtEnd(t, s.Close)
		}
		return log.String(), err
	}
	least := strings.Fields(leastRights)
	for c := range commands {
		if _, err := open(append(least, "-"+c)...); !errors.Is(err, punctual.ErrUnsupported) || !strings.Contains(err.Error(), "+"+c) {
			t.Errorf("P13: open without %s = %v; want ErrUnsupported that names it", c, err)
		}
	}
	if _, err := open(append(least, "resetkeys", "~other:*")...); !errors.Is(err, punctual.ErrUnsupported) || !strings.Contains(err.Error(), "~punctual:*") {
		t.Errorf("P13: open without a right to the keys = %v; want ErrUnsupported that names it", err)
	}
	for lacking, want := range map[string]string{"-publish": "+publish", "-subscribe": "+subscribe", "resetchannels": "&punctual:*", "-config|get": ""} {
		log, err := open(append(least, lacking)...)
		if err != nil || !strings.Contains(log, want) || want == "" && log != "" {
			t.Errorf("open with %s = %v, log %q; want it to pass, with a warning that names %q", lacking, err, log, want)
		}
	}
	if log, err := open(least...); err != nil || log != "" {
		t.Errorf("open with the least rights = %v, log %q", err, log)
	}
}

// A client of another database selects that database before its first command. If the user may not
// do that, the error names the right to select, and no right that the user has.
func TestLackingRightToSelect(t *testing.T) {
	server := redisrig.Start(t)
	do(t, server, append([]string{"ACL", "SETUSER", "punctual", "on", ">secret"}, strings.Fields(leastRights)...)...)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "punctual", Password: "secret", DB: 3})
	closeAtEnd(t, client.Close)
	if _, err := Open(t.Context(), client, nil); !errors.Is(err, punctual.ErrUnsupported) || !strings.Contains(err.Error(), "user +select (") {
		t.Errorf("P13: open of database 3 without the right to select it = %v; want ErrUnsupported that names +select alone", err)
	}
	do(t, server, "ACL", "SETUSER", "punctual", "+select")
	s := openStore(t, client, nil)
	push(t, s, punctual.NewMessage{ID: "x", Due: time.Unix(1, 0)})
	if n := do(t, server, "DBSIZE"); n != "0" {
		t.Errorf("database 0 has %s keys; want all in database 3", n)
	}
	ack(t, s, claimOne(t, s, 0))
}

// P10: a client that waits for an answer, or to send, without end or for more than 10 s is refused,
// because a server that hangs would hold up every call.
func TestClientsWithoutTimeouts(t *testing.T) {
	server := redisrig.Start(t)
	for name, o := range map[string]redis.Options{
		"no ReadTimeout":   {ReadTimeout: -1},
		"no WriteTimeout":  {WriteTimeout: -1},
		"long ReadTimeout": {ReadTimeout: 11 * time.Second},
	} {
		o.Addr = server.Addr
		single := redis.NewClient(&o)
		cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr}, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout})
		for _, c := range []redis.UniversalClient{single, cluster} {
			closeAtEnd(t, c.Close)
			s, err := Open(t.Context(), c, nil)
			if err == nil {
				closeAtEnd(t, s.Close)
			}
			if !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), strings.Fields(name)[1]) {
				t.Errorf("open with a %T with %s = %v; want ErrInvalid that names it", c, name, err)
			}
		}
	}
	openStore(t, redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: 10 * time.Second}), &Options{OwnClient: true})
}

// When a right is taken away while the store is open, pushes are refused until the right is back.
func TestRightTakenAway(t *testing.T) {
	server := redisrig.Start(t)
	do(t, server, append([]string{"ACL", "SETUSER", "punctual", "on", ">secret"}, strings.Fields(leastRights)...)...)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "punctual", Password: "secret"})
	closeAtEnd(t, client.Close)
	s := openStore(t, client, nil)
	push(t, s, punctual.NewMessage{ID: "x", Delay: time.Hour})
	do(t, server, "ACL", "SETUSER", "punctual", "-zrem")
	s.health.Check()
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders"}}); !errors.Is(err, punctual.ErrUnsupported) || !strings.Contains(err.Error(), "+zrem") {
		t.Errorf("P13: push without a right that acks need = %v; want ErrUnsupported that names it", err)
	}
	do(t, server, "ACL", "SETUSER", "punctual", "+zrem")
	s.health.Check()
	push(t, s, punctual.NewMessage{})
}

// L12: a server that begins to evict, or loses the class asked for, takes no pushes until it is
// mended, and no follow-ups, which are as new as pushed messages are. The messages that are there
// can be claimed and acked meanwhile.
func TestPushesRefused(t *testing.T) {
	server := redisrig.Start(t, "--appendfsync", "always")
	s := openStore(t, connect(t, server), &Options{Durability: punctual.Fsync, checkEvery: time.Millisecond})
	for _, c := range []struct{ setting, unfit, fit string }{
		{"maxmemory-policy", "allkeys-lru", "noeviction"},
		{"appendfsync", "everysec", "always"},
		{"no-appendfsync-on-rewrite", "yes", "no"},
	} {
		push(t, s, punctual.NewMessage{ID: "there", Due: time.Unix(1, 0)})
		do(t, server, "CONFIG", "SET", c.setting, c.unfit)
		awaitRefusal(t, s, "set "+c.setting+" to "+c.fit)
		held := claimOne(t, s, 0)
		x := punctual.Settlement{Topic: held.Topic, ID: held.ID, Token: held.Token, Verb: punctual.SettleAck, Then: []punctual.NewMessage{{Topic: held.Topic, Delay: time.Hour}}}
		for _, ctx := range []context.Context{t.Context(), storekit.WithRequest(t.Context(), storekit.Request{Key: "key-of-" + c.setting})} {
			if errs, err := s.Settle(ctx, []punctual.Settlement{x}); !errors.Is(cmp.Or(err, errors.Join(errs...)), punctual.ErrDurability) {
				t.Errorf("P1: an ack with a follow-up while pushes are refused: %v, %v; want ErrDurability", errs, err)
			}
		}
		ack(t, s, held)
		do(t, server, "CONFIG", "SET", c.setting, c.fit)
		awaitPushes(t, s)
		if _, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: "orders"}); err != nil {
			t.Fatal(err)
		}
	}
}
