package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/answers"
	"github.com/punctualmq/punctual/internal/consumers"
	"github.com/punctualmq/punctual/internal/httproute"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// Server is the HTTP interface of a store. It is an http.Handler, safe for concurrent use. Make one
// with New.
type Server struct {
	store     punctual.Store // recognizes calls that are sent again with the same request key
	answers   *answers.Store // keeps the answers for store; nil if the store below does that itself
	calls     *storeCalls    // are below answers, or are store
	takesBack takesBack      // releases claims whose answers were not sent; nil if the store cannot do that
	inspector punctual.Inspector
	checker   storekit.Checker
	examiner  storekit.Examiner
	space     storekit.SpaceReporter
	clock     storekit.ClockKeeper
	backuper  storekit.Backuper
	keeper    punctual.FinishedKeeper
	namer     storekit.TopicNamer
	below     punctual.Store // the store that the server was given, with all its interfaces
	abler     storekit.AbilityReporter
	abilities atomic.Pointer[wire.Abilities] // what abler said last; nil before that
	options   Options
	limits    Limits
	log       *slog.Logger
	origin    *http.CrossOriginProtection
	routes    *httproute.Table[*route]
	info      wire.Info
	openAPI   []byte
	memory    shares       // bytes of requests and answers
	checks    atomic.Int64 // how many are under way

	queue *punctual.Queue // carries out bulks, and reads and changes schedules
	bulks shares          // bulks under way

	draining context.Context // ended by Drain
	drain    func()

	storeFailed context.Context // ended when the store has failed or is damaged
	failStore   func()

	topicLimit topicLimit

	windows windows
	tracker *consumers.Tracker

	mu      sync.Mutex
	clients map[string]*client // by Principal.Key; guarded by mu
}

// client has the counters of one principal.
type client struct {
	rate    *rate.Limiter
	waiting atomic.Int64
}

// New returns the HTTP interface of a store. The caller still owns the store, and closes it after
// the server. Malformed limits and origins are an ErrInvalid.
func New(store punctual.Store, o *Options) (*Server, error) {
	if o == nil {
		o = &Options{}
	}
	s := &Server{
		options: *o, limits: o.Limits.withDefaults(), log: o.Logger, origin: http.NewCrossOriginProtection(),
		clients: make(map[string]*client), tracker: consumers.New(),
	}
	s.memory.limit, s.bulks.limit = s.limits.MaxMemory, maxBulks
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
	s.calls = newStoreCalls(store, s.log, o.Observer)
	s.store = s.calls
	s.takesBack, _ = punctual.As[takesBack](store)
	repeater, err := punctual.As[storekit.Repeater](store)
	if err != nil { // the store does not recognize a call that is sent again, so the server keeps the answers
		s.calls.gather(s.limits.StoreTime)
		s.answers = answers.New(s.calls, &answers.Options{Unchanged: true})
		s.store, s.takesBack, repeater = s.answers, s.answers, s.answers
	}
	s.inspector, _ = punctual.As[punctual.Inspector](store)
	s.checker, _ = punctual.As[storekit.Checker](store)
	s.examiner, _ = punctual.As[storekit.Examiner](store)
	s.space, _ = punctual.As[storekit.SpaceReporter](store)
	s.clock, _ = punctual.As[storekit.ClockKeeper](store)
	s.backuper, _ = punctual.As[storekit.Backuper](store)
	s.keeper, _ = punctual.As[punctual.FinishedKeeper](store)
	s.queue = punctual.NewQueue(store, &punctual.QueueConfig{Observer: o.Observer})
	s.namer, _ = punctual.As[storekit.TopicNamer](store)
	s.below = store
	s.topicLimit = topicLimit{most: s.limits.MaxTopics, inspector: s.inspector, namer: s.namer, log: s.log}
	s.abler, _ = punctual.As[storekit.AbilityReporter](store)
	s.info = wire.Info{
		Service: "punctual", Version: o.Version, Inspector: s.inspector != nil, Checker: s.checker != nil,
		Examiner: s.examiner != nil, Compact: wire.CompactVersion, Limits: s.limits.onWire(),
	}
	if d, err := punctual.As[storekit.DurabilityReporter](store); err == nil {
		s.info.Durability = d.Durability()
	}
	s.info.Repeats = wire.Duration(repeater.Repeats())
	table := routes()
	s.routes = httproute.New(table, (*route).pattern)
	s.openAPI, err = openAPI(table, o.Version)
	return s, err
}

// Drain prepares the end of the server: /readyz fails, waiting claims end with an empty answer,
// streams, bulks, checks and backups end, and new claims are refused. Other requests are answered
// as before. Drain does not wait; http.Server.Shutdown does.
func (s *Server) Drain() {
	s.drain()
}

// Close drains the server and waits for calls of the store that are still under way although their
// requests have ended, which happens where the server keeps the answers. The store stays open.
func (s *Server) Close() {
	s.Drain()
	if s.answers != nil {
		s.answers.Drain()
		if err := s.calls.drain(); err != nil {
			s.log.Error("calls of the store did not end", "error", err)
		}
	}
}

func (s *Server) isDraining() bool { return s.draining.Err() != nil }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if conn := connOf(r); conn != nil && !conn.begin(r) {
		panic(http.ErrAbortHandler) // the client knows that this request is not carried out
	}
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
			panic(http.ErrAbortHandler) // so that the client does not take half an answer for a whole one
		}
		c.fail(errors.New("the server failed on this request"))
	}()
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		h.Set("Connection", "close") // so that bytes which a proxy takes for a part of this body are never read as a request
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

// answer does the steps of doc.go in their order, and then calls the handler of the route. It hands
// requests for pages to the console.
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
	if err := c.checkKeys(); err != nil {
		return err
	}
	defer c.releaseMemory()
	if err := c.readBody(); err != nil {
		return err
	}
	return c.route.handle(c)
}

// checkInstance refuses a request that names another instance of the server than this one. The
// client has sent the request, or others, to that instance, so the request may have been carried
// out there, and its answer was kept in the memory of that instance.
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
