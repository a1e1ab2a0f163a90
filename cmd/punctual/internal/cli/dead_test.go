package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones of these tests, wherever they run

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// A day is that of the local time zone unless --utc is given.
func TestDeadOnLocalDays(t *testing.T) {
	for _, c := range []struct{ zone, args, want string }{
		// a died at 2026-11-20T10:00Z, b and c died 24 hours later.
		{"Asia/Shanghai", "--on 2026-11-20", "a dead"},
		{"Pacific/Kiritimati", "--on 2026-11-20", ""}, // it was midnight there already
		{"Pacific/Kiritimati", "--on 2026-11-21", "a dead"},
		{"Pacific/Kiritimati", "--on 2026-11-20 --utc", "a dead"},
		{"Pacific/Pago_Pago", "--on 2026-11-19", "a dead"}, // not midnight there yet
		{"Pacific/Pago_Pago", "--on 2026-11-19 --utc", ""},
		{"Pacific/Kiritimati", "--on 2026-11-22 --topic t", "b dead"},
		{"Pacific/Kiritimati", "--on 2026-11-22", "b dead, c dead"},
		{":Pacific/Kiritimati", "--on 2026-11-22 u", "c dead"},
	} {
		r := withDead(t)
		r.env["TZ"] = c.zone
		args := append([]string{"dead", "list", "--json"}, strings.Fields(c.args)...)
		if got, _ := listed(t, r.run(args...).ok()); got != c.want {
			t.Errorf("TZ=%s %q: %q, want %q", c.zone, args, got, c.want)
		}
	}
	r := withDead(t)
	r.run("dead", "list", "t", "--topic", "t").exits(exitUsage, "given twice")
}

func TestDeadByReason(t *testing.T) {
	for _, c := range []struct{ reason, want string }{
		{"discarded", "a dead, b dead, c dead"}, {"attempts-used-up", ""}, {"attempts used up", ""}, {"expired", ""},
	} {
		got, _ := listed(t, withDead(t).run("dead", "list", "--json", "--reason", c.reason).ok())
		if got != c.want {
			t.Errorf("dead for reason %q: %q, want %q", c.reason, got, c.want)
		}
	}
	r := withDead(t)
	r.run("dead", "list", "--reason", "bored").exits(exitUsage, "discarded, attempts-used-up, expired")
	r.run("dead", "requeue", "a", "--reason", "discarded").exits(exitUsage, "--reason goes with --all")
	r.run("dead", "requeue", "--all", "--reason", "expired").ok().contains("t: 0 requeued (0 looked at", "u: 0 requeued")
	r.run("dead", "requeue", "--all", "--reason", "discarded").ok().contains("t: 2 requeued (2 looked at", "u: 1 requeued")
}

func TestDeadPurgeAndRequeueOnLocalDays(t *testing.T) {
	for _, c := range []struct {
		args   string
		purged int
	}{
		{"t --on 2026-11-20", 0},
		{"t --on 2026-11-21", 1},
		{"t --on 2026-11-20 --utc", 1},
		{"t --before 2026-11-21", 0},
		{"t --before 2026-11-21 --utc", 1},
		{"t --before 2026-11-20T10:00:00.001Z", 1},
	} {
		r := withDead(t)
		r.env["TZ"] = "Pacific/Kiritimati"
		r.run(append([]string{"dead", "purge", "--json"}, strings.Fields(c.args)...)...).ok().
			printsJSON(fmt.Sprintf(`{"topic":"t","purged":%d}`, c.purged))
	}
	r := withDead(t)
	r.env["TZ"] = "Pacific/Kiritimati"
	r.run("dead", "requeue", "--all", "--on", "2026-11-20").ok().contains("t: 0 requeued")
	r.run("dead", "requeue", "--all", "--on", "2026-11-21").ok().contains("t: 1 requeued", "u: 0 requeued")
}

// A message that dies again as soon as it was requeued is requeued once. One that died before the
// command began is not left out.
func TestRequeuedOnceThoughItDiesAgain(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--all", "a b c"},
		{"t --all", "a b"},
		{"--all --on 2026-11-21", "b c"}, // today, which goes on
		{"--all --on 2026-11-20", "a"},
		{"--all --on 2026-11-22", ""}, // tomorrow
	} {
		r := withDead(t)
		r.clock.Advance(time.Millisecond)
		deaths := map[string]int{}
		var got []string
		r.amended = func(as []punctual.Amendment) error {
			r.clock.Advance(time.Millisecond)
			for _, a := range as {
				if deaths[a.ID]++; deaths[a.ID] > 3 {
					return fmt.Errorf("%s is requeued again and again", a.ID)
				}
				got = append(got, a.ID)
				r.kill(a.Topic)
			}
			return nil
		}
		args := append([]string{"dead", "requeue", "--json"}, strings.Fields(c.args)...)
		res := r.run(args...)
		done := 0.0
		for line := range strings.Lines(res.out) {
			done += decode(t, line).(map[string]any)["done"].(float64)
		}
		if int(done) != len(got) {
			t.Errorf("%q: the reports tell of %v requeued messages, want %d", args, done, len(got))
		}
		if text := strings.Join(got, " "); res.code != exitOK || text != c.want {
			t.Errorf("%q: exit %d, %q, %s; want %q", args, res.code, text, res.err, c.want)
		}
		if len(deaths) != len(got) {
			t.Errorf("this test shows nothing: %d of %d messages died again", len(deaths), len(got))
		}
	}
}

