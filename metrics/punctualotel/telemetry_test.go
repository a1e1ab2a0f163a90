package punctualotel_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/metrics/punctualotel"
	"github.com/punctualmq/punctual/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the golden files")

// rig is a store with a queue and a worker that report to OpenTelemetry what they do.
type rig struct {
	store  *memstore.Store
	told   *punctualotel.Telemetry
	queue  *punctual.Queue
	worker *worker.Worker
	spans  *tracetest.InMemoryExporter
	tracer trace.Tracer
	reader *sdkmetric.ManualReader
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{store: memstore.New(nil), spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.spans))
	r.tracer = traces.Tracer("test")
	var err error
	r.told, err = punctualotel.New(&punctualotel.Options{
		TracerProvider: traces, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader)),
	})
	if err != nil {
		t.Fatal(err)
	}
	registration, err := r.told.AddStore(r.store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(registration.Unregister(), r.store.Close()); err != nil {
			t.Error(err)
		}
	})
	r.queue = punctual.NewQueue(r.store, &punctual.QueueConfig{Observer: r.told.Observer(), Prepare: r.told.Prepare})
	r.worker = worker.New(r.store, &worker.Config{
		Observer: r.told.Observer(), Middleware: []worker.Middleware{r.told.Middleware}, Logger: slog.New(slog.DiscardHandler),
		Concurrency: 1,
	})
	return r
}

func (r *rig) named(t *testing.T, name string) []tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, s := range r.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

func value(s tracetest.SpanStub, key attribute.Key) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return "(none)"
}

// TestOneTraceSpansTheWait pushes under a span, waits a day, and fails once. The request, the push,
// both attempts and what a handler calls are in one trace.
func TestOneTraceSpansTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, request := r.tracer.Start(t.Context(), "POST /orders")
		if _, err := r.queue.Push(ctx, "order.close", []byte("12345"), punctual.ID("A-17"), punctual.In(24*time.Hour), punctual.Header("tenant", "9")); err != nil {
			t.Fatal(err)
		}
		request.End()

		r.worker.Handle("order.close", punctual.HandlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			if d.Headers["tenant"] != "9" {
				t.Errorf("headers %v: the pusher's own are gone", d.Headers)
			}
			_, call := r.tracer.Start(ctx, "DELETE /basket")
			call.End()
			if d.Attempt == 1 {
				return punctual.RetryAfter(time.Hour, errors.New("the shop is closed"))
			}
			return nil
		}))
		if err := r.worker.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(26 * time.Hour)
		if err := r.worker.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}

		created, attempts, calls := r.named(t, "create order.close"), r.named(t, "process order.close"), r.named(t, "DELETE /basket")
		if len(created) != 1 || len(attempts) != 2 || len(calls) != 2 {
			t.Fatalf("%d pushes, %d attempts, %d calls; want 1, 2, 2", len(created), len(attempts), len(calls))
		}
		for _, s := range slices.Concat(created, attempts, calls) {
			if s.SpanContext.TraceID() != request.SpanContext().TraceID() {
				t.Errorf("%s is in another trace", s.Name)
			}
		}
		if created[0].Parent.SpanID() != request.SpanContext().SpanID() || created[0].SpanKind != trace.SpanKindProducer {
			t.Errorf("the push: kind %v, parent %v", created[0].SpanKind, created[0].Parent)
		}
		for i, s := range attempts {
			if s.Parent.SpanID() != created[0].SpanContext.SpanID() || s.SpanKind != trace.SpanKindConsumer {
				t.Errorf("attempt %d: kind %v, parent %v", i+1, s.SpanKind, s.Parent)
			}
			if calls[i].Parent.SpanID() != s.SpanContext.SpanID() {
				t.Errorf("the call of attempt %d has another parent", i+1)
			}
		}
		if wait := attempts[0].StartTime.Sub(created[0].EndTime); wait < 24*time.Hour {
			t.Errorf("the trace spans %v, want a day", wait)
		}
		if s := attempts[0]; s.Status.Code != codes.Error || value(s, "punctual.verb") != "retry" || value(s, "punctual.attempt") != "1" ||
			value(s, "messaging.message.id") != "A-17" || value(s, "messaging.destination.name") != "order.close" {
			t.Errorf("the first attempt: %v %v", s.Status, s.Attributes)
		}
		if s := attempts[1]; s.Status.Code == codes.Error || value(s, "punctual.verb") != "ack" || value(s, "punctual.attempt") != "2" {
			t.Errorf("the second attempt: %v %v", s.Status, s.Attributes)
		}
	})
}

