package punctualprom_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/duty"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/metrics/punctualprom"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var longAgo = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

var update = flag.Bool("update", false, "write the golden files")

// text returns the answer to a scrape of the registry.
func text(t *testing.T, r prometheus.Gatherer) string {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("scrape: %d %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

func newMetrics(t *testing.T, o *punctualprom.Options) (*punctualprom.Metrics, *prometheus.Registry) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	m, err := punctualprom.New(r, o)
	if err != nil {
		t.Fatal(err)
	}
	return m, r
}

// TestMetricsOfADay has messages acked, retried, discarded, purged and cancelled, and compares the
// whole answer to a scrape with a golden file.
func TestMetricsOfADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, registry := newMetrics(t, &punctualprom.Options{LatenessBuckets: []float64{0.01, 1, 60}})
		store := memstore.New(nil)
		if err := m.AddStore(store); err != nil {
			t.Fatal(err)
		}
		q := punctual.NewQueue(store, &punctual.QueueConfig{Observer: m.Observer()})
		push := func(topic, id string, opts ...punctual.PushOption) error {
			_, err := q.Push(t.Context(), topic, nil, append(opts, punctual.ID(id))...)
			return err
		}
		for _, err := range []error{
			push("order.close", "acked"),
			push("order.close", "retried", punctual.In(5*time.Minute)),
			push("order.close", "discarded", punctual.In(5*time.Minute)),
			push("order.close", "purged", punctual.In(5*time.Minute)),
			push("order.close", "cancelled", punctual.In(20*time.Minute)),
			push("order.close", "acked"), // a duplicate
			push("mail", "tomorrow", punctual.In(30*time.Hour)),
			push("mail", "tonight", punctual.In(10*time.Hour)),
			q.Cancel(t.Context(), "order.close", "cancelled"),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := push("no such topic", "x"); !errors.Is(err, punctual.ErrInvalid) {
			t.Fatalf("push to a bad topic: %v", err)
		}
		if err := q.Cancel(t.Context(), "order.close", "missing"); !errors.Is(err, punctual.ErrNotFound) {
			t.Fatalf("cancel of nothing: %v", err)
		}

		w := worker.New(store, &worker.Config{Observer: m.Observer(), Logger: slog.New(slog.DiscardHandler), Concurrency: 1})
		w.Handle("order.close", punctual.HandlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			time.Sleep(2 * time.Second)
			switch d.ID {
			case "retried":
				return punctual.RetryAfter(50*time.Minute, errors.New("not now"))
			case "discarded":
				return punctual.Discard(errors.New("never"))
			case "purged":
				if _, err := store.Purge(ctx, punctual.PurgeQuery{Topic: "order.close", State: punctual.StateLeased}); err != nil {
					t.Error(err)
				}
			}
			return nil
		}))
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Minute)
		if err := w.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		pushedLate := &punctual.Delivery{Message: punctual.Message{Topic: "backdated", Due: time.Now().Add(-time.Hour), Created: time.Now()}, Delivered: time.Now()}
		m.Observer().OnStart(t.Context(), pushedLate)
		m.Observer().OnError(t.Context(), "claim", punctual.ErrUnreachable)
		if err := push("order.close", "waiting"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)

		got := text(t, registry)
		golden := filepath.Join("testdata", "metrics.txt")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("the metrics are not those of %s (go test -update writes it):\n%s", golden, got)
		}
		problems, err := testutil.GatherAndLint(registry)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A client that invents topics does not create time series without bound.
