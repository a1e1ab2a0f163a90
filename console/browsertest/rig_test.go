package browsertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/console"
	"github.com/punctualmq/punctual/limits"
)

var (
	storeFlag = flag.String("store", "all", "the store behind the console: mem, disk, redis, postgres, or the URL of an empty Redis or PostgreSQL")
	screens   = flag.String("screens", "", "write a picture of every page to this directory")
	only      = flag.String("only", "", "write pictures of the pages alone whose names begin so")
	pending   = flag.Int("pending", 20_000, "how many messages TestManyMessages pushes; a tenth of them dies")
)

// patience is how long a test waits for a condition before it fails. It is long, because the
// machine may be loaded.
var patience = 2 * time.Minute

// browser is the context of the browser that all tests share. Each test has a tab of its own.
var browser context.Context

func TestMain(m *testing.M) {
	flag.DurationVar(&patience, "patience", patience, "how long a condition may take")
	flag.Parse()
	os.Exit(run(m))
}

// run starts the browser and runs the tests. If there is no browser, it prints that nothing is
// tested and returns 0, or 1 where the tests must run: in CI, and with PUNCTUAL_BROWSER=required.
func run(m *testing.M) int {
	chrome := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			chrome = path
			break
		}
	}
	if chrome == "" {
		fmt.Fprintln(os.Stderr, "NOT TESTED: the console in a browser. It needs chromium: make browser installs it as root.")
		if os.Getenv("CI") != "" || os.Getenv("PUNCTUAL_BROWSER") == "required" {
			return 1
		}
		return 0
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chrome), chromedp.NoSandbox, chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("host-resolver-rules", "MAP other.example 127.0.0.1"), chromedp.Flag("disable-component-extensions-with-background-pages", true))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	defer end()
	var endBrowser context.CancelFunc
	browser, endBrowser = chromedp.NewContext(allocator)
	defer endBrowser()
	if err := chromedp.Do(browser); err != nil {
		fmt.Fprintln(os.Stderr, "the browser does not start:", err)
		return 1
	}
	return withServers(m)
}

// rig is a console and a tab that shows it.
type rig struct {
	t     *testing.T
	store punctual.Store
	pages *console.Console
	url   string // the URL of the console, without a slash at its end
	tab   context.Context

	mu    sync.Mutex
	wrong []string // guarded by mu: what the browser complained of
	asked int      // guarded by mu: how many requests the browser has made
}

// newRig opens a console with these options over a store, and an empty tab. What the browser
// complains of fails the test at its end, unless forgive has removed it.
func newRig(t *testing.T, s punctual.Store, o *console.Options) *rig {
	t.Helper()
	if o == nil {
		o = &console.Options{}
	}
	o.Version, o.API = "test", "/"
	if testing.Verbose() {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	c, err := console.New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(o.Prefix+"/", c)
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, store: s, pages: c, url: server.URL + o.Prefix}
	r.tab = r.newTab()
	r.do(command(network.ClearBrowserCookies, cdp.Empty{})) // the cookies of other tests
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, w := range r.wrong {
			t.Error("the browser complains: " + w)
		}
	})
	return r
}

// newTab opens a tab. It notes in wrong what goes wrong there: an exception, an error in the log, a
// dialog, a request to another host.
func (r *rig) newTab(options ...chromedp.ContextOption) context.Context {
	tab, end := chromedp.NewContext(browser, options...)
	r.t.Cleanup(end)
	host := must(url.Parse(r.url)).Host
	heard := chromedp.Listen(tab, func(event any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			r.wrong = append(r.wrong, fmt.Sprintf("%s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError {
				r.wrong = append(r.wrong, e.Entry.Text+" "+e.Entry.URL)
			}
		case *page.EventJavascriptDialogOpening:
			r.wrong = append(r.wrong, "a dialog: "+e.Message)
		case *network.EventRequestWillBeSent:
			r.asked++
			if to, err := url.Parse(e.Request.URL); err != nil || to.Host != host && to.Scheme != "data" && to.Scheme != "about" {
				r.wrong = append(r.wrong, "a request to another host: "+e.Request.URL)
			}
		}
	})
	err := chromedp.Do(tab, command(network.Enable, network.EnableParams{}), command(log.Enable, cdp.Empty{}), command(runtime.Enable, cdp.Empty{}), command(page.Enable, page.EnableParams{}))
	if err := errors.Join(heard, err); err != nil {
		r.t.Fatal(err)
	}
	return tab
}

