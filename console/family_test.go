package console

import (
	"html"
	"maps"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// A topic with groups has a tab for each group, with the group's own counts, dead letters and
// pause. Groups are added and removed on the page of the settings.
func TestGroups(t *testing.T) {
	r := newRig(t, nil)
	r.push("orders", "A-1", time.Hour)
	if n := r.sent("/topics/orders/groups", url.Values{"do": {"add"}, "group": {"mail"}}); !strings.HasPrefix(n, "Group mail was added") {
		t.Error(n)
	}
	r.sent("/topics/orders/groups", url.Values{"do": {"add"}, "group": {"billing"}})
	r.push("orders@g.mail", "A-0", 0)
	r.kill("orders@g.mail", "no", "A-9")
	r.sent("/topics/orders@g.billing/pause", url.Values{"what": {"delivery"}, "pause": {"true"}})
	for _, path := range []string{"/topics/orders", "/topics/orders@g.mail", "/topics/orders/settings"} {
		r.console.reader.Recount()
		text := wordsOf(r.page(path))
		for _, want := range []string{"until due 1 live", "mail 1 live 1 dead", "billing 0 live paused"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not show %q: %s", path, want, text)
			}
		}
	}
	if text := r.page("/topics/orders@g.mail"); !strings.Contains(text, `<a href="/topics/orders">orders</a>`) || strings.Contains(text, "Pause pushes") {
		t.Error("the page of a group does not lead to its topic, or offers what cannot be done")
	}
	if text := r.page("/topics/orders@g.mail/settings"); strings.Contains(text, `name="group"`) || strings.Contains(text, `name="partitions"`) || !strings.Contains(text, `name="was_emit"`) {
		t.Error("the settings of a group have those of its topic, or lack its events")
	}
	if n := r.sent("/topics/orders/groups", url.Values{"do": {"remove"}, "group": {"mail"}}); n != "Group mail was removed." {
		t.Error(n)
	}
	r.console.reader.Recount()
	if text := wordsOf(r.page("/topics/orders")); !strings.Contains(text, "mail 1 live 1 dead removed") {
		t.Errorf("a group that was removed and has copies: %s", text)
	}
	for form, code := range map[string]int{"do=add&group=a+b": 400, "do=add&group=none": 400, "do=add&group=": 400, "do=explode&group=x": 400} {
		fields, err := url.ParseQuery(form)
		if err != nil {
			t.Fatal(err)
		}
		if a := r.post("/topics/orders/groups", fields); a.Code != code || !strings.Contains(a.text, `role="alert"`) {
			t.Errorf("%s: %d", form, a.Code)
		}
	}
	if n := r.sent("/topics/orders/groups", url.Values{"do": {"remove"}, "group": {"nobody"}}); !strings.HasPrefix(n, "Nothing differs") {
		t.Error(n)
	}
	unable := rigOver(t, noKeeper{r.store, r.store}, r.store, r.clock, nil)
	unable.wantText("/topics/orders/settings", "This store has no follow-ups, on which groups rest")
}

