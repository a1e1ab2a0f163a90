// Package duty does the work of a store that somebody has to do and any process may do. It copies
// the messages of topics with groups (punctual.Settings.Groups), forwards follow-ups to topics that
// their store could not reach in one step (storekit.ReachFamily), and stores the occurrences of
// schedules (schedule.Schedule).
//
//	err := duty.Run(ctx, store, nil)
//
// "punctual serve" runs the duties of its store. A worker.Worker copies and forwards for its own
// topics, and with worker.Config.Schedules stores the occurrences of their schedules. A program
// calls Run if it has schedules, or groups that other programs handle, and no such server. Several
// processes that run the duties of one store share them. If one dies, the others go on once its
// leases have ended.
package duty

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/duties"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

// Config configures Run. The zero value is ready to use.
type Config struct {
	// Topics, if any, are the only topics whose duties are done, with those of their companions.
	// Default all topics.
	Topics []string
	// WithoutSchedules leaves out the duty that stores the occurrences of schedules. Their times
	// then wait for another process that does this duty.
	WithoutSchedules bool
	// Concurrency is how many messages each duty handles at the same time, 1 to limits.MaxClaim.
	// Default 64, because the handlers of duties mostly wait for the store.
	Concurrency int
	// Logger gets what goes wrong. Default slog.Default().
	Logger *slog.Logger
	// Observer is notified of the work of the duties as that of a worker.Worker is, and of what is
	// decided about schedules (OnSchedule). Default none.
	Observer *punctual.Observer
}

const (
	defaultConcurrency = 64
	// handlerTimeout bounds the work on one message.
	handlerTimeout = time.Minute
	// stopTime is how long the workers of a duty may take to stop.
	stopTime = 5 * time.Second
)

// Run runs the duties of the store's topics until ctx ends. It is told of new companions, and asks
// for them once a second because that may get lost (storekit.TopicNamer). Every 10 s it looks
// through all topics, with one call whatever their number and one more for each topic that has or
// had groups. When ctx has ended, Run waits until nothing is under way any more and returns nil;
// close the store only then. It does not wait longer than some seconds, even for a handler that
// does not return.
//
// Run returns an ErrUnsupported for a store that cannot name its topics (storekit.TopicNamer) or
// does not tell what it can do (storekit.AbilityReporter), an ErrInvalid for a malformed
// configuration, and the error of a store that was closed, has failed or is damaged.
func Run(ctx context.Context, store punctual.Store, c *Config) error {
	if c == nil {
		c = &Config{}
	}
	if store == nil {
		return fmt.Errorf("duties without a store: %w", punctual.ErrInvalid)
	}
	h := host{store: store, config: worker.Config{Concurrency: c.Concurrency, Timeout: handlerTimeout, Logger: c.Logger, Observer: c.Observer}}
	if h.config.Concurrency == 0 {
		h.config.Concurrency = defaultConcurrency
	}
	if h.config.Logger == nil {
		h.config.Logger = slog.Default()
	}
	if n := h.config.Concurrency; n < 1 || n > limits.MaxClaim {
		return fmt.Errorf("duties with a concurrency of %d: use 1 to %d, or 0 for %d: %w", n, limits.MaxClaim, defaultConcurrency, punctual.ErrInvalid)
	}
	namer, err := punctual.As[storekit.TopicNamer](store)
	if err != nil {
		return fmt.Errorf("duties: %w", err)
	}
	if _, err := punctual.As[storekit.AbilityReporter](store); err != nil {
		return fmt.Errorf("duties: %w", err)
	}
	r := duties.NewRunner(store, h.config.Logger, c.Observer)
	r.Namer = namer
	r.Owns = func(name string) bool {
		parent, _ := storekit.Companion(name)
		return (len(c.Topics) == 0 || slices.Contains(c.Topics, parent)) && !(c.WithoutSchedules && strings.HasSuffix(name, schedule.Suffix))
	}
	r.Names = func(ctx context.Context) ([]string, error) {
		names, err := namer.TopicNames(ctx, storekit.NameQuery{})
		return slices.DeleteFunc(names, func(name string) bool { return !r.Owns(name) }), err
	}
	r.Start = h.start
	defer r.Close()
	if err := r.Run(ctx); err != nil {
		return fmt.Errorf("duties: %w", err)
	}
	return nil
}

// host makes the workers of duties.
type host struct {
	store  punctual.Store
	config worker.Config
}

// start starts a worker that handles topics with h, under leases of the length lease, or as the
// topics say if that is 0. stop ends the worker and waits for it, for stopTime.
func (o *host) start(topics []string, h punctual.Handler, lease time.Duration) (stop func(), err error) {
	c := o.config
	c.Lease = lease
	w := worker.New(o.store, &c)
	for _, topic := range topics {
		w.Handle(topic, h)
	}
	if err := w.Start(context.Background()); err != nil {
		return nil, err
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		if err := w.Stop(ctx); err != nil {
			o.config.Logger.Warn("a duty did not stop in time", "topics", len(topics), "err", err)
		}
	}, nil
}
