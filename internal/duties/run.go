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
	"github.com/punctualmq/punctual/storekit"
)

const (
	// LookEvery is how long a Runner waits before it looks again through all topics for those that
	// need a duty.
	LookEvery = 10 * time.Second
	// lookAgain is how long it waits before it looks for new companions although nothing has told
	// of one (P11), and the least time from the beginning of a look that fails to that of the next
	// one. It is less than a second, so that what the look finds is mostly done within a second,
	// too.
	lookAgain = storekit.MaxAwait * 9 / 10
	// lookPause is the least time from the beginning of a look to that of the next one, so that
	// many new companions do not make it replace a worker for each.
	lookPause = 25 * time.Millisecond
	// sideBySide is how many topics are asked at the same time whether they need a duty.
	sideBySide = 16
	// mostIdle is how many topics that need no duty, although they have the companions of one, are
	// asked again at each look.
	mostIdle = 256
)

// Runner finds the topics that need a duty, again and again, and has their messages handled. Each
// duty has a worker of its own, so that one which hangs keeps no other one waiting (P14).
type Runner struct {
	// Names returns the names of the topics among which the runner looks.
	Names func(ctx context.Context) ([]string, error)
	// Start has h handle the messages of the topics until stop is called, which waits until nothing
	// is under way any more, but at most some seconds. lease is Duty.Lease.
	Start func(topics []string, h punctual.Handler, lease time.Duration) (stop func(), err error)

	// Namer tells of new companions. Without it the runner finds them when it looks through all
	// topics.
	Namer storekit.TopicNamer
	// Owns reports whether a name is one of those that Names would return. Required with Namer.
	Owns func(name string) bool

	tools  *Tools
	duties []Duty
	looks  chan struct{} // has room for one
	// running has what runs of each duty. Only the goroutine of Run uses it.
	running []running
	// mark is that of Namer. Only the goroutine of Run uses it.
	mark string
	// stopping waits for the workers that end has ended, and for watchSchedules.
	stopping sync.WaitGroup
}

// running is what runs of one duty.
type running struct {
	topics []string // those that need the duty, sorted; each is a topic of one of the workers
	idle   []string // those that have the companions of the duty, but do not need it now
	most   share    // has the topics that the last look through all topics has found
	rest   share    // has those that were found since, so that a new topic does not replace the worker of all others
}