// The events of a topic are listed, the latest first, can be filtered by what happened and by time,
// and the page says when nobody reads them.
func TestEvents(t *testing.T) {
	r := newRig(t, nil)
	r.push("t", "m", time.Hour)
	r.wantText("/topics/t/events", "The topic tells of nothing")
	r.sent("/topics/t/configure", url.Values{"emit": {"acked", "dead", "cancelled"}, "was_emit": {"none"}})
	r.kill("t", "no", "d")
	r.clock.Advance(time.Second)
	r.sent("/topics/t/messages/m/amend", url.Values{"do": {"cancel"}})
	r.push("t@events", "strange", 0, func(m *punctual.NewMessage) { m.Body = []byte("<b>no event</b>") })
	r.console.reader.Recount()
	text := r.page("/topics/t/events")
	if strings.Contains(text, "nobody reads") {
		t.Error("events of a second ago are not unread")
	}
	dead, cancelled := strings.Index(text, `class="happened dead"`), strings.Index(text, `class="happened cancelled"`)
	if cancelled < 0 || dead < cancelled || !strings.Contains(text, `href="/topics/t/messages/d"`) || !strings.Contains(text, "not an event") || strings.Contains(text, "<b>no event") {
		t.Errorf("the events: %s", wordsOf(text))
	}
	r.push("t@events", "missed", 0, func(m *punctual.NewMessage) {
		m.Body = []byte(`{"event":"skipped","topic":"t","id":"daily~20261122T090000Z","at":1795348800000,"count":3,"why":"overlap"}`)
	})
	r.wantText("/topics/t/events?event=skipped", `href="/topics/t/schedules/daily"`, "skipped</span> × 3", "left out: overlap")
	if text := r.page("/topics/t/events?event=dead"); strings.Contains(text, `class="happened cancelled"`) || !strings.Contains(text, `class="happened dead"`) {
		t.Error("a filter by what happened is not kept to")
	}
	if text := r.page("/topics/t/events?from=2026-11-23T00:00"); strings.Contains(text, `class="happened`) || !strings.Contains(text, "what you chose") {
		t.Error("a filter by time is not kept to")
	}
	r.clock.Advance(2 * time.Minute)
	r.console.reader.Recount()
	r.wantText("/topics/t/events", "4 events wait, the first for 2 min 1 s: nobody reads them")
	r.console.reader.Expire()
	if now := r.page("/"); strings.Contains(now, "Messages wait for a consumer") || !strings.Contains(now, `href="/topics/t/events"`) {
		t.Errorf("the first page: %s", wordsOf(now))
	}
	if text := r.page("/topics"); strings.Contains(text, "t@events") || !strings.Contains(text, "1 companion topic") {
		t.Error("the topics list a companion that Punctual uses itself")
	}
	r.wantText("/topics?q=%40", "t@events")
	unable := rigOver(t, noKeeper{r.store, r.store}, r.store, r.clock, nil)
	unable.wantText("/topics/t/events", "it has no events")
}

// The page of a message says what it came from and, when asked, which messages it led to, as far as
// the reader may inspect those.
func TestRelations(t *testing.T) {
	grants := []access.Grant{access.Everything()}
	r := newRig(t, &Options{Authenticate: who(grants...)})
	r.push("a/b", "pay-1", 0)
	ds, err := r.store.Claim(t.Context(), punctual.Claim{Topics: []string{"a/b"}, Max: 1})
	if err != nil || len(ds) != 1 {
		t.Fatal(ds, err)
	}
	x := punctual.Settlement{Topic: "a/b", ID: "pay-1", Token: ds[0].Token, Verb: punctual.SettleSnooze, Delay: time.Hour, Then: []punctual.NewMessage{
		{Topic: "invoice", ID: "pay-1~invoice", Delay: time.Hour}, {Topic: "secret", ID: "pay-1~secret", Delay: time.Hour},
	}}
	storekit.SetAfter(&x)
	if errs, err := r.store.Settle(t.Context(), []punctual.Settlement{x}); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	r.schedule(schedule.Schedule{Topic: "invoice", Name: "daily", Spec: "@daily"})
	r.sent("/topics/invoice/schedules/daily/run", nil)

	r.wantText("/topics/invoice/messages/pay-1~invoice", "Follows", `href="/topics/a%2Fb/messages/pay-1"`)
	r.wantText("/topics/invoice/messages/daily~20261122T120000.000Z", "Occurrence of schedule", `href="/topics/invoice/schedules/daily"`)
	const page = "/topics/a%2Fb/messages/pay-1"
	if text := r.page(page); strings.Contains(text, "pay-1~invoice") || !strings.Contains(text, `href="`+page+`?followed=1"`) {
		t.Error("the page looks for what a message led to before it is asked")
	}
	r.console.reader.Recount()
	r.wantText(page+"?followed=1", `href="/topics/invoice/messages/pay-1~invoice"`, "pay-1~secret")
	few := rigOver(t, r.store, r.store, r.clock, &Options{Authenticate: who(access.Grant{Actions: access.Inspect, Topics: "invoice"}, access.Grant{Actions: access.Inspect, Topics: "a/*"})})
	if text := few.page(page + "?followed=1"); strings.Contains(text, "secret") || !strings.Contains(text, "pay-1~invoice") {
		t.Error("what a message led to is shown to those who may not inspect it, or hidden from those who may")
	}
	invoice := rigOver(t, r.store, r.store, r.clock, &Options{Authenticate: who(access.Grant{Actions: access.Inspect, Topics: "invoice"})})
	if text := invoice.page("/topics/invoice/messages/pay-1~invoice"); strings.Contains(text, `href="/topics/a%2Fb`) || !strings.Contains(text, "pay-1") {
		t.Error("a link leads to a message that the reader may not inspect")
	}
	hidden := rigOver(t, r.store, r.store, r.clock, &Options{HideBodies: true})
	if text := hidden.page("/topics/invoice/messages/pay-1~invoice"); strings.Contains(text, "Follows") {
		t.Error("a header that is hidden is shown")
	}
}

