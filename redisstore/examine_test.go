package redisstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/storekit"
)

// finding returns the finding of a name.
func finding(t testing.TB, all []storekit.Finding, name string) storekit.Finding {
	t.Helper()
	for _, f := range all {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("there is no finding %q in %s", name, list(all))
	return storekit.Finding{}
}

func list(all []storekit.Finding) string {
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "\n%-5s %s: %s; %s", f.Severity, f.Name, f.Value, f.Remedy)
	}
	return b.String()
}

// Each finding of a sound server is good. What is wrong with a server shows in the finding of that
// name, with a remedy.
func TestExamine(t *testing.T) {
	server := redisrig.Start(t, "--appendfsync", "always", "--maxmemory", "1gb")
	client := connect(t, server)
	s := openStore(t, client, nil)
	all, err := s.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.Severity != storekit.SeverityGood || f.Remedy != "" || f.Value == "" {
			t.Errorf("of a sound server: %+v; want it good", f)
		}
	}
	tests := []struct {
		name   string
		change []string
		want   storekit.Finding
		back   []string
	}{
		{
			"eviction policy",
			[]string{"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"},
			storekit.Finding{Value: "allkeys-lru", Severity: storekit.SeverityBad, Remedy: "noeviction"},
			[]string{"CONFIG", "SET", "maxmemory-policy", "noeviction"},
		},
		{
			"append-only file",
			[]string{"CONFIG", "SET", "appendfsync", "everysec"},
			storekit.Finding{Value: "appendfsync everysec", Severity: storekit.SeverityWarning, Remedy: "appendfsync to always"},
			nil,
		},
		{
			"durability", nil,
			storekit.Finding{Value: "volatile", Severity: storekit.SeverityWarning, Remedy: "appendfsync to always"},
			[]string{"CONFIG", "SET", "appendfsync", "always"},
		},
		{
			"sync during rewrites",
			[]string{"CONFIG", "SET", "no-appendfsync-on-rewrite", "yes"},
			storekit.Finding{Value: "off", Severity: storekit.SeverityWarning, Remedy: "no-appendfsync-on-rewrite to no"},
			[]string{"CONFIG", "SET", "no-appendfsync-on-rewrite", "no"},
		},
		{
			"memory",
			[]string{"CONFIG", "SET", "maxmemory", "0"},
			storekit.Finding{Value: "no limit", Severity: storekit.SeverityWarning, Remedy: "maxmemory"},
			nil,
		},
		{
			"memory",
			[]string{"CONFIG", "SET", "maxmemory", "1"},
			storekit.Finding{Value: "of 0.0 MiB", Severity: storekit.SeverityBad, Remedy: "maxmemory"},
			[]string{"CONFIG", "SET", "maxmemory", "1gb"},
		},
		{
			"role",
			[]string{"REPLICAOF", "127.0.0.1", "1"},
			storekit.Finding{Value: "replica of 127.0.0.1", Severity: storekit.SeverityBad, Remedy: "name the primary"},
			[]string{"REPLICAOF", "NO", "ONE"},
		},
		{
			"data set",
			[]string{"HSET", "punctual:store", "epoch", "another"},
			storekit.Finding{Value: "another one", Severity: storekit.SeverityBad, Remedy: "open the store anew"},
			nil,
		},
		{
			"data set",
			[]string{"FLUSHALL"},
			storekit.Finding{Value: "vanished", Severity: storekit.SeverityBad, Remedy: "wiped"},
			nil,
		},
	}
	for _, tt := range tests {
		if tt.change != nil {
			do(t, server, tt.change...)
		}
		all, err := s.Examine(t.Context())
		if err != nil {
			t.Fatalf("after %v: %v", tt.change, err)
		}
		f := finding(t, all, tt.name)
		if f.Severity != tt.want.Severity || !strings.Contains(f.Value, tt.want.Value) || !strings.Contains(f.Remedy, tt.want.Remedy) {
			t.Errorf("after %v: %+v; want %s with %q and %q", tt.change, f, tt.want.Severity, tt.want.Value, tt.want.Remedy)
		}
		if tt.back != nil {
			do(t, server, tt.back...)
		}
	}
}