func TestTopicsHaveALimit(t *testing.T) {
	m, registry := newMetrics(t, &punctualprom.Options{TopicLimit: 3})
	store := memstore.New(nil)
	defer store.Close()
	if err := m.AddStore(store); err != nil {
		t.Fatal(err)
	}
	q := punctual.NewQueue(store, &punctual.QueueConfig{Observer: m.Observer()})
	for i := range 10 {
		bad := fmt.Sprintf("\xff made up %d", i)
		if _, err := q.Push(t.Context(), bad, nil); !errors.Is(err, punctual.ErrInvalid) {
			t.Fatalf("push to %q: %v", bad, err)
		}
	}
	for i := range 10 {
		if _, err := q.Push(t.Context(), fmt.Sprintf("topic-%d", i), nil, punctual.At(longAgo)); err != nil {
			t.Fatal(err)
		}
	}
	got := text(t, registry)
	for _, want := range []string{
		`punctual_pushes_total{result="stored",topic="topic-0"} 1`,
		`punctual_pushes_total{result="stored",topic="topic-2"} 1`,
		`punctual_pushes_total{result="stored",topic="other"} 7`,
		`punctual_pushes_total{result="invalid",topic="other"} 10`,
		`punctual_messages{state="ready",topic="topic-0"} 1`,
		`punctual_messages{state="ready",topic="other"} 7`,
		`punctual_topics 10`,
	} {
		if !slices.Contains(strings.Split(got, "\n"), want) {
			t.Errorf("no line %s", want)
		}
	}
	if strings.Contains(got, "topic-3") {
		t.Error("the fourth topic has a label of its own")
	}
}

// failing is a store in which a reading fails with err, or lasts until its context ends.
type failing struct {
	*memstore.Store
	err   error
	hangs bool
	looks int
	// many says that the messages cannot be counted by due time before the timeout.
	many bool
}

func (f *failing) Forecast(ctx context.Context, q punctual.ForecastQuery) (punctual.Forecast, error) {
	if f.many {
		<-ctx.Done()
		return punctual.Forecast{}, fmt.Errorf("forecast: %w", ctx.Err())
	}
	return f.Store.Forecast(ctx, q)
}

func (f *failing) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	f.looks++
	if f.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if f.err != nil {
		return nil, f.err
	}
	return f.Store.Topics(ctx)
}

// A store that cannot be read is down in the metrics, the others of the scrape stay, and no old
// figure is shown.
func TestStoreThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, registry := newMetrics(t, &punctualprom.Options{ReadTimeout: 3 * time.Second})
		store := &failing{Store: memstore.New(nil)}
		defer store.Close()
		if err := m.AddStore(store); err != nil {
			t.Fatal(err)
		}
		q := punctual.NewQueue(store, &punctual.QueueConfig{Observer: m.Observer()})
		if _, err := q.Push(t.Context(), "t", nil); err != nil {
			t.Fatal(err)
		}
		if got := text(t, registry); !strings.Contains(got, "punctual_store_up 1") || !strings.Contains(got, "punctual_messages{") {
			t.Fatalf("before the failure:\n%s", got)
		}
		store.err = punctual.ErrStoreFailed
		got := text(t, registry)
		if store.looks != 2 {
			t.Fatalf("the store was asked %d times, want 2", store.looks)
		}
		if !strings.Contains(got, "punctual_store_up 0") || strings.Contains(got, "punctual_messages{") || !strings.Contains(got, "punctual_pushes_total{") {
			t.Errorf("after the failure:\n%s", got)
		}

		store.err, store.hangs = nil, true
		began := time.Now()
		if got = text(t, registry); !strings.Contains(got, "punctual_store_up 0") || time.Since(began) != 3*time.Second {
			t.Errorf("a store that hangs, after %v:\n%s", time.Since(began), got)
		}
		// A reading that took 3 s is not repeated for 27 s.
		store.hangs = false
		time.Sleep(26 * time.Second)
		if got = text(t, registry); !strings.Contains(got, "punctual_store_up 0") || store.looks != 3 {
			t.Errorf("26 s later, %d looks:\n%s", store.looks, got)
		}
		time.Sleep(2 * time.Second)
		if got = text(t, registry); !strings.Contains(got, "punctual_store_up 1") || store.looks != 4 {
			t.Errorf("28 s later, %d looks:\n%s", store.looks, got)
		}

		store.many = true
		if got = text(t, registry); !strings.Contains(got, "punctual_store_up 1") || strings.Contains(got, "punctual_pending_messages{") || !strings.Contains(got, "punctual_messages{") {
			t.Errorf("a store of too many messages:\n%s", got)
		}
	})
}

