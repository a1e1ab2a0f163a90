package punctualotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/punctualmq/punctual"
)

// Prepare is for QueueConfig.Prepare: it makes the span of a message and writes its context to the headers. A message that
// has a context in its headers already, say one that is passed on, keeps it. A context for which the headers have no room
// is left out: a trace must not fail a push.
//
// A push whose ID is taken keeps the first message with its headers. So the handler's trace is that of the first push.
func (t *Telemetry) Prepare(ctx context.Context, m *punctual.NewMessage) error {
	if t.carried(m.Headers) {
		return nil
	}
	ctx, span := t.tracer.Start(ctx, "create "+m.Topic, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		append(messaging("create", m.Topic, m.ID), attribute.Int("messaging.message.body.size", len(m.Body)))...))
	defer span.End()
	carrier := propagation.MapCarrier{}
	t.opt.Propagator.Inject(ctx, carrier)
	room := punctual.MaxHeaderBytes
	for name, value := range m.Headers {
		room -= len(name) + len(value)
	}
	for name, value := range carrier {
		room -= len(name) + len(value)
	}
	if room < 0 {
		return nil
	}
	for name, value := range carrier {
		m.Headers[name] = value
	}
	return nil
}

// carried tells that headers have the context of a span.
func (t *Telemetry) carried(headers map[string]string) bool {
	return trace.SpanContextFromContext(t.opt.Propagator.Extract(context.Background(), propagation.MapCarrier(headers))).IsValid()
}

// Middleware is for worker.Config.Middleware: it makes a span of each attempt, whose parent is that of the push. An attempt
// at a message without a context begins a trace. A failed attempt sets the status of the span, a snooze does not.
func (t *Telemetry) Middleware(next punctual.Handler) punctual.Handler {
	return punctual.HandlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
		options := []trace.SpanStartOption{
			trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(append(messaging("process", d.Topic, d.ID),
				attribute.Int("messaging.message.body.size", len(d.Body)),
				attribute.Int("punctual.attempt", d.Attempt),
				attribute.Float64("punctual.lateness", d.ReadyFor().Seconds()),
			)...),
		}
		if t.carried(d.Headers) {
			ctx = t.opt.Propagator.Extract(ctx, propagation.MapCarrier(d.Headers))
		} else {
			options = append(options, trace.WithNewRoot())
		}
		ctx, span := t.tracer.Start(ctx, "process "+d.Topic, options...)
		defer span.End() // which also notes a panic
		returned := false
		defer func() {
			if !returned {
				span.SetStatus(codes.Error, "the handler did not return")
			}
		}()
		err := next.Handle(ctx, d)
		returned = true
		o := punctual.DecisionOf(err)
		span.SetAttributes(attribute.String("punctual.verb", o.Verb.String()))
		if o.Verb == punctual.SettleRetry || o.Verb == punctual.SettleDiscard {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		return err
	})
}

// messaging has the attributes that the conventions of OpenTelemetry ask of every span about a message. A store that
// makes the ID has not made it yet when the span of a push begins.
func messaging(operation, topic, id string) []attribute.KeyValue {
	as := []attribute.KeyValue{
		attribute.String("messaging.system", "punctual"),
		attribute.String("messaging.operation.name", operation),
		attribute.String("messaging.operation.type", operation),
		attribute.String("messaging.destination.name", topic),
	}
	if id != "" {
		as = append(as, attribute.String("messaging.message.id", id))
	}
	return as
}
