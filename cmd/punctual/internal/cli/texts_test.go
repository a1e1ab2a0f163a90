package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
)

// The error about a day that the calendar does not have says so, for flags as well as for lines of
// input.
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

// The commands stats, which is topics, too, and forecast count the audit log only when it is named.
func TestCountsLeaveTheAuditLogOut(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "1", "--in", "30m").ok()
	for _, id := range []string{"a", "b"} {
		r.run("push", access.AuditTopic, "entry", "--id", id, "--in", "30m").ok()
	}
	for _, command := range []string{"stats", "topics"} {
		if got := r.run(command).ok().out; strings.Contains(got, access.AuditTopic) || !strings.Contains(got, "t ") {
			t.Errorf("%s:\n%s", command, got)
		}
	}
	r.run("stats", access.AuditTopic).ok().contains(access.AuditTopic)
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
	// Without TLS and tokens serve refuses to listen on an address that other machines reach, and
	// names the flags.
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

// The value mem: in a configuration ends with a colon, so YAML takes it for a key. The error says
// that it needs quotes.
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

// For a flag whose default is written as 0 or left empty and stands for another value,
// --print-config says which value that is.
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

// A wrong number of arguments is answered with those that were given and with what to write. A URL
// among them is not shown, because that may hold a password.
func TestWrongArguments(t *testing.T) {
	r := newRig(t)
	for line, says := range map[string]string{
		"list a b":                    `wrong number of arguments (2: "a", "b"): write 'punctual list TOPIC', once for each: see 'punctual list --help'`,
		"topic show a b c":            `wrong number of arguments (3: "a", "b", "c"): write 'punctual topic show TOPIC', once for each: see 'punctual topic show --help'`,
		"list":                        `no argument is given: write 'punctual list TOPIC': see 'punctual list --help'`,
		"schedule show a":             `wrong number of arguments (1: "a"): write 'punctual schedule show TOPIC NAME': see 'punctual schedule show --help'`,
		"check a":                     `wrong number of arguments (1: "a"): write 'punctual check': see 'punctual check --help'`,
		"get":                         `no argument is given: write 'punctual get ID...'`,
		"copy redis://u:secret@h x y": `wrong number of arguments (3: "…", "x", "y"): write 'punctual copy FROM TO': see`,
	} {
		if got := r.run(strings.Fields(line)...).exits(exitUsage, says); strings.Contains(got.err, "secret") {
			t.Errorf("%s: the error shows a password: %s", line, got.err)
		}
	}
	// Get takes several IDs. It says so to those who put a topic in front.
	const several = "each argument is an ID: name a topic with --topic"
	r.run("push", "orders", "x", "--id", "b").ok()
	r.run("get", "orders", "b").exits(exitUnwished, `ID "orders": not found`, several).contains("b")
	r.run("get", "a", "c").exits(exitUnwished, `ID "a", "c": not found`, several)
	for _, args := range [][]string{{"get", "a"}, {"get", "a", "c", "--topic", "orders"}} {
		if got := r.run(args...).exits(exitUnwished, "not found"); strings.Contains(got.err, several) {
			t.Errorf("%q: %s", args, got.err)
		}
	}
}

// The error about what cannot be imported says what is wrong, and what a right value looks like.
func TestWrongImports(t *testing.T) {
	r := newRig(t)
	r.run("import", "crontab", "--from", "x").exits(exitUsage, `unknown command "crontab": there is 'punctual schedule import crontab', or see 'punctual import --help'`)
	r.run("import", "sidekiq", "--from", "x").exits(exitUsage, `unknown command "sidekiq": see 'punctual import --help'`)
	r.run("import", "--from", "x").exits(exitUsage, "unknown flag: --from")
	r.run("topic", "list").exits(exitUsage, `unknown command "list": see 'punctual topic --help'`) // several others are called list
	for from, says := range map[string]string{
		"x":                       "the source: redis URL: there is no ://: use redis://",
		"http://x":                `unknown scheme "http": use redis://`,
		"redis://u:secret@h:x":    "is not followed by a port",
		"redis+sentinel://h":      "the name of the primary is missing behind the hosts: use redis://",
		"redis+cluster://h?x=y":   `unknown option "x"`,
		"postgres://u:secret@h/d": `unknown scheme "postgres"`,
	} {
		for _, command := range []string{"schedule import bullmq", "import redisson"} {
			if got := r.run(append(strings.Fields(command), "--from", from)...).exits(exitUsage, says); strings.Contains(got.err, "secret") {
				t.Errorf("%s --from %s: the error shows a password: %s", command, from, got.err)
			}
		}
	}
}

