package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// boundCases: is no more worked on than the topic's bounds allow, and is nothing left that they do
// allow? Settings.MaxLeases and Settings.MaxRate say what is right.
func boundCases() []testCase {
	return []testCase{
		{"refused by a store that cannot", p13, boundRefused},
		{"so many at once", p3, boundAtOnce},
		{"each way to end a lease makes room", p1, boundEnds},
		{"an extension takes no room", p4, boundExtend},
		{"a lease that ran out counts until it is claimed", p3, boundLapsed},
		{"a lease that ran out behind what waits", p1, boundLapsedBehind},
		{"attempts used up make room", p1, boundUsedUp},
		{"woken by an ack", p11, boundWake},
		{"woken by a bound that is raised", p11, boundRaised},
		{"woken by the end of a bound", p11, boundEnded},
		{"lowered and set under way", p3, boundLowered},
		{"other topics go on", p1, boundOthers},
		{"in a claim of several topics", p3, boundSeveral},
		{"groups have bounds of their own", p3, boundGroups},
		{"nothing is lost", p1, boundDrain},
		{"never more under way than the bound", p3, boundTogether},
		{"kept over a restart", p3, boundReopen},
		{"a rate, evenly", p3, rateEvenly},
		{"a rate with a burst", p3, rateBurst},
		{"a rate counts what is given back", p3, rateReleased},
		{"a rate counts leases that ran out", p3, rateLapsed},
		{"woken by the rate", p11, rateWake},
		{"a rate after a pause of an hour", p3, rateIdle},
		{"a rate over a restart", p3, rateReopen},
		{"a rate that changes", p11, rateChanges},
		{"a rate beside so many at once", p3, rateBeside},
		{"a rate finer than the clock", p3, rateFine},
		{"in several partitions", p3, boundDivided},
		{"beside a pause", p3, boundPaused},
		{"beside a deletion of the topic", p1, boundDeleted},
		{"beside follow-ups", p3, boundFollow},
		{"beside a cancelled lease", p5, boundCancelled},
		{"a bound behind a step of the clock", p8, boundStep},
		{"a rate behind a step of the clock", p8, rateStep},
	}
}

// bounded gives orders bounds. It skips the case if the store cannot have any.
func (s *harness) bounded(leases int, r limits.Rate) {
	s.Helper()
	if !s.abilities().BoundsLeases {
		s.Skipf("skipped: the store cannot bound leases (storekit.Abilities.BoundsLeases)")
	}
	p := punctual.SettingsPatch{MaxLeases: &leases, MaxRate: &r}
	s.undivided(&p)
	s.configure(orders, p)
}

// ready pushes n messages that are ready: a, b, c and so on.
func (s *harness) ready(n int) {
	s.Helper()
	for i := range n {
		s.push(order(string(rune('a'+i)), 0))
	}
}

// gets claims up to 100 messages of orders and wants n of them.
func (s *harness) gets(n int, when string) []punctual.Delivery {
	s.Helper()
	ds := s.claim(punctual.Claim{Topics: []string{orders}, Max: 100})
	if len(ds) != n {
		s.fail("%s, a claim got %v; want %d messages", when, ids(ds), n)
	}
	return ds
}

func boundRefused(s *harness) {
	if !s.hasInspector() || s.abilities().BoundsLeases {
		s.Skipf("skipped: the store has no settings, or can bound leases")
	}
	for _, p := range []punctual.SettingsPatch{{MaxLeases: ptr(1)}, {MaxRate: ptr(limits.PerSecond(1))}} {
		_, err := s.inspector().Configure(s.ctx, orders, p)
		s.wantErr(err, punctual.ErrUnsupported, "Configure of a bound in a store that has none")
	}
	s.configure(orders, punctual.SettingsPatch{MaxLeases: ptr(0), MaxRate: &limits.Rate{}})
	s.wantSettings(orders, s.defaults())
}

