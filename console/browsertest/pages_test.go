package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/console"
	"github.com/punctualmq/punctual/storekit"
)

// themes and widths are those in which TestAccessible examines each page.
var (
	themes = []string{"light", "dark"}
	widths = []int64{320, 1440}
)

// axe is the source of axe-core, which examines a page. The content policy of the pages forbids
// foreign scripts, so the browser's driver evaluates the source, to which the policy does not
// apply.
type axe string

func newAxe(t *testing.T) axe {
	t.Helper()
	text, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v: run npm ci, as make browser does", err)
	}
	return axe(text)
}

// check opens all details in the main part of the page that is shown and has axe-core examine the
// page. Each violation fails the test, and so does a page that is wider than the screen.
func (a axe) check(r *rig, what string, width int64) {
	r.t.Helper()
	r.run(`document.querySelectorAll("main details").forEach(d => d.open = true)`)
	r.do(chromedp.Evaluate[chromedp.Void](string(a) + "; 0"))
	var found []struct {
		ID, Help string
		Nodes    []struct{ HTML, FailureSummary string }
	}
	text, err := chromedp.Run(r.tab, chromedp.Evaluate[string](`axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then(r => JSON.stringify(r.violations.map(v => ({ID: v.id, Help: v.help, Nodes: v.nodes.slice(0, 3).map(n => ({HTML: n.html, FailureSummary: n.failureSummary}))}))))`,
		chromedp.EvalAwaitPromise))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		r.t.Fatal(err)
	}
	for _, v := range found {
		r.t.Errorf("%s, %d px: %s: %s: %+v", what, width, v.ID, v.Help, v.Nodes)
	}
	if wide := eval[int64](r, `document.documentElement.scrollWidth`); wide > width {
		r.t.Errorf("%s: %d px wide on a screen of %d", what, wide, width)
	}
}

// axe-core finds no violation on any of pages, in both themes, narrow and wide.
func TestAccessible(t *testing.T) {
	a := newAxe(t)
	r := newRig(t, openStore(t, stores()[0]), nil)
	r.seed()
	r.traffic()
	for name, path := range pages() {
		for _, theme := range themes {
			for _, width := range widths {
				r.look(theme, width)
				r.open(path)
				a.check(r, name+", "+theme, width)
			}
		}
	}
}

// axe-core finds no violation on the other pages of the shop, those of schedules, groups, events
// and bulk changes among them. Each page is examined in the dark theme when narrow and in the light
// one when wide, two pages of a bulk change only wide.
func TestAccessibleShop(t *testing.T) {
	a := newAxe(t)
	s := newShop(t)
	known := pages()
	for name, path := range shopPages() {
		if known[name] != "" {
			continue
		}
		for theme, width := range map[string]int64{"dark": 320, "light": 1440} {
			s.look(theme, width)
			s.open(path)
			a.check(s.rig, name+", "+theme, width)
		}
	}
	s.look("light", 1440)
	s.open("/topics/reminder/bulk?state=scheduled&prefix=visit-1&change=shift")
	s.submit("form[action$='/bulk'] button.main")
	s.shows("messages match")
	a.check(s.rig, "a bulk change that is counted", 1440)
	s.submit("form[action$='/run'] button")
	s.shows("complete")
	a.check(s.rig, "a bulk change that is complete", 1440)
}

