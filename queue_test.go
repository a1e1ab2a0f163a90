package punctual_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	hungrig "github.com/punctualmq/punctual/internal/rigs/hung"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"go.uber.org/goleak"
)

// fakeStore answers pushes and amendments as the test says; anything else panics.
type fakeStore struct {
	punctual.Store
	push  func(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error)
	amend func(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error)
}

func (s *fakeStore) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return s.push(ctx, ms)
}

func (s *fakeStore) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	return s.amend(ctx, as)
}

func stored(_ context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	rs := make([]punctual.PushResult, len(ms))
	for i, m := range ms {
		rs[i] = punctual.PushResult{ID: m.ID, Topic: m.Topic, Status: punctual.PushStored}
	}
	return rs, nil
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// newQueue returns a queue on a store in memory whose clock the test moves.
func newQueue(t *testing.T, c *punctual.QueueConfig) (*punctual.Queue, *storekit.ManualClock) {
	t.Helper()
	clock := storekit.NewManualClock(noon)
	s := memstore.New(&memstore.Options{Clock: clock})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	return punctual.NewQueue(s, c), clock
}

func mustPush(t *testing.T, q *punctual.Queue, topic, body string, opts ...punctual.PushOption) punctual.PushResult {
	t.Helper()
	r, err := q.Push(t.Context(), topic, []byte(body), opts...)
	if err != nil {
		t.Fatalf("push: %v", err)
	}
	return r
}

func claimOne(t *testing.T, q *punctual.Queue, topic string) punctual.Delivery {
	t.Helper()
	ds, err := q.Store().Claim(t.Context(), punctual.Claim{Topics: []string{topic}, Max: 1})
	if err != nil || len(ds) != 1 {
		t.Fatalf("claim: %d messages, %v: want one", len(ds), err)
	}
	return ds[0]
}

// wantMoved returns a function that checks the answer of a reschedule or requeue: its error, and
// that it has a due time if and only if there is no error.
func wantMoved(t *testing.T, want error) func(time.Time, error) {
	return func(due time.Time, err error) {
		t.Helper()
		wantErr(t, want, err)
		if due.IsZero() == (want == nil) {
			t.Errorf("due %v, %v", due, err)
		}
	}
}

func wantErr(t *testing.T, want, err error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%v: want %v", err, want)
	}
}

func TestQueueLifeOfAMessage(t *testing.T) {
	q, clock := newQueue(t, nil)
	ctx := t.Context()
	r := mustPush(t, q, "order", "1", punctual.In(30*time.Minute))
	if r.Status != punctual.PushStored || len(r.ID) != 26 || !r.Due.Equal(noon.Add(30*time.Minute)) {
		t.Errorf("push: %+v", r)
	}
	wantMoved(t, nil)(q.Reschedule(ctx, "order", r.ID, punctual.In(time.Minute)))
	wantMoved(t, punctual.ErrNotDead)(q.Requeue(ctx, "order", r.ID, punctual.When{}))
	clock.Advance(time.Minute)
	d := claimOne(t, q, "order")
	wantMoved(t, punctual.ErrLeased)(q.Reschedule(ctx, "order", r.ID, punctual.When{}))
	discard(t, q, d)
	wantErr(t, punctual.ErrNotFound, q.Cancel(ctx, "order", r.ID))
	wantMoved(t, nil)(q.Requeue(ctx, "order", r.ID, punctual.At(noon.Add(time.Hour))))
	wantErr(t, nil, q.Cancel(ctx, "order", r.ID))
	wantErr(t, punctual.ErrNotFound, q.Cancel(ctx, "order", r.ID))
}

func discard(t *testing.T, q *punctual.Queue, d punctual.Delivery) {
	t.Helper()
	errs, err := q.Store().Settle(t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleDiscard, Error: "no"}})
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatalf("discard: %v", err)
	}
}

