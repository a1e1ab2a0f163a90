package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	topicCount    = 10_000
	topicMessages = 30
)

// topics measures claims over many topics, of which one in ten has something due. It compares one lateral statement
// for all topics, one statement for each, and an index over all topics by time alone. It also reads when each topic
// is due next.
func topics(l *lab) (err error) {
	ctx := l.ctx
	conn, err := l.connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	steps := append([]string{makeInline}, indexes...)
	steps = append(steps, "create index m_any on m (visible_at)",
		fmt.Sprintf(`insert into m (topic, id, visible_at, due, body)
			select t, 'id-' || n, at, at, decode(repeat('ab', 200), 'hex') from (
				select t, n, case when t %% 10 = 0 then 1000000 + n else 9000000000000000 + n end as at
				from generate_series(1, %d) t, generate_series(1, %d) n) rows`, topicCount, topicMessages),
		"vacuum analyze m")
	if err := execAll(ctx, conn, steps...); err != nil {
		return err
	}
	fmt.Fprintf(l.out, "%d topics of %d messages; every tenth has them due. Each claim takes 100 in all, in a transaction that is rolled back.\n\n", topicCount, topicMessages)
	fmt.Fprintln(l.out, "| claim | topics asked | p50 ms | p99 ms | claimed |\n|---|--:|--:|--:|--:|")
	lateral := `with asked as (select t as topic from unnest($1::int[]) with ordinality as u(t, n) order by n),
		picked as materialized (
			select h.topic, h.id from asked cross join lateral (
				select topic, id from m where m.topic = asked.topic and visible_at >= $3 and visible_at <= $4 order by visible_at, id limit $2 for update skip locked) h
			limit $2)
		update m set visible_at = $5, nonce = 7 from picked where m.topic = picked.topic and m.id = picked.id returning m.topic`
	any := `with picked as materialized (
			select topic, id from m where topic = any($1::int[]) and visible_at >= $3 and visible_at <= $4 order by visible_at limit $2 for update skip locked)
		update m set visible_at = $5, nonce = 7 from picked where m.topic = picked.topic and m.id = picked.id returning m.topic`
	for _, n := range []int{1, 10, 100, 1000, topicCount} {
		asked := make([]int32, n)
		for i := range asked {
			asked[i] = int32(i*topicCount/n + 1) // has nothing due
			if n == topicCount || i >= n*9/10 {
				asked[i] = int32((i + 1) * topicCount / n)
			}
		}
		for _, way := range []struct{ name, sql string }{{"lateral", lateral}, {"by time over all topics", any}} {
			if err := l.claimTopics(conn, way.name, way.sql, asked); err != nil {
				return err
			}
		}
	}
	heads := `with recursive heads as (
			(select topic, visible_at from m order by topic, visible_at, id limit 1)
			union all
			select n.topic, n.visible_at from heads, lateral (
				select topic, visible_at from m where topic > heads.topic order by topic, visible_at, id limit 1) n)
		select count(*) from heads`
	return l.timed(conn, "heads of all topics, recursive", topicCount, func(tx pgx.Tx) (n int, err error) {
		return n, tx.QueryRow(ctx, heads).Scan(&n)
	})
}

func (l *lab) claimTopics(conn *pgx.Conn, name, sql string, asked []int32) error {
	return l.timed(conn, name, len(asked), func(tx pgx.Tx) (int, error) {
		tag, err := tx.Exec(l.ctx, sql, asked, 100, int64(0), time.Now().UnixMicro(), time.Now().UnixMicro()+leaseMicros)
		return int(tag.RowsAffected()), err
	})
}

// timed calls f in transactions that are rolled back, and prints a row.
func (l *lab) timed(conn *pgx.Conn, name string, asked int, f func(tx pgx.Tx) (int, error)) error {
	var took []time.Duration
	n := 0
	for start := time.Now(); len(took) < 10 || time.Since(start) < l.span/3; {
		tx, err := conn.Begin(l.ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		n, err = f(tx)
		took = append(took, time.Since(began))
		if err = errors.Join(err, tx.Rollback(l.ctx)); err != nil {
			return err
		}
	}
	slices.Sort(took)
	fmt.Fprintf(l.out, "| %s | %d | %.2f | %.2f | %d |\n", name, asked, millis(took[len(took)/2]), millis(took[len(took)*99/100]), n)
	return nil
}
