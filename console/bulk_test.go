package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/bulk"
	"github.com/punctualmq/punctual/memstore"
)

// bulk sends the form that counts a change, and returns the path of the page that shows the count.
func (r *rig) bulk(topic string, form url.Values) string {
	r.t.Helper()
	a := r.post("/topics/"+topic+"/bulk", form)
	if a.Code != 303 {
		r.t.Fatalf("count %v: %d %s", form, a.Code, wordsOf(a.text))
	}
	return a.Header().Get("Location")
}

// run sends the form that carries a counted change out or continues a stopped one, and returns the
// path of the page of the job.
func (r *rig) run(counted string) string {
	r.t.Helper()
	a := r.post(counted+"/run", nil)
	if a.Code != 303 {
		r.t.Fatalf("run %s: %d %s", counted, a.Code, wordsOf(a.text))
	}
	return a.Header().Get("Location")
}

// Each change is counted first, which changes nothing, and then made once, however often its form
// is sent.
func TestBulk(t *testing.T) {
	r := newRig(t, &Options{Authenticate: who(access.Everything())})
	for i := range 120 {
		r.push("t", fmt.Sprintf("a-%03d", i), time.Hour+time.Duration(i)*time.Second, func(m *punctual.NewMessage) { m.Headers = map[string]string{"campaign": fmt.Sprint(i % 2)} })
		r.push("t", fmt.Sprintf("b-%03d", i), time.Hour)
	}
	r.push("calls", "c7-1", time.Hour, func(m *punctual.NewMessage) { m.Key = "c7" })
	r.push("calls", "c70-1", time.Hour, func(m *punctual.NewMessage) { m.Key = "c70" })
	r.kill("t", "503 from the bank", "dead-1", "dead-2")
	r.kill("t", "no such customer", "dead-3")

	counted := r.bulk("t", url.Values{"state": {"scheduled"}, "prefix": {"a-"}, "header": {"campaign"}, "value": {"1"}, "change": {"shift"}, "by": {"1h"}})
	if text := wordsOf(r.page(counted)); !strings.Contains(text, "60 messages match, of 240 that were read") || !strings.Contains(text, "Shift 60 messages") || !strings.Contains(text, "campaign=1") {
		t.Errorf("the count: %s", text)
	}
	if m := r.message("t", "a-001"); !m.Due.Equal(noon.Add(time.Hour + time.Second)) {
		t.Errorf("a count has moved a message to %v", m.Due)
	}
	for range 3 { // whoever sends the form again is led to the same change
		if text := wordsOf(r.page(r.run(counted))); !strings.Contains(text, "complete") || !strings.Contains(text, "Shifted 60 / 60") {
			t.Errorf("the change: %s", text)
		}
	}
	if m := r.message("t", "a-001"); !m.Due.Equal(noon.Add(2*time.Hour + time.Second)) {
		t.Errorf("due %v, want two hours after noon", m.Due)
	}
	if m := r.message("t", "a-000"); !m.Due.Equal(noon.Add(time.Hour)) {
		t.Errorf("a message of another campaign is due %v", m.Due)
	}

	requeue := r.bulk("t", url.Values{"change": {"requeue"}, "error": {"the bank"}, "in": {"10m"}})
	for _, page := range []string{requeue, r.run(requeue)} { // of the count, and of the change
		if text := wordsOf(r.page(page)); !strings.Contains(text, "New due time 2026-11-22 12:10:00 UTC") {
			t.Errorf("a page of the requeue does not say when the messages are due then: %s", text)
		}
	}
	if m := r.message("t", "dead-2"); m.State != punctual.StateScheduled || !m.Due.Equal(noon.Add(10*time.Minute)) {
		t.Errorf("requeued: %v, due %v", m.State, m.Due)
	}
	if m := r.message("t", "dead-3"); m.State != punctual.StateDead {
		t.Errorf("of another error: %v", m.State)
	}
	r.run(r.bulk("t", url.Values{"change": {"reschedule"}, "prefix": {"b-00"}, "at": {"2026-11-25T10:00"}}))
	if m := r.message("t", "b-007"); !m.Due.Equal(time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)) {
		t.Errorf("rescheduled: due %v", m.Due)
	}
	r.run(r.bulk("t", url.Values{"change": {"cancel"}, "prefix": {"b-01"}}))
	if _, err := r.store.Get(t.Context(), "t", "b-010"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("cancelled: %v", err)
	}
	if !strings.Contains(r.page("/topics/calls/bulk?key=c7"), `name="key" value="c7"`) || strings.Contains(r.page("/topics/t/bulk"), `name="key"`) {
		t.Error("the form asks for a key in a topic without keys, or not in one with keys")
	}
	if text := wordsOf(r.page("/topics/calls?state=scheduled&key=c7")); !strings.Contains(text, "c7-1") || strings.Contains(text, "c70-1") {
		t.Errorf("the list of a key: %s", text)
	}
	if page := r.page("/topics/calls/messages/c7-1"); !strings.Contains(page, `href="/topics/calls?state=scheduled&amp;key=c7"`) {
		t.Errorf("the page of a message leads to no list of its key: %s", page)
	}
	if text := wordsOf(r.page(r.run(r.bulk("calls", url.Values{"change": {"reschedule"}, "key": {"c7"}, "in": {"2h"}})))); !strings.Contains(text, "Key c7") {
		t.Errorf("a change by key: %s", text)
	}
	if m := r.message("calls", "c70-1"); !m.Due.Equal(noon.Add(time.Hour)) || !r.message("calls", "c7-1").Due.Equal(noon.Add(2*time.Hour)) {
		t.Errorf("another key is due %v", m.Due)
	}
	r.run(r.bulk("t", url.Values{"change": {"delete"}, "state": {"dead"}}))
	if s, err := r.store.Stats(t.Context(), "t"); err != nil || s.Dead != 0 || s.Live() != 120+110+2 {
		t.Errorf("%+v, %v", s, err)
	}
	for verb, detail := range map[string]string{
		"bulk shift": "by +1h", "bulk requeue": "due 2026-11-22 12:10:00 UTC", "bulk reschedule": "due 2026-11-25 10:00:00 UTC",
		"bulk cancel": "prefix b-01", "bulk delete": "state dead",
	} {
		n := 0
		for _, e := range r.entries() {
			if e.Verb == verb && e.Who == "ann" && e.Result == audit.Done && e.Changed > 0 && strings.Contains(e.Detail, detail) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d entries of the audit log say %s with %q: %+v", n, verb, detail, r.entries())
		}
	}
}

