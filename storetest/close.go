package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// closeCases: is a closed store quiet and honest?
func closeCases() []testCase {
	return []testCase{
		{"every method says closed", p13, closeMethods},
		{"Close twice", p13, closeTwice},
		{"Close under load", p13, closeUnderLoad},
		{"Close while others read everything", p13, closeUnderReaders},
	}
}

func closeMethods(s *harness) {
	d := bringLeased(s)
	s.closeStore()
	calls := map[string]func() error{
		"Push": func() error { _, err := s.store.Push(s.ctx, []punctual.NewMessage{order("y", 0)}); return err },
		"Claim": func() error {
			_, err := s.store.Claim(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 1})
			return err
		},
		"Settle": func() error { _, err := s.store.Settle(s.ctx, []punctual.Settlement{ackOf(d)}); return err },
		"Amend":  func() error { _, err := s.store.Amend(s.ctx, []punctual.Amendment{cancel(orders, x)}); return err },
		"Now":    func() error { _, err := s.store.Now(s.ctx); return err },
		"a waiting Claim": func() error {
			_, err := s.store.Claim(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: time.Hour})
			return err
		},
	}
	if in, err := punctual.As[punctual.Inspector](s.store); err == nil {
		s.inspectorCalls(in, calls)
	}
	if c, err := punctual.As[storekit.Checker](s.store); err == nil {
		calls["Check"] = func() error { _, err := c.Check(s.ctx, nil); return err }
	}
	if k, err := punctual.As[punctual.FinishedKeeper](s.store); err == nil {
		calls["Finished"] = func() error { _, err := k.Finished(s.ctx, orders, x); return err }
		calls["ListFinished"] = func() error { _, err := k.ListFinished(s.ctx, punctual.FinishedQuery{Topic: orders}); return err }
	}
	if v, err := punctual.As[storekit.Surveyor](s.store); err == nil {
		calls["Survey"] = func() error {
			_, err := v.Survey(s.ctx, storekit.SurveyQuery{Edges: []time.Time{noon, noon.Add(time.Hour)}})
			return err
		}
		calls["NextDue"] = func() error { _, err := v.NextDue(s.ctx); return err }
	}
	for name, call := range calls {
		s.wantErr(call(), punctual.ErrClosed, "%s after Close", name)
	}
}

func ackOf(d punctual.Delivery) punctual.Settlement {
	return punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
}

func (s *harness) inspectorCalls(in punctual.Inspector, calls map[string]func() error) {
	calls["Get"] = func() error { _, err := in.Get(s.ctx, orders, x); return err }
	calls["List"] = func() error {
		_, err := in.List(s.ctx, punctual.ListQuery{Topic: orders, State: punctual.StateReady})
		return err
	}
	calls["Topics"] = func() error { _, err := in.Topics(s.ctx); return err }
	calls["Stats"] = func() error { _, err := in.Stats(s.ctx, orders); return err }
	calls["Forecast"] = func() error {
		_, err := in.Forecast(s.ctx, punctual.ForecastQuery{Step: time.Minute, Buckets: 1})
		return err
	}
	calls["Settings"] = func() error { _, err := in.Settings(s.ctx, orders); return err }
	calls["Configure"] = func() error { _, err := in.Configure(s.ctx, orders, punctual.SettingsPatch{}); return err }
	calls["Purge"] = func() error { _, err := in.Purge(s.ctx, punctual.PurgeQuery{Topic: orders}); return err }
	calls["DeleteTopic"] = func() error { _, err := in.DeleteTopic(s.ctx, orders); return err }
}

func closeTwice(s *harness) {
	s.closeStore()
	for range 2 {
		if err := s.callClose(); err != nil && !errors.Is(err, punctual.ErrClosed) {
			s.fail("Close of a closed store: got error %v; want none or %v", err, punctual.ErrClosed)
		}
	}
}

// closeUnderLoad closes while others push, claim and ack.
func closeUnderLoad(s *harness) {
	closeWhile(s, 4, func(ctx context.Context, client, round int) error {
		return s.pushClaimAck(ctx, fmt.Sprint(client, "-", round))
	})
}

// pushClaimAck pushes a message with the ID, claims up to two messages and acks the first one.
func (s *harness) pushClaimAck(ctx context.Context, id string) error {
	if _, err := s.store.Push(ctx, []punctual.NewMessage{order(id, 0)}); err != nil {
		return err
	}
	ds, err := s.store.Claim(ctx, punctual.Claim{Topics: []string{orders}, Max: 2, Wait: time.Hour})
	if err == nil && len(ds) > 0 {
		_, err = s.store.Settle(ctx, []punctual.Settlement{ackOf(ds[0])})
	}
	return err
}

// closeUnderReaders closes while others read all that there is, again and again. Close may end a
// read that is under way or wait for its end. But it must not wait for those that begin later, or
// it would never return here.
func closeUnderReaders(s *harness) {
	in := s.inspector()
	for i := range 4 {
		ms := make([]punctual.NewMessage, 1000)
		for j := range ms {
			ms[j] = order(fmt.Sprint(i, "-", j), time.Hour)
		}
		s.pushAll(ms...)
	}
	reads := []func(ctx context.Context) error{
		func(ctx context.Context) error {
			_, err := in.List(ctx, punctual.ListQuery{Topic: orders, State: punctual.StateScheduled, Limit: 1000})
			return err
		},
		func(ctx context.Context) error { _, err := in.Topics(ctx); return err },
		func(ctx context.Context) error {
			_, err := in.Forecast(ctx, punctual.ForecastQuery{Step: time.Minute, Buckets: 100})
			return err
		},
	}
	if c, err := punctual.As[storekit.Checker](s.store); err == nil {
		reads = append(reads, func(ctx context.Context) error { _, err := c.Check(ctx, nil); return err })
	}
	closeWhile(s, len(reads), func(ctx context.Context, client, _ int) error { return reads[client](ctx) })
}

// closeWhile closes the store while clients use it, each one round after the other. A round must
// succeed or return ErrClosed, and ErrClosed if it began after Close had returned. Close and all
// clients must return within the waitLimit of the case.
func closeWhile(s *harness, clients int, use func(ctx context.Context, client, round int) error) {
	ctx, stop := context.WithCancel(s.ctx)
	var closed atomic.Bool
	var clientsDone sync.WaitGroup
	failures := make(chan error, clients)
	for c := range clients {
		clientsDone.Go(func() {
			failures <- untilClosed(&closed, func(round int) error { return use(ctx, c, round) })
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		clientsDone.Wait()
	}()
	s.Cleanup(func() { // a case that has failed does not leave its clients behind
		stop()
		s.ends(done)
	})
	asleep()
	s.closeStore()
	closed.Store(true)
	if !s.ends(done) {
		s.fail("calls under way when the store was closed have not returned")
	}
	for range clients {
		if err := <-failures; err != nil {
			s.fail("while the store was closed: %v", err)
		}
	}
}

// untilClosed makes one round after the other until one returns ErrClosed. It returns any other
// error of a round, and an error if a round that began after Close had returned succeeds.
func untilClosed(closed *atomic.Bool, use func(round int) error) error {
	for round := 0; ; round++ {
		late := closed.Load()
		err := use(round)
		switch {
		case errors.Is(err, punctual.ErrClosed):
			return nil
		case err != nil:
			return err
		case late:
			return errors.New("a call that began after Close had returned succeeded")
		}
	}
}
