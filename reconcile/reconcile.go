// Package reconcile compares a topic with a program's own records, and repairs the differences: it
// pushes what is missing, and cancels what is over.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// Config describes how to compare a topic with a program's own records, say a table of orders, and
// repair the differences. It finds pushes and cancels that were lost: because the program crashed
// between the commit of an order and its push, because the store is of class Volatile, or because a
// database was restored from a backup.
type Config struct {
	// Topic is the topic to compare. It is required.
	Topic string
	// List returns the messages that should be pending, a page at a time. after is "" for the first
	// page, and then the next that List returned with the page before; next is "" on the last page.
	// Each message has an ID and a Due, and body, headers and limits as for a push. Due is an
	// instant, so that a message that is pushed again keeps its due time; one with a Due in the
	// past is delivered at once. IfExists may be IfExistsKeep or IfExistsReplaceDead. List is
	// required.
	//
	// List must read committed records only, and the records may be out of date by Window/2 at
	// most, for instance when List reads from a replica that lags.
	List func(ctx context.Context, after string) (page []punctual.NewMessage, next string, err error)
	// Unwanted, if not nil, returns those of the IDs, of which it gets at most 1000, that should
	// not be pending, say of orders that are paid. Their messages are cancelled. Unwanted must
	// return only IDs that it knows, because an order that is not in the table may just not be
	// committed yet. With Unwanted each pass also lists all ready and scheduled messages of the
	// topic.
	Unwanted func(ctx context.Context, ids []string) ([]string, error)
	// Window is the least Settings.DedupeWindow of the topic; each pass but a DryRun raises a
	// shorter one. It keeps a message that finishes between its listing and its push from being
	// delivered again. A page may take half of Window, from the call of List until its messages are
	// pushed. Default 10 min, at least 1 s.
	Window time.Duration
	// DryRun has a pass change nothing in the topic and only report what it would do.
	DryRun bool

	// Every is the time from the end of one pass of Run to the next. Default 5 min, at least 1 s.
	Every time.Duration
	// LeaseTopic is the topic of the message whose lease says which process makes the pass. All
	// processes that reconcile a topic share it, and nothing else may use it. Default Topic with
	// ".reconcile" behind it.
	LeaseTopic string
	// Report, if not nil, is called by Run after each pass of this process, unless the end of ctx
	// has cut the pass short, and for each error of the store while Run waits until this process
	// may make the pass.
	Report func(r Report, err error)
}

// Report has the counts of one pass.
type Report struct {
	// Listed counts the messages that List returned. Each counts in one of Present, Finished, Dead,
	// Pushed and Refused.
	Listed int64
	// Present counts the listed messages that were scheduled, ready or leased.
	Present int64
	// Finished counts the listed messages that were acked, cancelled or dropped within the topic's
	// DedupeWindow and so are not pushed again. A message that is still listed after that time is
	// pushed again. A dry run cannot see finished messages and counts them as Pushed.
	Finished int64
	// Dead counts the listed messages that are dead. They stay dead: requeue them, or list them
	// with IfExistsReplaceDead.
	Dead int64
	// Pushed counts the listed messages that were missing and are stored now, or in a dry run would
	// be stored.
	Pushed int64
	// Refused counts the listed messages that were not stored; the error of the pass says why.
	Refused int64

	// Examined counts the stored messages whose IDs Unwanted was given, Unwanted the IDs that it
	// returned.
	Examined, Unwanted int64
	// Cancelled counts the unwanted messages that were cancelled, Leased those on which somebody
	// works; they get no further attempt. The other unwanted messages had finished or died
	// meanwhile, or the error of the pass says why they were not cancelled. A dry run cancels
	// nothing.
	Cancelled, Leased int64

	// PushedIDs and CancelledIDs are the IDs of the first messages that were pushed and cancelled,
	// or in a dry run would be, at most 100 each.
	PushedIDs, CancelledIDs []string
	// Raised is the DedupeWindow that the topic had before this pass raised it to Window; nil when
	// the pass did not.
	Raised *time.Duration
	// Took is how long the pass took.
	Took time.Duration
}

