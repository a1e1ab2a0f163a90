package importer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/storekit"
)

// pgOrigin is the origin for messages in PostgreSQL: a database of River, or of a program that
// keeps its messages in a table of its own.
type pgOrigin struct {
	conn  *pgx.Conn
	opt   *Options
	table *pgTable // set by describe, which is called before it is used
}

// pgTable describes the table that is imported from. Its texts are parts of SQL statements, in
// which the alias of the table is t.
type pgTable struct {
	name    string // as SQL names it
	staging string
	columns []string // the columns that can be written
	// member names a row: the text of its key, and of a key of several columns a JSON array of
	// their texts. It is null where a column of the key is. key are the columns in the order of
	// their index, and keyOf makes the SQL for their values from that for a member.
	member, key string
	keyOf       func(member string) string
	// due is the due time of a row in milliseconds since 1970; count is the due time in the unit of
	// the column, for a timestamp in seconds.
	due, count string
	counted    bool // the column is a number
	// wall is the zone of the connection where the column's times name none. A due time then counts
	// from 1970 on that zone's clocks until scanEntry has found the instant.
	wall    *time.Location
	body    string
	extra   string // the other columns that the system needs, as JSON, or null
	pending func(s *source) string
	// mark is the column that Options.Mark sets, marked its value; mark is empty where taking a row
	// deletes it.
	mark, marked string
}

// still is whether a row t is pending. In the subselect the condition of a program's table finds no
// columns but those of t.
func (t *pgTable) still(s *source) string {
	return "coalesce((select " + t.pending(s) + " from (select t.*) t), false)"
}

// pgRow has what was read of a row, except its ID and its due time.
type pgRow struct {
	version string // of the row, as it was read
	body    []byte
	extra   []byte // JSON, or nil
}

// dialPostgres returns a connection, which the caller closes. Errors do not contain the URL,
// because it may have a password.
func dialPostgres(ctx context.Context, url string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, storekit.Invalidf("the source's URL cannot be read: use postgres://user:password@host:port/database, with special characters of user and password escaped with %%")
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fault(err, "connect to the source")
	}
	return conn, nil
}

func (o *pgOrigin) now(ctx context.Context) (t time.Time, err error) {
	if err := o.conn.QueryRow(ctx, "select clock_timestamp()").Scan(&t); err != nil {
		return t, fault(err, "ask the source for its time")
	}
	return t, nil
}

// names returns the queues that have messages to import.
func (o *pgOrigin) names(ctx context.Context) ([]string, error) {
	if err := o.describe(ctx); err != nil {
		return nil, err
	}
	return o.texts(ctx, "look for what is there", "select distinct t.queue from "+o.table.name+" t where t.state::text = any($1)", o.opt.Parts)
}

func (o *pgOrigin) expect(ctx context.Context, _ *source) error {
	if err := o.describe(ctx); err != nil {
		return err
	}
	return o.opt.knowsUnit(o.table.counted)
}

// describe reads the description of the table from the database, unless o.table has it already.
func (o *pgOrigin) describe(ctx context.Context) error {
	if o.table != nil {
		return nil
	}
	name := o.opt.Table
	if o.opt.Kind == Postgres {
		name = o.opt.Names[0]
	}
	var full, schema string
	var view bool
	err := o.conn.QueryRow(ctx, `select format('%I.%I', n.nspname, c.relname), n.nspname, c.relkind in ('v', 'm')
		from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass($1) and c.relkind in ('r', 'p', 'v', 'm')`, name).Scan(&full, &schema, &view)
	if errors.Is(err, pgx.ErrNoRows) {
		return storekit.Invalidf("there is no table %s here: name it with its schema, as schema.table", name)
	}
	if err != nil {
		return fault(err, "look at %s", name)
	}
	if view {
		return viewRefused(full)
	}
	t := &pgTable{name: full, staging: pgx.Identifier{schema, stagingTable}.Sanitize()}
	types, err := o.columns(ctx, t)
	if err != nil {
		return err
	}
	if o.opt.Kind == River {
		err = t.describeRiver(types)
	} else {
		err = o.describeOwn(ctx, t, types)
	}
	if err == nil {
		err = o.onlyLeaves(ctx, t)
	}
	if err == nil {
		o.table = t
	}
	return err
}

