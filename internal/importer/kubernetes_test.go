package importer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual/schedule"
)

// cronJobObject is a CronJob as the API server returns it, with more in its spec, of the job's spec
// that is given.
func cronJobObject(name, spec, job string) string {
	return fmt.Sprintf(`{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":%q,"namespace":"shop","resourceVersion":"7","uid":"4f3c","creationTimestamp":"2026-11-20T09:14:03Z",
		"managedFields":[{"manager":"kubectl","operation":"Update","fieldsV1":{"f:spec":{"f:suspend":{}}}}]},
		"spec":{%s,"failedJobsHistoryLimit":1,"successfulJobsHistoryLimit":3,"jobTemplate":{"spec":%s}},"status":{"lastScheduleTime":"2026-11-26T09:00:00Z"}}`, name, spec, job)
}

func TestKubernetesSchedules(t *testing.T) {
	type wanted struct {
		name, spec, job string
		want            schedule.Schedule
		paused          bool
		said            string
	}
	const utc = `"timeZone":"Etc/UTC",`
	all := []wanted{
		{"plain", utc + `"schedule":"0 9 * * 1-5","concurrencyPolicy":"Allow","suspend":false`, `{"backoffLimit":2}`, schedule.Schedule{Spec: "0 9 * * 1-5", Overlap: schedule.OverlapAllow, MaxAttempts: 3}, false, ""},
		{"either", utc + `"schedule":"0 6 */2 * 1","suspend":true`, `{}`, schedule.Schedule{Spec: "0 6 1-31/2 * 1", Overlap: schedule.OverlapAllow, MaxAttempts: 7}, true, "note: 0 6 */2 * 1 is written 0 6 1-31/2 * 1 here; note: it is suspended in Kubernetes"},
		{"night", `"timeZone":"UTC","schedule":"CRON_TZ=Europe/Berlin 30 2 * * *"`, `{}`, schedule.Schedule{Spec: "30 2 * * *", Zone: "Europe/Berlin", Overlap: schedule.OverlapAllow, MaxAttempts: 7}, false, "changed: at the clock change of 2027-03-28 Punctual comes at Sun 03:00:00 +02:00, and Kubernetes does not"},
		{"forbid", utc + `"schedule":"@hourly","concurrencyPolicy":"Forbid"`, `{"backoffLimit":0,"activeDeadlineSeconds":90}`, schedule.Schedule{Spec: "@hourly", MaxAttempts: 1, Timeout: 90 * time.Second}, false, "changed: Forbid makes up for a time"},
		{"replace", utc + `"schedule":"@hourly","concurrencyPolicy":"Replace"`, `{"backoffLimit":1,"activeDeadlineSeconds":90}`, schedule.Schedule{Spec: "@hourly", Overlap: schedule.OverlapReplace, MaxAttempts: 2, Timeout: 90 * time.Second}, false, "changed: Replace ends a job; changed: its activeDeadlineSeconds are for all attempts together"},
		{"every", utc + `"schedule":"@every 90s"`, `{}`, schedule.Schedule{Spec: "@every 90s", Overlap: schedule.OverlapAllow, MaxAttempts: 7}, false, "changed: @every 90s counts from 1970 here"},
		{"short", utc + `"schedule":"0 * * * *","startingDeadlineSeconds":200`, `{}`, schedule.Schedule{Spec: "0 * * * *", Overlap: schedule.OverlapAllow, MaxAttempts: 7, Missed: schedule.MissedNone, Grace: 200 * time.Second}, false, ""},
		{"long", utc + `"schedule":"0 * * * *","startingDeadlineSeconds":3600`, `{}`, schedule.Schedule{Spec: "0 * * * *", Overlap: schedule.OverlapAllow, MaxAttempts: 7}, false, ""},
		{"uneven", utc + `"schedule":"0 9,10 * * *","startingDeadlineSeconds":4000`, `{}`, schedule.Schedule{Spec: "0 9,10 * * *", Overlap: schedule.OverlapAllow, MaxAttempts: 7}, false, "changed: its startingDeadlineSeconds leave out a time"},
		{name: "attempts", spec: utc + `"schedule":"0 9 * * *"`, job: `{"backoffLimit":2147483647}`, said: "left: schedule shop.attempts in jobs: 2147483648 attempts"},
		{name: "deadline", spec: utc + `"schedule":"0 9 * * *"`, job: `{"activeDeadlineSeconds":2592001}`, said: "left: schedule shop.deadline in jobs: timeout"},
		{name: "local", spec: `"schedule":"0 9 * * *"`, job: `{}`, said: "left: say with --zone which zone's clock it means"},
		{name: "four", spec: utc + `"schedule":"0 9 * *"`, job: `{}`, said: "left: schedule \"0 9 * *\": it has 4 fields, and kubernetes wants 5"},
		{name: "newer", spec: utc + `"schedule":"0 9 * * *","jitter":5`, job: `{}`, said: "left: its spec cannot be read: json: unknown field \"jitter\""},
		{name: "policy", spec: utc + `"schedule":"0 9 * * *","concurrencyPolicy":"Queue"`, job: `{}`, said: "left: concurrencyPolicy \"Queue\" is not known"},
		{name: "large", spec: utc + `"schedule":"0 9 * * *"`, job: `{"template":"` + strings.Repeat("x", schedule.MaxBody) + `"}`, said: "left: schedule shop.large in jobs: body has "},
		{name: "zone", spec: `"timeZone":"Nowhere/Land","schedule":"0 9 * * *"`, job: `{}`, said: "left: "},
	}
	list := `[null,{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":2}},
		{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"bare","namespace":"shop"},"spec":{"schedule":"0 9 * * *","timeZone":"UTC"}},`
	problems := map[string]string{"shop/web": `left: its kind is "Deployment" of "apps/v1"`, "shop/bare": "left: its spec cannot be read: it has no jobTemplate", "all CronJobs": "note: how long finished ones are kept"}
	var items []string
	want := make(map[string]wanted)
	for _, w := range all {
		items = append(items, cronJobObject(w.name, w.spec, w.job))
		if w.said != "" {
			problems["shop/"+w.name] = w.said
		}
		if w.want.Spec != "" {
			want["shop."+w.name] = w
		}
	}
	list += `{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[` + strings.Join(items, ",") + `]}]`
	found, said, err := KubernetesSchedules([]byte(list), ScheduleOptions{Now: scheduleDay, Topic: "jobs"})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range found {
		w, ok := want[s.Name]
		delete(want, s.Name)
		w.want.Topic, w.want.Name, w.want.Body = "jobs", s.Name, []byte(`{"spec":`+w.job+`}`)
		w.want.Headers = map[string]string{"kubernetes-namespace": "shop", "kubernetes-cronjob": w.name}
		if w.want.Zone == "" {
			w.want.Zone = "Etc/UTC"
		}
		if !ok || !s.Same(w.want) || (s.Paused != "") != w.paused {
			t.Errorf("%+v\nwant %+v", s, w.want)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	wantProblems(t, said, problems)

	// What the user asks for is done, and then is no change.
	found, said, err = KubernetesSchedules([]byte(list), ScheduleOptions{
		Now: scheduleDay, Topic: "jobs", Zone: "Asia/Tokyo", MaxAttempts: 1, Overlap: new(schedule.OverlapSkip), Missed: new(schedule.MissedAll),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range found {
		if s.Overlap != schedule.OverlapSkip || s.Missed != schedule.MissedAll || s.MaxAttempts != 1 || (s.Zone == "Asia/Tokyo") != (s.Name == "shop.local") {
			t.Errorf("with options: %+v", s)
		}
	}
	for _, f := range said {
		for _, quiet := range []string{"/forbid", "/replace", "/uneven"} {
			if strings.HasSuffix(f.Where, quiet) {
				t.Errorf("%v, which the options ask for", f)
			}
		}
	}

	if _, _, err := KubernetesSchedules([]byte(`[["x"]]`), ScheduleOptions{}); err == nil || !strings.Contains(err.Error(), "a document is no object of Kubernetes") {
		t.Errorf("no object: %v", err)
	}
}
