package overview

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
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// surveying is a store in memory that answers as a storekit.Surveyor, by listing each message.
type surveying struct{ *watched }

func (s surveying) scheduled(ctx context.Context, topic string) ([]punctual.Info, error) {
	page, err := s.List(ctx, punctual.ListQuery{Topic: topic, State: punctual.StateScheduled, Limit: 10_000})
	if page.Next != "" {
		err = errors.New("the test has too many messages")
	}
	return page.Messages, err
}

func (s surveying) Survey(ctx context.Context, q storekit.SurveyQuery) (out storekit.Survey, err error) {
	if err := s.called(ctx, "survey"); err != nil {
		return out, err
	}
	if out.At, err = s.Store.Now(ctx); err != nil {
		return out, err
	}
	if out.Topics, err = s.Store.Topics(ctx); err != nil {
		return out, err
	}
	out.All.Counts = make([]int64, len(q.Edges)-1)
	for _, t := range largest(slices.DeleteFunc(slices.Clone(out.Topics), func(t punctual.TopicStats) bool { return slices.Contains(q.Without, t.Topic) }), 1000) {
		all, err := s.scheduled(ctx, t.Topic)
		if err != nil {
			return out, err
		}
		one := storekit.DueCounts{Topic: t.Topic, Counts: make([]int64, len(q.Edges)-1), Overdue: t.Ready + t.Leased}
		for _, m := range all {
			if at, found := slices.BinarySearchFunc(q.Edges, m.Due, time.Time.Compare); at == len(q.Edges) || at == len(q.Edges)-1 && found {
				one.Beyond++
			} else if found {
				one.Counts[at]++
			} else if at > 0 {
				one.Counts[at-1]++
			}
		}
		for i, n := range one.Counts {
			out.All.Counts[i] += n
		}
		out.All.Overdue, out.All.Beyond = out.All.Overdue+one.Overdue, out.All.Beyond+one.Beyond
		if len(out.Largest) < q.Largest {
			out.Largest = append(out.Largest, one)
		}
	}
	return out, nil
}

func (s surveying) NextDue(ctx context.Context) (out storekit.NextDueTimes, err error) {
	if err := s.called(ctx, "next due"); err != nil {
		return out, err
	}
	if out.At, err = s.Store.Now(ctx); err != nil {
		return out, err
	}
	all, err := s.Store.Topics(ctx)
	for _, t := range all {
		h := storekit.TopicNextDue{Topic: t.Topic, Settings: t.Settings, Ready: min(t.Ready, storekit.MaxReadyCount)}
		if h.Ready > 0 {
			h.Due = t.NextDue
		}
		out.Topics = append(out.Topics, h)
	}
	return out, err
}

// inSurvey is inBubble with a surveyor.
func inSurvey(t *testing.T, o *Options, f func(t *testing.T, s scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{Store: memstore.New(nil), calls: make(map[string]int)}
		defer w.Close()
		r, err := New(surveying{w}, o)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		f(t, scene{t, w, r})
	})
}

// fillForPictures pushes what falls into steps of all lengths, and some that is hidden.
func (s scene) fillForPictures() {
	for n := range 40 {
		s.push(fmt.Sprintf("t%d", n%7), fmt.Sprint(n), time.Duration(n*n)*7*time.Minute)
		s.push("far", fmt.Sprint(n), time.Duration(n)*3*24*time.Hour+time.Minute)
	}
	s.push(access.AuditTopic, "x", time.Hour)
	s.push("ready", "x", 0)
}

// The pictures from a survey are the same as those from forecasts, in three zones, also an hour and
// a half later.
func TestSurveyEqualsForecasts(t *testing.T) {
	for _, name := range []string{"UTC", "America/New_York", "Asia/Kolkata"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		pictures := func(in func(*testing.T, *Options, func(*testing.T, scene)), calls string) (all []string) {
			in(t, &Options{Zone: zone, Patience: time.Hour}, func(t *testing.T, s scene) {
				s.fillForPictures()
				for range 2 {
					o := s.read()
					if s.count(calls) == 0 {
						t.Errorf("no %s was asked for, so this test shows nothing", calls)
					}
					for _, p := range []Picture{o.Minutes, o.Hours, o.Days} {
						all = append(all, fmt.Sprint(p.All.Edges[0], p.All.Counts, p.All.Beyond, p.All.Overdue))
						for _, t := range p.Topics {
							all = append(all, fmt.Sprint(t.Topic, t.Counts, t.Beyond, t.Overdue))
						}
					}
					time.Sleep(90 * time.Minute)
				}
			})
			return all
		}
		forecasts, survey := pictures(inBubble, "forecast"), pictures(inSurvey, "survey")
		if !slices.Equal(forecasts, survey) {
			t.Errorf("%s: the forecasts say\n%s\nand the survey\n%s", name, strings.Join(forecasts, "\n"), strings.Join(survey, "\n"))
		}
	}
}