// The flags that every command has take a line each in its help, and 'punctual help store' has all
// kinds of store.
func TestHelpOfTheStore(t *testing.T) {
	root := newRoot(newApp(Streams{Out: &buffer{}, Err: &buffer{}})) // with the stores of the program
	for line := range strings.Lines(root.PersistentFlags().FlagUsages()) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	r := newRig(t)
	r.run("list", "--help").ok().contains("'punctual help store'")
	help := onDisk(t, "", "help", "store").ok()
	for _, s := range schemes() {
		help.contains(s.form)
	}
	help.contains("disk:PATH\n", "PUNCTUAL_STORE", defaultStore)
}

// Several servers of one store are named with commas, and the errors about malformed names are
// true.
func TestSeveralServers(t *testing.T) {
	answers := httptest.NewServer(http.NotFoundHandler())
	defer answers.Close()
	live := strings.TrimPrefix(answers.URL, "http://")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"http://" + gone + "," + live, "http://" + gone + ",http://" + live} {
		onDisk(t, "", "stats", "--store", name).exits(exitUsage, live, "which no Punctual server gives") // so the second server was asked
	}
	for name, says := range map[string]string{
		"https://a,":             "behind a comma no server is named: write it like https://HOST:PORT,HOST:PORT",
		"https://a,,b":           "behind a comma no server is named",
		"http://a,https://b":     "another server begins with https: write all alike, as http://HOST:PORT,HOST:PORT",
		"unix:/a,http://b":       "another server begins with http: write all alike, as unix:SOCKET,SOCKET",
		"https://a,u:secret@b:1": "a URL is seen by many",
	} {
		if got := onDisk(t, "", "stats", "--store", name).exits(exitUsage, says); strings.Contains(got.err, "secret") {
			t.Errorf("%s: the error shows a password: %s", name, got.err)
		}
	}
}

// Each command whose first argument is a topic offers the names of topics. Of a store that does not
// answer it offers none, soon.
func TestTopicsAreCompleted(t *testing.T) {
	r := newRig(t)
	r.run("push", "jobs", "x").ok()
	tried := 0
	for _, c := range leaves(newRoot(r.app(&buffer{}, &buffer{}))) {
		words := strings.Fields(c.Use)
		if len(words) < 2 || !strings.HasPrefix(strings.Trim(words[1], "[]."), "TOPIC") || c.Parent().Name() == "import" {
			continue // the topics of import are those of the other system
		}
		tried++
		path := strings.Fields(c.CommandPath())
		if got := r.run(append(append([]string{"__complete"}, path[1:]...), "")...); got.out != "jobs\n:4\n" {
			t.Errorf("%s: offered %q", c.CommandPath(), got.out)
		}
	}
	if tried < 20 {
		t.Errorf("%d commands were tried", tried)
	}
	synctest.Test(t, func(t *testing.T) {
		var out, errs buffer
		a := r.app(&out, &errs)
		a.schemes[0].open = func(ctx context.Context, p place) (punctual.Store, error) {
			p.log.Warn("the store does not answer")
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Hour):
				return nil, errors.New("nobody ended the wait")
			}
		}
		began := time.Now()
		code := a.run(t.Context(), []string{"__complete", "list", ""})
		if took := time.Since(began); code != exitOK || out.String() != ":4\n" || took != completionTime || strings.Contains(errs.String(), "answer") {
			t.Errorf("exit %d after %v, printed %q and %q", code, took, out.String(), errs.String())
		}
	})
}
