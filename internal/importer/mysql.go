package importer

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/storekit"
)

// mysqlOrigin is the origin for the table of a program in MySQL or MariaDB. Its connection counts
// times in UTC and refuses values that a column would change.
type mysqlOrigin struct {
	db    *sql.DB
	opt   *Options
	zone  *time.Location // that of times without one, or nil
	table *mysqlTable    // set by describe, which is called before it is used
}

// mysqlTable describes the table that is imported from. Its texts are parts of SQL statements, in
// which the alias of the table is t.
type mysqlTable struct {
	schema, bare  string // the names as they are
	name, staging string
	key           []mysqlKey // in the order of its index
	count, due    string     // as in pgTable
	counted       bool
	wall          *time.Location
	body          string
	// kept is the text of a row from which the row can be made again: of each column that can be
	// written, separated by commas, the bytes in hexadecimal or - for NULL. columns are those
	// columns, and values makes them again from the kept of a row k of staging.
	kept            string
	columns, values []string
	// mark sets the column of Options.Mark to the value marked; unmark sets it as it was, and the
	// columns that any update changes. They are empty where taking a row deletes it.
	mark, unmark, marked string
}

// mysqlKey is a column of a table's key.
type mysqlKey struct {
	at     int    // where --id has it
	column string // of t
	text   string // the column as text
	value  string // a value of the column's type, from such a text as the placeholder
}

// mysqlColumn is what the server says about a column.
type mysqlColumn struct {
	name, typ, full, charset string
	generated, updated       bool // updated: any update of the row may set it
}

// openMySQL returns the database that a URL names, which the caller closes. Errors do not contain
// the URL, because it may have a password.
func openMySQL(from string) (db *sql.DB, zone *time.Location, err error) {
	const use = "the source's URL cannot be read: use mysql://user:password@host:port/database, with special characters of user and password escaped with %%"
	u, err := url.Parse(from)
	if err != nil || !slices.Contains([]string{"mysql", "mariadb"}, u.Scheme) || u.Hostname() == "" || len(u.Path) < 2 {
		return nil, nil, storekit.Invalidf(use)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName, c.User = "tcp", u.Host, u.Path[1:], u.User.Username()
	c.Passwd, _ = u.User.Password()
	if u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	c.InterpolateParams, c.ClientFoundRows, c.Logger = true, true, &mysql.NopLogger{}
	c.Params = map[string]string{
		"time_zone": "'+00:00'", "autocommit": "1", "foreign_key_checks": "1",
		// Strict, so that --mark writes what it says. A date that a row has is allowed, and 0 is
		// not the next number.
		"sql_mode": "'STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION'",
	}
	for name, values := range u.Query() {
		switch value := values[0]; {
		case name == "tls" && value == "true":
			c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Hostname()}
		case name == "timezone":
			if zone, err = cron.LoadZone(value); err != nil {
				return nil, nil, storekit.Invalidf("the source's URL: %v", err)
			}
		default:
			return nil, nil, storekit.Invalidf("the source's URL: %s is not understood: use timezone=Europe/Berlin or tls=true", name)
		}
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, nil, storekit.Invalidf(use)
	}
	db = sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	return db, zone, nil
}

func (o *mysqlOrigin) now(ctx context.Context) (time.Time, error) {
	ms, err := o.number(ctx, "ask the source for its time", "select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) div 1000")
	return storekit.FromMillis(ms), err
}

// names is not called, because a table has to be named.
func (o *mysqlOrigin) names(context.Context) ([]string, error) { return o.opt.Names, nil }

func (o *mysqlOrigin) expect(ctx context.Context, _ *source) error {
	if err := o.describe(ctx); err != nil {
		return err
	}
	return o.opt.knowsUnit(o.table.counted)
}

