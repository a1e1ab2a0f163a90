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

// endpoint is one URL of a server, with what is known of that server.
type endpoint struct {
	base string // in front of every path
	name string // in errors
	// client speaks the version of HTTP that TLS agrees on, without TLS only HTTP/2, or through a
	// proxy without TLS HTTP/1.1. http1 speaks HTTP/1.1; it is nil where client is used for all
	// requests.
	client, http1 *http.Client
	// spoken says which of the two is used for which requests. It is nil until learn has found out
	// what the server speaks, and again after forget.
	spoken atomic.Pointer[spoken]
	// instance names the memory in which the server at this URL keeps answers, as its last answer
	// said; nil before the first answer. A server that is started anew has another memory.
	instance atomic.Pointer[string]
	// asked reports that the server has said what it can do: compact that it knows the compact
	// form, and farewell that it says which requests it has not begun when it ends an HTTP/1.1
	// connection.
	asked, compact, farewell atomic.Bool
}

// spoken has the client for each kind of request to an endpoint.
type spoken struct {
	changes *http.Client // for all other requests
	anew    *http.Client // for claims and settlements (the constant anew), and for all requests with a key when the server says a farewell
}

func newClient(t *http.Transport) *http.Client {
	return &http.Client{
		Transport: t,
		// A Punctual server does not redirect, so a redirect comes from somebody else, who must not
		// get the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// unixEndpoint is tcpEndpoint for a socket in the file system, without TLS.
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

// tcpEndpoint returns the endpoint of an http or https URL. With TLS it speaks the version that
// both sides agree on. Without TLS, and if no proxy is configured, it uses HTTP/2 and HTTP/1.1 side
// by side where the server speaks both.
//
// HTTP/1.1 costs both sides less, and no request waits behind the bytes of another one. But when a
// server ends an HTTP/2 connection, it says which requests it has not begun, and the transport
// sends those again. With HTTP/1.1 a request that is sent while the server ends an idle connection
// may or may not have been carried out, unless the server says a farewell. So HTTP/1.1 is used for
// claims and settlements, which may be carried out a second time, and for all requests with a key
// when the server says a farewell.
func (s *Store) tcpEndpoint(base string, u *url.URL) *endpoint {
	t := s.tcpTransport()
	e := &endpoint{base: base, name: base, client: newClient(t)}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if u.Scheme == "http" && proxy == nil && err == nil { // each request has the same error and returns it
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

const (
	// dialTimeout bounds how long it may take to connect.
	dialTimeout = 5 * time.Second
	// idleTimeout is after how long an unused connection is closed: earlier than servers and most
	// proxies do it.
	idleTimeout = 45 * time.Second
	// idleConns is how many unused connections are kept for the next calls.
	idleConns = 256
	// maxFrame is the largest HTTP/2 frame that a server may send, so that it can answer a batch
	// with one frame. The default of net/http is 16 KiB.
	maxFrame = 1 << 20
)

// keepAlive makes the operating system notice within half a minute that the other machine is gone,
// also while a claim waits.
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

// choose returns the client for the next request. When it is not known what the server speaks,
// choose finds out first, by requests without body and token, because a server that does not know
// HTTP/2 could take the bytes after the preface for anything.
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

// learn finds out whether the server speaks HTTP/2, HTTP/1.1 or both.
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
	// HTTP/2 failed, perhaps only because the server was just starting. So it is tried once more
	// before HTTP/1.1 is used for all.
	if e.greets(ctx, e.http1) == nil && e.greets(ctx, e.client) != nil {
		return &spoken{changes: e.http1, anew: e.http1}, nil
	}
	return nil, err
}

// greets sends a request for PathInfo by a client. It returns nil when any answer comes.
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

// forget makes choose find out again what the server speaks, because after a failure another server
// may listen there.
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
