package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
)

// pages is a console that says what it was asked, and reads what it was sent.
type pages struct{}

func (pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	w.Header().Set("Content-Security-Policy", "of the console")
	w.WriteHeader(http.StatusTeapot)
	fmt.Fprintf(w, "console %s %s %d", r.Method, r.URL.Path, len(body))
}

// The console answers every path whose first segment is not one of the interface, and the server
// answers the others as without a console.
func TestConsole(t *testing.T) {
	var seen []RequestInfo
	r := newRig(t, &Options{
		Console: pages{}, Authenticator: roles{"a": role("a", access.All, "*")}, Limits: Limits{MaxRequest: 1000},
		OnRequest: func(_ context.Context, info RequestInfo) { seen = append(seen, info) },
	})
	for _, line := range []string{"GET /", "GET /topics", "GET /topics/a%2Fb", "GET /v2", "GET /v1x/y", "GET /readyzz", "POST /topics/a/pause", "GET //v1", "PUT /x"} {
		a := ask(r.Server, r.request(line, "form"))
		if a.status != http.StatusTeapot || !strings.HasPrefix(a.body, "console "+line[:4]) || a.header.Get("Content-Security-Policy") != "of the console" {
			t.Errorf("%s: %d %s", line, a.status, a.body)
		}
		if last := seen[len(seen)-1]; last.Status != http.StatusTeapot || last.Route != "" {
			t.Errorf("%s was reported as %+v", line, last)
		}
	}
	for line, want := range map[string]int{
		"GET /v1": 401, "GET /v1/topics": 401, "GET /v1/nothing": 404, "GET /metrics": 401, "GET /metrics/x": 404, "GET /livez": 200, "GET /readyz": 200, "GET /openapi.json": 401,
	} {
		if a := ask(r.Server, r.request(line, "")); a.status != want || strings.Contains(a.body, "console ") {
			t.Errorf("%s: %d %s, want %d of the interface", line, a.status, a.body, want)
		}
	}
	// The server's checks hold for pages, too.
	for _, c := range []struct {
		name, line, header string
		want               int
	}{
		{"a name of somebody else", "GET /", "Host: evil.example", 403},
		{"a form of another site", "POST /topics/a/pause", "Sec-Fetch-Site: cross-site", 403},
		{"a form of another origin", "POST /topics/a/pause", "Origin: https://evil.example", 403},
	} {
		if a := ask(r.Server, r.request(c.line, "", c.header)); a.status != c.want || strings.Contains(a.body, "console ") {
			t.Errorf("%s: %d %s, want %d", c.name, a.status, a.body, c.want)
		}
	}
	if a := ask(r.Server, r.request("POST /x", strings.Repeat("x", 1001))); a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body beyond the limit: %d %s", a.status, a.body)
	}
	if n := r.memory.held(); n != 0 {
		t.Errorf("%d bytes are held when all is answered", n)
	}
	r = newRig(t, nil)
	if a := r.ask("GET /", ""); a.status != 404 {
		t.Errorf("without a console: %d %s", a.status, a.body)
	}
}

// The reading of a form whose bytes do not come in time, or take more memory than there is, fails.
// A whole form is read, and none of them leaves memory held.
func TestConsoleWithinLimits(t *testing.T) {
	r := newRig(t, &Options{Console: pages{}, Limits: Limits{BodyTime: 50 * time.Millisecond, MaxMemory: 1000}})
	a := &abused{r, serveWith(t, r.Server, nil)}
	if got := a.say("POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n123"); !strings.Contains(got, " 413 ") {
		t.Errorf("half a form: %q", got)
	}
	if got := a.say("POST /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1001\r\n\r\n" + strings.Repeat("x", 1001)); !strings.Contains(got, punctual.ErrOverloaded.Error()) {
		t.Errorf("a form beyond the memory: %q", got)
	}
	if got := a.say("POST /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 5\r\n\r\nwhole"); !strings.Contains(got, "console POST /x 5") {
		t.Errorf("a whole form: %q", got)
	}
	if n := r.memory.held(); n != 0 {
		t.Errorf("%d bytes are held when all is answered", n)
	}
}

// Authenticate returns the principal that the interface would find, and counts its requests
// together with those to the interface.
func TestAuthenticate(t *testing.T) {
	r := newRig(t, &Options{Authenticator: roles{"a": role("ann", access.Push, "x*")}, Limits: Limits{Rate: 0.001, Burst: 2}})
	p, err := r.Authenticate(r.request("GET /", "", "Authorization: Bearer a"))
	if err != nil || p.Name != "ann" || !p.Allows(access.Push, "xy") || p.Allows(access.Push, "y") || p.Allows(access.Push, "") || p.Allows(access.Push|access.Work, "xy") {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := r.Authenticate(r.request("GET /", "")); !errors.Is(err, punctual.ErrUnauthenticated) {
		t.Errorf("nobody: %v", err)
	}
	if a := ask(r.Server, r.request("GET /v1/topics/xy", "", "Authorization: Bearer a")); a.status != 403 {
		t.Errorf("the second request: %d", a.status)
	}
	if _, err := r.Authenticate(r.request("GET /", "", "Authorization: Bearer a")); !errors.Is(err, punctual.ErrOverloaded) {
		t.Errorf("the third request of two: %v", err)
	}
	open := newRig(t, nil)
	if p, err := open.Authenticate(open.request("GET /", "")); err != nil || !p.Allows(access.All, "") || !p.Allows(access.All, access.AuditTopic) {
		t.Errorf("a server without an Authenticator: %+v, %v", p, err)
	}
}
