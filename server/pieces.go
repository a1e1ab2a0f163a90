package server

import (
	"errors"
	"net/http"

	"github.com/punctualmq/punctual/internal/wire"
)

// pieceBytes is the size at which a part of a large answer is written out.
const pieceBytes = 64 << 10

// pieces writes an answer in JSON while it is made, so that a large answer is never in memory as a whole. An answer that is smaller than a
// piece is written at once, with its length.
type pieces struct {
	call    *call
	pending []byte
	begun   bool // a piece was written
}

// Write implements io.Writer.
func (p *pieces) Write(data []byte) (int, error) {
	p.pending = append(p.pending, data...)
	if len(p.pending) < pieceBytes {
		return len(data), nil
	}
	return len(data), p.flush()
}

// flush writes what is pending. Limits.WriteTime holds for all pieces together, so that a client cannot hold memory by reading slowly.
func (p *pieces) flush() error {
	c := p.call
	if !p.begun {
		c.w.Header().Set("Content-Type", wire.TypeJSON)
	}
	err := c.put(http.StatusOK, p.pending)
	p.begun, p.pending = true, p.pending[:0]
	c.keepsDeadline = true
	return err
}

// end writes the rest of the answer. err is the error that ended the making of the answer, or nil. end returns it, and notes whether a part of
// the answer was already sent.
func (p *pieces) end(err error) error {
	c := p.call
	switch {
	case err == nil && !p.begun:
		return c.write(http.StatusOK, wire.TypeJSON, p.pending)
	case err == nil && c.leases:
		return c.send(http.StatusOK, p.pending)
	case err == nil:
		return p.flush()
	}
	c.isHalf = p.begun && !errors.Is(err, errNotSent)
	return err
}