func TestQueueRefusedItemIsAnError(t *testing.T) {
	q, _ := newQueue(t, nil)
	mustPush(t, q, "t", "1", punctual.ID("a"))
	for name, test := range map[string]struct {
		topic string
		opts  []punctual.PushOption
		kind  error
	}{
		"taken ID":       {"t", []punctual.PushOption{punctual.ID("a"), punctual.FailIfExists()}, punctual.ErrDuplicate},
		"no topic":       {"", nil, punctual.ErrInvalid},
		"negative delay": {"t", []punctual.PushOption{punctual.In(-1)}, punctual.ErrInvalid},
		"year 10000":     {"t", []punctual.PushOption{punctual.At(limits.MaxDue.Add(1))}, punctual.ErrInvalid},
		"large header":   {"t", []punctual.PushOption{punctual.Header("k", strings.Repeat("v", limits.MaxHeaderBytes))}, punctual.ErrTooLarge},
	} {
		r, err := q.Push(t.Context(), test.topic, nil, test.opts...)
		if !errors.Is(err, test.kind) || !errors.Is(r.Err, test.kind) || !punctual.Definite(err) || r.Status != punctual.PushNone {
			t.Errorf("%s: %v, result %+v: want %v", name, err, r, test.kind)
		}
	}
	if err := q.Cancel(t.Context(), "t", ""); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("cancel of no ID: %v: want ErrInvalid", err)
	}
	if _, err := q.Reschedule(t.Context(), "t", "a", punctual.In(-1)); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("reschedule to level 99: %v: want ErrInvalid", err)
	}
	if _, err := q.RescheduleMany(t.Context(), "t", []string{"a"}, punctual.In(-1)); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("reschedule of many to level 99: %v: want ErrInvalid", err)
	}
}

func TestQueueManyByID(t *testing.T) {
	q, clock := newQueue(t, &punctual.QueueConfig{MaxBatch: 2})
	ctx := t.Context()
	ids := []string{"a", "b", "none", "c", "d"}
	for _, id := range []string{"a", "b", "c", "d"} {
		mustPush(t, q, "t", id, punctual.ID(id), punctual.In(time.Hour))
	}
	outs, err := q.RescheduleMany(ctx, "t", ids, punctual.In(0))
	wantCodes(t, outs, err, "", "", "not_found", "", "")
	clock.Advance(time.Second)
	discard(t, q, claimOne(t, q, "t"))
	outs, err = q.RequeueMany(ctx, "t", ids, punctual.When{})
	wantCodes(t, outs, err, "", "not_dead", "not_found", "not_dead", "not_dead")
	outs, err = q.CancelMany(ctx, "t", ids)
	wantCodes(t, outs, err, "", "", "not_found", "", "")
}

// wantCodes checks the code of each answer, and that the error of the call is a BatchError that
// says so. want has at least one failure and one success.
func wantCodes(t *testing.T, outs []punctual.Amended, err error, want ...string) {
	t.Helper()
	if len(outs) != len(want) {
		t.Fatalf("%d answers, %v: want %d", len(outs), err, len(want))
	}
	failed, first := 0, ""
	for _, code := range want {
		if code != "" {
			failed++
			first = cmp.Or(first, code)
		}
	}
	b := (*punctual.BatchError)(nil)
	if !errors.As(err, &b) || b.Failed != failed || b.Total != len(want) || storekit.ErrorCode(err) != first || punctual.Definite(err) {
		t.Errorf("%v: want %d of %d failed, the first with %s; not definite, since others were done", err, failed, len(want), first)
	}
	for i, o := range outs {
		if storekit.ErrorCode(o.Err) != want[i] {
			t.Errorf("item %d: %v: want %q", i, o.Err, want[i])
		}
	}
}

