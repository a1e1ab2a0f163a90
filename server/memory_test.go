package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/limits"
)

// Most of these tests show that the server counts the memory that requests and answers take, and
// not only their bytes on the network.

// TestRightBeforeBody: a client that has the right of a route on no topic is refused before a byte
// of the body is read.
func TestRightBeforeBody(t *testing.T) {
	r := newRig(t, &Options{Authenticator: roles{"w": role("w", access.Work, "*"), "p": role("p", access.Push, "t")}})
	for _, path := range []string{"/v1/push", "/v1/amend", "/v1/settle"} {
		for _, token := range []string{"w", "p"} {
			body := &countedReader{in: strings.NewReader(`[{"topic":"t","body":"x"}]`)}
			req := httptest.NewRequest(http.MethodPost, path, body)
			req.Host = "localhost"
			req.Header.Set("Authorization", "Bearer "+token)
			a := ask(r.Server, req)
			if may := token == "w" && path == "/v1/settle" || token == "p" && path == "/v1/push"; may {
				if body.n == 0 {
					t.Errorf("%s by %s: status %d, and nothing was read: the test shows nothing", path, token, a.status)
				}
				continue
			}
			a.problem(t, 403, "forbidden")
			if body.n != 0 {
				t.Errorf("%s by %s: %d bytes of the body were read before it was refused", path, token, body.n)
			}
		}
	}
}

type countedReader struct {
	in io.Reader
	n  int
}

func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	r.n += n
	return n, err
}

// TestTinyHeaders: a request of many items with many tiny headers is refused when they take more
// than a request may, or more than the client's share. Items that the client may not push are not
// kept, so such a request is answered item by item.
func TestTinyHeaders(t *testing.T) {
	var headers strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&headers, `"%x":"",`, i)
	}
	items := func(topic string) string {
		item := `{"topic":"` + topic + `","body":"","headers":{` + strings.TrimSuffix(headers.String(), ",") + `}},`
		return `[` + strings.TrimSuffix(strings.Repeat(item, 64), ",") + `]`
	}
	for name, c := range map[string]struct {
		limits Limits
		topic  string
		status int
	}{
		"more than a request may take": {Limits{MaxRequest: 4 << 20}, "modest", 413},
		"more than a client may have":  {Limits{MaxMemory: 32 << 20}, "modest", 503},
		"not allowed":                  {Limits{MaxMemory: 32 << 20}, "greedy", 200},
	} {
		r := newRig(t, &Options{Authenticator: twoClients(), Limits: c.limits})
		a := r.ask("POST /v1/push", items(c.topic), asModest).want(t, c.status)
		if c.status == 200 && strings.Count(a.body, `"forbidden"`) != 64 {
			t.Errorf("%s: %.300s", name, a.body)
		}
		if n := r.memory.held(); n != 0 {
			t.Errorf("%s: %d bytes are still held", name, n)
		}
		if stats, err := r.store.Topics(t.Context()); err != nil || len(stats) != 0 {
			t.Errorf("%s: %v, %v; want nothing stored", name, stats, err)
		}
	}
}

// TestTinyHeadersOfOneItem: the headers of a bulk and of a schedule count as those of messages do.
func TestTinyHeadersOfOneItem(t *testing.T) {
	var headers strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&headers, `"%x":"",`, i)
	}
	list := `"headers":{` + strings.TrimSuffix(headers.String(), ",") + `}}`
	for line, body := range map[string]string{
		"POST /v1/topics/t/bulk":       `{"do":"cancel",` + list,
		"PUT /v1/topics/t/schedules/s": `{"spec":"@daily",` + list,
	} {
		if a := newRig(t, nil).ask(line, body); a.status >= 300 {
			t.Fatalf("%s: this test shows nothing: with enough memory it is answered with %d: %.300s", line, a.status, a.body)
		}
		r := newRig(t, &Options{Limits: Limits{MaxMemory: 256 << 10}})
		r.ask(line, body).problem(t, 503, "overloaded")
		if n := r.memory.held(); n != 0 {
			t.Errorf("%s: %d bytes are still held", line, n)
		}
	}
}