// A dead message gets another body and other headers, and is scheduled again with its other
// attributes, unless its due time has changed meanwhile. A scheduled message keeps its due time. A
// body that is not text cannot be changed.
func TestEditAndRequeue(t *testing.T) {
	r := newRig(t, nil)
	r.push("t", "d", 0, func(m *punctual.NewMessage) {
		m.Headers, m.MaxAttempts, m.Remember = map[string]string{"tenant": "shop-1"}, 3, time.Hour
	})
	ds, err := r.store.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 1})
	if err != nil || len(ds) != 1 {
		t.Fatal(ds, err)
	}
	if _, err := r.store.Settle(t.Context(), []punctual.Settlement{{Topic: "t", ID: "d", Token: ds[0].Token, Verb: punctual.SettleDiscard, Error: "bad body"}}); err != nil {
		t.Fatal(err)
	}
	r.wantText("/topics/t/messages/d", "Edit and requeue", "body of d</textarea>")
	due := r.editFormOf("/topics/t/messages/d")
	due["body"], due["headers"], due["in"] = []string{"a\r\nb"}, []string{"tenant: shop-2\r\nnew: x"}, []string{"5m"}
	if n := r.sent("/topics/t/messages/d/edit", due); !strings.HasPrefix(n, "d was changed, and is due 2026-11-22 12:05:00") {
		t.Error(n)
	}
	m := r.message("t", "d")
	if string(m.Body) != "a\nb" || m.Headers["tenant"] != "shop-2" || m.Headers["new"] != "x" || m.State != punctual.StateScheduled || m.MaxAttempts != 3 || m.Remember != time.Hour || m.Attempt != 0 {
		t.Errorf("%+v", m)
	}
	if a := r.post("/topics/t/messages/d/edit", due); a.Code != 409 || string(r.message("t", "d").Body) != "a\nb" {
		t.Errorf("the same form again: %d", a.Code)
	}
	keeps := r.editFormOf("/topics/t/messages/d")
	keeps["body"], keeps["headers"] = []string{"third"}, []string{"new: x\ntenant: shop-2"}
	r.sent("/topics/t/messages/d/edit", keeps)
	if m := r.message("t", "d"); string(m.Body) != "third" || !m.Due.Equal(noon.Add(5*time.Minute)) {
		t.Errorf("a scheduled message: %+v", m)
	}
	bad := r.editFormOf("/topics/t/messages/d")
	bad["body"], bad["headers"] = []string{"x"}, []string{"no colon"}
	if a := r.post("/topics/t/messages/d/edit", bad); a.Code != 400 {
		t.Errorf("headers that are none: %d", a.Code)
	}
	r.push("t", "binary", time.Hour, func(m *punctual.NewMessage) { m.Body = []byte{0xff, 0} })
	if text := r.page("/topics/t/messages/binary"); strings.Contains(text, "/edit") {
		t.Error("a body that is no text can be edited")
	}
	if a := r.post("/topics/t/messages/binary/edit", url.Values{"due": {exact(noon.Add(time.Hour))}, "body": {"x"}}); a.Code != 400 || string(r.message("t", "binary").Body) != "\xff\x00" {
		t.Errorf("a body that is no text: %d", a.Code)
	}
}