func boundAtOnce(s *harness) {
	s.bounded(2, limits.Rate{})
	s.ready(5)
	ds := s.gets(2, "at a bound of 2")
	s.gets(0, "with 2 leased")
	if st, err := s.inspector().Stats(s.ctx, orders); err != nil || st.Leased != 2 || st.Ready != 3 {
		s.fail("stats are %+v, %v; want 2 leased, and the rest ready", st, err)
	}
	s.ack(ds[0])
	s.ack(s.gets(1, "after an ack")[0])
	s.gets(1, "after another ack")
	s.gets(0, "with 2 leased again")
}

// boundDivided: the partitions of a topic have shares, which are as much as the bound of the topic.
func boundDivided(s *harness) {
	if !s.abilities().BoundsLeases {
		s.Skipf("skipped: the store cannot bound leases (storekit.Abilities.BoundsLeases)")
	}
	s.divide(orders, 4)
	before := s.settings(orders)
	for what, p := range map[string]punctual.SettingsPatch{
		"fewer leases than partitions":        {MaxLeases: ptr(3)},
		"a burst of fewer than there are":     {MaxRate: &limits.Rate{N: 100, Per: time.Second, Burst: 3}},
		"a rate whose tenth is less than all": {MaxRate: &limits.Rate{N: 30, Per: time.Second}},
	} {
		_, err := s.inspector().Configure(s.ctx, orders, p)
		s.wantErr(err, punctual.ErrInvalid, "%s in a topic of four", what)
	}
	s.wantSettings(orders, before)
	s.configure(orders, punctual.SettingsPatch{MaxLeases: ptr(6)})
	var ms []punctual.NewMessage
	for i := range 200 { // so many that each partition has some
		ms = append(ms, order(fmt.Sprint("m", i), 0))
	}
	s.pushAll(ms...)
	all := func(when string, want int) (ds []punctual.Delivery) {
		s.Helper()
		for {
			some := s.take(orders, 100)
			if ds = append(ds, some...); len(some) == 0 {
				break
			}
		}
		if len(ds) != want {
			s.fail("%s, claims got %d messages; want %d", when, len(ds), want)
		}
		return ds
	}
	for _, d := range all("at a bound of 6", 6) {
		s.ack(d)
	}
	for _, d := range all("after six acks", 6) {
		s.ack(d)
	}
	s.configure(orders, punctual.SettingsPatch{MaxLeases: ptr(0), MaxRate: &limits.Rate{N: 8, Per: 8 * time.Second, Burst: 6}})
	all("at a rate with a burst of 6", 6)
	s.advance(4*time.Second - time.Millisecond)
	all("just before 4 s are over", 0)
	s.advance(time.Millisecond)
	all("4 s later, with a lease in 4 s for each partition", 4)
	s.advance(8 * time.Second)
	all("8 s later, when each has its share of the burst again", 6)
}

// leaseEnds are the ways to end the lease of a message so that its place is free, by name. They
// leave no message behind that is ready. message makes one that takes the place of another.
func (s *harness) leaseEnds(message func(id string, delay time.Duration) punctual.NewMessage) map[string]func(d punctual.Delivery) {
	return map[string]func(d punctual.Delivery){
		"ack":     s.ack,
		"retry":   func(d punctual.Delivery) { s.done(d, punctual.SettleRetry, time.Hour) },
		"snooze":  func(d punctual.Delivery) { s.done(d, punctual.SettleSnooze, time.Hour) },
		"discard": func(d punctual.Delivery) { s.done(d, punctual.SettleDiscard, 0) },
		"release": func(d punctual.Delivery) {
			s.done(d, punctual.SettleRelease, 0)
			s.outcome(cancel(orders, d.ID), nil, "given back")
		},
		"cancel and retry": func(d punctual.Delivery) {
			s.outcome(cancel(orders, d.ID), punctual.ErrLeased, "leased")
			s.wantErr(s.settle(d, punctual.SettleRetry, time.Hour), punctual.ErrCancelled, "retry of a cancelled message")
		},
		"delete": func(d punctual.Delivery) {
			s.outcome(punctual.Amendment{Topic: orders, ID: d.ID, Change: punctual.ChangeDelete}, nil, "leased")
		},
		"purge": func(punctual.Delivery) {
			if _, err := s.inspector().Purge(s.ctx, punctual.PurgeQuery{Topic: orders, State: punctual.StateLeased}); err != nil {
				s.fail("purge: %v", err)
			}
		},
		"replace": func(d punctual.Delivery) {
			m := message(d.ID, time.Hour)
			m.IfExists = punctual.IfExistsReplace
			if r := s.try(m); r.Status != punctual.PushReplaced {
				s.fail("a replacing push of a leased message is %v, %v", r.Status, r.Err)
			}
		},
	}
}