// A survey of a minute ago has the steps of now.
func TestOldSurvey(t *testing.T) {
	inSurvey(t, &Options{Patience: time.Hour}, func(t *testing.T, s scene) {
		s.push("a", "1", 2*time.Minute+time.Second)
		s.push("a", "2", 100*time.Minute)
		s.slow("survey", time.Second)
		s.read()
		s.count("survey")
		time.Sleep(61 * time.Second)
		o := s.read()
		if a := o.Minutes.All; a.Counts[1] != 1 || a.Sum() != 1 || a.Beyond != 1 || !a.Edges[0].Equal(o.AsOf.Truncate(time.Minute)) {
			t.Errorf("a minute later: %+v as of %v", a, o.AsOf)
		}
		if a, err := s.r.Ahead(t.Context(), AheadQuery{Topic: "a", Step: Hour, Steps: 8 * 24}); err != nil || a.Sum() != 2 {
			t.Errorf("the week of a topic: %+v, %v", a, err)
		}
		if surveys, forecasts := s.count("survey"), s.count("forecast"); surveys+forecasts > 0 {
			t.Errorf("%d surveys and %d forecasts more", surveys, forecasts)
		}
	})
}

// A page that is open for ten hours has the store surveyed for at most 0.35 % of the time, whether
// a survey takes 3 s or 25 s.
func TestShareOfSurveys(t *testing.T) {
	for _, takes := range []time.Duration{3 * time.Second, 25 * time.Second} {
		inSurvey(t, &Options{Hurry: true}, func(t *testing.T, s scene) {
			s.push("a", "1", 24*time.Hour)
			s.slow("survey", takes)
			const day = 10 * time.Hour
			for end := time.Now().Add(day); time.Now().Before(end); time.Sleep(time.Minute) {
				s.read()
			}
			surveys, others := s.count("survey"), s.count("forecast")+s.count("topics")
			share := float64(surveys) * takes.Seconds() / day.Seconds()
			if surveys < 3 || others > 0 || share > 0.0035 {
				t.Errorf("surveys of %v: %d in %v, %.2f %% of the time, and %d other counts", takes, surveys, day, 100*share, others)
			}
		})
	}
}

