package cli

import (
	"strings"
	"testing"
	"time"
)

// grouped makes a topic with two groups and a message that is due in an hour.
func (r *rig) grouped() {
	r.t.Helper()
	r.run("topic", "set", "orders", "--groups", "billing,mail").ok()
	r.run("push", "orders", "hello", "--id", "A-17", "--in", "1h").ok()
}

// A group gets its copy when the message is due, by the process that consumes it, and each other group of the topic as well.
func TestConsumeAGroup(t *testing.T) {
	r := newRig(t)
	r.grouped()
	r.clock.Advance(time.Hour)
	got := r.run("consume", "orders", "--group", "billing", "--count", "1").ok()
	if !strings.Contains(got.out, `"id":"A-17","topic":"orders@g.billing"`) {
		t.Errorf("printed %s", got.out)
	}
	r.run("get", "A-17", "--topic", "orders").exits(exitUnwished)
	r.run("get", "A-17", "--topic", "orders@g.mail").ok()
	// The end of a run waits for what is still to be copied.
	r.run("push", "orders", "hello", "--id", "A-18").ok()
	r.run("consume", "orders", "--group", "mail", "--until-empty").ok().contains("A-17", "A-18")
}

// What is for groups is not for those who consume the topic, and a name that is no group is refused.
func TestConsumeRefusesTheTopicOfGroups(t *testing.T) {
	r := newRig(t)
	r.grouped()
	r.run("consume", "orders", "--count", "1").exits(exitUsage, "billing, mail", "--group")
	r.run("consume", "orders", "--group", "bilings").exits(exitUsage, `no group "bilings"`, "billing, mail")
	r.run("consume", "orders", "--group", "a b").exits(exitUsage)
	r.run("consume", "orders@g.mail", "--group", "mail").exits(exitUsage)
	r.run("consume", "plain", "--group", "mail").exits(exitUsage, "but none")
}

// Before a message is due it is cancelled once, for all groups. Then each group is asked.
func TestCancelInGroups(t *testing.T) {
	r := newRig(t)
	r.grouped()
	r.run("cancel", "A-17", "--topic", "orders", "--group", "all").ok().
		prints("A-17 in orders cancelled\nA-17 in orders@g.billing not_found\nA-17 in orders@g.mail not_found\n")
	r.run("cancel", "A-17", "--topic", "orders", "--group", "all").exits(exitUnwished)

	for _, topic := range []string{"orders@g.billing", "orders@g.mail"} {
		r.run("push", topic, "copy", "--id", "A-18").ok()
	}
	r.run("cancel", "A-18", "--topic", "orders", "--group", "mail").ok()
	r.run("get", "A-18", "--topic", "orders@g.billing").ok()
	r.run("push", "orders@g.mail", "copy", "--id", "A-18").ok()
	r.claim("orders@g.billing", 1)
	r.run("cancel", "A-18", "--topic", "orders", "--group", "all", "--json").exits(exitUnwished).printsJSON(
		`{"id":"A-18","topic":"orders","outcome":"not_found"}`,
		`{"id":"A-18","topic":"orders@g.billing","outcome":"leased"}`,
		`{"id":"A-18","topic":"orders@g.mail","outcome":"cancelled"}`,
	)
	r.run("cancel", "A-18", "--group", "all").exits(exitUsage, "--topic")
}

// A group that was removed keeps its copies, and is counted.
func TestStatsOfGroups(t *testing.T) {
	r := newRig(t)
	r.grouped()
	r.run("push", "orders@g.mail", "copy", "--id", "A-1").ok()
	r.run("topic", "set", "orders", "--groups", "billing").ok()
	got := r.run("stats", "orders", "--groups").ok()
	for _, topic := range []string{"orders ", "orders@g.billing", "orders@g.mail", "total"} {
		if !strings.Contains(strings.ToLower(got.out), topic) {
			t.Errorf("%q is not in\n%s", topic, got.out)
		}
	}
	r.run("stats", "--groups").exits(exitUsage)
}
