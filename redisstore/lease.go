package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/clock"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/record"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// leases leases messages, a script at a time, and gives back those that no caller gets. It has no
// state.
type leases struct {
	route *route.Router
	names keys.Names
	clock *clock.Clock
	log   *slog.Logger
	// calls are the store's, so that Close waits for the releases of a claim that has returned.
	calls *storekit.Calls
	// settle carries out settlements.
	settle func(ctx context.Context, ss []punctual.Settlement) ([]error, error)
}

// outlook is what the script Claim says besides its messages.
type outlook struct {
	// next is when the next message of the partition needs attention, in ms; clock.Never for none.
	// After a claim by ID it is how many of the IDs the script has read, or more.
	next int64
	now  int64 // by the partition's clock, in ms
	// token is the token of the messages that the call has leased; 0 when it has leased nothing. A
	// copy of the call has the token also when none of these messages is leased any more.
	token int64
}

// some leases up to n messages of a partition with one script, and returns the version of the
// settings there. It goes on when ctx ends, so that no message is leased without anybody knowing.
func (l *leases) some(ctx context.Context, lease time.Duration, p keys.Partition, n int, tidy bool) (ds []punctual.Delivery, version int64, got outlook, err error) {
	ctx = context.WithoutCancel(ctx)
	a, err := l.route.Run(ctx, script.Claim, p, claimKey(ctx).part(nil), n, storekit.CeilDuration(lease), script.Bytes, script.Flag(tidy))
	if err != nil {
		return nil, 0, outlook{next: clock.Never}, err
	}
	return l.leased(p, a)
}

// leased reads the answer of claim.lua.
func (l *leases) leased(p keys.Partition, a *script.Answer) (ds []punctual.Delivery, version int64, got outlook, err error) {
	got.next = clock.Never
	next, at, until, token := a.Int(), a.Int(), a.Int(), a.Int()
	ids, messages, states := a.List(), a.List(), a.List()
	var turns []string // of a topic with keys
	if len(a.Items) > 0 {
		turns = a.List()
	}
	if a.Bad || len(messages) != len(ids) || len(states) > len(ids) || len(turns) > len(ids) {
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
		if i < len(turns) && turns[i] != "" {
			turn, err := strconv.ParseInt(turns[i], 10, 64)
			if err != nil {
				return nil, 0, got, script.BadReply(script.Claim)
			}
			ds[i].Turn = storekit.FromMillis(max(turn, storekit.CeilMillis(ds[i].Due)))
		}
	}
	return ds, a.Version, outlook{next: next, now: a.Now, token: token}, nil
}

// partition leases up to n messages of a partition with one script after another, as long as more
// may be due. It returns the version of the settings there.
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

// delivery makes a Delivery of the two records of a message. state is empty under a compact lease,
// which is at the first attempt.
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

// furtherTime is how long, in ms, a scan that has found messages waits for a further script, and
// any claim that has found some for others to be given back: far longer than a script takes, and
// far shorter than most leases.
const furtherTime int64 = 500

// expired reports whether a lease has ended, by the store's clock.
func (l *leases) expired(d *punctual.Delivery) bool {
	return storekit.CeilMillis(d.LeaseUntil) <= l.clock.Guess()/1000
}

// unexpired returns those of the messages that a claim has leased whose leases have not ended, as
// far as the store's clock can be known (P3): the process may have stood still, or the answer may
// have been long under way. The others are given back unstarted, unless another claim has leased
// them by then. err is returned as it is.
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

// giveBack releases messages that were leased and that no caller gets, so that the attempts do not
// count. Messages that another claim has leased meanwhile stay leased.
func (l *leases) giveBack(ctx context.Context, ds []punctual.Delivery) {
	if len(ds) == 0 {
		return
	}
	if err := l.undelivered(context.WithoutCancel(ctx), ds); err != nil {
		l.log.Warn("redis store: a claim took long and could not give back what it had leased; it comes again, with one attempt more", "messages", len(ds), "error", err)
	}
}

// undelivered is Store.Undelivered within a call that is under way. Where ctx has a key, the script
// Forget first finds out for each partition whether no copy of the claim has the messages.
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
