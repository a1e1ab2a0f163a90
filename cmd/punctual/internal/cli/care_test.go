package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// withDead is a rig with dead messages t/a (20 November), t/b and u/c (21 November).
func withDead(t *testing.T) *rig {
	r := newRig(t)
	r.env["TZ"] = "UTC"
	r.run("push", "t", "x", "--id", "a").ok()
	r.kill("t")
	r.clock.Advance(24 * time.Hour)
	r.run("push", "t", "x", "--id", "b").ok()
	r.kill("t")
	r.run("push", "u", "x", "--id", "c").ok()
	r.kill("u")
	return r
}

func TestDeadList(t *testing.T) {
	r := withDead(t)
	for _, c := range []struct{ args, want string }{
		{"", "a dead, b dead, c dead"},
		{"t", "a dead, b dead"},
		{"--on 2026-11-20", "a dead"},
		{"--on 2026-11-21", "b dead, c dead"},
		{"u --on 2026-11-20", ""},
		{"--limit 2", "a dead, b dead"},
	} {
		args := append([]string{"dead", "list", "--json"}, strings.Fields(c.args)...)
		if got, _ := listed(t, r.run(args...).ok()); got != c.want {
			t.Errorf("%q: %q, want %q", args, got, c.want)
		}
	}
	_, next := listed(t, r.run("dead", "list", "--json", "--limit", "2").ok())
	if got, more := listed(t, r.run("dead", "list", "--json", "--limit", "2", "--after", next).ok()); got != "c dead" || more != "" {
		t.Errorf("after %q: %q and %q, want c and no more", next, got, more)
	}
	r.run("dead", "list").ok().contains("no such customer", "discarded")
	r.run("dead", "list", "--on", "yesterday").exits(exitUsage, "like 2026-11-20")
	r.run("dead", "list", "none").exits(exitUnwished)
}

func TestDeadRequeue(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"a", "a"},
		{"--topic t a b", "a b"},
		{"a c", "a c"},
		{"t --all", "a b"},
		{"--topic t --all", "a b"},
		{"--all", "a b c"},
		{"--all --on 2026-11-21", "b c"},
		{"t --all --on 2026-11-21", "b"},
		{"u --all --on 2026-11-20", ""},
	} {
		r := withDead(t)
		res := r.run(append([]string{"dead", "requeue", "--in", "1h", "--json"}, strings.Fields(c.args)...)...).ok()
		var got []string
		for line := range strings.Lines(res.out) {
			m := decode(t, line).(map[string]any)
			if strings.Contains(c.args, "--all") { // a report for each topic
				first, _ := m["first"].([]any)
				for _, item := range first {
					got = append(got, item.(map[string]any)["id"].(string))
				}
				continue
			}
			if m["outcome"] != "requeued" || m["due"] != "2026-11-21T11:00:00.000Z" {
				t.Errorf("%q: %s", c.args, line)
			}
			got = append(got, m["id"].(string))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("dead requeue %s: %q, want %q", c.args, got, c.want)
		}
		for _, id := range got {
			topic := map[string]string{"a": "t", "b": "t", "c": "u"}[id]
			if m := r.get(topic, id); m.State != punctual.StateScheduled || !m.Due.Equal(start.Add(25*time.Hour)) || m.Attempt != 0 || len(m.Failures) != 1 {
				t.Errorf("%s is %+v, want scheduled with no attempts and its history", id, m)
			}
		}
	}
}

func TestDeadRequeueOutcomes(t *testing.T) {
	r := withDead(t)
	r.run("push", "t", "x", "--id", "live", "--in", "1h").ok()
	r.run("dead", "requeue", "live", "--json").exits(exitUnwished).failsWith("not_dead", true).printsJSON(`{"id":"live","topic":"t","outcome":"not_dead"}`)
	r.run("dead", "requeue", "none").exits(exitUnwished, "not found").prints("none not_found\n")
	r.run("dead", "requeue").exits(exitUsage, "IDs, or --all")
	r.run("dead", "requeue", "t", "a", "--all").exits(exitUsage, "not both")
	r.run("dead", "requeue", "a", "--on", "2026-11-20").exits(exitUsage, "--on goes with --all")
	r.run("dead", "requeue", "none", "--all").exits(exitUnwished)
}

// expirePages makes more messages of topic t expire than fit on two pages, and returns how many.
func (r *rig) expirePages() int {
	r.t.Helper()
	n := 2*pageSize(0, 0) + 1
	var input strings.Builder
	for i := range n {
		fmt.Fprintf(&input, `{"id":"%d","body":"","expire":"1ms"}`+"\n", i)
	}
	r.runInput(input.String(), "push", "t", "--ndjson").ok()
	r.clock.Advance(time.Minute)
	r.run("consume", "t", "--until-empty").ok().prints("")
	return n
}

