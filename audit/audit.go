// Package audit records who changed what in a store. It keeps the entries in that store itself, as
// messages of the topic access.AuditTopic. Each message is one entry. It is due when its retention
// ends. If the store is a punctual.Inspector, the delivery of the topic is paused, and a later
// change purges the entries whose retention has ended.
//
// A change other than an amendment is entered as begun before it is made, and its entry is replaced
// by one with the result, so that there is no such change without an entry even if the process ends
// in between. Only on a full disk a change that makes room may be without one. Amendments are
// entered after they are made, several in one entry, because programs make them all day.
package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/storekit"
)

// Change is a change that a principal asks for.
type Change struct {
	// Who is the name of the principal that asks for the change. From is the address of the
	// request, or of a proxy.
	Who, From string
	// Verb is "configure", "purge", "delete topic", "push", "cancel", "reschedule", "requeue" or
	// "delete", "amend" for a request with unlike ones of the last four, a verb of schedules such
	// as "put schedule", or one of bulk changes such as "bulk cancel".
	Verb string
	// Topic is empty for a change of several topics. ID is that of the message, or the name of the
	// schedule, if the change is about one.
	Topic, ID string
	// IDs, if not nil, is called after a change of several messages by their IDs, and returns the
	// IDs of those that were changed. In a change of several topics each stands behind its topic
	// and a space.
	IDs func() []string
	// Detail describes the change further, for example with the settings, the state, or when a
	// message is due. It never contains bodies. It is cut to limits.MaxErrorBytes.
	Detail string
	// Amends marks a change of messages by their IDs, which is entered after it was made. It must
	// be false for a change that deletes messages, because deleted messages leave no other trace.
	Amends bool
}

// Result is the result of a change.
type Result string

// The results.
const (
	// Begun means that the change is under way, that the process ended during the change, or that
	// its result could not be entered.
	Begun Result = "begun"
	// Done means that the change was made.
	Done Result = "done"
	// Refused means that nothing was changed.
	Refused Result = "refused"
	// Unknown means that the store did not say whether the change was made, or that only a part of
	// it was made.
	Unknown Result = "unknown"
)

// Entry is one change in the log, or several amendments of one kind. It is stored as JSON.
type Entry struct {
	At      time.Time `json:"at"` // by the store's clock
	Who     string    `json:"who"`
	From    string    `json:"from,omitempty"`
	Verb    string    `json:"verb"`
	Topic   string    `json:"topic"`
	ID      string    `json:"id,omitempty"`
	IDs     []string  `json:"ids,omitempty"` // of several messages that were changed by ID, as far as there is room
	Detail  string    `json:"detail,omitempty"`
	Result  Result    `json:"result"`
	Changed int64     `json:"changed"` // how many messages were changed; 1 for a change of settings or of a schedule
	Error   string    `json:"error,omitempty"`

	idBytes int // of IDs
}

func (ch *Change) entry() Entry {
	return Entry{Who: ch.Who, From: ch.From, Verb: ch.Verb, Topic: ch.Topic, ID: ch.ID, Detail: ch.Detail}
}

// addIDs adds the IDs of messages that were changed, as far as an entry has room for them. It
// leaves out empty ones.
func (e *Entry) addIDs(ids ...string) {
	for _, id := range ids {
		if id == "" {
			continue
		}
		if e.idBytes += len(id); len(e.IDs) == maxIDs || e.idBytes > maxIDBytes {
			return
		}
		e.IDs = append(e.IDs, id)
	}
}

const (
	// Retention is how long an entry is kept.
	Retention = 90 * 24 * time.Hour
	// recordTime bounds how long it takes to store the result of a change, also if its request has
	// ended.
	recordTime = 10 * time.Second
	// maxIDs and maxIDBytes bound the IDs of an entry.
	maxIDs     = 100
	maxIDBytes = 4096
	// tidyInterval is the least time between two removals of entries past their retention, which a
	// change that is entered makes.
	tidyInterval = time.Hour
)

