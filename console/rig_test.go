package console

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/bulk"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// rig is a console over a store in memory whose clock the test moves.
type rig struct {
	t       *testing.T
	store   *memstore.Store
	clock   *storekit.ManualClock
	console *Console
	prefix  string
}

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// newRig opens a console with these options, nil for the default.
func newRig(t *testing.T, o *Options) *rig {
	t.Helper()
	clock := storekit.NewManualClock(noon)
	store := memstore.New(&memstore.Options{Clock: clock})
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return rigOver(t, store, store, clock, o)
}

// rigOver opens a console over the store over, which is the store in memory or wraps it.
func rigOver(t *testing.T, over punctual.Store, store *memstore.Store, clock *storekit.ManualClock, o *Options) *rig {
	t.Helper()
	c, err := New(over, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, store: store, clock: clock, console: c}
	if o != nil {
		r.prefix = o.Prefix
	}
	return r
}

// answer is what the console sent.
type answer struct {
	*httptest.ResponseRecorder
	text string
}

// do sends a request with the cookie of the browser testBrowser, from this machine unless the
// request has another address.
func (r *rig) do(req *http.Request) answer {
	r.t.Helper()
	req.AddCookie(&http.Cookie{Name: cookieBrowser, Value: testBrowser})
	return r.serve(req)
}

// serve sends a request with the cookies that it has. The default address and host of package
// httptest are replaced by those of this machine.
func (r *rig) serve(req *http.Request) answer {
	r.t.Helper()
	if req.RemoteAddr == "" || strings.HasPrefix(req.RemoteAddr, "192.0.2.") {
		req.RemoteAddr = "127.0.0.1:1234"
	}
	if req.Host == "example.com" {
		req.Host = "localhost"
	}
	w := httptest.NewRecorder()
	r.console.ServeHTTP(w, req)
	return answer{w, w.Body.String()}
}

func requestTo(path string) *http.Request { return httptest.NewRequest(http.MethodGet, path, nil) }

// get asks for the page at a path, which follows the prefix of the console.
func (r *rig) get(path string) answer {
	r.t.Helper()
	return r.do(httptest.NewRequest(http.MethodGet, r.prefix+path, nil))
}

// page asks for a page that must be there, and returns its text.
func (r *rig) page(path string) string {
	r.t.Helper()
	a := r.get(path)
	if a.Code != http.StatusOK {
		r.t.Fatalf("GET %s: %d %s", path, a.Code, a.text)
	}
	return a.text
}

// testBrowser is the name of the browser that sends forms.
const testBrowser = "abrowser"

// post sends a form as a browser without script does, with the form token of testBrowser unless the
// form has one.
func (r *rig) post(path string, form url.Values) answer {
	r.t.Helper()
	form = maps.Clone(form)
	if form == nil {
		form = url.Values{}
	}
	if !form.Has("csrf") {
		form.Set("csrf", r.console.formKey.token(testBrowser))
	}
	req := httptest.NewRequest(http.MethodPost, r.prefix+path, strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	return r.do(req)
}

// push stores a message that is due after the time in, unless a change gives it another due time.
func (r *rig) push(topic, id string, in time.Duration, change ...func(*punctual.NewMessage)) {
	r.t.Helper()
	m := punctual.NewMessage{Topic: topic, ID: id, Delay: in, Body: []byte("body of " + id)}
	for _, c := range change {
		c(&m)
	}
	rs, err := r.store.Push(r.t.Context(), []punctual.NewMessage{m})
	if err != nil || rs[0].Err != nil {
		r.t.Fatal(err, rs)
	}
}

// configure changes the settings of a topic.
func (r *rig) configure(topic string, change func(*punctual.Settings)) {
	r.t.Helper()
	if _, err := punctual.NewQueue(r.store, nil).Configure(r.t.Context(), topic, change); err != nil {
		r.t.Fatal(err)
	}
}

// countedBulk counts a bulk change of a topic that selects by nothing else, and returns the job of
// the count, which can be carried out.
func (r *rig) countedBulk(topic string, do bulk.Change) *bulkJob {
	r.t.Helper()
	job, err := r.console.bulks.start(bulkChange{Job: bulk.Job{Do: do, Select: bulk.Selection{Topic: topic}, DryRun: true}}, nil, (&call{}).recordBulk(&bulkChange{Job: bulk.Job{DryRun: true}}))
	if err != nil {
		r.t.Fatal(err)
	}
	<-job.ended
	return job
}

// schedule stores a schedule.
func (r *rig) schedule(s schedule.Schedule) {
	r.t.Helper()
	if _, err := schedule.Put(r.t.Context(), punctual.NewQueue(r.store, nil), s); err != nil {
		r.t.Fatal(err)
	}
}

// kill pushes messages with these IDs, claims and discards them, so that they are dead with this
// error. It claims as many messages as there are IDs, so no other message of the topic should be
// due.
func (r *rig) kill(topic, reason string, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		r.push(topic, id, 0)
	}
	ds, err := r.store.Claim(r.t.Context(), punctual.Claim{Topics: []string{topic}, Max: len(ids)})
	if err != nil || len(ds) != len(ids) {
		r.t.Fatal(err, len(ds))
	}
	var ss []punctual.Settlement
	for _, d := range ds {
		ss = append(ss, punctual.Settlement{Topic: topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleDiscard, Error: reason})
	}
	if _, err := r.store.Settle(r.t.Context(), ss); err != nil {
		r.t.Fatal(err)
	}
}