// share is a part of the topics of a duty, with the worker that handles their messages.
type share struct {
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

// Run has the duties done until ctx ends, and returns when their workers have stopped. Call Close
// after Run. The error says that the store was closed before, has failed or is damaged.
func (r *Runner) Run(ctx context.Context) (err error) {
	watching, end := context.WithCancel(ctx)
	defer r.stopping.Wait()
	defer end()
	defer r.tools.Outage.Left(r)
	r.stopping.Go(func() { r.watchSchedules(watching) })
	var whole time.Time // when the runner last looked through all topics
	for failing := false; ctx.Err() == nil; {
		begun := time.Now()
		since := begun.Sub(whole)
		if failing || since >= LookEvery || since >= lookAgain && r.asked() {
			whole = begun
			err = r.adjust(ctx)
		} else {
			err = r.add(ctx)
		}
		if errors.Is(err, punctual.ErrClosed) || errors.Is(err, punctual.ErrStoreFailed) || errors.Is(err, punctual.ErrCorrupt) {
			break
		}
		switch {
		case err == nil:
			r.tools.Outage.Answered(r)
		case ctx.Err() == nil:
			r.tools.Outage.Failed(r, err, "topics that need a duty could not be looked for; trying again")
		}
		pause := lookPause
		if failing, err = err != nil, nil; failing {
			pause = lookAgain
		}
		sleep(ctx, pause-time.Since(begun))
	}
	for i := range r.running {
		r.end(&r.running[i].most)
		r.end(&r.running[i].rest)
	}
	return err
}

// asked reports whether Look was called.
func (r *Runner) asked() bool {
	select {
	case <-r.looks:
		return true
	default:
		return false
	}
}

// Close waits for the calls of Backoff and of duties that read the settings of topics, which may go
// on after their callers have gone. From then on the settings count as not known, unless the store
// is no Inspector.
func (r *Runner) Close() {
	_ = r.tools.Close(context.Background()) // without an end it has no error
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// adjust looks through all topics, and replaces the workers of each duty whose topics have changed.
// The new one begins before the old ones end, which does no harm, because their claims take
// different messages.
func (r *Runner) adjust(ctx context.Context) error {
	if r.Namer != nil { // the mark comes first, so that nothing which comes into being meanwhile is missed
		c, err := r.Namer.NewCompanions(ctx, "", 0)
		if err != nil {
			return err
		}
		r.mark = c.Mark
	}
	names, err := r.Names(ctx)
	if err != nil {
		return err
	}
	for i := range r.duties {
		now := &r.running[i]
		topics, idle, terr := r.divide(ctx, r.duties[i], r.duties[i].topics(names), now.topics)
		if terr != nil {
			err = terr
		}
		now.idle = idle
		if slices.Equal(topics, now.topics) && now.rest.stop == nil {
			continue
		}
		if terr := r.replace(&now.most, r.duties[i], topics); terr != nil {
			return terr
		}
		r.end(&now.rest)
		now.topics = topics
	}
	return err
}

// add waits for new companions, and has the duties done that they need, and those that idle topics
// need by now.
func (r *Runner) add(ctx context.Context) error {
	var names []string
	if r.Namer == nil {
		sleep(ctx, lookAgain)
	} else {
		c, err := r.Namer.NewCompanions(ctx, r.mark, lookAgain)
		if err != nil {
			return err
		}
		names = slices.DeleteFunc(c.Names, func(name string) bool { return !r.Owns(name) })
		r.mark = c.Mark
	}
	for i := range r.duties {
		if err := r.addTo(ctx, r.duties[i], &r.running[i], names); err != nil {
			return err
		}
	}
	return nil
}

// addTo has a duty done for those of the names, and of the idle topics, that need it and for which
// it is not done yet.
func (r *Runner) addTo(ctx context.Context, d Duty, now *running, names []string) error {
	found := slices.DeleteFunc(d.topics(names), func(topic string) bool {
		_, runs := slices.BinarySearch(now.topics, topic)
		return runs
	})
	again := now.idle[:min(mostIdle, len(now.idle))]
	later := slices.DeleteFunc(slices.Clone(now.idle[len(again):]), func(topic string) bool { return slices.Contains(found, topic) })
	needed, idle, err := r.divide(ctx, d, union(found, again), nil)
	now.idle = append(later, idle...) // those that were asked now come last the next time
	if len(needed) == 0 {
		return err
	}
	if err := r.replace(&now.rest, d, union(now.rest.topics, needed)); err != nil {
		return err
	}
	now.topics = union(now.topics, needed)
	return err
}

// union returns all of the names, sorted and each once.
func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// replace starts a worker for topics in the place of w.
func (r *Runner) replace(w *share, d Duty, topics []string) error {
	next := share{topics: topics}
	if len(topics) > 0 {
		var err error
		if next.stop, err = r.Start(topics, d.New(r.tools), d.Lease); err != nil {
			return err
		}
		r.tools.Logger.Debug("a duty is done for topics", "duty", d.Name, "topics", len(topics))
	}
	r.end(w)
	*w = next
	return nil
}

// topics returns the topics that the names of companions stand for, sorted.
func (d Duty) topics(names []string) []string {
	seen := map[string]bool{}
	for _, name := range names {
		if topic := d.Topic(name); topic != "" {
			seen[topic] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// divide returns which of the topics need the duty and which do not. A topic of which that is not
// known needs it if was has it.
func (r *Runner) divide(ctx context.Context, d Duty, topics, was []string) (needed, idle []string, err error) {
	if d.Needed == nil {
		return topics, nil, nil
	}
	need, errs := r.needed(ctx, d, topics)
	for i, topic := range topics {
		if errs[i] != nil {
			err, need[i] = errs[i], slices.Contains(was, topic)
		}
		if need[i] {
			needed = append(needed, topic)
		} else {
			idle = append(idle, topic)
		}
	}
	return needed, idle, err
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

// end ends a worker in a goroutine of its own, so that the next look does not wait for it. Run does
// at its end.
func (r *Runner) end(w *share) {
	if w.stop != nil {
		r.stopping.Go(w.stop)
	}
	*w = share{}
}

// Once looks for topics, and calls do for one duty after the other that some topic needs. It is for
// callers that do not run the Runner, and must not be called while Run runs.
func (r *Runner) Once(ctx context.Context, do func(topics []string, h punctual.Handler, lease time.Duration) error) error {
	names, err := r.Names(ctx)
	if err != nil {
		return err
	}
	for _, d := range r.duties {
		topics, _, err := r.divide(ctx, d, d.topics(names), nil)
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

// LogOutage returns the log of outages of the duties.
func (r *Runner) LogOutage() *Outage { return r.tools.Outage }

// Backoff is Tools.Backoff of the store.
func (r *Runner) Backoff(ctx context.Context, topic string) punctual.Backoff {
	return r.tools.Backoff(ctx, topic)
}
