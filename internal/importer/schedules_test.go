package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/schedule"
)

// scheduleDay is when the schedules of these tests are read.
var scheduleDay = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// bullSchedulers are what BullMQ 6.7.0 writes for upsertJobScheduler, and at the end what other
// versions write or could.
var bullSchedulers = map[string]map[string]string{
	"daily": {
		"name": "make", "pattern": "0 9 * * 1-5", "tz": "Europe/Berlin", "data": `{"report":"daily"}`, "ic": "1", "offset": "0",
		"opts": `{"priority":4,"removeOnComplete":true,"backoff":{"delay":1000,"type":"exponential"},"attempts":3}`,
	},
	"often":           {"name": "often", "every": "90000", "ic": "1", "offset": "83884"},
	"odd":             {"name": "odd", "every": "1500", "ic": "1", "offset": "395"},
	"notz":            {"name": "night", "pattern": "0 30 2 * * *", "ic": "1", "offset": "0"},
	"bounded":         {"name": "bounded", "every": "60000", "ic": "3", "offset": "0", "data": `"text"`, "limit": "5", "startDate": "1893456000000", "endDate": "1924992000000"},
	"thirds":          {"name": "thirds", "pattern": "0 9 * * 1/3", "tz": "UTC", "ic": "1"},
	"never":           {"name": "never", "pattern": "H 9 * * *", "tz": "UTC", "ic": "1", "offset": "0"},
	"customer:4711/é": {"name": "x", "pattern": "@daily", "tz": "UTC", "ic": "1", "offset": "0"},
	"reached":         {"name": "reached", "every": "60000", "ic": "6", "limit": "5"},
	"past":            {"name": "past", "every": "60000", "ic": "6", "endDate": "1700000000000"},
	"newer":           {"name": "newer", "every": "60000", "jitter": "5"},
	"custom":          {"name": "custom"},
}

