package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLogIn(t *testing.T) {
	r := newRig(t, &Options{Authenticate: people().authenticate, LoginByToken: true, Prefix: "/q"})
	r.push("order.close", "order-001", 0)
	b := r.browser()
	a := b.send(http.MethodGet, "/topics?q=order", nil)
	if a.Code != http.StatusSeeOther || a.Header().Get("Location") != "/q/login?next=%2Fq%2Ftopics%3Fq%3Dorder" {
		t.Fatalf("a page without a session: %d to %q", a.Code, a.Header().Get("Location"))
	}
	if a := b.send(http.MethodGet, "/fragment/topics", nil); a.Code != http.StatusUnauthorized {
		t.Errorf("a fragment without a session: %d", a.Code)
	}
	a = b.send(http.MethodGet, "/login?next=%2Fq%2Ftopics%3Fq%3Dorder", nil)
	if a.Code != http.StatusOK || !strings.Contains(a.text, `value="`+b.csrf()+`"`) || !strings.Contains(a.text, `name="next" value="/q/topics?q=order"`) {
		t.Fatalf("the form to log in: %d %s", a.Code, a.text)
	}
	for _, token := range []string{"", "wrong", "admin extra", "Bearer admin"} {
		if a := b.submit("/login", url.Values{"token": {token}}); a.Code != http.StatusUnauthorized || b.jar[cookieSession] != "" || !strings.Contains(a.text, `type="password"`) {
			t.Errorf("token %q: %d, cookies %v", token, a.Code, b.jar)
		}
	}
	a = b.submit("/login", url.Values{"token": {" admin\n"}, "next": {"/q/topics?q=order"}})
	if a.Code != http.StatusSeeOther || a.Header().Get("Location") != "/q/topics?q=order" {
		t.Fatalf("the right token: %d to %q", a.Code, a.Header().Get("Location"))
	}
	cookie := a.Result().Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/q/" || cookie.MaxAge != 12*3600 || cookie.Secure {
		t.Errorf("the cookie is %v", cookie)
	}
	if strings.Contains(cookie.Value, "admin") || len(cookie.Value) < 26 {
		t.Errorf("the cookie's value is %q", cookie.Value)
	}
	if a := b.send(http.MethodGet, "/topics", nil); a.Code != http.StatusOK || !strings.Contains(a.text, "order.close") || !strings.Contains(a.text, "/q/logout") || !strings.Contains(a.text, "admin") {
		t.Errorf("a page with a session: %d", a.Code)
	}
	stolen := b.jar[cookieSession]
	if a := b.submit("/logout", nil); a.Code != http.StatusSeeOther || b.jar[cookieSession] != "" {
		t.Errorf("logging out: %d, %v", a.Code, b.jar)
	}
	b.jar[cookieSession] = stolen
	if a := b.send(http.MethodGet, "/topics", nil); a.Code != http.StatusSeeOther {
		t.Errorf("the cookie of a session that ended: %d", a.Code)
	}
}

// Each login has a new key, so a key that somebody has planted in the browser before does not
// become the key of a session.
func TestSessionIsNew(t *testing.T) {
	r := newRig(t, &Options{Authenticate: people().authenticate, LoginByToken: true})
	b := r.browser()
	b.jar[cookieSession] = "planted"
	b.logIn("admin")
	first := b.jar[cookieSession]
	if first == "planted" || r.console.sessions.find("planted") != nil {
		t.Error("the planted key counts")
	}
	b.logIn("reader")
	if r.console.sessions.find(first) != nil || b.jar[cookieSession] == first {
		t.Error("the session before a login goes on")
	}
}