func mysqlName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// describe reads the description of the table from the database, unless o.table has it already.
func (o *mysqlOrigin) describe(ctx context.Context) error {
	if o.table != nil {
		return nil
	}
	name := o.opt.Names[0]
	found, err := o.rows(ctx, o.db, "look at "+name, `select table_schema, table_name, table_type, coalesce(engine, '') from information_schema.tables
		where binary concat(table_schema, '.', table_name) = ? or table_schema = database() and binary table_name = ?`, name, name)
	switch {
	case err != nil:
		return err
	case len(found) != 1:
		return storekit.Invalidf("there is no table %s here: name it with its database, as database.table", name)
	}
	t := &mysqlTable{schema: found[0][0], bare: found[0][1]}
	t.name, t.staging = mysqlName(t.schema)+"."+mysqlName(t.bare), mysqlName(t.schema)+"."+mysqlName(stagingTable)
	switch kind, engine := found[0][2], found[0][3]; {
	case kind == "VIEW":
		return viewRefused(t.name)
	case kind != "BASE TABLE" || engine != "InnoDB":
		return storekit.Invalidf("rows cannot be taken from %s, a %s of the engine %s, in one step: make it a table of InnoDB", t.name, strings.ToLower(kind), engine)
	}
	columns := map[string]mysqlColumn{}
	described, err := o.rows(ctx, o.db, "look at "+t.name, `select column_name, data_type, column_type, coalesce(character_set_name, 'utf8mb4'), coalesce(generation_expression, ''), extra
		from information_schema.columns where table_schema = ? and table_name = ? order by ordinal_position`, t.schema, t.bare)
	if err != nil {
		return err
	}
	for _, d := range described {
		c := mysqlColumn{name: d[0], typ: strings.ToLower(d[1]), full: strings.ToLower(d[2]), charset: d[3], generated: d[4] != "", updated: strings.Contains(strings.ToLower(d[5]), "on update")}
		columns[c.name] = c
		if err := t.describeColumn(c, o.opt); err != nil {
			return err
		}
	}
	t.kept = "concat_ws(',', " + t.kept[2:] + ")"
	if err := o.describeOwn(ctx, t, columns); err != nil {
		return err
	}
	o.table = t
	return o.onlyLeaves(ctx, o.db)
}

// describeColumn adds a column to what is kept of a row.
func (t *mysqlTable) describeColumn(c mysqlColumn, o *Options) error {
	if c.generated {
		return nil
	}
	column := "t." + mysqlName(c.name)
	read, made := "cast("+column+" as char)", fmt.Sprintf("unhex(substring_index(substring_index(k.kept, ',', %d), ',', -1))", len(t.columns)+1)
	text := "convert(" + made + " using " + c.charset + ")"
	switch c.typ {
	case "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "double", "date", "datetime", "timestamp", "time", "year", "uuid", "inet4", "inet6":
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json":
		read = column
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		read, text = column, made
	case "float": // as text it would lose digits
		read = "cast(" + column + " + 0e0 as char)"
	case "bit":
		read, text = "cast("+column+" + 0 as char)", "cast("+text+" as unsigned)"
	default:
		if o.Mark == "" {
			return storekit.Invalidf("column %q of %s is a %s, which cannot be put back exactly: use --mark", c.name, t.name, c.typ)
		}
		read = column
	}
	t.kept += ", coalesce(hex(" + read + "), '-')"
	t.columns, t.values = append(t.columns, mysqlName(c.name)), append(t.values, text)
	if mark, _, _ := strings.Cut(o.Mark, "="); mark == c.name || mark != "" && c.updated {
		t.unmark += ", " + column + " = " + text
	}
	return nil
}

