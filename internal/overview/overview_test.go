package overview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched is a store in memory that counts the calls of an overview, and can fail, hang or be slow.
type watched struct {
	*memstore.Store

	mu       sync.Mutex
	calls    map[string]int
	fails    error
	hangs    string // the call that hangs
	slowed   string // the call that is slow
	takes    time.Duration
	findings []storekit.Finding
}

func (w *watched) called(ctx context.Context, name string) error {
	w.mu.Lock()
	w.calls[name]++
	fails, hangs := w.fails, w.hangs
	takes := time.Duration(0)
	if w.slowed == name {
		takes = w.takes
	}
	w.mu.Unlock()
	time.Sleep(takes)
	if hangs == name {
		<-ctx.Done()
		return ctx.Err()
	}
	return fails
}

func (w *watched) Now(ctx context.Context) (time.Time, error) {
	if err := w.called(ctx, "now"); err != nil {
		return time.Time{}, err
	}
	return w.Store.Now(ctx)
}

func (w *watched) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	if err := w.called(ctx, "topics"); err != nil {
		return nil, err
	}
	return w.Store.Topics(ctx)
}

func (w *watched) Forecast(ctx context.Context, q punctual.ForecastQuery) (punctual.Forecast, error) {
	if err := w.called(ctx, "forecast"); err != nil {
		return punctual.Forecast{}, err
	}
	return w.Store.Forecast(ctx, q)
}

func (w *watched) Examine(ctx context.Context) ([]storekit.Finding, error) {
	if err := w.called(ctx, "examine"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.findings, nil
}

func (w *watched) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// count returns how often a call was made since count was last asked for it.
func (w *watched) count(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.calls[name]
	w.calls[name] = 0
	return n
}

// slow has a call take long.
func (w *watched) slow(name string, takes time.Duration) {
	w.set(func() { w.slowed, w.takes = name, takes })
}

// scene is a store and a reader in a bubble of time that begins at midnight of 2000-01-01 UTC.
type scene struct {
	t *testing.T
	*watched
	r *Reader
}

func inBubble(t *testing.T, o *Options, f func(t *testing.T, s scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{Store: memstore.New(nil), calls: make(map[string]int)}
		defer w.Close()
		r, err := New(w, o)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		f(t, scene{t, w, r})
	})
}

func (s scene) push(topic, id string, delay time.Duration) {
	s.t.Helper()
	got, err := s.Push(s.t.Context(), []punctual.NewMessage{{Topic: topic, ID: id, Delay: delay}})
	if err != nil || got[0].Err != nil {
		s.t.Fatalf("push: %v, %v", got, err)
	}
}

func (s scene) pushMany(topic string, n int, delay time.Duration) {
	s.t.Helper()
	for n > 0 {
		ms := make([]punctual.NewMessage, min(n, limits.MaxBatch))
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: topic, Delay: delay}
		}
		if _, err := s.Push(s.t.Context(), ms); err != nil {
			s.t.Fatal(err)
		}
		n -= len(ms)
	}
}

func (s scene) read() *Overview {
	s.t.Helper()
	o, err := s.r.Read(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

// readAnew reads after an hour, in which all answers have become too old to be used.
func (s scene) readAnew() *Overview {
	s.t.Helper()
	time.Sleep(time.Hour)
	return s.read()
}

func (s scene) pause(topic string, push, delivery bool) {
	s.t.Helper()
	if _, err := s.Configure(s.t.Context(), topic, punctual.SettingsPatch{PushPaused: &push, DeliveryPaused: &delivery}); err != nil {
		s.t.Fatal(err)
	}
}

// kinds returns the kinds of the findings, with their topics.
func kinds(o *Overview) string {
	var out []string
	for _, f := range o.Attention {
		out = append(out, strings.TrimSpace(string(f.Kind)+" "+f.Topic))
	}
	return strings.Join(out, ", ")
}

func (o *Overview) finding(t *testing.T, k Kind) Finding {
	t.Helper()
	n := slices.IndexFunc(o.Attention, func(f Finding) bool { return f.Kind == k })
	if n < 0 {
		t.Fatalf("no finding of kind %q among %+v", k, o.Attention)
	}
	return o.Attention[n]
}

func TestEmptyStore(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		o := s.read()
		if !o.Inspected || len(o.Topics) > 0 || o.Oldest != nil || o.Minutes.All != nil || len(o.Attention) > 0 || o.AsOf.IsZero() {
			t.Errorf("the overview of an empty store: %+v", o)
		}
	})
}

