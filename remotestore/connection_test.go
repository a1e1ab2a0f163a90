package remotestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/remotestore"
	"github.com/punctualmq/punctual/server"
)

// TestProtocols: where a server speaks both versions of HTTP and says no farewell, pushes are sent
// by HTTP/2, and claims and settlements, which may be carried out again, by HTTP/1.1, which costs
// less. Where it speaks one version, all are sent by that one.
func TestProtocols(t *testing.T) {
	for _, x := range []struct {
		http1, http2  bool
		changes, anew string
	}{
		{true, false, "HTTP/1.1", "HTTP/1.1"},
		{false, true, "HTTP/2.0", "HTTP/2.0"},
		{true, true, "HTTP/2.0", "HTTP/1.1"},
	} {
		h, err := server.New(closing(t, memstore.New(nil), nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.Close)
		var mu sync.Mutex
		spoken := make(map[string]string) // guarded by mu: the protocol by path
		hs := newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				mu.Lock()
				spoken[r.URL.Path] = r.Proto
				mu.Unlock()
			}
			h.ServeHTTP(w, r)
		}), x.http1, x.http2)
		t.Cleanup(hs.Close)
		s := connect(t, nil, hs.URL)
		pushOne(t, s, "a")
		if errs, err := s.Settle(t.Context(), ackOf(claimOne(t, s))); err != nil || errs[0] != nil {
			t.Errorf("HTTP/1.1 %v, HTTP/2 %v: ack: %v, %v", x.http1, x.http2, errs, err)
		}
		want := map[string]string{wire.PathPush: x.changes, wire.PathClaim: x.anew, wire.PathSettle: x.anew}
		if mu.Lock(); !maps.Equal(spoken, want) {
			t.Errorf("HTTP/1.1 %v, HTTP/2 %v: requests came by %v, want %v", x.http1, x.http2, spoken, want)
		}
		mu.Unlock()
	}
}