// describeOwn describes the columns that the options name.
func (o *mysqlOrigin) describeOwn(ctx context.Context, t *mysqlTable, columns map[string]mysqlColumn) error {
	c := o.opt.Columns
	mark, value, err := o.opt.columns(t.name, func(name string) bool { return columns[name].name != "" })
	if err != nil {
		return err
	}
	if mark != "" {
		t.mark, t.marked = "t."+mysqlName(mark)+" = ?", value
		t.unmark = strings.TrimPrefix(t.unmark, ", ")
	}
	parts, err := o.rows(ctx, o.db, "look at "+t.name, `select index_name, column_name from information_schema.statistics
		where table_schema = ? and table_name = ? and non_unique = 0 and index_type = 'BTREE'
			and index_name not in (select index_name from information_schema.statistics where table_schema = ? and table_name = ? and (sub_part is not null or column_name is null))
		order by index_name <> 'PRIMARY', index_name, seq_in_index`, t.schema, t.bare, t.schema, t.bare)
	if err != nil {
		return err
	}
	var keys [][]string
	for i, part := range parts {
		if i == 0 || part[0] != parts[i-1][0] {
			keys = append(keys, nil)
		}
		keys[len(keys)-1] = append(keys[len(keys)-1], part[1])
	}
	key, err := c.key(t.name, keys)
	if err != nil {
		return err
	}
	for _, name := range key {
		k := mysqlKey{at: slices.Index(c.ID, name), column: "t." + mysqlName(name), value: "?"}
		k.text = "cast(" + k.column + " as char)"
		switch of := columns[name]; of.typ {
		case "tinyint", "smallint", "mediumint", "int", "bigint":
			k.value = "cast(? as signed)"
			if strings.Contains(of.full, "unsigned") {
				k.value = "cast(? as unsigned)"
			}
		case "decimal":
			size, _, _ := strings.Cut(of.full, ")")
			k.value = "cast(? as " + size + "))"
		case "char", "varchar", "uuid":
		case "binary", "varbinary":
			k.text, k.value = "hex("+k.column+")", "unhex(?)"
		case "date", "datetime", "timestamp":
			k.value = "cast(? as datetime(6))"
		default:
			return storekit.Invalidf("column %q is a %s, by whose order rows cannot be read: use another key", name, of.full)
		}
		t.key = append(t.key, k)
	}
	t.body = "t." + mysqlName(c.Body)
	if typ := columns[c.Body].typ; !strings.HasSuffix(typ, "blob") && !strings.HasSuffix(typ, "binary") {
		t.body = "convert(" + t.body + " using utf8mb4)"
	}
	return o.describeDue(t, "t."+mysqlName(c.Due), columns[c.Due].typ)
}

// describeDue makes the SQL for the due time.
func (o *mysqlOrigin) describeDue(t *mysqlTable, column, typ string) error {
	switch typ {
	case "timestamp", "datetime", "date":
		t.due = "ceil(timestampdiff(microsecond, '1970-01-01', " + column + ") / 1000)"
		if t.wall = o.zone; typ == "timestamp" {
			t.wall = nil
		} else if o.zone == nil {
			return storekit.Invalidf("column %q is a %s, which names no time zone: put the one in which the program means it behind the URL, such as ?timezone=Europe/Berlin or ?timezone=UTC", o.opt.Columns.Due, typ)
		}
		return o.opt.needsNoUnit(typ)
	case "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double":
		t.counted, t.count = true, column
		t.due = fmt.Sprintf("ceil(cast(%s as decimal(65, 30)) * %d)", column, o.opt.Unit.Milliseconds())
		if o.opt.Unit == 0 {
			t.due = "null" // until guessUnit or the options say in what unit the column counts
		}
		return nil
	}
	return o.opt.noTime(typ)
}