// message returns a message that must be in the store.
func (r *rig) message(topic, id string) punctual.Info {
	r.t.Helper()
	m, err := r.store.Get(r.t.Context(), topic, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// fill gives the store messages in several states, a name with odd characters, a topic with groups,
// one with events, and a schedule.
func (r *rig) fill() {
	r.t.Helper()
	for i := range 120 {
		r.push("order.close", fmt.Sprintf("order-%03d", i), time.Duration(i+1)*time.Minute)
	}
	r.push("a-b/c:d", "a/b ?#%", time.Hour, func(m *punctual.NewMessage) { m.Headers = map[string]string{"tenant": "shop-1"} })
	r.push("late", "late-1", 0)
	r.configure("order.close", func(s *punctual.Settings) { s.Emit = punctual.EventDead | punctual.EventAcked })
	r.configure("fan", func(s *punctual.Settings) { s.Groups = []string{"mail", "billing"} })
	r.schedule(schedule.Schedule{Topic: "order.close", Name: "closing", Spec: "0 18 * * MON-FRI", Zone: "Europe/Berlin", Body: []byte("close")})
	r.kill("order.close", "no such order", "gone-1")
	r.kill("pay", "card declined", "dead-1", "dead-2", "dead-3")
	r.clock.Advance(time.Minute - time.Second)
}

// styleOf returns the style of the console.
func styleOf(t *testing.T) string {
	t.Helper()
	css, err := os.ReadFile("assets/console.css")
	if err != nil {
		t.Fatal(err)
	}
	return string(css)
}

// pagePaths returns the paths of pages that exist when fill has filled the store.
func pagePaths() []string {
	return []string{
		"/", "/?scale=log", "/?from=2026-11-22T12:10:00Z&to=2026-11-22T12:20:00Z",
		"/week", "/week?topic=order.close&zone=Asia/Kolkata", "/topics", "/topics?q=order&sort=due", "/topics/order.close", "/topics/order.close?state=leased",
		"/topics/order.close?from=2026-11-22T12:10&to=2026-11-22T12:20", "/topics/a-b%2Fc:d", "/topics/a-b%2Fc:d/messages/a%2Fb%20%3F%23%25",
		"/topics/a-b%2Fc:d/messages/a%2Fb%20%3F%23%25?body=hex", "/topics/pay?state=dead", "/topics/pay/messages/dead-1",
		"/lateness", "/lateness?span=24h", "/lateness?topic=pay",
		"/find", "/find?id=late-1&stay=1", "/find?topic=a-b/c:d&state=scheduled&name=tenant&value=shop", "/dead", "/topics?push=1",
		"/topics/order.close/settings", "/topics/order.close/consumers", "/topics/order.close/finished", "/topics/order.close/finished?outcome=acked", "/topics/order.close/events", "/topics/order.close/events?event=dead",
		"/topics/order.close/schedules", "/topics/pay/schedules", "/schedules", "/schedules?topic=order.close&q=clo", "/schedules/new?topic=pay",
		"/schedules/new?was_spec=&spec=0+9+*+*+MON&zone_name=Europe/Berlin", "/topics/order.close/schedules/closing", "/topics/order.close/schedules/closing/edit",
		"/topics/order.close/bulk?state=scheduled&prefix=order-01", "/topics/order.close?state=scheduled&prefix=order-01", "/topics/fan", "/topics/fan@g.mail", "/topics/pay/messages/dead-1?followed=1", "/topics/fan/settings",
	}
}
