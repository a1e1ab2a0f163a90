package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/punctualmq/punctual"
)

// migration is a file that brings the tables from one version to the next. What a released one does
// never changes.
type migration struct {
	version int
	name    string
	text    string
}

// migrations returns all migrations in order. The version of the last one is the version that this
// program needs.
func migrations(schema string) []migration {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil || len(names) == 0 {
		panic(fmt.Sprintf("pgstore: the embedded migrations cannot be listed: %v", err))
	}
	var all []migration
	for _, file := range names { // sorted by name
		name := strings.TrimSuffix(path.Base(file), ".sql")
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != len(all)+1 {
			panic("pgstore: migration " + name + " is out of order")
		}
		all = append(all, migration{version, name, inSchema(mustRead(file), schema)})
	}
	return all
}

// Version says which version a store's tables have, and which this program needs.
type Version struct {
	// Tables is the version of the tables; 0 where there is no store.
	Tables int
	// Program is the version that this program needs.
	Program int
	// Pending are the names of the migrations that lead from Tables to Program, in order.
	Pending []string
}

// Migrate brings the tables of a store to this program's version, and makes them where there are
// none. Of the options only Schema counts. Several processes may call it at once; each migration
// takes effect as a whole or not at all. Tables of a newer version stay as they are.
//
// A migration of tables that are in use waits for a lock for 100 ms at a time, because all other
// statements wait behind it. It tries again each second until ctx ends, for 30 s where ctx has no
// deadline. Then Migrate returns ErrOverloaded. That migration has changed nothing, and those
// before it stay applied.
func Migrate(ctx context.Context, pool *pgxpool.Pool, o *Options) error {
	s, err := newStore(pool, o)
	if err == nil {
		defer s.db.reserve.close()
		err = migrate(ctx, s)
	}
	if err != nil {
		return fmt.Errorf("migrate postgres store: %w", err)
	}
	return nil
}

// MigrationStatus says which version a store's tables have. Of the options only Schema counts.
func MigrationStatus(ctx context.Context, pool *pgxpool.Pool, o *Options) (Version, error) {
	s, err := newStore(pool, o)
	if err != nil {
		return Version{}, fmt.Errorf("migration status: %w", err)
	}
	defer s.db.reserve.close()
	all := migrations(s.opt.Schema)
	v := Version{Program: len(all)}
	if v.Tables, err = s.migrator.version(ctx); err != nil {
		return v, fmt.Errorf("migration status: %w", err)
	}
	for _, m := range all[min(v.Tables, len(all)):] {
		v.Pending = append(v.Pending, m.name)
	}
	return v, nil
}

const (
	// migrationLockWait bounds how long a migration waits for a lock on a table, because all
	// statements that come meanwhile wait behind it.
	migrationLockWait = 100 * time.Millisecond
	// migrationPause is how long the migration then lets the statements pass before it tries again.
	migrationPause = time.Second
)

// migrate applies what is pending, in one transaction for each migration. An advisory lock keeps
// the migrations of other processes waiting.
func migrate(ctx context.Context, s *Store) error {
	v, err := s.migrator.version(ctx)
	if err != nil {
		return err
	}
	all := migrations(s.opt.Schema)
	for _, m := range all[min(v, len(all)):] {
		if err := s.migrator.applyRetrying(ctx, m); err != nil {
			return fmt.Errorf("migration %s: %w", m.name, err)
		}
	}
	return nil
}

// migrator brings the tables to the version of the program. It has no state.
type migrator struct {
	db     *database
	schema string
}

// applyRetrying applies a migration, and tries again while other transactions use a table that it
// must lock. Once it has its locks, the migration may take as long as ctx allows.
func (mig *migrator) applyRetrying(ctx context.Context, m migration) error {
	limit, end := within(ctx)
	defer end()
	longer, give := context.WithCancel(context.WithoutCancel(ctx))
	defer give()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(answerGrace, give) })()
	for tries := 1; ; tries++ {
		err := mig.apply(longer, m)
		if !isLockTimeout(err) {
			if err != nil {
				err = mig.db.explain(err, punctual.ErrIndeterminate)
			}
			return err
		}
		if sleep(limit, migrationPause) != nil {
			return fmt.Errorf("nothing was changed in %d tries, because others use the tables (processes %s): end their transactions, or run punctual migrate up when there are none: %w",
				tries, mig.tableUsers(longer), punctual.ErrOverloaded)
		}
	}
}

