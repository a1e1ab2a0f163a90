package browsertest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/console"
	"github.com/punctualmq/punctual/storekit"
)

// clickOn returns a step that clicks on the element which a selector finds.
func clickOn(selector string) step { return chromedp.Click(css(selector)) }

// submit clicks on an element that leads to another page, and waits for that page.
func (r *rig) submit(selector string) {
	r.t.Helper()
	r.leads(selector, clickOn(selector))
}

// leads carries out steps that lead to another page, and waits for that page.
func (r *rig) leads(what string, steps ...step) {
	r.t.Helper()
	r.run("window.before = true")
	r.do(steps...)
	r.until(what+" leads to another page", `window.before === undefined && document.readyState === "complete"`)
}

// fill gives a field its value, as a picker or a list of choices does.
func (r *rig) fill(selector, value string) {
	r.t.Helper()
	if !eval[bool](r, fmt.Sprintf(`(() => { const e = document.querySelector(%q); if (!e) return false; e.value = %q; e.dispatchEvent(new Event("change", {bubbles: true})); return e.value !== "" && %q.startsWith(e.value); })()`, selector, value, value)) {
		r.t.Fatalf("%s does not take %q\nthe page: %s", selector, value, r.pageText())
	}
}

// tick ticks the messages with these IDs.
func (r *rig) tick(ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		r.do(clickOn(fmt.Sprintf(`input[form=many][value=%q]`, id)))
	}
	r.until("the page counts the ticked ones", fmt.Sprintf(`document.getElementById("ticked").textContent === "%d"`, len(ids)))
}

// accepted fails the test when the page says that the form was refused.
func (r *rig) accepted(what string) {
	r.t.Helper()
	if eval[bool](r, `document.querySelector(".problem") !== null`) {
		r.t.Fatalf("%s is refused: %s", what, r.pageText())
	}
}

// Each page shows its own text, which for most pages is something of what is in the store. The rows
// of the table below a picture of the page Ahead lead to topics, and those to messages.
func TestPages(t *testing.T) {
	overStores(t, func(t *testing.T, s punctual.Store) {
		r := newRig(t, s, nil)
		r.seed()
		shown := map[string]string{
			"now": "Scheduled", "week": "order.cancel", "lateness": "Lateness", "topics": "payment.notify", "topic": "order-", "dead-topic": "503",
			"message": "visit-3", "find": "order-7", "dead": "no such customer", "push": "Push", "audit": "",
		}
		for name, path := range pages() {
			r.open(path)
			want, known := shown[name]
			if !known {
				t.Errorf("the test does not say what %s shows", name)
			}
			r.until(path+" shows "+want, fmt.Sprintf(`document.body.innerText.includes(%q)`, want))
		}
		for _, span := range []string{"60m", "48h", "90d"} {
			r.open("/")
			bar := `details.numbers tbody a[href*="span=` + span + `"]`
			r.until("all is counted", "document.querySelector('"+bar+"') !== null")
			r.run("document.querySelector('" + bar + `').closest("details").open = true`)
			r.submit(bar)
			r.until("a bar leads to the topics", `document.querySelector("#between table.rows") !== null`)
			r.submit(`#between table.rows a`)
			r.until("and those to messages", `document.querySelector("table.rows input[form=many]") !== null`)
		}
	})
}

// A message is pushed with the console's forms in the browser, and messages are rescheduled and
// cancelled, one by one and several at once. The test then reads them from the store.
func TestActionsOnMessages(t *testing.T) { overStores(t, actionsOnMessages) }

