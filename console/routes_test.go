package console

import (
	"errors"
	"fmt"
	"maps"
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
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/httproute"
	"github.com/punctualmq/punctual/internal/wire"
)

// Each route has an action, or is open to any principal or to everybody, because a route without
// any of these is refused to everybody. That is tried with such a route.
func TestEveryRouteHasAnAction(t *testing.T) {
	for _, rt := range routes() {
		if rt.action == 0 && !rt.anyPrincipal && !rt.public {
			t.Errorf("%s %s has no action", rt.method, rt.path)
		}
		if rt.handle == nil {
			t.Errorf("%s %s has no handler", rt.method, rt.path)
		}
		if rt.method == http.MethodGet && (rt.action == access.Amend || rt.action == access.Push) {
			t.Errorf("GET %s changes something", rt.path)
		}
	}
	r := newRig(t, nil)
	open := &route{method: http.MethodGet, path: "/open", handle: func(c *call) error { return c.show("find", nil) }}
	r.console.routes = httproute.New([]*route{open}, (*route).pattern)
	if a := r.get("/open"); a.Code != http.StatusForbidden {
		t.Errorf("a route without an action answers %d", a.Code)
	}
}

func TestPages(t *testing.T) {
	r := newRig(t, nil)
	r.fill()
	for _, path := range pagePaths() {
		text := r.page(path)
		if !strings.HasPrefix(text, "<!doctype html>") || !strings.Contains(text, "</html>") {
			t.Errorf("%s is not a whole page", path)
		}
		for _, bad := range inline.FindAllString(text, -1) {
			t.Errorf("%s has %q, which the content policy forbids", path, bad)
		}
		if h := r.get(path).Header(); h.Get("Content-Security-Policy") != contentSecurity || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s has headers %v", path, h)
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if m[1] == "" && strings.HasPrefix(m[0], "data-from") {
				continue // nothing is renewed
			}
			if !strings.HasPrefix(m[1], "/") && !strings.HasPrefix(m[1], "#") || strings.HasPrefix(m[1], "//") {
				t.Errorf("%s links to %s", path, m[1])
			}
		}
	}
}

var (
	digits = regexp.MustCompile(`[0-9]+`)
	inline = regexp.MustCompile(`(?i) style=|<style|<script>| on[a-z]+="|javascript:`)
	link   = regexp.MustCompile(`(?:href|src|action|data-from)="([^"]*)"`)
)

// The links of all pages that can be reached lead to pages under the prefix. Of links that differ
// only in numbers the first is followed. One of the links leads to a message whose topic and ID
// have odd characters.
func TestLinksUnderAPrefix(t *testing.T) {
	r := newRig(t, &Options{Prefix: "/queues", API: "/"})
	r.fill()
	seen := make(map[string]bool)
	todo := []string{"/queues/"}
	kinds := make(map[string]int) // how many links were met, by their kind
	for len(todo) > 0 {
		path := todo[0]
		todo = todo[1:]
		kind := kindOf(path)
		if kinds[kind]++; seen[path] || kinds[kind] > 1 {
			continue
		}
		seen[path] = true
		a := r.do(httptest.NewRequest(http.MethodGet, path, nil))
		if a.Code != http.StatusOK {
			t.Errorf("GET %s: %d", path, a.Code)
			continue
		}
		if !strings.HasPrefix(a.Header().Get("Content-Type"), "text/html") {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(a.text, -1) {
			to := strings.ReplaceAll(m[1], "&amp;", "&")
			to, _, _ = strings.Cut(to, "#")
			if to != "" && !strings.HasPrefix(to, "/queues/") {
				t.Errorf("%s leads out of the prefix: %s", path, to)
			}
			if !strings.Contains(m[0], "action=") && to != "" {
				todo = append(todo, to)
			}
		}
	}
	for _, want := range []string{"/queues/topics/a-b%2Fc:d/messages/a%2Fb%20%3F%23%25", "/queues/week", "/queues/fragment/topics"} {
		if !seen[want] {
			t.Errorf("no link led to %s", want)
		}
	}
	if a := r.do(httptest.NewRequest(http.MethodGet, "/queues", nil)); a.Code != http.StatusSeeOther || a.Header().Get("Location") != "/queues/" {
		t.Errorf("the prefix alone: %d to %q", a.Code, a.Header().Get("Location"))
	}
	if a := r.do(httptest.NewRequest(http.MethodGet, "/other", nil)); a.Code != http.StatusNotFound {
		t.Errorf("a path beside the prefix: %d", a.Code)
	}
}

func TestPrefixThatIsNone(t *testing.T) {
	for _, p := range []string{"queues", "/queues/", "/"} {
		if _, err := New(newRig(t, nil).store, &Options{Prefix: p}); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("prefix %q: %v", p, err)
		}
	}
}

