package storetest

import (
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// earlyCases: is anything delivered before its time?
func earlyCases() []testCase {
	return []testCase{
		{"not a millisecond early", p2, earlyByOne},
		{"due times finer than a millisecond round up", p2, earlyFineDue},
		{"delays finer than a millisecond round up", p2, earlyFineDelay},
		{"delays count from the fine clock", p2, earlyFineClock},
		{"clock rounds down", p2, earlyClockFloor},
		{"each at its own time", p2, earlySweep},
		{"retry", p2, earlyRetry},
		{"backoff with jitter", p2, earlyBackoff},
		{"snooze", p2, earlySnooze},
		{"reschedule", p2, earlyReschedule},
		{"requeue", p2, earlyRequeue},
		{"lease end", p3, earlyLeaseEnd},
	}
}

// dueAt returns the one message that a claim returns at t. If t is more than 1 ms ahead, it checks
// that a claim 1 ms before t returns nothing.
func (s *harness) dueAt(t time.Time, what string) punctual.Delivery {
	s.Helper()
	if before := t.Add(-time.Millisecond); before.After(s.clock.Now()) {
		s.clock.Set(before)
		s.none(orders, "1 ms before "+what)
	}
	s.clock.Set(t)
	ds := s.take(orders, 10)
	if len(ds) != 1 {
		s.Fatalf("%s: at %s a claim returned %d messages; want one", p1, what, len(ds))
	}
	return ds[0]
}

func earlyByOne(s *harness) {
	for _, delay := range []time.Duration{time.Millisecond, 2 * time.Millisecond, time.Second, 30 * time.Minute, 400 * 24 * time.Hour} {
		r := s.push(order(x, delay))
		if !r.Due.Equal(s.clock.Now().Add(delay)) {
			s.fail("a delay of %v from %v is due %v", delay, s.clock.Now(), r.Due)
		}
		d := s.dueAt(r.Due, fmt.Sprintf("the end of a delay of %v", delay))
		if !d.Due.Equal(r.Due) || d.Late() != 0 {
			s.fail("delivered at %v, due %v; want due and delivered %v", d.Delivered, d.Due, r.Due)
		}
		s.ack(d)
	}
}

// fractions returns parts of a millisecond, from 1 ns to 999,999 ns.
func fractions() []time.Duration {
	out := []time.Duration{1, 100, 999_900, 999_999}
	for f := time.Duration(1); f < 10; f++ {
		out = append(out, f*100*time.Microsecond)
	}
	return out
}

func earlyFineDue(s *harness) {
	for _, f := range fractions() {
		base := s.clock.Now().Add(50 * time.Millisecond)
		r := s.push(punctual.NewMessage{Topic: orders, ID: x, Due: base.Add(f)})
		if want := base.Add(time.Millisecond); !r.Due.Equal(want) {
			s.fail("a message due at x ms + %v was stored as due %v; want it rounded up to %v", f, r.Due, want)
		}
		s.clock.Set(base.Add(999_999))
		s.none(orders, fmt.Sprintf("in the millisecond in which x ms + %v lies", f))
		s.ack(s.dueAt(base.Add(time.Millisecond), "the next whole millisecond"))
	}
}

func earlyFineDelay(s *harness) {
	for _, f := range fractions() {
		base := s.clock.Now()
		r := s.push(order(x, 20*time.Millisecond+f))
		if want := base.Add(21 * time.Millisecond); !r.Due.Equal(want) {
			s.fail("a delay of 20 ms + %v was stored as due after %v; want 21ms", f, r.Due.Sub(base))
		}
		s.ack(s.dueAt(r.Due, "the end of a delay of a broken millisecond"))
	}
}

// earlyFineClock: the delay counts from the moment of storing, however finely the store knows it.
// So the due time is never before that moment plus the delay.
func earlyFineClock(s *harness) {
	for _, f := range fractions() {
		for _, delay := range []time.Duration{0, 1, 100 * time.Microsecond, time.Millisecond, 1_500 * time.Microsecond} {
			s.clock.Set(s.clock.Now().Truncate(time.Millisecond).Add(time.Millisecond + f))
			at := s.clock.Now()
			r := s.push(order(x, delay))
			if r.Due.Before(at.Add(delay)) {
				s.fail("a delay of %v from %v is due %v, which is early", delay, at, r.Due)
			}
			if late := r.Due.Sub(at.Add(delay)); late >= 2*time.Millisecond {
				s.fail("a delay of %v from %v is due %v, %v late; want less than 2 ms of rounding", delay, at, r.Due, late)
			}
			s.clock.Set(r.Due)
			d := s.one(orders)
			if d.Delivered.Before(at.Add(delay)) {
				s.fail("a delay of %v from %v was delivered at %v", delay, at, d.Delivered)
			}
			s.ack(d)
		}
	}
}

func earlyClockFloor(s *harness) {
	for _, f := range fractions() {
		base := s.clock.Now().Truncate(time.Millisecond).Add(10 * time.Millisecond)
		s.clock.Set(base.Add(f))
		if got := s.now(); !got.Equal(base) {
			s.fail("at %v the store's clock says %v; want it rounded down to %v", base.Add(f), got, base)
		}
	}
}

// earlySweep: messages of many delays, which were not pushed in the order of their due times, each
// come in their own millisecond while the clock goes on by one millisecond at a time.
func earlySweep(s *harness) {
	const n = 300
	batch := make([]punctual.NewMessage, n)
	for i := range batch {
		batch[i] = order(fmt.Sprintf("o-%03d", i), time.Duration(i*37%n)*time.Millisecond)
	}
	s.pushAll(batch...)
	seen := 0
	for range n {
		for _, d := range s.take(orders, n) {
			if !d.Due.Equal(s.clock.Now()) {
				s.Fatalf("%s: %s due %v was delivered at %v; a claim each millisecond must find it on time", p1, d.ID, d.Due, s.clock.Now())
			}
			s.ack(d)
			seen++
		}
		s.advance(time.Millisecond)
	}
	if seen != n {
		s.Fatalf("%s: %d of %d messages were delivered", p1, seen, n)
	}
}

func earlyRetry(s *harness) {
	bringReady(s)
	for _, delay := range []time.Duration{0, time.Millisecond, 1500 * time.Microsecond, time.Minute} {
		d := s.one(orders)
		s.done(d, punctual.SettleRetry, delay)
		due := s.now().Add(delay.Truncate(time.Millisecond))
		if delay%time.Millisecond != 0 {
			due = due.Add(time.Millisecond)
		}
		if d = s.dueAt(due, fmt.Sprintf("the end of a retry delay of %v", delay)); !d.Due.Equal(due) {
			s.fail("a message retried after %v is due %v; want %v", delay, d.Due, due)
		}
		s.done(d, punctual.SettleRelease, 0)
	}
}

func earlyBackoff(s *harness) {
	s.configure(orders, punctual.SettingsPatch{Backoff: &punctual.Backoff{Base: time.Second, Max: 5 * time.Second, Jitter: 0.5}})
	s.configure(orders, punctual.SettingsPatch{MaxAttempts: ptr(100)})
	bringReady(s)
	for attempt, base := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		at := s.now()
		s.done(s.one(orders), punctual.SettleRetry, punctual.UseBackoff)
		delay := s.get(orders, x).Due.Sub(at)
		if delay < base || delay > base+base/2+time.Millisecond {
			s.fail("after failed attempt %d the backoff is %v; want %v to %v", attempt+1, delay, base, base+base/2)
		}
		s.clock.Set(at.Add(base - time.Millisecond))
		s.none(orders, "before the shortest backoff")
		s.clock.Set(at.Add(delay))
	}
}

