package main

import (
	"errors"
	"fmt"
	"time"
)

// variant is one way to measure lives.
type variant struct {
	size, batch int
	held        int // messages that others hold meanwhile
}

// lives measures what a message costs from push to ack in each layout, with bodies of three sizes and batches of three, on one
// connection.
func lives(l *lab) error {
	var all []variant
	for _, size := range []int{0, 200, 1000, 2048} {
		for _, batch := range []int{1, 100, 1000} {
			all = append(all, variant{size: size, batch: batch})
		}
	}
	return l.compare(all)
}

// inFlight measures the same beside messages that others hold.
func inFlight(l *lab) error {
	return l.compare([]variant{{200, 256, 0}, {200, 256, 500}, {200, 256, 5000}})
}

func (l *lab) compare(all []variant) error {
	fmt.Fprintln(l.out, "| layout | body | batch | held | lives/s | server CPU µs per life | WAL bytes per life |")
	fmt.Fprintln(l.out, "|---|--:|--:|--:|--:|--:|--:|")
	for _, v := range all {
		for _, x := range layouts() {
			if err := lifeVariant(l, x, v); err != nil {
				return fmt.Errorf("%s: %w", x.name, err)
			}
		}
	}
	return nil
}

func lifeVariant(l *lab, x layout, v variant) (err error) {
	ctx := l.ctx
	conn, err := l.connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	w := &worker{layout: x, conn: conn, useFloor: true, body: randomBytes(v.size)}
	if err := execAll(ctx, conn, append([]string{"drop table if exists m, b, l, cursors, receipts"}, w.make...)...); err != nil {
		return err
	}
	if err := w.life(ctx, v.batch); err != nil { // plans are made
		return err
	}
	if err := w.hold(ctx, v.held); err != nil {
		return err
	}
	walBefore, err := wal(ctx, conn)
	if err != nil {
		return err
	}
	cpuBefore, err := l.server.CPU()
	if err != nil {
		return err
	}
	n, start := 0, time.Now()
	for time.Since(start) < l.span {
		if err := w.life(ctx, v.batch); err != nil {
			return err
		}
		n += v.batch
	}
	elapsed := time.Since(start)
	cpuAfter, err := l.server.CPU()
	if err != nil {
		return err
	}
	walAfter, err := wal(ctx, conn)
	if err != nil {
		return err
	}
	fmt.Fprintf(l.out, "| %s | %d | %d | %d | %.0f | %.1f | %.0f |\n", x.name, v.size, v.batch, v.held, float64(n)/elapsed.Seconds(),
		float64((cpuAfter-cpuBefore).Microseconds())/float64(n), float64(walAfter-walBefore)/float64(n))
	return nil
}