func TestDeadRequeueAllOfManyPages(t *testing.T) {
	r := newRig(t)
	n := r.expirePages()
	r.run("dead", "requeue", "t", "--all").ok().contains(fmt.Sprintf("t: %d requeued", n))
	r.run("stats", "t", "--json").ok().contains(fmt.Sprintf(`"ready":%d`, n), `"dead":0`)
}

func TestDeadPurge(t *testing.T) {
	for _, c := range []struct {
		args string
		n    int
	}{
		{"t --all", 2},
		{"t --on 2026-11-20", 1},
		{"t --before 2026-11-21", 1},
		{"t --before 2026-11-21T10:00:00.001Z", 2},
		{"u --before 2026-11-21", 0},
	} {
		r := withDead(t)
		args := strings.Fields(c.args)
		r.run(append([]string{"dead", "purge", "--json"}, args...)...).ok().printsJSON(fmt.Sprintf(`{"topic":%q,"purged":%d}`, args[0], c.n))
		if got := strings.Count(r.run("dead", "list", "--json").ok().out, "\n"); got != 3-c.n {
			t.Errorf("dead purge %s left %d, want %d", c.args, got, 3-c.n)
		}
	}
	r := withDead(t)
	r.run("dead", "purge", "t", "--on", "2026-11-20").ok().prints("t: 1 dead message removed\n")
	r.run("dead", "purge", "t").exits(exitUsage, "exactly one of")
	r.run("dead", "purge", "t", "--all", "--on", "2026-11-20").exits(exitUsage, "exactly one of")
	r.run("dead", "purge", "t", "--before", "never").exits(exitUsage, "never")
	r.run("dead", "purge", "none", "--all").exits(exitUnwished)
}

func TestTopicSetAndShow(t *testing.T) {
	r := newRig(t)
	set := punctual.DefaultSettings()
	set.MaxAttempts, set.Backoff = 7, punctual.Backoff{Delays: []time.Duration{2 * time.Minute, 10 * time.Minute, 15 * time.Hour}}
	shown := func() string {
		line, err := jsonLine(settingsJSON{"t", set})
		if err != nil {
			t.Fatal(err)
		}
		return string(line)
	}
	r.run("topic", "set", "t", "--max-attempts", "7", "--backoff", "2m,10m,15h", "--json").ok().printsJSON(shown()).
		contains(`{"topic":"t","lease":"30s","max_attempts":7,"backoff":"2m,10m,15h","dead_retention":"0s",`, `"push_paused":false,"delivery_paused":false`)
	r.run("topic", "set", "t", "--lease", "1m", "--dead-retention", "4w", "--dedupe-window", "1d12h", "--finished-retention", "30d").ok()
	set.Lease, set.DeadRetention, set.DedupeWindow, set.FinishedRetention = time.Minute, 28*24*time.Hour, 36*time.Hour, 30*24*time.Hour
	r.run("topic", "show", "t", "--json").ok().printsJSON(shown()).
		contains(`"lease":"1m","max_attempts":7,`, `"dead_retention":"28d","dedupe_window":"1d12h","finished_retention":"30d",`)
	r.run("topic", "set", "t", "--backoff", "exp:1s..1h,jitter=0.5").ok().contains("exp:1s..1h,jitter=0.5", "28d", "1d12h")
	r.run("topic", "show", "none").exits(exitUnwished, `topic show: topic "none": not found: 'punctual topics'`)
	for _, c := range [][]string{
		{"no setting is given"},
		{"lease 1ms", "--lease", "1ms"},
		{"max attempts 0", "--max-attempts", "0"},
		{"not understood", "--backoff", "sometimes"},
		{"jitter 2", "--backoff", "exp:1s..1h,jitter=2"},
		{"backoff max", "--backoff", "exp:2s..1s"},
		{"negative", "--dedupe-window", "-1s"},
	} {
		r.run(append([]string{"topic", "set", "new"}, c[1:]...)...).exits(exitUsage, c[0])
	}
	r.run("topic", "set", "a b", "--lease", "1m").exits(exitUsage, `topic "a b"`)
	r.run("topic", "show", "new").exits(exitUnwished)
}

func TestTopicPauseAndResume(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "a").ok()
	for _, c := range []struct{ args, paused string }{
		{"pause t", "delivery"},
		{"pause t --push", "push and delivery"},
		{"resume t --delivery", "push"},
		{"pause t --delivery", "push and delivery"},
		{"resume t", "-"},
		{"pause t --push --delivery", "push and delivery"},
		{"resume t --push", "delivery"},
	} {
		r.run(append([]string{"topic"}, strings.Fields(c.args)...)...).ok().contains(fmt.Sprintf("%-28s %s\n", "paused", c.paused))
	}
	if ds, err := r.store.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 1}); err != nil || len(ds) != 0 {
		t.Errorf("claim of a topic whose deliveries are paused: %v, %v", ds, err)
	}
	r.run("topic", "pause", "t", "--push").ok()
	r.run("push", "t", "y").exits(exitError, "paused", "punctual topic resume")
	r.run("push", "t", "y", "--json").exits(exitError).failsWith("paused", true)
	r.run("topic", "pause", "none").exits(exitUnwished)
}

