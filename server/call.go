package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
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

// refusal is an error with a status, headers, a title or a remedy other than those of its code.
type refusal struct {
	status        int
	header        http.Header
	title, remedy string
	err           error
}

func (f *refusal) Error() string { return f.err.Error() }
func (f *refusal) Unwrap() error { return f.err }

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), punctual.ErrInvalid)
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

// readQuery sets the route's parameters. It refuses unknown parameters, because the client meant something by them, and empty ones, because a
// shell sends those for a variable that is not set.
func (c *call) readQuery() error {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return invalidf("query: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		p := c.route.param(inQuery, name)
		switch {
		case p == nil:
			return invalidf("parameter %q is not known here: use %s", name, orNone(c.route.queryNames()))
		case len(query[name]) > 1:
			return invalidf("parameter %q is given twice", name)
		case query[name][0] == "" && !p.mayBeEmpty:
			return invalidf("parameter %q is empty: give a value, or leave it out", name)
		}
	}
	c.query = query
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// readBody reads the whole body before the request is carried out, so that an incomplete request changes nothing, and so
// that net/http notices the end of the connection while a claim waits.
func (c *call) readBody() error {
	s, r := c.server, c.r
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return &refusal{status: http.StatusUnsupportedMediaType, err: invalidf("Content-Encoding %q: send the body as it is", e)}
	}
	limit := s.limits.MaxRequest
	switch c.route.body {
	case bodyNone:
		limit = 0
	case bodyMessage:
		limit = s.limits.MaxBody
	}
	if r.ContentLength > limit {
		return c.tooLarge(limit)
	}
	if r.ContentLength == 0 {
		return nil
	}
	control := http.NewResponseController(c.w)
	if err := control.SetReadDeadline(time.Now().Add(s.limits.BodyTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("read the body: %w (%w)", punctual.ErrInvalid, err)
	}
	var b bytes.Buffer
	in := http.MaxBytesReader(c.w, r.Body, limit)
	for left := r.ContentLength; ; left -= bodyStep {
		step := int64(bodyStep) // not all of Content-Length at once, because the bytes may never come
		if r.ContentLength >= 0 {
			step = min(step, max(left, 0))
		}
		if err := c.hold(step); err != nil {
			return err
		}
		c.heldBody += step
		b.Grow(int(step) + bytes.MinRead)
		n, err := io.CopyN(&b, in, bodyStep)
		switch {
		case n == bodyStep && err == nil:
			continue
		case errors.Is(err, io.EOF):
			c.body, c.hasRead = b.Bytes(), true
			if r.ProtoMajor > 1 {
				return nil // in HTTP/2 the deadline is only for this body
			}
			if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
				return fmt.Errorf("read the body: %w (%w)", punctual.ErrInvalid, err)
			}
			return nil
		}
		if tooMany := (*http.MaxBytesError)(nil); errors.As(err, &tooMany) {
			return c.tooLarge(limit)
		}
		return &refusal{status: http.StatusRequestTimeout, header: http.Header{"Connection": {"close"}}, err: fmt.Errorf("the body did not arrive: %w (%w)", punctual.ErrInvalid, err)}
	}
}

// bodyStep is how many bytes of a body are read at a time.
const bodyStep = 64 << 10

func (c *call) tooLarge(limit int64) error {
	header := http.Header{"Connection": {"close"}}
	if limit == 0 {
		return &refusal{header: header, err: invalidf("the request has a body: this route takes none, and its parameters stand in the query")}
	}
	return &refusal{header: header, err: fmt.Errorf("the body has more than %d bytes: %w", limit, punctual.ErrTooLarge)}
}

// param returns a parameter of the query, "" if it is not given.
func (c *call) param(name string) string { return c.query.Get(name) }

// duration returns a parameter of the query as a duration, 0 if it is not given.
func (c *call) duration(name string) (time.Duration, error) {
	return wire.ParseDurationText(name, c.param(name))
}

// instant returns a parameter of the query as a time, the zero time if it is not given.
func (c *call) instant(name string) (time.Time, error) {
	return wire.ParseTimeText(name, c.param(name))
}

// span returns the parameters from and to.
func (c *call) span() (from, to time.Time, err error) {
	if from, err = c.instant("from"); err != nil {
		return from, to, err
	}
	to, err = c.instant("to")
	return from, to, err
}

func (c *call) number(name string, otherwise int) (int, error) {
	text := c.param(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, invalidf("parameter %q is %q: use a whole number", name, text)
	}
	return n, nil
}

func (c *call) truth(name string) (value, given bool, err error) {
	switch text := c.param(name); text {
	case "":
		return false, false, nil
	case "true":
		return true, true, nil
	case "false":
		return false, true, nil
	default:
		return false, true, invalidf("parameter %q is %q: use true or false", name, text)
	}
}

// wants reports whether this media type comes first in the request's header Accept.
func (c *call) wants(mediaType string) bool {
	first, _, _ := strings.Cut(c.r.Header.Get("Accept"), ",")
	first, _, _ = strings.Cut(first, ";")
	return strings.EqualFold(strings.TrimSpace(first), mediaType)
}

// storeContext returns the context of a call of the store. It is limited to Limits.StoreTime and extra, which is how long the store may wait for
// messages, and carries the request's key, by which a repetition of the call is recognized. The caller has to call end.
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
			return nil, nil, invalidf("%s is empty: give a time, or leave it out", wire.HeaderNotAfter)
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

