package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// verb is a call that changes messages, in a topic filled by scene.
type verb struct {
	name   string
	script *script.Script
	call   func(ctx context.Context, s *Store, held punctual.Delivery) (answer string, err error)
}

// verbs returns pushes, claims, settlements and amendments, the calls that may have a key. All are
// in the topic orders, and some have follow-ups in its companion orders@bills.
func verbs() []verb {
	out := []verb{{"push", script.Push, pushSome}, {"claim", script.Claim, claimSome}}
	for v, how := range map[punctual.Verb]punctual.Settlement{
		punctual.SettleAck: {}, punctual.SettleRetry: {Delay: time.Minute, Error: "busy"}, punctual.SettleSnooze: {Delay: time.Minute},
		punctual.SettleDiscard: {Error: "no use"}, punctual.SettleRelease: {}, punctual.SettleExtend: {Delay: 2 * time.Hour},
	} {
		out = append(out, verb{v.String(), script.Settle, func(ctx context.Context, s *Store, held punctual.Delivery) (string, error) {
			x := how
			x.Topic, x.ID, x.Token, x.Verb = held.Topic, held.ID, held.Token, v
			lost := punctual.Settlement{Topic: held.Topic, ID: held.ID, Token: held.Token + limits.MaxPartitions, Verb: v}
			errs, err := s.Settle(ctx, []punctual.Settlement{lost, x})
			return fmt.Sprint(errs), err
		}})
	}
	for v, delay := range map[punctual.Verb]time.Duration{punctual.SettleAck: 0, punctual.SettleSnooze: time.Minute, punctual.SettleDiscard: 0} {
		out = append(out, verb{v.String() + " with follow-ups", script.Settle, func(ctx context.Context, s *Store, held punctual.Delivery) (string, error) {
			before := punctual.NewMessage{Topic: "orders@bills", ID: held.ID + "~kept", Delay: time.Hour}
			if _, err := s.Push(storekit.WithoutRequest(ctx), []punctual.NewMessage{before}); err != nil {
				return "", err
			}
			errs, err := s.Settle(ctx, []punctual.Settlement{
				{Topic: held.Topic, ID: held.ID, Token: held.Token, Verb: v, Delay: delay, Then: followUps(held)},
				{Topic: held.Topic, ID: held.ID, Token: held.Token, Verb: punctual.SettleAck, Then: followUps(held)},
			})
			return fmt.Sprint(errs), err
		}})
	}
	for change, a := range map[punctual.Change]punctual.Amendment{
		punctual.ChangeCancel: {ID: "later"}, punctual.ChangeReschedule: {ID: "later", Delay: 3 * time.Hour}, punctual.ChangeRequeue: {ID: "dead", Delay: time.Hour},
	} {
		out = append(out, verb{change.String(), script.Amend, func(ctx context.Context, s *Store, _ punctual.Delivery) (string, error) {
			a := a
			a.Change, a.Topic = change, "orders"
			outcomes, err := s.Amend(ctx, []punctual.Amendment{a, {Change: change, Topic: "orders", ID: "nobody"}})
			return fmt.Sprintf("%+v", outcomes), err
		}})
	}
	slices.SortFunc(out, func(a, b verb) int { return strings.Compare(a.name, b.name) })
	return out
}

// followUps returns follow-ups of a message that is leased, in its topic and in a companion: new
// ones, one whose ID is in use, and one in the place of the message itself.
func followUps(held punctual.Delivery) []punctual.NewMessage {
	return []punctual.NewMessage{
		{Topic: "orders@bills", ID: held.ID + "~new", Body: []byte("bill")},
		{Topic: "orders@bills", ID: held.ID + "~kept"},
		{Topic: "orders", ID: held.ID, IfExists: punctual.IfExistsReplace, Delay: time.Hour, Body: []byte("again")},
		{Topic: "orders", ID: held.ID + "~later", Delay: 2 * time.Hour, Remember: time.Minute},
	}
}

