// Package races lets goroutines and workers fight over a few messages of a store, and finds the
// promises that are broken in what they saw.
package races

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/compare"
	"github.com/punctualmq/punctual/storetest/promise"
)

// What Run does at most; it stops at whichever comes first.
const (
	raceOps  = 20_000
	raceTime = 3 * time.Second
)

// How many clients there are, and over how many IDs they fight.
const (
	raceClients = 8
	raceIDs     = 8
)

// orders is the topic that all clients use.
const orders = "orders"

// Run lets goroutines push, claim, settle, cancel and reschedule the same few messages, and workers
// handle them. It uses the real clock, with leases so short that many run out, and judges what they
// saw with checkHistory. It finds most under -race. It takes a few seconds.
func Run(t *testing.T, open storetest.Open, opts ...storetest.Option) {
	r := &race{ctx: t.Context(), store: open(t, nil), lasts: raceTime}
	if a, err := punctual.As[storekit.AbilityReporter](r.store); err == nil {
		can, err := a.Abilities(r.ctx)
		if err != nil {
			t.Fatalf("%s: Abilities: %v", promise.P13, err)
		}
		r.reach = can.Follow
	}
	history, err := r.run()
	if err != nil {
		t.Fatalf("%s: a call failed while clients raced: %v", promise.P13, err)
	}
	reportHistory(t, history, storetest.Collect(opts).LossyClaims)
	t.Logf("%d deliveries came to a worker when their leases had ended", r.lapsed())
	storetest.CheckSound(t, r.store)
}

// reportHistory fails the test with the first ten violations. If there are no more, it logs how
// many events of each kind there were.
func reportHistory(t storetest.T, history []event, lossyClaims bool) {
	t.Helper()
	found := checkHistory(history, lossyClaims)
	for i, v := range found {
		if i == 10 {
			t.Errorf("%s: and %d more", v.Promise, len(found)-i)
			return
		}
		t.Errorf("%v", v)
	}
	seen := make(map[string]int)
	for _, e := range history {
		seen[raceKind(e)]++
	}
	t.Logf("%d events: %v", len(history), seen)
}

// raceKind names the kind of an event and its outcome, for the counts that reportHistory logs.
func raceKind(e event) string {
	switch e.Op {
	case opPush:
		if e.Err != nil {
			return "push refused"
		}
		return "push " + e.Push.String()
	case opDeliver:
		return "delivered"
	case opSettle:
		return e.Verb.String() + " " + storekit.ErrorCode(e.Err)
	case opCancel:
		return "cancel " + cmp.Or(storekit.ErrorCode(e.Err), "done")
	case opReschedule:
		return "reschedule " + cmp.Or(storekit.ErrorCode(e.Err), "done")
	case opStart:
		return "handler started"
	case opEnd:
		return "handler ended"
	}
	return "dead"
}

// race is a store and the clients that fight over its messages.
type race struct {
	ctx   context.Context
	store punctual.Store
	reach storekit.Reach // of the store's follow-ups
	lasts time.Duration
	ops   atomic.Int64 // how many steps were begun
	order atomic.Int64 // gives event.Call and event.Return

	workers []*raceWorker // set by run
}

// run lets all clients and workers run, then drains the store, and returns what all of them saw.
func (r *race) run() ([]event, error) {
	over := time.Now().Add(r.lasts)
	var clients []*raceClient
	ctx, end := context.WithCancel(r.ctx)
	defer end()
	var working sync.WaitGroup
	for i := range raceWorkers {
		w := newRaceWorker(r, i)
		r.workers = append(r.workers, w)
		working.Go(func() { w.run(ctx) })
	}
	var running sync.WaitGroup
	for i := range raceClients {
		c := &raceClient{race: r, number: i, rnd: rand.New(rand.NewPCG(uint64(i), 1))}
		clients = append(clients, c)
		running.Go(func() {
			for c.err == nil && time.Now().Before(over) && r.ops.Add(1) <= raceOps {
				c.err = c.step()
			}
		})
	}
	running.Wait()
	end()
	working.Wait()
	last := &raceClient{race: r}
	last.err = last.drain()
	var history []event
	var errs []error
	for _, c := range append(clients, last) {
		history = append(history, c.events...)
		errs = append(errs, c.err)
	}
	for _, w := range r.workers {
		history = append(history, w.events...)
		errs = append(errs, w.err)
	}
	return history, errors.Join(errs...)
}

// lapsed returns how many deliveries came to a worker when their leases had ended.
func (r *race) lapsed() (n int) {
	for _, w := range r.workers {
		n += w.lapsed
	}
	return n
}

// raceClient is one goroutine that uses the store directly, and what it saw.
type raceClient struct {
	*race
	number    int
	rnd       *rand.Rand
	made      int                  // how many messages it has pushed, follow-ups included
	dues      map[string]time.Time // when the message of an ID was due as this client was last told
	events    []event              // what it saw
	unsettled []event              // deliveries whose leases it has not ended, and may settle later
	err       error
}