func TestQueuePushMany(t *testing.T) {
	var parts []int
	s := &fakeStore{push: func(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
		parts = append(parts, len(ms))
		return stored(ctx, ms)
	}}
	q := punctual.NewQueue(s, &punctual.QueueConfig{MaxBatch: 10})
	ms := make([]punctual.NewMessage, 25)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "t", ID: fmt.Sprint(i)}
	}
	ms[12].Body = make([]byte, 5<<20) // larger than the bytes of a part
	rs, err := q.PushMany(t.Context(), ms)
	if err != nil || len(rs) != len(ms) {
		t.Fatalf("%d results, %v: want %d", len(rs), err, len(ms))
	}
	for i, r := range rs {
		if r.ID != ms[i].ID || r.Status != punctual.PushStored {
			t.Errorf("result %d is %+v", i, r)
		}
	}
	if got, want := fmt.Sprint(parts), "[10 2 1 10 2]"; got != want {
		t.Errorf("parts %s: want %s", got, want)
	}
	if rs, err := q.PushMany(t.Context(), nil); err != nil || len(rs) != 0 {
		t.Errorf("a push of nothing: %v, %v", rs, err)
	}
}

// PushMany returns an error when a single item failed, so that nobody overlooks it. The error is
// definite only if all items failed.
func TestQueueManyErrors(t *testing.T) {
	q, _ := newQueue(t, nil)
	ctx := t.Context()
	good, bad := punctual.NewMessage{Topic: "t"}, punctual.NewMessage{Topic: "t", Delay: -1}
	for name, test := range map[string]struct {
		ms       []punctual.NewMessage
		failed   int
		definite bool
		text     string
	}{
		"all good": {ms: []punctual.NewMessage{good, good}},
		"one bad":  {ms: []punctual.NewMessage{good, bad, good}, failed: 1, text: "push: 1 of 3 failed, the first with: delay -1ns is negative"},
		"all bad":  {ms: []punctual.NewMessage{bad, bad}, failed: 2, definite: true, text: "push: 2 of 2 failed"},
		"the one":  {ms: []punctual.NewMessage{bad}, failed: 1, definite: true, text: "push: delay -1ns"},
	} {
		rs, err := q.PushMany(ctx, test.ms)
		if len(rs) != len(test.ms) {
			t.Errorf("%s: %d results", name, len(rs))
		}
		if test.failed == 0 {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		b := (*punctual.BatchError)(nil)
		if !errors.As(err, &b) || b.Failed != test.failed || b.Total != len(test.ms) || !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%s: %v: want a BatchError with %d failed", name, err, test.failed)
		} else if punctual.Definite(err) != test.definite || !strings.HasPrefix(err.Error(), test.text) {
			t.Errorf("%s: %v, definite %t: want %q, definite %t", name, err, punctual.Definite(err), test.text, test.definite)
		}
	}
}

// The errors of a store may begin with the name of the operation or not. Either way the error of
// the queue has that name at most once.
func TestQueueNamesTheOperationOnce(t *testing.T) {
	ctx := t.Context()
	one := punctual.NewMessage{Topic: "t", ID: "a"}
	for _, text := range []string{"push: no route", "no route"} {
		failure := fmt.Errorf("%s: %w", text, punctual.ErrUnreachable)
		for name, s := range map[string]*fakeStore{
			"call": {push: func(context.Context, []punctual.NewMessage) ([]punctual.PushResult, error) { return nil, failure }},
			"item": {push: func(_ context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
				rs := make([]punctual.PushResult, len(ms))
				for i := range rs {
					rs[i].Err = failure
				}
				return rs, nil
			}},
		} {
			q := punctual.NewQueue(s, nil)
			_, single := q.Push(ctx, "t", nil)
			_, alone := q.PushMany(ctx, []punctual.NewMessage{one})
			_, many := q.PushMany(ctx, []punctual.NewMessage{one, one})
			for call, err := range map[string]error{"Push": single, "PushMany of one": alone, "PushMany of two": many} {
				if err == nil || strings.Count(err.Error(), "push: ") != 1 || !strings.Contains(err.Error(), "no route") || !errors.Is(err, punctual.ErrUnreachable) {
					t.Errorf("%s, failed %s that says %q: %v", call, name, text, err)
				}
			}
		}
	}
}