func pushSome(ctx context.Context, s *Store, _ punctual.Delivery) (string, error) {
	rs, err := s.Push(ctx, []punctual.NewMessage{
		{Topic: "orders", ID: "new", IfExists: punctual.IfExistsFail, Delay: time.Hour},
		{Topic: "orders", ID: "later", IfExists: punctual.IfExistsReplace, Body: []byte("new body")},
		{Topic: "orders", ID: "ready 1"},
		{Topic: "orders", ID: "done"},
		{Topic: "orders", ID: "kept"},
	})
	return fmt.Sprintf("%+v", rs), err
}

func claimSome(ctx context.Context, s *Store, _ punctual.Delivery) (string, error) {
	ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{"orders"}, Max: 2})
	return fmt.Sprintf("%+v", ds), err
}

// scene fills the topic with messages in every state, of which several are ready, and returns the
// lease of one. Two scenes at the same time are equal in everything.
func scene(t *testing.T, s *Store) punctual.Delivery {
	t.Helper()
	held := situations(t, s)
	push(t, s, punctual.NewMessage{ID: "later", Delay: time.Hour})
	for i := range 4 {
		push(t, s, punctual.NewMessage{ID: fmt.Sprint("ready ", i), Due: time.Unix(int64(2+i), 0)})
	}
	return held
}

// disturbance is something that happens to the copies of a call on their way.
type disturbance struct {
	name string
	// play makes the call meanwhile and returns its answer; more is another call of the same
	// caller, which stores something.
	play func(t *testing.T, p *redisrig.Proxy, which redisrig.Which, call func() (string, error), more func()) (string, error)
}

// answered is what a call returned.
type answered struct {
	text string
	err  error
}

func begin(call func() (string, error)) <-chan answered {
	got := make(chan answered, 1)
	go func() {
		text, err := call()
		got <- answered{text, err}
	}()
	return got
}

func disturbances() []disturbance {
	type T = *testing.T
	type P = *redisrig.Proxy
	lost := func(n int) func(T, P, redisrig.Which, func() (string, error), func()) (string, error) {
		return func(_ T, p P, which redisrig.Which, call func() (string, error), more func()) (string, error) {
			f := p.Lose(n, which)
			text, err := call()
			f.Happened()
			more()
			return text, err
		}
	}
	late := func(t T, h *redisrig.Fault, want string) {
		t.Helper()
		got := h.Release()
		if strings.Contains(got, "PUNCTUAL_LATE") != (want == "late") || want == "answered" && strings.HasPrefix(got, "-") {
			t.Errorf("P13: the copy that came late was answered %q; want it %s", got, want)
		}
	}
	return []disturbance{
		{"the answer is lost", lost(1)},
		{"all answers but the last are lost", lost(route.Tries - 1)},
		{"a copy is repeated", func(t T, p P, which redisrig.Which, call func() (string, error), more func()) (string, error) {
			f := p.Repeat(which)
			text, err := call()
			if again := f.Happened()[0].Again; strings.HasPrefix(again, "-") {
				t.Errorf("P13: the second copy was answered %q", again)
			}
			more()
			return text, err
		}},
		{"the first copy comes after its repetition", func(t T, p P, which redisrig.Which, call func() (string, error), more func()) (string, error) {
			h := p.Hold(which)
			text, err := call()
			late(t, h, "answered")
			more()
			return text, err
		}},
		{"the first copy comes after the next call", func(t T, p P, which redisrig.Which, call func() (string, error), more func()) (string, error) {
			h := p.Hold(which)
			text, err := call()
			more()
			late(t, h, "late")
			return text, err
		}},
		{"the copies change places", func(t T, p P, which redisrig.Which, call func() (string, error), more func()) (string, error) {
			h := p.Hold(which)
			l := p.Lose(1, which).Paused()
			got := begin(call)
			l.Await()
			late(t, h, "answered")
			l.Resume()
			a := <-got
			more()
			return a.text, a.err
		}},
	}
}