// onlyLeaves refuses a table where taking a row might not take it, or might change other rows: what
// take compares shows only the rows that stay.
func (o *pgOrigin) onlyLeaves(ctx context.Context, t *pgTable) error {
	why, err := o.texts(ctx, "look at "+t.name, `
		with recursive tree(part) as (
			select $1::text::regclass::oid union all select i.inhrelid from pg_inherits i join tree on i.inhparent = part
		)
		select format('trigger %I of %s runs when a row is deleted, and may keep the row or change others: use --mark, or disable the trigger meanwhile', tgname, part::regclass)
			from pg_trigger join tree on tgrelid = part where not tgisinternal and tgenabled in ('O', 'A') and tgtype & 8 > 0 and not $2::bool
		union all
		select format('foreign key %I has rows of %s deleted or changed: use --mark', conname, conrelid::regclass)
			from pg_constraint join tree on confrelid = part where contype = 'f' and confdeltype in ('c', 'n', 'd') and not $2::bool
		union all
		select format('rule %I of %s rewrites what changes its rows: drop the rule meanwhile', rulename, part::regclass)
			from pg_rewrite join tree on ev_class = part where ev_type <> '1' and ev_enabled in ('O', 'A')
		union all
		select format('%s inherits from it, and may have rows with the same IDs: import that table by itself, and then this one without it (alter table … no inherit …)', part::regclass)
			from pg_inherits join tree on inhrelid = part join pg_class c on c.oid = inhparent where c.relkind = 'r'
		union all
		select 'row-level security may hide or keep rows from this user: import as a user with BYPASSRLS' where row_security_active($1::text)`, t.name, t.mark != "")
	if err == nil && len(why) > 0 {
		err = storekit.Invalidf("rows cannot be taken from %s: %s", t.name, strings.Join(why, "; "))
	}
	return err
}

// columns returns the type of each column of a table by name, and sets t.columns to those that an
// insert may write.
func (o *pgOrigin) columns(ctx context.Context, t *pgTable) (map[string]string, error) {
	types := map[string]string{}
	_, err := query(ctx, o, "look at "+t.name, func(row pgx.CollectableRow) (name string, err error) {
		var typ string
		var writable bool
		err = row.Scan(&name, &typ, &writable)
		if types[name] = typ; writable {
			t.columns = append(t.columns, pgx.Identifier{name}.Sanitize())
		}
		return name, err
	}, `select attname::text, format_type(atttypid, atttypmod), attgenerated = '' from pg_attribute
		where attrelid = $1::text::regclass and attnum > 0 and not attisdropped order by attnum`, t.name)
	return types, err
}

// describeOwn describes the table of a program. The options name its columns for the ID, the due
// time and the body.
func (o *pgOrigin) describeOwn(ctx context.Context, t *pgTable, types map[string]string) error {
	c := o.opt.Columns
	mark, value, err := o.opt.columns(t.name, func(name string) bool { return types[name] != "" })
	if err != nil {
		return err
	}
	keys, err := query(ctx, o, "look at "+t.name, pgx.RowTo[[]string], `
		select (select array_agg(a.attname::text order by k.at) from unnest(i.indkey::int2[]) with ordinality k(num, at) join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.num where k.at <= i.indnkeyatts)
		from pg_index i where i.indrelid = $1::text::regclass and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null order by not i.indisprimary`, t.name)
	if err != nil {
		return err
	}
	key, err := c.key(t.name, keys)
	if err != nil {
		return err
	}
	t.describeKey(c.ID, key, types)
	if err := t.describeDue("t."+pgx.Identifier{c.Due}.Sanitize(), types[c.Due], o.opt); err != nil {
		return err
	}
	if typ := types[c.Due]; strings.HasPrefix(typ, "timestamp") && !strings.HasSuffix(typ, "with time zone") || typ == "date" {
		zone, err := o.texts(ctx, "ask for the time zone", "show timezone")
		if err != nil {
			return err
		}
		if t.wall, err = cron.LoadZone(zone[0]); err != nil {
			return storekit.Invalidf("column %q names no time zone, and that of the connection is none with a name: put ?timezone=Europe/Berlin behind the URL: %v", c.Due, err)
		}
	}
	t.body = "t." + pgx.Identifier{c.Body}.Sanitize()
	if types[c.Body] != "bytea" {
		t.body = "convert_to(" + t.body + "::text, 'UTF8')"
	}
	t.extra = "null::text"
	t.pending = func(*source) string { return o.opt.condition() }
	if mark != "" {
		t.mark, t.marked = pgx.Identifier{mark}.Sanitize(), literal(value)
		_, err = o.texts(ctx, "read the value of --mark", "select ("+t.marked+"::"+types[mark]+")::text")
	}
	return err
}

