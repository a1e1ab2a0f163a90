package remotestore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
)

// response is the answer of a server to one copy of a request.
type response struct {
	status      int
	contentType string
	body        []byte
}

// problem returns the problem that the answer consists of; nil if it is something else.
func (r *response) problem() *wire.Problem {
	if mediaType, _, err := mime.ParseMediaType(r.contentType); err != nil || mediaType != wire.ProblemType {
		return nil
	}
	p := new(wire.Problem)
	if err := wire.DecodeAnswer(r.body, p); err != nil || p.Code == "" {
		return nil
	}
	return p
}

// exchange sends one copy of a request to a server and reads the answer. Its error is an unsent or
// a lost.
func (s *Store) exchange(ctx context.Context, e *endpoint, r *request, header http.Header, body []byte) (*response, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if !r.aside {
		defer context.AfterFunc(s.closing, func() { end(s.calls.ErrClosed()) })()
	}
	if r.onLine == nil && r.onBody == nil {
		timer := time.AfterFunc(r.wait+s.opt.Timeout, func() { end(errTimeout) })
		defer timer.Stop()
	}
	x := &sentCopy{request: r, to: e, ctx: ctx}
	client, err := e.choose(ctx, r.again)
	if err != nil {
		return nil, x.fail(err)
	}
	if r.onLine != nil {
		header.Set("Accept", wire.TypeNDJSON)
	}
	header.Set(wire.HeaderConsumer, s.opt.Name)
	if token := s.token.get(); token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	if keys := s.answered.take(); keys != "" {
		header.Set(wire.HeaderAnswered, keys)
	}
	resp, err := x.send(client, header, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // its error does not matter: the body was read to its end, or is of no use any more
	return x.read(resp)
}

// sentCopy is one copy of a request on its way to a server and back.
type sentCopy struct {
	*request
	to  *endpoint
	ctx context.Context
	// connected tells that a connection has the copy, so that the server may have begun the
	// request. reused tells that the connection had other requests before.
	connected, reused atomic.Bool
}

// fail returns err, or why the context ended, as a lost where the server may have begun the
// request, and else as an unsent.
func (x *sentCopy) fail(err error) error {
	if cause := context.Cause(x.ctx); cause != nil {
		err = cause
	}
	err = fmt.Errorf("%s: %w", x.to.name, err)
	if x.connected.Load() {
		return lost{err}
	}
	return unsent{err}
}

// send sends the copy. As long as the server says that it ended the connection without having begun
// the request, send sends the copy again on another one, unless the connection was new. The caller
// closes the body of the answer.
func (x *sentCopy) send(client *http.Client, header http.Header, body []byte) (*http.Response, error) {
	// When the transport asks for a second connection, the server has not begun the request on the
	// first one, unless the request only reads.
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { x.connected.Store(false) },
		GotConn: func(got httptrace.GotConnInfo) { x.connected.Store(true); x.reused.Store(got.Reused) },
	}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(x.ctx, trace), x.method, x.to.base+x.path, bytes.NewReader(body))
	if err != nil {
		return nil, unsent{err}
	}
	req.Header = header
	resp, err := client.Do(req)
	for err == nil && resp.Header.Get(wire.HeaderNotBegun) != "" {
		if err = resp.Body.Close(); err == nil && !x.reused.Load() {
			return nil, unsent{fmt.Errorf("%s: the server ends connections without a request on them", x.to.name)}
		}
		if err == nil {
			req.Body, err = req.GetBody()
		}
		if err == nil {
			resp, err = client.Do(req)
		}
	}
	if err != nil {
		if x.ctx.Err() == nil {
			x.to.forget()
		}
		return nil, x.fail(withoutURL(err))
	}
	return resp, nil
}

// read reads an answer. It hands the answer to onLine line by line, or its body to onBody, if the
// request has one of them and the status is 200. Otherwise it reads the answer as a whole.
func (x *sentCopy) read(resp *http.Response) (*response, error) {
	out := &response{status: resp.StatusCode, contentType: resp.Header.Get("Content-Type")}
	if x.onLine != nil && resp.StatusCode == http.StatusOK {
		return out, readLines(resp.Body, x.onLine, x.fail)
	}
	if x.onBody != nil && resp.StatusCode == http.StatusOK {
		if err := x.onBody(resp.Body, resp.ContentLength); err != nil {
			return nil, x.fail(err)
		}
		return out, nil
	}
	var answer bytes.Buffer
	if n := resp.ContentLength; n > 0 {
		answer.Grow(int(min(n, answerAtOnce)) + bytes.MinRead) // not for all of it, because the rest may never come
	}
	if _, err := answer.ReadFrom(io.LimitReader(resp.Body, maxAnswer+1)); err != nil {
		return nil, x.fail(err)
	}
	out.body = answer.Bytes()
	if len(out.body) > maxAnswer {
		return nil, x.fail(fmt.Errorf("the answer has more than %d bytes", maxAnswer))
	}
	if out.status/100 == 2 || out.problem() != nil { // the answer comes from a Punctual server and not from a proxy
		instance := resp.Header.Get(wire.HeaderInstance)
		x.to.instance.Store(&instance)
	}
	return out, nil
}

// maxAnswer is the most bytes of an answer that is read as a whole. A claim may ask for 10,000
// messages, but stores return fewer of them when they are large.
const maxAnswer = 1 << 30

// answerAtOnce is the most memory that is reserved for an answer before its bytes have arrived.
const answerAtOnce = 1 << 20

var errTimeout = errors.New("no answer came in time")

// withoutURL returns an error of the client without its URL, because the caller names the endpoint.
func withoutURL(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// readLines calls onLine with each line of an answer that is not empty. Errors pass through fail.
func readLines(r io.Reader, onLine func([]byte) error, fail func(error) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 {
			if err := onLine(line); err != nil {
				return fail(err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fail(err)
	}
	return nil
}

// maxLine is the most bytes of one line of an answer.
const maxLine = 16 << 20

// ask asks a server what it is and notes what it can do.
func (s *Store) ask(ctx context.Context, e *endpoint) (*wire.Info, error) {
	var info wire.Info
	err := s.readFrom(ctx, e, wire.PathInfo, false, &info)
	if err == nil {
		e.compact.Store(info.Compact == wire.CompactVersion)
		e.farewell.Store(info.Farewell)
		e.asked.Store(true)
	}
	return &info, err
}

// readClock asks a server for the store's clock and notes the answer. aside is that of the request
// that needs the clock, so that a reading for a release does not end with Close.
func (s *Store) readClock(ctx context.Context, e *endpoint, aside bool) error {
	var c wire.Clock
	if err := s.readFrom(ctx, e, wire.PathClock, aside, &c); err != nil {
		return err
	}
	s.clock.hear(time.Time(c.Now))
	return nil
}

// readFrom reads from one server, with one copy of a request, and decodes the answer into a value.
func (s *Store) readFrom(ctx context.Context, e *endpoint, path string, aside bool, into any) error {
	x := &sending{Store: s, r: &request{method: http.MethodGet, path: path, again: reading, aside: aside}}
	p, _, err := x.send(ctx, e)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.As(err, &unsent{}) || errors.As(err, &lost{}) {
			return fmt.Errorf("%w: %w", punctual.ErrUnreachable, err)
		}
		return err
	}
	if err := wire.DecodeAnswer(p.body, into); err != nil {
		return fmt.Errorf("%s: the answer is not understood: %w", e.name, err)
	}
	return nil
}