func TestQueuePushManyPartFails(t *testing.T) {
	calls := 0
	s := &fakeStore{push: func(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
		if calls++; calls == 2 {
			return nil, fmt.Errorf("part: %w", punctual.ErrNoSpace)
		}
		return stored(ctx, ms)
	}}
	q := punctual.NewQueue(s, &punctual.QueueConfig{MaxBatch: 2})
	ms := make([]punctual.NewMessage, 5)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "t", ID: fmt.Sprint(i)}
	}
	rs, err := q.PushMany(t.Context(), ms)
	if !errors.Is(err, punctual.ErrNoSpace) || punctual.Definite(err) {
		t.Errorf("P13: %v: want ErrNoSpace, not definite since other parts were stored", err)
	}
	if len(rs) != len(ms) {
		t.Fatalf("%d results for %d messages", len(rs), len(ms))
	}
	for i, r := range rs {
		failed := i == 2 || i == 3
		if failed != (r.Err != nil) || failed && !punctual.Definite(r.Err) || r.ID != ms[i].ID {
			t.Errorf("P13: result %d is %+v", i, r)
		}
	}
	calls = 1
	if _, err := q.PushMany(t.Context(), ms[:2]); !errors.Is(err, punctual.ErrNoSpace) || !punctual.Definite(err) {
		t.Errorf("P13: %v: want a definite ErrNoSpace, nothing was stored", err)
	}
}

func TestQueuePushManyContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &fakeStore{push: func(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
		cancel()
		return stored(ctx, ms)
	}}
	q := punctual.NewQueue(s, &punctual.QueueConfig{MaxBatch: 1})
	rs, err := q.PushMany(ctx, []punctual.NewMessage{{Topic: "t"}, {Topic: "t"}})
	if !errors.Is(err, context.Canceled) || punctual.Definite(err) || len(rs) != 2 {
		t.Fatalf("%v, %v: want the context's error and both results", rs, err)
	}
	if rs[0].Err != nil || !errors.Is(rs[1].Err, context.Canceled) || !punctual.Definite(rs[1].Err) {
		t.Errorf("P13: results %+v", rs)
	}
}

// A caller may change the body once Push has returned, even when the store still reads the message,
// because the queue has a copy.
func TestQueuePushKeepsItsOwnBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, body := make(chan struct{}), []byte("mine")
		var seen string
		s := &fakeStore{push: func(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			<-read
			seen = string(ms[0].Body)
			return stored(ctx, ms)
		}}
		q := punctual.NewQueue(s, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := q.Push(ctx, "t", body); !errors.Is(err, punctual.ErrIndeterminate) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("P13: %v: want ErrIndeterminate and the deadline", err)
		}
		copy(body, "gone")
		close(read)
		if err := q.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
		if seen != "mine" {
			t.Errorf("the store read %q: want the body as pushed", seen)
		}
	})
}

func TestQueueOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		land := make(chan struct{})
		s := &fakeStore{push: func(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			<-land
			return stored(ctx, ms)
		}}
		q := punctual.NewQueue(s, &punctual.QueueConfig{MaxPendingBytes: 10_000})
		var wg sync.WaitGroup
		wg.Go(func() { mustPush(t, q, "t", strings.Repeat("x", 8000)) })
		synctest.Wait()
		_, err := q.Push(t.Context(), "t", make([]byte, 8000))
		if !errors.Is(err, punctual.ErrOverloaded) || !punctual.Definite(err) {
			t.Errorf("P10: %v: want ErrOverloaded", err)
		}
		close(land)
		wg.Wait()
		mustPush(t, q, "t", strings.Repeat("x", 8000))
	})
}

