package remotestore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
)

// again says what it means to send a request a second time.
type again uint8

const (
	once    again = iota // it is another change
	reading              // it changes nothing
	keyed                // the server knows its key
	anew                 // keyed; and where the key is not known, it can be carried out again
)

// request is one call of a server.
type request struct {
	method, path string
	body         []byte // in JSON
	// write, if not nil, writes the body in either form.
	write func(wire.Form) ([]byte, error)
	// eitherForm tells that the answer may be in either form.
	eitherForm bool
	again      again
	wait       time.Duration // how long the server may wait before it answers
	// key and notAfter are the caller's if it gave them; own tells that the key is the store's. sent tells that a copy
	// was sent before this request.
	key      string
	own      bool
	notAfter time.Time
	sent     bool
	// aside tells that nobody waits for it, so the end of the store does not end it.
	aside bool
	// onLine, if not nil, is called for each line of the answer, which is not kept then.
	onLine func(line []byte) error
	// onBody, if not nil, is given the answer's body and its length, and reads it. No time bounds that.
	onBody func(body io.Reader, length int64) error
}

// reply is the answer to a request.
type reply struct {
	status int
	form   wire.Form
	body   []byte
	// doubt tells that the request had been sent to a server that has ended since, and was made anew.
	doubt bool
}

// How one sending of a request ended without an answer.
type (
	// otherInstance: the server was started anew and refused it; the next copy names the new one.
	otherInstance struct{ error }
	// unsent: it did not reach a server.
	unsent struct{ error }
	// lost: it may have reached one.
	lost struct{ error }
)

func (e otherInstance) Unwrap() error { return e.error }
func (e unsent) Unwrap() error        { return e.error }
func (e lost) Unwrap() error          { return e.error }

// sending is a request with what is known of its copies so far.
type sending struct {
	*Store
	r      *request
	until  time.Time // when to give up; zero before the first failure
	copies int       // sent so far, to the memory that is named below
	// kept is until when, by the store's clock, the answer of the first copy is kept for sure, if it was carried out.
	kept     time.Time
	unsure   bool   // a copy may have been carried out
	instance string // by the memory that copy went to
	doubt    bool   // as in reply
	strange  map[*endpoint]bool
	last     error // of the copy before
}

// do sends a request until there is an answer, or Options.RetryFor is over, or ctx ends. An answer that is a
// problem is an error.
func (s *Store) do(ctx context.Context, r *request) (*reply, error) {
	x := &sending{Store: s, r: r}
	if (r.again == keyed || r.again == anew) && r.key == "" {
		r.key, r.own = s.newKey(), true
	}
	pause, moved := firstPause, 0
	for try := 0; ; try++ {
		e := s.endpoints[(int(s.preferred.Load())+try)%len(s.endpoints)]
		if x.strange[e] {
			if len(x.strange) == len(s.endpoints) {
				return nil, x.giveUp(ctx)
			}
			continue
		}
		p, next, err := x.send(ctx, e)
		switch {
		case p != nil:
			s.preferred.Store(int32((int(s.preferred.Load()) + try) % len(s.endpoints)))
			p.doubt = x.doubt
			return p, nil
		case !next && !errors.As(err, &lost{}):
			return nil, err
		}
		x.last = err
		if !next {
			return nil, x.giveUp(ctx)
		}
		if errors.As(err, &otherInstance{}) && moved < 3 {
			moved++ // it is there, and knows by what name to be asked now
			try--
			continue
		}
		if x.until.IsZero() {
			x.until = time.Now().Add(s.opt.RetryFor)
		}
		if !time.Now().Before(x.until) || ctx.Err() != nil {
			return nil, x.giveUp(ctx)
		}
		if (try+1)%len(s.endpoints) != 0 {
			continue
		}
		if !s.sleep(ctx, r, pause/2+rand.N(pause)) {
			return nil, x.giveUp(ctx)
		}
		pause = min(2*pause, lastPause)
	}
}

// Between two rounds over all servers passes firstPause, doubling up to lastPause, give or take a half.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// sleep returns false when ctx or the store ended first.
func (s *Store) sleep(ctx context.Context, r *request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	closing := s.closing.Done()
	if r.aside {
		closing = nil
	}
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-closing:
	}
	return false
}

