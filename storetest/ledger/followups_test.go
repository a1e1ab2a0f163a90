package ledger

import (
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest/promise"
)

// followUp returns a follow-up for the topic of the script.
func followUp(id string) Fact {
	f := message(id)
	f.Topic = scriptTopic
	return f
}

// settleThen returns the fact of a settlement with follow-ups, as it stands before the call.
func settleThen(d Fact, v punctual.Verb, then ...Fact) Fact {
	return Fact{ID: d.ID, Token: d.Token, Verb: v, Then: then}
}

// followed settles with follow-ups, and the answer has the status. It returns the first follow-up
// as answers tell it later.
func (s *script) followed(d Fact, v punctual.Verb, status string, then ...Fact) (told Fact) {
	n := s.begin(CallSettle, settleThen(d, v, then...))
	told = then[0]
	told.Created, told.IfExists, told.IfDue = s.at, 0, 0
	s.end(CallSettle, n, Fact{Status: status})
	return told
}

// perhaps settles with follow-ups and gets no answer, because the process ends. It returns what
// followed returns.
func (s *script) perhaps(d Fact, v punctual.Verb, then ...Fact) (told Fact) {
	s.begin(CallSettle, settleThen(d, v, then...))
	told = then[0]
	told.Created, told.IfExists = s.at, 0
	s.gone()
	return told
}

// back lets a lease of the message run out, and has a claim deliver the message again.
func (s *script) back(m Fact, attempt int) Fact {
	s.sleep(2 * scriptLease)
	m.Failures = "1 lease ran out"
	return s.claim(m, attempt)
}

