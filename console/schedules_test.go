package console

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	attributesrig "github.com/punctualmq/punctual/internal/rigs/attributes"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// tick has a scheduler do what is due for the schedules of a topic, as a duty does.
func (r *rig) tick(topic string) {
	r.t.Helper()
	ds, err := r.store.Claim(r.t.Context(), punctual.Claim{Topics: []string{topic + "@cron"}, Max: 100})
	if err != nil {
		r.t.Fatal(err)
	}
	duty := schedule.NewScheduler(r.store)
	for i := range ds {
		how := punctual.DecisionOf(duty.Handle(r.t.Context(), &ds[i]))
		errs, err := r.store.Settle(r.t.Context(), []punctual.Settlement{{Topic: ds[i].Topic, ID: ds[i].ID, Token: ds[i].Token, Verb: how.Verb, Delay: how.Delay, Then: how.Then}})
		if err != nil || errs[0] != nil {
			r.t.Fatal(err, errs)
		}
	}
}

// found returns a schedule that must be stored.
func (r *rig) found(topic, name string) schedule.Info {
	r.t.Helper()
	s, err := schedule.Get(r.t.Context(), punctual.NewQueue(r.store, nil), topic, name)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// The list has every schedule that the reader may inspect, with its next and its last time, what
// became of the last one, and its state. It can be filtered by topic and name.
func TestScheduleList(t *testing.T) {
	r := newRig(t, nil)
	q := punctual.NewQueue(r.store, nil)
	r.schedule(schedule.Schedule{Topic: "reports", Name: "hourly", Spec: "@hourly"})
	r.schedule(schedule.Schedule{Topic: "reports", Name: "daily", Spec: "0 9 * * MON-FRI", Zone: "Europe/Berlin"})
	r.schedule(schedule.Schedule{Topic: "mail", Name: "once", Spec: "@hourly", Limit: 1})
	r.schedule(schedule.Schedule{Topic: "mail", Name: "idle", Spec: "@hourly"})
	r.clock.Advance(time.Hour)
	r.tick("reports")
	if err := schedule.Pause(t.Context(), q, "reports", "daily", "anna", "until the <API> is back"); err != nil {
		t.Fatal(err)
	}
	text := wordsOf(r.page("/schedules"))
	for _, want := range []string{
		"hourly", "14:00:00 in 1 h", "13:00:00", "ready", // the schedule came at one o'clock, and its occurrence waits
		"on Monday to Friday (Europe/Berlin)", "paused", "anna: until the &lt;API&gt; is back",
		"once", "overdue", "24", // nobody has stored the occurrence of one o'clock
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the list does not show %q: %s", want, text)
		}
	}
	if page := r.page("/schedules"); !strings.Contains(page, `href="/topics/reports/messages/hourly~20261122T130000Z"`) {
		t.Error("the last time does not lead to its message")
	}
	for path, want := range map[string]string{"/schedules?topic=mail": "once", "/schedules?q=dai": "daily", "/topics/mail/schedules": "once"} {
		if text := r.page(path); !strings.Contains(text, ">"+want+"</a>") || strings.Contains(text, ">hourly</a>") {
			t.Errorf("%s lists other schedules", path)
		}
	}
	few := rigOver(t, r.store, r.store, r.clock, &Options{Authenticate: who(access.Grant{Actions: access.Inspect, Topics: "mail"})})
	if text := few.page("/schedules"); strings.Contains(text, ">hourly</a>") || strings.Contains(text, "reports") || !strings.Contains(text, ">once</a>") {
		t.Error("whoever may inspect one topic sees the schedules of others, or not those of that one")
	}
	r.clock.Advance(time.Minute)
	if now := wordsOf(r.page("/")); !strings.Contains(now, "The schedule once does not come: its time 2026-11-22T13:00:00Z has come, and no duty has stored it") {
		t.Errorf("the first page does not name the schedule that nobody stores: %s", now)
	}
	if a := few.get("/schedules?topic=reports"); a.Code != 403 {
		t.Errorf("schedules of a topic that one may not inspect: %d", a.Code)
	}
	if text := r.page("/schedules?q=nothing"); !strings.Contains(text, "what you chose") {
		t.Error("a filter that hides all says nothing")
	}
}