const (
	defaultReconcileEvery  = 5 * time.Minute
	defaultReconcileWindow = 10 * time.Minute
	minReconcile           = time.Second
	// reconcileLease is the lease under which a process makes a pass. After the process has died,
	// another one waits at most so long.
	reconcileLease = 30 * time.Second
	// reconcilePause is how long Run waits after a first error before it claims again, give or take
	// a half. Each further error doubles the wait, up to reconcileRetry or Every, whichever is
	// shorter. A pass that failed is made again after the shorter of these two.
	reconcilePause = time.Second
	reconcileRetry = time.Minute
	// reconcileSettle is the timeout of the call that ends the lease of a pass, also when ctx has
	// ended.
	reconcileSettle = 5 * time.Second
	reconcileIDs    = 100
	reconcilePage   = 1000
	// reconcileID is the ID of the message whose lease says which process makes the pass.
	reconcileID = "pass"
)

// Run makes passes of r, with r.Every between them, until ctx ends, and then returns nil. It may
// run in many processes at once: each pass is made by the process that holds the lease of a message
// in r.LeaseTopic, and when that process dies another one takes over within 30 s. A pass that fails
// is reported, and made again after a minute, or after Every if that is shorter. While the store
// does not answer, Run asks it less and less often, in the end about once a minute, or once in
// Every if that is shorter.
//
// Run returns an error when r is not valid, or when waiting does not help: because q or the store
// was closed, or because the store has failed, is damaged, or refuses as invalid or unsupported
// what Run asks of it. It pushes and cancels through q, so that the Observer of q sees the repairs.
// The store must be an Inspector.
func Run(ctx context.Context, q *punctual.Queue, r *Config) error {
	c, err := r.checked(q)
	if err != nil {
		return fmt.Errorf("reconcile: %w", err)
	}
	for wait := reconcilePause; ctx.Err() == nil; {
		passed, err := c.turn(ctx, q)
		if err == nil || ctx.Err() != nil {
			wait = reconcilePause
			continue
		}
		if passed {
			return err
		}
		err = fmt.Errorf("reconcile %s: wait for the turn: %w", c.Topic, err)
		c.Report(Report{}, err)
		if beyondRecovery(err) {
			return err
		}
		pause(ctx, wait/2+rand.N(wait)) // many processes do not ask at the same time
		wait = min(2*wait, c.Every, reconcileRetry)
	}
	return nil
}

// Once makes one pass of r at once, also while another process makes one. Beside an error it
// returns the counts up to that error.
func Once(ctx context.Context, q *punctual.Queue, r *Config) (Report, error) {
	c, err := r.checked(q)
	if err != nil {
		return Report{}, fmt.Errorf("reconcile: %w", err)
	}
	return c.pass(ctx, q)
}

// checked returns a copy of r with its defaults filled in, or an error that says what is wrong with
// r or q.
func (r *Config) checked(q *punctual.Queue) (*Config, error) {
	if _, err := punctual.As[punctual.Inspector](q.Store()); err != nil {
		return nil, err
	}
	if r == nil || r.List == nil || r.Topic == "" {
		return nil, storekit.Invalidf("reconciliation without a Topic or a List: give both")
	}
	c := *r
	if c.Every == 0 {
		c.Every = defaultReconcileEvery
	}
	if c.Window == 0 {
		c.Window = defaultReconcileWindow
	}
	if c.LeaseTopic == "" {
		c.LeaseTopic = c.Topic + ".reconcile"
	}
	if c.Report == nil {
		c.Report = func(Report, error) {}
	}
	switch {
	case c.Every < minReconcile:
		return nil, storekit.Invalidf("every %v: use at least %v", c.Every, minReconcile)
	case c.Window < minReconcile:
		return nil, storekit.Invalidf("window %v: use at least %v", c.Window, minReconcile)
	case c.LeaseTopic == c.Topic:
		return nil, storekit.Invalidf("the lease topic is the topic itself: name another one")
	}
	return &c, nil
}

