package punctualtest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/worker"
)

// A program with a worker of its own is tested in virtual time. Inside a bubble of testing/synctest
// the system clock is that of the bubble, and so is the store's. The test does not wait in real
// time, and the times are exact.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		queue := punctual.NewQueue(store, nil)
		w := worker.New(store, nil)
		type entry struct {
			id string
			at time.Duration
		}
		began := time.Now()
		handled := make(chan entry, 1)
		w.Handle("order.close", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			handled <- entry{d.ID, time.Since(began)}
			return nil
		}))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()

		for _, id := range []string{"4711", "4712"} {
			if _, err := queue.Push(ctx, "order.close", nil, punctual.ID(id), punctual.In(30*time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(29 * time.Minute) // virtual
		if err := queue.Cancel(ctx, "order.close", "4712"); err != nil {
			t.Errorf("cancel = %v", err)
		}
		if got := <-handled; got != (entry{"4711", 30 * time.Minute}) {
			t.Errorf("handled %v, want 4711 after 30m", got)
		}
		time.Sleep(time.Hour) // virtual
		select {
		case got := <-handled:
			t.Errorf("P5 cancel is definite: handled %v too", got)
		default:
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}
