package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/answers"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// claimTopic claims from the topic in the path.
func (c *call) claimTopic() (err error) {
	req := punctual.Claim{Topics: []string{c.path["topic"]}}
	if req.Max, err = c.number("max", 1); err != nil {
		return err
	}
	if req.Wait, err = c.duration("wait"); err != nil {
		return err
	}
	if req.Lease, err = c.duration("lease"); err != nil {
		return err
	}
	return c.claim(req)
}

// claimMessage claims the message in the path.
func (c *call) claimMessage() (err error) {
	req := punctual.Claim{Topics: []string{c.path["topic"]}, IDs: []string{c.path["id"]}}
	if req.Lease, err = c.duration("lease"); err != nil {
		return err
	}
	return c.claim(req)
}

// notReady returns why a claim has not leased a message.
func (c *call) notReady(topic, id string) error {
	if c.server.inspector == nil {
		return storekit.Errorf(punctual.ErrChanged, "%s in %s is not ready", id, topic)
	}
	m, err := storeCall(c, func(ctx context.Context) (punctual.Info, error) { return c.server.inspector.Get(ctx, topic, id) })
	switch {
	case err != nil:
		return err
	case m.State == punctual.StateDead:
		return storekit.Errorf(punctual.ErrNotFound, "%s in %s is dead (%s): requeue it", id, topic, m.Reason)
	case m.State == punctual.StateLeased:
		return storekit.Errorf(punctual.ErrLeased, "%s in %s has a lease until %s", id, topic, wire.TimeText(m.LeaseUntil))
	case m.State == punctual.StateScheduled:
		return storekit.Errorf(punctual.ErrChanged, "%s in %s is due at %s: claim it then, or reschedule it", id, topic, wire.TimeText(m.Due))
	}
	return storekit.Errorf(punctual.ErrChanged, "%s in %s is ready, and a pause or a bound of the topic keeps it, or did a moment ago", id, topic)
}

// claimMany claims from the topics in the body.
func (c *call) claimMany() error {
	var r wire.ClaimRequest
	if err := wire.DecodeRequest(c.body, &r); err != nil {
		return err
	}
	return c.claim(r.Claim())
}

// claim checks rights and limits and claims, as one answer or as a stream, whichever the client
// asks for.
func (c *call) claim(req punctual.Claim) error {
	if err := c.mayClaim(req.Topics); err != nil {
		return err
	}
	limits := c.server.limits
	stream := c.wants(wire.TypeNDJSON)
	req.Max = cmp.Or(req.Max, len(req.IDs))
	switch {
	case req.Max > limits.MaxClaim:
		return fmt.Errorf("claim of %d messages: at most %d are allowed: %w", req.Max, limits.MaxClaim, punctual.ErrTooLarge)
	case req.Wait > limits.MaxWait:
		return storekit.Invalidf("claim waits %v: use at most %v, and ask again", req.Wait, limits.MaxWait)
	case c.wants(wire.TypeRaw) && req.Max != 1:
		return storekit.Invalidf("an answer that is the message itself has one: use max=1, or Accept: application/json")
	case stream && len(req.IDs) > 0:
		return storekit.Invalidf("a claim by ID as a stream: it is answered once, so leave out Accept: %s", wire.TypeNDJSON)
	case c.query.Has("window") && !stream:
		return storekit.Invalidf("parameter \"window\" is for Accept: %s", wire.TypeNDJSON)
	case c.server.isDraining():
		return fmt.Errorf("the server is ending: %w", punctual.ErrClosed)
	}
	defer c.client.waiting.Add(-1)
	if c.client.waiting.Add(1) > int64(limits.MaxWaiting) {
		return &refusal{
			status: http.StatusTooManyRequests,
			err:    fmt.Errorf("%s has %d claims under way already: %w", c.principal.Name, limits.MaxWaiting, punctual.ErrOverloaded),
		}
	}
	c.dropBody()
	if err := c.hold(sizeOfNames(req.Topics) + sizeOfNames(req.IDs)); err != nil {
		return err
	}
	defer c.server.tracker.Waits(c.caller(), req.Topics)()
	if stream {
		return c.stream(req)
	}
	return c.claimOnce(req)
}

// sizeOfNames estimates how many bytes the topic names or IDs of a claim take in the server and in
// the store while the claim waits.
func sizeOfNames(names []string) int64 {
	n := int64(0)
	for _, t := range names {
		n += 200 + int64(len(t))
	}
	return n
}

