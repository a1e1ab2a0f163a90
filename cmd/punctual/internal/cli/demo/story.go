package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/worker"
)

const (
	// storyTopic has one message for each order, which closes the order unless it is paid before.
	storyTopic = "order.close"
	// payWithin is how long an order may stay unpaid: 30 minutes in a shop.
	payWithin = 6 * time.Second
	// storyMore is how long the extended order may stay unpaid, counted from when it asks for more
	// time.
	storyMore = 10 * time.Second
	// closedTopic tells of closed orders. Its messages are follow-ups of those of storyTopic, and
	// each group gets a copy.
	closedTopic = "order.closed"
	// closedAfter is how long after an order was closed the groups are told of it.
	closedAfter = time.Second
	// reportTopic has a schedule that comes storyReports times, every storyReportEvery.
	reportTopic      = "shop.report"
	storyReports     = 4
	storyReportEvery = 4 * time.Second
	// storyReopen is when the store is closed and opened again.
	storyReopen = 5 * time.Second
	// storyAttempts is the limit of attempts of storyTopic.
	storyAttempts = 3

	// endWait bounds how long the story waits for its last message after its plan. endCheck is how
	// long it waits before it counts the messages that are left once more.
	endWait  = time.Minute
	endCheck = 100 * time.Millisecond

	storyOrders  = 12
	storyPace    = 400 * time.Millisecond // from one order to the next
	storyPayment = 2 * time.Second        // from placing an order to its payment, or to asking for more time
)

// storyGroups are the groups of closedTopic: the services that are told of a closed order.
func storyGroups() []string { return []string{"billing", "mail"} }

// storyBackoff is the backoff of storyTopic.
func storyBackoff() punctual.Backoff {
	return punctual.Backoff{Delays: []time.Duration{time.Second, 2 * time.Second}}
}

// fate is what is to become of an order.
type fate int

const (
	unpaid   fate = iota // closed when its time is up
	paid                 // cancelled before
	extended             // rescheduled, then closed
	flaky                // the first attempt to close it fails
	poison               // every attempt fails
)

// fateOf tells the fate of the n-th order, counted from 0.
func fateOf(n int) fate {
	switch n {
	case 2, 5, 8:
		return paid
	case 4:
		return extended
	case 6:
		return flaky
	case 7:
		return poison
	}
	return unpaid
}

// order is the body of a message.
type order struct {
	Number int  `json:"number"`
	Fate   fate `json:"fate"`
}

func (o order) id() string { return fmt.Sprintf("order-%d", 1001+o.Number) }

// step is one thing that happens in the shop.
type step struct {
	at time.Duration // from the story's beginning
	do func(context.Context) error
}

// story is one run of the demo. Only the goroutine that calls play uses it, except that the
// handlers, which the worker calls, use the ledger.
type story struct {
	open   func() (punctual.Store, error)
	ledger *ledger

	store  punctual.Store
	orders *punctual.Topic[order]
	worker *worker.Worker
}

// play plays the story, as a program that uses the library would, and writes down in l what
// happened.
func play(ctx context.Context, open func() (punctual.Store, error), l *ledger) (err error) {
	s := &story{open: open, ledger: l}
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.pause()) }()
	if err := s.configure(ctx); err != nil {
		return err
	}
	began := time.Now()
	for _, step := range s.plan() {
		if err := waitFor(ctx, time.Until(began.Add(step.at))); err != nil {
			return err
		}
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	return s.end(ctx)
}

// plan is the whole story in order of time.
func (s *story) plan() []step {
	steps := []step{{storyReopen, s.reopen}}
	for n := range storyOrders {
		o := order{n, fateOf(n)}
		placed := time.Duration(n) * storyPace
		steps = append(steps, step{placed, func(ctx context.Context) error { return s.place(ctx, o) }})
		switch o.Fate {
		case paid:
			steps = append(steps, step{placed + storyPayment, func(ctx context.Context) error { return s.pay(ctx, o) }})
		case extended:
			steps = append(steps, step{placed + storyPayment, func(ctx context.Context) error { return s.extend(ctx, o) }})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	return steps
}

func (s *story) place(ctx context.Context, o order) error {
	r, err := s.orders.Push(ctx, o, punctual.In(payWithin), punctual.ID(o.id()))
	if err != nil {
		return fmt.Errorf("place %s: %w", o.id(), err)
	}
	s.ledger.placed(o.id(), r.Due.Add(-payWithin), r.Due)
	return nil
}

func (s *story) pay(ctx context.Context, o order) error {
	err := s.orders.Cancel(ctx, o.id())
	switch {
	case err == nil:
		s.ledger.cancelled(o.id())
	case !tooLate(err):
		return fmt.Errorf("pay %s: %w", o.id(), err)
	}
	return nil
}

func (s *story) extend(ctx context.Context, o order) error {
	due, err := s.orders.Reschedule(ctx, o.id(), punctual.In(storyMore))
	switch {
	case err == nil:
		s.ledger.rescheduled(o.id(), due)
	case !tooLate(err):
		return fmt.Errorf("extend %s: %w", o.id(), err)
	}
	return nil
}

// tooLate tells whether err says that the order is being closed, or is closed.
func tooLate(err error) bool {
	return errors.Is(err, punctual.ErrLeased) || errors.Is(err, punctual.ErrNotFound)
}

// closeOrder is the handler of storyTopic. It closes an order that was not paid in time; the
// follow-up that tells the groups of it is stored in one step with the ack.
func (s *story) closeOrder(_ context.Context, o order, d *punctual.Delivery) error {
	s.ledger.delivered(d)
	err := fail(o, d.Attempt)
	s.ledger.handled(d, err)
	if err != nil {
		return err
	}
	closed, err := punctual.Compose(closedTopic, []byte(d.ID), punctual.ID(d.ID+"~closed"), punctual.In(closedAfter))
	return punctual.Follow(err, closed)
}

// told returns the handler of a group. It notes that the group was told of a closed order.
func (s *story) told(group string) punctual.Handler {
	return punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		s.ledger.told(string(d.Body), group, d)
		return nil
	})
}