// requestKey returns the key under which the answer to a request is kept. It differs for each principal, so that no client can ask for another
// client's answer.
func (c *call) requestKey(key string) string {
	id := ""
	if c.principal != nil {
		id = c.principal.Key()
	}
	sum := sha256.Sum256([]byte(id + "\x00" + key))
	return hex.EncodeToString(sum[:])
}

var errStoreTime = fmt.Errorf("the store took too long: %w", punctual.ErrOverloaded)

// storeError returns the error of a call of the store as clients see it: a deadline that the server has set becomes an ErrOverloaded.
func storeError(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, punctual.ErrIndeterminate) && context.Cause(ctx) == errStoreTime {
		return errStoreTime
	}
	return err
}

// json answers with v. A large answer to a read counts in Server.memory while it is sent. Answers to changes are small and do not.
func (c *call) json(status int, v any) error {
	data, err := wire.Encode(v)
	if err != nil {
		return notEncoded(err)
	}
	if c.r.Method == http.MethodGet && len(data) > pieceBytes {
		if err := c.hold(int64(len(data))); err != nil {
			return err
		}
	}
	return c.write(status, wire.TypeJSON, append(data, '\n'))
}

// notEncoded returns the error for an answer that could not be encoded. It is an ErrIndeterminate, because the request may have been carried out.
func notEncoded(err error) error {
	return fmt.Errorf("encode the answer: %w; %w", punctual.ErrIndeterminate, errors.New(err.Error()))
}

// write sends the whole answer. Its error wraps errNotSent. Only for an answer with leases does nil mean that the answer has left the server;
// other answers may still be in a buffer.
func (c *call) write(status int, mediaType string, data []byte) error {
	h := c.w.Header()
	if mediaType != "" {
		h.Set("Content-Type", mediaType)
	}
	if status != http.StatusNoContent {
		h.Set("Content-Length", strconv.Itoa(len(data)))
	}
	if c.leases {
		return c.send(status, data)
	}
	return c.put(status, data)
}

// send writes a part of the answer and flushes it to the network.
func (c *call) send(status int, data []byte) error {
	if err := c.put(status, data); err != nil {
		return err
	}
	if err := http.NewResponseController(c.w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	return nil
}

// put writes a part of the answer into the buffer of net/http, which is sent when it is full or the request ends. So a small answer costs one
// write to the network.
func (c *call) put(status int, data []byte) error {
	if !c.keepsDeadline {
		control := http.NewResponseController(c.w)
		if err := control.SetWriteDeadline(time.Now().Add(c.server.limits.WriteTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("%w: %w", errNotSent, err)
		}
	}
	if c.status == 0 {
		c.status = status
		c.w.WriteHeader(status)
	}
	if len(data) > 0 && c.r.Method != http.MethodHead {
		if _, err := c.w.Write(data); err != nil {
			return fmt.Errorf("%w: %w", errNotSent, err)
		}
	}
	return nil
}

// errNotSent is the error of an answer that could not be sent. It is not answered with a problem, because the client is gone.
var errNotSent = errors.New("the answer could not be sent")

// fail answers with a problem.
func (c *call) fail(err error) {
	c.server.notice(c, err)
	if errors.Is(err, errNotSent) || c.status != 0 {
		return
	}
	p := wire.ProblemOf(err)
	h := c.w.Header()
	if c.r.ProtoMajor == 1 && c.r.ContentLength != 0 && !c.hasRead {
		// net/http would wait for the body before it answers, and reads a part of it behind that.
		h.Set("Connection", "close")
		deadline := time.Now().Add(restTime)
		if e := http.NewResponseController(c.w).SetReadDeadline(deadline); e != nil && !errors.Is(e, http.ErrNotSupported) {
			c.server.log.Debug("the rest of a body may take long", "error", e)
		}
	}
	if f := (*refusal)(nil); errors.As(err, &f) {
		if f.status != 0 {
			p.Status = f.status
		}
		for name, values := range f.header {
			h[name] = values
		}
		if f.title != "" {
			p.Title, p.Remedy = f.title, f.remedy
		}
	}
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="punctual"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	}
	c.code = p.Code
	data, encoding := wire.Encode(p)
	if encoding != nil {
		c.server.log.Error("a problem could not be encoded", "code", p.Code, "error", encoding)
		data = nil
	}
	if sending := c.write(p.Status, wire.ProblemType, append(data, '\n')); sending != nil {
		c.server.notice(c, sending)
	}
}

// restTime is how long the rest of a body may take whose request was refused.
const restTime = time.Second

// notice logs what the operator has to know, and hands on that the store has failed.
func (s *Server) notice(c *call, err error) {
	if errors.Is(err, punctual.ErrStoreFailed) || errors.Is(err, punctual.ErrCorrupt) {
		s.failStore()
		if s.options.OnStoreFailed != nil {
			s.options.OnStoreFailed(err)
		}
	}
	name := ""
	if c.principal != nil {
		name = c.principal.Name
	}
	switch code := punctual.ErrorCode(err); {
	case errors.Is(err, errNotSent):
		s.log.Debug("an answer could not be sent", "method", c.r.Method, "route", c.pattern(), "principal", name, "error", err)
	case code == "internal", code == "indeterminate", code == "corrupt", code == "store_failed":
		s.log.Error("a request failed", "method", c.r.Method, "route", c.pattern(), "principal", name, "code", code, "error", err)
	default:
		s.log.Debug("a request was refused", "method", c.r.Method, "route", c.pattern(), "principal", name, "code", code)
	}
}
