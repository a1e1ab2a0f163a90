package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/storekit"
)

// deed is a change that somebody asks for, as the audit log names it.
type deed struct {
	// verb is a word of the project: "cancel", "reschedule", "requeue", "push", "configure", "purge", "delete topic".
	verb string
	// topic, and the message's ID if it is about one.
	topic, id string
	// detail is what else matters: the new due time, the settings that changed. It never has bodies.
	detail string
}

// result is what became of a change.
type result string

const (
	// resultBegun stands there while the change is under way, and for good when the console ended before it did.
	resultBegun result = "begun"
	resultDone  result = "done"
	// resultRefused: nothing was changed.
	resultRefused result = "refused"
	// resultUnknown: the store did not say whether it happened, or it happened in part.
	resultUnknown result = "unknown"
)

// entry is one change in the audit log.
type entry struct {
	At      time.Time `json:"at"`
	Who     string    `json:"who"`
	From    string    `json:"from,omitempty"` // the address of the browser, or of a proxy
	Verb    string    `json:"verb"`
	Topic   string    `json:"topic"`
	ID      string    `json:"id,omitempty"`
	Detail  string    `json:"detail,omitempty"`
	Result  result    `json:"result"`
	Changed int64     `json:"changed"`
	Error   string    `json:"error,omitempty"`
}

const (
	// auditRetention is how long an entry is kept.
	auditRetention = 90 * 24 * time.Hour
	// recordTime is how long the result of a change may take to be stored when the browser has gone.
	recordTime = 10 * time.Second
	// tidyEvery is how often what was kept long enough is removed.
	tidyEvery = time.Hour
)

// auditLog keeps the changes in the store that they change, as messages of a topic whose delivery is paused. An entry is due when it may be
// forgotten, and purged when it is ready. It is written before the change, and replaced by its result. So there is no
// change without an entry. Where the console ended in between, the entry says so.
type auditLog struct {
	store     punctual.Store
	inspector punctual.Inspector // nil when the store has none
	log       *slog.Logger

	mu     sync.Mutex
	tidied time.Time // by the store's clock; guarded by mu
}