// Before the first survey has ended a page shows the topics, what is ready and what is late. After
// the survey it goes on to show what is ready and paused now, although the other counts are as old
// as the survey.
func TestNextDue(t *testing.T) {
	inSurvey(t, &Options{Hurry: true}, func(t *testing.T, s scene) {
		s.push("a", "1", 0)
		s.push("b", "1", time.Hour)
		s.push(access.AuditTopic, "1", time.Hour)
		time.Sleep(time.Minute)
		s.slow("survey", 3*time.Second)
		began := time.Now()
		o := s.read()
		all, err := s.r.Topics(t.Context())
		if waited := time.Since(began); err != nil || waited > 100*time.Millisecond {
			t.Errorf("waited %v, %v", waited, err)
		}
		if !o.Partial || len(o.Topics) != 2 || o.Topics[0].Ready != 1 || !strings.HasPrefix(kinds(o), "late a") || !o.Counted.IsZero() {
			t.Errorf("before the first survey: %+v, %s", o, kinds(o))
		}
		if !all.Partial || len(all.Topics) != 2 || all.Topics[0].Ready != 1 {
			t.Errorf("before the first survey the topics are %+v", all)
		}
		time.Sleep(3 * time.Second)
		if o = s.read(); o.Partial || o.Totals.Scheduled != 1 || o.Minutes.All == nil {
			t.Errorf("behind the survey: %+v", o)
		}
		s.count("survey")
		s.push("c", "1", 0)
		s.pause("b", false, true)
		if _, err := s.DeleteTopic(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		o = s.read()
		if len(o.Topics) != 2 || o.Topics[1].Ready != 1 || o.Topics[0].Scheduled != 1 || kinds(o) != "late c, delivery paused b" {
			t.Errorf("half a minute later: %+v, %s", o.Topics, kinds(o))
		}
		if old := o.AsOf.Sub(o.Counted); s.count("survey") != 0 || old < 20*time.Second {
			t.Errorf("what was counted is %v old", old)
		}
		if stats, c, err := s.r.Stats(t.Context(), "c"); err != nil || stats.Ready != 1 || c.Counted.IsZero() {
			t.Errorf("the topic: %+v, %+v, %v", stats, c, err)
		}
		if _, _, err := s.r.Stats(t.Context(), "a"); !errors.Is(err, punctual.ErrNotFound) {
			t.Errorf("a topic that was deleted: %v", err)
		}
		for range 20 { // somebody changes much
			s.r.Recount()
			s.read()
			time.Sleep(time.Second)
		}
		if n := s.count("survey"); n > 1 {
			t.Errorf("%d surveys of 3 s in 20 s", n)
		}
	})
}

// A surveyor that is quick is counted for each page, as other stores are.
func TestQuickSurveyor(t *testing.T) {
	inSurvey(t, nil, func(t *testing.T, s scene) {
		for n := range 3 {
			s.push("a", fmt.Sprint(n), time.Hour)
			all, err := s.r.Topics(t.Context())
			if err != nil || all.Partial || all.Topics[0].Scheduled != int64(n+1) {
				t.Errorf("behind push %d: %+v, %v", n+1, all, err)
			}
		}
	})
}

// Nobody who opens a page waits for a survey that is under way, when there is an earlier one.
func TestNobodyWaitsForASurvey(t *testing.T) {
	inSurvey(t, &Options{Hurry: true}, func(t *testing.T, s scene) {
		s.push("a", "1", time.Hour)
		s.slow("survey", 3*time.Second)
		s.read()
		time.Sleep(5 * time.Minute)
		s.count("survey")
		s.r.Renew()
		began := time.Now()
		o := s.read()
		if _, err := s.r.Topics(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := s.r.Ahead(t.Context(), AheadQuery{Step: Minute, Steps: 60}); err != nil {
			t.Error(err)
		}
		if waited := time.Since(began); waited > 0 || o.Partial {
			t.Errorf("waited %v for %+v", waited, o)
		}
		synctest.Wait()
		if n := s.count("survey"); n != 1 {
			t.Errorf("%d surveys are under way, so this test shows nothing", n)
		}
	})
}

// The rows of an open table are counted in a bounded share of the time, however many there are, and
// nobody waits long for them.
func TestShareOfRows(t *testing.T) {
	q := AheadQuery{Step: Hour, Steps: 48}
	inBubble(t, nil, func(t *testing.T, s scene) {
		var topics []string
		for n := range 30 {
			topics = append(topics, fmt.Sprint("t", n))
			s.push(topics[n], "a", 90*time.Minute)
		}
		const takes, day = 40 * time.Millisecond, 10 * time.Hour
		s.slow("forecast", takes)
		began := time.Now()
		if first := s.r.AheadOf(t.Context(), q, topics); len(first) == 0 || len(first) == len(topics) || time.Since(began) > 100*time.Millisecond {
			t.Errorf("after %v there are %d rows; some are right", time.Since(began), len(first))
		}
		time.Sleep(2 * time.Second)
		for end := time.Now().Add(day); time.Now().Before(end); time.Sleep(20 * time.Second) {
			if all := s.r.AheadOf(t.Context(), q, topics); len(all) != len(topics) || all["t7"].Topic != "t7" || all["t7"].Sum()+all["t7"].Overdue != 1 {
				t.Fatalf("there are %d rows, one is %+v", len(all), all["t7"])
			}
		}
		n := s.count("forecast")
		if share := float64(n) * takes.Seconds() / day.Seconds(); n <= 10*len(topics) || share > 0.001 {
			t.Errorf("%d forecasts of %d rows take %.2f %% of the time", n, len(topics), 100*share)
		}
	})
	inSurvey(t, nil, func(t *testing.T, s scene) {
		var topics []string
		for n := range surveyTopics + 5 {
			topics = append(topics, fmt.Sprint("t", n))
			s.push(topics[n], "a", 90*time.Minute)
		}
		s.slow("survey", 10*time.Second)
		if first := s.r.AheadOf(t.Context(), q, topics); len(first) > 0 || s.count("forecast") > 0 {
			t.Errorf("before the first survey there are %d rows", len(first))
		}
		time.Sleep(11 * time.Second)
		if all := s.r.AheadOf(t.Context(), q, topics); len(all) != len(topics) || all["t3"].Sum() != 1 || s.count("forecast") != 5 {
			t.Errorf("%d rows, %d forecasts", len(all), s.count("forecast"))
		}
	})
}