// A long list is divided into pages on which each schedule stands once. A page costs a bounded
// number of calls of the store, which does not grow with the schedules on other pages.
func TestManySchedules(t *testing.T) {
	r, s := newCounted(t)
	follows := rigOver(t, following{s, r.store}, r.store, r.clock, nil)
	for i := range 120 {
		r.schedule(schedule.Schedule{Topic: "t", Name: fmt.Sprintf("s%03d", i), Spec: "@hourly"})
	}
	seen := make(map[string]bool)
	path := "/schedules"
	for range 3 {
		before := s.calls.Load()
		text := follows.page(path)
		if n := s.calls.Load() - before; n > 8+2*pageRows {
			t.Errorf("%s costs %d calls of the store", path, n)
		}
		for i := range 120 {
			if name := fmt.Sprintf("s%03d", i); strings.Contains(text, ">"+name+"</a>") {
				if seen[name] {
					t.Errorf("%s is on two pages", name)
				}
				seen[name] = true
			}
		}
		at := strings.LastIndex(text, `<a href="/schedules?start=`)
		if at < 0 {
			break
		}
		path, _, _ = strings.Cut(text[at+len(`<a href="`):], `"`)
	}
	if len(seen) != 120 {
		t.Errorf("three pages have %d schedules", len(seen))
	}
}

// The page Schedules has what comes next first, whatever its topic, what is paused last, and
// expression and zone on one line. A topic that has a second page keeps the order of topics, and no
// column is then marked as sorted.
func TestSchedulesByNextTime(t *testing.T) {
	r := newRig(t, nil) // noon, a Sunday
	for _, s := range []schedule.Schedule{
		{Topic: "a", Name: "evening", Spec: "0 18 * * *"},
		{Topic: "a", Name: "rest", Spec: "0 13 * * *"},
		{Topic: "b", Name: "soon", Spec: "0 14 * * *", Zone: "Europe/Berlin"},
		{Topic: "c", Name: "night", Spec: "0 23 * * *"},
	} {
		r.schedule(s)
	}
	if err := schedule.Pause(t.Context(), punctual.NewQueue(r.store, nil), "a", "rest", "ann", ""); err != nil {
		t.Fatal(err)
	}
	text, at := r.page("/schedules"), 0
	for _, name := range []string{"soon", "evening", "night", "rest"} {
		next := strings.Index(text[at:], ">"+name+"</a>")
		if next < 0 {
			t.Fatalf("%s is missing, or not behind what comes earlier: %s", name, wordsOf(text))
		}
		at += next
	}
	if want := ` <span class="faint id" title="0 14 * * * Europe/Berlin">0 14 * * * Europe/Berlin</span>`; !strings.Contains(text, want) || !strings.Contains(text, `aria-sort="ascending">Next`) {
		t.Errorf("the page lacks %s, or a mark at the column that sorts it", want)
	}
	if rule := regexp.MustCompile(`(?m)^\.when \.id \{.*\}$`).FindString(styleOf(t)); !strings.Contains(rule, "white-space: nowrap") {
		t.Errorf("expression and zone may take several lines: %q", rule)
	}
	for i := range pageRows {
		r.schedule(schedule.Schedule{Topic: "a", Name: fmt.Sprintf("early%03d", i), Spec: "0 16 * * *"})
	}
	if text := r.page("/schedules"); !strings.Contains(text, "start=") || strings.Contains(text, "aria-sort") {
		t.Error("one of several pages is marked as sorted by the next time")
	}
}

// following is a counted store that has the abilities of the store below, follow-ups among them.
type following struct {
	*counted
	storekit.AbilityReporter
}

// The page of a schedule says when its messages expire, and if they are dropped then, that they
// vanish.
func TestExpiryOfASchedule(t *testing.T) {
	r := newRig(t, nil)
	r.schedule(schedule.Schedule{Topic: "reports", Name: "kept", Spec: "@daily", ExpireAfter: 90 * time.Minute})
	r.schedule(schedule.Schedule{Topic: "reports", Name: "dropped", Spec: "@daily", ExpireAfter: 90 * time.Minute, DropExpired: true})
	for path, want := range map[string]string{"kept": "<dd>1h30m</dd>", "dropped": "<dd>1h30m, then it vanishes</dd>", "dropped?lang=zh-CN": "<dd>1h30m，届时消失</dd>"} {
		if text := r.page("/topics/reports/schedules/" + path); !strings.Contains(text, want) {
			t.Errorf("%s: the page lacks %q: %s", path, want, wordsOf(text))
		}
	}
}

