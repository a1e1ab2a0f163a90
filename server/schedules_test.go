package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/schedule"
)

func TestSchedules(t *testing.T) {
	r := newRig(t, nil)
	const path = "/v1/topics/reports/schedules/daily"
	item := `{"spec":"0 9 * * MON-FRI","zone":"Europe/Berlin","body":{"report":"daily"},"headers":{"tenant":"acme"},"spread":"5m","missed":"all","overlap":"allow","except":["12-25"],"expire":"1h","remember":"1d","timeout":"5m"}`
	r.ask("PUT "+path, item).want(t, http.StatusCreated, `"result":"stored"`, `"remember":"1d"`, `"timeout":"5m"`, `"words":"at 09:0`, `on Monday to Friday (Europe/Berlin)"`, `"next":[{"id":"daily~`, `"grace":"1m"`)
	r.ask("PUT "+path, item).want(t, http.StatusOK, `"result":"duplicate"`)
	r.ask("PUT "+path, strings.Replace(item, "5m", "6m", 1)).want(t, http.StatusOK, `"result":"replaced"`)
	got := decode[wire.Schedule](t, r.ask("GET "+path, "").want(t, http.StatusOK))
	if len(got.Next) != 10 || got.Result != "" || string(got.Body.Text) != `{"report":"daily"}` || got.Counts != (wire.ScheduleCounts{}) {
		t.Errorf("%+v", got)
	}
	r.ask("PUT "+path, item).want(t, http.StatusOK)
	back := decode[wire.ScheduleItem](t, answer{body: item})
	if s, err := back.Schedule("reports", "daily"); err != nil || s.Overlap != schedule.OverlapAllow || s.Missed != schedule.MissedAll {
		t.Errorf("%+v, %v", s, err)
	}

	r.ask("POST "+path+"/pause?note=until+the+API+is+back", "").want(t, http.StatusOK, `"note":"until the API is back"`, `"by":"`)
	r.ask("POST "+path+"/resume?catch_up=true", "").want(t, http.StatusOK, `"name":"daily"`)
	r.ask("POST "+path+"/skip?n=2", "").want(t, http.StatusOK, `{"occurrences":[{"id":"daily~`, `"status":"skipped"`)
	r.ask("POST "+path+"/run", "").want(t, http.StatusCreated, `"id":"daily~`, `"result":"stored"`)
	backfill := path + "/backfill?from=2025-12-24T00:00:00Z&to=2025-12-30T00:00:00Z"
	r.ask("POST "+backfill+"&dry_run=true", "").want(t, http.StatusOK, `"daily~20251224T080000Z"`, `"daily~20251226T080000Z"`, `"daily~20251229T080000Z"`)
	for _, want := range []string{`"stored":3`, `"kept":3`} {
		if a := r.ask("POST "+backfill, "").want(t, http.StatusOK, want); strings.Contains(a.body, "1225") {
			t.Errorf("%s", a.body)
		}
	}
	r.ask("PUT /v1/topics/reports/schedules/hourly", `{"spec":"@hourly"}`).want(t, http.StatusCreated)
	list := decode[wire.Schedules](t, r.ask("GET /v1/topics/reports/schedules?next=3", "").want(t, http.StatusOK))
	if len(list.Schedules) != 2 || list.Schedules[0].Name != "hourly" || len(list.Schedules[0].Next) != 3 {
		t.Errorf("%+v", list)
	}
	r.ask("GET /v1/topics/reports/schedules?limit=1", "").want(t, http.StatusOK, `"name":"hourly"`)
	r.ask("DELETE "+path, "").want(t, http.StatusNoContent)
	r.ask("GET "+path, "").problem(t, http.StatusNotFound, "not_found")
	r.ask("DELETE "+path, "").problem(t, http.StatusNotFound, "not_found")
	r.ask("GET /v1/topics/none/schedules", "").want(t, http.StatusOK, `{"schedules":[]}`)
}

func TestBadSchedules(t *testing.T) {
	r := newRig(t, nil)
	const path = "/v1/topics/reports/schedules/daily"
	for item, want := range map[string]string{
		`{"spec":"0 25 * * *"}`:                         "hour, at character 3: 25 is out of range: use 0 to 23",
		`{"spec":""}`:                                   "the text is empty",
		`{}`:                                            "it has no fields",
		`{"spec":"@daily","zone":"Mars/Base"}`:          `zone \"Mars/Base\" is not known here`,
		`{"spec":"@daily","spread":"soon"}`:             `spread`,
		`{"spec":"@daily","from":"tomorrow"}`:           `from`,
		`{"spec":"@daily","overlap":"no"}`:              `use skip, allow or replace`,
		`{"spec":"@daily","missed":"no"}`:               `use latest, all or none`,
		`{"spec":"@daily","colour":1}`:                  `colour`,
		`{"spec":"@daily","body":"a","body_base64":""}`: `use one`,
	} {
		if p := r.ask("PUT "+path, item).problem(t, http.StatusBadRequest, "invalid"); !strings.Contains(p.Detail, strings.ReplaceAll(want, `\"`, `"`)) {
			t.Errorf("%s: %s, want %q", item, p.Detail, want)
		}
	}
	r.ask("PUT /v1/topics/reports/schedules/a~b", `{"spec":"@daily"}`).problem(t, http.StatusBadRequest, "invalid")
	r.ask("PUT /v1/topics/reports@x/schedules/a", `{"spec":"@daily"}`).problem(t, http.StatusBadRequest, "invalid")
	r.ask("POST "+path+"/skip?n=0", "").problem(t, http.StatusBadRequest, "invalid")
	r.ask("POST "+path+"/backfill", "").problem(t, http.StatusNotFound, "not_found")
	r.ask("POST "+path+"/pause", "").problem(t, http.StatusNotFound, "not_found")
	r.ask("GET /v1/topics/reports/schedules?limit=0", "").problem(t, http.StatusBadRequest, "invalid")
	if topics, err := r.store.Topics(t.Context()); err != nil || len(topics) != 0 {
		t.Errorf("%v, %v", topics, err)
	}
}