// TestPushesByHTTP1: a server that says farewell gets a push by HTTP/1.1, which costs both sides
// less.
func TestPushesByHTTP1(t *testing.T) {
	h, err := server.New(closing(t, memstore.New(nil), nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Serve(ctx, nil, l) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	p := newDeafProxy(t, l.Addr().String())
	s := connect(t, nil, "http://"+p.listener.Addr().String())
	pushOne(t, s, pushMark)
	if got := p.byHTTP1.Load(); got != 1 {
		t.Errorf("%d pushes came by HTTP/1.1, want 1", got)
	}
}

// TestServerLearnsHTTP2: where a server spoke HTTP/1.1 alone, another one listens later, which
// speaks HTTP/2 alone. The client finds that out.
func TestServerLearnsHTTP2(t *testing.T) {
	h, err := server.New(closing(t, memstore.New(nil), nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	first := newHTTPServer(h, true, false)
	s := connect(t, nil, first.URL)
	pushOne(t, s, "a")
	first.Close()
	l, err := net.Listen("tcp", first.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	second := httptest.NewUnstartedServer(h)
	second.Listener.Close()
	second.Listener, second.Config.Protocols = l, new(http.Protocols)
	second.Config.Protocols.SetUnencryptedHTTP2(true)
	second.Start()
	t.Cleanup(second.Close)
	pushOne(t, s, "b")
}

// TestEndOfIdleConnections: a push that meets the end of an idle connection was not begun, and is
// sent again at once on another connection.
func TestEndOfIdleConnections(t *testing.T) {
	below := closing(t, memstore.New(nil), nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, below, &server.ServeOptions{IdleTime: 200 * time.Millisecond}, l, "")
	p := newDeafProxy(t, l.Addr().String())
	s := connect(t, &remotestore.Options{RetryFor: -1}, "http://"+p.listener.Addr().String())
	const wanted = 5
	pushes := int64(0)
	for p.unheard.Load() < wanted {
		if pushes++; pushes > 1000 {
			t.Fatalf("of 1000 pushes only %d met the end of a connection", p.unheard.Load())
		}
		p.turnDeaf()
		rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "t", Body: []byte(pushMark)}})
		if err == nil {
			err = rs[0].Err
		}
		if err != nil {
			t.Fatalf("push %d, after %d had met the end of a connection: %v", pushes, p.unheard.Load(), err)
		}
	}
	if stats, err := below.Stats(t.Context(), "t"); err != nil || stats.Live() != pushes {
		t.Errorf("after %d pushes the store holds %d, %v", pushes, stats.Live(), err)
	}
}

// TestEndOfServerMeetsPush: a push that meets the end of an idle connection, and then no server,
// certainly did not happen.
func TestEndOfServerMeetsPush(t *testing.T) {
	below := closing(t, memstore.New(nil), nil)
	for try := range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		serveOn(t, below, &server.ServeOptions{IdleTime: 20 * time.Millisecond}, l, "")
		p := newDeafProxy(t, l.Addr().String())
		s := connect(t, &remotestore.Options{RetryFor: -1}, "http://"+p.listener.Addr().String())
		pushOne(t, s, fmt.Sprint(try))
		if err := p.listener.Close(); err != nil {
			t.Fatal(err)
		}
		p.turnDeaf()
		_, err = s.Push(t.Context(), []punctual.NewMessage{{Topic: "t", ID: "never", Body: []byte(pushMark)}})
		if _, got := below.Get(t.Context(), "t", "never"); !errors.Is(got, punctual.ErrNotFound) {
			t.Fatalf("this test shows nothing: the push arrived: %v", got)
		}
		if !errors.Is(err, punctual.ErrUnreachable) || !punctual.Definite(err) {
			t.Fatalf("push: %v; want ErrUnreachable, as it certainly did not happen", err)
		}
		if p.unheard.Load() > 0 {
			return
		}
	}
	t.Error("no push was sent on a connection that ended, so this shows nothing")
}

// pushMark is the body of pushes that a deafProxy counts when it throws them away.
const pushMark = "-a-push-to-be-counted-"

// deafProxy stands between clients and a server. A connection that is deaf carries only what the
// server sends, and throws away the rest.
type deafProxy struct {
	listener net.Listener
	server   string
	work     sync.WaitGroup
	unheard  atomic.Int64 // pushes with a pushMark that were thrown away
	byHTTP1  atomic.Int64 // pushes by HTTP/1.1 that were carried

	mu   sync.Mutex
	open map[net.Conn]*atomic.Bool // guarded by mu: both ends of each connection, and whether it is deaf
}

func newDeafProxy(t *testing.T, server string) *deafProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &deafProxy{listener: l, server: server, open: make(map[net.Conn]*atomic.Bool)}
	p.work.Go(func() { p.accept(t) })
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for c := range p.open {
			c.Close()
		}
		p.mu.Unlock()
		p.work.Wait()
	})
	return p
}

func (p *deafProxy) accept(t *testing.T) {
	for {
		front, err := p.listener.Accept()
		if err != nil {
			return // the test is over
		}
		back, err := net.Dial("tcp", p.server)
		if err != nil {
			t.Error(err)
			front.Close()
			continue
		}
		deaf := new(atomic.Bool)
		p.mu.Lock()
		p.open[front], p.open[back] = deaf, deaf
		p.mu.Unlock()
		p.work.Go(func() { p.carry(front, back, deaf) })
		p.work.Go(func() { p.carry(back, front, new(atomic.Bool)) })
	}
}

// turnDeaf makes all connections that are open now deaf.
func (p *deafProxy) turnDeaf() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, deaf := range p.open {
		deaf.Store(true)
	}
}

func (p *deafProxy) carry(from, to net.Conn, deaf *atomic.Bool) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range []net.Conn{from, to} {
			c.Close()
			delete(p.open, c)
		}
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		switch {
		case n > 0 && deaf.Load():
			if bytes.Contains(b[:n], []byte(pushMark)) {
				p.unheard.Add(1)
			}
		case n > 0:
			if bytes.HasPrefix(b[:n], []byte("POST "+wire.PathPush+" HTTP/1.1")) {
				p.byHTTP1.Add(1)
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
