package importer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// mysql returns a database of the test's own, with a table of jobs.
func (r *rig) mysql() *sql.DB {
	r.t.Helper()
	if r.my != nil {
		return r.my
	}
	r.myName = maria.Database(r.t)
	var err error
	r.my, err = sql.Open("mysql", maria.DSN(r.myName)+"?time_zone=%27%2B00%3A00%27")
	r.must(err)
	r.my.SetMaxOpenConns(1)
	r.t.Cleanup(func() {
		if err := r.my.Close(); err != nil {
			r.t.Error(err)
		}
	})
	r.mexec("create table jobs (id varchar(100) primary key, run_at timestamp(6) null, payload text, state varchar(10) default 'pending', tenant varchar(10) default 'one', copy varchar(200) as (concat(payload, '!')) stored, changed timestamp(6) default '2020-01-01' on update current_timestamp(6), unique (tenant, id))")
	return r.my
}

// mexec runs a statement in MySQL.
func (r *rig) mexec(statement string, args ...any) {
	r.t.Helper()
	_, err := r.mysql().ExecContext(r.t.Context(), statement, args...)
	r.must(err)
}

// mrows returns the rows of a statement, each as its texts separated by |.
func (r *rig) mrows(statement string, args ...any) (out []string) {
	r.t.Helper()
	rows, err := (&mysqlOrigin{}).rows(r.t.Context(), r.mysql(), "read", statement, args...)
	r.must(err)
	for _, row := range rows {
		out = append(out, strings.Join(row, "|"))
	}
	return out
}

// global sets a variable for new connections until the test ends.
func (r *rig) global(name, value string) {
	r.t.Helper()
	r.mexec("set global " + name + " = '" + value + "'")
	r.t.Cleanup(func() {
		_, err := r.my.Exec("set global " + name + " = default")
		r.must(err)
	})
}

// myTables is tables for MySQL.
func (r *rig) myTables() string {
	r.t.Helper()
	var b strings.Builder
	for _, table := range r.mrows("select table_name from information_schema.tables where table_schema = database() order by 1") {
		for _, row := range r.mrows("select * from " + table + " order by 1") {
			fmt.Fprintf(&b, "%s: %s\n", table, row)
		}
	}
	return b.String()
}

// TestMySQLTable: a survey counts what would become of the rows of a table and changes nothing. The
// import that follows stores as many messages as the survey said.
func TestMySQLTable(t *testing.T) {
	r := newRig(t)
	r.mexec(`insert into jobs (id, run_at, payload, state) values ('order-1', '2037-01-01 00:00:00.0001', 'close 1', 'pending'), ('order-2', now() - interval 1 hour, 'and ''quotes'' \\ ä', 'pending'),
		('with space', '2037-01-01', 'x', 'pending'), ('two\nlines', '2037-01-01', 'x', 'pending'), ('done', now(), 'x', 'done'), ('', '2037-01-01', 'x', 'pending'),
		('unknown', null, 'x', 'pending'), ('long ago', '1999-01-01', 'x', 'pending')`)
	o := options(MySQL)
	o.Where = "t.state = 'pending'"
	before := r.everything()
	s := r.survey(o).Sets[0]
	if s.Found != 7 || s.Importable != 5 || s.Overdue != 1 || s.Rejected[BadScore] != 2 {
		t.Errorf("survey: %+v", s)
	}
	if after := r.everything(); after != before {
		t.Errorf("the survey changed\n%s\nto\n%s", before, after)
	}
	s = r.move(o).Sets[0]
	if s.Stored != 5 || s.Remaining != 2 || s.StillStaged != 0 {
		t.Errorf("move: %+v", s)
	}
	ms := r.messages("t")
	if len(ms) != 5 || ms[0].ID != "order-2" || string(ms[0].Body) != `and 'quotes' \ ä` {
		t.Fatalf("messages: %+v", ms)
	}
	due := time.Date(2037, 1, 1, 0, 0, 0, 1e6, time.UTC) // rounded up
	i := slices.IndexFunc(ms, func(m punctual.Info) bool { return m.ID == "order-1" })
	if i < 0 || !ms[i].Due.Equal(due) {
		t.Errorf("order-1 is due at %v, want %v", ms[i].Due, due)
	}
	if n := slices.IndexFunc(ms, func(m punctual.Info) bool { return strings.HasPrefix(m.ID, "mysql-") }); n < 0 {
		t.Error("no message has an ID in place of one that no message can have")
	}
}

