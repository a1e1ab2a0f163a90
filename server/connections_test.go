package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// keptAlive sends a request on a connection that stays open, and returns the status of its answer.
func keptAlive(t *testing.T, conn net.Conn, line string, headers ...string) int {
	t.Helper()
	text := line + " HTTP/1.1\r\nHost: localhost\r\n"
	for _, h := range headers {
		text += h + "\r\n"
	}
	if _, err := io.WriteString(conn, text+"\r\n"); err != nil {
		t.Fatal(err)
	}
	a, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if _, err := io.Copy(io.Discard, a.Body); err != nil {
		t.Fatal(err)
	}
	return a.StatusCode
}

// wantOpen fails unless the connection is open or closed as open says. A close is seen at once,
// because the server closes a connection before it answers on the one that takes its place. So an
// open connection is watched only briefly.
func wantOpen(t *testing.T, what string, conn net.Conn, open bool) {
	t.Helper()
	limit := waitLimit
	if open {
		limit = 20 * time.Millisecond
	}
	if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	_, err := conn.Read(make([]byte, 1))
	if timeout := net.Error(nil); (errors.As(err, &timeout) && timeout.Timeout()) != open {
		t.Errorf("%s: %v; want it open %v", what, err, open)
	}
}

// TestConnectionsOfStrangers: connections without a request keep nobody out. Connections on which
// no client was authenticated are closed first, the oldest before the others.
func TestConnectionsOfStrangers(t *testing.T) {
	const most = 50
	r := newRig(t, &Options{Authenticator: twoClients()})
	a := &abused{r, serveWith(t, r.Server, &ServeOptions{MaxConnections: most})}
	first, second := a.dial(), a.dial()
	if got := keptAlive(t, first, "GET /v1", asModest); got != 200 {
		t.Fatalf("status %d", got)
	}
	if got := keptAlive(t, second, "GET /v1", "Authorization: Bearer nobody"); got != 401 {
		t.Fatalf("status %d", got)
	}
	var strangers []net.Conn
	for range most - 2 {
		strangers = append(strangers, a.dial())
	}
	for range 3 {
		if got := keptAlive(t, a.dial(), "GET /v1", asModest); got != 200 {
			t.Errorf("status %d beside %d connections without a request", got, most)
		}
	}
	wantOpen(t, "the connection of who was not let in", second, false)
	wantOpen(t, "the oldest of the strangers", strangers[0], false)
	wantOpen(t, "the youngest of the strangers", strangers[most-3], true)
	for range 2 * most {
		if got := keptAlive(t, a.dial(), "GET /v1", asModest); got != 200 {
			t.Errorf("status %d beside connections without a request", got)
		}
	}
	wantOpen(t, "one that was idle for longest, once there were no strangers", first, false)
}

// TestConnectionsWithRequests: when all connections have requests a further one is closed, after
// 503 if that can be written at once. When the others have gone a new one is let in.
func TestConnectionsWithRequests(t *testing.T) {
	const most = 10
	a := newAbused(t, Limits{}, &ServeOptions{MaxConnections: most})
	waiting := make([]net.Conn, most)
	for i := range waiting {
		waiting[i] = a.dial()
		if _, err := io.WriteString(waiting[i], "POST /v1/topics/t/claim?wait=50s HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		awaitClaims(t, a.Server, "anyone", i+1)
	}
	if got := a.say(""); got != "" && statusOf(t, got) != 503 {
		t.Errorf("turned away with %q", got)
	}
	for _, conn := range waiting {
		conn.Close()
	}
	awaitClaims(t, a.Server, "anyone", 0)
	if got := keptAlive(t, a.dial(), "GET /v1"); got != 200 {
		t.Errorf("status %d once the connections were closed", got)
	}
}

// awaitClaims waits until so many claims of a client are under way.
func awaitClaims(t *testing.T, s *Server, client string, n int) {
	t.Helper()
	for end := time.Now().Add(waitLimit); ; runtime.Gosched() {
		s.mu.Lock()
		k := s.clients[client]
		s.mu.Unlock()
		if k != nil && k.waiting.Load() == int64(n) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not %d claims are under way", n)
		}
	}
}

// TestConnectionsOfOneClient: a client gets at most as many connections as it leaves free for
// others (P14).
func TestConnectionsOfOneClient(t *testing.T) {
	const most = 20
	r := newRig(t, &Options{Authenticator: twoClients()})
	a := &abused{r, serveWith(t, r.Server, &ServeOptions{MaxConnections: most})}
	for i := range most / 2 {
		if _, err := io.WriteString(a.dial(), "POST /v1/topics/greedy/claim?wait=50s HTTP/1.1\r\nHost: localhost\r\n"+asGreedy+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		awaitClaims(t, r.Server, "greedy", i+1)
	}
	for range most {
		if got := keptAlive(t, a.dial(), "POST /v1/topics/greedy/claim?wait=50s", asGreedy); got != 503 {
			t.Fatalf("a claim beyond the share of a client: status %d", got)
		}
	}
	for i := range 2 * most {
		if got := keptAlive(t, a.dial(), "GET /v1", asModest); got != 200 {
			t.Errorf("request %d of the other client: status %d", i, got)
		}
	}
}

// TestMemoryOfOneClient: bodies that a client does not complete leave at least as much memory to
// the others as they take (P14).
func TestMemoryOfOneClient(t *testing.T) {
	r := newRig(t, &Options{Authenticator: twoClients(), Limits: Limits{MaxMemory: 1 << 20}})
	a := &abused{r, serveWith(t, r.Server, nil)}
	begin := func(as, topic string) net.Conn {
		conn := a.dial()
		head := fmt.Sprintf("PUT /v1/topics/%s/messages/m HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Length: 65536\r\n\r\n", topic, as)
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	held := func(n int64) {
		t.Helper()
		for end := time.Now().Add(waitLimit); r.memory.held() != n; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("%d bytes are held; want %d", r.memory.held(), n)
			}
		}
	}
	for i := range 8 {
		begin(asGreedy, "greedy")
		held(int64(i+1) * 65536)
	}
	refused, err := io.ReadAll(begin(asGreedy, "greedy"))
	if err != nil && len(refused) == 0 || statusOf(t, string(refused)) != 503 {
		t.Errorf("beyond the share of a client: %q, %v", refused, err)
	}
	for i := range 3 {
		r.ask("PUT /v1/topics/modest/messages/m?if_exists=replace", strings.Repeat("x", 65536), asModest).want(t, []int{201, 200, 200}[i])
	}
	r.ask("GET /v1/topics/modest/messages/m", "", asModest).want(t, 200)
}
