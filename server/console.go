package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
)

// isForConsole tells whether a request is for the pages of Options.Console: all but those whose path begins as one of the interface.
func (c *call) isForConsole() bool {
	if c.server.options.Console == nil {
		return false
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(c.r.URL.Path, "/"), "/")
	for _, rt := range c.server.routes {
		if first == rt.segments[0] {
			return false
		}
	}
	return true
}

// askConsole lets the console answer, within the limits of the server. Who may do what is the console's to ask, of Server.Authenticate.
func (c *call) askConsole() error {
	control := http.NewResponseController(c.w)
	if c.r.ContentLength != 0 {
		if err := control.SetReadDeadline(time.Now().Add(c.server.limits.BodyTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("read the body: %w (%w)", punctual.ErrInvalid, err)
		}
		defer c.releaseMemory()
		r := *c.r
		r.Body = &heldBody{ReadCloser: http.MaxBytesReader(c.w, c.r.Body, c.server.limits.MaxRequest), call: c}
		c.server.options.Console.ServeHTTP(&consoleWriter{ResponseWriter: c.w, call: c, control: control}, &r)
		return nil
	}
	c.server.options.Console.ServeHTTP(&consoleWriter{ResponseWriter: c.w, call: c, control: control}, c.r)
	return nil
}

// heldBody counts what the console reads of a body against Limits.MaxMemory, as it arrives.
type heldBody struct {
	io.ReadCloser
	call *call
}

// Read reads a part of the body.
func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if held := b.call.hold(int64(n)); held != nil {
		return 0, held
	}
	if errors.Is(err, io.EOF) && b.call.r.ProtoMajor == 1 {
		// Behind the body the connection is read to learn of its end, which has no deadline.
		if e := http.NewResponseController(b.call.w).SetReadDeadline(time.Time{}); e != nil && !errors.Is(e, http.ErrNotSupported) {
			return n, fmt.Errorf("read the body: %w (%w)", punctual.ErrInvalid, e)
		}
	}
	return n, err
}

// consoleWriter notes the status of a page, and gives the client Limits.WriteTime for each part of it.
type consoleWriter struct {
	http.ResponseWriter
	call    *call
	control *http.ResponseController
}

// WriteHeader sends the head of the answer.
func (w *consoleWriter) WriteHeader(status int) {
	if w.call.status == 0 {
		w.call.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write sends a part of the answer.
func (w *consoleWriter) Write(p []byte) (int, error) {
	if w.call.status == 0 {
		w.call.status = http.StatusOK
	}
	if err := w.control.SetWriteDeadline(time.Now().Add(w.call.server.limits.WriteTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, fmt.Errorf("%w: %w", errNotSent, err)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *consoleWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
