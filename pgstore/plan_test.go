package pgstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/punctualmq/punctual"
)

// access is a way to rows of a table: an index, and what the index condition must name besides the
// comparison of the topic.
type access struct{ index, condition string }

// inOrder has the statements, but for those of readsAll, that reach rows of a table otherwise than
// by topic and ID, and the ways that they may take. A list that is read from its end (_back) has
// the ways of the list without _back.
var inOrder = map[string][]access{
	"claim":                   {{"message_visible", "visible_at"}},
	"claim_bounded":           {{"message_visible", "visible_at"}, {"message_counted", "topic"}},
	"claim_bounded_named":     {{"message_counted", "topic"}},
	"claim_keyed":             {{"message_counted", "topic"}, {"message_key", "key = "}},
	"ack_keyed":               {{"message_key", "key = "}},
	"key_note":                {{"message_key", "key = "}},
	"get":                     {{"message_key", "key = "}},
	"undeliverable":           {{"message_visible", "visible_at"}},
	"step_page":               {{"message_visible", "visible_at"}},
	"next_due":                {{"message_visible", "visible_at"}, {"message_key", "key = "}, {"message_counted", "visible_at"}},
	"topic_heads":             {{"message_visible", "visible_at"}, {"message_key", "key = "}, {"message_counted", "visible_at"}},
	"list_scheduled":          {{"message_visible", "visible_at"}, {"message_key", "key = "}},
	"list_leased":             {{"message_visible", "visible_at"}, {"message_key", "key = "}},
	"list_ready":              {{"message_visible", "visible_at"}, {"message_key", "key = "}},
	"list_dead":               {{"message_died", "died_at"}, {"message_key", "key = "}},
	"list_dead_reason":        {{"message_reason", "reason"}, {"message_key", "key = "}},
	"list_finished":           {{"finished_forget", "forget_at"}},
	"purge_live":              {{"message_pkey", "id > "}},
	"purge_dead":              {{"message_died", "died_at"}},
	"past_retention":          {{"message_died", "died_at"}, {"message_forget", "forget_at"}},
	"past_retention_all":      {{"message_died", "died_at"}},
	"topics_past_retention":   {{"message_died", "topic"}, {"message_forget", "topic"}, {"finished_forget", "topic"}}, // the first one of each
	"finished_past_retention": {{"finished_forget", "forget_at"}},
	"finished_sweep":          {{"finished_pkey", "topic"}},
	"topic_left":              {{"message_pkey", "topic"}, {"message_visible", "topic"}, {"message_died", "topic"}},
	"topic_sweep":             {{"message_pkey", "topic"}},
	"topic_swept":             {{"message_pkey", "topic"}, {"message_visible", "topic"}, {"finished_pkey", "topic"}, {"finished_forget", "topic"}},
}

// readsAll are statements that read all messages or finished records of a topic, or of all topics,
// and keys_heal, which reads messages of one key after the other, up to a thousand.
var readsAll = []string{"check", "check_coded", "check_finished", "check_keys", "count_leases", "key_look", "key_places", "keys_heal", "forecast", "stats", "step_kept", "survey", "topic_needed"}

// TestPlans: whatever the server believes about the size of the tables, the plan that it keeps
// leads to each message and finished record by an index or by its place, unless the statement is
// one that readsAll names. So the cost of no other statement grows with all that is in these
// tables, or with the square of its batch.
func TestPlans(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	pooled, err := s.db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer pooled.Release()
	conn := pooled.Conn()
	run(t, conn, inSchema("ALTER TABLE punctual.message SET (autovacuum_enabled = off)", s.opt.Schema))
	run(t, conn, inSchema("ALTER TABLE punctual.finished SET (autovacuum_enabled = off)", s.opt.Schema))
	run(t, conn, inSchema("ALTER TABLE punctual.topic SET (autovacuum_enabled = off)", s.opt.Schema))
	run(t, conn, inSchema("ALTER TABLE punctual.key SET (autovacuum_enabled = off)", s.opt.Schema))
	for _, state := range []struct {
		name    string
		rows    int
		analyse bool
	}{
		{"never analysed", 0, false},
		{"empty", 0, true},
		{"one row, thought empty", 1, false},
		{"one row", 1, true},
		{"full, thought of one row", 5000, false},
		{"full", 5000, true},
	} {
		run(t, conn, fillTables(s, state.rows))
		if state.analyse {
			run(t, conn, inSchema("VACUUM ANALYZE punctual.message, punctual.finished, punctual.topic, punctual.key", s.opt.Schema))
		}
		for name := range s.db.sql {
			if name != "level" && name != "step_lock" && (!slices.Contains(fragments, name) || name == "clock" || name == "named") && !slices.Contains(readsAll, name) {
				keptPlan(t, conn, s, name).each(func(n planNode) {
					if problem := n.problem(name); problem != "" {
						t.Errorf("tables %s: %s.sql %s: %+v", state.name, name, problem, n)
					}
				})
			}
		}
	}
}