func TestCounts(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		s.push("a", "1", 90*time.Second)
		s.push("a", "2", 30*time.Hour)
		s.push("b", "3", 30*time.Hour)
		s.push("b", "4", 40*24*time.Hour)
		s.push("b", "5", 100*24*time.Hour)
		s.push(access.AuditTopic, "x", 90*time.Second)
		s.push(access.AuditTopic, "y", 100*24*time.Hour)
		s.push(access.AuditTopic, "z", 0)
		o := s.read()
		if len(o.Topics) != 2 || o.Totals != (Totals{Scheduled: 5}) {
			t.Errorf("topics %+v, totals %+v", o.Topics, o.Totals)
		}
		for _, c := range []struct {
			p              Picture
			steps          int
			places         []int
			beyond         int64
			topics, within string
		}{
			{o.Minutes, 60, []int{1}, 4, "b a", "0 1"},
			{o.Hours, 48, []int{0, 30, 30}, 2, "b a", "1 2"},
			{o.Days, 90, []int{0, 1, 1, 40}, 1, "b a", "2 2"},
		} {
			want := make([]int64, c.steps)
			for _, n := range c.places {
				want[n]++
			}
			if !slices.Equal(c.p.All.Counts, want) || c.p.All.Beyond != c.beyond || c.p.All.Overdue != 0 || c.p.Err != nil {
				t.Errorf("by %s: %v, overdue %d, beyond %d", c.p.All.Step, c.p.All.Counts, c.p.All.Overdue, c.p.All.Beyond)
			}
			var topics, within []string
			for _, a := range c.p.Topics {
				topics, within = append(topics, a.Topic), append(within, fmt.Sprint(a.Sum()))
			}
			if strings.Join(topics, " ") != c.topics || strings.Join(within, " ") != c.within {
				t.Errorf("by %s: topics %v with %v", c.p.All.Step, topics, within)
			}
		}
	})
}

// Days begin at midnight of the zone, and have 23 hours when clocks are set forward.
func TestDaysOfAZone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	inBubble(t, &Options{Zone: berlin}, func(t *testing.T, s scene) {
		for _, due := range []time.Time{
			time.Date(2000, 1, 1, 22, 59, 59, 0, time.UTC), time.Date(2000, 1, 1, 23, 0, 0, 0, time.UTC), // midnight in Berlin
			time.Date(2000, 3, 25, 22, 59, 59, 0, time.UTC), time.Date(2000, 3, 25, 23, 0, 0, 0, time.UTC), time.Date(2000, 3, 26, 21, 59, 59, 0, time.UTC),
			time.Date(2000, 3, 26, 22, 0, 0, 0, time.UTC),
		} {
			s.push("a", "", time.Until(due))
		}
		a := s.read().Days.All
		want := make([]int64, 90)
		want[0], want[1], want[84], want[85], want[86] = 1, 1, 1, 2, 1
		if !slices.Equal(a.Counts, want) {
			t.Errorf("by day in Berlin: %v", a.Counts)
		}
		if short := a.Edges[86].Sub(a.Edges[85]); short != 23*time.Hour || a.Edges[85].Format(time.DateOnly) != "2000-03-26" {
			t.Errorf("the day of %v has %v, want 23h", a.Edges[85], short)
		}
	})
}

