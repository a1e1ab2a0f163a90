package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// head measures claims while acks pile up dead rows in front of the queue. It does so with and without a floor from
// which claims begin. It also does so with and without an open snapshot, which keeps dead rows from being cleared
// away.
func head(l *lab) error {
	fmt.Fprintf(l.out, "Each variant: %d messages live, then %d pushes, claims and acks in batches of 500.\n\n", headBacklog, l.acks)
	fmt.Fprintln(l.out, "| floor | snapshot | acks | claim p50 ms | p99 ms | buffers per claim | WAL bytes per life | lives/s | table MB | indexes MB | dead rows |")
	fmt.Fprintln(l.out, "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	for _, snapshot := range []bool{false, true} {
		for _, floor := range l.floors {
			if err := headVariant(l, floor, snapshot); err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	headBacklog = 5000
	headBatch   = 500
)

func headVariant(l *lab, floor, snapshot bool) (err error) {
	ctx := l.ctx
	conn, err := l.connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	w := &worker{layout: layouts()[0], conn: conn, useFloor: floor, body: randomBytes(200)}
	if err := execAll(ctx, conn, append([]string{"drop table if exists m"}, w.make...)...); err != nil {
		return err
	}
	if err := w.pushBatch(ctx, headBacklog); err != nil {
		return err
	}
	if snapshot {
		holder, err := l.connect()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, holder.Close(ctx)) }()
		if err := execAll(ctx, holder, "begin isolation level repeatable read", "select count(*) from m"); err != nil {
			return err
		}
	}
	const parts = 5
	for part := range parts {
		if err := headPart(l, w, l.acks/parts, (part+1)*l.acks/parts, floor, snapshot); err != nil {
			return err
		}
	}
	return nil
}

// headPart goes through n lives and prints a row.
func headPart(l *lab, w *worker, n, sum int, floor, snapshot bool) error {
	ctx := l.ctx
	if err := execAll(ctx, w.conn, "select pg_stat_statements_reset()"); err != nil {
		return err
	}
	walBefore, err := wal(ctx, w.conn)
	if err != nil {
		return err
	}
	var took []time.Duration
	start := time.Now()
	for range n / headBatch {
		if err := w.pushBatch(ctx, headBatch); err != nil {
			return err
		}
		began := time.Now()
		ids, err := w.claimBatch(ctx, headBatch)
		if err != nil {
			return err
		}
		took = append(took, time.Since(began))
		if len(ids) != headBatch {
			return fmt.Errorf("claimed %d of %d", len(ids), headBatch)
		}
		if err := w.ackBatch(ctx, ids); err != nil {
			return err
		}
	}
	elapsed := time.Since(start)
	walAfter, err := wal(ctx, w.conn)
	if err != nil {
		return err
	}
	s, err := headSizes(ctx, w.conn)
	if err != nil {
		return err
	}
	slices.Sort(took)
	fmt.Fprintf(l.out, "| %s | %s | %d | %.2f | %.2f | %.0f | %.0f | %.0f | %.0f | %.0f | %d |\n", onOff(floor), onOff(snapshot), sum,
		millis(took[len(took)/2]), millis(took[len(took)*99/100]), s.buffers, float64(walAfter-walBefore)/float64(n), float64(n)/elapsed.Seconds(),
		float64(s.table)/1e6, float64(s.indexes)/1e6, s.dead)
	return nil
}

type tableSizes struct {
	buffers              float64 // touched by one claim, on average
	table, indexes, dead int64
}

func headSizes(ctx context.Context, c *pgx.Conn) (s tableSizes, err error) {
	err = c.QueryRow(ctx, `select coalesce(sum(shared_blks_hit + shared_blks_read) / sum(calls), 0)::float8
		from pg_stat_statements where query like 'with picked as%'`).Scan(&s.buffers)
	if err != nil {
		return s, err
	}
	err = c.QueryRow(ctx, `select pg_table_size('m'), pg_indexes_size('m'), coalesce((select n_dead_tup from pg_stat_user_tables where relname = 'm'), 0)`).
		Scan(&s.table, &s.indexes, &s.dead)
	return s, err
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
