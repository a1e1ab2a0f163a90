package duty_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/duty"
	familyrig "github.com/punctualmq/punctual/internal/rigs/family"
	hungrig "github.com/punctualmq/punctual/internal/rigs/hung"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// rig is a store in memory inside a synctest bubble.
type rig struct {
	*testing.T
	mem *memstore.Store
	q   *punctual.Queue
}

func newRig(t *testing.T) *rig {
	mem := memstore.New(nil)
	return &rig{T: t, mem: mem, q: punctual.NewQueue(mem, nil)}
}

// runs has the duties of a store done until stop is called.
func (r *rig) runs(store punctual.Store, c duty.Config) (stop func()) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- duty.Run(ctx, store, &c) }()
	stop = sync.OnceFunc(func() {
		end()
		if err := <-done; err != nil {
			r.Errorf("Run: %v", err)
		}
	})
	return stop
}

func (r *rig) configure(topic string, p punctual.SettingsPatch) {
	r.Helper()
	if _, err := r.mem.Configure(r.Context(), topic, p); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) push(ms ...punctual.NewMessage) {
	r.Helper()
	if _, err := r.q.PushMany(r.Context(), ms); err != nil {
		r.Fatal(err)
	}
}

// live counts the messages of a topic that are not dead.
func (r *rig) live(topic string) int64 {
	r.Helper()
	s, err := r.mem.Stats(r.Context(), topic)
	if errors.Is(err, punctual.ErrNotFound) {
		return 0
	}
	if err != nil {
		r.Fatal(err)
	}
	return s.Live()
}

func ptr[T any](v T) *T { return &v }

// follow acks a new message of the topic with a follow-up that the store does not reach.
func (r *rig) follow(topic, id string, m punctual.NewMessage) {
	r.Helper()
	r.push(punctual.NewMessage{Topic: topic, ID: id})
	time.Sleep(time.Millisecond)
	ds, err := r.mem.Claim(r.Context(), punctual.Claim{Topics: []string{topic}, Max: 1})
	if err != nil || len(ds) != 1 {
		r.Fatal(ds, err)
	}
	x := punctual.Settlement{Topic: topic, ID: id, Token: ds[0].Token, Verb: punctual.SettleAck, Then: []punctual.NewMessage{m}}
	storekit.SetAfter(&x)
	errs, err := storekit.Settle(r.Context(), familyrig.New(r.mem, 1, false), []punctual.Settlement{x}, nil)
	if err != nil || errs[0] != nil {
		r.Fatal(errs, err)
	}
}

// TestRunFindsTopics: Run finds a topic that gets groups at once, and leaves it alone when it has
// none any more.
func TestRunFindsTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		stop := r.runs(r.mem, duty.Config{})
		defer stop()
		time.Sleep(time.Minute)
		r.configure("orders", punctual.SettingsPatch{Groups: ptr([]string{"billing"})})
		r.push(punctual.NewMessage{Topic: "orders", ID: "a"})
		time.Sleep(100 * time.Millisecond)
		if r.live("orders") != 0 || r.live("orders@g.billing") != 1 {
			t.Errorf("orders has %d messages, its group %d", r.live("orders"), r.live("orders@g.billing"))
		}
		r.configure("orders", punctual.SettingsPatch{Groups: ptr([]string(nil))})
		time.Sleep(11 * time.Second)
		r.push(punctual.NewMessage{Topic: "orders", ID: "b"})
		time.Sleep(time.Minute)
		if i, err := r.mem.Get(t.Context(), "orders", "b"); err != nil || i.State != punctual.StateReady || i.Attempt != 0 {
			t.Errorf("%+v, %v; want it untouched", i, err)
		}
		stop()
	})
}

// TestRunAsksOnce: however many topics there are, looking through them takes one call about every
// ten seconds, and nothing reads them but one call for new companions each 0.9 s.
func TestRunAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 1000 {
			r.push(punctual.NewMessage{Topic: fmt.Sprint("t", i), Delay: time.Hour})
		}
		counted := &counting{Store: r.mem}
		stop := r.runs(counted, duty.Config{})
		defer stop()
		time.Sleep(100*time.Second + time.Second/2)
		stop()
		if n := counted.names.Load(); n < 11 || n > 12 { // 10 or 11 looks, and the one of the watch over schedules, after a minute
			t.Errorf("the names of topics were asked for %d times in 100 s", n)
		}
		if n := counted.news.Load(); n < 105 || n > 125 {
			t.Errorf("new companions were asked for %d times in 100 s", n)
		}
		if n := counted.claims.Load(); n != 0 {
			t.Errorf("%d claims for topics that need no duty", n)
		}
	})
}