// Each form on the page of a schedule does what it says and leads to a notice, except for the dry
// run of a backfill, which is shown on its page. Bad input is refused with the page of the form.
func TestScheduleActions(t *testing.T) {
	r := newRig(t, &Options{Authenticate: who(access.Everything())})
	r.schedule(schedule.Schedule{Topic: "reports", Name: "daily", Spec: "0 9 * * *", Body: []byte("report")})
	const page = "/topics/reports/schedules/daily"
	if text := wordsOf(r.page(page)); !strings.Contains(text, "at 09:00 every day (UTC)") || !strings.Contains(text, "Mon 2026-11-23 09:00:00 UTC") || !strings.Contains(text, "It has not come yet") {
		t.Errorf("the page: %s", text)
	}
	if n := r.sent(page+"/pause", url.Values{"note": {"holidays"}}); n != "daily is paused." {
		t.Error(n)
	}
	if p := r.found("reports", "daily").Paused; p == nil || p.By != "ann" || p.Note != "holidays" {
		t.Errorf("%+v", p)
	}
	r.sent(page+"/resume", url.Values{"catch_up": {"true"}})
	if p := r.found("reports", "daily").Paused; p != nil {
		t.Errorf("%+v", p)
	}
	if n := r.sent(page+"/skip", url.Values{"n": {"2"}}); !strings.HasPrefix(n, "2 times are skipped, the last of them at 2026-11-24 09:00:00") {
		t.Error(n)
	}
	if next := r.found("reports", "daily").Next[0].At.Day(); next != 25 {
		t.Errorf("the next time is on the %dth", next)
	}
	if n := r.sent(page+"/run", nil); !strings.HasPrefix(n, "daily~20261122T120000.000Z is stored") {
		t.Error(n)
	}
	past := url.Values{"do": {"dry"}, "from": {"2026-11-19T00:00"}, "to": {"2026-11-21T12:00"}}
	dry := r.post(page+"/backfill", past)
	if dry.Code != 200 || !strings.Contains(dry.text, "daily~20261119T090000Z") || !strings.Contains(dry.text, "would store 3 times") {
		t.Errorf("a dry run: %d %s", dry.Code, wordsOf(dry.text))
	}
	if _, err := r.store.Get(t.Context(), "reports", "daily~20261119T090000Z"); err == nil {
		t.Error("a dry run stores")
	}
	past.Set("do", "store")
	if n := r.sent(page+"/backfill", past); n != "3 were stored; 0 were there already." {
		t.Error(n)
	}
	if n := r.sent(page+"/backfill", past); n != "0 were stored; 3 were there already." {
		t.Error(n)
	}
	for form, want := range map[string]string{
		"/skip?n=5000": "use 1 to", "/backfill?from=2026-11-20T00:00&to=2026-11-19T00:00": "exchange them", "/backfill?from=2026-11-20T00:00": "needs the instants",
		"/backfill?do=dry&from=2026-11-20T00:00&to=2027-11-19T00:00": "ahead",
	} {
		path, query, _ := strings.Cut(form, "?")
		fields, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if a := r.post(page+path, fields); a.Code != 400 || !strings.Contains(a.text, want) || !strings.Contains(a.text, `role="alert"`) {
			t.Errorf("%s: %d %s", form, a.Code, wordsOf(a.text))
		}
	}
	if n := r.sent(page+"/delete", nil); n != "Schedule daily was removed." {
		t.Error(n)
	}
	for _, verb := range []string{"", "/edit"} {
		if a := r.get(page + verb); a.Code != 404 {
			t.Errorf("GET %s%s of a schedule that is removed: %d", page, verb, a.Code)
		}
	}
	for _, verb := range []string{"/pause", "/resume", "/run", "/skip", "/delete", "/edit"} {
		if a := r.post(page+verb, nil); a.Code != 404 {
			t.Errorf("POST %s%s of a schedule that is removed: %d", page, verb, a.Code)
		}
	}
}