// Each zone has its own days, and people in zones with the same hours share their picture.
func TestPicturesOfZones(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		s.push("a", "", 24*time.Hour+30*time.Minute) // 2000-01-02 00:30 UTC
		for _, c := range []struct {
			zone  string
			day   string
			hours int
		}{{"UTC", "2000-01-02", 24}, {"America/New_York", "2000-01-01", 24}, {"Asia/Shanghai", "2000-01-02", 24}, {"Asia/Kolkata", "2000-01-02", 24}} {
			zone, err := time.LoadLocation(c.zone)
			if err != nil {
				t.Skip(err)
			}
			o, err := s.r.ReadIn(t.Context(), zone)
			if err != nil {
				t.Fatal(err)
			}
			n := fullest(o.Days.All.Counts)
			if begin := o.Days.All.Edges[n]; o.Days.All.Counts[n] != 1 || begin.In(zone).Format(time.DateTime) != c.day+" 00:00:00" {
				t.Errorf("in %s %d are due on the day that begins at %v, want %s", c.zone, o.Days.All.Counts[n], begin.In(zone), c.day)
			}
			if got := o.Days.All.Edges[n+1].Sub(o.Days.All.Edges[n]); got != time.Duration(c.hours)*time.Hour {
				t.Errorf("in %s the day has %v", c.zone, got)
			}
			n = fullest(o.Hours.All.Counts)
			if begin := o.Hours.All.Edges[n]; begin.Location() != zone || begin.Minute() != 0 || o.Hours.All.Counts[n] != 1 {
				t.Errorf("in %s an hour begins at %v", c.zone, begin)
			}
		}
		if n := s.count("forecast"); n != 1+2+4 {
			t.Errorf("%d forecasts for four zones, want one of the minutes, two of the hours and four of the days", n)
		}
		for n := range 3 * mostPictures {
			if _, err := s.r.ReadIn(t.Context(), time.FixedZone("", 60*n)); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(s.r.pictures); n > mostPictures {
			t.Errorf("%d pictures are kept", n)
		}
	})
}

// With Options.Hurry the first Read does not wait for the counts, nor does one after a long time in
// which nobody read.
func TestHurry(t *testing.T) {
	inBubble(t, &Options{Hurry: true}, func(t *testing.T, s scene) {
		s.push("a", "1", time.Hour)
		s.slow("topics", 3*time.Second)
		counting := func(want bool) {
			t.Helper()
			began := time.Now()
			o := s.read()
			if waited := time.Since(began); waited > 50*time.Millisecond || o.Counting != want || o.Counting != (len(o.Topics) == 0) {
				t.Errorf("waited %v for %+v; want counting %v", waited, o, want)
			}
		}
		counting(true)
		time.Sleep(3 * time.Second)
		counting(false)
		time.Sleep(3 * mostCountAge) // nobody reads
		counting(true)
		time.Sleep(3 * time.Second)
		counting(false)
		s.count("topics")
		time.Sleep(30 * time.Second)
		if counting(false); s.count("topics") != 0 {
			t.Error("a page that is open has a costly store counted twice a minute")
		}
		s.r.Renew()
		if counting(false); s.count("topics") != 1 {
			t.Error("somebody who opens a page is shown counts of 30 s ago, and no newer ones come")
		}
	})
}

// Where the topics are quickly counted each page counts them. Otherwise pages share a count, until
// something is changed.
func TestTopics(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		s.push("a", "1", time.Hour)
		topics := func(looks int) {
			t.Helper()
			s.count("topics")
			all, err := s.r.Topics(t.Context())
			if err != nil || len(all.Topics) != 1 || all.AsOf.IsZero() {
				t.Errorf("%+v, %v", all, err)
			}
			if n := s.count("topics"); n != looks {
				t.Errorf("%d counts, want %d", n, looks)
			}
		}
		topics(1)
		topics(1)
		s.slow("topics", time.Second)
		for range 3 {
			topics(1)
		}
		topics(1) // the one that is shared
		topics(0)
		time.Sleep(30 * time.Second)
		topics(0)
		s.r.Recount()
		if _, err := s.r.Topics(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if n := s.count("topics"); n != 1 {
			t.Errorf("after a change %d counts, want 1", n)
		}
	})
}

