package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/punctualmq/punctual"
)

// sql returns a connection to a database of the test's own, with a table of jobs and River's as its
// own migrations make it.
func (r *rig) sql() *pgx.Conn {
	r.t.Helper()
	if r.db != nil {
		return r.db
	}
	url := postgres.Database(r.t)
	var err error
	r.db, err = dialPostgres(r.t.Context(), url)
	r.must(err)
	r.t.Cleanup(func() {
		if err := r.db.Close(context.Background()); err != nil {
			r.t.Error(err)
		}
	})
	r.exec("create table jobs (id text primary key, run_at timestamptz, payload text, state text default 'pending', tenant text default 'one', copy text generated always as (payload || '!') stored, unique (tenant, id))")
	river, err := os.ReadFile("testdata/river/schema.sql")
	r.must(err)
	r.exec(string(river))
	return r.db
}

func (r *rig) exec(statement string, args ...any) {
	r.t.Helper()
	_, err := r.sql().Exec(r.t.Context(), statement, args...)
	r.must(err)
}

// tables returns what the database holds as a text, to compare: all rows of jobs and of River's
// table, and what is staged.
func (r *rig) tables() string {
	r.t.Helper()
	var b strings.Builder
	for _, table := range []string{"jobs", "river_job", stagingTable} {
		var there bool
		r.must(r.db.QueryRow(r.t.Context(), "select to_regclass($1) is not null", table).Scan(&there))
		if !there {
			continue
		}
		rows, err := r.db.Query(r.t.Context(), "select t::text from "+table+" t order by 1")
		r.must(err)
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		r.must(err)
		for _, text := range texts {
			fmt.Fprintf(&b, "%s: %s\n", table, text)
		}
	}
	return b.String()
}

// apart returns an importer with a connection of its own, where the kind has connections.
func (r *rig) apart(o Options) (*Importer, error) {
	switch o.Kind.Scheme() {
	case "amqp":
		from, err := dialRabbit(r.broker().url, &o)
		if err != nil {
			return nil, err
		}
		r.t.Cleanup(func() { r.must(from.close()) })
		return r.steps(newImporter(from, &o), nil)
	case "redis":
		return r.importer(o)
	case "mysql":
		im, hangUp, err := Open(r.t.Context(), maria.URL(r.myName)+"?timezone=UTC", o)
		if err != nil {
			return nil, err
		}
		r.t.Cleanup(func() { r.must(hangUp()) })
		return r.steps(im, nil)
	}
	conn, err := dialPostgres(r.t.Context(), r.sql().Config().ConnString())
	if err != nil {
		return nil, err
	}
	r.t.Cleanup(func() { r.must(conn.Close(context.Background())) })
	return r.steps(newPostgres(conn, o))
}