// TestScheduleHandsAttributesOn: each attribute of messages is on the page of a schedule and in its
// form, which also stores it.
func TestScheduleHandsAttributesOn(t *testing.T) {
	r := newRig(t, nil)
	full := attributesrig.Full(t)
	form := url.Values{"topic": {"reports"}, "name": {"daily"}, "was_spec": {""}, "spec": {"@daily"}, "do": {"put"}}
	for _, a := range wire.AttributesToShow(full) {
		form.Set("was_"+a.Name, "")
		form.Set(a.Name, a.Value)
	}
	if n := r.sent("/schedules/new", form); n != "Schedule daily is stored." {
		t.Error(n)
	}
	s := r.found("reports", "daily")
	if got := s.Schedule.Attributes(); got != full {
		t.Errorf("stored with %+v, want %+v", got, full)
	}
	languages, err := readLanguages()
	if err != nil {
		t.Fatal(err)
	}
	page, edit := r.page("/topics/reports/schedules/daily"), r.page("/topics/reports/schedules/daily/edit")
	for _, a := range wire.AttributesToShow(full) {
		if label := languages[0].text("attribute." + a.Name); !strings.Contains(page, label) || !strings.Contains(page, a.Value) {
			t.Errorf("the page of the schedule does not show %s, which is %s", a.Name, a.Value)
		}
		if !strings.Contains(edit, `name="`+a.Name+`" value="`+a.Value+`"`) {
			t.Errorf("the form does not show %s, which is %s", a.Name, a.Value)
		}
	}
}

// A schedule can be previewed before it is saved. An expression that is wrong is refused with the
// mistake. A change leaves the fields that were not changed in the form as they are in the store.
func TestScheduleForm(t *testing.T) {
	r := newRig(t, nil)
	form := url.Values{"topic": {"reports"}, "name": {"daily"}, "was_spec": {""}, "spec": {"0 9 1 * MON"}, "was_zone_name": {"UTC"}, "zone_name": {"Europe/Berlin"}, "do": {"preview"}}
	preview := r.post("/schedules/new", form)
	text := wordsOf(preview.text)
	if preview.Code != 200 || !strings.Contains(text, "Mon 2026-11-23 09:00:00 CET in 20 h") || !strings.Contains(text, "on the 1st and on every Monday") || !strings.Contains(preview.text, `value="0 9 1 * MON"`) {
		t.Errorf("a preview: %d %s", preview.Code, text)
	}
	if typed := r.page("/fragment/schedules/new?" + form.Encode()); !strings.Contains(typed, "Mon 2026-11-23 09:00:00 CET") || strings.Contains(typed, "<html") {
		t.Errorf("what the script asks for: %s", typed)
	}
	for spec, want := range map[string]string{"0 25 * * *": "hour, at character 3", "": "it has no fields", "0 0 30 2 *": "30"} {
		form.Set("spec", spec)
		form.Set("do", "put")
		if a := r.post("/schedules/new", form); a.Code != 400 || !strings.Contains(a.text, want) {
			t.Errorf("%q: %d, want %q: %s", spec, a.Code, want, wordsOf(a.text))
		}
		if typed := r.page("/fragment/schedules/new?" + form.Encode()); spec != "" && !strings.Contains(typed, want) {
			t.Errorf("the preview of %q says %s", spec, typed)
		}
	}
	form.Set("spec", "0 9 * * *")
	for name, value := range map[string]string{"spread": "5m", "body": "a\r\nb", "headers": "tenant: shop-1\r\n kind : x", "except": "12-25, 2026-12-24", "max_dead": "3", "missed": "all", "overlap": "allow"} {
		form.Set("was_"+name, "")
		form.Set(name, value)
	}
	if n := r.sent("/schedules/new", form); n != "Schedule daily is stored." {
		t.Error(n)
	}
	s := r.found("reports", "daily")
	if s.Zone != "Europe/Berlin" || s.Spread != 5*time.Minute || string(s.Body) != "a\nb" || s.Headers["tenant"] != "shop-1" || s.Headers["kind"] != "x" || len(s.Except) != 2 ||
		s.MaxDead != 3 || s.Missed != schedule.MissedAll || s.Overlap != schedule.OverlapAllow {
		t.Errorf("stored %+v", s.Schedule)
	}
	if a := r.post("/schedules/new", form); a.Code != 409 {
		t.Errorf("a second one with the name: %d", a.Code)
	}
	const edit = "/topics/reports/schedules/daily/edit"
	if text := r.page(edit); !strings.Contains(text, `name="was_spread" value="5m"`) || !strings.Contains(text, "tenant: shop-1") {
		t.Error("the form does not have what is stored")
	}
	// Somebody else changes the spread after the page of the form was made, and before the form
	// changes the expression.
	other := s.Schedule
	other.Spread = time.Minute
	r.schedule(other)
	if n := r.sent(edit, url.Values{"was_spec": {"0 9 * * *"}, "spec": {"0 10 * * *"}, "was_spread": {"5m"}, "spread": {"5m"}, "was_body": {"a\r\nb"}, "body": {"a\r\nb"}}); n != "Schedule daily was changed." {
		t.Error(n)
	}
	if s := r.found("reports", "daily"); s.Spec != "0 10 * * *" || s.Spread != time.Minute || string(s.Body) != "a\nb" {
		t.Errorf("after the change %+v", s.Schedule)
	}
	for field, bad := range map[string]string{"grace": "soon", "limit": "x", "headers": "none", "from": "never", "zone_name": "Mars/Base"} {
		if a := r.post(edit, url.Values{"was_" + field: {""}, field: {bad}}); a.Code != 400 || !strings.Contains(a.text, `role="alert"`) {
			t.Errorf("%s of %q: %d", field, bad, a.Code)
		}
	}
}