// A server on which a store refuses to open, and on which none is, can be examined all the same,
// and nothing is written on the way.
func TestExamineWithoutStore(t *testing.T) {
	server := redisrig.Start(t, "--maxmemory-policy", "allkeys-lru")
	url := "redis://" + server.Addr
	all, err := ExamineURL(t.Context(), url, &Options{Durability: punctual.Fsync})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]storekit.Severity{
		"connection": storekit.SeverityGood, "encryption": storekit.SeverityGood, "password": storekit.SeverityGood, "version": storekit.SeverityGood,
		"role": storekit.SeverityGood, "eviction policy": storekit.SeverityBad, "memory": storekit.SeverityWarning, "append-only file": storekit.SeverityWarning,
		"last writes to disk": storekit.SeverityGood, "replicas": storekit.SeverityGood, "clock": storekit.SeverityGood, "durability": storekit.SeverityBad,
		"latency": storekit.SeverityGood, "rights": storekit.SeverityGood, "data set": storekit.SeverityWarning,
	} {
		if f := finding(t, all, name); f.Severity != want {
			t.Errorf("%+v; want %s", f, want)
		}
	}
	if keys := do(t, server, "KEYS", "*"); keys != "" {
		t.Errorf("a look has written %q", keys)
	}
}

// Findings from before the server did not answer are returned with the error.
func TestExamineUnreachable(t *testing.T) {
	all, err := ExamineURL(t.Context(), "redis://127.0.0.1:1", nil)
	if err == nil || !punctual.Definite(err) {
		t.Errorf("a look at a server that is not there: %v; want a definite error", err)
	}
	finding(t, all, "connection")
}

// A cluster is examined primary by primary.
func TestExamineCluster(t *testing.T) {
	cluster := redisrig.StartCluster(t, 3, 1)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	closeAtEnd(t, client.Close)
	all, err := Examine(t.Context(), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range cluster.Nodes[:3] {
		for _, name := range []string{"version", "role", "eviction policy", "memory", "append-only file", "replicas", "clock", "latency"} {
			finding(t, all, name+" of "+n.Addr)
		}
		if f := finding(t, all, "replicas of "+n.Addr); f.Value != "1, 1 up to date" {
			t.Errorf("%+v; want one replica", f)
		}
	}
	for name, want := range map[string]string{"cluster": "16384 of 16384 slots served", "nodes down": "none"} {
		if f := finding(t, all, name); f.Value != want || f.Severity != storekit.SeverityGood {
			t.Errorf("%+v; want %q", f, want)
		}
	}
	finding(t, all, "clocks of the nodes")
	if f := finding(t, all, "durability"); f.Value != "volatile" || !strings.Contains(f.Remedy, "replicated") {
		t.Errorf("%+v; want volatile, and how to have more", f)
	}
}

// A connection over a network has a warning if it is not encrypted, and one if there is no
// password.
func TestExaminedLinks(t *testing.T) {
	for url, want := range map[string][2]storekit.Severity{
		"redis://localhost":                    {storekit.SeverityGood, storekit.SeverityGood},
		"redis://127.8.8.8:7":                  {storekit.SeverityGood, storekit.SeverityGood},
		"redis://db.example.com":               {storekit.SeverityWarning, storekit.SeverityWarning},
		"redis://u:p@db.example.com":           {storekit.SeverityWarning, storekit.SeverityGood},
		"rediss://u:p@db.example.com":          {storekit.SeverityGood, storekit.SeverityGood},
		"redis+cluster://localhost,10.0.0.1":   {storekit.SeverityWarning, storekit.SeverityWarning},
		"rediss+sentinel://:p@localhost/main":  {storekit.SeverityGood, storekit.SeverityGood},
		"redis+sentinel://localhost:7000/main": {storekit.SeverityWarning, storekit.SeverityWarning}, // the servers may be anywhere
	} {
		client, o, err := connectURL(url, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := newStore(client, o)
		if err != nil {
			t.Fatal(err)
		}
		found := s.health.Connection()
		if f := finding(t, found, "encryption"); f.Severity != want[0] {
			t.Errorf("%s: %+v; want %s", url, f, want[0])
		}
		if f := finding(t, found, "password"); f.Severity != want[1] {
			t.Errorf("%s: %+v; want %s", url, f, want[1])
		}
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
