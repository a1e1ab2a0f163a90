package remotestore

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
)

// Options adjusts a Store. A nil *Options, and each zero field, means the default.
type Options struct {
	// Token is sent with every request. TokenFile names a file that holds it, which is read again when the server refuses it.
	// At most one of them. Over http to another machine neither is sent unless PlaintextToken says so.
	Token, TokenFile string
	PlaintextToken   bool
	// TLS is for https URLs. Default: the system's authorities.
	TLS *tls.Config
	// Timeout is how long one request may take beside the time that a claim waits. Default 10 s.
	Timeout time.Duration
	// RetryFor is how long a call goes on while no server answers it. Default 15 s; less than zero is not at all.
	RetryFor time.Duration
	// Logger gets what the store has to say on its own. Default slog.Default.
	Logger *slog.Logger
	// Name is what this program is called where people look who works on a topic, in at most 128 printable ASCII characters. Default
	// the name of the machine and the number of the process, such as web-3/4711.
	Name string

	// DialUnix, if set, connects to the path of a unix: URL. Default: a connection whose other end runs as the same
	// user or root.
	DialUnix func(ctx context.Context, path string) (net.Conn, error)
}

// Store is a store at one or several servers. All methods are safe for concurrent use.
type Store struct {
	opt       Options
	endpoints []*endpoint
	preferred atomic.Int32 // the endpoint that answered last
	sender    string       // begins the keys of this store's requests
	requests  atomic.Uint64
	token     token
	clock     estimate
	answered  answered

	// Of the server that was reached when the store was opened.
	durability punctual.Durability
	limits     wire.Limits
	repeats    time.Duration

	closing context.Context // ends with Close
	close   context.CancelFunc

	mu      sync.Mutex
	closed  bool           // guarded by mu
	running sync.WaitGroup // calls and what they left to do; grows only while not closed
}

// Open returns the store of the servers at urls: http://HOST:PORT, https://HOST:PORT, each with a path if the server is
// mounted under one, or unix:PATH. They serve the same store; one that cannot be reached is
// replaced by the next. Open asks the first that answers what it is.
//
// Errors: ErrInvalid for a URL, token or answer that cannot be; ErrUnreachable when no server answers; what the server
// refuses, such as ErrUnauthenticated.
func Open(ctx context.Context, urls []string, o *Options) (*Store, error) {
	s := &Store{sender: rand.Text()[:16]}
	if o != nil {
		s.opt = *o
	}
	if s.opt.Timeout <= 0 {
		s.opt.Timeout = 10 * time.Second
	}
	if s.opt.RetryFor == 0 {
		s.opt.RetryFor = 15 * time.Second
	}
	if s.opt.Logger == nil {
		s.opt.Logger = slog.Default()
	}
	if s.opt.Name == "" {
		s.opt.Name = wire.OwnName()
	}
	if err := wire.CheckConsumerName(s.opt.Name); err != nil {
		return nil, fmt.Errorf("open remote store: %w", err)
	}
	s.closing, s.close = context.WithCancel(context.Background())
	err := s.token.open(&s.opt)
	if err == nil {
		s.endpoints, err = s.parseURLs(urls)
	}
	if err == nil {
		err = s.greet(ctx)
	}
	if err != nil {
		s.hangUp()
		return nil, fmt.Errorf("open remote store: %w", err)
	}
	return s, nil
}

// parseURLs makes the endpoints.
func (s *Store) parseURLs(urls []string) ([]*endpoint, error) {
	if len(urls) == 0 {
		return nil, fmt.Errorf("no URL of a server is given: %w", punctual.ErrInvalid)
	}
	var out []*endpoint
	for _, text := range urls {
		e, err := s.parseURL(strings.TrimSpace(text))
		if err != nil {
			return out, err
		}
		out = append(out, e)
	}
	return out, nil
}