func boundEnds(s *harness) {
	s.bounded(1, limits.Rate{})
	for name, end := range s.leaseEnds(order) {
		s.push(order(name, 0))
		s.push(order(name+" 2", time.Millisecond))
		s.advance(time.Millisecond)
		d := s.gets(1, "at a bound of 1")[0]
		s.gets(0, "with 1 leased")
		end(d)
		next := s.gets(1, "after "+name)[0]
		if next.ID != name+" 2" {
			s.fail("after %s of %s a claim got %s", name, d.ID, next.ID)
		}
		s.ack(next)
	}
}

func boundExtend(s *harness) {
	s.bounded(1, limits.Rate{})
	s.ready(2)
	d := s.gets(1, "at a bound of 1")[0]
	s.done(d, punctual.SettleExtend, time.Hour)
	s.gets(0, "after an extension")
	s.ack(d)
	s.gets(1, "after the ack")
}

func boundLapsed(s *harness) {
	s.bounded(2, limits.Rate{})
	s.ready(2)
	s.gets(2, "at a bound of 2")
	s.advance(time.Minute)
	s.push(order("z", 0))
	again := s.gets(2, "when both leases have run out")
	if again[0].Attempt != 2 || again[1].Attempt != 2 {
		s.fail("a claim got %v of attempts %d and %d; want the two whose leases ran out, because they have the places", ids(again), again[0].Attempt, again[1].Attempt)
	}
	s.ack(again[0])
	if d := s.gets(1, "after an ack")[0]; d.ID != "z" {
		s.fail("after an ack a claim got %s; want z", d.ID)
	}
}

// boundLapsedBehind: what waits for room is earlier than the end of a lease that has run out, and
// does not hide that one.
func boundLapsedBehind(s *harness) {
	s.bounded(1, limits.Rate{})
	s.ready(20)
	first := s.gets(1, "at a bound of 1")[0]
	s.advance(time.Minute)
	w := s.gets(1, "when the lease has run out")[0]
	if w.ID != first.ID || w.Attempt != 2 {
		s.fail("a claim got %s, attempt %d; want %s again", w.ID, w.Attempt, first.ID)
	}
	s.gets(0, "under the new lease")
}

func boundUsedUp(s *harness) {
	s.bounded(1, limits.Rate{})
	s.configure(orders, punctual.SettingsPatch{MaxAttempts: ptr(1)})
	s.ready(2)
	s.gets(1, "at a bound of 1")
	s.advance(time.Minute)
	if d := s.gets(1, "when the only attempt of the first has run out")[0]; d.ID != "b" {
		s.fail("a claim got %s; want b", d.ID)
	}
	s.wantDead(orders, "a", punctual.ReasonAttemptsUsedUp)
	// A claim that takes what had room before, and then what the end of b makes room for.
	s.configure(orders, punctual.SettingsPatch{MaxLeases: ptr(3)})
	s.advance(time.Minute)
	for _, id := range []string{"c", "d", "e", "f", "g"} {
		s.push(order(id, 0))
	}
	leased := 0
	for range 3 { // a store may end b in one claim, and use its room in the next
		leased += len(s.claim(punctual.Claim{Topics: []string{orders}, Max: 100}))
	}
	if leased != 3 {
		s.fail("at a bound of 3, with one lease run out and its attempts used up, claims got %d messages; want 3", leased)
	}
}

