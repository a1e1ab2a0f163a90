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
	// leftoverAfter is how long after its due time a message of tryTopic is cancelled if nobody has claimed it, so that it does not
	// raise an alert. tryExpiry is how long after its due time the message expires, in case the console has ended before it cancels
	// the message.
	leftoverAfter, tryExpiry = 30 * time.Second, 10 * time.Minute
	// mostLeftovers is how many messages a console watches at once at most, leftoverWait how far ahead they may be due.
	mostLeftovers, leftoverWait = 50, 10 * time.Minute
)

// leftovers cancels messages of the page Try it that nobody claims. Each message that is watched has a goroutine, which close ends. The
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

// close ends the goroutines that watch messages, and waits for them. The messages stay in the store until they expire.
func (l *leftovers) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end()
	l.under.Wait()
}

// watch starts to watch a message that was just pushed and is due in wait. The message is cancelled leftoverAfter after its due time,
// unless somebody has claimed it by then. record makes that change and enters it into the audit log. watch does nothing after close, when
// mostLeftovers messages are watched already, and for a wait longer than leftoverWait.
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

// remove cancels a message if it is ready, has no attempt that counts and is due when it was due at its push.
func (l *leftovers) remove(p punctual.PushResult, record recorder) {
	inspector, err := punctual.As[punctual.Inspector](l.store)
	if err != nil {
		return
	}
	m, err := inspector.Get(l.ctx, p.Topic, p.ID)
	if err != nil || m.State != punctual.StateReady || m.Attempt > 0 || !m.Due.Equal(p.Due) {
		return // the message was claimed, or somebody has moved or removed it, or the store has failed
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
