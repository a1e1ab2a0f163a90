package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// layout is a way to keep messages: how they are made, pushed, claimed and acked. Times are microseconds since 1970, so that
// a floor needs no conversion.
type layout struct {
	name  string
	make  []string
	push  string // topic, first number, due, bodies
	claim string // topic, floor, now, limit, end of lease; returns number and visible_at
	ack   string // topic, numbers
	// walks tells that claims must begin at the first message, because leases that end are found there again.
	walks bool
}

const (
	makeInline = `create table m (topic int not null, id text not null, visible_at bigint not null, due bigint not null,
		attempts int not null default 0, claims int not null default 0, nonce bigint not null default 0, body bytea)`
	makeSplit = `create table m (topic int not null, id text not null, visible_at bigint not null, due bigint not null,
		attempts int not null default 0, claims int not null default 0, nonce bigint not null default 0)`
)

var indexes = []string{
	"create unique index m_id on m (topic, id)",
	"create index m_head on m (topic, visible_at, id)",
	"alter table m set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0.05)",
}

const pushRows = `select $1::int, 'id-' || lpad(($2::bigint + n)::text, 23, '0'), $3::bigint, $3::bigint, body
	from unnest($4::bytea[]) with ordinality as u(body, n)`

func layouts() []layout {
	claim := `with picked as materialized (
			select id, visible_at from m where topic = $1 and visible_at >= $2 and visible_at <= $3
			order by visible_at, id limit $4 for update skip locked)
		update m set visible_at = $5, attempts = attempts + 1, claims = claims + 1, nonce = 7
		from picked where m.topic = $1 and m.id = picked.id returning m.id, picked.visible_at`
	byPlace := `with picked as materialized (
			select ctid as place, visible_at from m where topic = $1 and visible_at >= $2 and visible_at <= $3
			order by visible_at, id limit $4 for update skip locked)
		update m set visible_at = $5, attempts = attempts + 1, claims = claims + 1, nonce = 7
		from picked where m.ctid = picked.place returning m.id, picked.visible_at, m.body`
	return []layout{
		{
			name: "inline, update by ID", make: append([]string{makeInline}, indexes...),
			push:  "insert into m (topic, id, visible_at, due, body) " + pushRows + " on conflict do nothing",
			claim: claim + ", m.body",
			ack:   "delete from m where topic = $1 and id = any($2::text[]) and nonce = 7",
		},
		{
			name: "inline, update by place", make: append([]string{makeInline}, indexes...),
			push:  "insert into m (topic, id, visible_at, due, body) " + pushRows + " on conflict do nothing",
			claim: byPlace,
			ack:   "delete from m where topic = $1 and id = any($2::text[]) and nonce = 7",
		},
		{
			name: "body apart", make: append([]string{makeSplit, "create table b (topic int not null, id text not null, body bytea, primary key (topic, id))"}, indexes...),
			push: `with rows as (select * from (` + pushRows + `) as r(topic, id, visible_at, due, body)),
				stored as (insert into m (topic, id, visible_at, due) select topic, id, visible_at, due from rows on conflict do nothing returning id)
				insert into b (topic, id, body) select rows.topic, rows.id, rows.body from rows join stored using (id)`,
			claim: `with claimed as (` + claim + `) select claimed.id, claimed.visible_at, b.body from claimed join b on b.topic = $1 and b.id = claimed.id`,
			ack: `with gone as (delete from m where topic = $1 and id = any($2::text[]) and nonce = 7 returning id)
				delete from b using gone where b.topic = $1 and b.id = gone.id`,
		},
		{
			// Leased rows stay where they are in the index, and each claim walks past them. Nothing indexed changes, so with
			// room in the page an index gets no new entry.
			name: "leases not indexed", walks: true, make: []string{
				makeInline + " with (fillfactor = 45)", "alter table m add leased_until bigint not null default 0", indexes[0], "create index m_head on m (topic, due, id)", indexes[2],
			},
			push: "insert into m (topic, id, visible_at, due, body) " + pushRows + " on conflict do nothing",
			claim: `with picked as materialized (
					select ctid as place, due from m where topic = $1 and due >= $2 and due <= $3 and leased_until <= $3
					order by due, id limit $4 for update skip locked)
				update m set leased_until = $5, attempts = attempts + 1, claims = claims + 1, nonce = 7
				from picked where m.ctid = picked.place returning m.id, picked.due, m.body`,
			ack: "delete from m where topic = $1 and id = any($2::text[]) and nonce = 7",
		},
		{
			// A claim writes a narrow row beside the message, and the message itself not at all.
			name: "leases in a table", walks: true, make: append([]string{
				makeInline, "create table l (topic int not null, id text not null, until bigint not null, nonce bigint not null, attempts int not null, primary key (topic, id))",
			}, indexes...),
			push: "insert into m (topic, id, visible_at, due, body) " + pushRows + " on conflict do nothing",
			claim: `with picked as materialized (
					select m.id, m.visible_at, m.body from m where topic = $1 and visible_at >= $2 and visible_at <= $3
					and not exists (select from l where l.topic = m.topic and l.id = m.id)
					order by visible_at, id limit $4 for update skip locked),
				leased as (insert into l select $1, id, $5, 7, 1 from picked)
				select id, visible_at, body from picked`,
			ack: `with gone as (delete from l where topic = $1 and id = any($2::text[]) and nonce = 7 returning id)
				delete from m where topic = $1 and id = any(array(select id from gone))`,
		},
		{
			// As awa does: the claim changes no message. A cursor for each topic says what was handed out, and one row for a
			// whole batch says to whom and until when.
			name: "receipts", make: append([]string{
				makeInline, "create table cursors (topic int primary key, visible_at bigint not null, id text not null)", "insert into cursors values (1, 0, '')",
				"create table receipts (token bigint generated always as identity primary key, topic int not null, until bigint not null, ids text[] not null)",
			}, indexes...),
			push: "insert into m (topic, id, visible_at, due, body) " + pushRows + " on conflict do nothing",
			claim: `with here as materialized (select visible_at, id from cursors where topic = $1 for update),
				picked as materialized (
					select m.id, m.visible_at, m.body from m, here where m.topic = $1 and (m.visible_at, m.id) > (here.visible_at, here.id)
					and m.visible_at >= $2 and m.visible_at <= $3 order by m.visible_at, m.id limit $4),
				moved as (update cursors c set visible_at = l.visible_at, id = l.id
					from (select visible_at, id from picked order by visible_at desc, id desc limit 1) l where c.topic = $1),
				receipt as (insert into receipts (topic, until, ids) select $1, $5, array_agg(id) from picked)
				select id, visible_at, body from picked`,
			ack: `with gone as (delete from m where topic = $1 and id = any($2::text[]) returning 1)
				delete from receipts where token = (select min(token) from receipts)`,
		},
	}
}

