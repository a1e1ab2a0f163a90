package remotestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// A request goes to one server after another until one of them answers, and each time a copy of it
// is sent. The difficulty is what an earlier copy may have done whose answer is lost (see
// sending.unsure). A server recognizes a copy by the key of the request, but only while it keeps
// the answer. Unless servers share the answers in their store, a server keeps them in a memory that
// another server, or the same one after a restart, does not have.

// again says whether a request may be sent a second time.
type again uint8

const (
	once    again = iota // not when a copy may have arrived: it could be carried out twice
	reading              // always: it changes nothing
	keyed                // to a server that recognizes its key
	anew                 // always: a server that does not recognize its key may carry it out again
)

// request is one call of a server.
type request struct {
	method, path string
	body         []byte // in JSON; not used if write is set
	// write, if not nil, returns the body in the form that the server can read: JSON or the compact
	// form. With jsonBody it is JSON in any case, because the compact form cannot carry all of the
	// request.
	write    func(wire.Form) ([]byte, error)
	jsonBody bool
	// eitherForm reports that the answer may be in the compact form, too.
	eitherForm bool
	again      again
	wait       time.Duration // how long the server may wait before it answers
	// key is the key by which servers recognize copies. A caller may have given it with its
	// context; own reports that the store has made it up.
	key string
	own bool
	// notAfter is the time by the store's clock from which the request must not be carried out any
	// more, if the caller gave one.
	notAfter time.Time
	// sent reports that the caller has sent the request before, so that not even the first copy of
	// this call is the first.
	sent bool
	// aside reports that no caller waits for the answer. Such a request goes on when the store is
	// closed.
	aside bool
	// onLine, if not nil, is called with each line of a successful answer that is not empty, and
	// reply.body stays empty. Options.Timeout does not bound a request with an onLine or onBody.
	onLine func(line []byte) error
	// onBody, if not nil, is called with the body of a successful answer and its length, and reads
	// the body.
	onBody func(body io.Reader, length int64) error
}

// reply is the answer to a request.
type reply struct {
	status int
	form   wire.Form
	body   []byte
	// doubt reports that the request was sent before to a server with another memory of answers,
	// and then sent as a new one. So it may have been carried out twice.
	doubt bool
}

// The errors of one copy of a request that brought no answer.
type (
	// otherInstance: the server refused the copy, because the copy names the memory of answers that
	// the server had before its last start. The next copy names the new one.
	otherInstance struct{ error }
	// unsent: this copy was certainly not carried out. It did not reach a server, or the server
	// answered that it has not carried it out, and another copy may be sent.
	unsent struct{ error }
	// lost: the copy may have reached a server and been carried out.
	lost struct{ error }
)

func (e otherInstance) Unwrap() error { return e.error }

func (e unsent) Unwrap() error { return e.error }

func (e lost) Unwrap() error { return e.error }

// sending is a request and what is known of the copies that were sent of it.
type sending struct {
	*Store
	r      *request
	until  time.Time // when Options.RetryFor is over; zero before the first failure
	moved  int       // how many copies a server refused because it was started anew
	copies int       // how many copies name has named since the request began, or since it began anew
	// kept is until when, by the store's clock, the server certainly keeps the answer to the first
	// copy, if it was carried out.
	kept     time.Time
	unsure   bool   // a copy may have been carried out
	instance string // names the memory of answers of the server to which that copy went; set with unsure
	doubt    bool   // see reply.doubt
	// strange has the endpoints that cannot know what became of the copies in doubt, because their
	// servers have another memory.
	strange map[*endpoint]bool
	last    error // the error of the latest copy
}

// do sends a request to one server after another until one answers, Options.RetryFor is over, ctx
// ends, the store is closed, or no server is left to which another copy may be sent. Each server is
// asked once before RetryFor counts. An answer that is a problem is returned as an error.
func (s *Store) do(ctx context.Context, r *request) (*reply, error) {
	x := &sending{Store: s, r: r}
	if (r.again == keyed || r.again == anew) && r.key == "" {
		r.key, r.own = s.newKey(), true
	}
	p, err := x.untilAnswered(ctx)
	if err != nil && x.doubt && punctual.Definite(err) {
		return nil, inDoubt(err)
	}
	return p, err
}

// inDoubt returns the error of a request that a server may have carried out whose answers nobody
// knows any more. err is what came of the request after that, from servers that know nothing of it.
func inDoubt(err error) error {
	return fmt.Errorf("the server that was told first has ended: %w; now: %w", punctual.ErrIndeterminate, err)
}

