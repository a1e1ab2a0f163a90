package pgstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// access is a way to rows of a table: an index, and what its condition must name besides the first column.
type access struct{ index, condition string }

// inOrder are the statements that read a table by more than the ID, or by less, and how.
var inOrder = map[string][]access{
	"claim":            {{"message_visible", "visible_at"}},
	"heads":            {{"message_visible", "visible_at"}},
	"list_scheduled":   {{"message_visible", "visible_at"}},
	"list_leased":      {{"message_visible", "visible_at"}},
	"list_ready":       {{"message_visible", "visible_at"}},
	"list_dead":        {{"message_died", "died_at"}},
	"list_dead_reason": {{"message_reason", "reason"}},
	"purge_live":       {{"message_pkey", "id > "}},
	"purge_dead":       {{"message_died", "died_at"}},
	"outlived":         {{"message_died", "died_at"}, {"message_forget", "forget_at"}},
	"topics_outliving": {{"message_died", "topic"}, {"message_forget", "topic"}, {"story_forget", "topic"}}, // the first one of each
	"stories_outlived": {{"story_forget", "forget_at"}},
	"stories_sweep":    {{"story_pkey", "topic"}},
	"topic_sweep":      {{"message_pkey", "topic"}},
	"topic_swept":      {{"message_pkey", "topic"}, {"message_visible", "topic"}, {"story_pkey", "topic"}, {"story_forget", "topic"}},
}

// readsAll are statements that read all that a topic has, or all of everything, for those who ask for that.
var readsAll = []string{"check", "check_coded", "check_stories", "forecast", "stats", "topic_drop"}

// TestPlans: whatever the server believes about the size of the tables, the plan that it keeps leads to each row by an index. So no
// statement grows with the tables, or with the square of its batch.
func TestPlans(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	pooled, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer pooled.Release()
	conn := pooled.Conn()
	run(t, conn, inSchema("ALTER TABLE punctual.message SET (autovacuum_enabled = off)", s.opt.Schema))
	run(t, conn, inSchema("ALTER TABLE punctual.story SET (autovacuum_enabled = off)", s.opt.Schema))
	run(t, conn, inSchema("ALTER TABLE punctual.topic SET (autovacuum_enabled = off)", s.opt.Schema))
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
			run(t, conn, inSchema("VACUUM ANALYZE punctual.message, punctual.story, punctual.topic", s.opt.Schema))
		}
		for name := range s.sql {
			if name != "info" && name != "story" && !slices.Contains(readsAll, name) {
				keptPlan(t, conn, s, name).each(func(n planNode) {
					if problem := n.problem(name); problem != "" {
						t.Errorf("tables %s: %s.sql %s: %+v", state.name, name, problem, n)
					}
				})
			}
		}
	}
}

// fillTables has the tables hold so many topics, and messages in some of them: live, dead and finished ones.
func fillTables(s *Store, rows int) string {
	return inSchema(fmt.Sprintf(`
		INSERT INTO punctual.topic (name, settings, lease, max_attempts, dedupe_window, dead_retention, push_paused, delivery_paused)
		SELECT n, '', 1, 1, 0, 0, false, false FROM generate_series(1, %d) AS n ON CONFLICT DO NOTHING;
		INSERT INTO punctual.message (topic, id, visible_at, due, first_due, created, died_at, reason, forget_at)
		SELECT n %% 3 + 1, n, CASE WHEN n %% 10 > 1 THEN n END, n, n, n, CASE n %% 10 WHEN 0 THEN n END, CASE n %% 10 WHEN 0 THEN 'discarded' END,
		       CASE n %% 10 WHEN 1 THEN n END FROM generate_series(1, %[1]d) AS n ON CONFLICT DO NOTHING;
		INSERT INTO punctual.story (topic, id, outcome, created, first_due, due, ended_at, forget_at, attempts)
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

// keptPlan is the plan that the server makes for a statement without knowing its arguments, and keeps.
func keptPlan(t *testing.T, conn *pgx.Conn, s *Store, name string) planNode {
	t.Helper()
	text := s.sql.text(name)
	params := 0
	for strings.Contains(text, fmt.Sprintf("$%d", params+1)) {
		params++
	}
	args := ""
	if params > 0 {
		args = "(" + strings.TrimSuffix(strings.Repeat("NULL, ", params), ", ") + ")"
	}
	settings := s.sql.text("plan")
	if name == "topics_keep" { // it runs in transactions of callers alone
		settings = "SET LOCAL plan_cache_mode = force_generic_plan"
	}
	run(t, conn, "BEGIN; "+settings)
	run(t, conn, "PREPARE it AS "+text)
	explained := run(t, conn, "EXPLAIN (FORMAT JSON) EXECUTE it "+args)
	run(t, conn, "ROLLBACK; DEALLOCATE it")
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

// problem says why a step of a statement may take long, or nothing.
func (n planNode) problem(statement string) string {
	switch {
	case n.Type == "Nested Loop" && strings.Contains(n.JoinFilter, " = ") && statement != "examine":
		return "compares each of two lists with each"
	case n.Type == "ModifyTable" || n.Relation == "" || n.Relation == "store" || n.Place != "" || strings.HasPrefix(n.Relation, "pg_"):
		return ""
	case (n.Relation == "message" || n.Relation == "story") && !n.leadsTo(statement):
		return "reads more of the table than it needs"
	case n.Relation == "topic" && n.Condition == "" && statement != "topics_outliving" && statement != "topics_keep":
		return "reads all topics"
	}
	return ""
}

// leadsTo reports whether the step reads by topic and ID, or as the statement must.
func (n planNode) leadsTo(statement string) bool {
	if n.Index == n.Relation+"_pkey" && strings.Contains(n.Condition, "topic = ") && strings.Contains(n.Condition, "id = ") {
		return true
	}
	return slices.ContainsFunc(inOrder[statement], func(a access) bool {
		return n.Index == a.index && strings.Contains(n.Condition, "topic = ") && strings.Contains(n.Condition, a.condition)
	})
}
