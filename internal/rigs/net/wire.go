// Package netrig is a network between clients and a server that a test can cut.
package netrig

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// startTimeout bounds how long a test waits for something to happen; it only bounds hangs.
const startTimeout = time.Minute

// Wire carries bytes between those who connect to it and a server. Either direction can be cut for
// all connections. What is sent during a cut arrives when the cut ends, as TCP sends it again. It
// arrives even if its sender has given up by then.
type Wire struct {
	// Addr is the host and port for clients and replicas, in place of the server's.
	Addr string

	server   string
	listener net.Listener
	work     sync.WaitGroup // goroutines of the wire; stop waits for them
	stopped  chan struct{}  // closed by stop

	mu    sync.Mutex
	conns []net.Conn           // guarded by mu: all that were ever made
	cuts  [2]chan struct{}     // guarded by mu: closed at the end of a cut, by direction; nil when there is none
	held  [2]map[*carrier]bool // guarded by mu: who has something to carry that a cut holds up
	moved [2]chan struct{}     // guarded by mu: closed when held or lost grows
	// carriers are all that were ever made, and lost counts those of forgotten connections that had
	// something to carry.
	carriers []*carrier // guarded by mu
	lost     [2]int     // guarded by mu
}

// Direction is that of bytes on a wire.
type Direction int

// The directions.
const (
	ToServer Direction = iota
	FromServer
)

func (d Direction) String() string { return [...]string{"to the server", "from the server"}[d] }

// carrier carries bytes in one direction of a connection.
type carrier struct {
	from, to  net.Conn
	d         Direction
	forgotten bool // guarded by Wire.mu: nothing passes any more, and neither side learns of it
}

// StartWire starts a wire to the server at an address for one test.
func StartWire(t testing.TB, server string) *Wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &Wire{Addr: l.Addr().String(), server: server, listener: l, stopped: make(chan struct{})}
	for d := range w.held {
		w.held[d], w.moved[d] = make(map[*carrier]bool), make(chan struct{})
	}
	w.work.Go(w.accept)
	t.Cleanup(w.stop)
	return w
}

// Cut cuts a direction until Mend.
func (w *Wire) Cut(d Direction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cuts[d] == nil {
		w.cuts[d] = make(chan struct{})
	}
}

// Mend ends a cut.
func (w *Wire) Mend(d Direction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cuts[d] != nil {
		close(w.cuts[d])
		w.cuts[d] = nil
		clear(w.held[d])
	}
}

// Forget has a connection carry nothing any more, and neither side learn of that, as when a router
// between them was replaced. port is the one from which the wire connected to the server, so the
// server knows the connection by it. Forget reports whether there is one.
func (w *Wire) Forget(port int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := false
	for _, c := range w.carriers {
		if c.portAtServer() == port {
			c.forgotten, found = true, true
		}
	}
	return found
}

// portAtServer is that of the wire's side of the connection to the server.
func (c *carrier) portAtServer() int {
	back := c.from
	if c.d == ToServer {
		back = c.to
	}
	return back.LocalAddr().(*net.TCPAddr).Port
}

// AwaitLost returns when so many forgotten connections have lost something in a direction since the
// wire was started.
func (w *Wire) AwaitLost(t testing.TB, d Direction, n int) {
	t.Helper()
	w.await(t, d, n, "have lost something", func() int { return w.lost[d] })
}

// AwaitHeld returns when so many connections have something that cannot pass a cut.
func (w *Wire) AwaitHeld(t testing.TB, d Direction, n int) {
	t.Helper()
	w.await(t, d, n, "have something to carry", func() int { return len(w.held[d]) })
}

// await returns when count, which is called with mu held, is at least n.
func (w *Wire) await(t testing.TB, d Direction, n int, what string, count func() int) {
	t.Helper()
	limit := time.After(startTimeout)
	for {
		w.mu.Lock()
		got, moved := count(), w.moved[d]
		w.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-moved:
		case <-limit:
			t.Fatalf("waited %v in vain: %d connections %s %v; want %d", startTimeout, got, what, d, n)
		}
	}
}

func (w *Wire) accept() {
	for {
		front, err := w.listener.Accept()
		if err != nil {
			return // stopped
		}
		back, err := net.Dial("tcp", w.server)
		if err != nil {
			front.Close()
			continue
		}
		w.add(front, back)
	}
}

func (w *Wire) add(front, back net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, front, back)
	select {
	case <-w.stopped: // stop may have read conns already, and would not end these
		front.Close()
		back.Close()
	default:
	}
	for _, c := range []*carrier{{from: front, to: back, d: ToServer}, {from: back, to: front, d: FromServer}} {
		w.carriers = append(w.carriers, c)
		w.work.Go(func() { w.carry(c) })
	}
}

// carry carries bytes until one side has closed, which the other one learns behind all that was
// sent.
func (w *Wire) carry(c *carrier) {
	defer c.to.Close()
	piece := make([]byte, 64<<10)
	for {
		n, err := c.from.Read(piece)
		if !w.passes(c) {
			return
		}
		if n > 0 {
			if _, err := c.to.Write(piece[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// passes waits until the direction of a carrier is not cut; it tells whether the wire is there
// still.
func (w *Wire) passes(c *carrier) bool {
	for {
		w.mu.Lock()
		cut := w.cuts[c.d]
		switch {
		case c.forgotten:
			w.lost[c.d]++
			w.grew(c.d)
			cut = w.stopped
		case cut != nil && !w.held[c.d][c]:
			w.held[c.d][c] = true
			w.grew(c.d)
		}
		w.mu.Unlock()
		if cut == nil {
			return true
		}
		select {
		case <-cut:
		case <-w.stopped:
			return false
		}
	}
}

// grew tells those who wait for a number. Called with mu held.
func (w *Wire) grew(d Direction) {
	close(w.moved[d])
	w.moved[d] = make(chan struct{})
}

func (w *Wire) stop() {
	close(w.stopped)
	w.listener.Close()
	w.mu.Lock()
	conns := slices.Clone(w.conns)
	w.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	w.work.Wait()
}
