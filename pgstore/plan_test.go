package pgstore

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/punctualmq/punctual"
)

// A plan that was made for an empty table still reads a full one by its indexes, message by message.
func TestPlansForAnEmptyTable(t *testing.T) {
	t.Parallel()
	c, err := pgxpool.ParseConfig(shared.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	c.MaxConns = 1 // so that its plans can be seen
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	s := openStore(t, pool, &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	once := func() {
		ackAll(t, s, leaseOne(t, s, "orders", "m"))
		d := leaseOne(t, s, "orders", "n")
		if _, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: "orders", ID: d.ID, Token: d.Token, Verb: punctual.SettleRetry}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Amend(t.Context(), []punctual.Amendment{{Topic: "orders", ID: d.ID, Change: punctual.ChangeCancel}}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.heads(t.Context(), []string{"orders"}); err != nil {
			t.Fatal(err)
		}
	}
	once()
	if _, err := pool.Exec(t.Context(), inSchema("ALTER TABLE punctual.message SET (autovacuum_enabled = off)", s.opt.Schema)); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), inSchema("VACUUM ANALYZE punctual.message", s.opt.Schema)); err != nil {
		t.Fatal(err)
	}
	once()
	pushOrders(t, s, 1000, time.Hour)
	for statement, byIndex := range map[string]string{
		"claim": "message_visible", "heads": "message_visible", "ack": "AND (id = i.id))",
		"lock": "AND (id = i.id))", "update": "message_pkey", "remove": "message_pkey",
	} {
		plan := cachedPlan(t, pool, s.sql.text(statement))
		if strings.Contains(plan, "Seq Scan on message") || strings.Contains(plan, "Bitmap") || !strings.Contains(plan, byIndex) {
			t.Errorf("the plan of %s, made when the table was empty, is\n%s", statement, plan)
		}
	}
}

// cachedPlan is the plan that the one connection of a pool has made for a statement.
func cachedPlan(t *testing.T, pool *pgxpool.Pool, text string) string {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	var name string
	var params int
	err = tx.QueryRow(t.Context(), "SELECT name, cardinality(parameter_types) FROM pg_prepared_statements WHERE statement = $1", text).Scan(&name, &params)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SET LOCAL plan_cache_mode = force_generic_plan"); err != nil {
		t.Fatal(err)
	}
	nulls := strings.TrimSuffix(strings.Repeat("NULL, ", params), ", ")
	rows, err := tx.Conn().PgConn().Exec(t.Context(), `EXPLAIN EXECUTE "`+name+`"(`+nulls+")").ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var plan strings.Builder
	for _, r := range rows[0].Rows {
		plan.Write(r[0])
		plan.WriteByte('\n')
	}
	return plan.String()
}