// The form of a bulk change has no change chosen until the reader chooses one, also on the way from
// a list of dead messages. After a refusal the change that was chosen stays so. The page marks the
// fields that belong to one kind of change, and the style hides them while another change is
// chosen.
func TestBulkChoosesNothing(t *testing.T) {
	r := newRig(t, nil)
	r.push("t", "a", time.Hour)
	choices := regexp.MustCompile(`(?s)<select name="change".*?</select>`)
	for _, query := range []string{"", "?state=scheduled", "?state=dead"} {
		got := choices.FindString(r.page("/topics/t/bulk" + query))
		if !strings.HasPrefix(got, `<select name="change" required><option value="">choose a change</option><option value="cancel">`) || strings.Contains(got, "selected") {
			t.Errorf("bulk%s chooses a change: %s", query, got)
		}
	}
	if a := r.post("/topics/t/bulk", url.Values{"change": {""}}); a.Code != 400 || strings.Contains(choices.FindString(a.text), "selected") {
		t.Errorf("a form without a change: %d %s", a.Code, choices.FindString(a.text))
	}
	a := r.post("/topics/t/bulk", url.Values{"change": {"shift"}, "by": {"soon"}})
	if a.Code != 400 || !strings.Contains(choices.FindString(a.text), `<option value="shift" selected>`) || !strings.Contains(a.text, `value="soon"`) {
		t.Errorf("a refused shift: %d %s", a.Code, choices.FindString(a.text))
	}
	style := styleOf(t)
	for _, class := range []string{"of-shift", "of-due"} {
		if !regexp.MustCompile(`class="[^"]*\b`+class+`\b`).MatchString(a.text) || !regexp.MustCompile(`(?m)^\.bulk:not\(:has\(.*\) \.`+class+`( \{ display: none; \}|,)$`).MatchString(style) {
			t.Errorf("no field or no rule of the style has the class %s", class)
		}
	}
}