// onlyLeaves refuses a table where deleting a row might change others, and a user who could not see
// that it does. Each take asks again, because the table cannot be altered while a row is locked.
func (o *mysqlOrigin) onlyLeaves(ctx context.Context, in querier) error {
	if o.opt.Mark != "" {
		return nil
	}
	t := o.table
	found, err := o.rows(ctx, in, "look at "+t.name, `
		select concat('trigger ', trigger_name, ' runs when a row is deleted, and may change others: use --mark, or drop the trigger meanwhile')
			from information_schema.triggers where event_object_schema = ? and event_object_table = ? and event_manipulation = 'DELETE'
		union all
		select concat('foreign key ', constraint_name, ' has rows of ', constraint_schema, '.', table_name, ' deleted or changed: use --mark')
			from information_schema.referential_constraints where unique_constraint_schema = ? and referenced_table_name = ? and delete_rule not in ('NO ACTION', 'RESTRICT')
		union all
		select concat('this user may not see what else a delete does: grant it ', needed.privilege, ' on all of ', ?, ', not by a role, or use --mark')
			from (select 'TRIGGER' as privilege union all select 'SELECT') needed where not exists (
				select 1 from (select grantee, privilege_type from information_schema.user_privileges
					union all select grantee, privilege_type from information_schema.schema_privileges where ? like table_schema) held
				where held.privilege_type = needed.privilege and held.grantee = concat('''', replace(current_user(), '@', '''@'''), ''''))`,
		t.schema, t.bare, t.schema, t.bare, t.schema, t.schema)
	if err == nil && len(found) > 0 {
		err = storekit.Invalidf("rows cannot be taken from %s: %s", t.name, strings.Join(slices.Concat(found...), "; "))
	}
	return err
}

func (o *mysqlOrigin) guessUnit(ctx context.Context, r *Report) error {
	if o.opt.Unit != 0 {
		return nil
	}
	if err := o.describe(ctx); err != nil || !o.table.counted {
		return err
	}
	var inSeconds, inMillis int64
	from := o.table.name
	if err := o.db.QueryRowContext(ctx, unitGuess(o.table.count)+from+" t where "+o.opt.condition()).Scan(&inSeconds, &inMillis); err != nil {
		return fault(err, "read %s", from)
	}
	o.table = nil // the due time is made anew
	return r.guess(o.opt, from, inSeconds, inMillis)
}

func (o *mysqlOrigin) count(ctx context.Context, s *source, members, staged *int64) error {
	t, keyless := o.table, make([]string, len(o.table.key))
	for i, k := range t.key {
		keyless[i] = k.column + " is null"
	}
	var n int64
	err := o.db.QueryRowContext(ctx, "select count(*), count(case when "+strings.Join(keyless, " or ")+" then 1 end) from "+t.name+" t where "+o.opt.condition()).Scan(members, &n)
	if err != nil {
		return fault(err, "count %s", s.set)
	}
	if n > 0 {
		return keylessRefused(t.name, n)
	}
	if there, err := o.hasStaging(ctx); err != nil || !there {
		return err
	}
	*staged, err = o.number(ctx, "count "+s.set, "select count(*) from "+t.staging+" where source = ?", s.set)
	return err
}

func (o *mysqlOrigin) note(context.Context, *source, *SetReport) error { return nil }

func (o *mysqlOrigin) hasStaging(ctx context.Context) (bool, error) {
	n, err := o.number(ctx, "look for "+o.table.staging, "select count(*) from information_schema.tables where table_schema = ? and table_name = ?", o.table.schema, stagingTable)
	return n > 0, err
}

// makeStaging creates the table for taken rows, unless it is there. Creating a table ends the
// transaction, so that this is not part of one.
func (o *mysqlOrigin) makeStaging(ctx context.Context) error {
	there, err := o.hasStaging(ctx)
	if err != nil || there {
		return err
	}
	return o.exec(ctx, o.db, anyRows, "make the table "+o.table.staging, "create table if not exists "+o.table.staging+
		` (id binary(32) not null primary key, source varbinary(800) not null, member longblob not null, record longblob not null, body longblob not null, kept longtext character set ascii collate ascii_bin not null) engine = InnoDB`)
}

// stagingID is the key of a row in staging, where each member has a row of its own for each source,
// also where a collation of the database takes two for equal.
func stagingID(s *source, member string) []byte {
	sum := sha256.Sum256([]byte(s.set + "\x00" + member))
	return sum[:]
}

