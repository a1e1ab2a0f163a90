package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/answers"
	"github.com/punctualmq/punctual/internal/consumers"
	"github.com/punctualmq/punctual/internal/httproute"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// Server is the HTTP interface of a store. It is an http.Handler, safe for concurrent use. Make one with New.
type Server struct {
	store     punctual.Store // knows calls again that carry a request's key
	answers   *answers.Store // is store, unless the store below knows calls again by itself
	coalesced *coalesced     // is below answers
	takesBack takesBack      // is store, if that can take the answer of a claim back
	inspector punctual.Inspector
	checker   punctual.Checker
	examiner  punctual.Examiner
	space     punctual.SpaceReporter
	backuper  punctual.Backuper
	keeper    punctual.FinishedKeeper
	options   Options
	limits    Limits
	log       *slog.Logger
	origin    *http.CrossOriginProtection
	routes    *httproute.Table[*route]
	info      wire.Info
	openAPI   []byte
	memory    shares       // bytes of requests and answers
	checks    atomic.Int64 // under way

	draining context.Context // ended by Drain
	drain    func()

	storeFailed context.Context // ended when the store has failed
	failStore   func()

	topicLimit topicLimit

	windows windows
	tracker *consumers.Tracker

	mu      sync.Mutex
	clients map[string]*client // by Principal.Key; guarded by mu
}

// client is what is counted for one principal.
type client struct {
	rate    *rate.Limiter
	waiting atomic.Int64
}

// New returns the HTTP interface of a store, which stays the caller's: close it when the server is done. Limits that cannot be, and
// origins that are none, are an ErrInvalid.
func New(store punctual.Store, o *Options) (*Server, error) {
	if o == nil {
		o = &Options{}
	}
	s := &Server{
		options: *o, limits: o.Limits.withDefaults(), log: o.Logger, origin: http.NewCrossOriginProtection(),
		clients: make(map[string]*client), tracker: consumers.New(),
	}
	s.memory.limit = s.limits.MaxMemory
	s.draining, s.drain = context.WithCancel(context.Background())
	s.storeFailed, s.failStore = context.WithCancel(context.Background())
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.limits.check(); err != nil {
		return nil, err
	}
	for _, origin := range o.Origins {
		if err := s.origin.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("origin %q: write it like https://console.example.com: %w (%w)", origin, punctual.ErrInvalid, err)
		}
	}
	s.store = guarded{store, s.log}
	s.takesBack, _ = punctual.As[takesBack](store)
	repeater, err := punctual.As[storekit.Repeater](store)
	if err != nil { // the store does not recognize a call that is sent again, so the server keeps the answers
		s.coalesced = coalesce(s.store, s.limits.StoreTime)
		s.answers = answers.New(s.coalesced, &answers.Options{Unchanged: true})
		s.store, s.takesBack, repeater = s.answers, s.answers, s.answers
	}
	s.inspector, _ = punctual.As[punctual.Inspector](store)
	s.topicLimit = topicLimit{most: s.limits.MaxTopics, inspector: s.inspector}
	s.checker, _ = punctual.As[punctual.Checker](store)
	s.examiner, _ = punctual.As[punctual.Examiner](store)
	s.space, _ = punctual.As[punctual.SpaceReporter](store)
	s.backuper, _ = punctual.As[punctual.Backuper](store)
	s.keeper, _ = punctual.As[punctual.FinishedKeeper](store)
	s.info = wire.Info{
		Service: "punctual", Version: o.Version, Inspector: s.inspector != nil, Checker: s.checker != nil,
		Examiner: s.examiner != nil, Compact: wire.CompactVersion, Limits: s.limits.onWire(),
	}
	if d, err := punctual.As[punctual.DurabilityReporter](store); err == nil {
		s.info.Durability = d.Durability()
	}
	s.info.Repeats = wire.Duration(repeater.Repeats())
	if o.Observer != nil {
		s.store = observed{s.store, o.Observer}
	}
	table := routes()
	s.routes = httproute.New(table, (*route).pattern)
	s.openAPI, err = openAPI(table, o.Version)
	return s, err
}

// Drain makes the server end: /readyz fails, claims that wait and streams end with an empty answer, and new claims are
// refused. Other requests are answered as ever. It does not wait; http.Server.Shutdown does.
func (s *Server) Drain() {
	s.drain()
}

// Close drains, and waits for the calls of the store that are still under way with nobody to answer to. The store stays open.
func (s *Server) Close() {
	s.Drain()
	if s.answers != nil {
		s.answers.Drain()
		if err := s.coalesced.drain(); err != nil {
			s.log.Error("calls of the store did not end", "error", err)
		}
	}
}

func (s *Server) isDraining() bool { return s.draining.Err() != nil }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{server: s, w: w, r: r, started: time.Now()}
	defer c.report()
	defer func() {
		cause := recover()
		if cause == nil || cause == http.ErrAbortHandler {
			if cause != nil {
				panic(cause)
			}
			return
		}
		s.log.Error("a request made the server panic", "method", r.Method, "route", c.pattern(), "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
		if c.status != 0 {
			panic(http.ErrAbortHandler) // half an answer must not look whole
		}
		c.fail(errors.New("the server failed on this request"))
	}()
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		h.Set("Connection", "close") // nothing that a proxy may have taken for a part of this body is read as a request
	}
	if s.answers != nil {
		h.Set(wire.HeaderInstance, s.answers.Instance())
	}
	if err := c.answer(); err != nil {
		c.fail(err)
	}
	if c.isHalf {
		panic(http.ErrAbortHandler)
	}
}

