package importer

import (
	"bytes"
	"context"
	"fmt"
	neturl "net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/schedule"
)

// quartzTables returns the URL of a database with the triggers that Quartz 2.3.2 has written
// (testdata/quartz).
func (r *rig) quartzTables() (url string) {
	r.t.Helper()
	r.sql()
	dump, err := os.ReadFile("testdata/quartz-2.3.2.sql")
	r.must(err)
	r.exec(string(dump))
	return r.db.Config().ConnString()
}

// The triggers that Quartz has stored become schedules that come next when Quartz says that it
// would fire them next.
func TestQuartzSchedules(t *testing.T) {
	r := newRig(t)
	url := r.quartzTables()
	all, problems, err := ReadSchedules(t.Context(), url, Quartz, ScheduleOptions{Now: scheduleDay, Prefix: "QRTZ_", Queues: []string{"shop"}, Topic: "jobs"})
	r.must(err)
	const start = 1798761607000
	want := map[string]schedule.Schedule{
		"backlog":  {Spec: "0 0 12 LW * ?", Zone: "UTC", Missed: schedule.MissedAll},
		"five":     {Spec: "@every 1m0s", From: time.UnixMilli(1798761600000), Limit: 5},
		"night":    {Spec: "0 30 2 * * ?", Zone: "Europe/Berlin", Missed: schedule.MissedNone, Until: time.UnixMilli(1893456000000)},
		"past":     {Spec: "0 0 8 * * ?", Zone: "UTC", From: time.UnixMilli(1795132800000)},
		"paused":   {Spec: "0 0 6 * * ?", Zone: "UTC"},
		"poll":     {Spec: "@every 1m30s", Missed: schedule.MissedNone},
		"recover":  {Spec: "0 0 7 * * ?", Zone: "UTC"},
		"single":   {Spec: "0 0/10 * * * ?", Zone: "UTC", Overlap: schedule.OverlapSkip},
		"weekdays": {Spec: "0 0 9 ? * MON-FRI", Zone: "Europe/Berlin"},
	}
	for _, s := range all {
		w, ok := want[s.Name]
		delete(want, s.Name)
		class := "Store$Plain"
		if s.Name == "single" {
			class = "Store$Single"
		}
		w.Topic, w.Name, w.MaxAttempts = "jobs", s.Name, 1
		if w.From.IsZero() {
			w.From = time.UnixMilli(start)
		}
		if w.Overlap == 0 && s.Name != "single" {
			w.Overlap = schedule.OverlapAllow
		}
		w.Headers = map[string]string{"quartz-job": "reports." + s.Name, "quartz-job-class": class, "quartz-trigger": "DEFAULT." + s.Name}
		if s.Name == "weekdays" {
			if !strings.HasPrefix(string(s.Body), "\xac\xed\x00\x05") || !strings.Contains(string(s.Body), "region") {
				t.Errorf("the body is %q; want the map that Java has written", s.Body)
			}
			w.Body = s.Body
		}
		if !ok || !s.Same(w) || (s.Paused != "") != (s.Name == "paused") {
			t.Errorf("%+v\nwant %+v", s, w)
		}
		var fire int64
		r.must(r.db.QueryRow(t.Context(), "select next_fire_time from qrtz_triggers where trigger_name = $1", s.Name).Scan(&fire))
		times, err := s.Preview(time.UnixMilli(min(scheduleDay.UnixMilli(), fire)).Add(-time.Second), 1)
		r.must(err)
		if s.Name != "poll" && times.Next[0].At.UnixMilli() != fire {
			t.Errorf("%s comes at %v; Quartz would fire it at %v", s.Name, times.Next[0].At, time.UnixMilli(fire).UTC())
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	wantProblems(t, problems, map[string]string{
		"shop/DEFAULT.five":       "changed: when times were missed, its interval and its number of times begin anew there",
		"shop/DEFAULT.holidays":   "left: its calendar holidays excludes times",
		"shop/DEFAULT.monthly":    "left: a trigger of type CAL_INT",
		"shop/DEFAULT.night":      "changed: at the clock change of 2027-03-28 Punctual comes at Sun 03:00:00 +02:00, and Quartz does not; ",
		"shop/DEFAULT.office":     "left: a trigger of type DAILY_I",
		"shop/DEFAULT.once":       "left: it comes once, at 2027-01-01T00:00:07Z",
		"shop/DEFAULT.own":        "left: a trigger of type BLOB",
		"shop/DEFAULT.owndata":    "left: its job and the trigger both have data in Java's",
		"shop/DEFAULT.past":       "changed: Quartz has not fired it at 2026-11-20T08:00:00Z",
		"shop/DEFAULT.paused":     "note: it is paused in Quartz",
		"shop/DEFAULT.poll":       "changed: it comes 7000 ms behind the multiples of its interval",
		"shop/DEFAULT.quick":      "left: every 1500 ms",
		"shop/DEFAULT.recover":    "changed: requestsRecovery",
		"shop/DEFAULT.shortmonth": "left: schedule \"0 0 12 31W * ?\"",
		"shop/DEFAULT.single":     "changed: with DisallowConcurrentExecution a time waits there",
		"shop/DEFAULT.weekdays":   "note: 0 0 9 ? * 2-6 is written 0 0 9 ? * MON-FRI here; changed: its data is a JobDataMap",
	})

	// Of a scheduler with useProperties the data is a text, to which the trigger's is added.
	all, problems, err = ReadSchedules(t.Context(), url, Quartz, ScheduleOptions{Now: scheduleDay, Prefix: "qrtz_", Queues: []string{"props"}})
	r.must(err)
	if len(all) != 1 || all[0].Topic != "reports.merged" || string(all[0].Body) != "note=\\u00E9 \\= 1\nregion=eu\nregion=us\n" || len(problems) > 0 {
		t.Errorf("%+v, %v", all, problems)
	}
}

// What the states, misfire instructions and counts of single triggers become.
func TestQuartzTriggers(t *testing.T) {
	const start = 1798761600000 // 2027-01-01T00:00:00Z
	for _, c := range []struct {
		set  func(*quartzTrigger)
		want string
	}{
		{func(q *quartzTrigger) { q.State = "ERROR" }, "left: its state is ERROR"},
		{func(q *quartzTrigger) { q.State = "COMPLETE" }, "left: its state is COMPLETE"},
		{func(q *quartzTrigger) { q.State, q.Priority, q.Misfire = "ACQUIRED", 7, -1 }, "allow all; changed: its priority 7 has no counterpart here"},
		{func(q *quartzTrigger) { q.State, q.Misfire = "PAUSED_BLOCKED", 1 }, "allow latest, paused"},
		{func(q *quartzTrigger) { q.Misfire = 2 }, "allow none"},
		{func(q *quartzTrigger) { q.Single, q.Persist = true, true }, "skip latest; changed: with DisallowConcurrentExecution; changed: PersistJobDataAfterExecution keeps"},
		{func(q *quartzTrigger) { q.Zone = "" }, "left: say with --zone which zone's clock it means"},
		{func(q *quartzTrigger) { q.Zone = "EST5EDT,M3.2.0" }, "left: "},
		{func(q *quartzTrigger) {
			q.JobData, q.Data = javaMap("w\x08\x00\x00\x00\x10\x00\x00\x00\x00x\x00"), javaMap("b")
		}, "allow latest; changed: its data is a JobDataMap"},
		{func(q *quartzTrigger) { q.Count, q.Interval, q.Misfire = 4, 60_000, 1 }, "allow latest, 5 times; changed: when times were missed"},
		{func(q *quartzTrigger) { q.Count, q.Interval, q.Misfire = 4, 60_000, 4 }, "allow none, 5 times, until 2027-01-01T00:04:00Z"},
		{func(q *quartzTrigger) { q.Count, q.Interval, q.Misfire, q.End = 4, 60_000, 5, start+120_000 }, "allow none, 5 times, until 2027-01-01T00:01:59.999Z"},
		{func(q *quartzTrigger) { q.Count, q.Interval, q.Misfire, q.Next = 4, 60_000, -1, start+180_000 }, "allow all, 2 times"},
		{func(q *quartzTrigger) { q.Count, q.Interval, q.Misfire, q.Triggered = 4, 60_000, -1, 4 }, "allow all, 1 times"},
		{
			func(q *quartzTrigger) {
				q.Count, q.Interval, q.Misfire, q.Start, q.Next = 4, 60_000, 4, start+7000, start+67_000
			},
			"allow none, 4 times, until 2027-01-01T00:05:00Z; changed: it comes 7000 ms behind",
		},
		{func(q *quartzTrigger) { q.Count, q.Interval = -1, 60_000 }, "allow none"},
	} {
		q := quartzTrigger{Scheduler: "s", Name: "DEFAULT.t", Job: "DEFAULT.job", Class: "Job", Type: "CRON", State: "WAITING", Priority: 5, Start: start, Next: start, Cron: "0 0 9 * * ?", Zone: "UTC"}
		if c.set(&q); q.Interval > 0 {
			q.Type = "SIMPLE"
		}
		r := newSchedules(&ScheduleOptions{Now: scheduleDay})
		r.quartz(&q)
		var got []string
		for _, s := range r.all {
			text := fmt.Sprint(s.Overlap, " ", s.Missed)
			if s.Limit > 0 {
				text += fmt.Sprintf(", %d times", s.Limit)
			}
			if !s.Until.IsZero() {
				text += ", until " + s.Until.UTC().Format(time.RFC3339Nano)
			}
			if s.Paused != "" {
				text += ", paused"
			}
			got = append(got, text)
		}
		for _, f := range r.findings {
			if f.Kind != cron.Noted {
				got = append(got, map[cron.FindingKind]string{cron.Changed: "changed: ", cron.Left: "left: "}[f.Kind]+f.Text)
			}
		}
		want := strings.Split(c.want, "; ")
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("%+v\nis %q; want %q", q, got, want)
		}
	}
}

// javaMap is a map in Java's form with its end.
func javaMap(end string) []byte { return append(bytes.Clone(javaObject), end...) }

// What is not Quartz 2, or may not be read, is refused with the remedy, and without a trigger
// nothing is found.
func TestQuartzRefuses(t *testing.T) {
	r := newRig(t)
	url := r.quartzTables()
	r.exec("create schema old")
	r.exec("create table old.qrtz_triggers (trigger_name text, trigger_group text, is_volatile bool)")
	for _, table := range []string{"job_details", "cron_triggers", "simple_triggers"} {
		r.exec("create table old.qrtz_" + table + " (job_name text, trigger_name text)")
	}
	const user = "quartz_reads_nothing"
	r.exec("create role " + user + " login")
	t.Cleanup(func() {
		if _, err := r.db.Exec(context.Background(), "drop role "+user); err != nil {
			t.Error(err)
		}
	})
	as, err := neturl.Parse(url)
	r.must(err)
	as.User = neturl.User(user)
	for _, c := range []struct{ url, prefix, want string }{
		{url, "other_", "name their beginning with --prefix"},
		{url, "none.qrtz_", "name their beginning with --prefix"},
		{url, "old.qrtz_", "no tables of Quartz 2 begin with old.qrtz_"},
		{as.String(), "qrtz_", "this user lacks a right on the source"},
	} {
		all, _, err := ReadSchedules(t.Context(), c.url, Quartz, ScheduleOptions{Now: scheduleDay, Prefix: c.prefix})
		if err == nil || !strings.Contains(err.Error(), c.want) || len(all) > 0 {
			t.Errorf("%s: %v, %v; want %q", c.prefix, all, err, c.want)
		}
	}
	all, problems, err := ReadSchedules(t.Context(), url, Quartz, ScheduleOptions{Now: scheduleDay, Prefix: "qrtz_", Queues: []string{"nosuch"}})
	if err != nil || len(all)+len(problems) > 0 {
		t.Errorf("of a scheduler that is not there: %v, %v, %v", all, problems, err)
	}
}
