package punctual

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Reconciliation compares a topic with the program's own records, say a table of orders, and mends what differs. It
// is the net under pushes and cancels that were lost. They get lost by a crash between the commit of an order and its
// push. A store of class Volatile and a restored database lose some, too.
type Reconciliation struct {
	// Topic is the one to compare. It is required.
	Topic string
	// List returns what should be pending, a page at a time. after is empty first, then the next of the page before,
	// until next is empty. Of each message it gives ID and Due, and body, headers and limits as for a push. Due is an
	// instant, so that what is pushed again keeps the rest of its delay; one in the past delivers at once. IfExists
	// may be IfExistsKeep or IfExistsReplaceDead. List is required.
	//
	// It must read what is committed. What it reads may be Window/2 old at most, also on a replica that lags.
	List func(ctx context.Context, after string) (page []NewMessage, next string, err error)
	// Unwanted, if not nil, returns those of some IDs, at most 1000, that should not be pending: orders that are paid.
	// They are cancelled. It must name only what it knows: an order that is not in the table may still be uncommitted.
	// With it each pass also lists the whole topic.
	Unwanted func(ctx context.Context, ids []string) ([]string, error)
	// Window is how long the topic has to remember finished IDs (Settings.DedupeWindow). So a message that is
	// finished between its listing and its push is not delivered again. A shorter setting is raised to it. A page has
	// half of it, from the call of List until it is pushed. Default 10 min, at least 1 s.
	Window time.Duration
	// DryRun changes nothing in the topic: it only reports.
	DryRun bool

	// Every is the time from the end of one pass of Reconcile to the next. Default 5 min, at least 1 s.
	Every time.Duration
	// LeaseTopic is where Reconcile keeps the message whose lease says which process makes the pass. All processes that
	// reconcile a topic share it, and nothing else uses it. Default Topic with ".reconcile" behind it.
	LeaseTopic string
	// Report, if not nil, is called by Reconcile after each pass of this process. It is also called for an error of
	// the store while Reconcile waits for its turn.
	Report func(r Reconciled, err error)
}

// Reconciled is what one pass met and did.
type Reconciled struct {
	// Listed is how many messages should be pending. Each counts in one of Present, Finished, Dead, Pushed and Refused.
	Listed int64
	// Present were scheduled, ready or leased.
	Present int64
	// Finished were acked, cancelled or dropped within the topic's DedupeWindow, and are not pushed again. When the
	// records still list them after that time, they are. A dry run cannot see them: there they count as Pushed.
	Finished int64
	// Dead were given up on, and stay so: requeue them, or list them with IfExistsReplaceDead.
	Dead int64
	// Pushed were missing and are stored now; in a dry run they would be.
	Pushed int64
	// Refused were not stored; the error says why.
	Refused int64

	// Examined is how many stored messages Unwanted was asked about, Unwanted how many it named.
	Examined, Unwanted int64
	// Cancelled are those of Unwanted that are gone. Leased ones are being worked on: no further attempt follows.
	// The rest was finished meanwhile. A dry run cancels none.
	Cancelled, Leased int64

	// PushedIDs and CancelledIDs are the first of them, at most 100 each; in a dry run those that would be.
	PushedIDs, CancelledIDs []string
	// Raised is the DedupeWindow that the topic had before this pass raised it, if Window is above it.
	Raised *time.Duration
	// Took is the time that the pass took.
	Took time.Duration
}

const (
	defaultReconcileEvery  = 5 * time.Minute
	defaultReconcileWindow = 10 * time.Minute
	minReconcile           = time.Second
	// reconcileLease is how long a pass stays with a process that has died.
	reconcileLease = 30 * time.Second
	// reconcilePause is how long Reconcile waits after a first error before it claims again, give or take a half. Each
	// further error doubles that, up to reconcileRetry or Every. A pass that failed is made again after reconcileRetry,
	// or after Every if that is shorter.
	reconcilePause = time.Second
	reconcileRetry = time.Minute
	// reconcileSettle bounds the call that ends a pass when ctx has ended.
	reconcileSettle = 5 * time.Second
	reconcileIDs    = 100
	reconcilePage   = 1000
	// reconcileID names the message whose lease says who makes the pass.
	reconcileID = "pass"
)

// Reconcile makes a pass of r at an interval until ctx ends, and then returns nil. It may run in many processes at
// once. The one that holds the lease of a message which Reconcile keeps for that makes the pass. When it dies,
// another one goes on within 30 s. A pass that fails is reported, and made again after a minute or Every. While the store
// does not answer, it is asked less and less often. At last that is about once a minute, or once in Every if that is shorter.
//
// It returns an error when r is not valid or the store cannot recover: it was closed, has failed or is damaged. q pushes
// and cancels, so its Observer sees what is repaired. The store must be an Inspector.
func Reconcile(ctx context.Context, q *Queue, r *Reconciliation) error {
	c, err := r.checked(q)
	if err != nil {
		return fmt.Errorf("reconcile: %w", err)
	}
	for wait := reconcilePause; ctx.Err() == nil; {
		err := c.turn(ctx, q)
		if err == nil || ctx.Err() != nil {
			wait = reconcilePause
			continue
		}
		err = fmt.Errorf("reconcile %s: wait for the turn: %w", c.Topic, err)
		c.Report(Reconciled{}, err)
		if beyondRecovery(err) {
			return err
		}
		pause(ctx, wait/2+rand.N(wait)) // many processes do not ask at the same time
		wait = min(2*wait, c.Every, reconcileRetry)
	}
	return nil
}

