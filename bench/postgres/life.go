package main

import (
	"errors"
	"fmt"
	"time"
)

// lives measures what a message costs from push to ack in each layout, with bodies of three sizes and batches of three, on one
// connection.
func lives(l *lab) error {
	fmt.Fprintln(l.out, "| layout | body | batch | lives/s | server CPU µs per life | WAL bytes per life |")
	fmt.Fprintln(l.out, "|---|--:|--:|--:|--:|--:|")
	for _, size := range []int{0, 200, 1000, 2048} {
		for _, batch := range []int{1, 100, 1000} {
			for _, x := range layouts() {
				if err := lifeVariant(l, x, size, batch); err != nil {
					return fmt.Errorf("%s: %w", x.name, err)
				}
			}
		}
	}
	return nil
}

func lifeVariant(l *lab, x layout, size, batch int) (err error) {
	ctx := l.ctx
	conn, err := l.connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	w := &worker{layout: x, conn: conn, useFloor: true, body: randomBytes(size)}
	if err := execAll(ctx, conn, append([]string{"drop table if exists m, b, cursors, receipts"}, w.make...)...); err != nil {
		return err
	}
	if err := w.life(ctx, batch); err != nil { // plans are made
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
		if err := w.life(ctx, batch); err != nil {
			return err
		}
		n += batch
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
	fmt.Fprintf(l.out, "| %s | %d | %d | %.0f | %.1f | %.0f |\n", x.name, size, batch, float64(n)/elapsed.Seconds(),
		float64((cpuAfter-cpuBefore).Microseconds())/float64(n), float64(walAfter-walBefore)/float64(n))
	return nil
}
