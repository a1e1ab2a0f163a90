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
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// Options adjusts a Store. A nil *Options, and each zero field, means the default.
type Options struct {
	// Token is sent with every request, except the ones by which the Store finds out which version
	// of HTTP a server speaks. Instead of it, TokenFile may name a file with the token; the file is
	// read again when a server refuses the token. Open refuses http URLs of other machines beside a
	// token, unless PlaintextToken is true.
	Token, TokenFile string
	PlaintextToken   bool
	// TLS is used for https URLs. Default: a configuration that trusts the authorities of the
	// system.
	TLS *tls.Config
	// Timeout is how long one request may take, in addition to the time that a claim waits. Checks
	// and backups have no such bound. Default 10 s.
	Timeout time.Duration
	// RetryFor is how long a call is repeated while no server answers, counted from the first
	// failure. Each server is asked once before that counts, so with less than zero each of them is
	// asked just once, or again at once if it says that it was started anew. Default 15 s.
	RetryFor time.Duration
	// Logger gets what happens outside of calls. Default slog.Default.
	Logger *slog.Logger
	// Name is the name of this program in lists of consumers, in at most 128 printable ASCII
	// characters. Default the name of the machine and the number of the process, such as
	// web-3/4711.
	Name string

	// DialUnix, if not nil, connects to the path of a unix: URL. By default the process at the
	// other end has to run, on Linux, as the same user or as root. For a process that itself runs
	// as root it may also run as the owner of the socket's directory.
	DialUnix func(ctx context.Context, path string) (net.Conn, error)
}

// Store calls the store behind one server, or behind several servers of the same store. All methods
// are safe for concurrent use.
type Store struct {
	opt       Options
	endpoints []*endpoint
	preferred atomic.Int32 // the index of the endpoint that last answered a call with success; the next call goes there first
	sender    string       // the prefix of all keys that this store makes
	requests  atomic.Uint64
	token     token
	clock     estimate
	answered  answered
	abilities abilities

	// These are what the server that answered Open has said of itself. They do not change after
	// that.
	durability punctual.Durability
	limits     wire.Limits
	repeats    time.Duration

	closing context.Context // ends with Close
	close   context.CancelFunc

	calls storekit.Calls // the calls under way, and the releases that claims left behind
}

// Open returns the store behind the servers at urls: http://HOST:PORT or https://HOST:PORT, each
// with a path if the server is mounted under one, or unix:PATH. All of them have to serve the same
// store; a request that does not reach one of them goes to the next. Open asks them in turn until
// one answers, and takes over what it says of its limits and its durability.
//
// Open returns ErrInvalid for a malformed URL, token or name, and for an answer that no Punctual
// server gives, unless its status is 500 or more, as that of a proxy. ErrUnreachable says that no
// server can answer at the moment, ErrUnsupported that a server is too old. Besides, Open returns
// the error of a server that refuses, such as ErrUnauthenticated, and that of ctx if it ends first.
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
	s.calls.Name, s.calls.Logger = "remote store", s.opt.Logger
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

// parseURLs returns an endpoint for each URL.
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

// parseURL returns the endpoint of one URL. Its errors do not contain a password, nor what stands
// behind a "?".
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
	if err != nil { // it is left out, because it quotes a part of the URL
		return nil, fmt.Errorf("URL of server %s is malformed: %w; use http://HOST:PORT, https://HOST:PORT or unix:PATH", shown(text), punctual.ErrInvalid)
	}
	switch {
	case u.User != nil:
		return nil, fmt.Errorf("URL of server %s: a URL is seen by many, so it holds no name or password: %w; use a token", shown(text), punctual.ErrInvalid)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Opaque != "":
		return nil, fmt.Errorf("URL of server %s: %w; use http://HOST:PORT, https://HOST:PORT or unix:PATH, and sharedstore.Open for a directory", shown(text), punctual.ErrInvalid)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("URL of server %s: it has a query or fragment: %w", shown(text), punctual.ErrInvalid)
	case u.Scheme == "http" && s.token.set() && !s.opt.PlaintextToken && !loopback(u.Hostname()):
		return nil, fmt.Errorf("URL of server %s: whoever listens on the way would read the token: %w; use https, or allow it with PlaintextToken", shown(text), punctual.ErrInvalid)
	}
	base := u.Scheme + "://" + u.Host + strings.TrimSuffix(u.EscapedPath(), "/")
	return s.tcpEndpoint(base, u), nil
}

// shown returns a URL as errors quote it: without what stands behind a "?" or "#", where a token
// may be. Nothing but the "@" is shown of a URL that has one, because a password may be at any
// place in it, as in http:USER:PASSWORD@HOST.
func shown(text string) string {
	if strings.Contains(text, "@") {
		return `"...@..."`
	}
	if i := strings.IndexAny(text, "?#"); i >= 0 {
		text = text[:i]
	}
	return strconv.Quote(text)
}

// opensKind returns the call that opens a store of this kind, if it is a kind that the command line
// knows and this package does not; otherwise it returns "".
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

// greet asks one server after the other what it is, until one answers, each of them once. Then it
// reads the clock.
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

// Close ends the calls under way, waits for them and closes the connections. A call that Close ends
// returns ErrClosed, a push, settlement or other change ErrIndeterminate as well if a server may
// have carried it out. Close does not settle messages that this program holds, and the store at the
// server stays open. A second Close returns nil.
func (s *Store) Close() error {
	_ = s.calls.Close() // an error only says that this is not the first Close, and a further one waits as well
	s.close()
	s.calls.Wait()
	s.hangUp()
	return nil
}

func (s *Store) hangUp() {
	s.close()
	for _, e := range s.endpoints {
		e.hangUp()
	}
}

// Durability implements storekit.DurabilityReporter with what the server said when the store was
// opened. It is empty when the store behind the server does not report it.
func (s *Store) Durability() punctual.Durability { return s.durability }

// Repeats implements storekit.Repeater. The request of a call whose context has a storekit.Request
// has the key of that. If a push, settlement or amendment is sent in several requests, the others
// have keys that ofPart makes from it. The requests of a claim all have the same key, because no
// answer is kept of a claim that found nothing.
func (s *Store) Repeats() time.Duration { return s.repeats }

// newKey returns a key that no other request has.
func (s *Store) newKey() string { return s.sender + "-" + strconv.FormatUint(s.requests.Add(1), 36) }
