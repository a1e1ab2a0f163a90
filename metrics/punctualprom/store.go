package punctualprom

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/metrics/internal/reading"
)

// AddStore registers metrics of what s holds. They show messages by state, how far ahead they are due, the age of the
// oldest ready one, and how much room there is. They are read when they are asked for. A store with many messages
// takes a while to count them. It spends at most a tenth of the time on that; in between it answers with what it
// counted last. How far ahead they are due is left out when that cannot be counted in time.
//
// ErrUnsupported: s cannot be inspected. A second store needs a registry of its own, or one with labels
// (prometheus.WrapRegistererWith), and metrics of its own.
func (m *Metrics) AddStore(s punctual.Store) error {
	r, err := reading.NewReader(s, m.topics, m.opt.ReadTimeout)
	if err != nil {
		return fmt.Errorf("metrics of a store: %w", err)
	}
	c := &storeCollector{reader: r}
	if d, err := punctual.As[punctual.DurabilityReporter](s); err == nil {
		c.durability = string(d.Durability())
	}
	if err := m.registry.Register(c); err != nil {
		return fmt.Errorf("register the metrics of a store: %w", err)
	}
	return nil
}

// storeCollector turns readings of a store into metrics.
type storeCollector struct {
	reader     *reading.Reader
	durability string
}

var (
	upDesc       = prometheus.NewDesc("punctual_store_up", "Whether the last look into the store succeeded.", nil, nil)
	readDesc     = prometheus.NewDesc("punctual_store_read_duration_seconds", "How long the last look into the store took.", nil, nil)
	infoDesc     = prometheus.NewDesc("punctual_store_info", "The class of durability that the store promises.", []string{"durability"}, nil)
	topicsDesc   = prometheus.NewDesc("punctual_topics", "Topics in the store.", nil, nil)
	messagesDesc = prometheus.NewDesc("punctual_messages", "Messages in the store by state: scheduled, ready, leased, dead.", []string{"topic", "state"}, nil)
	oldestDesc   = prometheus.NewDesc("punctual_oldest_ready_seconds", "How long ago the first of the ready messages fell due.", []string{"topic"}, nil)
	pausedDesc   = prometheus.NewDesc("punctual_topics_paused", "Topics whose side is paused: push, delivery.", []string{"topic", "side"}, nil)
	aheadDesc    = prometheus.NewDesc("punctual_pending_messages", "Messages that are not dead by how far ahead they are due: within this time and not within the one before.",
		[]string{"ahead"}, nil)
	freeDesc    = prometheus.NewDesc("punctual_store_free_bytes", "What may still be written to the medium of the store.", nil, nil)
	sizeDesc    = prometheus.NewDesc("punctual_store_size_bytes", "The size of the medium of the store.", nil, nil)
	reserveDesc = prometheus.NewDesc("punctual_store_reserve_bytes", "Pushes are refused while less than this is free.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *storeCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		upDesc, readDesc, infoDesc, topicsDesc, messagesDesc, oldestDesc, pausedDesc, aheadDesc, freeDesc, sizeDesc, reserveDesc,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector. When the store cannot be read it says so, and nothing of what the
// store holds: old figures would look like a store at rest.
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
		gauge(oldestDesc, t.OldestReady.Seconds(), t.Label)
		gauge(pausedDesc, float64(t.PushPaused), t.Label, "push")
		gauge(pausedDesc, float64(t.DeliveryPaused), t.Label, "delivery")
	}
	for i, n := range r.Ahead {
		gauge(aheadDesc, float64(n), reading.Spans()[i])
	}
	if r.Space != nil {
		gauge(freeDesc, float64(r.Space.Free))
		gauge(sizeDesc, float64(r.Space.Total))
		gauge(reserveDesc, float64(r.Space.Reserve))
	}
}