// TestTraceContextOfMessages: a message that has a context keeps it, one without room for a context
// gets none, and the attempt of a message without a readable context begins a trace of its own.
func TestTraceContextOfMessages(t *testing.T) {
	r := newRig(t)
	const given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	passedOn := punctual.NewMessage{Topic: "t", Headers: map[string]string{"traceparent": given}}
	full := punctual.NewMessage{Topic: "t", Headers: map[string]string{"x": strings.Repeat("x", limits.MaxHeaderBytes-10)}}
	if err := errors.Join(r.told.Prepare(t.Context(), &passedOn), r.told.Prepare(t.Context(), &full)); err != nil {
		t.Fatal(err)
	}
	if passedOn.Headers["traceparent"] != given {
		t.Errorf("a message that is passed on has %q, want its own context", passedOn.Headers["traceparent"])
	}
	if len(full.Headers) != 1 {
		t.Errorf("headers without room took %d more", len(full.Headers)-1)
	}

	handle := r.told.Middleware(punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error { return nil }))
	ctx, caller := r.tracer.Start(t.Context(), "the worker's caller")
	for _, headers := range []map[string]string{nil, {"traceparent": "rubbish"}} {
		if err := handle.Handle(ctx, &punctual.Delivery{Message: punctual.Message{Topic: "bare", Headers: headers}}); err != nil {
			t.Fatal(err)
		}
	}
	caller.End()
	for _, s := range r.named(t, "process bare") {
		if s.Parent.IsValid() || s.SpanContext.TraceID() == caller.SpanContext().TraceID() {
			t.Errorf("a message without a context continues the trace of the worker: parent %v", s.Parent)
		}
	}
	if n := len(r.named(t, "process bare")); n != 2 {
		t.Errorf("%d spans, want 2", n)
	}
}

// TestPanicEndsItsSpan: a handler that panics leaves a span that says so.
func TestPanicEndsItsSpan(t *testing.T) {
	r := newRig(t)
	handle := r.told.Middleware(punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error { panic("no such basket") }))
	func() {
		defer func() {
			if p := recover(); p != "no such basket" {
				t.Errorf("recovered %v: the worker must see the panic", p)
			}
		}()
		_ = handle.Handle(t.Context(), &punctual.Delivery{Message: punctual.Message{Topic: "t"}})
	}()
	spans := r.named(t, "process t")
	if len(spans) != 1 || spans[0].Status.Code != codes.Error || len(spans[0].Events) != 1 {
		t.Errorf("spans %+v, want one that failed, with the panic", spans)
	}
}

// TestMetrics has messages acked, discarded, purged and cancelled, and compares what is measured
// with a golden file.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for id, due := range map[string]time.Duration{"acked": 0, "discarded": time.Minute, "purged": time.Minute, "cancelled": time.Hour, "later": 10 * time.Hour} {
			if _, err := r.queue.Push(t.Context(), "order.close", nil, punctual.ID(id), punctual.In(due)); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.queue.Cancel(t.Context(), "order.close", "cancelled"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.queue.Push(t.Context(), "no such topic", nil); !errors.Is(err, punctual.ErrInvalid) {
			t.Fatalf("push to a bad topic: %v", err)
		}
		r.worker.Handle("order.close", punctual.HandlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			time.Sleep(2 * time.Second)
			switch d.ID {
			case "discarded":
				return punctual.Discard(errors.New("never"))
			case "purged":
				if _, err := r.store.Purge(ctx, punctual.PurgeQuery{Topic: "order.close", State: punctual.StateLeased}); err != nil {
					t.Error(err)
				}
			}
			return nil
		}))
		if err := r.worker.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if err := r.worker.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := r.measured(t)
		golden := filepath.Join("testdata", "metrics.txt")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("the metrics are not those of %s (go test -update writes it):\n%s", golden, got)
		}
	})
}

// slow is a store in which a reading lasts until its context ends and a second longer.
type slow struct {
	*memstore.Store
	began chan struct{} // closed when a reading has begun
	ended atomic.Bool
}

func (s *slow) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	close(s.began)
	<-ctx.Done()
	time.Sleep(time.Second)
	s.ended.Store(true)
	return nil, ctx.Err()
}

// Unregister ends the reading under way and waits for it, so that the store can be closed
// afterwards. The collection under way ends early, with an error.
func TestUnregisterWaitsForTheReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		told, err := punctualotel.New(&punctualotel.Options{
			MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), ReadTimeout: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		store := &slow{Store: memstore.New(nil), began: make(chan struct{})}
		registration, err := told.AddStore(store)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		collected := make(chan error, 1)
		go func() {
			var all metricdata.ResourceMetrics
			collected <- reader.Collect(t.Context(), &all)
		}()
		<-store.began
		if err := registration.Unregister(); err != nil {
			t.Errorf("Unregister: %v", err)
		}
		if took := time.Since(began); !store.ended.Load() || took != time.Second {
			t.Errorf("Unregister returned after %v; the reading had ended: %v; want a second and true", took, store.ended.Load())
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-collected; !errors.Is(err, context.Canceled) {
			t.Errorf("the collection under way: %v, want Canceled", err)
		}
	})
}

// measured returns one line for each series, sorted.
func (r *rig) measured(t *testing.T) string {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	var lines []string
	add := func(m metricdata.Metrics, as attribute.Set, value any) {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", m.Name, as.Encoded(attribute.DefaultEncoder()), fmt.Sprint(value, " ", m.Unit))))
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(m, p.Attributes, p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					add(m, p.Attributes, p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					add(m, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(m, p.Attributes, fmt.Sprintf("%d times, %v", p.Count, p.Sum))
				}
			default:
				t.Errorf("%s is a %T", m.Name, m.Data)
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}
