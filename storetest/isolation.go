package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// isolationCases: does what one topic is busy with delay another one?
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

// isolationLimit is how long a call for another topic may take: 1 s, and room for a loaded machine.
const isolationLimit = 10 * time.Second

// otherTopicWorks pushes to mails, claims and acks, each call within the limit.
func (s *harness) otherTopicWorks(id, beside string) {
	s.Helper()
	ctx, end := context.WithTimeout(s.ctx, min(isolationLimit, s.opener.waitLimit))
	defer end()
	rs, err := s.store.Push(ctx, []punctual.NewMessage{{Topic: mails, ID: id}})
	if err != nil || rs[0].Err != nil {
		s.fail("a push to mails beside %s: %v, %v", beside, rs, err)
	}
	ds, err := s.store.Claim(ctx, punctual.Claim{Topics: []string{mails}, Max: 10})
	if err != nil || len(ds) != 1 || ds[0].ID != id {
		s.fail("a claim from mails beside %s returned %v, %v; want %s", beside, ids(ds), err, id)
	}
	if errs, err := s.store.Settle(ctx, []punctual.Settlement{ackOf(ds[0])}); err != nil || errs[0] != nil {
		s.fail("an ack in mails beside %s: %v, %v", beside, errs, err)
	}
}

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
	for i := range 20 {
		s.otherTopicWorks(fmt.Sprint(i), "a claim that waits")
	}
	select {
	case <-w.done:
		s.fail("the claim that was to wait returned %v, %v", ids(w.ds), w.err)
	default:
	}
	s.push(order(x, 0))
	s.ack(w.wakes(x, "a push"))
}

// isolatedFromPaused: a claim of both topics passes by the one that is paused.
func isolatedFromPaused(s *harness) {
	s.fill(0)
	s.configure(orders, punctual.SettingsPatch{DeliveryPaused: ptr(true)})
	s.none(orders, "while it is paused")
	s.otherTopicWorks("alone", "a paused topic")
	s.push(punctual.NewMessage{Topic: mails, ID: "m"})
	ds := s.claim(punctual.Claim{Topics: []string{orders, mails}, Max: 10})
	if len(ds) != 1 || ds[0].ID != "m" {
		s.fail("a claim from a paused topic, then mails, returned %v; want m", ids(ds))
	}
}

func isolatedFromBacklog(s *harness) {
	s.fill(0)
	s.otherTopicWorks("before", "a large backlog that is due")
	held := s.take(orders, 1000)
	if len(held) != 1000 {
		s.fail("a claim of 1000 of %d due messages returned %d", crowd, len(held))
	}
	s.otherTopicWorks("after", "a thousand leases in a topic with a large backlog")
}

func isolatedFromPurge(s *harness) {
	in := s.inspector()
	s.fill(time.Hour)
	s.while("a large purge", func() error {
		n, err := in.Purge(s.ctx, punctual.PurgeQuery{Topic: orders, State: punctual.StateScheduled})
		if err == nil && n != crowd {
			err = fmt.Errorf("%d messages were purged; want %d", n, crowd)
		}
		return err
	})
}

func isolatedFromDelete(s *harness) {
	in := s.inspector()
	s.fill(time.Hour)
	s.while("the deletion of a large topic", func() error {
		n, err := in.DeleteTopic(s.ctx, orders)
		if err == nil && n != crowd {
			err = fmt.Errorf("%d messages were deleted; want %d", n, crowd)
		}
		return err
	})
}

// while works with the other topic for as long as f takes, at least once.
func (s *harness) while(what string, f func() error) {
	s.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	for i := 0; ; i++ {
		s.otherTopicWorks(fmt.Sprint(i), what)
		select {
		case err := <-done:
			if err != nil {
				s.fail("%s: %v", what, err)
			}
			return
		default:
		}
	}
}
