package remotestore_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
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

// holdingProxy stands between clients and a server, and keeps back what the server sends on
// connections that it was told to hold. It still carries what the client sends on them, as a
// network does that loses packets in one direction.
type holdingProxy struct {
	listener net.Listener
	server   string
	work     sync.WaitGroup // goroutines of the proxy
	stopped  chan struct{}

	mu   sync.Mutex
	held map[string]bool // guarded by mu: connections by the address that the server sees
	open []net.Conn      // guarded by mu
}

// newHoldingProxy starts a holdingProxy that ends with the test.
func newHoldingProxy(t *testing.T, server string) *holdingProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &holdingProxy{listener: l, server: server, stopped: make(chan struct{}), held: make(map[string]bool)}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		close(p.stopped)
		l.Close()
		p.mu.Lock()
		for _, c := range p.open {
			c.Close()
		}
		p.mu.Unlock()
		p.work.Wait()
	})
	return p
}

// hold keeps back all that the server sends from now on to the connection whose client has this
// address for the server.
func (p *holdingProxy) hold(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[address] = true
}

func (p *holdingProxy) holds(address string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[address]
}

func (p *holdingProxy) accept() {
	for {
		front, err := p.listener.Accept()
		if err != nil {
			return // stopped
		}
		back, err := net.Dial("tcp", p.server)
		if err != nil {
			front.Close()
			continue
		}
		p.mu.Lock()
		p.open = append(p.open, front, back)
		p.mu.Unlock()
		p.work.Go(func() {
			_, _ = io.Copy(back, front) // until either end is gone
			back.Close()
		})
		p.work.Go(func() { p.answer(front, back) })
	}
}

// answer carries what the server sends, until the connection is held or gone.
func (p *holdingProxy) answer(front, back net.Conn) {
	defer front.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := back.Read(b)
		if p.holds(back.LocalAddr().String()) {
			<-p.stopped
			return
		}
		if _, werr := front.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

// TestHungConnection: one connection hangs with a request that the server has carried out. The
// client's other calls go on, on other connections, a claim that waits among them. A push that
// hangs ends with its context and says that it may have happened. A claim that hangs ends with its
// context, and the messages that it has leased are released.
//
// The server speaks HTTP/1.1 alone here, where each call under way has a connection to itself.
// Where it speaks HTTP/2 as well and says no farewell, the pushes and amendments of a client share
// one connection, and those beside a push that hangs wait until the transport gives the connection
// up.
func TestHungConnection(t *testing.T) {
	below := closing(t, memstore.New(nil), nil)
	h, err := server.New(below, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	var p *holdingProxy
	var next atomic.Pointer[string] // the path whose next request hangs
	done := make(chan struct{}, 1)  // has a value when such a request was carried out
	hs := newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path := next.Load(); path == nil || *path != r.URL.Path || !next.CompareAndSwap(path, nil) {
			h.ServeHTTP(w, r)
			return
		}
		p.hold(r.RemoteAddr)
		h.ServeHTTP(w, r)
		done <- struct{}{}
	}), true, false)
	t.Cleanup(hs.Close)
	p = newHoldingProxy(t, hs.Listener.Addr().String())
	s := connect(t, &remotestore.Options{RetryFor: -1, Timeout: time.Hour}, "http://"+p.listener.Addr().String())

	// hang makes a call of a path hang. It returns a function that ends the call, and a channel for
	// the error of the call.
	hang := func(path string, call func(ctx context.Context) error) (end func(), ended chan error) {
		t.Helper()
		next.Store(&path)
		ctx, end := context.WithCancel(t.Context())
		ended = make(chan error, 1)
		go func() { ended <- call(ctx) }()
		select {
		case <-done:
		case err := <-ended:
			t.Fatalf("this test shows nothing: the call of %s that was to hang ended with %v", path, err)
		}
		return end, ended
	}
	end, ended := hang(wire.PathPush, func(ctx context.Context) error {
		_, err := s.Push(ctx, []punctual.NewMessage{{Topic: "t", ID: "held"}})
		return err
	})
	if _, err := below.Get(t.Context(), "t", "held"); err != nil {
		t.Fatalf("this test shows nothing: the server has not carried the push out: %v", err)
	}
	othersGoOn(t, s)
	select {
	case err := <-ended:
		t.Fatalf("this test shows nothing: the push whose answer is kept back ended with %v", err)
	default:
	}
	end()
	if err := <-ended; !errors.Is(err, context.Canceled) || !errors.Is(err, punctual.ErrIndeterminate) || punctual.Definite(err) {
		t.Errorf("P13: a push that was carried out, and whose answer hangs, ended with %v; want its context's error and %v", err, punctual.ErrIndeterminate)
	}

	end, ended = hang(wire.PathClaim, func(ctx context.Context) error {
		_, err := s.Claim(ctx, punctual.Claim{Topics: []string{"t"}, Max: 1})
		return err
	})
	if i, err := below.Get(t.Context(), "t", "held"); err != nil || i.State != punctual.StateLeased {
		t.Fatalf("this test shows nothing: the server has not carried the claim out: %v, %v", i.State, err)
	}
	othersGoOn(t, s)
	end()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("P13: a claim whose answer hangs ended with %v; want its context's error", err)
	}
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 1, Wait: time.Minute})
	if err != nil || len(ds) != 1 || ds[0].Attempt != 1 {
		t.Errorf("P6: what a claim had leased whose answer hung came back as %+v, %v; want it given back, in its first attempt", ds, err)
	}
}

// othersGoOn pushes a message to another topic while a claim waits for it, and makes sure that the
// claim gets the message, that Get returns it and that it can be acked. The context ends after 30
// s, so that a hang fails the test.
func othersGoOn(t *testing.T, s *remotestore.Store) {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), 30*time.Second)
	defer end()
	claimed := make(chan error, 1)
	var ds []punctual.Delivery
	go func() {
		var err error
		ds, err = s.Claim(ctx, punctual.Claim{Topics: []string{"other"}, Max: 1, Wait: time.Hour})
		claimed <- err
	}()
	if rs, err := s.Push(ctx, []punctual.NewMessage{{Topic: "other", ID: "a"}}); err != nil || rs[0].Err != nil {
		t.Fatalf("P14: a push beside a connection that hangs: %v, %v", rs, err)
	}
	if err := <-claimed; err != nil || len(ds) != 1 {
		t.Fatalf("P14: a claim that waits beside a connection that hangs: %v, %v", ds, err)
	}
	if _, err := s.Get(ctx, "other", "a"); err != nil {
		t.Errorf("P14: a look at a message beside a connection that hangs: %v", err)
	}
	if errs, err := s.Settle(ctx, ackOf(ds[0])); err != nil || errs[0] != nil {
		t.Errorf("P14: an ack beside a connection that hangs: %v, %v", errs, err)
	}
}
