package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// Most of these tests send malformed, slow and endless requests over real sockets. Such a request
// gets an answer of 4xx, or of 501 for an unknown transfer coding, or its connection ends, in time.
// It changes nothing in the store, unless its beginning is a whole request.

// waitLimit is how long a test waits for something that has to happen before it fails.
const waitLimit = time.Minute

// abused is a server on a loopback address.
type abused struct {
	*rig
	address string
}

func newAbused(t *testing.T, limits Limits, o *ServeOptions) *abused {
	t.Helper()
	r := newRig(t, &Options{Limits: limits})
	return &abused{r, serveWith(t, r.Server, o)}
}

func (a *abused) dial() net.Conn {
	a.Helper()
	conn, err := net.Dial("tcp", a.address)
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(waitLimit)); err != nil {
		a.Fatal(err)
	}
	return conn
}

// say sends text on a new connection and returns all that comes back until the server closes it.
func (a *abused) say(text string) string {
	a.Helper()
	conn := a.dial()
	if _, err := io.WriteString(conn, text); err != nil {
		a.Logf("the server closed the connection while it was sent to: %v", err)
	}
	got, err := io.ReadAll(conn)
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		a.Fatalf("no end within %v after %q", waitLimit, got)
	}
	return string(got)
}

// statusOf is the status of the first answer, 0 when there is none.
func statusOf(t *testing.T, answer string) int {
	t.Helper()
	if answer == "" {
		return 0
	}
	r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
	if err != nil {
		t.Fatalf("%q is no answer: %v", answer, err)
	}
	return r.StatusCode
}