// A store that hangs and ignores the end of its context delays the other metrics by about the
// ReadTimeout at most, and gets one call, however many scrapes there are. It is up again when it
// has answered and the long reading need not be shown again any more.
func TestStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, registry := newMetrics(t, &punctualprom.Options{ReadTimeout: 3 * time.Second})
		store := &deaf{Store: memstore.New(nil), mended: make(chan struct{})}
		defer store.Close()
		if err := m.AddStore(store); err != nil {
			t.Fatal(err)
		}
		q := punctual.NewQueue(store, &punctual.QueueConfig{Observer: m.Observer()})
		if _, err := q.Push(t.Context(), "t", nil); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			var scrapes sync.WaitGroup
			for range 4 {
				scrapes.Go(func() {
					began := time.Now()
					got := text(t, registry)
					if took := time.Since(began); took > 4*time.Second {
						t.Errorf("a scrape of a store that hangs took %v", took)
					}
					if !strings.Contains(got, "punctual_store_up 0") || !strings.Contains(got, "punctual_pushes_total{") {
						t.Errorf("a store that hangs:\n%s", got)
					}
				})
			}
			scrapes.Wait()
		}
		if n := store.calls.Load(); n != 1 {
			t.Errorf("%d calls hang in the store; want 1", n)
		}
		close(store.mended)
		synctest.Wait()
		time.Sleep(10 * time.Minute) // a reading that took so long is not repeated at once
		if got := text(t, registry); !strings.Contains(got, "punctual_store_up 1") {
			t.Errorf("a store that answers again:\n%s", got)
		}
	})
}

// deaf is a store in which a reading hangs until the store is mended, even when the context of the
// reading ends.
type deaf struct {
	*memstore.Store
	mended chan struct{}
	calls  atomic.Int64
}

func (d *deaf) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	d.calls.Add(1)
	<-d.mended
	return d.Store.Topics(ctx)
}

// slow is a store in which a reading lasts until its context ends and a second longer.
type slow struct {
	*memstore.Store
	began chan struct{} // closed when the first reading has begun
	calls atomic.Int64
	ended atomic.Int64
}

func (s *slow) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	if s.calls.Add(1) == 1 {
		close(s.began)
	}
	<-ctx.Done()
	time.Sleep(time.Second)
	s.ended.Add(1)
	return nil, ctx.Err()
}

// Close ends the reading under way and waits for it, so that the store can be closed: no call
// reaches the store afterwards.
func TestCloseWaitsForTheReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, registry := newMetrics(t, &punctualprom.Options{ReadTimeout: time.Minute})
		store := &slow{Store: memstore.New(nil), began: make(chan struct{})}
		if err := m.AddStore(store); err != nil {
			t.Fatal(err)
		}
		var scrape sync.WaitGroup
		scrape.Go(func() {
			if got := text(t, registry); !strings.Contains(got, "punctual_store_up 0") {
				t.Errorf("a scrape whose reading was ended by Close:\n%s", got)
			}
		})
		<-store.began
		began := time.Now()
		if err := m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if took, ended := time.Since(began), store.ended.Load(); ended != 1 || took != time.Second {
			t.Errorf("Close returned after %v, when %d of %d readings had ended; want 1 of 1 after a second", took, ended, store.calls.Load())
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		scrape.Wait()
		if got := text(t, registry); strings.Contains(got, "punctual_store") || store.calls.Load() != 1 {
			t.Errorf("a scrape after Close, %d readings in all:\n%s", store.calls.Load(), got)
		}
		if err := m.AddStore(store); !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("AddStore after Close: %v, want ErrClosed", err)
		}
		if err := m.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	})
}

