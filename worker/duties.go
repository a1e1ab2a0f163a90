package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// A worker does the duties of its own topics (package duties), so that a program needs no server
// for them. For a group it copies the messages of the topic. In a store that reaches only a family
// it forwards the follow-ups of its topics. With Config.Schedules it stores the occurrences of
// their schedules. The handlers of duties run in workers of their own, so that they take no slots
// from the handlers of the program. Several processes that do the same duty share it.

const (
	// dutySlots is the Concurrency of a duty's worker, whose handlers mostly wait for the store.
	dutySlots = 64
	// dutyStop is how long a duty's worker may take to stop.
	dutyStop = 5 * time.Second
	// checkGroupsTime bounds the check for topics with groups at Start and Drain, askAbilities the
	// call that asks what the store can do.
	checkGroupsTime, askAbilities = time.Second, 5 * time.Second
	// groupsAtOnce is how many topics are checked for groups at the same time.
	groupsAtOnce = 16
)

// HandleGroup registers the handler of a group of the topic (Settings.Groups). The group gets a
// copy of each message of the topic. HandleGroup is Handle of punctual.GroupTopic(topic, group). A
// worker that handles a group also makes the copies for all groups of the topic, unless the server
// in front of the store does so (Abilities.Duties).
func (w *Worker) HandleGroup(topic, group string, h punctual.Handler, opts ...HandleOption) {
	w.Handle(punctual.GroupTopic(topic, group), h, opts...)
}

// HandleGroup registers f as the handler of a group of a typed topic: w.HandleGroup(t.Name(),
// group, t.Handler(f), opts...).
func HandleGroup[T any](w *Worker, t *punctual.Topic[T], group string, f func(ctx context.Context, v T, d *punctual.Delivery) error, opts ...HandleOption) {
	w.HandleGroup(t.Name(), group, t.Handler(f), opts...)
}

// checkGroups returns an ErrInvalid if the worker handles the messages of a topic with groups
// itself, because these are for the duty that copies them: a message that another handler acks
// never reaches the groups. checkGroups asks the store once for each topic of ungrouped, for
// checkGroupsTime in all. A topic whose settings are not known by then passes, also if the store
// ignores that its context has ended. late waits for such calls.
func (w *Worker) checkGroups(ctx context.Context) (late *sync.WaitGroup, err error) {
	late = &sync.WaitGroup{}
	asked := w.ungrouped()
	if len(asked) == 0 {
		return late, nil
	}
	inspector, err := punctual.As[punctual.Inspector](w.store)
	if err != nil {
		return late, nil // a store without settings has no groups
	}
	ctx, cancel := context.WithTimeout(ctx, checkGroupsTime)
	defer cancel()
	errs := make(chan error, len(asked))
	tokens := make(chan struct{}, groupsAtOnce)
	for _, topic := range asked {
		late.Go(func() {
			select {
			case tokens <- struct{}{}:
				errs <- checkGroupless(ctx, inspector, topic)
				<-tokens
			case <-ctx.Done():
				errs <- nil
			}
		})
	}
	var found []error
	for range asked {
		select {
		case err := <-errs:
			found = append(found, err)
		case <-ctx.Done():
			for range len(errs) { // those that are there already
				found = append(found, <-errs)
			}
			return late, errors.Join(found...)
		}
	}
	return late, errors.Join(found...)
}

// ungrouped returns the topics that must have no groups: all but companions and the topics of a
// duty. It returns none if the worker cannot start anyway.
func (w *Worker) ungrouped() (topics []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	running := w.session != nil && (!w.session.drain || w.session.underWay())
	if w.stopped || running || w.check() != nil {
		return nil
	}
	for _, topic := range w.topics {
		if _, companion := storekit.Companion(topic); companion == "" && !w.routes[topic].duty {
			topics = append(topics, topic)
		}
	}
	return topics
}

func checkGroupless(ctx context.Context, inspector punctual.Inspector, topic string) error {
	set, err := inspector.Settings(ctx, topic)
	if err != nil || len(set.Groups) == 0 {
		return nil
	}
	return storekit.Invalidf("handle %q: the topic has the groups %s, and its messages are for them: handle a group with HandleGroup",
		topic, strings.Join(set.Groups, ", "))
}

// ownDuties says which topics may need a duty of a worker.
type ownDuties struct {
	names func(ctx context.Context) ([]string, error) // Runner.Names; nil if the worker has no duty
	owns  func(name string) bool
	namer storekit.TopicNamer // nil unless new companions matter
}