// boundWakes starts a claim that meets a bound, and wants event to wake it.
func (s *harness) boundWakes(after string, event func()) {
	s.Helper()
	w := s.wait(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: time.Hour})
	asleep()
	event()
	s.ack(w.wakes("b", after))
}

func boundWake(s *harness) {
	s.bounded(1, limits.Rate{})
	s.ready(2)
	d := s.gets(1, "at a bound of 1")[0]
	s.boundWakes("an ack of another message", func() { s.ack(d) })
}

func boundRaised(s *harness) {
	s.bounded(1, limits.Rate{})
	s.ready(2)
	s.gets(1, "at a bound of 1")
	s.boundWakes("its bound was raised", func() { s.configure(orders, punctual.SettingsPatch{MaxLeases: ptr(2)}) })
}

func boundEnded(s *harness) {
	s.bounded(1, limits.Rate{})
	s.ready(2)
	s.gets(1, "at a bound of 1")
	s.boundWakes("its bound was taken away", func() { s.configure(orders, punctual.SettingsPatch{MaxLeases: ptr(0)}) })
}

func boundLowered(s *harness) {
	s.bounded(0, limits.Rate{})
	s.ready(6)
	ds := s.take(orders, 3)
	s.configure(orders, punctual.SettingsPatch{MaxLeases: ptr(2)})
	s.gets(0, "with 3 leased and a bound of 2 by now")
	s.ack(ds[0])
	s.gets(0, "with 2 leased and a bound of 2")
	s.ack(ds[1])
	more := s.gets(1, "with 1 leased and a bound of 2")
	s.configure(orders, punctual.SettingsPatch{MaxLeases: ptr(1)})
	for _, d := range []punctual.Delivery{ds[2], more[0]} {
		s.gets(0, "above a bound that was lowered")
		s.ack(d) // a bound that is lowered ends no lease
	}
	s.gets(1, "at a bound of 1")
}

func boundOthers(s *harness) {
	s.bounded(1, limits.Rate{})
	s.ready(3)
	s.gets(1, "at a bound of 1")
	s.push(punctual.NewMessage{Topic: mails, ID: "m"})
	if ds := s.claim(punctual.Claim{Topics: []string{orders, mails}, Max: 10}); len(ds) != 1 || ds[0].ID != "m" {
		s.fail("a claim of two topics, one at its bound, got %v; want m", ids(ds))
	}
}

func boundSeveral(s *harness) {
	s.bounded(2, limits.Rate{})
	s.ready(5)
	for i := range 3 {
		s.push(punctual.NewMessage{Topic: mails, ID: fmt.Sprint("m", i)})
	}
	if ds := s.claim(punctual.Claim{Topics: []string{orders, mails, orders}, Max: 4, PerTopic: 3}); len(ds) != 4 {
		s.fail("a claim of 4 got %v; want 2 of orders and 2 of mails", ids(ds))
	}
	if ds := s.claim(punctual.Claim{Topics: []string{orders, mails}, Max: 4}); len(ds) != 1 {
		s.fail("the next claim got %v; want the last of mails", ids(ds))
	}
}

func boundGroups(s *harness) {
	s.bounded(0, limits.Rate{})
	group := punctual.GroupTopic(orders, "billing")
	s.configure(orders, punctual.SettingsPatch{Groups: &[]string{"billing"}})
	s.configure(group, punctual.SettingsPatch{MaxLeases: ptr(1)})
	for _, id := range []string{"a", "b"} {
		s.push(punctual.NewMessage{Topic: group, ID: id})
	}
	if ds := s.claim(punctual.Claim{Topics: []string{group}, Max: 9}); len(ds) != 1 {
		s.fail("a claim of a group with a bound of 1 got %v", ids(ds))
	}
	if got := s.settings(orders).MaxLeases; got != 0 {
		s.fail("the bound of the topic is %d; want none", got)
	}
}

