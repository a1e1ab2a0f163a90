package duties

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Outage logs once that calls of a store fail, and once that they succeed again, although each
// poller of a worker and of its duties meets the failure. A failure of another kind gets lines of
// its own, so that a topic that may not be claimed does not hide that the store has gone. All
// methods are safe for concurrent use.
type Outage struct {
	logger *slog.Logger

	mu sync.Mutex
	// kinds has the kind of failure of everybody whose latest call has failed. Guarded by mu.
	kinds map[any]string
	// told has the kinds that the log was told of, and not yet that they are over. Guarded by mu.
	told map[string]bool
}

// unreachable is the kind of every failure of a store that has gone, whether or not its answer to a
// call got lost.
const unreachable = "unreachable"

// kindOf returns the kind of a failure: the code of its error.
func kindOf(err error) string {
	if errors.Is(err, punctual.ErrUnreachable) || errors.Is(err, punctual.ErrIndeterminate) || errors.Is(err, context.DeadlineExceeded) {
		return unreachable
	}
	return storekit.ErrorCode(err)
}

// Failed notes that a call of who has failed, and logs text with args as a warning unless the log
// knows of this kind of failure.
func (o *Outage) Failed(who any, err error, text string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kind := kindOf(err)
	if !o.told[kind] {
		o.logger.Warn(text, append(args, "err", err)...)
	}
	o.kinds[who], o.told[kind] = kind, true
}

// Answered notes that a call of who has succeeded. When it was the last one with a kind of failure,
// the log is told that this is over.
func (o *Outage) Answered(who any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.told) == 0 {
		return
	}
	delete(o.kinds, who)
	still := slices.Collect(maps.Values(o.kinds))
	for kind := range o.told {
		if !slices.Contains(still, kind) {
			delete(o.told, kind)
			o.logger.Warn("calls of the store succeed again", "after", kind) // a warning, so that a log of warnings alone has both
		}
	}
}

// Told reports whether the log knows of a failure that is not over.
func (o *Outage) Told() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.told) > 0
}

// Left notes that who makes no calls any more.
func (o *Outage) Left(who any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.kinds, who)
}

// LevelOf is the level for what follows from err in the work on one message: slog.LevelDebug where
// the store has gone, because those who poll it tell of that, otherwise slog.LevelWarn.
func LevelOf(err error) slog.Level {
	if kindOf(err) == unreachable {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}