// axe-core finds no violation on pages in Chinese, of an empty store, of errors and of finished
// messages, and on the login page. Each page is examined in the dark theme when narrow, and in the
// light one when wide.
func TestAccessibleBesides(t *testing.T) {
	a := newAxe(t)
	looks := map[string]int64{"dark": 320, "light": 1440}
	each := func(r *rig, what, shows string, open func()) {
		t.Helper()
		for theme, width := range looks {
			r.look(theme, width)
			open()
			r.until(what+" is shown", fmt.Sprintf(`document.readyState === "complete" && document.querySelector(%q) !== null`, shows))
			a.check(r, what+", "+theme, width)
		}
	}
	full := newRig(t, openStore(t, stores()[0]), nil)
	full.seed()
	full.traffic()
	full.finish("order.done", "o-1")
	each(full, "a finished message", "dl.facts", func() { full.open("/topics/order.done/messages/o-1") })
	each(full, "the finished messages", "td.id a", func() { full.open("/topics/order.done/finished") })
	each(full, "no finished messages", "p.empty", func() { full.open("/topics/reminder/finished") })
	each(full, "a group of the dead", "td.error a", func() { full.open("/topics/payment.notify?state=dead&match=is&error=no+such+customer") })
	each(full, "no such message", "main h1", func() { full.visit("/topics/reminder/messages/nobody") })
	each(full, "no such page", "main h1", func() { full.visit("/nowhere") })
	each(full, "a refused form", ".problem", func() {
		full.open("/topics/reminder/messages/visit-3")
		full.fill("section.do input[name=in]", "soon")
		full.submit("section.do label:has(input[name=at]) ~ button")
	})
	each(full, "the keys", "dialog[open]", func() { full.open("/topics"); full.press("?") })
	full.forgive()
	full.do(command(network.SetCookie, network.SetCookieParams{Name: "punctual_language", Value: "zh-CN", URL: full.url + "/"}))
	for name, path := range pages() {
		each(full, name+" in Chinese", "html[lang=zh-CN]", func() { full.open(path) })
	}

	empty := newRig(t, openStore(t, "mem"), nil)
	for name, path := range map[string]string{"now": "/", "week": "/week", "lateness": "/lateness", "topics": "/topics", "dead": "/dead", "find": "/find", "audit": "/audit"} {
		each(empty, name+" of an empty store", "html[lang=en]", func() { empty.open(path) })
	}
	closed := newRig(t, openStore(t, "mem"), byToken())
	each(closed, "the login", "input[name=token]", func() { closed.open("/") })
	each(closed, "a refused login", ".problem", func() {
		closed.open("/login")
		closed.do(chromedp.SendKeys(css("input[name=token]"), "wrong"))
		closed.submit("form.login button")
	})
	closed.forgive()
}

