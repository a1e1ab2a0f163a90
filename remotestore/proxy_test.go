package remotestore_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// roughProxy stands between clients and a server and does at random what networks do. It delays
// what it carries, resets connections while a request is on its way, and loses answers that the
// server has given.
type roughProxy struct {
	addr, server string
	listener     net.Listener
	work         sync.WaitGroup // goroutines of the proxy

	connections, delays, resets, lost atomic.Int64

	mu     sync.Mutex
	rng    *rand.Rand            // guarded by mu
	open   map[net.Conn]struct{} // guarded by mu
	closed bool                  // guarded by mu
}

// newRoughProxy starts a roughProxy that ends with the test.
func newRoughProxy(t *testing.T, server string, seed uint64) *roughProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &roughProxy{
		addr: l.Addr().String(), server: server, listener: l,
		rng: rand.New(rand.NewPCG(seed, 0)), open: make(map[net.Conn]struct{}),
	}
	p.work.Go(p.accept)
	t.Cleanup(p.stop)
	return p
}

// String sums up what the proxy has done.
func (p *roughProxy) String() string {
	return fmt.Sprintf("%d connections, %d delays, %d resets of requests, %d answers lost", p.connections.Load(), p.delays.Load(), p.resets.Load(), p.lost.Load())
}

func (p *roughProxy) stop() {
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.listener.Close()
	p.work.Wait()
}

func (p *roughProxy) accept() {
	for {
		front, err := p.listener.Accept()
		if err != nil {
			return // stopped
		}
		back, err := net.Dial("tcp", p.server)
		if err != nil {
			reset(front) // as if the server had reset the connection
			continue
		}
		p.connections.Add(1)
		if !p.enter(front, back) {
			return
		}
		p.work.Go(func() { p.carry(front, back, &p.resets) })
		p.work.Go(func() { p.carry(back, front, &p.lost) })
	}
}

// enter notes the two ends of a connection, and closes them if the proxy has stopped.
func (p *roughProxy) enter(ends ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range ends {
		if p.closed {
			c.Close()
		}
		p.open[c] = struct{}{}
	}
	return !p.closed
}

// One in delayOneIn pieces of a request or an answer is delayed, by delayMost at most, and one in
// resetOneIn is thrown away with its connection.
const (
	delayOneIn = 20
	resetOneIn = 100
	delayMost  = 50 * time.Millisecond
)

// carry carries one direction until either end is gone. It counts in thrown the pieces that it
// throws away.
func (p *roughProxy) carry(from, to net.Conn, thrown *atomic.Int64) {
	defer p.end(from, to)
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			delay, throw := p.choose()
			if delay > 0 {
				p.delays.Add(1)
				time.Sleep(delay)
			}
			if throw {
				thrown.Add(1)
				reset(from)
				reset(to)
				return
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

func (p *roughProxy) choose() (delay time.Duration, throw bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rng.IntN(delayOneIn) == 0 {
		delay = time.Duration(1 + p.rng.Int64N(int64(delayMost)))
	}
	return delay, p.rng.IntN(resetOneIn) == 0
}

func (p *roughProxy) end(ends ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range ends {
		c.Close()
		delete(p.open, c)
	}
}

// reset closes a connection so that the other end sees a reset.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // it fails only for a connection that is closed already
	}
	c.Close()
}