// A hundred callers cost one reading, and what was read is used for a second.
func TestCallersShareALook(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		s.push("a", "1", time.Hour)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if o, err := s.r.Read(t.Context()); err != nil || len(o.Topics) != 1 || o.Days.All == nil {
					t.Errorf("%+v, %v", o, err)
				}
			})
		}
		all.Wait()
		if topics, forecasts := s.count("topics"), s.count("forecast"); topics != 1 || forecasts > 7 {
			t.Errorf("100 callers: %d counts of the topics and %d forecasts, want 1 and at most 7", topics, forecasts)
		}
		time.Sleep(999 * time.Millisecond)
		s.read()
		if n := s.count("topics"); n != 0 {
			t.Errorf("%d counts within a second, want none", n)
		}
		time.Sleep(time.Millisecond)
		s.read()
		if n := s.count("topics"); n != 1 {
			t.Errorf("%d counts after a second, want 1", n)
		}
		s.push("a", "2", time.Hour)
		s.r.Expire()
		if o := s.read(); o.Totals.Scheduled != 2 || o.Hours.All.Sum() != 2 {
			t.Errorf("after Expire: %+v", o.Totals)
		}
	})
}

// Where all topics are drawn, none is counted twice for a picture. As long as the first picture is
// not there, the others are not begun, so that the page of a large store has the minutes first.
func TestMessagesAreCountedOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		for n := range 5 {
			s.push(fmt.Sprintf("t%d", n), "1", 90*time.Second)
			s.push(fmt.Sprintf("t%d", n), "2", 100*24*time.Hour)
		}
		s.push(access.AuditTopic, "x", 90*time.Second)
		o := s.read()
		if n := s.count("forecast"); n != 3*5 {
			t.Errorf("%d forecasts for 5 topics, want one for each in each picture", n)
		}
		if a := o.Minutes.All; a.Counts[1] != 5 || a.Sum() != 5 || a.Beyond != 5 || a.Topic != "" || o.Minutes.Topics[0].Counts[1] != 1 {
			t.Errorf("the sum of five topics: %+v; the first of them: %+v", a, o.Minutes.Topics[0])
		}
	})
	inBubble(t, nil, func(t *testing.T, s scene) {
		s.push("a", "1", time.Hour)
		s.set(func() { s.hangs = "forecast" })
		s.read()
		synctest.Wait()
		if n := s.count("forecast"); n != 1 {
			t.Errorf("%d forecasts while the first one goes on, want that one", n)
		}
	})
}

// The number of forecasts does not grow with the number of topics.
func TestCallsAreBounded(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		for n := range 500 {
			s.push(fmt.Sprintf("t%03d", n), "1", time.Hour)
		}
		o := s.read()
		if n := s.count("forecast"); n != 3*6 || len(o.Topics) != 500 || len(o.Days.Topics) != 5 {
			t.Errorf("%d forecasts for %d topics, %d drawn; want %d", n, len(o.Topics), len(o.Days.Topics), 3*6)
		}
	})
}

// When the store does not answer any more, Read returns what was read before, with its time and the
// reason of the failure.
func TestStale(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		s.push("a", "1", time.Hour)
		first := s.read()
		s.set(func() { s.fails = punctual.ErrUnreachable })
		time.Sleep(20 * time.Second)
		o := s.read()
		if !errors.Is(o.Err, punctual.ErrUnreachable) || !o.AsOf.Equal(first.AsOf) || len(o.Topics) != 1 || o.Hours.All == nil {
			t.Errorf("with the store gone: %+v", o)
		}
		if f := o.Attention[0]; f.Kind != KindUnreachable || f.Severity != storekit.SeverityBad || f.Value == "" {
			t.Errorf("%+v", o.Attention)
		}
		s.set(func() { s.fails = nil })
		time.Sleep(2 * time.Second)
		if o := s.read(); o.Err != nil || !o.AsOf.After(first.AsOf) || len(o.Attention) > 0 {
			t.Errorf("with the store back: %+v", o)
		}
	})
}