// A form that makes no sense is refused with its page, or its count fails with the reason on the
// page of the count.
func TestBulkThatIsRefused(t *testing.T) {
	r := newRig(t, &Options{HideBodies: true, Authenticate: who(access.Everything())})
	r.push("t", "a", time.Hour)
	for form, want := range map[string]string{
		"change=explode": "use cancel, delete", "change=shift&by=": "shift by 0s", "change=shift&by=soon": "by", "change=reschedule": "neither a time nor a delay",
		"change=reschedule&in=1h&at=2026-11-25T10:00": "use one", "change=delete": "without a state", "change=requeue&state=ready": "not possible",
		"change=cancel&reason=expired": "only dead messages", "change=cancel&from=never": "not understood", "change=cancel&rate=x": "use a number", "change=cancel&rate=-1": "use a number",
		"change=cancel&value=x": "name of its header", "change=cancel&header=key&value=x": "hidden", "change=cancel&state=none": "use scheduled",
	} {
		fields, err := url.ParseQuery(form)
		if err != nil {
			t.Fatal(err)
		}
		a := r.post("/topics/t/bulk", fields)
		if a.Code != 400 && a.Code != 403 || !strings.Contains(a.text, want) || !strings.Contains(a.text, `role="alert"`) {
			if a.Code == 303 { // the count was started, and has to fail
				if text := r.page(a.Header().Get("Location")); strings.Contains(text, want) && strings.Contains(text, "broken off") {
					continue
				}
			}
			t.Errorf("%s: %d, want %q: %s", form, a.Code, want, wordsOf(a.text))
		}
	}
	if a := r.get("/topics/t/bulk/none"); a.Code != 404 || !strings.Contains(a.text, "count again") {
		t.Errorf("a change that is not known: %d", a.Code)
	}
	if a := r.get("/topics/nowhere/bulk"); a.Code != 404 {
		t.Errorf("a topic that is not there: %d", a.Code)
	}
}

// A principal who may amend but not administer cannot count, carry out or stop a delete. A job is
// not found under the path of another topic, and a reader cannot carry out a change.
func TestRightsOfBulk(t *testing.T) {
	grants := []access.Grant{{Actions: access.Inspect | access.Amend, Topics: "*"}}
	r := newRig(t, &Options{Authenticate: func(*http.Request) (*access.Principal, error) {
		return &access.Principal{Name: "ann", Grants: grants}, nil
	}})
	r.push("t", "a", time.Hour)
	if a := r.post("/topics/t/bulk", url.Values{"change": {"delete"}, "state": {"scheduled"}}); a.Code != 403 {
		t.Errorf("count of a delete: %d", a.Code)
	}
	job := r.countedBulk("t", bulk.Cancel)
	del, err := r.console.bulks.start(bulkChange{Job: bulk.Job{Do: bulk.Delete, Select: bulk.Selection{Topic: "t", State: punctual.StateScheduled}, DryRun: true}}, nil, (&call{}).recordBulk(&bulkChange{Job: bulk.Job{DryRun: true}}))
	if err != nil {
		t.Fatal(err)
	}
	<-del.ended
	for path, want := range map[string]int{"/topics/t/bulk/" + del.ID + "/run": 403, "/topics/t/bulk/" + del.ID + "/stop": 403, "/topics/u/bulk/" + job.ID + "/run": 404} {
		if a := r.post(path, nil); a.Code != want {
			t.Errorf("POST %s: %d, want %d", path, a.Code, want)
		}
	}
	if text := r.page("/topics/t/bulk/" + del.ID); strings.Contains(text, "/run") {
		t.Error("a button is shown that would be refused")
	}
	grants = []access.Grant{{Actions: access.Inspect, Topics: "*"}}
	if a := r.post("/topics/t/bulk/"+job.ID+"/run", nil); a.Code != 403 {
		t.Errorf("a reader runs a change: %d", a.Code)
	}
	if m := r.message("t", "a"); m.State != punctual.StateScheduled {
		t.Errorf("%v", m.State)
	}
}

