package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
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
	if c, err := punctual.As[punctual.Checker](s.store); err == nil {
		calls["Check"] = func() error { _, err := c.Check(s.ctx, nil); return err }
	}
	if k, err := punctual.As[punctual.FinishedKeeper](s.store); err == nil {
		calls["Finished"] = func() error { _, err := k.Finished(s.ctx, orders, x); return err }
		calls["ListFinished"] = func() error { _, err := k.ListFinished(s.ctx, punctual.FinishedQuery{Topic: orders}); return err }
	}
	if v, err := punctual.As[punctual.Surveyor](s.store); err == nil {
		calls["Survey"] = func() error {
			_, err := v.Survey(s.ctx, punctual.SurveyQuery{Edges: []time.Time{noon, noon.Add(time.Hour)}})
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
		if err := s.store.Close(); err != nil && !errors.Is(err, punctual.ErrClosed) {
			s.fail("Close of a closed store: got error %v; want none or %v", err, punctual.ErrClosed)
		}
	}
}

// closeUnderLoad closes while others push, claim and ack.
func closeUnderLoad(s *harness) {
	closeWhile(s, 4, func(client int) error { return useUntilClosed(s, client) })
}

// closeUnderReaders closes while others read all that there is, which may last longer than anything
// else. Close must end the reading, and each reader must soon get ErrClosed.
func closeUnderReaders(s *harness) {
	in := s.inspector()
	for i := range 4 {
		ms := make([]punctual.NewMessage, 1000)
		for j := range ms {
			ms[j] = order(fmt.Sprint(i, "-", j), time.Hour)
		}
		s.pushAll(ms...)
	}
	reads := []func() error{
		func() error {
			_, err := in.List(s.ctx, punctual.ListQuery{Topic: orders, State: punctual.StateScheduled, Limit: 1000})
			return err
		},
		func() error { _, err := in.Topics(s.ctx); return err },
		func() error {
			_, err := in.Forecast(s.ctx, punctual.ForecastQuery{Step: time.Minute, Buckets: 100})
			return err
		},
	}
	if c, err := punctual.As[punctual.Checker](s.store); err == nil {
		reads = append(reads, func() error { _, err := c.Check(s.ctx, nil); return err })
	}
	closeWhile(s, len(reads), func(client int) error {
		for {
			if err := reads[client](); errors.Is(err, punctual.ErrClosed) {
				return nil
			} else if err != nil {
				return err
			}
		}
	})
}

// closeWhile closes the store while clients use it. use calls the store until a call returns an error, and returns nil if that is
// ErrClosed, else that error, which fails the case. All clients must return within the waitLimit of the case.
func closeWhile(s *harness, clients int, use func(client int) error) {
	var clientsDone sync.WaitGroup
	failures := make(chan error, clients)
	for c := range clients {
		clientsDone.Go(func() {
			if err := use(c); err != nil {
				failures <- err
			}
		})
	}
	asleep()
	done := make(chan struct{})
	go func() {
		defer close(done)
		clientsDone.Wait()
	}()
	s.closeStore()
	timer := time.NewTimer(s.opener.waitLimit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		s.fail("calls under way when the store was closed have not returned")
	}
	close(failures)
	for err := range failures {
		s.fail("while the store was closed: %v", err)
	}
}

// useUntilClosed pushes, claims and acks until a call returns ErrClosed. It returns any other error of a call.
func useUntilClosed(s *harness, client int) error {
	for i := 0; ; i++ {
		_, err := s.store.Push(s.ctx, []punctual.NewMessage{order(fmt.Sprint(client, "-", i), 0)})
		if err == nil {
			var ds []punctual.Delivery
			ds, err = s.store.Claim(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 2, Wait: time.Hour})
			if err == nil && len(ds) > 0 {
				_, err = s.store.Settle(s.ctx, []punctual.Settlement{ackOf(ds[0])})
			}
		}
		if errors.Is(err, punctual.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