// beyondRecovery reports whether err is of a kind that does not go away with time.
func beyondRecovery(err error) bool {
	for _, kind := range []error{punctual.ErrClosed, punctual.ErrStoreFailed, punctual.ErrCorrupt, punctual.ErrInvalid, punctual.ErrUnsupported} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// turn waits, for Every at most, until this process gets the lease of the pass, and then makes the
// pass and reports it. The error is one of the store while turn waits. With passed it is that of
// the pass, after which no other pass can succeed because q or the store was closed.
func (r *Config) turn(ctx context.Context, q *punctual.Queue) (passed bool, err error) {
	if err := r.keepTurn(ctx, q); err != nil {
		return false, err
	}
	ds, err := q.Store().Claim(ctx, punctual.Claim{Topics: []string{r.LeaseTopic}, Max: 1, Wait: r.Every, Lease: reconcileLease})
	if err != nil || len(ds) == 0 {
		return false, err
	}
	done, err := r.passUnderLease(ctx, q, &ds[0])
	next := punctual.Settlement{Topic: ds[0].Topic, ID: ds[0].ID, Token: ds[0].Token, Verb: punctual.SettleSnooze, Delay: r.Every}
	closed := errors.Is(err, punctual.ErrClosed)
	switch {
	case ctx.Err() != nil, closed:
		next.Verb, next.Delay = punctual.SettleRelease, 0 // another process goes on at once
	case err != nil:
		next.Delay = min(r.Every, reconcileRetry)
	}
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), reconcileSettle)
	defer cancel()
	errs, settleErr := q.Store().Settle(settling, []punctual.Settlement{next})
	if settleErr == nil {
		settleErr = errs[0]
	}
	if settleErr != nil && ctx.Err() == nil { // nothing is lost: the lease runs out, or another process has one already
		err = errors.Join(err, fmt.Errorf("reconcile %s: end of the turn: %w", r.Topic, settleErr))
	}
	if ctx.Err() == nil || err == nil {
		r.Report(done, err)
	}
	if closed {
		return true, err
	}
	return false, nil
}

// keepTurn stores the message that is claimed for a pass, unless it is stored already, and makes it
// due within Every.
func (r *Config) keepTurn(ctx context.Context, q *punctual.Queue) error {
	rs, err := q.Store().Push(ctx, []punctual.NewMessage{{
		Topic: r.LeaseTopic, ID: reconcileID, MaxAttempts: limits.MaxAttemptsLimit, IfExists: punctual.IfExistsReplaceDead,
	}})
	if err != nil {
		return err
	}
	switch r := rs[0]; {
	case r.Err != nil:
		return r.Err
	case r.Status == punctual.PushDuplicate && r.Existing == punctual.StateNone:
		return storekit.Invalidf("topic %s remembers a message that was cancelled, which is to be pushed again: set its DedupeWindow to 0", r.Topic)
	case r.Existing != punctual.StateScheduled:
		return nil
	}
	// A program that was started anew with a shorter interval does not wait for the end of the
	// longer one.
	now, err := q.Store().Now(ctx)
	if err != nil || !rs[0].Due.After(now.Add(r.Every)) {
		return err
	}
	as, err := q.Store().Amend(ctx, []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: r.LeaseTopic, ID: reconcileID, Delay: r.Every}})
	if err == nil && !errors.Is(as[0].Err, punctual.ErrNotFound) && !errors.Is(as[0].Err, punctual.ErrLeased) {
		err = as[0].Err
	}
	return err
}

// passUnderLease makes a pass while a goroutine renews the lease. When the lease is lost the pass
// ends, because another process may make one.
func (r *Config) passUnderLease(ctx context.Context, q *punctual.Queue, d *punctual.Delivery) (Report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var renewal sync.WaitGroup
	defer renewal.Wait()
	defer cancel(nil)
	renewal.Go(func() {
		renewed := time.Now()
		for {
			pause(ctx, reconcileLease/3)
			if ctx.Err() != nil {
				return
			}
			asked := time.Now()
			errs, err := q.Store().Settle(ctx, []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleExtend, Delay: reconcileLease}})
			switch {
			case err == nil && errs[0] == nil:
				renewed = asked
			case err == nil && (errors.Is(errs[0], punctual.ErrLeaseLost) || errors.Is(errs[0], punctual.ErrCancelled)):
				cancel(errs[0])
			case time.Since(renewed) >= reconcileLease:
				cancel(storekit.Errorf(punctual.ErrLeaseLost, "the lease could not be renewed for %v", reconcileLease))
			}
		}
	})
	done, err := r.pass(ctx, q)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return done, err
}

