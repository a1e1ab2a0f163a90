package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
)

// withVisits is a rig whose topic visits has 30 messages. They are due from 11:00 on, each an hour
// after the one before, and every third of them, beginning with the first, has the header
// campaign=autumn.
func withVisits(t *testing.T) *rig {
	r := newRig(t)
	var lines strings.Builder
	for i := range 30 {
		headers := ""
		if i%3 == 0 {
			headers = `,"headers":{"campaign":"autumn"}`
		}
		fmt.Fprintf(&lines, `{"id":"v-%02d","body":"x","in":"%dh"%s}`+"\n", i, i+1, headers)
	}
	r.runInput(lines.String(), "push", "visits", "--ndjson").ok()
	return r
}

func (r *rig) dueOf(id string) string { return r.get("visits", id).Due.Format("2 15:04") }

func TestBulkShift(t *testing.T) {
	r := withVisits(t)
	r.env["TZ"] = "UTC"
	args := []string{"bulk", "shift", "visits", "--by", "+90m", "--from", "2026-11-20 13:00", "--to", "tomorrow 12:00", "--header", "campaign=autumn"}
	dry := r.run(append(args, "--dry-run")...).ok()
	dry.contains("visits: would shift 8 of 23 looked at\n  v-24  2026-11-21T11:00:00.000Z → 2026-11-21T12:30:00.000Z\n")
	if got := r.dueOf("v-24"); got != "21 11:00" {
		t.Errorf("a dry run moved v-24 to %s", got)
	}
	r.run(args...).ok().contains("8 moved (23 looked at, ")
	for id, want := range map[string]string{"v-00": "20 11:00", "v-03": "20 15:30", "v-04": "20 15:00", "v-24": "21 12:30", "v-27": "21 14:00"} {
		if got := r.dueOf(id); got != want {
			t.Errorf("%s is due at %s, want %s", id, got, want)
		}
	}
	r.run("bulk", "shift", "visits", "--by", "-1h", "--id-prefix", "v-0", "--json").ok().contains(`"done":10`)
	if got := r.dueOf("v-00"); got != "20 10:00" {
		t.Errorf("v-00 is due at %s, want 20 10:00", got)
	}
}

// When a shift ends early, its error says that the same command goes on. That is so: it moves the
// rest, and no message twice.
func TestBulkContinues(t *testing.T) {
	r := withVisits(t)
	calls := 0
	r.amended = func([]punctual.Amendment) error {
		if calls++; calls == 2 {
			return errors.New("the cable was pulled")
		}
		return nil
	}
	r.run("bulk", "shift", "visits", "--by", "2h30m", "--json").exits(exitError, "the cable was pulled", "the same command goes on")
	r.run("bulk", "shift", "visits", "--by", "2h30m").ok().contains("visits: continued what began at 2026-11-20T10:00:00.000Z: ")
	for i := range 30 {
		m := r.get("visits", fmt.Sprintf("v-%02d", i))
		if moved := m.Due.Sub(start).Hours() - float64(i+1); moved != 2.5 {
			t.Errorf("%s was moved by %v hours, want 2.5", m.ID, moved)
		}
	}
}

// An error that ends a bulk change is not definite once messages were changed.
func TestBulkThatIsCutShortIsNotDefinite(t *testing.T) {
	r := withVisits(t)
	cancel := []string{"bulk", "cancel", "visits", "--yes", "--json"}
	full := 0
	r.outcome = func(_ punctual.Amendment, out *punctual.Amended) {
		if full++; full > 1 {
			out.Err = fmt.Errorf("by the test: %w", punctual.ErrNoSpace)
		}
	}
	r.run(cancel...).exits(exitError, "done before that: 1").failsWith("no_space", false)
}

func TestBulkRemoves(t *testing.T) {
	r := withVisits(t)
	r.run("bulk", "cancel", "visits").exits(exitUsage, "say --yes")
	r.run("bulk", "cancel", "visits", "--id-prefix", "v-1", "--yes").ok().contains("10 cancelled (30 looked at, ")
	r.run("bulk", "delete", "visits", "--yes").exits(exitUsage, "without a state: name scheduled, ready, leased or dead")
	r.run("bulk", "delete", "visits", "--state", "scheduled", "--id-prefix", "v-0", "--yes", "--json").ok().contains(`"done":10`)
	r.run("bulk", "reschedule", "visits", "--now").ok().contains("10 rescheduled")
	for range 10 {
		r.kill("visits")
	}
	r.run("bulk", "requeue", "visits", "--reason", "expired").ok().contains("0 requeued")
	r.run("bulk", "requeue", "visits", "--reason", "discarded", "--in", "1h", "--rate", "1000").ok().contains("10 requeued")
}

func TestBulkUsage(t *testing.T) {
	r := withVisits(t)
	for _, c := range []struct {
		args string
		text string
	}{
		{"shift visits", "use whole milliseconds, like 1h or -90m"},
		{"shift visits --by 0h", "use whole milliseconds, like 1h or -90m"},
		{"shift visits --by --1h", "negative"},
		{"reschedule visits", "use --in, --at or --now"},
		{"reschedule visits --in 1h --now", "use one"},
		{"cancel visits --state dead --yes", "not possible"},
		{"cancel visits --state asleep --yes", "scheduled, ready, leased or dead"},
		{"cancel visits --header campaign --yes", "NAME=VALUE"},
		{"cancel visits --rate fast --yes", `invalid argument "fast"`},
		{"cancel visits --from yesterday --yes", "not understood"},
		{"requeue visits --reason bored", "discarded, attempts-used-up, expired"},
		{"twist visits", "unknown command"},
	} {
		r.run(append([]string{"bulk"}, strings.Fields(c.args)...)...).exits(exitUsage, c.text)
	}
	r.run("bulk", "cancel", "nobody", "--yes").exits(exitUnwished, "nobody")
}
