package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/bulk"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// bulkStream is the form of the answer that tells how far a bulk is.
var bulkStream = form{
	mediaType: wire.TypeNDJSON, line: wire.BulkReport{},
	text: "With Accept: application/x-ndjson. Each line is the report so far. The last one has complete, or the error that ended the bulk.",
}

// bulkInterval is the least time between two lines that tell how far a bulk is.
const bulkInterval = time.Second

// maxBulks is how many bulks may be under way at once, because each reads a topic to its end. They
// are divided among clients, and one that waits for its rate does not count.
const maxBulks = 4

// bulkRetry is how long a bulk that has waited for its rate waits again when all slots are taken.
const bulkRetry = 100 * time.Millisecond

// bulk changes all messages that a request selects, for as long as the client waits: a bulk whose
// connection ends stops, and what it has changed stays. The context of a call of the store that is
// under way then ends as well, so that call may or may not have changed its messages.
func (c *call) bulk() error {
	var req wire.BulkRequest
	if err := wire.DecodeRequest(c.body, &req); err != nil {
		return err
	}
	if err := c.holdItems(req.Size()); err != nil {
		return err
	}
	c.dropBody()
	topic := c.path["topic"]
	b, err := req.Bulk(topic)
	if err != nil {
		return err
	}
	action := access.Amend
	if b.Do == bulk.Delete {
		action = access.Admin // the right that a purge needs
	}
	if err := c.allows(action, topic); err != nil {
		return err
	}
	detail, err := wire.Encode(req)
	if err != nil {
		return notEncoded(err)
	}
	slot := bulkSlot{&c.server.bulks, c.sharer()}
	defer slot.give()
	if !slot.take() {
		return fmt.Errorf("as many bulks are under way as the client may have of %d: wait for them: %w", maxBulks, punctual.ErrOverloaded)
	}
	ctx, end := c.untilDraining()
	defer end(nil)
	b.Wait = slot.wait
	stream := bulkLines{call: c, end: end}
	if c.wants(wire.TypeNDJSON) {
		b.Progress = stream.progress
	}
	var report bulk.Report
	run := func() (int64, error) {
		var err error
		report, err = bulk.Run(ctx, c.server.queue, b)
		return report.Done, causeOf(ctx, err)
	}
	if b.DryRun {
		_, err = run()
	} else {
		_, err = c.record(audit.Change{Verb: "bulk " + b.Do.String(), Topic: topic, Detail: string(detail)}, run)
	}
	switch {
	case errors.Is(err, errNotSent), err != nil && stream.last.IsZero() && report.Looked == 0:
		return err // the client is gone, or nothing was looked at and the error is the whole answer
	case err != nil:
		c.server.notice(c, err)
	}
	answer := wire.BulkEnd(report, err)
	switch {
	case b.Progress != nil:
		c.w.Header().Set("Content-Type", wire.TypeNDJSON)
		return c.line(answer)
	case err != nil:
		return c.json(wire.StatusOf(storekit.ErrorCode(err)), answer)
	}
	return c.json(http.StatusOK, answer)
}

// bulkSlot is one of the maxBulks.
type bulkSlot struct {
	bulks  *shares
	client string
}

func (s bulkSlot) take() bool { return s.bulks.take(s.client, 1) }
func (s bulkSlot) give()      { s.bulks.give(s.client, 1) }

// wait is the Bulk.Wait: it gives the slot to other bulks meanwhile, and then waits until one is
// free again.
func (s bulkSlot) wait(ctx context.Context, d time.Duration) error {
	s.give()
	for {
		var err error
		select {
		case <-time.After(d):
		case <-ctx.Done():
			err = ctx.Err()
		}
		if s.take() || err != nil {
			return err // the caller calls give in either case
		}
		s.give()
		d = bulkRetry
	}
}

// bulkLines tells a client how far its bulk is, line by line. The goroutine of the request alone
// uses it.
type bulkLines struct {
	call *call
	end  context.CancelCauseFunc // ends the bulk
	last time.Time               // when the last line was sent; zero: none was
}

// progress is the Bulk.Progress. A line that cannot be sent ends the bulk.
func (l *bulkLines) progress(r bulk.Report) {
	now := time.Now()
	if now.Sub(l.last) < bulkInterval {
		return
	}
	l.last = now
	l.call.w.Header().Set("Content-Type", wire.TypeNDJSON)
	if err := l.call.line(wire.BulkReportOf(r)); err != nil {
		l.end(err)
	}
}
