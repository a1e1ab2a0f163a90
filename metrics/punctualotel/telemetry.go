// Package punctualotel reports to OpenTelemetry what Punctual does: as metrics, and as traces that
// reach from the push of a message to its handlers.
//
//	t, err := punctualotel.New(nil)
//	queue := punctual.NewQueue(store, &punctual.QueueConfig{Observer: t.Observer(), Prepare: t.Prepare})
//	w := worker.New(store, &worker.Config{Observer: t.Observer(), Middleware: []worker.Middleware{t.Middleware}})
//	registration, err := t.AddStore(store)
//	defer registration.Unregister() // before the store is closed
//
// A push makes a span "create TOPIC", and writes the context of the span to the header
// "traceparent" of the message. Each attempt to handle the message makes a span "process TOPIC",
// whose parent is the span of the push. So a single trace shows the request that pushed, the wait
// of seconds or months, all attempts, and the calls that the handlers made. The span of the push is
// a parent and not a link because a message has exactly one cause, and because then all that became
// of a request is found in one trace. Whether a trace is sampled is decided once, when the message
// is pushed.
//
// The metrics have the labels and meanings of those of package punctualprom. Their names are the
// same, too, but written with dots and without the endings for units and totals:
// punctual_pushes_total is punctual.pushes here. Only punctual.oldest_ready keeps one underscore.
//
// The package is a module of its own, so that only programs that use it depend on OpenTelemetry.
package punctualotel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/metrics/internal/reading"
	"github.com/punctualmq/punctual/storekit"
)

// scope names this package to OpenTelemetry.
const scope = "github.com/punctualmq/punctual/metrics/punctualotel"

// Options adjusts the telemetry. The zero value has the defaults.
type Options struct {
	// MeterProvider and TracerProvider receive the metrics and the spans. Default: the global
	// providers of the process (otel.GetMeterProvider and otel.GetTracerProvider) at the time of
	// New.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
	// Propagator carries the context of a span in the headers of a message. Default
	// propagation.TraceContext, the headers traceparent and tracestate of W3C.
	Propagator propagation.TextMapPropagator
	// TopicLimit is the number of topics that metrics show by name; the first topics that are seen
	// get their name. All others are shown together as "other". Spans always have the topic's name.
	// Default 100.
	TopicLimit int
	// ReadTimeout bounds one reading of a store. Default 5 s.
	ReadTimeout time.Duration
}

const (
	defaultTopicLimit  = 100
	defaultReadTimeout = 5 * time.Second
)

func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if out.TopicLimit < 0 || out.ReadTimeout < 0 {
		return out, fmt.Errorf("telemetry with a topic limit of %d and a read timeout of %v: use positive ones, or 0 for the defaults: %w",
			out.TopicLimit, out.ReadTimeout, punctual.ErrInvalid)
	}
	if out.MeterProvider == nil {
		out.MeterProvider = otel.GetMeterProvider()
	}
	if out.TracerProvider == nil {
		out.TracerProvider = otel.GetTracerProvider()
	}
	if out.Propagator == nil {
		out.Propagator = propagation.TraceContext{}
	}
	if out.TopicLimit == 0 {
		out.TopicLimit = defaultTopicLimit
	}
	if out.ReadTimeout == 0 {
		out.ReadTimeout = defaultReadTimeout
	}
	return out, nil
}

// Telemetry has the tracer and the instruments of one process. Its methods are safe for concurrent
// use.
type Telemetry struct {
	opt    Options
	tracer trace.Tracer
	meter  metric.Meter
	topics *reading.Topics

	lateness    metric.Float64Histogram
	pushes      metric.Int64Counter
	amendments  metric.Int64Counter
	claims      metric.Int64Counter
	settlements metric.Int64Counter
	lost        metric.Int64Counter
	handlers    metric.Float64Histogram
	calls       metric.Float64Histogram
	errors      metric.Int64Counter
	times       metric.Int64Counter
}