// A message can be pushed on the page of its topic. A form that is refused keeps what was typed.
func TestPushToTopic(t *testing.T) {
	r := newRig(t, nil)
	r.push("t", "m", time.Hour)
	if n := r.sent("/topics/t/push", url.Values{"id": {"own"}, "in": {"30m"}, "body": {"hello"}, "headers": {"tenant: shop-1"}, "max_attempts": {"2"}, "expire": {"1h"}}); n != "own is stored." {
		t.Error(n)
	}
	if m := r.message("t", "own"); string(m.Body) != "hello" || m.Headers["tenant"] != "shop-1" || m.MaxAttempts != 2 || !m.Expires.Equal(noon.Add(90*time.Minute)) {
		t.Errorf("%+v", m)
	}
	a := r.post("/topics/t/push", url.Values{"in": {"soon"}, "body": {"typed <b>"}})
	if a.Code != 400 || !strings.Contains(a.text, "typed &lt;b&gt;</textarea>") {
		t.Errorf("a delay that is none: %d", a.Code)
	}
	paused := true
	if _, err := r.store.Configure(t.Context(), "t", punctual.SettingsPatch{PushPaused: &paused}); err != nil {
		t.Fatal(err)
	}
	if a := r.post("/topics/t/push", url.Values{"body": {"x"}}); a.Code != 409 && a.Code != 503 && a.Code != 423 {
		t.Errorf("a topic that takes no pushes: %d", a.Code)
	}
}

// A form that pushes or edits a message and is refused is shown again, open and with all that was
// typed, and says at the wrong field what is wrong. What no field is the reason for stands above
// the page alone.
func TestRefusedFormsKeepWhatWasTyped(t *testing.T) {
	r := newRig(t, nil)
	r.push("t", "later", time.Hour)
	r.kill("t", "bad", "d")
	form := r.editFormOf("/topics/t/messages/d")
	change := func(with url.Values) url.Values {
		all := maps.Clone(form)
		maps.Copy(all, with)
		return all
	}
	wrong := func(field string) string { return `aria-invalid="true" aria-describedby="e-` + field + `"` }
	for _, c := range []struct {
		what, path string
		form       url.Values
		field      string
		want       []string
	}{
		{"edit, headers", "/topics/t/messages/d/edit", change(url.Values{"body": {"<typed>"}, "headers": {"no colon"}, "in": {"7m"}}), "headers", []string{">&lt;typed&gt;</textarea>", ">no colon</textarea>", `name="in" value="7m"`, `class="edit" open`}},
		{"edit, delay", "/topics/t/messages/d/edit", change(url.Values{"body": {"typed"}, "headers": {"a: b"}, "in": {"soon"}}), "in", []string{">typed</textarea>", ">a: b</textarea>", `name="in" value="soon"`}},
		{"edit, changed meanwhile", "/topics/t/messages/d/edit", change(url.Values{"body": {"typed"}, "was": {"other"}, "in": {"1m"}}), "", []string{">typed</textarea>", `name="was" value="` + form.Get("was") + `"`, `name="in" value="1m"`}},
		{"push, delay", "/push", url.Values{"topic": {"t"}, "id": {"own"}, "in": {"soon"}, "body": {"typed"}, "headers": {"tenant: shop"}}, "in", []string{`name="in" value="soon"`, `name="id" value="own"`, ">typed</textarea>", ">tenant: shop</textarea>", `name="topic" value="t"`, `class="edit" open`}},
		{"push, time", "/push", url.Values{"topic": {"t"}, "in": {""}, "at": {"never"}, "body": {""}}, "at", []string{`name="at" value="never"`, `name="in" value=""`, `spellcheck="false"></textarea>`}},
		{"push, topic", "/push", url.Values{"topic": {"a b"}, "in": {"1m"}, "body": {"typed"}}, "topic", []string{`name="topic" value="a b"`, ">typed</textarea>"}},
		{"push, ID", "/push", url.Values{"topic": {"t"}, "id": {strings.Repeat("i", 200)}, "in": {"1m"}, "body": {"typed"}}, "id", []string{strings.Repeat("i", 200), ">typed</textarea>"}},
		{"push, expiry", "/topics/t/push", url.Values{"in": {"1m"}, "expire": {"soon"}, "body": {"typed"}}, "expire", []string{`name="expire" value="soon"`, ">typed</textarea>"}},
		{"push, attempts", "/topics/t/push", url.Values{"in": {"1m"}, "max_attempts": {"many"}, "body": {"typed"}}, "max_attempts", []string{`name="max_attempts" value="many"`}},
		{"push, headers", "/topics/t/push", url.Values{"headers": {"no colon"}, "body": {"typed"}}, "headers", []string{">no colon</textarea>"}},
	} {
		a := r.post(c.path, c.form)
		if a.Code/100 != 4 || !strings.Contains(a.text, `role="alert"`) {
			t.Errorf("%s: the form is not refused: %d", c.what, a.Code)
		}
		if c.field != "" {
			c.want = append(c.want, wrong(c.field), `<p id="e-`+c.field+`" class="wrong">`)
		}
		if n := strings.Count(a.text, `class="wrong"`); n > 1 || n > 0 && c.field == "" {
			t.Errorf("%s: %d fields are marked", c.what, n)
		}
		for _, want := range c.want {
			if !strings.Contains(a.text, want) {
				t.Errorf("%s: the refused form lacks %s", c.what, want)
			}
		}
	}
	if m := r.message("t", "d"); string(m.Body) != "body of d" {
		t.Errorf("%s", m.Body)
	}
}

