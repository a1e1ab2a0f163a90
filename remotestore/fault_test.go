package remotestore_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/remotestore"
	"github.com/punctualmq/punctual/server"
)

// faulty is a server that carries requests out. Then it does to some of them what a network or the
// end of a process may do.
type faulty struct {
	t     *testing.T
	below *memstore.Store
	url   string

	mu     sync.Mutex
	server *server.Server
	lose   map[string]int    // guarded by mu: how many answers to a path get lost
	anew   bool              // guarded by mu: the server is started anew after each loss
	done   map[string]int    // guarded by mu: how many requests for a path the server answered, also those whose answer was lost
	onLoss func()            // guarded by mu: if not nil, called before a connection ends without its answer
	lost   chan string       // receives the path of each answer that was lost
	before func(path string) // guarded by mu: if not nil, called before a request is carried out
}

func newFaulty(t *testing.T) *faulty {
	f := &faulty{t: t, below: memstore.New(nil), lose: map[string]int{}, done: map[string]int{}, lost: make(chan string, 100)}
	f.restart()
	hs := newHTTPServer(f, true, true)
	f.url = hs.URL
	t.Cleanup(func() {
		hs.Close()
		f.server.Close()
		f.below.Close()
	})
	return f
}

// newHTTPServer starts a server without TLS that speaks HTTP/1.1 or HTTP/2, or both.
func newHTTPServer(h http.Handler, http1, http2 bool) *httptest.Server {
	hs := httptest.NewUnstartedServer(h)
	hs.Config.Protocols = new(http.Protocols)
	hs.Config.Protocols.SetHTTP1(http1)
	hs.Config.Protocols.SetUnencryptedHTTP2(http2)
	hs.Start()
	return hs
}

// restart starts another server over the same store, which knows no answers.
func (f *faulty) restart() {
	s, err := server.New(f.below, nil)
	if err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server != nil {
		f.t.Cleanup(f.server.Close)
	}
	f.server = s
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	s, before := f.server, f.before
	f.mu.Unlock()
	if before != nil {
		before(r.URL.Path)
	}
	answer := httptest.NewRecorder()
	s.ServeHTTP(answer, r)
	f.mu.Lock()
	f.done[r.URL.Path]++
	lose := f.lose[r.URL.Path] > 0 && answer.Code < 300
	if lose {
		f.lose[r.URL.Path]--
	}
	anew, onLoss := f.anew, f.onLoss
	f.mu.Unlock()
	if lose {
		if anew {
			f.restart()
		}
		if onLoss != nil {
			onLoss()
		}
		f.lost <- r.URL.Path
		panic(http.ErrAbortHandler) // the connection ends without an answer
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the client may have gone
}

// losing makes the next n answers of success to a path get lost.
func (f *faulty) losing(n int, path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose[path] = n
}

// wantLost makes sure that at least n answers to a path were lost, and before them no others.
func (f *faulty) wantLost(n int, path string) {
	f.t.Helper()
	for range n {
		select {
		case got := <-f.lost:
			if got != path {
				f.t.Fatalf("the answer to %s was lost, want %s", got, path)
			}
		default:
			f.t.Fatalf("no answer to %s was lost, so what follows shows nothing", path)
		}
	}
}

func pushOne(t *testing.T, s punctual.Store, id string) {
	t.Helper()
	rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "t", ID: id, Body: []byte("body")}})
	if err != nil || rs[0].Err != nil || rs[0].Status != punctual.PushStored {
		t.Fatalf("push of %q: %+v, %v; want it stored", id, rs, err)
	}
}

func claimOne(t *testing.T, s punctual.Store) punctual.Delivery {
	t.Helper()
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 1, Wait: time.Minute})
	if err != nil || len(ds) != 1 {
		t.Fatalf("claim: %v, %v; want one message", ds, err)
	}
	return ds[0]
}

func ackOf(d punctual.Delivery) []punctual.Settlement {
	return []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}}
}