func TestLedgerKnowsFollowUps(t *testing.T) {
	for name, write := range map[string]func(s *script){
		"an ack and its follow-up": func(s *script) {
			f := s.followed(s.claim(s.push(message("m")), 1), punctual.SettleAck, "ok", followUp("f"))
			s.reads(missing("m"))
			s.claim(f, 1)
		},
		"a follow-up without an ID": func(s *script) {
			f := s.followed(s.claim(s.push(message("m")), 1), punctual.SettleAck, "ok", followUp(""))
			f.ID = "made"
			s.claim(f, 1)
		},
		"a follow-up without an ID, delivered by a claim that began before": func(s *script) {
			d := s.claim(s.push(message("m")), 1)
			c := s.begin(CallClaim, Fact{Delay: scriptLease})
			f := s.perhapsGoing(d, punctual.SettleAck, followUp(""))
			f.ID = "made"
			s.end(CallClaim, c, s.leased(f, 1))
			s.gone()
			s.reads(missing("m"))
		},
		"a follow-up without an ID, followed by itself, which a claim delivers that began before both": func(s *script) {
			d := s.claim(s.push(message("m")), 1)
			c := s.begin(CallClaim, Fact{Delay: scriptLease})
			f := s.followed(d, punctual.SettleAck, "ok", followUp(""))
			f.ID = "made"
			itself := followUp("made")
			itself.Life = "again"
			g := s.followed(s.claim(f, 1), punctual.SettleAck, "ok", itself)
			s.end(CallClaim, c, s.leased(g, 1))
		},
		"the message itself": func(s *script) {
			itself := followUp("m")
			itself.Life = "again"
			f := s.followed(s.claim(s.push(message("m")), 1), punctual.SettleAck, "ok", itself)
			s.claim(f, 1)
		},
		"a follow-up whose ID is in use": func(s *script) {
			f := s.push(message("f"))
			other := followUp("f")
			other.Life = "other"
			s.followed(s.claim(s.push(message("m")), 1), punctual.SettleAck, "ok", other)
			s.claim(f, 1)
		},
		"a refused follow-up": func(s *script) {
			s.push(message("f"))
			m := s.push(message("m"))
			other := followUp("f")
			other.IfExists = punctual.IfExistsFail
			d := s.claim(m, 1)
			s.followed(d, punctual.SettleAck, "duplicate", other)
			s.settle(d, punctual.SettleAck, "ok")
		},
		"a condition that is not met": func(s *script) {
			s.push(message("f"))
			d := s.claim(s.push(message("m")), 1)
			other := followUp("f")
			other.IfExists, other.IfDue = punctual.IfExistsReplace, firstMillisecond+1
			s.followed(d, punctual.SettleAck, "changed", other)
			other.Life, other.IfDue = "other", firstMillisecond
			s.claim(s.followed(d, punctual.SettleAck, "ok", other), 1)
		},
		"a stale token": func(s *script) {
			m := s.push(message("m"))
			d := s.claim(m, 1)
			s.back(m, 2)
			s.followed(d, punctual.SettleAck, "lease_lost", followUp("f"))
			s.reads(missing("f"))
		},
		"no answer, and both took effect": func(s *script) {
			f := s.perhaps(s.claim(s.push(message("m")), 1), punctual.SettleAck, followUp("f"))
			s.claim(f, 1)
			s.reads(missing("m"))
		},
		"no answer, and none took effect": func(s *script) {
			m := s.push(message("m"))
			s.perhaps(s.claim(m, 1), punctual.SettleAck, followUp("f"))
			s.reads(missing("f"))
			s.back(m, 2)
		},
		"no answer, and the message itself took its place": func(s *script) {
			itself := followUp("m")
			itself.Life = "again"
			f := s.perhaps(s.claim(s.push(message("m")), 1), punctual.SettleAck, itself)
			s.claim(f, 1)
		},
		"no answer, and the message itself did not": func(s *script) {
			itself := followUp("m")
			itself.Life = "again"
			m := s.push(message("m"))
			s.perhaps(s.claim(m, 1), punctual.SettleAck, itself)
			s.back(m, 2)
		},
		"no answer, of several that cannot be told apart": func(s *script) {
			for _, id := range []string{"1", "2", "3", "4", "5", "6"} {
				m := s.push(message("m" + id))
				s.perhaps(s.claim(m, 1), punctual.SettleSnooze, followUp("f"+id))
			}
		},
		"no answer yet, the follow-up was refused, and a later item for the message took effect": func(s *script) {
			itself := followUp("m")
			itself.Life = "again" // refused, because the ID is that of a dead message
			m := s.push(message("m"))
			d := s.claim(m, 1)
			m.Due = s.at + 100
			s.begin(CallSettle, settleThen(d, punctual.SettleDiscard, itself), Fact{ID: "m", Token: d.Token, Verb: punctual.SettleSnooze, Due: m.Due})
			s.sleep(200)
			s.claim(m, 1)
			s.gone()
		},
		"no answer yet, the settlement was refused, and a later item for the ID of the follow-up took effect": func(s *script) {
			other := followUp("f")
			other.IfExists = punctual.IfExistsFail
			m, f := s.push(message("m")), s.push(message("f"))
			d, e := s.claim(m, 1), s.claim(f, 1)
			f.Due = s.at + 100
			s.begin(CallSettle, settleThen(d, punctual.SettleAck, other), Fact{ID: "f", Token: e.Token, Verb: punctual.SettleSnooze, Due: f.Due})
			s.sleep(200)
			s.claim(f, 1)
			s.back(m, 2)
			s.gone()
		},
		"retries and snoozes to an instant": func(s *script) {
			m := s.push(message("m"))
			d := s.claim(m, 1)
			m.Due = s.at + 100
			s.call(CallSettle, Fact{ID: "m", Token: d.Token, Verb: punctual.SettleSnooze, Due: m.Due}, Fact{Status: "ok"})
			s.sleep(200)
			s.claim(m, 1)
		},
		"changes with conditions": func(s *script) {
			m := s.push(message("m"))
			change := func(c punctual.Change, ifDue int64, status string) {
				s.call(CallAmend, Fact{ID: "m", Change: c, IfDue: ifDue}, Fact{Status: status})
			}
			change(punctual.ChangeCancel, m.Due+1, "changed")
			change(punctual.ChangeRequeue, m.Due+1, "not_dead")
			s.claim(m, 1)
			change(punctual.ChangeReschedule, m.Due+1, "leased")
			change(punctual.ChangeCancel, m.Due+1, "changed")
			change(punctual.ChangeCancel, m.Due, "leased")
			change(punctual.ChangeCancel, m.Due+1, "leased")
		},
	} {
		s := newScript()
		write(s)
		if problems := s.broken(len(s.lines)); len(problems) > 0 {
			t.Errorf("%s: the ledger says %q", name, problems)
		}
	}
}

