package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// twoStores opens two stores over one server and one prefix, as two processes do.
func twoStores(t *testing.T, o Options) (one, other *Store) {
	t.Helper()
	o.Prefix = fresh()
	p := o
	return openStore(t, connect(t, shared), &o), openStore(t, connect(t, shared), &p)
}

func keyedBy(ctx context.Context, key string) context.Context {
	return storekit.WithRequest(ctx, storekit.Request{Key: key})
}

// P3, P13: a copy of a call that another process makes has the answer of the first one and changes
// nothing. So has a further copy that the first process makes.
func TestCopyElsewhere(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	for _, partitions := range []int{1, 4} {
		for _, v := range verbs() {
			t.Run(fmt.Sprint(v.name, " of ", partitions), func(t *testing.T) {
				clock := storekit.NewManualClock(start)
				one, other := twoStores(t, Options{clock: clock, Partitions: partitions})
				held := scene(t, one)
				ctx := keyedBy(t.Context(), "k")
				want, err := v.call(storekit.WithRequest(t.Context(), storekit.Request{Key: "k", First: true}), one, held)
				if err != nil {
					t.Fatal(err)
				}
				left := contents(t, one)
				clock.Advance(time.Second)
				for _, s := range []*Store{other, one} {
					got, err := v.call(ctx, s, held)
					if err != nil || got != want {
						t.Errorf("P13: the copy is answered\n%s, %v\nthe first one was\n%s", got, err, want)
					}
				}
				if got := contents(t, one); theClock.ReplaceAllString(got, "") != theClock.ReplaceAllString(left, "") {
					t.Errorf("P13: the copy has changed\n%s\nto\n%s", left, got)
				}
				wantSound(t, other)
			})
		}
	}
}

// P13: a call with a key has its answer, and is carried out once, when answers between the store
// and its server are lost.
func TestLostAnswerOfAKey(t *testing.T) {
	server := redisrig.Start(t)
	start := time.Unix(1_800_000_000, 0)
	for _, v := range verbs() {
		t.Run(v.name, func(t *testing.T) {
			play := func(lose int) (answer, left string) {
				s, p := openBehind(t, server, &Options{Prefix: fresh(), clock: storekit.NewManualClock(start)})
				held := scene(t, s)
				if lose > 0 {
					defer p.Lose(lose, runs(v.script)).Happened()
				}
				answer, err := v.call(keyedBy(t.Context(), "k"), s, held)
				if err != nil {
					t.Errorf("P13: %s = %v; want an answer", v.name, err)
				}
				return answer, contents(t, s)
			}
			answer, left := play(0)
			if gotAnswer, gotLeft := play(2); gotAnswer != answer || gotLeft != left {
				t.Errorf("P13: the answer is\n%s\nand undisturbed\n%s\nwhat is left behind is\n%s\nand undisturbed\n%s", gotAnswer, answer, gotLeft, left)
			}
		})
	}
}

// P7, P13: of a push of several scripts in several partitions some are refused. A copy of the call
// does what is still to be done, and only that.
func TestPartOfAPushIsDone(t *testing.T) {
	server := redisrig.Start(t)
	loadScripts(t, server)
	s, p := openBehind(t, server, &Options{Prefix: fresh(), Partitions: 4})
	other := openStore(t, connect(t, server), &Options{Prefix: s.opt.Prefix})
	push(t, s, punctual.NewMessage{ID: "first", Delay: time.Hour}) // the topic is there
	ms := make([]punctual.NewMessage, 3000)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "orders", Delay: time.Hour}
	}
	ctx := keyedBy(t.Context(), "k")
	refused := refuseNth(p, 2, script.Push)
	rs, err := s.Push(ctx, ms)
	refused.Happened()
	stored := 0
	for _, r := range rs {
		if r.Err == nil {
			stored++
		} else if !errors.Is(r.Err, punctual.ErrNoSpace) && !errors.Is(r.Err, punctual.ErrUnreachable) {
			t.Fatalf("a part that was refused: %v", r.Err)
		}
	}
	if err != nil || stored == 0 || stored == len(ms) {
		t.Fatalf("%d of %d were stored, %v: this shows nothing", stored, len(ms), err)
	}
	again, err := other.Push(ctx, ms)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range again {
		if r.Status != punctual.PushStored || r.ID != rs[i].ID || rs[i].Err == nil && !r.Due.Equal(rs[i].Due) {
			t.Fatalf("P13: message %d is told %+v by the copy, and was told %+v", i, r, rs[i])
		}
	}
	if stats, err := other.Stats(t.Context(), "orders"); err != nil || stats.Live() != int64(len(ms))+1 {
		t.Errorf("P7: there are %d messages, %v; want %d", stats.Live(), err, len(ms)+1)
	}
}

