// Package punctual delivers messages at the time asked for. An unpaid order is closed half an hour
// after it was placed. A reminder goes out two days before the appointment. A payment notice is
// sent again after two minutes, ten minutes, an hour.
//
// A program pushes a message with the time at which it is due, and the message waits in a [Store].
// When its due time has come, a [worker.Worker] claims it under a lease and calls a handler. The
// message is removed once its handler has succeeded. A message is delivered at least once and never
// early; the documentation of Store has the contract in detail.
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
// The verbs and states of the picture have the same names in the library, on the command line, over
// HTTP and in the console. A message is named by its topic and its ID. The first push creates a
// topic. Its settings ([Settings]) live in the store and hold for every process.
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
// When Push returns without an error, the message is as durable as the store promises. Options say
// when ([In], [At], [AtLocal], [Spread]), under which [ID], and what else holds for the message
// ([Header], [MaxAttempts], [Expire]). A push whose ID is already in use keeps the first
// message, so a push with an ID may be repeated safely. If the first message is dead, the push
// fails with [ErrDuplicate], because a dead message would not be delivered. With [Replace] the new
// message takes the place of the first; with [FailIfExists] the push fails. [Queue.PushMany] stores
// many messages with a result for each.
//
// Concurrent pushes travel to the store together, so that a store that syncs to disk syncs once for
// all of them. A push that comes alone is sent at once.
//
// A [Topic] carries values instead of bytes:
//
//	orders := punctual.NewTopic[Order](q, "order.close")
//	r, err := orders.Push(ctx, Order{Number: 17}, punctual.In(30*time.Minute))
//
// # Cancel, reschedule, requeue
//
// Whoever knows the topic and the ID of a message can change it, and gets a definite answer:
//
//	err := q.Cancel(ctx, "order.close", "order-17")
//	if errors.Is(err, punctual.ErrLeased) {
//		// A handler works on it right now; no further attempt will follow.
//	}
//	due, err := q.Reschedule(ctx, "order.close", "order-17", punctual.In(2*time.Hour))
//
// A message that was given up on is dead. The store keeps it, with the reason and its history,
// until [Queue.Requeue] schedules it again, somebody purges, deletes or replaces it, or its topic's
// DeadRetention is over. Lists, counts, the forecast and the settings of topics are the [Inspector]
// of a store, which [As] finds.
//
// # Handle
//
//	w := worker.New(store, &worker.Config{Concurrency: 32})
//	worker.Handle(w, orders, func(ctx context.Context, o Order, d *punctual.Delivery) error {
//		return closeOrder(ctx, o)
//	})
//	err := w.Run(ctx) // until ctx ends; running handlers may finish
//
// What the handler returns decides what becomes of the message: nil is an ack, any other error a
// retry after the topic's [Backoff]. With [Snooze] the message is delivered later without using an
// attempt, with [RetryAfter] the handler chooses the delay, with [Discard] the message becomes
// dead. The worker renews the lease while the handler runs, and ends the handler's context when the
// lease is lost. Because a message is delivered at least once, a handler must bear to see a message
// again. [Delivery].Token can serve as a fence: it grows with every claim of a topic's ID.
//
// # Errors
//
// Every error wraps one of the errors in docs/errors.md or an error of package context. Only the
// errors of a program's own code, such as a [Codec], are returned as they are, with a sentence in
// front. [Definite] tells whether the operation certainly did not happen:
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
// Package punctualtest has a store in memory with a clock that the test moves, so that a test of a
// message due in half an hour takes no time. With memstore and the system clock, Queue and Worker
// also run inside testing/synctest.
package punctual