// ReconcileOnce makes one pass of r at once, whether or not another process makes one. What it met and did until an error
// is reported with it.
func ReconcileOnce(ctx context.Context, q *Queue, r *Reconciliation) (Reconciled, error) {
	c, err := r.checked(q)
	if err != nil {
		return Reconciled{}, fmt.Errorf("reconcile: %w", err)
	}
	return c.pass(ctx, q)
}

// checked returns a copy with the defaults, or what is wrong.
func (r *Reconciliation) checked(q *Queue) (*Reconciliation, error) {
	if err := q.refused(); err != nil {
		return nil, err
	}
	if _, err := As[Inspector](q.store); err != nil {
		return nil, err
	}
	if r == nil || r.List == nil || r.Topic == "" {
		return nil, invalidf("reconciliation without a Topic or a List: give both")
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
		c.Report = func(Reconciled, error) {}
	}
	switch {
	case c.Every < minReconcile:
		return nil, invalidf("every %v: use at least %v", c.Every, minReconcile)
	case c.Window < minReconcile:
		return nil, invalidf("window %v: use at least %v", c.Window, minReconcile)
	case c.LeaseTopic == c.Topic:
		return nil, invalidf("the lease topic is the topic itself: name another one")
	}
	return &c, nil
}

// beyondRecovery reports whether waiting does not help.
func beyondRecovery(err error) bool {
	for _, kind := range []error{ErrClosed, ErrStoreFailed, ErrCorrupt, ErrInvalid, ErrUnsupported} {
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

// turn waits until it is this process's turn, for Every at most, and makes a pass. The error is one of the store
// while it waits.
func (r *Reconciliation) turn(ctx context.Context, q *Queue) error {
	if err := r.keepTurn(ctx, q); err != nil {
		return err
	}
	ds, err := q.store.Claim(ctx, Claim{Topics: []string{r.LeaseTopic}, Max: 1, Wait: r.Every, Lease: reconcileLease})
	if err != nil || len(ds) == 0 {
		return err
	}
	done, err := r.passUnderLease(ctx, q, &ds[0])
	next := Settlement{Topic: ds[0].Topic, ID: ds[0].ID, Token: ds[0].Token, Verb: SettleSnooze, Delay: r.Every}
	switch {
	case ctx.Err() != nil:
		next.Verb, next.Delay = SettleRelease, 0 // another process goes on at once
	case err != nil:
		next.Delay = min(r.Every, reconcileRetry)
	}
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), reconcileSettle)
	defer cancel()
	errs, settleErr := q.store.Settle(settling, []Settlement{next})
	if settleErr == nil {
		settleErr = errs[0]
	}
	if settleErr != nil && ctx.Err() == nil { // the lease runs out, or somebody else has it
		err = errors.Join(err, fmt.Errorf("reconcile %s: end of the turn: %w", r.Topic, settleErr))
	}
	if ctx.Err() == nil || err == nil {
		r.Report(done, err)
	}
	return nil
}

// keepTurn stores the message that is claimed for a pass, if it is not there.
func (r *Reconciliation) keepTurn(ctx context.Context, q *Queue) error {
	rs, err := q.store.Push(ctx, []NewMessage{{
		Topic: r.LeaseTopic, ID: reconcileID, MaxAttempts: MaxAttemptsLimit, IfExists: IfExistsReplaceDead,
	}})
	if err != nil {
		return err
	}
	switch r := rs[0]; {
	case r.Err != nil:
		return r.Err
	case r.Status == PushDuplicate && r.Existing == StateNone:
		return invalidf("topic %s remembers a message that was cancelled, which is to be pushed again: set its DedupeWindow to 0", r.Topic)
	case r.Existing != StateScheduled:
		return nil
	}
	// A program that was started anew with a shorter interval does not wait for the end of the longer one.
	now, err := q.store.Now(ctx)
	if err != nil || !rs[0].Due.After(now.Add(r.Every)) {
		return err
	}
	as, err := q.store.Amend(ctx, []Amendment{{Change: ChangeReschedule, Topic: r.LeaseTopic, ID: reconcileID, Delay: r.Every}})
	if err == nil && !errors.Is(as[0].Err, ErrNotFound) && !errors.Is(as[0].Err, ErrLeased) {
		err = as[0].Err
	}
	return err
}