// describeKey makes the SQL for the key whose columns are ids, and in the order of their index key.
func (t *pgTable) describeKey(ids, key []string, types map[string]string) {
	column := func(name string) string { return "t." + pgx.Identifier{name}.Sanitize() }
	if t.key = column(ids[0]); len(ids) == 1 {
		t.member = t.key + "::text"
		t.keyOf = func(member string) string { return member + "::" + types[ids[0]] }
		return
	}
	texts, columns := make([]string, len(ids)), make([]string, len(ids))
	for i, name := range ids {
		texts[i], columns[i] = "to_json("+column(name)+"::text)::text", column(key[i])
	}
	t.member = "'[' || " + strings.Join(texts, " || ',' || ") + " || ']'"
	t.key = strings.Join(columns, ", ")
	t.keyOf = func(member string) string {
		values := make([]string, len(key))
		for i, name := range key {
			values[i] = fmt.Sprintf("(%s::json->>%d)::%s", member, slices.Index(ids, name), types[name])
		}
		return "(" + strings.Join(values, ", ") + ")"
	}
}

// describeDue makes the SQL for the due time from the column of the due time.
func (t *pgTable) describeDue(column, typ string, o *Options) error {
	switch base, _, _ := strings.Cut(typ, "("); base {
	case "timestamp with time zone", "timestamp without time zone", "timestamp", "date":
		t.count = "extract(epoch from " + column + ")"
		t.due = "ceil(" + t.count + " * 1000)::float8"
		return o.needsNoUnit(typ)
	case "smallint", "integer", "bigint", "numeric", "real", "double precision":
		t.counted, t.count = true, column
		t.due = fmt.Sprintf("ceil(%s::numeric * %d)::float8", column, o.Unit.Milliseconds())
		if o.Unit == 0 {
			t.due = "'NaN'::float8" // until guessUnit or the options say in what unit the column counts
		}
	default:
		return o.noTime(typ)
	}
	return nil
}

// guessUnit finds out the unit of a column of numbers, as redisOrigin.guessUnit does for scores.
func (o *pgOrigin) guessUnit(ctx context.Context, r *Report) error {
	if o.opt.Kind == River || o.opt.Unit != 0 {
		return nil
	}
	if err := o.describe(ctx); err != nil || !o.table.counted {
		return err
	}
	var inSeconds, inMillis int64
	err := o.conn.QueryRow(ctx, unitGuess(o.table.count)+o.table.name+" t where "+o.table.pending(nil)).Scan(&inSeconds, &inMillis)
	if err != nil {
		return fault(err, "read %s", o.table.name)
	}
	from := o.table.name
	o.table = nil // the due time is made anew
	return r.guess(o.opt, from, inSeconds, inMillis)
}

func (o *pgOrigin) count(ctx context.Context, s *source, members, staged *int64) error {
	t, keyless := o.table, int64(0)
	err := o.conn.QueryRow(ctx, fmt.Sprintf("select count(*), count(*) filter (where %s is null) from %s t where %s", t.member, t.name, t.pending(s))).Scan(members, &keyless)
	if err == nil && keyless > 0 {
		return keylessRefused(t.name, keyless)
	}
	if err == nil {
		*staged, err = o.countStaged(ctx, s)
	}
	if err != nil {
		return fault(err, "count %s", s.set)
	}
	return nil
}

