package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/script"
)

// runs picks the requests that run a script.
func runs(sc *script.Script) redisrig.Which {
	return func(words []string) bool {
		switch strings.ToLower(words[0]) {
		case "evalsha":
			return words[1] == sc.SHA
		case "eval":
			return words[1] == sc.Text
		}
		return false
	}
}

// scripts returns the scripts that a store sends by their hash.
func scripts() []*script.Script {
	return []*script.Script{
		script.Push, script.Claim, script.Settle, script.Amend, script.Get, script.Finished, script.ListFinished, script.List, script.Stats, script.Forecast, script.Layout,
		script.Configure, script.Copy, script.Spread, script.Purge, script.Delete, script.Check, script.Store, script.Registry, script.Forget, script.Refuse,
	}
}

// loadScripts makes the scripts known to a server, so that no script is sent a second time only
// because the server does not know it.
func loadScripts(t testing.TB, server *redisrig.Server) {
	t.Helper()
	for _, sc := range scripts() {
		if sha := do(t, server, "SCRIPT", "LOAD", sc.Text); sha != sc.SHA {
			t.Fatalf("script %s has hash %s at the server and %s here", sc.Name, sha, sc.SHA)
		}
	}
}

// openBehind opens a store behind a proxy, in front of a server that knows all scripts.
func openBehind(t testing.TB, server *redisrig.Server, o *Options) (*Store, *redisrig.Proxy) {
	t.Helper()
	loadScripts(t, server)
	p := redisrig.StartProxy(t, server)
	client := redis.NewClient(&redis.Options{Addr: p.Addr, Dialer: p.Dial})
	closeAtEnd(t, client.Close)
	return openStore(t, client, o), p
}

// contents returns all that the server has of a store's topics, but for the records of calls.
func contents(t testing.TB, s *Store) string {
	t.Helper()
	ctx, c := t.Context(), s.client
	keys, err := c.Keys(ctx, s.opt.Prefix+"{*").Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, key := range keys {
		end := strings.LastIndex(key, ":") + 1
		tag, kind := key[len(s.opt.Prefix):end], key[end:]
		if kind == "r0" || kind == "r1" {
			continue
		}
		fmt.Fprintf(&b, "%s%s", tag, kind)
		var err error
		if slices.Contains([]string{"m", "s", "g", "h"}, kind) {
			var fields map[string]string
			fields, err = c.HGetAll(ctx, key).Result()
			fmt.Fprintf(&b, " %q\n", fields)
		} else {
			var members []redis.Z
			members, err = c.ZRangeWithScores(ctx, key, 0, -1).Result()
			fmt.Fprintf(&b, " %v\n", members)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// refuseNth has the n-th run of a script refused as by a server out of memory.
func refuseNth(p *redisrig.Proxy, n int, sc *script.Script) *redisrig.Fault {
	return p.Refuse("OOM command not allowed when used memory > 'maxmemory'.", redisrig.Nth(n, runs(sc)))
}

// wantIndeterminate fails the test unless an error says that the call may have been carried out.
func wantIndeterminate(t testing.TB, what string, err error) {
	t.Helper()
	if !errors.Is(err, punctual.ErrIndeterminate) || punctual.Definite(err) {
		t.Errorf("P13: %s = %v; want ErrIndeterminate", what, err)
	}
}

// wantDefinite fails the test unless an error says that nothing was done.
func wantDefinite(t testing.TB, what string, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) || !punctual.Definite(err) {
		t.Errorf("P13: %s = %v; want a definite %v", what, err, kind)
	}
}