func boundDrain(s *harness) {
	s.bounded(3, limits.Rate{})
	s.ready(20)
	seen := map[string]bool{}
	for len(seen) < 20 {
		ds := s.claim(punctual.Claim{Topics: []string{orders}, Max: 2})
		if len(ds) == 0 {
			s.fail("with %d of 20 acked, nothing leased and the rest ready, a claim got nothing", len(seen))
		}
		for _, d := range ds {
			seen[d.ID] = true
			s.ack(d)
		}
	}
}

// boundTogether: claims and acks of many goroutines at once keep the bound, and deliver everything.
func boundTogether(s *harness) {
	const bound, all, goroutines = 3, 300, 8
	s.bounded(bound, limits.Rate{})
	var ms []punctual.NewMessage
	for i := range all {
		ms = append(ms, order(fmt.Sprint(i), 0))
	}
	s.pushAll(ms...)
	var underWay, most, acked atomic.Int64
	var failed atomic.Value
	var work sync.WaitGroup
	for range goroutines {
		work.Go(func() {
			for acked.Load() < all && failed.Load() == nil {
				ds, err := s.store.Claim(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 2})
				if err != nil {
					failed.Store(err)
					return
				}
				now := underWay.Add(int64(len(ds)))
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				for _, d := range ds {
					underWay.Add(-1) // before the ack, because its room is free before its answer comes
					errs, err := s.store.Settle(s.ctx, []punctual.Settlement{{Topic: orders, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}})
					if err = errors.Join(append(errs, err)...); err != nil {
						failed.Store(err)
						return
					}
					acked.Add(1)
				}
			}
		})
	}
	work.Wait()
	if err := failed.Load(); err != nil {
		s.fail("claims and acks at once: %v", err)
	}
	if n := acked.Load(); n != all || most.Load() > bound {
		s.fail("%d of %d messages were acked, and %d were under way at once; the bound is %d", n, all, most.Load(), bound)
	}
}

func boundReopen(s *harness) {
	if s.opener.reopen == nil {
		s.Skipf("skipped: the store is not durable")
	}
	s.bounded(2, limits.Rate{})
	s.ready(5)
	ds := s.gets(2, "at a bound of 2")
	s.reopen()
	s.gets(0, "after a restart, with 2 leased")
	s.ack(ds[0])
	s.gets(1, "after a restart and an ack")
	s.advance(time.Minute)
	s.gets(2, "when both leases have run out")
}

// atRate wants n messages of a claim after d, and that a millisecond before that there is none.
func (s *harness) atRate(d time.Duration, n int) []punctual.Delivery {
	s.Helper()
	s.advance(d - time.Millisecond)
	s.gets(0, fmt.Sprintf("a millisecond before the rate lets a lease begin, %v after the last one", d))
	s.advance(time.Millisecond)
	return s.gets(n, fmt.Sprintf("%v after the last lease", d))
}

func rateEvenly(s *harness) {
	s.bounded(0, limits.PerSecond(10))
	s.ready(20)
	s.gets(1, "at a rate of 10 a second")
	s.gets(0, "at once after that")
	for range 12 {
		s.atRate(100*time.Millisecond, 1)
	}
}

func rateBurst(s *harness) {
	s.bounded(0, limits.Rate{N: 10, Per: time.Second, Burst: 5})
	s.ready(25)
	s.gets(5, "with a burst of 5")
	s.atRate(100*time.Millisecond, 1)
	s.advance(250 * time.Millisecond)
	s.gets(2, "a quarter of a second later")
	s.atRate(50*time.Millisecond, 1)
	s.advance(time.Hour)
	s.gets(5, "an hour later")
}