func (c *raceClient) id() string { return fmt.Sprint(c.rnd.IntN(raceIDs)) }

// few returns a delay below most, mostly not of whole milliseconds.
func (c *raceClient) few(most time.Duration) time.Duration {
	return time.Duration(c.rnd.Int64N(int64(most)))
}

// record keeps an event whose call has returned. call is the number that was drawn from race.order
// before the call.
func (c *raceClient) record(e event, call int64) {
	e.Topic, e.Call, e.Return = orders, call, c.order.Add(1)
	c.events = append(c.events, e)
}

// step pushes, amends or, most often, claims. A claim waits up to 3 ms
// when nothing is due, so that leases have time to run out.
func (c *raceClient) step() error {
	switch c.rnd.IntN(10) {
	case 0, 1, 2:
		return c.produce()
	case 3:
		return c.amend()
	}
	return c.consume()
}

func (c *raceClient) produce() error {
	c.made++
	m := punctual.NewMessage{
		Topic: orders, ID: c.id(), Body: fmt.Appendf(nil, "%d-%d", c.number, c.made), Delay: c.few(5 * time.Millisecond),
		MaxAttempts: c.attempts(), IfExists: punctual.IfExists([]int{0, 0, 0, 0, 0, 0, 0, 3, 1, 2}[c.rnd.IntN(10)]),
	}
	if m.IfExists == punctual.IfExistsReplace {
		m.IfDue = c.ifDue(m.ID)
	}
	call := c.order.Add(1)
	rs, err := c.store.Push(c.ctx, []punctual.NewMessage{m})
	if err != nil {
		return err
	}
	c.told(m.ID, rs[0].Due)
	c.record(event{Op: opPush, ID: m.ID, Life: string(m.Body), Push: rs[0].Status, Due: rs[0].Due, Err: rs[0].Err, MaxAttempts: m.MaxAttempts}, call)
	return nil
}

func (c *raceClient) amend() error {
	a := punctual.Amendment{Change: punctual.ChangeCancel, Topic: orders, ID: c.id()}
	op := opCancel
	if c.rnd.IntN(3) > 0 {
		a.Change, a.Delay = punctual.ChangeReschedule, c.few(5*time.Millisecond)
		op = opReschedule
	}
	a.IfDue = c.ifDue(a.ID)
	call := c.order.Add(1)
	os, err := c.store.Amend(c.ctx, []punctual.Amendment{a})
	if err != nil {
		return err
	}
	c.told(a.ID, os[0].Due)
	c.record(event{Op: op, ID: a.ID, Err: os[0].Err, Due: os[0].Due}, call)
	if err := os[0].Err; !errors.Is(err, punctual.ErrLeased) && !errors.Is(err, punctual.ErrNotFound) && !errors.Is(err, punctual.ErrChanged) {
		return err
	}
	return nil
}

// told notes the due time that an answer gave for an ID. The zero Time, with which an answer gives
// none, changes nothing.
func (c *raceClient) told(id string, due time.Time) {
	if c.dues == nil {
		c.dues = make(map[string]time.Time)
	}
	if !due.IsZero() {
		c.dues[id] = due
	}
}

// ifDue returns the IfDue of a change: in two of three draws the zero Time, else the due time that
// this client was last told for the ID. Other clients may have moved the message since.
func (c *raceClient) ifDue(id string) time.Time {
	if c.rnd.IntN(3) > 0 {
		return time.Time{}
	}
	return c.dues[id]
}

// attempts returns a small bound of attempts for about half of the messages if the store has an
// Inspector, with which noteDead finds the dead. For all others it returns the largest bound.
func (c *raceClient) attempts() int {
	if _, err := punctual.As[punctual.Inspector](c.store); err == nil && c.rnd.IntN(2) == 0 {
		return 3
	}
	return limits.MaxAttemptsLimit
}

// claim claims, records each delivery, and returns what it has recorded.
func (c *raceClient) claim(q punctual.Claim) ([]event, error) {
	call := c.order.Add(1)
	ds, err := c.store.Claim(c.ctx, q)
	from := len(c.events)
	for _, d := range ds {
		c.record(deliveryEvent(d), call)
	}
	return slices.Clone(c.events[from:]), err
}

func (c *raceClient) settle(d event, v punctual.Verb, delay time.Duration, then ...punctual.NewMessage) error {
	now, err := c.store.Now(c.ctx)
	if err != nil {
		return err
	}
	call := c.order.Add(1)
	errs, err := c.store.Settle(c.ctx, []punctual.Settlement{{Topic: orders, ID: d.ID, Token: d.Token, Verb: v, Delay: delay, Then: then}})
	if err != nil {
		return err
	}
	c.record(event{Op: opSettle, ID: d.ID, Life: d.Life, Token: d.Token, Verb: v, Delay: delay, Now: now, Err: errs[0]}, call)
	for i := range then {
		c.record(followUpEvent(d, v, &then[i], errs[0]), call)
	}
	return nil
}

