package answers_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/answers"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// counting is a store that carries a call out and counts it, and may return an error nevertheless.
type counting struct {
	*memstore.Store
	err   error
	calls atomic.Int64
}

func (s *counting) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	s.calls.Add(1)
	rs, err := s.Store.Push(ctx, ms)
	return rs, errors.Join(err, s.err)
}

func (s *counting) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	s.calls.Add(1)
	ds, err := s.Store.Claim(ctx, c)
	return ds, errors.Join(err, s.err)
}

func (s *counting) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	s.calls.Add(1)
	errs, err := s.Store.Settle(ctx, ss)
	return errs, errors.Join(err, s.err)
}

func (s *counting) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	s.calls.Add(1)
	out, err := s.Store.Amend(ctx, as)
	return out, errors.Join(err, s.err)
}

// TestIndeterminateIsKept: the copy of a call that may have been carried out is not carried out.
// The copy of a call that certainly was not carried out is, and so is the copy of a failed claim:
// it claims anew, and leases that nobody got run out.
func TestIndeterminateIsKept(t *testing.T) {
	for _, x := range []struct {
		err  error
		want int64 // calls of the store for a call and its copy
	}{
		{fmt.Errorf("the connection broke: %w", punctual.ErrIndeterminate), 1},
		{errors.New("an error that nobody knows"), 1},
		{fmt.Errorf("try later: %w", punctual.ErrOverloaded), 2},
	} {
		for name, call := range map[string]func(ctx context.Context, s punctual.Store) error{
			"push":  func(ctx context.Context, s punctual.Store) error { _, err := s.Push(ctx, one); return err },
			"claim": func(ctx context.Context, s punctual.Store) error { _, err := s.Claim(ctx, claimed); return err },
			"settle": func(ctx context.Context, s punctual.Store) error {
				_, err := s.Settle(ctx, []punctual.Settlement{{Topic: "t", ID: "a", Token: 1, Verb: punctual.SettleAck}})
				return err
			},
			"amend": func(ctx context.Context, s punctual.Store) error {
				_, err := s.Amend(ctx, []punctual.Amendment{{Topic: "t", ID: "a", Change: punctual.ChangeCancel}})
				return err
			},
		} {
			below := &counting{Store: memstore.New(nil), err: x.err}
			s := answers.New(below, nil)
			for range 2 {
				if err := call(request("k"), s); !errors.Is(err, x.err) {
					t.Errorf("%s: %v, want %v", name, err, x.err)
				}
			}
			want := x.want
			if name == "claim" {
				want = 2
			}
			if n := below.calls.Load(); n != want {
				t.Errorf("a %s that ended with %q and its copy called the store %d times, want %d", name, x.err, n, want)
			}
			s.Drain()
		}
	}
}

// paused is a context whose Done blocks the goroutine that calls it until the test lets it go on.
type paused struct {
	context.Context
	asked, goOn chan struct{}
}

func (p paused) Done() <-chan struct{} {
	select {
	case p.asked <- struct{}{}:
		<-p.goOn
	case <-p.goOn:
	}
	return p.Context.Done()
}

// TestUndeliveredBesideACopy: leases that did not reach their caller are not released while a copy
// of the claim is about to get them.
func TestUndeliveredBesideACopy(t *testing.T) {
	below := memstore.New(nil)
	s := answers.New(below, nil)
	push(t, s, one...)
	waiting := punctual.Claim{Topics: []string{"t"}, Max: 1, Wait: time.Minute}
	ds, err := s.Claim(request("k"), waiting)
	if err != nil || len(ds) != 1 {
		t.Fatal(ds, err)
	}
	ctx := paused{request("k"), make(chan struct{}), make(chan struct{})}
	copies := make(chan []punctual.Delivery)
	go func() {
		got, err := s.Claim(ctx, waiting)
		if err != nil {
			t.Errorf("the copy: %v", err)
		}
		copies <- got
	}()
	<-ctx.asked // the copy has found the answer, and does not have it yet
	if err := s.Undelivered(request("k"), ds); err != nil {
		t.Fatal(err)
	}
	close(ctx.goOn)
	got := <-copies
	if len(got) != 1 || got[0].Token != ds[0].Token {
		t.Fatalf("the copy got %v, want %v", got, ds)
	}
	if errs, err := s.Settle(context.Background(), []punctual.Settlement{{Topic: "t", ID: "a", Token: got[0].Token, Verb: punctual.SettleAck}}); err != nil || errs[0] != nil {
		t.Errorf("P3: ack of what the copy was given: %v, %v", errs, err)
	}
}

var _ storekit.Repeater = (*answers.Store)(nil)