func TestNeverAnswered(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		s.set(func() { s.fails = punctual.ErrUnreachable })
		if o, err := s.r.Read(t.Context()); !errors.Is(err, punctual.ErrUnreachable) {
			t.Errorf("%+v, %v", o, err)
		}
	})
}

// A store that hangs keeps callers waiting only for Options.Patience, once there is something to
// show.
func TestHanging(t *testing.T) {
	inBubble(t, &Options{Patience: 50 * time.Millisecond, Timeout: 5 * time.Second}, func(t *testing.T, s scene) {
		s.push("a", "1", time.Hour)
		s.read()
		s.set(func() { s.hangs = "topics" })
		time.Sleep(2 * time.Second)
		began := time.Now()
		if o := s.read(); o.Err != nil || len(o.Topics) != 1 {
			t.Errorf("%+v", o)
		}
		if waited := time.Since(began); waited != 50*time.Millisecond {
			t.Errorf("waited %v, want the patience", waited)
		}
		time.Sleep(5 * time.Second)
		if o := s.read(); !errors.Is(o.Err, context.DeadlineExceeded) || !strings.Contains(o.Err.Error(), "5s") {
			t.Errorf("after the timeout: %v", o.Err)
		}
		if n := s.count("topics"); n != 2 {
			t.Errorf("%d looks, want the first and one that hung", n)
		}
	})
}

// The counts are there although the pictures take long.
func TestPictures(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		s.push("a", "1", time.Hour)
		s.set(func() { s.hangs = "forecast" })
		began := time.Now()
		o := s.read()
		if o.Totals.Scheduled != 1 || o.Minutes.All != nil || o.Minutes.Err != nil {
			t.Errorf("%+v", o)
		}
		if waited := time.Since(began); waited > 150*time.Millisecond {
			t.Errorf("waited %v for the first view", waited)
		}
		if _, err := s.r.Ahead(t.Context(), AheadQuery{Topic: "a", Step: Hour, Steps: 3}); !errors.Is(err, ErrCounting) {
			t.Errorf("ahead: %v, want ErrCounting", err)
		}
		time.Sleep(2 * time.Minute)
		s.set(func() { s.hangs = "" })
		if o := s.read(); !errors.Is(o.Minutes.Err, context.DeadlineExceeded) && o.Minutes.All == nil {
			t.Errorf("%+v", o.Minutes)
		}
		time.Sleep(2 * time.Minute)
		if o := s.read(); o.Minutes.All == nil || o.Minutes.Err != nil {
			t.Errorf("%+v", o.Minutes)
		}
	})
}

// A caller that leaves does not end the reading that it began: the next one gets the answer of that
// reading.
func TestLeavingCaller(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		s.push("a", "1", time.Hour)
		s.slow("topics", 5*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.r.Read(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if o := s.read(); len(o.Topics) != 1 {
			t.Errorf("%+v", o)
		}
		if n := s.count("topics"); n != 1 {
			t.Errorf("the topics were counted %d times, want once", n)
		}
	})
}