// errPerhaps is the outcome of a follow-up of which nobody is told whether it was stored, or was
// not because its ID was in use.
var errPerhaps = fmt.Errorf("nobody is told what became of a follow-up: %w", punctual.ErrIndeterminate)

// followUpEvent returns the event of the follow-up m of a settlement of d by v, as if m had been
// pushed. err is the error of the settlement. A follow-up with the ID of d was stored after an ack,
// because the ID is free then, and has replaced the message after a snooze. What became of any
// other follow-up is not known.
func followUpEvent(d event, v punctual.Verb, m *punctual.NewMessage, err error) event {
	e := event{Op: opPush, ID: m.ID, Life: string(m.Body), Due: m.Due, MaxAttempts: m.MaxAttempts, Err: err}
	switch {
	case err != nil:
	case m.ID != d.ID:
		e.Err = errPerhaps
	case v == punctual.SettleAck:
		e.Push = punctual.PushStored
	default:
		e.Push = punctual.PushReplaced
	}
	return e
}

// followed settles, and now and then with a follow-up if the store can store one: with the ID of
// the message or, if the store reaches every ID, with another one.
func (c *raceClient) followed(d event, v punctual.Verb, delay time.Duration) error {
	if c.reach == storekit.ReachNone || c.rnd.IntN(3) > 0 {
		return c.settle(d, v, delay)
	}
	now, err := c.store.Now(c.ctx)
	if err != nil {
		return err
	}
	c.made++
	m := punctual.NewMessage{
		Topic: orders, ID: d.ID, Body: fmt.Appendf(nil, "%d-%d", c.number, c.made), Due: now.Add(time.Duration(c.rnd.IntN(5)) * time.Millisecond),
		MaxAttempts: c.attempts(), IfExists: punctual.IfExistsReplace,
	}
	if c.reach == storekit.ReachAny && c.rnd.IntN(2) == 0 {
		if id := c.id(); id != d.ID {
			m.ID, m.IfExists = id, punctual.IfExists(c.rnd.IntN(3))
		}
	}
	return c.settle(d, v, delay, m)
}

// consume claims, and settles each delivery or leaves it for later. When there are many left for
// later it settles the oldest of them, whose lease has often run out.
func (c *raceClient) consume() error {
	q := punctual.Claim{
		Topics: []string{orders}, Max: 1 + c.rnd.IntN(3), Wait: c.few(3 * time.Millisecond), Lease: limits.MinLease + c.few(40*time.Millisecond),
	}
	if c.rnd.IntN(4) == 0 {
		q.IDs, q.Wait = []string{c.id(), c.id(), c.id()}, 0
	}
	ds, err := c.claim(q)
	for _, d := range ds {
		if err == nil {
			err = c.handle(d)
		}
	}
	if len(c.unsettled) > 3 && err == nil {
		d := c.unsettled[0]
		c.unsettled = c.unsettled[1:]
		err = c.any(d)
	}
	return err
}

func (c *raceClient) handle(d event) error {
	switch c.rnd.IntN(10) {
	case 0, 1, 2:
		c.unsettled = append(c.unsettled, d)
		return nil
	case 3:
		if err := c.settle(d, punctual.SettleExtend, limits.MinLease+c.few(20*time.Millisecond)); err != nil {
			return err
		}
		c.unsettled = append(c.unsettled, d)
		return nil
	case 4, 5:
		return c.followed(d, punctual.SettleAck, 0)
	}
	return c.any(d)
}

// any settles with any verb but discard, which would leave too many dead. The delivery of an
// extended lease stays in unsettled.
func (c *raceClient) any(d event) error {
	switch c.rnd.IntN(5) {
	case 0:
		return c.followed(d, punctual.SettleAck, 0)
	case 1:
		return c.settle(d, punctual.SettleRetry, c.few(4*time.Millisecond))
	case 2:
		return c.followed(d, punctual.SettleSnooze, c.few(4*time.Millisecond))
	case 3:
		return c.settle(d, punctual.SettleRelease, 0)
	}
	err := c.settle(d, punctual.SettleExtend, limits.MinLease)
	c.unsettled = append(c.unsettled, d)
	return err
}

// drain acks all that is left, and notes the dead. It ends when a claim has waited in vain for
// longer than any lease or delay of the race lasts.
func (c *raceClient) drain() error {
	for {
		ds, err := c.claim(punctual.Claim{Topics: []string{orders}, Max: raceIDs, Wait: 500 * time.Millisecond})
		if err != nil {
			return err
		}
		for _, d := range ds {
			if err := c.settle(d, punctual.SettleAck, 0); err != nil {
				return err
			}
		}
		if len(ds) == 0 {
			return c.noteDead()
		}
	}
}

func (c *raceClient) noteDead() error {
	in, err := punctual.As[punctual.Inspector](c.store)
	if err != nil {
		return nil
	}
	dead, err := compare.List(c.ctx, in, punctual.ListQuery{Topic: orders, State: punctual.StateDead})
	for _, i := range dead {
		c.record(event{Op: opDead, ID: i.ID, Life: string(i.Body)}, c.order.Add(1))
	}
	return err
}