func actionsOnMessages(t *testing.T, s punctual.Store) {
	r := newRig(t, s, nil)
	r.open("/topics?push=1")
	for selector, text := range map[string]string{
		"form.card input[name=topic]": "shop", "form.card input[name=in]": "1h", "form.card input[name=id]": "x-1",
		"form.card textarea[name=headers]": "tenant: a", "form.card textarea[name=body]": `{"a":1}`,
	} {
		r.fill(selector, text)
	}
	r.submit("form.card button.main")
	r.shows("x-1")
	r.stored("what was typed is pushed", "shop", "x-1", func(m punctual.Info) bool {
		return m.State == punctual.StateScheduled && string(m.Body) == `{"a":1}` && m.Headers["tenant"] == "a"
	})

	message := "/topics/shop/messages/x-1"
	r.open(message + "?body=hex")
	r.shows("7b 22 61 22")
	r.open(message)
	r.until("there is a line for curl", `document.querySelector("details.curl").textContent.includes("curl")`)
	r.fill("section.do input[name=at]", "2031-01-02T03:04:05")
	r.submit("section.do label:has(input[name=at]) ~ button")
	r.stored("it is due when the picker says", "shop", "x-1", func(m punctual.Info) bool {
		return m.Due.Equal(time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC))
	})
	r.fill("section.do input[name=in]", "30m")
	r.submit("section.do label:has(input[name=at]) ~ button")
	r.stored("it is due in half an hour", "shop", "x-1", func(m punctual.Info) bool { return time.Until(m.Due) < 45*time.Minute })
	r.fill("section.do input[name=in]", "soon")
	r.submit("section.do label:has(input[name=at]) ~ button")
	r.until("what is no duration is refused", `document.querySelector(".problem") !== null`)
	r.forgive()
	r.open(message)
	r.submit("section.do button[value=now]")
	r.stored("it is ready", "shop", "x-1", func(m punctual.Info) bool { return m.State == punctual.StateReady })
	r.do(clickOn("details.confirm summary"))
	r.submit("details.confirm button")
	r.gone("shop", "x-1")

	for n := range 7 {
		r.push(punctual.NewMessage{Topic: "shop", ID: fmt.Sprint("m", n), Delay: time.Duration(n+1) * time.Hour})
	}
	r.open("/topics/shop")
	r.tick("m0", "m1")
	r.fill("#many input[name=in]", "20h")
	r.submit("#many button[value=reschedule]")
	r.stored("the ticked ones are moved", "shop", "m1", func(m punctual.Info) bool { return time.Until(m.Due) > 19*time.Hour })
	r.do(clickOn("input.all"))
	r.until("all are ticked", `[...document.querySelectorAll("input[form=many]")].every(b => b.checked) && document.getElementById("ticked").textContent === "7"`)
	r.submit("#many button[value=later]")
	r.stored("all are an hour later", "shop", "m1", func(m punctual.Info) bool { return time.Until(m.Due) > 20*time.Hour })
	r.tick("m2", "m3")
	r.submit("#many button[value=now]")
	r.stored("the ticked ones are due", "shop", "m3", func(m punctual.Info) bool { return m.State == punctual.StateReady })
	r.open("/topics/shop?state=scheduled")
	r.tick("m4", "m5")
	r.submit("#many button[value=cancel]")
	r.gone("shop", "m4")
	r.gone("shop", "m5")
	r.open("/find?id=m6")
	r.shows("m6")
	r.open("/audit")
	for _, verb := range []string{"push", "reschedule", "cancel"} {
		r.shows(verb)
	}
}

// A topic is paused and resumed, configured, purged and deleted with the console's forms in the
// browser. The test then reads the result from the store.
func TestActionsOnTopics(t *testing.T) { overStores(t, actionsOnTopics) }

func actionsOnTopics(t *testing.T, s punctual.Store) {
	r, i := newRig(t, s, nil), must(punctual.As[punctual.Inspector](s))
	settings := func() punctual.Settings { return must(i.Settings(t.Context(), "shop")) }
	r.push(punctual.NewMessage{Topic: "shop", ID: "a", Delay: time.Hour}, punctual.NewMessage{Topic: "shop", ID: "b", Delay: 2 * time.Hour})
	r.open("/topics/shop")
	for _, paused := range []bool{true, false} {
		for what, is := range map[string]func(punctual.Settings) bool{
			"delivery": func(s punctual.Settings) bool { return s.DeliveryPaused }, "push": func(s punctual.Settings) bool { return s.PushPaused },
		} {
			r.submit(fmt.Sprintf(`form[action$="/pause"]:has(input[value=%s]) button`, what))
			r.accepted("pause of " + what)
			if is(settings()) != paused {
				t.Errorf("pause of %s: %t; want %t", what, !paused, paused)
			}
		}
	}
	r.open("/topics/shop/settings")
	for name, text := range map[string]string{"lease": "45s", "max_attempts": "7", "backoff": "1s, 2s, 5s", "dead_retention": "48h", "dedupe_window": "10m"} {
		r.fill("#s-"+name, text)
	}
	r.submit(".settings button.main")
	r.accepted("the settings")
	if s := settings(); s.Lease != 45*time.Second || s.MaxAttempts != 7 || len(s.Backoff.Delays) != 3 || s.DeadRetention != 48*time.Hour || s.DedupeWindow != 10*time.Minute {
		t.Errorf("the settings are %+v", s)
	}
	r.fill("#s-lease", "never")
	r.submit(".settings button.main")
	r.until("what is no duration is refused", `document.querySelector(".problem") !== null`)
	r.forgive()

	r.open("/topics/shop/settings")
	r.fill(`form[action$="/purge"] input[name=typed]`, "ship")
	r.submit(`form[action$="/purge"] button`)
	r.until("another name is refused", `document.querySelector(".problem") !== null`)
	r.forgive()
	r.fill(`form[action$="/purge"] input[name=typed]`, "shop")
	r.submit(`form[action$="/purge"] button`)
	r.accepted("the purge")
	r.gone("shop", "a")
	r.gone("shop", "b")
	r.open("/topics/shop/settings")
	r.fill(`form[action$="/delete"] input[name=typed]`, "shop")
	r.submit(`form[action$="/delete"] button`)
	r.accepted("the deletion")
	if _, err := i.Stats(t.Context(), "shop"); storekit.ErrorCode(err) != "not_found" {
		t.Errorf("the topic is there after its deletion: %v", err)
	}
	r.open("/audit")
	for _, verb := range []string{"configure", "purge", "delete topic"} {
		r.shows(verb)
	}
}

