package console

import (
	"bufio"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/settings"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/limits"
)

// sent sends a form, follows the redirect of its answer, and returns the notice of the page there.
func (r *rig) sent(path string, form url.Values) string {
	r.t.Helper()
	a := r.post(path, form)
	if a.Code != http.StatusSeeOther {
		r.t.Fatalf("POST %s: %d %s", path, a.Code, a.text)
	}
	to, _, _ := strings.Cut(a.Header().Get("Location"), "#") // a browser does not send the fragment
	req := httptest.NewRequest(http.MethodGet, to, nil)
	for _, k := range a.Result().Cookies() {
		req.AddCookie(k)
	}
	next := r.do(req)
	if next.Code != http.StatusOK {
		r.t.Fatalf("GET %s behind a form: %d", a.Header().Get("Location"), next.Code)
	}
	m := regexp.MustCompile(`<p class="notice"[^>]*>([^<]*)</p>`).FindStringSubmatch(next.text)
	if m == nil {
		r.t.Fatalf("no notice behind POST %s", path)
	}
	if k := next.Result().Cookies(); len(k) != 1 || k[0].MaxAge >= 0 {
		r.t.Errorf("the notice is shown more than once: %v", k)
	}
	return m[1]
}

func TestMessageActions(t *testing.T) {
	r := newRig(t, nil)
	r.push("t", "a/b ?#%", time.Hour)
	r.push("t", "b", time.Hour)
	r.push("t", "c", time.Hour)
	r.kill("t", "no", "d", "e", "f")
	const odd = "/topics/t/messages/a%2Fb%20%3F%23%25/amend"
	r.sent(odd, url.Values{"do": {"reschedule"}, "in": {"30m"}})
	if m := r.message("t", "a/b ?#%"); !m.Due.Equal(noon.Add(30 * time.Minute)) {
		t.Errorf("in 30m: due %v", m.Due)
	}
	r.sent(odd+"?zone=Europe/Berlin", url.Values{"do": {"reschedule"}, "at": {"2026-11-23T09:00:00"}})
	if m := r.message("t", "a/b ?#%"); !m.Due.Equal(time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)) {
		t.Errorf("at 9 in Berlin: due %v", m.Due)
	}
	// Clocks go from 2 to 3 on that day, so half past 2 does not exist.
	a := r.post(odd+"?zone=Europe/Berlin", url.Values{"do": {"reschedule"}, "at": {"2027-03-28T02:30"}})
	if a.Code != http.StatusBadRequest || !strings.Contains(a.text, "there is no 2027-03-28T02:30 in Europe/Berlin") {
		t.Errorf("at a time that a zone leaves out: %d %s", a.Code, a.text)
	}
	r.sent(odd, url.Values{"do": {"now"}})
	if m := r.message("t", "a/b ?#%"); m.State != punctual.StateReady {
		t.Errorf("now: %v", m.State)
	}
	if n := r.sent("/topics/t/messages/b/amend", url.Values{"do": {"cancel"}}); !strings.HasPrefix(n, "b was cancelled") {
		t.Errorf("notice %q", n)
	}
	if _, err := r.store.Get(t.Context(), "t", "b"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("a cancelled message: %v", err)
	}
	r.sent("/topics/t/messages/d/amend", url.Values{"do": {"requeue"}})
	if m := r.message("t", "d"); m.State != punctual.StateReady {
		t.Errorf("requeued: %v", m.State)
	}
	if page := r.page("/topics/t/messages/f"); !strings.Contains(page, `action="/topics/t/messages/f/delete"`) || strings.Contains(r.page("/topics/t/messages/d"), "/delete") {
		t.Error("the form that deletes is to be on the page of a dead message alone")
	}
	if n := r.sent("/topics/t/messages/f/delete", nil); n != "f was deleted." {
		t.Errorf("notice %q", n)
	}
	if _, err := r.store.Get(t.Context(), "t", "f"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("a deleted message: %v", err)
	}
	isDelete := func(e audit.Entry) bool {
		return e.Verb == "delete" && e.Topic == "t" && e.ID == "f" && e.Result == audit.Done
	}
	if all := r.entries(); !slices.ContainsFunc(all, isDelete) {
		t.Errorf("the audit log says nothing of the delete: %+v", all)
	}
	for _, refused := range []struct {
		path string
		form url.Values
		code int
	}{
		{"/topics/t/messages/d/delete", nil, 409},
		{"/topics/t/messages/f/delete", nil, 404},
		{odd, url.Values{"do": {"reschedule"}}, 400},
		{odd, url.Values{"do": {"reschedule"}, "in": {"soon"}}, 400},
		{odd, url.Values{"do": {"reschedule"}, "in": {"1m"}, "at": {"2026-11-23T09:00:00"}}, 400},
		{odd, url.Values{"do": {"explode"}}, 400},
		{odd, url.Values{"do": {"requeue"}}, 409},
		{"/topics/t/messages/b/amend", url.Values{"do": {"cancel"}}, 404},
		{"/topics/t/messages/e/amend", url.Values{"do": {"cancel"}}, 404},
	} {
		a := r.post(refused.path, refused.form)
		if a.Code != refused.code || !strings.Contains(a.text, `role="alert"`) && !strings.Contains(a.text, "<h1>") {
			t.Errorf("POST %s %v: %d, want %d", refused.path, refused.form, a.Code, refused.code)
		}
	}
}