// allTypes are columns of all types that a row is put back with, and values at their ends.
var allTypes = []struct{ column, values string }{
	{"tinyint unsigned zerofill", "0, 255"},
	{"smallint", "-32768, 32767"},
	{"mediumint", "-8388608, 0"},
	{"int unsigned", "4294967295, 0"},
	{"bigint", "-9223372036854775808, 9223372036854775807"},
	{"bigint unsigned", "18446744073709551615, 9007199254740993"},
	{"decimal(65, 30)", "12345678901234567890123456789012345.123456789012345678901234567891, -1e-30"},
	{"float", "0.1, 16777217"},
	{"double", "0.1e0 + 0.2e0, 1.7976931348623157e308"},
	{"bit(64)", "b'1111111111111111111111111111111111111111111111111111111111111111', b'0'"},
	{"bit(9)", "b'100000001', b'10'"},
	{"date", "'0000-00-00', '2026-02-31'"},
	{"datetime(6)", "'0000-00-00 00:00:00', '9999-12-31 23:59:59.999999'"},
	{"timestamp(6)", "'2026-10-25 00:30:00.123456', '0000-00-00'"},
	{"time(6)", "'-838:59:59.999999', '00:00:00.000001'"},
	{"year", "0, 2155"},
	{"char(5)", "'a', ''"},
	{"varchar(20)", "'a ', 'a\\0,-b'"},
	{"varchar(20) character set latin1", "'ä€', _latin1 x'81'"},
	{"varchar(20) character set ucs2", "'ä', '-'"},
	{"text", "'😀', ''"},
	{"enum('', 'a,b', '1')", "'a,b', '1'"},
	{"enum('x')", "'x', 'none'"},
	{"set('a', 'b')", "'a,b', ''"},
	{"binary(4)", "'ab', x'00ff27'"},
	{"varbinary(20)", "x'00ff275c', ''"},
	{"blob", "repeat(x'ff', 60000), x'2d'"},
	{"json", `'{"a": [1, 2.50, "ä\\u0000"]}', 'null'`},
	{"uuid", "'11111111-1111-4111-8111-111111111111', 'ffffffff-ffff-1fff-8fff-ffffffffffff'"},
	{"inet6", "'::1', '::ffff:10.0.0.1'"},
}

