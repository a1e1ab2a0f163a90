package pgstore

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/punctualmq/punctual"
)

// A migration is a file that brings the tables from one version to the next. Those that were released never change.
type migration struct {
	version int
	name    string
	text    string
}

// migrations are all of them in order; the last one's version is this program's.
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

// Version is that of a store's tables and of this program.
type Version struct {
	// Tables is the version of the tables; 0 where there is no store.
	Tables int
	// Program is the version that this program needs.
	Program int
	// Pending are the names of the migrations between them.
	Pending []string
}

// Migrate brings the tables of a store to this program's version, and makes them where there are none. Of the options Schema
// counts. Several processes may call it at once; each migration takes effect as a whole or not at all.
func Migrate(ctx context.Context, pool *pgxpool.Pool, o *Options) error {
	s, err := newStore(pool, o)
	if err == nil {
		err = migrate(ctx, s)
	}
	if err != nil {
		return fmt.Errorf("migrate postgres store: %w", err)
	}
	return nil
}

// MigrationStatus says which version a store's tables have. Of the options Schema counts.
func MigrationStatus(ctx context.Context, pool *pgxpool.Pool, o *Options) (Version, error) {
	s, err := newStore(pool, o)
	if err != nil {
		return Version{}, fmt.Errorf("migration status: %w", err)
	}
	all := migrations(s.opt.Schema)
	v := Version{Program: len(all)}
	if v.Tables, err = s.version(ctx); err != nil {
		return v, fmt.Errorf("migration status: %w", err)
	}
	for _, m := range all[min(v.Tables, len(all)):] {
		v.Pending = append(v.Pending, m.name)
	}
	return v, nil
}

// migrate applies what is pending, in one transaction for each migration. An advisory lock keeps others waiting.
func migrate(ctx context.Context, s *Store) error {
	for _, m := range migrations(s.opt.Schema) {
		if err := s.apply(ctx, m); err != nil {
			return fmt.Errorf("migration %s: %w", m.name, err)
		}
	}
	return nil
}

// apply applies a migration unless that was done.
func (s *Store) apply(ctx context.Context, m migration) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1::integer, 0)", s.class); err != nil {
			return err
		}
		applied, err := s.readVersion(ctx, tx)
		if err != nil || applied >= m.version {
			return err
		}
		if m.version == 1 {
			// A role that may not make schemas can be given an empty one.
			text := "DO $$ BEGIN IF to_regnamespace('punctual') IS NULL THEN CREATE SCHEMA punctual; END IF; END $$"
			if _, err := tx.Exec(ctx, strings.ReplaceAll(text, "punctual", s.opt.Schema)); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, inSchema("CREATE TABLE punctual.migration (version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT clock_timestamp())", s.opt.Schema)); err != nil {
				return err
			}
		}
		if _, err := tx.Conn().PgConn().Exec(ctx, m.text).ReadAll(); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, inSchema("INSERT INTO punctual.migration (version) VALUES ($1)", s.opt.Schema), m.version)
		return err
	})
	if err != nil {
		return s.explain(err, punctual.ErrIndeterminate)
	}
	return nil
}

// version is that of the tables; 0 where there is no store.
func (s *Store) version(ctx context.Context) (v int, err error) {
	err = s.again(ctx, func(ctx context.Context) error {
		conn, err := s.acquire(ctx)
		if err != nil {
			return unsent{err}
		}
		defer conn.Release()
		v, err = s.readVersion(ctx, conn)
		return err
	}, punctual.ErrUnreachable)
	return v, err
}

// querier is a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (s *Store) readVersion(ctx context.Context, from querier) (v int, err error) {
	var there bool
	if err := from.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", s.opt.Schema+".migration").Scan(&there); err != nil || !there {
		return 0, err
	}
	err = from.QueryRow(ctx, inSchema("SELECT coalesce(max(version), 0) FROM punctual.migration", s.opt.Schema)).Scan(&v)
	return v, err
}

// checkVersion refuses tables of another version than this program's.
func (s *Store) checkVersion(ctx context.Context) error {
	v, err := s.version(ctx)
	needed := len(migrations(s.opt.Schema))
	switch {
	case err != nil:
		return err
	case v == 0:
		return fmt.Errorf("no store in schema %s: run punctual migrate up, or open it with Options.Migrate: %w", s.opt.Schema, punctual.ErrNotFound)
	case v < needed:
		return fmt.Errorf("the tables in schema %s are of version %d, this program needs %d: run punctual migrate up, or open it with Options.Migrate: %w", s.opt.Schema, v, needed, punctual.ErrUnsupported)
	case v > needed:
		return fmt.Errorf("the tables in schema %s are of version %d, this program knows %d: use a newer one: %w", s.opt.Schema, v, needed, punctual.ErrUnsupported)
	}
	return nil
}