func TestAttention(t *testing.T) {
	inBubble(t, &Options{Burst: 100}, func(t *testing.T, s scene) {
		s.push("late", "1", time.Second)
		s.push("verylate", "1", 0)
		s.push("paused", "1", 0)
		s.pause("paused", true, true)
		s.push("dead", "1", 0)
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"dead"}, Max: 1})
		if err != nil || len(ds) != 1 {
			t.Fatal(ds, err)
		}
		if _, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: "dead", ID: "1", Token: ds[0].Token, Verb: punctual.SettleDiscard}}); err != nil {
			t.Fatal(err)
		}
		s.push("far", "1", 20*365*24*time.Hour)
		q := punctual.NewQueue(s, nil)
		for _, name := range []string{"paused", "moved"} {
			if _, err := schedule.Put(t.Context(), q, schedule.Schedule{Topic: "reports", Name: name, Spec: "@daily"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := schedule.Pause(t.Context(), q, "reports", "paused", "", ""); err != nil { // its message is due in the far future
			t.Fatal(err)
		}
		if _, err := q.Reschedule(t.Context(), "reports@cron", "moved", punctual.In(300*24*time.Hour)); err != nil {
			t.Fatal(err)
		}
		s.push("shop@events", "1", 0)
		s.push("shop@bulk", "the place of a shift", 0)
		s.set(func() {
			s.findings = []storekit.Finding{
				{Name: "disk", Value: "ext4", Severity: storekit.SeverityGood},
				{Name: "free space", Value: "1 MB", Severity: storekit.SeverityBad, Remedy: "make room"},
			}
		})
		o := s.readAnew()
		const want = "late verylate, store, late late, schedule reports, late shop@events, delivery paused paused, push paused paused, far far, dead dead"
		if got := kinds(o); got != want {
			t.Errorf("findings: %s\nwant      %s", got, want)
		}
		if f := o.finding(t, KindStore); f.Remedy != "make room" || f.Severity != storekit.SeverityBad {
			t.Errorf("%+v", f)
		}
		if f := o.finding(t, KindSchedule); f.Name != "moved" || !strings.Contains(f.Text, "moved from ") || f.Severity != storekit.SeverityBad {
			t.Errorf("%+v", f)
		}
		if f := o.finding(t, KindFar); f.At.Year() != 2019 || !strings.Contains(f.Text, "is this meant?") || f.Count != 1 {
			t.Errorf("%+v", f)
		}
		if f := o.finding(t, KindLate); f.Late != time.Hour || f.State != punctual.StateReady {
			t.Errorf("%+v", f)
		}
		if i := slices.IndexFunc(o.Attention, func(f Finding) bool { return f.Topic == "shop@events" }); i < 0 || o.Attention[i].Severity != storekit.SeverityWarning || !strings.Contains(o.Attention[i].Text, "nobody reads them") {
			t.Errorf("events that nobody reads: %+v", o.Attention)
		}
		if o.Oldest == nil || o.Oldest.Late < time.Hour-time.Second || o.Oldest.Topic == "paused" || o.Oldest.Topic == "shop@events" {
			t.Errorf("oldest: %+v", o.Oldest)
		}
	})
}

// A message that has been ready for three seconds is no finding and one that has been for ten
// minutes a bad one, unless the topic says that its messages may wait for longer (LateAfter).
func TestHowLate(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		s.push("a", "1", 0)
		s.push("bulk", "1", 0)
		lateAfter := 5 * time.Minute
		if _, err := s.Configure(t.Context(), "bulk", punctual.SettingsPatch{LateAfter: &lateAfter}); err != nil {
			t.Fatal(err)
		}
		const none, warning, bad = storekit.Severity(0), storekit.SeverityWarning, storekit.SeverityBad
		for _, c := range []struct {
			after   time.Duration
			a, bulk storekit.Severity
		}{
			{3 * time.Second, none, none},
			{10 * time.Second, warning, none},
			{4 * time.Minute, warning, none},
			{time.Minute, warning, warning},
			{10 * time.Minute, bad, warning},
			{5 * time.Hour, bad, bad},
		} {
			time.Sleep(c.after)
			got := make(map[string]storekit.Severity)
			for _, f := range s.read().Attention {
				got[f.Topic] = f.Severity
			}
			if got["a"] != c.a || got["bulk"] != c.bulk {
				t.Errorf("%v later: severities %v, want %q and %q", c.after, got, c.a, c.bulk)
			}
		}
	})
}

// A burst is found once: to the minute, also when other messages are due in its hour, and to the
// day when it is far ahead.
func TestBurst(t *testing.T) {
	for _, c := range []struct {
		in    time.Duration
		exact Step
		at    string
	}{
		{35*time.Minute + 10*time.Second, Minute, "00:35:00 2000-01-01"},
		{9*time.Hour + 20*time.Second, Minute, "09:00:00 2000-01-01"},
		{47*time.Hour + 59*time.Minute, Minute, "23:59:00 2000-01-02"},
		{60 * 24 * time.Hour, Day, "00:00:00 2000-03-01"},
	} {
		inBubble(t, &Options{Burst: 500}, func(t *testing.T, s scene) {
			for n := range 60 {
				s.push("smooth", "", time.Duration(n)*time.Minute)
			}
			s.pushMany("burst", 600, c.in)
			o := s.read()
			f := o.finding(t, KindBurst)
			if f.Topic != "burst" || f.Count < 600 || f.Count > 601 || f.Step != c.exact || f.At.Format("15:04:05 2006-01-02") != c.at {
				t.Errorf("in %v: %+v", c.in, f)
			}
			if n := strings.Count(kinds(o), "burst burst"); n != 1 {
				t.Errorf("in %v: %d findings", c.in, n)
			}
		})
	}
}