// keyTexts are the columns of the key as texts.
func (t *mysqlTable) keyTexts() string {
	texts := make([]string, len(t.key))
	for _, k := range t.key {
		texts[k.at] = k.text
	}
	return strings.Join(texts, ", ")
}

// memberOf makes the member from the texts of a key.
func (t *mysqlTable) memberOf(texts []string) string {
	if len(texts) == 1 {
		return texts[0]
	}
	b, _ := json.Marshal(texts) // texts always have a form in JSON
	return string(b)
}

// keyArgs are the values of the key of a member, in the order of t.key. Of a member that a run with
// another --id has staged they are those of no row.
func (t *mysqlTable) keyArgs(member string) []any {
	args, texts := make([]any, len(t.key)), []string{member}
	if len(t.key) > 1 && json.Unmarshal([]byte(member), &texts) != nil || len(texts) != len(t.key) {
		return args
	}
	for i, k := range t.key {
		args[i] = texts[k.at]
	}
	return args
}

// one is the condition of the row with a key.
func (t *mysqlTable) one() string {
	equal := make([]string, len(t.key))
	for i, k := range t.key {
		equal[i] = k.column + " = " + k.value
	}
	return "(" + strings.Join(equal, " and ") + ")"
}

// any is the condition of the rows with the keys of entries, with its arguments.
func (t *mysqlTable) any(es []*entry) (condition string, args []any) {
	for _, e := range es {
		args = append(args, t.keyArgs(e.member)...)
	}
	return "(" + t.one() + strings.Repeat(" or "+t.one(), len(es)-1) + ")", args
}

// page returns the statement that reads rows in the order of their keys, with a key above that of
// an entry unless that is nil.
func (t *mysqlTable) page(o *Options, after *entry, size int64) (statement string, args []any) {
	from, order := "", make([]string, len(t.key))
	for i, k := range t.key {
		order[i] = k.column
	}
	if after != nil {
		// The database finds a place in an index by its first column, if the condition has that by
		// itself.
		key := t.keyArgs(after.member)
		from, args = " and "+t.key[0].column+" >= "+t.key[0].value+" and (", []any{key[0]}
		or, equal := "", ""
		for i, k := range t.key {
			from += or + equal + k.column + " > " + k.value
			or, equal = " or ", equal+k.column+" = "+k.value+" and "
			args = append(args, key[:i+1]...)
		}
		from += ")"
	}
	return fmt.Sprintf("select %s, %s, sha2(%s, 256), coalesce(%s, '') from %s t where %s%s order by %s limit %d",
		t.keyTexts(), t.due, t.kept, t.body, t.name, o.condition(), from, strings.Join(order, ", "), size), args
}

func (o *mysqlOrigin) walks(*source) []walk { return []walk{o.walk} }

// walk visits the rows in the order of their keys.
func (o *mysqlOrigin) walk(ctx context.Context, _ *source, visit visitor) error {
	var p pager
	var after *entry
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		statement, args := o.table.page(o.opt, after, p.next())
		es, err := o.entries(ctx, statement, args)
		if err != nil || len(es) == 0 {
			return err
		}
		if _, err := visit(ctx, es); err != nil {
			return err
		}
		p.saw(es)
		after = es[len(es)-1]
	}
}

// entries reads a page.
func (o *mysqlOrigin) entries(ctx context.Context, statement string, args []any) (es []*entry, err error) {
	t := o.table
	rows, err := o.rows(ctx, o.db, "read "+t.name, statement, args...)
	for _, row := range rows {
		e, rest := &entry{member: t.memberOf(row[:len(t.key)]), score: math.NaN()}, row[len(t.key):]
		if rest[0] != "" {
			if _, err := fmt.Sscan(rest[0], &e.score); err != nil {
				return nil, fmt.Errorf("read the due time %q of %s: %w", rest[0], e.member, err)
			}
		}
		if rest[1] == "" {
			return nil, storekit.Invalidf("row %s of %s is larger than the server's max_allowed_packet: leave it out with --where", e.member, t.name)
		}
		e.onWall(t.wall)
		e.row.version, e.row.body = rest[1], []byte(rest[2])
		es = append(es, e)
	}
	return es, err
}

