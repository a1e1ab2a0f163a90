package punctual

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// BulkChange is what a Bulk does with each message that it selects.
type BulkChange uint8

// The changes of Bulk.
const (
	// BulkCancel cancels messages, as Queue.Cancel does.
	BulkCancel BulkChange = iota + 1
	// BulkDelete deletes messages in the state that the Selection names, as Queue.Delete does.
	BulkDelete
	// BulkRequeue requeues dead messages for Bulk.When.
	BulkRequeue
	// BulkReschedule gives messages the due time Bulk.When, all the same one.
	BulkReschedule
	// BulkShift moves the due time of each message by Bulk.By, later or earlier.
	BulkShift
)

var bulkNames = [...]string{"", "cancel", "delete", "requeue", "reschedule", "shift"}

// String returns "cancel", "delete", "requeue", "reschedule" or "shift".
func (c BulkChange) String() string { return name(bulkNames[:], int(c)) }

// ParseBulkChange is the inverse of BulkChange.String.
func ParseBulkChange(name string) (BulkChange, error) {
	for i, n := range bulkNames {
		if n == name && n != "" {
			return BulkChange(i), nil
		}
	}
	return 0, invalidf("bulk change %q: use cancel, delete, requeue, reschedule or shift", name)
}

// Selection says which messages of a topic a Bulk changes: those for which every field that is set holds.
type Selection struct {
	// Topic is required.
	Topic string
	// State is the state of the messages. StateNone stands for the scheduled and the ready ones, for the scheduled ones when
	// a shift leads earlier, and for the dead ones of a requeue. A delete has to name the state. For a shift the state counts
	// that the messages have when the shift begins.
	State State
	// From and To bound the time by which ListQuery orders the state: the due time of scheduled and ready messages, the end
	// of the lease of leased ones, the time of death of dead ones. From is the first time included, To the first one excluded.
	// The zero Time sets no bound.
	From, To time.Time
	// Reason is why a message died. It needs StateDead, or a requeue.
	Reason DeathReason
	// Error is a part of the text of the latest failure.
	Error string
	// IDPrefix is what the ID begins with.
	IDPrefix string
	// Headers are headers with their values that a message has to have, all of them.
	Headers map[string]string
}

