package remotestore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// batch sends those items of which check says nothing, in as few requests as the server's limit allows. It returns a
// result for each item, in order. What one request cannot carry is halved.
//
// The error of the first request is that of the call. A later one leaves what is done before in place, so its items
// have the error.
func batch[I, R any](ctx context.Context, s *Store, name string, items []I, check func(*I) error, send func(context.Context, []I) ([]R, error), refused func(*I, error) R) ([]R, error) {
	if err := s.enter(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer s.running.Done()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := storekit.CheckBatch(len(items)); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out := make([]R, len(items))
	good := make([]I, 0, len(items))
	at := make([]int, 0, len(items))
	for i := range items {
		if err := check(&items[i]); err != nil {
			out[i] = refused(&items[i], err)
			continue
		}
		good, at = append(good, items[i]), append(at, i)
	}
	parts := [][]I{good}
	if len(good) == 0 {
		parts = nil
	}
	done := 0
	var broken error // why no further part is sent
	for len(parts) > 0 {
		part := parts[0]
		var rs []R
		err := broken
		if err == nil {
			rs, err = send(ofPart(ctx, done), part)
		}
		if err == nil && len(rs) != len(part) {
			err = fmt.Errorf("the server answered %d results for %d items: %w", len(rs), len(part), punctual.ErrIndeterminate)
		}
		// What is in doubt is not halved: the halves are other requests, and would be carried out beside the whole.
		tooLarge := errors.Is(err, punctual.ErrTooLarge) && punctual.Definite(err)
		if tooLarge && len(part) > 1 {
			half := len(part) / 2
			parts = slices.Concat([][]I{part[:half], part[half:]}, parts[1:])
			continue
		}
		if err != nil && done == 0 && broken == nil && !tooLarge {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for i := range part {
			if err != nil {
				out[at[done+i]] = refused(&part[i], err)
			} else {
				out[at[done+i]] = rs[i]
			}
		}
		if err != nil && broken == nil && !tooLarge {
			broken = fmt.Errorf("not sent, since a part before was not answered: %w", punctual.ErrUnreachable)
		}
		done += len(part)
		parts = parts[1:]
	}
	return out, nil
}

// ofPart is the context for the part of a call that begins at an item. A key that the caller gave is one for each part.
func ofPart(ctx context.Context, item int) context.Context {
	r, ok := storekit.RequestOf(ctx)
	if !ok || item == 0 {
		return ctx
	}
	r.Key += "." + strconv.Itoa(item)
	return storekit.WithRequest(ctx, r)
}

// post sends a request with a key, which the server may wait for so long before it answers.
func (s *Store) post(ctx context.Context, r *request, wait time.Duration) (*reply, error) {
	if own, ok := storekit.RequestOf(ctx); ok {
		now, _ := s.clock.now()
		if err := storekit.CheckRequest(storekit.Request{Key: own.Key, NotAfter: now}, now, s.repeats); err != nil {
			return nil, err // what cannot stand in a header
		}
		r.key, r.notAfter, r.sent = own.Key, own.NotAfter, !own.First
	}
	r.method, r.wait = http.MethodPost, wait
	return s.do(ctx, r)
}

// Push implements punctual.Store.
func (s *Store) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return batch(ctx, s, "push", ms,
		func(m *punctual.NewMessage) error { return storekit.CheckPush(m, int(s.limits.MaxBody)) },
		s.push,
		func(m *punctual.NewMessage, err error) punctual.PushResult {
			return punctual.PushResult{ID: m.ID, Topic: m.Topic, Err: err}
		})
}

func (s *Store) push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	named := s.makesUpIDs(ctx)
	for i := range ms { // batch has made them its own
		if ms[i].ID == "" && named {
			now, _ := s.clock.now()
			ms[i].ID = storekit.NewID(now)
		}
		if due := ms[i].Due; !due.IsZero() {
			ms[i].Due = time.UnixMilli(storekit.CeilMillis(due)).UTC()
		}
	}
	r := &request{path: wire.PathPush, again: keyed, eitherForm: true}
	r.write = func(f wire.Form) ([]byte, error) { return wire.EncodePush(f, ms) }
	p, err := s.post(ctx, r, 0)
	if err != nil {
		return nil, err
	}
	return wire.DecodePushAnswer(p.form, p.body)
}

// makesUpIDs tells whether the messages of a push get their IDs here. Servers that know each other's requests make them up of the
// request's key, so they would tell no time.
func (s *Store) makesUpIDs(ctx context.Context) bool {
	_, key := storekit.RequestOf(ctx)
	instance := s.endpoints[s.preferred.Load()].instance.Load()
	return !key && instance != nil && *instance == ""
}

// Settle implements punctual.Store.
func (s *Store) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	return batch(ctx, s, "settle", ss,
		func(x *punctual.Settlement) error { return storekit.CheckSettlement(x, int(s.limits.MaxBody)) },
		s.settle,
		func(_ *punctual.Settlement, err error) error { return err })
}

func (s *Store) settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	for i := range ss {
		ss[i].Error = storekit.TrimError(ss[i].Error) // batch has made them its own
	}
	r := &request{path: wire.PathSettle, again: anew, eitherForm: true}
	r.write = func(f wire.Form) ([]byte, error) { return wire.EncodeSettle(f, ss) }
	p, err := s.post(ctx, r, 0)
	if err != nil {
		return nil, err
	}
	errs, err := wire.DecodeSettleAnswer(p.form, p.body)
	if err != nil {
		return nil, err
	}
	for i := range errs {
		if p.doubt && errors.Is(errs[i], punctual.ErrLeaseLost) {
			errs[i] = fmt.Errorf("the server that was told first has ended: %w; now: %w", punctual.ErrIndeterminate, errs[i])
		}
	}
	return errs, nil
}