type (
	step = chromedp.Action[chromedp.Void]
	css  = chromedp.CSS
)

// command returns a command of the browser's protocol as a step.
func command[P, R any](c cdp.Command[P, R], params P) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// forgive removes all complaints so far, because the test has brought them about, and returns how
// many there were.
func (r *rig) forgive() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.wrong)
	r.wrong = nil
	return n
}

func (r *rig) requests() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// do carries out steps in the tab.
func (r *rig) do(steps ...step) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.tab, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		r.t.Fatalf("%v\nthe page: %s", err, r.pageText())
	}
}

// pageText returns the first 2000 characters that the page shows, or the reason why they are not
// known.
func (r *rig) pageText() string {
	text, err := chromedp.Run(r.tab, chromedp.Evaluate[string](`document.body.innerText.slice(0, 2000)`))
	if err != nil {
		return err.Error()
	}
	return text
}

// open shows the page at a path that begins with a slash. The page must be answered with 200.
func (r *rig) open(path string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.tab, patience)
	defer cancel()
	response, err := chromedp.Run(ctx, chromedp.NavigateResponse(r.url+path))
	if err != nil {
		r.t.Fatalf("open %s: %v", path, err)
	}
	if response.Status != http.StatusOK {
		r.t.Fatalf("open %s: status %d: %s", path, response.Status, r.pageText())
	}
}

// visit shows the page at a path, which may be an error page.
func (r *rig) visit(path string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.tab, patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.NavigateResponse(r.url+path)); err != nil {
		r.t.Fatalf("visit %s: %v", path, err)
	}
}

// eval returns the value that a JavaScript expression has in the page.
func eval[T any](r *rig, expression string) T {
	r.t.Helper()
	v, err := chromedp.Run(r.tab, chromedp.Evaluate[T](expression))
	if err != nil {
		r.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// run carries out JavaScript statements in the page.
func (r *rig) run(statements string) {
	r.t.Helper()
	r.do(chromedp.Evaluate[chromedp.Void]("{" + statements + "} 0"))
}

// until waits until a JavaScript expression is true in the page that the tab shows, which may be
// another page by then.
func (r *rig) until(what, expression string) {
	r.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		is, err := chromedp.Run(r.tab, chromedp.Evaluate[bool](expression))
		if err == nil && is {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s: not so: %v\nthe page: %s", what, err, r.pageText())
		}
	}
}

// press presses and releases keys that write a character, as a keyboard does, so that the page may
// prevent the character.
func (r *rig) press(keys ...string) {
	r.t.Helper()
	for _, k := range keys {
		r.do(command(input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: k, Text: k}),
			command(input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: k}))
	}
}

// shows waits until the page has the text.
func (r *rig) shows(text string) {
	r.t.Helper()
	r.until("the page shows "+text, fmt.Sprintf(`document.body.innerText.includes(%q)`, text))
}

// look chooses the theme of the pages and the width of the window.
func (r *rig) look(theme string, width int64) {
	r.t.Helper()
	r.do(command(network.SetCookie, network.SetCookieParams{Name: "punctual_theme", Value: theme, URL: r.url + "/"}), chromedp.EmulateViewport(width, 900))
}

func (r *rig) push(ms ...punctual.NewMessage) {
	r.t.Helper()
	for len(ms) > 0 {
		n := min(len(ms), limits.MaxBatch)
		out, err := r.store.Push(r.t.Context(), ms[:n])
		if err != nil {
			r.t.Fatal(err)
		}
		for _, p := range out {
			if p.Err != nil {
				r.t.Fatal(p.Err)
			}
		}
		ms = ms[n:]
	}
}

