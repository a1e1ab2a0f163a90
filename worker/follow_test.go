package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	familyrig "github.com/punctualmq/punctual/internal/rigs/family"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

// follows returns a handler that acks with one follow-up in the topic, whose ID has "~next" behind
// that of the message.
func follows(seen *record, topic string, opts ...punctual.PushOption) punctual.Handler {
	return handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		seen.add("%s", d.ID)
		m, err := punctual.Compose(topic, []byte("after "+d.ID), append(opts, punctual.ID(d.ID+"~next"))...)
		return punctual.Follow(err, m)
	})
}

// TestWorkerStoresFollowUps: the follow-up is stored with the ack, says what it came from, and is
// handled like any message.
func TestWorkerStoresFollowUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		finished := &record{}
		o := &punctual.Observer{
			OnFinish: func(_ context.Context, d *punctual.Delivery, v punctual.Verb, _ time.Duration, err error) {
				finished.add("finish %s %s %v", d.ID, v, err)
			},
			OnSettle: func(_ context.Context, s punctual.Settlement, _ time.Duration, err error) {
				finished.add("settle %s %s with %d, %v", s.ID, s.Verb, len(s.Then), err)
			},
		}
		w := r.worker(worker.Config{Observer: o})
		w.Handle("pay", follows(seen, "invoice", punctual.In(time.Hour), punctual.Header("kind", "bill")))
		w.Handle("invoice", acks(seen))
		r.push("pay", "a")
		r.runs(w)
		time.Sleep(time.Second)
		r.wantGone("pay", "a")
		i := r.get("invoice", "a~next")
		if i.Headers[storekit.AfterHeader] != "pay/a" || i.Headers["kind"] != "bill" || string(i.Body) != "after a" || i.State != punctual.StateScheduled {
			t.Errorf("the follow-up is %+v", i)
		}
		time.Sleep(time.Hour)
		r.wantGone("invoice", "a~next")
		seen.want(t, "a", "a~next")
		finished.want(t, "finish a ack <nil>", "settle a ack with 1, <nil>", "finish a~next ack <nil>", "settle a~next ack with 0, <nil>")
		r.wantLog("level=WARN", 0)
		r.stops(w)
	})
}

// TestWorkerFollowsADiscardAndASnooze: what a handler returns beside the follow-ups decides what
// becomes of the message, and where it is retried nothing is stored.
func TestWorkerFollowsADiscardAndASnooze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker(worker.Config{})
		w.Handle("t", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			m := punctual.NewMessage{Topic: "u", ID: d.ID + "~next"}
			switch d.ID {
			case "discarded":
				return punctual.Follow(punctual.Discard(errBroken), m)
			case "snoozed":
				return punctual.Follow(punctual.Snooze(time.Hour), m)
			}
			return punctual.Follow(errBroken, m)
		}))
		for _, id := range []string{"discarded", "snoozed", "failed"} {
			r.push("t", id)
		}
		r.runs(w)
		time.Sleep(100 * time.Millisecond)
		if i := r.get("t", "discarded"); i.State != punctual.StateDead || i.Reason != punctual.ReasonDiscarded {
			t.Errorf("%+v", i)
		}
		if i := r.get("t", "snoozed"); i.State != punctual.StateScheduled || i.Attempt != 0 {
			t.Errorf("%+v", i)
		}
		if i := r.get("t", "failed"); i.Attempt != 1 || len(i.Failures) != 1 {
			t.Errorf("%+v", i)
		}
		r.get("u", "discarded~next")
		r.get("u", "snoozed~next")
		r.wantGone("u", "failed~next")
		r.stops(w)
	})
}

// TestWorkerPutsOffWhatIsRefusedForAWhile: while the topic of a follow-up refuses pushes the
// message waits longer and longer and keeps its attempts; then both are done.
func TestWorkerPutsOffWhatIsRefusedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		settled := &record{}
		o := &punctual.Observer{OnSettle: func(_ context.Context, s punctual.Settlement, _ time.Duration, err error) {
			settled.add("%s %s", s.Verb, storekit.ErrorCode(err))
		}}
		w := r.worker(worker.Config{Observer: o})
		w.Handle("pay", follows(seen, "invoice"))
		r.configure("pay", punctual.SettingsPatch{Backoff: &punctual.Backoff{Base: time.Second, Max: time.Minute}, MaxAttempts: ptr(1)})
		r.configure("invoice", punctual.SettingsPatch{PushPaused: ptr(true)})
		r.push("pay", "a")
		r.runs(w)
		time.Sleep(20 * time.Second) // tried after 0, 1, 3, 7 and 15 s
		if i := r.get("pay", "a"); i.State != punctual.StateScheduled || i.Attempt != 0 || len(i.Failures) != 0 {
			t.Errorf("%+v; want it scheduled, without an attempt", i)
		}
		seen.want(t, "a", "a", "a", "a", "a")
		if got := strings.Join(settled.all(), ", "); strings.Count(got, "ack paused, snooze ") != 5 {
			t.Errorf("settled %s; want an ack that is refused, then a snooze, each time", got)
		}
		r.wantGone("invoice", "a~next")
		r.wantLog("message put off", 5)
		r.configure("invoice", punctual.SettingsPatch{PushPaused: ptr(false)})
		time.Sleep(20 * time.Second)
		r.wantGone("pay", "a")
		r.get("invoice", "a~next")
		r.stops(w)
	})
}