// pass makes one pass.
func (r *Config) pass(ctx context.Context, q *punctual.Queue) (done Report, err error) {
	start := time.Now()
	defer func() { done.Took = time.Since(start) }()
	p := &reconcilePass{Config: r, queue: q, done: &done}
	if p.inspector, err = punctual.As[punctual.Inspector](q.Store()); err == nil && !r.DryRun {
		err = p.rememberFinished(ctx)
	}
	if err == nil {
		err = errors.Join(p.pushMissing(ctx), p.cancelUnwanted(ctx))
	}
	if err != nil {
		err = fmt.Errorf("reconcile %s: %w", r.Topic, err)
	}
	return done, err
}

// reconcilePass is one pass under way.
type reconcilePass struct {
	*Config
	queue     *punctual.Queue
	inspector punctual.Inspector
	done      *Report
}

// rememberFinished raises the DedupeWindow of the topic to Window if it is shorter.
func (p *reconcilePass) rememberFinished(ctx context.Context) error {
	was, err := p.inspector.Settings(ctx, p.Topic)
	if err != nil || was.DedupeWindow >= p.Window {
		return err
	}
	if _, err := p.inspector.Configure(ctx, p.Topic, punctual.SettingsPatch{DedupeWindow: &p.Window}); err != nil {
		return fmt.Errorf("have the topic remember finished IDs: %w", err)
	}
	p.done.Raised = &was.DedupeWindow
	return nil
}

// pushMissing pushes the missing messages of every page. A message that is refused does not keep
// the others from being stored. refused has the first such error, and the error of a page that
// failed as a whole, with which pushMissing ends.
func (p *reconcilePass) pushMissing(ctx context.Context) (refused error) {
	for after := ""; ; {
		next, refusal, err := p.pushPage(ctx, after)
		if refused == nil {
			refused = refusal
		}
		if err != nil {
			return errors.Join(refused, err)
		}
		if next == "" {
			return refused
		}
		if next == after {
			return errors.Join(refused, storekit.Invalidf("List returned %q as the next page of itself: return where the page ended", next))
		}
		after = next
	}
}

// pushPage pushes the missing messages of one page. It has Window/2 for that, since the records
// that List reads may show a state that is Window/2 old already: a message that finished after that
// state is then still remembered. refusal is the first error of a message, err one of the whole
// page.
func (p *reconcilePass) pushPage(ctx context.Context, after string) (next string, refusal, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.Window/2, storekit.Errorf(context.DeadlineExceeded, "the page took longer than half of Window, %v: list less at once, or make Window longer", p.Window/2))
	defer cancel()
	page, next, err := p.List(ctx, after)
	if err != nil {
		return "", nil, withCause(ctx, fmt.Errorf("list what should be pending: %w", err))
	}
	p.done.Listed += int64(len(page))
	for i := range page {
		if err = p.own(&page[i]); err != nil {
			err = fmt.Errorf("message %d of the page behind %q: %w", i+1, after, err)
			break
		}
	}
	if err == nil {
		err = context.Cause(ctx) // List may have ignored the end of its context
	}
	if err != nil {
		p.done.Refused += int64(len(page))
		return "", nil, err
	}
	if p.DryRun || len(page) == 0 {
		return next, nil, p.dryRun(ctx, page)
	}
	rs, err := p.queue.PushMany(ctx, page)
	refusedBefore := p.done.Refused
	for _, r := range rs {
		if !p.count(r) && refusal == nil {
			refusal = withCause(ctx, fmt.Errorf("push %s: %w", r.ID, r.Err))
		}
	}
	p.done.Refused += int64(len(page) - len(rs))
	if p.done.Refused-refusedBefore == int64(len(page)) { // the store takes nothing
		return "", nil, withCause(ctx, err)
	}
	return next, refusal, nil
}

