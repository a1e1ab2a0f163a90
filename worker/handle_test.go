package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

func TestWorkerClaimsOnlyForFreeHands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const slots = 3
		var running, most atomic.Int64
		r.store.spoil(func(c punctual.Claim) error {
			if busy := int(running.Load()); c.Max+busy > slots {
				t.Errorf("claim of %d with %d of %d slots busy", c.Max, busy, slots)
			}
			return nil
		}, nil)
		w := r.worker(worker.Config{Concurrency: slots})
		w.Handle("t", handlerFunc(func(context.Context, *punctual.Delivery) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(time.Minute)
			return nil
		}))
		for i := range 10 {
			r.push("t", fmt.Sprint(i))
		}
		r.runs(w)
		time.Sleep(30 * time.Second)
		if open, _, _ := r.store.counts(); open != 0 || running.Load() != slots {
			t.Errorf("%d claims are open while %d of %d slots are busy; want none", open, running.Load(), slots)
		}
		time.Sleep(4*time.Minute + 5*time.Second)
		time.Sleep(100 * time.Millisecond) // between the beginning of a claim and its end
		if open, _, _ := r.store.counts(); open != 2 {
			t.Errorf("%d claims are open while all slots are free, want 2 long ones", open)
		}
		if most.Load() != slots {
			t.Errorf("up to %d handlers ran at a time, want %d", most.Load(), slots)
		}
		for i := range 10 {
			r.wantGone("t", fmt.Sprint(i))
		}
		r.stops(w)
	})
}

func TestWorkerWaitsInTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{})
		w.Handle("t", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			seen.add("%s at %v", d.ID, r.since())
			return nil
		}))
		r.runs(w)
		r.push("t", "a", punctual.In(10*time.Minute))
		time.Sleep(time.Hour)
		seen.want(t, "a at 10m0s")
		if _, claims, _ := r.store.counts(); claims > 20+6*int(time.Hour/time.Minute) {
			t.Errorf("%d claims in an idle hour; want no more than six a minute", claims)
		}
		r.stops(w)
	})
}

func TestWorkerStrictOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{Concurrency: 1, Strict: true})
		for _, topic := range []string{"urgent", "normal", "late"} {
			w.Handle(topic, acks(seen), worker.Weight(1))
		}
		for i := range 2 {
			for _, topic := range []string{"late", "normal", "urgent"} {
				r.push(topic, fmt.Sprint(topic, i))
				time.Sleep(time.Millisecond)
			}
		}
		r.runs(w)
		synctest.Wait()
		seen.want(t, "urgent0", "urgent1", "normal0", "normal1", "late0", "late1")
		r.stops(w)
	})
}

func TestWorkerWeightsStarveNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{Concurrency: 1})
		slow := handlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			time.Sleep(time.Second)
			return acks(seen).Handle(ctx, d)
		})
		w.Handle("heavy", slow, worker.Weight(9))
		w.Handle("light", slow)
		for i := range 1000 {
			r.push("heavy", fmt.Sprint("h", i))
			r.push("light", fmt.Sprint("l", i))
		}
		r.runs(w)
		time.Sleep(500 * time.Second)
		light := 0
		for _, id := range seen.all() {
			if strings.HasPrefix(id, "l") {
				light++
			}
		}
		// 500 draws at 1 in 10: 50 are expected, with a standard deviation of 6.7.
		if light < 10 || light > 100 {
			t.Errorf("a topic with a tenth of the weight got %d of 500 turns", light)
		}
		r.stops(w)
	})
}

