package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// How an examination measures, and the limits beyond which it warns.
const (
	slowPing        = 10 * time.Millisecond
	pings           = 5
	oldSnapshot     = time.Minute
	fullConnections = 0.8 // of max_connections
	manyDeadRows    = 10_000
	deadRowsOfLive  = 0.5
	poolSpare       = 4 // connections of a pool beside those that handlers hold
)

// Examine says what a store on this pool would stand on, without opening one; see
// storekit.Examiner. Of the options only Schema and Durability count. It is for stores that refuse
// to open; an open store has a method of the same name.
func Examine(ctx context.Context, pool *pgxpool.Pool, o *Options) ([]storekit.Finding, error) {
	s, err := newStore(pool, o)
	if err != nil {
		return nil, fmt.Errorf("examine postgres store: %w", err)
	}
	defer s.db.reserve.close()
	return s.examine(ctx)
}

// Examine says what the store stands on; see storekit.Examiner.
func (s *Store) Examine(ctx context.Context) ([]storekit.Finding, error) {
	if err := s.calls.BeginAnyway(ctx); err != nil {
		return nil, fmt.Errorf("examine: %w", err)
	}
	defer s.calls.End()
	return s.examine(ctx)
}

// examine asks the server, and makes findings of what the server answers.
func (s *Store) examine(ctx context.Context) ([]storekit.Finding, error) {
	x := &examination{s: s}
	for _, examine := range []func(context.Context) error{x.server, x.latency, x.health, x.tables} {
		if err := examine(ctx); err != nil {
			return x.findings, fmt.Errorf("examine postgres store: %w", err)
		}
	}
	x.damage()
	return x.findings, nil
}

// damage reports messages that claims have met and could not read.
func (x *examination) damage() {
	if n, last := x.s.damage.seen(); n > 0 {
		x.add(storekit.Bad("damage", fmt.Sprintf("claims met messages %d times that cannot be read, the last one: %v", n, last),
			"they are dead when their attempts are used up: find all with punctual check, restore them from a backup, or remove them with cancel and purge"))
	}
}

// examination collects findings.
type examination struct {
	s        *Store
	findings []storekit.Finding
}

func (x *examination) add(f storekit.Finding) { x.findings = append(x.findings, f) }

// server examines version, role and durability of the server.
func (x *examination) server(ctx context.Context) error {
	v, err := x.s.given.readServer(ctx)
	if err != nil {
		return err
	}
	if v.version < oldest {
		x.add(storekit.Bad("version", fmt.Sprint(v.version/10000), "use PostgreSQL 13 or newer"))
	} else {
		x.add(storekit.Good("version", fmt.Sprintf("%d.%d", v.version/10000, v.version%10000)))
	}
	if v.standby || v.readOnly == "on" {
		x.add(storekit.Bad("role", "takes no changes", "name the primary: this is a standby, or transactions are read-only"))
	} else {
		x.add(storekit.Good("role", "primary"))
	}
	got, why := v.class(x.s.db.needs)
	switch refusing := x.s.given.refuses(got, why); {
	case refusing != nil:
		x.add(storekit.Bad("durability", string(got), refusing.Error()))
	case got == punctual.Volatile:
		x.add(storekit.Warning("durability", string(got), "a power cut loses messages: "+why))
	default:
		x.add(storekit.Good("durability", string(got)))
	}
	if v.standbys != "" && got != punctual.Replicated {
		x.add(storekit.Warning("synchronous standbys", v.standbys, "they are named, but changes do not wait for them: "+why))
	}
	return nil
}

// latency measures how long a read takes.
func (x *examination) latency(ctx context.Context) error {
	var least time.Duration
	for n := range pings {
		begun := time.Now()
		if err := x.s.db.sendAlone(ctx, x.s.db.step().add("level", nil, nil)); err != nil { // the clock is a table of the store
			return x.s.db.explain(err, punctual.ErrUnreachable)
		}
		if took := time.Since(begun); n == 0 || took < least {
			least = took
		}
	}
	value := least.Round(10 * time.Microsecond).String()
	if least > slowPing {
		x.add(storekit.Warning("latency", value, "each call takes at least this long: run the store's processes near the server"))
	} else {
		x.add(storekit.Good("latency", value))
	}
	return nil
}