// worker goes through lives on a connection of its own.
type worker struct {
	layout
	conn  *pgx.Conn
	seq   int64
	floor int64 // 0 is none
	// useFloor has claims begin at the earliest time that the last one met.
	useFloor bool
	body     []byte
}

const leaseMicros = int64(30 * time.Second / time.Microsecond)

func (w *worker) pushBatch(ctx context.Context, n int) error {
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = w.body
	}
	_, err := w.conn.Exec(ctx, w.push, 1, w.seq, time.Now().UnixMicro(), bodies)
	w.seq += int64(n)
	return err
}

func (w *worker) claimBatch(ctx context.Context, n int) ([]string, error) {
	now := time.Now().UnixMicro()
	rows, err := w.conn.Query(ctx, w.claim, 1, w.floor, now, n, now+leaseMicros)
	if err != nil {
		return nil, err
	}
	var ids []string
	earliest := now
	var id string
	var at int64
	var body []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &at, &body}, func() error {
		ids = append(ids, id)
		earliest = min(earliest, at)
		return nil
	})
	if w.useFloor && !w.walks {
		w.floor = earliest
	}
	return ids, err
}

func (w *worker) ackBatch(ctx context.Context, ids []string) error {
	_, err := w.conn.Exec(ctx, w.ack, 1, ids)
	return err
}

// life takes n messages through their life.
func (w *worker) life(ctx context.Context, n int) error {
	if err := w.pushBatch(ctx, n); err != nil {
		return fmt.Errorf("push: %w", err)
	}
	ids, err := w.claimBatch(ctx, n)
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	if len(ids) != n {
		return fmt.Errorf("claimed %d of %d", len(ids), n)
	}
	if err := w.ackBatch(ctx, ids); err != nil {
		return fmt.Errorf("ack: %w", err)
	}
	return nil
}

// hold claims messages that are never acked.
func (w *worker) hold(ctx context.Context, n int) error {
	for n > 0 {
		some := min(n, 1000)
		if err := w.pushBatch(ctx, some); err != nil {
			return fmt.Errorf("push: %w", err)
		}
		ids, err := w.claimBatch(ctx, some)
		if err != nil || len(ids) != some {
			return fmt.Errorf("claimed %d of %d: %w", len(ids), some, err)
		}
		n -= some
	}
	return nil
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}
