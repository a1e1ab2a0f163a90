// Command notify sends a payment notice until the other side answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	store, err := diskstore.Open("payments", nil) // a directory, made when it is not there
	if err != nil {
		log.Fatal(err)
	}
	payments := punctual.NewTopic[string](punctual.NewQueue(store, nil), "payment.notify")
	const s, m, h = time.Second, time.Minute, time.Hour
	if _, err := payments.Configure(ctx, punctual.RetryDelays(2*s, 10*m, 10*m, h, 2*h, 6*h, 15*h)); err != nil {
		log.Fatal(err)
	}
	if _, err := payments.Push(ctx, "A-17", punctual.ID("A-17"), punctual.In(time.Second)); err != nil {
		log.Fatal(err)
	}
	w := worker.New(store, nil)
	worker.Handle(w, payments, func(_ context.Context, number string, d *punctual.Delivery) error {
		if d.Attempt == 1 { // the other side does not answer yet
			return fmt.Errorf("payment %s, attempt %d: no answer", number, d.Attempt) // again after the next delay
		}
		log.Printf("payment %s, attempt %d: answered", number, d.Attempt)
		return nil // acked: it does not come again
	})
	if err := errors.Join(w.Run(ctx), store.Close()); err != nil { // Ctrl-C ends it, once what is under way is settled
		log.Fatal(err)
	}
}
