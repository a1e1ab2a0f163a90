package cli

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/internal/importer"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

var update = flag.Bool("update", false, "write testdata/members.txt anew; what it had has to stay")

const membersFile = "testdata/members.txt"

// TestMembers compares the members of the JSON that commands print, by name and kind, with
// testdata/members.txt. Scripts rely on them: with -update members are added to that file, but none
// is renamed, removed, given another kind, or left out where it has always been there.
func TestMembers(t *testing.T) {
	want, err := os.ReadFile(membersFile)
	if err != nil {
		t.Fatal(err)
	}
	printed := printedJSON(t)
	var text strings.Builder
	for _, command := range slices.Sorted(maps.Keys(printed)) {
		fmt.Fprintf(&text, "%s\n", command)
		for _, line := range membersOf(t, printed[command]) {
			fmt.Fprintf(&text, "  %s\n", line)
		}
	}
	got := text.String()
	if got == string(want) {
		return
	}
	for _, line := range missingMembers(string(want), got) {
		t.Errorf("scripts rely on what is no longer printed as it was: %s", line)
	}
	if t.Failed() {
		return
	}
	if !*update {
		t.Fatalf("%s does not have\n%s\nRenew it with go test ./cmd/punctual/internal/cli -run TestMembers -update", membersFile, strings.Join(missingMembers(got, string(want)), "\n"))
	}
	if err := os.WriteFile(membersFile, []byte(got), 0o644); err != nil {
		t.Fatal(err)
	}
}

// missingMembers are the lines of the text want, each with its command, that got does not have. A
// member that is not always there in want may always be there in got.
func missingMembers(want, got string) (missing []string) {
	has := make(map[string]bool)
	for command, member := range memberLines(got) {
		has[command+": "+member] = true
	}
	for command, member := range memberLines(want) {
		if line := command + ": " + member; !has[line] && !has[strings.TrimSuffix(line, sometimes)] {
			missing = append(missing, line)
		}
	}
	return missing
}

// memberLines yields the command and the member of each line of a text as testdata/members.txt has
// it.
func memberLines(text string) func(yield func(command, member string) bool) {
	return func(yield func(command, member string) bool) {
		command := ""
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			member, isMember := strings.CutPrefix(line, "  ")
			if !isMember {
				command = line
			} else if !yield(command, member) {
				return
			}
		}
	}
}

// sometimes stands behind a member that is not in every object.
const sometimes = ", not always"

// membersOf lists the members of JSON objects, one a line of text, each as its path, its kind, and
// whether it is sometimes left out.
func membersOf(t *testing.T, text string) (lines []string) {
	t.Helper()
	kinds, counts := make(map[string]string), make(map[string]int)
	objects := make(map[string]int) // by the path of their members, without the names
	var visit func(path string, v any)
	note := func(path, kind string) {
		if kinds[path] != "" && kinds[path] != kind {
			t.Errorf("%s is a %s and a %s in\n%s", path, kinds[path], kind, text)
		}
		kinds[path] = kind
		counts[path]++
	}
	visit = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			objects[path]++
			for name, value := range v {
				under := path + "." + name
				note(under, kindOf(value))
				if !slices.Contains([]string{"headers", "headers_base64", "rejected", "topics"}, name) { // their names are data
					visit(under, value)
				}
			}
		case []any:
			for _, item := range v {
				visit(path+"[]", item)
			}
		}
	}
	for line := range strings.Lines(text) {
		visit("", decode(t, line))
	}
	if len(kinds) == 0 {
		t.Fatalf("no JSON in %q", text)
	}
	for _, path := range slices.Sorted(maps.Keys(kinds)) {
		line := strings.TrimPrefix(path, ".") + " " + kinds[path]
		if counts[path] < objects[path[:strings.LastIndex(path, ".")]] {
			line += sometimes
		}
		lines = append(lines, line)
	}
	return lines
}

// kindOf is the JSON kind of a decoded value; a string in the form of a stamp is a time.
func kindOf(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		if _, err := time.Parse("2006-01-02T15:04:05.000Z", v); err == nil {
			return "time"
		}
		return "string"
	case float64:
		return "number"
	case bool:
		return "boolean"
	}
	return "null"
}

