package punctualotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// Prepare is the function for QueueConfig.Prepare: it makes the span of a message and writes the
// context of the span to the message's headers. A message whose headers have a context already, for
// instance because a handler passes it on, keeps that context, and no span is made. When the
// headers have no room for the context it is left out, because a trace must not make a push fail.
//
// When the ID of a push is already in use and the push keeps the stored message, that message keeps
// its headers, too. The handler's span then belongs to the trace of the first push.
func (t *Telemetry) Prepare(ctx context.Context, m *punctual.NewMessage) error {
	if t.carried(m.Headers) {
		return nil
	}
	ctx, span := t.tracer.Start(ctx, "create "+m.Topic, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		append(messaging("create", m.Topic, m.ID), attribute.Int("messaging.message.body.size", len(m.Body)))...))
	defer span.End()
	carrier := propagation.MapCarrier{}
	t.opt.Propagator.Inject(ctx, carrier)
	room := limits.MaxHeaderBytes
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

// carried reports whether the headers have the context of a span.
func (t *Telemetry) carried(headers map[string]string) bool {
	return trace.SpanContextFromContext(t.opt.Propagator.Extract(context.Background(), propagation.MapCarrier(headers))).IsValid()
}

// Middleware is the function for worker.Config.Middleware: it makes a span for each attempt, whose
// parent is the span of the push. When the message has no context, the attempt begins a trace of
// its own. A failed attempt sets the status of the span to an error; a snooze does not, because it
// is no failure.
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
		defer span.End() // also records a panic of the handler as an event of the span
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

// messaging returns the attributes that OpenTelemetry's conventions name for every span about a
// message. The ID is empty, and left out, in the span of a push that lets the store make the ID,
// because the span begins before the store is called.
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
