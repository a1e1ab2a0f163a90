// Command notify sends a payment notice until the other side answers.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/worker"
)

func main() {
	ctx := context.Background()
	store, err := diskstore.Open("punctual-data", nil)
	if err != nil {
		log.Fatal(err)
	}
	payments := punctual.NewTopic[string](punctual.NewQueue(store, nil), "payment.notify")
	const m, h = time.Minute, time.Hour
	if _, err := payments.Configure(ctx, punctual.RetryDelays(2*m, 10*m, 10*m, h, 2*h, 6*h, 15*h)); err != nil {
		log.Fatal(err)
	}
	if _, err := payments.Push(ctx, "A-17", punctual.ID("A-17"), punctual.In(time.Second)); err != nil {
		log.Fatal(err)
	}
	w := worker.New(store, nil)
	worker.Handle(w, payments, func(_ context.Context, number string, d *punctual.Delivery) error {
		return fmt.Errorf("payment %s, attempt %d: no answer", number, d.Attempt) // again after the next delay; nil is done
	})
	log.Fatal(w.Run(ctx))
}