func TestMalformedRequests(t *testing.T) {
	a := newAbused(t, Limits{}, &ServeOptions{HeaderTime: 2 * time.Second})
	a.ask("PUT /v1/topics/t/messages/kept?in=1h", "x").want(t, 201)
	before := a.snapshot()
	const head = "Host: localhost\r\nConnection: close\r\n"
	long := strings.Repeat("x", 100<<10)
	for name, text := range map[string]string{
		"no HTTP":                     "hello\r\n\r\n",
		"TLS":                         "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
		"unknown method":              "BREW /v1 HTTP/1.1\r\n" + head + "\r\n",
		"method not for the path":     "PATCH /v1/push HTTP/1.1\r\n" + head + "\r\n",
		"claim by GET":                "GET /v1/topics/t/claim HTTP/1.1\r\n" + head + "\r\n",
		"CONNECT":                     "CONNECT example.com:443 HTTP/1.1\r\n" + head + "\r\n",
		"OPTIONS *":                   "OPTIONS * HTTP/1.1\r\n" + head + "\r\n",
		"TRACE":                       "TRACE /v1 HTTP/1.1\r\n" + head + "\r\n",
		"two lengths":                 "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
		"two lengths in one":          "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Content-Length: 1, 2\r\n\r\nxy",
		"negative length":             "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Content-Length: -1\r\n\r\n",
		"length with a sign":          "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Content-Length: +1\r\n\r\nx",
		"huge length":                 "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Content-Length: 1073741824\r\n\r\nx",
		"length beyond numbers":       "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Content-Length: 99999999999999999999\r\n\r\nx",
		"unknown coding":              "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Transfer-Encoding: gzip\r\n\r\nx",
		"chunked twice":               "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"hidden coding":               "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"space before the colon":      "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Content-Length : 1\r\n\r\nx",
		"chunk with a bare LF":        "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n",
		"chunk of nonsense":           "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\nzz\r\nx",
		"chunk extension":             "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\n1;" + long + "\r\nx\r\n0\r\n\r\n",
		"header with NUL":             "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Punctual-Header-A: \x00\r\nContent-Length: 1\r\n\r\nx",
		"header over two lines":       "PUT /v1/topics/t/messages/s HTTP/1.1\r\n\tfolded\r\n" + head + "\r\n",
		"head too long":               "GET /v1 HTTP/1.1\r\n" + head + "A: " + long + "\r\n\r\n",
		"path too long":               "GET /" + long + " HTTP/1.1\r\n" + head + "\r\n",
		"no host":                     "GET /v1 HTTP/1.1\r\nConnection: close\r\n\r\n",
		"two hosts":                   "GET /v1 HTTP/1.1\r\nHost: evil.example\r\n" + head + "\r\n",
		"host of another":             "GET /v1 HTTP/1.1\r\nHost: evil.example:7878\r\nConnection: close\r\n\r\n",
		"host with credentials":       "GET /v1 HTTP/1.1\r\nHost: localhost@evil.example\r\nConnection: close\r\n\r\n",
		"host in the target":          "GET http://evil.example/v1 HTTP/1.1\r\n" + head + "\r\n",
		"origin of another":           "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Origin: https://evil.example\r\nContent-Length: 1\r\n\r\nx",
		"origin null":                 "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Origin: null\r\nContent-Length: 1\r\n\r\nx",
		"fetch of another site":       "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Sec-Fetch-Site: cross-site\r\nContent-Length: 1\r\n\r\nx",
		"compressed":                  "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
		"body where none is":          "DELETE /v1/topics/t/messages/kept HTTP/1.1\r\n" + head + "Content-Length: 1\r\n\r\nx",
		"chunked where none is":       "DELETE /v1/topics/t/messages/kept HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
		"empty segment":               "DELETE /v1//topics/t HTTP/1.1\r\n" + head + "\r\n",
		"double slash":                "DELETE //v1/topics/t HTTP/1.1\r\n" + head + "\r\n",
		"slash at the end":            "DELETE /v1/topics/t/ HTTP/1.1\r\n" + head + "\r\n",
		"way up":                      "DELETE /v1/x/../topics/t HTTP/1.1\r\n" + head + "\r\n",
		"here":                        "DELETE /v1/./topics/t HTTP/1.1\r\n" + head + "\r\n",
		"escaped slashes":             "DELETE /v1%2Ftopics%2Ft HTTP/1.1\r\n" + head + "\r\n",
		"other case":                  "DELETE /V1/Topics/t HTTP/1.1\r\n" + head + "\r\n",
		"escape that is none":         "DELETE /v1/topics/%zz HTTP/1.1\r\n" + head + "\r\n",
		"NUL in a name":               "PUT /v1/topics/t%00/messages/s HTTP/1.1\r\n" + head + "\r\n",
		"no UTF-8 in a name":          "PUT /v1/topics/t/messages/%ff HTTP/1.1\r\n" + head + "\r\n",
		"line feed in a name":         "PUT /v1/topics/t/messages/a%0d%0aSet-Cookie:x HTTP/1.1\r\n" + head + "\r\n",
		"query that is none":          "PUT /v1/topics/t/messages/s?%zz HTTP/1.1\r\n" + head + "\r\n",
		"semicolon in the query":      "PUT /v1/topics/t/messages/s?in=1s;at=x HTTP/1.1\r\n" + head + "\r\n",
		"parameter twice":             "PUT /v1/topics/t/messages/s?in=1s&in=2s HTTP/1.1\r\n" + head + "\r\n",
		"parameter not known":         "PUT /v1/topics/t/messages/s?dealy=1s HTTP/1.1\r\n" + head + "\r\n",
		"both times":                  "PUT /v1/topics/t/messages/s?in=1s&at=2026-11-20T10:00:00Z HTTP/1.1\r\n" + head + "\r\n",
		"year 10000":                  "PUT /v1/topics/t/messages/s?at=10000-01-01T00:00:00Z HTTP/1.1\r\n" + head + "\r\n",
		"leap second":                 "PUT /v1/topics/t/messages/s?at=2016-12-31T23:59:60Z HTTP/1.1\r\n" + head + "\r\n",
		"duration without a unit":     "PUT /v1/topics/t/messages/s?in=5 HTTP/1.1\r\n" + head + "\r\n",
		"duration without an end":     "PUT /v1/topics/t/messages/s?in=1e309s HTTP/1.1\r\n" + head + "\r\n",
		"duration beyond numbers":     "PUT /v1/topics/t/messages/s?in=99999999999h HTTP/1.1\r\n" + head + "\r\n",
		"negative duration":           "PUT /v1/topics/t/messages/s?in=-5s HTTP/1.1\r\n" + head + "\r\n",
		"attempts that are no number": "PUT /v1/topics/t/messages/s?max_attempts=NaN HTTP/1.1\r\n" + head + "\r\n",
		"message header twice":        "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Punctual-Header-A: 1\r\npunctual-header-a: 2\r\n\r\n",
		"message headers too long":    "PUT /v1/topics/t/messages/s HTTP/1.1\r\n" + head + "Punctual-Header-A: " + long[:20<<10] + "\r\n\r\n",
		"one bad item":                "POST /v1/push HTTP/1.1\r\n" + head + "Content-Length: 60\r\n\r\n" + `[{"topic":"t","id":"s","body":"x"},{"topic":"t","bdoy":"yyy"}]`[:60],
		"HTTP/2 in an odd form":       "PRI * HTTP/2.0\r\n\r\nnonsense that is no preface",
	} {
		t.Run(name, func(t *testing.T) {
			got := a.say(text)
			if strings.HasPrefix(got, "HTTP/") {
				coding := strings.Contains(text, "Transfer-Encoding") // 501 is the status for a coding that is not known
				if status := statusOf(t, got); (status < 400 || status >= 500) && !(status == 501 && coding) {
					t.Errorf("status %d, want 4xx: %.300s", status, got)
				}
			} else if name != "HTTP/2 in an odd form" && got != "" {
				t.Errorf("answered %q", got)
			}
			if after := a.snapshot(); after != before {
				t.Fatalf("the store was changed from\n%s\nto\n%s", before, after)
			}
		})
	}
}

