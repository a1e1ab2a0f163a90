package pgstore

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// reserveConns is how many connections the reserve has at most.
	reserveConns = 3
	// reserveAfter is how long a call that finds the pool full waits for a connection of it before
	// it takes one of the reserve.
	reserveAfter = 20 * time.Millisecond
	// reserveIdle is how long an unused connection of the reserve is kept.
	reserveIdle = 30 * time.Second
)

// reserve has connections beside the pool. It is needed because handlers that each hold a
// transaction may have all connections of the pool, for as long as they like. The leases of their
// messages are then renewed over the reserve, which serves all other calls as well. Most of them
// hold a connection for a moment only, so a few are enough. Calls that read all messages, which
// takes long, wait for the pool instead.
type reserve struct {
	mu   sync.Mutex
	pool *pgxpool.Pool // guarded by mu: nil until it is needed
	uses int64         // guarded by mu: how often a call has turned to the reserve
}

// acquire takes a connection of the pool, or of the reserve while the pool has none.
func (db *database) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if stat := db.pool.Stat(); stat.AcquiredConns() < stat.MaxConns() {
		return db.acquireWithin(ctx, answerGrace)
	}
	return db.acquireWithin(ctx, reserveAfter)
}

// acquireWithin waits for a connection of the pool, for wait at most. If the pool is full then, it
// takes a connection of the reserve.
func (db *database) acquireWithin(ctx context.Context, wait time.Duration) (*pgxpool.Conn, error) {
	short, end := context.WithTimeout(ctx, wait)
	defer end()
	conn, err := db.pool.Acquire(short)
	if err == nil || short.Err() == nil || ctx.Err() != nil {
		return conn, err
	}
	if stat := db.pool.Stat(); stat.AcquiredConns() < stat.MaxConns() { // the pool is not full, but the server takes long to connect
		return db.pool.Acquire(ctx)
	}
	own, err := db.reserve.get(ctx, db.pool)
	if err != nil {
		return nil, err
	}
	if conn, err = own.Acquire(ctx); err == nil || ctx.Err() != nil {
		return conn, err
	}
	return db.pool.Acquire(ctx) // the server has no connection for the reserve
}

// get returns the pool of the reserve, which it makes if need be. It has the configuration of the
// store's pool but for how many connections it has and how long it keeps them.
func (r *reserve) get(ctx context.Context, like *pgxpool.Pool) (*pgxpool.Pool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uses++
	if r.pool != nil {
		return r.pool, nil
	}
	config := like.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns, config.MaxConnIdleTime = reserveConns, 0, 0, reserveIdle
	var err error
	r.pool, err = pgxpool.NewWithConfig(ctx, config)
	return r.pool, err
}

// times returns how often a call has turned to the reserve, because the pool was full.
func (r *reserve) times() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.uses
}

// close closes the connections of the reserve. No call may be under way any more.
func (r *reserve) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pool != nil {
		r.pool.Close()
	}
}
