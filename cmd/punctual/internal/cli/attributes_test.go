package cli

import (
	"strings"
	"testing"

	attributesrig "github.com/punctualmq/punctual/internal/rigs/attributes"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// TestAttributesAreHandedOn: each attribute is a flag of push and of schedule put, a member of
// lines of NDJSON, and in the help of schedule sync.
func TestAttributesAreHandedOn(t *testing.T) {
	r := newRig(t)
	full := attributesrig.Full(t)
	var flags, shown []string
	help := r.run("schedule", "sync", "--help").ok().out
	line := `{"id":"line","body":""`
	for _, a := range wire.AttributesToShow(full) {
		flags = append(flags, "--"+a.Name, a.Value)
		shown = append(shown, a.Value+"\n")
		line += `,"` + a.Name + `":"` + a.Value + `"`
		if !strings.Contains(help, a.Name) {
			t.Errorf("the help of schedule sync does not name %s", a.Name)
		}
	}
	r.run(append([]string{"push", "a", "body", "--id", "flags", "--in", "1h"}, flags...)...).ok()
	r.runInput(line+"}\n", "push", "a", "--ndjson", "--in", "1h").ok()
	for _, id := range []string{"flags", "line"} {
		m, err := r.store.Get(t.Context(), "a", id)
		if err != nil {
			t.Fatal(err)
		}
		if got := storekit.AttributesOf(&m.Message); got != full {
			t.Errorf("pushed by %s: %+v, want %+v", id, got, full)
		}
	}
	r.run(append([]string{"schedule", "put", "a", "daily", "@daily"}, flags...)...).ok()
	r.run("schedule", "show", "a", "daily").ok().contains(shown...)
}

// What waits for its key says so in lists, and is counted where a topic has keys.
func TestKeysOnTheCommandLine(t *testing.T) {
	r := newRig(t)
	r.run("topic", "set", "calls", "--keyed", "--max-key-leases", "1").ok()
	for _, id := range []string{"c7~1", "c7~2", "c7~3"} {
		r.run("push", "calls", "ring", "--key", "c7", "--id", id).ok()
	}
	r.run("stats").ok().contains("3 (2 wait)")
	r.run("list", "calls", "--state", "ready").ok().contains("waits for its key c7")
	lines := r.run("list", "calls", "--json").ok().contains(`"waiting":true`).out
	r.runInput(strings.ReplaceAll(lines, `"topic":"calls"`, `"topic":"again"`), "push", "--ndjson").ok()
	r.run("stats", "again").ok().contains("3 (2 wait)")
	r.run("get", "c7~2", "--topic", "calls").ok().contains("c7, for which the message waits")
	r.run("push", "calls", "ring", "--key", "a~b").exits(exitUsage, "printable ASCII without ~")
	r.run("bulk", "cancel", "calls", "--key", "c8", "--dry-run").ok().contains("would cancel 0")
	r.run("bulk", "cancel", "calls", "--key", "c7", "--dry-run").ok().contains("would cancel 3")
	r.run("push", "mail", "hello").ok()
	r.run("stats").ok().contains("7 (4 wait)")
	r.run("push", "mail", "ring", "--key", "c7").exits(exitUsage, "whose messages have no keys")
}
