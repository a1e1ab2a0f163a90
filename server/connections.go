package server

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

// connections are the open connections of all listeners. When there are as many as may be, one without a request is closed for a new
// one. That is the oldest on which nobody was let in yet, or else the one that has been without a request for longest. Of those on which
// somebody was let in a client may have as many as are free, as with shares.
type connections struct {
	limit  int
	shared bool // clients are told apart

	mu        sync.Mutex
	open      int            // guarded by mu
	known     int            // guarded by mu: those on which somebody was let in
	of        map[string]int // guarded by mu: known ones by client
	strangers list.List      // guarded by mu: of *countedConn, those on which nobody was let in, oldest first
	idle      list.List      // guarded by mu: of *countedConn, known ones without a request, longest first
}

// countedConn is a connection that is counted until it is closed. Its fields are guarded by connections.mu.
type countedConn struct {
	net.Conn
	in     *connections
	place  *list.Element // in the list of strangers or of idle ones, nil in neither
	known  bool          // somebody was let in
	client string        // who was let in last
	closed bool
}

// take counts a new connection, and closes another one if there is no room. It returns nil when all have requests.
func (cs *connections) take(conn net.Conn) *countedConn {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.open >= cs.limit && !cs.closeOne(func(*countedConn) bool { return true }) {
		return nil
	}
	c := &countedConn{Conn: conn, in: cs}
	c.place = cs.strangers.PushBack(c)
	cs.open++
	return c
}

// closeOne closes the connection that can best be spared of those that may be, and tells whether there was one. The caller holds mu.
func (cs *connections) closeOne(may func(*countedConn) bool) bool {
	for _, l := range []*list.List{&cs.strangers, &cs.idle} {
		for e := l.Front(); e != nil; e = e.Next() {
			if c := e.Value.(*countedConn); may(c) {
				cs.remove(c)
				_ = c.Conn.Close() // whoever reads from it learns of that
				return true
			}
		}
	}
	return false
}

// remove stops counting a connection. The caller holds mu.
func (cs *connections) remove(c *countedConn) {
	if c.closed {
		return
	}
	c.closed = true
	cs.open--
	cs.unlist(c)
	cs.forget(c)
}

// unlist is called with mu held.
func (cs *connections) unlist(c *countedConn) {
	if c.place == nil {
		return
	}
	if c.known {
		cs.idle.Remove(c.place)
	} else {
		cs.strangers.Remove(c.place)
	}
	c.place = nil
}

// forget counts a connection no more for the client that was let in. The caller holds mu.
func (cs *connections) forget(c *countedConn) {
	if !c.known {
		return
	}
	c.known = false
	cs.known--
	if cs.of[c.client]--; cs.of[c.client] == 0 {
		delete(cs.of, c.client)
	}
}

// letIn notes that a client was let in on a connection. When that is one more than the client may have, the client's longest idle
// connection is closed, and without one it is an ErrOverloaded.
func (cs *connections) letIn(c *countedConn, client string) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.closed || c.known && c.client == client {
		return nil
	}
	cs.unlist(c)
	cs.forget(c)
	if cs.shared && cs.of[client]+1 > cs.limit-cs.known-1 && !cs.closeOne(func(other *countedConn) bool { return other.known && other.client == client }) {
		c.place = cs.strangers.PushBack(c)
		return &refusal{
			status: http.StatusServiceUnavailable, header: http.Header{"Connection": {"close"}},
			err: fmt.Errorf("the client has %d connections with requests, as many as are free for others: %w", cs.of[client], punctual.ErrOverloaded),
		}
	}
	if cs.of == nil {
		cs.of = make(map[string]int)
	}
	c.known, c.client = true, client
	cs.known++
	cs.of[client]++
	return nil
}

// changed is part of http.Server.ConnState.
func (cs *connections) changed(conn net.Conn, state http.ConnState) {
	c := counted(conn)
	if c == nil {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	switch {
	case c.closed || !c.known:
	case state != http.StateIdle:
		cs.unlist(c)
	case c.place == nil:
		c.place = cs.idle.PushBack(c)
	}
}

// counted is the counted connection below one of TLS, or the connection itself; nil when it is another one.
func counted(conn net.Conn) *countedConn {
	for {
		switch c := conn.(type) {
		case *countedConn:
			return c
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

type connKey struct{}

// withConn is http.Server.ConnContext.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, counted(conn))
}

// connOf is the connection that a request came on, nil when Serve did not accept it.
func connOf(r *http.Request) *countedConn {
	c, _ := r.Context().Value(connKey{}).(*countedConn)
	return c
}

// Close closes the connection.
func (c *countedConn) Close() error {
	c.in.mu.Lock()
	c.in.remove(c)
	c.in.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite closes the sending side, where there are two.
func (c *countedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// boundedListener turns connections beyond the limit away.
type boundedListener struct {
	net.Listener
	count     *connections
	speaksTLS bool
}

// Accept returns the next connection within the limit.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.count.take(conn); c != nil {
			return c, nil
		}
		l.turnAway(conn)
	}
}

// turnAway says why the connection is closed, as far as that fits without waiting.
func (l *boundedListener) turnAway(conn net.Conn) {
	defer conn.Close()
	if l.speaksTLS || conn.SetDeadline(time.Now().Add(time.Millisecond)) != nil {
		return
	}
	const answer = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
	if _, err := io.WriteString(conn, answer); err != nil {
		return
	}
}