func TestWorkerErrorsDecide(t *testing.T) {
	boom := errors.New("boom")
	cases := []struct {
		name     string
		first    error
		again    time.Duration // 0: no second delivery
		attempt  int           // at the second delivery
		failures int           // then
	}{
		{"ack", nil, 0, 0, 0},
		{"snooze", punctual.Snooze(7 * time.Minute), 7 * time.Minute, 1, 0},
		{"wrapped snooze", fmt.Errorf("lock is taken: %w", punctual.Snooze(time.Minute)), time.Minute, 1, 0},
		{"retry after", punctual.RetryAfter(3*time.Minute, boom), 3 * time.Minute, 2, 1},
		{"wrapped retry after", fmt.Errorf("bank: %w", punctual.RetryAfter(time.Minute, boom)), time.Minute, 2, 1},
		{"backoff", boom, 20 * time.Minute, 2, 1},
		{"negative snooze is an ordinary error", punctual.Snooze(-1), 20 * time.Minute, 2, 1},
		{"negative retry after too", punctual.RetryAfter(-1, boom), 20 * time.Minute, 2, 1},
		{"discard", punctual.Discard(boom), 0, 0, 0},
		{"the outermost rules", punctual.Snooze(time.Second), time.Second, 1, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.configure("t", punctual.SettingsPatch{Backoff: &punctual.Backoff{Delays: []time.Duration{20 * time.Minute}}})
				seen := &record{}
				w := r.worker(worker.Config{})
				w.Handle("t", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
					seen.add("%v attempt %d after %d failures", r.since(), d.Attempt, len(d.Failures))
					if len(seen.all()) == 1 {
						return c.first
					}
					return nil
				}))
				r.push("t", "a")
				r.runs(w)
				time.Sleep(time.Hour)
				want := []string{"0s attempt 1 after 0 failures"}
				if c.again > 0 {
					want = append(want, fmt.Sprintf("%v attempt %d after %d failures", c.again, c.attempt, c.failures))
				}
				seen.want(t, want...)
				if c.name == "discard" {
					i := r.get("t", "a")
					if i.State != punctual.StateDead || i.Reason != punctual.ReasonDiscarded || i.Failures[0].Error != "boom" {
						t.Errorf("discarded message: %+v", i)
					}
				} else {
					r.wantGone("t", "a")
				}
				r.stops(w)
			})
		})
	}
}

func TestWorkerFollowsTheListOfDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		delays := []time.Duration{2 * time.Minute, 10 * time.Minute, 10 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 15 * time.Hour}
		attempts := 8
		r.configure("pay", punctual.SettingsPatch{Backoff: &punctual.Backoff{Delays: delays}, MaxAttempts: &attempts})
		seen := &record{}
		w := r.worker(worker.Config{})
		w.Handle("pay", handlerFunc(func(context.Context, *punctual.Delivery) error {
			seen.add("%v", r.since())
			return errors.New("no answer")
		}))
		r.push("pay", "notice")
		r.runs(w)
		time.Sleep(48 * time.Hour)
		seen.want(t, "0s", "2m0s", "12m0s", "22m0s", "1h22m0s", "3h22m0s", "9h22m0s", "24h22m0s")
		if i := r.get("pay", "notice"); i.Reason != punctual.ReasonAttemptsUsedUp || len(i.Failures) != 8 {
			t.Errorf("P6: after the last attempt the message is %s (%s) with %d failures, want dead, attempts used up, 8", i.State, i.Reason, len(i.Failures))
		}
		r.stops(w)
	})
}

func explode(m map[string]int) { m["x"] = 1 } // panics for a nil map

func TestWorkerPanicIsAnErrorWithItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker(worker.Config{Concurrency: 1})
		var attempts atomic.Int64
		w.Handle("t", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			attempts.Add(1)
			if d.Attempt == 1 {
				explode(nil)
			}
			panic(punctual.Discard(errors.New("panics are not verdicts")))
		}))
		r.push("t", "a", punctual.MaxAttempts(2))
		r.runs(w)
		time.Sleep(time.Minute)
		i := r.get("t", "a")
		if attempts.Load() != 2 || i.Reason != punctual.ReasonAttemptsUsedUp || len(i.Failures) != 2 {
			t.Fatalf("after %d panics: %+v", attempts.Load(), i)
		}
		text := i.Failures[0].Error
		if !strings.HasPrefix(text, "panic: assignment to entry in nil map\n") {
			t.Errorf("history does not begin with the panic: %q", text)
		}
		lines := strings.Split(text, "\n")
		if !strings.Contains(lines[1], "explode") || !strings.Contains(lines[1], "handle_test.go:") {
			t.Errorf("the first line of the stack is not where it happened: %q", text)
		}
		if strings.Contains(text, "worker.attempt") {
			t.Errorf("the stack goes on into the worker: %q", text)
		}
		r.wantLog("handler panicked", 2)
		r.stops(w)
	})
}

func TestWorkerSurvivesGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{Concurrency: 1})
		w.Handle("t", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			seen.add("%s %d", d.ID, d.Attempt)
			if d.Attempt == 2 && !strings.Contains(d.Failures[0].Error, "Goexit") {
				t.Errorf("history does not name the Goexit: %+v", d.Failures)
			}
			if d.ID == "a" && d.Attempt == 1 {
				runtime.Goexit()
			}
			return nil
		}))
		r.push("t", "a")
		r.push("t", "b", punctual.In(time.Millisecond))
		r.runs(w)
		time.Sleep(time.Minute)
		seen.want(t, "a 1", "b 1", "a 2")
		r.stops(w)
	})
}

func TestWorkerErrorTextThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker(worker.Config{})
		w.Handle("t", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			if d.Attempt > 1 {
				return nil
			}
			var none *nilError
			return none
		}))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(time.Minute)
		r.wantGone("t", "a")
		r.wantLog("handler panicked", 1)
		r.stops(w)
	})
}

// nilError panics when a nil one is asked for its text, a common mistake.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestWorkerMiddlewareOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		named := func(name string) worker.Middleware {
			return func(next punctual.Handler) punctual.Handler {
				return handlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
					seen.add("%s in", name)
					err := next.Handle(ctx, d)
					seen.add("%s out: %v", name, err)
					return nil
				})
			}
		}
		w := r.worker(worker.Config{Middleware: []worker.Middleware{named("first"), named("second")}})
		w.Handle("t", handlerFunc(func(context.Context, *punctual.Delivery) error { return errBroken }))
		r.push("t", "a")
		if _, err := w.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		seen.want(t, "first in", "second in", "second out: connection broke", "first out: <nil>")
		r.wantGone("t", "a") // the outermost had the last word
	})
}

func TestWorkerRetriesClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen, failed := &record{}, atomic.Int64{}
		fail := failing(20, errBroken)
		r.store.spoil(func(punctual.Claim) error { return fail() }, nil)
		w := r.worker(worker.Config{Observer: &punctual.Observer{OnError: func(_ context.Context, op string, err error) {
			if op == "claim" && errors.Is(err, errBroken) {
				failed.Add(1)
			}
		}}})
		w.Handle("t", acks(seen))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(10 * time.Second)
		if n := failed.Load(); n < 5 || n > 12 {
			t.Errorf("%d claims in the first 10 s of failure; want a delay that grows from 50 ms to 5 s", n)
		}
		time.Sleep(2 * time.Minute)
		seen.want(t, "a")
		if failed.Load() != 20 {
			t.Errorf("OnError was called %d times, want 20", failed.Load())
		}
		r.wantLog("claim failed", 1)
		r.wantLog("calls of the store succeed again", 1)
		r.stops(w)
	})
}

func TestWorkerIsNotHotOnAStoreThatDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := worker.New(&impatientStore{r.store}, r.config(worker.Config{}))
		w.Handle("t", acks(&record{}))
		r.runs(w)
		time.Sleep(10 * time.Second)
		if _, claims, _ := r.store.counts(); claims < 10 || claims > 250 {
			t.Errorf("%d claims in 10 s; want about 20 a second", claims)
		}
		r.stops(w)
	})
}

type impatientStore struct{ *spyStore }

func (s *impatientStore) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	c.Wait = 0
	return s.spyStore.Claim(ctx, c)
}

// TestWorkerBearsAStoreThatGivesTooMany: no more handlers run than there are slots, and nothing is
// stuck.
func TestWorkerBearsAStoreThatGivesTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var running, done atomic.Int64
		w := worker.New(&generousStore{r.store}, r.config(worker.Config{Concurrency: 2}))
		w.Handle("t", handlerFunc(func(context.Context, *punctual.Delivery) error {
			if n := running.Add(1); n > 2 {
				t.Errorf("%d handlers run at a time, want 2", n)
			}
			defer running.Add(-1)
			time.Sleep(time.Second)
			done.Add(1)
			return nil
		}))
		for i := range 20 {
			r.push("t", fmt.Sprint(i), punctual.MaxAttempts(100))
		}
		r.runs(w)
		time.Sleep(time.Hour)
		if done.Load() != 20 {
			t.Errorf("%d of 20 messages were handled", done.Load())
		}
		if !strings.Contains(r.logs.String(), "the store gave 10 messages for 2 slots") {
			t.Errorf("the store's mistake was not logged: %s", r.logs)
		}
		r.stops(w)
	})
}

