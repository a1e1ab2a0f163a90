package server

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/stalled"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// check scans the store. Because that may take long, its time is not limited. It ends early when
// its client goes, or when the server drains.
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

// maxChecks bounds the checks that are under way at once, because each reads everything that is
// stored.
const maxChecks = 2

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
	if err == nil {
		var schedules []storekit.Finding
		schedules, err = stalled.Examine(ctx, c.server.below)
		findings = append(findings, schedules...)
	}
	if err != nil {
		c.server.notice(c, err) // here, because the error stands in the answer beside the findings
	}
	return c.json(http.StatusOK, wire.ExaminationOf(findings, err))
}
