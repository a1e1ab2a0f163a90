package importer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// stagingTable is the table in which taken rows are staged. It is in the schema of the table that
// they come from.
const stagingTable = "punctual_import"

// keySeparator joins the values of a key of several columns to an ID.
const keySeparator = ":"

// Columns names the columns of a program's table.
type Columns struct {
	// ID has the columns that are unique together and name a row, in the order in which their
	// values make the ID.
	ID []string
	// Due is a timestamp, a date or a number, Body of any type: bytes as they are, or its text.
	Due, Body string
}

// key returns the one of a table's unique keys that has the columns of c.ID, in whatever order.
func (c Columns) key(table string, keys [][]string) ([]string, error) {
	var there []string
	for _, key := range keys {
		if slices.Equal(slices.Sorted(slices.Values(key)), slices.Sorted(slices.Values(c.ID))) {
			return key, nil
		}
		there = append(there, "--id "+strings.Join(key, ","))
	}
	if len(there) == 0 {
		return nil, storekit.Invalidf("%s has no columns that are always unique: it needs a primary key", table)
	}
	return nil, storekit.Invalidf("%s of %s is not unique: name all columns of one key of the table, which is %s", strings.Join(c.ID, ","), table, strings.Join(there, " or "))
}

func viewRefused(name string) error {
	return storekit.Invalidf("%s is a view, whose rows cannot be taken one by one: name the table that the view reads, and put the view's condition into --where", name)
}

func keylessRefused(table string, n int64) error {
	return storekit.Invalidf("%d rows of %s have no value in a column of --id, so that nothing names them: leave those out with --where", n, table)
}

// columns checks that a table has the columns that the options name, and returns the column and the
// value of Options.Mark.
func (o *Options) columns(table string, has func(name string) bool) (mark, value string, err error) {
	for _, name := range append([]string{o.Columns.Due, o.Columns.Body}, o.Columns.ID...) {
		if !has(name) {
			return "", "", storekit.Invalidf("%s has no column %q", table, name)
		}
	}
	mark, value, _ = strings.Cut(o.Mark, "=")
	if mark != "" && (!has(mark) || slices.Contains(o.Columns.ID, mark)) {
		return "", "", storekit.Invalidf("%s has no column %q to mark its rows in", table, mark)
	}
	return mark, value, nil
}

// condition is what SQL says is true of pending rows.
func (o *Options) condition() string {
	if o.Where == "" {
		return "true"
	}
	return "(" + o.Where + ")"
}

func (o *Options) knowsUnit(counted bool) error {
	if counted && o.Unit == 0 {
		return storekit.Invalidf("say whether column %q counts seconds or milliseconds (--unit): a survey shows what it looks like", o.Columns.Due)
	}
	return nil
}

func (o *Options) needsNoUnit(typ string) error {
	if o.Unit != 0 {
		return storekit.Invalidf("column %q is a %s, which needs no unit", o.Columns.Due, typ)
	}
	return nil
}

func (o *Options) noTime(typ string) error {
	return storekit.Invalidf("column %q is a %s: the due time is a timestamp or a number", o.Columns.Due, typ)
}

// unitGuess begins the statement that counts how many due times look like seconds, and how many
// like milliseconds.
func unitGuess(count string) string {
	return fmt.Sprintf("select count(case when %[1]s >= 1e9 and %[1]s < 1e11 then 1 end), count(case when %[1]s >= 1e12 and %[1]s < 1e14 then 1 end) from ", count)
}

// onWall makes the score of an entry, which counts from 1970 on the clocks of a zone, one that
// counts from 1970; nil is UTC.
func (e *entry) onWall(zone *time.Location) {
	if zone != nil && e.score >= 0 && e.score <= float64(limits.MaxDue.UnixMilli()) {
		ms := int64(e.score)
		e.score = float64(cron.FirstInstant(time.UnixMilli(ms).UTC(), zone).UnixMilli() + ms%1000)
	}
}

// answers returns itemDone for the entries of the first list, other for those of the second, and
// itemGone for the rest.
func answers(es []*entry, done, others []string, other int64) []int64 {
	what := map[string]int64{}
	for _, m := range others {
		what[m] = other
	}
	for _, m := range done {
		what[m] = itemDone
	}
	out := make([]int64, len(es))
	for i, e := range es {
		out[i] = what[e.member]
	}
	return out
}

// describeTable describes a program's table as a source.
func (s *source) describeTable(c Columns) {
	s.read = func(e *entry) (punctual.NewMessage, *problem) { return s.readTable(e, len(c.ID) > 1) }
}

// readTable makes the message of a row. The message keeps the ID of the row, by which the program
// may cancel it. Of a key of several columns that is their values with keySeparator between them,
// unless another key could have the same: only the last value may have a separator in it.
func (s *source) readTable(e *entry, several bool) (m punctual.NewMessage, p *problem) {
	m.Body = e.row.body
	var values []string
	own, twin := e.member, false
	if several && json.Unmarshal([]byte(e.member), &values) == nil {
		own = strings.Join(values, keySeparator)
		twin = strings.Contains(strings.Join(values[:len(values)-1], ""), keySeparator)
	}
	m.ID = e.keep(own, makeID(s.kind, s.name, e.member, formatScore(e.score), string(m.Body)))
	if twin {
		m.ID = e.spare
	}
	return m, nil
}
