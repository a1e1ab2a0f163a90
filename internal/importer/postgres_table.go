package importer

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Columns name those of a table of a program's own.
type Columns struct {
	// ID is unique, Due a timestamp or a number, Body of any type: bytes as they are, or its text.
	ID, Due, Body string
}

// describeTable describes a table of a program's own as a source.
func (s *source) describeTable() { s.read = s.readTable }

// readTable keeps the row's ID, by which the program may cancel, unless no message can have it.
func (s *source) readTable(e *entry) (m punctual.NewMessage, p *problem) {
	m.ID, m.Body = e.member, e.row.body
	if storekit.CheckID(m.ID) != nil {
		m.ID = makeID(Postgres, s.name, e.member)
	}
	return m, nil
}