// counting counts calls.
type counting struct {
	*memstore.Store
	names, news, claims atomic.Int64
}

func (c *counting) NewCompanions(ctx context.Context, mark string, wait time.Duration) (storekit.Companions, error) {
	c.news.Add(1)
	return c.Store.NewCompanions(ctx, mark, wait)
}

func (c *counting) TopicNames(ctx context.Context, q storekit.NameQuery) ([]string, error) {
	c.names.Add(1)
	return c.Store.TopicNames(ctx, q)
}

func (c *counting) Claim(ctx context.Context, q punctual.Claim) ([]punctual.Delivery, error) {
	c.claims.Add(1)
	return c.Store.Claim(ctx, q)
}

// TestRunRefuses: what Run cannot work with is an error at once, and a store that was closed ends
// it.
func TestRunRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		if err := duty.Run(t.Context(), nil, nil); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("no store: %v", err)
		}
		if err := duty.Run(t.Context(), r.mem, &duty.Config{Concurrency: -1}); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("concurrency -1: %v", err)
		}
		if err := duty.Run(t.Context(), hungrig.New(r.mem), nil); !errors.Is(err, punctual.ErrUnsupported) {
			t.Errorf("a store that names no topics: %v", err)
		}
		if err := r.mem.Close(); err != nil {
			t.Fatal(err)
		}
		if err := duty.Run(t.Context(), r.mem, &duty.Config{Logger: slog.New(slog.DiscardHandler)}); !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("a closed store: %v", err)
		}
	})
}

// refusing refuses the follow-ups of settlements in a topic.
type refusing struct {
	*memstore.Store
	topic   string
	err     error
	refused atomic.Int64
}

func (s *refusing) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	answers := make([]error, len(ss))
	for i, x := range ss {
		if x.Topic == s.topic && len(x.Then) > 0 {
			s.refused.Add(1)
			answers[i] = storekit.FollowUpError(0, s.err)
			continue
		}
		got, err := s.Store.Settle(ctx, ss[i:i+1])
		if err != nil {
			return nil, err
		}
		answers[i] = got[0]
	}
	return answers, nil
}

// TestRefusedCopiesDelayNobody: a topic whose copies are refused again and again does not hold up
// those of another one (P14), and its messages keep their attempts until the store takes them.
func TestRefusedCopiesDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := &refusing{Store: r.mem, topic: "full", err: punctual.ErrNoSpace}
		for _, topic := range []string{"full", "good"} {
			r.configure(topic, punctual.SettingsPatch{Groups: ptr([]string{"billing"})})
		}
		for i := range 2000 {
			r.push(punctual.NewMessage{Topic: "full", ID: fmt.Sprint(i)})
		}
		stop := r.runs(s, duty.Config{})
		defer stop()
		for i := range 20 {
			r.push(punctual.NewMessage{Topic: "good", ID: fmt.Sprint(i)})
			time.Sleep(time.Second)
			if r.live("good@g.billing") != int64(i+1) {
				t.Fatalf("P14 isolation: after a second message %d of the good topic is not copied", i)
			}
		}
		stop()
		if n := s.refused.Load(); n < 2000 {
			t.Errorf("%d copies were refused, so this test shows nothing", n)
		}
		if st, err := r.mem.Stats(t.Context(), "full"); err != nil || st.Live() != 2000 || st.Dead != 0 {
			t.Errorf("%+v, %v; want no message lost", st, err)
		}
		put, err := r.mem.Get(t.Context(), "full", "7")
		if err != nil || put.Attempt != 0 || !put.Due.After(put.FirstDue) {
			t.Errorf("%+v, %v; want it put off, and to keep its attempts", put, err)
		}
		defer r.runs(r.mem, duty.Config{})() // there is space again
		time.Sleep(time.Hour)
		if c, err := r.mem.Get(t.Context(), "full@g.billing", "7"); err != nil || !c.Due.Equal(put.FirstDue) || !c.FirstDue.Equal(put.FirstDue) {
			t.Errorf("%+v, %v; want it due when the message was first due, %v", c, err, put.FirstDue)
		}
	})
}

// hanging is a store in which the pushes to one topic hang.
type hanging struct {
	*hungrig.Store
	punctual.Inspector
	storekit.TopicNamer
	storekit.AbilityReporter
}