// What the store refuses goes back as it was, of whatever types its columns are, whatever the zone
// and mode of the server: numbers that are not the next one, dates that are none, what a column
// computes, and what an update would change.
func TestMySQLPutsBackAllTypes(t *testing.T) {
	for _, mark := range []string{"", "state=moved"} {
		r := newRig(t)
		columns, values := []string{"n int auto_increment primary key", "due timestamp null", "body text", "state varchar(9) default 'pending'", "twice varchar(9) as (concat(state, '!')) virtual", "changed timestamp default '2020-01-01' on update current_timestamp"}, [3][]string{}
		for i, c := range allTypes {
			columns = append(columns, fmt.Sprintf("c%d %s", i, c.column))
			first, second, _ := strings.Cut(c.values, ", ")
			if strings.HasPrefix(c.column, "json") || c.column == "blob" {
				at := strings.LastIndex(c.values, ", ")
				first, second = c.values[:at], c.values[at+2:]
			}
			for row, v := range []string{first, second, "null"} {
				values[row] = append(values[row], v)
			}
			if strings.HasPrefix(c.column, "timestamp") {
				columns[len(columns)-1] += " null"
			}
		}
		r.mexec("set sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES'")
		r.mexec("create table everything (" + strings.Join(columns, ", ") + ")")
		for row, v := range values {
			r.mexec(fmt.Sprintf("insert into everything values (%d, '2037-01-01', 'body %d', default, default, default, %s)", row, row, strings.Join(v, ", ")))
		}
		hex := []string{"n", "changed"}
		for i := range allTypes {
			hex = append(hex, fmt.Sprintf("hex(c%d)", i))
		}
		read := func() string {
			t.Helper()
			return strings.Join(r.mrows("select "+strings.Join(hex, ", ")+", t.* from everything t order by n"), "\n")
		}
		r.global("time_zone", "+05:30")
		r.global("sql_mode", "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH")
		before := read()
		o := Options{Kind: MySQL, Names: []string{"everything"}, Topic: "t", Columns: Columns{[]string{"n"}, "due", "body"}, Mark: mark}
		if mark != "" {
			o.Where = "state = 'pending'"
		}
		r.step = func(step string) error {
			if n := len(r.mrows("select 1 from everything where state = 'pending'")); step == "taken" && n != 0 {
				t.Errorf("%d rows are pending while all are staged, so this test shows nothing", n)
			}
			return nil
		}
		r.withFaults(refuseAll)
		rep, err := r.tryMove(o)
		if after := read(); !errors.Is(err, punctual.ErrNoSpace) || rep.Sets[0].Returned != 3 || after != before {
			t.Errorf("mark %q: %v, %+v; put back\n%s\nwant\n%s", mark, err, rep.Sets[0], after, before)
		}
		r.healed()
		if s := r.move(o).Sets[0]; s.Stored != 3 || s.Remaining != 0 || s.StillStaged != 0 {
			t.Errorf("mark %q: %+v", mark, s)
		}
	}
}

// Due times of all types. What a DATETIME or DATE means is what the URL says.
func TestMySQLTimes(t *testing.T) {
	r := newRig(t)
	r.mysql()
	r.mexec("set sql_mode = ''")
	r.mexec("create table times (id int primary key, ts timestamp(6) null, wall datetime(6), day date, secs bigint unsigned, ms decimal(20, 4), fl double, body text)")
	r.mexec("insert into times values (1, '2026-12-25 02:30:00.0001', '2096-10-28 02:30:00.5', '2096-03-25', 4000000000, 4000000000123.5, 4000000000.5, 'x'), (2, null, '0000-00-00', '0000-00-00', 18446744073709551615, -1, 1e300, 'x')")
	r.global("time_zone", "-11:00")
	for column, c := range map[string]struct {
		unit time.Duration
		want time.Time
	}{
		"ts":   {0, time.Date(2026, 12, 25, 2, 30, 0, 1e6, time.UTC)},
		"wall": {0, time.Date(2096, 10, 28, 0, 30, 0, 5e8, time.UTC)}, // Berlin shows it twice
		"day":  {0, time.Date(2096, 3, 24, 23, 0, 0, 0, time.UTC)},
		"secs": {time.Second, time.Unix(4000000000, 0)},
		"ms":   {time.Millisecond, time.UnixMilli(4000000000124)},
		"fl":   {time.Second, time.UnixMilli(4000000000500)},
	} {
		o := Options{Kind: MySQL, Names: []string{"times"}, Topic: "t", Columns: Columns{[]string{"id"}, column, "body"}}
		look := func(zone string) (*Report, error) {
			im, hangUp, err := Open(t.Context(), maria.URL(r.myName)+zone, o)
			r.must(err)
			defer func() { r.must(hangUp()) }()
			return im.Survey(t.Context())
		}
		rep, err := look("?timezone=Europe/Berlin")
		r.must(err)
		s := rep.Sets[0]
		if len(s.Samples) != 1 || !s.Samples[0].Due.Equal(c.want) || s.Rejected[BadScore] != 1 || rep.Unit != unitWord(c.unit) {
			t.Errorf("%s: samples %+v, unit %q, %+v; want %v", column, s.Samples, rep.Unit, s, c.want)
		}
		if _, err := look(""); errors.Is(err, punctual.ErrInvalid) != (column == "wall" || column == "day") {
			t.Errorf("%s without a zone: %v", column, err)
		}
		if c.unit == 0 {
			continue
		}
		if _, err := r.tryMove(o); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%s: a move that would guess the unit: %v", column, err)
		}
	}
}