func (o *pgOrigin) countStaged(ctx context.Context, s *source) (n int64, err error) {
	there, err := o.hasStaging(ctx)
	if err == nil && there {
		err = o.conn.QueryRow(ctx, "select count(*) from "+o.table.staging+" where source = $1", s.set).Scan(&n)
	}
	return n, err
}

func (o *pgOrigin) hasStaging(ctx context.Context) (there bool, err error) {
	err = o.conn.QueryRow(ctx, "select to_regclass($1) is not null", o.table.staging).Scan(&there)
	return there, err
}

// fields returns the columns that an entry is made of: ID, due time, version, body and extra.
func (t *pgTable) fields(member, version string) string {
	return fmt.Sprintf("%s, coalesce(%s, 'NaN'), %s, coalesce(%s, ''), %s", member, t.due, version, t.body, t.extra)
}

func (t *pgTable) scanEntry(row pgx.CollectableRow) (*entry, error) {
	e := &entry{}
	var extra *string
	err := row.Scan(&e.member, &e.score, &e.row.version, &e.row.body, &extra)
	if extra != nil {
		e.row.extra = []byte(*extra)
	}
	e.onWall(t.wall)
	return e, err
}

func (o *pgOrigin) walks(*source) []walk { return []walk{o.walk} }

// page returns the statement that reads rows in the order of their keys: up to $1 of them, with a
// key above that of the member $2 unless it is the first page.
func (t *pgTable) page(s *source, first bool) string {
	from := ""
	if !first {
		from = " and (" + t.key + ") > " + t.keyOf("$2::text")
	}
	return "select " + t.fields(t.member, "t.xmin::text") + " from " + t.name + " t where " + t.pending(s) + from + " order by " + t.key + " limit $1"
}

// walk visits the rows in the order of their keys.
func (o *pgOrigin) walk(ctx context.Context, s *source, visit visitor) error {
	t, args := o.table, []any{0}
	var p pager
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		args[0] = p.next()
		es, err := query(ctx, o, "read "+t.name, t.scanEntry, t.page(s, len(args) == 1), args...)
		if err != nil || len(es) == 0 {
			return err
		}
		if _, err := visit(ctx, es); err != nil {
			return err
		}
		p.saw(es)
		args = []any{0, es[len(es)-1].member}
	}
}

func (o *pgOrigin) staged(ctx context.Context, s *source, visit func(pairs []string) error) error {
	there, err := o.hasStaging(ctx)
	if err != nil {
		return fault(err, "read what is staged of %s", s.set)
	}
	for last := ""; there; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var pairs []string
		_, err := query(ctx, o, "read what is staged of "+s.set, func(row pgx.CollectableRow) (record string, err error) {
			err = row.Scan(&last, &record)
			pairs = append(pairs, last, record)
			return record, err
		}, "select member, record from "+o.table.staging+` where source = $1 and member > $2 order by member limit $3`, s.set, last, maxPage)
		if err != nil || len(pairs) == 0 {
			return err
		}
		if err := visit(pairs); err != nil {
			return err
		}
	}
	return nil
}

// readKept makes rows from the texts in staging. PostgreSQL itself parses the texts.
func (o *pgOrigin) readKept(ctx context.Context, s *source, es []*entry) error {
	byMember := map[string]*entry{}
	for _, e := range es {
		byMember[e.member] = e
	}
	kept, err := query(ctx, o, "read the staged rows of "+s.set, o.table.scanEntry, fmt.Sprintf("select %s from %s k, lateral (select (k.kept::%s).*) t where k.source = $1 and k.member = any($2)",
		o.table.fields("k.member", "''"), o.table.staging, o.table.name), s.set, members(es))
	if err != nil {
		return err
	}
	for _, k := range kept {
		if e := byMember[k.member]; e != nil {
			e.row = k.row
		}
	}
	return nil
}

