package cli

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
)

// The error about a day that the calendar does not have says so, for flags as well as for lines of input.
func TestImpossibleDay(t *testing.T) {
	r := newRig(t)
	for _, args := range [][]string{
		{"push", "t", "x", "--at", "2026-02-30T10:00:00Z"},
		{"push", "t", "x", "--at", "2026-02-30 9:00"},
		{"push", "t", "x", "--at", "2026-13-01T10:00"},
		{"dead", "list", "--on", "2026-02-30"},
		{"dead", "purge", "t", "--before", "2026-04-31"},
	} {
		r.run(args...).exits(exitUsage, "the calendar has no such day")
	}
	r.runInput(`{"body":"x","due":"2026-02-30T10:00:00Z"}`, "push", "t", "--ndjson").exits(exitError, "the calendar has no such day")
	r.run("push", "t", "x", "--at", "sometime").exits(exitUsage, "not understood")
}

// The commands stats and forecast count the audit log only when it is named. topics lists it in any case.
func TestCountsLeaveTheAuditLogOut(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "1", "--in", "30m").ok()
	for _, id := range []string{"a", "b"} {
		r.run("push", access.AuditTopic, "entry", "--id", id, "--in", "30m").ok()
	}
	if got := r.run("stats").ok().out; strings.Contains(got, access.AuditTopic) || !strings.Contains(got, "t ") {
		t.Errorf("stats:\n%s", got)
	}
	r.run("stats", access.AuditTopic).ok().contains(access.AuditTopic)
	r.run("topics").ok().contains(access.AuditTopic)
	r.run("forecast", "--json", "--utc", "--buckets", "1").ok().printsJSON(`{"by":"hour","overdue":0,"buckets":[{"from":"2026-11-20T10:00:00.000Z","count":1}],"beyond":0}`)
	r.run("forecast", access.AuditTopic, "--json", "--utc", "--buckets", "1").ok().contains(`"count":2`)
}

// What a user can do about a refusal is named in the words of the command line.
func TestRemediesOfTheCommandLine(t *testing.T) {
	for err, want := range map[error]string{
		punctual.ErrUnauthenticated: "PUNCTUAL_TOKEN_FILE",
		punctual.ErrForbidden:       "PUNCTUAL_TOKEN",
	} {
		if got := describe(err).text; !strings.Contains(got, want) {
			t.Errorf("%v: %s", err, got)
		}
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	addr := strings.TrimPrefix(plain.URL, "http://")
	onDisk(t, "", "stats", "--store", "https://"+addr).exits(exitError, "write http:// in the place of https://")
	onDisk(t, "", "stats", "--store", addr).exits(exitError, addr+" alone was taken for a Redis", "http://"+addr)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	onDisk(t, "", "stats", "--store", strings.Replace(secure.URL, "https", "http", 1)).exits(exitUsage, "write https:// in the place of http://")
	if err := withListenFlags(punctual.ErrForbidden); !strings.Contains(err.Error(), "--expose-without-tls-and-tokens") || !strings.Contains(err.Error(), "--listen 127.0.0.1") {
		t.Error(err)
	}
	other := errors.New("other")
	if err := withListenFlags(other); !errors.Is(err, other) || err.Error() != "other" {
		t.Error(err)
	}
	// Without TLS and tokens serve refuses to listen on an address that other machines reach, and names the flags.
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().(*net.TCPAddr).String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	onDisk(t, "", "serve", "--listen", strings.Replace(address, "[::]", "0.0.0.0", 1), "--store", filepath.Join(t.TempDir(), "s")).exits(exitError, "--expose-without-tls-and-tokens")
}

// The value mem: in a configuration ends with a colon, so YAML takes it for a key. The error says that it needs quotes.
func TestColonAtTheEndOfAValue(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("listen: 127.0.0.1:0\nstore: mem:\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	newRig(t).run("serve", "--config", file, "--print-config").exits(exitUsage, `quotes: store: "mem:"`)
	if err := os.WriteFile(file, []byte("listen: 127.0.0.1:0\nstore: \"mem:\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	newRig(t).run("serve", "--config", file, "--print-config").ok().contains("store: 'mem:'")
}

// For a flag whose default is written as 0 or left empty and stands for another value, --print-config says which value that is.
func TestPrintedDefaults(t *testing.T) {
	out := newRig(t).run("serve", "--print-config").ok().contains("# from: default, which is 1 MiB\n# max-body:\n", "# from: default, which is 30s\n# drain:\n", "# from: default, which is 16384\n# max-connections:\n").out
	for _, zero := range []string{": 0\n", ": 0s\n"} {
		if strings.Contains(out, zero) {
			t.Errorf("a default is told as 0:\n%s", out)
		}
	}
}

// The flag --topic is completed with the names of the topics.
func TestTopicFlagIsCompleted(t *testing.T) {
	r := newRig(t)
	r.run("push", "jobs", "x", "--id", "1").ok()
	for _, command := range []string{"get", "cancel", "reschedule"} {
		if got := r.run("__complete", command, "1", "--topic", ""); !strings.HasPrefix(got.out, "jobs\n") {
			t.Errorf("%s: %q", command, got.out)
		}
	}
	for _, command := range []string{"list", "requeue"} {
		if got := r.run("__complete", "dead", command, "--topic", ""); !strings.HasPrefix(got.out, "jobs\n") {
			t.Errorf("dead %s: %q", command, got.out)
		}
	}
}
