package server

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual/internal/wire"
)

// On an HTTP/1.1 connection that it ends between two requests the server says farewell: no request
// begins on it any more. There is no farewell on a connection that carried no request, nor after
// the refusal of a malformed request.
func TestFarewell(t *testing.T) {
	r := newRig(t, nil)
	a := &abused{r, serveWith(t, r.Server, &ServeOptions{IdleTime: 20 * time.Millisecond, HeaderTime: 20 * time.Millisecond})}
	rest := func(conn net.Conn) string {
		t.Helper()
		text, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	kept := a.dial()
	if got := keptAlive(t, kept, "GET /v1"); got != 200 {
		t.Fatalf("status %d", got)
	}
	if got := rest(kept); got != farewell {
		t.Errorf("behind an answer came %q, want the farewell", got)
	}
	if got := rest(a.dial()); strings.Contains(got, wire.HeaderNotBegun) {
		t.Errorf("on a connection without a request came %q", got)
	}
	malformed := a.dial()
	if got := keptAlive(t, malformed, "GET /v1"); got != 200 {
		t.Fatalf("status %d", got)
	}
	if _, err := io.WriteString(malformed, "nonsense\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got := rest(malformed); got != farewell && (!strings.HasPrefix(got, "HTTP/1.1 400 ") || strings.Contains(got, wire.HeaderNotBegun)) {
		t.Errorf("after nonsense came %q", got)
	}
}

// A request that net/http has read before the farewell and hands over after it is not carried out.
func TestNothingBeginsBehindAFarewell(t *testing.T) {
	r := newRig(t, nil)
	here, there := net.Pipe()
	defer here.Close()
	cs := &connections{limit: 1}
	conn := cs.take(there)
	push := func() (aborted bool) {
		defer func() { aborted = recover() == http.ErrAbortHandler }()
		req := httptest.NewRequest(http.MethodPost, "http://localhost/v1/topics/t/messages", strings.NewReader("x"))
		r.ServeHTTP(httptest.NewRecorder(), req.WithContext(withConn(t.Context(), conn)))
		return false
	}
	stored := func() int64 {
		t.Helper()
		stats, err := r.store.Stats(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		return stats.Live()
	}
	if push() || stored() != 1 {
		t.Fatalf("the first request left %d messages, want 1", stored())
	}
	cs.changed(conn, http.StateIdle)
	said := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(here)
		said <- string(text)
	}()
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-said; got != farewell {
		t.Fatalf("the connection ended with %q, want the farewell", got)
	}
	if aborted := push(); !aborted || stored() != 1 {
		t.Errorf("a request behind the farewell: aborted %v, and %d messages are stored; want true and 1", aborted, stored())
	}
}
