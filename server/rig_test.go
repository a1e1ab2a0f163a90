package server

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/memstore"
)

// rig is a server over a store in memory, without a network.
type rig struct {
	*testing.T
	store *memstore.Store
	*Server
}

func newRig(t *testing.T, o *Options) *rig {
	t.Helper()
	store := memstore.New(nil)
	return &rig{t, store, newServer(t, store, o)}
}

// newServer closes the server and its store at the end of the test.
func newServer(t *testing.T, store punctual.Store, o *Options) *Server {
	t.Helper()
	s, err := New(store, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if err := store.Close(); err != nil && !errors.Is(err, punctual.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request, whose line is written as "POST /v1/push" and whose headers as "Name: value".
// It checks that the answer is one that /openapi.json allows. After a request that may have stored
// something it waits for the next millisecond.
func (r *rig) ask(line, body string, headers ...string) answer {
	r.Helper()
	req := r.request(line, body, headers...)
	a := ask(r.Server, req)
	r.conforms(req, a)
	if req.Method != http.MethodGet {
		nextMillisecond()
	}
	return a
}

func (r *rig) request(line, body string, headers ...string) *http.Request {
	r.Helper()
	method, target, _ := strings.Cut(line, " ")
	req := httptest.NewRequestWithContext(r.Context(), method, target, strings.NewReader(body))
	req.Host = "localhost:7878"
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Add(name, value)
	}
	return req
}

func ask(h http.Handler, req *http.Request) answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return answer{w.Code, w.Header(), w.Body.String()}
}

// nextMillisecond returns when the clock shows the next millisecond. A message that was stored to
// be due at once is ready then, because its due time was rounded up to a whole millisecond.
func nextMillisecond() {
	for begin := time.Now().UnixMilli(); time.Now().UnixMilli() == begin; {
		time.Sleep(50 * time.Microsecond)
	}
}

// want fails unless the answer has the status, and its body has the texts.
func (a answer) want(t *testing.T, status int, texts ...string) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %.300s", a.status, status, a.body)
	}
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			t.Fatalf("%.500s\nwant it to hold %q", a.body, text)
		}
	}
	return a
}

// problem fails unless the answer is a problem with this status and code, whose definite member
// fits the status.
func (a answer) problem(t *testing.T, status int, code string) wire.Problem {
	t.Helper()
	var p wire.Problem
	if err := wire.DecodeRequest([]byte(a.body), &p); err != nil {
		t.Fatalf("%.300s: %v", a.body, err)
	}
	if a.status != status || p.Status != status || p.Code != code || a.header.Get("Content-Type") != wire.ProblemType {
		t.Fatalf("status %d, %s: %.300s\nwant a problem with status %d and code %s", a.status, a.header.Get("Content-Type"), a.body, status, code)
	}
	if safe := status < 500 || status == 503 || status == 507; safe != p.Definite {
		t.Fatalf("P13: status %d and definite %v: %s", status, p.Definite, a.body)
	}
	return p
}

// decode reads the answer's body.
func decode[T any](t *testing.T, a answer) (v T) {
	t.Helper()
	if err := wire.DecodeRequest([]byte(a.body), &v); err != nil {
		t.Fatalf("%.300s: %v", a.body, err)
	}
	return v
}

// roles is an Authenticator whose tokens are the names of principals.
type roles map[string]*access.Principal

func (r roles) Authenticate(req *http.Request) (*access.Principal, error) {
	name, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if p := r[name]; ok && p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("no valid token: %w", punctual.ErrUnauthenticated)
}

// role is a principal that may do a in the topics.
func role(name string, a access.Action, topics string) *access.Principal {
	return &access.Principal{Name: name, Grants: []access.Grant{{Actions: a, Topics: topics}}}
}

// snapshot describes each topic of the store and the first page of its messages in each state.
// Tests compare two of them to see that nothing was changed.
func (r *rig) snapshot() string {
	r.Helper()
	topics, err := r.store.Topics(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	var b bytes.Buffer
	for _, topic := range topics {
		fmt.Fprintf(&b, "%+v\n", topic)
		for state := punctual.StateScheduled; state <= punctual.StateDead; state++ {
			page, err := r.store.List(r.Context(), punctual.ListQuery{Topic: topic.Topic, State: state})
			if err != nil {
				r.Fatal(err)
			}
			fmt.Fprintf(&b, "%v: %+v\n", state, page)
		}
	}
	return b.String()
}

func same(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

// counter is an io.Writer that counts the bytes written to it.
type counter struct{ n atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}
