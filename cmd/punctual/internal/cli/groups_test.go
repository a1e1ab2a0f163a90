package cli

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// grouped makes a topic with two groups and a message that is due in an hour.
func (r *rig) grouped() {
	r.t.Helper()
	r.run("topic", "set", "orders", "--groups", "billing,mail").ok()
	r.run("push", "orders", "hello", "--id", "A-17", "--in", "1h").ok()
}

// The process that consumes a group makes the copies of a due message, for this group and for each
// other group of the topic.
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
	// With --until-empty a run also waits for messages that are still to be copied.
	r.run("push", "orders", "hello", "--id", "A-18").ok()
	r.run("consume", "orders", "--group", "mail", "--until-empty").ok().contains("A-17", "A-18")
}

// To consume a topic whose messages are for groups is refused without --group, and so is a name
// that is not one of its groups.
func TestConsumeRefusesTheTopicOfGroups(t *testing.T) {
	r := newRig(t)
	r.grouped()
	r.run("consume", "orders", "--count", "1").exits(exitUsage, "billing, mail", "--group")
	r.run("consume", "orders", "--group", "bilings").exits(exitUsage, `no group "bilings"`, "billing, mail")
	r.run("consume", "orders", "--group", "a b").exits(exitUsage)
	r.run("consume", "orders@g.mail", "--group", "mail").exits(exitUsage)
	r.run("consume", "plain", "--group", "mail").exits(exitUsage, "but none")
}

// Before a message is due, one cancel is enough for all groups. Once there are copies, --group all
// cancels each of them that nobody works on.
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

	// The message is due at another time than --if-due, and there is no copy: its outcome is
	// "changed", not "not found".
	r.run("push", "orders", "hello", "--id", "A-19", "--in", "1h").ok()
	due := stamp(r.get("orders", "A-19").Due)
	r.run("cancel", "A-19", "--topic", "orders", "--group", "all", "--if-due", "2026-12-24T00:00:00Z", "--json").
		exits(exitUnwished, "due at another time").failsWith("changed", true)
	r.run("cancel", "A-19", "--topic", "orders", "--group", "all", "--if-due", due).ok()

	// All are cancelled, although nobody reads what became of them.
	for _, id := range []string{"A-20", "A-21", "A-22"} {
		r.run("push", "orders", "hello", "--id", id).ok()
	}
	var errs buffer
	if code := r.app(nobodyReads{}, &errs).run(t.Context(), []string{"cancel", "A-20", "A-21", "A-22", "--topic", "orders", "--group", "all"}); code == exitOK || errs.String() != "" {
		t.Errorf("exit %d, standard error %q; want the exit of a broken pipe and no words", code, errs.String())
	}
	for _, id := range []string{"A-20", "A-21", "A-22"} {
		r.run("get", id, "--topic", "orders").exits(exitUnwished, "not found")
	}
}

// nobodyReads is the standard output of a command whose reader has ended.
type nobodyReads struct{}

func (nobodyReads) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// A run stores the messages of its topics' schedules with --schedules alone, also the run of a
// group, which makes the copies of the topic.
func TestConsumeStoresSchedulesWhenAsked(t *testing.T) {
	for _, c := range []struct {
		topic     string
		group     bool
		schedules bool
		count     int64
	}{
		{"orders@g.billing", true, false, 0},
		{"orders@g.billing", true, true, 0},
		{"orders@g.billing", true, false, 1000},
		{"orders@g.billing", true, true, 1000},
		{"orders", false, false, 0},
		{"orders", false, true, 0},
		{"orders", false, false, 1000},
		{"orders", false, true, 1000},
	} {
		t.Run(fmt.Sprintf("%s schedules=%v count=%d", c.topic, c.schedules, c.count), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New(nil)
				q := punctual.NewQueue(mem, nil)
				if c.group {
					if _, err := mem.Configure(t.Context(), "orders", punctual.SettingsPatch{Groups: &[]string{"billing"}}); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := schedule.Put(t.Context(), q, schedule.Schedule{Topic: "orders", Name: "often", Spec: "@every 10s"}); err != nil {
					t.Fatal(err)
				}
				if _, err := q.Push(t.Context(), "orders", []byte("x"), punctual.ID("pushed")); err != nil {
					t.Fatal(err)
				}
				ctx, end := context.WithTimeout(t.Context(), time.Minute)
				defer end()
				var out, errs buffer
				a := (&rig{t: t, clock: storekit.NewManualClock(start)}).app(&out, &errs)
				f := consumeFlags{concurrency: 1, schedules: c.schedules, count: c.count}
				if err := a.consume(ctx, mem, []string{c.topic}, f); err != nil {
					t.Error(err)
				}
				if !strings.Contains(out.String(), `"id":"pushed"`) {
					t.Fatalf("the run did not even deliver what was pushed: %s%s", out.String(), errs.String())
				}
				if stored := strings.Contains(out.String(), `"id":"often~`); stored != c.schedules {
					t.Errorf("a message of the schedule was delivered: %v, want %v", stored, c.schedules)
				}
				if err := mem.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// 'stats --groups' counts the topic and its groups, and also a group that was removed from the
// topic and still has copies.
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