// Two requests whose borders a proxy may see elsewhere: the connection ends behind the first, so
// the second is never carried out.
func TestSmuggledRequests(t *testing.T) {
	const hidden = "PUT /v1/topics/t/messages/hidden HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
	for name, text := range map[string]string{
		"length and chunks": "PUT /v1/topics/t/messages/seen HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"chunks":            "PUT /v1/topics/t/messages/seen HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"two lengths":       "PUT /v1/topics/t/messages/seen HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 4\r\n\r\n" + hidden,
		"refused body":      "DELETE /v1/topics/t/messages/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n" + hidden,
	} {
		t.Run(name, func(t *testing.T) {
			a := newAbused(t, Limits{}, nil)
			got := a.say(text)
			if n := strings.Count(got, "HTTP/1.1 "); n != 1 {
				t.Errorf("%d answers, want 1: %s", n, got)
			}
			a.ask("GET /v1/topics/t/messages/hidden", "").problem(t, 404, "not_found")
		})
	}
}

// A client that sends a request slowly gets 408 or no answer, and loses its connection. So does one
// that sends nothing, before or after a request.
func TestClients(t *testing.T) {
	a := newAbused(t, Limits{BodyTime: 200 * time.Millisecond}, &ServeOptions{HeaderTime: 200 * time.Millisecond, IdleTime: 200 * time.Millisecond})
	for name, text := range map[string]string{
		"head":     "GET /v1 HTTP/1.1\r\nHost: localh",
		"body":     "PUT /v1/topics/t/messages/s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf",
		"chunk":    "PUT /v1/topics/t/messages/s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal",
		"nothing":  "",
		"finished": "GET /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := a.say(text)
			switch status := statusOf(t, got); {
			case name == "finished" && status == 200, name != "finished" && (status == 0 || status == 408):
			default:
				t.Errorf("status %d: %.300s", status, got)
			}
		})
	}
	t.Run("a byte at a time", func(t *testing.T) {
		t.Parallel()
		conn := a.dial()
		defer conn.Close()
		for range time.Tick(20 * time.Millisecond) {
			if _, err := conn.Write([]byte("x")); err != nil {
				return // closed, as it has to be
			}
		}
	})
}