// A finding about very many messages names the span in which they are due, and leads to the picture
// of that span with the topics by number.
func TestBurstNamesItsSpan(t *testing.T) {
	for _, c := range []struct {
		in              time.Duration
		sentence, query string
	}{
		{30 * time.Minute, "11,000 messages are due within the minute from 2026-11-22 12:30 on.", "span=60m&amp;to=2026-11-22T12%3A31%3A00.000Z"},
		{5*time.Hour + 10*time.Minute, "10,989 messages are due within the minute from 2026-11-22 17:10 on.", "span=48h&amp;to=2026-11-22T18%3A00%3A00.000Z"},
		{60 * 24 * time.Hour, "11,000 messages are due on 2027-01-21, over the whole day.", "span=90d&amp;to=2027-01-22T00%3A00%3A00.000Z"},
	} {
		r := newRig(t, nil)
		for range 11 {
			ms := make([]punctual.NewMessage, 1000)
			for i := range ms {
				ms[i] = punctual.NewMessage{Topic: "many", Delay: c.in}
			}
			ms[0].Topic = "few"
			if _, err := r.store.Push(t.Context(), ms); err != nil {
				t.Fatal(err)
			}
		}
		text := r.counted("/")
		link := regexp.MustCompile(`<a href="(/\?[^"]*)">many</a> ` + regexp.QuoteMeta(c.sentence)).FindStringSubmatch(text)
		if link == nil || !strings.Contains(link[1], c.query) {
			t.Errorf("the page does not say %q with a link to %s: %q", c.sentence, c.query, regexp.MustCompile(`<li class="warning">.*`).FindAllString(text, -1))
			continue
		}
		if page := wordsOf(r.counted(html.UnescapeString(link[1]))); !strings.Contains(page, "many 10,989") || !strings.Contains(page, "few 11") {
			t.Errorf("%s does not have the topics by number: %s", link[1], page)
		}
	}
}
