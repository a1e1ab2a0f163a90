package worker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/worker"
)

// grouped gives the topic orders two groups.
func (r *rig) grouped() {
	r.t.Helper()
	r.configure("orders", punctual.SettingsPatch{Groups: ptr([]string{"billing", "mail"})})
}

// TestGroupsGetCopies: each group gets its own copy of what falls due, with all that it was pushed
// with, and works on it by itself.
func TestGroupsGetCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.grouped()
		w := worker.New(r.mem, r.config(worker.Config{}))
		got := &record{}
		var copied punctual.Delivery
		w.HandleGroup("orders", "billing", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			got.add("billing %s %d", d.ID, d.Attempt)
			copied = *d
			if d.Attempt == 1 {
				return errBroken
			}
			return nil
		}))
		w.HandleGroup("orders", "mail", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			got.add("mail %s %d", d.ID, d.Attempt)
			return nil
		}))
		r.configure("orders@g.billing", punctual.SettingsPatch{Backoff: &punctual.Backoff{Delays: []time.Duration{time.Minute}}})
		r.push("orders", "a", punctual.In(time.Hour), punctual.Header("k", "v"), punctual.MaxAttempts(7), punctual.Expire(2*time.Hour), punctual.DropExpired())
		pushed := r.get("orders", "a")
		r.runs(w)
		time.Sleep(time.Hour - time.Second)
		got.want(t)
		if i := r.get("orders", "a"); i.State != punctual.StateScheduled {
			t.Errorf("before its time the message is %+v", i)
		}
		time.Sleep(2 * time.Minute)
		r.wantGone("orders", "a")
		lines := got.all()
		if len(lines) != 3 || lines[2] != "billing a 2" {
			t.Errorf("handled %q; want one attempt for mail and two for billing", lines)
		}
		c := copied.Message
		if !c.FirstDue.Equal(pushed.FirstDue) || !c.Expires.Equal(pushed.Expires) || !c.DropExpired || c.MaxAttempts != 7 ||
			string(c.Body) != string(pushed.Body) || !maps.Equal(c.Headers, pushed.Headers) {
			t.Errorf("the copy is\n%+v, want what was pushed:\n%+v", c, pushed)
		}
		r.stops(w)
	})
}

// TestGroupsOfTheMomentCount: a group that is added gets what falls due afterwards, and one that is
// removed does not.
func TestGroupsOfTheMomentCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.grouped()
		w := worker.New(r.mem, r.config(worker.Config{}))
		w.HandleGroup("orders", "billing", acks(&record{}))
		r.runs(w)
		copies := func(id string) (in []string) {
			t.Helper()
			for _, g := range []string{"mail", "audit"} {
				if _, err := r.mem.Get(t.Context(), punctual.GroupTopic("orders", g), id); err == nil {
					in = append(in, g)
				}
			}
			return in
		}
		r.push("orders", "a", punctual.In(time.Minute))
		r.push("orders", "b", punctual.In(2*time.Minute))
		time.Sleep(time.Minute + time.Second)
		r.configure("orders", punctual.SettingsPatch{Groups: ptr([]string{"billing", "audit"})})
		time.Sleep(time.Minute)
		if got := fmt.Sprint(copies("a"), copies("b")); got != "[mail] [audit]" {
			t.Errorf("the groups have %s", got)
		}
		// Without groups the messages of the topic are for handlers of its own.
		r.configure("orders", punctual.SettingsPatch{Groups: ptr([]string(nil))})
		time.Sleep(20 * time.Second)
		r.push("orders", "c")
		time.Sleep(time.Minute)
		if i := r.get("orders", "c"); i.State != punctual.StateReady || i.Attempt != 0 || !i.Due.Equal(i.FirstDue) {
			t.Errorf("a message of a topic without groups was touched: %+v", i)
		}
		r.stops(w)
	})
}

// TestGroupsRefuseAHandlerOfTheTopic: Start, Run and Drain refuse a worker that handles the
// messages of a topic with groups itself, because it would keep them from the groups.
func TestGroupsRefuseAHandlerOfTheTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.grouped()
		for name, start := range map[string]func(w *worker.Worker) error{
			"Start": func(w *worker.Worker) error { return w.Start(t.Context()) },
			"Run":   func(w *worker.Worker) error { return w.Run(t.Context()) },
			"Drain": func(w *worker.Worker) error { _, err := w.Drain(t.Context()); return err },
		} {
			w := worker.New(r.mem, r.config(worker.Config{}))
			w.Handle("orders", acks(&record{}))
			w.Handle("other", acks(&record{}))
			if err := start(w); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "billing, mail") || !strings.Contains(err.Error(), "HandleGroup") {
				t.Errorf("%s: %v; want an ErrInvalid that names the groups", name, err)
			}
		}
		r.configure("orders", punctual.SettingsPatch{Groups: ptr([]string(nil))})
		w := worker.New(r.mem, r.config(worker.Config{}))
		w.Handle("orders", acks(&record{}))
		r.runs(w)
		r.stops(w)

		w = worker.New(r.mem, r.config(worker.Config{}))
		w.Handle("orders", acks(&record{}))
		if _, err := w.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.configure("orders", punctual.SettingsPatch{Groups: &[]string{"billing"}})
		if err := w.Start(t.Context()); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("Start of a worker that was drained before its topic got a group: %v; want an ErrInvalid", err)
		}
		if _, err := w.Drain(t.Context()); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("a second Drain, after the topic got a group: %v; want an ErrInvalid", err)
		}
	})
}