func ptr[T any](v T) *T { return &v }

// TestWorkerPutsOffAtItsEnd: a worker with duties that stops puts off a message whose follow-up is
// refused by the backoff of its topic, as it does while it runs, although its duties have ended.
func TestWorkerPutsOffAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		settled := &record{}
		o := &punctual.Observer{OnSettle: func(_ context.Context, s punctual.Settlement, _ time.Duration, err error) {
			settled.add("%s %s", s.Verb, storekit.ErrorCode(err))
		}}
		w := worker.New(r.mem, r.config(worker.Config{Observer: o, Schedules: true}))
		goOn := make(chan struct{})
		w.Handle("pay", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			<-goOn
			return punctual.Follow(nil, punctual.NewMessage{Topic: "invoice", ID: d.ID})
		}))
		r.configure("pay", punctual.SettingsPatch{Backoff: &punctual.Backoff{Base: time.Hour, Max: time.Hour}})
		r.configure("invoice", punctual.SettingsPatch{PushPaused: ptr(true)})
		r.push("pay", "a")
		r.runs(w)
		time.Sleep(2 * time.Second) // the duties run, and the handler
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			r.stops(w)
		}()
		time.Sleep(time.Second) // the duties have ended
		select {
		case <-stopped:
			t.Fatal("this test shows nothing: the worker has stopped while a handler ran")
		default:
		}
		close(goOn)
		<-stopped
		settled.want(t, "ack paused", "snooze ")
		if i := r.get("pay", "a"); i.State != punctual.StateScheduled || i.Attempt != 0 || i.Due.Sub(r.start).Round(time.Minute) != time.Hour {
			t.Errorf("%s, attempt %d, due after %v; want it put off by the hour of the topic's backoff", i.State, i.Attempt, i.Due.Sub(r.start))
		}
		r.wantLog("backoff of the topic", 0)
	})
}

// TestWorkerRetriesWhatIsRefused: a follow-up that is refused for good never has its message acked.
// The message is retried, its history has the reason, and it is dead when its attempts are used up.
func TestWorkerRetriesWhatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		m    punctual.NewMessage
		want error
	}{
		"duplicate": {punctual.NewMessage{Topic: "u", ID: "taken", IfExists: punctual.IfExistsFail}, punctual.ErrDuplicate},
		"malformed": {punctual.NewMessage{Topic: "no topic"}, punctual.ErrInvalid},
		"too large": {punctual.NewMessage{Topic: "u", Body: make([]byte, limits.DefaultMaxBody+1)}, punctual.ErrTooLarge},
		"changed":   {punctual.NewMessage{Topic: "u", ID: "taken", IfExists: punctual.IfExistsReplace, IfDue: time.Unix(1, 0)}, punctual.ErrChanged},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				w := r.worker(worker.Config{})
				w.Handle("t", handlerFunc(func(context.Context, *punctual.Delivery) error { return punctual.Follow(nil, c.m) }))
				r.push("u", "taken", punctual.In(time.Hour))
				r.configure("t", punctual.SettingsPatch{MaxAttempts: ptr(2), Backoff: &punctual.Backoff{}})
				r.push("t", "a")
				r.runs(w)
				time.Sleep(time.Second)
				i := r.get("t", "a")
				if i.State != punctual.StateDead || i.Reason != punctual.ReasonAttemptsUsedUp || len(i.Failures) != 2 {
					t.Fatalf("%+v; want it dead after two attempts", i)
				}
				if text := i.Failures[0].Error; !strings.Contains(text, "follow-up 1: ") || !strings.Contains(text, c.want.Error()) {
					t.Errorf("the history has %q", text)
				}
				r.stops(w)
			})
		})
	}
}