// TestPlansInCallersTransaction: in a caller's transaction the statements have the plans of
// TestPlans, too. After each call the caller's settings, but for synchronous_commit, are what they
// were before, also after one whose context has ended half way.
func TestPlansInCallersTransaction(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	var stored []punctual.NewMessage
	for _, id := range []string{"a", "b", "c"} {
		stored = append(stored, punctual.NewMessage{Topic: "orders", ID: id, Delay: time.Hour})
	}
	if _, err := s.Push(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	leased, snoozed := leaseOne(t, s, "orders", "leased"), leaseOne(t, s, "orders", "snoozed")
	tx, conn := callersConn(t, s)
	// The server believes that the tables are so small that it is best to read all of them. It
	// makes the plans that it would keep.
	run(t, conn, inSchema("ANALYZE punctual.message, punctual.finished, punctual.topic", s.opt.Schema))
	run(t, conn, "BEGIN; SET LOCAL plan_cache_mode = force_generic_plan")
	before := settingsOf(t, conn)

	pushes := 0
	calls := map[string]func(ctx context.Context, in Tx) error{
		"push": func(ctx context.Context, in Tx) error {
			pushes++
			_, err := s.PushManyTx(ctx, in, []punctual.NewMessage{
				{Topic: fmt.Sprint("new", pushes), ID: "a"}, // whose topic stays behind a rollback
				{Topic: "orders", ID: "a", IfExists: punctual.IfExistsReplace},
				{Topic: "orders", ID: "b"},
			})
			return err
		},
		"amend": func(ctx context.Context, in Tx) error {
			_, err := s.AmendManyTx(ctx, in, []punctual.Amendment{
				{Change: punctual.ChangeReschedule, Topic: "orders", ID: "b", Delay: time.Hour},
				{Change: punctual.ChangeCancel, Topic: "orders", ID: "c"},
			})
			return err
		},
		"settle": func(ctx context.Context, in Tx) error {
			pushes++
			_, err := s.SettleManyTx(ctx, in, []punctual.Settlement{
				settlement(leased, punctual.SettleAck,
					punctual.NewMessage{Topic: fmt.Sprint("new", pushes), ID: "a"}, // whose topic stays behind a rollback
					punctual.NewMessage{Topic: "orders", ID: "a", IfExists: punctual.IfExistsReplace},
					punctual.NewMessage{Topic: "orders", ID: "d"}),
				settlement(snoozed, punctual.SettleSnooze),
			})
			return err
		},
		"cancel of none": func(ctx context.Context, in Tx) error {
			err := s.CancelTx(ctx, in, "orders", "none")
			if errors.Is(err, punctual.ErrNotFound) {
				return nil
			}
			return fmt.Errorf("want not found: %w", err)
		},
	}
	for name, call := range calls {
		statements := 0
		run(t, conn, "SAVEPOINT begun")
		err := call(t.Context(), SQL(queryFunc(func(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
			statements++
			explain(t, conn, text).each(func(n planNode) {
				if problem := n.problem(name); problem != "" {
					t.Errorf("%s: %s: %+v in\n%s", name, problem, n, text)
				}
			})
			return tx.QueryContext(ctx, text, args...)
		})))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if left := changed(before, settingsOf(t, conn)); len(left) > 0 {
			t.Errorf("%s leaves %v", name, left)
		}
		run(t, conn, "ROLLBACK TO begun")
		for stop := range statements { // the context ends behind so many statements
			ctx, end := context.WithCancel(t.Context())
			sent := 0
			err := call(ctx, SQL(queryFunc(func(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
				if sent++; sent == stop+1 {
					end()
				}
				if ctx.Err() != nil { // which database/sql sees before it sends anything
					return nil, ctx.Err()
				}
				return tx.QueryContext(ctx, text, args...)
			})))
			// The call may need fewer statements than the first one, which had to make topics. Then
			// nothing has ended this call early.
			if !errors.Is(err, context.Canceled) && (err != nil || sent > stop && stop < statements-1) {
				t.Errorf("%s, ended behind %d of %d statements: %v", name, stop, statements, err)
			}
			if left := changed(before, settingsOf(t, conn)); len(left) > 0 {
				t.Errorf("%s, ended behind %d of %d statements, leaves %v", name, stop, statements, left)
			}
			run(t, conn, "ROLLBACK TO begun")
		}
	}
}

// callersConn returns a connection for a caller's transaction, as database/sql has it and as pgx
// has it.
func callersConn(t *testing.T, s *Store) (tx *sql.Conn, conn *pgx.Conn) {
	t.Helper()
	db := stdlib.OpenDBFromPool(s.db.pool)
	t.Cleanup(func() { _ = db.Close() })
	tx, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Close() })
	if err := tx.Raw(func(driver any) error { conn = driver.(*stdlib.Conn).Conn(); return nil }); err != nil {
		t.Fatal(err)
	}
	return tx, conn
}