// giveUp is the error of a request that got no answer.
func (x *sending) giveUp(ctx context.Context) error {
	err := x.last
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case x.closing.Err() != nil:
		err = errClosed()
	}
	switch {
	case x.unsure && x.r.again != reading:
		return fmt.Errorf("%w; %w", punctual.ErrIndeterminate, err)
	case ctx.Err() != nil, x.closing.Err() != nil, errors.Is(err, punctual.ErrUnreachable):
		return err
	}
	return fmt.Errorf("%w: %w", punctual.ErrUnreachable, err)
}

// send sends one copy. Without an answer next tells whether another copy makes sense.
func (x *sending) send(ctx context.Context, e *endpoint) (p *reply, next bool, err error) {
	header := http.Header{}
	if x.r.key != "" {
		if err := x.name(ctx, e, header); err != nil {
			return nil, !isProblem(err), err
		}
		if len(x.strange) > 0 && x.strange[e] {
			return nil, true, errOtherInstance(e)
		}
	}
	body, err := x.write(e, header)
	if err != nil {
		if x.unsure {
			err = fmt.Errorf("%w; %w", punctual.ErrIndeterminate, err)
		}
		return nil, false, err
	}
	resp, err := x.exchange(ctx, e, x.r, header, body)
	if err != nil {
		if errors.As(err, &lost{}) && x.r.again != reading && !x.unsure {
			x.unsure, x.instance = true, header.Get(wire.HeaderInstance)
		}
		return nil, x.r.again != once || !x.unsure, err
	}
	return x.classify(ctx, e, resp, header)
}

// write returns the body for this server, and says in which forms it and the answer are.
func (x *sending) write(e *endpoint, header http.Header) (body []byte, err error) {
	form := wire.JSON
	if e.compact.Load() {
		form = wire.Compact
	}
	if x.r.eitherForm {
		header.Set("Accept", form.String())
	}
	if x.r.write == nil {
		form, body = wire.JSON, x.r.body
	} else if body, err = x.r.write(form); err != nil {
		return nil, fmt.Errorf("encode the request: %w: %w", punctual.ErrInvalid, err)
	}
	if len(body) > 0 {
		header.Set("Content-Type", form.String())
	}
	if most := x.limits.MaxRequest; most > 0 && int64(len(body)) > most { // 0 before Open has asked
		return nil, fmt.Errorf("the request has %d bytes: at most %d are allowed: %w", len(body), most, punctual.ErrTooLarge)
	}
	return body, nil
}

// name adds to a request with a key what the server has to know of it. If an earlier copy went to a server whose
// memory this one does not have, name makes the request anew.
func (x *sending) name(ctx context.Context, e *endpoint, header http.Header) error {
	if e.instance.Load() == nil || !e.asked.Load() {
		if _, err := x.ask(ctx, e); err != nil {
			return err
		}
	}
	instance := *e.instance.Load()
	if x.unsure && instance != x.instance {
		if x.r.again != anew {
			if x.strange == nil {
				x.strange = make(map[*endpoint]bool)
			}
			x.strange[e] = true
			return nil
		}
		x.unsure, x.doubt, x.copies, x.kept = false, true, 0, time.Time{}
	}
	notAfter := x.r.notAfter
	if notAfter.IsZero() {
		now, recent := x.clock.now()
		if !recent {
			if err := x.readClock(ctx, e); err != nil {
				return err
			}
			now, _ = x.clock.now()
		}
		ahead := min(x.r.wait+2*x.opt.Timeout+max(0, x.opt.RetryFor), x.repeats*3/4)
		if deadline, ok := ctx.Deadline(); ok {
			ahead = min(ahead, time.Until(deadline)) // what comes later is nobody's wish
		}
		if x.kept.IsZero() {
			x.kept = now.Add(x.repeats)
		}
		if notAfter = now.Add(ahead); notAfter.After(x.kept) {
			notAfter = x.kept // a copy that is later might be carried out a second time
		}
	}
	x.copies++
	if x.copies == 1 && !x.r.sent {
		header.Set(wire.HeaderCopy, "1")
	}
	header.Set(wire.HeaderRequest, x.r.key)
	if !notAfter.After(punctual.MaxDue) { // behind it no time can be written
		header.Set(wire.HeaderNotAfter, wire.TimeText(notAfter.UTC()))
	}
	if instance != "" {
		header.Set(wire.HeaderInstance, instance)
	}
	return nil
}

