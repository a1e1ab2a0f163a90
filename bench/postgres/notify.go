package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// notify measures pushes by many connections, each in a transaction of its own. There are three variants: no NOTIFY,
// one in each transaction, and one for all that were committed within 2 ms. The last comes from a connection of its
// own. One connection listens.
func notify(l *lab) error {
	fmt.Fprintln(l.out, "| callers | batch | NOTIFY | messages/s | server CPU µs per message | notifications received |")
	fmt.Fprintln(l.out, "|--:|--:|---|--:|--:|--:|")
	for _, callers := range []int{1, 16, 64} {
		for _, batch := range []int{1, 100} {
			for _, how := range []string{"none", "in the transaction", "coalesced"} {
				if err := notifyVariant(l, how, callers, batch); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func notifyVariant(l *lab, how string, callers, batch int) (err error) {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	x := layouts()[0]
	admin, err := l.connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, admin.Close(l.ctx)) }()
	if err := execAll(ctx, admin, append([]string{"drop table if exists m"}, x.make...)...); err != nil {
		return err
	}
	heard, stop, err := listen(ctx, l)
	if err != nil {
		return err
	}
	defer stop()
	var fresh atomic.Bool // something was committed since the last NOTIFY
	var others sync.WaitGroup
	if how == "coalesced" {
		others.Go(func() { err = errors.Join(err, tell(ctx, l, &fresh)) })
	}
	before, err := l.server.CPU()
	if err != nil {
		return err
	}
	var n atomic.Int64
	start := time.Now()
	failures := make(chan error, callers)
	var pushing sync.WaitGroup
	for who := range callers {
		pushing.Go(func() {
			failures <- pushFor(ctx, l, x, how, int64(who)<<40, batch, start, &n, &fresh)
		})
	}
	pushing.Wait()
	elapsed := time.Since(start)
	after, cpuErr := l.server.CPU()
	cancel()
	others.Wait()
	for range callers {
		err = errors.Join(err, <-failures)
	}
	if err = errors.Join(err, cpuErr); err != nil {
		return err
	}
	count := float64(n.Load())
	fmt.Fprintf(l.out, "| %d | %d | %s | %.0f | %.1f | %d |\n", callers, batch, how, count/elapsed.Seconds(), float64((after-before).Microseconds())/count, heard.Load())
	return nil
}

// pushFor pushes until the span is over.
func pushFor(ctx context.Context, l *lab, x layout, how string, seq int64, batch int, start time.Time, n *atomic.Int64, fresh *atomic.Bool) (err error) {
	conn, err := l.connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(l.ctx)) }()
	w := &worker{layout: x, conn: conn, seq: seq, body: randomBytes(200)}
	for time.Since(start) < l.span {
		if how == "in the transaction" {
			err = pgx.BeginFunc(ctx, conn, func(pgx.Tx) error {
				if err := w.pushBatch(ctx, batch); err != nil {
					return err
				}
				_, err := conn.Exec(ctx, "select pg_notify('lane', '1')")
				return err
			})
		} else {
			err = w.pushBatch(ctx, batch)
		}
		if err != nil {
			return err
		}
		fresh.Store(true)
		n.Add(int64(batch))
	}
	return nil
}

// tell sends one NOTIFY each 2 ms in which something was committed.
func tell(ctx context.Context, l *lab, fresh *atomic.Bool) (err error) {
	conn, err := l.connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(l.ctx)) }()
	for range time.Tick(2 * time.Millisecond) {
		if ctx.Err() != nil {
			return nil
		}
		if fresh.Swap(false) {
			if _, err := conn.Exec(ctx, "select pg_notify('lane', '1')"); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
}

// listen counts what arrives.
func listen(ctx context.Context, l *lab) (heard *atomic.Int64, stop func(), err error) {
	conn, err := l.connect()
	if err != nil {
		return nil, nil, err
	}
	if err := execAll(ctx, conn, "listen lane"); err != nil {
		return nil, nil, err
	}
	heard = &atomic.Int64{}
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return // stopped
			}
			heard.Add(1)
		}
	})
	return heard, func() { cancel(); reading.Wait(); _ = conn.Close(l.ctx) }, nil
}