// Keys of several columns and of all types that a key can have: each row goes into staging and back
// and then arrives once, also where the collation takes different texts for equal.
func TestMySQLKeys(t *testing.T) {
	for types, rows := range map[string]string{
		"varchar(100) collate utf8mb4_bin, varchar(50)": `('a', 'b'), ('a:b', 'c'), ('a', 'b:c'), ('a:', 'c'), ('', ''), (':', ''), ('', ':'), ('"a', 'b"'), ('a","b', 'c'), ('a\\', 'b'), ('a\n', 'b'), ('[', ']'), ('ä', 'b'), (repeat('x', 100), 'y'), ('A', 'B'), ('a ', 'c'), ('a', '?')`,
		"varchar(20) character set latin1, bigint":      "('a', 9223372036854775807), ('a', 9223372036854775806), ('B', -1), ('ä', 0)",
		"bigint unsigned, binary(4)":                    "(18446744073709551615, 'ab'), (18446744073709551614, x'00ff275c'), (0, '')",
		"decimal(40, 10), char(5)":                      "(1.1, 'a'), (1.1000000001, 'a'), (-1, ''), (123456789012345678901234567890.5, 'A')",
		"datetime(6), uuid":                             "('2026-10-25 02:30:00.000001', '11111111-1111-4111-8111-111111111111'), ('2026-10-25 02:30:00', '11111111-1111-4111-8111-111111111111')",
		"timestamp(6), date":                            "('2026-10-25 00:30:00.5', '2026-10-25'), ('2026-10-25 01:30:00.5', '2026-10-25')",
		"int unsigned zerofill, varbinary(5)":           "(7, x'00'), (7, x'0000'), (8, '')",
		"varchar(10) character set utf8mb3, smallint":   "('ß', 1), ('a', 1), ('B', 1), ('c', -1)",
	} {
		r := newRig(t)
		r.mysql()
		a, b, _ := strings.Cut(types, ", ")
		if strings.HasPrefix(types, "decimal") {
			a, b = "decimal(40, 10)", "char(5)"
		}
		r.mexec("create table pairs (b " + b + " not null, a " + a + " not null, due timestamp default '2037-01-01', body varchar(400), primary key (a, b))")
		r.mexec("insert into pairs (a, b) values " + rows)
		r.mexec("update pairs set body = md5(concat_ws(0x00, hex(a), hex(b)))")
		read := func() []string { return r.mrows("select hex(a), hex(b), body from pairs order by body") }
		before := read()
		n := int64(len(before))
		o := Options{Kind: MySQL, Names: []string{"pairs"}, Topic: "t", Columns: Columns{[]string{"b", "a"}, "due", "body"}}
		r.withFaults(refuseAll)
		rep, err := r.tryMove(o)
		if after := read(); !errors.Is(err, punctual.ErrNoSpace) || rep.Sets[0].Returned != min(n, firstPage) || !slices.Equal(after, before) {
			t.Errorf("%s: %v, %+v; put back\n%s\nwant\n%s", types, err, rep.Sets[0], after, before)
		}
		r.healed()
		if s := r.move(o).Sets[0]; s.Stored != n || s.Remaining != 0 || s.StillStaged != 0 || s.Returned != 0 {
			t.Errorf("%s: %d rows: %+v", types, n, s)
		}
		ids := map[string]bool{}
		for _, m := range r.messages("t") {
			ids[m.ID] = true
		}
		if int64(len(ids)) != n {
			t.Errorf("%s: %d IDs of %d rows: %q", types, len(ids), n, slices.Sorted(maps.Keys(ids)))
		}
	}
}

