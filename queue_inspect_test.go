package punctual_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// The methods of a zero or nil Queue or Topic that return an error return ErrInvalid and do not
// panic.
func TestZeroQueueAndTopic(t *testing.T) {
	ctx := t.Context()
	for name, q := range map[string]*punctual.Queue{"zero": {}, "nil": nil} {
		o := punctual.NewTopic[int](q, "t")
		for call, err := range map[string]error{
			"Push":          second2(q.Push(ctx, "t", nil)),
			"PushMany":      second2(q.PushMany(ctx, make([]punctual.NewMessage, 1))),
			"Cancel":        q.Cancel(ctx, "t", "a"),
			"CancelMany":    second2(q.CancelMany(ctx, "t", []string{"a"})),
			"Reschedule":    second2(q.Reschedule(ctx, "t", "a", punctual.When{})),
			"Requeue":       second2(q.Requeue(ctx, "t", "a", punctual.When{})),
			"Get":           second2(q.Get(ctx, "t", "a")),
			"Stats":         second2(q.Stats(ctx, "t")),
			"Settings":      second2(q.Settings(ctx, "t")),
			"Configure":     second2(q.Configure(ctx, "t", func(*punctual.Settings) {})),
			"Purge":         second2(q.Purge(ctx, punctual.PurgeQuery{Topic: "t"})),
			"Close":         q.Close(ctx),
			"Topic.Push":    second2(o.Push(ctx, 1)),
			"Topic.Cancel":  o.Cancel(ctx, "a"),
			"Topic.Requeue": second2(o.Requeue(ctx, "a", punctual.When{})),
		} {
			if !errors.Is(err, punctual.ErrInvalid) {
				t.Errorf("%s queue: %s: %v; want ErrInvalid", name, call, err)
			}
		}
		var listed []error
		for _, err := range q.List(ctx, punctual.ListQuery{Topic: "t", State: punctual.StateReady}) {
			listed = append(listed, err)
		}
		if len(listed) != 1 || !errors.Is(listed[0], punctual.ErrInvalid) {
			t.Errorf("%s queue: List: %v; want ErrInvalid alone", name, listed)
		}
	}
	for name, o := range map[string]*punctual.Topic[int]{"zero": {}, "nil": nil} {
		_, _, got := o.Get(ctx, "a")
		for call, err := range map[string]error{
			"Push": second2(o.Push(ctx, 1)), "PushMany": second2(o.PushMany(ctx, []int{1}, nil)), "Cancel": o.Cancel(ctx, "a"),
			"Reschedule": second2(o.Reschedule(ctx, "a", punctual.When{})), "Get": got, "CancelMany": second2(o.CancelMany(ctx, nil)),
			"Configure": second2(o.Configure(ctx, nil)),
			"Handler":   o.Handler(nil).Handle(ctx, &punctual.Delivery{}),
		} {
			if !errors.Is(err, punctual.ErrInvalid) {
				t.Errorf("%s topic: %s: %v; want ErrInvalid", name, call, err)
			}
		}
	}
}

func second2[T any](_ T, err error) error { return err }

// Two callers who configure different settings at the same time do not undo each other. Configure
// can also empty a list, and refuses a setting that is not allowed.
func TestQueueConfigure(t *testing.T) {
	q, _ := newQueue(t, nil)
	ctx := t.Context()
	_, err := q.Configure(ctx, "t", func(s *punctual.Settings) {
		if _, err := q.Configure(ctx, "t", func(s *punctual.Settings) { s.MaxAttempts = 5 }); err != nil {
			t.Error(err)
		}
		s.Backoff.Delays = append(s.Backoff.Delays, time.Minute)
		s.Groups = append(s.Groups, "billing")
	})
	set, serr := q.Settings(ctx, "t")
	if err != nil || serr != nil || set.MaxAttempts != 5 || len(set.Backoff.Delays) != 1 || len(set.Groups) != 1 {
		t.Errorf("settings %+v, %v, %v; want both changes", set, err, serr)
	}
	if set, err = q.Configure(ctx, "t", func(s *punctual.Settings) { s.Groups = s.Groups[:0] }); err != nil || len(set.Groups) != 0 || set.MaxAttempts != 5 {
		t.Errorf("settings %+v, %v; want no groups any more", set, err)
	}
	if _, err := q.Configure(ctx, "t", func(s *punctual.Settings) { s.Lease = 0 }); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("a lease of 0: %v; want ErrInvalid", err)
	}
}

