package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

// togetherCases: what if several clients do the same at the same time? races.Run goes
// further; these cases say plainly what went wrong.
func togetherCases() []testCase {
	return []testCase{
		{"pushes of one ID", p7, togetherPush},
		{"claims of the same messages", p3, togetherClaim},
		{"cancel and claim", p5, togetherCancel},
		{"reschedule and claim", p5, togetherReschedule},
		{"acks of one lease", p4, togetherAck},
	}
}

// clients runs f in n goroutines and waits for all. The error of one fails the case.
func (s *harness) clients(n int, f func(client int) error) {
	s.Helper()
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { errs[i] = f(i) })
	}
	running.Wait()
	for i, err := range errs {
		if err != nil {
			s.fail("client %d of %d: %v", i+1, n, err)
		}
	}
}

func togetherPush(s *harness) {
	const n = 8
	for round := range 20 {
		id := fmt.Sprint(round)
		results := make([]punctual.PushResult, n)
		s.clients(n, func(i int) error {
			m := order(id, 0)
			m.Body = []byte{byte(i)}
			rs, err := s.store.Push(s.ctx, []punctual.NewMessage{m})
			if err == nil {
				results[i], err = rs[0], rs[0].Err
			}
			return err
		})
		winner := -1
		for i, r := range results {
			if r.Status == punctual.PushStored && winner >= 0 || r.Status != punctual.PushStored && r.Status != punctual.PushDuplicate {
				s.fail("%d pushes of one ID at once were answered %v; want stored once and duplicate else", n, results)
			}
			if r.Status == punctual.PushStored {
				winner = i
			}
		}
		if d := s.one(orders); winner < 0 || len(d.Body) != 1 || int(d.Body[0]) != winner {
			s.fail("of %d pushes of one ID at once number %d was answered stored and body %v delivered", n, winner, d.Body)
		}
	}
}

func togetherClaim(s *harness) {
	const n, clients = 600, 4
	batch := make([]punctual.NewMessage, n)
	for i := range batch {
		batch[i] = order(fmt.Sprint(i), time.Duration(i%3)*time.Millisecond)
	}
	s.pushAll(batch...)
	s.advance(time.Second)
	got := make([][]string, clients)
	s.clients(clients, func(i int) error {
		for {
			ds, err := s.store.Claim(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 7})
			if err != nil || len(ds) == 0 {
				return err
			}
			got[i] = append(got[i], ids(ds)...)
		}
	})
	seen := make(map[string]bool)
	for _, list := range got {
		for _, id := range list {
			if seen[id] {
				s.fail("%s was delivered to two of %d clients", id, clients)
			}
			seen[id] = true
		}
	}
	if len(seen) != n {
		s.Fatalf("%s: %d of %d messages were delivered to %d clients", p1, len(seen), n, clients)
	}
}

// whileClaimed lets one client claim n messages, one after the other, while another one amends each
// of them. It returns which messages were delivered, and the error of each amendment.
func (s *harness) whileClaimed(n int, change func(id string) punctual.Amendment) (map[string]bool, map[string]error) {
	s.Helper()
	batch := make([]punctual.NewMessage, n)
	for i := range batch {
		batch[i] = order(fmt.Sprint(i), 0)
	}
	s.pushAll(batch...)
	delivered, outcomes := make(map[string]bool), make(map[string]error)
	s.clients(2, func(client int) error {
		for i := range n {
			if client == 0 {
				ds, err := s.store.Claim(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 1})
				if err != nil {
					return err
				}
				for _, d := range ds {
					delivered[d.ID] = true
				}
				continue
			}
			id := fmt.Sprint(n - 1 - i) // from the other end, to meet in the middle
			os, err := s.store.Amend(s.ctx, []punctual.Amendment{change(id)})
			if err != nil {
				return err
			}
			outcomes[id] = os[0].Err
		}
		return nil
	})
	for _, d := range s.take(orders, n) {
		delivered[d.ID] = true
	}
	return delivered, outcomes
}

func togetherCancel(s *harness) {
	const n = 300
	got, outcomes := s.whileClaimed(n, func(id string) punctual.Amendment { return cancel(orders, id) })
	for i := range n {
		id := fmt.Sprint(i)
		switch o := outcomes[id]; {
		case o != nil && !errors.Is(o, punctual.ErrLeased):
			s.fail("cancel of %s, which was ready or leased, answered %v", id, o)
		case got[id] != (o != nil):
			s.fail("cancel of %s answered %v, and it was delivered: %v", id, o, got[id])
		}
	}
	s.advance(time.Hour)
	s.none(orders, "after all messages were cancelled, some while leased,")
}

func togetherReschedule(s *harness) {
	const n = 300
	got, outcomes := s.whileClaimed(n, func(id string) punctual.Amendment { return reschedule(orders, id, time.Hour) })
	for i := range n {
		id := fmt.Sprint(i)
		switch o := outcomes[id]; {
		case o != nil && !errors.Is(o, punctual.ErrLeased):
			s.fail("reschedule of %s, which was ready or leased, answered %v", id, o)
		case got[id] != (o != nil):
			s.fail("reschedule of %s answered %v, and it was delivered before the new due time: %v", id, o, got[id])
		}
	}
	s.advance(time.Hour)
	if ds := s.take(orders, n); len(ds) != n {
		s.Fatalf("%s: an hour later %d of %d messages came, rescheduled or after their lease ran out", p1, len(ds), n)
	}
}

func togetherAck(s *harness) {
	const n = 6
	for range 20 {
		d := bringLeased(s)
		accepted := make([]bool, n)
		s.clients(n, func(i int) error {
			errs, err := s.store.Settle(s.ctx, []punctual.Settlement{ackOf(d)})
			accepted[i] = err == nil && errs[0] == nil
			return err
		})
		count := 0
		for _, ok := range accepted {
			if ok {
				count++
			}
		}
		if count != 1 {
			s.fail("of %d acks with one token at once %d were accepted; want one", n, count)
		}
	}
}