func (o *mysqlOrigin) staged(ctx context.Context, s *source, visit func(pairs []string) error) error {
	there, err := o.hasStaging(ctx)
	for last := []byte{}; err == nil && there; {
		if err := ctx.Err(); err != nil {
			return err
		}
		rows, err := o.rows(ctx, o.db, "read what is staged of "+s.set, fmt.Sprintf("select id, member, record from %s where source = ? and id > ? order by id limit %d", o.table.staging, maxPage), s.set, last)
		if err != nil || len(rows) == 0 {
			return err
		}
		var pairs []string
		for _, row := range rows {
			pairs = append(pairs, row[1], row[2])
		}
		if err := visit(pairs); err != nil {
			return err
		}
		last = []byte(rows[len(rows)-1][0])
	}
	return err
}

func (o *mysqlOrigin) readKept(ctx context.Context, s *source, es []*entry) error {
	for _, e := range es {
		rows, err := o.rows(ctx, o.db, "read the staged rows of "+s.set, "select body from "+o.table.staging+" where id = ?", stagingID(s, e.member))
		if err != nil {
			return err
		}
		if len(rows) == 1 {
			e.row.body = []byte(rows[0][0])
		}
	}
	return nil
}

// take moves rows into staging: the rows that have not changed since they were read and on which
// nobody works. It takes nothing if a row that it locked did not leave.
func (o *mysqlOrigin) take(ctx context.Context, s *source, es []*entry) ([]int64, error) {
	if err := o.makeStaging(ctx); err != nil {
		return nil, err
	}
	t, what := o.table, "take from "+o.table.name
	where, args := t.any(es)
	var taken, there []string
	err := o.atomic(ctx, what, func(tx *sql.Tx) error {
		taken = nil
		locked := map[string]string{}
		rows, err := o.rows(ctx, tx, what, fmt.Sprintf("select %s, sha2(%s, 256) from %s t where %s and %s for update skip locked", t.keyTexts(), t.kept, t.name, where, o.opt.condition()), args...)
		if err != nil {
			return err
		}
		for _, row := range rows {
			locked[t.memberOf(row[:len(t.key)])] = row[len(t.key)]
		}
		if err := o.onlyLeaves(ctx, tx); err != nil {
			return err
		}
		ids := make([]any, len(es))
		for i, e := range es {
			ids[i] = stagingID(s, e.member)
		}
		held, err := o.rows(ctx, tx, what, "select member from "+t.staging+" where id in (?"+strings.Repeat(", ?", len(ids)-1)+")", ids...)
		if err != nil {
			return err
		}
		for i, e := range es {
			if e.row.version != locked[e.member] || slices.ContainsFunc(held, func(row []string) bool { return row[0] == e.member }) {
				continue
			}
			if err := o.takeOne(ctx, tx, what, e, ids[i], s.set); err != nil {
				return err
			}
			taken = append(taken, e.member)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	rows, err := o.rows(ctx, o.db, "read "+t.name, fmt.Sprintf("select %s from %s t where %s and %s", t.keyTexts(), t.name, where, o.opt.condition()), args...)
	for _, row := range rows {
		there = append(there, t.memberOf(row))
	}
	return answers(es, taken, there, itemHeld), err
}

// takeOne moves a row that is locked. It finds the row by its unique key: a statement about many
// rows might read others as well, and wait for those that programs have locked.
func (o *mysqlOrigin) takeOne(ctx context.Context, tx *sql.Tx, what string, e *entry, id any, set string) error {
	t, key := o.table, o.table.keyArgs(e.member)
	err := o.exec(ctx, tx, 1, what, fmt.Sprintf("insert into %s (id, source, member, record, body, kept) select ?, ?, ?, ?, coalesce(%s, ''), %s from %s t where %s", t.staging, t.body, t.kept, t.name, t.one()), append([]any{id, set, e.member, e.text}, key...)...)
	if err != nil {
		return err
	}
	if t.mark == "" {
		return o.exec(ctx, tx, 1, what, "delete t from "+t.name+" t where "+t.one(), key...)
	}
	if err := o.exec(ctx, tx, 1, what, "update "+t.name+" t set "+t.mark+" where "+t.one(), append([]any{t.marked}, key...)...); err != nil {
		return err
	}
	still, err := o.rows(ctx, tx, what, "select 1 from "+t.name+" t where "+t.one()+" and "+o.opt.condition(), key...)
	if err == nil && len(still) > 0 {
		err = fmt.Errorf("%s: row %s still meets the condition of --where with --mark, so all rows stay where they are", what, e.member)
	}
	return err
}

func (o *mysqlOrigin) adopt(ctx context.Context, s *source, es []*entry, old []string) ([]int64, error) {
	out, what := make([]int64, len(es)), "adopt what is staged of "+s.set
	return out, o.atomic(ctx, what, func(tx *sql.Tx) error {
		for i, e := range es {
			adopted, err := o.rows(ctx, tx, what, "select 1 from "+o.table.staging+" where id = ? and record in (?, ?) for update", stagingID(s, e.member), []byte(old[i]), []byte(e.text))
			if err != nil {
				return err
			}
			if out[i] = int64(len(adopted)); out[i] == itemDone {
				err = o.exec(ctx, tx, 1, what, "update "+o.table.staging+" set record = ? where id = ?", []byte(e.text), stagingID(s, e.member))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (o *mysqlOrigin) finish(ctx context.Context, s *source, es []*entry) error {
	if len(es) == 0 {
		return nil
	}
	args := make([]any, 0, 2*len(es))
	for _, e := range es {
		args = append(args, stagingID(s, e.member), []byte(e.text))
	}
	what := "finish what is staged of " + s.set
	return o.atomic(ctx, what, func(tx *sql.Tx) error {
		return o.exec(ctx, tx, anyRows, what, "delete from "+o.table.staging+" where "+strings.Repeat("id = ? and record = ? or ", len(es)-1)+"id = ? and record = ?", args...)
	})
}

// putBack moves rows back into their table, each as it was, or removes the marks of taken rows. It
// puts back none if one would not be as it was.
func (o *mysqlOrigin) putBack(ctx context.Context, s *source, es []*entry) ([]int64, error) {
	out := make([]int64, len(es))
	return out, o.atomic(ctx, "put back into "+o.table.name, func(tx *sql.Tx) (err error) {
		for i, e := range es {
			if out[i], err = o.putOneBack(ctx, tx, s, e); err != nil {
				return err
			}
		}
		return nil
	})
}

func (o *mysqlOrigin) putOneBack(ctx context.Context, tx *sql.Tx, s *source, e *entry) (int64, error) {
	t, what, id := o.table, "put back into "+o.table.name, stagingID(s, e.member)
	ours, err := o.rows(ctx, tx, what, "select 1 from "+t.staging+" where id = ? and record = ? for update", id, []byte(e.text))
	if err != nil || len(ours) == 0 {
		return itemGone, err
	}
	key := t.keyArgs(e.member)
	there, err := o.rows(ctx, tx, what, "select 1 from "+t.name+" t where "+t.one()+" for update", key...)
	if err != nil {
		return itemGone, err
	}
	if len(there) > 0 != (t.mark != "") {
		return itemChanged, nil
	}
	put, args := fmt.Sprintf("insert ignore into %s (%s) select %s from %s k where k.id = ?", t.name, strings.Join(t.columns, ", "), strings.Join(t.values, ", "), t.staging), []any{id}
	if t.mark != "" {
		put, args = fmt.Sprintf("update ignore %s t join %s k on k.id = ? set %s where %s", t.name, t.staging, t.unmark, t.one()), append(args, key...)
	}
	if err := o.exec(ctx, tx, anyRows, what, put, args...); err != nil {
		return itemGone, err
	}
	same, err := o.rows(ctx, tx, what, fmt.Sprintf("select 1 from %s t join %s k on k.id = ? and binary %s = binary k.kept where %s and %s", t.name, t.staging, t.kept, t.one(), o.opt.condition()), append([]any{id}, key...)...)
	if err != nil {
		return itemGone, err
	}
	if len(same) != 1 {
		return itemGone, fmt.Errorf("%s: row %s would not be as it was, so all rows stay in staging: a trigger changes it, or a row with one of its unique values is there by now", what, e.member)
	}
	return itemDone, o.exec(ctx, tx, 1, what, "delete from "+t.staging+" where id = ?", id)
}

// querier is the database, or a transaction in it.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// atomic runs f in a transaction that locks no gaps between rows. After a deadlock, for which the
// database has rolled back, it runs f again, up to deadlocks times.
func (o *mysqlOrigin) atomic(ctx context.Context, what string, f func(tx *sql.Tx) error) error {
	for try := 1; ; try++ {
		err := o.once(ctx, what, f)
		var refused *mysql.MySQLError
		if try == deadlocks || !errors.As(err, &refused) || refused.Number != 1213 {
			return err
		}
	}
}

const deadlocks = 10

func (o *mysqlOrigin) once(ctx context.Context, what string, f func(tx *sql.Tx) error) error {
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return fault(err, "%s", what)
	}
	if err := f(tx); err != nil {
		if ending := tx.Rollback(); ending != nil && !errors.Is(ending, sql.ErrTxDone) && !errors.Is(ending, mysql.ErrInvalidConn) {
			err = errors.Join(err, fault(ending, "%s: roll back", what))
		}
		return err
	}
	if err := tx.Commit(); err != nil {
		return fault(err, "%s", what)
	}
	return nil
}

// anyRows tells exec that a statement may change however many rows.
const anyRows = -1

// exec runs a statement, and returns an error unless it changed want rows.
func (o *mysqlOrigin) exec(ctx context.Context, in querier, want int64, what, statement string, args ...any) error {
	result, err := in.ExecContext(ctx, statement, args...)
	if err != nil {
		return fault(err, "%s", what)
	}
	if n, err := result.RowsAffected(); err != nil || want != anyRows && n != want {
		return errors.Join(err, fmt.Errorf("%s: %d of %d rows stay where they are, so all of them do", what, want-n, want))
	}
	return nil
}

// rows returns the rows of a statement, each as the texts of its columns, with "" for NULL.
func (o *mysqlOrigin) rows(ctx context.Context, in querier, what, statement string, args ...any) (all [][]string, err error) {
	rows, err := in.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, fault(err, "%s", what)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	names, err := rows.Columns()
	if err != nil {
		return nil, fault(err, "%s", what)
	}
	for rows.Next() {
		row, at := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range row {
			at[i] = &row[i]
		}
		if err := rows.Scan(at...); err != nil {
			return nil, fault(err, "%s", what)
		}
		texts := make([]string, len(names))
		for i, text := range row {
			texts[i] = text.String
		}
		all = append(all, texts)
	}
	if err := rows.Err(); err != nil {
		return nil, fault(err, "%s", what)
	}
	return all, nil
}

func (o *mysqlOrigin) number(ctx context.Context, what, statement string, args ...any) (n int64, err error) {
	if err := o.db.QueryRowContext(ctx, statement, args...).Scan(&n); err != nil {
		return 0, fault(err, "%s", what)
	}
	return n, nil
}