// TestWorkerLosesNoFollowUpWithAnAnswer: the first try took effect and its answer got lost. The
// next one meets a settled message, and the follow-up is there once.
func TestWorkerLosesNoFollowUpWithAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		tries := 0
		r.store.afterSettle = func(context.Context, []punctual.Settlement) error {
			if tries++; tries == 1 {
				r.wantGone("t", "a") // it was done
				r.get("u", "a~next")
				return punctual.ErrIndeterminate
			}
			return nil
		}
		w := r.worker(worker.Config{})
		w.Handle("t", follows(seen, "u"))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(time.Minute)
		r.stops(w)
		seen.want(t, "a")
		if tries != 2 {
			t.Errorf("%d tries; want another one after the lost answer", tries)
		}
		r.get("u", "a~next")
		r.wantLog("level=WARN", 0)
	})
}

// TestWorkerSendsLargeFollowUpsInParts: the follow-ups of several settlements in one call have at
// most 4 MiB, however many wait.
func TestWorkerSendsLargeFollowUpsInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var mu sync.Mutex
		most, calls := 0, 0
		r.store.spoil(nil, func(ss []punctual.Settlement) error {
			mu.Lock()
			defer mu.Unlock()
			n := 0
			for _, s := range ss {
				n += storekit.SizeOfThen(s.Then)
			}
			most, calls = max(most, n), calls+1
			return nil
		})
		w := r.worker(worker.Config{Concurrency: 64})
		body := make([]byte, 1<<20)
		var all sync.WaitGroup
		all.Add(20)
		w.Handle("t", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			all.Done()
			all.Wait() // so that all are settled at once
			return punctual.Follow(nil, punctual.NewMessage{Topic: "u", ID: d.ID, Body: body})
		}))
		for i := range 20 {
			r.push("t", fmt.Sprint(i))
		}
		r.runs(w)
		time.Sleep(time.Second)
		r.stops(w)
		if s, err := r.mem.Stats(t.Context(), "u"); err != nil || s.Live() != 20 {
			t.Errorf("%+v, %v; want 20 follow-ups", s, err)
		}
		if most > 4<<20 || most < 2<<20 {
			t.Errorf("a call had follow-ups of %d bytes; want at most 4 MiB, and several in one", most)
		}
	})
}

// TestWorkerForwardsFollowUps: in a store that reaches only a family a follow-up in another topic
// goes through an envelope, which the worker forwards. The header stays, a delay counts from the
// ack, and a follow-up within reach needs no envelope.
func TestWorkerForwardsFollowUps(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent %v", silent), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				store := familyrig.New(r.mem, 4, silent)
				w := worker.New(store, r.config(worker.Config{}))
				w.Handle("pay", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
					return punctual.Follow(nil,
						punctual.NewMessage{Topic: "invoice", ID: "bill", Delay: time.Hour, Body: []byte("body"), Headers: map[string]string{"kind": "bill"}},
						punctual.NewMessage{Topic: "invoice"},
						punctual.NewMessage{Topic: "pay@note", ID: d.ID + "~note"},
					)
				}))
				r.runs(w)
				r.configure("invoice", punctual.SettingsPatch{PushPaused: ptr(true)})
				r.push("pay", "a")
				time.Sleep(time.Second / 2)
				r.wantGone("pay", "a")
				if s, err := r.mem.Stats(t.Context(), "pay@out"); err != nil || s.Live() != 2 {
					t.Fatalf("%+v, %v; want two envelopes, and the third follow-up in its topic", s, err)
				}
				r.get("pay@note", "a~note")
				if n := store.Refused(); (n > 0) != silent {
					t.Errorf("%d settlements were refused", n)
				}
				time.Sleep(time.Minute)
				r.configure("invoice", punctual.SettingsPatch{PushPaused: ptr(false)})
				time.Sleep(2 * time.Minute)
				if s, err := r.mem.Stats(t.Context(), "invoice"); err != nil || s.Live() != 2 {
					t.Fatalf("%+v, %v; want both follow-ups", s, err)
				}
				if s, err := r.mem.Stats(t.Context(), "pay@out"); err != nil || s.Live() != 0 || s.Dead != 0 {
					t.Errorf("%+v, %v; want no envelope left", s, err)
				}
				i := r.get("invoice", "bill")
				if i.Headers[storekit.AfterHeader] != "pay/a" || i.Headers["kind"] != "bill" || len(i.Headers) != 2 || string(i.Body) != "body" {
					t.Errorf("the follow-up is %+v", i)
				}
				if late := i.Due.Sub(r.start.Add(time.Hour)); late < 0 || late > 10*time.Millisecond {
					t.Errorf("it is due %v after an hour from the ack", late)
				}
				r.stops(w)
			})
		})
	}
}

