package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
)

// Each measurement on PostgreSQL has a fresh server, which listens on loopback and has its files in
// the folder of the round. Its other settings are PostgreSQL's defaults except for shared_buffers,
// max_wal_size and max_connections.

// postgresVersion returns the version of the server's program, or "unknown".
func postgresVersion() string {
	v, err := pgrig.Version()
	if err != nil {
		return "unknown"
	}
	return v
}

// postgresServer is a running server and a pool of connections to it.
type postgresServer struct {
	*pgrig.Server
	pool *pgxpool.Pool
}

// postgresConns is how many connections the pool may have: one for each of 64 callers or handlers,
// and some to spare. Consumer processes share as many again.
const postgresConns = 80

// withPostgres runs f with a fresh server. When f has returned, the server is ended and its files
// are removed.
func (e *env) withPostgres(ctx context.Context, f func(*postgresServer) error) (err error) {
	dir := filepath.Join(e.dir, "postgres")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := pgrig.Launch(dir, "shared_buffers=256MB", "max_wal_size=4GB", "max_connections=200")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Kill()) }()
	config, err := pgxpool.ParseConfig(server.URL("postgres"))
	if err != nil {
		return err
	}
	config.MaxConns = postgresConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	return f(&postgresServer{server, pool})
}

// postgresUsage is what a server has used up to one moment.
type postgresUsage struct {
	cpu          time.Duration // CPU time of the server's processes
	wal          int64         // position in the WAL, in bytes
	transactions int64         // committed and rolled back
}

func (s *postgresServer) usage(ctx context.Context) (u postgresUsage, err error) {
	if u.cpu, err = s.CPU(); err != nil {
		return u, err
	}
	err = s.pool.QueryRow(ctx, `select (pg_current_wal_insert_lsn() - '0/0')::bigint,
		(select xact_commit + xact_rollback from pg_stat_database where datname = current_database())`).Scan(&u.wal, &u.transactions)
	if err != nil {
		return u, fmt.Errorf("ask PostgreSQL for its usage: %w", err)
	}
	return u, nil
}

// note notes what the server has used for each of n messages since u was taken.
func (s *postgresServer) note(ctx context.Context, out *Result, prefix string, u postgresUsage, n int64) error {
	now, err := s.usage(ctx)
	if err != nil {
		return err
	}
	each := float64(max(n, 1))
	out.set(prefix+"server_us_per_message", float64((now.cpu-u.cpu).Microseconds())/each)
	out.set(prefix+"wal_bytes_per_message", float64(now.wal-u.wal)/each)
	out.set(prefix+"transactions_per_message", float64(now.transactions-u.transactions)/each)
	return nil
}
