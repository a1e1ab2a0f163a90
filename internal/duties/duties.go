// Package duties is the work that somebody has to do for a store and that any process may do: to
// copy messages for groups, to forward follow-ups that their store could not reach, and to store
// the occurrences of schedules. Each duty is a handler of the messages of certain topics, so that
// leases, attempts, backoff and dead letters are those of any message, and processes share the work
// by claiming.
//
// Each duty has a file and a row of Table. A Runner finds the topics that need a duty, and has them
// handled. Package worker runs the duties of its own topics with it, and package duty those of a
// whole store.
package duties

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/batch"
	"github.com/punctualmq/punctual/limits"
)

// Duty is one row of Table.
type Duty struct {
	// Name is the verb for logs: "copy".
	Name string
	// Topic returns the topic whose messages the duty handles, given a name among those that
	// Runner.Names returns, or "" if the duty has nothing to do with that one. A topic of the given
	// name need not exist yet.
	Topic func(name string) string
	// Needed reports whether the topic needs the duty now. It may ask the store. Nil stands for
	// always.
	Needed func(ctx context.Context, t *Tools, topic string) (bool, error)
	// Lease is how long the leases of the duty last; 0: as the settings of its topics say. They are
	// renewed while the handler runs, so Lease bounds how much later the duty is done when the
	// process that does it dies.
	Lease time.Duration
	// New returns the handler of the duty, for all its topics.
	New func(t *Tools) Handler
}

// Table returns all duties.
func Table() []Duty {
	return []Duty{copying(), forwarding(), scheduling()}
}

// Handler is the handler of a duty. By this interface a Worker sees that the handler may have the
// messages of a topic with groups.
type Handler interface {
	punctual.Handler
	// LogOutage returns the log of outages that the worker of the duty shares with the Runner.
	LogOutage() *Outage
}

// Refusable is an error of a handler, with follow-ups, that knows what to do when the store refuses
// one of them.
type Refusable interface {
	error
	// Refused returns what the handler returns instead, or nil to have the worker decide.
	Refused(cause error) error
}

// Tools are what duties need of a store. All methods are safe for concurrent use.
type Tools struct {
	// Store is the store that the duties are for.
	Store punctual.Store
	// Inspector is that of the store; nil if it has none.
	Inspector punctual.Inspector
	Logger    *slog.Logger
	// Outage is the log of outages of the Runner, of the workers of its duties, and of the Worker
	// that runs it.
	Outage *Outage
	// Observer is told what duties decide; nil is told nothing.
	Observer *punctual.Observer
	// Look makes the runner look for topics soon. It does not wait.
	Look func()

	settings *batch.Batcher[string, setting]
}

// setting is the settings of a topic, or why they are not known.
type setting struct {
	punctual.Settings
	err error
}

// NewTools returns the tools for a store. look may be nil.
func NewTools(store punctual.Store, logger *slog.Logger, look func()) *Tools {
	t := &Tools{Store: store, Logger: logger, Look: look}
	t.Outage = &Outage{logger: logger, kinds: make(map[any]string), told: make(map[string]bool)}
	if t.Look == nil {
		t.Look = func() {}
	}
	t.Inspector, _ = punctual.As[punctual.Inspector](store)
	t.settings = batch.New(batch.Config[string, setting]{
		Op: "settings", Run: t.readSettings, Size: func(string) int64 { return 1 }, Key: func(topic string) string { return topic },
		MaxItems: mostRead, MaxBytes: mostRead, MaxPending: limits.MaxClaim, Late: lateRead,
		Closed: punctual.ErrClosed, Overloaded: punctual.ErrOverloaded, Indeterminate: punctual.ErrIndeterminate,
	})
	return t
}

// Settings returns the settings of the topic, read after the call began. Calls that wait for the
// store share one reading, so that a duty with a backlog does not read the settings once for each
// message. For a store that is no Inspector it returns the defaults.
func (t *Tools) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	if t.Inspector == nil {
		return punctual.DefaultSettings(), nil
	}
	s, err := t.settings.Do(ctx, topic)
	if err == nil {
		err = s.err
	}
	if err != nil {
		return punctual.Settings{}, fmt.Errorf("settings of %s: %w", topic, err)
	}
	return s.Settings, nil
}

// Backoff returns the backoff of the topic. If that is not known, Backoff says so in the log and
// returns the default.
func (t *Tools) Backoff(ctx context.Context, topic string) punctual.Backoff {
	s, err := t.Settings(ctx, topic)
	if err != nil {
		t.Logger.Log(ctx, LevelOf(err), "the backoff of the topic is not known, so a message is put off by the default", "topic", topic, "err", err)
		s = punctual.DefaultSettings()
	}
	return s.Backoff
}

// readSettings reads the settings of each topic once.
func (t *Tools) readSettings(ctx context.Context, topics []string) ([]setting, error) {
	ctx, cancel := context.WithTimeout(ctx, longestRead)
	defer cancel()
	known := make(map[string]setting, 1)
	out := make([]setting, len(topics))
	for i, topic := range topics {
		s, ok := known[topic]
		if !ok {
			s.Settings, s.err = t.Inspector.Settings(ctx, topic)
			known[topic] = s
		}
		out[i] = s
	}
	return out, nil
}

const (
	// mostRead is the most topics whose settings are read one after the other, because each is a
	// call of the store.
	mostRead = 64
	// lateRead is how long that may take before the others are read without waiting, and each topic
	// of the late ones by itself.
	lateRead = 200 * time.Millisecond
	// longestRead bounds the reading, so that a store that hangs does not keep the handlers
	// waiting.
	longestRead = 5 * time.Second
)

// LogOutage implements Handler for the duties that have Tools.
func (t *Tools) LogOutage() *Outage { return t.Outage }

// Close waits for the calls under way, at most until ctx ends. Further calls of Settings fail if
// they need the store.
func (t *Tools) Close(ctx context.Context) error { return t.settings.Close(ctx) }
