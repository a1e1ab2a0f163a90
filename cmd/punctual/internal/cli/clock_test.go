package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/sharedstore"
	"github.com/punctualmq/punctual/storekit"
)

// TestClock: a store whose clock was ten years ahead opens again after punctual clock --set.
func TestClock(t *testing.T) {
	r, dir := newRig(t), filepath.Join(t.TempDir(), "store")
	runOn(t, dir, "clock", "--set").exits(exitUnwished, "no such directory")
	r.run("clock", "a", "b").exits(exitUsage)
	s, err := diskstore.Open(dir, &diskstore.Options{Clock: storekit.NewManualClock(time.Now().AddDate(10, 0, 0))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "o", ID: "a"}}); err != nil {
		t.Fatal(err)
	}
	runOn(t, dir, "clock", "--set").exits(exitError, dir) // it is open, and not shared
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := diskstore.Open(dir, nil); err == nil {
		t.Fatal("a store ten years ahead opened")
	}
	runOn(t, "mem:", "clock", dir).exits(exitUsage, "punctual clock "+dir+" --set")
	runOn(t, "mem:", "clock", dir, "--set").ok().contains("good", "not ahead", "clock steps", "1, the last one")
	runOn(t, dir, "doctor").contains("clock steps", "1, the last one") // of a directory that nobody has open
	shared, err := sharedstore.Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := clockStateOf(t, dir, "--set"); c.Steps != 1 || c.Ahead != 0 || c.Follows != "machine" {
		t.Errorf("of a directory that another process shares: %+v", c)
	}
	if err := shared.Close(); err != nil {
		t.Fatal(err)
	}
}

// clockStateOf runs clock --json.
func clockStateOf(t *testing.T, store string, flags ...string) (c wire.ClockState) {
	t.Helper()
	r := runOn(t, "mem:", append([]string{"clock", store, "--json"}, flags...)...).exits(exitOK) // a store may log its step
	if err := json.Unmarshal([]byte(r.out), &c); err != nil {
		t.Fatalf("%v in %s", err, r.out)
	}
	return c
}

// Of a store on a server whose clock was set back, clock and doctor say so until the store follows,
// and afterwards that it has stepped.
func TestClockOfServers(t *testing.T) {
	ahead := time.Now().Add(2 * time.Hour)
	redisServer, pgServer := redisrig.Start(t), pgrig.Start(t, "fsync=off")
	for server, x := range map[string]struct {
		store string
		write func() error // writes down that the store's clock has been ahead
	}{
		"Redis server": {"redis://" + redisServer.Addr, func() error {
			_, err := redisServer.Do("HSET", "punctual:store", "clock", fmt.Sprint(ahead.UnixMilli()))
			return err
		}},
		"PostgreSQL server": {pgServer.URL("postgres"), func() error {
			_, err := pgServer.Do(fmt.Sprint("UPDATE punctual.store SET clock = ", ahead.UnixMicro()))
			return err
		}},
	} {
		t.Run(server, func(t *testing.T) {
			runOn(t, x.store, "push", "orders", "x", "--in", "1h").ok()
			if c := clockStateOf(t, x.store); c.Ahead != 0 || c.Steps != 0 || c.Follows != server {
				t.Fatalf("at first: %+v", c)
			}
			if err := x.write(); err != nil {
				t.Fatal(err)
			}
			if c := clockStateOf(t, x.store); time.Duration(c.Ahead) < time.Hour || c.Steps != 0 {
				t.Fatalf("this test shows nothing: %+v; want a clock that is ahead and has not stepped", c)
			}
			for _, command := range []string{"clock", "doctor"} {
				runOn(t, x.store, command).contains("ahead of that of the "+server, "NTP", "punctual clock STORE --set")
			}
			if c := clockStateOf(t, x.store, "--set"); c.Ahead != 0 || c.Steps != 1 {
				t.Errorf("after --set: %+v", c)
			}
			for _, command := range []string{"clock", "doctor"} {
				runOn(t, x.store, command).contains("not ahead of that of the "+server, "clock steps", "1, the last one back from "+ahead.UTC().Format("2006-01-02T15:"), "NTP")
			}
		})
	}
}
