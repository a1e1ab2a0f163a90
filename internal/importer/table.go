package importer

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

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