func TestQueueClosed(t *testing.T) {
	q, _ := newQueue(t, nil)
	if err := q.Close(t.Context()); err != nil {
		t.Fatalf("close: %v", err)
	}
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"Push":           func() error { _, err := q.Push(ctx, "t", nil); return err },
		"PushMany":       func() error { _, err := q.PushMany(ctx, nil); return err },
		"Cancel":         func() error { return q.Cancel(ctx, "t", "a") },
		"Delete":         func() error { return q.Delete(ctx, "t", "a") },
		"CancelMany":     func() error { _, err := q.CancelMany(ctx, "t", nil); return err },
		"Reschedule":     func() error { _, err := q.Reschedule(ctx, "t", "a", punctual.When{}); return err },
		"RescheduleMany": func() error { _, err := q.RescheduleMany(ctx, "t", nil, punctual.When{}); return err },
		"Requeue":        func() error { _, err := q.Requeue(ctx, "t", "a", punctual.When{}); return err },
		"RequeueMany":    func() error { _, err := q.RequeueMany(ctx, "t", nil, punctual.When{}); return err },
	} {
		if err := call(); !errors.Is(err, punctual.ErrClosed) || !punctual.Definite(err) {
			t.Errorf("%s after Close: %v: want ErrClosed", name, err)
		}
	}
	if _, err := q.Store().Now(ctx); err != nil {
		t.Errorf("Close closed the store: %v", err)
	}
}

func TestQueueCloseWaitsForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		land := make(chan struct{})
		s := &fakeStore{amend: func(_ context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
			<-land
			return make([]punctual.Amended, len(as)), nil
		}}
		q := punctual.NewQueue(s, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := q.CancelMany(t.Context(), "t", []string{"a"}); err != nil {
				t.Errorf("cancel: %v", err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := q.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close while a call is under way: %v: want the deadline", err)
		}
		close(land)
		if err := q.Close(t.Context()); err != nil {
			t.Errorf("close again: %v", err)
		}
		wg.Wait()
	})
}

// Amendments are refused as soon as Close begins, also while it waits for a push.
func TestQueueCloseRefusesBesideAPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		land := make(chan struct{})
		s := &fakeStore{
			push: func(_ context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
				<-land
				return make([]punctual.PushResult, len(ms)), nil
			},
			amend: func(_ context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
				return make([]punctual.Amended, len(as)), nil
			},
		}
		q := punctual.NewQueue(s, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := q.Push(t.Context(), "t", nil); err != nil {
				t.Errorf("push: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if err := q.Close(t.Context()); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		synctest.Wait()
		if err := q.Cancel(t.Context(), "t", "a"); !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("cancel while Close waits for a push: %v; want ErrClosed", err)
		}
		close(land)
		wg.Wait()
	})
}

func TestQueueBadConfig(t *testing.T) {
	s := memstore.New(nil)
	defer s.Close()
	for name, q := range map[string]*punctual.Queue{
		"no store":         punctual.NewQueue(nil, nil),
		"negative batch":   punctual.NewQueue(s, &punctual.QueueConfig{MaxBatch: -1}),
		"large batch":      punctual.NewQueue(s, &punctual.QueueConfig{MaxBatch: limits.MaxBatch + 1}),
		"negative pending": punctual.NewQueue(s, &punctual.QueueConfig{MaxPendingBytes: -1}),
	} {
		r, err := q.Push(t.Context(), "t", nil)
		_, many := q.PushMany(t.Context(), make([]punctual.NewMessage, 1))
		cancelled := q.Cancel(t.Context(), "t", "a")
		_, cancelledMany := q.CancelMany(t.Context(), "t", []string{"a"})
		for _, err := range []error{err, r.Err, many, cancelled, cancelledMany} {
			if !errors.Is(err, punctual.ErrInvalid) {
				t.Errorf("%s: %v: want ErrInvalid", name, err)
			}
		}
	}
}