// printedJSON runs commands with --json so that all members of their objects are printed, and
// returns the lines by command. To these it adds the lines of filledShapes.
func printedJSON(t *testing.T) map[string]string {
	out := make(map[string]string)
	keep := func(command string, results ...result) {
		for _, r := range results {
			if r.out == "" {
				t.Fatalf("punctual %q printed nothing: %s", r.args, r.err)
			}
			out[command] += r.out
		}
	}
	printMessages(t, keep)
	printTopics(t, keep)
	printStores(t, keep)
	printTokens(t, keep)
	printBulks(t, keep)
	printSchedules(t, keep)
	keep("demo", playVirtually(t, "--json"))
	for command, shapes := range filledShapes() {
		for _, shape := range shapes {
			line, err := jsonLine(shape)
			if err != nil {
				t.Fatal(err)
			}
			out[command] += string(line)
		}
	}
	return out
}

// printMessages runs the commands about messages.
func printMessages(t *testing.T, keep func(string, ...result)) {
	r := newRig(t)
	r.run("topic", "set", "t", "--dedupe-window", "1d", "--finished-retention", "1d").ok()
	rich := []string{"push", "t", "x", "--json", "--max-attempts", "3", "--expire", "1h", "--drop-expired", "--remember", "1h", "--timeout", "5m", "--header", "k=v"}
	keep("push", r.run(append(rich, "--id", "a")...).ok(), r.run("push", "t", "x", "--json", "--id", "a").ok(),
		r.run("push", "t", "x", "--json", "--id", "a", "--if-exists", "replace").ok())
	lines := "{\"topic\":\"t\",\"id\":\"binary\",\"body_base64\":\"/w==\",\"headers\":{\"k\":\"v\"}}\n{}\n"
	pushed := r.runInput(lines, "push", "--ndjson", "--json").exits(exitError)
	keep("push --ndjson", pushed)
	keep("push --ndjson, refused", result{t, pushed.args, pushed.code, strings.SplitAfter(pushed.err, "\n")[0], ""})
	r.run(append(rich, "--id", "b")...).ok()
	leased := r.claim("t", 1)[0]
	keep("cancel", r.run("cancel", leased.ID, "none", "--json").exits(exitUnwished))
	keep("get", r.run("get", leased.ID, "b", "binary", "--json").ok())
	r.settle(leased, punctual.SettleAck)
	r.run("push", "t", "x", "--id", "retried").ok()
	r.run("push", "t", "x", "--id", "later", "--in", "1h").ok()
	for _, d := range r.claim("t", 3) {
		r.settle(d, map[bool]punctual.Verb{true: punctual.SettleRetry, false: punctual.SettleRelease}[d.ID == "retried"])
	}
	keep("list", r.run("list", "t", "--json", "--limit", "2").ok(), r.run("list", "t", "--json").ok())
	r.run("cancel", "later").ok()
	keep("consume", r.run("consume", "t", "--until-empty", "--json").ok())
	keep("get, finished", r.run("get", "retried", "later", "--json").ok())
	keep("finished", r.run("finished", "t", "--json", "--limit", "1").ok(), r.run("finished", "t", "--json").ok())
	r.run("push", "t", "x", "--id", "late").ok()
	r.kill("t")
	keep("get", r.run("get", "late", "--json").ok())
	keep("list", r.run("list", "t", "--json").ok())
	keep("dead list", r.run("dead", "list", "--json").ok())
	keep("dead requeue", r.run("dead", "requeue", "late", "none", "--json").exits(exitUnwished))
	r.settle(r.claim("t", 1)[0], punctual.SettleAck)
	keep("push", r.run("push", "t", "x", "--json", "--id", "late").ok())
	r.run("push", "t", "x", "--id", "moved", "--in", "1h").ok()
	keep("reschedule", r.run("reschedule", "moved", "none", "--in", "2h", "--json").exits(exitUnwished))
	keep("cancel", r.run("cancel", "moved", "--json").ok())
	for _, id := range []string{"dead-1", "dead-2"} {
		r.run("push", "t", "x", "--id", id).ok()
		r.kill("t")
	}
	keep("dead delete", r.run("dead", "delete", "dead-1", "none", "--json").exits(exitUnwished))
	keep("dead purge", r.run("dead", "purge", "t", "--all", "--json").ok())
	refused := r.run("get", "none", "--json").exits(exitUnwished)
	keep("every command, an error", result{t, refused.args, refused.code, refused.err, ""})
}

// settle ends the lease of a delivery; a failed attempt is retried at once.
func (r *rig) settle(d punctual.Delivery, verb punctual.Verb) {
	r.t.Helper()
	errs, err := r.store.Settle(r.t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: verb, Error: "busy"}})
	if err != nil || errs[0] != nil {
		r.t.Fatalf("settle %s: %v, %v", d.ID, err, errs)
	}
}

