package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/schedule"
)

// tick has the schedules of a topic that are due store their messages.
func (r *rig) tick(topic string) {
	r.t.Helper()
	duty := schedule.NewScheduler(r.store)
	ds, err := r.store.Claim(r.t.Context(), punctual.Claim{Topics: []string{topic + "@cron"}, Max: 100})
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range ds {
		how := punctual.DecisionOf(duty.Handle(r.t.Context(), &ds[i]))
		s := punctual.Settlement{Topic: ds[i].Topic, ID: ds[i].ID, Token: ds[i].Token, Verb: how.Verb, Delay: how.Delay, Then: how.Then}
		if errs, err := r.store.Settle(r.t.Context(), []punctual.Settlement{s}); err != nil || errs[0] != nil {
			r.t.Fatal(err, errs)
		}
	}
}

func TestSchedule(t *testing.T) {
	r := newRig(t)
	r.clock.Set(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	body := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(body, []byte("{\"report\":\"daily\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	put := []string{"schedule", "put", "reports", "daily", "0 9 * * MON-FRI", "--zone", "Europe/Berlin", "--body", "@" + body}
	r.run(put...).ok().prints("daily in reports, at 09:00 on Monday to Friday (Europe/Berlin). Next: Mon 23 Nov 09:00:00, Tue 24 Nov 09:00:00, Wed 25 Nov 09:00:00, …\n")
	r.run(put...).exits(exitOK, "unchanged")
	r.run("schedule", "put", "reports", "odd", "0 12 1 * MON").exits(exitOK, "odd: note: on the 1st and on every Monday; +MON for Mondays that are the 1st")
	r.run("schedule", "rm", "reports", "odd").ok().prints("removed   odd in reports\n")
	r.run("schedule", "put", "reports", "sync", "*/5 * * * *", "--json").ok().contains(`"result":"stored"`, `"words":"every 5 minutes (UTC)"`)
	r.run("schedule", "pause", "reports", "sync", "until the API is back").ok().contains("sync in reports, paused", ": until the API is back")

	r.clock.Set(time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC))
	r.tick("reports")
	list := r.run("schedule", "list").ok().out
	for _, want := range []string{"TOPIC    NAME", "Tue 09:00:00", "Mon 09:00:00 ready", "0 9 * * MON-FRI", "paused"} {
		if !strings.Contains(list, want) {
			t.Errorf("%s\nhas no %q", list, want)
		}
	}
	r.run("get", "daily~20261123T080000Z", "--topic", "reports").ok().contains(`{"report":"daily"}`)
	r.run("schedule", "show", "reports", "daily", "--next", "2").ok().contains("1 stored, 0 missed, 0 skipped", "Tue 24 Nov 09:00:00", "Wed 25 Nov 09:00:00", "Mon 23 Nov 09:00:00  ready  daily~20261123T080000Z")
	r.run("schedule", "show", "reports", "daily", "--json").ok().contains(`"counts":{"stored":1,"missed":0,"skipped":0}`, `"status":"ready"`)
	r.run("schedule", "put", "reports", "all", "@daily", "--header", "kind=full", "--max-attempts", "3", "--expire", "1h", "--drop-expired", "--remember", "2h", "--timeout", "5m").ok()
	r.run("schedule", "show", "reports", "all").ok().contains("header       kind=full\n", "max attempts 3\n", "expire       1h\n", "drop expired yes\n", "remember     2h\n", "timeout      5m\n")
	r.run("schedule", "rm", "reports", "all").ok()
	r.run("schedule", "skip", "reports", "daily").ok().contains("Next: Wed 25 Nov 09:00:00")
	r.run("schedule", "run", "reports", "daily").ok().prints("daily~20261123T080000.000Z\n")
	fill := []string{"schedule", "backfill", "reports", "daily", "--from", "2026-11-18T00:00:00Z", "--to", "2026-11-19T12:00:00Z"}
	r.run(append(fill, "--dry-run")...).exits(exitOK, "would store those of 2").prints("daily~20261118T080000Z\ndaily~20261119T080000Z\n")
	r.run(fill...).exits(exitOK, "2 stored, 0 were there")
	r.run(append(fill, "--json")...).ok().contains(`"kept":2`)
	r.run("schedule", "resume", "reports", "sync").ok().contains("sync in reports, every 5 minutes (UTC). Next: Mon 23 Nov 08:05:00")
	r.run("schedule", "pause", "reports", "none").exits(exitUnwished, "there is none")
}

func TestSchedulePreview(t *testing.T) {
	r := newRig(t)
	r.env["PUNCTUAL_STORE"] = "none:" // it needs no store
	r.run("schedule", "preview", "30 2 * * *", "--zone", "Europe/Berlin", "--after", "2027-03-27T12:00:00Z", "--next", "2").ok().
		contains("at 02:30 every day (Europe/Berlin)\n  Sun 2027-03-28 03:00:00 +02:00  2027-03-28T01:00:00Z", "  Mon 2027-03-29 02:30:00 +02:00")
	r.run("schedule", "preview", "@hourly", "--json", "--next", "1").ok().contains(`{"words":"every hour (UTC)","next":[{"id":"`)
	r.run("schedule", "preview", "0 25 * * *").exits(exitUsage, `schedule "0 25 * * *": hour, at character 3: 25 is out of range: use 0 to 23`)
	r.run("schedule", "preview", "0 0 9 ? * 2-6", "--next", "1").exits(exitOK, "in Quartz and EventBridge Sunday is 1, and it is on Monday to Friday").contains("on Tuesday to Saturday")
	r.run("schedule", "preview", "0 0 9 ? * 2-6", "--next", "1", "--dialect", "quartz").exits(exitOK, "0 0 9 ? * 2-6 of quartz is 0 0 9 ? * MON-FRI here").contains("on Monday to Friday")
	r.run("schedule", "preview", "0 9 * * 1/3", "--next", "0", "--dialect", "bullmq").exits(exitOK, "SUN,MON,THU here").prints("at 09:00 on Sunday, Monday and Thursday (UTC)\n")
	r.run("schedule", "preview", "0 9 * * 1", "--dialect", "quartz").exits(exitUsage, "it has 5 fields, and quartz wants 6-7")
	r.run("schedule", "preview", "0 9 * * 1", "--dialect", "kube").exits(exitUsage, "use one of [asynq bullmq")
	r.run("schedule", "preview", "rate(5 minutes)").exits(exitUsage, "write '@every 5m'")
	r.run("schedule", "preview", "@daily", "--zone", "Mars/Base").exits(exitUsage, `zone "Mars/Base" is not known here`)
}

func TestScheduleSync(t *testing.T) {
	r := newRig(t)
	file := `topic: reports
schedules:
  - {name: daily, spec: 0 9 * * MON-FRI, zone: Europe/Berlin, from: 2026-01-01T00:00:00Z, except: [2026-12-24, 12-25], body: {report: daily}}
  - name: often
    topic: sync
    spec: "*/5 * * * *"
    limit: 1000
    body: 12
`
	sync := func(text string, args ...string) result {
		t.Helper()
		return r.runInput(text, append([]string{"schedule", "sync", "-"}, args...)...)
	}
	sync(file, "--dry-run").ok().prints("new       daily in reports, at 09:00 on Monday to Friday (Europe/Berlin)\nnew       often in sync, every 5 minutes (UTC)\n")
	r.run("schedule", "list").exits(exitOK, "no schedules")
	sync(file).ok().contains("new       daily", "new       often")
	sync(file).ok().contains("unchanged daily", "unchanged often")
	sync(strings.Replace(file, "0 9 ", "0 8 ", 1), "--dry-run").ok().contains("changed   daily in reports, at 08:00")
	r.run("schedule", "show", "reports", "daily", "--json").ok().contains(`"body":"{\"report\":\"daily\"}"`, `"except":["2026-12-24","12-25"]`)
	r.run("schedule", "show", "sync", "often", "--json").ok().contains(`"body":"12"`, `"limit":1000`)
	quartz := "topic: quartz\nschedules:\n  - {name: q, spec: 0 0 9 ? * 2-6}\n"
	sync(quartz).exits(exitOK, "q: note: 2-6 is on Tuesday to Saturday here").contains("new       q in quartz, at 09:00 on Tuesday to Saturday")
	sync(quartz, "--dialect", "quartz").exits(exitOK, "MON-FRI here").contains("changed   q in quartz, at 09:00 on Monday to Friday")
	sync("topic: quartz\nschedules: []\n").ok().prints("kept      q in quartz\n")
	sync("topic: quartz\nschedules: []\n", "--prune", "delete").ok().prints("removed   q in quartz\n")
	less := "topics: [sync]\nschedules: []\n"
	sync(less).ok().prints("kept      often in sync\n")
	sync(less, "--prune", "pause").ok().prints("paused    often in sync\n")
	r.run("schedule", "list", "sync").ok().contains("paused by punctual schedule sync: no longer declared")
	sync(file).ok().contains("resumed   often")
	r.run("schedule", "show", "sync", "often", "--json").ok()
	sync(less, "--prune", "delete", "--json").ok().printsJSON(`{"topic":"sync","name":"often","result":"removed"}`)
	r.run("schedule", "list", "sync").exits(exitOK, "no schedules")
	for text, want := range map[string]string{
		"":                                    "it is empty",
		"schedules: [":                        "L2",
		"schedules:\n  - spec: */5 * * * *\n": "needs quotes",
		"schedules:\n  - {spec: @daily}\n":    "needs quotes",
		"schedules:\n  - {name: a, spec: \"@daily\"}\n":                                            `line 2: schedule "a" has no topic`,
		"topic: t\nschedules:\n  - {name: a, spec: \"0 25 * * *\"}\n":                              "line 3: schedule a in t: schedule \"0 25 * * *\": hour, at character 3",
		"topic: t\nschedules:\n  - {name: a, spec: \"@daily\", colour: 1}\n":                       "colour",
		"topic: t\nschedules:\n  - {name: a, spec: \"@daily\"}\n  - {name: a, spec: \"@daily\"}\n": "line 4: a in t stands on line 3 already",
		"topic: t\n":  "no list of schedules",
		"colour: 1\n": `line 1: unknown key "colour"`,
		// What sync does not read is refused, because --prune delete would remove the schedules
		// that are declared there.
		"topics: [reports]\nschedules: []\n---\ntopic: reports\nschedules:\n  - {name: daily, spec: \"@daily\"}\n":           "a second document",
		"topic: reports\nschedules:\n  - {name: daily, spec: \"@daily\"}\nschedules:\n  - {name: other, spec: \"@daily\"}\n": `line 4: mapping key "schedules" already defined at line 2`,
		"topics: [a]\ntopics: [reports]\nschedules: []\n":                                                                    "already defined at line 1",
		"topics: reports\nschedules: []\n":                                                     "topics: line 1: cannot construct",
		"topics: {reports: daily}\nschedules: []\n":                                            "topics: line 1: cannot construct !!map",
		"topics: [[reports]]\nschedules: []\n":                                                 "topics: line 1: cannot construct !!seq",
		"topics: [reports, ~]\nschedules: []\n":                                                "topic \"~",
		"topic: [reports]\nschedules: []\n":                                                    "topic: line 1: cannot construct !!seq",
		"topic: \"\"\nschedules: []\n":                                                         "a topic is empty",
		"topic: reports\nschedules: {name: daily}\n":                                           "schedules: line 2: cannot construct !!map",
		"topic: reports\nschedules: [daily]\n":                                                 "line 2: JSON at byte 0: a string where an object is expected",
		"topic: reports\nschedules:\n  - {name: a, spec: \"@daily\", name: b}\n":               `mapping key "name" already defined at line 3`,
		"topic: reports\nschedules:\n  - {name: a, spec: \"@daily\", headers: {k: 1, k: 2}}\n": `mapping key "k" already defined at line 3`,
		"topic: reports\nschedules:\n  - {name: a, spec: \"@daily\", body: {k: 1, k: 2}}\n":    `"k"`,
	} {
		sync(text, "--prune", "delete").exits(exitUsage, want)
	}
	r.run("schedule", "list", "reports").ok().contains("daily")
	sync("x: &t reports\ntopic: *t\nschedules: []\n").exits(exitUsage, "unknown key")
	sync("topics: [&t sync, reports]\ntopic: *t\nschedules:\n  - {name: aliased, spec: \"@daily\"}\n", "--dry-run").ok().contains("aliased in sync")
}

func TestScheduleImportCrontab(t *testing.T) {
	r := newRig(t)
	r.clock.Set(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	file := "MAILTO=ops\n0 9 * * 1-5 report --daily\n@reboot start\n0 1-3 * * * date +\\%F\nCRON_TZ=Asia/Tokyo\n@daily tidy\nCRON_TZ=CET-1CEST\n@daily posix\n"
	run := func(args ...string) result {
		t.Helper()
		return r.runInput(file, append([]string{"schedule", "import", "crontab", "-", "--topic", "jobs"}, args...)...)
	}
	run().exits(exitUsage, "line 2: say with --zone")
	run("--zone", "Europe/Berln").exits(exitUsage, `line 2: zone "Europe/Berln" is not known`)
	run("--zone", "Europe/Berlin").exits(exitError, "note: line 1: MAILTO", "left out: line 3: @reboot", `left out: line 8: CRON_TZ: zone "CET-1CEST" is not known`,
		"note: line 4: 0 1-3 * * * is written 0 1,2,3 * * * here", "lines left out: 2", "Nothing was changed").contains("found", "at 09:00 on Monday to Friday (Europe/Berlin)", "at 00:00 every day (Asia/Tokyo)")
	r.run("schedule", "list").exits(exitOK, "no schedules")
	run("--zone", "Europe/Berlin", "--yes", "--json").exits(exitError, "left out: line 3", `"definite":false`)
	run("--zone", "Europe/Berlin", "--yes").exits(exitError).contains("unchanged")
	run("--zone", "Europe/Berlin", "--yes", "--json").exits(exitError, `"definite":true`)
	r.run("schedule", "list", "--json").ok().contains(`"body":"report --daily"`, `"body":"date +%F"`, `"overlap":"allow"`, `"missed":"none"`, `"zone":"Asia/Tokyo"`, `"max_attempts":1`)
	run("--zone", "Europe/Berlin", "--yes", "--max-attempts", "4").exits(exitError, "ends a command after 1h").contains("changed")
	r.run("schedule", "list", "--json").ok().contains(`"max_attempts":4`)
	run("--zone", "Europe/Berlin", "--max-attempts", "-1").exits(exitUsage, "-1 attempts")
	run("--zone", "Europe/Berlin", "--yes").exits(exitError).contains("changed")

	// A line that is gone is named, and removed with --prune; what else is in the topic stays.
	r.run("schedule", "put", "jobs", "cron-own", "@daily").ok()
	file = "0 10 * * 1-5 report --daily\n"
	run("--zone", "Europe/Berlin", "--yes").exits(exitOK, "goes on, and its line is gone: --prune removes it").contains("new ")
	if r.run("schedule", "list", "jobs").ok(); strings.Count(r.run("schedule", "list", "jobs").out, "cron-") != 5 {
		t.Error("without --prune schedules were removed")
	}
	run("--zone", "Europe/Berlin", "--prune").exits(exitOK).contains("removed   cron-")
	if n := strings.Count(r.run("schedule", "list", "jobs").out, "cron-"); n != 5 {
		t.Errorf("without --yes %d of 5 schedules are left", n)
	}
	run("--zone", "Europe/Berlin", "--prune", "--yes").exits(exitOK, "ends a command after 1h").contains("unchanged", "removed   cron-")
	if list := r.run("schedule", "list", "jobs").out; strings.Count(list, "cron-") != 2 || !strings.Contains(list, "cron-own") || !strings.Contains(list, "0 10 * * 1-5") {
		t.Errorf("after --prune there is\n%s", list)
	}

	// What means something else is an error, although it was put.
	file = "RANDOM_DELAY=10\n0 10 * * 1-5 report --daily\n"
	run("--zone", "Europe/Berlin", "--yes").exits(exitError, "changed: line 1: RANDOM_DELAY", "what means something else here: 1")
}

// Schedules of BullMQ are read from Redis, shown, and with --yes put. If one is left out, the
// others are put and the command fails. The import of asynq is only tried where there are no tasks,
// and with wrong flags.
func TestScheduleImportFromRedis(t *testing.T) {
	server := redisrig.Start(t)
	for id, every := range map[string]string{"often": "60000", "odd": "1500"} {
		for _, words := range [][]string{{"ZADD", "bull:reports:repeat", "1", id}, {"HSET", "bull:reports:repeat:" + id, "name", id, "every", every}} {
			if _, err := server.Do(words...); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := newRig(t)
	from := []string{"schedule", "import", "bullmq", "--from", "redis://" + server.Addr}
	r.run(from...).exits(exitError, "schedulers left out: 1").contains("often in reports", "found")
	r.run("schedule", "list").exits(exitOK, "no schedules")
	r.run(append(from, "--yes")...).exits(exitError, "reports/odd: every 1500 ms: times here are of whole seconds").contains("new")
	r.run("schedule", "show", "reports", "often").ok().contains("@every 1m0s")
	r.run("schedule", "import", "asynq", "--from", "redis://"+server.Addr, "--zone", "UTC").exits(exitUsage, "there are no tasks")
	r.run("schedule", "import", "asynq", "--by-type", "--topic", "x", "--from", "redis://"+server.Addr).exits(exitUsage, "contradict")
	r.run("schedule", "import", "asynq").exits(exitUsage, "name the Redis to import from")
}

// CronJobs as an API server returns them are shown, and with --yes put. A suspended one is paused
// from the start, and stays as it is here when somebody has resumed it.
func TestScheduleImportKubernetes(t *testing.T) {
	r := newRig(t)
	list, err := os.ReadFile("testdata/cronjobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	run := func(text string, args ...string) result {
		t.Helper()
		return r.runInput(text, append([]string{"schedule", "import", "kubernetes", "-", "--topic", "jobs"}, args...)...)
	}
	run(string(list)).exits(exitOK, "Nothing was changed", "note: shop/sweep: it is suspended").contains("found     shop.nightly in jobs, at 04:30 on Monday to Friday (Europe/Berlin)")
	r.run("schedule", "list").exits(exitOK, "no schedules")
	run(string(list), "--yes").exits(exitOK).contains("new       shop.nightly", "new       shop.sweep")
	r.run("schedule", "list").ok().contains("paused by punctual schedule import: suspended in Kubernetes")
	r.run("schedule", "show", "jobs", "shop.nightly").ok().contains("kubernetes-cronjob=nightly", "kubernetes-namespace=shop", `"args":["report","--day=yesterday"]`, "max attempts 3", "overlap      allow")
	run(string(list), "--yes").exits(exitOK).contains("unchanged shop.nightly", "unchanged shop.sweep")
	r.run("schedule", "resume", "jobs", "shop.sweep").ok()
	run(string(list), "--yes").exits(exitOK).contains("unchanged shop.sweep")
	if strings.Contains(r.run("schedule", "list").out, "paused") {
		t.Error("the import has paused a schedule again that somebody had resumed")
	}

	job := "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: %s, namespace: a}\nspec: {schedule: '%s', timeZone: UTC, jobTemplate: {spec: {}}}\n---\n"
	run(fmt.Sprintf(job+job, "one", "@daily", "two", "0 9 * *")).exits(exitError, "left out: a/two: schedule", "CronJobs left out: 1").contains("a.one in jobs")
	run(fmt.Sprintf(job, "one", "@daily"), "--json").exits(exitOK).contains(`"name":"a.one"`)
	for text, want := range map[string]string{
		"a: [":                    "go-yaml load error",
		"- x":                     "a document is no object of Kubernetes",
		"kind: List\nitems: []\n": "there are no CronJobs: kubectl get",
		"":                        "there are no CronJobs: kubectl get",
	} {
		run(text, "--yes").exits(exitUsage, want)
	}
	run("", "--overlap", "some").exits(exitUsage, "overlap")
	run("", "--missed", "some").exits(exitUsage, "missed")
	r.run("schedule", "import", "kubernetes", "testdata/cronjobs.yaml").exits(exitUsage, "name the topic of the messages")
	r.run("schedule", "import", "kubernetes", "nosuch.yaml", "--topic", "jobs").exits(exitUsage, "nosuch.yaml")
	r.run("schedule", "import", "quartz").exits(exitUsage, "name the database to import from, with --from postgres://")
}