// queryFunc is a function as an argument of SQL. By it tests look at each statement of a
// transaction, or hand over what is no transaction.
type queryFunc func(ctx context.Context, text string, args ...any) (*sql.Rows, error)

func (f queryFunc) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	return f(ctx, text, args...)
}

// settingsOf returns all settings that hold on a connection, but for synchronous_commit, which the
// store may raise.
func settingsOf(t *testing.T, conn *pgx.Conn) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, row := range run(t, conn, "SELECT name || '=' || setting FROM pg_settings WHERE name <> 'synchronous_commit'") {
		name, value, _ := strings.Cut(string(row), "=")
		all[name] = value
	}
	return all
}

// changed returns the settings that have another value than before.
func changed(before, after map[string]string) map[string]string {
	maps.DeleteFunc(after, func(name, value string) bool { return before[name] == value })
	return after
}

// TestPlanWithin: plan_within.sql changes the same settings in a caller's transaction as plan.sql
// does in the store's own, to the same values.
func TestPlanWithin(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	_, conn := callersConn(t, s)
	before := settingsOf(t, conn)
	var got [2]map[string]string
	for i, name := range []string{"plan", "plan_within"} {
		run(t, conn, "BEGIN; "+s.db.sql.text(name))
		got[i] = changed(before, settingsOf(t, conn))
		run(t, conn, "ROLLBACK")
	}
	if len(got[0]) == 0 || !maps.Equal(got[0], got[1]) {
		t.Errorf("plan.sql settles %v, and plan_within.sql %v", got[0], got[1])
	}
}

// fillTables returns statements after which the tables hold so many topics, so many messages in
// some of them, live, dead and finished, and so many finished records.
func fillTables(s *Store, rows int) string {
	return inSchema(fmt.Sprintf(`
		INSERT INTO punctual.topic (name, settings, lease, max_attempts, dedupe_window, dead_retention, push_paused, delivery_paused)
		SELECT n, '', 1, 1, 0, 0, false, false FROM generate_series(1, %d) AS n ON CONFLICT DO NOTHING;
		INSERT INTO punctual.key (topic, key, at) SELECT n %% 3 + 1, n %% 7, n FROM generate_series(1, %[1]d) AS n;
		INSERT INTO punctual.message (topic, id, visible_at, due, first_due, created, died_at, reason, forget_at, key, place, arrival)
		SELECT n %% 3 + 1, n, CASE WHEN n %% 10 > 1 THEN n END, n, n, n, CASE n %% 10 WHEN 0 THEN n END, CASE n %% 10 WHEN 0 THEN 'discarded' END,
		       CASE n %% 10 WHEN 1 THEN n END, n %% 7, CASE WHEN n %% 10 > 1 THEN n END, n FROM generate_series(1, %[1]d) AS n ON CONFLICT DO NOTHING;
		INSERT INTO punctual.finished (topic, id, outcome, created, first_due, due, ended_at, forget_at, attempts)
		SELECT n %% 3 + 1, n, 'acked', n, n, n, n, n, 1 FROM generate_series(1, %[1]d) AS n ON CONFLICT DO NOTHING`, rows), s.opt.Schema)
}