// New makes the tracer and the instruments from the providers of o.
func New(o *Options) (*Telemetry, error) {
	opt, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Telemetry{
		opt: opt, tracer: opt.TracerProvider.Tracer(scope), meter: opt.MeterProvider.Meter(scope),
		topics: reading.NewTopics(opt.TopicLimit),
	}
	var failed []error
	counter := func(name, unit, help string) metric.Int64Counter {
		c, err := t.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
		failed = append(failed, err)
		return c
	}
	histogram := func(name, help string, buckets ...float64) metric.Float64Histogram {
		h, err := t.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help), metric.WithExplicitBucketBoundaries(buckets...))
		failed = append(failed, err)
		return h
	}
	t.lateness = histogram("punctual.delivery.lateness", "How long after the due time of the attempt, or a later push, a message was claimed.",
		0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
	t.pushes = counter("punctual.pushes", "{message}", "Messages pushed, by what became of them: stored, duplicate, replaced, or the code of the error.")
	t.amendments = counter("punctual.amendments", "{message}", "Messages cancelled, rescheduled, requeued and deleted, by result: done, or the code of the error.")
	t.claims = counter("punctual.claims", "{claim}", "Claims that did not fail, by whether they brought messages: some, none.")
	t.settlements = counter("punctual.settlements", "{message}", "Settlements of leases, by verb and by result: done, or the code of the error.")
	t.lost = counter("punctual.leases.lost", "{message}", "Messages whose holder learned that the lease was not its own any more, by reason: lease_lost, cancelled.")
	t.handlers = histogram("punctual.handler.duration", "How long handlers ran, by what became of the message.",
		0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 1800, 3600)
	t.calls = histogram("punctual.store.call.duration", "How long callers waited for the store, once for each message: push, amend, settle.",
		0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
	t.errors = counter("punctual.errors", "{error}", "Errors that no caller received, by operation and code.")
	t.times = counter("punctual.schedule.times", "{time}",
		"Times of recurring schedules about which this process has decided: stored, missed, skipped. One whose storing fails is counted again.")
	if err := errors.Join(failed...); err != nil {
		return nil, fmt.Errorf("make the instruments: %w", err)
	}
	return t, nil
}

// Observer returns an Observer that records the metrics. It may be given to any number of Queues
// and Workers.
func (t *Telemetry) Observer() *punctual.Observer {
	return &punctual.Observer{
		OnPush:      t.pushed,
		OnAmend:     t.amended,
		OnClaim:     t.claimed,
		OnStart:     t.started,
		OnFinish:    t.finished,
		OnSettle:    t.settled,
		OnLeaseLost: t.leaseLost,
		OnError:     t.failed,
		OnSchedule:  t.scheduled,
	}
}

func (t *Telemetry) pushed(ctx context.Context, r punctual.PushResult, took time.Duration) {
	t.pushes.Add(ctx, 1, with("topic", t.topics.LabelOf(r.Topic, r.Err), "result", reading.PushResult(r)))
	t.calls.Record(ctx, took.Seconds(), with("operation", "push"))
}

func (t *Telemetry) amended(ctx context.Context, a punctual.Amendment, r punctual.Amended, took time.Duration) {
	t.amendments.Add(ctx, 1, with("topic", t.topics.LabelOf(a.Topic, r.Err), "change", a.Change.String(), "result", reading.Result(r.Err)))
	t.calls.Record(ctx, took.Seconds(), with("operation", "amend"))
}

func (t *Telemetry) claimed(ctx context.Context, n int, _ time.Duration) {
	t.claims.Add(ctx, 1, with("brought", reading.Brought(n)))
}

func (t *Telemetry) started(ctx context.Context, d *punctual.Delivery) {
	t.lateness.Record(ctx, d.ReadyFor().Seconds(), with("topic", t.topics.Admit(d.Topic)))
}

func (t *Telemetry) finished(ctx context.Context, d *punctual.Delivery, v punctual.Verb, took time.Duration, _ error) {
	t.handlers.Record(ctx, took.Seconds(), with("topic", t.topics.Admit(d.Topic), "verb", v.String()))
}

func (t *Telemetry) settled(ctx context.Context, s punctual.Settlement, took time.Duration, err error) {
	t.settlements.Add(ctx, 1, with("topic", t.topics.LabelOf(s.Topic, err), "verb", s.Verb.String(), "result", reading.Result(err)))
	t.calls.Record(ctx, took.Seconds(), with("operation", "settle"))
}

func (t *Telemetry) leaseLost(ctx context.Context, d *punctual.Delivery, err error) {
	t.lost.Add(ctx, 1, with("topic", t.topics.LabelOf(d.Topic, err), "reason", storekit.ErrorCode(err)))
}

func (t *Telemetry) failed(ctx context.Context, op string, err error) {
	t.errors.Add(ctx, 1, with("operation", op, "code", storekit.ErrorCode(err)))
}

func (t *Telemetry) scheduled(ctx context.Context, s punctual.ScheduleStep) {
	topic := t.topics.Admit(s.Topic)
	for result, n := range map[string]int64{"stored": s.Counts.Stored, "missed": s.Counts.Missed, "skipped": s.Counts.Skipped} {
		if n > 0 {
			t.times.Add(ctx, n, with("topic", topic, "result", result))
		}
	}
}

// with returns an option with the attributes in pairs, which has names and values in turn:
// with("topic", "mail", "verb", "ack").
func with(pairs ...string) metric.MeasurementOption {
	attributes := make([]attribute.KeyValue, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		attributes = append(attributes, attribute.String(pairs[i], pairs[i+1]))
	}
	return metric.WithAttributes(attributes...)
}
