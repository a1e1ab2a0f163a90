package importer

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// riverTable is where River keeps its jobs, in the schema that it was migrated in.
const riverTable = "river_job"

// What a job carries that a message does not is kept in headers with these names, except what only
// River can use, such as its unique key.
const (
	riverHeaderKind     = "river-kind"
	riverHeaderQueue    = "river-queue"
	riverHeaderAttempt  = "river-attempt"  // those made so far, unless 0
	riverHeaderError    = "river-error"    // the last one
	riverHeaderPriority = "river-priority" // unless 1
	riverHeaderTags     = "river-tags"     // separated by commas
	riverHeaderMetadata = "river-metadata" // JSON, unless empty
)

// describeRiver describes River's table: its migrations 2 to 6.
func (t *pgTable) describeRiver(types map[string]string) error {
	for _, name := range []string{"id", "state", "queue", "kind", "args", "attempt", "max_attempts", "scheduled_at", "priority", "tags", "metadata", "errors"} {
		if types[name] == "" {
			return storekit.Invalidf("%s has no column %q: is it River's?", t.name, name)
		}
	}
	t.describeKey([]string{"id"}, nil, types)
	t.count = "extract(epoch from t.scheduled_at)"
	t.due = "ceil(" + t.count + " * 1000)::float8"
	t.body = "convert_to(t.args::text, 'UTF8')"
	t.extra = `jsonb_build_object('kind', t.kind, 'queue', t.queue, 'attempt', t.attempt, 'max_attempts', t.max_attempts, 'priority', t.priority,
		'tags', t.tags, 'metadata', t.metadata, 'error', t.errors[array_upper(t.errors, 1)]->>'error')::text`
	t.pending = func(s *source) string {
		return "t.queue = " + literal(s.name) + " and t.state::text = " + literal(s.part)
	}
	return nil
}

// literal is a string of SQL.
func literal(s string) string {
	return "E'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'"
}

func (s *source) describeRiver(table string) {
	s.set = table + "/" + s.name + "/" + s.part
	s.read = readRiver
}

// riverJob is what is read of a job beside its arguments.
type riverJob struct {
	Kind        string          `json:"kind"`
	Queue       string          `json:"queue"`
	Attempt     int             `json:"attempt"`
	MaxAttempts int             `json:"max_attempts"`
	Priority    int             `json:"priority"`
	Tags        []string        `json:"tags"`
	Metadata    json.RawMessage `json:"metadata"`
	Error       string          `json:"error"`
}

func readRiver(e *entry) (m punctual.NewMessage, p *problem) {
	var j riverJob
	if err := json.Unmarshal(e.row.extra, &j); err != nil {
		return m, problemf(BadLayout, "the job cannot be read: %v", err)
	}
	m.Topic, m.Body = j.Kind, e.row.body
	m.ID = e.keep("river-"+e.member, makeID(River, e.member, formatScore(e.score), string(m.Body)))
	m.MaxAttempts = min(max(j.MaxAttempts-j.Attempt, 1), limits.MaxAttemptsLimit)
	m.Headers = map[string]string{riverHeaderKind: j.Kind, riverHeaderQueue: j.Queue}
	if j.Attempt > 0 {
		m.Headers[riverHeaderAttempt] = strconv.Itoa(j.Attempt)
	}
	if j.Error != "" {
		m.Headers[riverHeaderError] = storekit.TrimError(j.Error)
	}
	if j.Priority != 1 {
		m.Headers[riverHeaderPriority] = strconv.Itoa(j.Priority)
	}
	if len(j.Tags) > 0 {
		m.Headers[riverHeaderTags] = strings.Join(j.Tags, ",")
	}
	if text := string(j.Metadata); text != "{}" && text != "null" && text != "" {
		m.Headers[riverHeaderMetadata] = text
	}
	return m, nil
}

// note tells what of River's is beside a queue's scheduled jobs and stays. A table of a program's
// own has nothing beside it.
func (o *pgOrigin) note(ctx context.Context, s *source, r *SetReport) error {
	if s.kind != River || s.part != "scheduled" {
		return nil
	}
	what := map[string]string{
		"available": "available already: %d; the old workers run those", "running": "running: %d; the old workers finish those",
		"pending": "pending: %d; they stay", "discarded": "discarded: %d; they stay",
	}
	var err error
	r.Notes, err = query(ctx, o, "look beside "+s.set, func(row pgx.CollectableRow) (string, error) {
		var state string
		var n int64
		err := row.Scan(&state, &n)
		return fmt.Sprintf(what[state], n), err
	}, "select state::text, count(*) from "+o.table.name+" t where t.queue = $1 and t.state::text in ('available', 'running', 'pending', 'discarded') group by 1 order by 1", s.name)
	return err
}