func TestQueueObserver(t *testing.T) {
	var seen []string
	o := &punctual.Observer{
		OnPush: func(_ context.Context, r punctual.PushResult, _ time.Duration) {
			seen = append(seen, fmt.Sprintf("push %s %s %s", r.Topic, r.Status, storekit.ErrorCode(r.Err)))
		},
		OnAmend: func(_ context.Context, a punctual.Amendment, o punctual.Amended, _ time.Duration) {
			seen = append(seen, fmt.Sprintf("%s %s %s", a.Change, a.ID, storekit.ErrorCode(o.Err)))
		},
	}
	q, _ := newQueue(t, &punctual.QueueConfig{Observer: o})
	ctx := t.Context()
	mustPush(t, q, "t", "1", punctual.ID("a"))
	if _, err := q.Push(ctx, "t", nil, punctual.In(-1)); err == nil {
		t.Error("a negative delay passed")
	}
	if _, err := q.PushMany(ctx, []punctual.NewMessage{{Topic: "u", ID: "b"}, {Topic: "t", ID: "a"}}); err != nil {
		t.Errorf("push: %v", err)
	}
	wantErr(t, nil, q.Cancel(ctx, "t", "a"))
	if _, err := q.CancelMany(ctx, "u", []string{"b", "c"}); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("cancel: %v", err)
	}
	want := []string{
		"push t stored ", "push t  invalid", "push u stored ", "push t duplicate ",
		"cancel a ", "cancel b ", "cancel c not_found",
	}
	if got := strings.Join(seen, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the observer saw:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

// Of single pushes from many goroutines each gets the ID of its own message, and all messages are
// stored.
func TestQueueManyPushers(t *testing.T) {
	q, _ := newQueue(t, nil)
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			id := fmt.Sprintf("id-%d", i)
			r, err := q.Push(t.Context(), "t", []byte(id), punctual.ID(id), punctual.In(time.Hour))
			if err != nil || r.ID != id || r.Status != punctual.PushStored {
				t.Errorf("push %s: %+v, %v", id, r, err)
			}
		})
	}
	wg.Wait()
	inspector, err := punctual.As[punctual.Inspector](q.Store())
	if err != nil {
		t.Fatal(err)
	}
	stats, err := inspector.Stats(t.Context(), "t")
	if err != nil || stats.Scheduled != 1000 {
		t.Errorf("P1: %d messages scheduled, %v: want 1000", stats.Scheduled, err)
	}
}

func TestQueueAmendFailsAsAWhole(t *testing.T) {
	s := &fakeStore{amend: func(context.Context, []punctual.Amendment) ([]punctual.Amended, error) {
		return nil, fmt.Errorf("network: %w", punctual.ErrIndeterminate)
	}}
	q := punctual.NewQueue(s, nil)
	err := q.Cancel(t.Context(), "t", "a")
	if !errors.Is(err, punctual.ErrIndeterminate) || !strings.HasPrefix(err.Error(), "cancel: ") {
		t.Errorf("P13: cancel: %v: want ErrIndeterminate that names the operation", err)
	}
	outs, err := q.RequeueMany(t.Context(), "t", []string{"a", "b"}, punctual.When{})
	if !errors.Is(err, punctual.ErrIndeterminate) || len(outs) != 2 || !errors.Is(outs[1].Err, punctual.ErrIndeterminate) {
		t.Errorf("P13: requeue: %+v, %v: want ErrIndeterminate for both", outs, err)
	}
}

func BenchmarkQueuePush(b *testing.B) {
	q := punctual.NewQueue(&fakeStore{push: stored}, nil)
	body := make([]byte, 100)
	b.ReportAllocs()
	b.SetParallelism(32) // times GOMAXPROCS
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := q.Push(b.Context(), "t", body, punctual.In(time.Hour)); err != nil {
				b.Error(err)
			}
		}
	})
}