// TestLostAnswers: each call whose answer is lost, once or thrice, is answered in the end. A call
// that changes something is carried out once; one that only reads is carried out again each time.
func TestLostAnswers(t *testing.T) {
	for _, n := range []int{1, 3} {
		f := newFaulty(t)
		s := connect(t, nil, f.url)

		f.losing(n, wire.PathPush)
		rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "t"}, {Topic: "t", ID: "a", IfExists: punctual.IfExistsFail}})
		f.wantLost(n, wire.PathPush)
		if err != nil || rs[0].Status != punctual.PushStored || rs[1].Status != punctual.PushStored {
			t.Errorf("push: %+v, %v; want both stored", rs, err)
		}
		if stats, err := f.below.Stats(t.Context(), "t"); err != nil || stats.Live() != 2 {
			t.Errorf("after a push of two that was sent %d times the store holds %d, %v", n+1, stats.Live(), err)
		}

		f.losing(n, wire.PathClaim)
		d := claimOne(t, s)
		f.wantLost(n, wire.PathClaim)
		if stats, err := f.below.Stats(t.Context(), "t"); err != nil || stats.Leased != 1 || d.Attempt != 1 {
			t.Errorf("after a claim of one: %d leased, attempt %d, %v", stats.Leased, d.Attempt, err)
		}

		f.losing(n, wire.PathSettle)
		errs, err := s.Settle(t.Context(), ackOf(d))
		f.wantLost(n, wire.PathSettle)
		if err != nil || errs[0] != nil {
			t.Errorf("ack: %v, %v; want it done", errs, err)
		}

		pushOne(t, s, "later")
		f.losing(n, wire.PathAmend)
		as, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "t", ID: "later"}})
		f.wantLost(n, wire.PathAmend)
		if err != nil || as[0].Err != nil {
			t.Errorf("cancel: %v, %v; want it done", as, err)
		}

		f.losing(n, wire.PathTopics)
		if _, err := s.Topics(t.Context()); err != nil {
			t.Errorf("topics: %v", err)
		}
		f.wantLost(n, wire.PathTopics)
	}
}

// TestServerEndsBetweenDoingAndAnswering: the next server does not know what became of a call. A
// push, an ack or a cancel is in doubt then, and a claim is made anew.
func TestServerEndsBetweenDoingAndAnswering(t *testing.T) {
	f := newFaulty(t)
	f.anew = true
	s := connect(t, nil, f.url)

	f.losing(1, wire.PathPush)
	_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "t", ID: "a"}})
	f.wantLost(1, wire.PathPush)
	if !errors.Is(err, punctual.ErrIndeterminate) {
		t.Errorf("push: %v; want ErrIndeterminate", err)
	}
	if info, err := f.below.Get(t.Context(), "t", "a"); err != nil || info.Attempt != 0 {
		t.Errorf("the message: %+v, %v; want it stored once", info, err)
	}

	f.losing(1, wire.PathClaim)
	pushOne(t, s, "b") // the first claim leases one of the two, the second the other one
	d := claimOne(t, s)
	f.wantLost(1, wire.PathClaim)
	if stats, err := f.below.Stats(t.Context(), "t"); err != nil || stats.Leased != 2 || d.Attempt != 1 {
		t.Errorf("after a claim that was lost and made anew: %d leased, %v; want 2, of which one runs out", stats.Leased, err)
	}

	f.losing(1, wire.PathSettle)
	errs, err := s.Settle(t.Context(), ackOf(d))
	f.wantLost(1, wire.PathSettle)
	if err != nil || !errors.Is(errs[0], punctual.ErrIndeterminate) {
		t.Errorf("ack: %v, %v; want ErrIndeterminate of the item", errs, err)
	}
	if _, err := f.below.Get(t.Context(), "t", d.ID); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("the acked message: %v; want it gone", err)
	}

	pushOne(t, s, "c")
	f.losing(1, wire.PathAmend)
	_, err = s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "t", ID: "c"}})
	f.wantLost(1, wire.PathAmend)
	if !errors.Is(err, punctual.ErrIndeterminate) {
		t.Errorf("cancel: %v; want ErrIndeterminate", err)
	}
	pushOne(t, s, "d") // a call that was not sent before succeeds
}

