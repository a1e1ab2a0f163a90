package health

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/storekit"
	"github.com/redis/go-redis/v9"
)

// watchClockEvery is the time between two comparisons of the store's clock with those of the
// servers.
const watchClockEvery = time.Second

// WatchClock compares the store's clock with those of the servers, and makes it step back when it
// has been too far ahead for too long (storekit.StepRule).
func (h *Health) WatchClock(ctx context.Context) error {
	if err := h.readSteps(ctx); err != nil {
		return err
	}
	servers, err := h.serversTime(ctx)
	if err != nil || !h.o.Clock.StepDue(servers) {
		return err
	}
	_, err = h.step(ctx, servers)
	return err
}

// StepFakeClock does what WatchClock does when the clock of a test takes the place of the servers',
// without asking a server unless the store's clock is to step. It does nothing with a server's
// clock, because there the background loop watches.
func (h *Health) StepFakeClock(ctx context.Context) error {
	now, fake := h.o.Clock.FakeTime()
	if !fake || !h.o.Clock.StepDue(now) {
		return nil
	}
	_, err := h.step(ctx, now)
	return err
}

// Clock returns how the store's clock stands to those of the servers. With step it steps back to
// them first if it is ahead.
func (h *Health) Clock(ctx context.Context, step bool) (storekit.ClockState, error) {
	var d dataSet
	servers, err := h.serversTime(ctx)
	switch {
	case err != nil:
	case step:
		d, err = h.step(ctx, servers)
	default:
		d, err = h.readStore(ctx, "", false, "")
	}
	if err == nil {
		servers, err = h.serversTime(ctx) // once more, because time has passed
	}
	d.clock.Ahead = max(d.clock.Now.Sub(storekit.FromMillis(servers)), 0)
	return d.clock, err
}

// readSteps takes in what the hash of the store says of the clock, so that this process learns of
// steps that others made.
func (h *Health) readSteps(ctx context.Context) error {
	got, err := h.client.HMGet(ctx, h.o.Names.Store(), "steps", "clock").Result()
	if err != nil {
		return fmt.Errorf("HMGET: %w", errkind.OfRead(err))
	}
	var numbers [2]int64
	for i, v := range got {
		text, there := v.(string)
		if !there {
			continue
		}
		if numbers[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return fmt.Errorf("the clock in %s cannot be read: %w (%v)", h.o.Names.Store(), punctual.ErrCorrupt, err)
		}
	}
	h.o.Clock.Learn(numbers[0], numbers[1])
	return nil
}

// serversTime returns the time of the servers, in ms. On a cluster that is the latest of the nodes
// that answer, so that one node whose clock stays ahead causes no step.
func (h *Health) serversTime(ctx context.Context) (latest int64, err error) {
	if now, fake := h.o.Clock.FakeTime(); fake {
		return now, nil
	}
	var mu sync.Mutex
	var errs error // guarded by mu
	answered := false
	err = forEachPrimary(ctx, h.client, func(ctx context.Context, c redis.UniversalClient) error {
		addr := route.AddrOf(c)
		if _, cluster := h.client.(*redis.ClusterClient); cluster && h.o.Route.Nodes.Failing(addr) {
			return nil
		}
		now, err := c.Time(ctx).Result()
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("TIME: %w", errkind.OfRead(err)))
			return nil
		}
		answered, latest = true, max(latest, now.UnixMilli())
		return nil
	})
	switch {
	case answered:
		return latest, nil
	case err == nil && errs == nil:
		err = fmt.Errorf("no node answers: %w", punctual.ErrUnreachable)
	}
	return 0, errors.Join(err, errs)
}

// step makes the store's clock step back to a time, in ms, unless it is not ahead of that or
// another process makes the step.
func (h *Health) step(ctx context.Context, to int64) (dataSet, error) {
	d, err := h.readStore(ctx, "", false, strconv.FormatInt(to, 10))
	if err == nil && d.stepped {
		last := d.clock.Last
		h.o.Logger.Warn("redis store: the clock was ahead of the server's and has stepped back to it", "from", last.From, "to", last.To, "by", last.From.Sub(last.To), "steps", d.clock.Steps)
	}
	return d, err
}
