// Package bulk changes all messages of a topic that match: by state, time, reason, error, ID prefix
// and headers. Run cancels, deletes, requeues, reschedules or shifts them, with a dry run and a
// rate.
package bulk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Change is what a bulk does with each message that it selects.
type Change uint8

// The changes that there are.
const (
	// Cancel cancels messages, as Queue.Cancel does.
	Cancel Change = iota + 1
	// Delete deletes messages in the state that the Selection names, as Queue.Delete does.
	Delete
	// Requeue requeues dead messages for Job.When.
	Requeue
	// Reschedule gives messages the due time Job.When, all the same one.
	Reschedule
	// Shift moves the due time of each message by Job.By, later or earlier.
	Shift
)

var names = [...]string{"", "cancel", "delete", "requeue", "reschedule", "shift"}

// String returns "cancel", "delete", "requeue", "reschedule" or "shift".
func (c Change) String() string { return storekit.Word(names[:], int(c)) }

// ParseChange is the inverse of Change.String.
func ParseChange(name string) (Change, error) {
	for i, n := range names {
		if n == name && n != "" {
			return Change(i), nil
		}
	}
	return 0, storekit.Invalidf("bulk change %q: use cancel, delete, requeue, reschedule or shift", name)
}

// Selection says which messages of a topic a bulk changes: those for which every field that is set
// holds.
type Selection struct {
	// Topic is required.
	Topic string
	// State is the state of the messages. StateNone stands for the scheduled and the ready ones,
	// for the scheduled ones when a shift leads earlier, and for the dead ones of a requeue. A
	// delete has to name the state. For a shift the state counts that the messages have when the
	// shift begins.
	State punctual.State
	// From and To bound the time by which ListQuery orders the state: the due time of scheduled and
	// ready messages, the end of the lease of leased ones, the time of death of dead ones. From is
	// the first time included, To the first one excluded. The zero Time sets no bound.
	From, To time.Time
	// Reason is why a message died. It needs StateDead, or a requeue.
	Reason punctual.DeathReason
	// Error is a part of the text of the latest failure.
	Error string
	// IDPrefix is what the ID begins with.
	IDPrefix string
	// Key is the key of the messages (punctual.NewMessage.Key).
	Key string
	// Headers are headers with their values that a message has to have, all of them.
	Headers map[string]string
	// Only, if not nil, returns whether a message is selected for which all other fields hold. A
	// shift with an Only is ErrInvalid, because the call that continues it could not know whether
	// it selects the same messages.
	Only func(*punctual.Info) bool
}