func earlySnooze(s *harness) {
	d := bringLeased(s)
	s.done(d, punctual.SettleSnooze, time.Minute)
	due := s.now().Add(time.Minute)
	if d = s.dueAt(due, "the end of a snooze"); !d.Due.Equal(due) {
		s.fail("a message snoozed for a minute is due %v; want %v", d.Due, due)
	}
}

func earlyReschedule(s *harness) {
	s.push(order(x, time.Minute))
	s.outcome(reschedule(orders, x, time.Hour), nil, isScheduled)
	s.advance(time.Minute)
	s.none(orders, "at the due time before a reschedule to later")
	s.dueAt(noon.Add(time.Hour), "the new due time")
}

func earlyRequeue(s *harness) {
	bringDead(s)
	s.outcome(requeue(orders, x, time.Hour), nil, isDead)
	s.dueAt(noon.Add(time.Hour), "the end of a requeue's delay")
}

func earlyLeaseEnd(s *harness) {
	for _, lease := range []time.Duration{limits.MinLease, time.Second, limits.MaxLease} {
		s.push(order(x, 0))
		ds := s.claim(punctual.Claim{Topics: []string{orders}, Max: 1, Lease: lease})
		if len(ds) != 1 || !ds[0].LeaseUntil.Equal(s.now().Add(lease)) {
			s.fail("a claim with a lease of %v at %v returned %+v", lease, s.now(), ds)
		}
		s.ack(s.dueAt(ds[0].LeaseUntil, fmt.Sprintf("the end of a lease of %v", lease)))
	}
}
