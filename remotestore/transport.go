package remotestore

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual/internal/unixsocket"
	"github.com/punctualmq/punctual/internal/wire"
)

// endpoint is one URL.
type endpoint struct {
	base string // in front of every path
	name string // in errors
	// client speaks what TLS agrees on, or HTTP/2 alone. http1 speaks HTTP/1.1; it is nil where client is for all requests.
	client, http1 *http.Client
	// spoken says which of the two is for which requests; nil before it is known what the server speaks.
	spoken atomic.Pointer[spoken]
	// instance is the memory of answers that the server at this URL has, as it said last; nil before it said anything.
	instance atomic.Pointer[string]
	// asked tells that the server was asked what it is, compact that it then knew the compact form, and farewell that it says which
	// requests it has not begun when it ends an HTTP/1.1 connection.
	asked, compact, farewell atomic.Bool
}

// spoken are the clients for an endpoint's requests.
type spoken struct {
	changes *http.Client // for what is carried out once
	anew    *http.Client // for what can be carried out again, or is told apart by a farewell
}

func newClient(t *http.Transport) *http.Client {
	return &http.Client{
		Transport: t,
		// A server does not redirect, and whoever does may not have the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// unixEndpoint speaks as tcpEndpoint does without TLS.
func (s *Store) unixEndpoint(path string) *endpoint {
	dial := s.opt.DialUnix
	if dial == nil {
		dial = unixsocket.Dial
	}
	t, t1 := newTransport(), newTransport()
	t.Protocols = unencryptedHTTP2()
	t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, path) }
	t1.DialContext = t.DialContext
	return &endpoint{base: "http://localhost", name: "unix:" + path, client: newClient(t), http1: newClient(t1)}
}

// tcpEndpoint speaks what TLS agrees on. Without TLS, and if no proxy is configured, it speaks HTTP/2 where the server does.
//
// HTTP/1.1 costs both sides less, and nothing waits behind another request's bytes. But at the end of an HTTP/2 connection the
// server says which requests it has not begun, and the transport sends those again. An HTTP/1.1 request that meets the end of an
// idle connection may have been carried out, unless the server says a farewell. So HTTP/1.1 is for what can be carried out again,
// and with a farewell for all requests that have a key.
func (s *Store) tcpEndpoint(base string, u *url.URL) *endpoint {
	t := s.tcpTransport()
	e := &endpoint{base: base, name: base, client: newClient(t)}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if u.Scheme == "http" && proxy == nil && err == nil { // the transport meets that error, too
		t.Protocols = unencryptedHTTP2()
		e.http1 = newClient(s.tcpTransport())
	}
	return e
}

func (s *Store) tcpTransport() *http.Transport {
	t := newTransport()
	t.Proxy = http.ProxyFromEnvironment
	t.TLSClientConfig, t.TLSHandshakeTimeout, t.ForceAttemptHTTP2 = s.opt.TLS.Clone(), dialTimeout, true
	t.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}).DialContext
	return t
}

// The rules of connections.
const (
	// dialTimeout bounds the making of one.
	dialTimeout = 5 * time.Second
	// idleTimeout ends one that nobody uses, before the server or a proxy does.
	idleTimeout = 45 * time.Second
	// idleConns are kept for the next calls.
	idleConns = 256
	// maxFrame lets a server answer a batch with one frame. The default is 16 KiB.
	maxFrame = 1 << 20
)

// keepAlive finds out within half a minute that the other machine is gone, also while a claim waits.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

func newTransport() *http.Transport {
	return &http.Transport{
		MaxIdleConns: idleConns, MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleTimeout, DisableCompression: true,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second, MaxReadFrameSize: maxFrame},
	}
}

func unencryptedHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// choose returns the client for the next request. It finds out first what the server speaks, by a request without
// body and token. A server that does not know HTTP/2 may read what follows its preface as anything.
func (e *endpoint) choose(ctx context.Context, a again) (*http.Client, error) {
	if e.http1 == nil {
		return e.client, nil
	}
	c := e.spoken.Load()
	if c == nil {
		var err error
		if c, err = e.learn(ctx); err != nil {
			return nil, err
		}
		e.spoken.Store(c)
	}
	if a == anew || a == keyed && e.farewell.Load() {
		return c.anew, nil
	}
	return c.changes, nil
}

// learn finds out what the server speaks.
func (e *endpoint) learn(ctx context.Context) (*spoken, error) {
	err := e.greets(ctx, e.client)
	if err == nil {
		if e.greets(ctx, e.http1) == nil {
			return &spoken{changes: e.client, anew: e.http1}, nil
		}
		return &spoken{changes: e.client, anew: e.client}, nil
	}
	if timeout := net.Error(nil); ctx.Err() != nil || isDial(err) || errors.As(err, &timeout) && timeout.Timeout() {
		return nil, err
	}
	// The second attempt at HTTP/2 meets a server that was only being started anew.
	if e.greets(ctx, e.http1) == nil && e.greets(ctx, e.client) != nil {
		return &spoken{changes: e.http1, anew: e.http1}, nil
	}
	return nil, err
}

// greets returns nil when the server answers anything by this client.
func (e *endpoint) greets(ctx context.Context, c *http.Client) error {
	ctx, end := context.WithTimeout(ctx, dialTimeout)
	defer end()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+wire.PathInfo, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.Do(r)
	if err != nil {
		return withoutURL(err)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	return resp.Body.Close()
}

// forget makes choose find out anew what the server speaks: another one may listen there after a failure.
func (e *endpoint) forget() { e.spoken.Store(nil) }

func isDial(err error) bool {
	op := (*net.OpError)(nil)
	return errors.As(err, &op) && op.Op == "dial"
}

func (e *endpoint) hangUp() {
	e.client.CloseIdleConnections()
	if e.http1 != nil {
		e.http1.CloseIdleConnections()
	}
}