func TestTopicPurgeAndDelete(t *testing.T) {
	r := withDead(t)
	r.run("push", "t", "x", "--id", "d", "--in", "1h").ok()
	r.run("push", "t", "x", "--id", "e").ok()
	for _, args := range [][]string{{"topic", "purge", "t"}, {"topic", "delete", "t"}} {
		r.run(args...).exits(exitUsage, "say --yes").prints("")
	}
	r.run("topic", "purge", "t", "--state", "scheduled", "--yes", "--json").ok().printsJSON(`{"topic":"t","purged":1}`)
	r.run("topic", "purge", "t", "--state", "asleep", "--yes").exits(exitUsage)
	r.run("topic", "purge", "t", "--yes").ok().prints("t: 1 message removed\n")
	r.run("topic", "delete", "t", "--yes", "--json").ok().printsJSON(`{"topic":"t","purged":2}`)
	r.run("topic", "delete", "t", "--yes").exits(exitUnwished)
	r.run("topic", "purge", "t", "--yes").exits(exitUnwished)
	r.run("topics", "--json").ok().contains(`"u"`)
}

func TestConfirmationNeedsTheName(t *testing.T) {
	for answer, exit := range map[string]int{"t\n": exitOK, "t": exitOK, "y\n": exitUnwished, "": exitUnwished} {
		var out, errs buffer
		a := newApp(Streams{In: strings.NewReader(answer), Out: &out, Err: &errs})
		if got := exitFor(a.ask("t", "the topic t")); got != exit {
			t.Errorf("answer %q: exit %d, want %d", answer, got, exit)
		}
		if !strings.Contains(errs.String(), "This removes the topic t for good") {
			t.Errorf("asked %q", errs.String())
		}
	}
}

// damaged is a store whose check finds problems.
type damaged struct{ keptOpen }

func (damaged) Check(context.Context, func(int64)) (storekit.CheckReport, error) {
	return storekit.CheckReport{Topics: 1, Problems: []string{"message t/a is in no timeline"}}, nil
}

func TestCheckFailsOnProblems(t *testing.T) {
	r := newRig(t)
	run := func(args ...string) result {
		var out, errs buffer
		a := r.app(&out, &errs)
		a.schemes[0].open = func(context.Context, place) (punctual.Store, error) { return damaged{keptOpen{r.store}}, nil }
		code := a.run(t.Context(), args)
		return result{t, args, code, out.String(), errs.String()}
	}
	run("check").exits(exitError, "1 problems").contains("problem: message t/a is in no timeline")
	run("check", "--json").exits(exitError).failsWith(codeProblems, true).printsJSON(`{"topics":1,"live":0,"dead":0,"problems":["message t/a is in no timeline"]}`)
}

func TestReadingCommandsNeedAStore(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, dir + "/none"} {
		for _, args := range []string{
			"list t", "get a", "topics", "stats", "forecast", "cancel a", "reschedule a --now", "check",
			"dead list", "dead requeue a", "dead purge t --all", "topic show t", "topic pause t", "topic purge t --yes", "topic delete t --yes",
		} {
			var out, errs buffer
			code := newApp(Streams{In: strings.NewReader(""), Out: &out, Err: &errs}).run(t.Context(), append(strings.Fields(args), "--store", "disk:"+path))
			if want := "no store at " + path + ": push something first or name another with --store"; code != exitError || !strings.Contains(errs.String(), want) {
				t.Errorf("%s: exit %d, %q; want 1 and %q", args, code, errs.String(), want)
			}
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("commands that read left %v, %v behind", entries, err)
	}
}