// untilAnswered is do for a request that has its key.
func (x *sending) untilAnswered(ctx context.Context) (*reply, error) {
	s, r := x.Store, x.r
	// Other calls may change preferred meanwhile, so it is read once. Otherwise a server could be
	// asked twice, and another one not at all.
	first, n := int(s.preferred.Load()), len(s.endpoints)
	pause := firstPause
	for round := 0; ; round++ {
		for i := range n {
			at := (first + i) % n
			p, err := x.try(ctx, s.endpoints[at])
			if err != nil {
				return nil, err
			}
			if p != nil {
				s.preferred.Store(int32(at))
				return p, nil
			}
			if ctx.Err() != nil || len(x.strange) == n || round > 0 && x.isOver() {
				return nil, x.giveUp(ctx)
			}
		}
		if x.isOver() || !s.sleep(ctx, r, pause/2+rand.N(pause)) {
			return nil, x.giveUp(ctx)
		}
		pause = min(2*pause, lastPause)
	}
}

// isOver reports whether Options.RetryFor is over. It counts from the first failure.
func (x *sending) isOver() bool { return !time.Now().Before(x.until) }

// try sends a copy to one server, and another one at once if the server says that its memory is
// new, but no more than three times in one call. It sends none if that server cannot know what
// became of the copies before. It returns neither a reply nor an error if another server may be
// asked.
func (x *sending) try(ctx context.Context, e *endpoint) (*reply, error) {
	for !x.strange[e] {
		p, next, err := x.send(ctx, e)
		switch {
		case p != nil:
			p.doubt = x.doubt
			return p, nil
		case !next && !errors.As(err, &lost{}):
			return nil, err
		}
		x.last = err
		if x.until.IsZero() {
			x.until = time.Now().Add(x.opt.RetryFor)
		}
		switch {
		case !next:
			return nil, x.giveUp(ctx)
		case errors.As(err, &otherInstance{}) && x.moved < 3:
			x.moved++ // the server is there, and has said the name of its new memory, so ask it again at once
		default:
			return nil, nil
		}
	}
	return nil, nil
}

// When no server has answered, do waits before it asks them again: firstPause at first, and each
// time twice as long, up to lastPause. A random part of up to a half of the pause is added or
// subtracted, so that many clients do not ask at the same moment.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// sleep waits for d. It returns false when ctx has ended before that, or the store was closed and
// somebody waits for the answer.
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

// giveUp returns the error of a request that no server has answered.
func (x *sending) giveUp(ctx context.Context) error {
	err := x.last
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case x.closing.Err() != nil:
		err = x.calls.ErrClosed()
	}
	switch {
	case x.unsure && x.r.again != reading:
		return fmt.Errorf("%w; %w", punctual.ErrIndeterminate, err)
	case ctx.Err() != nil, x.closing.Err() != nil, errors.Is(err, punctual.ErrUnreachable):
		return err
	}
	return fmt.Errorf("%w: %w", punctual.ErrUnreachable, err)
}

// send sends one copy to a server. When there is no answer, next reports whether another copy may
// be sent.
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

// write returns the body in a form that this server can read, and puts into the header which form
// that is and which form the answer may have.
func (x *sending) write(e *endpoint, header http.Header) (body []byte, err error) {
	form := wire.JSON
	if e.compact.Load() {
		form = wire.Compact
	}
	if x.r.eitherForm {
		header.Set("Accept", form.String())
	}
	if x.r.write == nil || x.r.jsonBody {
		form = wire.JSON
	}
	if x.r.write == nil {
		body = x.r.body
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

// name writes into the header of a request with a key what the server needs to recognize copies:
// the key, whether this is the first copy, until when the request may be carried out, and which
// memory of answers is meant.
//
// If an earlier copy may have been carried out by a server with another memory, then a claim or
// settlement starts anew, as if there had been no copy. For any other request the endpoint joins
// the strange ones, and name writes nothing.
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
			if err := x.readClock(ctx, e, x.r.aside); err != nil {
				return err
			}
			now, _ = x.clock.now()
		}
		ahead := min(x.r.wait+2*x.opt.Timeout+max(0, x.opt.RetryFor), x.repeats*3/4)
		if deadline, ok := ctx.Deadline(); ok {
			ahead = min(ahead, time.Until(deadline)) // the caller does not want the request carried out after that
		}
		if x.kept.IsZero() {
			x.kept = now.Add(x.repeats)
		}
		if notAfter = now.Add(ahead); notAfter.After(x.kept) {
			notAfter = x.kept // a copy after that could carry the request out a second time, because the first answer may be forgotten
		}
	}
	x.copies++
	if x.copies == 1 && !x.r.sent {
		header.Set(wire.HeaderCopy, "1")
	}
	header.Set(wire.HeaderRequest, x.r.key)
	if !notAfter.After(limits.MaxDue) { // the header has no form for later times
		header.Set(wire.HeaderNotAfter, wire.TimeText(notAfter.UTC()))
	}
	if instance != "" {
		header.Set(wire.HeaderInstance, instance)
	}
	return nil
}

