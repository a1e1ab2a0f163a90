package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// isolationCases: does a topic that has a backlog, a waiting claim or a purge under way delay
// another one?
func isolationCases() []testCase {
	return []testCase{
		{"beside a claim that waits", p14, isolatedFromWait},
		{"beside a paused topic with a backlog", p14, isolatedFromPaused},
		{"beside a large backlog", p14, isolatedFromBacklog},
		{"beside a large purge", p14, isolatedFromPurge},
		{"beside the deletion of a large topic", p14, isolatedFromDelete},
	}
}

// crowd is how many messages make a topic large here.
const crowd = 5000

// The measures of otherTopicIsNotDelayed.
const (
	// delayLimit is how much longer the slowest call of a round may take than the slowest call of
	// the same round on an undisturbed store (P14).
	delayLimit = time.Second
	// delayRounds is how many rounds are made where the disturbance does not end by itself.
	delayRounds = 20
	delayTries  = 3 // how often the comparison is tried
)

// otherTopicWorks pushes to mails, claims and acks, and returns how long the slowest of the three
// calls took. All three together may take as long as the case's waitLimit.
func (s *harness) otherTopicWorks(id, beside string) (slowest time.Duration) {
	s.Helper()
	ctx, end := context.WithTimeout(s.ctx, s.opener.waitLimit)
	defer end()
	last := time.Now()
	passed := func() {
		slowest = max(slowest, time.Since(last))
		last = time.Now()
	}
	rs, err := s.store.Push(ctx, []punctual.NewMessage{{Topic: mails, ID: id}})
	passed()
	if err != nil || rs[0].Err != nil {
		s.fail("a push to mails beside %s: %v, %v", beside, rs, err)
	}
	ds, err := s.store.Claim(ctx, punctual.Claim{Topics: []string{mails}, Max: 10})
	passed()
	if err != nil || len(ds) != 1 || ds[0].ID != id {
		s.fail("a claim from mails beside %s returned %v, %v; want %s", beside, ids(ds), err, id)
	}
	errs, err := s.store.Settle(ctx, []punctual.Settlement{ackOf(ds[0])})
	passed()
	if err != nil || errs[0] != nil {
		s.fail("an ack in mails beside %s: %v, %v", beside, errs, err)
	}
	return slowest
}

// otherTopicIsNotDelayed works with mails while something disturbs the store. disturb begins the
// disturbance and returns a channel that receives a value when it has ended; for a disturbance that
// does not end by itself the channel is nil, and delayRounds rounds are made. Each round is
// compared with the same round on a store of its own that nothing disturbs. On a loaded machine
// both are slow, and one may be slower by chance, so a delay fails the case only when there is one
// in each of delayTries disturbances.
func (s *harness) otherTopicIsNotDelayed(beside string, disturb func() <-chan error) {
	s.Helper()
	undisturbed := newHarness(s.T, s.promise, s.opener)
	var delays []time.Duration
	for range delayTries {
		worst := time.Duration(0)
		ended := disturb()
		for round, more := 0, true; more; round++ {
			id := fmt.Sprint("round-", round)
			took := s.otherTopicWorks(id, beside)
			worst = max(worst, took-undisturbed.otherTopicWorks(id, "nothing"))
			select {
			case err := <-ended:
				if err != nil {
					s.fail("%s: %v", beside, err)
				}
				more = false
			default:
				more = ended != nil || round < delayRounds-1
			}
		}
		if worst <= delayLimit {
			return
		}
		delays = append(delays, worst)
	}
	s.fail("in each of %d tries a call in mails beside %s took longer than on an undisturbed store, by %v; want at most %v", delayTries, beside, delays, delayLimit)
}

// always is the disturb of a disturbance that has begun already and does not end by itself.
func always() <-chan error { return nil }

// fill pushes a crowd to orders, due after delay.
func (s *harness) fill(delay time.Duration) {
	s.Helper()
	for from := 0; from < crowd; from += 1000 {
		batch := make([]punctual.NewMessage, 1000)
		for i := range batch {
			batch[i] = order(fmt.Sprint(from+i), delay)
		}
		s.pushAll(batch...)
	}
}

// isolatedFromWait: the other topic's calls return while the claim still waits.
func isolatedFromWait(s *harness) {
	w := s.wait(s.ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: 10 * time.Hour})
	asleep()
	s.otherTopicIsNotDelayed("a claim that waits", always)
	select {
	case <-w.done:
		s.fail("the claim that was to wait returned %v, %v", ids(w.ds), w.err)
	default:
	}
	s.push(order(x, 0))
	s.ack(w.wakes(x, "a push"))
}

// isolatedFromPaused: a claim from both topics gets the message of the one that is not paused.
func isolatedFromPaused(s *harness) {
	s.fill(0)
	s.configure(orders, punctual.SettingsPatch{DeliveryPaused: ptr(true)})
	s.none(orders, "while it is paused")
	s.otherTopicIsNotDelayed("a paused topic", always)
	s.push(punctual.NewMessage{Topic: mails, ID: "m"})
	ds := s.claim(punctual.Claim{Topics: []string{orders, mails}, Max: 10})
	if len(ds) != 1 || ds[0].ID != "m" {
		s.fail("a claim from a paused topic, then mails, returned %v; want m", ids(ds))
	}
}

func isolatedFromBacklog(s *harness) {
	s.fill(0)
	s.otherTopicIsNotDelayed("a large backlog that is due", always)
	held := s.take(orders, 1000)
	if len(held) != 1000 {
		s.fail("a claim of 1000 of %d due messages returned %d", crowd, len(held))
	}
	s.otherTopicIsNotDelayed("a thousand leases in a topic with a large backlog", always)
}

func isolatedFromPurge(s *harness) {
	in := s.inspector()
	s.besideEach("a large purge", func() error {
		n, err := in.Purge(s.ctx, punctual.PurgeQuery{Topic: orders, State: punctual.StateScheduled})
		if err == nil && n != crowd {
			err = fmt.Errorf("%d messages were purged; want %d", n, crowd)
		}
		return err
	})
}

func isolatedFromDelete(s *harness) {
	in := s.inspector()
	s.besideEach("the deletion of a large topic", func() error {
		n, err := in.DeleteTopic(s.ctx, orders)
		if err == nil && n != crowd {
			err = fmt.Errorf("%d messages were deleted; want %d", n, crowd)
		}
		return err
	})
}

// besideEach works with the other topic while f, in a goroutine, removes the messages of orders.
// For each try it fills orders anew.
func (s *harness) besideEach(what string, f func() error) {
	s.Helper()
	s.otherTopicIsNotDelayed(what, func() <-chan error {
		s.fill(time.Hour)
		ended := make(chan error, 1)
		go func() { ended <- f() }()
		return ended
	})
}