// Requests that end in the middle change nothing, and leave nothing behind.
func TestHalfRequests(t *testing.T) {
	a := newAbused(t, Limits{}, nil)
	whole := "PUT /v1/topics/t/messages/s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody"
	for n := range len(whole) {
		conn := a.dial()
		if _, err := io.WriteString(conn, whole[:n]); err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 {
			if err := conn.(*net.TCPConn).SetLinger(0); err != nil { // a reset instead of an end
				t.Fatal(err)
			}
		}
		conn.Close()
	}
	for deadline := time.Now().Add(waitLimit); a.memory.held() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are still held", a.memory.held())
		}
	}
	if s := a.snapshot(); s != "" {
		t.Errorf("stored %s", s)
	}
}

// Bodies of 1 GiB are cut off after 64 MiB at most. While they come they take no more memory than
// the limit of their route allows, with the room that a buffer needs to grow, and afterwards none.
func TestEndlessBodies(t *testing.T) {
	a := newAbused(t, Limits{}, nil)
	for path, limit := range map[string]int64{
		"/v1/topics/t/messages": a.limits.MaxBody, "/v1/push": a.limits.MaxRequest, "/v1/settle": a.limits.MaxRequest,
	} {
		before := heap()
		body := &watchedBody{watch: func() (int64, int64) { return heap() - before, a.memory.held() }}
		body.early = func() {
			for end := time.Now().Add(waitLimit); a.memory.held() == 0 && time.Now().Before(end); {
				runtime.Gosched()
			}
		}
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+a.address+path, body)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err == nil {
			if answer.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: status %d, want 413", path, answer.StatusCode)
			}
			answer.Body.Close()
		}
		sent, grown, held := body.seen()
		if sent < limit || held == 0 {
			t.Fatalf("%s: this shows nothing: %d bytes were sent, and the server was never seen to hold a part of them", path, sent)
		}
		if sent > 64<<20 {
			t.Errorf("%s: %d bytes of the body were read", path, sent)
		}
		if grown > 3*limit+16<<20 || held > limit+2*bodyStep {
			t.Errorf("P10: %s: while the body came the heap grew by %d bytes, and %d were held; the limit is %d", path, grown, held, limit)
		}
		if grown := heap() - before; grown > 16<<20 || a.memory.held() != 0 {
			t.Errorf("P10: %s: afterwards the heap has grown by %d bytes, and %d are held", path, grown, a.memory.held())
		}
	}
}

// watchedBody is 1 GiB of zeros. When a quarter of a MiB of it was read it calls early, then and at
// each further MiB watch.
type watchedBody struct {
	early func()
	watch func() (grown, held int64)

	mu                sync.Mutex
	sent, grown, held int64 // guarded by mu: how much was read, and the largest results of watch
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent >= 1<<30 {
		return 0, io.EOF
	}
	clear(p)
	const quarter = 256 << 10
	next := b.sent + int64(len(p))
	early := b.sent < quarter && next >= quarter
	if early {
		b.early()
	}
	if early || next>>20 > b.sent>>20 {
		grown, held := b.watch()
		b.grown, b.held = max(b.grown, grown), max(b.held, held)
	}
	b.sent = next
	return len(p), nil
}

// seen returns how much was read, and the largest results of watch.
func (b *watchedBody) seen() (sent, grown, held int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent, b.grown, b.held
}

