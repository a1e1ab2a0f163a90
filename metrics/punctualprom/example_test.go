package punctualprom_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/metrics/punctualprom"
	"github.com/punctualmq/punctual/worker"
)

// The metrics count for the queue and the worker of a program. In a program whose registry is
// scraped over HTTP, promhttp.HandlerFor(registry, ...) answers the scrapes.
func Example() {
	registry := prometheus.NewRegistry()
	metrics, err := punctualprom.New(registry, nil)
	if err != nil {
		log.Fatal(err)
	}
	store := memstore.New(nil)
	defer store.Close()
	if err := metrics.AddStore(store); err != nil {
		log.Fatal(err)
	}

	queue := punctual.NewQueue(store, &punctual.QueueConfig{Observer: metrics.Observer()})
	w := worker.New(store, &worker.Config{Observer: metrics.Observer()})
	w.Handle("order.close", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error { return nil }))
	if _, err := queue.Push(context.Background(), "order.close", nil, punctual.At(time.Now().Add(-time.Minute))); err != nil {
		log.Fatal(err)
	}
	if _, err := w.Drain(context.Background()); err != nil {
		log.Fatal(err)
	}

	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "punctual_delivery_lateness_seconds" {
			fmt.Println("delivered:", f.GetMetric()[0].GetHistogram().GetSampleCount())
		}
	}
	// Output: delivered: 1
}