func TestTopicActions(t *testing.T) {
	r := newRig(t, nil)
	for i := range 5 {
		r.push("t", fmt.Sprint("m", i), time.Hour)
	}
	r.sent("/topics/t/configure", url.Values{
		"lease": {"2m"}, "was_lease": {"30s"}, "max_attempts": {"3"}, "was_max_attempts": {"10"}, "backoff": {"2m,10m"}, "was_backoff": {"x"},
		"dead_retention": {"7d"}, "was_dead_retention": {"0s"}, "dedupe_window": {"1h"}, "was_dedupe_window": {"1h"},
	})
	s, err := r.store.Settings(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	if s.Lease != 2*time.Minute || s.MaxAttempts != 3 || len(s.Backoff.Delays) != 2 || s.DeadRetention != 7*24*time.Hour || s.DedupeWindow != 0 {
		t.Errorf("settings are %+v; those that were not changed in the form stay", s)
	}
	for _, c := range []struct {
		what, pause    string
		push, delivery bool
	}{{"delivery", "true", false, true}, {"push", "true", true, true}, {"delivery", "false", true, false}} {
		r.sent("/topics/t/pause", url.Values{"what": {c.what}, "pause": {c.pause}})
		if s, err := r.store.Settings(t.Context(), "t"); err != nil || s.PushPaused != c.push || s.DeliveryPaused != c.delivery {
			t.Errorf("%s %s: %+v %v", c.what, c.pause, s, err)
		}
	}
	r.sent("/topics/t/amend", url.Values{"do": {"reschedule"}, "in": {"5m"}, "id": {"m0", "m1"}})
	r.sent("/topics/t/amend", url.Values{"do": {"cancel"}, "id": {"m2", "nope"}})
	if m := r.message("t", "m1"); !m.Due.Equal(noon.Add(5 * time.Minute)) {
		t.Errorf("due %v", m.Due)
	}
	if a := r.post("/topics/t/amend", url.Values{"do": {"cancel"}}); a.Code != 400 {
		t.Errorf("nothing ticked: %d", a.Code)
	}
	for _, form := range []url.Values{{"state": {"live"}}, {"state": {"live"}, "typed": {"T"}}, {"state": {"nonsense"}, "typed": {"t"}}} {
		if a := r.post("/topics/t/purge", form); a.Code != 400 || !strings.Contains(a.text, `role="alert"`) {
			t.Errorf("purge with %v: %d", form, a.Code)
		}
	}
	if n := r.sent("/topics/t/purge", url.Values{"state": {"scheduled"}, "typed": {"t"}}); !strings.HasPrefix(n, "4 messages") {
		t.Errorf("notice %q", n)
	}
	if a := r.post("/topics/t/delete", url.Values{"typed": {""}}); a.Code != 400 {
		t.Errorf("delete without the name: %d", a.Code)
	}
	r.sent("/topics/t/delete", url.Values{"typed": {"t"}})
	if _, err := r.store.Stats(t.Context(), "t"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("a deleted topic: %v", err)
	}
}

func TestRequeueIsSpread(t *testing.T) {
	r := newRig(t, nil)
	var ids []string
	for i := range 1500 {
		ids = append(ids, fmt.Sprintf("m%04d", i))
	}
	r.kill("t", "no", ids...)
	for reason, want := range map[string]string{"expired": "Requeued 0", "": "Requeued 1,500 / 1,500"} {
		page := r.page(r.bulk("t", url.Values{"run": {"1"}, "change": {"requeue"}, "spread": {"10m"}, "reason": {reason}}))
		if text := wordsOf(page); !strings.Contains(text, want) || !strings.Contains(text, "Spread over 10m") {
			t.Errorf("of reason %q: %s", reason, text)
		}
	}
	f, err := r.store.Forecast(t.Context(), punctual.ForecastQuery{Topic: "t", Step: time.Minute, Buckets: 10})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range f.Counts {
		if n < 145 || n > 155 {
			t.Errorf("%d are due in minute %d; 150 would be even", n, i)
		}
	}
	if f.Beyond != 0 || f.Overdue > 1 {
		t.Errorf("%d overdue, %d beyond", f.Overdue, f.Beyond)
	}
}

func TestExport(t *testing.T) {
	r := newRig(t, nil)
	var ids []string
	for i := range 700 {
		ids = append(ids, fmt.Sprintf("m%04d", i))
	}
	r.kill("a/b", "no\nnewline", ids...)
	a := r.get("/topics/a%2Fb/dead.ndjson")
	if a.Code != 200 || a.Header().Get("Content-Type") != wire.TypeNDJSON {
		t.Fatalf("%d %v", a.Code, a.Header())
	}
	n := 0
	for lines := bufio.NewScanner(strings.NewReader(a.text)); lines.Scan(); n++ {
		var m wire.Message
		if err := wire.DecodeAnswer(lines.Bytes(), &m); err != nil || m.Failures[0].Error != "no\nnewline" || m.State != "dead" {
			t.Fatalf("line %d: %v %s", n+1, err, lines.Bytes())
		}
	}
	if n != len(ids) {
		t.Errorf("%d lines, want %d", n, len(ids))
	}
}

// A message that is pushed with the form of the page Topics is followed on its own page until it is
// no longer stored.
func TestPushAndFollow(t *testing.T) {
	r := newRig(t, nil)
	if text := r.page("/topics?push=1"); !strings.Contains(text, `<details id="push" class="edit" open>`) || !strings.Contains(text, `action="/push"`) {
		t.Error("the page Topics does not show its form open")
	}
	a := r.post("/push", url.Values{"topic": {"t"}, "in": {"1m"}, "body": {"hello"}, "headers": {"tenant: x"}})
	if a.Code != http.StatusSeeOther {
		t.Fatalf("%d %s", a.Code, a.text)
	}
	at := a.Header().Get("Location")
	here := func(want string) {
		t.Helper()
		if text := r.page("/fragment" + at); !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	here(`class="scheduled lit"`)
	r.clock.Advance(time.Minute)
	here(`class="ready lit"`)
	ds, err := r.store.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 1})
	if err != nil || len(ds) != 1 || string(ds[0].Body) != "hello" || ds[0].Headers["tenant"] != "x" {
		t.Fatal(err, ds)
	}
	here(`class="leased lit"`)
	if _, err := r.store.Settle(t.Context(), []punctual.Settlement{{Topic: "t", ID: ds[0].ID, Token: ds[0].Token, Verb: punctual.SettleAck}}); err != nil {
		t.Fatal(err)
	}
	if a := r.get("/fragment" + at); a.Code != http.StatusNotFound {
		t.Errorf("a message that is no longer stored: %d", a.Code)
	}
	for _, form := range []url.Values{{"topic": {""}}, {"topic": {"t"}, "in": {"-1s"}}, {"topic": {"no good"}}, {"topic": {"punctual.audit"}}} {
		if a := r.post("/push", form); a.Code != 400 && a.Code != 403 || !strings.Contains(a.text, `role="alert"`) {
			t.Errorf("push of %v: %d", form, a.Code)
		}
	}
}