// Tables are refused where a delete does not just delete, also in a survey, and where rows cannot
// be taken in one step or named.
func TestMySQLRefuses(t *testing.T) {
	r := newRig(t)
	r.mysql()
	for _, s := range []string{
		"create view seen as select * from jobs", "create table loose (id int primary key, run_at timestamp, payload text) engine = MyISAM", "create table aria (id int primary key, run_at timestamp, payload text) engine = Aria",
		"create table kept (id int primary key, run_at timestamp, payload text) with system versioning",
		"create table before_it (id int primary key, run_at timestamp, payload text)", "create trigger before_it before delete on before_it for each row set @gone = old.id",
		"create table after_it (id int primary key, run_at timestamp, payload text)", "create trigger after_it after delete on after_it for each row set @gone = old.id",
		"create table parent (id int primary key, run_at timestamp, payload text)", "create table child (id int, foreign key (id) references parent (id) on delete cascade)",
		"create table father (id int primary key, run_at timestamp, payload text)", "create table son (id int, foreign key (id) references father (id) on delete set null)",
		"create table heap (id int, run_at timestamp, payload text)", "create table pre (id varchar(50), run_at timestamp, payload text, unique (id(5)))",
		"create table kinds (id enum('b', 'a') primary key, run_at timestamp, payload text)", "create table maps (id int primary key, run_at timestamp, payload text, at point)",
	} {
		r.mexec(s)
	}
	for table, remedy := range map[string]string{
		"seen": "--where", "loose": "InnoDB", "aria": "InnoDB", "kept": "InnoDB", "before_it": "--mark", "after_it": "--mark", "parent": "child deleted or changed: use --mark", "father": "--mark",
		"heap": "primary key", "pre": "primary key", "kinds": "another key", "maps": "--mark", "nothing": "database.table", "Jobs": "no table",
	} {
		for what, run := range map[string]func(im *Importer) (*Report, error){
			"survey": func(im *Importer) (*Report, error) { return im.Survey(t.Context()) },
			"move":   func(im *Importer) (*Report, error) { return im.Move(t.Context(), r.store) },
		} {
			o := options(MySQL)
			o.Names = []string{table}
			im, err := r.importer(o)
			r.must(err)
			if _, err = run(im); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), remedy) {
				t.Errorf("%s of %s: %v; want ErrInvalid with %q", what, table, err, remedy)
			}
		}
	}
	r.mexec("alter table before_it add state varchar(9) default 'pending'")
	r.mexec("insert into before_it (id, run_at, payload) values (1, '2037-01-01', 'x')")
	o := options(MySQL)
	o.Names, o.Where, o.Mark = []string{"before_it"}, "state = 'pending'", "state=moved"
	if s := r.move(o).Sets[0]; s.Stored != 1 || s.Remaining != 0 {
		t.Errorf("by marking: %+v", s)
	}
	for mark, want := range map[string]string{"payload=x": "--where", "state=far too long for it": "1406", "run_at=soon": "1292"} {
		r.mexec("update before_it set state = 'pending'")
		o.Mark = mark
		before := r.everything()
		if rep, err := r.tryMove(o); err == nil || !strings.Contains(err.Error(), want) || rep.Sets[0].Gone != 0 {
			t.Errorf("--mark %s: %v; want an error with %s", mark, err, want)
		}
		if after := r.everything(); after != before {
			t.Errorf("--mark %s changed\n%s\nto\n%s", mark, before, after)
		}
	}
	for url, want := range map[string]string{
		"mysql://root:secret@127.0.0.1:1/x": "reached", "mysql://root:secret@%zz/x": "mysql://user", "mysql://root:secret@localhost": "mysql://user", "mysql://root:secret@localhost/x?foo=1": "timezone=",
		"mysql://root:secret@localhost/x?timezone=Mars": "Mars", strings.Replace(maria.URL("nothing"), "root@", "nobody:secret@", 1): "user and password", maria.URL("nothing"): "no such database",
		maria.URL("mysql") + "?tls=true": "TLS",
	} {
		im, hangUp, err := Open(t.Context(), url, options(MySQL))
		if err == nil {
			_, err = im.Survey(t.Context())
			r.must(hangUp())
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v; want an error with %q", url, err, want)
		}
	}
}