// A client that never reads its answer loses its connection, and the messages that were for it are
// ready again, without an attempt counted.
func TestClientThatNeverReads(t *testing.T) {
	for _, accept := range []string{"application/json", "application/x-ndjson"} {
		a := newAbused(t, Limits{WriteTime: 300 * time.Millisecond}, nil)
		const many = 24 // MiB, far more than the sockets' buffers hold
		for i := range many {
			m := punctual.NewMessage{Topic: "t", ID: fmt.Sprint(i), Body: bytes.Repeat([]byte("x"), 1<<20)}
			if _, err := a.store.Push(t.Context(), []punctual.NewMessage{m}); err != nil {
				t.Fatal(err)
			}
		}
		conn := a.dial()
		if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		query := "max=24&wait=10s&lease=1h"
		if accept != "application/json" {
			query = "window=24&lease=1h"
		}
		if _, err := fmt.Fprintf(conn, "POST /v1/topics/t/claim?%s HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\n\r\n", query, accept); err != nil {
			t.Fatal(err)
		}
		claimed := false
		for deadline := time.Now().Add(waitLimit); ; time.Sleep(time.Millisecond) {
			stats, err := a.store.Stats(t.Context(), "t")
			if err != nil {
				t.Fatal(err)
			}
			claimed = claimed || stats.Leased > 0
			if claimed && stats.Leased == 0 && stats.Ready == many {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: claimed %v, then %+v; want all ready again", accept, claimed, stats)
			}
		}
		if i, err := a.store.Get(t.Context(), "t", "0"); err != nil || i.Attempt != 0 {
			t.Errorf("%s: %d attempts are counted, %v", accept, i.Attempt, err)
		}
	}
}

// A client whose connection breaks while it waits is noticed: over HTTP/1.1 and HTTP/2.
func TestConnectionThatBreaksWhileItWaits(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		a := newAbused(t, Limits{}, nil)
		ctx, hangUp := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			req, err := http.NewRequestWithContext(ctx, "POST", "http://"+a.address+"/v1/topics/t/claim?wait=50s", http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			if answer, err := httpClient(t, http2).Do(req); err == nil {
				t.Errorf("answered with %d", answer.StatusCode)
				answer.Body.Close()
			}
		}()
		a.awaitWaiting(1)
		hangUp()
		<-done
		a.awaitWaiting(0)
		a.ask("PUT /v1/topics/t/messages/a", "x").want(t, 201)
		a.wantFree("t", 1)
	}
}

// awaitWaiting waits until so many claims are under way.
func (a *abused) awaitWaiting(n int64) {
	a.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(time.Millisecond) {
		a.Server.mu.Lock()
		k := a.clients[anyone.Name]
		a.Server.mu.Unlock()
		if k != nil && k.waiting.Load() == n || k == nil && n == 0 {
			return
		}
		if time.Now().After(deadline) {
			a.Fatalf("%d claims are under way, want %d", k.waiting.Load(), n)
		}
	}
}

// httpClient speaks one version of HTTP.
func httpClient(t *testing.T, http2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: waitLimit}
}

func TestHTTP2(t *testing.T) {
	a := newAbused(t, Limits{}, nil)
	answer, err := httpClient(t, true).Post("http://"+a.address+"/v1/topics/t/messages?id=a", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.ProtoMajor != 2 || answer.StatusCode != http.StatusCreated {
		t.Errorf("%s, status %d", answer.Proto, answer.StatusCode)
	}
}

// One PUT sent a hundred times at once is one message.
func TestOnePutManyTimes(t *testing.T) {
	a := newAbused(t, Limits{}, nil)
	c := httpClient(t, false)
	var created, kept counter
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), "PUT", "http://"+a.address+"/v1/topics/t/messages/a?in=1h", strings.NewReader("x"))
			if err != nil {
				t.Error(err)
				return
			}
			answer, err := c.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			switch answer.StatusCode {
			case http.StatusCreated:
				created.n.Add(1)
			case http.StatusOK:
				kept.n.Add(1)
			}
		})
	}
	all.Wait()
	if created.n.Load() != 1 || kept.n.Load() != 99 {
		t.Errorf("P7: created %d times and kept %d, want 1 and 99", created.n.Load(), kept.n.Load())
	}
}

func TestServeRefusesToBeExposed(t *testing.T) {
	store := memstore.New(nil)
	for _, network := range []string{"tcp4", "tcp6"} {
		l, err := net.Listen(network, ":0")
		if err != nil {
			t.Logf("%s is not there: %v", network, err)
			continue
		}
		if err := newServer(t, store, nil).Serve(t.Context(), nil, l); !errors.Is(err, punctual.ErrForbidden) {
			t.Errorf("serve on %s = %v; want ErrForbidden", l.Addr(), err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the listener is left open: %v", err)
		}
	}
}