// Log is the audit log of a store. Make one with New. Its methods are safe for concurrent use.
type Log struct {
	store     punctual.Store
	inspector punctual.Inspector // nil when the store has none
	log       *slog.Logger
	coalescer coalescer

	mu     sync.Mutex
	tidied time.Time // when the log was tidied last, by the store's clock; guarded by mu
}

// New returns the audit log of a store. The caller still owns the store, and closes the Log before
// it. Each entry with its result also goes to the logger.
func New(store punctual.Store, log *slog.Logger) *Log {
	l := &Log{store: store, log: log}
	l.inspector, _ = punctual.As[punctual.Inspector](store)
	l.coalescer = coalescer{write: l.enter, closed: make(chan struct{})}
	return l
}

// Close enters the amendments that were counted and not entered yet. Changes after Close are still
// entered, each in an entry of its own.
func (l *Log) Close() { l.coalescer.close() }

// Record calls do, which makes the change and returns how many messages it changed, and enters the
// change. It returns what do returns.
//
// If a change without Amends cannot be entered, Record does not make it and returns an error that
// says so. The exception is a change that makes room on a full disk. If only the result of a change
// cannot be entered, its entry stays as begun.
//
// A change with Amends is entered after it was made, unless it changed nothing. The log counts
// amendments for 10 seconds at a time, from the first one on. In each such time the first one of a
// principal with a verb in a topic has an entry of its own at once. The principal's later ones with
// that verb in that topic share one more entry, which says how many calls they were if there were
// several, and the IDs of the first messages, so that programs which amend all day do not fill the
// log.
func (l *Log) Record(ctx context.Context, ch Change, do func(ctx context.Context) (int64, error)) (int64, error) {
	if ch.Amends {
		return l.recordAmendment(ctx, ch, do)
	}
	return l.recordChange(ctx, ch, do)
}

func (l *Log) recordChange(ctx context.Context, ch Change, do func(ctx context.Context) (int64, error)) (int64, error) {
	e := ch.entry()
	now, err := l.store.Now(ctx)
	if err != nil {
		return 0, fmt.Errorf("record the change before it is made: read the store's clock: %w", err)
	}
	e.At, e.Result = now, Begun
	id := storekit.NewID(now)
	if err = l.tidy(ctx, now); err == nil {
		err = l.write(ctx, []string{id}, []Entry{e})
	}
	if err != nil && !(e.makesRoom() && errors.Is(err, punctual.ErrNoSpace)) {
		return 0, fmt.Errorf("record the change before it is made, so nothing was done: %w", err)
	}
	n, failed := do(ctx)
	e.setResult(&ch, n, failed)
	if failed != nil && n == 0 && punctual.Definite(failed) {
		e.Result = Refused
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	if err := l.write(ctx, []string{id}, []Entry{e}); err != nil {
		l.log.Error("the result of a change could not be recorded", "entry", id, "error", err)
	}
	l.print(&e)
	return n, failed
}

func (l *Log) recordAmendment(ctx context.Context, ch Change, do func(ctx context.Context) (int64, error)) (int64, error) {
	n, err := do(ctx)
	if n == 0 && (err == nil || punctual.Definite(err)) {
		return n, err // nothing was changed
	}
	e := ch.entry()
	e.setResult(&ch, n, err)
	if l.coalescer.add(&e) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
		defer cancel()
		l.enter(ctx, e)
	}
	return n, err
}

func (e *Entry) setResult(ch *Change, changed int64, err error) {
	e.Changed, e.Result = changed, Done
	if ch.IDs != nil {
		e.addIDs(ch.IDs()...)
	}
	if err != nil {
		e.Result, e.Error = Unknown, err.Error()
	}
}

// makesRoom reports whether the change is one of those that are needed most when the disk is full:
// they remove messages or can stop pushes. An "amend" is one because recordChange gets it only if
// it deletes messages.
func (e *Entry) makesRoom() bool {
	switch e.Verb {
	case "purge", "delete topic", "delete", "cancel", "amend", "configure", "bulk delete", "bulk cancel", "delete schedule":
		return true
	}
	return false
}