// P3, P4, P5, P6, P7, P13: copies of a call, or answers to them, are lost or come late. The call's
// answer is that of an undisturbed one, and so is what it leaves behind.
func TestLostAnswerIsGivenAgain(t *testing.T) {
	server := redisrig.Start(t)
	start := time.Unix(1_800_000_000, 0)
	for _, v := range everyCall() {
		t.Run(v.name, func(t *testing.T) {
			play := func(t *testing.T, d *disturbance) (answer, left string) {
				s, p := openBehind(t, server, &Options{Prefix: fresh(), clock: storekit.NewManualClock(start)})
				held := scene(t, s)
				call := func() (string, error) { return v.call(t.Context(), s, held) }
				more := func() { push(t, s, punctual.NewMessage{ID: "more", Delay: time.Hour}) }
				var err error
				if d == nil {
					answer, err = call()
					more()
				} else {
					answer, err = d.play(t, p, runs(v.script), call, more)
				}
				if err != nil {
					t.Errorf("P13: %s = %v; want an answer", v.name, err)
				}
				wantSound(t, s)
				return answer, contents(t, s)
			}
			answer, left := play(t, nil)
			for _, d := range disturbances() {
				t.Run(d.name, func(t *testing.T) {
					gotAnswer, gotLeft := play(t, &d)
					if gotAnswer != answer {
						t.Errorf("P13: the answer is\n%s\nand undisturbed\n%s", gotAnswer, answer)
					}
					if gotLeft != left {
						t.Errorf("P13: what is left behind is\n%s\nand undisturbed\n%s", gotLeft, left)
					}
				})
			}
		})
	}
}

// everyCall returns verbs, a change of settings, a purge and a deletion, of the topic filled by
// scene.
func everyCall() []verb {
	none := time.Duration(0)
	return append(verbs(),
		verb{"configure", script.Configure, func(ctx context.Context, s *Store, _ punctual.Delivery) (string, error) {
			set, err := s.Configure(ctx, "orders", punctual.SettingsPatch{DedupeWindow: &none})
			return fmt.Sprintf("%+v", set), err
		}},
		verb{"purge", script.Purge, func(ctx context.Context, s *Store, _ punctual.Delivery) (string, error) {
			n, err := s.Purge(ctx, punctual.PurgeQuery{Topic: "orders", State: punctual.StateReady})
			return fmt.Sprint(n), err
		}},
		verb{"delete", script.Delete, func(ctx context.Context, s *Store, _ punctual.Delivery) (string, error) {
			n, err := s.DeleteTopic(ctx, "orders")
			return fmt.Sprint(n), err
		}},
	)
}

// P13: a call that got none of its answers may have been carried out, and says so. It was sent
// route.Tries times, and done once.
func TestNoAnswer(t *testing.T) {
	server := redisrig.Start(t)
	start := time.Unix(1_800_000_000, 0)
	for _, v := range everyCall() {
		t.Run(v.name, func(t *testing.T) {
			play := func(times int) string {
				s, p := openBehind(t, server, &Options{Prefix: fresh(), clock: storekit.NewManualClock(start)})
				held := scene(t, s)
				if times == 0 {
					if _, err := v.call(t.Context(), s, held); err != nil {
						t.Fatal(err)
					}
					return contents(t, s)
				}
				lost, sent := p.Lose(times, runs(v.script)), p.Count(runs(v.script))
				_, err := v.call(t.Context(), s, held)
				wantIndeterminate(t, v.name+" whose answers were lost", err)
				lost.Happened()
				if n := sent.Seen(); n != times {
					t.Errorf("P13: %s whose answers were lost was sent %d times; want %d", v.name, n, times)
				}
				wantSound(t, s)
				return contents(t, s)
			}
			if got, want := play(route.Tries), play(0); got != want {
				t.Errorf("P13: what is left behind is\n%s\nand undisturbed\n%s", got, want)
			}
		})
	}
}