// printTopics runs the commands about topics, and check.
func printTopics(t *testing.T, keep func(string, ...result)) {
	r := newRig(t)
	keep("topic set", r.run("topic", "set", "t", "--lease", "1m", "--json").ok())
	keep("topic show", r.run("topic", "show", "t", "--json").ok())
	keep("topics", r.run("topics", "--json").ok())
	r.run("push", "t", "x", "--id", "a", "--in", "1h").ok()
	keep("topics", r.run("topics", "--json").ok())
	keep("stats", r.run("stats", "--json").ok(), r.run("stats", "t", "--json").ok())
	keep("forecast", r.run("forecast", "--json").ok(), r.run("forecast", "t", "--json").ok())
	seen := storekit.Consumer{User: "ann", Name: "host/12", Address: "10.0.0.1", NextEnd: start, LastSeen: start}
	r.reporter = &reporter{All: []storekit.Consumer{seen, {Address: "10.0.0.2", LastSeen: start}}, Others: storekit.Consumer{Leases: 3, LastSeen: start}}
	keep("consumers", r.run("consumers", "t", "--json").ok())
	keep("check", r.run("check", "--json").ok())
	keep("topic pause", r.run("topic", "pause", "t", "--json").ok())
	keep("topic resume", r.run("topic", "resume", "t", "--json").ok())
	keep("topic purge", r.run("topic", "purge", "t", "--yes", "--json").ok())
	keep("topic delete", r.run("topic", "delete", "t", "--yes", "--json").ok())
}

// printStores runs clock, doctor, backup and copy, which are about a store as a whole.
func printStores(t *testing.T, keep func(string, ...result)) {
	dir := filepath.Join(t.TempDir(), "store")
	ahead, err := diskstore.Open(dir, &diskstore.Options{Clock: storekit.NewManualClock(time.Now().AddDate(10, 0, 0))})
	if err != nil {
		t.Fatal(err)
	}
	if err := ahead.Close(); err != nil {
		t.Fatal(err)
	}
	keep("clock", runOn(t, "mem:", "clock", dir, "--set", "--json").ok())
	runOn(t, dir, "push", "t", "x").ok()
	keep("doctor", runOn(t, dir, "doctor", "--json"), runOn(t, "mem:", "doctor", "--json"))
	keep("backup", runOn(t, dir, "backup", filepath.Join(t.TempDir(), "copy"), "--json").ok())
	to := filepath.Join(t.TempDir(), "to")
	keep("copy", onDisk(t, "", "copy", dir, to, "--json").ok(), onDisk(t, "", "copy", dir, to, "--pause", "--yes", "--json").ok())
}

// printTokens runs the commands about tokens.
func printTokens(t *testing.T, keep func(string, ...result)) {
	r := newRig(t)
	r.env["PUNCTUAL_TOKENS"] = filepath.Join(t.TempDir(), "tokens.json")
	made := r.run("token", "new", "a", "--actions", "push", "--expires", "1h", "--json").ok()
	keep("token new", made, r.run("token", "new", "b", "--actions", "work", "--subject", "CN=b", "--expires", "never", "--json").ok())
	var entry struct{ ID string }
	if err := json.Unmarshal([]byte(made.out), &entry); err != nil {
		t.Fatal(err)
	}
	r.run("token", "revoke", entry.ID, "--json")
	keep("token list", r.run("token", "list", "--json").ok())
}

// printBulks runs a bulk change: for show, to its end, with a message that is refused, and cut
// short and continued.
func printBulks(t *testing.T, keep func(string, ...result)) {
	r := withVisits(t)
	shift := []string{"bulk", "shift", "visits", "--by", "1h", "--json"}
	keep("bulk", r.run(append(shift, "--dry-run")...).ok(), r.run("bulk", "cancel", "visits", "--header", "campaign=autumn", "--json", "--dry-run").ok())
	refused := 0
	r.outcome = func(_ punctual.Amendment, out *punctual.Amended) {
		if refused++; refused == 1 {
			out.Err = fmt.Errorf("by the test: %w", punctual.ErrInvalid)
		}
	}
	keep("bulk", r.run(append(shift, "--header", "campaign=autumn")...).exits(exitError))
	r.outcome = nil
	r.amended = func([]punctual.Amendment) error { return errors.New("the cable was pulled") }
	keep("bulk", r.run(shift...).exits(exitError))
	r.amended = nil
	keep("bulk", r.run(shift...).ok())
}