// health searches for what keeps dead rows from being removed, and for what runs out, and reports
// the sizes of the tables.
func (x *examination) health(ctx context.Context) error {
	var version, autovacuum string
	var oldestAge, prepared, slots, most, used, live, dead, bytes, finished, finishedBytes int64
	var who *string
	err := x.s.db.read(ctx, func() *step {
		return x.s.db.step().add("examine", []any{x.s.opt.Schema}, func(rows scanner) error {
			return rows.Scan(&version, &autovacuum, &oldestAge, &who, &prepared, &slots, &most, &used, &live, &dead, &bytes, &finished, &finishedBytes)
		})
	})
	if err != nil {
		return err
	}
	x.vacuum(autovacuum, time.Duration(oldestAge)*time.Second, who, prepared, slots)
	if value := fmt.Sprintf("%d of %d", used, most); float64(used) > fullConnections*float64(most) {
		x.add(storekit.Warning("connections", value, "few are left: raise max_connections, use smaller pools or a pooler"))
	} else {
		x.add(storekit.Good("connections", value))
	}
	x.pool(most)
	value := fmt.Sprintf("%d rows, %d dead ones, %d MiB", live, dead, bytes>>20)
	if dead > manyDeadRows && float64(dead) > deadRowsOfLive*float64(live) {
		x.add(storekit.Warning("message table", value, "claims pass by dead rows until they are removed: see the findings on snapshots and autovacuum, or run "+inSchema("VACUUM punctual.message", x.s.opt.Schema)))
	} else {
		x.add(storekit.Good("message table", value))
	}
	if finished > 0 {
		x.add(storekit.Good("finished table", fmt.Sprintf("%d rows, %d MiB", finished, finishedBytes>>20)))
	}
	return nil
}

// pool says whether the pool is large enough, and not too large for a server that allows so many
// connections.
func (x *examination) pool(most int64) {
	max := int64(x.s.db.pool.Config().MaxConns)
	value := fmt.Sprintf("%d connections", max)
	switch full := x.s.db.reserve.times(); {
	case full > 0:
		x.add(storekit.Warning("pool", fmt.Sprintf("%s, all of them in use at %d calls", value, full),
			fmt.Sprintf("set pool_max_conns to what handlers hold at a time and %d more: each handler with a transaction holds one", poolSpare)))
	case max+reserveConns+1 > most:
		x.add(storekit.Warning("pool", value,
			fmt.Sprintf("the server allows %d in all: lower pool_max_conns, raise max_connections, or use a pooler", most)))
	case max < poolSpare:
		x.add(storekit.Warning("pool", value,
			fmt.Sprintf("set pool_max_conns to %d or more, and one more for each handler that holds a transaction", poolSpare)))
	default:
		x.add(storekit.Good("pool", value))
	}
}

// vacuum says what keeps dead rows from being removed.
func (x *examination) vacuum(autovacuum string, age time.Duration, who *string, prepared, slots int64) {
	if autovacuum != "on" {
		x.add(storekit.Bad("autovacuum", autovacuum, "set autovacuum to on: without it dead rows stay, and claims become slower and slower"))
	} else {
		x.add(storekit.Good("autovacuum", autovacuum))
	}
	if age > oldSnapshot && who != nil {
		x.add(storekit.Warning("oldest snapshot", age.String()+", of process "+*who, "while it lasts no dead row is removed: end that transaction, and set idle_in_transaction_session_timeout"))
	} else {
		x.add(storekit.Good("oldest snapshot", age.String()))
	}
	if prepared > 0 {
		x.add(storekit.Warning("prepared transactions", fmt.Sprint(prepared), "until they end no dead row is removed that is younger: commit or roll back those in pg_prepared_xacts"))
	}
	if slots > 0 {
		x.add(storekit.Warning("replication slots", fmt.Sprintf("%d are not used", slots), "they keep dead rows: drop those in pg_replication_slots that nobody needs"))
	}
}

// tables examines the version of the tables.
func (x *examination) tables(ctx context.Context) error {
	v, err := x.s.migrator.version(ctx)
	if err != nil {
		return err
	}
	needed := len(migrations(x.s.opt.Schema))
	switch {
	case v == 0:
		x.add(storekit.Warning("tables", "none in schema "+x.s.opt.Schema, "run punctual migrate up"))
	case v < needed:
		x.add(storekit.Bad("tables", fmt.Sprintf("version %d", v), fmt.Sprintf("this program needs version %d: run punctual migrate up", needed)))
	case v > needed:
		x.add(storekit.Bad("tables", fmt.Sprintf("version %d", v), fmt.Sprintf("this program knows version %d: use a newer one", needed)))
	default:
		x.add(storekit.Good("tables", fmt.Sprintf("version %d", v)))
		clock, err := x.s.steps.clockState(ctx)
		if err != nil {
			return err
		}
		x.findings = append(x.findings, storekit.ClockFindings(clock)...)
		return x.sequences(ctx)
	}
	return nil
}

// sequences compares the numbers of topics with their sequence. Where that is behind, new topics
// are refused. The sequence of claims may be behind, because another server begins another epoch.
func (x *examination) sequences(ctx context.Context) error {
	var most, last int64
	err := x.s.db.read(ctx, func() *step {
		return x.s.db.step().add("sequences", nil, func(rows scanner) error { return rows.Scan(&most, &last) })
	})
	if err != nil {
		return err
	}
	if last < most {
		x.add(storekit.Bad("sequences", fmt.Sprintf("topics have numbers up to %d, and their sequence is at %d", most, last),
			"new topics are refused, as after logical replication, which copies no sequences: run "+
				inSchema(fmt.Sprintf("SELECT setval(pg_get_serial_sequence('punctual.topic', 'number'), %d)", most), x.s.opt.Schema)))
	}
	return nil
}