// When a token is no longer valid, the next request with it ends all sessions of the token, also
// those of other browsers. Sessions of other tokens go on.
func TestRevokedTokenEndsItsSessions(t *testing.T) {
	all := people()
	r := newRig(t, &Options{Authenticate: all.authenticate, LoginByToken: true})
	one, two, other := r.browser(), r.browser(), r.browser()
	for b, token := range map[*browser]string{one: "admin", two: "admin", other: "reader"} {
		if b.logIn(token); b.send(http.MethodGet, "/topics", nil).Code != http.StatusOK {
			t.Fatalf("%s is not logged in", token)
		}
	}
	may := all["admin"]
	delete(all, "admin")
	if a := one.submit("/topics/x/configure", url.Values{"lease": {"1h"}}); a.Code != http.StatusUnauthorized {
		t.Errorf("a form with a revoked token: %d", a.Code)
	}
	if got := r.state(); got != "[]" {
		t.Errorf("it changed the store: %s", got)
	}
	all["admin"] = may // the sessions stay ended although the token is valid again
	if a := two.send(http.MethodGet, "/topics", nil); a.Code != http.StatusSeeOther {
		t.Errorf("another browser with the token: %d", a.Code)
	}
	if a := other.send(http.MethodGet, "/topics", nil); a.Code != http.StatusOK {
		t.Errorf("another token: %d", a.Code)
	}
	if n := len(r.console.sessions.list); n != 1 {
		t.Errorf("%d sessions are kept, want 1", n)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sessions{}
		other := s.begin("other")
		var mine []*session
		for range maxSessionsOfOne + 5 {
			mine = append(mine, s.begin("mine"))
		}
		for i, o := range mine {
			if found := s.find(o.key) == o; found != (i >= 5) {
				t.Errorf("session %d of one token is found: %v", i, found)
			}
		}
		if s.find(other.key) == nil {
			t.Error("many sessions of one token ended another's")
		}
		for i := range 2 * maxSessions {
			s.begin(fmt.Sprint("t", i))
		}
		if len(s.list) != maxSessions {
			t.Errorf("%d sessions, want %d", len(s.list), maxSessions)
		}
		if s.find(other.key) != nil {
			t.Error("the oldest session did not end")
		}
		last := s.begin("last")
		time.Sleep(sessionLife - time.Second)
		if s.find(last.key) == nil {
			t.Error("a session ended before its time")
		}
		time.Sleep(time.Second)
		if s.find(last.key) != nil {
			t.Error("a session has no end")
		}
		s.begin("new")
		if len(s.list) != 1 || s.find(last.key) != nil {
			t.Errorf("%d sessions are kept, want the new one", len(s.list))
		}
	})
}

// A form without the browser's own token is refused, and nothing changes. The test tries no token,
// an empty and a wrong one, those of another browser and another console, and the one of a browser
// without a name.
func TestFormsNeedTheirToken(t *testing.T) {
	for _, login := range []bool{false, true} {
		o := &Options{}
		if login {
			o = &Options{Authenticate: people().authenticate, LoginByToken: true}
		}
		r := newRig(t, o)
		b, another := r.browser(), r.browser()
		for _, b := range []*browser{b, another} {
			b.send(http.MethodGet, "/login", nil)
			if login {
				b.logIn("admin")
			}
			b.send(http.MethodGet, "/topics", nil)
		}
		foreign := newRig(t, o).console.formKey.token(b.jar[cookieSession])
		for what, token := range map[string][]string{
			"none": nil, "empty": {""}, "another browser's": {another.csrf()}, "another console's": {foreign}, "wrong": {"x"},
			"of nobody": {r.console.formKey.token("")},
		} {
			form := url.Values{"what": {"push"}, "pause": {"true"}}
			if token != nil {
				form["csrf"] = token
			}
			if a := b.send(http.MethodPost, "/topics/x/pause", form); a.Code != http.StatusForbidden {
				t.Errorf("login %v, token %s: %d", login, what, a.Code)
			}
		}
		fresh := r.browser() // without any cookie
		if a := fresh.send(http.MethodPost, "/login", url.Values{"token": {"admin"}, "csrf": {r.console.formKey.token("")}}); a.Code != http.StatusForbidden {
			t.Errorf("login %v: a browser without a cookie: %d", login, a.Code)
		}
		if got := r.state(); got != "[]" {
			t.Errorf("login %v: a refused form changed the store: %s", login, got)
		}
		if a := b.submit("/topics/x/pause", url.Values{"what": {"push"}, "pause": {"true"}}); a.Code != http.StatusSeeOther {
			t.Errorf("login %v: the browser's own form: %d %s", login, a.Code, a.text)
		}
		if got := r.state(); got == "[]" {
			t.Errorf("login %v: the form changed nothing", login)
		}
	}
}