func members(es []*entry) []string {
	out := make([]string, len(es))
	for i, e := range es {
		out[i] = e.member
	}
	return out
}

func records(es []*entry) []string {
	out := make([]string, len(es))
	for i, e := range es {
		out[i] = e.text
	}
	return out
}

// take moves rows into staging: the rows that have not changed since they were read and on which
// nobody works. It takes nothing if a row that it locked did not leave.
func (o *pgOrigin) take(ctx context.Context, s *source, es []*entry) ([]int64, error) {
	if err := o.makeStaging(ctx); err != nil {
		return nil, err
	}
	t := o.table
	versions := make([]string, len(es))
	for i, e := range es {
		versions[i] = e.row.version
	}
	gone := "delete from " + t.name + " t using locked where t.tableoid = locked.part and t.ctid = locked.place returning locked.member"
	if t.mark != "" {
		gone = fmt.Sprintf("update %s t set %s = %s from locked where t.tableoid = locked.part and t.ctid = locked.place returning case when not %s then locked.member end as member", t.name, t.mark, t.marked, t.still(s))
	}
	taken, err := o.whole(ctx, "take from "+t.name, "with --mark these still meet the condition of --where, or a trigger or a policy keeps them: a run without --yes names it", fmt.Sprintf(`
		with locked as materialized (
			select t.tableoid as part, t.ctid as place, asked.member, asked.record, t::text as kept
			from unnest($2::text[], $3::text[], $4::text[]) as asked(member, version, record)
			join %[1]s t on (%[2]s) = %[3]s and t.xmin::text = asked.version
			where %[4]s and not exists (select 1 from %[5]s k where k.source = $1 and k.member = asked.member)
			for update of t skip locked
		), gone as (%[6]s), staged as (
			insert into %[5]s (source, member, record, kept) select $1, member, record, kept from locked join gone using (member) returning member
		)
		select member, exists (select 1 from staged where staged.member = locked.member) from locked`,
		t.name, t.key, t.keyOf("asked.member"), t.still(s), t.staging, gone), s.set, members(es), versions, records(es))
	if err != nil {
		return nil, err
	}
	there, err := o.texts(ctx, "read "+t.name, fmt.Sprintf("select asked.member from unnest($1::text[]) as asked(member) join %s t on (%s) = %s where %s", t.name, t.key, t.keyOf("asked.member"), t.still(s)), members(es))
	return answers(es, taken, there, itemHeld), err
}

// whole runs a statement in a transaction of its own. Each of its rows has the member of an entry
// and whether the statement moved that entry. If it did not move all of them, whole rolls it back
// and returns an error with a reason.
func (o *pgOrigin) whole(ctx context.Context, what, reason, statement string, args ...any) (moved []string, err error) {
	var inside error
	err = pgx.BeginFunc(ctx, o.conn, func(pgx.Tx) error {
		stays := 0
		moved, inside = query(ctx, o, what, func(row pgx.CollectableRow) (member string, err error) {
			var is bool
			if err = row.Scan(&member, &is); !is {
				stays++
			}
			return member, err
		}, statement, args...)
		if inside == nil && stays > 0 {
			inside = fmt.Errorf("%s: %d of %d rows stay where they are, so all of them do: %s", what, stays, len(moved), reason)
		}
		return inside
	})
	if err != nil && inside == nil {
		err = fault(err, "%s", what)
	}
	return moved, err
}

// makeStaging creates the table for taken rows. Another run may create it at the same time.
func (o *pgOrigin) makeStaging(ctx context.Context) error {
	if there, err := o.hasStaging(ctx); err != nil || there {
		return err
	}
	_, err := o.conn.Exec(ctx, "create table if not exists "+o.table.staging+
		" (source text not null, member text collate \"C\" not null, record text not null, kept text not null, primary key (source, member))")
	if err == nil {
		return nil
	}
	// When the other run was faster, PostgreSQL may refuse the row type or an entry of the catalog
	// instead of the table.
	var refused *pgconn.PgError
	if errors.As(err, &refused) && slices.Contains([]string{"23505", "42P07", "42710"}, refused.Code) {
		if there, lookErr := o.hasStaging(ctx); lookErr == nil && there {
			return nil
		}
	}
	return fault(err, "make the table %s", o.table.staging)
}