// P3: a lease that did not reach its caller is given back, but not while a copy of the claim has
// it, too.
func TestUndelivered(t *testing.T) {
	one, other := twoStores(t, Options{})
	push(t, one, punctual.NewMessage{ID: "a", Due: time.Unix(1, 0)})
	ctx := keyedBy(t.Context(), "k")
	claim := func(s *Store, ctx context.Context) []punctual.Delivery {
		t.Helper()
		ds, err := s.Claim(ctx, orders(0))
		if err != nil {
			t.Fatal(err)
		}
		return ds
	}
	first, second := claim(one, ctx), claim(other, ctx)
	if len(first) != 1 || len(second) != 1 || first[0].Token != second[0].Token {
		t.Fatalf("claimed %+v and %+v; want the same lease", first, second)
	}
	if err := one.Undelivered(ctx, first); err != nil {
		t.Fatal(err)
	}
	if ds := claim(one, t.Context()); len(ds) != 0 {
		t.Fatalf("P3: claimed %+v, which a copy was given", ds)
	}
	if err := other.Undelivered(ctx, second); err != nil {
		t.Fatal(err)
	}
	if ds := claim(one, ctx); len(ds) != 1 || ds[0].Attempt != 1 || ds[0].Token == first[0].Token {
		t.Errorf("claimed %+v when nobody had the lease; want a new one, attempt 1", ds)
	}
}

// P3: a lease that its holder has extended is not ended by a copy of the claim that comes after the
// first end of the lease.
func TestCopyBehindTheLease(t *testing.T) {
	clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
	one, other := twoStores(t, Options{clock: clock})
	push(t, one, punctual.NewMessage{ID: "a", Due: time.Unix(1, 0)})
	ctx := keyedBy(t.Context(), "k")
	d, err := one.Claim(ctx, orders(0))
	if err != nil || len(d) != 1 {
		t.Fatalf("claimed %+v, %v", d, err)
	}
	extend := []punctual.Settlement{{Topic: "orders", ID: "a", Token: d[0].Token, Verb: punctual.SettleExtend, Delay: time.Hour}}
	if errs, err := one.Settle(t.Context(), extend); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	clock.Set(d[0].LeaseUntil)
	if ds, err := other.Claim(ctx, orders(0)); err != nil || len(ds) != 0 {
		t.Errorf("P3: the copy claimed %+v, %v; want nothing", ds, err)
	}
	if errs, err := one.Settle(t.Context(), extend); err != nil || errs[0] != nil {
		t.Errorf("P3: the holder has lost his lease: %v, %v", errs, err)
	}
}

// P3: of two copies of a claim that wait, one is given what the other one leases meanwhile, in
// whatever partition.
func TestCopiesThatWait(t *testing.T) {
	one, other := twoStores(t, Options{Partitions: 4})
	push(t, one, punctual.NewMessage{ID: "later", Delay: time.Hour})
	got := make(chan []punctual.Delivery, 2)
	for _, s := range []*Store{one, other} {
		go func() {
			ds, err := s.Claim(keyedBy(t.Context(), "k"), orders(time.Minute))
			if err != nil {
				t.Error(err)
			}
			got <- ds
		}()
		for s.waiters("orders") == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	push(t, one, punctual.NewMessage{ID: "a", Due: time.Unix(1, 0)})
	ds, again := <-got, <-got
	if len(ds) != 1 || len(again) != 1 || ds[0].Token != again[0].Token {
		t.Errorf("claimed %+v, and by the copy %+v; want the same lease", ds, again)
	}
}

// P13: a key belongs to one call, wherever it is used.
func TestKeyOfAnotherCall(t *testing.T) {
	one, other := twoStores(t, Options{})
	ctx := keyedBy(t.Context(), "k")
	if _, err := one.Push(ctx, []punctual.NewMessage{{Topic: "orders", ID: "a"}}); err != nil {
		t.Fatal(err)
	}
	_, err := other.Push(ctx, []punctual.NewMessage{{Topic: "orders", ID: "b"}})
	wantDefinite(t, "another push with the key", err, punctual.ErrInvalid)
	_, err = other.Claim(ctx, orders(0))
	wantDefinite(t, "a claim with the key of a push", err, punctual.ErrInvalid)
	if err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("the error is %v; want it to name the key", err)
	}
}