func (c *call) mayClaim(topics []string) error {
	for _, t := range topics {
		if err := c.allows(access.Work, t); err != nil {
			return err
		}
	}
	return nil
}

// claimOnce answers a claim that is not a stream: it waits for messages and sends them in one
// answer.
func (c *call) claimOnce(req punctual.Claim) error {
	ctx, end, err := c.storeContext(req.Wait)
	if err != nil {
		return err
	}
	defer end()
	ds, err := c.claimDue(ctx, req)
	switch {
	case err != nil:
		return err
	case len(ds) == 0 && c.path["id"] != "" && !c.server.isDraining():
		return c.notReady(req.Topics[0], req.IDs[0])
	case len(ds) == 0:
		return c.write(http.StatusNoContent, "", nil)
	}
	if err := c.deliver(ds); err != nil {
		return c.giveBack(ctx, ds, err)
	}
	return nil
}

// claimDue claims once. If the server drains during the wait, claimDue returns no messages. It
// releases the messages and fails if the client has gone or may no longer have them, or if
// Server.memory has no room for them. The messages that it returns count in Server.memory.
func (c *call) claimDue(ctx context.Context, req punctual.Claim) ([]punctual.Delivery, error) {
	s := c.server
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.draining, stop)()
	began := time.Now()
	ds, err := s.store.Claim(waiting, req)
	took := time.Since(began)
	c.waited += took
	switch {
	case err != nil && s.isDraining() && ctx.Err() == nil && errors.Is(err, context.Canceled):
		return nil, nil
	case err != nil && c.r.Context().Err() != nil:
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	case err != nil:
		return nil, storeError(ctx, err)
	case len(ds) == 0:
		return nil, nil
	}
	if c.r.Context().Err() != nil {
		return nil, c.giveBack(ctx, ds, fmt.Errorf("the client has gone: %w", errNotSent))
	}
	p, err := s.authenticate(c.r) // once more, because the token may have been revoked during the wait
	if err != nil {
		return nil, c.giveBack(ctx, ds, err)
	}
	c.principal = p
	if err := c.mayClaim(req.Topics); err != nil {
		return nil, c.giveBack(ctx, ds, err)
	}
	if err := c.hold(answers.SizeOfDeliveries(ds)); err != nil {
		return nil, c.giveBack(ctx, ds, err)
	}
	s.tracker.Claimed(c.caller(), ds)
	return ds, nil
}

// deliver sends the messages of one claim.
func (c *call) deliver(ds []punctual.Delivery) error {
	c.leases = true
	if c.wants(wire.TypeRaw) {
		d, h := &ds[0], c.w.Header()
		if err := setMessageHeaders(h, &d.Message); err != nil {
			return err
		}
		h.Set(wire.HeaderToken, strconv.FormatInt(d.Token, 10))
		h.Set(wire.HeaderLeaseUntil, wire.TimeText(d.LeaseUntil))
		return c.write(http.StatusOK, wire.TypeRaw, d.Body)
	}
	if c.form() == wire.Compact {
		data, err := wire.EncodeClaimAnswer(wire.Compact, ds)
		return c.encoded(data, err)
	}
	out := &pieces{call: c}
	err := wire.WriteClaimAnswer(out, wire.JSON, ds)
	if err != nil && !errors.Is(err, errNotSent) {
		err = notEncoded(err)
	}
	out.pending = append(out.pending, '\n')
	return out.end(err)
}

// takesBack is implemented by stores that keep answers and know which claims were answered more
// than once, so that messages which a copy of the claim got as well stay leased.
type takesBack interface {
	// Undelivered releases messages that a Claim with this context returned and that did not reach
	// its caller.
	Undelivered(ctx context.Context, ds []punctual.Delivery) error
}

// giveBack releases messages that did not reach their client, so that the next claim gets them at
// once and no attempt is counted. It returns cause.
func (c *call) giveBack(ctx context.Context, ds []punctual.Delivery, cause error) error {
	s := c.server
	s.tracker.Returned(ds)
	var err error
	if s.takesBack != nil {
		limited, end := context.WithTimeout(context.WithoutCancel(ctx), s.limits.StoreTime)
		err = s.takesBack.Undelivered(limited, ds)
		end()
	} else {
		err = answers.Release(ctx, s.store, ds, s.limits.StoreTime)
	}
	if err != nil {
		s.log.Warn("messages that did not reach their client could not be released: their leases run out", "messages", len(ds), "error", err)
	}
	return cause
}
