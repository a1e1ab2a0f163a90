package punctualtest_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/punctualtest"
	"github.com/punctualmq/punctual/worker"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ punctualtest.TB = testing.TB(nil)

// diary is a handler that writes down which message it handled when, and returns what then returns.
type diary struct {
	kit     *punctualtest.Kit
	entries []string
	then    func(ctx context.Context, d *punctual.Delivery) error
}

func (h *diary) Handle(ctx context.Context, d *punctual.Delivery) error {
	h.entries = append(h.entries, fmt.Sprintf("%v %s %d", h.kit.Now().Sub(punctualtest.Start), d.ID, d.Attempt))
	if h.then != nil {
		return h.then(ctx, d)
	}
	return nil
}

func (h *diary) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(h.entries, want) {
		t.Errorf("handled %q, want %q", h.entries, want)
	}
}

func pushIn(t *testing.T, k *punctualtest.Kit, topic, id string, d time.Duration, opts ...punctual.PushOption) {
	t.Helper()
	opts = append(opts, punctual.ID(id), punctual.In(d))
	if _, err := k.Queue.Push(t.Context(), topic, nil, opts...); err != nil {
		t.Fatal(err)
	}
}

func wantHandled(t *testing.T, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%d handled, want %d", got, want)
	}
}

func TestAdvanceStopsAtEachDueTime(t *testing.T) {
	kit := punctualtest.New(t)
	h := &diary{kit: kit}
	kit.Handle("a", h)
	kit.Handle("b", h)
	pushIn(t, kit, "a", "third", 3*time.Second)
	pushIn(t, kit, "b", "second", 2*time.Second)
	pushIn(t, kit, "a", "first", time.Second)
	pushIn(t, kit, "a", "too late", 5*time.Second+time.Millisecond)
	pushIn(t, kit, "unhandled", "x", time.Second)
	wantHandled(t, kit.Advance(5*time.Second), 3)
	h.want(t, "1s first 1", "2s second 1", "3s third 1")
	if got := kit.Now().Sub(punctualtest.Start); got != 5*time.Second {
		t.Errorf("the clock stands %v after the start, want 5s", got)
	}
	wantHandled(t, kit.Advance(time.Millisecond), 1)
	if got := kit.Ready("unhandled"); len(got) != 1 {
		t.Errorf("without a handler: %v ready, want x", got)
	}
}

func TestAdvanceZeroRunsWhatIsDueNow(t *testing.T) {
	kit := punctualtest.New(t)
	h := &diary{kit: kit}
	kit.Handle("a", h)
	pushIn(t, kit, "a", "now", 0)
	wantHandled(t, kit.Advance(0), 1)
	wantHandled(t, kit.Advance(0), 0)
	h.want(t, "0s now 1")
}

// Advance also handles what handlers push, retry and snooze, if it becomes due within the time that
// passes.
func TestAdvanceFollowsHandlers(t *testing.T) {
	kit := punctualtest.New(t)
	h := &diary{kit: kit}
	h.then = func(ctx context.Context, d *punctual.Delivery) error {
		switch {
		case d.ID == "parent":
			_, err := kit.Queue.Push(ctx, "a", nil, punctual.ID("child"), punctual.In(time.Minute))
			return err
		case d.ID == "child" && kit.Now().Sub(punctualtest.Start) == time.Minute:
			return punctual.Snooze(time.Minute)
		case d.Attempt < 3:
			return errors.New("not yet")
		}
		return nil
	}
	kit.Handle("a", h)
	pushIn(t, kit, "a", "parent", 0)
	wantHandled(t, kit.Advance(time.Hour), 5)
	// The default backoff, here without jitter: 1 s, 2 s.
	h.want(t, "0s parent 1", "1m0s child 1", "2m0s child 1", "2m1s child 2", "2m3s child 3")
}

func TestHandleReplaces(t *testing.T) {
	kit := punctualtest.New(t)
	broken := &diary{kit: kit, then: func(context.Context, *punctual.Delivery) error { return errors.New("out of order") }}
	kit.Handle("a", broken)
	pushIn(t, kit, "a", "x", time.Second)
	kit.Advance(time.Second)
	kit.WantScheduled("a", "x", time.Second)
	mended := &diary{kit: kit}
	kit.Handle("a", mended)
	kit.Advance(time.Second)
	broken.want(t, "1s x 1")
	mended.want(t, "2s x 2")
	kit.WantGone("a", "x")
}