// TestRestartedServer: a call that was never sent to the old server is carried out by the new one.
func TestRestartedServer(t *testing.T) {
	f := newFaulty(t)
	s := connect(t, nil, f.url)
	f.restart()
	pushOne(t, s, "a")
	f.restart()
	d := claimOne(t, s)
	f.restart()
	if errs, err := s.Settle(t.Context(), ackOf(d)); err != nil || errs[0] != nil {
		t.Errorf("ack: %v, %v", errs, err)
	}
}

// TestLostPurge: a purge has no key, so it is not sent again when its answer is lost.
func TestLostPurge(t *testing.T) {
	f := newFaulty(t)
	s := connect(t, nil, f.url)
	pushOne(t, s, "a")
	path := wire.TopicPath("t", "purge")
	f.losing(1, path)
	_, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: "t"})
	f.wantLost(1, path)
	if !errors.Is(err, punctual.ErrIndeterminate) || f.done[path] != 1 {
		t.Errorf("purge: %v after %d requests; want ErrIndeterminate after one", err, f.done[path])
	}
}

// TestClaimerLeaves: when the caller of a claim leaves before the answer has come, the messages
// that the claim has leased are released.
func TestClaimerLeaves(t *testing.T) {
	f := newFaulty(t)
	s := connect(t, nil, f.url)
	pushOne(t, s, "a")
	ctx, leave := context.WithCancel(t.Context())
	f.losing(1, wire.PathClaim)
	f.onLoss = leave // so the caller has left before it can send a second copy, which would bring the answer
	ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{"t"}, Max: 1, Wait: time.Minute})
	f.wantLost(1, wire.PathClaim)
	if !errors.Is(err, context.Canceled) || !punctual.Definite(err) {
		t.Errorf("claim: %v, %v; want the context's error alone", ds, err)
	}
	if err := s.Close(); err != nil { // waits for the release
		t.Error(err)
	}
	info, err := f.below.Get(t.Context(), "t", "a")
	if err != nil || info.State != punctual.StateReady || info.Attempt != 0 {
		t.Errorf("the message is %v, attempt %d, %v; want ready and 0", info.State, info.Attempt, err)
	}
}

// TestReleaseReadsTheClock: a release that goes on while the store is closed reads the server's
// clock, if it has not for long.
func TestReleaseReadsTheClock(t *testing.T) {
	f := newFaulty(t)
	s := connect(t, nil, f.url)
	pushOne(t, s, "a")
	ctx, leave := context.WithCancel(t.Context())
	f.losing(1, wire.PathClaim)
	f.onLoss = leave
	asks, closing := make(chan struct{}, 1), make(chan struct{})
	var claims atomic.Int32
	f.before = func(path string) {
		if path == wire.PathClaim && claims.Add(1) == 2 { // the release asks for the answer to the claim
			asks <- struct{}{}
			<-closing
		}
	}
	if _, err := s.Claim(ctx, punctual.Claim{Topics: []string{"t"}, Max: 1, Wait: time.Minute}); !errors.Is(err, context.Canceled) {
		t.Errorf("claim: %v; want the context's error", err)
	}
	f.wantLost(1, wire.PathClaim)
	<-asks
	s.ForgetClock()
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	for _, err := s.Now(t.Context()); !errors.Is(err, punctual.ErrClosed); _, err = s.Now(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	clocks := f.doneOf(wire.PathClock)
	close(closing)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if f.doneOf(wire.PathClock) == clocks {
		t.Error("this test shows nothing: the release has not read the clock")
	}
	info, err := f.below.Get(t.Context(), "t", "a")
	if err != nil || info.State != punctual.StateReady || info.Attempt != 0 {
		t.Errorf("the message is %v, attempt %d, %v; want ready and 0", info.State, info.Attempt, err)
	}
}

// doneOf returns how many requests for a path the server answered.
func (f *faulty) doneOf(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done[path]
}

func TestNoServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	l.Close()
	if _, err := remotestore.Open(t.Context(), []string{url}, nil); !errors.Is(err, punctual.ErrUnreachable) || !punctual.Definite(err) {
		t.Errorf("open where no server is: %v; want ErrUnreachable", err)
	}

	below := closing(t, memstore.New(nil), nil)
	first := serve(t, below, "")
	s := connect(t, &remotestore.Options{RetryFor: -1}, first.url)
	first.stop()
	if _, err := s.Now(t.Context()); !errors.Is(err, punctual.ErrUnreachable) { // the client learns that its connections are closed
		t.Errorf("clock when no server is: %v; want ErrUnreachable", err)
	}
	_, err = s.Push(t.Context(), []punctual.NewMessage{{Topic: "t"}})
	if !errors.Is(err, punctual.ErrUnreachable) || !punctual.Definite(err) {
		t.Errorf("push when no server is: %v; want ErrUnreachable", err)
	}
	if _, err := s.Topics(t.Context()); !errors.Is(err, punctual.ErrUnreachable) {
		t.Errorf("topics when no server is: %v; want ErrUnreachable", err)
	}
	patient := connect(t, nil, serve(t, below, strings.TrimPrefix(first.url, "http://")).url)
	pushOne(t, patient, "a")
	pushOne(t, s, "b")
}