// printSchedules runs the commands about schedules.
func printSchedules(t *testing.T, keep func(string, ...result)) {
	r := newRig(t)
	put := []string{
		"schedule", "put", "t", "rich", "0 9 1 * MON", "--json", "--zone", "Europe/Berlin", "--body", "x", "--header", "k=v", "--until", "2030-01-01T00:00:00Z",
		"--from", "2026-01-01T00:00:00Z", "--except", "12-25", "--spread", "5m", "--overlap", "allow", "--missed", "all", "--grace", "2m", "--limit", "9", "--max-dead", "2",
		"--max-attempts", "3", "--expire", "1h", "--drop-expired", "--remember", "1h",
	}
	often := []string{"schedule", "put", "t", "often", "@every 1h", "--json"}
	keep("schedule put", r.run(put...).ok(), r.run(often...).ok())
	r.clock.Advance(2 * time.Hour)
	overdue := r.run("schedule", "show", "t", "often", "--json").ok()
	r.tick("t")
	keep("schedule show", overdue, r.run("schedule", "show", "t", "often", "--json").ok())
	keep("schedule preview", r.run("schedule", "preview", "0 12 1 * MON", "--json").ok(), r.run("schedule", "preview", "@daily", "--json").ok())
	keep("schedule skip", r.run("schedule", "skip", "t", "often", "--json").ok())
	keep("schedule pause", r.run("schedule", "pause", "t", "often", "until then", "--json").ok())
	keep("schedule list", r.run("schedule", "list", "--json").ok())
	keep("schedule resume", r.run("schedule", "resume", "t", "often", "--json").ok())
	keep("schedule run", r.run("schedule", "run", "t", "often", "--json").ok())
	fill := []string{"schedule", "backfill", "t", "often", "--from", "2026-11-20T08:00:00Z", "--to", "2026-11-20T11:30:00Z", "--json"}
	keep("schedule backfill", r.run(append(fill, "--dry-run")...).ok(), r.run(fill...).ok(), r.run(fill...).ok())
	keep("schedule sync", r.runInput("topic: t\nschedules: [{name: daily, spec: \"@daily\"}]\n", "schedule", "sync", "-", "--json").ok())
	keep("schedule import", r.runInput("@daily tidy\n", "schedule", "import", "crontab", "-", "--topic", "t", "--zone", "UTC", "--yes", "--json").exits(exitOK, "cron sets no time limit"))
	keep("schedule rm", r.run("schedule", "rm", "t", "daily", "--json").ok())
}

// filledShapes are the shapes of commands that are not run here: import and migrate, which need
// another system, serve, which does not end, and version, whose members depend on the build.
// copyJSON is among them so that it is seen with notes.
func filledShapes() map[string][]any {
	set := importer.SetReport{
		Name: "n", Part: "p", Key: "k", Topic: "t", Rejected: map[importer.Reason]int64{"score": 1},
		Surveyed: importer.Surveyed{FirstDue: wire.Time(start), LastDue: wire.Time(start), Notes: []string{"note"}, Topics: map[string]int64{"t": 1}},
		Changed:  map[string]int64{"a priority": 1},
	}
	moved := importer.SetReport{Rejected: map[importer.Reason]int64{}, Moved: importer.Moved{Stored: 1}}
	report := &importer.Report{
		Kind: "zset", Unit: "s", Guessed: true, Sets: []*importer.SetReport{&set, {Surveyed: importer.Surveyed{Topics: map[string]int64{}}}, &moved},
		Remembered: []importer.Remembered{{Topic: "t"}},
	}
	settings := []debug.BuildSetting{{Key: "vcs.revision", Value: "1f"}, {Key: "vcs.time", Value: "now"}, {Key: "vcs.modified", Value: "true"}}
	return map[string][]any{
		"import":           {report, &importer.Report{}},
		"import --rejects": {rejectJSON{Member: wire.Text("x")}, rejectJSON{MemberBase64: []byte{0xff}}},
		"migrate":          {migrationJSON{Pending: []string{}}},
		"serve":            {serveJSON{Listen: []string{}}},
		"version":          {versionOf(&debug.BuildInfo{Settings: settings}, true), versionOf(nil, false)},
		"copy":             {copyJSON{Notes: []string{"note"}}},
	}
}