// errOtherInstance is the error for a copy that is not sent to an endpoint, or that its server has
// refused, because the server has another memory of answers than the copies before named.
func errOtherInstance(e *endpoint) error {
	return fmt.Errorf("%s has been started anew and does not know what became of the request", e.name)
}

// classify decides what an answer means for the request, whose earlier copies may have been carried
// out: a reply, an error for the caller, or (next) that another copy may be sent.
func (x *sending) classify(ctx context.Context, e *endpoint, resp *response, header http.Header) (p *reply, next bool, err error) {
	if resp.status == wire.StatusOtherInstance && *e.instance.Load() != header.Get(wire.HeaderInstance) {
		e.asked.Store(false) // the server that was started anew may have another version
		return nil, true, otherInstance{errOtherInstance(e)}
	}
	if resp.status/100 == 2 {
		if x.r.own && x.copies == 1 { // with more copies the server has to keep the answer, because one may still be on its way
			x.answered.add(x.r.key)
		}
		return &reply{status: resp.status, form: wire.FormOf(resp.contentType), body: resp.body}, false, nil
	}
	problem := resp.problem()
	if problem == nil {
		err := fmt.Errorf("%s answered status %d, which no Punctual server gives in this way", e.name, resp.status)
		if resp.status/100 == 5 { // from a proxy; the server behind it may have got the request
			x.unsure, x.instance = true, header.Get(wire.HeaderInstance)
			return nil, x.r.again != once, lost{err}
		}
		return nil, false, fmt.Errorf("%w: %w: see that the URL is right", punctual.ErrInvalid, err)
	}
	err = problem.Err()
	switch problem.Code {
	case "deadline":
		// The server has not carried out this copy. It has no answer of an earlier copy, so unless
		// such an answer may be forgotten by now, no earlier copy was carried out either.
		if !problem.Definite || x.r.key == "" {
			break
		}
		if !x.r.notAfter.IsZero() {
			return nil, false, fmt.Errorf("%s: %w", problem.Detail, context.DeadlineExceeded)
		}
		if now, _ := x.clock.now(); x.unsure && !now.Before(x.kept) {
			return nil, false, fmt.Errorf("%w; %w", punctual.ErrIndeterminate, err) // the answer to an earlier copy may be forgotten
		}
		x.unsure, x.kept = false, time.Time{}
		return nil, true, errors.Join(unsent{err}, x.readClock(ctx, e, x.r.aside))
	case "invalid":
		if !problem.Definite || !x.r.notAfter.IsZero() || header.Get(wire.HeaderNotAfter) == "" {
			break
		}
		// After a step of the store's clock back, the NotAfter that was made from the estimate may
		// lie too far ahead.
		before, _ := x.clock.now()
		if rerr := x.readClock(ctx, e, x.r.aside); rerr != nil {
			err = errors.Join(err, rerr)
			break
		}
		if now, _ := x.clock.now(); before.Sub(now) > storekit.StepBeyond {
			x.kept = x.kept.Add(now.Sub(before))
			return nil, true, unsent{err}
		}
	case "closed", "store_failed", "unreachable", "locked":
		// This server has not carried the copy out and cannot do so at the moment. Another server
		// may, or this one soon.
		return nil, true, unsent{fmt.Errorf("%s: %w", e.name, errors.New(problem.Detail))}
	case "unauthenticated":
		changed, rerr := x.token.reread()
		if changed {
			return nil, true, unsent{err}
		}
		err = errors.Join(err, rerr)
	case "overloaded":
		if x.unsure { // this refusal says nothing of the copies before
			return nil, true, err
		}
	}
	if x.unsure && problem.Definite && x.r.again != reading && !fromStore(problem.Code) {
		return nil, false, fmt.Errorf("%w; %w", punctual.ErrIndeterminate, err)
	}
	return nil, false, err
}

// fromStore reports whether a problem is the answer of the store, which has seen the earlier
// copies. Otherwise the server may have refused the request before it reached the store.
func fromStore(code string) bool {
	switch code {
	case "unauthenticated", "forbidden", "overloaded", "too_large", "invalid":
		return false
	}
	return true
}

// isProblem reports whether err is a problem with which a server has answered.
func isProblem(err error) bool {
	e := (*wire.RemoteError)(nil)
	return errors.As(err, &e)
}
