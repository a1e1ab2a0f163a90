package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// While a server waits for load balancers, /readyz says on a new connection that the server is not
// ready, and requests are answered. When the store fails meanwhile, Serve waits no longer.
func TestDrainDelay(t *testing.T) {
	store := &sick{Store: memstore.New(nil), fail: func(context.Context) error { return nil }}
	s := newServer(t, store, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, &ServeOptions{DrainDelay: 24 * time.Hour}, l) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: waitLimit}
	ask := func(method, path string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+l.Addr().String()+path, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(req)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	if status, body := ask("GET", "/readyz"); status != 200 {
		t.Fatalf("/readyz before the end: %d %s", status, body)
	}
	waiting := make(chan int, 1)
	go func() {
		answer, err := client.Post("http://"+l.Addr().String()+"/v1/topics/t/claim?wait=50s", "", nil)
		if err != nil {
			t.Error(err)
			waiting <- 0
			return
		}
		answer.Body.Close()
		waiting <- answer.StatusCode
	}()
	(&abused{rig: &rig{t, store.Store, s}}).awaitWaiting(1)
	end()
	if status := <-waiting; status != http.StatusNoContent {
		t.Errorf("the claim that waited is answered with %d, want 204", status)
	}
	if status, body := ask("GET", "/readyz"); status != 503 {
		t.Errorf("/readyz during the delay: %d %s, want 503", status, body)
	}
	if status, body := ask("PUT", "/v1/topics/t/messages/a"); status != 201 {
		t.Errorf("a push during the delay: %d %s, want 201", status, body)
	}
	select {
	case err := <-done:
		t.Fatalf("Serve returned during the delay: %v", err)
	default:
	}
	store.fail = func(context.Context) error { return fmt.Errorf("the disk is gone: %w", punctual.ErrStoreFailed) }
	if status, body := ask("PUT", "/v1/topics/t/messages/b"); status != 503 {
		t.Errorf("a push when the store has failed: %d %s, want 503", status, body)
	}
	if err := <-done; err != nil {
		t.Errorf("Serve = %v", err)
	}
}

// When the delay is over the port closes, and Serve returns.
func TestDrainDelayEnds(t *testing.T) {
	s := newServer(t, memstore.New(nil), nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := s.Serve(ctx, &ServeOptions{DrainDelay: 10 * time.Millisecond}, l); err != nil {
		t.Errorf("Serve = %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the port is still open: %v", err)
	}
}

// An idle HTTP/2 connection does not hold up the end of the server for the second of net/http, so
// that the next process is there sooner.
func TestIdleConnectionsDoNotHoldUpTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, memstore.New(nil), nil)
		l := newPipes()
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, nil, l) }()
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: protocols, DialContext: l.dial}
		defer transport.CloseIdleConnections()
		answer, err := (&http.Client{Transport: transport}).Get("http://x/readyz")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(answer.Body); err != nil || answer.ProtoMajor != 2 {
			t.Fatalf("HTTP/%d, %v; want HTTP/2", answer.ProtoMajor, err)
		}
		answer.Body.Close()
		synctest.Wait()
		begun := time.Now()
		end()
		if err := <-done; err != nil {
			t.Errorf("Serve = %v", err)
		}
		if took := time.Since(begun); took < farewellTime || took >= time.Second { // by a clock that only moves when all wait
			t.Errorf("Serve returned after %v; want the time of a farewell, and less than the second of net/http", took)
		}
	})
}

// pipes is a listener in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- halfPipe{there}:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// halfPipe is a pipe with a CloseWrite. The sending side of a pipe cannot be closed alone, so
// CloseWrite closes the whole pipe.
type halfPipe struct{ net.Conn }

func (p halfPipe) CloseWrite() error { return p.Close() }

// breaking is a listener whose Accept fails once broken is closed.
type breaking struct {
	name   string
	broken chan struct{}
}

func (l *breaking) Accept() (net.Conn, error) {
	<-l.broken
	return nil, fmt.Errorf("%s is broken", l.name)
}

func (l *breaking) Close() error   { return nil }
func (l *breaking) Addr() net.Addr { return &net.UnixAddr{Name: l.name, Net: "unix"} }

// When several listeners fail, Serve returns the errors of all of them.
func TestListenersThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, memstore.New(nil), nil)
		first, second := &breaking{"first", make(chan struct{})}, &breaking{"second", make(chan struct{})}
		drain := s.drain
		s.drain = sync.OnceFunc(func() {
			close(second.broken) // after Serve has heard of the first, and before it shuts down
			synctest.Wait()
			drain()
		})
		close(first.broken)
		err := s.Serve(t.Context(), nil, first, second)
		for _, want := range []string{"first is broken", "second is broken"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("serve: %v; want it to say that the %s", err, want)
			}
		}
	})
}