// parseURL makes the endpoint of one URL. Errors never repeat a password.
func (s *Store) parseURL(text string) (*endpoint, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		path = strings.TrimPrefix(path, "//")
		if path == "" {
			return nil, fmt.Errorf("URL \"unix:\" names no socket: %w; use unix:PATH", punctual.ErrInvalid)
		}
		full, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("URL unix:%s: %w", path, err)
		}
		return s.unixEndpoint(full), nil
	}
	if kind, _, _ := strings.Cut(text, ":"); opensKind(kind) != "" {
		return nil, fmt.Errorf("%s: is no URL of a server: %w; use %s, or the URL of a 'punctual serve' over it", kind, punctual.ErrInvalid, opensKind(kind))
	}
	u, err := url.Parse(text)
	if err != nil {
		if e := (*url.Error)(nil); errors.As(err, &e) {
			err = e.Err // without the text
		}
		return nil, fmt.Errorf("URL of a server: %w: %w; use http://HOST:PORT, https://HOST:PORT or unix:PATH", punctual.ErrInvalid, err)
	}
	switch {
	case u.User != nil:
		return nil, fmt.Errorf("URL of server %s: a URL is seen by many, so it holds no name or password: %w; use a token", u.Host, punctual.ErrInvalid)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Opaque != "":
		return nil, fmt.Errorf("URL of server %q: %w; use http://HOST:PORT, https://HOST:PORT or unix:PATH, and sharedstore.Open for a directory", text, punctual.ErrInvalid)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("URL of server %s: it has a query or fragment: %w", u.Host, punctual.ErrInvalid)
	case u.Scheme == "http" && s.token.set() && !s.opt.PlaintextToken && !loopback(u.Hostname()):
		return nil, fmt.Errorf("URL of server %s: whoever listens on the way would read the token: %w; use https, or allow it with PlaintextToken", u.Host, punctual.ErrInvalid)
	}
	base := u.Scheme + "://" + u.Host + strings.TrimSuffix(u.EscapedPath(), "/")
	return s.tcpEndpoint(base, u), nil
}

// opensKind is what opens a store of a kind that the command line knows and this package does not, or nothing.
func opensKind(kind string) string {
	switch kind {
	case "disk":
		return "sharedstore.Open(ctx, PATH, nil)"
	case "mem":
		return "memstore.New(nil)"
	case "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster":
		return "redisstore.OpenURL"
	case "postgres", "postgresql":
		return "pgstore.OpenURL"
	}
	return ""
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// greet asks the servers in turn, once, what they are.
func (s *Store) greet(ctx context.Context) error {
	var all error
	for i, e := range s.endpoints {
		info, err := s.ask(ctx, e)
		if err != nil {
			all = errors.Join(all, err)
			if !errors.Is(err, punctual.ErrUnreachable) {
				return all
			}
			continue
		}
		s.preferred.Store(int32(i))
		s.durability, s.limits, s.repeats = info.Durability, info.Limits, time.Duration(info.Repeats)
		if s.repeats <= 0 {
			return fmt.Errorf("%s keeps no answers of requests: %w; it is older than this program needs", e.name, punctual.ErrUnsupported)
		}
		return s.clock.read(ctx, s)
	}
	return all
}

// Close ends waiting claims, waits for the calls under way and closes the connections. It settles nothing, and the store
// at the server stays open. A second one returns nil.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close()
	s.running.Wait()
	s.hangUp()
	return nil
}

func (s *Store) hangUp() {
	s.close()
	for _, e := range s.endpoints {
		e.hangUp()
	}
}

// enter lets a call begin unless the store is closed. The caller owes a s.running.Done.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed()
	}
	s.running.Add(1)
	return nil
}

func errClosed() error { return fmt.Errorf("remote store: %w", punctual.ErrClosed) }

// Durability implements punctual.DurabilityReporter with what the server said when the store was opened. It is empty
// when the server's store does not know.
func (s *Store) Durability() punctual.Durability { return s.durability }

// Repeats implements storekit.Repeater: a call with a storekit.Request reaches the server under the key of that.
func (s *Store) Repeats() time.Duration { return s.repeats }

// newKey names a request.
func (s *Store) newKey() string { return s.sender + "-" + strconv.FormatUint(s.requests.Add(1), 36) }