// passUnderLease makes a pass while it renews the lease. The pass ends when the lease is lost.
func (r *Reconciliation) passUnderLease(ctx context.Context, q *Queue, d *Delivery) (Reconciled, error) {
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
			errs, err := q.store.Settle(ctx, []Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: SettleExtend, Delay: reconcileLease}})
			switch {
			case err == nil && errs[0] == nil:
				renewed = asked
			case err == nil && (errors.Is(errs[0], ErrLeaseLost) || errors.Is(errs[0], ErrCancelled)):
				cancel(errs[0])
			case time.Since(renewed) >= reconcileLease:
				cancel(errorf(ErrLeaseLost, "the lease could not be renewed for %v", reconcileLease))
			}
		}
	})
	done, err := r.pass(ctx, q)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return done, err
}

// pass compares once.
func (r *Reconciliation) pass(ctx context.Context, q *Queue) (done Reconciled, err error) {
	start := time.Now()
	defer func() { done.Took = time.Since(start) }()
	p := &reconcilePass{Reconciliation: r, queue: q, done: &done}
	if p.inspector, err = As[Inspector](q.store); err == nil && !r.DryRun {
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
	*Reconciliation
	queue     *Queue
	inspector Inspector
	done      *Reconciled
}

// rememberFinished makes the topic remember finished IDs for the window.
func (p *reconcilePass) rememberFinished(ctx context.Context) error {
	was, err := p.inspector.Settings(ctx, p.Topic)
	if err != nil || was.DedupeWindow >= p.Window {
		return err
	}
	if _, err := p.inspector.Configure(ctx, p.Topic, SettingsPatch{DedupeWindow: &p.Window}); err != nil {
		return fmt.Errorf("have the topic remember finished IDs: %w", err)
	}
	p.done.Raised = &was.DedupeWindow
	return nil
}

// pushMissing goes through what should be pending. A message that is refused does not keep the others from being stored.
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
			return errors.Join(refused, invalidf("List returned %q as the next page of itself: return where the page ended", next))
		}
		after = next
	}
}

// pushPage pushes what is missing of one page. What a page says is too old when Window/2 has passed: so much is left
// for the topic to remember what was finished since. refusal is the first error of a message, err one of the whole page.
func (p *reconcilePass) pushPage(ctx context.Context, after string) (next string, refusal, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.Window/2, errorf(context.DeadlineExceeded, "the page took longer than half of Window, %v: list less at once, or make Window longer", p.Window/2))
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
		err = context.Cause(ctx) // List may not have looked
	}
	if err != nil {
		p.done.Refused += int64(len(page))
		return "", nil, err
	}
	if p.DryRun || len(page) == 0 {
		return next, nil, p.look(ctx, page)
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

// own checks a listed message and puts it into the topic.
func (p *reconcilePass) own(m *NewMessage) error {
	switch {
	case m.Topic != "" && m.Topic != p.Topic:
		return invalidf("%s is of topic %s: list those of %s", m.ID, m.Topic, p.Topic)
	case m.ID == "":
		return invalidf("it has no ID, so each pass would push it again")
	case m.Due.IsZero() || m.Delay != 0:
		return invalidf("%s needs a due time that is an instant: a delay would begin anew with each pass", m.ID)
	case m.IfExists != IfExistsKeep && m.IfExists != IfExistsReplaceDead:
		return invalidf("%s would replace what is there, or fail: use IfExistsKeep or IfExistsReplaceDead", m.ID)
	}
	m.Topic = p.Topic
	return nil
}

// count notes what became of a listed message, and reports whether it was not refused.
func (p *reconcilePass) count(r PushResult) (ok bool) {
	switch {
	case r.Err == nil && r.Status != PushDuplicate:
		p.pushed(r.ID)
	case r.Err == nil && r.Existing == StateNone:
		p.done.Finished++
	case r.Err == nil:
		p.done.Present++
	case errors.Is(r.Err, ErrDuplicate) && r.Existing == StateDead:
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

// look counts what a push of the page would meet.
func (p *reconcilePass) look(ctx context.Context, page []NewMessage) error {
	for i, m := range page {
		there, err := p.inspector.Get(ctx, p.Topic, m.ID)
		switch {
		case errors.Is(err, ErrNotFound):
			p.pushed(m.ID)
		case err != nil:
			p.done.Refused += int64(len(page) - i)
			return withCause(ctx, err)
		case there.State != StateDead:
			p.done.Present++
		case m.IfExists == IfExistsReplaceDead:
			p.pushed(m.ID)
		default:
			p.done.Dead++
		}
	}
	return nil
}

// cancelUnwanted asks about what waits in the topic, and cancels what should not.
func (p *reconcilePass) cancelUnwanted(ctx context.Context) error {
	if p.Unwanted == nil {
		return nil
	}
	for _, state := range []State{StateReady, StateScheduled} {
		for q := (ListQuery{Topic: p.Topic, State: state, Limit: reconcilePage}); ; {
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

func (p *reconcilePass) cancelPage(ctx context.Context, stored []Info) error {
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
		case errors.Is(a.Err, ErrLeased):
			p.done.Leased++
		case !errors.Is(a.Err, ErrNotFound):
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