// A message that dies in the millisecond in which the command begins is requeued, too.
func TestRequeueAtTheLastMillisecond(t *testing.T) {
	r := withDead(t) // b and c died now
	r.run("dead", "requeue", "t", "--all").ok().contains("t: 2 requeued (2 looked at")
}

// A day need not begin at midnight, and may have 23 or 25 hours, or 24 and a half.
func TestDayBounds(t *testing.T) {
	for _, c := range []struct{ zone, on, from, to string }{
		{"UTC", "2026-11-20", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"},
		{"Asia/Shanghai", "2021-08-27", "2021-08-26T16:00:00Z", "2021-08-27T16:00:00Z"},
		{"Europe/Berlin", "2026-03-29", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},       // 23 hours
		{"Europe/Berlin", "2026-10-25", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},       // 25 hours
		{"America/Sao_Paulo", "2018-11-04", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},   // no midnight
		{"America/Sao_Paulo", "2018-11-03", "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z"},   // the day before
		{"America/Havana", "2026-11-01", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},      // midnight twice
		{"Australia/Lord_Howe", "2026-04-05", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"}, // half an hour
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		f := dayFlags{on: c.on}
		from, to, err := f.bounds(zone)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := from.UTC().Format(time.RFC3339)+" "+to.UTC().Format(time.RFC3339), c.from+" "+c.to; got != want {
			t.Errorf("%s on %s: %s, want %s", c.zone, c.on, got, want)
		}
	}
}

// The export of a day has every message once, with its topic and reason, over three pages.
func TestDeadListExports(t *testing.T) {
	r := newRig(t)
	r.env["TZ"] = "UTC"
	n := r.expirePages()
	out := r.run("dead", "list", "--topic", "t", "--on", "2026-11-20", "--json", "--limit", "0").ok().out
	seen := map[any]bool{}
	for line := range strings.Lines(out) {
		m := decode(t, line).(map[string]any)
		if m["reason"] != string(punctual.ReasonExpired) || m["topic"] != "t" || m["next"] != nil {
			t.Fatalf("line %s", line)
		}
		seen[m["id"]] = true
	}
	if lines := strings.Count(out, "\n"); lines != n || len(seen) != n {
		t.Errorf("%d lines with %d messages, want %d", lines, len(seen), n)
	}
	r.run("dead", "list", "--on", "2026-11-21", "--json", "--limit", "0").ok().prints("")
}

// requeues is a store in which somebody requeues each message right after it was looked at.
type requeues struct{ *memstore.Store }

func (s requeues) Get(ctx context.Context, topic, id string) (punctual.Info, error) {
	i, err := s.Store.Get(ctx, topic, id)
	if err != nil || i.State != punctual.StateDead {
		return i, err
	}
	done, err := s.Amend(ctx, []punctual.Amendment{{Change: punctual.ChangeRequeue, Topic: topic, ID: id}})
	if err == nil {
		err = done[0].Err
	}
	return i, err
}

// A message that is requeued after 'dead delete' has seen that it is dead is not deleted.
func TestDeadDeleteBesideARequeue(t *testing.T) {
	r := withDead(t)
	r.clock.Advance(time.Hour)
	s := requeues{r.store}
	out, err := amend(t.Context(), s, s, punctual.Amendment{Change: punctual.ChangeDelete}, []found{{"a", "t"}}, &tally{})
	if err != nil || !errors.Is(out[0].outcome.Err, punctual.ErrChanged) {
		t.Errorf("%v, %v; want ErrChanged", out[0].outcome.Err, err)
	}
	if m := r.get("t", "a"); m.State != punctual.StateReady {
		t.Errorf("the message is %v, want it ready", m.State)
	}
}

// 'dead delete' deletes single dead messages, and refuses to delete one that is still to be
// delivered.
func TestDeadDelete(t *testing.T) {
	r := withDead(t)
	r.run("push", "t", "x", "--id", "live", "--in", "1h").ok()
	r.run("cancel", "a", "--topic", "t").exits(exitUnwished, `ID "a": it is dead: 'punctual dead requeue' delivers it again, 'punctual dead delete' removes it`)
	r.run("dead", "delete", "a", "live", "unknown", "--topic", "t", "--json").exits(exitUnwished).
		printsJSON(`{"id":"a","topic":"t","outcome":"deleted"}`, `{"id":"live","topic":"t","outcome":"not_dead"}`, `{"id":"unknown","topic":"t","outcome":"not_found"}`)
	r.run("dead", "delete", "live").exits(exitUnwished, "it is not dead: nothing was changed")
	if m := r.get("t", "live"); m.State != punctual.StateScheduled {
		t.Errorf("a message that is not dead is %v after it was to be deleted, want it scheduled", m.State)
	}
	r.run("dead", "delete", "a", "--topic", "t").exits(exitUnwished, "there is no such message to be deleted")
	r.run("dead", "delete", "b").ok().prints("b deleted\n")
	if got, _ := listed(t, r.run("dead", "list", "--json").ok()); got != "c dead" {
		t.Errorf("%q are dead, want c alone", got)
	}
	r.run("dead", "delete").exits(exitUsage)

	r = withDead(t)
	r.run("dead", "delete", "-", "a").exits(exitUsage, "stands alone")
	r.runInput("a\nb\n", "dead", "delete", "--topic", "t", "-").ok().prints("a deleted\nb deleted\n")
	r.runInput("c\n", "dead", "delete", "-").ok().prints("c deleted\n")
}