func TestQueueListAndPurge(t *testing.T) {
	q, clock := newQueue(t, nil)
	ctx := t.Context()
	const n = 7
	for i := range n {
		mustPush(t, q, "t", "x", punctual.ID(fmt.Sprint(i)))
		discard(t, q, claimOne(t, q, "t"))
		clock.Advance(time.Second)
	}
	var ids string
	for m, err := range q.List(ctx, punctual.ListQuery{Topic: "t", State: punctual.StateDead, Limit: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		if ids += m.ID; len(ids) == 5 {
			break
		}
	}
	if ids != "01234" {
		t.Errorf("listed %s; want the first five", ids)
	}
	if got, err := q.Purge(ctx, punctual.PurgeQuery{Topic: "t", State: punctual.StateDead}); err != nil || got != n {
		t.Errorf("purged %d, %v", got, err)
	}
}

// emptyFirst is a store whose lists begin with an empty page, as lists with a ListQuery.Reason may.
type emptyFirst struct{ *memstore.Store }

func (s emptyFirst) List(ctx context.Context, q punctual.ListQuery) (punctual.Page, error) {
	switch q.After {
	case "":
		return punctual.Page{Next: "go on"}, nil
	case "go on":
		q.After = ""
	}
	return s.Store.List(ctx, q)
}

func TestQueueGoesOnBehindAnEmptyPage(t *testing.T) {
	s := emptyFirst{memstore.New(&memstore.Options{Clock: storekit.NewManualClock(noon)})}
	defer s.Close()
	q := punctual.NewQueue(s, nil)
	mustPush(t, q, "t", "x", punctual.ID("a"))
	discard(t, q, claimOne(t, q, "t"))
	query := punctual.ListQuery{Topic: "t", State: punctual.StateDead, Reason: punctual.ReasonDiscarded}
	n := 0
	for m, err := range q.List(t.Context(), query) {
		if n++; err != nil || m.ID != "a" {
			t.Errorf("listed %s, %v; want a", m.ID, err)
		}
	}
	if n != 1 {
		t.Errorf("%d messages are listed; want 1", n)
	}
}

// Prepare adds to the headers of the message alone, with the caller's context, and may refuse it.
func TestQueuePrepare(t *testing.T) {
	type key struct{}
	var observed []any
	q, _ := newQueue(t, &punctual.QueueConfig{
		Prepare: func(ctx context.Context, m *punctual.NewMessage) error {
			if m.Topic == "forbidden" {
				return errors.New("not here")
			}
			m.Headers["trace"] = fmt.Sprint(ctx.Value(key{}))
			return nil
		},
		Observer: &punctual.Observer{OnPush: func(ctx context.Context, _ punctual.PushResult, _ time.Duration) {
			observed = append(observed, ctx.Value(key{}))
		}},
	})
	ctx := context.WithValue(t.Context(), key{}, "7")
	mine := map[string]string{"k": "v"}
	if _, err := q.Push(ctx, "t", nil, punctual.ID("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := q.PushMany(ctx, []punctual.NewMessage{{Topic: "t", ID: "b", Headers: mine}}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if i, err := q.Get(ctx, "t", id); err != nil || i.Headers["trace"] != "7" {
			t.Errorf("%s: %v, %v; want the header that Prepare added", id, i.Headers, err)
		}
	}
	if len(mine) != 1 {
		t.Errorf("Prepare changed the caller's headers: %v", mine)
	}
	if _, err := q.Push(ctx, "forbidden", nil); err == nil || err.Error() != "push: prepare: not here" {
		t.Errorf("a push that Prepare refuses: %v", err)
	}
	if len(observed) != 3 || observed[0] != "7" || observed[2] != "7" {
		t.Errorf("the observer saw the contexts %v; want three of the caller", observed)
	}
}
