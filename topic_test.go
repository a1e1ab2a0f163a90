package punctual_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/worker"
)

type order struct {
	Number int
	Paid   bool
}

func TestTopicCarriesValues(t *testing.T) {
	q, clock := newQueue(t, nil)
	orders := punctual.NewTopic[order](q, "order.cancel")
	if orders.Name() != "order.cancel" {
		t.Errorf("name %q", orders.Name())
	}
	if _, err := orders.Push(t.Context(), order{Number: 7}, punctual.In(time.Minute)); err != nil {
		t.Fatalf("push: %v", err)
	}
	clock.Advance(time.Minute)
	d := claimOne(t, q, "order.cancel")
	if got, want := string(d.Body), `{"Number":7,"Paid":false}`; got != want {
		t.Errorf("body %s: want %s", got, want)
	}
	var got order
	h := orders.Handler(func(_ context.Context, o order, d2 *punctual.Delivery) error {
		if d2.ID != d.ID {
			t.Errorf("delivery %q: want %q", d2.ID, d.ID)
		}
		got = o
		return punctual.ErrPaused
	})
	if err := h.Handle(t.Context(), &d); !errors.Is(err, punctual.ErrPaused) || got.Number != 7 {
		t.Errorf("handler got %+v and returned %v: want order 7 and its error", got, err)
	}
}

func TestTopicByID(t *testing.T) {
	q, clock := newQueue(t, nil)
	orders := punctual.NewTopic[order](q, "t")
	ctx := t.Context()
	r, err := orders.Push(ctx, order{}, punctual.In(time.Hour))
	if err != nil {
		t.Fatalf("push: %v", err)
	}
	wantMoved(t, nil)(orders.Reschedule(ctx, r.ID, punctual.In(time.Second)))
	clock.Advance(time.Second)
	discard(t, q, claimOne(t, q, "t"))
	wantMoved(t, nil)(orders.Requeue(ctx, r.ID, punctual.When{}))
	wantErr(t, nil, orders.Cancel(ctx, r.ID))
	wantErr(t, punctual.ErrNotFound, orders.Delete(ctx, r.ID))
}

func TestTopicPushMany(t *testing.T) {
	q, _ := newQueue(t, nil)
	orders := punctual.NewTopic[order](q, "t")
	rs, err := orders.PushMany(t.Context(), []order{{Number: 1}, {Number: 2}}, func(o order) []punctual.PushOption {
		return []punctual.PushOption{punctual.Header("k", "v"), punctual.ID(fmt.Sprint("order-", o.Number))}
	})
	if err != nil || len(rs) != 2 || rs[0].ID == rs[1].ID {
		t.Fatalf("push: %+v, %v", rs, err)
	}
	for n := 1; n <= 2; n++ {
		if d := claimOne(t, q, "t"); d.Headers["k"] != "v" {
			t.Errorf("message %d has headers %v", n, d.Headers)
		}
	}
	later := func(o order) []punctual.PushOption {
		return []punctual.PushOption{punctual.ID(fmt.Sprint("order-", o.Number)), punctual.In(time.Hour)}
	}
	if _, err := orders.PushMany(t.Context(), []order{{Number: 8}, {Number: 9}}, later); err != nil {
		t.Fatal(err)
	}
	v, info, err := orders.Get(t.Context(), "order-9")
	if err != nil || v.Number != 9 || info.State != punctual.StateScheduled {
		t.Errorf("get: %+v, %+v, %v", v, info, err)
	}
	if _, err := orders.CancelMany(t.Context(), []string{"order-8", "order-9"}); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if _, _, err := orders.Get(t.Context(), "order-9"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("get of a cancelled message: %v", err)
	}
	if set, err := orders.Configure(t.Context(), func(s *punctual.Settings) { s.MaxAttempts = 3 }); err != nil || set.MaxAttempts != 3 {
		t.Errorf("configure: %+v, %v", set, err)
	}
}