func TestLook(t *testing.T) {
	r := newRig(t, nil)
	a := r.post("/look", url.Values{"language": {"zh-CN"}, "theme": {"dark"}, "zone": {"Asia/Shanghai"}, "back": {"/topics?sort=dead"}})
	if a.Code != http.StatusSeeOther || a.Header().Get("Location") != "/topics?sort=dead" {
		t.Fatalf("%d to %q", a.Code, a.Header().Get("Location"))
	}
	req := requestTo("/topics")
	for _, k := range a.Result().Cookies() {
		if !k.HttpOnly || k.SameSite != http.SameSiteStrictMode {
			t.Errorf("cookie %v", k)
		}
		req.AddCookie(k)
	}
	for _, want := range []string{`<html lang="zh-CN" data-theme="dark">`, "20:00:00", "Asia/Shanghai"} {
		if text := r.do(req).text; !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for _, back := range []string{"//evil.example/", "https://evil.example", `/\evil.example`, ""} {
		if a := r.post("/look", url.Values{"back": {back}}); a.Header().Get("Location") != "/" {
			t.Errorf("back to %q leads to %q", back, a.Header().Get("Location"))
		}
	}
	if a := r.post("/look", url.Values{"zone": {"../../etc/passwd"}}); a.Code != 400 {
		t.Errorf("a zone that is none: %d", a.Code)
	}
}

// What a form has changed is in the counts of the next page.
func TestFormsAreCounted(t *testing.T) {
	r := newRig(t, nil)
	r.push("t", "a", time.Hour)
	r.push("t", "b", time.Hour)
	if text := wordsOf(r.page("/topics/t")); !strings.Contains(text, "Scheduled 2 ") {
		t.Fatalf("this test shows nothing: the page does not count two messages: %s", text)
	}
	r.sent("/topics/t/messages/a/amend", url.Values{"do": {"cancel"}})
	if text := wordsOf(r.page("/topics/t")); !strings.Contains(text, "Scheduled 1 ") {
		t.Errorf("after a message was cancelled the page says: %s", text)
	}
}

// A body is pushed again as it is, also one that looks like the name of a file.
func TestCurlOfABody(t *testing.T) {
	r := newRig(t, &Options{API: "/"})
	r.push("t", "a", time.Hour, func(m *punctual.NewMessage) { m.Body = []byte("@/etc/passwd") })
	r.push("t", "b", time.Hour, func(m *punctual.NewMessage) { m.Body = []byte("two\nlines") })
	if text := html.UnescapeString(r.page("/topics/t/messages/a")); !strings.Contains(text, "--data-raw '@/etc/passwd'") {
		t.Error("curl would read a file, in place of a body with its name")
	}
	if text := html.UnescapeString(r.page("/topics/t/messages/b")); !strings.Contains(text, "--data-binary '@body'") {
		t.Error("a body of two lines is not left to a file")
	}
}

func TestHiddenBodies(t *testing.T) {
	r := newRig(t, &Options{HideBodies: true, ShowHeaders: []string{"Tenant"}, API: "/"})
	secret := func(m *punctual.NewMessage) {
		m.Body, m.Headers = []byte("secret body"), map[string]string{"tenant": "shop-1", "token": "secret header"}
	}
	r.push("t", "a", 0, secret)
	ds, err := r.store.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Settle(t.Context(), []punctual.Settlement{{Topic: "t", ID: "a", Token: ds[0].Token, Verb: punctual.SettleDiscard}}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/topics/t", "/topics/t?state=dead", "/topics/t/messages/a", "/topics/t/messages/a?body=hex", "/topics/t/messages/a/body",
		"/topics/t/dead.ndjson", "/find?id=a&stay=1", "/find?topic=t&state=dead&name=token&value=secret",
	} {
		if a := r.get(path); strings.Contains(a.text, "secret body") || strings.Contains(a.text, "secret header") || strings.Contains(a.text, "c2VjcmV0") {
			t.Errorf("GET %s shows what is hidden", path)
		}
	}
	if text := r.page("/topics/t/messages/a"); !strings.Contains(text, "shop-1") || !strings.Contains(text, "11 bytes is hidden") {
		t.Error("the page does not say what it hides, or hides too much")
	}
	if a := r.get("/find?topic=t&state=dead&name=token&value=secret"); a.Code != 403 {
		t.Errorf("a search that tells what is hidden: %d", a.Code)
	}
}

func TestFind(t *testing.T) {
	r := newRig(t, nil)
	r.console.scanFor = time.Hour // however slow the machine is
	r.push("a", "x", time.Hour)
	r.push("b", "x", time.Hour)
	r.push("b", "only", time.Hour)
	many := make([]punctual.NewMessage, 12_000)
	for i := range many {
		many[i] = punctual.NewMessage{Topic: "many", ID: fmt.Sprintf("m%05d", i), Delay: time.Hour}
	}
	many[11_500].Headers = map[string]string{"Tenant": "shop-7"}
	for part := range slices.Chunk(many, limits.MaxBatch) {
		if _, err := r.store.Push(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	if a := r.get("/find?id=only"); a.Code != http.StatusSeeOther || a.Header().Get("Location") != "/topics/b/messages/only" {
		t.Errorf("an ID that is in one topic: %d %q", a.Code, a.Header().Get("Location"))
	}
	if text := r.page("/find?id=x"); !strings.Contains(text, "/topics/a/messages/x") || !strings.Contains(text, "/topics/b/messages/x") || !strings.Contains(text, "Looked in 3 topics") {
		t.Error("an ID that is in two topics")
	}
	if text := r.page("/find?id=gone"); !strings.Contains(text, "0 messages found") || !strings.Contains(text, "A finished message is found while its topic keeps its record") {
		t.Error("an ID that is nowhere")
	}
	text := r.page("/find?topic=many&state=scheduled&name=tenant&value=shop")
	if !strings.Contains(text, "Looked at 10,000 messages") || strings.Contains(text, "m11500") {
		t.Error("the first step of a search looks at 10,000 messages")
	}
	on := regexp.MustCompile(`<a class="button" href="([^"]*after=[^"]*)"`).FindStringSubmatch(text)
	if on == nil {
		t.Fatal("the search does not go on")
	}
	if text := r.page(strings.ReplaceAll(on[1], "&amp;", "&")); !strings.Contains(text, "m11500") || !strings.Contains(text, "That is all there are") {
		t.Error("the second step does not find the message")
	}
}

// The messages that newest returns are compared with the end of the whole list, for deaths that are
// spread over time in different ways.
func TestNewest(t *testing.T) {
	for name, gap := range map[string]func(i int) time.Duration{
		"at once": func(int) time.Duration { return 0 }, "each second": func(int) time.Duration { return time.Second },
		"each day":     func(int) time.Duration { return 24 * time.Hour },
		"then a pause": func(i int) time.Duration { return time.Duration(i%50/49) * 1000 * time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			for i := range 200 {
				r.kill("t", "no", fmt.Sprintf("m%03d", i))
				r.clock.Advance(gap(i))
			}
			all, err := r.store.List(t.Context(), punctual.ListQuery{Topic: "t", State: punctual.StateDead, Limit: 1000})
			if err != nil {
				t.Fatal(err)
			}
			slices.Reverse(all.Messages)
			for _, n := range []int{1, 30, 199, 200, 500} {
				got, whole, err := newest(t.Context(), r.store, punctual.ListQuery{Topic: "t", State: punctual.StateDead}, n)
				if err != nil {
					t.Fatal(err)
				}
				if len(got) != min(n, 200) {
					t.Fatalf("newest %d: %d were found", n, len(got))
				}
				if whole != (n >= 200) {
					t.Errorf("newest %d: that these are all is said to be %t", n, whole)
				}
				for i := range got {
					if !got[i].Died.Equal(all.Messages[i].Died) { // messages with the same time may come in any order
						t.Fatalf("newest %d: place %d died at %v, want %v", n, i, got[i].Died, all.Messages[i].Died)
					}
				}
			}
		})
	}
}

// Every setting that is neither a pause nor fixed has a field on the page and can be changed. A bad
// value is refused with the text that the server and the command line have for it.
func TestSettingsInTheForm(t *testing.T) {
	values := map[settings.Kind]string{settings.Duration: "77m", settings.Count: "7", settings.Truth: "true", settings.Backoff: "5s,6s", settings.List: "billing,mail", settings.Events: "acked,dead", settings.Rate: "10/1s"}
	for _, row := range settings.Table {
		r := newRig(t, nil)
		byKey := row.Needs == settings.KeyedTopics && !row.Fixed // there is no such field in a topic without keys
		r.push("t", "m", time.Hour, func(m *punctual.NewMessage) {
			if byKey {
				m.Key = "c7"
			}
		})
		field := fmt.Sprintf(`name="%s" value="%s"`, row.Name, row.Default())
		form := func(text string) url.Values { return url.Values{row.Name: {text}, "was_" + row.Name: {row.Default()}} }
		want := punctual.DefaultSettings()
		want.Keyed = byKey
		switch row.Name {
		case "emit":
			field = `name="was_emit" value="none"` // the events have boxes
		case "groups":
			field = `name="group"` // the groups have forms of their own
		}
		if page := r.page("/topics/t/settings"); strings.Contains(page, field) != (!row.Pause && !row.Fixed) {
			t.Errorf("%s: the form of the topic has %s: %v", row.Name, field, !row.Pause)
		}
		r.sent("/topics/t/configure", form(values[row.Kind()]))
		if !row.Pause && !row.Fixed {
			var p punctual.SettingsPatch
			if err := row.Parse(&p, values[row.Kind()]); err != nil {
				t.Fatal(err)
			}
			row.Apply(&want, &p)
		}
		if got, err := r.store.Settings(t.Context(), "t"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the settings are %+v, %v; want %+v", row.Name, got, err, want)
		}
		for _, text := range []string{"", "sometimes", "0", "-1", "3x", "99999d", "1s,-1s"} {
			var p punctual.SettingsPatch
			bad := row.Parse(&p, text)
			if bad == nil {
				set := punctual.DefaultSettings()
				row.Apply(&set, &p)
				bad = row.Check(&set)
			}
			if bad == nil || row.Pause || row.Fixed {
				continue
			}
			if a := r.post("/topics/t/configure", form(text)); a.Code != 400 || !strings.Contains(html.UnescapeString(a.text), bad.Error()) {
				t.Errorf("%s of %q: %d; want 400 with %v", row.Name, text, a.Code, bad)
			}
		}
	}
}

// A form of settings that is refused is shown again with what was typed, and says at each wrong
// field what is wrong. Fields that were not changed show what the store has by now, and the form
// that is sent again changes only what was changed in it.
func TestRefusedSettingsKeepWhatWasTyped(t *testing.T) {
	r := newRig(t, nil)
	r.push("t", "m", time.Hour)
	r.configure("t", func(s *punctual.Settings) { s.MaxAttempts = 77 }) // after the page of the form was made
	form := url.Values{
		"lease": {"<soon>"}, "was_lease": {"30s"}, "backoff": {"9s"}, "was_backoff": {"exp:1s..1h,jitter=0.2"}, "late_after": {"99999d"}, "was_late_after": {"5m"},
		"max_attempts": {"10"}, "was_max_attempts": {"10"}, "emit": {"dead", "acked"}, "was_emit": {"none"},
	}
	a := r.post("/topics/t/configure", form)
	if a.Code != 400 || !strings.Contains(a.text, `role="alert"`) {
		t.Fatalf("the form is not refused: %d", a.Code)
	}
	for _, want := range []string{
		`name="lease" value="&lt;soon&gt;"`, `name="was_lease" value="30s"`, `aria-describedby="e-lease d-lease" aria-invalid="true"`, `<p id="e-lease" class="wrong">lease`,
		`<p id="e-late_after" class="wrong">late after`, `name="backoff" value="9s"`, `name="max_attempts" value="77"`, `name="was_max_attempts" value="77"`,
		`name="was_emit" value="none"`, `name="emit" value="acked" checked`, `name="emit" value="dead" checked`,
	} {
		if !strings.Contains(a.text, want) {
			t.Errorf("the refused form lacks %s", want)
		}
	}
	if n := strings.Count(a.text, `class="wrong"`); n != 2 {
		t.Errorf("%d fields are marked as wrong, want 2", n)
	}
	if text := r.page("/topics/t/settings?lease=1h&was_lease=30s"); strings.Contains(text, `value="1h"`) || strings.Contains(text, `class="wrong"`) {
		t.Error("a query fills in the form of the settings")
	}
	form.Set("lease", "1m")
	form.Set("late_after", "6m")
	r.sent("/topics/t/configure", form)
	if s, err := r.store.Settings(t.Context(), "t"); err != nil || s.Lease != time.Minute || s.LateAfter != 6*time.Minute || s.MaxAttempts != 77 || s.Emit != punctual.EventDead|punctual.EventAcked {
		t.Errorf("settings %+v, %v", s, err)
	}
}

// A field that is empty, or no number, is refused where it could be taken for another value, and
// nothing is changed.
func TestEmptyFields(t *testing.T) {
	for path, form := range map[string]url.Values{
		"/topics/order.close/configure":          {"lease": {""}, "was_lease": {"30s"}},
		"/topics/order.close/configure?attempts": {"max_attempts": {"3x"}, "was_max_attempts": {"10"}},
		"/topics/order.close/pause":              {"what": {"delivery"}, "pause": {""}},
		"/topics/order.close/pause?what":         {"what": {""}, "pause": {"true"}},
		"/topics/order.close/purge":              {"state": {""}, "typed": {"order.close"}},
		"/topics/order.close/amend":              {"do": {"reschedule"}, "in": {""}, "at": {""}, "id": {"order-001"}},
		"/topics/order.close/amend?do":           {"do": {""}, "id": {"order-001"}},
	} {
		r := newRig(t, nil)
		r.fill()
		before, err := r.store.Topics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if a := r.post(path, form); a.Code != http.StatusBadRequest || !strings.Contains(a.text, `role="alert"`) {
			t.Errorf("%s with %v: %d", path, form, a.Code)
		}
		if after, err := r.store.Topics(t.Context()); err != nil || !reflect.DeepEqual(after, before) {
			t.Errorf("%s with %v changed %v into %v, %v", path, form, before, after, err)
		}
	}
}
