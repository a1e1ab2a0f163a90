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

// The PostgreSQL that is measured. Each measurement has a server of its own, on loopback, with its files in the
// folder of the round. But for memory its settings are PostgreSQL's own.

// postgresVersion is that of the server's program.
func postgresVersion() string {
	v, err := pgrig.Version()
	if err != nil {
		return "unknown"
	}
	return v
}

// postgresServer is a running server and the connections of the system that is measured on it.
type postgresServer struct {
	*pgrig.Server
	pool *pgxpool.Pool
}

// postgresConns is how many connections each system may have: one for each of 64 callers or handlers, and some to spare.
const postgresConns = 80

// withPostgres runs f with a fresh server, which is ended and removed afterwards.
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

// postgresUsage is what a server has used at one moment, counted from its start.
type postgresUsage struct {
	cpu          time.Duration
	wal          int64 // bytes
	transactions int64
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

// note writes down what n messages have cost since u was taken.
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
