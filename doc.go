// Package punctual delivers messages at the time asked for. An unpaid order is closed half an
// hour after it was placed. A reminder goes out two days before the appointment. A payment
// notice is sent again after two minutes, ten minutes, an hour.
//
// A message is pushed with the time at which it is due, and waits in a [Store]. When its time
// has come, a [worker.Worker] claims it under a lease. It is gone once its handler has
// succeeded. It is delivered at least once and never early; what a store promises in
// detail is the contract of Store.
//
// # The life of a message
//
//	           push              time comes           claim                    ack
//	(absent) ───────▶ scheduled ───────────▶ ready ───────────▶ leased ───────────────▶ (done)
//	                   ▲  ▲  │                 │                 │ │ │
//	        reschedule └──┘  │ cancel          │ cancel          │ │ └ discard, attempts used up, expired ──▶ dead
//	                         ▼                 ▼                 │ │                                            │
//	                     (cancelled)       (cancelled)           │ └ retry after a delay ──▶ scheduled          │ requeue
//	                                                             └ lease ran out ──▶ ready                      ▼
//	                                                                                                        scheduled
//
// Every verb and every state has one word, the same everywhere. A message is named by its
// topic and its ID. Topics come into being on first push; their settings ([Settings]) live
// in the store and hold for every process.
//
// # Push
//
// A [Queue] works on a store. Package diskstore keeps messages in a directory, redisstore in Redis,
// pgstore in PostgreSQL, memstore in memory.
//
//	store, err := diskstore.Open("orders", nil)
//	...
//	q := punctual.NewQueue(store, nil)
//	r, err := q.Push(ctx, "order.close", body, punctual.ID("order-17"), punctual.In(30*time.Minute))
//
// When Push returns without an error, the message is as durable as the store promises.
// Options say when ([In], [At], [Level], [Spread]), under which [ID], and what else holds for
// the message ([Header], [MaxAttempts], [Expire]). Pushing an ID that is taken keeps the
// first message, so a push with an ID may be repeated safely. If the first is dead, the push is
// [ErrDuplicate]. With [Replace] it takes the place of the first, with [FailIfExists] it is an
// error. [Queue.PushMany] stores many messages with a result for each.
//
// Concurrent pushes travel to the store together, so a store that syncs to disk does so once for all of them. A lone
// push does not wait for others.
//
// A [Topic] carries values instead of bytes:
//
//	orders := punctual.NewTopic[Order](q, "order.close")
//	r, err := orders.Push(ctx, Order{Number: 17}, punctual.In(30*time.Minute))
//
// # Cancel, reschedule, requeue
//
// Anyone who knows the ID may change a message, and gets a definite answer:
//
//	err := q.Cancel(ctx, "order.close", "order-17")
//	if errors.Is(err, punctual.ErrLeased) {
//		// A handler works on it right now; no further attempt will follow.
//	}
//	due, err := q.Reschedule(ctx, "order.close", "order-17", punctual.In(2*time.Hour))
//
// A message that was given up on is dead: kept with its reason and history until
// [Queue.Requeue] schedules it again or it is purged. Listing, counts, forecast and topic
// settings are the [Inspector] of a store, which [As] finds.
//
// # Handle
//
//	w := worker.New(store, &worker.Config{Concurrency: 32})
//	worker.Handle(w, orders, func(ctx context.Context, o Order, d *punctual.Delivery) error {
//		return closeOrder(ctx, o)
//	})
//	err := w.Run(ctx) // until ctx ends; running handlers may finish
//
// What the handler returns decides: nil is an ack, any error a retry after the topic's [Backoff]. [Snooze] comes back
// later without using an attempt, [RetryAfter] chooses the delay, [Discard] gives up. The worker renews the lease
// while the handler runs, and ends its context when the lease is lost. Delivery is at least once, so a handler must
// bear to see a message again. [Delivery].Token can serve as a fence: it grows with every claim of a topic's ID.
//
// # Errors
//
// Every error wraps one of the vocabulary in [ErrorKinds] or a context's, and says whether
// the operation certainly did not happen:
//
//	_, err := q.Push(ctx, "order.close", body, punctual.ID("order-17"))
//	switch {
//	case err == nil:
//	case punctual.Definite(err): // nothing was stored
//	default: // it may have been stored: push again with the same ID
//	}
//
// # Testing
//
// Package punctualtest has a store in memory with a clock that the test moves. So a handler due in half an hour is
// tested without waiting. With memstore and the system clock, Queue and Worker also run inside testing/synctest.
package punctual