// A user who may not see triggers or the tables that refer to this one is refused, because nobody
// could know what a delete does. With the rights that the page names the import succeeds.
func TestMySQLRights(t *testing.T) {
	r := newRig(t)
	r.good(MySQL, "jobs", 3)
	user := "u" + r.myName[5:]
	r.mexec("create user " + user + "@'127.0.0.1' identified by 'secret'")
	t.Cleanup(func() {
		_, err := r.my.Exec("drop user " + user + "@'127.0.0.1'")
		r.must(err)
	})
	run := func() error {
		im, hangUp, err := Open(t.Context(), strings.Replace(maria.URL(r.myName), "root@", user+":secret@", 1), options(MySQL))
		r.must(err)
		defer func() { r.must(hangUp()) }()
		_, err = im.Move(t.Context(), r.store)
		return err
	}
	r.mexec("grant select, insert, update, delete on " + r.myName + ".jobs to " + user + "@'127.0.0.1'")
	if err := run(); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "grant it TRIGGER") || !strings.Contains(err.Error(), "grant it SELECT") {
		t.Errorf("with rights on the table alone: %v", err)
	}
	r.mexec("grant select, trigger on " + r.myName + ".* to " + user + "@'127.0.0.1'")
	if err := run(); err == nil || !strings.Contains(err.Error(), "lacks a right") {
		t.Errorf("without the right to make staging: %v", err)
	}
	r.mexec("grant create, select, insert, update, delete on " + r.myName + ".punctual_import to " + user + "@'127.0.0.1'")
	if err := run(); err != nil {
		t.Error(err)
	}
	r.consume("t")
	if len(r.delivered) != 3 {
		t.Errorf("delivered %v", r.delivered)
	}
}

// A row that an old consumer works on stays its own; one that is changed after it was read is not
// taken; neither is any row once a trigger has come.
func TestMySQLOldConsumer(t *testing.T) {
	r := newRig(t)
	r.good(MySQL, "jobs", 4)
	other, err := sql.Open("mysql", maria.DSN(r.myName))
	r.must(err)
	defer func() { r.must(other.Close()) }()
	tx, err := other.BeginTx(t.Context(), nil)
	r.must(err)
	var id string
	r.must(tx.QueryRowContext(t.Context(), "select id from jobs where id = 'good-0' for update skip locked").Scan(&id))
	if s := r.move(options(MySQL)).Sets[0]; s.Stored != 3 || s.Remaining != 1 || s.StillStaged != 0 || s.Held != 1 {
		t.Errorf("while one row is locked: %+v", s)
	}
	_, err = tx.ExecContext(t.Context(), "delete from jobs where id = 'good-0'")
	r.must(err)
	r.must(tx.Commit())
	if s := r.move(options(MySQL)).Sets[0]; s.Stored != 0 || s.Remaining != 0 || s.Held != 0 {
		t.Errorf("afterwards: %+v", s)
	}
	r.consume("t")
	r.eachOnce([]string{"body good-1", "body good-2", "body good-3"})

	r.mexec("insert into jobs (id, run_at, payload) values ('a', now(), 'same'), ('b', now(), 'old'), ('c', now(), 'x')")
	im, err := r.apart(options(MySQL))
	r.must(err)
	sources, err := im.sources(t.Context())
	r.must(err)
	pages := 0
	r.must(im.from.walks(sources[0])[0](t.Context(), sources[0], func(ctx context.Context, es []*entry) ([]bool, error) {
		pages++
		r.mexec("update jobs set payload = 'new' where id = 'b'")
		r.mexec("delete from jobs where id = 'c'")
		r.mexec("insert into jobs (id, run_at, payload) values ('C', now(), 'x')")
		r.mexec("create trigger late before delete on jobs for each row set @gone = old.id")
		if got, err := im.from.take(ctx, sources[0], es); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("take with a trigger: %v, %v", got, err)
		}
		r.mexec("drop trigger late")
		got, err := im.from.take(ctx, sources[0], es)
		if want := []int64{itemDone, itemHeld, itemGone}; err != nil || !slices.Equal(got, want) {
			t.Errorf("take: %v, %v; want %v", got, err, want)
		}
		return make([]bool, len(es)), nil
	}))
	if pages != 1 {
		t.Errorf("%d pages were read, so this test shows nothing", pages)
	}
}