// answer takes a request through all the steps before its route's own.
func (c *call) answer() error {
	s, r := c.server, c.r
	if err := s.checkHost(r); err != nil {
		return err
	}
	forConsole := c.isForConsole()
	if err := s.checkOrigin(r, forConsole); err != nil {
		return err
	}
	if forConsole {
		return c.askConsole()
	}
	if err := c.findRoute(); err != nil {
		return err
	}
	if !c.route.public {
		var err error
		if c.principal, err = s.authenticate(r); err != nil {
			return err
		}
		if c.client, err = s.admit(r, c.principal); err != nil {
			return err
		}
	}
	if err := c.authorize(); err != nil {
		return err
	}
	if err := c.checkInstance(); err != nil {
		return err
	}
	if err := c.readQuery(); err != nil {
		return err
	}
	defer c.releaseMemory()
	if err := c.readBody(); err != nil {
		return err
	}
	return c.route.handle(c)
}

// checkOrigin refuses what a page of another site has a browser send, reads as well: a check of the store is one. A link on another site
// may lead to a page of the console.
func (s *Server) checkOrigin(r *http.Request, forConsole bool) error {
	changes := *r
	if !forConsole || r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		changes.Method = http.MethodPost // net/http lets every GET through
	}
	if err := s.origin.Check(&changes); err != nil {
		return fmt.Errorf("a page of another site sent this request: %w", punctual.ErrForbidden)
	}
	return nil
}

// checkHost refuses names under which a page in a browser can reach a server that is not meant for it.
func (s *Server) checkHost(r *http.Request) error {
	if r.TLS != nil {
		return nil // a browser has compared the name with the certificate
	}
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && a.Network() == "unix" {
		return nil // no browser gets here
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if host == "localhost" || net.ParseIP(host) != nil {
		return nil
	}
	for _, allowed := range s.options.Hosts {
		if allowed == "*" || strings.EqualFold(allowed, host) {
			return nil
		}
	}
	return fmt.Errorf("host %q is not one of this server's names: use localhost or an IP address, or have the name allowed: %w", host, punctual.ErrForbidden)
}

// checkInstance refuses a request that may have been carried out already, if the memory for its answer is another one.
func (c *call) checkInstance() error {
	a, asked := c.server.answers, c.r.Header.Get(wire.HeaderInstance)
	if a == nil || asked == "" || asked == a.Instance() {
		return nil
	}
	return &refusal{
		status: wire.StatusOtherInstance,
		err:    fmt.Errorf("the request is for the instance %q of the server, which has ended: %w", asked, punctual.ErrClosed),
	}
}

// Authenticate finds out who sends a request, and counts the request against the rate of that principal: an error wraps
// punctual.ErrUnauthenticated or punctual.ErrOverloaded. It makes the Server an access.Authenticator for handlers beside the interface, such
// as Options.Console. Without an Authenticator of its own the server lets everybody do everything.
func (s *Server) Authenticate(r *http.Request) (*access.Principal, error) {
	p, err := s.authenticate(r)
	if err != nil {
		return nil, err
	}
	_, err = s.admit(r, p)
	return p, err
}

// anyone is the principal of each request to a server without an Authenticator.
var anyone = &access.Principal{
	Name: "anyone", Grants: []access.Grant{access.Everything(), {Actions: access.All, Topics: access.AuditTopic}},
}

// authenticate asks the Authenticator who sends a request.
func (s *Server) authenticate(r *http.Request) (*access.Principal, error) {
	a := s.options.Authenticator
	if a == nil {
		return anyone, nil
	}
	p, err := a.Authenticate(r)
	if err == nil && p == nil {
		err = errors.New("the authenticator returned nobody")
	}
	if err != nil && !errors.Is(err, punctual.ErrUnauthenticated) {
		s.log.Error("the authenticator failed", "error", err)
		err = fmt.Errorf("who sends this cannot be found out: %w", punctual.ErrOverloaded)
	}
	return p, err
}

// admit counts a request against its principal's rate, and its connection as the principal's.
func (s *Server) admit(r *http.Request, p *access.Principal) (*client, error) {
	s.mu.Lock()
	k := s.clients[p.Key()]
	if k == nil {
		k = &client{rate: rate.NewLimiter(rate.Limit(s.limits.Rate), s.limits.Burst)}
		s.clients[p.Key()] = k
	}
	s.mu.Unlock()
	if k.rate.Allow() {
		if conn := connOf(r); conn != nil {
			return k, conn.in.letIn(conn, p.Key())
		}
		return k, nil
	}
	return k, &refusal{
		status: http.StatusTooManyRequests,
		err:    fmt.Errorf("%s sends more than %v requests a second: %w", p.Name, s.limits.Rate, punctual.ErrOverloaded),
	}
}

// authorize checks the route's action on the topic that the path names. Topics that the body names are checked where the body is read.
func (c *call) authorize() error {
	switch need := c.route.action; {
	case c.route.public, c.route.anyPrincipal:
		return nil
	case need == 0:
		return fmt.Errorf("nobody may use this route: %w", punctual.ErrForbidden)
	case c.route.takes(inPath, "topic"):
		return c.principal.Check(need, c.path["topic"])
	case c.route.perItem && (c.principal.AllowsSomewhere(need) || c.route.orAction != 0 && c.principal.AllowsSomewhere(c.route.orAction)):
		return nil // the right on each topic is checked when the topic is known
	case c.route.perItem: // before the body is read
		return fmt.Errorf("%s may not %s in any topic: %w", c.principal.Name, need, punctual.ErrForbidden)
	default:
		return c.principal.Check(need, "")
	}
}
