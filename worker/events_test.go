package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/worker"
)

// TestHandleEvents: an ack and a discard of messages of the topic reach the handler of its events.
func TestHandleEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		emit := punctual.EventAcked | punctual.EventDead
		r.configure("orders", punctual.SettingsPatch{Emit: &emit})
		w := r.worker(worker.Config{})
		seen := &record{}
		w.Handle("orders", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			if d.ID == "bad" {
				return punctual.Discard(errors.New("no such order"))
			}
			return nil
		}))
		w.HandleEvents("orders", func(_ context.Context, e event.Event) error {
			seen.add("%s %s/%s %s", e.Event, e.Topic, e.ID, e.Reason)
			return nil
		})
		r.push("orders", "good")
		r.runs(w)
		time.Sleep(time.Second)
		r.push("orders", "bad")
		time.Sleep(time.Second)
		seen.want(t, "acked orders/good ", "dead orders/bad discarded")
		r.stops(w)
	})
}

// TestHandleEventsOfGroups: what the groups of a topic tell of their copies reaches the handler of
// the events of the topic, and says of which group it is.
func TestHandleEventsOfGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.grouped()
		emit := punctual.EventAcked | punctual.EventDead
		for _, group := range []string{"billing", "mail"} {
			r.configure(punctual.GroupTopic("orders", group), punctual.SettingsPatch{Emit: &emit})
		}
		w := worker.New(r.mem, r.config(worker.Config{}))
		seen := &record{}
		w.HandleGroup("orders", "billing", acks(&record{}))
		w.HandleGroup("orders", "mail", handlerFunc(func(context.Context, *punctual.Delivery) error { return punctual.Discard(errBroken) }))
		w.HandleEvents("orders", func(_ context.Context, e event.Event) error {
			seen.add("%s %s/%s %s", e.Event, e.Topic, e.ID, e.Reason)
			return nil
		})
		r.push("orders", "a")
		r.runs(w)
		time.Sleep(time.Minute)
		r.stops(w)
		got := seen.all()
		slices.Sort(got)
		if want := []string{"acked orders@g.billing/a ", "dead orders@g.mail/a discarded"}; !slices.Equal(got, want) {
			t.Errorf("the events are %q, want %q", got, want)
		}
	})
}

// TestHandleEventsOfNone: a body that is no event becomes a dead letter, and one of a newer program
// is tried again.
func TestHandleEventsOfNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker(worker.Config{})
		w.HandleEvents("orders", func(context.Context, event.Event) error {
			t.Error("the handler was called")
			return nil
		})
		for id, body := range map[string]string{"mine": "hello", "newer": `{"event":"admired","topic":"orders","id":"a","at":1}`} {
			if _, err := r.q.Push(t.Context(), "orders@events", []byte(body), punctual.ID(id)); err != nil {
				t.Fatal(err)
			}
		}
		r.runs(w)
		time.Sleep(time.Second)
		if m := r.get("orders@events", "mine"); m.State != punctual.StateDead || !strings.Contains(m.Failures[0].Error, "events of orders: body is no event") {
			t.Errorf("what is no event is %s, %+v", m.State, m.Failures)
		}
		if m := r.get("orders@events", "newer"); m.State != punctual.StateScheduled || m.Attempt != 1 {
			t.Errorf("the event of a newer program is %s with %d attempts", m.State, m.Attempt)
		}
		r.stops(w)
	})
}

// TestSettledByTheHandler: the worker leaves a message alone that its handler has settled. A
// message whose handler says so although it has not settled it is delivered again when its lease
// ends.
func TestSettledByTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{Lease: time.Minute, Observer: &punctual.Observer{
			OnFinish: func(_ context.Context, d *punctual.Delivery, v punctual.Verb, _ time.Duration, err error) {
				seen.add("finish %s %s %v", d.ID, v, err)
			},
			OnSettle: func(_ context.Context, s punctual.Settlement, _ time.Duration, _ error) {
				seen.add("settle %s", s.ID)
			},
		}})
		w.Handle("orders", handlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			if d.ID == "pretended" && d.Attempt > 1 {
				return nil
			}
			if d.ID != "pretended" {
				errs, err := r.store.Settle(ctx, []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}})
				if err := errors.Join(append(errs, err)...); err != nil {
					return err
				}
			}
			return fmt.Errorf("wrapped: %w", punctual.Settled(punctual.SettleAck))
		}))
		r.push("orders", "truly")
		r.runs(w)
		time.Sleep(time.Second)
		r.wantGone("orders", "truly")
		seen.want(t, "finish truly ack <nil>")
		r.push("orders", "pretended")
		time.Sleep(time.Second)
		if m := r.get("orders", "pretended"); m.State != punctual.StateLeased {
			t.Errorf("the message is %s, want leased until its lease ends", m.State)
		}
		time.Sleep(time.Minute)
		r.wantGone("orders", "pretended")
		seen.want(t, "finish truly ack <nil>", "finish pretended ack <nil>", "finish pretended ack <nil>", "settle pretended")
		r.wantLog("level=WARN", 0)
		r.stops(w)
	})
}