// Imports that begin at the same time all find or make the table of what is staged. What PostgreSQL
// refuses to the slower ones differs: the table, its row type, or an entry of the catalog.
func TestStagingMadeAtOnce(t *testing.T) {
	r := newRig(t)
	r.exec("create schema shop")
	const imports = 6
	var origins []*pgOrigin
	for range imports {
		conn, err := dialPostgres(t.Context(), r.sql().Config().ConnString())
		r.must(err)
		t.Cleanup(func() { r.must(conn.Close(context.Background())) })
		origins = append(origins, &pgOrigin{conn: conn, table: &pgTable{staging: `shop."punctual_import"`}})
	}
	for range 40 {
		var wg sync.WaitGroup
		for _, o := range origins {
			wg.Go(func() {
				if err := o.makeStaging(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		r.exec("drop table shop.punctual_import")
	}
}

// TestPostgresTable: a survey counts what would become of the rows of a table and changes nothing.
// The import that follows stores as many messages as the survey said.
func TestPostgresTable(t *testing.T) {
	r := newRig(t)
	r.exec(`insert into jobs (id, run_at, payload, state) values
		('order-1', '2096-01-01 00:00:00.0001+00', 'close 1', 'pending'), ('order-2', now() - interval '1 hour', E'\\x00 and ''quotes''', 'pending'),
		('with space', '2096-01-01 00:00:00+00', 'x', 'pending'), (E'two\nlines', '2096-01-01 00:00:00+00', 'x', 'pending'), ('done', now(), 'x', 'done'),
		('never', 'infinity', 'x', 'pending'), ('unknown', null, 'x', 'pending'), ('long ago', '1999-01-01', 'x', 'pending')`)
	o := options(Postgres)
	o.Where = "t.state = 'pending'"
	before := r.everything()
	s := r.survey(o).Sets[0]
	if s.Found != 7 || s.Importable != 4 || s.Overdue != 1 || s.Rejected[BadScore] != 3 {
		t.Errorf("survey: %+v", s)
	}
	if after := r.everything(); after != before {
		t.Errorf("the survey changed\n%s\nto\n%s", before, after)
	}
	s = r.move(o).Sets[0]
	if s.Stored != 4 || s.Remaining != 3 || s.StillStaged != 0 {
		t.Errorf("move: %+v", s)
	}
	ms := r.messages("t")
	if len(ms) != 4 || ms[0].ID != "order-2" || string(ms[0].Body) != `\x00 and 'quotes'` {
		t.Fatalf("messages: %+v", ms)
	}
	due := time.Date(2096, 1, 1, 0, 0, 0, 1e6, time.UTC) // rounded up
	i := slices.IndexFunc(ms, func(m punctual.Info) bool { return m.ID == "order-1" })
	if i < 0 || !ms[i].Due.Equal(due) {
		t.Errorf("order-1 is due at %v, want %v", ms[i].Due, due)
	}
	if !slices.ContainsFunc(ms, func(m punctual.Info) bool { return strings.HasPrefix(m.ID, "postgres-") }) {
		t.Error("no message has an ID in place of one that no message can have")
	}
}

// Due times and bodies of other types.
func TestPostgresTypes(t *testing.T) {
	r := newRig(t)
	r.exec("create schema shop")
	r.exec(`create table shop."Jobs" (id uuid unique, secs bigint, ms numeric, day date, body bytea, doc jsonb)`)
	r.exec(`insert into shop."Jobs" values ('11111111-1111-4111-8111-111111111111', 4000000000, 4000000000123.5, '2096-10-02', '\x00ff', '{"a": 1}')`)
	for _, c := range []struct {
		due, body string
		unit      time.Duration
		want      time.Time
		wantBody  string
	}{
		{"secs", "body", time.Second, time.Unix(4000000000, 0), "\x00\xff"},
		{"ms", "doc", time.Millisecond, time.UnixMilli(4000000000124), `{"a": 1}`},
		{"day", "doc", 0, time.Date(2096, 10, 2, 0, 0, 0, 0, time.UTC), `{"a": 1}`},
	} {
		o := Options{Kind: Postgres, Names: []string{`shop."Jobs"`}, Topic: "t", Columns: Columns{[]string{"id"}, c.due, c.body}}
		rep := r.survey(o)
		if s := rep.Sets[0].Samples; len(s) != 1 || !s[0].Due.Equal(c.want) || string(s[0].Body) != c.wantBody || rep.Unit != unitWord(c.unit) {
			t.Errorf("%s, %s: samples %+v, unit %v", c.due, c.body, s, rep.Unit)
		}
		if c.unit == 0 {
			continue
		}
		if _, err := r.tryMove(o); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%s: a move that would guess the unit: %v", c.due, err)
		}
	}
}

// A time without a zone is one on the wall of the connection's zone, and the same instant as with
// push --zone: of a time that clocks show twice the first, and of one that they skip the end of the
// gap. PostgreSQL itself takes the second, and 3:30.
func TestPostgresTimesOnTheWall(t *testing.T) {
	r := newRig(t)
	r.exec("set timezone to 'Europe/Berlin'")
	r.exec("create table walls (id text primary key, due timestamp, day date, body text)")
	r.exec(`insert into walls values ('gap', '2096-03-25 02:30:00.5', '2096-03-25', ''), ('twice', '2096-10-28 02:30', '2096-10-28', ''),
		('usual', '2096-07-01 09:00', '2096-07-01', ''), ('never', 'infinity', 'infinity', ''), ('unknown', null, null, '')`)
	var theirs time.Time
	r.must(r.db.QueryRow(t.Context(), "select due::timestamptz from walls where id = 'twice'").Scan(&theirs))
	if want := time.Date(2096, 10, 28, 1, 30, 0, 0, time.UTC); !theirs.Equal(want) {
		t.Fatalf("PostgreSQL takes %v, want %v: this test shows nothing", theirs, want)
	}
	for column, want := range map[string]map[string]time.Time{
		"due": {"gap": time.Date(2096, 3, 25, 1, 0, 0, 5e8, time.UTC), "twice": time.Date(2096, 10, 28, 0, 30, 0, 0, time.UTC), "usual": time.Date(2096, 7, 1, 7, 0, 0, 0, time.UTC)},
		"day": {"gap": time.Date(2096, 3, 24, 23, 0, 0, 0, time.UTC), "twice": time.Date(2096, 10, 27, 22, 0, 0, 0, time.UTC), "usual": time.Date(2096, 6, 30, 22, 0, 0, 0, time.UTC)},
	} {
		s := r.survey(Options{Kind: Postgres, Names: []string{"walls"}, Topic: "t", Columns: Columns{[]string{"id"}, column, "body"}}).Sets[0]
		if len(s.Samples) != 3 || s.Rejected[BadScore] != 2 {
			t.Errorf("%s: %+v", column, s)
		}
		for _, m := range s.Samples {
			if !m.Due.Equal(want[m.ID]) {
				t.Errorf("%s of %s is %v, want %v", column, m.ID, m.Due, want[m.ID])
			}
		}
	}
	r.exec("set timezone to '<+03>-03'")
	if _, err := r.tryMove(Options{Kind: Postgres, Names: []string{"walls"}, Topic: "t", Columns: Columns{[]string{"id"}, "due", "body"}}); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "?timezone=") {
		t.Errorf("with a zone that has no name: %v", err)
	}
}

// Tables whose keys have several columns, as pg-boss 10.4.2 and 12.38.0 (whose keys are alike),
// db-scheduler at commit 0a4dc796 and Quartz at 24402f57 make theirs. The ID has the values in the
// order of --id, and the index of pg-boss has them in another.
func TestPostgresKeysOfSeveralColumns(t *testing.T) {
	r := newRig(t)
	for _, s := range []string{
		"create schema pgboss",
		"create type pgboss.job_state as enum ('created', 'retry', 'active', 'completed', 'cancelled', 'failed')",
		`create table pgboss.job (id uuid not null default gen_random_uuid(), name text not null, priority int not null default 0, data jsonb, state pgboss.job_state not null default 'created',
			retry_limit int not null default 2, retry_count int not null default 0, singleton_key text, singleton_on timestamp, expire_in interval not null default '15 minutes',
			start_after timestamptz not null default now(), keep_until timestamptz not null default now() + interval '14 days', primary key (name, id)) partition by list (name)`,
		"create table pgboss.job_mail (like pgboss.job including defaults)",
		"alter table pgboss.job attach partition pgboss.job_mail for values in ('mail')",
		"create table pgboss.job_common partition of pgboss.job default",
		`insert into pgboss.job (name, id, data, start_after, state) values ('mail', '11111111-1111-4111-8111-111111111111', '{"no": 1}', '2096-01-01 00:00:00+00', 'created'),
			('order.close', '11111111-1111-4111-8111-111111111111', '{"no": 2}', '2096-01-01 00:00:00+00', 'retry'), ('mail', '22222222-2222-4222-8222-222222222222', null, '2096-01-01 00:00:00+00', 'active')`,
		`create table scheduled_tasks (task_name text not null, task_instance text not null, task_data bytea, execution_time timestamptz, picked boolean not null, picked_by text,
			last_heartbeat timestamptz, version bigint not null, priority smallint, state text, primary key (task_name, task_instance))`,
		`insert into scheduled_tasks values ('close', '42', '\xaced00', '2096-01-01 00:00:00+00', false, null, null, 1), ('close', 'a:42', '\x01', '2096-01-01 00:00:00+00', false, null, null, 1),
			('close', 'running', null, '2096-01-01 00:00:00+00', true, 'node', now(), 1), ('report', 'recurring', null, '2096-01-01 00:00:00+00', false, null, null, 1)`,
		`create table qrtz_triggers (sched_name varchar(120) not null, trigger_name varchar(200) not null, trigger_group varchar(200) not null, job_name varchar(200) not null, job_group varchar(200) not null,
			next_fire_time bigint, trigger_state varchar(16) not null, trigger_type varchar(8) not null, job_data bytea, primary key (sched_name, trigger_name, trigger_group))`,
		`create table qrtz_simple_triggers (sched_name varchar(120) not null, trigger_name varchar(200) not null, trigger_group varchar(200) not null, repeat_count bigint not null,
			primary key (sched_name, trigger_name, trigger_group), foreign key (sched_name, trigger_name, trigger_group) references qrtz_triggers)`,
		`insert into qrtz_triggers values ('s', 'once', 'DEFAULT', 'close', 'DEFAULT', 3976214400000, 'WAITING', 'SIMPLE', '\x01'), ('s', 'often', 'DEFAULT', 'close', 'DEFAULT', 3976214400000, 'WAITING', 'SIMPLE', null),
			('s', 'cron', 'DEFAULT', 'close', 'DEFAULT', 3976214400000, 'WAITING', 'CRON', null), ('s', 'runs', 'DEFAULT', 'close', 'DEFAULT', 3976214400000, 'ACQUIRED', 'SIMPLE', null)`,
		"insert into qrtz_simple_triggers values ('s', 'once', 'DEFAULT', 0), ('s', 'often', 'DEFAULT', -1), ('s', 'runs', 'DEFAULT', 0)",
	} {
		r.exec(s)
	}
	quartz := Options{
		Columns: Columns{[]string{"sched_name", "trigger_name", "trigger_group"}, "next_fire_time", "job_name"}, Unit: time.Millisecond,
		Where: "trigger_state = 'WAITING' and (sched_name, trigger_name, trigger_group) in (select sched_name, trigger_name, trigger_group from qrtz_simple_triggers where repeat_count = 0)",
	}
	for table, c := range map[string]struct {
		o    Options
		want []string
	}{
		"pgboss.job": {
			Options{Columns: Columns{[]string{"id", "name"}, "start_after", "data"}, Where: "state < 'active'"},
			[]string{`11111111-1111-4111-8111-111111111111:mail {"no": 1}`, `11111111-1111-4111-8111-111111111111:order.close {"no": 2}`},
		},
		"scheduled_tasks": {
			Options{Columns: Columns{[]string{"task_name", "task_instance"}, "execution_time", "task_data"}, Where: "not picked and task_name = 'close'"},
			[]string{"close:42 \xac\xed\x00", "close:a:42 \x01"},
		},
		"qrtz_triggers": {quartz, []string{"s:once:DEFAULT close"}},
	} {
		c.o.Kind, c.o.Names, c.o.Topic = Postgres, []string{table}, table
		if table == "qrtz_triggers" {
			if rep, err := r.tryMove(c.o); err == nil || !strings.Contains(err.Error(), "--mark") || rep.Sets[0].Remaining != 1 {
				t.Errorf("Quartz refers to its triggers: %v, %+v; want the remedy", err, rep.Sets)
			}
			c.o.Mark = "trigger_state=PAUSED"
		}
		s := r.move(c.o).Sets[0]
		var got []string
		for _, m := range r.messages(table) {
			got = append(got, m.ID+" "+string(m.Body))
			if !m.Due.Equal(time.Date(2096, 1, 1, 0, 0, 0, 0, time.UTC)) {
				t.Errorf("%s: due %v", m.ID, m.Due)
			}
		}
		if slices.Sort(got); !slices.Equal(got, c.want) || s.Remaining != 0 || len(s.Renamed) != 0 {
			t.Errorf("%s: messages %q, want %q; %+v", table, got, c.want, s)
		}
		c.o.Columns.ID = c.o.Columns.ID[:1]
		if _, err := r.tryMove(c.o); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "--id ") {
			t.Errorf("%s by one column of its key: %v; want ErrInvalid that names the whole key", table, err)
		}
	}
	var paused string
	r.must(r.db.QueryRow(t.Context(), "select string_agg(trigger_name, ' ') from qrtz_triggers where trigger_state = 'PAUSED'").Scan(&paused))
	if paused != "once" {
		t.Errorf("paused are %q", paused)
	}
}

// Rows whose keys look alike, and keys of all kinds of types, keep apart: each row goes into
// staging and back as it was, and then arrives once.
func TestPostgresKeysThatLookAlike(t *testing.T) {
	for types, rows := range map[string]string{
		"text, text": `('a', 'b'), ('a:b', 'c'), ('a', 'b:c'), ('a:', 'c'), ('a', ':c'), ('', ''), (':', ''), ('', ':'), ('"a', 'b"'), ('a","b', 'c'), ('a', 'b","c'), (E'a\\', 'b'), (E'a\n', 'b'),
			('[', ']'), ('null', 'null'), ('ä', 'b'), (repeat('x', 200), 'y'), ('A', 'B'), ('a ', 'b')`,
		"text collate folds, bigint":     "('a', 9223372036854775807), ('B', -1), ('c', 0)",
		"char(5), numeric":               "('a', 1.10), ('b', 1.1), ('b', 'NaN'), ('b', 1e-20)",
		"bytea, timestamptz":             `('\x00ff', '2026-11-29 08:00:00.123456+00'), ('\x', 'infinity'), ('\x27225c', '0044-03-15 00:00:00+00 BC')`,
		"float8, interval":               "(0.1::float8 + 0.2::float8, '1 mon -1 day'), ('-infinity', '0'), (1e-300, '1 day')",
		"text[], boolean":                `('{a,"b,c"}', true), ('{"a,b",c}', true), ('{a,"b,c"}', false)`,
		"jsonb, uuid":                    `('{"a": ":"}', '11111111-1111-4111-8111-111111111111'), ('[]', '11111111-1111-4111-8111-111111111111')`,
		"date, time":                     "('2026-11-29', '08:00:00.5'), ('-infinity', '24:00')",
		"inet, varchar(3) collate folds": "('::1', 'a'), ('10.0.0.0/8', 'a')",
	} {
		t.Run(types, func(t *testing.T) {
			r := newRig(t)
			r.sql()
			r.exec(`create collation folds (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
			a, b, _ := strings.Cut(types, ", ")
			r.exec("create table pairs (b " + b + ", a " + a + ", due timestamptz default '2096-01-01', body text, primary key (a, b))")
			r.exec("insert into pairs (a, b) values " + rows)
			r.exec("update pairs set body = md5(pairs::text)")
			o := Options{Kind: Postgres, Names: []string{"pairs"}, Topic: "t", Columns: Columns{[]string{"b", "a"}, "due", "body"}}
			read := func() (n int, texts string) {
				t.Helper()
				r.must(r.db.QueryRow(t.Context(), "select count(*), string_agg(p::text, E'\n' order by body) from pairs p").Scan(&n, &texts))
				return n, texts
			}
			n, before := read()
			r.withFaults(refuseAll)
			rep, err := r.tryMove(o)
			if _, after := read(); !errors.Is(err, punctual.ErrNoSpace) || rep.Sets[0].Returned != int64(min(n, firstPage)) || after != before {
				t.Errorf("%v, %+v; put back\n%s\nwant\n%s", err, rep.Sets[0], after, before)
			}
			r.healed()
			if s := r.move(o).Sets[0]; s.Stored != int64(n) || s.Remaining != 0 || s.StillStaged != 0 || s.Returned != 0 {
				t.Errorf("%d rows: %+v", n, s)
			}
			ids := map[string]bool{}
			for _, m := range r.messages("t") {
				ids[m.ID] = true
				if !strings.Contains(before, string(m.Body)) {
					t.Errorf("a body of no row: %q", m.Body)
				}
			}
			if len(ids) != n {
				t.Errorf("%d IDs of %d rows: %q", len(ids), n, slices.Sorted(maps.Keys(ids)))
			}
			if types == "text, text" && !(ids["b:a"] && ids["B:A"] && ids["c:a:b"] && !ids["b:c:a"] && ids[":"]) {
				t.Errorf("IDs %q", slices.Sorted(maps.Keys(ids)))
			}
		})
	}
}

// A row without a value in its key has no name: nothing is taken while there is one.
func TestPostgresKeyWithoutValue(t *testing.T) {
	for _, ids := range [][]string{{"b"}, {"a", "b"}, {"b", "a"}} {
		r := newRig(t)
		r.exec("create table pairs (a text, b text, due timestamptz default '2096-01-01', body text default 'x', unique (a, b), unique (b))")
		r.exec("insert into pairs values ('a', 'b'), ('b', null), ('c', 'c')")
		o := Options{Kind: Postgres, Names: []string{"pairs"}, Topic: "t", Columns: Columns{ids, "due", "body"}}
		im, err := r.importer(o)
		r.must(err)
		_, looking := im.Survey(t.Context())
		rep, err := r.tryMove(o)
		for _, err := range []error{looking, err} {
			if !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "--where") {
				t.Errorf("%q: %v; want ErrInvalid and a remedy", ids, err)
			}
		}
		if got := r.messages("t"); len(got) != 0 || rep.Sets[0].Stored != 0 {
			t.Errorf("%q: %+v was taken", ids, got)
		}
		o.Where = "b is not null"
		if s := r.move(o).Sets[0]; s.Stored != 2 || s.Remaining != 0 {
			t.Errorf("%q: %+v", ids, s)
		}
	}
}

// Each page after the first begins in the index of the key, in whatever order --id has the columns.
func TestPostgresPagesByIndex(t *testing.T) {
	r := newRig(t)
	r.exec("create table pairs (b uuid, a text, due timestamptz, body text, primary key (a, b)) partition by list (a)")
	r.exec("create table pairs_x partition of pairs for values in ('x')")
	r.exec("create table pairs_rest partition of pairs default")
	r.exec("insert into pairs select gen_random_uuid(), chr(115 + n % 10), now(), repeat('x', 100) from generate_series(1, 20000) n")
	r.exec("analyze pairs")
	o := &pgOrigin{conn: r.db, opt: &Options{Kind: Postgres, Names: []string{"pairs"}, Columns: Columns{[]string{"b", "a"}, "due", "body"}}}
	r.must(o.describe(t.Context()))
	plan, err := o.texts(t.Context(), "explain", "explain "+strings.NewReplacer("$1", "500", "$2::text", `'["11111111-1111-4111-8111-111111111111","x"]'::text`).Replace(o.table.page(nil, false)))
	r.must(err)
	if text := strings.Join(plan, "\n"); !strings.Contains(text, "Index Cond: (ROW(") || strings.Contains(text, "Sort Key: t.b") || strings.Contains(text, "Seq Scan") {
		t.Errorf("the plan of a page is\n%s", text)
	}
}

// A run that goes on with other columns in --id, because those of the run that was killed were
// wrong, stores the bodies that were staged.
func TestPostgresGoesOnByAnotherKey(t *testing.T) {
	r := newRig(t)
	want := r.good(Postgres, "jobs", 3)
	r.step = func(step string) error {
		if step == "taken" {
			return errors.New("killed")
		}
		return nil
	}
	if rep, err := r.tryMove(options(Postgres)); err == nil || rep.Sets[0].StillStaged != 3 {
		t.Fatalf("%v, %+v: nothing is staged, so this test shows nothing", err, rep.Sets)
	}
	r.step = nil
	o := options(Postgres)
	o.Columns.ID = []string{"tenant", "id"}
	r.move(o)
	r.consume("t")
	r.eachOnce(want)
}

// Options that do not fit the database are refused.
func TestPostgresRefuses(t *testing.T) {
	r := newRig(t)
	r.exec("create view seen as select * from jobs")
	for name, change := range map[string]func(o *Options){
		"no such table":  func(o *Options) { o.Names = []string{"nobody"} },
		"a view":         func(o *Options) { o.Names = []string{"seen"} },
		"one twice":      func(o *Options) { o.Columns.ID = []string{"id", "id"} },
		"no such column": func(o *Options) { o.Columns.Body = "nothing" },
		"not unique":     func(o *Options) { o.Columns.ID = []string{"payload"} },
		"no time":        func(o *Options) { o.Columns.Due = "state" },
		"a unit":         func(o *Options) { o.Unit = time.Second },
	} {
		o := options(Postgres)
		change(&o)
		if _, err := r.tryMove(o); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	o := options(Postgres)
	o.Where = "nonsense = 1"
	if _, err := r.tryMove(o); err == nil || !strings.Contains(err.Error(), "the condition names a column") {
		t.Errorf("a condition that cannot be: %v", err)
	}
	if _, err := dialPostgres(t.Context(), "postgres://postgres:secret@127.0.0.1:1/none"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("no server: %v", err)
	}
	if _, err := newPostgres(r.db, Options{Kind: River, ByType: true, Topic: "t"}); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("both by type and into one topic: %v", err)
	}
}

// A row that an old consumer works on stays its own, also when it is finished later; one that it
// changes is not taken.
func TestPostgresOldConsumer(t *testing.T) {
	r := newRig(t)
	r.good(Postgres, "jobs", 4)
	other, err := dialPostgres(t.Context(), r.sql().Config().ConnString())
	r.must(err)
	defer func() { r.must(other.Close(context.Background())) }()
	tx, err := other.Begin(t.Context())
	r.must(err)
	_, err = tx.Exec(t.Context(), "select * from jobs where id = 'good-0' for update skip locked")
	r.must(err)
	s := r.move(options(Postgres)).Sets[0]
	if s.Stored != 3 || s.Remaining != 1 || s.StillStaged != 0 || s.Held != 1 {
		t.Errorf("while one row is locked: %+v", s)
	}
	_, err = tx.Exec(t.Context(), "delete from jobs where id = 'good-0'")
	r.must(err)
	r.must(tx.Commit(t.Context()))
	if s = r.move(options(Postgres)).Sets[0]; s.Stored != 0 || s.Remaining != 0 || s.Held != 0 {
		t.Errorf("afterwards: %+v", s)
	}
	r.consume("t")
	r.eachOnce([]string{"body good-1", "body good-2", "body good-3"})

	// Between its reading and its taking a row may be changed.
	r.exec("insert into jobs values ('good-9', now() - interval '1 min', 'old')")
	im, err := r.importer(options(Postgres))
	r.must(err)
	sources, err := im.sources(t.Context())
	r.must(err)
	changed := false
	for _, walk := range im.from.walks(sources[0]) {
		r.must(walk(t.Context(), sources[0], func(ctx context.Context, es []*entry) ([]bool, error) {
			r.exec("update jobs set payload = 'new' where id = 'good-9'")
			changed = true
			got, err := im.from.take(ctx, sources[0], es)
			if err != nil || got[0] != itemHeld {
				t.Errorf("take of a row that was changed: %v, %v", got, err)
			}
			return []bool{true}, nil
		}))
	}
	if !changed {
		t.Error("no row was read, so this test shows nothing")
	}
}

// A row with the ID of one that was imported and finished is another one: because the topic
// remembers the ID, the row is put back into the table and reported.
func TestPostgresSameIDAgain(t *testing.T) {
	r := newRig(t)
	r.good(Postgres, "jobs", 1)
	r.move(options(Postgres))
	r.consume("t")
	r.good(Postgres, "jobs", 1)
	s := r.move(options(Postgres)).Sets[0]
	if s.Rejected[Conflict] != 1 || s.Returned != 1 || s.Remaining != 1 || s.StillStaged != 0 {
		t.Errorf("%+v", s)
	}
	r.consume("t")
	r.eachOnce([]string{"body good-0"})
}

// hazards are what makes a DELETE on jobs do something else than delete, or something more.
var hazards = map[string][]string{
	"a trigger that marks the row": {
		"alter table jobs add deleted_at timestamptz",
		`create function keeps() returns trigger language plpgsql as $$ begin
			update jobs set deleted_at = now() where id = old.id; return null; end $$`,
		"create trigger keeps before delete on jobs for each row execute function keeps()",
	},
	"a trigger that keeps all rows": {
		"create function keeps() returns trigger language plpgsql as $$ begin return null; end $$",
		"create trigger keeps before delete on jobs for each row execute function keeps()",
	},
	"a trigger that keeps one row": {
		"create function keeps() returns trigger language plpgsql as $$ begin if old.id = 'good-1' then return null; end if; return old; end $$",
		"create trigger keeps before delete on jobs for each row execute function keeps()",
	},
	"a policy": {
		"alter table jobs enable row level security", "alter table jobs force row level security", "create role keeps_role",
		"create policy sees on jobs using (true) with check (true)", "create policy keeps on jobs as restrictive for delete using (id <> 'good-1')",
		"grant all on all tables in schema public to keeps_role", "grant all on schema public to keeps_role", "set role keeps_role",
	},
}

// hazard runs a statement. A role belongs to the server, so its name is one of the test's own.
func (r *rig) hazard(statement string) {
	r.t.Helper()
	r.exec(strings.ReplaceAll(statement, "keeps_role", strings.ToLower(strings.NewReplacer("/", "_").Replace(r.t.Name()))))
}

// What may keep a row from leaving its table, or changes other rows with it, is refused before
// anything is read, in a survey as in a move.
func TestPostgresDeletesMore(t *testing.T) {
	more := map[string][]string{
		"cascade":       {"create table runs (keeps text references jobs on delete cascade)"},
		"set null":      {"create table runs (keeps text references jobs on delete set null)"},
		"set default":   {"create table runs (keeps text default 'x' references jobs on delete set default)"},
		"to itself":     {"alter table jobs add keeps text references jobs on delete cascade"},
		"a rule":        {"create rule keeps as on delete to jobs do also notify gone"},
		"at the end":    {"create function keeps() returns trigger language plpgsql as $$ begin insert into jobs values (old.id); return null; end $$", "create constraint trigger keeps after delete on jobs deferrable initially deferred for each row execute function keeps()"},
		"per statement": {"create function keeps() returns trigger language plpgsql as $$ begin return null; end $$", "create trigger keeps after delete on jobs execute function keeps()"},
		"an heir":       {"create table keeps () inherits (jobs)"},
		"in a partition": {
			"drop table jobs", "create table jobs (id text primary key, run_at timestamptz, payload text) partition by list (id)", "create table part partition of jobs default",
			"create function keeps() returns trigger language plpgsql as $$ begin return null; end $$", "create trigger keeps before delete on part for each row execute function keeps()",
		},
	}
	remedies := map[string]string{"a policy": "BYPASSRLS", "a rule": "rule keeps of jobs", "an heir": "keeps inherits from it"}
	maps.Copy(more, hazards)
	for name, statements := range more {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for _, s := range statements {
				r.hazard(s)
			}
			r.good(Postgres, "jobs", 3)
			before := r.everything()
			for what, run := range map[string]func(im *Importer) (*Report, error){
				"survey": func(im *Importer) (*Report, error) { return im.Survey(t.Context()) },
				"move":   func(im *Importer) (*Report, error) { return im.Move(t.Context(), r.store) },
			} {
				im, err := r.importer(options(Postgres))
				r.must(err)
				rep, err := run(im)
				if !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), cmp.Or(remedies[name], "--mark")) {
					t.Errorf("%s: %v, %+v; want ErrInvalid that names what is there and the remedy", what, err, rep.Sets)
				}
			}
			if after := r.everything(); after != before {
				t.Errorf("changed\n%s\nto\n%s", before, after)
			}
		})
	}
}

// A trigger or a policy that comes while the import runs keeps rows in their table. The import then
// takes none of the page and ends with an error; no row counts as gone.
func TestPostgresKeepsRows(t *testing.T) {
	for name, statements := range hazards {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.good(Postgres, "jobs", 3)
			im, err := r.importer(options(Postgres))
			r.must(err)
			_, err = im.sources(t.Context()) // which looks for triggers and policies
			r.must(err)
			for _, s := range statements {
				r.hazard(s)
			}
			before := r.everything()
			rep, err := im.Move(t.Context(), r.store)
			s := rep.Sets[0]
			if err == nil || !strings.Contains(err.Error(), "stay") || s.Gone != 0 || s.Stored != 0 || s.Remaining != 3 || s.StillStaged != 0 {
				t.Errorf("%v, %+v; want an error and all rows where they were", err, s)
			}
			if after := r.everything(); !strings.HasPrefix(after, before) {
				t.Errorf("changed\n%s\nto\n%s", before, after)
			}
			if n := len(r.messages("t")); n != 0 {
				t.Errorf("%d messages were stored", n)
			}
		})
	}
}

// A table whose trigger keeps deleted rows is taken from by marking. The program's rows stay, and
// what could not be stored is as it was.
func TestPostgresMark(t *testing.T) {
	r := newRig(t)
	for _, s := range hazards["a trigger that marks the row"] {
		r.hazard(s)
	}
	r.good(Postgres, "jobs", 3)
	o := options(marked)
	for _, wrong := range []func(o *Options){
		func(o *Options) { o.Where = "" }, func(o *Options) { o.Mark = "state" },
		func(o *Options) { o.Mark = "nothing=1" }, func(o *Options) { o.Mark = "id=1" },
	} {
		o := o
		wrong(&o)
		im, err := r.importer(o)
		if err == nil {
			_, err = im.Survey(t.Context())
		}
		if !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("mark %q where %q: %v, want ErrInvalid", o.Mark, o.Where, err)
		}
	}
	before := r.everything()
	o.Mark = "payload=x" // after which the row is as pending as before
	if rep, err := r.tryMove(o); err == nil || !strings.Contains(err.Error(), "--where") || rep.Sets[0].Gone != 0 {
		t.Errorf("a mark that leaves the row pending: %v, %+v", err, rep.Sets[0])
	}
	o.Mark = "run_at=soon"
	if rep, err := r.tryMove(o); err == nil || !strings.Contains(err.Error(), "--mark") {
		t.Errorf("a mark that is no time: %v, %+v", err, rep)
	}
	if after := strings.ReplaceAll(r.everything(), stagingTable+": ", ""); after != before {
		t.Errorf("changed\n%s\nto\n%s", before, after)
	}
	o = options(marked)
	if s := r.move(o).Sets[0]; s.Found != 3 || s.Stored != 3 || s.Remaining != 0 {
		t.Errorf("%+v", s)
	}
	if s := r.move(o).Sets[0]; s.Found != 0 || s.Stored+s.Duplicates != 0 {
		t.Errorf("again: %+v", s)
	}
	if tables := r.tables(); strings.Count(tables, "moved") != 3 || strings.Contains(tables, "pending") {
		t.Errorf("the table has\n%s\nwant three rows that are marked", tables)
	}
}

// Rows that could not be stored and that their table does not take back as they were stay in
// staging. The next run stores them.
func TestPostgresKeptOut(t *testing.T) {
	for name, body := range map[string]string{"none": "return null;", "one": "if new.id = 'good-1' then return null; end if; return new;", "changed": "new.state = 'again'; return new;"} {
		r := newRig(t)
		want := r.good(Postgres, "jobs", 3)
		r.exec("create function keeps() returns trigger language plpgsql as $$ begin " + body + " end $$")
		r.exec("create trigger keeps before insert on jobs for each row execute function keeps()")
		r.withFaults(refuseAll)
		rep, err := r.tryMove(options(Postgres))
		if s := rep.Sets[0]; !errors.Is(err, punctual.ErrNoSpace) || !strings.Contains(err.Error(), "trigger") || s.Returned != 0 || s.StillStaged != 3 || s.Remaining != 0 || rep.Unfinished != 3 {
			t.Errorf("%s: %v, %+v, unfinished %d; want all in staging", name, err, s, rep.Unfinished)
		}
		r.healed()
		r.move(options(Postgres))
		r.consume("t")
		r.eachOnce(want)
	}
}

// A row that another table refers to ends the run with a remedy, also where that is found only at
// the end of the transaction.
func TestPostgresReferredTo(t *testing.T) {
	for _, kind := range []string{"", "on delete restrict", "deferrable initially deferred"} {
		r := newRig(t)
		r.good(Postgres, "jobs", 3)
		r.exec("create table runs (job text references jobs " + kind + ")")
		r.exec("insert into runs values ('good-1')")
		rep, err := r.tryMove(options(Postgres))
		if s := rep.Sets[0]; err == nil || !strings.Contains(err.Error(), "--where") || s.Stored+s.Gone != 0 || s.Remaining != 3 || s.StillStaged != 0 {
			t.Errorf("%s: %v, %+v; want an error and nothing taken", kind, err, s)
		}
		o := options(Postgres)
		o.Where = "not exists (select 1 from runs where job = t.id)"
		if s := r.move(o).Sets[0]; s.Stored != 2 {
			t.Errorf("%s: %+v, want the two others", kind, s)
		}
	}
}

// A condition may name columns that the import uses names of.
func TestPostgresNamesOfColumns(t *testing.T) {
	r := newRig(t)
	r.exec("create table tasks (member text primary key, place timestamptz, kept text, version int, record text, part int)")
	r.exec("insert into tasks values ('a', '2096-01-01 00:00:00+00', 'x', 1, 'r', 1), ('b', '2096-01-01 00:00:00+00', 'y', 2, 'r', 1)")
	o := Options{Kind: Postgres, Names: []string{"tasks"}, Topic: "t", Columns: Columns{[]string{"member"}, "place", "kept"}, Where: "version = 1 and record = 'r' and part = 1"}
	if s := r.move(o).Sets[0]; s.Stored != 1 {
		t.Errorf("%+v", s)
	}
	o.Where, o.Mark = "version = 2 and record = 'r' and part = 1", "part=2"
	if s := r.move(o).Sets[0]; s.Stored != 1 {
		t.Errorf("marked: %+v", s)
	}
}

// River's own client wrote the jobs; see testdata/river.
func TestRiver(t *testing.T) {
	r := newRig(t)
	r.sql()
	jobs, err := os.ReadFile("testdata/river/jobs.sql")
	r.must(err)
	r.exec(string(jobs))
	rep := r.survey(Options{Kind: River})
	if len(rep.Sets) != 4 {
		t.Fatalf("%d sets, want two queues in two states: %+v", len(rep.Sets), rep.Sets)
	}
	if notes := strings.Join(rep.Sets[0].Notes, "; "); !strings.Contains(notes, "available already: 1") {
		t.Errorf("notes %q", notes)
	}
	r.move(Options{Kind: River})
	var left int
	r.must(r.db.QueryRow(t.Context(), "select count(*) from river_job where state in ('scheduled', 'retryable')").Scan(&left))
	if left != 0 {
		t.Errorf("%d jobs are left", left)
	}
	byKind := map[string]punctual.Info{}
	for _, topic := range []string{"default", "mail"} {
		for _, m := range r.messages(topic) {
			byKind[m.Headers[riverHeaderKind]] = m
		}
	}
	if m := byKind["close_order"]; m.Topic != "default" || string(m.Body) != `{"order": "A-17"}` || m.MaxAttempts != 25 || m.Due.Year() != 2096 ||
		m.Headers[riverHeaderTags] != "shop,night" || m.Headers[riverHeaderPriority] != "2" {
		t.Errorf("the scheduled job: %+v", m)
	}
	if m := byKind["send_mail"]; m.Topic != "mail" || m.MaxAttempts != 3 || m.Headers[riverHeaderAttempt] != "1" || !strings.Contains(m.Headers[riverHeaderError], "no answer") {
		t.Errorf("the job that is tried again: %+v", m)
	}
}