// Where bodies are hidden, the pages of a schedule show neither its body nor its headers, and a
// change keeps both.
func TestScheduleWithHiddenBody(t *testing.T) {
	r := newRig(t, &Options{HideBodies: true, Authenticate: who(access.Everything())})
	r.schedule(schedule.Schedule{Topic: "reports", Name: "daily", Spec: "@daily", Body: []byte("a secret"), Headers: map[string]string{"key": "a secret"}})
	const page = "/topics/reports/schedules/daily"
	for _, path := range []string{page, page + "/edit", "/schedules"} {
		if strings.Contains(r.page(path), "secret") {
			t.Errorf("%s shows what is hidden", path)
		}
	}
	r.sent(page+"/edit", url.Values{"was_spec": {"@daily"}, "spec": {"@hourly"}})
	if s := r.found("reports", "daily"); s.Spec != "@hourly" || string(s.Body) != "a secret" || s.Headers["key"] != "a secret" {
		t.Errorf("after the change %+v", s.Schedule)
	}
}

// If the store has no follow-ups or cannot be inspected, the pages of schedules say that there can
// be none, and a new schedule is refused.
func TestStoreWithoutSchedules(t *testing.T) {
	r := newRig(t, nil)
	r.push("t", "m", time.Hour)
	type plain struct{ punctual.Store }
	for name, over := range map[string]punctual.Store{"no follow-ups": noKeeper{r.store, r.store}, "no inspector": plain{r.store}} {
		o := rigOver(t, over, r.store, r.clock, nil)
		paths := []string{"/schedules", "/schedules/new"}
		if name == "no follow-ups" {
			paths = append(paths, "/topics/t/schedules")
		}
		for _, path := range paths {
			o.wantText(path, "This store has no follow-ups")
		}
		if a := o.post("/schedules/new", url.Values{"topic": {"t"}, "name": {"n"}, "was_spec": {""}, "spec": {"@daily"}}); a.Code != 422 {
			t.Errorf("%s: a new schedule: %d", name, a.Code)
		}
	}
}

// The picture of a topic marks when its schedules come that are not paused, and its table counts
// their times beside the messages. If not all times up to its end are known, the page says up to
// when they are.
func TestSchedulesInThePicture(t *testing.T) {
	r := newRig(t, nil)
	r.push("t", "m", 30*time.Minute)
	r.schedule(schedule.Schedule{Topic: "t", Name: "quarterly", Spec: "*/15 * * * *"})
	r.schedule(schedule.Schedule{Topic: "t", Name: "paused", Spec: "* * * * *"})
	r.schedule(schedule.Schedule{Topic: "t", Name: "half", Spec: "30 * * * *"})
	if err := schedule.Pause(t.Context(), punctual.NewQueue(r.store, nil), "t", "paused", "", ""); err != nil {
		t.Fatal(err)
	}
	r.page("/topics/t")
	text := r.counted("/topics/t")
	for _, want := range []string{"<title>12:15: 1 time: quarterly</title>", "<title>12:30: 2 times: quarterly, half</title>", "A schedule comes here"} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture lacks %s", want)
		}
	}
	if n := strings.Count(text, `<g class="run">`); n != 3 {
		t.Errorf("%d marks, want 3", n)
	}
	if row := `<td class="n">1</td><td class="n">2</td>`; !strings.Contains(text, row) {
		t.Error("the table does not say that a message and two schedules come at 12:30")
	}
	r.schedule(schedule.Schedule{Topic: "t", Name: "seconds", Spec: "* * * * * *"})
	if text := r.counted("/topics/t"); !strings.Contains(text, "Marked up to 12:16:40") {
		t.Error("a picture that does not know all times does not say so")
	}
}