// When as many messages are due in each minute there is no burst, although they are more than
// Options.Burst.
func TestNoBurst(t *testing.T) {
	inBubble(t, &Options{Burst: 5}, func(t *testing.T, s scene) {
		for n := range 120 {
			s.pushMany("smooth", 10, time.Duration(n)*time.Minute)
		}
		if got := kinds(s.read()); got != "" {
			t.Errorf("findings: %s", got)
		}
	})
}

// When many topics have a finding of one kind, five have a finding each, and a sixth finding counts
// the others.
func TestManyTopicsNeedAttention(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		for n := range 20 {
			s.pause(fmt.Sprintf("t%02d", n), true, false)
		}
		o := s.read()
		if len(o.Attention) != 6 || o.Attention[5].Others != 15 || !strings.HasPrefix(o.Attention[5].Text, "15 more topics") {
			t.Errorf("%+v", o.Attention)
		}
	})
}

// plain is a store that cannot be inspected.
type plain struct{ punctual.Store }

func TestWithoutAnInspector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memstore.New(nil)
		defer m.Close()
		r, err := New(plain{m}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		o, err := r.Read(t.Context())
		if err != nil || o.Inspected || kinds(o) != "lacking" {
			t.Errorf("%+v, %v", o, err)
		}
		if _, err := r.Ahead(t.Context(), AheadQuery{Step: Hour, Steps: 1}); !errors.Is(err, punctual.ErrUnsupported) {
			t.Errorf("ahead: %v", err)
		}
	})
}

// The counts for single topics are shared, and bounded.
func TestAhead(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		s.push("a", "1", time.Hour)
		q := AheadQuery{Topic: "a", Step: Hour, Steps: 3}
		for range 3 {
			a, err := s.r.Ahead(t.Context(), q)
			if err != nil || !slices.Equal(a.Counts, []int64{0, 1, 0}) {
				t.Fatalf("%+v, %v", a, err)
			}
		}
		if n := s.count("forecast"); n != 1 {
			t.Errorf("%d forecasts, want 1", n)
		}
		for n := range 2 * mostAsked {
			time.Sleep(time.Millisecond)
			q.Topic, q.Zone = fmt.Sprint("t", n), time.UTC
			if _, err := s.r.Ahead(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		if len(s.r.asked) != mostAsked || s.r.asked[q] == nil {
			t.Errorf("%d answers are kept", len(s.r.asked))
		}
		if _, err := s.r.Ahead(t.Context(), AheadQuery{Topic: "a", Step: Day, Steps: 3, Zone: time.UTC}); err != nil {
			t.Error(err)
		}
	})
}

func TestClosed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		s.push("a", "1", time.Hour)
		s.read()
		if err := s.r.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if o, err := s.r.Read(t.Context()); err != nil || !errors.Is(o.Err, punctual.ErrClosed) {
			t.Errorf("%+v, %v", o, err)
		}
	})
	if _, err := New(nil, nil); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("no store: %v", err)
	}
}

func TestWriting(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 12: "12", 999: "999", 1000: "1,000", 312000: "312,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := Grouped(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "0ms", 850 * time.Millisecond: "850ms", 1500 * time.Millisecond: "1.5s", 90 * time.Second: "1m30s", time.Hour: "1h",
		125 * time.Minute: "2h5m", 76 * time.Hour: "3d4h", 24 * time.Hour: "1d",
	} {
		if got := Short(d); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
	for s, want := range map[Step]string{Minute: "minute", Hour: "hour", Day: "day"} {
		if got := s.String(); got != want {
			t.Errorf("step %d: %s, want %s", s, got, want)
		}
	}
}