// A registry that still scrapes the collector after Close starts no reading.
func TestNoReadingBeginsAfterClose(t *testing.T) {
	kept := &keeper{Registry: prometheus.NewPedanticRegistry()}
	m, err := punctualprom.New(kept, nil)
	if err != nil {
		t.Fatal(err)
	}
	store := &failing{Store: memstore.New(nil)}
	defer store.Close()
	if err := m.AddStore(store); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if got := text(t, kept); !strings.Contains(got, "punctual_store_up 0") || store.looks != 0 {
		t.Errorf("the store was read %d times after Close:\n%s", store.looks, got)
	}
}

// keeper is a registry that keeps what is taken out of it.
type keeper struct{ *prometheus.Registry }

func (*keeper) Unregister(prometheus.Collector) bool { return false }

// A store that ignores the end of its context holds Close up for no longer than the ReadTimeout,
// and Close returns an error then.
func TestCloseOfAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, registry := newMetrics(t, &punctualprom.Options{ReadTimeout: 3 * time.Second})
		store := &deaf{Store: memstore.New(nil), mended: make(chan struct{})}
		defer store.Close()
		if err := m.AddStore(store); err != nil {
			t.Fatal(err)
		}
		if got := text(t, registry); !strings.Contains(got, "punctual_store_up 0") {
			t.Fatalf("a store that hangs:\n%s", got)
		}
		began := time.Now()
		if err := m.Close(); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("Close took %v: %v; want DeadlineExceeded after 3 s", time.Since(began), err)
		}
		close(store.mended)
		synctest.Wait()
		if err := m.Close(); err != nil {
			t.Errorf("Close after the store has answered: %v", err)
		}
	})
}

func TestMetricsRefuse(t *testing.T) {
	if _, err := punctualprom.New(prometheus.NewRegistry(), &punctualprom.Options{TopicLimit: -1}); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("a negative limit: %v, want ErrInvalid", err)
	}
	m, registry := newMetrics(t, nil)
	if _, err := punctualprom.New(registry, nil); err == nil {
		t.Error("the same metrics twice in one registry are no error")
	}
	store := memstore.New(nil)
	defer store.Close()
	if err := m.AddStore(struct{ punctual.Store }{store}); !errors.Is(err, punctual.ErrUnsupported) {
		t.Errorf("a store that cannot be inspected: %v, want ErrUnsupported", err)
	}
}

func BenchmarkObserver(b *testing.B) {
	m, err := punctualprom.New(prometheus.NewRegistry(), nil)
	if err != nil {
		b.Fatal(err)
	}
	o := m.Observer()
	d := &punctual.Delivery{Message: punctual.Message{Topic: "order.close"}}
	s := punctual.Settlement{Topic: "order.close", Verb: punctual.SettleAck}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			o.OnStart(context.Background(), d)
			o.OnFinish(context.Background(), d, punctual.SettleAck, time.Millisecond, nil)
			o.OnSettle(context.Background(), s, time.Millisecond, nil)
		}
	})
}

