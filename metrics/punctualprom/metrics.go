// Package punctualprom shows in Prometheus what Punctual does. Give its Observer to a Queue, a
// Worker or a server, and call AddStore to show also what a store holds.
//
//	m, err := punctualprom.New(registry, nil)
//	queue := punctual.NewQueue(store, &punctual.QueueConfig{Observer: m.Observer()})
//	w := worker.New(store, &worker.Config{Observer: m.Observer()})
//	err = m.AddStore(store)
//	defer m.Close() // before the store is closed
//
// The metrics of the Observer count what this process does. The metrics of AddStore describe the
// store, so that all processes that add the same store show the same figures.
package punctualprom

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/metrics/internal/reading"
	"github.com/punctualmq/punctual/storekit"
)

// Options adjusts the metrics. The zero value has the defaults.
type Options struct {
	// TopicLimit is the number of topics that get a label of their own; the first topics that are
	// seen get them. All others share the label "other", so that a client that invents topics
	// cannot create time series without bound. Default 100.
	TopicLimit int
	// LatenessBuckets are the upper bounds of the lateness histogram, in seconds. The default goes
	// from 1 ms to 1 h.
	LatenessBuckets []float64
	// ReadTimeout bounds one reading of a store. Default 5 s, which is half of Prometheus' own
	// limit for a scrape, so that the other metrics arrive even when the store does not answer.
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
		return out, fmt.Errorf("metrics with a topic limit of %d and a read timeout of %v: use positive ones, or 0 for the defaults: %w",
			out.TopicLimit, out.ReadTimeout, punctual.ErrInvalid)
	}
	if out.TopicLimit == 0 {
		out.TopicLimit = defaultTopicLimit
	}
	if out.ReadTimeout == 0 {
		out.ReadTimeout = defaultReadTimeout
	}
	if out.LatenessBuckets == nil {
		out.LatenessBuckets = []float64{
			0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600,
		}
	}
	return out, nil
}

// callBuckets fit the time that a call to a store takes, and handlerBuckets the time that a handler
// takes.
var (
	callBuckets    = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	handlerBuckets = []float64{0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 1800, 3600}
)

// Metrics are the metrics of one process in one registry. Its methods are safe for concurrent use.
type Metrics struct {
	registry prometheus.Registerer
	opt      Options
	topics   *reading.Topics

	mu     sync.Mutex
	closed bool              // guarded by mu: no store can be added any more
	stores []*storeCollector // guarded by mu: what AddStore has registered

	lateness    *prometheus.HistogramVec
	pushes      *prometheus.CounterVec
	amendments  *prometheus.CounterVec
	claims      *prometheus.CounterVec
	settlements *prometheus.CounterVec
	lost        *prometheus.CounterVec
	handlers    *prometheus.HistogramVec
	calls       *prometheus.HistogramVec
	errors      *prometheus.CounterVec
	times       *prometheus.CounterVec
}

// New makes the metrics and registers them with r. It fails when r has metrics of these names
// already.
func New(r prometheus.Registerer, o *Options) (*Metrics, error) {
	opt, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	m := &Metrics{
		registry: r, opt: opt, topics: reading.NewTopics(opt.TopicLimit),
		lateness: histogram("punctual_delivery_lateness_seconds",
			"How long after the due time of the attempt, or a later push, a message was claimed. The count is the number of deliveries.", opt.LatenessBuckets, "topic"),
		pushes: counter("punctual_pushes_total",
			"Messages pushed, by what became of them: stored, duplicate, replaced, or the code of the error.", "topic", "result"),
		amendments: counter("punctual_amendments_total",
			"Messages cancelled, rescheduled, requeued and deleted, by result: done, or the code of the error.", "topic", "change", "result"),
		claims: counter("punctual_claims_total",
			"Claims that did not fail, by whether they brought messages: some, none.", "brought"),
		settlements: counter("punctual_settlements_total",
			"Settlements of leases, by verb and by result: done, or the code of the error.", "topic", "verb", "result"),
		lost: counter("punctual_leases_lost_total",
			"Messages whose holder learned that the lease was not its own any more, by reason: lease_lost, cancelled.", "topic", "reason"),
		handlers: histogram("punctual_handler_duration_seconds",
			"How long handlers ran, by what became of the message.", handlerBuckets, "topic", "verb"),
		calls: histogram("punctual_store_call_duration_seconds",
			"How long callers waited for the store, once for each message: push, amend, settle.", callBuckets, "operation"),
		errors: counter("punctual_errors_total",
			"Errors that no caller received, by operation and code.", "operation", "code"),
		times: counter("punctual_schedule_times_total",
			"Times of recurring schedules about which this process has decided: stored, missed, skipped. One whose storing fails is counted again.", "topic", "result"),
	}
	for _, c := range []prometheus.Collector{
		m.lateness, m.pushes, m.amendments, m.claims, m.settlements, m.lost, m.handlers, m.calls, m.errors, m.times,
	} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics: give each registry its metrics once: %w", err)
		}
	}
	return m, nil
}