// A change while the topics are being counted may be missing in that count. So the next Read after
// the count counts anew.
func TestRecountDuringACount(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		s.push("a", "1", time.Hour)
		s.slow("topics", 10*time.Second)
		began := make(chan struct{})
		go func() {
			defer close(began)
			if _, err := s.r.Topics(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if n := s.count("topics"); n != 1 {
			t.Fatalf("this test shows nothing: %d counts are under way, want 1", n)
		}
		s.r.Recount()
		<-began
		s.slow("", 0)
		if _, err := s.r.Topics(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := s.count("topics"); n != 1 {
			t.Errorf("%d counts after a change during the last one, want 1", n)
		}
	})
}

// Findings of the same severity are in the order of their age, and those of one kind that are shown
// are the oldest. The topic of the message that has been ready for longest comes first, also if its
// messages may wait for longer than others.
func TestAttentionByAge(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		long := 24 * time.Hour
		for _, topic := range []string{"patient", "other"} {
			if _, err := s.Configure(t.Context(), topic, punctual.SettingsPatch{LateAfter: &long}); err != nil {
				t.Fatal(err)
			}
		}
		s.push("patient", "1", 0)
		time.Sleep(time.Hour)
		s.push("paused", "1", 0)
		s.pause("paused", false, true)
		s.push("other", "1", 0)
		time.Sleep(47 * time.Hour)
		for i := range 8 {
			s.pushMany(fmt.Sprint("t", i), 10-i, 0) // the topics with most messages are the youngest
			time.Sleep(time.Second)
		}
		for i := range 8 {
			topic := fmt.Sprint("t", 7-i)
			if _, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: topic, State: punctual.StateReady}); err != nil {
				t.Fatal(err)
			}
			s.pushMany(topic, 10-i, 0)
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		o := s.readAnew()
		if o.Oldest == nil || o.Oldest.Topic != "patient" {
			t.Fatalf("this test shows nothing: %+v", o.Oldest)
		}
		const want = "late patient, late t7, late t6, late t5, late t4, late, delivery paused paused"
		if got := kinds(o); got != want {
			t.Errorf("findings: %s\nwant      %s", got, want)
		}
	})
}

// A schedule that has missed times within the last day is a finding, and one that has a problem is
// a worse one.
func TestMissedSchedules(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s scene) {
		q := punctual.NewQueue(s, nil)
		for name, missed := range map[string]schedule.Missed{"hourly": schedule.MissedLatest, "made-up": schedule.MissedAll} {
			if _, err := schedule.Put(t.Context(), q, schedule.Schedule{Topic: "reports", Name: name, Spec: "@hourly", Missed: missed}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5*time.Hour + time.Minute) // nobody does the duties
		h := schedule.NewScheduler(s)
		for range 2 {
			ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"reports@cron"}, Max: 1})
			if err != nil || len(ds) != 1 {
				t.Fatal(ds, err)
			}
			how := punctual.DecisionOf(h.Handle(t.Context(), &ds[0]))
			done := punctual.Settlement{Topic: ds[0].Topic, ID: ds[0].ID, Token: ds[0].Token, Verb: how.Verb, Delay: how.Delay, Then: how.Then}
			if errs, err := s.Settle(t.Context(), []punctual.Settlement{done}); err != nil || errs[0] != nil || how.Verb != punctual.SettleAck {
				t.Fatal(how.Verb, errs, err)
			}
		}
		o := s.read()
		f := o.finding(t, KindSchedule)
		if f.Name != "hourly" || f.Severity != storekit.SeverityWarning || f.At.Hour() != 4 || f.Value != "" || !strings.Contains(f.Text, "missed") {
			t.Errorf("%+v", f)
		}
		if n := strings.Count(kinds(o), "schedule"); n != 1 {
			t.Errorf("%d findings about schedules: %s", n, kinds(o))
		}
	})
}
