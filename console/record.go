package console

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Change is a change of the store that somebody asks for elsewhere, such as over the HTTP interface.
type Change struct {
	// Who asks for it, and from which address.
	Who, From string
	// Verb is a word of the project: "configure", "purge", "delete topic", "cancel", "reschedule", "requeue", or "amend" for several.
	Verb string
	// Topic is empty for several. ID is there if it is about one message.
	Topic, ID string
	// Detail is what else matters: the settings, the new due time. It never has bodies.
	Detail string
	// Amends tells that messages are changed by their IDs. Programs do that all day.
	Amends bool
}

// Record has a change made and entered into the audit log: do makes it, and returns how many messages it changed.
//
// A change that amends is entered once it is made. The first one has an entry of its own at once. What the same user
// does to the same topic in the next 10 seconds goes into one more entry. That entry says how many calls it was. So
// what programs do fills no log.
func (c *Console) Record(ctx context.Context, ch Change, do func(ctx context.Context) (int64, error)) (int64, error) {
	defer c.reader.Recount()
	e := entry{Who: ch.Who, From: ch.From, Verb: ch.Verb, Topic: ch.Topic, ID: ch.ID, Detail: ch.Detail}
	if !ch.Amends {
		return c.audit.carryOut(ctx, e, do)
	}
	n, err := do(ctx)
	if n > 0 || err != nil && !punctual.Definite(err) {
		e.Changed, e.Result = n, resultDone
		if err != nil {
			e.Result, e.Error = resultUnknown, err.Error()
		}
		c.gatherer.add(ctx, e)
	}
	return n, err
}

const (
	// gatherTime is for how long amendments are gathered.
	gatherTime = 10 * time.Second
	// maxGathered bounds what is gathered apart by topic; what is more counts as one of several topics.
	maxGathered = 200
)

// gatherer turns many amendments into few entries.
type gatherer struct {
	log *auditLog

	mu      sync.Mutex
	open    map[gathering]*gathered // guarded by mu; not nil while collect runs
	closed  chan struct{}           // closed by close
	running sync.WaitGroup          // collect
}

// gathering is what the calls of one entry have in common.
type gathering struct{ who, verb, topic string }

// gathered is the entry of all calls after the first.
type gathered struct {
	entry
	calls int
}

func newGatherer(l *auditLog) *gatherer { return &gatherer{log: l, closed: make(chan struct{})} }

// add enters the first of its kind at once, and counts the others.
func (g *gatherer) add(ctx context.Context, e entry) {
	if g.isFirst(&e) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
		defer cancel()
		g.log.enter(ctx, e)
	}
}

// isFirst tells whether the entry is to be written now. The others are counted.
func (g *gatherer) isFirst(e *entry) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		select {
		case <-g.closed:
			return true // nobody collects any more
		default:
		}
		g.open = make(map[gathering]*gathered)
		g.running.Go(g.collect)
	}
	k := gathering{e.Who, e.Verb, e.Topic}
	if g.open[k] == nil && len(g.open) >= maxGathered {
		k.topic, e.Topic, e.ID, e.Detail = "", "", "", ""
	}
	in := g.open[k]
	if in == nil {
		g.open[k] = &gathered{}
		return true
	}
	if in.calls++; in.calls == 1 {
		in.entry = *e
		return false
	}
	in.ID, in.Detail, in.Changed = "", "", in.Changed+e.Changed
	if in.From != e.From {
		in.From = ""
	}
	if e.Result != resultDone {
		in.Result, in.Error = e.Result, e.Error
	}
	return false
}

// collect writes what was gathered when its time is over, or the console closes.
func (g *gatherer) collect() {
	timer := time.NewTimer(gatherTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.closed:
	}
	g.mu.Lock()
	open := g.open
	g.open = nil
	g.mu.Unlock()
	var entries []entry
	for _, in := range open {
		if in.calls > 1 {
			in.Detail = fmt.Sprintf("%d calls in %v", in.calls, gatherTime)
		}
		if in.calls > 0 {
			entries = append(entries, in.entry)
		}
	}
	if len(entries) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	g.log.enter(ctx, entries...)
}

// close writes what was gathered and ends the gathering.
func (g *gatherer) close() {
	g.mu.Lock()
	select {
	case <-g.closed:
	default:
		close(g.closed)
	}
	g.mu.Unlock()
	g.running.Wait()
}

// enter writes entries of changes that were made. What cannot be written is in the log of the program.
func (l *auditLog) enter(ctx context.Context, entries ...entry) {
	err := l.tryEnter(storekit.WithoutRequest(ctx), entries)
	for _, e := range entries {
		l.say(&e)
	}
	if err != nil {
		l.log.Error("changes could not be entered into the audit log", "entries", len(entries), "error", err)
	}
}

func (l *auditLog) tryEnter(ctx context.Context, entries []entry) error {
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