// matches reports whether a listed message, which has the state and lies between the bounds, is
// selected.
func (s *Selection) matches(m *punctual.Info) bool {
	if !strings.HasPrefix(m.ID, s.IDPrefix) || s.Key != "" && m.Key != s.Key {
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
	return s.Only == nil || s.Only(m)
}

// Job is one change of all messages that a Selection finds; see Run.
type Job struct {
	Do     Change
	Select Selection
	// By is how far Shift moves each message, in whole milliseconds: later, or earlier when it is
	// negative.
	By time.Duration
	// When is the due time for Requeue and Reschedule. A delay counts from the store's clock when
	// the bulk begins, so that all messages get the same due time.
	When punctual.When
	// Spread makes the messages of a Requeue due at different times in this span from When on, so
	// that consumers are not flooded. The times are spread evenly, however many messages match,
	// but not in the order of the messages. 0, the default, makes all due at When. With any other
	// change it is ErrInvalid.
	Spread time.Duration
	// ID names a shift, 1 to 128 printable ASCII bytes, so that it is made once: for a day, another
	// call with the ID continues the shift, or does nothing when it is complete. The ID is for
	// programs whose answer may get lost after the last message was moved. With any other change an
	// ID is ErrInvalid, because such a change may be repeated without one.
	ID string
	// DryRun counts what the bulk would change, and changes nothing.
	DryRun bool
	// Rate is the most changes in a second. 0, the default, sets no bound.
	Rate int
	// Wait, if not nil, waits for a duration, or until ctx ends, which it returns as an error. The
	// bulk calls it to keep to the Rate. nil waits by the clock of this process. A server with a
	// bound on bulks does not count one that waits.
	Wait func(ctx context.Context, d time.Duration) error
	// Progress, if not nil, is called with the report so far, on the caller's goroutine: before the
	// changes of a page, or of a part of one, are sent to the store, and once more when the whole
	// list has been read and Run returns no error.
	Progress func(Report)
}

// Item is a message that a bulk has selected.
type Item struct {
	ID string
	// Due is the due time that the message has, and NewDue the one that the bulk gives it; NewDue
	// is zero when it gives none.
	Due, NewDue time.Time
}

// Report says what a bulk has done. The counts are those of one call, without the calls that it
// continues.
type Report struct {
	// Looked is how many messages were read, and Matched how many of them the bulk is to change.
	// Messages that were pushed after it began, those that a reschedule finds at the new due time
	// already, and those that a shift or reschedule finds retried since it began, are in Looked
	// alone.
	Looked, Matched int64
	// Done is how many were changed; in a dry run none is.
	Done int64
	// Leased is how many somebody works on. A cancel of these is noted: they get no further
	// attempt.
	Leased int64
	// Changed is how many somebody else has moved or requeued since they were read. They stay as
	// they are.
	Changed int64
	// Gone is how many were finished or removed since they were read, or died if the bulk cancels
	// or moves them.
	Gone int64
	// Failed is how many the store refused with ErrInvalid, such as a shift beyond limits.MaxDue,
	// and Failure the first of these errors.
	Failed  int64
	Failure error
	// First are the first messages selected, at most 10.
	First []Item
	// Continued is when the shift began, by the store's clock, if an earlier call began it and this
	// call has continued it or found it complete; zero otherwise.
	Continued time.Time
}

// Run changes all messages that b.Select finds, page by page: it lists them without their bodies,
// and amends each by its ID on the condition that its due time is still the one listed
// (Amendment.IfDue). So what somebody else changes meanwhile stays as that caller has left it, and
// counts as Changed.
//
// Each message is changed once, also by a shift, which moves messages within the list that it
// reads: a shift to later times begins with the latest message and a shift to earlier times with
// the earliest. When Run returns an error, or its process is killed, the messages changed so far
// stay changed; call it again with the same Do, Select and By. For a shift that call continues
// where the first has stopped, so that no message is moved twice, unless more than a day (Memory)
// has passed. After a shift without an ID that is complete, the same call is another shift. The
// place is kept in the store, in the companion topic bulk of the topic. Of two calls with the same
// shift at the same time one stops with ErrChanged.
//
// A message that is pushed after the bulk has begun is not selected, nor is one that was leased
// when its part of the list was read, unless the Selection names StateLeased.
//
// Run needs a store that is an Inspector; with any other it returns ErrUnsupported. Arguments that
// do not fit each other are ErrInvalid, and then nothing is changed. Any other error is about the
// call of the store that failed, and the report counts what was changed before. Of the changes that
// were sent together with the failed one, later ones may have been made, too.
func Run(ctx context.Context, q *punctual.Queue, b Job) (Report, error) {
	i, err := punctual.As[punctual.Inspector](q.Store())
	if err != nil {
		return Report{}, err
	}
	states, err := b.states()
	if err != nil {
		return Report{}, err
	}
	now, err := q.Store().Now(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("bulk: %w", err)
	}
	r := bulkRun{
		Job: b, inspector: i, queue: q, started: time.Now(), begun: now.UnixMilli(),
		descending: b.Do == Shift && b.By > 0,
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

// states returns the states whose messages the bulk changes, in order, or the ErrInvalid of a bulk
// that makes no sense.
//
// The scheduled messages come before the ready ones, so that a message which becomes ready
// meanwhile is met in one of the two lists. A shift reads both, also when it names one of the two
// states, because query then bounds the due times.
func (b *Job) states() ([]punctual.State, error) {
	s := &b.Select
	shiftBy := b.By.Truncate(time.Millisecond)
	var byDefault, allowed []punctual.State
	switch waiting := []punctual.State{punctual.StateScheduled, punctual.StateReady}; b.Do {
	case Cancel:
		byDefault, allowed = waiting, []punctual.State{punctual.StateScheduled, punctual.StateReady, punctual.StateLeased}
	case Delete:
		allowed = []punctual.State{punctual.StateScheduled, punctual.StateReady, punctual.StateLeased, punctual.StateDead}
	case Requeue:
		byDefault = []punctual.State{punctual.StateDead}
		allowed = byDefault
	case Reschedule, Shift:
		byDefault, allowed = waiting, waiting
	default:
		return nil, storekit.Invalidf("unknown bulk change %d", b.Do)
	}
	states := byDefault
	if s.State != punctual.StateNone {
		states = []punctual.State{s.State}
	}
	moves := b.Do == Requeue || b.Do == Reschedule
	switch {
	case len(states) == 0:
		return nil, storekit.Invalidf("bulk delete without a state: name scheduled, ready, leased or dead")
	case !slices.Contains(allowed, states[0]):
		return nil, storekit.Invalidf("bulk %s of %s messages is not possible", b.Do, states[0])
	case s.Reason != "" && states[0] != punctual.StateDead:
		return nil, storekit.Invalidf("bulk %s by reason of death: only dead messages have one", b.Do)
	case b.Do == Shift && (b.By == 0 || b.By != shiftBy):
		return nil, storekit.Invalidf("bulk shift by %v: use whole milliseconds, like 1h or -90m", b.By)
	case b.Do != Shift && b.By != 0:
		return nil, storekit.Invalidf("bulk %s by %v: only a shift has a length", b.Do, b.By)
	case !moves && b.When != punctual.When{}:
		return nil, storekit.Invalidf("bulk %s with a due time: only a requeue and a reschedule have one", b.Do)
	case b.ID != "" && b.Do != Shift:
		return nil, storekit.Invalidf("bulk %s with an ID: only a shift has one", b.Do)
	case b.Spread < 0 || b.Spread > 0 && b.Do != Requeue:
		return nil, storekit.Invalidf("bulk %s spread over %v: only a requeue is spread, over a positive time", b.Do, b.Spread)
	case b.Do == Shift && s.Only != nil:
		return nil, storekit.Invalidf("bulk shift of a selection with Only: select by the other fields")
	case b.Rate < 0:
		return nil, storekit.Invalidf("bulk with %d changes a second: use 1 or more, or 0 for no bound", b.Rate)
	}
	switch {
	case b.Do == Shift && b.By > 0:
		return []punctual.State{punctual.StateScheduled, punctual.StateReady}, nil
	case b.Do == Shift:
		return []punctual.State{punctual.StateScheduled}, nil // before each page list reads the ready messages
	}
	return states, nil
}

const (
	bulkPage  = 1000 // messages of one page
	bulkFirst = 10   // messages that a report shows
)

// bulkRun is one call of Run. One goroutine uses it.
type bulkRun struct {
	Job
	bulkPlace
	inspector  punctual.Inspector
	queue      *punctual.Queue
	descending bool
	started    time.Time // by the clock of this process, for the rate
	begun      int64     // the store's clock when the bulk began, in Unix ms; of a continued one, when the first call began
	due        time.Time // the due time that a requeue or reschedule gives
	last       time.Time // the due time of the latest message that was taken

	pending []punctual.Amendment // selected and not yet sent
	report  Report
}

// begin works out the due time of a requeue or reschedule, and finds the place from which a shift
// continues. It reports whether the shift is complete already.
func (r *bulkRun) begin(ctx context.Context, now time.Time) (complete bool, err error) {
	if r.Do == Shift {
		return r.resume(ctx, now)
	}
	r.due, err = r.When.From(now)
	return false, err
}

// list goes through a list, page by page.
func (r *bulkRun) list(ctx context.Context, lq punctual.ListQuery) error {
	for {
		page, err := r.inspector.List(ctx, lq)
		if err != nil {
			return err
		}
		if r.Do == Shift && !r.descending && lq.State == punctual.StateScheduled {
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

// listOvertaken is for a shift to earlier times: it goes through the ready messages before a page
// of scheduled ones. They became ready before the page was read. They come before the page, because
// messages that are moved later may get the same due times.
func (r *bulkRun) listOvertaken(ctx context.Context, page punctual.Page) error {
	lq := r.query(punctual.StateReady)
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
// What a message was when the bulk began counts, because time passes while the bulk runs, and
// between the calls of a shift. A requeue ends with the messages that were dead, because a requeued
// message may die again. A shift of the scheduled messages moves those due after the begin, and a
// shift of the ready ones those due before it. Without a state a shift to earlier times leaves out
// what was ready: it would only look more late.
//
// A shift to later times reads the ready messages after the scheduled ones up to the window under
// way, because those that it has moved, all of them behind that window, may be ready by then.
func (r *bulkRun) query(state punctual.State) punctual.ListQuery {
	lq := punctual.ListQuery{
		Topic: r.Select.Topic, State: state, Reason: r.Select.Reason, From: r.Select.From, To: r.Select.To,
		Limit: bulkPage, Descending: r.descending, Bare: true,
	}
	begun := time.UnixMilli(r.begun + 1)
	shift, selected := r.Do == Shift, r.Select.State
	switch {
	case r.Do == Requeue, shift && selected == punctual.StateReady:
		if lq.To.IsZero() || lq.To.After(begun) {
			lq.To = begun
		}
	case shift && (selected == punctual.StateScheduled || r.By < 0):
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

// take adds a listed message to what is to be changed, if the Selection selects it. Before the
// first message of a new window everything in the old one is changed.
func (r *bulkRun) take(ctx context.Context, m *punctual.Info) error {
	if at := listTime(m).UnixMilli(); r.Do == Shift && r.leaves(at) {
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
	a := punctual.Amendment{Topic: m.Topic, ID: m.ID, IfDue: m.Due}
	switch r.Do {
	case Cancel:
		a.Change = punctual.ChangeCancel
	case Delete:
		a.Change = punctual.ChangeDelete
	case Requeue:
		a.Change, a.Due = punctual.ChangeRequeue, r.due.Add(share(r.Spread, r.report.Matched))
	case Reschedule:
		a.Change, a.Due = punctual.ChangeReschedule, r.due
		if m.Due.Equal(a.Due) {
			return nil // the list meets the message at its new place
		}
	case Shift:
		a.Change, a.Due = punctual.ChangeReschedule, m.Due.Add(r.By)
	}
	r.report.Matched++
	if len(r.report.First) < bulkFirst {
		r.report.First = append(r.report.First, Item{ID: m.ID, Due: m.Due, NewDue: a.Due})
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

// share returns by how much the n-th message is later than the first when many are spread over a
// time. The shares are even however many messages come, because they are multiples of the golden
// ratio, modulo 1.
func share(spread time.Duration, n int64) time.Duration {
	_, place := math.Modf(float64(n) / math.Phi)
	return time.Duration(place * float64(spread)).Truncate(time.Millisecond)
}

// retried reports whether the bulk moves messages to a time and an attempt at this one has failed
// since the bulk began: then its due time is that of the retry, also if the bulk had moved it
// before.
func (r *bulkRun) retried(m *punctual.Info) bool {
	n := len(m.Failures)
	return (r.Do == Shift || r.Do == Reschedule) && n > 0 && m.Failures[n-1].At.UnixMilli() > r.begun
}

// listTime is the time by which a list orders its messages.
func listTime(m *punctual.Info) time.Time {
	switch m.State {
	case punctual.StateLeased:
		return m.LeaseUntil
	case punctual.StateDead:
		return m.Died
	}
	return m.Due
}

// flush changes what is pending, and counts the answers. An error that is not about one message
// stops the bulk.
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
	// A BatchError of the call is dropped, because the answers that have an error are counted one
	// by one below.
	answers, err := r.queue.AmendMany(ctx, as)
	if len(answers) < len(as) {
		return err
	}
	var stop error
	for _, answer := range answers {
		stop = cmp.Or(stop, r.count(answer.Err))
	}
	return stop
}

// reported returns a report for Progress, which may keep it.
func (r *bulkRun) reported() Report {
	report := r.report
	report.First = slices.Clone(report.First)
	return report
}

// count counts one answer, and returns the error if the bulk cannot go on with it.
func (r *bulkRun) count(err error) error {
	switch {
	case err == nil:
		r.report.Done++
	case errors.Is(err, punctual.ErrLeased):
		r.report.Leased++
	case errors.Is(err, punctual.ErrChanged), errors.Is(err, punctual.ErrNotDead):
		r.report.Changed++
	case errors.Is(err, punctual.ErrNotFound):
		r.report.Gone++
	case errors.Is(err, punctual.ErrInvalid):
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

// waitFor is the Job.Wait of a job that has none.
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
