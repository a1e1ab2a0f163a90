package punctualprom

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/metrics/internal/reading"
	"github.com/punctualmq/punctual/storekit"
)

// AddStore registers metrics of what s holds, such as the messages by state, how far ahead they are
// due, how long the oldest ready message has waited, and how much space is left. A scrape reads
// them from the store. Because a store with many messages takes a while to count them, it spends at
// most a tenth of the time on such readings: a reading that took 1 s is shown again for the next 9
// s. The metric of how far ahead messages are due is left out when the store cannot count that
// within Options.ReadTimeout.
//
// Call Close before s is closed, so that no reading is under way in s then.
//
// AddStore returns ErrUnsupported when s cannot be inspected (punctual.Inspector), and ErrClosed
// after Close. A second store needs Metrics of its own with a registry of its own, or with one that
// adds labels (prometheus.WrapRegistererWith).
func (m *Metrics) AddStore(s punctual.Store) error {
	r, err := reading.NewReader(s, m.topics, m.opt.ReadTimeout)
	if err != nil {
		return fmt.Errorf("metrics of a store: %w", err)
	}
	c := &storeCollector{reader: r}
	if d, err := punctual.As[storekit.DurabilityReporter](s); err == nil {
		c.durability = string(d.Durability())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("register the metrics of a store: %w", punctual.ErrClosed)
	}
	if err := m.registry.Register(c); err != nil {
		return fmt.Errorf("register the metrics of a store: %w", err)
	}
	m.stores = append(m.stores, c)
	return nil
}

// Close takes the metrics of the store out of the registry, ends a reading that is under way, and
// waits for it. After Close the store may be closed. The metrics of the Observer stay registered.
//
// A store that ignores the end of its context holds Close up for at most Options.ReadTimeout. Close
// then returns an error, which wraps context.DeadlineExceeded, and the store still has one call
// under way. Close may be called more than once.
func (m *Metrics) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	var failed []error
	for _, c := range m.stores {
		m.registry.Unregister(c)
		failed = append(failed, c.reader.Close())
	}
	return errors.Join(failed...)
}

// storeCollector is the collector that AddStore registers: it turns readings of a store into
// metrics.
type storeCollector struct {
	reader     *reading.Reader
	durability string
}

var (
	upDesc       = prometheus.NewDesc("punctual_store_up", "Whether the last reading of the store succeeded.", nil, nil)
	readDesc     = prometheus.NewDesc("punctual_store_read_duration_seconds", "How long the last reading of the store took.", nil, nil)
	infoDesc     = prometheus.NewDesc("punctual_store_info", "The class of durability that the store promises.", []string{"durability"}, nil)
	topicsDesc   = prometheus.NewDesc("punctual_topics", "Topics in the store.", nil, nil)
	messagesDesc = prometheus.NewDesc("punctual_messages", "Messages in the store by state: scheduled, ready, leased, dead.", []string{"topic", "state"}, nil)
	waitingDesc  = prometheus.NewDesc("punctual_waiting_messages", "Ready messages that wait for their keys, of topics with keys.", []string{"topic"}, nil)
	oldestDesc   = prometheus.NewDesc("punctual_oldest_ready_seconds", "How long ago the first of the ready messages fell due.", []string{"topic"}, nil)
	pausedDesc   = prometheus.NewDesc("punctual_topics_paused", "Topics that are paused, by side: push, delivery.", []string{"topic", "side"}, nil)
	schedDesc    = prometheus.NewDesc("punctual_schedules", "Recurring schedules of the topic, paused and ended ones included.", []string{"topic"}, nil)
	overdueDesc  = prometheus.NewDesc("punctual_schedule_overdue_seconds", "How long ago the first of the times came about which no duty has decided, or that a problem has kept from coming.", []string{"topic"}, nil)
	stalledDesc  = prometheus.NewDesc("punctual_schedule_problems", "Schedules that do not come as they should: 'punctual schedule list' says why.", []string{"topic"}, nil)
	aheadDesc    = prometheus.NewDesc("punctual_pending_messages", "Messages that are not dead by how far ahead they are due: within this time and not within the one before.",
		[]string{"ahead"}, nil)
	freeDesc    = prometheus.NewDesc("punctual_store_free_bytes", "How many bytes can still be written to the medium of the store.", nil, nil)
	sizeDesc    = prometheus.NewDesc("punctual_store_size_bytes", "The size of the medium of the store.", nil, nil)
	offDesc     = prometheus.NewDesc("punctual_store_clock_ahead_seconds", "By how much the store's clock is ahead of the one that it follows.", nil, nil)
	stepsDesc   = prometheus.NewDesc("punctual_store_clock_steps_total", "How often the store's clock has stepped back to the one that it follows.", nil, nil)
	reserveDesc = prometheus.NewDesc("punctual_store_reserve_bytes", "Pushes are refused while less than this is free.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *storeCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		upDesc, readDesc, infoDesc, topicsDesc, messagesDesc, waitingDesc, oldestDesc, pausedDesc, schedDesc, overdueDesc, stalledDesc, aheadDesc, freeDesc, sizeDesc, reserveDesc, offDesc, stepsDesc,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector. When the store cannot be read, punctual_store_up is 0
// and all figures of what the store holds are left out, because old figures would look like those
// of a store in which nothing happens.
func (c *storeCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if c.durability != "" {
		gauge(infoDesc, 1, c.durability)
	}
	r, err := c.reader.Read()
	gauge(readDesc, r.Took.Seconds())
	if err != nil {
		gauge(upDesc, 0)
		return
	}
	gauge(upDesc, 1)
	gauge(topicsDesc, float64(r.Known))
	for _, t := range r.Topics {
		gauge(messagesDesc, float64(t.Scheduled), t.Label, punctual.StateScheduled.String())
		gauge(messagesDesc, float64(t.Ready), t.Label, punctual.StateReady.String())
		gauge(messagesDesc, float64(t.Leased), t.Label, punctual.StateLeased.String())
		gauge(messagesDesc, float64(t.Dead), t.Label, punctual.StateDead.String())
		if t.Keyed {
			gauge(waitingDesc, float64(t.Waiting), t.Label)
		}
		gauge(oldestDesc, t.OldestReady.Seconds(), t.Label)
		gauge(pausedDesc, float64(t.PushPaused), t.Label, "push")
		gauge(pausedDesc, float64(t.DeliveryPaused), t.Label, "delivery")
		if t.Schedules > 0 {
			gauge(schedDesc, float64(t.Schedules), t.Label)
			gauge(overdueDesc, t.ScheduleOverdue.Seconds(), t.Label)
			if r.SchedulesRead {
				gauge(stalledDesc, float64(t.ScheduleProblems), t.Label)
			}
		}
	}
	for i, n := range r.Ahead {
		gauge(aheadDesc, float64(n), reading.Spans()[i])
	}
	if r.Space != nil {
		gauge(freeDesc, float64(r.Space.Free))
		gauge(sizeDesc, float64(r.Space.Total))
		gauge(reserveDesc, float64(r.Space.Reserve))
	}
	if r.Clock != nil {
		gauge(offDesc, r.Clock.Ahead.Seconds())
		out <- prometheus.MustNewConstMetric(stepsDesc, prometheus.CounterValue, float64(r.Clock.Steps))
	}
}
