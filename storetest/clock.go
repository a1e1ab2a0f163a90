package storetest

import (
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// clockCases: what if the clock is set while the store runs?
func clockCases() []testCase {
	return []testCase{
		{"Now is the clock given", p8, clockNow},
		{"never runs backwards", p8, clockMonotonic},
		{"an hour back loses nothing", p1, clockBackNothingLost},
		{"an hour back keeps ready ready", p8, clockBackReady},
		{"an hour back keeps leases", p3, clockBackLease},
		{"an hour back, then a push", p2, clockBackPush},
		{"a day forward", p8, clockForward},
		{"a day forward and back", p8, clockThereAndBack},
		{"wake-up after a step back", p11, clockBackWake},
	}
}

func clockNow(s *harness) {
	for _, d := range []time.Duration{0, time.Millisecond, time.Hour, 300 * 24 * time.Hour} {
		s.advance(d)
		if got := s.now(); !got.Equal(s.clock.Now()) || got.Location() != time.UTC {
			s.fail("the store's clock says %v; want that of the clock given, %v, in UTC", got, s.clock.Now())
		}
	}
}

func clockMonotonic(s *harness) {
	last := s.now()
	for _, d := range []time.Duration{
		time.Second, -time.Hour, time.Minute, -time.Millisecond, -24 * time.Hour, time.Hour, 0, 23*time.Hour + time.Minute, time.Hour, 400 * time.Hour, -1,
	} {
		s.advance(d)
		for range 3 {
			now := s.now()
			if now.Before(last) {
				s.fail("after a step of %v the store's clock went back from %v to %v", d, last, now)
			}
			if floor := s.clock.Now().Truncate(time.Millisecond); now.Before(floor) {
				s.fail("after a step of %v the store's clock says %v, behind the clock given, %v", d, now, floor)
			}
			last = now
		}
	}
}

// until moves the clock on until the store's own clock has reached t.
func (s *harness) until(t time.Time, step time.Duration) {
	s.Helper()
	for range 100_000 {
		if !s.now().Before(t) {
			return
		}
		s.advance(step)
	}
	s.Fatalf("%s: the store's clock stands at %v and does not reach %v", p8, s.now(), t)
}

func clockBackNothingLost(s *harness) {
	for i := range 10 {
		s.push(order(fmt.Sprint(i), time.Duration(i*10)*time.Minute))
	}
	s.advance(35 * time.Minute)
	got := len(s.take(orders, 2))
	s.advance(-time.Hour)
	for range 30 {
		for _, d := range s.take(orders, 100) {
			s.ack(d)
			got++
		}
		s.advance(5 * time.Minute)
	}
	s.until(noon.Add(90*time.Minute), time.Minute)
	for _, d := range s.take(orders, 100) {
		s.ack(d)
		got++
	}
	if got != 12 { // two leases ran out
		s.fail("of 10 messages, 2 claimed and forgotten, %d were delivered in all around a step of an hour back; want 12", got)
	}
}

func clockBackReady(s *harness) {
	s.push(order("before", time.Minute))
	s.advance(time.Minute)
	s.now() // the store has shown this time, so its clock must not go back behind it
	s.wantState(orders, "before", punctual.StateReady)
	s.advance(-time.Hour)
	s.wantState(orders, "before", punctual.StateReady)
	s.ack(s.one(orders))
}

func clockBackLease(s *harness) {
	d := bringLeased(s)
	s.advance(-time.Hour)
	s.none(orders, "while the lease lasts, after a step of an hour back,")
	s.until(d.LeaseUntil.Add(-time.Millisecond), time.Second)
	if s.now().Before(d.LeaseUntil) {
		s.none(orders, "before the end of the lease")
	}
	s.until(d.LeaseUntil, time.Second)
	again := s.one(orders)
	if again.Attempt != 2 {
		s.fail("after a lease that spanned a step back the delivery is attempt %d; want 2", again.Attempt)
	}
	s.ack(again)
}

func clockBackPush(s *harness) {
	s.advance(-time.Hour)
	at := s.now()
	r := s.push(order(x, time.Minute))
	if want := at.Add(time.Minute); r.Due.Before(want) || r.Due.After(want.Add(time.Millisecond)) {
		s.Fatalf("%s: after a step back a delay of a minute from %v is due %v", p8, at, r.Due)
	}
	for range 200 {
		if ds := s.take(orders, 1); len(ds) == 1 {
			s.ack(ds[0])
			return
		}
		s.advance(time.Minute)
	}
	s.Fatalf("%s: a message pushed after a step back was not delivered", p1)
}

func clockForward(s *harness) {
	d := bringLeased(s)
	for i := range 5 {
		s.push(order(fmt.Sprint("within", i), time.Duration(i+1)*time.Hour))
		s.push(order(fmt.Sprint("beyond", i), time.Duration(i+25)*time.Hour))
	}
	s.advance(24 * time.Hour)
	ds := s.take(orders, 100)
	if len(ds) != 6 {
		s.fail("a day forward a claim returned %v; want the 5 messages due within that day and the one whose lease ran out", ids(ds))
	}
	s.wantErr(s.settle(d, punctual.SettleAck, 0), punctual.ErrLeaseLost, "ack of a lease that ended when the clock went a day forward and that was claimed again")
	for _, d := range ds {
		s.ack(d)
	}
	s.none(orders, "after all that was due was acked")
}

func clockThereAndBack(s *harness) {
	s.push(order("within", time.Hour))
	s.push(order("beyond", 48*time.Hour))
	s.advance(24 * time.Hour)
	s.now()
	s.advance(-24 * time.Hour)
	s.ack(s.one(orders))
	s.until(noon.Add(48*time.Hour), time.Hour)
	if d := s.one(orders); d.ID != "beyond" {
		s.fail("%s was delivered; want beyond", d.ID)
	}
}

func clockBackWake(s *harness) {
	s.push(order(x, time.Hour))
	// The lease is so long that it does not run out while the clock goes on and the answer of the claim is on its way.
	w := s.wait(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: 100 * time.Hour, Lease: punctual.MaxLease})
	asleep()
	s.advance(-time.Hour)
	end := time.Now().Add(s.opener.waitLimit)
	for time.Now().Before(end) && s.now().Before(noon.Add(10*time.Hour)) {
		asleep()
		select {
		case <-w.done:
			s.ack(w.wakes(x, "its due time came in spite of a step back"))
			return
		default:
		}
		s.advance(time.Second)
	}
	s.ack(w.wakes(x, "its due time came in spite of a step back"))
}