// generousStore gives up to five times as many messages as it is asked for.
type generousStore struct{ *spyStore }

func (s *generousStore) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	c.Max *= 5
	return s.spyStore.Claim(ctx, c)
}

func TestWorkerRetriesSettlements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		fail := failing(6, errBroken)
		r.store.spoil(nil, func([]punctual.Settlement) error { return fail() })
		w := r.worker(worker.Config{})
		w.Handle("t", acks(seen))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(time.Hour)
		seen.want(t, "a")
		r.wantGone("t", "a")
		r.wantLog("level=ERROR", 0)
		r.stops(w)
	})
}

func TestWorkerGivesUpSettlingWhenTheLeaseEnds(t *testing.T) {
	for _, hang := range []bool{false, true} {
		t.Run(fmt.Sprint("hang=", hang), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				seen := &record{}
				var tries atomic.Int64
				r.store.mu.Lock()
				r.store.onSettle = func([]punctual.Settlement) error {
					if tries.Add(1); !hang && r.since() < time.Minute {
						return errBroken
					}
					return nil
				}
				r.store.mu.Unlock()
				var store punctual.Store = r.store
				if hang {
					store = &hangingStore{r.store, time.Now().Add(time.Minute)}
				}
				w := worker.New(store, r.config(worker.Config{Concurrency: 1}))
				w.Handle("t", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
					seen.add("%s attempt %d", d.ID, d.Attempt)
					return nil
				}))
				r.push("t", "a")
				r.runs(w)
				time.Sleep(time.Hour)
				lines := seen.all()
				if len(lines) < 2 || len(lines) > 4 {
					t.Errorf("deliveries %q; want one each time the lease ends until the store answers", lines)
				}
				if tries.Load() > 60 {
					t.Errorf("%d tries to settle in a minute", tries.Load())
				}
				r.wantGone("t", "a")
				r.wantLog("could not be settled", len(lines)-1)
				r.stops(w)
			})
		})
	}
}

// hangingStore does not answer a Settle that begins before until, except by the end of ctx.
type hangingStore struct {
	*spyStore
	until time.Time
}

func (s *hangingStore) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	if time.Now().Before(s.until) {
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", punctual.ErrIndeterminate, ctx.Err())
	}
	return s.spyStore.Settle(ctx, ss)
}

func TestWorkerAckWhoseAnswerWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		lose := failing(1, errBroken)
		r.store.afterSettle = func(context.Context, []punctual.Settlement) error { return lose() }
		w := r.worker(worker.Config{Observer: &punctual.Observer{OnLeaseLost: func(_ context.Context, d *punctual.Delivery, err error) {
			t.Errorf("lease of %s reported lost (%v), though its ack was done", d.ID, err)
		}}})
		w.Handle("t", acks(seen))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(time.Hour)
		seen.want(t, "a")
		r.wantGone("t", "a")
		r.stops(w)
	})
}

// TestWorkerAckThatCameTooLate: unlike in TestWorkerAckWhoseAnswerWasLost, the first try certainly
// did not happen.
func TestWorkerAckThatCameTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		refuse := failing(1, punctual.ErrOverloaded)
		r.store.spoil(nil, func([]punctual.Settlement) error {
			err := refuse()
			if err != nil {
				r.push("t", "a", punctual.Replace(), punctual.In(time.Hour))
			}
			return err
		})
		w := r.worker(worker.Config{Observer: &punctual.Observer{OnLeaseLost: func(_ context.Context, d *punctual.Delivery, err error) {
			seen.add("%s: %s", d.ID, storekit.ErrorCode(err))
		}}})
		w.Handle("t", acks(&record{}))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(time.Minute)
		seen.want(t, "a: lease_lost")
		r.stops(w)
	})
}

func TestWorkerObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		o := &punctual.Observer{
			OnClaim: func(_ context.Context, n int, _ time.Duration) {
				if n > 0 {
					seen.add("claim %d", n)
				}
			},
			OnStart: func(_ context.Context, d *punctual.Delivery) { seen.add("start %s late %v", d.ID, d.Late()) },
			OnFinish: func(_ context.Context, d *punctual.Delivery, v punctual.Verb, took time.Duration, err error) {
				seen.add("finish %s %s after %v: %v", d.ID, v, took, err)
			},
			OnSettle: func(_ context.Context, s punctual.Settlement, took time.Duration, err error) {
				seen.add("settle %s %s after %v: %s", s.ID, s.Verb, took, storekit.ErrorCode(err))
			},
		}
		w := r.worker(worker.Config{Observer: o})
		w.Handle("t", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			time.Sleep(time.Second)
			switch d.ID {
			case "lost":
				if n, err := r.mem.Purge(context.Background(), punctual.PurgeQuery{Topic: "t", State: punctual.StateLeased}); n != 1 || err != nil {
					t.Errorf("purge: %d, %v", n, err)
				}
				return nil
			case "good":
				return nil
			case "bad":
				return punctual.Discard(errBroken)
			}
			return punctual.Snooze(time.Hour)
		}))
		for _, id := range []string{"good", "bad", "busy"} {
			r.push("t", id)
			time.Sleep(time.Millisecond)
		}
		r.push("t", "lost", punctual.In(2500*time.Millisecond))
		if n, err := w.Drain(t.Context()); n != 4 || err != nil {
			t.Fatalf("drain: %d, %v", n, err)
		}
		seen.want(t,
			"claim 1", "start good late 3ms", "finish good ack after 1s: <nil>", "settle good ack after 0s: ",
			"claim 1", "start bad late 1.002s", "finish bad discard after 1s: connection broke", "settle bad discard after 0s: ",
			"claim 1", "start busy late 2.001s", "finish busy snooze after 1s: snooze for 1h0m0s", "settle busy snooze after 0s: ",
			"claim 1", "start lost late 500ms", "finish lost ack after 1s: <nil>", "settle lost ack after 0s: lease_lost")
	})
}

// TestWorkerStopUnderLoadLosesNothing runs one worker after the other, three at a time, while 1000
// messages fall due.
func TestWorkerStopUnderLoadLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const n = 1000
		for i := range n {
			r.push("t", fmt.Sprint(i), punctual.In(time.Duration(i*7%600)*100*time.Millisecond))
		}
		var mu sync.Mutex
		acked := make(map[string]int)
		handler := handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			time.Sleep(time.Duration(len(d.ID)*37) * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			acked[d.ID]++
			if d.Attempt != 1 {
				t.Errorf("message %s was handled in attempt %d: stopping used one up", d.ID, d.Attempt)
			}
			return nil
		})
		life := func(k, i int) time.Duration { return time.Duration(50+(k*131+i*977)%2000) * time.Millisecond }
		var wg sync.WaitGroup
		end := time.Now().Add(3 * time.Minute)
		for k := range 3 {
			wg.Go(func() {
				for i := 0; time.Now().Before(end); i++ {
					w := r.worker(worker.Config{Concurrency: 1 + k*3})
					w.Handle("t", handler)
					r.runs(w)
					time.Sleep(life(k, i))
					r.stops(w)
				}
			})
		}
		wg.Wait()
		missing := 0
		for i := range n {
			if c := acked[fmt.Sprint(i)]; c != 1 {
				missing++
				t.Logf("message %d was acked %d times", i, c)
			}
		}
		if missing > 0 {
			t.Errorf("P1, P3: %d of %d messages were not handled exactly once", missing, n)
		}
		if s, err := r.mem.Stats(t.Context(), "t"); err != nil || s.Live() != 0 || s.Dead != 0 {
			t.Errorf("left behind: %+v, %v", s, err)
		}
		r.wantLog("level=WARN", 0)
	})
}