// posts returns the fields of forms by the paths to which the forms are posted: one for each POST
// route that needs an action.
func posts() map[string]url.Values {
	return map[string]url.Values{
		"/push":                                        {"topic": {"x"}, "in": {"0s"}, "body": {"b"}},
		"/topics/order.close/configure":                {"lease": {"1h"}},
		"/topics/order.close/pause":                    {"what": {"push"}, "pause": {"true"}},
		"/topics/order.close/purge":                    {"state": {"live"}, "typed": {"order.close"}},
		"/topics/order.close/delete":                   {"typed": {"order.close"}},
		"/topics/order.close/amend":                    {"do": {"cancel"}, "id": {"order-001"}},
		"/topics/order.close/messages/order-002/amend": {"do": {"cancel"}},
		"/topics/pay/messages/pay-001/delete":          {},
		"/topics/order.close/groups":                   {"do": {"add"}, "group": {"billing"}},
		"/schedules/new":                               {"topic": {"order.close"}, "name": {"daily"}, "was_spec": {""}, "spec": {"@daily"}},
		"/topics/order.close/schedules/closing/edit":   {"was_spec": {"0 18 * * MON-FRI"}, "spec": {"@daily"}},
		"/topics/order.close/schedules/closing/pause":  {},
		"/topics/order.close/schedules/closing/resume": {},
		"/topics/order.close/schedules/closing/run":    {},
		"/topics/order.close/schedules/closing/skip":   {},
		"/topics/order.close/schedules/closing/delete": {},
		"/topics/order.close/schedules/closing/backfill": {
			"from": {"2026-11-20T00:00:00Z"}, "to": {"2026-11-22T10:00:00Z"},
		},
		"/topics/order.close/push":                    {"body": {"b"}},
		"/topics/order.close/messages/order-002/edit": {"body": {"b"}, "due": {"2026-11-22T12:03:00Z"}},
		"/topics/order.close/bulk":                    {"change": {"cancel"}},
		"/topics/order.close/bulk/none/run":           {},
		"/topics/order.close/bulk/none/stop":          {},
	}
}

// hasPage reports whether the path of a form is also the path of a page.
func hasPage(path string) bool {
	return path == "/schedules/new" || strings.HasSuffix(path, "/closing/edit") || strings.HasSuffix(path, "/bulk")
}

func (r *rig) state() string {
	r.t.Helper()
	all, err := r.store.Topics(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return fmt.Sprint(all)
}

// routeOf returns the route for a method and a path; nil, with an error of the test, if there is
// none.
func (r *rig) routeOf(method, path string) *route {
	r.t.Helper()
	segments, err := wire.SplitPath(path)
	if err != nil {
		r.t.Fatal(err)
	}
	rt, _, _, ok := r.console.routes.Find(method, segments)
	if !ok {
		r.t.Errorf("there is no route for %s %s", method, path)
		return nil
	}
	return rt
}

// Each form that changes something is refused to a reader, to a page of another site and to
// somebody on another machine.
func TestFormsAreRefused(t *testing.T) {
	r := newRig(t, &Options{Authenticate: who(readAll)})
	r.fill()
	before := r.state()
	covered := make(map[string]bool) // the paths of routes
	for path, form := range posts() {
		if a := r.post(path, form); a.Code != http.StatusForbidden {
			t.Errorf("read-only POST %s: %d", path, a.Code)
		}
		if rt := r.routeOf(http.MethodPost, path); rt != nil {
			covered[rt.path] = true
		}
	}
	for _, path := range pagePaths() {
		if strings.HasSuffix(path, "/edit") {
			continue // the reader may not open it
		}
		for _, m := range regexp.MustCompile(`<form[^>]*method="post"[^>]*action="([^"]*)"`).FindAllStringSubmatch(r.page(path), -1) {
			if m[1] != "/look" && !strings.HasSuffix(m[1], "/configure") {
				t.Errorf("who may only look is shown the form %s on %s", m[1], path)
			}
		}
	}
	for _, rt := range routes() {
		if rt.method == http.MethodPost && rt.action != 0 && !covered[rt.path] {
			t.Errorf("no form of POST %s was tried", rt.path)
		}
	}

	open := newRig(t, nil)
	open.fill()
	for path, form := range posts() {
		req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "cross-site")
		if a := open.do(req); a.Code != http.StatusForbidden {
			t.Errorf("POST %s of another site: %d", path, a.Code)
		}
		req = httptest.NewRequest(http.MethodGet, path, nil)
		if a := open.do(req); !hasPage(path) && a.Code != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %d", path, a.Code)
		}
		req = httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.RemoteAddr = "203.0.113.9:4321"
		if a := open.do(req); a.Code != http.StatusForbidden {
			t.Errorf("POST %s over the network without Authenticate: %d", path, a.Code)
		}
	}
	if after := r.state(); after != before {
		t.Errorf("a refused form changed something:\n%s\n%s", before, after)
	}
	if open.state() != before {
		t.Error("a form of another site changed something")
	}
}

