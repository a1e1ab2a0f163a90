package browsertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/console"
	"github.com/punctualmq/punctual/limits"
)

// Somebody pushes a message with the form of the page Topics and moves the message. Its page then
// follows it: scheduled, ready, leased, and no longer stored.
func TestPushAndFollow(t *testing.T) { overStores(t, pushAndFollow) }

func pushAndFollow(t *testing.T, s punctual.Store) {
	r := newRig(t, s, nil)
	r.open("/topics?push=1")
	r.do(chromedp.SendKeys(css("form.card input[name=topic]"), "walk"), chromedp.SendKeys(css("form.card input[name=id]"), "w-1"))
	r.fill("form.card input[name=in]", "2h")
	r.submit("form.card button.main")
	r.until("it is scheduled", `document.querySelector("#live .life .scheduled.lit") !== null`)
	follow := eval[string](r, `location.pathname + location.search`)

	r.open("/topics/walk/messages/w-1")
	r.fill("section.do input[name=at]", "2031-05-06T07:08:09")
	r.submit("section.do label:has(input[name=at]) ~ button")
	r.shows("2031-05-06 07:08:09")
	r.leads("Enter", chromedp.SendKeys(css("section.do input[name=in]"), "30m"), chromedp.KeyEvent(kb.Enter))
	r.stored("it is due in half an hour", "walk", "w-1", func(m punctual.Info) bool { return time.Until(m.Due) < 45*time.Minute })

	r.open(follow)
	r.until("it is still scheduled", `document.querySelector("#live .life .scheduled.lit") !== null`)
	_, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: "walk", ID: "w-1"}})
	if err != nil {
		t.Fatal(err)
	}
	r.until("the page shows that it is ready", `document.querySelector("#live .life .ready.lit") !== null`)
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"walk"}, Max: 1, Wait: patience, Lease: 10 * time.Minute})
	if err != nil || len(ds) != 1 {
		t.Fatal(len(ds), err)
	}
	r.until("the page shows that it is leased", `document.querySelector("#live .life .leased.lit") !== null`)
	errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: "walk", ID: "w-1", Token: ds[0].Token, Verb: punctual.SettleAck}})
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
	r.until("the page says that it is no longer stored", `document.querySelector("#live") === null && document.body.innerText.includes("404")`)
	if r.forgive() == 0 {
		t.Error("the browser saw no answer without the message")
	}
}

// A principal with few rights sees the buttons that they allow and no others. A form that is not
// shown is refused when it is sent all the same, with the right form token.
func TestFewRights(t *testing.T) {
	r := newRig(t, openStore(t, stores()[0]), &console.Options{LoginByToken: true, Authenticate: func(q *http.Request) (*access.Principal, error) {
		if q.Header.Get("Authorization") != "Bearer clerk" {
			return nil, fmt.Errorf("the token is not known: %w", punctual.ErrUnauthenticated)
		}
		return &access.Principal{Name: "clerk", Grants: []access.Grant{{Actions: access.Inspect | access.Amend, Topics: "order.cancel"}}}, nil
	}})
	r.seed()
	r.open("/topics")
	r.do(chromedp.SendKeys(css("input[name=token]"), "clerk"))
	r.submit("form.login button")
	r.until("only one topic is shown", `location.pathname === "/topics" && document.querySelectorAll("table.rows tbody tr").length === 1`)
	r.open("/topics/order.cancel/messages/order-7")
	r.until("messages can be amended", `document.querySelector("section.do button") !== null`)
	r.open("/topics/order.cancel/settings")
	if n := eval[int](r, `document.querySelectorAll("form[action$='/pause'], form[action$='/purge'], form[action$='/delete'], .settings button").length`); n > 0 {
		t.Errorf("%d buttons are shown that would be refused", n)
	}
	for path, form := range map[string]string{
		"/topics/order.cancel/pause": "what=delivery&pause=true", "/topics/order.cancel/purge": "state=live&typed=order.cancel", "/topics/order.cancel/configure": "lease=1h",
		"/topics/reminder/messages/visit-3/amend": "do=cancel", "/topics/payment.notify/bulk": "run=1&change=requeue", "/push": "topic=reminder&body=x",
	} {
		status := r.post(path, form)
		if status != http.StatusForbidden {
			t.Errorf("POST %s: %d; want 403", path, status)
		}
	}
	if n := r.forgive(); n == 0 {
		t.Error("the browser saw no refusal")
	}
	if status := r.post("/topics/order.cancel/messages/order-7/amend", "do=cancel"); status != http.StatusOK {
		t.Errorf("what is allowed is answered with %d, so this test shows nothing", status)
	}
	r.gone("order.cancel", "order-7")
	r.stored("what was refused is not done", "reminder", "visit-3", func(m punctual.Info) bool { return m.State == punctual.StateScheduled })
	r.visit("/topics/reminder")
	r.shows("403")
	r.forgive()
}