func TestTopicValueDoesNotEncode(t *testing.T) {
	s := &fakeStore{push: func(context.Context, []punctual.NewMessage) ([]punctual.PushResult, error) {
		t.Error("the store was called")
		return nil, nil
	}}
	numbers := punctual.NewTopic[float64](punctual.NewQueue(s, nil), "t")
	r, err := numbers.Push(t.Context(), math.NaN())
	if !errors.Is(err, punctual.ErrInvalid) || !punctual.Definite(err) || r.Err == nil {
		t.Errorf("push of NaN: %+v, %v: want ErrInvalid", r, err)
	}
	_, err = numbers.PushMany(t.Context(), []float64{1, math.NaN(), 3}, nil)
	if !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "2 of 3") {
		t.Errorf("push of many: %v: want ErrInvalid that names value 2", err)
	}
}

// A body that does not decode is retried, as after any error.
func TestTopicBodyDoesNotDecode(t *testing.T) {
	q, _ := newQueue(t, nil)
	mustPush(t, q, "t", "not JSON")
	d := claimOne(t, q, "t")
	err := punctual.NewTopic[order](q, "t").Handler(func(context.Context, order, *punctual.Delivery) error {
		t.Error("the handler was called")
		return nil
	}).Handle(t.Context(), &d)
	dec := punctual.DecisionOf(err)
	if dec.Verb != punctual.SettleRetry || dec.Delay != punctual.UseBackoff || !strings.Contains(err.Error(), "decode body as punctual_test.order") {
		t.Errorf("%+v, %q: want a retry after the topic's backoff that says why", dec, err)
	}
}

// While a release is rolled out, a message of its new form reaches a process of the old one first.
// Another attempt, by a process of the new release, handles it.
func TestTopicNewFormDuringDeploy(t *testing.T) {
	q, clock := newQueue(t, nil)
	if _, err := q.Configure(t.Context(), "t", func(s *punctual.Settings) {
		s.Backoff = punctual.Backoff{Delays: []time.Duration{time.Minute}}
	}); err != nil {
		t.Fatal(err)
	}
	type newOrder struct{ Number string } // was a number before
	if _, err := punctual.NewTopic[newOrder](q, "t").Push(t.Context(), newOrder{"A-1"}, punctual.ID("a")); err != nil {
		t.Fatal(err)
	}
	var got []string
	older := worker.New(q.Store(), nil)
	older.Handle("t", punctual.NewTopic[order](q, "t").Handler(func(context.Context, order, *punctual.Delivery) error {
		got = append(got, "old")
		return nil
	}))
	if n, err := older.Drain(t.Context()); n != 1 || err != nil {
		t.Fatalf("the old release took %d messages, %v: want 1", n, err)
	}
	info, err := q.Get(t.Context(), "t", "a")
	if err != nil || info.State != punctual.StateScheduled || len(info.Failures) != 1 || !strings.Contains(info.Failures[0].Error, "decode body") {
		t.Fatalf("after an attempt by the old release: %+v, %v: want it scheduled, and the reason in its history", info, err)
	}
	clock.Advance(time.Minute)
	newer := worker.New(q.Store(), nil)
	newer.Handle("t", punctual.NewTopic[newOrder](q, "t").Handler(func(_ context.Context, o newOrder, _ *punctual.Delivery) error {
		got = append(got, o.Number)
		return nil
	}))
	if n, err := newer.Drain(t.Context()); n != 1 || err != nil || len(got) != 1 || got[0] != "A-1" {
		t.Errorf("the new release took %d messages, %v, and the handlers had %q: want A-1", n, err, got)
	}
}

type xmlCodec struct{}

func (xmlCodec) Encode(v any) ([]byte, error)    { return xml.Marshal(v) }
func (xmlCodec) Decode(data []byte, v any) error { return xml.Unmarshal(data, v) }

func TestTopicCodec(t *testing.T) {
	q, _ := newQueue(t, nil)
	orders := punctual.NewTopic[order](q, "t", punctual.WithCodec(xmlCodec{}))
	if _, err := orders.Push(t.Context(), order{Number: 7}); err != nil {
		t.Fatalf("push: %v", err)
	}
	d := claimOne(t, q, "t")
	if !strings.HasPrefix(string(d.Body), "<order>") {
		t.Errorf("body %s: want XML", d.Body)
	}
	err := orders.Handler(func(_ context.Context, o order, _ *punctual.Delivery) error {
		if o.Number != 7 {
			t.Errorf("got %+v", o)
		}
		return nil
	}).Handle(t.Context(), &d)
	if err != nil {
		t.Errorf("handle: %v", err)
	}
}