// A list of schedules whose times take more than a request may hold is refused with what to do;
// with fewer times it is answered.
func TestListOfSchedulesIsBounded(t *testing.T) {
	r := newRig(t, &Options{Limits: Limits{MaxRequest: 1 << 20, MaxBody: 1 << 20, MaxBatch: 1}})
	q := punctual.NewQueue(r.store, nil)
	for i := range 20 {
		if _, err := schedule.Put(t.Context(), q, schedule.Schedule{Topic: "reports", Name: fmt.Sprint("s", i), Spec: "* * * * *"}); err != nil {
			t.Fatal(err)
		}
	}
	const path = "GET /v1/topics/reports/schedules"
	a := r.ask(path+"?next=1000", "")
	a.problem(t, http.StatusRequestEntityTooLarge, "too_large")
	a.want(t, http.StatusRequestEntityTooLarge, "ask for fewer with limit and next")
	if got := decode[wire.Schedules](t, r.ask(path+"?next=1000&limit=5", "").want(t, http.StatusOK)); len(got.Schedules) != 5 || len(got.Schedules[4].Next) != 1000 {
		t.Errorf("%d schedules; want 5 with 1000 times each", len(got.Schedules))
	}
	if got := decode[wire.Schedules](t, r.ask(path+"?next=100", "").want(t, http.StatusOK)); len(got.Schedules) != 20 {
		t.Errorf("%d schedules; want 20", len(got.Schedules))
	}
	if n := r.memory.total; n != 0 {
		t.Errorf("%d bytes count still after the answers", n)
	}
}

// A list of schedules has pages: each answer but the last has a next for the parameter after, and
// together they have each schedule once, in the order of the whole list. A place that no page has
// named is refused.
func TestPagesOfSchedules(t *testing.T) {
	r := newRig(t, nil)
	q := punctual.NewQueue(r.store, nil)
	for i := range 7 {
		if _, err := schedule.Put(t.Context(), q, schedule.Schedule{Topic: "reports", Name: fmt.Sprint("s", i), Spec: fmt.Sprintf("%d 9 * * *", i%3)}); err != nil {
			t.Fatal(err)
		}
	}
	broken := punctual.NewMessage{Topic: "reports@cron", ID: "broken", Body: []byte("no schedule")}
	if _, err := r.store.Push(t.Context(), []punctual.NewMessage{broken}); err != nil {
		t.Fatal(err)
	}
	const path = "GET /v1/topics/reports/schedules"
	page := func(query string) (names []string, next string) {
		var list struct {
			Schedules []struct{ Name string }
			Next      string
		}
		if err := json.Unmarshal([]byte(r.ask(path+query, "").want(t, http.StatusOK).body), &list); err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Schedules {
			names = append(names, s.Name)
		}
		return names, list.Next
	}
	whole, next := page("")
	if len(whole) != 8 || whole[0] != "broken" || next != "" {
		t.Fatalf("the whole list has %v and next %q; want 8 schedules, the one that is ready first", whole, next)
	}
	for _, limit := range []int{1, 3, 4, 7, 8} {
		var names []string
		after, pages := "", 0
		for {
			part, next := page(fmt.Sprintf("?limit=%d&after=%s", limit, url.QueryEscape(after)))
			names = append(names, part...)
			if pages++; len(part) > limit || pages > 10 {
				t.Fatalf("page %d of %d at most has %v", pages, limit, part)
			}
			if after = next; after == "" {
				break
			}
		}
		if !slices.Equal(names, whole) || pages < (8+limit-1)/limit {
			t.Errorf("%d pages of %d at most have %v; want %v", pages, limit, names, whole)
		}
	}
	for _, after := range []string{"x", "9:", "-1:", "3:x", "0"} {
		r.ask(path+"?after="+after, "").problem(t, http.StatusBadRequest, "invalid")
	}
}

// The times of a backfill count in the server's memory before they are worked out.
func TestBackfillCountsItsTimes(t *testing.T) {
	const path, span = "/v1/topics/reports/schedules/s", "?from=2020-01-01T00:00:00Z&to=2020-01-07T00:00:00Z&dry_run=true"
	for memory, status := range map[int64]int{4 << 20: http.StatusServiceUnavailable, 64 << 20: http.StatusOK} {
		r := newRig(t, &Options{Limits: Limits{MaxMemory: memory}})
		r.ask("PUT "+path, `{"spec":"* * * * *"}`).want(t, http.StatusCreated)
		if a := r.ask("POST "+path+"/backfill"+span, "").want(t, status); status == http.StatusOK && strings.Count(a.body, `"at"`) < 8000 {
			t.Errorf("%d times: this test shows nothing", strings.Count(a.body, `"at"`))
		}
		if n := r.memory.held(); n != 0 {
			t.Errorf("%d bytes count still after the answer", n)
		}
	}
}
