package importer

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Tasks that Celery 5.2.6 itself wrote, one of them given back by a worker that was stopped, are
// imported with their IDs, arguments, times and headers. Tasks that others follow stay and are
// named, and so is what has no effect here.
func TestCelery(t *testing.T) {
	r := newRig(t)
	r.restore("testdata/celery-5.2.6.ndjson")
	if given := r.client.LRange(t.Context(), "held", 0, -1).Val(); len(given) != 1 || !strings.Contains(given[0], `"redelivered": true`) {
		t.Fatalf("this test shows nothing: no worker gave back %q", given)
	}
	r.must(r.client.SAdd(t.Context(), celeryBinding+"celery.pidbox", celerySep+celerySep+"celery@host.celery.pidbox").Err())
	r.must(r.client.HSet(t.Context(), "unacked", "tag", "a task").Err())
	r.must(r.client.LPush(t.Context(), "mail"+celerySep+"7", "a task").Err())
	survey := r.survey(Options{Kind: Celery})
	if n := survey.Add(func(s *SetReport) int64 { return s.Importable }); len(survey.Sets) != 12 || n != 5 || survey.Rejects() != 4 {
		t.Errorf("survey: %d sets, importable %d, rejected %d; want 12, 5 and 4", len(survey.Sets), n, survey.Rejects())
	}
	var notes []string
	for _, s := range survey.Sets {
		notes = append(notes, s.Notes...)
	}
	for _, want := range []string{"of priority 7, in a list of its own: 1; --part 7", "held by workers, of all queues: 1;"} {
		if !strings.Contains(strings.Join(notes, "\n"), want) {
			t.Errorf("the notes %q do not say %q", notes, want)
		}
	}
	var rejects []string
	rep := r.move(Options{Kind: Celery, ByType: true, Rejected: func(j Reject) error {
		rejects = append(rejects, j.Text)
		return nil
	}})
	for n, want := range []string{"task A-10: it expires at 2100-12-01T07:45:00Z,", "task A-5: it has chain,", "task A-7: it has callbacks,", "task A-9: its body is application/x-python-serialize:"} {
		if slices.Sort(rejects); len(rejects) != 4 || !strings.Contains(rejects[n], want) {
			t.Errorf("rejected %q, want %q at %d", rejects, want, n)
		}
	}
	changed := map[string]int64{}
	for _, s := range rep.Sets {
		maps.Copy(changed, s.Changed)
	}
	if len(changed) != 1 || rep.Changed() != 2 {
		t.Errorf("changed %v, want the priority of two", changed)
	}
	headers := func(more ...string) map[string]string {
		h := map[string]string{"celery-task": "order.close", "celery-queue": "celery"}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = more[i+1]
		}
		return h
	}
	due := "2100-12-01T08:00:00.001"
	want := []imported{
		{"A-1", `[["A-1"], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]`, due, 0, headers()},
		{"A-11", `[["A-11"], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]`, due, 0, headers("celery-queue", "held")},
		{"A-2", `[["A-2"], {"why": "late"}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]`, due, 0, headers("celery-priority", "5")},
		{"A-4", `[["A-4"], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]`, due, 0, headers("celery-queue", "mail", "celery-priority", "9", "celery-timelimit", "[30,20]")},
	}
	got := r.imported("order.close")
	if now := got[0]; now.id != "A-3" || !reflect.DeepEqual(now.headers, headers("celery-retries", "2", "tenant", "t1", "weight", "7")) || now.due >= due {
		t.Errorf("the task without an ETA is %+v", now)
	}
	slices.SortFunc(got[1:], func(a, b imported) int { return strings.Compare(a.id, b.id) })
	if !reflect.DeepEqual(got[1:], want) {
		t.Errorf("%+v\nwant\n%+v", got[1:], want)
	}
	for _, m := range r.messages("order.close") {
		if m.ID == "A-2" && m.Expires.Sub(m.Due).String() != "15m0s" {
			t.Errorf("A-2 expires %v after its due time, want 15m", m.Expires.Sub(m.Due))
		}
	}
	if left := r.client.LLen(t.Context(), "celery").Val(); left != 4 {
		t.Errorf("%d tasks stay in celery, want 4", left)
	}
}

// What is no task, or one of another version of the protocol, stays and is named.
func TestCeleryOddTasks(t *testing.T) {
	good := celeryText("A", `[[],{},{}]`, 4e9)
	for text, want := range map[string]string{
		`x`: "it is no task",
		`{"body":"e30=","headers":{},"properties":{"body_encoding":"base64"}}`:                  "only version 2",
		strings.Replace(good, "application/json", "application/x-yaml", 1):                      "application/x-yaml",
		strings.Replace(good, `"eta":"2096-10-02T07:06:40Z"`, `"eta":"2096-10-02T07:06:40"`, 1): "enable_utc",
		strings.Replace(good, `"eta":"`, `"celery-task":"x","eta":"`, 1):                        `a header of its own named "celery-task"`,
		celeryText("A", `{}`, 4e9):                                                      "is not [args, kwargs, options]",
		strings.Replace(good, `"body":"`, `"body":"!`, 1):                               "not base64",
		celeryText("A", `[[],{},{"chord":{"task":"after"}}]`, 4e9):                      "it has chord",
		strings.Replace(good, `"eta":`, `"compression":"application/x-gzip","eta":`, 1): "application/x-gzip",
	} {
		r := newRig(t)
		r.must(r.client.LPush(t.Context(), "jobs", text).Err())
		o := options(Celery)
		var why []string
		o.Rejected = func(j Reject) error { why = append(why, j.Text); return nil }
		rep := r.move(o)
		if len(why) != 1 || !strings.Contains(why[0], want) || rep.Sets[0].Remaining != 1 {
			t.Errorf("%s: rejected %q, remaining %d; want %q", text, why, rep.Sets[0].Remaining, want)
		}
	}
}
