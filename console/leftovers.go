package console

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

const (
	// tryTopic is the topic to which the page Try it pushes unless somebody names another one.
	tryTopic = "try.it"
	// leftoverAfter is how long after its time a message of tryTopic is taken away that nobody has claimed, so that it does not
	// become an alert. tryExpiry is when it is not delivered any more, for the case that the console ended before.
	leftoverAfter, tryExpiry = 30 * time.Second, 10 * time.Minute
	// mostLeftovers is how many messages a console watches at once, leftoverWait how far ahead they may be due.
	mostLeftovers, leftoverWait = 50, 10 * time.Minute
)

// leftovers cancels messages of the page Try it that nobody claims. Each waits in a goroutine of its own; close ends them. Its
// methods are safe for concurrent use.
type leftovers struct {
	store punctual.Store
	log   *slog.Logger
	ctx   context.Context // ends with close
	end   context.CancelFunc
	under sync.WaitGroup

	mu     sync.Mutex
	n      int  // guarded by mu: how many messages are watched
	closed bool // guarded by mu
}

func newLeftovers(store punctual.Store, log *slog.Logger) *leftovers {
	l := &leftovers{store: store, log: log}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// close ends the watch of all messages, which then stay, and waits for that.
func (l *leftovers) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end()
	l.under.Wait()
}

// watch cancels the message that was just pushed and is due in wait, unless somebody has claimed it leftoverAfter after its time.
// record makes the change and enters it into the audit log.
func (l *leftovers) watch(p punctual.PushResult, wait time.Duration, record recorder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.n >= mostLeftovers || wait > leftoverWait {
		return
	}
	l.n++
	l.under.Go(func() {
		defer func() {
			l.mu.Lock()
			l.n--
			l.mu.Unlock()
		}()
		timer := time.NewTimer(max(0, wait) + leftoverAfter)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			return
		}
		l.remove(p, record)
	})
}

// remove cancels a message if it is as it was pushed.
func (l *leftovers) remove(p punctual.PushResult, record recorder) {
	inspector, err := punctual.As[punctual.Inspector](l.store)
	if err != nil {
		return
	}
	m, err := inspector.Get(l.ctx, p.Topic, p.ID)
	if err != nil || m.State != punctual.StateReady || m.Attempt > 0 || !m.Due.Equal(p.Due) {
		return // it is delivered, or somebody has changed it
	}
	_, err = record(l.ctx, func(ctx context.Context) (int64, error) {
		as, err := l.store.Amend(ctx, []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: p.Topic, ID: p.ID, IfDue: p.Due}})
		if err != nil {
			return 0, err
		}
		return 1, as[0].Err
	})
	if err != nil && !errors.Is(err, punctual.ErrNotFound) && l.ctx.Err() == nil {
		l.log.Warn("a message of the page Try it could not be taken away", "topic", p.Topic, "id", p.ID, "error", err)
	}
}