// print writes the entry to the log of the program.
func (l *Log) print(e *Entry) {
	l.log.Info("changed", "who", e.Who, "from", e.From, "verb", e.Verb, "topic", e.Topic, "id", e.ID, "ids", e.IDs, "detail", e.Detail,
		"result", string(e.Result), "changed", e.Changed, "error", e.Error)
}

// enter stores new entries of changes that were made, and writes them to the log of the program. An
// error of the store goes to that log as well and is not returned, because the changes were made
// already.
func (l *Log) enter(ctx context.Context, entries ...Entry) {
	err := l.tryEnter(storekit.WithoutRequest(ctx), entries)
	for i := range entries {
		l.print(&entries[i])
	}
	if err != nil {
		l.log.Error("changes could not be entered into the audit log", "entries", len(entries), "error", err)
	}
}

func (l *Log) tryEnter(ctx context.Context, entries []Entry) error {
	now, err := l.store.Now(ctx)
	if err != nil {
		return fmt.Errorf("read the store's clock: %w", err)
	}
	if err := l.tidy(ctx, now); err != nil {
		return err
	}
	ids := make([]string, len(entries))
	for i := range entries {
		entries[i].At, ids[i] = now, storekit.NewID(now)
	}
	return l.write(ctx, ids, entries)
}