// carryOut makes a change and has it recorded: do returns how many messages it changed. A change that cannot be recorded is not
// made, unless it helps against a full disk. One whose result cannot be recorded stays in the log as begun.
func (l *auditLog) carryOut(ctx context.Context, e entry, do func(ctx context.Context) (int64, error)) (int64, error) {
	now, err := l.store.Now(ctx)
	if err != nil {
		return 0, fmt.Errorf("record the change before it is made: read the store's clock: %w", err)
	}
	e.At, e.Result = now, resultBegun
	id := storekit.NewID(now)
	if err = l.tidy(ctx, now); err == nil {
		err = l.write(ctx, []string{id}, []entry{e})
	}
	if err != nil && !(e.makesRoom() && errors.Is(err, punctual.ErrNoSpace)) {
		return 0, fmt.Errorf("record the change before it is made, so nothing was done: %w", err)
	}
	n, failed := do(ctx)
	e.Changed, e.Result = n, resultDone
	if failed != nil {
		e.Result, e.Error = resultUnknown, failed.Error()
		if n == 0 && punctual.Definite(failed) {
			e.Result = resultRefused
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	if err := l.write(ctx, []string{id}, []entry{e}); err != nil {
		l.log.Error("the result of a change could not be recorded", "entry", id, "error", err)
	}
	l.say(&e)
	return n, failed
}

// makesRoom tells whether the change takes away, or stops what fills the disk. On a full one it is needed most.
func (e *entry) makesRoom() bool {
	switch e.Verb {
	case "purge", "delete topic", "cancel", "configure":
		return true
	}
	return false
}

// say writes the entry to the log of the program.
func (l *auditLog) say(e *entry) {
	l.log.Info("changed", "who", e.Who, "from", e.From, "verb", e.Verb, "topic", e.Topic, "id", e.ID, "detail", e.Detail,
		"result", string(e.Result), "changed", e.Changed, "error", e.Error)
}

// write stores entries, in the places of what was stored of them before.
func (l *auditLog) write(ctx context.Context, ids []string, entries []entry) error {
	ms := make([]punctual.NewMessage, len(entries))
	for i, e := range entries {
		e.Detail, e.Error, e.Who = storekit.TrimError(e.Detail), storekit.TrimError(e.Error), storekit.TrimError(e.Who)
		body, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("entry of the audit log: %w", err)
		}
		ms[i] = punctual.NewMessage{
			Topic: access.AuditTopic, ID: ids[i], Body: body, Due: e.At.Add(auditRetention), IfExists: punctual.IfExistsReplace,
		}
	}
	rs, err := l.store.Push(ctx, ms)
	for _, r := range rs {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	return nil
}

// tidy sees to it now and then that entries are not delivered, and that those which were kept long enough go.
func (l *auditLog) tidy(ctx context.Context, now time.Time) error {
	if l.inspector == nil {
		return nil // nobody claims from the topic unless he names it
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.tidied.IsZero() && now.Sub(l.tidied) < tidyEvery {
		return nil
	}
	paused := true
	if _, err := l.inspector.Configure(ctx, access.AuditTopic, punctual.SettingsPatch{DeliveryPaused: &paused}); err != nil {
		return fmt.Errorf("set up the audit log, so nothing was done: %w", err)
	}
	if _, err := l.inspector.Purge(ctx, punctual.PurgeQuery{Topic: access.AuditTopic, State: punctual.StateReady}); err != nil {
		return fmt.Errorf("remove old entries of the audit log, so nothing was done: %w", err)
	}
	l.tidied = now
	return nil
}

// carryOut makes a change and has it recorded: do returns how many messages it changed.
func (c *call) carryOut(d deed, do func(ctx context.Context) (int64, error)) (int64, error) {
	from := c.r.RemoteAddr
	if host, _, err := net.SplitHostPort(from); err == nil {
		from = host
	}
	e := entry{Who: c.user(), From: from, Verb: d.verb, Topic: d.topic, ID: d.id, Detail: d.detail}
	return c.console.audit.carryOut(c.r.Context(), e, do)
}

const (
	// maxWindow bounds the entries that are read of one stretch of time.
	maxWindow = 1000
	// maxLooks bounds the calls of the store for a page.
	maxLooks = 50
	// grain is the finest stretch of time: a store keeps times in milliseconds.
	grain = time.Millisecond
)

// before returns at least n entries older than an instant, the newest first. It also returns where to go on, or zero
// when there are no more. A store lists in the order of time, so it looks at stretches that end at the instant, longer
// ones where there is little.
func (l *auditLog) before(ctx context.Context, to, now time.Time, n int) (found []entry, next time.Time, err error) {
	oldest := now.Add(-auditRetention)
	width := time.Hour
	for range maxLooks {
		if len(found) >= n || !to.After(oldest) {
			break
		}
		from := to.Add(-width)
		if from.Before(oldest) {
			from = oldest
		}
		part, whole, err := l.between(ctx, from, to)
		if err != nil {
			return nil, next, err
		}
		if !whole && width > grain {
			width = max(width/16, grain)
			continue
		}
		slices.Reverse(part)
		found = append(found, part...)
		to, width = from, 4*width
	}
	if len(found) > n {
		end := n
		for end < len(found) && found[end].At.Equal(found[end-1].At) {
			end++ // those of one instant stay together, since a page ends at an instant
		}
		found = found[:end]
		return found, found[end-1].At, nil
	}
	if to.After(oldest) {
		next = to
	}
	return found, next, nil
}

// between returns the entries from one instant on and before another one, the oldest first, or says that there are too many.
func (l *auditLog) between(ctx context.Context, from, to time.Time) (found []entry, whole bool, err error) {
	page, err := l.inspector.List(ctx, punctual.ListQuery{
		Topic: access.AuditTopic, State: punctual.StateScheduled, From: from.Add(auditRetention), To: to.Add(auditRetention), Limit: maxWindow,
	})
	if err != nil {
		return nil, false, fmt.Errorf("read the audit log: %w", err)
	}
	for i := range page.Messages {
		m := &page.Messages[i]
		e := entry{At: m.Due.Add(-auditRetention)}
		if err := json.Unmarshal(m.Body, &e); err != nil {
			e.Error = fmt.Sprintf("this entry cannot be read: %v", err)
		}
		e.At = m.Due.Add(-auditRetention)
		found = append(found, e)
	}
	return found, page.Next == "", nil
}

// auditPage is who changed what.
type auditPage struct {
	*frame
	Entries []auditRow
	Older   string // where older ones are, or ""
	Newest  string // where the newest are, or "" when they are shown
}

// auditRow is one entry as it is shown.
type auditRow struct {
	At                                                time.Time
	Who, From, Verb, Topic, ID, Detail, Result, Error string
	Changed                                           int64
	// TopicPath and MessagePath lead there, or are "" where somebody may not look or there is nothing to look at.
	TopicPath, MessagePath string
}

// auditRows is how many entries a page shows.
const auditRows = 50

func (c *call) showAudit() error {
	if err := c.may(access.Inspect, access.AuditTopic); err != nil {
		return err
	}
	if _, err := c.inspector(); err != nil {
		return err
	}
	now, err := c.now()
	if err != nil {
		return err
	}
	to := now.Add(grain)
	p := &auditPage{frame: c.frame("audit")}
	p.Now = now
	if text := c.get("before"); text != "" {
		if to, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return fmt.Errorf("before=%q: write a time like 2026-11-20T10:00:00Z: %w", text, punctual.ErrInvalid)
		}
		p.Newest = p.Path("/audit")
	}
	entries, next, err := c.console.audit.before(c.r.Context(), to, now, auditRows)
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

// row is an entry with its texts made safe to look at.
func (p *auditPage) row(e entry) auditRow {
	row := auditRow{
		At: e.At, Who: visible(e.Who), From: visible(e.From), Verb: visible(e.Verb), Topic: visible(e.Topic), ID: visible(e.ID),
		Detail: visible(e.Detail), Result: visible(string(e.Result)), Error: visible(e.Error), Changed: e.Changed,
	}
	if e.Topic != "" && p.call.may(access.Inspect, e.Topic) == nil {
		row.TopicPath = p.frame.TopicPath(e.Topic)
		if e.ID != "" {
			row.MessagePath = p.frame.MessagePath(e.Topic, e.ID)
		}
	}
	row.Who = cmp.Or(row.Who, "?")
	return row
}
