package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/answers"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// call is the state of one request. Only the goroutine of the request uses it.
type call struct {
	server    *Server
	w         http.ResponseWriter
	r         *http.Request
	started   time.Time
	route     *route
	principal *access.Principal
	client    *client
	path      map[string]string // the path's parameters by name, decoded
	query     url.Values        // only parameters of the route, each once
	body      []byte
	hasRead   bool   // the whole body was read
	held      int64  // bytes that the request has in Server.memory
	heldBody  int64  // the part of held that is for body
	holder    string // the client of Server.memory for which held counts

	keepsDeadline bool // put does not set a new write deadline
	isHalf        bool // the answer broke off, so the connection is ended without marking the answer as complete

	leases bool // the answer carries leases, which are released unless it was sent
	status int  // the status of the answer, 0 before it begins
	code   string
	waited time.Duration
}

func (c *call) pattern() string {
	if c.route == nil {
		return ""
	}
	return c.route.path
}

func (c *call) report() {
	if c.server.options.OnRequest == nil {
		return
	}
	info := RequestInfo{Method: c.r.Method, Route: c.pattern(), Status: c.status, Code: c.code, Took: time.Since(c.started), Waited: c.waited}
	if c.principal != nil {
		info.Principal = c.principal.Name
	}
	c.server.options.OnRequest(c.r.Context(), info)
}

// findRoute sets the route and the path's parameters for the request's path and method.
func (c *call) findRoute() error {
	if path := c.r.URL.Path; path == "" || path == "/" {
		return noRoute(path)
	}
	segments, err := wire.SplitPath(c.r.URL.EscapedPath())
	if err != nil {
		return err
	}
	route, values, allowed, ok := c.server.routes.Find(c.r.Method, segments)
	switch {
	case ok:
		c.route, c.path = route, values
		return nil
	case len(allowed) == 0:
		return noRoute(c.r.URL.EscapedPath())
	}
	return &refusal{
		status: http.StatusMethodNotAllowed,
		title:  "The path does not take this method.", remedy: "Use a method of the header Allow.",
		header: http.Header{"Allow": {strings.Join(allowed, ", ")}},
		err:    fmt.Errorf("%s is not for this path: use %s: %w", c.r.Method, strings.Join(allowed, " or "), punctual.ErrUnsupported),
	}
}

func noRoute(path string) error {
	return &refusal{
		status: http.StatusNotFound,
		title:  "There is no such path.", remedy: "Look into " + wire.PathOpenAPI + "; GET " + wire.PathInfo + " says what answers here.",
		err: fmt.Errorf("there is no path %q here: %w", path, punctual.ErrUnsupported),
	}
}

// storeContext returns the context of a call of the store. It ends after Limits.StoreTime plus
// extra, which is how long the store may wait for messages. It carries the request's key, by which
// a repetition of the call is recognized. storeContext also forgets the answers that the request
// reports as received. The caller has to call end.
func (c *call) storeContext(extra time.Duration) (ctx context.Context, end func(), err error) {
	ctx = c.r.Context()
	if keys := c.r.Header.Values(wire.HeaderRequest); len(keys) > 0 {
		key := keys[0]
		if err := wire.CheckRequestKey(key); err != nil {
			return nil, nil, err
		}
		r := storekit.Request{Key: c.requestKey(key), First: c.r.Header.Get(wire.HeaderCopy) == "1"}
		until := c.r.Header.Values(wire.HeaderNotAfter)
		if len(until) > 0 && until[0] == "" {
			return nil, nil, storekit.Invalidf("%s is empty: give a time, or leave it out", wire.HeaderNotAfter)
		}
		if r.NotAfter, err = wire.ParseTimeText(wire.HeaderNotAfter, strings.Join(until, ",")); err != nil {
			return nil, nil, err
		}
		ctx = storekit.WithRequest(ctx, r)
		if c.server.options.Authenticator != nil {
			ctx = answers.WithClient(ctx, c.principal.Key())
		}
	}
	if c.server.answers != nil {
		if keys := c.r.Header.Get(wire.HeaderAnswered); keys != "" {
			for key := range strings.SplitSeq(keys, ",") {
				c.server.answers.Answered(c.requestKey(strings.TrimSpace(key)))
			}
		}
	}
	ctx, end = context.WithTimeoutCause(ctx, c.server.limits.StoreTime+extra, errStoreTime)
	return ctx, end, nil
}

// storeCall calls f within a storeContext and returns its answer, or the error for the client.
func storeCall[T any](c *call, f func(ctx context.Context) (T, error)) (answer T, err error) {
	ctx, end, err := c.storeContext(0)
	if err != nil {
		return answer, err
	}
	defer end()
	if answer, err = f(ctx); err != nil {
		return answer, storeError(ctx, err)
	}
	return answer, nil
}

// storeBatch is storeCall for a call with items. Without items it does not call the store.
func storeBatch[In, Out any](c *call, items []In, f func(ctx context.Context, items []In) ([]Out, error)) ([]Out, error) {
	return storeCall(c, func(ctx context.Context) ([]Out, error) {
		if len(items) == 0 {
			return nil, nil
		}
		return f(ctx, items)
	})
}

// requestKey returns the key under which the answer to a request is kept. It differs for each
// principal, so that no client can ask for another client's answer.
func (c *call) requestKey(key string) string {
	id := ""
	if c.principal != nil {
		id = c.principal.Key()
	}
	sum := sha256.Sum256([]byte(id + "\x00" + key))
	return hex.EncodeToString(sum[:])
}

var errStoreTime = fmt.Errorf("the store took too long: %w", punctual.ErrOverloaded)

// storeError returns the error of a call of the store as clients see it: a deadline that the server
// has set becomes an ErrOverloaded, unless the call may have been carried out.
func storeError(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, punctual.ErrIndeterminate) && context.Cause(ctx) == errStoreTime {
		return errStoreTime
	}
	return err
}

// untilDraining returns the context of a request whose time is not limited. The context ends when
// the client goes, or when the server drains, with an ErrClosed as its cause. The caller has to end
// it as well, with a cause of its own or nil.
func (c *call) untilDraining() (context.Context, context.CancelCauseFunc) {
	ctx, end := context.WithCancelCause(c.r.Context())
	stop := context.AfterFunc(c.server.draining, func() { end(fmt.Errorf("the server is ending: %w", punctual.ErrClosed)) })
	return ctx, func(cause error) { stop(); end(cause) }
}

// causeOf returns why ctx was cancelled if err came from that, otherwise err.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
		return cause
	}
	return err
}