// isLockTimeout reports whether a transaction was rolled back because it got no lock in time.
func isLockTimeout(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == codeLockTimeout
}

// tableUsers names the server's processes that use tables of the store, or is "unknown" if that
// cannot be found out.
func (mig *migrator) tableUsers(ctx context.Context) string {
	var users *string
	err := mig.db.read(ctx, func() *step {
		return mig.db.step().add("table_users", []any{mig.schema}, func(rows scanner) error { return rows.Scan(&users) })
	})
	if err != nil || users == nil {
		return "unknown"
	}
	return *users
}

// apply applies a migration unless it was applied before. It returns the driver's error as it is.
func (mig *migrator) apply(ctx context.Context, m migration) error {
	return pgx.BeginTxFunc(ctx, mig.db.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1::integer, 0)", mig.db.class); err != nil {
			return err
		}
		applied, err := mig.readVersion(ctx, tx)
		if err != nil || applied >= m.version {
			return err
		}
		if m.version == 1 {
			// A role that may not make schemas can be given an empty one.
			text := "DO $$ BEGIN IF to_regnamespace('punctual') IS NULL THEN CREATE SCHEMA punctual; END IF; END $$"
			if _, err := tx.Exec(ctx, strings.ReplaceAll(text, "punctual", pgx.Identifier{mig.schema}.Sanitize())); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, inSchema("CREATE TABLE punctual.migration (version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT clock_timestamp())", mig.schema)); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", migrationLockWait.Milliseconds())); err != nil {
			return err
		}
		if _, err := tx.Conn().PgConn().Exec(ctx, m.text).ReadAll(); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, inSchema("INSERT INTO punctual.migration (version) VALUES ($1)", mig.schema), m.version)
		return err
	})
}

// version returns the version of the tables; 0 where there is no store.
func (mig *migrator) version(ctx context.Context) (v int, err error) {
	err = mig.db.again(ctx, func(ctx context.Context) error {
		conn, err := mig.db.acquire(ctx)
		if err != nil {
			return unsent{err}
		}
		defer conn.Release()
		v, err = mig.readVersion(ctx, conn)
		return err
	}, punctual.ErrUnreachable)
	return v, err
}

// querier is a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (mig *migrator) readVersion(ctx context.Context, from querier) (v int, err error) {
	// pg_class is read by a snapshot. to_regclass may answer from a cache, without a table that
	// another process has made meanwhile.
	const text = "SELECT EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'migration')"
	var there bool
	if err := from.QueryRow(ctx, text, mig.schema).Scan(&there); err != nil || !there {
		return 0, err
	}
	err = from.QueryRow(ctx, inSchema("SELECT coalesce(max(version), 0) FROM punctual.migration", mig.schema)).Scan(&v)
	return v, err
}

// checkVersion refuses tables of another version than this program's.
func (mig *migrator) checkVersion(ctx context.Context) error {
	v, err := mig.version(ctx)
	needed := len(migrations(mig.schema))
	switch {
	case err != nil:
		return err
	case v == 0:
		return fmt.Errorf("no store in schema %s: run punctual migrate up, or open it with Options.Migrate: %w", mig.schema, punctual.ErrNotFound)
	case v < needed:
		return fmt.Errorf("the tables in schema %s are of version %d, this program needs %d: run punctual migrate up, or open it with Options.Migrate: %w", mig.schema, v, needed, punctual.ErrUnsupported)
	case v > needed:
		return fmt.Errorf("the tables in schema %s are of version %d, this program knows %d: use a newer one: %w", mig.schema, v, needed, punctual.ErrUnsupported)
	}
	return nil
}