// When a form is refused, the page that shows it again leads back to that page: the look form names
// the path of a page that is made by the same function.
func TestFormsLeadBackToTheirPages(t *testing.T) {
	r := newRig(t, &Options{Prefix: "/q"})
	r.push("a/b", "m", time.Hour)
	fill := strings.NewReplacer("{topic}", "a%2Fb", "{id}", "m%20%3F", "{name}", "n", "{job}", "j")
	function := func(f func(*call) error) uintptr { return reflect.ValueOf(f).Pointer() }
	for _, rt := range routes() {
		if rt.method != http.MethodPost || rt.form == nil {
			continue
		}
		c := &call{console: r.console, r: httptest.NewRequest(http.MethodPost, "/q"+fill.Replace(rt.path), nil)}
		if done, err := c.findRoute(); done || err != nil {
			t.Fatalf("%s: %v, %v", rt.path, done, err)
		}
		back, under := strings.CutPrefix((&frame{call: c}).Here(), "/q")
		if page := r.routeOf(http.MethodGet, back); !under || page == nil || function(page.handle) != function(rt.form) {
			t.Errorf("the page of the form %s leads back to %s, which is another page", rt.path, back)
		}
	}
	a := r.post("/topics/a%2Fb/configure", url.Values{"lease": {"soon"}, "was_lease": {"30s"}})
	if a.Code != http.StatusBadRequest || !strings.Contains(a.text, `name="back" value="/q/topics/a%2Fb/settings"`) {
		t.Errorf("a refused form of the settings, %d, does not lead back to them", a.Code)
	}
}

// A reader who may inspect only some topics is refused the pages of others, and no page shows
// topics or bodies that he may not see.
func TestTopicsAreKeptApart(t *testing.T) {
	r := newRig(t, &Options{Authenticate: who(access.Grant{Actions: access.All, Topics: "order.*"})})
	r.fill()
	for path, code := range map[string]int{
		"/topics": 200, "/find": 200, "/find?id=dead-1": 200, "/dead": 200, "/": 403, "/week": 403, "/lateness": 200, "/lateness?topic=pay": 403, "/lateness?topic=order.close": 200, "/week?topic=order.close": 200,
		"/week?topic=pay": 403, "/topics/pay": 403, "/topics/pay/messages/dead-1": 403, "/topics/pay/messages/dead-1/body": 403,
		"/find?topic=pay&id=dead-1": 403, "/find?topic=pay&name=x&state=dead": 403, "/topics/pay/dead.ndjson": 403,
		"/topics/order.close": 200,
	} {
		a := r.get(path)
		if a.Code != code {
			t.Errorf("GET %s: %d, want %d", path, a.Code, code)
		}
		if strings.Contains(a.text, "a-b/c:d") || strings.Contains(a.text, "body of dead-1") {
			t.Errorf("GET %s shows what may not be seen", path)
		}
	}
}

// The page Topics has a button that pushes only for a reader who may push to some topic.
func TestPushOfReaders(t *testing.T) {
	const button = `<button class="main">Push</button>`
	for name, grants := range map[string][]access.Grant{
		"reader":       {readAll},
		"of one topic": {readAll, {Actions: access.All, Topics: "order.close"}},
		"everything":   {access.Everything()},
	} {
		r := newRig(t, &Options{Authenticate: who(grants...)})
		r.fill()
		if shown := strings.Contains(r.page("/topics"), button); shown != (name != "reader") {
			t.Errorf("%s: the button to push is shown: %t", name, shown)
		}
	}
}

func TestFragments(t *testing.T) {
	r := newRig(t, nil)
	r.fill()
	text := r.page("/fragment/topics/order.close?state=scheduled")
	if strings.Contains(text, "<html") || !strings.Contains(text, "order-001") {
		t.Errorf("the part that is renewed is %.200s", text)
	}
	if !strings.Contains(r.page("/topics/order.close?state=scheduled"), `data-from="/fragment/topics/order.close?state=scheduled"`) {
		t.Error("the page does not say where its part is renewed from")
	}
	if strings.Contains(text, "/fragment/") {
		t.Error("a renewed part links to fragments")
	}
	if a := r.get("/fragment/find"); a.Code != http.StatusNotFound {
		t.Errorf("the fragment of a page that has none: %d", a.Code)
	}
}

func TestAssets(t *testing.T) {
	r := newRig(t, nil)
	found := 0
	for _, m := range link.FindAllStringSubmatch(r.page("/topics"), -1) {
		if strings.HasPrefix(m[1], "/assets/") {
			found++
			a := r.get(m[1])
			if a.Code != http.StatusOK || !strings.Contains(a.Header().Get("Cache-Control"), "immutable") || a.Header().Get("Content-Type") == "" {
				t.Errorf("%s: %d %v", m[1], a.Code, a.Header())
			}
		}
	}
	if found != 3 {
		t.Errorf("%d files beside the page, want style, script and picture", found)
	}
}

// kindOf returns a link with 0 in place of each number and without the values of its query. One
// page of each kind is enough, because all that tests ask of a page's links holds for every page.
func kindOf(path string) string {
	path, query, _ := strings.Cut(path, "?")
	values, _ := url.ParseQuery(query)
	return digits.ReplaceAllString(path, "0") + "?" + strings.Join(slices.Sorted(maps.Keys(values)), "&")
}
