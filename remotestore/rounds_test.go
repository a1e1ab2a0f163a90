package remotestore_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/remotestore"
	"github.com/punctualmq/punctual/server"
)

// piped are servers that clients reach through net.Pipe, so that calls can be tested in virtual
// time. The server NAME has the URL unix:/NAME.
type piped struct {
	t *testing.T

	mu    sync.Mutex
	of    map[string]*pipeListener // guarded by mu: by path; those that are down have none
	dials map[string]int           // guarded by mu: how often each path was dialled
	most  int                      // guarded by mu: beyond so many dials of one path, leave is called
	leave func()                   // guarded by mu
}

func newPiped(t *testing.T) *piped {
	return &piped{t: t, of: make(map[string]*pipeListener), dials: make(map[string]int)}
}

// serve starts a server at a path, which ends with the test.
func (p *piped) serve(path string, h http.Handler) {
	l := &pipeListener{path: path, conns: make(chan net.Conn), closed: make(chan struct{})}
	p.mu.Lock()
	p.of[path] = l
	p.mu.Unlock()
	hs := &http.Server{Handler: h}
	ended := make(chan error, 1)
	go func() { ended <- hs.Serve(l) }()
	p.t.Cleanup(func() {
		hs.Close()
		<-ended
	})
}

// stop refuses further connections to the server at a path, and cuts those that it has.
func (p *piped) stop(path string) {
	p.mu.Lock()
	l := p.of[path]
	delete(p.of, path)
	p.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		c.Close()
	}
}

// dial implements remotestore.Options.DialUnix.
func (p *piped) dial(ctx context.Context, path string) (net.Conn, error) {
	p.mu.Lock()
	p.dials[path]++
	if p.leave != nil && p.dials[path] > p.most {
		p.leave()
	}
	l := p.of[path]
	p.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "unix", Err: syscall.ECONNREFUSED}
	}
	here, there := net.Pipe()
	l.mu.Lock()
	l.open = append(l.open, here, there)
	l.mu.Unlock()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "unix", Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dialled returns how often each path was dialled since the last call of dialled.
func (p *piped) dialled() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.dials
	p.dials = make(map[string]int)
	return n
}

// bound calls leave when a path is dialled more often than most times.
func (p *piped) bound(most int, leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most, p.leave = most, leave
}

// pipeListener is the net.Listener of one server.
type pipeListener struct {
	path   string
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}

	mu   sync.Mutex
	open []net.Conn // guarded by mu: both ends of each connection
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// handler returns a server over a store, which ends with the test.
func handler(t *testing.T, s punctual.Store) *server.Server {
	t.Helper()
	h, err := server.New(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// TestPausesBesideAServerThatCannotKnow: one server carries a push out and is gone before it has
// answered. The other one has another memory of answers, so it is not asked any more. The first one
// may come back with its answer, so it is asked until RetryFor is over, with pauses.
func TestPausesBesideAServerThatCannotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := closing(t, memstore.New(nil), nil)
		p := newPiped(t)
		a, b := handler(t, below), handler(t, below)
		lost, others := 0, 0
		p.serve("/a", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != wire.PathPush {
				a.ServeHTTP(w, r)
				return
			}
			a.ServeHTTP(httptest.NewRecorder(), r)
			lost++
			p.stop("/a")
		}))
		p.serve("/b", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == wire.PathPush {
				others++
			}
			b.ServeHTTP(w, r)
		}))
		s := connect(t, &remotestore.Options{DialUnix: p.dial, Logger: slog.New(slog.DiscardHandler)}, "unix:/a", "unix:/b")
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		const most = 1000 // with pauses that grow to half a second there are about 40 in 15 s
		p.dialled()
		p.bound(most, leave)
		began := time.Now()
		_, err := s.Push(ctx, []punctual.NewMessage{{Topic: "t", ID: "a"}})
		took, dials := time.Since(began), p.dialled()
		if lost != 1 || others != 0 {
			t.Fatalf("this shows nothing: %d pushes were lost at the first server, and %d came to the second", lost, others)
		}
		if n := dials["/a"]; n > most || n < 10 {
			t.Errorf("the server that is gone was dialled %d times within %v, without pauses or seldom", n, took)
		}
		if !errors.Is(err, punctual.ErrIndeterminate) || took < 15*time.Second || took > 20*time.Second {
			t.Errorf("push: %v after %v; want ErrIndeterminate after 15 s", err, took)
		}
	})
}

// TestEachServerIsAskedOnce: with a RetryFor below zero a call asks each server once. It succeeds
// at the last one if the others are gone, and fails when all are gone.
func TestEachServerIsAskedOnce(t *testing.T) {
	below := closing(t, memstore.New(nil), nil)
	p := newPiped(t)
	for _, path := range []string{"/a", "/b", "/c"} {
		p.serve(path, handler(t, below))
	}
	o := &remotestore.Options{DialUnix: p.dial, RetryFor: -1}
	urls := []string{"unix:/a", "unix:/b", "unix:/c"}
	s, other := connect(t, o, urls...), connect(t, o, urls...)
	p.stop("/a")
	p.stop("/b")
	pushOne(t, s, "a")
	if _, err := other.Now(t.Context()); err != nil {
		t.Errorf("clock: %v; want that of the last server", err)
	}
	p.stop("/c")
	if _, err := s.Now(t.Context()); !errors.Is(err, punctual.ErrUnreachable) { // the client learns that its connections are cut
		t.Errorf("clock when all are gone: %v; want ErrUnreachable", err)
	}
	p.dialled()
	_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "t"}})
	if !errors.Is(err, punctual.ErrUnreachable) || !punctual.Definite(err) {
		t.Errorf("push when all are gone: %v; want ErrUnreachable", err)
	}
	if got, want := p.dialled(), map[string]int{"/a": 1, "/b": 1, "/c": 1}; !maps.Equal(got, want) {
		t.Errorf("a push when all are gone dialled %v; want %v", got, want)
	}
}