// TestFailover: one of two servers of a store ends and is started again, then the other one ends.
// Calls succeed at the server that is there.
func TestFailover(t *testing.T) {
	below := closing(t, memstore.New(nil), nil)
	a, b := serve(t, below, ""), serve(t, below, "")
	s := connect(t, nil, a.url, b.url)
	pushOne(t, s, "1")
	a.stop()
	if _, err := s.Now(t.Context()); err != nil { // and with it the client learns that its connections are closed
		t.Error(err)
	}
	pushOne(t, s, "2")
	a = serve(t, below, strings.TrimPrefix(a.url, "http://"))
	b.stop()
	if _, err := s.Now(t.Context()); err != nil { // and with it the client learns that its connections are closed
		t.Error(err)
	}
	pushOne(t, s, "3")
	pushOne(t, connect(t, nil, b.url, a.url), "4")
	waiting := make(chan error)
	go func() {
		_, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"none"}, Max: 1, Wait: 2 * time.Second})
		waiting <- err
	}()
	if err := <-waiting; err != nil {
		t.Errorf("a claim that waited: %v", err)
	}
}

// TestWaitInParts: a claim can wait for longer than the server allows, in several requests.
func TestWaitInParts(t *testing.T) {
	below := closing(t, memstore.New(nil), nil)
	h, err := server.New(below, &server.Options{Limits: server.Limits{MaxWait: 20 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	var claims atomic.Int32
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == wire.PathClaim {
			if claims.Add(1) == 3 {
				if _, err := below.Push(r.Context(), []punctual.NewMessage{{Topic: "t", ID: "a"}}); err != nil {
					t.Error(err)
				}
			}
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(hs.Close)
	s := connect(t, nil, hs.URL)
	if d := claimOne(t, s); d.ID != "a" || claims.Load() < 3 {
		t.Errorf("%s in %d claims; want a in the third", d.ID, claims.Load())
	}
	began := time.Now()
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"none"}, Max: 1, Wait: 100 * time.Millisecond})
	if took := time.Since(began); err != nil || len(ds) != 0 || took < 100*time.Millisecond {
		t.Errorf("a claim that waited 100 ms for nothing: %v, %v after %v", ds, err, took)
	}
}

func TestURLs(t *testing.T) {
	for url, says := range map[string]string{
		"":                              "use http://",
		"localhost:7878":                "use http://",
		"unix:":                         "names no socket",
		"disk:punctual-data":            "sharedstore.Open",
		"punctual-data":                 "sharedstore.Open",
		"redis://me:secret@localhost":   "redisstore.OpenURL",
		"rediss+cluster://a,b":          "redisstore.OpenURL",
		"postgres://localhost/shop":     "pgstore.OpenURL",
		"mem:":                          "memstore.New",
		"http://user:secret@localhost":  "holds no name or password",
		"http:user:secret@localhost":    "use http://",
		"http:///user:secret@localhost": "use http://",
		"user:secret@localhost":         "use http://",
		"http://user:secret/@localhost": "use http://",
		"http://a:1/?secret@localhost":  "query",
		"htp://localhost/?token=secret": "use http://",
		"http://localhost/?token=abc":   "query",
		"http://[::1":                   "use http://",
		"http://queue.example.com:7878": "would read the token",
	} {
		_, err := remotestore.Open(t.Context(), []string{url}, &remotestore.Options{Token: "xyz"})
		if !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("open of %q: %v; want an ErrInvalid that says %q", url, err, says)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "xyz")) {
			t.Errorf("open of %q tells a secret: %v", url, err)
		}
	}
	if _, err := remotestore.Open(t.Context(), nil, nil); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("open of nothing: %v", err)
	}
}