func TestHandleReplacesItself(t *testing.T) {
	kit := punctualtest.New(t)
	after := &diary{kit: kit}
	before := &diary{kit: kit, then: func(context.Context, *punctual.Delivery) error {
		kit.Handle("a", after)
		return nil
	}}
	kit.Handle("a", before)
	for id, d := range map[string]time.Duration{"x": time.Second, "y": 2 * time.Second} {
		pushIn(t, kit, "a", id, d)
	}
	kit.Advance(time.Minute)
	before.want(t, "1s x 1")
	after.want(t, "2s y 1")
}

// A message that was claimed outside of the kit and never settled is handled when its lease has run
// out.
func TestAdvanceMeetsTheEndOfALease(t *testing.T) {
	kit := punctualtest.New(t)
	h := &diary{kit: kit}
	pushIn(t, kit, "a", "x", 0)
	ds, err := kit.Store.Claim(t.Context(), punctual.Claim{Topics: []string{"a"}, Max: 1})
	if err != nil || len(ds) != 1 {
		t.Fatal(ds, err)
	}
	kit.Handle("a", h)
	kit.Advance(time.Minute)
	h.want(t, "30s x 2")
}

func TestPausedTopicWaits(t *testing.T) {
	kit := punctualtest.New(t)
	h := &diary{kit: kit}
	kit.Handle("a", h)
	kit.Handle("b", h)
	on, off := true, false
	kit.Configure("a", punctual.SettingsPatch{DeliveryPaused: &on})
	pushIn(t, kit, "a", "held", time.Second)
	pushIn(t, kit, "b", "free", 2*time.Second)
	wantHandled(t, kit.Advance(time.Minute), 1)
	kit.Configure("a", punctual.SettingsPatch{DeliveryPaused: &off})
	wantHandled(t, kit.Advance(0), 1)
	h.want(t, "2s free 1", "1m0s held 1")
}

// Handle takes the jitter from the default backoff alone. A jitter that was set stays, also beside
// the default Base and Max.
func TestHandleKeepsABackoffThatWasSet(t *testing.T) {
	kit := punctualtest.New(t)
	jitter := punctual.DefaultSettings().Backoff
	jitter.Jitter = 0.5
	steady := punctual.DefaultSettings().Backoff
	steady.Jitter = 0
	for topic, c := range map[string]struct {
		set  *punctual.Backoff // nil: none
		want punctual.Backoff
	}{
		"default": {nil, steady},
		"own":     {&punctual.Backoff{Base: time.Minute, Max: time.Hour, Jitter: 0.5}, punctual.Backoff{Base: time.Minute, Max: time.Hour, Jitter: 0.5}},
		"jitter":  {&jitter, jitter},
		"list":    {&punctual.Backoff{Delays: []time.Duration{time.Minute}}, punctual.Backoff{Delays: []time.Duration{time.Minute}}},
	} {
		if c.set != nil {
			kit.Configure(topic, punctual.SettingsPatch{Backoff: c.set})
		}
		kit.Handle(topic, &diary{kit: kit})
		if s, err := kit.Store.Settings(t.Context(), topic); err != nil || !reflect.DeepEqual(s.Backoff, c.want) {
			t.Errorf("%s: the backoff is %+v, %v; want %+v", topic, s.Backoff, err, c.want)
		}
	}
}

func TestOptions(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 1, time.UTC)
	var through []string
	log := func(next punctual.Handler) punctual.Handler {
		return punctual.HandlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			through = append(through, d.ID)
			return next.Handle(ctx, d)
		})
	}
	kit := punctualtest.New(t, punctualtest.StartAt(at), punctualtest.Worker(worker.Config{Middleware: []worker.Middleware{log}}))
	if want := at.Add(time.Millisecond - 1); !kit.Now().Equal(want) {
		t.Errorf("starts at %v, want %v", kit.Now(), want)
	}
	h := &diary{kit: kit}
	kit.Handle("a", h)
	pushIn(t, kit, "a", "x", 0)
	wantHandled(t, kit.Advance(0), 1)
	if !slices.Equal(through, []string{"x"}) {
		t.Errorf("through the middleware went %v, want x", through)
	}
}

func TestAdvanceWithoutHandlersMovesTheClock(t *testing.T) {
	kit := punctualtest.New(t)
	pushIn(t, kit, "a", "x", time.Minute)
	wantHandled(t, kit.Advance(time.Hour), 0)
	if got := kit.Ready("a"); len(got) != 1 || got[0].ID != "x" {
		t.Errorf("ready: %v, want x", got)
	}
}