// TestWorkerForwardsItsOwn: a worker forwards the envelopes of its own topics, and none of another
// topic, whether the other one has envelopes before the worker starts or gets them later. The same
// holds for Drain.
func TestWorkerForwardsItsOwn(t *testing.T) {
	for _, when := range []string{"before", "later", "drain"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			store := familyrig.New(r.mem, 1, false)
			w := worker.New(store, r.config(worker.Config{}))
			w.Handle("pay", follows(&record{}, "invoice"))
			others := func() {
				r.push("stock", "b")
				time.Sleep(time.Millisecond)
				ds, err := store.Claim(t.Context(), punctual.Claim{Topics: []string{"stock"}, Max: 1})
				if err != nil || len(ds) != 1 {
					t.Fatal(ds, err)
				}
				x := punctual.Settlement{Topic: "stock", ID: "b", Token: ds[0].Token, Verb: punctual.SettleAck, Then: []punctual.NewMessage{{Topic: "order", ID: "next"}}}
				storekit.SetAfter(&x)
				if errs, err := storekit.Settle(t.Context(), store, []punctual.Settlement{x}, nil); err != nil || errs[0] != nil {
					t.Fatal(errs, err)
				}
			}
			if when != "later" {
				others()
			}
			r.push("pay", "a")
			time.Sleep(time.Millisecond)
			if when == "drain" {
				if _, err := w.Drain(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else {
				r.runs(w)
				time.Sleep(time.Minute)
				if when == "later" {
					others()
				}
				time.Sleep(time.Minute)
				r.stops(w)
			}
			r.get("invoice", "a~next")
			p, err := r.mem.List(t.Context(), punctual.ListQuery{Topic: "stock@out", State: punctual.StateReady})
			if err != nil || len(p.Messages) != 1 || p.Messages[0].Attempt != 0 || !p.Messages[0].Due.Equal(p.Messages[0].FirstDue) {
				t.Errorf("%s: %+v, %v; want the envelope of the other topic untouched", when, p, err)
			}
		})
	}
}

// TestWorkerShowsWhatCannotBeForwarded: a refusal that comes after the ack shows as a dead
// envelope.
func TestWorkerShowsWhatCannotBeForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := worker.New(familyrig.New(r.mem, 1, false), r.config(worker.Config{}))
		w.Handle("t", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			return punctual.Follow(nil, punctual.NewMessage{Topic: "u", ID: "taken", IfExists: punctual.IfExistsFail})
		}))
		r.push("u", "taken", punctual.In(time.Hour))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(time.Minute)
		r.wantGone("t", "a")
		p, err := r.mem.List(t.Context(), punctual.ListQuery{Topic: "t@out", State: punctual.StateDead})
		if err != nil || len(p.Messages) != 1 || storekit.Stem(p.Messages[0].ID) != "a" {
			t.Fatalf("%+v, %v; want one dead envelope", p, err)
		}
		if f := p.Messages[0].Failures; len(f) != 1 || !strings.HasPrefix(f[0].Error, "not forwarded to u: ") || !strings.HasSuffix(f[0].Error, punctual.ErrDuplicate.Error()) {
			t.Errorf("its history is %+v", f)
		}
		r.stops(w)
	})
}

// TestDrainForwards: Drain forwards follow-ups as well, and handles them if they are due.
func TestDrainForwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := worker.New(familyrig.New(r.mem, 1, false), r.config(worker.Config{}))
		w.Handle("t", follows(seen, "u"))
		w.Handle("u", acks(seen))
		r.push("t", "a")
		time.Sleep(time.Millisecond)
		if n, err := w.Drain(t.Context()); n != 2 || err != nil {
			t.Errorf("%d, %v; want the message and its follow-up handled", n, err)
		}
		seen.want(t, "a", "a~next")
	})
}

// TestWorkerKeepsALeaseWhoseFollowUpsOverload: an overload of the whole call is waited for, because
// it says nothing about the follow-ups.
func TestWorkerKeepsALeaseWhoseFollowUpsOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		again := failing(3, punctual.ErrOverloaded)
		r.store.spoil(nil, func([]punctual.Settlement) error { return again() })
		w := r.worker(worker.Config{})
		w.Handle("t", follows(seen, "u"))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(5 * time.Second)
		if !errors.Is(again(), nil) {
			t.Error("the store was not asked often enough")
		}
		seen.want(t, "a")
		r.get("u", "a~next")
		r.stops(w)
	})
}