// report is the handler of the schedule's occurrences.
func (s *story) report(_ context.Context, d *punctual.Delivery) error {
	s.ledger.reported(d)
	return nil
}

// fail is the error of an attempt to close an order, nil for most.
func fail(o order, attempt int) error {
	switch {
	case o.Fate == flaky && attempt == 1:
		return errors.New("the warehouse did not answer")
	case o.Fate == poison:
		return errors.New("the order has no customer")
	}
	return nil
}

// begin opens the store and starts the worker.
func (s *story) begin(ctx context.Context) error {
	store, err := s.open()
	if err != nil {
		return err
	}
	s.store = store
	s.orders = punctual.NewTopic[order](punctual.NewQueue(store, nil), storyTopic)
	s.worker = worker.New(store, &worker.Config{Logger: slog.New(slog.DiscardHandler)}) // its failures are part of the story
	s.worker.Handle(storyTopic, s.orders.Handler(s.closeOrder))
	for _, group := range storyGroups() {
		s.worker.HandleGroup(closedTopic, group, s.told(group))
	}
	s.worker.Handle(reportTopic+"@cron", schedule.NewScheduler(store))
	s.worker.Handle(reportTopic, punctual.HandlerFunc(s.report))
	if err := s.worker.Start(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(err, store.Close())
	}
	return nil
}

// configure sets the topics up and stores the schedule.
func (s *story) configure(ctx context.Context) error {
	q := punctual.NewQueue(s.store, nil)
	_, err := q.Configure(ctx, storyTopic, func(s *punctual.Settings) { s.MaxAttempts, s.Backoff = storyAttempts, storyBackoff() })
	if err != nil {
		return err
	}
	if _, err := q.Configure(ctx, closedTopic, func(s *punctual.Settings) { s.Groups = storyGroups() }); err != nil {
		return err
	}
	_, err = schedule.Put(ctx, q, schedule.Schedule{Topic: reportTopic, Name: "sales", Spec: "@every " + storyReportEvery.String(), Limit: storyReports})
	return err
}

// pause stops the worker and closes the store.
func (s *story) pause() error {
	if s.store == nil {
		return nil
	}
	err := errors.Join(s.worker.Stop(context.Background()), s.store.Close())
	s.store = nil
	return err
}

// reopen closes the store while messages are pending, and goes on with what it holds.
func (s *story) reopen(ctx context.Context) error {
	if err := s.pause(); err != nil {
		return fmt.Errorf("close the store in between: %w", err)
	}
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("open the store again: %w", err)
	}
	s.ledger.reopened()
	return nil
}

// end waits until nothing is left to be delivered, for endWait at most, and writes down which
// orders the store still holds: the dead one.
func (s *story) end(ctx context.Context) error {
	i, err := punctual.As[punctual.Inspector](s.store)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(endWait); time.Now().Before(deadline); {
		over, err := s.over(ctx, i)
		if err != nil {
			return err
		}
		if over {
			break
		}
		if err := waitFor(ctx, endCheck); err != nil {
			return err
		}
	}
	for n := range storyOrders {
		id := order{Number: n}.id()
		m, err := i.Get(ctx, storyTopic, id)
		switch {
		case err == nil:
			s.ledger.left(m)
		case !errors.Is(err, punctual.ErrNotFound):
			return err
		}
	}
	return nil
}

// over reports whether nothing is left to be delivered, in any topic but that of the schedule's own
// messages.
func (s *story) over(ctx context.Context, i punctual.Inspector) (bool, error) {
	topics, err := i.Topics(ctx)
	live := slices.ContainsFunc(topics, func(t punctual.TopicStats) bool { return t.Live() > 0 && t.Topic != reportTopic+"@cron" })
	return err == nil && !live && s.ledger.reports() >= storyReports, err
}

// waitFor waits for d, or returns why ctx ended first.
func waitFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