// TestScreens writes the pictures of the documentation: each page in light and dark, wide and as
// narrow as on a phone, and in Chinese.
func TestScreens(t *testing.T) {
	if *screens == "" {
		t.Skip("no -screens: make screens writes them")
	}
	r := newShop(t)
	for name, path := range shopPages() {
		if *only != "" && !strings.HasPrefix(name, *only) {
			continue
		}
		for _, v := range []struct {
			name, theme, language string
			width                 int64
		}{{"light", "light", "en", 1280}, {"dark", "dark", "en", 1280}, {"narrow", "light", "en", 390}, {"narrow-dark", "dark", "en", 390}, {"zh", "light", "zh-CN", 1280}} {
			r.look(v.theme, v.width)
			r.do(command(network.SetCookie, network.SetCookieParams{Name: "punctual_language", Value: v.language, URL: r.url + "/"}))
			r.open(path)
			r.until("all is counted", `!document.body.innerText.includes("still counting") && !document.body.innerText.includes("仍在统计")`)
			// The picture has the whole page, but at most 2400 pixels of it, because long pages go
			// on in the same way.
			r.do(chromedp.EmulateViewport(v.width, max(720, min(eval[int64](r.rig, `document.documentElement.scrollHeight`), 2400))))
			picture, err := chromedp.Run(r.tab, chromedp.CaptureScreenshot())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(*screens, name+"-"+v.name+".png"), picture, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// IDs, bodies, headers and errors of messages are shown as text, whatever they contain.
func TestHostile(t *testing.T) { overStores(t, hostile) }

func hostile(t *testing.T, s punctual.Store) {
	r := newRig(t, s, nil)
	const evil = "<script>hacked=1</script><img src=x onerror=hacked=1>\"'>\u202eabc\u0007\x1b[31m"
	id := `a/b?#%"<b>&`
	body := evil + strings.Repeat("<i>", 1<<20/3)
	r.push(punctual.NewMessage{Topic: "a/b:c", ID: id, Body: []byte(body[:1<<20]), Headers: map[string]string{evil: evil}})
	r.kill("a/b:c", evil, 1)
	message := "/topics/" + url.PathEscape("a/b:c") + "/messages/" + url.PathEscape(id)
	for _, path := range []string{"/", "/topics", "/topics/" + url.PathEscape("a/b:c") + "?state=dead", message, message + "?body=hex", "/dead", "/find?id=" + url.QueryEscape(id)} {
		r.open(path)
		if eval[bool](r, `typeof hacked !== "undefined" || document.querySelectorAll("script").length !== 1 || document.querySelector("main img") !== null`) {
			t.Errorf("%s: what was pushed became a part of the page", path)
		}
		if text := r.pageText(); strings.ContainsAny(text, "\u202e\u0007\x1b") {
			t.Errorf("%s shows control characters as such: %q", path, text)
		}
	}
	r.open(message)
	r.shows("<script>hacked=1</script>")
}

// Without the script a message can be cancelled and rescheduled. TestFormsWithoutScript tries other
// forms.
func TestWithoutScript(t *testing.T) { overStores(t, withoutScript) }

func withoutScript(t *testing.T, s punctual.Store) {
	r := newRig(t, s, nil)
	r.push(punctual.NewMessage{Topic: "t", ID: "a", Delay: time.Hour}, punctual.NewMessage{Topic: "t", ID: "b", Delay: time.Hour})
	r.do(command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	r.open("/topics/t")
	r.do(chromedp.Click(css(`a[href$="/messages/a"]`)), chromedp.WaitVisible(css(`details.confirm summary`)),
		chromedp.Click(css(`details.confirm summary`)), chromedp.Click(css(`details.confirm button`)), chromedp.WaitVisible(css(`.notice`)))
	r.gone("t", "a")
	r.open("/topics/t/messages/b")
	r.do(chromedp.SendKeys(css(`section.do input[name=in]`), "30m"), chromedp.Click(css(`section.do input[name=in]`)), chromedp.KeyEvent(kb.Enter))
	r.stored("b is rescheduled", "t", "b", func(m punctual.Info) bool { return time.Until(m.Due) < 45*time.Minute })
}

// stored waits until a message is in the store and wished returns true for it.
func (r *rig) stored(what, topic, id string, wished func(punctual.Info) bool) {
	r.t.Helper()
	i := must(punctual.As[punctual.Inspector](r.store))
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		m, err := i.Get(r.t.Context(), topic, id)
		if err == nil && wished(m) {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s: %+v, %v\nthe page: %s", what, m, err, r.pageText())
		}
	}
}

// gone waits until a message is no longer in the store.
func (r *rig) gone(topic, id string) {
	r.t.Helper()
	i := must(punctual.As[punctual.Inspector](r.store))
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := i.Get(r.t.Context(), topic, id); storekit.ErrorCode(err) == "not_found" {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s is still there\nthe page: %s", id, r.pageText())
		}
	}
}

// Keys show the help, go to another page, choose and open a row of a table, and lead to the field
// that finds a message. They have no effect while text is typed, and the focus can be seen.
func TestKeyboard(t *testing.T) {
	r := newRig(t, openStore(t, stores()[0]), nil)
	r.seed()
	r.open("/")
	r.press("?")
	r.until("? shows the keys", `document.getElementById("keys").open`)
	r.do(chromedp.KeyEvent(kb.Escape))
	r.until("Esc closes them", `!document.getElementById("keys").open`)
	r.press("g", "t")
	r.until("g t goes to the topics", `location.pathname === "/topics"`)
	r.until("the topics are there", `document.readyState === "complete" && document.querySelectorAll("table.rows tbody tr").length > 0`)
	r.press("j", "j", "k")
	r.until("j and k choose a row", `document.querySelector("table.rows tbody tr.at a") === document.activeElement`)
	r.do(chromedp.KeyEvent(kb.Enter))
	r.until("Enter opens it", `location.pathname.startsWith("/topics/")`)
	r.until("the topic is there", `document.readyState === "complete"`)
	r.press("/")
	r.until("/ goes to the field", `document.activeElement.id === "jump"`)
	r.press(strings.Split("order-7?gt", "")...)
	if got := eval[string](r, `document.getElementById("jump").value`); got != "order-7?gt" || eval[bool](r, `document.getElementById("keys").open`) {
		t.Errorf("keys are on where text is typed: %q", got)
	}
	r.do(chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(kb.Backspace))
	r.do(chromedp.KeyEvent(kb.Enter))
	r.shows("order-7")
	r.until("the focus can be seen", `(() => { document.querySelector("main a, main button").focus(); return getComputedStyle(document.activeElement).outlineStyle !== "none" || getComputedStyle(document.activeElement).boxShadow !== "none"; })()`)
}

// A form on a page of another site, sent by the browser, is refused and changes nothing.
func TestCrossSite(t *testing.T) {
	r := newRig(t, openStore(t, stores()[0]), nil)
	r.push(punctual.NewMessage{Topic: "t", ID: "a", Delay: time.Hour})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<form method="post" action="%s/topics/t/messages/a/amend"><input name="do" value="cancel"><button>go</button></form>`, r.url)
	}))
	defer other.Close()
	address := strings.Replace(other.URL, "127.0.0.1", "other.example", 1)
	r.run(fmt.Sprintf("location = %q", address))
	r.until("the other site is shown", `location.hostname === "other.example" && document.querySelector("button") !== null`)
	r.run(`document.querySelector("button").click()`)
	r.until("the console refuses the form", `location.hostname === "127.0.0.1" && document.body.innerText.includes("403")`)
	if r.forgive() == 0 {
		t.Error("the browser saw no other site, so this test shows nothing")
	}
	r.stored("the message is there", "t", "a", func(m punctual.Info) bool { return true })
}

// A principal who may only inspect sees no buttons that change something, and the console refuses
// such forms.
func TestReadOnly(t *testing.T) {
	r := newRig(t, openStore(t, stores()[0]), &console.Options{Authenticate: func(*http.Request) (*access.Principal, error) {
		return &access.Principal{Name: "guest", Grants: []access.Grant{{Actions: access.Inspect, Topics: "*"}}}, nil
	}})
	r.seed()
	for name, path := range pages() {
		r.open(path)
		if forms := eval[string](r, `[...document.querySelectorAll("main form[method=post] button")].filter(b => !b.matches(":disabled")).map(b => b.form.action).join(" ")`); forms != "" {
			t.Errorf("%s has buttons that change: %s", name, forms)
		}
	}
	for _, path := range []string{"/topics/reminder/messages/visit-3/amend", "/topics/reminder/pause", "/topics/reminder/purge", "/push"} {
		status, err := chromedp.Run(r.tab, chromedp.Evaluate[int](fmt.Sprintf(`fetch(%q, {method: "POST", body: new URLSearchParams({do: "cancel", topic: "reminder", in: "1h", what: "push", pause: "true", name: "reminder"})}).then(r => r.status)`, r.url+path), chromedp.EvalAwaitPromise))
		if err != nil || status != http.StatusForbidden {
			t.Errorf("POST %s: %d, %v; want 403", path, status, err)
		}
	}
	if r.forgive() == 0 {
		t.Error("the browser saw no refusal")
	}
}

// A page that is renewed keeps focus, what was typed, selection, scroll, open details and an open
// dialog. It is not renewed while it is hidden.
func TestRenewal(t *testing.T) {
	r := newRig(t, openStore(t, stores()[0]), nil)
	r.seed()
	r.open("/")
	r.do(chromedp.EmulateViewport(1000, 400))
	r.run(`
		document.querySelectorAll("#live details").forEach(d => d.open = true);
		document.getElementById("jump").focus();
		document.getElementById("jump").value = "typed";
		scrollTo(0, 300);
		window.mark = document.querySelector("#live h1");
		window.row = document.querySelector("#live .numbers-row");
		window.gone = document.createElement("p"); // the renewed part does not have this paragraph
		window.row.before(window.gone);
	`)
	scrolled := eval[float64](r, `scrollY`)
	if scrolled == 0 {
		t.Fatal("the page does not scroll, so this test shows nothing")
	}
	const first = `document.querySelector("#live .numbers-row dd").innerText`
	total := eval[string](r, first)
	r.push(punctual.NewMessage{Topic: "new", ID: "x", Delay: 30 * time.Minute}, punctual.NewMessage{Topic: "new", ID: "y", Delay: 30 * time.Minute})
	r.until("the page is renewed", fmt.Sprintf(first+` !== %q`, total))
	for what, kept := range map[string]string{
		"focus": `document.activeElement.id === "jump"`, "what was typed": `document.getElementById("jump").value === "typed"`,
		"scroll": fmt.Sprintf(`Math.abs(scrollY - %f) < 40`, scrolled), "what is open": `[...document.querySelectorAll("#live details")].every(d => d.open)`,
		"the elements": `window.mark.isConnected`, "what stands behind a paragraph that is gone": `!window.gone.isConnected && window.row.isConnected`,
	} {
		if !eval[bool](r, kept) {
			t.Errorf("renewal loses %s", what)
		}
	}
	// The field that had the focus had the selection as well, so a selection is tried by itself: it
	// reaches over an element that is renewed.
	total = eval[string](r, first)
	r.run(`
		document.activeElement.blur();
		getSelection().setBaseAndExtent(window.mark, 0, document.querySelector("#live .numbers-row"), 2);
		window.selected = getSelection().toString();
	`)
	if selected := eval[string](r, `window.selected`); !strings.Contains(selected, total) {
		t.Fatalf("%q is selected, without the number %q, so this test shows nothing", selected, total)
	}
	r.push(punctual.NewMessage{Topic: "new", ID: "w", Delay: 30 * time.Minute})
	r.until("the page is renewed below the selection", fmt.Sprintf(first+` !== %q`, total))
	next := eval[string](r, first)
	if selected := eval[string](r, `getSelection().toString()`); !strings.HasPrefix(selected, eval[string](r, `window.mark.innerText`)) || !strings.HasSuffix(strings.TrimSpace(selected), next) {
		t.Errorf("renewal loses the selection: %q of %q", selected, eval[string](r, `window.selected`))
	}
	r.press("?")
	r.until("the dialog is open", `document.getElementById("keys").open && document.getElementById("keys").contains(document.activeElement)`)
	total = eval[string](r, first)
	r.push(punctual.NewMessage{Topic: "new", ID: "z", Delay: 30 * time.Minute})
	r.until("the page is renewed below the dialog", fmt.Sprintf(first+` !== %q`, total))
	if !eval[bool](r, `document.getElementById("keys").open && document.getElementById("keys").contains(document.activeElement)`) {
		t.Error("renewal closes a dialog, or takes the focus from it")
	}
	r.do(chromedp.KeyEvent(kb.Escape))
	r.run(`Object.defineProperty(document, "hidden", {get: () => true, configurable: true}); document.dispatchEvent(new Event("visibilitychange"))`)
	before := r.requests()
	time.Sleep(7 * time.Second) // more than three times the interval of renewals, in which nothing is to happen
	if n := r.requests() - before; n > 0 {
		t.Errorf("a hidden page asked %d times", n)
	}
	r.run(`Object.defineProperty(document, "hidden", {get: () => false, configurable: true}); document.dispatchEvent(new Event("visibilitychange"))`)
	r.until("a page that is seen again asks", `performance.getEntriesByType("resource").length > 0`)
	for end := time.Now().Add(patience); r.requests() == before; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a page that is seen again does not ask")
		}
	}
}

// Seven tabs are renewed, which is one more than the connections that a browser opens to one host.
func TestSevenTabs(t *testing.T) {
	r := newRig(t, openStore(t, stores()[0]), nil)
	r.push(punctual.NewMessage{Topic: "t", ID: "a", Delay: time.Hour})
	first := r.tab
	tabs := []context.Context{first}
	for range 6 {
		tabs = append(tabs, r.newTab())
	}
	for _, tab := range tabs {
		r.tab = tab
		r.open("/topics")
	}
	r.push(punctual.NewMessage{Topic: "another", ID: "a", Delay: time.Hour})
	for _, tab := range tabs {
		r.tab = tab
		r.do(command(page.BringToFront, cdp.Empty{}))
		r.shows("another")
	}
}

// In a console with a prefix, links and forms lead to paths under the prefix, also for names that
// need escapes.
func TestPrefix(t *testing.T) {
	r := newRig(t, openStore(t, stores()[0]), &console.Options{Prefix: "/ops/queues"})
	id := "a/b ?#%"
	r.push(punctual.NewMessage{Topic: "a-b", ID: "plain", Delay: time.Hour}, punctual.NewMessage{Topic: "a-b", ID: strings.ReplaceAll(id, " ", "_"), Delay: time.Hour})
	r.open("/")
	r.do(chromedp.Click(css(`nav a[data-key="t"]`)))
	r.shows("a-b")
	r.do(chromedp.Click(css(`main table a[href*="a-b"]`)))
	r.shows("a/b_?#%")
	r.do(chromedp.Click(css(`main table a[href*="%3F"]`)), chromedp.WaitVisible(css(`details.confirm summary`)),
		chromedp.Click(css(`details.confirm summary`)), chromedp.Click(css(`details.confirm button`)))
	r.gone("a-b", "a/b_?#%")
	r.until("it stays under the prefix", `location.pathname.startsWith("/ops/queues/")`)
}

// plain is a store that cannot be inspected.
type plain struct{ punctual.Store }

// The first page of a store that cannot be inspected is not empty.
func TestStoreWithoutInspector(t *testing.T) {
	r := newRig(t, plain{openStore(t, stores()[0])}, nil)
	r.open("/")
	if text := r.pageText(); strings.TrimSpace(text) == "" {
		t.Error("the page is empty")
	}
}