// perhapsGoing is perhaps without the end of the process.
func (s *script) perhapsGoing(d Fact, v punctual.Verb, then ...Fact) (told Fact) {
	s.begin(CallSettle, settleThen(d, v, then...))
	told = then[0]
	told.Created = s.at
	return told
}

func TestLedgerNamesBrokenFollowUps(t *testing.T) {
	for name, h := range map[string]struct {
		promise string
		write   func(s *script)
	}{
		"a follow-up of an ack is missing": {promise.P1, func(s *script) {
			s.followed(s.claim(s.push(message("m")), 1), punctual.SettleAck, "ok", followUp("f"))
			s.soundSoFar()
			s.reads(missing("f"))
		}},
		"the second of two is missing": {promise.P1, func(s *script) {
			f := s.followed(s.claim(s.push(message("m")), 1), punctual.SettleAck, "ok", followUp("f"), followUp("g"))
			s.claim(f, 1)
			s.soundSoFar()
			s.reads(missing("g"))
		}},
		"a follow-up of a stale settlement is there": {promise.P13, func(s *script) {
			m := s.push(message("m"))
			d := s.claim(m, 1)
			s.back(m, 2)
			f := s.followed(d, punctual.SettleAck, "lease_lost", followUp("f"))
			s.soundSoFar()
			s.claim(f, 1)
		}},
		"a follow-up is refused for an ID that is free": {promise.P13, func(s *script) {
			d := s.claim(s.push(message("m")), 1)
			other := followUp("f")
			other.IfExists = punctual.IfExistsFail
			s.soundSoFar()
			s.followed(d, punctual.SettleAck, "duplicate", other)
		}},
		"a settlement is refused for a follow-up, and made": {promise.P1, func(s *script) {
			s.push(message("f"))
			d := s.claim(s.push(message("m")), 1)
			other := followUp("f")
			other.IfExists = punctual.IfExistsFail
			s.followed(d, punctual.SettleAck, "duplicate", other)
			s.soundSoFar()
			s.reads(missing("m"))
		}},
		"a settlement succeeds whose follow-up is to be refused": {promise.P13, func(s *script) {
			s.push(message("f"))
			d := s.claim(s.push(message("m")), 1)
			other := followUp("f")
			other.IfExists = punctual.IfExistsFail
			s.soundSoFar()
			s.followed(d, punctual.SettleAck, "ok", other)
		}},
		"without an answer the follow-up is there and the message not acked": {promise.P13, func(s *script) {
			m := s.push(message("m"))
			f := s.perhaps(s.claim(m, 1), punctual.SettleAck, followUp("f"))
			s.claim(f, 1)
			s.soundSoFar()
			s.back(m, 2)
		}},
		"without an answer the message is acked and the follow-up missing": {promise.P13, func(s *script) {
			s.perhaps(s.claim(s.push(message("m")), 1), punctual.SettleAck, followUp("f"))
			s.reads(missing("m"))
			s.soundSoFar()
			s.reads(missing("f"))
		}},
		"without an answer one follow-up is there and the other missing": {promise.P13, func(s *script) {
			f := s.perhaps(s.claim(s.push(message("m")), 1), punctual.SettleSnooze, followUp("f"), followUp("g"))
			s.claim(f, 1)
			s.soundSoFar()
			s.reads(missing("g"))
		}},
		"without an answer the message itself is missing": {promise.P1, func(s *script) {
			itself := followUp("m")
			itself.Life = "again"
			s.perhaps(s.claim(s.push(message("m")), 1), punctual.SettleAck, itself)
			s.soundSoFar()
			s.reads(missing("m"))
		}},
		"a snooze to an instant ends early": {promise.P2, func(s *script) {
			m := s.push(message("m"))
			d := s.claim(m, 1)
			m.Due = s.at + 100
			s.call(CallSettle, Fact{ID: "m", Token: d.Token, Verb: punctual.SettleSnooze, Due: m.Due}, Fact{Status: "ok"})
			s.soundSoFar()
			s.claim(m, 1)
		}},
		"a cancel is made although its condition is not met": {promise.P5, func(s *script) {
			m := s.push(message("m"))
			s.soundSoFar()
			s.call(CallAmend, Fact{ID: "m", Change: punctual.ChangeCancel, IfDue: m.Due + 1}, Fact{Status: "cancelled"})
		}},
		"a push is made although its condition is not met": {promise.P7, func(s *script) {
			m := s.push(message("m"))
			other := message("m")
			other.Life, other.IfExists, other.IfDue = "other", punctual.IfExistsReplace, m.Due+1
			s.soundSoFar()
			s.call(CallPush, other, pushAnswer(other, "replaced"))
		}},
	} {
		s := newScript()
		h.write(s)
		if problems := s.broken(s.sound); len(problems) > 0 {
			t.Errorf("%s: before that the ledger says %q", name, problems)
		}
		if problems := strings.Join(s.broken(len(s.lines)), "\n"); !strings.Contains(problems, h.promise) {
			t.Errorf("%s: the ledger says %q; want %s broken", name, problems, h.promise)
		}
	}
}