// TestGroupsOfAStoreThatHangs: a store that does not answer keeps Start only for a second.
func TestGroupsOfAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var asked atomic.Int64
		w := worker.New(hangingSettings{r.store, r.mem, &asked}, r.config(worker.Config{}))
		w.Handle("t", acks(&record{}))
		r.runs(w)
		if asked.Load() == 0 || r.since() != time.Second {
			t.Errorf("Start asked %d times and took %v", asked.Load(), r.since())
		}
		r.stops(w)
	})
}

// hangingSettings is a store whose Settings does not answer before the context ends.
type hangingSettings struct {
	*spyStore
	punctual.Inspector
	asked *atomic.Int64
}

func (s hangingSettings) Settings(ctx context.Context, _ string) (punctual.Settings, error) {
	s.asked.Add(1)
	<-ctx.Done()
	return punctual.Settings{}, ctx.Err()
}

// TestGroupsOfAStoreThatIgnoresItsContext: a store whose Settings does not return keeps Start for
// no longer than a second, and what the store has said of other topics by then counts. Stop waits
// for the calls, so that the store can be closed after it.
func TestGroupsOfAStoreThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.grouped()
		store := stuckSettings{r.store, r.mem, "stuck", make(chan struct{}), &atomic.Int64{}}
		w := worker.New(store, r.config(worker.Config{}))
		for i := range 40 { // more than are asked at the same time
			w.Handle(fmt.Sprint("stuck", i), acks(&record{}))
		}
		r.runs(w)
		if r.since() != time.Second || store.underWay.Load() == 0 {
			t.Errorf("Start took %v, with %d calls under way; want a second, and some", r.since(), store.underWay.Load())
		}
		refused := worker.New(store, r.config(worker.Config{}))
		refused.Handle("orders", acks(&record{}))
		refused.Handle("stuck", acks(&record{}))
		began := time.Now()
		if err := refused.Start(t.Context()); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "billing, mail") || time.Since(began) != time.Second {
			t.Errorf("after %v: %v; want an ErrInvalid that names the groups, after a second", time.Since(began), err)
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			r.stops(w)
		}()
		time.Sleep(time.Minute)
		select {
		case <-stopped:
			t.Errorf("Stop returned while %d calls of the store were under way", store.underWay.Load())
		default:
		}
		close(store.answer)
		<-stopped
	})
}

// stuckSettings is a store whose Settings of topics with a prefix does not return before answer is
// closed, also when the context ends.
type stuckSettings struct {
	*spyStore
	punctual.Inspector
	prefix   string
	answer   chan struct{}
	underWay *atomic.Int64
}

func (s stuckSettings) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	if !strings.HasPrefix(topic, s.prefix) {
		return s.Inspector.Settings(ctx, topic)
	}
	s.underWay.Add(1)
	defer s.underWay.Add(-1)
	<-s.answer
	return punctual.DefaultSettings(), nil
}

// TestGroupsDrain: Drain copies what is due and handles the copies.
func TestGroupsDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.grouped()
		seen := &record{}
		w := worker.New(r.mem, r.config(worker.Config{}))
		w.HandleGroup("orders", "mail", acks(seen))
		r.push("orders", "a")
		r.push("orders", "later", punctual.In(time.Hour))
		time.Sleep(time.Millisecond)
		if n, err := w.Drain(t.Context()); n != 1 || err != nil {
			t.Errorf("%d, %v; want the copy handled", n, err)
		}
		seen.want(t, "a")
		r.get("orders@g.billing", "a")
		r.get("orders", "later")
	})
}

// TestGroupsOfManyProcesses: three workers copy for the same groups, and each group gets each
// message once.
func TestGroupsOfManyProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.grouped()
		seen := &record{}
		const n = 200
		for i := range n {
			r.push("orders", fmt.Sprint(i), punctual.In(time.Duration(i/10)*time.Second))
		}
		for range 3 {
			w := worker.New(r.mem, r.config(worker.Config{}))
			for _, g := range []string{"billing", "mail"} {
				w.HandleGroup("orders", g, handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
					seen.add("%s %s", d.Topic, d.ID)
					return nil
				}))
			}
			r.runs(w)
			defer r.stops(w)
		}
		time.Sleep(time.Minute)
		got := map[string]int{}
		for _, line := range seen.all() {
			got[line]++
		}
		for i := range n {
			for _, g := range []string{"billing", "mail"} {
				if line := fmt.Sprintf("orders@g.%s %d", g, i); got[line] != 1 {
					t.Errorf("%s was handled %d times", line, got[line])
				}
			}
		}
		if s, err := r.mem.Stats(t.Context(), "orders"); err != nil || s.Live() != 0 || s.Dead != 0 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}