// run runs statements without arguments and returns the first column of the last one.
func run(t *testing.T, conn *pgx.Conn, text string) (rows [][]byte) {
	t.Helper()
	results, err := conn.PgConn().Exec(t.Context(), text).ReadAll()
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for _, r := range results[len(results)-1].Rows {
		rows = append(rows, r[0])
	}
	return rows
}

// keptPlan returns the plan that the server makes for a statement without knowing its arguments,
// and keeps.
func keptPlan(t *testing.T, conn *pgx.Conn, s *Store, name string) planNode {
	t.Helper()
	run(t, conn, "BEGIN; "+s.db.sql.text("plan"))
	defer run(t, conn, "ROLLBACK")
	return explain(t, conn, s.db.sql.text(name))
}

// explain returns the plan that the server makes for a statement under the settings of the
// transaction.
func explain(t *testing.T, conn *pgx.Conn, text string) planNode {
	t.Helper()
	params := 0
	for strings.Contains(text, fmt.Sprintf("$%d", params+1)) {
		params++
	}
	args := ""
	if params > 0 {
		args = "(" + strings.TrimSuffix(strings.Repeat("NULL, ", params), ", ") + ")"
	}
	run(t, conn, "PREPARE it AS "+text)
	explained := run(t, conn, "EXPLAIN (FORMAT JSON) EXECUTE it "+args)
	run(t, conn, "DEALLOCATE it")
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal(explained[0], &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan
}

// planNode is a step of a plan, as the server describes it.
type planNode struct {
	Type       string     `json:"Node Type"`
	Relation   string     `json:"Relation Name"`
	Index      string     `json:"Index Name"`
	Condition  string     `json:"Index Cond"`
	Place      string     `json:"TID Cond"`
	JoinFilter string     `json:"Join Filter"`
	Parts      []planNode `json:"Plans"`
}

func (n planNode) each(f func(planNode)) {
	f(n)
	for _, p := range n.Parts {
		p.each(f)
	}
}

// problem says why a step of a statement may take long, or returns "".
func (n planNode) problem(statement string) string {
	switch {
	case n.Type == "Nested Loop" && strings.Contains(n.JoinFilter, " = ") && statement != "examine":
		return "compares each of two lists with each"
	case n.Relation == "store" && strings.HasPrefix(statement, "claim"):
		return "reads a row that leaves a version each second"
	case n.Type == "ModifyTable" || n.Relation == "" || n.Relation == "store" || n.Place != "" || strings.HasPrefix(n.Relation, "pg_"):
		return ""
	case (n.Relation == "message" || n.Relation == "finished") && !n.leadsTo(statement):
		return "reads more of the table than it needs"
	case n.Relation == "key" && !strings.Contains(n.Condition, "topic = "):
		return "reads all keys"
	case n.Relation == "topic" && n.Condition == "" && statement != "topics_past_retention" && statement != "topic_heads" && statement != "new_companions": // which reads the last one
		return "reads all topics"
	}
	return ""
}

// leadsTo reports whether the step reads by topic and ID, or as the statement must.
func (n planNode) leadsTo(statement string) bool {
	if n.Index == n.Relation+"_pkey" && strings.Contains(n.Condition, "topic = ") && strings.Contains(n.Condition, "id = ") {
		return true
	}
	statement = strings.TrimSuffix(statement, "_back") // a list from its end reads the same index backwards
	return slices.ContainsFunc(inOrder[statement], func(a access) bool {
		return n.Index == a.index && strings.Contains(n.Condition, "topic = ") && strings.Contains(n.Condition, a.condition)
	})
}
