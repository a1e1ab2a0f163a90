package duties

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
)

const (
	// LookEvery is how long a Runner waits before it looks again for topics that need a duty.
	LookEvery = 10 * time.Second
	// lookAgain is how long it waits at least, also when it is asked to look, and how long it waits after a failure.
	lookAgain = time.Second
	// sideBySide is how many topics are asked at the same time whether they need a duty.
	sideBySide = 16
)

// Runner finds the topics that need a duty, again and again, and has their messages handled. Each duty has a worker of its own,
// so that one which hangs keeps no other one waiting (P14).
type Runner struct {
	// Names returns the names of the topics among which the runner looks.
	Names func(ctx context.Context) ([]string, error)
	// Start has h handle the messages of the topics until stop is called, which waits until nothing is under way any more, but at
	// most some seconds. lease is Duty.Lease.
	Start func(topics []string, h punctual.Handler, lease time.Duration) (stop func(), err error)

	tools  *Tools
	duties []Duty
	looks  chan struct{} // has room for one
	// running has what runs of each duty. Only the goroutine of Run uses it.
	running []running
	// stopping waits for the workers that end has ended, and for watchSchedules.
	stopping sync.WaitGroup
}

// running is the worker of one duty.
type running struct {
	topics []string
	stop   func() // nil while there is none
}

// NewRunner returns a runner of the duties of Table for a store. observer may be nil.
func NewRunner(store punctual.Store, logger *slog.Logger, observer *punctual.Observer) *Runner {
	r := &Runner{duties: Table(), looks: make(chan struct{}, 1)}
	r.running = make([]running, len(r.duties))
	r.tools = NewTools(store, logger, r.Look)
	r.tools.Observer = observer
	return r
}

// Look makes the runner look soon. It does not wait, and may be called from any goroutine.
func (r *Runner) Look() {
	select {
	case r.looks <- struct{}{}:
	default:
	}
}

// Run has the duties done until ctx ends, and returns when their workers have stopped. Call Close after Run. The error says that the
// store was closed before, has failed or is damaged.
func (r *Runner) Run(ctx context.Context) (err error) {
	watching, end := context.WithCancel(ctx)
	defer r.stopping.Wait()
	defer end()
	r.stopping.Go(func() { r.watchSchedules(watching) })
	for failing := false; ctx.Err() == nil; {
		if err = r.adjust(ctx); errors.Is(err, punctual.ErrClosed) || errors.Is(err, punctual.ErrStoreFailed) || errors.Is(err, punctual.ErrCorrupt) {
			break
		}
		if err != nil && ctx.Err() == nil && !failing {
			r.tools.Logger.Warn("topics that need a duty could not be looked for; trying again", "err", err)
		}
		failing, err = err != nil, nil
		r.sleep(ctx, failing)
	}
	for i := range r.running {
		r.end(&r.running[i])
	}
	return err
}

// Close waits for the calls of Backoff and of duties that read the settings of topics, which may go on after their callers have gone.
// From then on the settings count as not known, unless the store is no Inspector.
func (r *Runner) Close() {
	_ = r.tools.Close(context.Background()) // without an end it has no error
}

// sleep waits until it is time to look again.
func (r *Runner) sleep(ctx context.Context, failing bool) {
	least := time.NewTimer(lookAgain)
	defer least.Stop()
	select {
	case <-ctx.Done():
		return
	case <-least.C:
	}
	if failing {
		return
	}
	rest := time.NewTimer(LookEvery - lookAgain)
	defer rest.Stop()
	select {
	case <-ctx.Done():
	case <-r.looks:
	case <-rest.C:
	}
}

// adjust looks for topics, and replaces the worker of each duty whose topics have changed. The new one begins before the old
// one ends, which does no harm, because their claims take different messages.
func (r *Runner) adjust(ctx context.Context) error {
	names, err := r.Names(ctx)
	if err != nil {
		return err
	}
	for i := range r.duties {
		now := &r.running[i]
		topics, terr := r.topicsOf(ctx, r.duties[i], names, now.topics)
		if terr != nil {
			err = terr
		}
		if slices.Equal(topics, now.topics) {
			continue
		}
		next := running{topics: topics}
		if len(topics) > 0 {
			if next.stop, terr = r.Start(topics, r.duties[i].New(r.tools), r.duties[i].Lease); terr != nil {
				return terr
			}
			r.tools.Logger.Debug("a duty is done for topics", "duty", r.duties[i].Name, "topics", len(topics))
		}
		r.end(now)
		*now = next
	}
	return err
}

// topicsOf returns the topics that need the duty, sorted. A topic of which that is not known stays as it was.
func (r *Runner) topicsOf(ctx context.Context, d Duty, names, was []string) (topics []string, err error) {
	seen := map[string]bool{}
	for _, name := range names {
		if topic := d.Topic(name); topic != "" {
			seen[topic] = true
		}
	}
	topics = slices.Sorted(maps.Keys(seen))
	if d.Needed == nil {
		return topics, nil
	}
	needed, errs := r.needed(ctx, d, topics)
	kept := topics[:0]
	for i, topic := range topics {
		if errs[i] != nil {
			err, needed[i] = errs[i], slices.Contains(was, topic)
		}
		if needed[i] {
			kept = append(kept, topic)
		}
	}
	return kept, err
}

// needed asks which of the topics need the duty, up to sideBySide of them at the same time.
func (r *Runner) needed(ctx context.Context, d Duty, topics []string) ([]bool, []error) {
	needed, errs := make([]bool, len(topics)), make([]error, len(topics))
	var asked atomic.Int64
	var all sync.WaitGroup
	for range min(sideBySide, len(topics)) {
		all.Go(func() {
			for i := int(asked.Add(1)) - 1; i < len(topics); i = int(asked.Add(1)) - 1 {
				needed[i], errs[i] = d.Needed(ctx, r.tools, topics[i])
			}
		})
	}
	all.Wait()
	return needed, errs
}

// end ends a worker in a goroutine of its own, so that the next look does not wait for it.
func (r *Runner) end(w *running) {
	if w.stop != nil {
		r.stopping.Go(w.stop)
	}
	*w = running{}
}

// Once looks for topics, and calls do for one duty after the other that some topic needs. It is for callers that do not run the
// Runner, and must not be called while Run runs.
func (r *Runner) Once(ctx context.Context, do func(topics []string, h punctual.Handler, lease time.Duration) error) error {
	names, err := r.Names(ctx)
	if err != nil {
		return err
	}
	for _, d := range r.duties {
		topics, err := r.topicsOf(ctx, d, names, nil)
		if err != nil {
			return err
		}
		if len(topics) == 0 {
			continue
		}
		if err := do(topics, d.New(r.tools), d.Lease); err != nil {
			return err
		}
	}
	return nil
}

// Backoff is Tools.Backoff of the store.
func (r *Runner) Backoff(ctx context.Context, topic string) punctual.Backoff {
	return r.tools.Backoff(ctx, topic)
}
