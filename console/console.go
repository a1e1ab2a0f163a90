package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/consumers"
	"github.com/punctualmq/punctual/internal/httproute"
	"github.com/punctualmq/punctual/internal/overview"
)

// Options configure a Console. A nil *Options and each zero field mean the default.
type Options struct {
	// Prefix is the path under which the console is mounted, without a slash at its end: "/queues". Requests keep it in
	// their path. Default: none, the console has all paths.
	Prefix string
	// Version is shown at the foot of each page.
	Version string
	// HideBodies shows no message's body, and of its headers those alone that ShowHeaders names.
	HideBodies bool
	// ShowHeaders are the names of headers that HideBodies does not hide.
	ShowHeaders []string
	// Location is the time zone of people who have chosen none. Default UTC.
	Location *time.Location
	// Logger gets what fails inside. It never gets tokens or bodies. Default: none.
	Logger *slog.Logger
	// API is where the HTTP interface of the same store answers, for the curl lines that pages show. It is a URL, or
	// "/" for the host under which the console is seen. Default: no such lines.
	API string
	// Authenticate finds out who sends a request and may do what, or returns an error that wraps punctual.ErrUnauthenticated. It is the
	// method of an access.Authenticator, such as Server.Authenticate of the server beside the console. It is called once for each request,
	// so it must be quick. Default: whoever is on this machine may do everything, and others nothing.
	Authenticate func(r *http.Request) (*access.Principal, error)
	// LoginByToken lets people log in with a token. It stands in the header Authorization of each request that Authenticate then
	// gets, as programs send it: Bearer TOKEN. Without it, Authenticate knows people by other means, such as a cookie of the
	// program around the console, or a certificate.
	LoginByToken bool
	// Consumers tells who works on a topic, such as Server.Consumers of the server beside the console. Default: what the store tells, if
	// it does (punctual.ConsumerReporter), else what Console.Observer is told.
	Consumers func(ctx context.Context, topic string) (punctual.Consumers, error)
}

// Console is the pages of a store. It is an http.Handler, safe for concurrent use. Make one with New.
type Console struct {
	store     punctual.Store
	inspector punctual.Inspector        // nil when the store has none
	keeper    punctual.FinishedKeeper   // nil when the store has none
	reporter  punctual.ConsumerReporter // nil when the store has none
	options   Options
	log       *slog.Logger
	origin    *http.CrossOriginProtection
	// routes has all routes, and liveRoutes those of which a part is renewed.
	routes, liveRoutes *httproute.Table[*route]
	*content
	sessions     *sessions
	failedLogins seldom
	formKey      formKey
	audit        *audit.Log
	reader       *overview.Reader
	drawn        drawn
	meter        *overview.Meter
	lateness     lateness
	tracker      *consumers.Tracker
	observed     atomic.Bool   // somebody feeds the meter
	scanFor      time.Duration // scanTime, but in tests
	// requeueFor is requeueTime, but in tests.
	requeueFor time.Duration
}

// New returns the console of a store, which stays the caller's. Close the console before the store. A prefix that is none
// is an ErrInvalid.
func New(store punctual.Store, o *Options) (*Console, error) {
	if o == nil {
		o = &Options{}
	}
	if p := o.Prefix; p != "" && (!strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/")) {
		return nil, fmt.Errorf("console prefix %q: begin it with a slash and end it without one, like /queues: %w", p, punctual.ErrInvalid)
	}
	c := &Console{
		store: store, options: *o, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), origin: http.NewCrossOriginProtection(),
		meter: overview.NewMeter(), tracker: consumers.New(), scanFor: scanTime, requeueFor: requeueTime,
	}
	table := routes()
	c.routes = httproute.New(table, (*route).pattern)
	c.liveRoutes = httproute.New(slices.DeleteFunc(table, func(rt *route) bool { return !rt.live }), (*route).pattern)
	c.inspector, _ = punctual.As[punctual.Inspector](store)
	c.keeper, _ = punctual.As[punctual.FinishedKeeper](store)
	c.reporter, _ = punctual.As[punctual.ConsumerReporter](store)
	c.sessions, c.formKey = newSessions(), newFormKey()
	c.audit = audit.New(store, c.log)
	c.options.Location = cmp.Or(o.Location, time.UTC)
	var err error
	if c.content, err = readContent(); err != nil {
		return nil, err
	}
	c.reader, err = overview.New(store, &overview.Options{Zone: c.options.Location, Hurry: true, Logger: c.log})
	return c, err
}

// Close ends what the console reads of the store and waits for that, and for entries that the audit log has not stored yet. Close the
// console before the store.
func (c *Console) Close() error {
	c.audit.Close()
	if err := c.reader.Close(); err != nil {
		return fmt.Errorf("close console: %w", err)
	}
	return nil
}

// contentSecurity allows what the console serves itself, and nothing else.
const contentSecurity = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP answers one request.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentSecurity)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	k := &call{console: c, w: w, r: r}
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		if cause == http.ErrAbortHandler || k.begun {
			panic(http.ErrAbortHandler) // half an answer must not look whole
		}
		c.log.Error("a request made the console panic", "method", r.Method, "path", r.URL.Path, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
		k.fail(errors.New("the console failed on this request"))
	}()
	if err := k.answer(); err != nil {
		k.fail(err)
	}
}

// answer takes a request through all the steps before its route's own.
func (c *call) answer() error {
	if done, err := c.findRoute(); done || err != nil {
		return err
	}
	if err := c.chooseLook(); err != nil {
		return err
	}
	if err := c.console.origin.Check(c.r); err != nil {
		return fmt.Errorf("a page of another site sent this: %w", punctual.ErrForbidden)
	}
	if !c.route.public {
		if err := c.identify(); err != nil {
			if c.askToLogIn(err) {
				return nil
			}
			return err
		}
		if err := c.authorizeRoute(); err != nil {
			return err
		}
	}
	if err := c.readForm(); err != nil {
		return err
	}
	err := c.route.handle(c)
	if err != nil && c.route.form != nil && !c.begun {
		c.problem = err
		if c.route.form(c) == nil {
			return nil // the page of the form, with the problem above it
		}
	}
	return err
}