// A row that another table refers to ends the run with a remedy.
func TestMySQLReferredTo(t *testing.T) {
	r := newRig(t)
	r.good(MySQL, "jobs", 3)
	r.mexec("create table runs (job varchar(100), foreign key (job) references jobs (id))")
	r.mexec("insert into runs values ('good-1')")
	rep, err := r.tryMove(options(MySQL))
	if s := rep.Sets[0]; err == nil || !strings.Contains(err.Error(), "--where") || s.Stored+s.Gone != 0 || s.Remaining != 3 || s.StillStaged != 0 {
		t.Errorf("%v, %+v; want an error and nothing taken", err, s)
	}
	o := options(MySQL)
	o.Where = "not exists (select 1 from runs where job = t.id)"
	if s := r.move(o).Sets[0]; s.Stored != 2 {
		t.Errorf("%+v, want the two others", s)
	}
}

// Rows that could not be stored and that their table does not take back as they were stay in
// staging. The next run stores them.
func TestMySQLKeptOut(t *testing.T) {
	r := newRig(t)
	want := r.good(MySQL, "jobs", 3)
	r.mexec("create trigger keeps before insert on jobs for each row set new.state = 'again'")
	r.withFaults(refuseAll)
	rep, err := r.tryMove(options(MySQL))
	if s := rep.Sets[0]; !errors.Is(err, punctual.ErrNoSpace) || !strings.Contains(err.Error(), "trigger") || s.Returned != 0 || s.StillStaged != 3 || s.Remaining != 0 || rep.Unfinished != 3 {
		t.Errorf("%v, %+v, unfinished %d; want all in staging", err, s, rep.Unfinished)
	}
	r.healed()
	r.move(options(MySQL))
	r.consume("t")
	r.eachOnce(want)
}

// Each page after the first begins in the index of the key, in whatever order --id has the columns.
func TestMySQLPagesByIndex(t *testing.T) {
	r := newRig(t)
	r.mysql()
	r.mexec("create table pairs (b varchar(40), a varchar(40) character set latin1, due timestamp, body text, primary key (a, b))")
	r.mexec("insert into pairs select uuid(), char(100 + seq % 10), now(), repeat('x', 100) from seq_1_to_20000")
	r.mexec("analyze table pairs")
	o := &mysqlOrigin{db: r.my, opt: &Options{Kind: MySQL, Names: []string{"pairs"}, Columns: Columns{[]string{"b", "a"}, "due", "body"}}}
	r.must(o.describe(t.Context()))
	for _, after := range []*entry{nil, {member: `["11111111-1111-4111-8111-111111111111","i"]`}} {
		statement, args := o.table.page(o.opt, after, 500)
		for _, plan := range r.mrows("explain "+statement, args...) {
			if !strings.Contains(plan, "PRIMARY") || strings.Contains(plan, "filesort") {
				t.Errorf("the plan of a page after %v is %s", after, plan)
			}
		}
	}
}
