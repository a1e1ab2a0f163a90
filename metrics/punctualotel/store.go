package punctualotel

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/metrics/internal/reading"
	"github.com/punctualmq/punctual/storekit"
)

// AddStore measures what s holds whenever the metrics are collected, such as the messages by state,
// how far ahead they are due, how long the oldest ready message has waited, and how much space is
// left. Because a store with many messages takes a while to count them, it spends at most a tenth
// of the time on such readings: a reading that took 1 s is shown again for the next 9 s.
//
// Call Unregister of the returned Registration before s is closed. It ends a reading that is under
// way and waits for it. A store that ignores the end of its context holds Unregister up for at most
// Options.ReadTimeout; Unregister then returns an error, which wraps context.DeadlineExceeded.
//
// AddStore returns ErrUnsupported when s cannot be inspected (punctual.Inspector).
func (t *Telemetry) AddStore(s punctual.Store) (metric.Registration, error) {
	r, err := reading.NewReader(s, t.topics, t.opt.ReadTimeout)
	if err != nil {
		return nil, fmt.Errorf("metrics of a store: %w", err)
	}
	g := storeGauges{reader: r}
	if d, err := punctual.As[storekit.DurabilityReporter](s); err == nil {
		g.durability = string(d.Durability())
	}
	var failed []error
	count := func(name, unit, help string) metric.Int64ObservableGauge {
		i, err := t.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help))
		failed = append(failed, err)
		return i
	}
	seconds := func(name, help string) metric.Float64ObservableGauge {
		i, err := t.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(help))
		failed = append(failed, err)
		return i
	}
	g.up = count("punctual.store.up", "", "Whether the last reading of the store succeeded.")
	g.info = count("punctual.store.info", "", "The class of durability that the store promises.")
	g.read = seconds("punctual.store.read.duration", "How long the last reading of the store took.")
	g.topics = count("punctual.topics", "{topic}", "Topics in the store.")
	g.messages = count("punctual.messages", "{message}", "Messages in the store by state: scheduled, ready, leased, dead.")
	g.waiting = count("punctual.waiting.messages", "{message}", "Ready messages that wait for their keys, of topics with keys.")
	g.oldest = seconds("punctual.oldest_ready", "How long ago the first of the ready messages fell due.")
	g.paused = count("punctual.topics.paused", "{topic}", "Topics that are paused, by side: push, delivery.")
	g.schedules = count("punctual.schedules", "{schedule}", "Recurring schedules of the topic, paused and ended ones included.")
	g.overdue = seconds("punctual.schedule.overdue", "How long ago the first of the times came about which no duty has decided, or that a problem has kept from coming.")
	g.stalled = count("punctual.schedule.problems", "{schedule}", "Schedules that do not come as they should: 'punctual schedule list' says why.")
	g.ahead = count("punctual.pending.messages", "{message}", "Messages that are not dead by how far ahead they are due: within this time and not within the one before.")
	g.free = count("punctual.store.free", "By", "How many bytes can still be written to the medium of the store.")
	g.size = count("punctual.store.size", "By", "The size of the medium of the store.")
	g.reserve = count("punctual.store.reserve", "By", "Pushes are refused while less than this is free.")
	g.off = seconds("punctual.store.clock.ahead", "By how much the store's clock is ahead of the one that it follows.")
	g.steps, err = t.meter.Int64ObservableCounter("punctual.store.clock.steps", metric.WithUnit("{step}"),
		metric.WithDescription("How often the store's clock has stepped back to the one that it follows."))
	if err := errors.Join(append(failed, err)...); err != nil {
		return nil, fmt.Errorf("make the instruments of a store: %w", err)
	}
	registration, err := t.meter.RegisterCallback(g.observe,
		g.up, g.info, g.read, g.topics, g.messages, g.waiting, g.oldest, g.paused, g.schedules, g.overdue, g.stalled, g.ahead, g.free, g.size, g.reserve, g.off, g.steps)
	if err != nil {
		return nil, fmt.Errorf("register the metrics of a store: %w", err)
	}
	return &storeRegistration{Registration: registration, reader: r}, nil
}

// storeRegistration also closes the reader of the store when it is unregistered, so that no reading
// outlives the registration.
type storeRegistration struct {
	metric.Registration
	reader *reading.Reader
}

// Unregister implements metric.Registration. It closes the reader first, because OpenTelemetry
// removes the callback only when the collection under way has ended, and that waits for the
// reading.
func (r *storeRegistration) Unregister() error {
	return errors.Join(r.reader.Close(), r.Registration.Unregister())
}

// storeGauges turns readings of a store into metrics.
type storeGauges struct {
	reader     *reading.Reader
	durability string

	up, info, topics, messages, waiting, paused, schedules, stalled, ahead, free, size, reserve metric.Int64ObservableGauge
	read, oldest, overdue, off                                                                  metric.Float64ObservableGauge
	steps                                                                                       metric.Int64ObservableCounter
}

// observe is the callback that OpenTelemetry calls for a collection. When the store cannot be read,
// punctual.store.up is 0 and all figures of what the store holds are left out, because old figures
// would look like those of a store in which nothing happens. OpenTelemetry passes the returned
// error to its error handler.
func (g *storeGauges) observe(_ context.Context, o metric.Observer) error {
	if g.durability != "" {
		o.ObserveInt64(g.info, 1, with("durability", g.durability))
	}
	r, err := g.reader.Read()
	o.ObserveFloat64(g.read, r.Took.Seconds())
	if err != nil {
		o.ObserveInt64(g.up, 0)
		return fmt.Errorf("metrics of a store: %w", err)
	}
	o.ObserveInt64(g.up, 1)
	o.ObserveInt64(g.topics, int64(r.Known))
	for _, t := range r.Topics {
		o.ObserveInt64(g.messages, t.Scheduled, with("topic", t.Label, "state", punctual.StateScheduled.String()))
		o.ObserveInt64(g.messages, t.Ready, with("topic", t.Label, "state", punctual.StateReady.String()))
		o.ObserveInt64(g.messages, t.Leased, with("topic", t.Label, "state", punctual.StateLeased.String()))
		o.ObserveInt64(g.messages, t.Dead, with("topic", t.Label, "state", punctual.StateDead.String()))
		if t.Keyed {
			o.ObserveInt64(g.waiting, t.Waiting, with("topic", t.Label))
		}
		o.ObserveFloat64(g.oldest, t.OldestReady.Seconds(), with("topic", t.Label))
		o.ObserveInt64(g.paused, int64(t.PushPaused), with("topic", t.Label, "side", "push"))
		o.ObserveInt64(g.paused, int64(t.DeliveryPaused), with("topic", t.Label, "side", "delivery"))
		if t.Schedules > 0 {
			o.ObserveInt64(g.schedules, t.Schedules, with("topic", t.Label))
			o.ObserveFloat64(g.overdue, t.ScheduleOverdue.Seconds(), with("topic", t.Label))
			if r.SchedulesRead {
				o.ObserveInt64(g.stalled, t.ScheduleProblems, with("topic", t.Label))
			}
		}
	}
	for i, n := range r.Ahead {
		o.ObserveInt64(g.ahead, n, with("ahead", reading.Spans()[i]))
	}
	if r.Space != nil {
		o.ObserveInt64(g.free, r.Space.Free)
		o.ObserveInt64(g.size, r.Space.Total)
		o.ObserveInt64(g.reserve, r.Space.Reserve)
	}
	if r.Clock != nil {
		o.ObserveFloat64(g.off, r.Clock.Ahead.Seconds())
		o.ObserveInt64(g.steps, r.Clock.Steps)
	}
	return nil
}