func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// own returns an error if a listed message cannot be reconciled, and otherwise sets its topic.
func (p *reconcilePass) own(m *punctual.NewMessage) error {
	switch {
	case m.Topic != "" && m.Topic != p.Topic:
		return storekit.Invalidf("%s is of topic %s: list those of %s", m.ID, m.Topic, p.Topic)
	case m.ID == "":
		return storekit.Invalidf("it has no ID, so each pass would push it again")
	case m.Due.IsZero() || m.Delay != 0:
		return storekit.Invalidf("%s needs a due time that is an instant: a delay would begin anew with each pass", m.ID)
	case m.IfExists != punctual.IfExistsKeep && m.IfExists != punctual.IfExistsReplaceDead:
		return storekit.Invalidf("%s would replace what is there, or fail: use IfExistsKeep or IfExistsReplaceDead", m.ID)
	}
	m.Topic = p.Topic
	return nil
}

// count adds what became of a listed message to the counts, and reports whether the message was not
// refused.
func (p *reconcilePass) count(r punctual.PushResult) (ok bool) {
	switch {
	case r.Err == nil && r.Status != punctual.PushDuplicate:
		p.pushed(r.ID)
	case r.Err == nil && r.Existing == punctual.StateNone:
		p.done.Finished++
	case r.Err == nil:
		p.done.Present++
	case errors.Is(r.Err, punctual.ErrDuplicate) && r.Existing == punctual.StateDead:
		p.done.Dead++
	default:
		p.done.Refused++
		return false
	}
	return true
}

func (p *reconcilePass) pushed(id string) {
	p.done.Pushed++
	if len(p.done.PushedIDs) < reconcileIDs {
		p.done.PushedIDs = append(p.done.PushedIDs, id)
	}
}

// dryRun counts what a push of the page would do.
func (p *reconcilePass) dryRun(ctx context.Context, page []punctual.NewMessage) error {
	for i, m := range page {
		there, err := p.inspector.Get(ctx, p.Topic, m.ID)
		switch {
		case errors.Is(err, punctual.ErrNotFound):
			p.pushed(m.ID)
		case err != nil:
			p.done.Refused += int64(len(page) - i)
			return withCause(ctx, err)
		case there.State != punctual.StateDead:
			p.done.Present++
		case m.IfExists == punctual.IfExistsReplaceDead:
			p.pushed(m.ID)
		default:
			p.done.Dead++
		}
	}
	return nil
}

// cancelUnwanted gives Unwanted the IDs of the ready and scheduled messages, and cancels those that
// it returns.
func (p *reconcilePass) cancelUnwanted(ctx context.Context) error {
	if p.Unwanted == nil {
		return nil
	}
	for _, state := range []punctual.State{punctual.StateReady, punctual.StateScheduled} {
		for q := (punctual.ListQuery{Topic: p.Topic, State: state, Limit: reconcilePage}); ; {
			page, err := p.inspector.List(ctx, q)
			if err != nil {
				return fmt.Errorf("list the %s messages: %w", state, err)
			}
			if err := p.cancelPage(ctx, page.Messages); err != nil {
				return err
			}
			if q.After = page.Next; page.Next == "" {
				break
			}
		}
	}
	return nil
}

func (p *reconcilePass) cancelPage(ctx context.Context, stored []punctual.Info) error {
	if len(stored) == 0 {
		return nil
	}
	ids := make([]string, len(stored))
	for i := range stored {
		ids[i] = stored[i].ID
	}
	p.done.Examined += int64(len(ids))
	unwanted, err := p.Unwanted(ctx, ids)
	if err != nil {
		return fmt.Errorf("ask what should not be pending: %w", err)
	}
	p.done.Unwanted += int64(len(unwanted))
	if len(unwanted) == 0 || p.DryRun {
		p.cancelled(unwanted)
		return nil
	}
	as, err := p.queue.CancelMany(ctx, p.Topic, unwanted)
	var failed error
	for i, a := range as {
		switch {
		case a.Err == nil:
			p.done.Cancelled++
			p.cancelled(unwanted[i : i+1])
		case errors.Is(a.Err, punctual.ErrLeased):
			p.done.Leased++
		case !errors.Is(a.Err, punctual.ErrNotFound):
			failed = a.Err
		}
	}
	if len(as) == 0 {
		return err
	}
	return failed
}

func (p *reconcilePass) cancelled(ids []string) {
	room := reconcileIDs - len(p.done.CancelledIDs)
	p.done.CancelledIDs = append(p.done.CancelledIDs, ids[:min(room, len(ids))]...)
}
