package slo

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/punctualmq/punctual/internal/notation"
)

var (
	burnDesc = prometheus.NewDesc("punctual_lateness_slo_burn_rate",
		"How many times more deliveries were late in the window than the objective allows.", []string{"window"}, nil)
	limitDesc = prometheus.NewDesc("punctual_lateness_slo_limit_seconds",
		"How late a delivery may be by the objective.", nil, nil)
	ratioDesc = prometheus.NewDesc("punctual_lateness_slo_objective_ratio",
		"Which part of the deliveries is to be in time by the objective.", nil, nil)
)

// Describe implements prometheus.Collector.
func (l *Lateness) Describe(out chan<- *prometheus.Desc) {
	out <- burnDesc
	out <- limitDesc
	out <- ratioDesc
}

// Collect implements prometheus.Collector.
func (l *Lateness) Collect(out chan<- prometheus.Metric) {
	for _, w := range Windows() {
		out <- prometheus.MustNewConstMetric(burnDesc, prometheus.GaugeValue, l.BurnRate(w), notation.FormatDuration(w))
	}
	out <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, l.objective.Limit.Seconds())
	out <- prometheus.MustNewConstMetric(ratioDesc, prometheus.GaugeValue, l.objective.Percent/100)
}