// TestHungTopicDelaysNoOther: follow-ups for a topic that hangs do not hold up those for others
// (P14), also when they all come from one topic, and are forwarded when it answers again.
func TestHungTopicDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		hung := hungrig.New(r.mem, "push")
		for i := range 300 {
			r.follow("t", fmt.Sprint("h", i), punctual.NewMessage{Topic: hungrig.Topic, ID: fmt.Sprint(i)})
		}
		stop := r.runs(hanging{hung, r.mem, r.mem, r.mem}, duty.Config{})
		defer stop()
		for i := range 10 {
			r.follow("t", fmt.Sprint("g", i), punctual.NewMessage{Topic: "good", ID: fmt.Sprint(i)})
			time.Sleep(time.Second)
			if r.live("good") != int64(i+1) {
				t.Fatalf("P14 isolation: after a second follow-up %d for the good topic is not forwarded", i)
			}
		}
		hung.WantHanging(t)
		hung.Mend()
		time.Sleep(time.Minute)
		if r.live(hungrig.Topic) != 300 || r.live("t@out") != 0 {
			t.Errorf("%d of 300 follow-ups were forwarded, %d wait", r.live(hungrig.Topic), r.live("t@out"))
		}
		stop()
	})
}

// forgetful is a store that carries out the first push to a topic but does not answer it before the
// context of the call ends, and then only with an error.
type forgetful struct {
	*memstore.Store
	topic  string
	pushes atomic.Int64
	// unread is how many further calls of Get fail. Each call counts it down, so it is below 0 once
	// one has succeeded.
	unread atomic.Int64
}

func (s *forgetful) Get(ctx context.Context, topic, id string) (punctual.Info, error) {
	if s.unread.Add(-1) >= 0 {
		return punctual.Info{}, punctual.ErrUnreachable
	}
	return s.Store.Get(ctx, topic, id)
}

func (s *forgetful) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	if ms[0].Topic != s.topic {
		return s.Store.Push(ctx, ms)
	}
	rs, err := s.Store.Push(ctx, ms)
	if s.pushes.Add(1) == 1 {
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", punctual.ErrIndeterminate, ctx.Err())
	}
	return rs, err
}

// TestForwardedOnceThoughAnswersGetLost: what is forwarded again is stored once, whatever the push
// does with an ID that is in use.
func TestForwardedOnceThoughAnswersGetLost(t *testing.T) {
	for mode, want := range map[punctual.IfExists]int64{
		punctual.IfExistsKeep: 2, punctual.IfExistsFail: 1, punctual.IfExistsReplace: 1, punctual.IfExistsReplaceDead: 1,
	} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				s := &forgetful{Store: r.mem, topic: "u"}
				s.unread.Store(1) // the first reading that asks whether it was stored fails
				r.follow("t", "a", punctual.NewMessage{Topic: "u", ID: "next", IfExists: mode})
				stop := r.runs(s, duty.Config{})
				defer stop()
				time.Sleep(6 * time.Second) // the push has stored it, and has no answer
				if r.live("u") != 1 {
					t.Fatal("the first push did not store the follow-up, so this test shows nothing")
				}
				ds, err := r.mem.Claim(t.Context(), punctual.Claim{Topics: []string{"u"}, Max: 1})
				if err != nil || len(ds) != 1 {
					t.Fatal(ds, err)
				}
				if mode == punctual.IfExistsKeep { // finished before it is forwarded again
					if errs, err := r.mem.Settle(t.Context(), []punctual.Settlement{{Topic: "u", ID: "next", Token: ds[0].Token, Verb: punctual.SettleAck}}); err != nil || errs[0] != nil {
						t.Fatal(errs, err)
					}
				}
				time.Sleep(time.Minute)
				stop()
				if st, err := r.mem.Stats(t.Context(), "t@out"); err != nil || st.Live() != 0 || st.Dead != 0 {
					t.Errorf("envelopes: %+v, %v", st, err)
				}
				if mode == punctual.IfExistsKeep {
					if r.live("u") != 0 {
						t.Error("the follow-up was stored a second time")
					}
				} else if i, err := r.mem.Get(t.Context(), "u", "next"); err != nil || i.Attempt != 1 || i.Created.After(ds[0].Created) {
					t.Errorf("%+v, %v; want the one that was claimed", i, err)
				}
				if n := s.pushes.Load(); n != want {
					t.Errorf("%d pushes; want %d", n, want)
				}
				if s.unread.Load() >= 0 {
					t.Errorf("this shows nothing of a failed reading: %d were still to fail, and none succeeded", s.unread.Load())
				}
			})
		})
	}
}