func rateReleased(s *harness) {
	s.bounded(0, limits.PerSecond(10))
	s.ready(3)
	s.done(s.gets(1, "at a rate of 10 a second")[0], punctual.SettleRelease, 0)
	s.gets(0, "after a release")
	s.atRate(100*time.Millisecond, 1)
}

func rateLapsed(s *harness) {
	s.bounded(0, limits.Rate{N: 1, Per: time.Minute})
	s.configure(orders, punctual.SettingsPatch{Lease: ptr(time.Second)})
	s.ready(2)
	first := s.gets(1, "at a rate of 1 a minute")[0]
	s.advance(30 * time.Second)
	s.gets(0, "when the lease has run out and the rate lets no lease begin")
	s.wantState(orders, first.ID, punctual.StateReady)
	s.atRate(30*time.Second, 1)
}

func rateWake(s *harness) {
	s.bounded(0, limits.Rate{N: 1, Per: time.Minute})
	s.ready(2)
	s.ack(s.gets(1, "at a rate of 1 a minute")[0])
	s.boundWakes("the rate let the next lease begin", func() {
		s.advance(59 * time.Second)
		asleep()
		s.advance(time.Second)
	})
}

func rateIdle(s *harness) {
	s.bounded(0, limits.PerSecond(10))
	s.ready(3)
	s.advance(time.Hour)
	s.gets(1, "after an hour without a lease")
	s.atRate(100*time.Millisecond, 1)
}

func rateReopen(s *harness) {
	if s.opener.reopen == nil {
		s.Skipf("skipped: the store is not durable")
	}
	s.bounded(0, limits.Rate{N: 1, Per: time.Minute})
	s.ready(2)
	s.gets(1, "at a rate of 1 a minute")
	s.reopen()
	s.gets(0, "after a restart")
	s.advance(time.Minute)
	s.gets(1, "a minute later")
}

func rateChanges(s *harness) {
	s.bounded(0, limits.Rate{N: 1, Per: time.Hour})
	s.ready(4)
	s.gets(1, "at a rate of 1 an hour")
	w := s.wait(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: time.Hour})
	asleep()
	s.configure(orders, punctual.SettingsPatch{MaxRate: ptr(limits.PerSecond(10))})
	s.advance(100 * time.Millisecond)
	w.wakes("b", "a faster rate")
	s.configure(orders, punctual.SettingsPatch{MaxRate: &limits.Rate{}})
	s.gets(2, "without a rate")
}

func rateBeside(s *harness) {
	s.bounded(2, limits.PerSecond(10))
	s.ready(5)
	ds := s.gets(1, "at a rate of 10 a second and a bound of 2")
	ds = append(ds, s.atRate(100*time.Millisecond, 1)...)
	s.advance(time.Second)
	s.gets(0, "with 2 leased")
	s.ack(ds[0])
	s.gets(1, "after an ack")
	s.ack(ds[1])
	s.gets(0, "at once after that")
	s.atRate(100*time.Millisecond, 1)
}

// rateFine: leases whose interval is less than a millisecond are no more in a second than the rate
// says.
func rateFine(s *harness) {
	s.bounded(0, limits.Rate{N: 3000, Per: time.Second, Burst: 10})
	for i := range 50 {
		s.push(order(fmt.Sprint(i), 0))
	}
	s.gets(10, "with a burst of 10")
	got := 0
	for range 10 {
		s.advance(time.Millisecond)
		got += len(s.claim(punctual.Claim{Topics: []string{orders}, Max: 100}))
	}
	if got < 29 || got > 30 { // the interval of 333.33 µs is rounded up
		s.fail("at a rate of 3000 a second %d leases began in 10 ms; want 29 or 30", got)
	}
}

func boundPaused(s *harness) {
	s.bounded(1, limits.Rate{})
	s.ready(2)
	d := s.gets(1, "at a bound of 1")[0]
	s.configure(orders, punctual.SettingsPatch{DeliveryPaused: ptr(true)})
	s.ack(d)
	s.gets(0, "while the topic is paused")
	s.configure(orders, punctual.SettingsPatch{DeliveryPaused: ptr(false)})
	s.gets(1, "after the pause, with the place free")
	s.push(order("z", 0))
	s.gets(0, "after the pause, with 1 leased")
}