// ownDuties returns which topics may need a duty of this worker.
func (w *Worker) ownDuties(ctx context.Context) (own ownDuties, err error) {
	var mine, outs []string // mine are looked for always, outs where the store says that there are some
	groups := false
	for _, topic := range w.topics {
		if w.routes[topic].duty {
			return own, nil // this worker is that of a duty
		}
		parent, companion := storekit.Companion(topic)
		if storekit.IsGroup(companion) {
			mine, groups = append(mine, topic), true
		}
		if cron := parent + schedule.Suffix; w.cfg.Schedules && w.routes[cron] == nil && !slices.Contains(mine, cron) {
			mine = append(mine, cron)
		}
		outs = append(outs, storekit.OutTopic(topic))
	}
	reporter, err := punctual.As[storekit.AbilityReporter](w.store)
	if err != nil {
		return own, nil // without follow-ups there are no copies, no envelopes and no occurrences
	}
	ctx, cancel := context.WithTimeout(ctx, askAbilities)
	defer cancel()
	can, err := reporter.Abilities(ctx)
	if err != nil {
		return own, err
	}
	namer, err := punctual.As[storekit.TopicNamer](w.store)
	forwards := err == nil && can.Follow == storekit.ReachFamily
	if can.Duties || len(mine) == 0 && !forwards {
		return own, nil
	}
	if err == nil && (forwards || groups) { // the companions of schedules are handled before they are there
		own.namer = namer
	}
	all := make(map[string]bool, len(mine)+len(outs))
	for _, name := range mine {
		all[name] = true
	}
	for _, name := range outs {
		all[name] = forwards
	}
	own.owns = func(name string) bool { return all[name] }
	own.names = func(ctx context.Context) ([]string, error) {
		if !forwards {
			return mine, nil
		}
		names, err := namer.TopicNames(ctx, storekit.NameQuery{Suffix: storekit.OutTopic("")})
		if err != nil {
			return nil, err
		}
		return append(slices.DeleteFunc(names, func(name string) bool { return !own.owns(name) }), mine...), nil
	}
	return own, nil
}

// runDuties does the duties of the worker's topics until ctx ends. It returns earlier if there are
// none, or if the store cannot recover.
func (w *Worker) runDuties(ctx context.Context) {
	var tries backoff
	for ctx.Err() == nil {
		own, err := w.ownDuties(ctx)
		if err == nil {
			if own.names != nil {
				w.runner.Names, w.runner.Owns, w.runner.Namer, w.runner.Start = own.names, own.owns, own.namer, w.startDuty
				_ = w.runner.Run(ctx) // the claims of the worker get the error, too, and report it
			}
			return
		}
		if unrecoverable(err) {
			return
		}
		sleep(ctx, tries.next())
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// dutyWorker returns a worker that handles topics for a duty, under leases of the length lease, or
// as the topics say if that is 0.
func (w *Worker) dutyWorker(topics []string, h punctual.Handler, lease time.Duration) *Worker {
	d := New(w.store, &Config{Concurrency: dutySlots, Lease: lease, Timeout: time.Minute, Logger: w.cfg.Logger, Observer: w.cfg.Observer})
	for _, topic := range topics {
		d.Handle(topic, h)
	}
	return d
}

// startDuty starts a worker for a duty.
func (w *Worker) startDuty(topics []string, h punctual.Handler, lease time.Duration) (stop func(), err error) {
	d := w.dutyWorker(topics, h, lease)
	if err := d.Start(context.Background()); err != nil {
		return nil, err
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), dutyStop)
		defer cancel()
		if err := d.Stop(ctx); err != nil && !unrecoverable(err) {
			w.cfg.Logger.Warn("a duty did not stop in time", "topics", topics, "err", err)
		}
	}, nil
}

// drainDuties does the duties of the worker's topics that are due now, for Drain. It returns how
// many messages it handled.
func (w *Worker) drainDuties(ctx context.Context) (handled int, err error) {
	own, err := w.ownDuties(ctx)
	if err != nil || own.names == nil {
		return 0, err
	}
	w.runner.Names = own.names
	err = w.runner.Once(ctx, func(topics []string, h punctual.Handler, lease time.Duration) error {
		n, err := w.dutyWorker(topics, h, lease).Drain(ctx)
		handled += n
		return err
	})
	if err != nil {
		return handled, fmt.Errorf("duties: %w", err)
	}
	return handled, nil
}