// Observer returns an Observer that counts in these metrics. It may be given to any number of
// Queues and Workers.
func (m *Metrics) Observer() *punctual.Observer {
	return &punctual.Observer{
		OnPush:      m.pushed,
		OnAmend:     m.amended,
		OnClaim:     m.claimed,
		OnStart:     m.started,
		OnFinish:    m.finished,
		OnSettle:    m.settled,
		OnLeaseLost: m.leaseLost,
		OnError:     m.failed,
		OnSchedule:  m.scheduled,
	}
}

func (m *Metrics) pushed(_ context.Context, r punctual.PushResult, took time.Duration) {
	m.pushes.WithLabelValues(m.topics.LabelOf(r.Topic, r.Err), reading.PushResult(r)).Inc()
	m.calls.WithLabelValues("push").Observe(took.Seconds())
}

func (m *Metrics) amended(_ context.Context, a punctual.Amendment, r punctual.Amended, took time.Duration) {
	m.amendments.WithLabelValues(m.topics.LabelOf(a.Topic, r.Err), a.Change.String(), reading.Result(r.Err)).Inc()
	m.calls.WithLabelValues("amend").Observe(took.Seconds())
}

func (m *Metrics) claimed(_ context.Context, n int, _ time.Duration) {
	m.claims.WithLabelValues(reading.Brought(n)).Inc()
}

func (m *Metrics) started(_ context.Context, d *punctual.Delivery) {
	m.lateness.WithLabelValues(m.topics.Admit(d.Topic)).Observe(d.ReadyFor().Seconds())
}

func (m *Metrics) finished(_ context.Context, d *punctual.Delivery, v punctual.Verb, took time.Duration, _ error) {
	m.handlers.WithLabelValues(m.topics.Admit(d.Topic), v.String()).Observe(took.Seconds())
}

func (m *Metrics) settled(_ context.Context, s punctual.Settlement, took time.Duration, err error) {
	m.settlements.WithLabelValues(m.topics.LabelOf(s.Topic, err), s.Verb.String(), reading.Result(err)).Inc()
	m.calls.WithLabelValues("settle").Observe(took.Seconds())
}

func (m *Metrics) leaseLost(_ context.Context, d *punctual.Delivery, err error) {
	m.lost.WithLabelValues(m.topics.LabelOf(d.Topic, err), storekit.ErrorCode(err)).Inc()
}

func (m *Metrics) failed(_ context.Context, op string, err error) {
	m.errors.WithLabelValues(op, storekit.ErrorCode(err)).Inc()
}

func (m *Metrics) scheduled(_ context.Context, s punctual.ScheduleStep) {
	label := m.topics.Admit(s.Topic)
	for result, n := range map[string]int64{"stored": s.Counts.Stored, "missed": s.Counts.Missed, "skipped": s.Counts.Skipped} {
		if n > 0 {
			m.times.WithLabelValues(label, result).Add(float64(n))
		}
	}
}