// write stores entries under these IDs and replaces entries that have the same IDs.
func (l *Log) write(ctx context.Context, ids []string, entries []Entry) error {
	ms := make([]punctual.NewMessage, len(entries))
	for i, e := range entries {
		e.Detail, e.Error, e.Who = storekit.TrimError(e.Detail), storekit.TrimError(e.Error), storekit.TrimError(e.Who)
		body, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("entry of the audit log: %w", err)
		}
		ms[i] = punctual.NewMessage{
			Topic: access.AuditTopic, ID: ids[i], Body: body, Due: e.At.Add(Retention), IfExists: punctual.IfExistsReplace,
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

// tidy pauses the delivery of the topic and removes entries past their retention. After a success
// it does nothing for tidyInterval.
func (l *Log) tidy(ctx context.Context, now time.Time) error {
	if l.inspector == nil {
		return nil // the topic is not paused then, but entries are delivered only to a consumer that claims from it
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.tidied.IsZero() && now.Sub(l.tidied).Abs() < tidyInterval {
		return nil
	}
	paused := true
	if _, err := l.inspector.Configure(ctx, access.AuditTopic, punctual.SettingsPatch{DeliveryPaused: &paused}); err != nil {
		return fmt.Errorf("set up the audit log: %w", err)
	}
	if _, err := l.inspector.Purge(ctx, punctual.PurgeQuery{Topic: access.AuditTopic, State: punctual.StateReady}); err != nil {
		return fmt.Errorf("remove old entries of the audit log: %w", err)
	}
	l.tidied = now
	return nil
}

const (
	// maxWindow bounds the entries that one call of the store returns.
	maxWindow = 1000
	// maxReads bounds the windows that one call of Before reads.
	maxReads = 50
	// Grain is the least difference between two different times of entries, because stores keep
	// times in milliseconds.
	Grain = time.Millisecond
)

// Before returns the newest entries older than to, the newest first, and the instant from which to
// go on, which is zero if there are no older entries. There are at most n entries, or more because
// those of the same instant are returned together. now is the time of the store's clock. The store
// must be a punctual.Inspector.
//
// Before lists the entries in ascending order, so it reads windows of time: one that ends at to,
// and then others further back. It widens the window where there are few entries and narrows it
// where there are more than one call returns.
func (l *Log) Before(ctx context.Context, to, now time.Time, n int) (found []Entry, next time.Time, err error) {
	oldest := now.Add(-Retention)
	width := time.Hour
	for range maxReads {
		if len(found) >= n || !to.After(oldest) {
			break
		}
		from := to.Add(-width)
		if from.Before(oldest) {
			from = oldest
		}
		part, whole, err := between(ctx, l.inspector, from, to)
		if err != nil {
			return nil, next, err
		}
		if !whole {
			width = max(width/16, Grain)
			continue
		}
		slices.Reverse(part)
		found = append(found, part...)
		to, width = from, 4*width
	}
	if len(found) > n {
		end := n
		for end < len(found) && found[end].At.Equal(found[end-1].At) {
			end++ // the next call goes on before this instant, so all entries of the instant have to be on this page
		}
		found = found[:end]
		return found, found[end-1].At, nil
	}
	if to.After(oldest) {
		next = to
	}
	return found, next, nil
}

// Canceller returns the entry of the cancel that ended a message, or nil if the message ended in
// another way, if the log has no such entry, or if the log may not be read (ErrForbidden). An entry
// has room for some IDs alone, so the cancel of a program that makes many may be missing. A cancel
// of all messages that match has no IDs.
func Canceller(ctx context.Context, i punctual.Inspector, f *punctual.Finished) (*Entry, error) {
	if f.Outcome != punctual.OutcomeCancelled {
		return nil, nil
	}
	// A change is entered before it is made, and amendments afterwards, within coalesceTime.
	from, to := f.At.Add(-recordTime), f.At.Add(coalesceTime+recordTime)
	if !f.Delivered.IsZero() && f.Delivered.Before(from) {
		from = f.Delivered // the cancel may have come at any time of the last lease, with which the message then ended
	}
	all, whole, err := between(ctx, i, from, to)
	if err == nil && !whole {
		all, _, err = between(ctx, i, f.At.Add(-recordTime), to)
	}
	if errors.Is(err, punctual.ErrForbidden) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range slices.Backward(all) {
		if e.Result != Refused && (e.Verb == "cancel" || e.Verb == "amend") && e.names(f.Topic, f.ID) {
			return &e, nil
		}
	}
	return nil, nil
}

// names reports whether the entry has the ID of a message.
func (e *Entry) names(topic, id string) bool {
	return e.Topic == topic && (e.ID == id || slices.Contains(e.IDs, id)) || e.Topic == "" && slices.Contains(e.IDs, topic+" "+id)
}

// Pauser returns the entry of the change that has paused the delivery of a topic which is paused,
// or nil if the newest maxWindow entries have none. now is the time of the store's clock. The store
// must be a punctual.Inspector.
func (l *Log) Pauser(ctx context.Context, topic string, now time.Time) (*Entry, error) {
	all, _, err := l.Before(ctx, now.Add(Grain), now, maxWindow)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if e.Topic != topic || e.Verb != "configure" || e.Result == Refused {
			continue
		}
		for _, on := range []string{"delivery paused: true", `"delivery_paused":true`} {
			if strings.Contains(e.Detail, on) {
				return &e, nil
			}
		}
		for _, off := range []string{"delivery paused: false", `"delivery_paused":false`} {
			if strings.Contains(e.Detail, off) {
				return nil, nil // whoever paused the topic since then has left no entry
			}
		}
	}
	return nil, nil
}

// between returns the entries from one instant until before another one, the oldest first. whole is
// false if the store says that there are more than it has returned, at most maxWindow. Entries that
// differ by less than a Grain have one instant and are always whole, because there is no narrower
// window to read them in.
func between(ctx context.Context, i punctual.Inspector, from, to time.Time) (found []Entry, whole bool, err error) {
	q := punctual.ListQuery{
		Topic: access.AuditTopic, State: punctual.StateScheduled, From: from.Add(Retention), To: to.Add(Retention), Limit: maxWindow,
	}
	for {
		page, err := i.List(ctx, q)
		if err != nil {
			return nil, false, fmt.Errorf("read the audit log: %w", err)
		}
		for k := range page.Messages {
			m := &page.Messages[k]
			var e Entry
			if err := json.Unmarshal(m.Body, &e); err != nil {
				e.Error = fmt.Sprintf("this entry cannot be read: %v", err)
			}
			e.At = m.Due.Add(-Retention)
			found = append(found, e)
		}
		if whole = page.Next == ""; whole || to.Sub(from) > Grain {
			return found, whole, nil
		}
		q.After = page.Next
	}
}