// The code under test may close the store of the kit.
func TestStoreClosedByTheTest(t *testing.T) {
	kit := punctualtest.New(t)
	if err := kit.Store.Close(); err != nil {
		t.Fatal(err)
	}
}

// The methods of the kit fail the test when they should, and say why.
func TestFailures(t *testing.T) {
	tests := map[string]struct {
		do   func(k *punctualtest.Kit)
		want string // "": no failure
	}{
		"scheduled":         {func(k *punctualtest.Kit) { k.WantScheduled("a", "later", time.Minute) }, ""},
		"other time":        {func(k *punctualtest.Kit) { k.WantScheduled("a", "later", time.Second) }, "a/later is scheduled in 1m0s, want it in 1s"},
		"not scheduled":     {func(k *punctualtest.Kit) { k.WantScheduled("a", "now", 0) }, "a/now is ready since 0s, want it scheduled"},
		"not stored":        {func(k *punctualtest.Kit) { k.WantScheduled("a", "latre", time.Minute) }, "latre is not stored"},
		"what there is":     {func(k *punctualtest.Kit) { k.WantScheduled("a", "latre", time.Minute) }, "the topic holds 3:\n\tlater: scheduled in 1m0s\n\tnow: ready since 0s\n\tpoison: dead (discarded)"},
		"nothing there":     {func(k *punctualtest.Kit) { k.WantDead("b", "x", punctual.ReasonExpired) }, "the topic holds nothing"},
		"dead":              {func(k *punctualtest.Kit) { k.WantDead("a", "poison", punctual.ReasonDiscarded) }, ""},
		"not dead":          {func(k *punctualtest.Kit) { k.WantDead("a", "later", punctual.ReasonExpired) }, "a/later is scheduled in 1m0s, want it dead (expired)"},
		"other reason":      {func(k *punctualtest.Kit) { k.WantDead("a", "poison", punctual.ReasonExpired) }, "a/poison is dead (discarded), want it dead (expired)"},
		"gone":              {func(k *punctualtest.Kit) { k.WantGone("a", "x") }, ""},
		"not gone":          {func(k *punctualtest.Kit) { k.WantGone("a", "poison") }, "a/poison is dead (discarded), want it gone"},
		"backwards":         {func(k *punctualtest.Kit) { k.Advance(-time.Second) }, "cannot go back"},
		"bad topic":         {func(k *punctualtest.Kit) { k.Scheduled("") }, "topic is empty"},
		"bad settings":      {func(k *punctualtest.Kit) { n := 0; k.Configure("a", punctual.SettingsPatch{MaxAttempts: &n}) }, "max attempts 0"},
		"nil handler":       {func(k *punctualtest.Kit) { k.Handle("a", nil); k.Advance(0) }, "handler is nil"},
		"closed store":      {func(k *punctualtest.Kit) { closeStore(k); k.Advance(0) }, "closed"},
		"advance in itself": {func(k *punctualtest.Kit) { k.Handle("a", advancing(k)); k.Advance(0) }, "wait for Drain to return"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			rec := &recorder{T: t}
			kit := punctualtest.New(rec)
			kit.Handle("a", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
				return punctual.Discard(errors.New("no"))
			}))
			pushIn(t, kit, "a", "poison", 0)
			kit.Advance(0)
			pushIn(t, kit, "a", "now", 0)
			pushIn(t, kit, "a", "later", time.Minute)
			rec.run(func() { tt.do(kit) })
			got := strings.Join(rec.failures, "\n")
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("failures: %q, want %q", got, tt.want)
			}
		})
	}
}

func closeStore(k *punctualtest.Kit) {
	if err := k.Store.Close(); err != nil {
		panic(err)
	}
}

func advancing(k *punctualtest.Kit) punctual.Handler {
	return punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
		k.Advance(time.Second)
		return nil
	})
}

// The worker's log lines go to the test.
func TestLogsToTheTest(t *testing.T) {
	rec := &recorder{T: t}
	kit := punctualtest.New(rec)
	kit.Handle("a", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error { return errors.New("the shop is shut") }))
	pushIn(t, kit, "a", "x", 0)
	kit.Advance(0)
	if got := strings.Join(rec.logs, "\n"); !strings.Contains(got, "the shop is shut") || strings.Contains(got, "time=") {
		t.Errorf("logged %q, want the handler's error without a time of day", got)
	}
}

// recorder is a test that notes its failures instead of failing.
type recorder struct {
	*testing.T
	failures, logs []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Logf(format string, args ...any) {
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}

// run lets f end early by Fatalf.
func (r *recorder) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}