// A form that the browser marks as one of another site is refused even with the right token, and so
// is the form to log in.
func TestFormsOfOtherSites(t *testing.T) {
	r := newRig(t, &Options{Authenticate: people().authenticate, LoginByToken: true})
	b := r.browser()
	b.logIn("admin")
	for _, header := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"} {
		form := url.Values{"what": {"push"}, "pause": {"true"}, "csrf": {b.csrf()}}
		if a := b.send(http.MethodPost, "/topics/x/pause", form, header); a.Code != http.StatusForbidden {
			t.Errorf("%s: %d", header, a.Code)
		}
		if a := b.send(http.MethodPost, "/login", url.Values{"token": {"reader"}, "csrf": {b.csrf()}}, header); a.Code != http.StatusForbidden {
			t.Errorf("%s: log in %d", header, a.Code)
		}
	}
	if got := r.state(); got != "[]" {
		t.Errorf("it changed the store: %s", got)
	}
}

// A request for a link from another site has no session cookie, because that is a strict one. It is
// answered with an empty page that loads the same address again, because the browser then sends the
// cookie.
func TestLinkFromAnotherSite(t *testing.T) {
	r := newRig(t, &Options{Authenticate: people().authenticate, LoginByToken: true})
	req := httptest.NewRequest(http.MethodGet, "/topics", nil)
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	if a := r.serve(req); a.Code != http.StatusOK || a.Header().Get("Refresh") != "0" || a.text != "" {
		t.Errorf("%d %v %q", a.Code, a.Header(), a.text)
	}
}

func TestBackIsInside(t *testing.T) {
	for _, prefix := range []string{"", "/q"} {
		c := &call{console: &Console{options: Options{Prefix: prefix}}}
		for _, path := range []string{
			"", "https://evil.example/", "//evil.example/", "/\\evil.example", "/q/\t//evil", "javascript:alert(1)", "evil", "/q\\..\\evil", " /q/", "/q/\n",
		} {
			if got := c.inside(path); got != prefix+"/" {
				t.Errorf("prefix %q: %q leads to %q", prefix, path, got)
			}
		}
		if got := c.inside(prefix + "/topics/a%2Fb?x=1"); got != prefix+"/topics/a%2Fb?x=1" {
			t.Errorf("prefix %q: a path inside leads to %q", prefix, got)
		}
	}
}

// The names of cookies contain the port, if the address has one, because two consoles on one
// machine may differ in their ports alone and would share cookies.
func TestCookiesOfPorts(t *testing.T) {
	for host, want := range map[string]string{"localhost:7878": "c_7878", "localhost": "c", "[::1]:80": "c_80", "x:80;y": "c", "x:": "c_"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		if got := withPort("c", r); got != want {
			t.Errorf("host %q has cookie %q, want %q", host, got, want)
		}
	}
}

func TestCookieIsSecureUnderTLS(t *testing.T) {
	r := newRig(t, &Options{Authenticate: people().authenticate, LoginByToken: true})
	for _, target := range []string{"https://localhost/login", "http://localhost/login"} {
		for _, proxied := range []bool{false, true} {
			req := httptest.NewRequest(http.MethodGet, target, nil)
			if proxied {
				req.Header.Set("X-Forwarded-Proto", "https")
			}
			cookies := r.serve(req).Result().Cookies()
			if want := proxied || strings.HasPrefix(target, "https:"); len(cookies) != 1 || cookies[0].Secure != want {
				t.Errorf("%s, behind a proxy with TLS %v: %v", target, proxied, cookies)
			}
		}
	}
}