// boundDeleted: the leases of a topic that was deleted do not count in the next topic of that name,
// which has no bounds until it gets some.
func boundDeleted(s *harness) {
	s.bounded(1, limits.Rate{N: 1, Per: time.Hour})
	s.ready(1)
	s.gets(1, "at a bound of 1")
	if _, err := s.inspector().DeleteTopic(s.ctx, orders); err != nil {
		s.fail("DeleteTopic: %v", err)
	}
	var p punctual.SettingsPatch
	s.undivided(&p)
	s.configure(orders, p)
	s.ready(3)
	ds := s.gets(3, "in a new topic without bounds")
	s.bounded(4, limits.Rate{})
	s.push(order("y", 0))
	s.push(order("z", 0))
	s.gets(1, "with 3 leased and a bound of 4")
	s.ack(ds[0])
	s.gets(1, "after an ack")
}

// boundFollow: a follow-up in the same topic waits for room like any message, and the ack that
// stores it makes room.
func boundFollow(s *harness) {
	s.bounded(1, limits.Rate{})
	if s.abilities().Follow == storekit.ReachNone {
		s.Skipf("skipped: the store has no follow-ups")
	}
	s.push(order("a", 0))
	d := s.gets(1, "at a bound of 1")[0]
	errs, err := s.store.Settle(s.ctx, []punctual.Settlement{{
		Topic: orders, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck,
		Then: []punctual.NewMessage{{Topic: orders, ID: "a~1"}, {Topic: orders, ID: "a~2"}},
	}})
	if err := errors.Join(append(errs, err)...); err != nil {
		s.fail("ack with two follow-ups: %v", err)
	}
	first := s.gets(1, "after an ack with two follow-ups")[0]
	s.gets(0, "with one of them leased")
	s.ack(first)
	s.gets(1, "after its ack")
}

// boundCancelled: a message that was cancelled under its lease keeps its place until the lease
// ends.
func boundCancelled(s *harness) {
	s.bounded(1, limits.Rate{})
	s.ready(2)
	d := s.gets(1, "at a bound of 1")[0]
	s.outcome(cancel(orders, d.ID), punctual.ErrLeased, "leased")
	s.gets(0, "with a cancelled message leased")
	s.advance(time.Minute)
	if next := s.gets(1, "when the lease of the cancelled one has run out")[0]; next.ID != "b" {
		s.fail("a claim got %s; want b", next.ID)
	}
	s.wantState(orders, "a", punctual.StateNone)
}

func boundStep(s *harness) {
	s.bounded(1, limits.Rate{})
	s.configure(orders, punctual.SettingsPatch{Lease: ptr(12 * time.Hour)}) // longer than the store takes to follow
	s.ready(2)
	var d punctual.Delivery
	s.ahead(24*time.Hour, func() { d = s.gets(1, "at a bound of 1")[0] })
	s.gets(0, "behind a step of the clock, with 1 leased")
	s.ack(d)
	s.ack(s.gets(1, "behind a step of the clock, after the ack")[0])
}

// rateStep: a gate from before a step of the clock holds up leases for no longer than one interval.
func rateStep(s *harness) {
	s.bounded(0, limits.Rate{N: 1, Per: time.Minute})
	s.ready(3)
	s.ahead(time.Hour, func() { s.gets(1, "at a rate of 1 a minute") })
	got := len(s.claim(punctual.Claim{Topics: []string{orders}, Max: 9}))
	s.advance(time.Minute)
	if got += len(s.claim(punctual.Claim{Topics: []string{orders}, Max: 9})); got < 1 || got > 2 {
		s.fail("in a minute behind a step of the clock %d leases began; want 1, or 2 with one at once", got)
	}
}
