package remotestore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// batch sends the items that check accepts, in one request if the server takes that, and returns a
// result for each item, in order. A request that is too large is divided into two halves, which are
// divided again if they are still too large.
//
// If the first request fails, its error is the error of the call. If a later one fails, its items
// have that error, and the items after it, which are not sent, an ErrUnreachable; the items before
// have their results. If a single item is too large for a request, only that item has an error.
func batch[I, R any](ctx context.Context, s *Store, name string, items []I, check func(*I) error, send func(context.Context, []I) ([]R, error), refused func(*I, error) R) ([]R, error) {
	if err := s.calls.Begin(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer s.calls.End()
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
		// A request that may have been carried out is not divided, because its halves would be
		// carried out in addition to it.
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

// ofPart returns the context for the part of a call that begins at an item. If the caller gave a
// key, the part at item 0 has that key, and each other part a key that is made from it, because the
// parts are different requests. That key is a hash, so it is the same when the call is repeated,
// and never longer than a key may be.
func ofPart(ctx context.Context, item int) context.Context {
	r, ok := storekit.RequestOf(ctx)
	if !ok || item == 0 {
		return ctx
	}
	sum := sha256.Sum256([]byte(r.Key + " " + strconv.Itoa(item)))
	r.Key = hex.EncodeToString(sum[:])
	return storekit.WithRequest(ctx, r)
}

// post sends a request with a key: the caller's if ctx has one, or else one that do makes. The
// server may wait for up to wait before it answers.
func (s *Store) post(ctx context.Context, r *request, wait time.Duration) (*reply, error) {
	if own, ok := storekit.RequestOf(ctx); ok {
		now, _ := s.clock.now()
		if err := storekit.CheckRequest(storekit.Request{Key: own.Key, NotAfter: now}, now, s.repeats); err != nil {
			return nil, err // for instance a key that cannot stand in a header
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
	for i := range ms { // the messages may be changed, because batch has copied them
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

// makesUpIDs reports whether messages without an ID get one here, before the push is sent. That is
// so where servers share the answers to requests in their store, unless the caller gave a key. Such
// a store makes an ID from the key of the request, and an ID of that kind does not sort by time.
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
		ss[i].Error = storekit.TrimError(ss[i].Error) // the settlements may be changed, because batch has copied them
	}
	// The server is asked not to add the AfterHeader to follow-ups, because a store hands them on
	// as its caller gives them.
	r := &request{path: wire.PathSettle, again: anew, eitherForm: true, jsonBody: wire.SettleNeedsJSON(ss)}
	if r.jsonBody {
		r.path += "?after_header=false"
	}
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
			errs[i] = inDoubt(errs[i])
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

// Claim implements punctual.Store. A claim that is to wait for longer than the server allows, or
// than half of Repeats, is sent in several requests.
func (s *Store) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	ds, err := s.claim(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return ds, nil
}

func (s *Store) claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if err := s.calls.Begin(ctx); err != nil {
		return nil, err
	}
	defer s.calls.End()
	if err := storekit.CheckClaim(&c); err != nil {
		return nil, err
	}
	c.Max = min(cmp.Or(c.Max, len(c.IDs)), s.limits.MaxClaim)
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

// abandon returns the error of a claim that has failed. If the caller has gone, a goroutine
// releases the messages that the claim may have leased nevertheless, so that they need not wait for
// the end of those leases. Close waits for that goroutine. Nothing is released when the store is
// closing already, or when the caller gave the key.
func (s *Store) abandon(ctx context.Context, r *request, err error) error {
	ended := ctx.Err()
	if s.closing.Err() != nil {
		ended = s.calls.ErrClosed()
	}
	if ended == nil || !errors.Is(err, punctual.ErrIndeterminate) {
		return err
	}
	if !r.own || s.calls.Begin(context.WithoutCancel(ctx)) != nil {
		return ended
	}
	go func() {
		defer s.calls.End()
		ctx, end := context.WithTimeout(context.WithoutCancel(ctx), min(s.opt.Timeout, releaseLimit))
		defer end()
		if err := s.release(ctx, r); err != nil {
			s.opt.Logger.Warn("remote store: what a claim leased whose caller had gone could not be given back; it comes again, with one attempt more", "error", err)
		}
	}()
	return ended
}

// releaseLimit is how long abandon may take at most to release messages. It is short because Close
// waits for that.
const releaseLimit = 3 * time.Second

// longAgo is the NotAfter of a copy that only asks for the answer to an earlier copy. Because that
// time is over, the server does not carry the copy out.
var longAgo = time.UnixMilli(1)

// release asks a server for the answer to a claim, and releases the messages in it.
func (s *Store) release(ctx context.Context, of *request) error {
	r := &request{method: of.method, path: of.path, body: of.body, eitherForm: true, again: keyed, key: of.key, notAfter: longAgo, sent: true, aside: true}
	p, err := s.do(ctx, r)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil // the claim was never carried out, so it has leased nothing
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
	_, err = s.do(ctx, r) // items that fail do not matter: their leases are over, or run out
	s.answered.add(of.key)
	return err
}

// Now implements punctual.Store.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.calls.Begin(ctx); err != nil {
		return time.Time{}, err
	}
	defer s.calls.End()
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
