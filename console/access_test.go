package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
)

// who returns a function for Options.Authenticate that takes everybody for one person with these
// grants.
func who(grants ...access.Grant) func(*http.Request) (*access.Principal, error) {
	return func(*http.Request) (*access.Principal, error) {
		return &access.Principal{Name: "ann", Grants: grants}, nil
	}
}

// readAll is a grant to read everything and change nothing.
var readAll = access.Grant{Actions: access.Inspect, Topics: "*"}

// roles maps tokens to what their holders may do.
type roles map[string][]access.Grant

func (r roles) authenticate(req *http.Request) (*access.Principal, error) {
	token, _ := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	grants, known := r[token]
	if !known {
		return nil, fmt.Errorf("no such token: %w", punctual.ErrUnauthenticated)
	}
	return &access.Principal{Name: token, Grants: grants}, nil
}

// people returns the roles of the tests.
func people() roles {
	return roles{
		"admin": {access.Everything()}, "reader": {readAll}, "orders": {{Actions: access.All, Topics: "order.*"}}, "nothing": nil,
	}
}

// browser keeps cookies as a browser does, and knows the token of its forms.
type browser struct {
	*rig
	jar map[string]string
}

func (r *rig) browser() *browser { return &browser{r, make(map[string]string)} }

// send sends a request with the browser's cookies and keeps those of the answer. A header is
// written as "Name: value".
func (b *browser) send(method, path string, form url.Values, headers ...string) answer {
	b.t.Helper()
	req := httptest.NewRequest(method, b.prefix+path, strings.NewReader(form.Encode()))
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	for name, value := range b.jar {
		req.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	a := b.serve(req)
	for _, k := range a.Result().Cookies() {
		if k.MaxAge < 0 {
			delete(b.jar, k.Name)
		} else {
			b.jar[k.Name] = k.Value
		}
	}
	return a
}

// csrf returns the token of the forms of this browser.
func (b *browser) csrf() string {
	if key := b.jar[cookieSession]; key != "" {
		return b.console.formKey.token(key)
	}
	return b.console.formKey.token(b.jar[cookieBrowser])
}

// submit sends a form as a page of this browser would.
func (b *browser) submit(path string, form url.Values) answer {
	b.t.Helper()
	filled := url.Values{"csrf": {b.csrf()}}
	for name, values := range form {
		filled[name] = values
	}
	return b.send(http.MethodPost, path, filled)
}

// logIn opens the login page and sends its form with a token.
func (b *browser) logIn(token string) answer {
	b.t.Helper()
	_, csrf, _ := strings.Cut(b.send(http.MethodGet, "/login", nil).text, `name="csrf" value="`)
	csrf, _, _ = strings.Cut(csrf, `"`)
	return b.send(http.MethodPost, "/login", url.Values{"token": {token}, "csrf": {csrf}})
}

// fields returns the fields of the form of each POST route, by the path of the route.
// TestEveryRouteForEveryRole and TestRights fail when they meet a route that is not among them.
func fields() map[string]url.Values {
	return map[string]url.Values{
		"/push": {"topic": {"order.close"}, "in": {"1s"}, "body": {"b"}}, pathTopic + "/configure": {"lease": {"1h"}}, pathTopic + "/pause": {"what": {"push"}, "pause": {"true"}},
		pathTopic + "/purge": {"state": {"live"}, "typed": {"order.close"}}, pathTopic + "/delete": {"typed": {"order.close"}},
		pathTopic + "/amend": {"do": {"cancel"}, "id": {"order-001"}}, pathMessage + "/amend": {"do": {"cancel"}}, pathMessage + "/delete": {},
		pathTopic + "/groups": {"do": {"add"}, "group": {"billing"}}, "/schedules/new": {"topic": {"order.close"}, "name": {"weekly"}, "was_spec": {""}, "spec": {"@daily"}},
		pathSchedule + "/edit": {"was_spec": {"@hourly"}, "spec": {"@daily"}}, pathSchedule + "/pause": {}, pathSchedule + "/resume": {}, pathSchedule + "/run": {},
		pathSchedule + "/skip": {}, pathSchedule + "/delete": {}, pathSchedule + "/backfill": {"from": {"2026-11-22T00:00:00Z"}, "to": {"2026-11-22T10:00:00Z"}},
		pathTopic + "/push": {"body": {"b"}}, pathMessage + "/edit": {"body": {"b"}, "due": {"2026-11-22T13:00:00Z"}, "was": {contentSum([]byte("body of order-001"), nil)}},
		pathBulk: {"change": {"cancel"}}, pathBulkJob + "/run": {}, pathBulkJob + "/stop": {},
		"/look": {}, "/logout": {}, "/login": {"token": {"wrong"}},
	}
}

// empty removes every topic.
func (r *rig) empty() {
	r.t.Helper()
	all, err := r.store.Topics(r.t.Context())
	for _, topic := range all {
		if _, e := r.store.DeleteTopic(r.t.Context(), topic.Topic); e != nil && !errors.Is(e, punctual.ErrNotFound) { // companions are deleted with their topic
			err = e
		}
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// Every route is requested by each kind of principal: by nobody, by one without grants, one with
// read access, one with all actions on some topics and one with all actions on all. A new route is
// tried as well. If it is a POST, the test fails until fields has its form.
func TestEveryRouteForEveryRole(t *testing.T) {
	for _, role := range []string{"", "nothing", "reader", "orders", "admin"} {
		r := newRig(t, &Options{Authenticate: people().authenticate, LoginByToken: true})
		for _, topic := range []string{"order.close", "pay"} {
			for _, rt := range routes() {
				name := fmt.Sprintf("%q %s %s of %s", role, rt.method, rt.path, topic)
				r.empty()
				r.push("order.close", "order-001", 0)
				r.push("pay", "order-001", 0)
				b := r.browser()
				if role != "" {
					if a := b.logIn(role); a.Code != http.StatusSeeOther {
						t.Fatalf("%s logs in: %d %s", name, a.Code, a.text)
					}
				}
				before := r.state()
				path := strings.NewReplacer("{topic}", topic, "{id}", "order-001", "{name}", "nothing.css", "{job}", "none").Replace(rt.path)
				var a answer
				if rt.method == http.MethodPost {
					form, known := fields()[rt.path]
					if !known {
						t.Fatalf("the test has no fields for the form of %s", rt.path)
					}
					if form.Has("typed") {
						form.Set("typed", topic)
					}
					if form.Has("topic") {
						form.Set("topic", topic)
					}
					a = b.submit(path, form)
				} else {
					a = b.send(rt.method, path, nil)
				}
				public := rt.public
				allowed := public || role != "" && (rt.anyPrincipal || rt.perTopic && rt.method == http.MethodGet && rt.path != "/audit" && rt.path != "/week")
				if role != "" && rt.action != 0 {
					of := ""
					if strings.Contains(rt.path, "{topic}") || rt.path == "/push" || rt.path == "/schedules/new" {
						of = topic
					}
					if rt.path == "/audit" {
						of = access.AuditTopic
					}
					p := access.Principal{Grants: people()[role]}
					allowed = p.Allows(rt.action, of) || allowed
				}
				switch {
				case !allowed && role == "" && rt.method == http.MethodGet:
					if a.Code != http.StatusSeeOther || !strings.HasPrefix(a.Header().Get("Location"), "/login?next=") {
						t.Errorf("%s: %d to %q, want the form to log in", name, a.Code, a.Header().Get("Location"))
					}
				case !allowed && role == "":
					if a.Code != http.StatusUnauthorized {
						t.Errorf("%s: %d, want 401", name, a.Code)
					}
				case !allowed:
					if a.Code != http.StatusForbidden {
						t.Errorf("%s: %d, want 403", name, a.Code)
					}
				case !public && (a.Code == http.StatusForbidden || a.Code == http.StatusUnauthorized || a.Code >= 500):
					t.Errorf("%s: %d %s", name, a.Code, a.text)
				}
				if changed := r.state() != before; changed && (!allowed || rt.action == 0 || rt.action == access.Inspect) {
					t.Errorf("%s changed the store:\n%s\n%s", name, before, r.state())
				}
			}
		}
	}
}

// Nobody can change the audit log in the console, not even a principal with all grants.
func TestAuditLogIsRead(t *testing.T) {
	r := newRig(t, nil)
	r.push("x", "x-1", 0)
	r.post("/topics/x/pause", url.Values{"what": {"delivery"}, "pause": {"true"}})
	entries := r.entries()
	if len(entries) != 1 {
		t.Fatalf("%d entries", len(entries))
	}
	before := r.state()
	for _, path := range []string{"/topics/punctual.audit/pause", "/topics/punctual.audit/purge", "/topics/punctual.audit/delete", "/topics/punctual.audit/configure", "/topics/punctual.audit/amend"} {
		form := url.Values{"what": {"delivery"}, "pause": {"false"}, "typed": {"punctual.audit"}, "state": {"live"}, "lease": {"1m"}, "do": {"cancel"}, "id": {"x"}}
		if a := r.post(path, form); a.Code != http.StatusForbidden {
			t.Errorf("POST %s: %d", path, a.Code)
		}
	}
	if a := r.post("/push", url.Values{"topic": {"punctual.audit"}, "body": {"x"}}); a.Code != http.StatusForbidden {
		t.Errorf("a push to the audit log: %d", a.Code)
	}
	if r.state() != before {
		t.Error("the audit log was changed")
	}
	if a := r.get("/topics/punctual.audit"); a.Code != http.StatusOK {
		t.Errorf("the topic of the audit log: %d", a.Code)
	}
}

// Without Options.Authenticate the console is for this machine alone. Over TCP it refuses requests
// under another name, because by DNS rebinding a page of another site can reach the console under
// its own name. It refuses requests of a proxy, because they may come from other machines.
func TestThisMachine(t *testing.T) {
	r := newRig(t, nil)
	for _, c := range []struct {
		what, remote, host, header string
		socket                     bool
		want                       int
	}{
		{"this machine", "127.0.0.1:1", "localhost:7878", "", false, 200},
		{"this machine by IPv6", "[::1]:1", "[::1]:7878", "", false, 200},
		{"a socket", "@", "anything", "", true, 200},
		{"another machine", "192.168.1.7:1", "localhost", "", false, 403},
		{"a name of somebody else", "127.0.0.1:1", "evil.example", "", false, 403},
		{"a name that begins like this machine's", "127.0.0.1:1", "localhost.evil.example:7878", "", false, 403},
		{"an address of the network", "127.0.0.1:1", "192.168.1.7:7878", "", false, 403},
		{"a proxy", "127.0.0.1:1", "localhost", "X-Forwarded-For", false, 403},
		{"another proxy", "127.0.0.1:1", "localhost", "Forwarded", false, 403},
		{"an address that is none", "somebody", "localhost", "", false, 403},
		{"no address", "", "localhost", "", false, 403},
	} {
		req := httptest.NewRequest(http.MethodGet, "/topics", nil)
		req.RemoteAddr, req.Host = c.remote, c.host
		if c.header != "" {
			req.Header.Set(c.header, "203.0.113.9")
		}
		if c.socket {
			req = req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, net.Addr(&net.UnixAddr{Name: "s", Net: "unix"})))
		}
		w := httptest.NewRecorder()
		r.console.ServeHTTP(w, req)
		if w.Code != c.want {
			t.Errorf("%s: %d, want %d", c.what, w.Code, c.want)
		}
	}
}

// An Authenticate that returns an error, or neither a principal nor an error, lets nobody in, and a
// principal without grants sees no topic.
func TestAuthenticateFails(t *testing.T) {
	for _, c := range []struct {
		user *access.Principal
		err  error
		want int
	}{
		{nil, nil, 500},
		{nil, fmt.Errorf("the file is gone: %w", punctual.ErrOverloaded), 503},
		{nil, errors.New("broken"), 500},
		{nil, punctual.ErrUnauthenticated, 401},
		{&access.Principal{Name: "x"}, nil, 403},
	} {
		r := newRig(t, &Options{Authenticate: func(*http.Request) (*access.Principal, error) { return c.user, c.err }})
		if a := r.get("/topics/x"); a.Code != c.want {
			t.Errorf("%+v, %v: %d, want %d", c.user, c.err, a.Code, c.want)
		}
	}
}
