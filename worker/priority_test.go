package worker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/worker"
)

// load is a campaign of 10,000 mails, all due at once, beside codes for logging in. Four slots take
// 10 ms for each message, so they do 400 a second.
type load struct {
	codes    int           // how many codes there are
	every    time.Duration // how long after one code the next is due
	strict   bool
	oneTopic bool // of codes and mails
	weight   int  // of the codes
}

// waits are how long the codes were ready before they were claimed, sorted.
type waits []time.Duration

func (w waits) at(share float64) time.Duration {
	return w[int(share*float64(len(w)-1))].Round(time.Millisecond)
}

// run returns how long the codes waited, how many mails were done when the last code was, and when
// the last mail was done.
func (l load) run(t *testing.T) (w waits, beside int, all time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		begin := time.Now()
		codes := "codes"
		if l.oneTopic {
			codes = "mails"
		}
		var ms []punctual.NewMessage
		for range 10_000 {
			ms = append(ms, punctual.NewMessage{Topic: "mails", Body: []byte("mail"), Due: begin})
		}
		if _, err := store.Push(t.Context(), ms); err != nil {
			t.Fatal(err)
		}
		ms = ms[:0]
		for i := range l.codes {
			ms = append(ms, punctual.NewMessage{Topic: codes, Body: []byte("code"), Due: begin.Add(time.Duration(i+1) * l.every)})
		}
		if _, err := store.Push(t.Context(), ms); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		mails := 0
		done := make(chan struct{})
		handle := punctual.HandlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if string(d.Body) == "mail" {
				mails++
			} else if w = append(w, d.ReadyFor()); len(w) == l.codes {
				beside = mails
			}
			if mails+len(w) == 10_000+l.codes {
				all = time.Since(begin)
				close(done)
			}
			return nil
		})
		k := worker.New(store, &worker.Config{Concurrency: 4, Strict: l.strict})
		if !l.oneTopic {
			k.Handle("codes", handle, worker.Weight(max(1, l.weight)))
		}
		k.Handle("mails", handle)
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-done
		if err := k.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	slices.Sort(w)
	return w, beside, all
}

// TestSlowPriorities shows what docs/priorities.md says: with a topic for each rank a code does not
// wait for a campaign, and the campaign is not held up more than the order asks for.
func TestSlowPriorities(t *testing.T) {
	few := func(l load) (waits, time.Duration) {
		l.codes, l.every = 200, 100*time.Millisecond
		w, _, all := l.run(t)
		t.Logf("%+v: codes wait %v, at most %v, the last mail is done after %v", l, w.at(0.5), w.at(1), all)
		return w, all
	}
	if w, all := few(load{oneTopic: true}); w.at(0.5) < 10*time.Second || all > 26*time.Second {
		t.Errorf("in one topic codes wait %v, and all is done after %v: this test shows nothing", w.at(0.5), all)
	}
	for _, l := range []load{{}, {weight: 9}, {strict: true}} {
		if w, all := few(l); w.at(1) > 10*time.Millisecond || all > 37*time.Second {
			t.Errorf("%+v: codes wait up to %v, and the mails are done after %v", l, w.at(1), all)
		}
	}
	flood := func(l load) (longest time.Duration, mails int) {
		l.codes, l.every = 5000, 2*time.Millisecond
		w, mails, _ := l.run(t)
		t.Logf("%+v: codes wait up to %v, and %d mails are done beside them", l, w.at(1), mails)
		return w.at(1), mails
	}
	plain, besidePlain := flood(load{})
	weighed, besideWeighed := flood(load{weight: 9})
	strict, besideStrict := flood(load{strict: true})
	if plain < weighed*3/2 || weighed < strict || besidePlain < 2*besideWeighed || besideWeighed < besideStrict || besideStrict < 1000 {
		t.Errorf("under a flood of codes: %v and %d mails, with a weight %v and %d, strictly %v and %d", plain, besidePlain, weighed, besideWeighed, strict, besideStrict)
	}
}
