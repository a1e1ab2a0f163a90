package server

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
)

// isForConsole reports whether Options.Console answers the request: if there is a console, it has
// all paths whose first segment is not one of the interface.
func (c *call) isForConsole() bool {
	if c.server.options.Console == nil {
		return false
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(c.r.URL.Path, "/"), "/")
	return !c.server.routes.Begins(first)
}

// asksForHTML reports whether a request comes from a browser or accepts HTML.
func (c *call) asksForHTML() bool {
	return c.r.Header.Get("Sec-Fetch-Site") != "" || slices.ContainsFunc(c.r.Header.Values("Accept"), func(accept string) bool {
		return strings.Contains(strings.ToLower(accept), "text/html")
	})
}

// askConsole lets the console answer, within the limits of the server. The console itself calls
// Server.Authenticate and checks rights.
func (c *call) askConsole() error {
	control := http.NewResponseController(c.w)
	if c.r.ContentLength != 0 {
		if err := control.SetReadDeadline(time.Now().Add(c.server.limits.BodyTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("read the body: %w (%w)", punctual.ErrInvalid, err)
		}
		defer c.releaseMemory()
		r := *c.r
		r.Body = &heldBody{ReadCloser: http.MaxBytesReader(c.w, c.r.Body, c.server.limits.MaxRequest), call: c}
		return c.showPage(&r, control)
	}
	return c.showPage(c.r, control)
}

// showPage lets the console answer. If the page does not exist and the client does not ask for
// HTML, the answer is a problem instead, because the client is probably a program with a wrong path
// of the interface.
func (c *call) showPage(r *http.Request, control *http.ResponseController) error {
	before := c.w.Header().Clone()
	w := &consoleWriter{ResponseWriter: c.w, call: c, control: control, forProgram: !c.asksForHTML()}
	c.server.options.Console.ServeHTTP(w, r)
	if !w.noPage {
		return nil
	}
	clear(c.w.Header())
	maps.Copy(c.w.Header(), before)
	return noRoute(c.r.URL.EscapedPath())
}

// heldBody is the body of a request to the console. It counts bytes in Server.memory as they are
// read.
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
		// After the body net/http goes on reading, to notice the end of the connection. That
		// reading must have no deadline.
		if e := http.NewResponseController(b.call.w).SetReadDeadline(time.Time{}); e != nil && !errors.Is(e, http.ErrNotSupported) {
			return n, fmt.Errorf("read the body: %w (%w)", punctual.ErrInvalid, e)
		}
	}
	return n, err
}

// consoleWriter records the status of a page, and gives the client Limits.WriteTime to read each
// part of it.
type consoleWriter struct {
	http.ResponseWriter
	call    *call
	control *http.ResponseController
	// With forProgram the console's page for a status of 404 is dropped. noPage is true if that
	// happened.
	forProgram, noPage bool
}

// WriteHeader sends the head of the answer, unless it is that of a page to drop.
func (w *consoleWriter) WriteHeader(status int) {
	if w.forProgram && status == http.StatusNotFound && w.call.status == 0 {
		w.noPage = true
		return
	}
	if w.call.status == 0 {
		w.call.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write sends a part of the answer, unless the page is dropped.
func (w *consoleWriter) Write(p []byte) (int, error) {
	if w.noPage {
		return len(p), nil
	}
	if w.call.status == 0 {
		w.call.status = http.StatusOK
	}
	if err := w.control.SetWriteDeadline(time.Now().Add(w.call.server.limits.WriteTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, fmt.Errorf("%w: %w", errNotSent, err)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *consoleWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
