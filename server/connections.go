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
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
)

// connections are the open connections of all listeners, at most limit. letIn makes a connection
// known when a client was authenticated on it. At the limit, a connection is closed for each new
// one: the first of strangers, or the first of idle if there are no strangers. If the limit is
// shared, a client may have as many known connections as it leaves free, as with shares.
type connections struct {
	limit  int
	shared bool // the limit is shared between clients, because an Authenticator distinguishes them

	mu        sync.Mutex
	open      int            // guarded by mu: all connections
	known     int            // guarded by mu: known connections
	of        map[string]int // guarded by mu: known connections by client
	strangers list.List      // guarded by mu: of *countedConn, the connections that are not known, first the one that has been so for longest
	idle      list.List      // guarded by mu: of *countedConn, known connections without a request, first the one that has been so for longest
}

// countedConn is a connection that is counted until it is closed. Its fields from place to closed
// are guarded by connections.mu.
type countedConn struct {
	net.Conn
	in     *connections
	place  *list.Element // in connections.strangers or connections.idle, nil if in neither
	known  bool          // letIn has let a client in
	client string        // the client that letIn has let in last
	closed bool

	turn atomic.Int32 // notSaid, answering, between or over
}

// The values of countedConn.turn. A client whose request meets the end of a connection cannot know
// by itself whether the request was carried out. HTTP/2 tells the client (GOAWAY). HTTP/1.1 does
// not, so a connection without TLS that net/http closes between two requests ends with farewell.
// From farewell until the connection is gone no request of it begins, even if net/http has read one
// meanwhile. A connection that closeOne closes ends without farewell.
const (
	notSaid   = iota // no request without TLS has come by HTTP/1.1, so farewell does not apply
	answering        // a request has begun, and its answer is not sent
	between          // all requests are answered
	over             // farewell was said
)

// farewell is the answer to the request that a client may just be sending on a connection that
// ends. By the status 408 other clients know as well that they may send the request again, and
// clients that send none ignore it.
const farewell = "HTTP/1.1 408 Request Timeout\r\n" + wire.HeaderNotBegun + ": 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

// farewellWait bounds the writing of farewell. The buffer of a connection without a request nearly
// always has room for it.
const farewellWait = 50 * time.Millisecond

// begin notes that a request begins. It returns false if farewell has told the client that no
// request begins on this connection any more.
func (c *countedConn) begin(r *http.Request) bool {
	if r.ProtoMajor != 1 || r.TLS != nil {
		return true
	}
	return c.turn.CompareAndSwap(between, answering) || c.turn.CompareAndSwap(notSaid, answering) || c.turn.Load() == answering
}

// sayFarewell writes farewell if the connection is between two requests.
func (c *countedConn) sayFarewell() {
	if c.turn.CompareAndSwap(between, over) && c.Conn.SetWriteDeadline(time.Now().Add(farewellWait)) == nil {
		_, _ = io.WriteString(c.Conn, farewell) // without it the client finds out by its request's key
	}
}

// Write writes to the connection. What net/http writes between two requests is the refusal of a
// malformed one, after which comes no farewell.
func (c *countedConn) Write(data []byte) (int, error) {
	c.turn.CompareAndSwap(between, answering)
	return c.Conn.Write(data)
}

// take counts a new connection, and closes another one if there is no room. It returns nil if all
// open connections are known and have requests.
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

// closeOne closes the first connection that may allows, of strangers and then of idle, and reports
// whether there was one. The caller holds mu.
func (cs *connections) closeOne(may func(*countedConn) bool) bool {
	for _, l := range []*list.List{&cs.strangers, &cs.idle} {
		for e := l.Front(); e != nil; e = e.Next() {
			if c := e.Value.(*countedConn); may(c) {
				cs.remove(c)
				_ = c.Conn.Close() // the goroutine that reads from it gets an error and ends
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

// unlist takes a connection out of its list. The caller holds mu.
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

// forget makes a connection count as not known. The caller holds mu.
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

// letIn makes a connection count as known for a client that was authenticated on it. If the client
// then has more than it may, its longest idle connection is closed. If it has no idle one, letIn
// returns an ErrOverloaded.
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

// changed notes the new state of a connection, as http.Server.ConnState reports it.
func (cs *connections) changed(conn net.Conn, state http.ConnState) {
	c := counted(conn)
	if c == nil {
		return
	}
	if state == http.StateIdle {
		c.turn.CompareAndSwap(answering, between)
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

// counted returns conn itself or the connection below its TLS if that is a countedConn, otherwise
// nil.
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

// withConn puts a connection into the context of its requests. It is used as
// http.Server.ConnContext.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, counted(conn))
}

// connOf returns the connection of a request, nil if Serve has not accepted it.
func connOf(r *http.Request) *countedConn {
	c, _ := r.Context().Value(connKey{}).(*countedConn)
	return c
}

// Close closes the connection, with a farewell where one applies.
func (c *countedConn) Close() error {
	c.sayFarewell()
	c.in.mu.Lock()
	c.in.remove(c)
	c.in.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite closes the sending side, or returns errors.ErrUnsupported if the connection cannot do
// that.
func (c *countedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		c.sayFarewell()
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// boundedListener keeps the connections that it accepts within the limit of count.
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

// turnAway closes a connection, without TLS after an answer of 503. It does not wait for the
// client, so the answer is lost if it cannot be written within a millisecond.
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