func errOtherInstance(e *endpoint) error {
	return fmt.Errorf("%s has been started anew and does not know what became of the request", e.name)
}

// classify says what an answer means, with what became of earlier copies in mind.
func (x *sending) classify(ctx context.Context, e *endpoint, resp *response, header http.Header) (p *reply, next bool, err error) {
	if resp.status == wire.StatusOtherInstance && *e.instance.Load() != header.Get(wire.HeaderInstance) {
		e.asked.Store(false) // it may be of another version
		return nil, true, otherInstance{errOtherInstance(e)}
	}
	if resp.status/100 == 2 {
		if x.r.own && x.copies == 1 { // an earlier copy may still be on its way
			x.answered.add(x.r.key)
		}
		return &reply{status: resp.status, form: wire.FormOf(resp.contentType), body: resp.body}, false, nil
	}
	problem := resp.problem()
	if problem == nil {
		err := fmt.Errorf("%s answered status %d, which no Punctual server gives in this way", e.name, resp.status)
		if resp.status/100 == 5 { // a proxy on the way: the server may have the request
			x.unsure, x.instance = true, header.Get(wire.HeaderInstance)
			return nil, x.r.again != once, lost{err}
		}
		return nil, false, fmt.Errorf("%w: %w: see that the URL is right", punctual.ErrInvalid, err)
	}
	err = problem.Err()
	switch problem.Code {
	case "deadline":
		// Not carried out, and no earlier copy either: its answer would be known.
		if !problem.Definite || x.r.key == "" {
			break
		}
		if !x.r.notAfter.IsZero() {
			return nil, false, fmt.Errorf("%s: %w", problem.Detail, context.DeadlineExceeded)
		}
		if now, _ := x.clock.now(); x.unsure && !now.Before(x.kept) {
			return nil, false, fmt.Errorf("%w; %w", punctual.ErrIndeterminate, err) // it would be known no more
		}
		x.unsure, x.kept = false, time.Time{}
		return nil, true, errors.Join(unsent{err}, x.readClock(ctx, e))
	case "closed", "store_failed", "unreachable", "locked":
		// This server cannot, and did not; another one may, or this one soon.
		return nil, true, unsent{fmt.Errorf("%s: %w", e.name, errors.New(problem.Detail))}
	case "unauthenticated":
		changed, rerr := x.token.reread()
		if changed {
			return nil, true, unsent{err}
		}
		err = errors.Join(err, rerr)
	case "overloaded":
		if x.unsure { // that was said of this copy, not of the one before
			return nil, true, err
		}
	}
	if x.unsure && problem.Definite && x.r.again != reading && !fromStore(problem.Code) {
		return nil, false, fmt.Errorf("%w; %w", punctual.ErrIndeterminate, err)
	}
	return nil, false, err
}

// fromStore tells whether a refusal is the answer of the store, which knows of earlier copies, and not of the server in front.
func fromStore(code string) bool {
	switch code {
	case "unauthenticated", "forbidden", "overloaded", "too_large", "invalid":
		return false
	}
	return true
}

func isProblem(err error) bool {
	e := (*wire.RemoteError)(nil)
	return errors.As(err, &e)
}

// response is what a server answered.
type response struct {
	status      int
	contentType string
	body        []byte
}

// problem is the problem that an answer is, or nil.
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

