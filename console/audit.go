package console

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
)

// Record makes a change, such as one that somebody asks for over the HTTP interface, and enters the
// change into the audit log as audit.Log.Record does. The next page that shows counts then counts
// anew, unless that is costly. Pass Record as Options.Record of the server beside the console.
func (c *Console) Record(ctx context.Context, ch audit.Change, do func(ctx context.Context) (int64, error)) (int64, error) {
	defer c.reader.Recount()
	return c.audit.Record(ctx, ch, do)
}

// record makes a change that a form asks for, by calling do, and enters the change into the audit
// log. do returns how many messages it has changed.
func (c *call) record(ch audit.Change, do func(ctx context.Context) (int64, error)) (int64, error) {
	return c.console.Record(c.r.Context(), c.change(ch), do)
}

// recorder is audit.Log.Record for one change: it calls do, which makes the change, and enters the
// change into the audit log.
type recorder func(ctx context.Context, do func(ctx context.Context) (int64, error)) (int64, error)

// recorder returns the recorder of a change. It may be called also after this request has ended.
func (c *call) recorder(ch audit.Change) recorder {
	ch = c.change(ch)
	return func(ctx context.Context, do func(ctx context.Context) (int64, error)) (int64, error) {
		return c.console.Record(ctx, ch, do)
	}
}

// change returns ch with the principal and the address of this request.
func (c *call) change(ch audit.Change) audit.Change {
	ch.Who, ch.From = c.user(), c.r.RemoteAddr
	if host, _, err := net.SplitHostPort(ch.From); err == nil {
		ch.From = host
	}
	return ch
}

// auditPage shows who changed what.
type auditPage struct {
	*frame
	Entries []auditRow
	Older   string // the path of the page with older entries, or ""
	Newest  string // the path of the page with the newest entries, or "" on that page
}

// auditRow is one entry as the page shows it, with texts that are safe to show.
type auditRow struct {
	At                                                time.Time
	Who, From, Verb, Topic, ID, Detail, Result, Error string
	IDs                                               []string
	Changed                                           int64
	// TopicPath leads to the topic, MessagePath to the message or the schedule. Each is empty if
	// the entry names none, or if the reader may not inspect the topic.
	TopicPath, MessagePath string
}

// auditRows is about how many entries a page shows: entries of the same instant stand on the same
// page.
const auditRows = 50

func (c *call) showAudit() error {
	if err := c.may(access.Inspect, access.AuditTopic); err != nil {
		return err
	}
	now, err := c.now()
	if err != nil {
		return err
	}
	to := now.Add(audit.Grain)
	p := &auditPage{frame: c.frame("audit")}
	p.Now = now
	if text := c.get("before"); text != "" {
		if to, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return fmt.Errorf("before=%q: write a time like 2026-11-20T10:00:00Z: %w", text, punctual.ErrInvalid)
		}
		p.Newest = p.Path("/audit")
	}
	entries, next, err := c.console.audit.Before(c.r.Context(), to, now, auditRows)
	if err != nil {
		return err
	}
	if !next.IsZero() {
		p.Older = p.Path("/audit?before=" + next.UTC().Format(time.RFC3339Nano))
	}
	for _, e := range entries {
		p.Entries = append(p.Entries, p.row(e))
	}
	return c.show("audit", p)
}

// row returns the row of an entry.
func (p *auditPage) row(e audit.Entry) auditRow {
	row := auditRow{
		At: e.At, Who: visible(e.Who), From: visible(e.From), Verb: visible(e.Verb), Topic: visible(e.Topic), ID: visible(e.ID),
		Detail: visible(e.Detail), Result: visible(string(e.Result)), Error: visible(e.Error), Changed: e.Changed,
	}
	for _, id := range e.IDs {
		row.IDs = append(row.IDs, visible(id))
	}
	if e.Topic != "" && p.call.may(access.Inspect, e.Topic) == nil {
		row.TopicPath = p.frame.TopicPath(e.Topic)
		switch {
		case e.ID == "":
		case strings.HasSuffix(e.Verb, " schedule"):
			row.MessagePath = p.frame.SchedulePath(e.Topic, e.ID)
		default:
			row.MessagePath = p.frame.MessagePath(e.Topic, e.ID)
		}
	}
	row.Who = cmp.Or(row.Who, "?")
	return row
}