// post sends a form with the token of the page that is shown, and returns the status of the page to
// which it leads.
func (r *rig) post(path, form string) int {
	r.t.Helper()
	status, err := chromedp.Run(r.tab, chromedp.Evaluate[int](fmt.Sprintf(`fetch(%q, {method: "POST", body: new URLSearchParams(%q + "&csrf=" + encodeURIComponent(document.querySelector("input[name=csrf]").value))}).then(r => r.status)`, r.url+path, form), chromedp.EvalAwaitPromise))
	if err != nil {
		r.t.Fatalf("POST %s: %v", path, err)
	}
	return status
}

// Where bodies are hidden, no page, no download and no search has them, nor headers that
// ShowHeaders does not name.
func TestHiddenBodies(t *testing.T) {
	r := newRig(t, openStore(t, stores()[0]), &console.Options{HideBodies: true, ShowHeaders: []string{"tenant"}})
	secret := func(id string, delay time.Duration) punctual.NewMessage {
		return punctual.NewMessage{Topic: "t", ID: id, Delay: delay, Body: []byte("a secret body"), Headers: map[string]string{"tenant": "shop-1", "password": "a secret header"}}
	}
	r.push(secret("a", time.Hour), secret("d", 0))
	r.kill("t", "no", 1)
	for _, path := range []string{"/", "/topics/t", "/topics/t/messages/a", "/topics/t/messages/a?body=hex", "/topics/t/messages/d", "/find?id=a&stay=1", "/find?topic=t&state=scheduled&name=tenant"} {
		r.open(path)
		if eval[bool](r, `document.documentElement.outerHTML.includes("secret")`) {
			t.Errorf("%s shows what is hidden: %s", path, r.pageText())
		}
	}
	r.open("/topics/t/messages/a")
	r.shows("13 bytes is hidden")
	r.shows("shop-1")
	if eval[bool](r, `document.querySelector("a[href$='/body']") !== null`) {
		t.Error("the body can be saved")
	}
	text, err := chromedp.Run(r.tab, chromedp.Evaluate[string](fmt.Sprintf(`Promise.all(["/topics/t/dead.ndjson", "/topics/t/messages/a/body", "/find?topic=t&state=dead&name=password&value=secret+header"].map(p => fetch(%q + p).then(r => r.text()))).then(all => all.join("\n"))`, r.url), chromedp.EvalAwaitPromise))
	if err != nil || strings.Contains(text, "secret body") || strings.Contains(text, "c2VjcmV0") || !strings.Contains(text, `"id":"d"`) {
		t.Errorf("what is fetched is %v: %s", err, text)
	}
	r.forgive()
}

// racing is a store in which two requeues race. Neither requeues a message before both have read
// dead messages. Neither goes on with its next page before a consumer has claimed a message that
// was requeued.
type racing struct {
	punctual.Store
	punctual.Inspector
	calls   *atomic.Int64
	both    chan struct{} // closed by the second call of Amend
	claimed chan struct{} // closed by the consumer when it has settled the first messages
}

func (s racing) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	if s.calls.Add(1) == 2 {
		close(s.both)
	}
	await(ctx, s.both)
	out, err := s.Store.Amend(ctx, as)
	await(ctx, s.claimed)
	return out, err
}

// await waits until a channel is closed, but no longer than patience, and not after ctx has ended.
func await(ctx context.Context, closed <-chan struct{}) {
	select {
	case <-closed:
	case <-ctx.Done():
	case <-time.After(patience):
	}
}

// Two people requeue all dead messages at once, while a consumer claims those that become ready. No
// message is delivered twice, and the two pages tell how many messages each of the two has
// requeued.
func TestRequeueRacesAClaim(t *testing.T) { overStores(t, requeueRacesAClaim) }

func requeueRacesAClaim(t *testing.T, s punctual.Store) {
	store := racing{s, must(punctual.As[punctual.Inspector](s)), new(atomic.Int64), make(chan struct{}), make(chan struct{})}
	r := newRig(t, store, nil)
	const n = 2500 // more than two of the pages in which a requeue reads the list
	ms := make([]punctual.NewMessage, n)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "pay", ID: fmt.Sprint("d", i)}
	}
	r.push(ms...)
	for left := n; left > 0; left -= min(left, limits.MaxBatch) {
		r.kill("pay", "the endpoint answered 503", min(left, limits.MaxBatch))
	}
	tabs := []context.Context{r.tab, r.newTab(chromedp.WithNewBrowserContext())} // the second tab has cookies of its own
	for _, tab := range tabs {
		r.tab = tab
		r.open("/topics/pay?state=dead")
		r.fill("section.do input[name=spread]", "0s")
	}
	c := &taker{store: s, claimed: store.claimed, times: make(map[string]int)}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var working sync.WaitGroup
	working.Go(func() { c.run(ctx) })
	for _, tab := range tabs {
		r.tab = tab
		r.run(`document.querySelector("section.do form").requestSubmit()`)
	}
	requeued, looked := 0, 0
	for _, tab := range tabs {
		r.tab = tab
		r.until("the change is complete", `document.querySelectorAll("dl.numbers-row.small dd").length === 5 && document.querySelector("form[action$='/stop']") === null`)
		counts := eval[[]int](r, `[...document.querySelectorAll("dl.numbers-row.small dd")].map(d => parseInt(d.innerText.replaceAll(",", "")))`)
		t.Logf("a page tells: %v", counts)
		requeued += counts[0]
		for _, n := range counts {
			looked += n
		}
	}
	for end := time.Now().Add(patience); c.taken() < n && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
	}
	stop()
	working.Wait()
	if c.err != nil {
		t.Error(c.err)
	}
	if looked <= n || c.between == 0 {
		t.Errorf("the changes tried %d, and %d were claimed between the pages of a requeue, so there was no race", looked, c.between)
	}
	if requeued != n || len(c.times) != n {
		t.Errorf("the pages tell of %d, and %d messages were delivered; want %d", requeued, len(c.times), n)
	}
	for id, times := range c.times {
		if times != 1 {
			t.Errorf("%s was delivered %d times", id, times)
		}
	}
}