// A BatchError is definite only if every item certainly was not done (P13), whichever items came
// first.
func TestBatchErrorsAreHonest(t *testing.T) {
	outcomes := []error{nil, punctual.ErrNoSpace, punctual.ErrIndeterminate, errors.New("an error that nobody knows")}
	for n := range len(outcomes) * len(outcomes) * len(outcomes) {
		errs := []error{outcomes[n%4], outcomes[n/4%4], outcomes[n/16]}
		s := &fakeStore{
			push: func(_ context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
				rs := make([]punctual.PushResult, len(ms))
				for i := range ms {
					if rs[i].Err = errs[i]; errs[i] == nil {
						rs[i].Status = punctual.PushStored
					}
				}
				return rs, nil
			},
			amend: func(_ context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
				out := make([]punctual.Amended, len(as))
				for i := range as {
					out[i].Err = errs[i]
				}
				return out, nil
			},
		}
		q := punctual.NewQueue(s, nil)
		_, pushed := q.PushMany(t.Context(), make([]punctual.NewMessage, len(errs)))
		_, moved := q.RescheduleMany(t.Context(), "t", []string{"a", "b", "c"}, punctual.In(time.Hour))
		_, cancelled := q.CancelMany(t.Context(), "t", []string{"a", "b", "c"})
		failed := slices.ContainsFunc(errs, func(err error) bool { return err != nil })
		untouched := !slices.ContainsFunc(errs, func(err error) bool { return err == nil || !punctual.Definite(err) })
		for name, err := range map[string]error{"push": pushed, "reschedule": moved, "cancel": cancelled} {
			if (err != nil) != failed || failed && punctual.Definite(err) != untouched {
				t.Errorf("P13: %s whose items ended with %v: %v, definite %v; want %v", name, errs, err, punctual.Definite(err), untouched)
			}
		}
	}
}

// The calls of a Queue for a topic that hangs delay those for other topics by at most 1 s (P14).
// Each test first shows that the call for the hung topic hangs, and then that the calls for the
// other topics return.

// healthy are the topics beside the hung one.
var healthy = []string{"a", "b", "c"}

// isolated is how long a healthy topic may have to wait for a hung one (P14).
const isolated = time.Second

// eachOwn calls f for the hung topic, waits until it hangs, and calls f for each healthy one. It
// returns those for which f returned in time.
func eachOwn(t *testing.T, s *hungrig.Store, f func(topic string)) (inTime []string) {
	t.Helper()
	var mu sync.Mutex
	call := func(topic string) {
		f(topic)
		mu.Lock()
		defer mu.Unlock()
		inTime = append(inTime, topic)
	}
	var calls sync.WaitGroup
	calls.Go(func() { call(hungrig.Topic) })
	synctest.Wait()
	s.WantHanging(t)
	for _, topic := range healthy {
		calls.Go(func() { call(topic) })
	}
	time.Sleep(isolated)
	synctest.Wait()
	s.WantHanging(t)
	mu.Lock()
	out := slices.Sorted(slices.Values(inTime))
	mu.Unlock()
	s.Mend()
	calls.Wait()
	return out
}

func TestQueuePushesBesideAHungTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hungrig.New(memstore.New(nil), "push")
		q := punctual.NewQueue(s, nil)
		got := eachOwn(t, s, func(topic string) {
			if _, err := q.Push(t.Context(), topic, nil); err != nil {
				t.Errorf("push to %s: %v", topic, err)
			}
		})
		if !slices.Equal(got, healthy) {
			t.Errorf("P14: within %v pushes to %q returned, want those to %q", isolated, got, healthy)
		}
	})
}

func TestQueueCancelsBesideAHungTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hungrig.New(memstore.New(nil), "amend")
		q := punctual.NewQueue(s, nil)
		got := eachOwn(t, s, func(topic string) {
			if err := q.Cancel(t.Context(), topic, "x"); !errors.Is(err, punctual.ErrNotFound) {
				t.Errorf("cancel in %s: %v", topic, err)
			}
		})
		if !slices.Equal(got, healthy) {
			t.Errorf("P14: within %v cancels in %q returned, want those in %q", isolated, got, healthy)
		}
	})
}

// TestMain fails the package's tests when a goroutine outlives them.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