func TestStoreNames(t *testing.T) {
	for _, c := range []struct{ flag, env, want string }{
		{"", "", "disk:punctual-data"},
		{"", "mem:", "mem:"},
		{"disk:x", "mem:", "disk:x"},
		{"", "./orders", "disk:./orders"},
		{"orders", "", "disk:orders"},
		{"/var/lib/a:b", "", "disk:/var/lib/a:b"},
		{"..", "", "disk:.."},
		{"localhost:6379", "", "redis://localhost:6379"},
		{"[::1]:6379", "", "redis://[::1]:6379"},
		{"disk:6379", "", "disk:6379"},
		{"rabbit:x", "", "rabbit:x"},
		{"redis://a:1/2", "", "redis://a:1/2"},
	} {
		a := newApp(Streams{Getenv: func(string) string { return c.env }})
		a.storeFlag = c.flag
		if got := a.storeName(); got != c.want {
			t.Errorf("--store %q, PUNCTUAL_STORE %q: %q, want %q", c.flag, c.env, got, c.want)
		}
	}
	for _, name := range []string{"mem", "mem:x", "disk:", "disk", ":", "redis:", "redis://", "rabbit://x"} {
		var errs buffer
		code := newApp(Streams{Out: &errs, Err: &errs}).run(t.Context(), []string{"push", "t", "x", "--store", name})
		if code != exitUsage {
			t.Errorf("--store %q: exit %d, %q; want 2", name, code, errs.String())
		}
	}
}

func TestErrorsAsJSON(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "--json").exits(exitUsage).failsWith("usage", true)
	r.run("push", "t", "x", "--in", "-1s", "--json").exits(exitUsage).failsWith("usage", true)
	r.run("push", "a b", "x", "--json").exits(exitUsage).failsWith("invalid", true)
	r.run("push", "t", strings.Repeat("x", limits.DefaultMaxBody+1), "--json").exits(exitError).failsWith("too_large", true)
	r.run("get", "a", "--json").exits(exitUnwished).failsWith("not_found", true)
}

func TestEveryCommandHasHelpWithExamples(t *testing.T) {
	root := newRoot(newRig(t).app(&buffer{}, &buffer{}))
	commands := root.Commands()
	for len(commands) > 0 {
		c := commands[0]
		commands = append(commands[1:], c.Commands()...)
		if c.IsAdditionalHelpTopicCommand() || c.Name() == "help" || strings.HasPrefix(c.CommandPath(), "punctual completion") { // cobra's own
			continue
		}
		n := strings.Count(c.Example, "\n") + 1
		if c.Long == "" || n < 3 || n > 5 {
			t.Errorf("%s: help of %d bytes and %d examples, want some and 3 to 5", c.CommandPath(), len(c.Long), n)
		}
		for line := range strings.Lines(c.Long) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 100 {
				t.Errorf("%s: help line of %d columns: %s", c.CommandPath(), n, line)
			}
		}
	}
	r := newRig(t)
	r.run().ok().contains("scheduled ─", "Start here: punctual demo")
	r.run("help", "topic", "set").ok().contains("punctual topic set")
	r.run("help", "nosuch").exits(exitUsage, "unknown help topic")
	r.run("help", "topic", "nosuch").exits(exitUsage, "unknown help topic")
	r.run("help", "exit-codes").ok().contains("Wrong usage", "not_found")
}

func TestCompletion(t *testing.T) {
	r := newRig(t)
	r.run("push", "orders", "x").ok()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		r.run("completion", shell).ok().contains("punctual")
	}
	r.run("completion", "tcsh").exits(exitUsage, `unknown command "tcsh": see 'punctual completion --help'`).prints("")
	r.run("completion").ok().contains("bash", "zsh", "fish", "powershell")
	r.run("__complete", "stats", "").contains("orders\n")
	r.run("__complete", "stats", "orders", "").prints(":4\n")
	for flag, values := range map[string]string{
		"push --if-exists": "keep replace replace-dead fail", "list --state": "scheduled ready leased dead", "topic purge --state": "scheduled ready leased dead",
		"forecast --by": "minute hour day", "import zset --unit": "s ms", "import asynq --uncertain": "leave push drop return", "import redisson --codec": "raw string json json-text",
	} {
		args := append([]string{"__complete"}, strings.Fields(flag)...)
		r.run(append(args, "")...).prints(strings.ReplaceAll(values, " ", "\n") + "\n:4\n")
	}
}

// With --newest the latest message comes first, and a cursor goes on towards the earlier ones; with
// --bare no bodies are shown.
func TestListNewest(t *testing.T) {
	r := newRig(t)
	for i, in := range []string{"1h", "2h", "3h"} {
		r.run("push", "orders", fmt.Sprint("body ", i), "--id", fmt.Sprint("m", i), "--in", in).ok()
	}
	got, next := listed(t, r.run("list", "orders", "--newest", "--limit", "2", "--json").ok().contains("body 2", "body 1"))
	if want := "m2 scheduled, m1 scheduled"; got != want || next == "" {
		t.Fatalf("the newest two are %q, next %q; want %q and a cursor", got, next, want)
	}
	rest := r.run("list", "orders", "--newest", "--bare", "--json", "--after", next).ok()
	if got, _ := listed(t, rest); got != "m0 scheduled" || strings.Contains(rest.out, "body 0") {
		t.Errorf("behind them the list shows %s; want m0 without its body", rest.out)
	}
}
