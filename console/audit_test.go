package console

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/bulk"
	"github.com/punctualmq/punctual/schedule"
)

// entries returns the entries of the audit log, the newest first.
func (r *rig) entries() []audit.Entry {
	r.t.Helper()
	now, err := r.store.Now(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	all, _, err := r.console.audit.Before(r.t.Context(), now.Add(audit.Grain), now, 10_000)
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// Every form that changes something leaves an entry that says who has changed what and how many
// messages, and the page of the log shows the entry.
func TestEveryChangeIsInTheAuditLog(t *testing.T) {
	for _, rt := range routes() {
		if rt.method != "POST" || rt.action == 0 || rt.path == pathBulk || rt.path == pathBulkJob+"/stop" { // a count and a stop of a bulk change change no message
			continue
		}
		r := newRig(t, &Options{Authenticate: who(access.Everything())})
		r.push("order.close", "order-001", time.Hour)
		r.kill("order.close", "declined", "dead-1")
		id := "order-001"
		if rt.path == pathMessage+"/delete" {
			id = "dead-1"
		}
		r.schedule(schedule.Schedule{Topic: "order.close", Name: "daily", Spec: "@hourly"})
		job := r.countedBulk("order.close", bulk.Cancel)
		path := strings.NewReplacer("{topic}", "order.close", "{id}", id, "{name}", "daily", "{job}", job.ID).Replace(rt.path)
		a := r.post(path, fields()[rt.path])
		if a.Code != 303 {
			t.Errorf("POST %s: %d %s", path, a.Code, a.text)
			continue
		}
		all := r.entries()
		if len(all) != 1 {
			t.Errorf("POST %s: %d entries", path, len(all))
			continue
		}
		e := all[0]
		if e.Who != "ann" || e.From != "127.0.0.1" || e.Verb == "" || e.Topic != "order.close" || e.Result != audit.Done || e.Changed < 1 || e.Error != "" || !e.At.Equal(noon) {
			t.Errorf("POST %s: %+v", path, e)
		}
		page := r.page("/audit")
		for _, want := range []string{"ann", e.Verb, "order.close", e.ID} {
			if !strings.Contains(page, want) {
				t.Errorf("POST %s: the page does not show %q", path, want)
			}
		}
	}
}

// The page shows the texts of entries as text, also of messages that somebody has pushed into the
// topic of the audit log. It shows auditRows entries and links to older ones.
func TestAuditPage(t *testing.T) {
	r := newRig(t, nil)
	if text := r.page("/audit"); !strings.Contains(text, "Nothing was changed") {
		t.Error("an empty log does not say so")
	}
	r.push(access.AuditTopic, "forged", audit.Retention-time.Second, func(m *punctual.NewMessage) { m.Body = []byte("{<script>") })
	r.push(access.AuditTopic, "odd", audit.Retention-time.Minute, func(m *punctual.NewMessage) {
		m.Body = []byte(`{"who":"<script>","verb":"\u202e","topic":"..","id":"a/b","result":"<b>"}`)
	})
	for range 60 {
		r.clock.Advance(time.Second)
		r.post("/topics/x/pause", url.Values{"what": {"push"}, "pause": {"true"}})
	}
	first := r.page("/audit")
	_, older, found := strings.Cut(first, `rel="next" href="`)
	if !found || strings.Count(first, `<td class="n">`) != auditRows {
		t.Fatalf("the first page has %d rows and links to older ones: %v", strings.Count(first, `<td class="n">`), found)
	}
	older, _, _ = strings.Cut(older, `"`)
	second := r.page(strings.ReplaceAll(older, "&amp;", "&"))
	if !strings.Contains(second, "cannot be read") || strings.Contains(second, "<script>\"") || strings.Contains(second, "{<script>") || strings.Contains(second, "\u202e") {
		t.Errorf("the second page: %s", second)
	}
	if a := r.get("/audit?before=yesterday"); a.Code != 400 {
		t.Errorf("a time that is none: %d", a.Code)
	}
}