// Dead messages are exported, and requeued: a single one, those that are ticked, and all, spread
// over ten minutes.
func TestActionsOnTheDead(t *testing.T) { overStores(t, actionsOnTheDead) }

func actionsOnTheDead(t *testing.T, s punctual.Store) {
	r := newRig(t, s, nil)
	for n := range 9 {
		r.push(punctual.NewMessage{Topic: "pay", ID: fmt.Sprint("d", n)})
	}
	r.kill("pay", "the endpoint answered 503", 9)
	r.open("/dead")
	r.shows("the endpoint answered 503")
	r.submit(`table.rows a[href$="/topics/pay?state=dead"]`)
	text, err := chromedp.Run(r.tab, chromedp.Evaluate[string](`fetch(document.querySelector("a[download]").href).then(r => r.text())`, chromedp.EvalAwaitPromise))
	if lines := strings.Count(text, "\n"); err != nil || lines != 9 || !strings.Contains(text, `"d3"`) {
		t.Errorf("the export has %d lines, %v; want 9:\n%s", lines, err, text)
	}
	scheduled := func(m punctual.Info) bool {
		return m.State == punctual.StateScheduled || m.State == punctual.StateReady
	}
	r.open("/topics/pay/messages/d0")
	r.submit("section.do button.main")
	r.stored("one is requeued", "pay", "d0", scheduled)
	r.open("/topics/pay?state=dead")
	r.tick("d1", "d2")
	r.submit("#many button[value=requeue]")
	r.stored("the ticked ones are requeued", "pay", "d2", scheduled)
	r.open("/topics/pay?state=dead")
	r.fill("section.do input[name=spread]", "10m")
	r.submit("section.do button.main")
	var last time.Duration
	for n := 3; n < 9; n++ {
		r.stored("all are requeued", "pay", fmt.Sprint("d", n), func(m punctual.Info) bool {
			last = max(last, time.Until(m.Due))
			return scheduled(m)
		})
	}
	if last < 4*time.Minute {
		t.Errorf("the last one is due in %v, so they are not spread over ten minutes", last)
	}
	r.open("/dead")
	r.until("nothing is dead", `document.querySelector("#live .empty") !== null`)
}

// A language, a theme and a time zone that were chosen hold for all pages.
func TestLook(t *testing.T) {
	r := newRig(t, openStore(t, stores()[0]), nil)
	r.seed()
	r.open("/topics")
	r.do(clickOn("details.look summary"))
	r.fill("details.look select[name=language]", "zh-CN")
	r.fill("details.look select[name=theme]", "dark")
	r.fill("details.look input[name=zone]", "Asia/Shanghai")
	r.submit("details.look button")
	for name, path := range pages() {
		r.open(path)
		if look := eval[string](r, `document.documentElement.lang + " " + document.documentElement.dataset.theme + " " + document.querySelector("details.look input[name=zone]").value`); look != "zh-CN dark Asia/Shanghai" {
			t.Errorf("%s looks like %s", name, look)
		}
	}
}

// byToken returns options of a console that admits people with the token "right".
func byToken() *console.Options {
	return &console.Options{LoginByToken: true, Authenticate: func(q *http.Request) (*access.Principal, error) {
		if q.Header.Get("Authorization") != "Bearer right" {
			return nil, fmt.Errorf("the token is not known: %w", punctual.ErrUnauthenticated)
		}
		return &access.Principal{Name: "ann", Grants: []access.Grant{access.Everything()}}, nil
	}}
}

// A browser without a session is asked for a token, a wrong one is refused, and after the log-out a
// token is asked for again.
func TestLogin(t *testing.T) {
	r := newRig(t, openStore(t, stores()[0]), byToken())
	r.push(punctual.NewMessage{Topic: "t", ID: "a", Delay: time.Hour})
	r.open("/topics/t")
	r.until("a token is asked for", `location.pathname === "/login" && document.querySelector("input[name=token]") !== null`)
	r.do(chromedp.SendKeys(css("input[name=token]"), "wrong"))
	r.submit("form.login button")
	r.until("another token is refused", `document.querySelector(".problem") !== null && location.pathname === "/login"`)
	if r.forgive() == 0 {
		t.Error("the browser saw no refusal")
	}
	r.do(chromedp.SendKeys(css("input[name=token]"), "right"))
	r.submit("form.login button")
	r.until("the page asked for is shown", `location.pathname === "/topics/t" && document.body.innerText.includes("ann")`)
	r.submit(`form[action$="/logout"] button`)
	r.open("/topics/t")
	r.until("a token is asked for again", `location.pathname === "/login"`)
}
