package pgstore

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// logSessions writes into the test's log, if the test has failed so far, what the sessions do that
// use the store's schema, are blocked or have an idle transaction, and for whose lock each waits. A
// call that was refused because others are in its way does not say who they are.
func logSessions(t *testing.T, s *Store) {
	t.Helper()
	if !t.Failed() {
		return
	}
	// The pool may have no connection left, which can be why the test fails.
	conn, err := pgx.ConnectConfig(context.Background(), s.db.pool.Config().ConnConfig)
	if err != nil {
		t.Logf("the sessions cannot be read: %v", err)
		return
	}
	defer conn.Close(context.Background())
	const query = `
		SELECT format('%s %s for %s, in its transaction for %s, waits for %s %s, blocked by %s, holds %s: %s', a.pid, a.state,
			date_trunc('milliseconds', clock_timestamp() - a.state_change), date_trunc('milliseconds', clock_timestamp() - a.xact_start),
			coalesce(a.wait_event_type, 'nothing'), coalesce(a.wait_event, ''), pg_blocking_pids(a.pid),
			(SELECT string_agg(concat_ws(' ', l.locktype, l.mode, l.relation::regclass, l.objid, CASE WHEN NOT l.granted THEN '(not granted)' END), ', ')
			 FROM pg_locks AS l WHERE l.pid = a.pid AND l.locktype <> 'virtualxid' AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')),
			left(regexp_replace(a.query, '\s+', ' ', 'g'), 200))
		FROM pg_stat_activity AS a
		WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
		  AND (a.query LIKE '%' || $1 || '%' OR cardinality(pg_blocking_pids(a.pid)) > 0 OR a.state LIKE 'idle in transaction%')`
	rows, err := conn.Query(context.Background(), query, s.opt.Schema)
	if err == nil {
		var all []string
		all, err = pgx.CollectRows(rows, pgx.RowTo[string])
		t.Logf("the sessions that use schema %s, wait for a lock or have a transaction open:\n%s", s.opt.Schema, strings.Join(all, "\n"))
	}
	if err != nil {
		t.Log(fmt.Errorf("the sessions cannot be read: %w", err))
	}
}