// TestRunLeavesOtherTopics: with Topics, Run forwards the envelopes of these topics and none of
// another one, whether the other one has envelopes before Run begins or gets them later.
func TestRunLeavesOtherTopics(t *testing.T) {
	for _, before := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			others := func() { r.follow("other", "b", punctual.NewMessage{Topic: "u", ID: "of-other"}) }
			if before {
				others()
			}
			defer r.runs(r.mem, duty.Config{Topics: []string{"t"}})()
			time.Sleep(time.Second)
			r.follow("t", "a", punctual.NewMessage{Topic: "u", ID: "of-t"})
			if !before {
				others()
			}
			time.Sleep(time.Minute)
			if r.live("t@out") != 0 || r.live("u") != 1 {
				t.Errorf("before %v: %d envelopes of t wait, and %d follow-ups are there; want that of t forwarded", before, r.live("t@out"), r.live("u"))
			}
			p, err := r.mem.List(t.Context(), punctual.ListQuery{Topic: "other@out", State: punctual.StateReady})
			if err != nil || len(p.Messages) != 1 || p.Messages[0].Attempt != 0 || !p.Messages[0].Due.Equal(p.Messages[0].FirstDue) {
				t.Errorf("before %v: %+v, %v; want the envelope of the other topic untouched", before, p, err)
			}
		})
	}
}

// unread is a store in which the next readings of a topic's settings fail.
type unread struct {
	*memstore.Store
	fail atomic.Int64
}

func (s *unread) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	if topic == "orders" && s.fail.Load() > 0 {
		s.fail.Add(-1)
		return punctual.Settings{}, punctual.ErrUnreachable
	}
	return s.Store.Settings(ctx, topic)
}

// TestUnreadSettings: when the settings of a topic could not be read, its messages are copied as
// soon as they can be read again, whoever read them: the one who looks for topics when the topic is
// new, later, or the one who copies, also a message with a single attempt.
func TestUnreadSettings(t *testing.T) {
	for name, c := range map[string]struct {
		at   time.Duration // of the first reading that fails
		fail int64
		late time.Duration // how much later than a second before the message is copied
	}{
		"the first look":      {0, 1, 2 * time.Second},
		"several first looks": {0, 5, 6 * time.Second},
		"a later look":        {9 * time.Second, 1, 100 * time.Millisecond},
		"the copying":         {15 * time.Second, 1, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				s := &unread{Store: r.mem}
				r.configure("orders", punctual.SettingsPatch{Groups: ptr([]string{"billing"}), Backoff: &punctual.Backoff{Delays: []time.Duration{time.Second}}})
				if c.at == 0 {
					s.fail.Store(c.fail)
				}
				defer r.runs(s, duty.Config{})()
				time.Sleep(c.at)
				s.fail.Store(c.fail)
				if name == "a later look" {
					for s.fail.Load() > 0 {
						time.Sleep(time.Millisecond)
					}
				}
				r.push(punctual.NewMessage{Topic: "orders", ID: "a", MaxAttempts: 1})
				time.Sleep(c.late)
				if s.fail.Load() != 0 {
					t.Fatalf("%d readings are still to fail, so this test shows nothing", s.fail.Load())
				}
				if n := r.live("orders@g.billing"); n != 1 {
					i, err := r.mem.Get(t.Context(), "orders", "a")
					t.Errorf("P1: after %v the group has %d messages; the message is %+v, %v", c.late, n, i, err)
				}
			})
		})
	}
}

// TestObserverSeesCopies: the Observer of Run sees the handlers of duties finish, as those of any
// topic.
func TestObserverSeesCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var mu sync.Mutex
		var seen []string
		o := &punctual.Observer{
			OnFinish: func(_ context.Context, d *punctual.Delivery, v punctual.Verb, _ time.Duration, err error) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, fmt.Sprintf("%s/%s %s %v", d.Topic, d.ID, v, err))
			},
		}
		r.configure("orders", punctual.SettingsPatch{Groups: ptr([]string{"billing"})})
		r.push(punctual.NewMessage{Topic: "orders", ID: "a"})
		stop := r.runs(r.mem, duty.Config{Observer: o})
		defer stop()
		time.Sleep(time.Second)
		stop()
		if got := strings.Join(seen, "; "); got != "orders/a ack <nil>" {
			t.Errorf("seen: %s", got)
		}
	})
}