// stuck is a client that reads nothing of its answer until it is let go.
type stuck struct {
	*httptest.ResponseRecorder
	writes *sync.WaitGroup // done when the first byte of the answer comes
	once   sync.Once
	let    chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	s.once.Do(s.writes.Done)
	<-s.let
	return s.ResponseRecorder.Write(p)
}

// TestAnswersNobodyReads: the memory of answers that nobody reads is bounded, and another client is
// answered meanwhile.
func TestAnswersNobodyReads(t *testing.T) {
	const clients, messages, claimed, size = 12, 64, 16, 64 << 10
	r := newRig(t, &Options{Authenticator: twoClients(), Limits: Limits{MaxMemory: 64 << 20}})
	for i := range messages {
		_, err := r.store.Push(t.Context(), []punctual.NewMessage{{Topic: "greedy", ID: fmt.Sprint(i), Body: bytes.Repeat([]byte{0}, size)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	r.ask("PUT /v1/topics/modest/messages/m", "", asModest).want(t, 201)
	before := heap()
	var first, ended sync.WaitGroup
	let := make(chan struct{})
	answers := make([]*httptest.ResponseRecorder, clients)
	for i := range clients {
		line := "GET /v1/topics/greedy/messages?state=ready&limit=64"
		if i == 0 {
			line = "POST /v1/topics/greedy/claim?max=16"
		}
		w := &stuck{ResponseRecorder: httptest.NewRecorder(), writes: &first, let: let}
		answers[i] = w.ResponseRecorder
		first.Add(1)
		ended.Go(func() { r.ServeHTTP(w, r.request(line, "", asGreedy)) })
		if i == 0 {
			first.Wait() // so that the lists have the messages which the claim has left
		}
	}
	first.Wait()
	if grown := heap() - before; grown > 48<<20 {
		t.Errorf("%d answers of which nobody reads a byte take %d MiB", clients, grown>>20)
	}
	r.ask("GET /v1/topics/modest/messages/m", "", asModest).want(t, 200)
	close(let)
	ended.Wait()
	whole := 0
	for _, w := range answers {
		if w.Code == http.StatusOK {
			whole++
			n, isPart := strings.Count(w.Body.String(), `\u0000`)/size, strings.Contains(w.Body.String(), `"next":`)
			if n != claimed && n != messages-claimed && !isPart {
				t.Errorf("%d messages, and nothing says that there are more", n)
			}
		} else if w.Code != http.StatusServiceUnavailable {
			t.Errorf("status %d", w.Code)
		}
	}
	if whole < 2 {
		t.Errorf("%d of %d were answered", whole, clients)
	}
	if n := r.memory.held(); n != 0 {
		t.Errorf("%d bytes are still held", n)
	}
}

// heap returns how many bytes of the heap are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestNamesOfWaitingClaims: the topic names of a claim count in the server's memory for as long as
// the claim waits.
func TestNamesOfWaitingClaims(t *testing.T) {
	r := newRig(t, &Options{Authenticator: roles{"w": role("w", access.Work, "*")}, Limits: Limits{MaxMemory: 1 << 20}})
	names := make([]string, limits.MaxClaimTopics)
	for i := range names {
		names[i] = fmt.Sprintf("%0128d", i)
	}
	body := func(wait string) string {
		return `{"topics":["` + strings.Join(names, `","`) + `"],"max":1,"wait":"` + wait + `"}`
	}
	ctx, leave := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		r.ServeHTTP(httptest.NewRecorder(), r.request("POST /v1/claim", body("50s"), "Authorization: Bearer w").WithContext(ctx))
	})
	for r.memory.held() != sizeOfNames(names) {
		runtime.Gosched()
	}
	r.ask("POST /v1/claim", body("0s"), "Authorization: Bearer w").problem(t, 503, "overloaded")
	leave()
	ended.Wait()
	r.ask("POST /v1/claim", body("0s"), "Authorization: Bearer w").want(t, 204)
}