func (o *pgOrigin) adopt(ctx context.Context, s *source, es []*entry, old []string) ([]int64, error) {
	adopted, err := o.texts(ctx, "adopt what is staged of "+s.set, fmt.Sprintf(`update %s k set record = asked.new from unnest($2::text[], $3::text[], $4::text[]) as asked(member, old, new)
		where k.source = $1 and k.member = asked.member and k.record in (asked.old, asked.new) returning k.member`, o.table.staging), s.set, members(es), old, records(es))
	return answers(es, adopted, nil, itemGone), err
}

func (o *pgOrigin) finish(ctx context.Context, s *source, es []*entry) error {
	if len(es) == 0 {
		return nil
	}
	_, err := o.conn.Exec(ctx, fmt.Sprintf(`delete from %s k using unnest($2::text[], $3::text[]) as asked(member, record)
		where k.source = $1 and k.member = asked.member and k.record = asked.record`, o.table.staging), s.set, members(es), records(es))
	if err != nil {
		return fault(err, "finish what is staged of %s", s.set)
	}
	return nil
}

// putBack moves rows back into their table, each as it was, or removes the marks of taken rows. It
// puts back none if one would not be as it was.
func (o *pgOrigin) putBack(ctx context.Context, s *source, es []*entry) ([]int64, error) {
	t := o.table
	values := make([]string, len(t.columns))
	for i, c := range t.columns {
		values[i] = "(whole)." + c
	}
	free, put := "not exists", fmt.Sprintf("insert into %s as t (%s) overriding system value select %s from back returning %s as member, t::text as kept",
		t.name, strings.Join(t.columns, ", "), strings.Join(values, ", "), t.member)
	if t.mark != "" {
		free, put = "exists", fmt.Sprintf("update %s t set %s = (back.whole).%[2]s from back where (%[3]s) = %[4]s returning back.member, case when %[5]s then back.whole::text end as kept",
			t.name, t.mark, t.key, t.keyOf("back.member"), t.still(s))
	}
	back, err := o.whole(ctx, "put back into "+t.name, "a trigger changes them or keeps them out", fmt.Sprintf(`
		with back as (
			delete from %[1]s k using unnest($2::text[], $3::text[]) as asked(member, record)
			where k.source = $1 and k.member = asked.member and k.record = asked.record
				and %[5]s (select 1 from %[2]s t where (%[3]s) = %[4]s)
			returning k.member, k.kept::%[2]s as whole
		), put as (%[6]s)
		select member, coalesce(kept = whole::text, false) from back left join put using (member)`,
		t.staging, t.name, t.key, t.keyOf("asked.member"), free, put), s.set, members(es), records(es))
	if err != nil {
		return nil, err
	}
	kept, err := o.texts(ctx, "read what is staged of "+s.set, "select member from "+t.staging+" k join unnest($2::text[], $3::text[]) as asked(member, record) using (member, record) where k.source = $1", s.set, members(es), records(es))
	return answers(es, back, kept, itemChanged), err
}

// query returns the rows of a statement, each as row reads it. what is what the statement does, for
// its error.
func query[T any](ctx context.Context, o *pgOrigin, what string, row pgx.RowToFunc[T], statement string, args ...any) ([]T, error) {
	rows, err := o.conn.Query(ctx, statement, args...)
	if err != nil {
		return nil, fault(err, "%s", what)
	}
	all, err := pgx.CollectRows(rows, row)
	if err != nil {
		return nil, fault(err, "%s", what)
	}
	return all, nil
}

// texts is query for a statement that has one column of texts.
func (o *pgOrigin) texts(ctx context.Context, what, statement string, args ...any) ([]string, error) {
	return query(ctx, o, what, pgx.RowTo[string], statement, args...)
}