// matches reports whether a listed message, which has the state and lies between the bounds, is selected.
func (s *Selection) matches(m *Info) bool {
	if !strings.HasPrefix(m.ID, s.IDPrefix) {
		return false
	}
	if n := len(m.Failures); s.Error != "" && (n == 0 || !strings.Contains(m.Failures[n-1].Error, s.Error)) {
		return false
	}
	for name, value := range s.Headers {
		if got, ok := m.Headers[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// Bulk is one change of all messages that a Selection finds; see Queue.Bulk.
type Bulk struct {
	Do     BulkChange
	Select Selection
	// By is how far BulkShift moves each message, in whole milliseconds: later, or earlier when it is negative.
	By time.Duration
	// When is the due time for BulkRequeue and BulkReschedule. A delay counts from the store's clock when the bulk begins, so
	// that all messages get the same due time.
	When When
	// ID names a shift, 1 to 128 printable ASCII bytes, so that it is made once: for a day, another call with the ID continues the
	// shift, or does nothing when it is complete. The ID is for programs whose answer may get lost after the last message was
	// moved. With any other change an ID is ErrInvalid, because such a change may be repeated without one.
	ID string
	// DryRun counts what the bulk would change, and changes nothing.
	DryRun bool
	// Rate is the most changes in a second. 0, the default, sets no bound.
	Rate int
	// Wait, if not nil, waits for a duration, or until ctx ends, which it returns as an error. The bulk calls it to keep to the Rate.
	// nil waits by the clock of this process. A server with a bound on bulks does not count one that waits.
	Wait func(ctx context.Context, d time.Duration) error
	// Progress, if not nil, is called with the report so far, on the caller's goroutine: before the changes of a page, or of a
	// part of one, are sent to the store, and once more when the whole list has been read and Bulk returns no error.
	Progress func(BulkReport)
}

// BulkItem is a message that a bulk has selected.
type BulkItem struct {
	ID string
	// Due is the due time that the message has, and NewDue the one that the bulk gives it; NewDue is zero when it gives none.
	Due, NewDue time.Time
}

// BulkReport says what a bulk has done. The counts are those of one call, without the calls that it continues.
type BulkReport struct {
	// Looked is how many messages were read, and Matched how many of them the bulk is to change. Messages that were pushed after
	// it began, those that a reschedule finds at the new due time already, and those that a shift or reschedule finds retried
	// since it began, are in Looked alone.
	Looked, Matched int64
	// Done is how many were changed; in a dry run none is.
	Done int64
	// Leased is how many somebody works on. A cancel of these is noted: they get no further attempt.
	Leased int64
	// Changed is how many somebody else has moved or requeued since they were read. They stay as they are.
	Changed int64
	// Gone is how many were finished or removed since they were read, or died if the bulk cancels or moves them.
	Gone int64
	// Failed is how many the store refused with ErrInvalid, such as a shift beyond MaxDue, and Failure the first of these errors.
	Failed  int64
	Failure error
	// First are the first messages selected, at most 10.
	First []BulkItem
	// Continued is when the shift began that this call has continued, or found complete, by the store's clock; zero otherwise.
	Continued time.Time
}

// Bulk changes all messages that b.Select finds, page by page: it lists them without their bodies, and amends each by its ID
// on the condition that its due time is still the one listed (Amendment.IfDue). So what somebody else changes meanwhile stays
// as that caller has left it, and counts as Changed.
//
// Each message is changed once, also by a shift, which moves messages within the list that it reads: a shift to later times
// begins with the latest message and a shift to earlier times with the earliest. When Bulk returns an error, or its process is
// killed, the messages changed so far stay changed; call it again with the same Do, Select and By. For a shift that call
// continues where the first has stopped, so that no message is moved twice, unless more than a day (BulkMemory) has passed. After
// a shift without an ID that is complete, the same call is another shift. The place is kept in the store, in the companion topic
// bulk of the topic. Of two calls with the same shift at the same time one stops with ErrChanged.
//
// A message that is pushed after the bulk has begun is not selected, nor is one that was leased when its part of the list was
// read, unless the Selection names StateLeased.
//
// Bulk needs a store that is an Inspector; with any other it returns ErrUnsupported. Arguments that do not fit each other are
// ErrInvalid, and then nothing is changed. Any other error is about the call of the store that failed, and the report counts
// what was changed before. Of the changes that were sent together with the failed one, later ones may have been made, too.
func (q *Queue) Bulk(ctx context.Context, b Bulk) (BulkReport, error) {
	i, err := q.inspector()
	if err != nil {
		return BulkReport{}, err
	}
	states, err := b.states()
	if err != nil {
		return BulkReport{}, err
	}
	now, err := q.store.Now(ctx)
	if err != nil {
		return BulkReport{}, fmt.Errorf("bulk: %w", err)
	}
	r := bulkRun{
		Bulk: b, inspector: i, queue: q, started: time.Now(), begun: now.UnixMilli(),
		descending: b.Do == BulkShift && b.By > 0,
	}
	if r.Wait == nil {
		r.Wait = waitFor
	}
	complete, err := r.begin(ctx, now)
	if err != nil {
		return r.report, fmt.Errorf("bulk %s: %w", b.Do, err)
	}
	if complete {
		return r.report, nil
	}
	for _, state := range states {
		if err := r.list(ctx, r.query(state)); err != nil {
			return r.report, fmt.Errorf("bulk %s: %w", b.Do, err)
		}
	}
	if err := r.finish(ctx); err != nil {
		return r.report, fmt.Errorf("bulk %s: all messages are moved, and %w", b.Do, err)
	}
	if r.Progress != nil {
		r.Progress(r.report)
	}
	return r.report, nil
}

// states returns the states whose messages the bulk changes, in order, or the ErrInvalid of a bulk that makes no sense.
//
// The scheduled messages come before the ready ones, so that a message which becomes ready meanwhile is met in one of the two
// lists. A shift reads both, also when it names one of the two states, because query then bounds the due times.
func (b *Bulk) states() ([]State, error) {
	s := &b.Select
	shiftBy := b.By.Truncate(time.Millisecond)
	var byDefault, allowed []State
	switch waiting := []State{StateScheduled, StateReady}; b.Do {
	case BulkCancel:
		byDefault, allowed = waiting, []State{StateScheduled, StateReady, StateLeased}
	case BulkDelete:
		allowed = []State{StateScheduled, StateReady, StateLeased, StateDead}
	case BulkRequeue:
		byDefault = []State{StateDead}
		allowed = byDefault
	case BulkReschedule, BulkShift:
		byDefault, allowed = waiting, waiting
	default:
		return nil, invalidf("unknown bulk change %d", b.Do)
	}
	states := byDefault
	if s.State != StateNone {
		states = []State{s.State}
	}
	moves := b.Do == BulkRequeue || b.Do == BulkReschedule
	switch {
	case len(states) == 0:
		return nil, invalidf("bulk delete without a state: name scheduled, ready, leased or dead")
	case !slices.Contains(allowed, states[0]):
		return nil, invalidf("bulk %s of %s messages is not possible", b.Do, states[0])
	case s.Reason != "" && states[0] != StateDead:
		return nil, invalidf("bulk %s by reason of death: only dead messages have one", b.Do)
	case b.Do == BulkShift && (b.By == 0 || b.By != shiftBy):
		return nil, invalidf("bulk shift by %v: use whole milliseconds, like 1h or -90m", b.By)
	case b.Do != BulkShift && b.By != 0:
		return nil, invalidf("bulk %s by %v: only a shift has a length", b.Do, b.By)
	case b.When.err != nil:
		return nil, b.When.err
	case !moves && b.When != When{}:
		return nil, invalidf("bulk %s with a due time: only a requeue and a reschedule have one", b.Do)
	case b.ID != "" && b.Do != BulkShift:
		return nil, invalidf("bulk %s with an ID: only a shift has one", b.Do)
	case b.Rate < 0:
		return nil, invalidf("bulk with %d changes a second: use 1 or more, or 0 for no bound", b.Rate)
	}
	switch {
	case b.Do == BulkShift && b.By > 0:
		return []State{StateScheduled, StateReady}, nil
	case b.Do == BulkShift:
		return []State{StateScheduled}, nil // before each page list reads the ready messages
	}
	return states, nil
}

const (
	bulkPage  = 1000 // messages of one page
	bulkFirst = 10   // messages that a report shows
)

// bulkRun is one call of Bulk. One goroutine uses it.
type bulkRun struct {
	Bulk
	bulkPlace
	inspector  Inspector
	queue      *Queue
	descending bool
	started    time.Time // by the clock of this process, for the rate
	begun      int64     // the store's clock when the bulk began, in Unix ms; of a continued one, when the first call began
	due        time.Time // the due time that a requeue or reschedule gives
	last       time.Time // the due time of the latest message that was taken

	pending []Amendment // selected and not yet sent
	report  BulkReport
}

// begin works out the due time of a requeue or reschedule, and finds the place from which a shift continues. It reports whether
// the shift is complete already.
func (r *bulkRun) begin(ctx context.Context, now time.Time) (complete bool, err error) {
	if r.Do == BulkShift {
		return r.resume(ctx, now)
	}
	if r.due = r.When.due; r.due.IsZero() {
		r.due = now.Add(r.When.delay)
	}
	if r.When.delay < 0 || r.due.After(MaxDue) {
		return false, invalidf("the due time is negative or lies after %s", MaxDue.Format(time.RFC3339))
	}
	if ms := r.due.Truncate(time.Millisecond); ms.Before(r.due) {
		r.due = ms.Add(time.Millisecond)
	}
	return false, nil
}

// list goes through a list, page by page.
func (r *bulkRun) list(ctx context.Context, lq ListQuery) error {
	for {
		page, err := r.inspector.List(ctx, lq)
		if err != nil {
			return err
		}
		if r.Do == BulkShift && !r.descending && lq.State == StateScheduled {
			if err := r.listOvertaken(ctx, page); err != nil {
				return err
			}
		}
		for k := range page.Messages {
			if err := r.take(ctx, &page.Messages[k]); err != nil {
				return err
			}
		}
		if err := r.flush(ctx); err != nil {
			return err
		}
		if page.Next == "" {
			return nil
		}
		lq.After = page.Next
	}
}

// listOvertaken is for a shift to earlier times: it goes through the ready messages before a page of scheduled ones. They became
// ready before the page was read. They come before the page, because messages that are moved later may get the same due times.
func (r *bulkRun) listOvertaken(ctx context.Context, page Page) error {
	lq := r.query(StateReady)
	if r.last.After(lq.From) {
		lq.From = r.last
	}
	switch {
	case len(page.Messages) > 0:
		lq.To = page.Messages[0].Due
	case page.Next != "":
		return nil
	}
	return r.list(ctx, lq)
}

// query lists the messages of the state, from the window on that is under way.
//
// What a message was when the bulk began counts, because time passes while the bulk runs, and between the calls of a shift. A
// requeue ends with the messages that were dead, because a requeued message may die again. A shift of the scheduled messages
// moves those due after the begin, and a shift of the ready ones those due before it. Without a state a shift to earlier times
// leaves out what was ready: it would only look more late.
//
// A shift to later times reads the ready messages after the scheduled ones up to the window under way, because those that it has
// moved, all of them behind that window, may be ready by then.
func (r *bulkRun) query(state State) ListQuery {
	lq := ListQuery{
		Topic: r.Select.Topic, State: state, Reason: r.Select.Reason, From: r.Select.From, To: r.Select.To,
		Limit: bulkPage, Descending: r.descending, Bare: true,
	}
	begun := time.UnixMilli(r.begun + 1)
	shift, selected := r.Do == BulkShift, r.Select.State
	switch {
	case r.Do == BulkRequeue, shift && selected == StateReady:
		if lq.To.IsZero() || lq.To.After(begun) {
			lq.To = begun
		}
	case shift && (selected == StateScheduled || r.By < 0):
		if lq.From.Before(begun) {
			lq.From = begun
		}
	}
	switch {
	case !r.windowed:
	case r.descending:
		lq.To = time.UnixMilli(r.window + 1)
	default:
		lq.From = time.UnixMilli(r.window)
	}
	return lq
}

// take adds a listed message to what is to be changed, if the Selection selects it. Before the first message of a new window
// everything in the old one is changed.
func (r *bulkRun) take(ctx context.Context, m *Info) error {
	if at := listTime(m).UnixMilli(); r.Do == BulkShift && r.leaves(at) {
		if err := r.flush(ctx); err != nil {
			return err
		}
		r.window, r.windowed, r.kept = at, true, false
	}
	r.report.Looked++
	r.last = m.Due
	if m.Created.UnixMilli() > r.begun || !r.Select.matches(m) || r.retried(m) {
		return nil
	}
	a := Amendment{Topic: m.Topic, ID: m.ID, IfDue: m.Due}
	switch r.Do {
	case BulkCancel:
		a.Change = ChangeCancel
	case BulkDelete:
		a.Change = ChangeDelete
	case BulkRequeue:
		a.Change, a.Due = ChangeRequeue, r.due
	case BulkReschedule:
		a.Change, a.Due = ChangeReschedule, r.due
		if m.Due.Equal(a.Due) {
			return nil // the list meets the message at its new place
		}
	case BulkShift:
		a.Change, a.Due = ChangeReschedule, m.Due.Add(r.By)
	}
	r.report.Matched++
	if len(r.report.First) < bulkFirst {
		r.report.First = append(r.report.First, BulkItem{ID: m.ID, Due: m.Due, NewDue: a.Due})
	}
	if r.DryRun {
		return nil
	}
	r.pending = append(r.pending, a)
	if r.Rate > 0 && len(r.pending) >= r.Rate {
		return r.flush(ctx) // no more than a second's changes in one call
	}
	return nil
}

// retried reports whether the bulk moves messages to a time and an attempt at this one has failed since the bulk began: then its
// due time is that of the retry, also if the bulk had moved it before.
func (r *bulkRun) retried(m *Info) bool {
	n := len(m.Failures)
	return (r.Do == BulkShift || r.Do == BulkReschedule) && n > 0 && m.Failures[n-1].At.UnixMilli() > r.begun
}

// listTime is the time by which a list orders its messages.
func listTime(m *Info) time.Time {
	switch m.State {
	case StateLeased:
		return m.LeaseUntil
	case StateDead:
		return m.Died
	}
	return m.Due
}

// flush changes what is pending, and counts the answers. An error that is not about one message stops the bulk.
func (r *bulkRun) flush(ctx context.Context) error {
	if len(r.pending) == 0 {
		return nil
	}
	if err := r.pace(ctx); err != nil {
		return err
	}
	if r.Progress != nil {
		r.Progress(r.reported())
	}
	if err := r.keep(ctx); err != nil {
		return err
	}
	as := r.pending
	r.pending = r.pending[:0]
	// A BatchError of the call is dropped, because the answers that have an error are counted one by one below.
	answers, err := inParts(ctx, r.Do.String(), r.queue.amends, as,
		func(_ Amendment, err error) Amended { return Amended{Err: err} }, func(a Amended) error { return a.Err })
	if len(answers) < len(as) {
		return err
	}
	var stop error
	for i, answer := range answers {
		r.queue.observer.amended(ctx, as[i], answer, 0)
		stop = cmp.Or(stop, r.count(answer.Err))
	}
	return stop
}

// reported returns a report for Progress, which may keep it.
func (r *bulkRun) reported() BulkReport {
	report := r.report
	report.First = slices.Clone(report.First)
	return report
}

// count counts one answer, and returns the error if the bulk cannot go on with it.
func (r *bulkRun) count(err error) error {
	switch {
	case err == nil:
		r.report.Done++
	case errors.Is(err, ErrLeased):
		r.report.Leased++
	case errors.Is(err, ErrChanged), errors.Is(err, ErrNotDead):
		r.report.Changed++
	case errors.Is(err, ErrNotFound):
		r.report.Gone++
	case errors.Is(err, ErrInvalid):
		r.report.Failed++
		if r.report.Failure == nil {
			r.report.Failure = err
		}
	default:
		return err
	}
	return nil
}

// pace waits until the changes that are pending keep to the rate.
func (r *bulkRun) pace(ctx context.Context) error {
	if r.Rate == 0 {
		return ctx.Err()
	}
	made := r.report.Done + r.report.Leased + r.report.Changed + r.report.Gone + r.report.Failed
	due := r.started.Add(time.Duration(float64(made) / float64(r.Rate) * float64(time.Second)))
	wait := time.Until(due)
	if wait <= 0 {
		return ctx.Err()
	}
	return r.Wait(ctx, wait)
}

// waitFor is the Bulk.Wait of a Bulk that has none.
func waitFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
