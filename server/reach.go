package server

import (
	"context"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// reaching is a store over which a follow-up may name any topic, if the store below has follow-ups
// at all: where that store reaches only a family, reaching puts the other follow-ups into envelopes
// (storekit.Settle), which a duty forwards. It stands right above the store and below
// Server.answers, so that Server.answers compares a call which is sent again as the client sent it.
//
// It has no Unwrap, because it changes settlements. The server asks the store itself for its other
// interfaces.
type reaching struct {
	store punctual.Store
	// moved is called for each settlement with envelopes that was made or may have been made.
	moved func(x *punctual.Settlement, envelopes int)
}

// Settle implements punctual.Store.
func (r reaching) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	return storekit.Settle(ctx, r.store, ss, r.moved)
}

// Push implements punctual.Store.
func (r reaching) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return r.store.Push(ctx, ms)
}

// Claim implements punctual.Store.
func (r reaching) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	return r.store.Claim(ctx, c)
}

// Amend implements punctual.Store.
func (r reaching) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	return r.store.Amend(ctx, as)
}

// Now implements punctual.Store.
func (r reaching) Now(ctx context.Context) (time.Time, error) { return r.store.Now(ctx) }

// forwarded writes into the log that follow-ups of x are forwarded in envelopes.
func (s *Server) forwarded(x *punctual.Settlement, envelopes int) {
	s.log.Debug("follow-ups are forwarded", "topic", x.Topic, "id", x.ID, "forwarded", envelopes)
}

// Close implements punctual.Store.
func (r reaching) Close() error { return r.store.Close() }
