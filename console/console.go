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
	"github.com/punctualmq/punctual/storekit"
)

// Options configures a Console. A nil *Options and each zero field mean the default.
type Options struct {
	// Prefix is the path under which the console is mounted, without a slash at its end: "/queues".
	// The paths of requests still begin with Prefix when they reach the console. Default: none, the
	// console has all paths.
	Prefix string
	// Version is the version that the foot of each page shows.
	Version string
	// HideBodies hides the body of each message, and all its headers but those in ShowHeaders.
	HideBodies bool
	// ShowHeaders are the names of headers that HideBodies does not hide.
	ShowHeaders []string
	// Location is the time zone of pages for people who have not chosen one. Default UTC.
	Location *time.Location
	// Logger gets errors of the console, logins and the entries of the audit log. It never gets
	// tokens or bodies. Default: nothing is logged.
	Logger *slog.Logger
	// API is the address of the HTTP interface of the same store, for the curl commands that pages
	// show. It is a URL, or "/" for the host of the console. Default: pages show no such commands.
	API string
	// Authenticate returns who sends a request and what this principal may do, or an error that
	// wraps punctual.ErrUnauthenticated. Use the method of an access.Authenticator, such as
	// Server.Authenticate of the server beside the console. It is called for each request that no
	// earlier step has refused or answered, except for assets and the login page, and for each
	// token that somebody logs in with. Calls come from many goroutines at once and delay the
	// answer, so they must be quick. Default: everybody on this machine may do everything but
	// change the audit log, and everybody else nothing.
	Authenticate func(r *http.Request) (*access.Principal, error)
	// LoginByToken lets people log in with a token. In each request of a browser that is logged in,
	// Authenticate then finds the token in the header Authorization, as programs send it: Bearer
	// TOKEN. Without LoginByToken, Authenticate must recognize people by other means, such as a
	// certificate or a cookie of the program around the console.
	LoginByToken bool
	// Consumers returns who works on a topic, such as Server.Consumers of the server beside the
	// console. Default: the store's answer, if it is a storekit.ConsumerReporter, otherwise what
	// Console.Observer has observed.
	Consumers func(ctx context.Context, topic string) (storekit.Consumers, error)
}

// Console is the pages of a store. It is an http.Handler, safe for concurrent use. Make one with
// New.
type Console struct {
	store     punctual.Store
	queue     *punctual.Queue           // for schedules and bulk changes, which Queue makes of several calls of the store
	inspector punctual.Inspector        // nil when the store has none
	keeper    punctual.FinishedKeeper   // nil when the store has none
	abilities storekit.AbilityReporter  // nil when the store does not tell
	namer     storekit.TopicNamer       // nil when the store has none
	reporter  storekit.ConsumerReporter // nil when the store has none
	options   Options
	log       *slog.Logger
	origin    *http.CrossOriginProtection
	// routes has all routes, liveRoutes those of pages that are renewed in part.
	routes, liveRoutes *httproute.Table[*route]
	*content
	sessions     *sessions
	failedLogins seldom
	formKey      formKey
	audit        *audit.Log
	bulks        *bulks
	reader       *overview.Reader
	drawn        drawn
	meter        *overview.Meter
	tracker      *consumers.Tracker
	observed     atomic.Bool   // Observer was called, so the meter counts
	scanFor      time.Duration // scanTime, except in tests
}

// New returns a console of the store. The caller still owns the store, and closes the console
// before the store. New returns an ErrInvalid if Options.Prefix is not empty and does not begin
// with a slash or ends with one.
func New(store punctual.Store, o *Options) (*Console, error) {
	if o == nil {
		o = &Options{}
	}
	if p := o.Prefix; p != "" && (!strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/")) {
		return nil, fmt.Errorf("console prefix %q: begin it with a slash and end it without one, like /queues: %w", p, punctual.ErrInvalid)
	}
	c := &Console{
		store: store, options: *o, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), origin: http.NewCrossOriginProtection(),
		meter: overview.NewMeter(), tracker: consumers.New(), scanFor: scanTime,
	}
	table := routes()
	c.queue = punctual.NewQueue(store, nil)
	c.routes = httproute.New(table, (*route).pattern)
	c.liveRoutes = httproute.New(slices.DeleteFunc(table, func(rt *route) bool { return !rt.live }), (*route).pattern)
	c.inspector, _ = punctual.As[punctual.Inspector](store)
	c.keeper, _ = punctual.As[punctual.FinishedKeeper](store)
	c.abilities, _ = punctual.As[storekit.AbilityReporter](store)
	c.namer, _ = punctual.As[storekit.TopicNamer](store)
	c.reporter, _ = punctual.As[storekit.ConsumerReporter](store)
	c.sessions, c.formKey = &sessions{}, newFormKey()
	c.audit = audit.New(store, c.log)
	c.bulks = newBulks(c.queue, c.log)
	c.options.Location = cmp.Or(o.Location, time.UTC)
	var err error
	if c.content, err = readContent(); err != nil {
		return nil, err
	}
	c.reader, err = overview.New(store, &overview.Options{Zone: c.options.Location, Hurry: true, Logger: c.log})
	return c, err
}

// Close ends the calls of the store that the console makes in the background, bulk changes among
// them, and waits until they have ended. It also stores the amendments that the audit log has
// counted and not entered yet. Close the console before the store.
func (c *Console) Close() error {
	c.bulks.close()
	c.audit.Close()
	if err := c.reader.Close(); err != nil {
		return fmt.Errorf("close console: %w", err)
	}
	return nil
}

// contentSecurity lets a page load styles, scripts and images, send requests and post forms only to
// the page's own host. It forbids everything else, inline styles and inline scripts included.
const contentSecurity = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP answers one request.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentSecurity)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	k := &call{console: c, inspector: c.inspector, w: w, r: r}
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		if cause == http.ErrAbortHandler || k.begun {
			panic(http.ErrAbortHandler) // so that the browser does not take half an answer for a whole one
		}
		c.log.Error("a request made the console panic", "method", r.Method, "path", r.URL.Path, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
		k.fail(errors.New("the console failed on this request"))
	}()
	if err := k.answer(); err != nil {
		k.fail(err)
	}
}

// answer does the steps that all routes share, in the order that doc.go shows, and then calls the
// handler of the route.
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
		if c.inspector == nil && !c.route.anyStore && !c.route.anyPrincipal {
			return fmt.Errorf("this store cannot be inspected: %w", punctual.ErrUnsupported)
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
