package server

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// live answers that the process is alive, whatever the state of its store.
func (c *call) live() error { return c.json(http.StatusOK, wire.Health{Status: "ok"}) }

// ready answers whether requests should be sent to this server. Of an error of the store it shows
// only the code, because the route is public.
func (c *call) ready() error {
	if c.server.isDraining() {
		return fmt.Errorf("the server is ending: %w", punctual.ErrClosed)
	}
	ctx, end, err := c.storeContext(0)
	if err != nil {
		return err
	}
	defer end()
	_, err = c.server.store.Now(ctx)
	var clock []storekit.Finding
	if err == nil && c.server.clock != nil {
		var state storekit.ClockState
		if state, err = c.server.clock.Clock(ctx); err == nil {
			clock = storekit.ClockFindings(state)[:1]
		} else if errors.Is(err, punctual.ErrUnsupported) { // an older server behind this one
			err = nil
		}
	}
	if err != nil {
		code := storekit.ErrorCode(storeError(ctx, err))
		return &refusal{status: http.StatusServiceUnavailable, err: &unready{code, err}}
	}
	h := wire.Health{Status: "ok"}
	if c.server.options.Degraded != nil {
		h.Reasons = c.server.options.Degraded()
	}
	if c.server.space != nil {
		if room, err := c.server.space.Space(ctx); err == nil && room.Free < room.Reserve {
			h.Reasons = append(h.Reasons, "the store's disk is nearly full, so pushes are refused: make room; acks and cancels still work")
		}
	}
	for _, f := range clock {
		if f.Severity > storekit.SeverityGood {
			h.Reasons = append(h.Reasons, "the store's clock is "+f.Value+": "+f.Remedy)
		}
	}
	if len(h.Reasons) > 0 {
		h.Status = "degraded"
	}
	return c.json(http.StatusOK, h)
}

// unready is an error of the store whose text is not shown to clients, because they are not
// authenticated.
type unready struct {
	code  string
	cause error
}

func (u *unready) Error() string { return "the store does not answer: " + u.code }

func (u *unready) Unwrap() error { return u.cause }

// metrics answers with Options.Metrics.
func (c *call) metrics() error {
	if c.server.options.Metrics == nil {
		return fmt.Errorf("this server keeps no metrics: %w", punctual.ErrUnsupported)
	}
	deadline := time.Now().Add(c.server.limits.StoreTime + c.server.limits.WriteTime)
	if err := http.NewResponseController(c.w).SetWriteDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	w := &statusWriter{ResponseWriter: c.w, status: http.StatusOK}
	c.server.options.Metrics.ServeHTTP(w, c.r)
	c.status = w.status
	return nil
}

// statusWriter records the status of an answer that another handler writes.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