// gated is a store whose amendments wait until the test lets them pass.
type gated struct {
	*memstore.Store
	pass  chan struct{} // one amendment passes for each value, and every one when it is closed
	began chan struct{} // has a value for each amendment that has begun
}

func (g *gated) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	g.began <- struct{}{}
	select {
	case <-g.pass:
		return g.Store.Amend(ctx, as)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A long change goes on after its form was answered, its page tells how far it is, and it can be
// stopped and continued.
func TestBulkIsStoppedAndContinued(t *testing.T) {
	below := newRig(t, nil)
	g := &gated{Store: below.store, pass: make(chan struct{}), began: make(chan struct{}, 100)}
	r := rigOver(t, g, below.store, below.clock, nil)
	const all = 2500 // three pages of a bulk
	for i := range all {
		r.push("t", fmt.Sprintf("m%04d", i), time.Hour+time.Duration(i)*time.Second)
	}
	counted := r.bulk("t", url.Values{"change": {"shift"}, "by": {"2h"}})
	page := r.run(counted)
	<-g.began
	g.pass <- struct{}{}
	<-g.began // the second amendment begins when the first has returned
	text := wordsOf(r.page(page))
	if !strings.Contains(text, "under way") || !strings.Contains(text, "/ 2,500") {
		t.Errorf("while it is under way: %s", text)
	}
	r.sent(page+"/stop", nil)
	job := r.console.bulks.find(page[strings.LastIndexByte(page, '/')+1:])
	<-job.ended
	moved := r.movedBy("t", all, 2*time.Hour)
	if moved == 0 || moved == all {
		t.Fatalf("%d of %d were moved when it was stopped, so this test shows nothing", moved, all)
	}
	if text := wordsOf(r.page(page)); !strings.Contains(text, "stopped") || !strings.Contains(text, "Continue") {
		t.Errorf("after it was stopped: %s", text)
	}
	close(g.pass)
	next := r.run(page)
	<-r.console.bulks.find(next[strings.LastIndexByte(next, '/')+1:]).ended
	if n := r.movedBy("t", all, 2*time.Hour); n != all {
		t.Errorf("%d of %d were moved once", n, all)
	}
	if !regexp.MustCompile(`href="[^"]*` + next + `"`).MatchString(r.page(page)) {
		t.Error("the change that was stopped does not lead to the one that continues it")
	}
}

// movedBy returns how many of the n messages m0000, m0001 and so on were moved by a length of time.
func (r *rig) movedBy(topic string, n int, by time.Duration) (moved int) {
	r.t.Helper()
	for i := range n {
		if m := r.message(topic, fmt.Sprintf("m%04d", i)); m.Due.Equal(noon.Add(time.Hour + time.Duration(i)*time.Second + by)) {
			moved++
		}
	}
	return moved
}

// No more than mostBulks changes are under way at once, and closing the console stops them.
func TestBulksAreBounded(t *testing.T) {
	below := newRig(t, nil)
	g := &gated{Store: below.store, pass: make(chan struct{}), began: make(chan struct{}, 100)}
	c, err := New(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	below.push("t", "a", time.Hour)
	record := (&call{}).recordBulk(&bulkChange{Job: bulk.Job{DryRun: true}})
	cancel := bulkChange{Job: bulk.Job{Do: bulk.Cancel, Select: bulk.Selection{Topic: "t"}}}
	var jobs []*bulkJob
	for range mostBulks {
		job, err := c.bulks.start(cancel, nil, record)
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, job)
	}
	if _, err := c.bulks.start(cancel, nil, record); !errors.Is(err, punctual.ErrOverloaded) {
		t.Errorf("one more than the most: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for _, job := range jobs {
		if v := c.bulks.view(job); v.State != "stopped" {
			t.Errorf("a change that the console ended is %s: %s", v.State, v.Error)
		}
	}
	if _, err := c.bulks.start(cancel, nil, record); !errors.Is(err, punctual.ErrClosed) {
		t.Errorf("a change of a closed console: %v", err)
	}
}

// A list with a filter shows the messages that the filter selects, says how many were read, and
// leads to the bulk change of all of them.
func TestFilteredList(t *testing.T) {
	r := newRig(t, nil)
	for i := range 200 {
		r.push("t", fmt.Sprintf("a-%03d", i), time.Hour, func(m *punctual.NewMessage) { m.Headers = map[string]string{"shop": fmt.Sprint(i % 10)} })
	}
	text := r.page("/topics/t?state=scheduled&prefix=a-1&header=shop&value=7")
	if n := strings.Count(text, `<tr id="m-`); n != 10 {
		t.Errorf("%d messages are listed, want 10", n)
	}
	if !strings.Contains(text, "Looked at 200 messages of t") || !strings.Contains(text, `href="/topics/t/bulk?header=shop&amp;prefix=a-1&amp;state=scheduled&amp;value=7"`) {
		t.Errorf("the list does not say how far it looked, or does not lead to the change of all: %s", text[strings.Index(text, "<main"):])
	}
	if text := r.page("/topics/t?state=scheduled&prefix=zz"); !strings.Contains(text, "No message fits what you chose") {
		t.Error("a filter that hides all says nothing")
	}
	hidden := rigOver(t, r.store, r.store, r.clock, &Options{HideBodies: true})
	if a := hidden.get("/topics/t?state=scheduled&header=shop&value=7"); a.Code != 403 {
		t.Errorf("a filter by a header that is hidden: %d", a.Code)
	}
}

// The button "+1 h" moves each message from its own due time. A message that is leased stays where
// it is.
func TestAnHourLater(t *testing.T) {
	r := newRig(t, nil)
	r.push("t", "a", time.Hour)
	r.push("t", "b", 2*time.Hour)
	r.push("t", "c", 0)
	if ds, err := r.store.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 1}); err != nil || len(ds) != 1 {
		t.Fatal(ds, err)
	}
	if n := r.sent("/topics/t/amend", url.Values{"do": {"later"}, "id": {"a", "b", "c", "gone"}}); !strings.HasPrefix(n, "2 messages were rescheduled. 2 were not") {
		t.Error(n)
	}
	for id, want := range map[string]time.Duration{"a": 2 * time.Hour, "b": 3 * time.Hour} {
		if m := r.message("t", id); !m.Due.Equal(noon.Add(want)) {
			t.Errorf("%s is due %v", id, m.Due)
		}
	}
	r.sent("/topics/t/messages/a/amend", url.Values{"do": {"later"}})
	if m := r.message("t", "a"); !m.Due.Equal(noon.Add(3 * time.Hour)) {
		t.Errorf("due %v", m.Due)
	}
	if a := r.post("/topics/t/messages/c/amend", url.Values{"do": {"later"}}); a.Code != 409 {
		t.Errorf("of a message that somebody works on: %d", a.Code)
	}
}
