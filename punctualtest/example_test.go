package punctualtest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/punctualtest"
)

// shop is the code under test: an order that is not paid within 30 minutes is closed.
type shop struct {
	queue *punctual.Queue
	state map[string]string
}

func (s *shop) placeOrder(ctx context.Context, number string) error {
	s.state[number] = "placed"
	_, err := s.queue.Push(ctx, "order.close", nil, punctual.ID(number), punctual.In(30*time.Minute))
	return err
}

func (s *shop) pay(ctx context.Context, number string) error {
	s.state[number] = "paid"
	err := s.queue.Cancel(ctx, "order.close", number)
	return err
}

func (s *shop) closeOrder(_ context.Context, d *punctual.Delivery) error {
	s.state[d.ID] = "closed after " + d.Delivered.Sub(d.Created).String()
	return nil
}

// An order's timeout is tested without waiting for it. In a test, t is the *testing.T that the test
// is given.
func Example() {
	kit := punctualtest.New(t)
	s := &shop{queue: kit.Queue, state: map[string]string{}}
	kit.Handle("order.close", punctual.HandlerFunc(s.closeOrder))

	ctx := context.Background()
	if err := s.placeOrder(ctx, "4711"); err != nil {
		t.Fatalf("place 4711: %v", err)
	}
	if err := s.placeOrder(ctx, "4712"); err != nil {
		t.Fatalf("place 4712: %v", err)
	}
	kit.WantScheduled("order.close", "4711", 30*time.Minute)

	fmt.Println("after 29 minutes:", kit.Advance(29*time.Minute), "handled")
	if err := s.pay(ctx, "4712"); err != nil {
		t.Fatalf("pay 4712: %v", err)
	}
	kit.WantGone("order.close", "4712")
	fmt.Println("a minute later:", kit.Advance(time.Minute), "handled")
	fmt.Println("4711:", s.state["4711"])
	fmt.Println("4712:", s.state["4712"])
	// Output:
	// after 29 minutes: 0 handled
	// a minute later: 1 handled
	// 4711: closed after 30m0s
	// 4712: paid
}

// A message whose handler keeps failing is retried as its topic's backoff says, and is
// dead in the end.
func ExampleKit_WantDead() {
	kit := punctualtest.New(t)
	minutes := punctual.Backoff{Delays: []time.Duration{2 * time.Minute, 10 * time.Minute}}
	kit.Configure("payment.notify", punctual.SettingsPatch{Backoff: &minutes})
	kit.Handle("payment.notify", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		fmt.Println(kit.Now().Format("15:04"), "attempt", d.Attempt)
		return fmt.Errorf("the shop does not answer")
	}))
	_, err := kit.Queue.Push(context.Background(), "payment.notify", nil, punctual.ID("4711"), punctual.MaxAttempts(3))
	if err != nil {
		t.Fatalf("push: %v", err)
	}

	kit.Advance(24 * time.Hour)
	dead := kit.WantDead("payment.notify", "4711", punctual.ReasonAttemptsUsedUp)
	fmt.Println(dead.Failures[2].Error)
	// Output:
	// 09:00 attempt 1
	// 09:02 attempt 2
	// 09:12 attempt 3
	// the shop does not answer
}