// Schedules are shown by the topic to which they push: how many there are, for how long a time has
// waited for a duty, and what was decided about their times.
func TestSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, registry := newMetrics(t, nil)
		store := memstore.New(nil)
		if err := m.AddStore(store); err != nil {
			t.Fatal(err)
		}
		q := punctual.NewQueue(store, nil)
		for name, spec := range map[string]string{"often": "* * * * *", "daily": "0 9 * * *"} {
			if _, err := schedule.Put(t.Context(), q, schedule.Schedule{Topic: "reports", Name: name, Spec: spec}); err != nil {
				t.Fatal(err)
			}
		}
		wants := func(when string, lines ...string) {
			t.Helper()
			wantLines(t, registry, when, lines...)
		}
		wants("at first", `punctual_schedules{topic="reports"} 2`, `punctual_schedule_overdue_seconds{topic="reports"} 0`, `punctual_schedule_problems{topic="reports"} 0`)
		time.Sleep(5*time.Minute + 30*time.Second) // nobody does the duty
		wants("without a duty", `punctual_schedule_overdue_seconds{topic="reports"} 270`, `punctual_schedule_problems{topic="reports"} 1`)
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- duty.Run(ctx, store, &duty.Config{Observer: m.Observer()}) }()
		time.Sleep(2 * time.Minute)
		wants("with one, while nobody takes the occurrence of 0:05",
			`punctual_schedule_overdue_seconds{topic="reports"} 150`,
			`punctual_schedule_problems{topic="reports"} 1`,
			`punctual_schedule_times_total{result="missed",topic="reports"} 4`,
			`punctual_schedule_times_total{result="stored",topic="reports"} 1`,
			`punctual_schedule_times_total{result="skipped",topic="reports"} 2`,
		)
		if _, err := q.Reschedule(t.Context(), "reports@cron", "daily", punctual.In(300*24*time.Hour)); err != nil {
			t.Fatal(err)
		}
		next := time.Date(2000, 1, 1, 9, 0, 0, 0, time.UTC)
		wants("when one was moved and nobody takes the occurrences of the other", `punctual_schedule_problems{topic="reports"} 2`)
		time.Sleep(time.Until(next.Add(90*time.Minute + 30*time.Second)))
		if _, err := q.CancelMany(t.Context(), "reports", []string{"often~20000101T000500Z"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		wants("when the time of the moved one has passed", `punctual_schedule_problems{topic="reports"} 1`, `punctual_schedule_overdue_seconds{topic="reports"} 5490`)
		end()
		if err := errors.Join(<-done, m.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
}

// How far the store's clock is ahead, and how often it has stepped, is shown of a store that knows.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, registry := newMetrics(t, nil)
		clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
		store := memstore.New(&memstore.Options{Clock: clock})
		if err := m.AddStore(store); err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Hour)
		wantLines(t, registry, "at first", "punctual_store_clock_ahead_seconds 0", "punctual_store_clock_steps_total 0")
		clock.Advance(-time.Hour)
		if c, err := store.Clock(t.Context()); err != nil || c.Ahead != time.Hour {
			t.Fatalf("this test shows nothing: %+v, %v", c, err)
		}
		wantLines(t, registry, "when it was set back", "punctual_store_clock_ahead_seconds 3600", "punctual_store_clock_steps_total 0")
		if _, err := store.StepClock(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantLines(t, registry, "after the step", "punctual_store_clock_ahead_seconds 0", "punctual_store_clock_steps_total 1")
		if err := errors.Join(m.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
}

// What waits for its key is shown of topics with keys, and is not late.
func TestWaitingForKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, registry := newMetrics(t, nil)
		store := memstore.New(nil)
		if err := m.AddStore(store); err != nil {
			t.Fatal(err)
		}
		q := punctual.NewQueue(store, nil)
		if _, err := q.Configure(t.Context(), "calls", func(s *punctual.Settings) { s.Keyed, s.MaxKeyLeases = true, 1 }); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := q.Push(t.Context(), "calls", nil, punctual.Key("c7")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := q.Push(t.Context(), "mail", nil); err != nil {
			t.Fatal(err)
		}
		if ds, err := store.Claim(t.Context(), punctual.Claim{Topics: []string{"calls"}, Max: 3, Lease: time.Hour}); err != nil || len(ds) != 1 {
			t.Fatal(ds, err)
		}
		time.Sleep(time.Minute)
		wantLines(t, registry, "with one at work and two that wait",
			`punctual_waiting_messages{topic="calls"} 2`, `punctual_oldest_ready_seconds{topic="calls"} 0`, `punctual_oldest_ready_seconds{topic="mail"} 60`)
		if strings.Contains(text(t, registry), `punctual_waiting_messages{topic="mail"}`) {
			t.Error("a topic without keys shows what waits for them")
		}
		if err := errors.Join(m.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
}

// wantLines checks that a scrape has these lines.
func wantLines(t *testing.T, registry *prometheus.Registry, when string, lines ...string) {
	t.Helper()
	got := strings.Split(text(t, registry), "\n")
	for _, want := range lines {
		if !slices.Contains(got, want) {
			t.Errorf("%s: no line %s in\n%s", when, want, strings.Join(got, "\n"))
		}
	}
}
