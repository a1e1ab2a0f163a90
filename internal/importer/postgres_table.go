package importer

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Columns names the columns of a program's table.
type Columns struct {
	// ID is unique, Due a timestamp, a date or a number, Body of any type: bytes as they are, or
	// its text.
	ID, Due, Body string
}

// describeTable describes a program's table as a source.
func (s *source) describeTable() { s.read = s.readTable }

// readTable makes the message of a row. The message keeps the ID of the row, by which the program
// may cancel it, unless the ID is none that a message can have.
func (s *source) readTable(e *entry) (m punctual.NewMessage, p *problem) {
	m.ID, m.Body = e.member, e.row.body
	if storekit.CheckID(m.ID) != nil {
		m.ID = makeID(Postgres, s.name, e.member)
	}
	return m, nil
}
