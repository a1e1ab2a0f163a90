package server

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// json answers with v. A large answer to a GET counts in Server.memory until the request ends.
// Other answers do not count.
func (c *call) json(status int, v any) error {
	data, err := wire.Encode(v)
	if err != nil {
		return notEncoded(err)
	}
	if c.r.Method == http.MethodGet && len(data) > pieceBytes {
		if err := c.hold(int64(len(data))); err != nil {
			return err
		}
	}
	return c.write(status, wire.TypeJSON, append(data, '\n'))
}

// notEncoded returns the error for an answer that could not be encoded. It is an ErrIndeterminate,
// because the request may have been carried out.
func notEncoded(err error) error {
	return fmt.Errorf("encode the answer: %w; %w", punctual.ErrIndeterminate, errors.New(err.Error()))
}

// write sends the whole answer. Its error wraps errNotSent. It flushes an answer with leases; any
// other answer may still be in a buffer when write returns.
func (c *call) write(status int, mediaType string, data []byte) error {
	h := c.w.Header()
	if mediaType != "" {
		h.Set("Content-Type", mediaType)
	}
	if status != http.StatusNoContent {
		h.Set("Content-Length", strconv.Itoa(len(data)))
	}
	if c.leases {
		return c.send(status, data)
	}
	return c.put(status, data)
}

// send writes a part of the answer and flushes it to the network.
func (c *call) send(status int, data []byte) error {
	if err := c.put(status, data); err != nil {
		return err
	}
	if err := http.NewResponseController(c.w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	return nil
}

// put writes a part of the answer into the buffer of net/http, which is sent when it is full or the
// request ends. So a small answer costs one write to the network.
func (c *call) put(status int, data []byte) error {
	if !c.keepsDeadline {
		control := http.NewResponseController(c.w)
		if err := control.SetWriteDeadline(time.Now().Add(c.server.limits.WriteTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("%w: %w", errNotSent, err)
		}
	}
	if c.status == 0 {
		c.status = status
		c.w.WriteHeader(status)
	}
	if len(data) > 0 && c.r.Method != http.MethodHead {
		if _, err := c.w.Write(data); err != nil {
			return fmt.Errorf("%w: %w", errNotSent, err)
		}
	}
	return nil
}

// errNotSent is the error of an answer that could not be sent. It is not answered with a problem,
// because that could not be sent either.
var errNotSent = errors.New("the answer could not be sent")

// fail answers with a problem, unless an answer was begun or could not be sent.
func (c *call) fail(err error) {
	c.server.notice(c, err)
	if errors.Is(err, errNotSent) || c.status != 0 {
		return
	}
	p := wire.ProblemOf(err)
	h := c.w.Header()
	if c.r.ProtoMajor == 1 && c.r.ContentLength != 0 && !c.hasRead {
		// Without this header net/http would read a rest of the body of up to 256 KiB before it
		// answers. With it net/http reads such a rest after the answer, for which the deadline
		// leaves restTime. Of a longer rest whose length is declared it reads nothing.
		h.Set("Connection", "close")
		deadline := time.Now().Add(restTime)
		if e := http.NewResponseController(c.w).SetReadDeadline(deadline); e != nil && !errors.Is(e, http.ErrNotSupported) {
			c.server.log.Debug("the rest of a body may take long", "error", e)
		}
	}
	if f := (*refusal)(nil); errors.As(err, &f) {
		if f.status != 0 {
			p.Status = f.status
		}
		for name, values := range f.header {
			h[name] = values
		}
		if f.title != "" {
			p.Title, p.Remedy = f.title, f.remedy
		}
	}
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="punctual"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	}
	c.code = p.Code
	data, encoding := wire.Encode(p)
	if encoding != nil {
		c.server.log.Error("a problem could not be encoded", "code", p.Code, "error", encoding)
		data = nil
	}
	if sending := c.write(p.Status, wire.ProblemType, append(data, '\n')); sending != nil {
		c.server.notice(c, sending)
	}
}

// restTime bounds how long net/http reads the rest of the body of a request that was refused.
const restTime = time.Second

// notice logs the error of a request, at level error what the operator has to know. It hands on
// that the store has failed or is damaged.
func (s *Server) notice(c *call, err error) {
	if errors.Is(err, punctual.ErrStoreFailed) || errors.Is(err, punctual.ErrCorrupt) {
		s.failStore()
		if s.options.OnStoreFailed != nil {
			s.options.OnStoreFailed(err)
		}
	}
	name := ""
	if c.principal != nil {
		name = c.principal.Name
	}
	switch code := storekit.ErrorCode(err); {
	case errors.Is(err, errNotSent):
		s.log.Debug("an answer could not be sent", "method", c.r.Method, "route", c.pattern(), "principal", name, "error", err)
	case code == "internal", code == "indeterminate", code == "corrupt", code == "store_failed":
		s.log.Error("a request failed", "method", c.r.Method, "route", c.pattern(), "principal", name, "code", code, "error", err)
	default:
		s.log.Debug("a request was refused", "method", c.r.Method, "route", c.pattern(), "principal", name, "code", code)
	}
}

// refusal is an error with a status, headers, a title or a remedy other than those of its code.
type refusal struct {
	status        int
	header        http.Header
	title, remedy string
	err           error
}

func (f *refusal) Error() string { return f.err.Error() }

func (f *refusal) Unwrap() error { return f.err }

// pieceBytes is the size at which a part of a large answer is written out.
const pieceBytes = 64 << 10

// pieces writes an answer in JSON while it is made, so that an answer of several pieces is never in
// memory as a whole. An answer that is smaller than a piece is written at once, with its length.
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

// flush writes what is pending. Limits.WriteTime holds for all pieces of an answer together, or in
// the answer of listPage for those of one step, so that a client cannot hold memory by reading
// slowly.
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

// end writes the rest of the answer. If err is not nil, it has ended the making of the answer: end
// then writes nothing and returns err. It also sets call.isHalf if a part of the answer was sent
// and sending did not fail.
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

// line sends one line of a stream.
func (c *call) line(v any) error {
	data, err := wire.Encode(v)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, append(data, '\n'))
}
