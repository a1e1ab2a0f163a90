package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
)

func (c *call) showInfo() error {
	info := c.server.info
	info.Farewell = connOf(c.r) != nil && c.r.TLS == nil
	return c.json(http.StatusOK, info)
}

func (c *call) showOpenAPI() error {
	return c.write(http.StatusOK, wire.TypeJSON, c.server.openAPI)
}

func (c *call) clock() error {
	now, err := storeCall(c, c.server.store.Now)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, wire.Clock{Now: wire.Time(now)})
}

// showSpace answers with how much space the store's medium has.
func (c *call) showSpace() error {
	if c.server.space == nil {
		return fmt.Errorf("this store does not know how much room it has: %w", punctual.ErrUnsupported)
	}
	r, err := storeCall(c, c.server.space.Space)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, wire.Space{Free: r.Free, Total: r.Total, Reserve: r.Reserve})
}

// live answers that the process is alive, whatever the state of its store.
func (c *call) live() error { return c.json(http.StatusOK, wire.Health{Status: "ok"}) }

// ready answers whether requests should be sent to this server. Of an error it shows only the code, because the route is public.
func (c *call) ready() error {
	if c.server.isDraining() {
		return fmt.Errorf("the server is ending: %w", punctual.ErrClosed)
	}
	ctx, end, err := c.storeContext(0)
	if err != nil {
		return err
	}
	defer end()
	if _, err := c.server.store.Now(ctx); err != nil {
		code := punctual.ErrorCode(storeError(ctx, err))
		return &refusal{status: http.StatusServiceUnavailable, err: &unready{code, err}}
	}
	h := wire.Health{Status: "ok"}
	if c.server.options.Degraded != nil {
		if h.Reasons = c.server.options.Degraded(); len(h.Reasons) > 0 {
			h.Status = "degraded"
		}
	}
	return c.json(http.StatusOK, h)
}

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

// unready is an error of the store whose text is not shown to clients, because they are not authenticated.
type unready struct {
	code  string
	cause error
}

func (u *unready) Error() string { return "the store does not answer: " + u.code }
func (u *unready) Unwrap() error { return u.cause }

// examine answers with what the store says about what it stands on.
func (c *call) examine() error {
	if c.server.examiner == nil {
		return fmt.Errorf("this store cannot be examined: %w", punctual.ErrUnsupported)
	}
	ctx, end, err := c.storeContext(0)
	if err != nil {
		return err
	}
	defer end()
	findings, err := c.server.examiner.Examine(ctx)
	return c.json(http.StatusOK, wire.ExaminationOf(findings, err))
}

// maxChecks bounds the checks that are under way at once, because each reads everything that is stored.
const maxChecks = 2

// check scans the store. Because that may take long, its time is not limited: it ends when its client goes, or when the server drains.
func (c *call) check() error {
	if c.server.checker == nil {
		return fmt.Errorf("this store cannot be checked: %w", punctual.ErrUnsupported)
	}
	defer c.server.checks.Add(-1)
	if c.server.checks.Add(1) > maxChecks {
		return fmt.Errorf("%d checks are under way already: wait for them: %w", maxChecks, punctual.ErrOverloaded)
	}
	ctx, end := c.untilDraining()
	defer end(nil)
	if !c.wants(wire.TypeNDJSON) {
		report, err := c.server.checker.Check(ctx, nil)
		if err != nil {
			return causeOf(ctx, err)
		}
		return c.json(http.StatusOK, wire.CheckReportOf(report))
	}
	c.w.Header().Set("Content-Type", wire.TypeNDJSON)
	var last time.Time
	report, err := c.server.checker.Check(ctx, func(read int64) {
		if now := time.Now(); now.Sub(last) >= time.Second {
			last = now
			if err := c.line(wire.CheckLine{Read: read}); err != nil {
				end(err)
			}
		}
	})
	var line wire.CheckLine
	if err != nil {
		if err = causeOf(ctx, err); errors.Is(err, errNotSent) {
			return err
		}
		c.server.notice(c, err)
		line.Error = wire.ItemProblem(err)
	} else {
		onWire := wire.CheckReportOf(report)
		line.Report = &onWire
	}
	return c.line(line)
}

// untilDraining returns the context of a request whose time is not limited. It ends when the client goes, or when the server drains, which is
// then its cause. The caller has to end it as well, with a cause of its own or nil.
func (c *call) untilDraining() (context.Context, context.CancelCauseFunc) {
	ctx, end := context.WithCancelCause(c.r.Context())
	stop := context.AfterFunc(c.server.draining, func() { end(fmt.Errorf("the server is ending: %w", punctual.ErrClosed)) })
	return ctx, func(cause error) { stop(); end(cause) }
}

// causeOf returns why ctx was cancelled if err came from that, otherwise err.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
		return cause
	}
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
