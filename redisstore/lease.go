package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/clock"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/record"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// leases takes leases, a script at a time, and gives back those that are handed out to nobody. It has no state.
type leases struct {
	route *route.Router
	names keys.Names
	clock *clock.Clock
	log   *slog.Logger
	// calls are those that Close waits for.
	calls *sync.WaitGroup
	// settle carries out settlements.
	settle func(ctx context.Context, ss []punctual.Settlement) ([]error, error)
}

// heads is when the next message of a partition needs attention, and the partition's clock, in ms.
type heads struct {
	next, now int64
	// token is that of what the call has leased, also if nothing of that is left; 0 when it has leased nothing.
	token int64
}

// some leases what one script may, and returns the version of the settings and when to ask again. It does not
// mind when ctx ends, so that no lease is given that nobody knows of.
func (l *leases) some(ctx context.Context, lease time.Duration, p keys.Partition, n int, tidy bool) (ds []punctual.Delivery, version int64, got heads, err error) {
	got.next = clock.Never
	ctx = context.WithoutCancel(ctx)
	a, err := l.route.Run(ctx, script.Claim, p, claimKey(ctx).part(nil), n, storekit.CeilDuration(lease), script.Bytes, script.Flag(tidy))
	if err != nil {
		return nil, 0, got, err
	}
	next, at, until, token := a.Int(), a.Int(), a.Int(), a.Int()
	ids, messages, states := a.List(), a.List(), a.List()
	if a.Bad || len(messages) != len(ids) || len(states) > len(ids) {
		return nil, 0, got, script.BadReply(script.Claim)
	}
	begun, end := storekit.FromMillis(at), storekit.FromMillis(until)
	ds = make([]punctual.Delivery, len(ids))
	for i := range ids {
		state := ""
		if i < len(states) {
			state = states[i]
		}
		if ds[i], err = delivery(p.Topic, token, ids[i], messages[i], state); err != nil {
			return nil, 0, got, fmt.Errorf("topic %s: %w", p.Topic, err)
		}
		ds[i].Delivered, ds[i].LeaseUntil = begun, end
	}
	return ds, a.Version, heads{next: next, now: a.Now, token: token}, nil
}

// partition leases up to n messages of a partition. It returns the version of the settings there.
func (l *leases) partition(ctx context.Context, c *punctual.Claim, p keys.Partition, n int) (ds []punctual.Delivery, version int64, err error) {
	for len(ds) < n {
		if err := ctx.Err(); err != nil {
			return ds, version, err
		}
		got, seen, next, err := l.some(ctx, c.Lease, p, min(n-len(ds), script.Items), false)
		ds, version = joined(ds, got), seen
		if err != nil || next.next > next.now || next.token != 0 && claimKey(ctx) != nil {
			return ds, version, err
		}
	}
	return ds, version, nil
}

// delivery is a message under a lease. state is empty if this is the first one.
func delivery(topic string, token int64, id, message, state string) (punctual.Delivery, error) {
	m, err := record.Read(id, message, state)
	if err != nil {
		return punctual.Delivery{}, err
	}
	if state == "" {
		m.Attempt = 1
	}
	return punctual.Delivery{Message: m.In(topic, id), Token: token, Failures: m.Failures}, nil
}

// furtherTime is for how long a claim with messages in hand waits for a further script, in ms. That is
// far longer than a script takes, and far shorter than most leases.
const furtherTime int64 = 500

// expired reports whether a lease has ended, by the store's clock.
func (l *leases) expired(d *punctual.Delivery) bool {
	return storekit.CeilMillis(d.LeaseUntil) <= l.clock.Guess()/1000
}

// unexpired is what a claim returns of what it has leased. That is only what is still leased by the store's clock
// (P3), also when the server was last heard of long ago. The rest is given back unstarted, unless another claim has
// it by then.
func (l *leases) unexpired(ctx context.Context, ds []punctual.Delivery, err error) ([]punctual.Delivery, error) {
	now := l.clock.Guess() / 1000
	over := func(d punctual.Delivery) bool { return storekit.CeilMillis(d.LeaseUntil) <= now }
	if !slices.ContainsFunc(ds, over) {
		return ds, err
	}
	var lapsed []punctual.Delivery
	for _, d := range ds {
		if over(d) {
			lapsed = append(lapsed, d)
		}
	}
	ds = slices.DeleteFunc(ds, over)
	if len(ds) == 0 {
		l.giveBack(ctx, lapsed)
		return nil, err
	}
	late, stop := l.clock.After(l.clock.Now() + furtherTime*1000) // the leases of ds run
	defer stop()
	given := make(chan struct{})
	l.calls.Go(func() {
		defer close(given)
		l.giveBack(ctx, lapsed)
	})
	select {
	case <-given:
	case <-late:
	}
	return ds, err
}

// giveBack releases what was leased and is not handed out, the attempts uncounted. What another claim has taken
// meanwhile it leaves alone.
func (l *leases) giveBack(ctx context.Context, ds []punctual.Delivery) {
	if len(ds) == 0 {
		return
	}
	if err := l.undelivered(context.WithoutCancel(ctx), ds); err != nil {
		l.log.Warn("redis store: a claim took long and could not give back what it had leased; it comes again, with one attempt more", "messages", len(ds), "error", err)
	}
}

// undelivered is Undelivered within a call that is under way.
func (l *leases) undelivered(ctx context.Context, ds []punctual.Delivery) error {
	r, ok := storekit.RequestOf(ctx)
	ctx = storekit.WithoutRequest(ctx)
	var failed error
	mine := make(map[keys.Partition]bool)
	ss := make([]punctual.Settlement, 0, len(ds))
	for _, d := range ds {
		p := l.names.Partition(d.Topic, keys.OfToken(d.Token))
		if _, asked := mine[p]; ok && !asked {
			got, err := l.route.Send(ctx, script.Forget, []any{p.Records(0), p.Records(1)}, []any{fieldOf(r.Key, nil)})
			failed = errors.Join(failed, err)
			mine[p] = err == nil && len(got) == 1 && got[0] == int64(1)
		}
		if !ok || mine[p] {
			ss = append(ss, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleRelease})
		}
	}
	if len(ss) == 0 {
		return failed
	}
	errs, err := l.settle(ctx, ss)
	if err != nil {
		err = fmt.Errorf("settle: %w", err)
	}
	for _, e := range errs {
		if !errors.Is(e, punctual.ErrLeaseLost) && !errors.Is(e, punctual.ErrCancelled) {
			err = errors.Join(err, e)
		}
	}
	if err = errors.Join(failed, err); err != nil {
		return fmt.Errorf("give back what was leased: %w", err)
	}
	return nil
}

// joined appends more to ds. Most often one of them is empty, and nothing is copied.
func joined(ds, more []punctual.Delivery) []punctual.Delivery {
	if len(ds) == 0 {
		return more
	}
	return append(ds, more...)
}