// TestSomebodyElsesServer: Open fails where another kind of server answers, or one that redirects.
func TestSomebodyElsesServer(t *testing.T) {
	hs := httptest.NewServer(http.NotFoundHandler())
	defer hs.Close()
	if _, err := remotestore.Open(t.Context(), []string{hs.URL}, nil); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "404") {
		t.Errorf("open of a server of something else: %v", err)
	}
	elsewhere := httptest.NewServer(http.RedirectHandler(hs.URL, http.StatusTemporaryRedirect))
	defer elsewhere.Close()
	if _, err := remotestore.Open(t.Context(), []string{elsewhere.URL}, nil); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "307") {
		t.Errorf("open of a server that redirects: %v", err)
	}
}

// TestToken: the token comes from a file, which is read again when the server refuses the token.
// The token is neither in the log nor in the error of a push that is refused.
func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var valid atomic.Value
	valid.Store("first-secret")
	h, err := server.New(closing(t, memstore.New(nil), nil), &server.Options{Authenticator: authenticator(func(r *http.Request) bool {
		return r.Header.Get("Authorization") == "Bearer "+valid.Load().(string)
	})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	write("first-secret")
	var log strings.Builder
	s := connect(t, &remotestore.Options{TokenFile: file, Logger: slog.New(slog.NewTextHandler(&log, nil))}, hs.URL)
	pushOne(t, s, "a")
	valid.Store("second-secret")
	_, err = s.Push(t.Context(), []punctual.NewMessage{{Topic: "t"}})
	if !errors.Is(err, punctual.ErrUnauthenticated) || !punctual.Definite(err) {
		t.Errorf("push with a token that is not valid any more: %v", err)
	}
	if strings.Contains(err.Error()+log.String(), "secret") {
		t.Errorf("the token is told: %v %s", err, log.String())
	}
	write("second-secret")
	pushOne(t, s, "b")
	write("")
	valid.Store("third-secret")
	if _, err = s.Now(t.Context()); !errors.Is(err, punctual.ErrUnauthenticated) {
		t.Errorf("with an empty file: %v", err)
	}
	if _, err := remotestore.Open(t.Context(), []string{hs.URL}, &remotestore.Options{TokenFile: file + "x"}); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("with no file: %v", err)
	}
	if _, err := remotestore.Open(t.Context(), []string{hs.URL}, &remotestore.Options{Token: "a\nb"}); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("with a line end in the token: %v", err)
	}
}

type authenticator func(*http.Request) bool

func (a authenticator) Authenticate(r *http.Request) (*access.Principal, error) {
	if !a(r) {
		return nil, punctual.ErrUnauthenticated
	}
	return &access.Principal{Name: "tester", Grants: []access.Grant{access.Everything()}}, nil
}