// eventOf returns an event with the given ID, which says what happened to the message m.
func eventOf(id, what string, reason punctual.DeathReason) Fact {
	return Fact{Topic: scriptTopic + "@events", ID: id, Event: &EventFact{Event: what, Topic: scriptTopic, ID: "m", Reason: reason, At: 1}}
}

func TestLedgerKnowsEvents(t *testing.T) {
	for name, h := range map[string]struct {
		broken bool
		write  func(s *script)
	}{
		"one of an ack": {false, func(s *script) {
			s.settle(s.claim(s.push(message("m")), 1), punctual.SettleAck, "ok")
			s.call(CallGet, Fact{}, eventOf("1", "acked", ""))
			s.call(CallGet, Fact{}, eventOf("1", "acked", ""))
		}},
		"none of an ack": {true, func(s *script) { s.settle(s.claim(s.push(message("m")), 1), punctual.SettleAck, "ok") }},
		"two of an ack": {true, func(s *script) {
			s.settle(s.claim(s.push(message("m")), 1), punctual.SettleAck, "ok")
			s.call(CallGet, Fact{}, eventOf("1", "acked", ""), eventOf("2", "acked", ""))
		}},
		"one of an ack that was not answered": {false, func(s *script) {
			d := s.claim(s.push(message("m")), 1)
			s.begin(CallSettle, Fact{ID: "m", Token: d.Token, Verb: punctual.SettleAck})
			s.gone()
			s.call(CallGet, Fact{}, eventOf("1", "acked", ""))
		}},
		"one of an ack that was refused": {true, func(s *script) {
			d := s.claim(s.push(message("m")), 1)
			d.Token++
			s.settle(d, punctual.SettleAck, "lease_lost")
			s.call(CallGet, Fact{}, eventOf("1", "acked", ""))
		}},
		"one of a discard": {false, func(s *script) {
			s.settle(s.claim(s.push(message("m")), 1), punctual.SettleDiscard, "ok")
			s.call(CallGet, Fact{}, eventOf("1", "dead", punctual.ReasonDiscarded))
		}},
		"none of a cancel": {true, func(s *script) {
			s.push(message("m"))
			s.amend("m", punctual.ChangeCancel, "cancelled")
		}},
		"an event that changes": {true, func(s *script) {
			s.settle(s.claim(s.push(message("m")), 1), punctual.SettleAck, "ok")
			s.call(CallGet, Fact{}, eventOf("1", "acked", ""))
			s.call(CallGet, Fact{}, eventOf("1", "dead", punctual.ReasonExpired))
		}},
	} {
		for _, tells := range []bool{true, false} {
			s := newScript()
			if tells {
				s.configure(func(x *punctual.Settings) { x.Emit = allEndings })
			}
			h.write(s)
			l := New(KeepsTransactions)
			for _, e := range s.lines {
				l.Add(e)
			}
			l.end(s.at, nil)
			l.check(false)
			l.checkEvents()
			if wrong := len(l.Problems()) > 0; wrong != (h.broken && (tells || name == "an event that changes")) {
				t.Errorf("%s, of a topic that tells %t: the ledger says %q", name, tells, l.Problems())
			}
		}
	}
}