func TestBullSchedules(t *testing.T) {
	r := newRig(t)
	for id, f := range bullSchedulers {
		r.zadd("bull:reports:repeat", id, 1)
		r.must(r.client.HSet(t.Context(), "bull:reports:repeat:"+id, f).Err())
	}
	r.zadd("other:mail:repeat", "x", 1)
	r.must(r.client.HSet(t.Context(), "other:mail:repeat:x", "name", "x", "every", "1000").Err())
	before := r.client.DBSize(t.Context()).Val()

	all, problems, err := ReadSchedules(t.Context(), "redis://"+shared.Addr, BullMQ, ScheduleOptions{Now: scheduleDay})
	r.must(err)
	got := make(map[string]schedule.Schedule)
	for _, s := range all {
		got[s.Name] = s.Schedule
	}
	want := map[string]schedule.Schedule{
		"daily": {Spec: "0 9 * * 1-5", Zone: "Europe/Berlin", Body: []byte(`{"report":"daily"}`), Headers: map[string]string{headerBullName: "make"}, MaxAttempts: 3},
		"often": {Spec: "@every 1m30s", Body: []byte("{}"), Headers: map[string]string{headerBullName: "often"}},
		"bounded": {
			Spec: "@every 1m0s", Body: []byte(`"text"`), Headers: map[string]string{headerBullName: "bounded"}, Limit: 3,
			From: time.UnixMilli(1893456000000), Until: time.UnixMilli(1924992000000),
		},
		"thirds":          {Spec: "0 9 * * SUN,MON,THU", Zone: "UTC", Body: []byte("{}"), Headers: map[string]string{headerBullName: "thirds"}},
		"customer:4711--": {Spec: "@daily", Zone: "UTC", Body: []byte("{}"), Headers: map[string]string{headerBullName: "x"}},
	}
	for name, w := range want {
		w.Topic, w.Name, w.MaxAttempts = "reports", name, cmp.Or(w.MaxAttempts, 1)
		if g := got[name]; !g.Same(w) {
			t.Errorf("%s is %+v\nwant %+v", name, g, w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d schedules; want %d: %+v", len(got), len(want), all)
	}
	wantProblems(t, problems, map[string]string{
		"reports/daily":           "changed: option priority of its jobs, 4, has no counterpart here; changed: backoff {\"delay\":1000,\"type\":\"exponential\"} is a setting of the topic here",
		"reports/often":           "changed: it comes 83884 ms behind",
		"reports/customer:4711/é": "note: its name is customer:4711-- here",
		"reports/thirds":          "note: 0 9 * * 1/3 is written 0 9 * * SUN,MON,THU here",
		"reports/odd":             "left: every 1500 ms: times here are of whole seconds",
		"reports/notz":            "left: say with --zone",
		"reports/never":           "left: schedule \"H 9 * * *\"",
		"reports/reached":         "left: its limit of 5 jobs is reached",
		"reports/past":            "left: schedule past in reports: no time is left until",
		"reports/newer":           "left: its field jitter is not known here",
		"reports/custom":          "left: it has neither a pattern nor an interval",
	})
	if n := r.client.DBSize(t.Context()).Val(); n != before {
		t.Errorf("reading has changed Redis: %d keys, then %d", before, n)
	}

	all, _, err = ReadSchedules(t.Context(), "redis://"+shared.Addr, BullMQ, ScheduleOptions{
		Now: scheduleDay, Zone: "Asia/Tokyo", Topic: "jobs", Queues: []string{"mail"}, Prefix: "other", Overlap: new(schedule.OverlapReplace), Missed: new(schedule.MissedAll),
	})
	r.must(err)
	if len(all) != 1 || all[0].Topic != "jobs" || all[0].Overlap != schedule.OverlapReplace || all[0].Missed != schedule.MissedAll {
		t.Errorf("%+v", all)
	}

	// A schedule that names its zone keeps it beside --zone.
	all, _, err = ReadSchedules(t.Context(), "redis://"+shared.Addr, BullMQ, ScheduleOptions{Now: scheduleDay, Zone: "Asia/Tokyo"})
	r.must(err)
	zones := make(map[string]string)
	for _, s := range all {
		zones[s.Name] = s.Zone
	}
	if zones["daily"] != "Europe/Berlin" || zones["notz"] != "Asia/Tokyo" {
		t.Errorf("beside --zone Asia/Tokyo the zones are %q", zones)
	}

	// A prefix stands for itself also where Redis would read it as a pattern.
	r.zadd("o[1]:mail:repeat", "y", 1)
	r.must(r.client.HSet(t.Context(), "o[1]:mail:repeat:y", "name", "y", "every", "2000").Err())
	all, _, err = ReadSchedules(t.Context(), "redis://"+shared.Addr, BullMQ, ScheduleOptions{Now: scheduleDay, Prefix: "o[1]"})
	r.must(err)
	if len(all) != 1 || all[0].Name != "y" {
		t.Errorf("with the prefix o[1] there are %+v; want y alone", all)
	}
}

// wantProblems fails the test unless the problems of each schedule are among others those of want,
// separated there by "; ", and no other schedule has a problem.
func wantProblems(t *testing.T, problems []cron.Finding, want map[string]string) {
	t.Helper()
	said := make(map[string][]string)
	for _, p := range problems {
		kind := map[cron.FindingKind]string{cron.Noted: "note: ", cron.Changed: "changed: ", cron.Left: "left: "}[p.Kind]
		said[p.Where] = append(said[p.Where], kind+p.Text)
	}
	for name, text := range want {
		if strings.HasPrefix(text, "left: ") && len(said[name]) != 1 {
			t.Errorf("of %s, which is left out, is said %q; want one sentence", name, said[name])
		}
		for part := range strings.SplitSeq(text, "; ") {
			if !slices.ContainsFunc(said[name], func(s string) bool { return strings.HasPrefix(s, part) }) {
				t.Errorf("of %s is said %q; want %q", name, said[name], part)
			}
		}
	}
	for name := range said {
		if want[name] == "" {
			t.Errorf("of %s is said %q; want nothing", name, said[name])
		}
	}
}

// asynqEntryOf returns what asynq writes for a periodic task: its message SchedulerEntry.
func asynqEntryOf(id, spec, typ, payload string, options ...string) string {
	var b []byte
	text := func(n protowire.Number, s string) {
		b = protowire.AppendTag(b, n, protowire.BytesType)
		b = protowire.AppendString(b, s)
	}
	text(1, id)
	text(2, spec)
	text(3, typ)
	text(4, payload)
	for _, o := range options {
		text(5, o)
	}
	text(6, "\x08\xd0\xa7\x9b\xc9\x06") // when it is enqueued next, a Timestamp
	return string(b)
}

func TestAsynqSchedules(t *testing.T) {
	r := newRig(t)
	add := func(scheduler string, entries ...string) {
		key := "asynq:schedulers:{" + scheduler + "}"
		r.zadd("asynq:schedulers", key, float64(scheduleDay.Unix()))
		for _, e := range entries {
			r.must(r.client.LPush(t.Context(), key, e).Err())
		}
	}
	daily := []string{"0 9 * * *", "report:daily", `{"a":1}`, `Queue("critical")`, "MaxRetry(4)", "Timeout(1m30s)"}
	add("host:1:a",
		asynqEntryOf("id-1", daily[0], daily[1], daily[2], daily[3:]...),
		asynqEntryOf("id-2", "@every 30s", "ping", ""),
		asynqEntryOf("id-3", "CRON_TZ=Asia/Tokyo */5 * * * *", "sync", "x", `Unique(1h0m0s)`, `TaskID("only")`, `Retention(24h0m0s)`),
		asynqEntryOf("id-4", "TZ=America/New_York 0 9 ? * MON", "sync", "y"),
		asynqEntryOf("id-5", "0 0 * * *", "grouped", "", `Retention(24h0m0s)`, `Group("g")`),
		asynqEntryOf("id-6", "0 0 * * *", "later", "", "ProcessIn(1m0s)"),
		asynqEntryOf("id-7", "0 0 * * *", "strange", "", "Colour(red)"),
		asynqEntryOf("id-8", "@reboot", "boot", ""),
		asynqEntryOf("id-12", "0 6 */2 * 1", "either", ""),
		asynqEntryOf("id-13", "CRON_TZ=Europe/Berlin 30 2 * * *", "night", ""),
		asynqEntryOf("id-10", "0 1 * * *", "twice", ""),
		asynqEntryOf("id-11", "0 1 * * *", "twice", ""), // the same in the same process
	)
	add("host:2:b", asynqEntryOf("id-9", daily[0], daily[1], daily[2], daily[3:]...)) // the same in a second process
	all, problems, err := ReadSchedules(t.Context(), "redis://"+shared.Addr, Asynq, ScheduleOptions{Now: scheduleDay, Zone: "UTC", Overlap: new(schedule.OverlapAllow), Missed: new(schedule.MissedNone)})
	r.must(err)
	want := []schedule.Schedule{
		{Topic: "default", Name: "either", Spec: "0 6 1-31/2 * 1", Zone: "UTC", Headers: map[string]string{asynqHeaderType: "either"}},
		{Topic: "default", Name: "night", Spec: "30 2 * * *", Zone: "Europe/Berlin", Headers: map[string]string{asynqHeaderType: "night"}},
		{Topic: "default", Name: "ping", Spec: "@every 30s", Zone: "UTC", Headers: map[string]string{asynqHeaderType: "ping"}},
		{
			Topic: "critical", Name: "report:daily", Spec: "0 9 * * *", Zone: "UTC", Body: []byte(`{"a":1}`), MaxAttempts: 5,
			Headers: map[string]string{asynqHeaderType: "report:daily", asynqHeaderTimeout: "90"},
		},
		{Topic: "default", Name: "sync", Spec: "*/5 * * * *", Zone: "Asia/Tokyo", Body: []byte("x"), Headers: map[string]string{asynqHeaderType: "sync"}},
		{Topic: "default", Name: "sync-2", Spec: "0 9 ? * MON", Zone: "America/New_York", Body: []byte("y"), Headers: map[string]string{asynqHeaderType: "sync"}},
		{Topic: "default", Name: "twice", Spec: "0 1 * * *", Zone: "UTC", Headers: map[string]string{asynqHeaderType: "twice"}},
	}
	if len(all) != len(want) {
		t.Fatalf("%d schedules; want %d: %+v", len(all), len(want), all)
	}
	for i, w := range want {
		w.Overlap, w.Missed = schedule.OverlapAllow, schedule.MissedNone
		w.MaxAttempts = cmp.Or(w.MaxAttempts, 26) // asynq retries 25 times
		if !all[i].Same(w) {
			t.Errorf("schedule %d is %+v\nwant %+v", i+1, all[i], w)
		}
	}
	wantProblems(t, problems, map[string]string{
		"report:daily": "changed: it was registered 2 times, so asynq enqueues it 2 times",
		"twice":        "changed: it was registered 2 times, so asynq enqueues it 2 times",
		"ping":         "note: @every 30s counts from 1970 here",
		"sync":         "changed: Unique(1h0m0s) keeps; changed: TaskID(\"only\") keeps; note: Retention(24h0m0s) is a setting; note: its name is sync-2 here",
		"grouped":      "left: Group(\"g\")",
		"later":        "left: ProcessIn(1m0s) has no counterpart",
		"strange":      "left: option Colour(red) is not known here",
		"boot":         "left: schedule \"@reboot\"",
		"either":       "note: 0 6 */2 * 1 is written 0 6 1-31/2 * 1 here",
		"night":        "changed: at the clock change of 2027-03-28 Punctual comes at Sun 03:00:00 +02:00, and asynq does not",
		"all tasks":    "note: asynq does not write down their headers",
	})

	all, _, err = ReadSchedules(t.Context(), "redis://"+shared.Addr, Asynq, ScheduleOptions{Now: scheduleDay, ByType: true})
	r.must(err)
	topics := []string{}
	for _, s := range all {
		topics = append(topics, fmt.Sprint(s.Topic, " ", s.Zone))
	}
	if !slices.Equal(topics, []string{"night Europe/Berlin", "sync Asia/Tokyo", "sync America/New_York"}) { // the others need --zone
		t.Errorf("by type, without a zone: %q", topics)
	}
}

// asynqWritten is an entry that asynq 0.26.0 has written for a task of the queue critical with
// MaxRetry(4) and Timeout(90 s).
const asynqWritten = "\n$ad47ae67-4ca2-4bfc-92ed-e2ed5fe7faec\x12\x0b0 9 * * 1-5\x1a\x0creport:daily\"\a{\"a\":1}*\x11Queue(\"critical\")*\x0bMaxRetry(4)*\x0eTimeout(1m30s)2\x06\b\x90\x8d\xa5\xd8\x06:\x0b\b\x80\x92\xb8\xc3\x98\xfe\xff\xff\xff\x01"

func TestAsynqEntryAsWritten(t *testing.T) {
	e, err := parseAsynqEntry([]byte(asynqWritten))
	if err != nil || e.typ != "report:daily" || e.spec != "0 9 * * 1-5" || string(e.payload) != `{"a":1}` || !slices.Equal(e.options, []string{`Queue("critical")`, "MaxRetry(4)", "Timeout(1m30s)"}) {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := parseAsynqEntry([]byte(asynqWritten[:60])); err == nil {
		t.Error("half an entry was read")
	}
}

// TestScheduleNamesDiffer: each schedule of a topic gets a name that no other one of the topic has,
// also where the made-up name of one is the real name of another.
func TestScheduleNamesDiffer(t *testing.T) {
	r := newSchedules(&ScheduleOptions{Now: scheduleDay, Topic: "t"})
	for i, name := range []string{"sync", "sync", "sync-2", "sync", "sync-2"} {
		r.add(fmt.Sprint(i), name, "", schedule.Schedule{Spec: "@every 1h"})
	}
	var names []string
	for _, s := range r.all {
		names = append(names, s.Name)
	}
	if want := []string{"sync", "sync-2", "sync-2-2", "sync-3", "sync-2-3"}; !slices.Equal(names, want) {
		t.Errorf("names %q, problems %v; want %q", names, r.findings, want)
	}
}

// BullMQ runs a job once that names no attempts. What the options say takes the place of what each
// system has.
func TestAttemptsOfSchedules(t *testing.T) {
	r := newRig(t)
	for name, opts := range map[string]string{"none": "", "empty": "{}", "zero": `{"attempts":0}`, "three": `{"attempts":3}`} {
		r.zadd("bull:mail:repeat", name, 1)
		r.must(r.client.HSet(t.Context(), "bull:mail:repeat:"+name, "name", name, "every", "2000", "opts", opts).Err())
	}
	key := "asynq:schedulers:{host:1:a}"
	r.zadd("asynq:schedulers", key, float64(scheduleDay.Unix()))
	r.must(r.client.RPush(t.Context(), key, asynqEntryOf("id-1", "@every 30s", "none", ""), asynqEntryOf("id-2", "@every 30s", "three", "", "MaxRetry(2)")).Err())
	for kind, want := range map[Kind]map[string]int{BullMQ: {"none": 1, "empty": 1, "zero": 1, "three": 3}, Asynq: {"none": 26, "three": 3}} {
		for _, asked := range []int{0, 7} {
			all, _, err := ReadSchedules(t.Context(), "redis://"+shared.Addr, kind, ScheduleOptions{Now: scheduleDay, Zone: "UTC", MaxAttempts: asked})
			r.must(err)
			if len(all) != len(want) {
				t.Errorf("%s: %+v", kind, all)
			}
			for _, s := range all {
				if s.MaxAttempts != cmp.Or(asked, want[s.Name]) {
					t.Errorf("%s: %s has %d attempts, with --max-attempts %d; want %d", kind, s.Name, s.MaxAttempts, asked, cmp.Or(asked, want[s.Name]))
				}
			}
		}
	}
}
