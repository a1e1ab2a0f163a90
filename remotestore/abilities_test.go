package remotestore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// able is a store that counts how often it is asked what it can do. The test sets its reach; with
// one below zero the store answers with an error.
type able struct {
	punctual.Store
	reach atomic.Int32
	asked atomic.Int32
}

func (a *able) Abilities(context.Context) (storekit.Abilities, error) {
	a.asked.Add(1)
	if r := a.reach.Load(); r >= 0 {
		return storekit.Abilities{Follow: storekit.Reach(r)}, nil
	}
	return storekit.Abilities{}, fmt.Errorf("asking: %w", punctual.ErrUnreachable)
}

// Abilities keeps the answer of the server for a minute, and does not keep an error.
func TestAbilities(t *testing.T) {
	below := &able{Store: closing(t, memstore.New(nil), nil)}
	below.reach.Store(-1)
	s := connect(t, nil, serve(t, below, "").url)
	if a, err := s.Abilities(t.Context()); !errors.Is(err, punctual.ErrUnreachable) {
		t.Errorf("of a store that does not say what it can do: %+v, %v; want ErrUnreachable", a, err)
	}
	want := func(r storekit.Reach) {
		t.Helper()
		if a, err := s.Abilities(t.Context()); err != nil || a.Follow != r {
			t.Errorf("abilities: %+v, %v; want %v", a, err, r)
		}
	}
	below.reach.Store(int32(storekit.ReachFamily))
	want(storekit.ReachFamily)
	asked := below.asked.Load()
	below.reach.Store(int32(storekit.ReachAny))
	want(storekit.ReachFamily)
	if n := below.asked.Load() - asked; n != 0 {
		t.Errorf("asked again %d times within the minute", n)
	}
	s.ForgetAbilities()
	want(storekit.ReachAny)
	if n := below.asked.Load() - asked; n != 1 {
		t.Errorf("asked %d times after the minute; want 1", n)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if a, err := s.Abilities(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %+v, %v", a, err)
	}
	plain := connect(t, nil, serve(t, struct{ punctual.Store }{below.Store}, "").url)
	if a, err := plain.Abilities(t.Context()); err != nil || a.Follow != storekit.ReachNone {
		t.Errorf("of a store that is no AbilityReporter: %+v, %v", a, err)
	}
	if names, err := plain.TopicNames(t.Context(), storekit.NameQuery{}); !errors.Is(err, punctual.ErrUnsupported) {
		t.Errorf("names of a store that is no TopicNamer: %v, %v", names, err)
	}
}

// TopicNames returns the names of the topics in order, those that fit the query.
func TestTopicNames(t *testing.T) {
	s := connect(t, nil, serve(t, closing(t, memstore.New(nil), nil), "").url)
	if names, err := s.TopicNames(t.Context(), storekit.NameQuery{}); err != nil || names == nil || len(names) != 0 {
		t.Errorf("of an empty store: %#v, %v", names, err)
	}
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "b@cron"}, {Topic: "a/b@cron"}, {Topic: "b@events"}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		q    storekit.NameQuery
		want []string
	}{
		{storekit.NameQuery{}, []string{"a/b", "a/b@cron", "b", "b@cron", "b@events"}},
		{storekit.NameQuery{Suffix: "@cron"}, []string{"a/b@cron", "b@cron"}},
		{storekit.NameQuery{Prefix: "b@", Suffix: "cron"}, []string{"b@cron"}},
		{storekit.NameQuery{Prefix: "é&="}, []string{}},
	} {
		if names, err := s.TopicNames(t.Context(), c.q); err != nil || !slices.Equal(names, c.want) {
			t.Errorf("%+v: %v, %v; want %v", c.q, names, err, c.want)
		}
	}
	first, err := s.NewCompanions(t.Context(), "", 0)
	if err != nil || first.Names == nil || len(first.Names) != 0 || first.Mark == "" {
		t.Fatalf("the first new companions: %#v, %v", first, err)
	}
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "c@cron"}}); err != nil {
		t.Fatal(err)
	}
	next, err := s.NewCompanions(t.Context(), first.Mark, time.Second)
	if err != nil || !slices.Equal(next.Names, []string{"c@cron"}) {
		t.Errorf("the next new companions: %v, %v", next, err)
	}
	if none, err := s.NewCompanions(t.Context(), next.Mark, time.Millisecond); err != nil || len(none.Names) != 0 {
		t.Errorf("new companions when there are none: %v, %v", none, err)
	}
}