// exchange sends a request to one server and reads its answer. Its errors are unsent or lost.
func (s *Store) exchange(ctx context.Context, e *endpoint, r *request, header http.Header, body []byte) (*response, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if !r.aside {
		defer context.AfterFunc(s.closing, func() { end(errClosed()) })()
	}
	if r.onLine == nil && r.onBody == nil {
		timer := time.AfterFunc(r.wait+s.opt.Timeout, func() { end(errTimeout) })
		defer timer.Stop()
	}
	var connected, reused atomic.Bool
	fail := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		err = fmt.Errorf("%s: %w", e.name, err)
		if connected.Load() {
			return lost{err}
		}
		return unsent{err}
	}
	client, err := e.choose(ctx, r.again)
	if err != nil {
		return nil, fail(err)
	}
	// The transport asks for another connection only when the server has not begun the request on the one before.
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { connected.Store(false) },
		GotConn: func(got httptrace.GotConnInfo) { connected.Store(true); reused.Store(got.Reused) },
	}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), r.method, e.base+r.path, bytes.NewReader(body))
	if err != nil {
		return nil, unsent{err}
	}
	req.Header = header
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
	resp, err := client.Do(req)
	for err == nil && resp.Header.Get(wire.HeaderNotBegun) != "" {
		if err = resp.Body.Close(); err == nil && !reused.Load() {
			return nil, unsent{fmt.Errorf("%s: the server ends connections without a request on them", e.name)}
		}
		if err == nil {
			req.Body, err = req.GetBody()
		}
		if err == nil {
			resp, err = client.Do(req) // on another connection, since this one has ended
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			e.forget()
		}
		return nil, fail(withoutURL(err))
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or its connection is given up
	instance := resp.Header.Get(wire.HeaderInstance)
	out := &response{status: resp.StatusCode, contentType: resp.Header.Get("Content-Type")}
	if r.onLine != nil && resp.StatusCode == http.StatusOK {
		return out, readLines(resp.Body, r.onLine, fail)
	}
	if r.onBody != nil && resp.StatusCode == http.StatusOK {
		if err := r.onBody(resp.Body, resp.ContentLength); err != nil {
			return nil, fail(err)
		}
		return out, nil
	}
	var answer bytes.Buffer
	if n := resp.ContentLength; n > 0 {
		answer.Grow(int(min(n, answerAtOnce)) + bytes.MinRead) // and no more, which may never come
	}
	if _, err = answer.ReadFrom(io.LimitReader(resp.Body, maxAnswer+1)); err != nil {
		return nil, fail(err)
	}
	out.body = answer.Bytes()
	if len(out.body) > maxAnswer {
		return nil, fail(fmt.Errorf("the answer has more than %d bytes", maxAnswer))
	}
	if out.status/100 == 2 || out.problem() != nil { // it is a Punctual server's
		e.instance.Store(&instance)
	}
	return out, nil
}

// maxAnswer bounds an answer. A claim brings at most some 10,000 messages, of which servers send fewer when they are large.
const maxAnswer = 1 << 30

// answerAtOnce bounds the memory that is taken for an answer before it is there.
const answerAtOnce = 1 << 20

var errTimeout = errors.New("no answer came in time")

// withoutURL takes the URL out of an error of the client: the endpoint is named already.
func withoutURL(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// readLines gives each line of an answer to onLine.
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

// maxLine bounds a line of an answer.
const maxLine = 16 << 20

// ask asks a server what it is.
func (s *Store) ask(ctx context.Context, e *endpoint) (*wire.Info, error) {
	var info wire.Info
	err := s.look(ctx, e, wire.PathInfo, &info)
	if err == nil {
		e.compact.Store(info.Compact == wire.CompactVersion)
		e.farewell.Store(info.Farewell)
		e.asked.Store(true)
	}
	return &info, err
}

// readClock asks a server for the store's clock.
func (s *Store) readClock(ctx context.Context, e *endpoint) error {
	var c wire.Clock
	if err := s.look(ctx, e, wire.PathClock, &c); err != nil {
		return err
	}
	s.clock.hear(time.Time(c.Now))
	return nil
}

// look reads from one server, once.
func (s *Store) look(ctx context.Context, e *endpoint, path string, into any) error {
	x := &sending{Store: s, r: &request{method: http.MethodGet, path: path, again: reading}}
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

// answered are the keys of requests whose answers have arrived. The next request tells the server, which forgets them.
type answered struct {
	mu   sync.Mutex
	keys []string // guarded by mu
}

// answeredAtOnce are told with one request. What is not told is forgotten by time.
const answeredAtOnce = 64

func (a *answered) add(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.keys) < 4*answeredAtOnce {
		a.keys = append(a.keys, key)
	}
}

func (a *answered) take() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(len(a.keys), answeredAtOnce)
	out := strings.Join(a.keys[:n], ",")
	a.keys = append(a.keys[:0], a.keys[n:]...)
	return out
}