// taker is a consumer that counts how often it gets each message.
type taker struct {
	store   punctual.Store
	claimed chan struct{}

	mu      sync.Mutex
	times   map[string]int // guarded by mu
	between int            // guarded by mu: how many messages it has claimed while others were still dead
	err     error          // guarded by mu
}

func (c *taker) taken() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.times)
}

func (c *taker) run(ctx context.Context) {
	for ctx.Err() == nil {
		ds, err := c.store.Claim(ctx, punctual.Claim{Topics: []string{"pay"}, Max: 100, Wait: 100 * time.Millisecond, Lease: 10 * time.Minute})
		var ss []punctual.Settlement
		for _, d := range ds {
			ss = append(ss, punctual.Settlement{Topic: "pay", ID: d.ID, Token: d.Token, Verb: punctual.SettleAck})
		}
		if err == nil && len(ss) > 0 {
			err = c.settle(ctx, ss)
		}
		if err != nil && ctx.Err() == nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			return
		}
	}
}

func (c *taker) settle(ctx context.Context, ss []punctual.Settlement) error {
	stats, err := must(punctual.As[punctual.Inspector](c.store)).Stats(ctx, "pay")
	if err != nil {
		return err
	}
	errs, err := c.store.Settle(ctx, ss)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range ss {
		c.times[s.ID]++
	}
	if stats.Dead > 0 {
		c.between += len(ss)
	}
	select {
	case <-c.claimed:
	default:
		close(c.claimed)
	}
	return errors.Join(append(errs, err)...)
}

// In a browser without scripts people can log in, push a message, pause a topic, requeue a group of
// dead messages and purge a topic.
func TestFormsWithoutScript(t *testing.T) { overStores(t, formsWithoutScript) }

func formsWithoutScript(t *testing.T, s punctual.Store) {
	r, i := newRig(t, s, byToken()), must(punctual.As[punctual.Inspector](s))
	r.push(punctual.NewMessage{Topic: "t", ID: "a", Delay: time.Hour}, punctual.NewMessage{Topic: "pay", ID: "d0"}, punctual.NewMessage{Topic: "pay", ID: "d1"})
	r.kill("pay", "the endpoint answered 503", 2)
	r.do(command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	r.open("/topics/t")
	r.do(chromedp.SendKeys(css("input[name=token]"), "right"), clickOn("form.login button"), chromedp.WaitVisible(css(`form[action$="/logout"]`)))

	r.open("/topics?push=1")
	r.do(chromedp.SendKeys(css("form.card input[name=topic]"), "t"), chromedp.SendKeys(css("form.card input[name=id]"), "b"),
		clickOn("form.card button.main"), chromedp.WaitVisible(css("#live .life")))
	r.stored("it is pushed", "t", "b", func(punctual.Info) bool { return true })

	r.open("/topics/t")
	r.do(clickOn(`form[action$="/pause"]:has(input[value=delivery]) button`), chromedp.WaitVisible(css(".notice")))
	if got, err := i.Settings(t.Context(), "t"); err != nil || !got.DeliveryPaused {
		t.Errorf("delivery is not paused: %+v, %v", got, err)
	}

	r.open("/dead")
	r.do(clickOn(`td.error a`), chromedp.WaitVisible(css("section.do button.main")), clickOn("section.do button.main"), chromedp.WaitVisible(css("dl.numbers-row.small")))
	for _, id := range []string{"d0", "d1"} {
		r.stored("the group is requeued", "pay", id, func(m punctual.Info) bool { return m.State != punctual.StateDead })
	}

	r.open("/topics/t/settings")
	r.do(chromedp.SendKeys(css(`form[action$="/purge"] input[name=typed]`), "t"), clickOn(`form[action$="/purge"] button`), chromedp.WaitVisible(css(".notice")))
	r.gone("t", "a")
	r.gone("t", "b")
}