// Amend implements punctual.Store.
func (s *Store) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	return batch(ctx, s, "amend", as, storekit.CheckAmendment,
		s.amend,
		func(_ *punctual.Amendment, err error) punctual.Amended { return punctual.Amended{Err: err} })
}

func (s *Store) amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	in := wire.AmendRequest{Amendments: make([]wire.AmendItem, len(as))}
	for i := range as {
		var err error
		if in.Amendments[i], err = wire.AmendItemOf(&as[i]); err != nil {
			return nil, err
		}
	}
	r := &request{path: wire.PathAmend, again: keyed}
	var err error
	if r.body, err = wire.Encode(in); err != nil {
		return nil, fmt.Errorf("encode the request: %w: %w", punctual.ErrInvalid, err)
	}
	p, err := s.post(ctx, r, 0)
	if err != nil {
		return nil, err
	}
	var a wire.AmendAnswer
	if err := wire.DecodeAnswer(p.body, &a); err != nil {
		return nil, fmt.Errorf("the server's answer is not understood: %w; %w", punctual.ErrIndeterminate, errors.New(err.Error()))
	}
	out := make([]punctual.Amended, len(a.Results))
	for i := range a.Results {
		out[i] = a.Results[i].Amended()
	}
	return out, nil
}

// Claim implements punctual.Store. One that waits for longer than the server allows is asked for in parts.
func (s *Store) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	ds, err := s.claim(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return ds, nil
}

func (s *Store) claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.running.Done()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := storekit.CheckClaim(&c); err != nil {
		return nil, err
	}
	c.Max = min(c.Max, s.limits.MaxClaim)
	part := min(time.Duration(s.limits.MaxWait), s.repeats/2)
	if c.Wait <= part {
		return s.claimPart(ctx, c)
	}
	began, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	until := began.Add(c.Wait)
	for {
		c.Wait = min(c.Wait, part)
		if ds, err := s.claimPart(ctx, c); len(ds) > 0 || err != nil {
			return ds, err
		}
		now, err := s.now(ctx)
		if err != nil {
			return nil, err
		}
		if c.Wait = until.Sub(now); c.Wait <= 0 {
			return []punctual.Delivery{}, nil
		}
	}
}

func (s *Store) claimPart(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	in, err := wire.ClaimRequestOf(c)
	if err != nil {
		return nil, err
	}
	r := &request{path: wire.PathClaim, again: anew, eitherForm: true}
	if r.body, err = wire.Encode(in); err != nil {
		return nil, fmt.Errorf("encode the request: %w: %w", punctual.ErrInvalid, err)
	}
	p, err := s.post(ctx, r, c.Wait)
	switch {
	case err != nil:
		return nil, s.abandon(ctx, r, err)
	case p.status == http.StatusNoContent:
		return []punctual.Delivery{}, nil
	}
	return wire.DecodeClaimAnswer(p.form, p.body)
}

// abandon is the error of a claim that ended without an answer. What the claim leased nevertheless is given back
// aside, as soon as the server can be asked.
func (s *Store) abandon(ctx context.Context, r *request, err error) error {
	ended := ctx.Err()
	if s.closing.Err() != nil {
		ended = errClosed()
	}
	if ended == nil || !errors.Is(err, punctual.ErrIndeterminate) {
		return err
	}
	if !r.own || s.enter() != nil {
		return ended
	}
	go func() {
		defer s.running.Done()
		ctx, end := context.WithTimeout(context.WithoutCancel(ctx), min(s.opt.Timeout, releaseLimit))
		defer end()
		if err := s.release(ctx, r); err != nil {
			s.opt.Logger.Warn("remote store: what a claim leased whose caller had gone could not be given back; it comes again, with one attempt more", "error", err)
		}
	}()
	return ended
}

// releaseLimit is how long it may take to give back what a claim leased whose caller has gone. Close waits for that.
const releaseLimit = 3 * time.Second

// longAgo is until when a copy may be carried out that only asks for the answer.
var longAgo = time.UnixMilli(1)

// release asks what a claim leased and gives it back.
func (s *Store) release(ctx context.Context, of *request) error {
	r := &request{method: of.method, path: of.path, body: of.body, eitherForm: true, again: keyed, key: of.key, notAfter: longAgo, sent: true, aside: true}
	p, err := s.do(ctx, r)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil // it leased nothing
	}
	if err != nil || p.status == http.StatusNoContent {
		return err
	}
	ds, err := wire.DecodeClaimAnswer(p.form, p.body)
	if err != nil {
		return err
	}
	ss := make([]punctual.Settlement, len(ds))
	for i, d := range ds {
		ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleRelease}
	}
	r = &request{method: http.MethodPost, path: wire.PathSettle, again: anew, aside: true, eitherForm: true}
	r.write = func(f wire.Form) ([]byte, error) { return wire.EncodeSettle(f, ss) }
	_, err = s.do(ctx, r) // an item that fails was claimed by another one or has ended
	s.answered.add(of.key)
	return err
}

// Now implements punctual.Store.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.enter(); err != nil {
		return time.Time{}, err
	}
	defer s.running.Done()
	now, err := s.now(ctx)
	if err != nil {
		return now, fmt.Errorf("clock: %w", err)
	}
	s.clock.hear(now)
	return now, nil
}

func (s *Store) now(ctx context.Context) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	p, err := s.do(ctx, &request{method: http.MethodGet, path: wire.PathClock, again: reading})
	if err != nil {
		return time.Time{}, err
	}
	var c wire.Clock
	if err := wire.DecodeAnswer(p.body, &c); err != nil {
		return time.Time{}, fmt.Errorf("the server's clock is not understood: %w", err)
	}
	return time.Time(c.Now), nil
}