// kill claims n due messages of a topic and discards them, so that they are dead with this reason
// as their error.
func (r *rig) kill(topic, reason string, n int) {
	r.t.Helper()
	var ds []punctual.Delivery
	for len(ds) < n { // a claim may return fewer messages than it asks for
		some, err := r.store.Claim(r.t.Context(), punctual.Claim{Topics: []string{topic}, Max: n - len(ds), Wait: patience})
		if err != nil || len(some) == 0 {
			r.t.Fatalf("claim %d of %s: %d, then %d, %v", n, topic, len(ds), len(some), err)
		}
		ds = append(ds, some...)
	}
	var ss []punctual.Settlement
	for _, d := range ds {
		ss = append(ss, punctual.Settlement{Topic: topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleDiscard, Error: reason})
	}
	if errs, err := r.store.Settle(r.t.Context(), ss); err != nil || errors.Join(errs...) != nil {
		r.t.Fatal(err, errs)
	}
}

// finish has one message delivered and acked, in a topic that keeps its finished record.
func (r *rig) finish(topic, id string) {
	r.t.Helper()
	day := 24 * time.Hour
	if _, err := must(punctual.As[punctual.Inspector](r.store)).Configure(r.t.Context(), topic, punctual.SettingsPatch{FinishedRetention: &day}); err != nil {
		r.t.Fatal(err)
	}
	r.push(punctual.NewMessage{Topic: topic, ID: id})
	ds, err := r.store.Claim(r.t.Context(), punctual.Claim{Topics: []string{topic}, Max: 1, Wait: patience})
	if err != nil || len(ds) != 1 {
		r.t.Fatalf("claim of %s: %d, %v", topic, len(ds), err)
	}
	errs, err := r.store.Settle(r.t.Context(), []punctual.Settlement{{Topic: topic, ID: id, Token: ds[0].Token, Verb: punctual.SettleAck}})
	if err := errors.Join(append(errs, err)...); err != nil {
		r.t.Fatal(err)
	}
}

// seed fills the store with messages of a shop: orders to cancel, reminders, payment notices of
// which some are dead, and reports in a topic that is paused.
func (r *rig) seed() {
	r.t.Helper()
	var ms []punctual.NewMessage
	add := func(topic, id string, in time.Duration) {
		ms = append(ms, punctual.NewMessage{
			Topic: topic, ID: id, Delay: in, Body: fmt.Appendf(nil, `{"order": %d, "total": "%d.90 EUR"}`, 1000+len(ms), 10+len(ms)%80),
			Headers: map[string]string{"trace": fmt.Sprintf("%08x", 77777*(len(ms)+1)), "tenant": "shop"},
		})
	}
	for n := range 240 {
		add("order.cancel", fmt.Sprintf("order-%d", n), time.Duration(n*n%3500)*time.Second+time.Minute)
	}
	for n := range 180 {
		add("reminder", fmt.Sprintf("visit-%d", n), time.Duration(n%90)*20*time.Hour+time.Duration(n*37%600)*time.Minute)
	}
	for n := range 24 {
		add("payment.notify", fmt.Sprintf("payment-%d", n), 0)
	}
	for n := range 5 {
		add("report", fmt.Sprintf("report-%d", n), time.Duration(n)*24*time.Hour)
	}
	r.push(ms...)
	r.kill("payment.notify", "the endpoint answered 503", 12)
	r.kill("payment.notify", "no such customer", 6)
	paused := true
	if _, err := must(punctual.As[punctual.Inspector](r.store)).Configure(r.t.Context(), "report", punctual.SettingsPatch{DeliveryPaused: &paused}); err != nil {
		r.t.Fatal(err)
	}
}

// traffic tells the console's observer of pushes and deliveries that are not in the store, as a
// server would.
func (r *rig) traffic() {
	o := r.pages.Observer()
	for n := range 40 {
		due := time.Now()
		o.OnPush(r.t.Context(), punctual.PushResult{Topic: "order.cancel", Status: punctual.PushStored}, time.Millisecond)
		o.OnStart(r.t.Context(), &punctual.Delivery{Message: punctual.Message{Topic: "reminder", Due: due}, Delivered: due.Add(time.Duration(n*n) * time.Millisecond)})
	}
}

// pages returns the paths of pages of a store that seed has filled, by names for the pages.
func pages() map[string]string {
	return map[string]string{
		"now": "/", "week": "/week", "lateness": "/lateness", "topics": "/topics", "topic": "/topics/order.cancel", "dead-topic": "/topics/payment.notify?state=dead",
		"message": "/topics/reminder/messages/visit-3", "find": "/find?id=order-7", "dead": "/dead", "push": "/topics?push=1", "audit": "/audit",
	}
}
