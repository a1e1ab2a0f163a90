package storetest

import (
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// fencingCases: can somebody who lost the lease still do harm?
func fencingCases() []testCase {
	return []testCase{
		{"old token of a message claimed again", p4, fencingOldToken},
		{"wrong tokens", p4, fencingWrongToken},
		{"tokens name one message", p4, fencingOtherMessage},
		{"token of every past state", p4, fencingSituations},
		{"tokens grow", p4, fencingGrow},
		{"tokens grow across messages with one ID", p4, fencingReuse},
		{"tokens grow across purge and deleted topics", p4, fencingDeleted},
		{"amended after the lease ran out", p4, fencingAmended},
	}
}

// wantFenced checks that every verb with the token of d is refused with ErrLeaseLost, and that the
// message stays as it is.
func (s *harness) wantFenced(d punctual.Delivery, when string) {
	s.Helper()
	var before punctual.Info
	there := false
	if i, err := punctual.As[punctual.Inspector](s.store); err == nil {
		info, err := i.Get(s.ctx, d.Topic, d.ID)
		before, there = info, err == nil
	}
	for _, v := range Verbs() {
		s.wantErr(s.settleVerb(d, v), punctual.ErrLeaseLost, "%s with token %d, %s", v, d.Token, when)
		if there {
			s.wantUnchanged(before, fmt.Sprintf("%s with a token that is not current, %s,", v, when))
		}
	}
}

func fencingOldToken(s *harness) {
	old := bringRunOut(s)
	d := s.one(orders)
	s.wantFenced(old, "while the message is leased to another")
	s.done(d, punctual.SettleRelease, 0)
	s.wantFenced(old, "after another released the message")
	s.wantFenced(d, "after the holder released it himself")
	d = s.one(orders)
	s.wantFenced(old, "two claims later")
	s.ack(d)
	s.wantFenced(old, "after another acked the message")
}

func fencingWrongToken(s *harness) {
	d := bringLeased(s)
	for _, token := range []int64{d.Token + 1, d.Token - 1, 0, -1, -d.Token, 1<<63 - 1, -1 << 63, d.Token + 1<<32} {
		if token == d.Token {
			continue
		}
		wrong := d
		wrong.Token = token
		s.wantFenced(wrong, fmt.Sprintf("while the current one is %d", d.Token))
	}
	s.ack(d)
}

func fencingOtherMessage(s *harness) {
	s.push(order("a", 0))
	s.push(order("b", time.Millisecond))
	s.push(punctual.NewMessage{Topic: mails, ID: "a"})
	s.advance(time.Millisecond)
	a, b, m := s.take(orders, 1)[0], s.take(orders, 1)[0], s.one(mails)
	for _, pair := range [][2]punctual.Delivery{{a, b}, {b, a}, {a, m}, {m, a}} {
		if pair[0].Token == pair[1].Token {
			continue // tokens of messages with different names may be equal
		}
		wrong := pair[0]
		wrong.Token = pair[1].Token
		s.wantFenced(wrong, "which is that of another message")
	}
	for _, d := range []punctual.Delivery{a, b, m} {
		s.ack(d)
	}
}

func fencingSituations(s *harness) {
	s.eachSituation(func(s *harness, at situation, last punctual.Delivery) {
		current := at.name == isLeased || at.name == isLeasedCancelled || at.name == isRunOut
		if current {
			last.Token++ // the current token is a matter of the groups settle and amend
		}
		if last.ID == "" {
			last = punctual.Delivery{Message: punctual.Message{Topic: orders, ID: x}, Token: 1}
		}
		s.wantFenced(last, "of a message that is "+at.name)
	})
}

func fencingGrow(s *harness) {
	bringReady(s)
	token := int64(-1 << 63)
	for i := range 30 {
		ds := s.claim(punctual.Claim{Topics: []string{orders}, Max: 1, Lease: time.Second})
		if len(ds) != 1 {
			s.fail("claim %d returned %v", i, ids(ds))
		}
		if ds[0].Token <= token {
			s.fail("claim %d has token %d, not above that of the claim before it, %d", i, ds[0].Token, token)
		}
		token = ds[0].Token
		switch i % 3 {
		case 0:
			s.done(ds[0], punctual.SettleRelease, 0)
		case 1:
			s.done(ds[0], punctual.SettleSnooze, 0)
		case 2:
			s.done(ds[0], punctual.SettleExtend, 2*time.Second)
			s.advance(2 * time.Second)
			s.done(ds[0], punctual.SettleSnooze, 0)
		}
	}
}

func fencingReuse(s *harness) {
	var old []punctual.Delivery
	for i := range 6 {
		m := order(x, 0)
		m.IfExists = punctual.IfExistsReplace
		s.try(m)
		d := s.one(orders)
		for _, o := range old {
			if d.Token <= o.Token {
				s.fail("message %d with this ID has token %d, not above %d of an earlier one", i+1, d.Token, o.Token)
			}
			s.wantFenced(o, "which is that of an earlier message with the same ID")
		}
		old = append(old, d)
		switch i % 3 {
		case 0:
			s.ack(d)
		case 1:
			s.advance(time.Minute)
			s.outcome(cancel(orders, x), nil, isRunOut)
		}
	}
}

func fencingDeleted(s *harness) {
	in := s.inspector()
	first := bringLeased(s)
	s.purge(punctual.PurgeQuery{Topic: orders}, 1)
	s.wantFenced(first, "after the message was purged")
	second := bringLeased(s)
	if n, err := in.DeleteTopic(s.ctx, orders); err != nil || n != 1 {
		s.fail("DeleteTopic: %d, %v; want 1", n, err)
	}
	s.wantFenced(second, "after the topic was deleted")
	third := bringLeased(s)
	if first.Token >= second.Token || second.Token >= third.Token {
		s.fail("tokens of an ID across a purge and a deleted topic are %d, %d, %d; want them to grow", first.Token, second.Token, third.Token)
	}
	s.wantFenced(second, "which is from before the topic was deleted")
	s.ack(third)
}

func fencingAmended(s *harness) {
	d := bringRunOut(s)
	s.outcome(reschedule(orders, x, time.Hour), nil, isRunOut)
	s.wantFenced(d, "after the lease ran out and the message was rescheduled")
	s.outcome(cancel(orders, x), nil, isScheduled)
	s.wantFenced(d, "after the message was cancelled")
}
