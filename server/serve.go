package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

// ServeOptions configures Serve. A nil *ServeOptions and each zero field mean the default.
type ServeOptions struct {
	// TLS, if not nil, is used on the listeners that are not unix sockets. MinVersion 0 means TLS
	// 1.3.
	TLS *tls.Config
	// ExposeWithoutTLSAndTokens lets Serve listen where other machines can connect although there
	// is no TLS or no Authenticator, so that anyone there can read and change everything. Default:
	// Serve refuses that with ErrForbidden.
	ExposeWithoutTLSAndTokens bool
	// MaxConnections bounds the open connections. At the limit one connection is closed for each
	// new one: the oldest on which no client was authenticated, and if there is none, the one that
	// has been without a request for longest. If all were authenticated and have requests, the new
	// one is closed, without TLS after an answer with 503. With an Authenticator one client may
	// have as many connections as it leaves free, so at most half. Default 16384.
	MaxConnections int
	// HeaderTime bounds how long the head of a request may take, IdleTime how long a connection
	// stays open without a request. Default 10 s and 2 min.
	HeaderTime, IdleTime time.Duration
	// MaxHeader bounds the bytes of a request's head. Default 64 KiB.
	MaxHeader int
	// DrainDelay is how long connections are still accepted after ctx has ended. During that time
	// /readyz fails, so that load balancers send requests elsewhere before the port is closed. The
	// delay ends early if the store or a listener fails. Default 0.
	DrainDelay time.Duration
	// DrainTime bounds how long requests may go on after DrainDelay. Default 30 s.
	DrainTime time.Duration
}

func (o *ServeOptions) withDefaults() ServeOptions {
	var out ServeOptions
	if o != nil {
		out = *o
	}
	orDefault(&out.MaxConnections, 16384)
	orDefault(&out.HeaderTime, 10*time.Second)
	orDefault(&out.IdleTime, 2*time.Minute)
	orDefault(&out.MaxHeader, 64<<10)
	orDefault(&out.DrainTime, 30*time.Second)
	return out
}

// Serve answers requests on the listeners with HTTP/1.1 and HTTP/2, also without TLS (h2c). It
// takes over the listeners and closes them. When ctx ends, the server drains (see Drain), requests
// that Drain does not end are finished, and Serve returns nil. If requests go on for longer than
// ServeOptions.DrainTime, they are cut off and Serve returns an error. If a listener fails, Serve
// drains at once and returns the errors of all listeners that have failed by the end. If MayServe
// refuses an address, Serve returns the error without serving.
func (s *Server) Serve(ctx context.Context, o *ServeOptions, listeners ...net.Listener) error {
	options := o.withDefaults()
	for _, l := range listeners {
		if err := s.MayServe(l.Addr(), &options); err != nil {
			return errors.Join(err, closeAll(listeners))
		}
	}
	hs := s.httpServer(&options)
	idle := &idleConns{of: make(map[net.Conn]bool)}
	open := &connections{limit: options.MaxConnections, shared: s.options.Authenticator != nil}
	hs.ConnContext = withConn
	hs.ConnState = func(c net.Conn, state http.ConnState) {
		idle.changed(c, state)
		open.changed(c, state)
	}
	encrypted := hs.TLSConfig != nil // read before the first Serve, which fills the field in
	failed := make(chan error, len(listeners))
	var serving sync.WaitGroup
	for _, l := range listeners {
		bounded := &boundedListener{Listener: l, count: open, speaksTLS: encrypted && l.Addr().Network() != "unix"}
		serving.Go(func() {
			var err error
			if bounded.speaksTLS {
				err = hs.ServeTLS(bounded, "", "")
			} else {
				err = hs.Serve(bounded)
			}
			if !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve %s: %w", l.Addr(), err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.Drain()
	if err == nil {
		err = s.awaitBalancers(options.DrainDelay, failed)
	}
	ending, end := context.WithTimeout(context.WithoutCancel(ctx), options.DrainTime)
	defer end()
	timer := time.AfterFunc(farewellTime, idle.close)
	defer timer.Stop()
	if e := hs.Shutdown(ending); e != nil {
		err = errors.Join(err, fmt.Errorf("requests were still under way after %v: %w", options.DrainTime, e), hs.Close())
	}
	serving.Wait()
	close(failed)
	for e := range failed { // of the listeners that failed after the first
		err = errors.Join(err, e)
	}
	s.Close()
	return err
}

func closeAll(listeners []net.Listener) error {
	var err error
	for _, l := range listeners {
		if e := l.Close(); !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// awaitBalancers waits for delay, during which a draining server still answers requests. It returns
// early if the store or a listener fails.
func (s *Server) awaitBalancers(delay time.Duration, failed <-chan error) error {
	if delay <= 0 {
		return nil
	}
	s.log.Info("draining: /readyz fails, and requests are answered still", "for", delay)
	over := time.NewTimer(delay)
	defer over.Stop()
	select {
	case err := <-failed:
		return err
	case <-s.storeFailed.Done():
	case <-over.C:
	}
	return nil
}

// MayServe returns an ErrForbidden for an address that other machines can reach, unless there are
// TLS and an Authenticator, or the options expose the server without them. Serve calls it for each
// listener.
func (s *Server) MayServe(addr net.Addr, o *ServeOptions) error {
	if o == nil {
		o = &ServeOptions{}
	}
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() || o.ExposeWithoutTLSAndTokens {
		return nil
	}
	if o.TLS != nil && s.options.Authenticator != nil {
		return nil
	}
	return fmt.Errorf("listen on %s: other machines reach this address, and without TLS and tokens anyone there can read and change everything: "+
		"configure both, or listen on 127.0.0.1, or expose it without them explicitly: %w", addr, punctual.ErrForbidden)
}

func (s *Server) httpServer(o *ServeOptions) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	hs := &http.Server{
		Handler: s, Protocols: protocols, ReadHeaderTimeout: o.HeaderTime, IdleTimeout: o.IdleTime, MaxHeaderBytes: o.MaxHeader,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 1000, SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, WriteByteTimeout: s.limits.WriteTime,
		},
	}
	if o.TLS != nil {
		hs.TLSConfig = o.TLS.Clone()
		if hs.TLSConfig.MinVersion == 0 {
			hs.TLSConfig.MinVersion = tls.VersionTLS13
		}
	}
	return hs
}

// farewellTime is how long HTTP/2 connections without a request stay open when the server ends, so
// that clients read the message by which net/http tells them to send no further requests (GOAWAY).
const farewellTime = 100 * time.Millisecond

// idleConns are the connections without a request. After GOAWAY net/http keeps HTTP/2 connections
// open for a second. A store with one owner, such as a directory, would serve nobody in that
// second, because the next process cannot open it yet. So idleConns closes the sending side of
// these connections earlier, upon which clients that have read everything close the connection.
type idleConns struct {
	mu      sync.Mutex
	of      map[net.Conn]bool // guarded by mu
	closing bool              // guarded by mu
}

// changed notes the new state of a connection, as http.Server.ConnState reports it.
func (i *idleConns) changed(c net.Conn, state http.ConnState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case state != http.StateIdle:
		delete(i.of, c)
	case i.closing:
		closeWrite(c)
	default:
		i.of[c] = true
	}
}

// close closes the sending side of all idle connections, and of connections that become idle later.
func (i *idleConns) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closing = true
	for c := range i.of {
		closeWrite(c)
	}
}

// closeWrite closes the sending side of a connection. A connection that does not support that is
// closed by net/http later.
func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // it may be closed already
	}
}
