package redisstore

import (
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// proxy stands between a store and a server as a load balancer does, which forgets quiet
// connections and tells neither side.
type proxy struct {
	listener net.Listener
	server   string
	work     sync.WaitGroup

	mu    sync.Mutex
	pipes []*pipe // guarded by mu
}

// pipe is one connection through the proxy.
type pipe struct {
	front, back net.Conn
	mu          sync.Mutex
	frozen      bool // guarded by mu: what arrives is thrown away, and nothing is closed
}

func startProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, server: server}
	p.work.Go(p.accept)
	t.Cleanup(p.stop)
	return p
}

func (p *proxy) accept() {
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
		c := &pipe{front: front, back: back}
		p.mu.Lock()
		p.pipes = append(p.pipes, c)
		p.mu.Unlock()
		p.work.Go(func() { c.carry(front, back) })
		p.work.Go(func() { c.carry(back, front) })
	}
}

func (c *pipe) carry(to io.Writer, from io.Reader) {
	defer c.end()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		c.mu.Lock()
		frozen := c.frozen
		c.mu.Unlock()
		if frozen {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// end closes both sides, but not of a connection that was forgotten: there the client has to
// notice by itself.
func (c *pipe) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.frozen {
		c.front.Close()
		c.back.Close()
	}
}

// freeze forgets all connections of this moment.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.pipes {
		c.mu.Lock()
		c.frozen = true
		c.mu.Unlock()
	}
}

func (p *proxy) stop() {
	p.listener.Close()
	p.mu.Lock()
	for _, c := range p.pipes {
		c.front.Close()
		c.back.Close()
	}
	p.mu.Unlock()
	p.work.Wait()
}

// T06: connections that are dead at the other end while this one believes in them, those of
// commands and that of the hints, heal by themselves.
func TestClassic_T06_HalfOpenConnections(t *testing.T) {
	server := redistest.Start(t)
	p := startProxy(t, server.Addr)
	clients := func() redis.UniversalClient {
		c := redis.NewClient(&redis.Options{Addr: p.listener.Addr().String(), ReadTimeout: time.Second})
		closeAtEnd(t, c.Close)
		return c
	}
	// The server goes on believing in old subscriptions, so their number only grows.
	subscriptions := func() int { return subscribers(t, server, "punctual:{orders#0}:hint") }
	hasty := func(s *Store) { s.waits.hints.pingEvery = 200 * time.Millisecond }
	troubleFor(t, clients, hasty, func() {
		for range 3 {
			before := await(subscriptions, 1)
			pushedMore(t, server)
			p.freeze()
			pushedMore(t, server)
			await(subscriptions, before+1)
		}
	})
}

// await waits until a number is at least so high.
func await(number func() int, least int) int {
	for {
		if n := number(); n >= least {
			return n
		}
		time.Sleep(time.Millisecond)
	}
}

func subscribers(t *testing.T, server *redistest.Server, channel string) int {
	t.Helper()
	reply := strings.Fields(do(t, server, "PUBSUB", "NUMSUB", channel))
	n, err := strconv.Atoi(reply[len(reply)-1])
	if err != nil {
		t.Fatalf("PUBSUB NUMSUB: %q", reply)
	}
	return n
}
