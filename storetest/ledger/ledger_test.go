package ledger

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest/promise"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script writes a history by hand, at a clock that moves on by one millisecond with each line.
type script struct {
	lines []Line
	calls int64
	token int64
	at    int64
	// cuts are how many lines there were at each power cut.
	cuts []int
	// sound is how many lines the history has before the one that breaks a promise.
	sound int
	// tells is the TellsGivenBack of the ledger.
	tells bool
}

const (
	firstMillisecond = 1_000_000 // the clock before the first line of a script
	scriptLease      = 50        // the lease of most of its claims, in ms
	scriptTopic      = "a"
)

func newScript() *script { return &script{calls: FirstCall(1), at: firstMillisecond} }

// write writes a line a millisecond behind the last one.
func (s *script) write(e Line) {
	s.at++
	e.At = s.at
	s.lines = append(s.lines, e)
}

// begin writes the line before a call and returns its number.
func (s *script) begin(call string, asked ...Fact) int64 {
	for i := range asked {
		if call != CallClaim {
			asked[i].Topic = scriptTopic
		}
	}
	s.calls++
	s.write(Line{Call: call, N: s.calls, Facts: asked})
	return s.calls
}

// end writes the line behind a call.
func (s *script) end(call string, n int64, told ...Fact) {
	s.write(Line{Call: call, N: n, Answer: true, Facts: told})
}

// fails writes the line behind a call that failed.
func (s *script) fails(call string, n int64, code string, definite bool) {
	s.write(Line{Call: call, N: n, Answer: true, Code: code, Err: code, Definite: definite})
}

// call writes both lines.
func (s *script) call(call string, asked Fact, told ...Fact) {
	s.end(call, s.begin(call, asked), told...)
}

// message returns a message to push. It is due at the time before the first line of the script.
func message(id string) Fact {
	return Fact{ID: id, Life: "life of " + id, Size: 20, Due: firstMillisecond}
}

// beginPush begins a push and returns its number, and the message as it is told later.
func (s *script) beginPush(m Fact) (n int64, told Fact) {
	n = s.begin(CallPush, m)
	m.Topic, m.Created = scriptTopic, s.at
	if m.ExpireAfter > 0 {
		m.Expires, m.ExpireAfter = m.Due+m.ExpireAfter, 0
	}
	m.IfExists = 0
	return n, m
}

// push pushes a message, which is stored.
func (s *script) push(m Fact) (told Fact) {
	n, told := s.beginPush(m)
	s.end(CallPush, n, pushAnswer(m, "stored"))
	return told
}

func pushAnswer(m Fact, status string) Fact { return Fact{ID: m.ID, Due: m.Due, Status: status} }

// leased returns a delivery of a message by a claim whose answer or LineGaveBack is the next line.
func (s *script) leased(m Fact, attempt int) Fact {
	s.token++
	m.Token, m.Attempt, m.At, m.Until = s.token, attempt, s.at+1, s.at+1+scriptLease
	return m
}

// claim has a claim deliver a message.
func (s *script) claim(m Fact, attempt int) Fact {
	n := s.begin(CallClaim, Fact{Delay: scriptLease})
	d := s.leased(m, attempt)
	s.end(CallClaim, n, d)
	return d
}

// gaveBack writes that claim n, which is under way, gives back d.
func (s *script) gaveBack(n int64, d Fact) {
	s.write(Line{Call: LineGaveBack, N: n, Facts: []Fact{d}})
}

func (s *script) settle(d Fact, verb punctual.Verb, status string) {
	s.call(CallSettle, Fact{ID: d.ID, Token: d.Token, Verb: verb}, Fact{Status: status})
}

// reads writes a read that is answered with a message, or that there is none.
func (s *script) reads(told Fact) {
	s.call(CallGet, Fact{ID: told.ID}, told)
}

// read returns a message as a read shows it.
func read(m Fact, state punctual.State) Fact {
	m.State, m.Token, m.At = state, 0, 0
	return m
}

func missing(id string) Fact { return Fact{Topic: scriptTopic, ID: id, Status: "not_found"} }

// amend changes a message by its ID.
func (s *script) amend(id string, change punctual.Change, status string) {
	asked, told := Fact{ID: id, Change: change}, Fact{Status: status}
	if change != punctual.ChangeCancel {
		asked.Due = s.at + 1000
	}
	if status == "rescheduled" || status == "requeued" {
		told.Due = asked.Due
	}
	s.call(CallAmend, asked, told)
}

// configure sets the settings of the topic: the defaults with the change.
func (s *script) configure(change func(x *punctual.Settings)) {
	n, x := s.beginConfigure(change)
	s.endConfigure(n, x)
}

func (s *script) beginConfigure(change func(x *punctual.Settings)) (n int64, x punctual.Settings) {
	x = punctual.DefaultSettings()
	change(&x)
	s.calls++
	s.write(Line{Call: CallConfigure, N: s.calls, Facts: []Fact{{Topic: scriptTopic}}, Settings: &x})
	return s.calls, x
}

func (s *script) endConfigure(n int64, x punctual.Settings) {
	s.write(Line{Call: CallConfigure, N: n, Answer: true, Settings: &x})
}

// stats writes a Stats that is answered with the counts, from scheduled to dead, and the default
// settings.
func (s *script) stats(counts ...int64) {
	x := punctual.DefaultSettings()
	n := s.begin(CallStats, Fact{})
	s.write(Line{Call: CallStats, N: n, Answer: true, Facts: []Fact{{Counts: counts}}, Settings: &x})
}

// keepRecords has the topic keep finished records.
func (s *script) keepRecords() {
	s.configure(func(x *punctual.Settings) { x.FinishedRetention = recordRetention })
}

// record writes a read of the finished record of an ID, which says how the message ended; "" says
// that there is no record.
func (s *script) record(id string, how punctual.Outcome) {
	s.call(CallFinished, Fact{ID: id}, Fact{Topic: scriptTopic, ID: id, Status: string(how)})
}

// soundSoFar notes that the lines so far break no promise, and the next ones do.
func (s *script) soundSoFar() { s.sound = len(s.lines) }

// sleep lets time pass.
func (s *script) sleep(ms int64) { s.at += ms }

// gone writes the end of the process. Its calls without an answer may have taken effect or not.
func (s *script) gone() { s.write(Line{Call: LineEnd, N: FirstCall(1)}) }

// powerCut takes from the store what it does not promise to keep.
func (s *script) powerCut() { s.cuts = append(s.cuts, len(s.lines)) }

// handler has a handler start or stop.
func (s *script) handler(event string, d Fact) {
	s.write(Line{Call: event, N: s.calls, Facts: []Fact{d}})
}

// scriptGrace is how long after the end of its lease a handler may be seen to start.
const scriptGrace = 10

// broken returns what a ledger reports of the first lines.
func (s *script) broken(lines int) []string {
	l := New(KeepsTransactions)
	l.Expected, l.Grace, l.GivesBack = []string{"deadline", "store_failed", "unreachable"}, scriptGrace, true
	l.TellsGivenBack = s.tells
	for i, e := range s.lines[:lines] {
		if slices.Contains(s.cuts, i) {
			l.PowerCut(e.At)
		}
		l.Add(e)
	}
	l.end(s.at, nil)
	return l.Problems()
}

// addTo adds all lines to a ledger, and returns what the ledger reports then.
func (s *script) addTo(l *Ledger) []string {
	for _, e := range s.lines {
		l.Add(e)
	}
	return l.Problems()
}

// soundHistories are histories in which a ledger must find nothing wrong.
var soundHistories = map[string]func(s *script){
	"a claim that was killed had leased a message again when the first lease had run out": func(s *script) {
		s.tells = true
		m := s.push(message("m"))
		s.begin(CallClaim, Fact{Delay: scriptLease})
		s.sleep(2 * scriptLease)
		s.gone()
		s.sleep(scriptLease)
		m.Failures = "1 lease ran out|2 lease ran out"
		s.claim(m, 3)
	},
	"a message is acked": func(s *script) {
		s.settle(s.claim(s.push(message("m")), 1), punctual.SettleAck, "ok")
		s.reads(missing("m"))
	},
	"ends leave records where the topic keeps them, and a purge none": func(s *script) {
		s.settle(s.claim(s.push(message("m")), 1), punctual.SettleAck, "ok")
		s.record("m", "")
		s.keepRecords()
		s.record("m", "")
		s.settle(s.claim(s.push(message("m")), 1), punctual.SettleAck, "ok")
		s.record("m", punctual.OutcomeAcked)
		s.push(message("m"))
		s.record("m", punctual.OutcomeAcked)
		s.call(CallPurge, Fact{}, Fact{Count: 1})
		s.record("m", punctual.OutcomeAcked)
		s.push(message("m"))
		s.amend("m", punctual.ChangeCancel, "cancelled")
		s.record("m", punctual.OutcomeCancelled)
		s.configure(func(*punctual.Settings) {})
		s.settle(s.claim(s.push(message("m")), 1), punctual.SettleAck, "ok")
		s.record("m", punctual.OutcomeCancelled)
		s.call(CallDelete, Fact{}, Fact{})
		s.record("m", "")
	},
	"an ack of which nobody knows has left a record": func(s *script) {
		s.keepRecords()
		d := s.claim(s.push(message("m")), 1)
		s.begin(CallSettle, Fact{ID: "m", Token: d.Token, Verb: punctual.SettleAck})
		s.gone()
		s.record("m", punctual.OutcomeAcked)
		s.reads(missing("m"))
	},
	"what expired has a record when it is gone": func(s *script) {
		s.keepRecords()
		m := message("m")
		m.ExpireAfter, m.Drop = 1, true
		s.push(m)
		s.call(CallClaim, Fact{Delay: scriptLease})
		s.record("m", punctual.OutcomeExpired)
		s.reads(missing("m"))
	},
	"a claim that began before the push delivers under an ID that the push never told": func(s *script) {
		c := s.begin(CallClaim, Fact{Delay: scriptLease})
		p, m := s.beginPush(message(""))
		s.fails(CallPush, p, "deadline", false)
		m.ID = "made"
		s.end(CallClaim, c, s.leased(m, 1))
	},
	"what is pushed in place of another outlives a purge that began before": func(s *script) {
		s.push(message("m"))
		purge := s.begin(CallPurge, Fact{})
		second := message("m")
		second.Life, second.IfExists = "second", punctual.IfExistsReplace
		p, m := s.beginPush(second)
		s.end(CallPush, p, pushAnswer(second, "replaced"))
		s.end(CallPurge, purge, Fact{})
		s.claim(m, 1)
	},
	"a push that was not answered is not there": func(s *script) {
		s.beginPush(message("m"))
		s.gone()
		s.reads(missing("m"))
	},
	"a push that was not answered is there": func(s *script) {
		_, m := s.beginPush(message("m"))
		s.gone()
		s.reads(read(m, punctual.StateReady))
	},
	"a push of which nobody knows, beside one that is stored, comes behind its answer": func(s *script) {
		n := s.begin(CallPush, message("m"), message("other"))
		late := message("m")
		late.Topic = scriptTopic
		s.end(CallPush, n, Fact{ID: "m", Status: "indeterminate"}, pushAnswer(message("other"), "stored"))
		s.reads(missing("m"))
		late.Created = s.at + 1
		s.claim(late, 1)
	},
	"a claim that was not answered has taken an attempt": func(s *script) {
		m := s.push(message("m"))
		s.begin(CallClaim, Fact{Delay: scriptLease})
		s.gone()
		s.sleep(2 * scriptLease)
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	},
	"a claim that was not answered has taken nothing": func(s *script) {
		m := s.push(message("m"))
		s.begin(CallClaim, Fact{Delay: scriptLease})
		s.gone()
		s.claim(m, 1)
	},
	"an ack comes behind the end of its lease": func(s *script) {
		d := s.claim(s.push(message("m")), 1)
		s.sleep(2 * scriptLease)
		s.settle(d, punctual.SettleAck, "ok")
	},
	"a kill takes an ack that was not answered": func(s *script) {
		m := s.push(message("m"))
		d := s.claim(m, 1)
		s.begin(CallSettle, Fact{ID: d.ID, Token: d.Token, Verb: punctual.SettleAck})
		s.gone()
		s.sleep(2 * scriptLease)
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	},
	"a claim that takes longer than its lease gives back what it had leased": func(s *script) {
		m, other := s.push(message("m")), s.push(message("other"))
		n := s.begin(CallClaim, Fact{Delay: scriptLease})
		s.sleep(scriptLease)
		leased := read(m, punctual.StateLeased)
		leased.Attempt, leased.Until = 1, s.at+scriptLease
		s.reads(leased)
		s.end(CallClaim, n, s.leased(other, 1))
		s.reads(read(m, punctual.StateReady))
		s.claim(m, 1)
	},
	"a claim that takes longer than two leases could give back neither": func(s *script) {
		m, other := s.push(message("m")), s.push(message("other"))
		n := s.begin(CallClaim, Fact{Delay: scriptLease})
		s.sleep(2 * scriptLease)
		s.end(CallClaim, n, s.leased(other, 1))
		s.sleep(2 * scriptLease)
		m.Failures = "1 lease ran out|2 lease ran out"
		s.claim(m, 3)
	},
	"a claim tells what it gives back, and claims it again": func(s *script) {
		s.tells = true
		m := s.push(message("m"))
		n := s.begin(CallClaim, Fact{Delay: scriptLease})
		s.gaveBack(n, s.leased(m, 1))
		s.sleep(2 * scriptLease)
		d := s.leased(m, 1)
		s.end(CallClaim, n, d)
		s.settle(d, punctual.SettleAck, "ok")
		s.reads(missing("m"))
	},
	"a claim tells what it gives back, which comes too late": func(s *script) {
		s.tells = true
		m := s.push(message("m"))
		n := s.begin(CallClaim, Fact{Delay: scriptLease})
		d := s.leased(m, 1)
		s.gaveBack(n, d)
		s.sleep(2 * scriptLease)
		s.fails(CallClaim, n, "unreachable", true)
		m.Failures = "1 lease ran out"
		s.settle(s.claim(m, 2), punctual.SettleAck, "ok")
	},
	"a claim tells what it gives back, whose ID nobody was told": func(s *script) {
		s.tells = true
		n, m := s.beginPush(Fact{Life: "life", Size: 20, Due: firstMillisecond})
		s.fails(CallPush, n, "deadline", false)
		m.ID = "made"
		n = s.begin(CallClaim, Fact{Delay: scriptLease})
		s.gaveBack(n, s.leased(m, 1))
		s.sleep(2 * scriptLease)
		s.end(CallClaim, n)
		s.claim(m, 1)
	},
	"a claim tells that it may have leased more than it knows": func(s *script) {
		s.tells = true
		m, other := s.push(message("m")), s.push(message("other"))
		n := s.begin(CallClaim, Fact{Delay: scriptLease})
		s.write(Line{Call: LineGaveBack, N: n})
		s.end(CallClaim, n, s.leased(other, 1))
		s.sleep(2 * scriptLease)
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	},
	"a process ends whose claim had told what it gives back": func(s *script) {
		s.tells = true
		m := s.push(message("m"))
		s.gaveBack(s.begin(CallClaim, Fact{Delay: scriptLease}), s.leased(m, 1))
		s.sleep(2 * scriptLease)
		s.gone()
		s.settle(s.claim(m, 1), punctual.SettleAck, "ok")
	},
	"a claim gives back what had been leased before": func(s *script) {
		m, other := s.push(message("m")), s.push(message("other"))
		s.claim(m, 1)
		s.sleep(2 * scriptLease)
		n := s.begin(CallClaim, Fact{Delay: scriptLease})
		s.sleep(scriptLease)
		ready := read(m, punctual.StateReady)
		ready.Attempt, ready.Failures = 1, "1 lease ran out"
		s.reads(ready)
		s.end(CallClaim, n, s.leased(other, 1))
	},
	"a claim whose context ended had leased what nobody learned of": func(s *script) {
		m := s.push(message("m"))
		s.fails(CallClaim, s.begin(CallClaim, Fact{Delay: scriptLease}), "deadline", true)
		s.sleep(2 * scriptLease)
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	},
	"a claim that failed behind the end of its lease had leased before": func(s *script) {
		m := s.push(message("m"))
		n := s.begin(CallClaim, Fact{Delay: scriptLease})
		s.sleep(2 * scriptLease)
		s.fails(CallClaim, n, "unreachable", true)
		s.sleep(2 * scriptLease)
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	},
	"a store that fails keeps a lease that its claim did not return beside a change": func(s *script) {
		m, other := s.push(message("m")), s.push(message("other"))
		c := s.begin(CallClaim, Fact{Delay: scriptLease})
		a := s.begin(CallAmend, Fact{ID: "m", Change: punctual.ChangeCancel})
		s.end(CallClaim, c, s.leased(other, 1))
		s.fails(CallAmend, a, "deadline", false)
		s.fails(CallAmend, s.begin(CallAmend, Fact{ID: "m", Change: punctual.ChangeCancel}), "store_failed", true)
		s.gone()
		s.sleep(2 * scriptLease)
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	},
	"a power cut takes an ack": func(s *script) {
		m := s.push(message("m"))
		s.settle(s.claim(m, 1), punctual.SettleAck, "ok")
		s.powerCut()
		s.sleep(2 * scriptLease)
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	},
	"a power cut takes a claim": func(s *script) {
		m := s.push(message("m"))
		s.claim(m, 1)
		s.powerCut()
		s.claim(m, 1)
	},
	"a handler starts behind another one's lease": func(s *script) {
		m := s.push(message("m"))
		s.handler(LineStart, s.claim(m, 1))
		s.sleep(2 * scriptLease)
		m.Failures = "1 lease ran out"
		s.handler(LineStart, s.claim(m, 2))
	},
	"an extension by the topic's lease takes a lease that is being made shorter": func(s *script) {
		m := s.push(message("m"))
		d := s.claim(m, 1)
		s.handler(LineStart, d)
		n, shorter := s.beginConfigure(func(x *punctual.Settings) { x.Lease = 2 * scriptLease * time.Millisecond })
		s.settle(d, extend, "ok")
		s.endConfigure(n, shorter)
		s.sleep(3 * scriptLease)
		m.Failures = "1 lease ran out"
		s.handler(LineStart, s.claim(m, 2))
	},
	"an extension by the topic's lease takes a lease that is being made longer": func(s *script) {
		s.configure(func(x *punctual.Settings) { x.Lease = scriptLease * time.Millisecond })
		d := s.claim(s.push(message("m")), 1)
		n, longer := s.beginConfigure(func(x *punctual.Settings) { x.Lease = 10 * scriptLease * time.Millisecond })
		s.settle(d, extend, "ok")
		s.endConfigure(n, longer)
		s.sleep(3 * scriptLease)
		s.handler(LineStart, d)
	},
	"a cancel during a lease comes too late": func(s *script) {
		d := s.claim(s.push(message("m")), 1)
		s.amend("m", punctual.ChangeCancel, "leased")
		s.settle(d, extend, "cancelled")
		s.settle(d, punctual.SettleAck, "ok")
	},
}

// brokenHistories are histories that break a promise after their sound lines.
var brokenHistories = map[string]struct {
	promise string
	write   func(s *script)
}{
	"a claim leased what it does not tell to give back": {promise.P6, func(s *script) {
		s.tells = true
		m := s.push(message("m"))
		n := s.begin(CallClaim, Fact{Delay: scriptLease})
		s.sleep(2 * scriptLease)
		s.fails(CallClaim, n, "unreachable", true)
		s.soundSoFar()
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	}},
	"a claim gives back what it was too early to lease": {promise.P2, func(s *script) {
		s.tells = true
		early := message("m")
		early.Due += 1000
		m := s.push(early)
		n := s.begin(CallClaim, Fact{Delay: scriptLease})
		s.soundSoFar()
		s.gaveBack(n, s.leased(m, 1))
		s.end(CallClaim, n)
	}},
	"what was pushed is not found": {promise.P1, func(s *script) {
		s.push(message("m"))
		s.soundSoFar()
		s.reads(missing("m"))
	}},
	"a power cut takes a push": {promise.P1, func(s *script) {
		s.push(message("m"))
		s.powerCut()
		s.soundSoFar()
		s.reads(missing("m"))
	}},
	"a power cut takes a cancel": {promise.P5, func(s *script) {
		m := s.push(message("m"))
		s.amend("m", punctual.ChangeCancel, "cancelled")
		s.powerCut()
		s.soundSoFar()
		s.claim(m, 1)
	}},
	"a claim that failed within its lease had leased before": {promise.P6, func(s *script) {
		m := s.push(message("m"))
		s.fails(CallClaim, s.begin(CallClaim, Fact{Delay: 2 * scriptLease}), "unreachable", true)
		s.sleep(2 * scriptLease)
		s.soundSoFar()
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	}},
	"a kill takes an ack": {promise.P1, func(s *script) {
		m := s.push(message("m"))
		s.settle(s.claim(m, 1), punctual.SettleAck, "ok")
		s.gone()
		s.sleep(2 * scriptLease)
		s.soundSoFar()
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	}},
	"a kill takes an ack that a read had met": {promise.P1, func(s *script) {
		m := s.push(message("m"))
		d := s.claim(m, 1)
		s.begin(CallSettle, Fact{ID: d.ID, Token: d.Token, Verb: punctual.SettleAck})
		s.reads(missing("m"))
		s.gone()
		s.sleep(2 * scriptLease)
		s.soundSoFar()
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	}},
	"a store that has not failed counts an attempt beside a change": {promise.P6, func(s *script) {
		m, other := s.push(message("m")), s.push(message("other"))
		c := s.begin(CallClaim, Fact{Delay: scriptLease})
		a := s.begin(CallAmend, Fact{ID: "m", Change: punctual.ChangeCancel})
		s.end(CallClaim, c, s.leased(other, 1))
		s.fails(CallAmend, a, "deadline", false)
		s.gone()
		s.sleep(2 * scriptLease)
		s.soundSoFar()
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	}},
	"a store that fails counts an attempt beside no change": {promise.P6, func(s *script) {
		m, other := s.push(message("m")), s.push(message("other"))
		s.claim(other, 1)
		s.fails(CallAmend, s.begin(CallAmend, Fact{ID: "m", Change: punctual.ChangeCancel}), "deadline", false)
		s.fails(CallAmend, s.begin(CallAmend, Fact{ID: "m", Change: punctual.ChangeCancel}), "store_failed", true)
		s.gone()
		s.sleep(2 * scriptLease)
		s.soundSoFar()
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	}},
	"a look at everything misses a message": {promise.P1, func(s *script) {
		s.push(message("m"))
		s.soundSoFar()
		s.call(CallLook, Fact{})
	}},
	"a message that was found after a kill is gone": {promise.P1, func(s *script) {
		_, m := s.beginPush(message("m"))
		s.gone()
		s.reads(read(m, punctual.StateReady))
		s.soundSoFar()
		s.reads(missing("m"))
	}},
	"what was acked is delivered": {promise.P1, func(s *script) {
		m := s.push(message("m"))
		s.settle(s.claim(m, 1), punctual.SettleAck, "ok")
		s.soundSoFar()
		s.claim(m, 2)
	}},
	"what was there outlives a purge of everything": {promise.P1, func(s *script) {
		m := s.push(message("m"))
		s.call(CallPurge, Fact{}, Fact{Count: 1})
		s.soundSoFar()
		s.claim(m, 1)
	}},
	"the body of another message is delivered": {promise.P1, func(s *script) {
		m := s.push(message("m"))
		s.soundSoFar()
		m.Life = "another"
		s.claim(m, 1)
	}},
	"a message is delivered before it is due": {promise.P2, func(s *script) {
		m := message("m")
		m.Due = s.at + 1000
		m = s.push(m)
		s.soundSoFar()
		s.claim(m, 1)
	}},
	"a message is delivered behind its expiry": {promise.P2, func(s *script) {
		m := message("m")
		m.ExpireAfter = 10
		m = s.push(m)
		s.sleep(20)
		s.soundSoFar()
		s.claim(m, 1)
	}},
	"another due time is told than was asked for": {promise.P2, func(s *script) {
		m := message("m")
		n, _ := s.beginPush(m)
		s.soundSoFar()
		m.Due += 5
		s.end(CallPush, n, pushAnswer(m, "stored"))
	}},
	"a leased message is delivered": {promise.P3, func(s *script) {
		m := s.push(message("m"))
		s.claim(m, 1)
		s.soundSoFar()
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	}},
	"a message is leased by nobody": {promise.P13, func(s *script) {
		m := s.push(message("m"))
		s.claim(s.push(message("other")), 1)
		s.soundSoFar()
		leased := read(m, punctual.StateLeased)
		leased.Attempt, leased.Until = 1, s.at+scriptLease
		s.reads(leased)
	}},
	"a lease is shorter than asked for": {promise.P3, func(s *script) {
		m := s.push(message("m"))
		n := s.begin(CallClaim, Fact{Delay: scriptLease})
		s.soundSoFar()
		d := s.leased(m, 1)
		d.Until -= 20
		s.end(CallClaim, n, d)
	}},
	"a handler starts behind its lease": {promise.P3, func(s *script) {
		d := s.claim(s.push(message("m")), 1)
		s.sleep(2 * scriptLease)
		s.soundSoFar()
		s.handler(LineStart, d)
	}},
	"a handler starts twice under one lease": {promise.P3, func(s *script) {
		d := s.claim(s.push(message("m")), 1)
		s.handler(LineStart, d)
		s.handler(LineStop, d)
		s.soundSoFar()
		s.handler(LineStart, d)
	}},
	"two handlers of a message run under leases that hold": {promise.P3, func(s *script) {
		d := s.claim(s.push(message("m")), 1)
		s.handler(LineStart, d)
		s.soundSoFar()
		d.Token++
		s.handler(LineStart, d)
	}},
	"a token is given out twice": {promise.P4, func(s *script) {
		m := s.push(message("m"))
		s.claim(m, 1)
		s.sleep(2 * scriptLease)
		s.soundSoFar()
		s.token--
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	}},
	"an ack with an old token is taken": {promise.P4, func(s *script) {
		m := s.push(message("m"))
		d := s.claim(m, 1)
		s.sleep(2 * scriptLease)
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
		s.soundSoFar()
		s.settle(d, punctual.SettleAck, "ok")
	}},
	"an ack within its lease is refused": {promise.P4, func(s *script) {
		d := s.claim(s.push(message("m")), 1)
		s.soundSoFar()
		s.settle(d, punctual.SettleAck, "lease_lost")
	}},
	"what was cancelled is delivered": {promise.P5, func(s *script) {
		m := s.push(message("m"))
		s.amend("m", punctual.ChangeCancel, "cancelled")
		s.soundSoFar()
		s.claim(m, 1)
	}},
	"a cancel during a lease is said to have come in time": {promise.P5, func(s *script) {
		s.claim(s.push(message("m")), 1)
		s.soundSoFar()
		s.amend("m", punctual.ChangeCancel, "cancelled")
	}},
	"what was cancelled during a lease is delivered again": {promise.P5, func(s *script) {
		m := s.push(message("m"))
		s.claim(m, 1)
		s.amend("m", punctual.ChangeCancel, "leased")
		s.sleep(2 * scriptLease)
		s.soundSoFar()
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	}},
	"an extension of a cancelled message is taken": {promise.P5, func(s *script) {
		d := s.claim(s.push(message("m")), 1)
		s.amend("m", punctual.ChangeCancel, "leased")
		s.soundSoFar()
		s.settle(d, extend, "ok")
	}},
	"an attempt is not counted": {promise.P6, func(s *script) {
		m := s.push(message("m"))
		s.claim(m, 1)
		s.sleep(2 * scriptLease)
		s.soundSoFar()
		m.Failures = "1 lease ran out"
		s.claim(m, 1)
	}},
	"an end has left no record": {promise.P13, func(s *script) {
		s.keepRecords()
		s.settle(s.claim(s.push(message("m")), 1), punctual.SettleAck, "ok")
		s.soundSoFar()
		s.record("m", "")
	}},
	"a record says that the message ended otherwise": {promise.P13, func(s *script) {
		s.keepRecords()
		s.push(message("m"))
		s.amend("m", punctual.ChangeCancel, "cancelled")
		s.soundSoFar()
		s.record("m", punctual.OutcomeAcked)
	}},
	"there is a record of a message that is stored": {promise.P13, func(s *script) {
		s.keepRecords()
		s.push(message("m"))
		s.soundSoFar()
		s.record("m", punctual.OutcomeAcked)
	}},
	"an ack that left a record is taken back by a power cut": {promise.P1, func(s *script) {
		s.keepRecords()
		d := s.claim(s.push(message("m")), 1)
		s.settle(d, punctual.SettleAck, "ok")
		s.soundSoFar()
		s.powerCut()
		s.reads(read(d, punctual.StateReady))
	}},
	"the history lacks a lease that ran out": {promise.P6, func(s *script) {
		m := s.push(message("m"))
		s.claim(m, 1)
		s.sleep(2 * scriptLease)
		s.soundSoFar()
		s.claim(m, 2)
	}},
	"a message is delivered once more than it may be": {promise.P6, func(s *script) {
		m := message("m")
		m.MaxAttempts = 1
		m = s.push(m)
		s.claim(m, 1)
		s.sleep(2 * scriptLease)
		s.soundSoFar()
		m.Failures = "1 lease ran out"
		s.claim(m, 2)
	}},
	"a dead message is delivered": {promise.P6, func(s *script) {
		m := s.push(message("m"))
		s.settle(s.claim(m, 1), punctual.SettleDiscard, "ok")
		s.soundSoFar()
		s.claim(m, 2)
	}},
	"an ID that is taken is stored once more": {promise.P7, func(s *script) {
		s.push(message("m"))
		s.soundSoFar()
		second := message("m")
		second.Life = "second"
		s.push(second)
	}},
	"a push is said to have met an ID that is free": {promise.P7, func(s *script) {
		m := message("m")
		n, _ := s.beginPush(m)
		s.soundSoFar()
		told := pushAnswer(m, "kept")
		told.State = punctual.StateReady
		s.end(CallPush, n, told)
	}},
	"a push is told of a ready message that is leased": {promise.P7, func(s *script) {
		m := s.push(message("m"))
		s.claim(m, 1)
		n, _ := s.beginPush(message("m"))
		s.soundSoFar()
		told := pushAnswer(m, "kept")
		told.State = punctual.StateReady
		s.end(CallPush, n, told)
	}},
	"a message is delivered before its claim began": {promise.P8, func(s *script) {
		m := s.push(message("m"))
		s.sleep(1000)
		n := s.begin(CallClaim, Fact{Delay: scriptLease})
		s.soundSoFar()
		d := s.leased(m, 1)
		d.At, d.Until = d.At-500, d.Until-500
		s.end(CallClaim, n, d)
	}},
	"what nobody pushed is delivered": {promise.P13, func(s *script) {
		c := s.begin(CallClaim, Fact{Delay: scriptLease})
		p, m := s.beginPush(message(""))
		s.fails(CallPush, p, "deadline", false)
		s.soundSoFar()
		m.ID, m.Life = "made", "another"
		s.end(CallClaim, c, s.leased(m, 1))
	}},
	"a push that failed for certain is delivered": {promise.P13, func(s *script) {
		n, m := s.beginPush(message("m"))
		s.fails(CallPush, n, "deadline", true)
		s.soundSoFar()
		s.claim(m, 1)
	}},
	"a call fails for no reason": {promise.P13, func(s *script) {
		n, _ := s.beginPush(message("m"))
		s.soundSoFar()
		s.fails(CallPush, n, "overloaded", true)
	}},
	"a call is answered twice": {promise.P13, func(s *script) {
		n, _ := s.beginPush(message("m"))
		s.end(CallPush, n, pushAnswer(message("m"), "stored"))
		s.soundSoFar()
		s.end(CallPush, n, pushAnswer(message("m"), "stored"))
	}},
	"an item has no result": {promise.P13, func(s *script) {
		n := s.begin(CallPush, message("m"), message("n"))
		s.soundSoFar()
		s.end(CallPush, n, pushAnswer(message("m"), "stored"))
	}},
	"a purge does not count what it must have met": {promise.P13, func(s *script) {
		s.push(message("m"))
		s.soundSoFar()
		s.call(CallPurge, Fact{}, Fact{Count: 0})
	}},
	"a topic counts a message too many": {promise.P13, func(s *script) {
		s.push(message("m"))
		s.stats(0, 1, 0, 0)
		s.soundSoFar()
		s.stats(0, 2, 0, 0)
	}},
	"a topic that is paused delivers": {promise.P13, func(s *script) {
		m := s.push(message("m"))
		s.configure(func(x *punctual.Settings) { x.DeliveryPaused = true })
		s.soundSoFar()
		s.claim(m, 1)
	}},
	"a topic is said to be paused that is not": {promise.P13, func(s *script) {
		m := message("m")
		n, _ := s.beginPush(m)
		s.soundSoFar()
		s.end(CallPush, n, pushAnswer(m, "paused"))
	}},
	"settings are told that nobody made": {promise.P13, func(s *script) {
		s.push(message("m"))
		s.soundSoFar()
		x := punctual.DefaultSettings()
		x.MaxAttempts++
		n := s.begin(CallSettings, Fact{})
		s.write(Line{Call: CallSettings, N: n, Answer: true, Settings: &x})
	}},
}

func TestLedgerAcceptsSoundHistories(t *testing.T) {
	for name, write := range soundHistories {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			write(s)
			if problems := s.broken(len(s.lines)); len(problems) > 0 {
				t.Errorf("the ledger says %q", problems)
			}
		})
	}
}

func TestLedgerNamesBrokenPromises(t *testing.T) {
	for name, h := range brokenHistories {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			h.write(s)
			if problems := s.broken(s.sound); len(problems) > 0 {
				t.Fatalf("before anything is wrong the ledger says %q", problems)
			}
			problems := s.broken(len(s.lines))
			if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, h.promise) }) {
				t.Errorf("the ledger says %q; want %s broken", problems, h.promise)
			}
		})
	}
}

// TestLedgerForgets: the IDs and changes of settings that a ledger goes through at a check must not
// grow with the history.
func TestLedgerForgets(t *testing.T) {
	s := newScript()
	for i := range 50 {
		s.configure(func(x *punctual.Settings) { x.MaxAttempts = i + 1 })
		m := message(strconv.Itoa(i))
		s.settle(s.claim(s.push(m), 1), punctual.SettleAck, "ok")
	}
	s.push(message("left"))
	l := New(KeepsAll)
	if problems := s.addTo(l); len(problems) > 0 {
		t.Fatal(problems)
	}
	if h := l.history(scriptTopic); len(h.ids) != 1 || len(h.writes) != 1 {
		t.Errorf("the ledger goes through %d IDs and %d changes of settings, want the one of each that matters", len(h.ids), len(h.writes))
	}
}

// TestLedgerKnowsRepeatedPolls: in a store with polls a claim that nobody saw answered and that was
// longer than a lease may have leased a message twice; in another store, or with a shorter claim,
// that is one attempt too many.
func TestLedgerKnowsRepeatedPolls(t *testing.T) {
	for _, c := range []struct {
		earlier, length int64
		sound           bool
	}{{1000, 2 * scriptLease, true}, {1000, scriptLease / 2, false}, {0, 2 * scriptLease, false}} {
		s := newScript()
		m := s.push(message("m"))
		s.begin(CallClaim, Fact{Delay: scriptLease})
		s.sleep(c.length)
		s.gone()
		s.sleep(2 * scriptLease)
		twice := read(m, punctual.StateReady)
		twice.Attempt, twice.Failures = 2, "1 lease ran out"
		s.reads(twice)
		l := New(KeepsAll)
		l.Earlier = c.earlier
		if problems := s.addTo(l); (len(problems) == 0) != c.sound {
			t.Errorf("a claim of %d ms with a lease of %d ms, Earlier %d: %q", c.length, int64(scriptLease), c.earlier, problems)
		}
	}
}

// TestLedgerKnowsClaimsMadeAnew: a claim that took longer than Anew may have leased and given back
// a message that it did not return. Without Anew, or in a shorter claim, nobody can have leased the
// message, so its earlier lease cannot be told as one that ran out.
func TestLedgerKnowsClaimsMadeAnew(t *testing.T) {
	for _, c := range []struct {
		anew, length int64
		sound        bool
	}{{2000, 3000, true}, {2000, 1000, false}, {0, 3000, false}} {
		s := newScript()
		m := s.push(message("m"))
		s.claim(m, 1)
		s.sleep(2 * scriptLease)
		other := s.push(message("other"))
		n := s.begin(CallClaim, Fact{Delay: 100 * scriptLease})
		s.sleep(c.length)
		s.end(CallClaim, n, s.leased(other, 1))
		back := read(m, punctual.StateReady)
		back.Attempt, back.Failures = 1, "1 lease ran out"
		s.reads(back)
		l := New(KeepsAll)
		l.Anew = c.anew
		if problems := s.addTo(l); (len(problems) == 0) != c.sound {
			t.Errorf("a claim of %d ms, Anew %d: %q", c.length, c.anew, problems)
		}
	}
}

// TestLedgerKnowsKilledServers: a killed server that lost its answers explains a lease or an
// extension that nobody saw. Without the kill the ledger reports the same lines.
func TestLedgerKnowsKilledServers(t *testing.T) {
	for name, write := range map[string]func(s *script){
		"a claim that was made anew": func(s *script) {
			m, other := s.push(message("m")), s.push(message("other"))
			n := s.begin(CallClaim, Fact{Delay: scriptLease})
			s.end(CallClaim, n, s.leased(other, 1))
			s.sleep(2 * scriptLease)
			m.Failures = "1 lease ran out"
			s.claim(m, 2)
		},
		"an extension that was made anew": func(s *script) {
			m := s.push(message("m"))
			d := s.claim(m, 1)
			n := s.begin(CallSettle, Fact{ID: d.ID, Token: d.Token, Verb: extend, Delay: scriptLease})
			first := read(m, punctual.StateLeased)
			first.Attempt, first.Until = 1, s.at+scriptLease
			s.reads(first)
			s.sleep(10)
			s.end(CallSettle, n, Fact{Status: "ok"})
			first.Until = s.at + scriptLease
			s.reads(first)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			write(s)
			for _, killed := range []bool{true, false} {
				l := New(KeepsAll)
				if killed {
					l.ServerKilled(s.lines[0].At, s.lines[len(s.lines)-1].At)
				}
				if problems := s.addTo(l); (len(problems) == 0) != killed {
					t.Errorf("with a kill %t the ledger says %q", killed, problems)
				}
			}
		})
	}
}

// failover writes that the primary of some topics, or of all, was killed and its replica took over.
func (s *script) failover(topics ...string) {
	s.calls++
	s.write(Line{Call: LineFailover, N: s.calls, Topics: topics})
	s.write(Line{Call: LineFailover, N: s.calls, Answer: true})
}

// beginFailover and endFailover write the two lines of a failover, so that calls can come in
// between.
func (s *script) beginFailover() int64 {
	s.calls++
	s.write(Line{Call: LineFailover, N: s.calls})
	return s.calls
}

func (s *script) endFailover(n int64) { s.write(Line{Call: LineFailover, N: n, Answer: true}) }

// TestLedgerKnowsFailovers: changes that were lost with a primary explain what callers saw. Without
// the failover the ledger reports the same lines.
func TestLedgerKnowsFailovers(t *testing.T) {
	again := func(m Fact) Fact {
		m.Failures = "1 lease ran out"
		return m
	}
	for name, write := range map[string]func(s *script){
		"a claim": func(s *script) {
			m := s.push(message("m"))
			s.claim(m, 1)
			s.failover()
			s.claim(m, 1)
		},
		"an ack": func(s *script) {
			m := s.push(message("m"))
			s.settle(s.claim(m, 1), punctual.SettleAck, "ok")
			s.failover()
			s.sleep(2 * scriptLease)
			s.claim(again(m), 2)
		},
		"an ack that a read had met": func(s *script) {
			m := s.push(message("m"))
			s.settle(s.claim(m, 1), punctual.SettleAck, "ok")
			s.reads(missing("m"))
			s.failover(scriptTopic)
			s.sleep(2 * scriptLease)
			s.claim(again(m), 2)
		},
		"a discard": func(s *script) {
			m := s.push(message("m"))
			s.settle(s.claim(m, 1), punctual.SettleDiscard, "ok")
			s.failover()
			s.sleep(2 * scriptLease)
			s.claim(again(m), 2)
		},
		"a push under way, which a claim had met, and which was then stored anew": func(s *script) {
			n, m := s.beginPush(message("m"))
			s.claim(m, 1)
			s.failover()
			s.reads(missing("m"))
			m.Created = s.at + 1
			s.reads(read(m, punctual.StateReady))
			s.end(CallPush, n, pushAnswer(message("m"), "stored"))
			s.claim(m, 1)
		},
		"a push that a read had met, and whose answer never came": func(s *script) {
			_, m := s.beginPush(message("m"))
			s.reads(read(m, punctual.StateReady))
			s.failover()
			s.reads(missing("m"))
			s.gone()
		},
		"a claim under way, which was then made anew": func(s *script) {
			m, other := s.push(message("m")), s.push(message("other"))
			n := s.begin(CallClaim, Fact{Delay: scriptLease})
			leased := read(m, punctual.StateLeased)
			leased.Attempt, leased.Until = 1, s.at+scriptLease
			s.reads(leased)
			x := s.beginFailover()
			s.endFailover(x)
			s.end(CallClaim, n, s.leased(other, 1))
			s.claim(m, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			write(s)
			for _, happened := range []bool{true, false} {
				if problems := s.judged(happened); (len(problems) == 0) != happened {
					t.Errorf("with a failover %t the ledger says %q", happened, problems)
				}
			}
		})
	}
}

// judged returns what a ledger of a replicated store reports of a history, with its failovers or
// without.
func (s *script) judged(failovers bool) []string {
	l := New(KeepsConfirmed)
	for _, e := range s.lines {
		if e.Call != LineFailover || failovers {
			l.Add(e)
		}
	}
	l.end(s.at, nil)
	return l.Problems()
}

// TestLedgerKnowsWhatFailoversKeep: the ledger reports what a failover cannot explain, such as the
// loss of what was confirmed.
func TestLedgerKnowsWhatFailoversKeep(t *testing.T) {
	for name, h := range map[string]struct {
		promise string
		write   func(s *script)
	}{
		"a push": {promise.P1, func(s *script) {
			s.push(message("m"))
			s.failover()
			s.reads(missing("m"))
		}},
		"a cancel": {promise.P5, func(s *script) {
			m := s.push(message("m"))
			s.amend("m", punctual.ChangeCancel, "cancelled")
			s.failover()
			s.claim(m, 1)
		}},
		"a cancel during a lease": {promise.P5, func(s *script) {
			m := s.push(message("m"))
			s.claim(m, 1)
			s.amend("m", punctual.ChangeCancel, "leased")
			s.failover()
			s.sleep(2 * scriptLease)
			m.Failures = "1 lease ran out"
			s.claim(m, 2)
		}},
		"a claim before a push that met it": {promise.P3, func(s *script) {
			m := s.push(message("m"))
			s.claim(m, 1)
			n, _ := s.beginPush(message("m"))
			kept := pushAnswer(m, "kept")
			kept.State = punctual.StateLeased
			s.end(CallPush, n, kept)
			s.failover()
			s.claim(m, 1)
		}},
		"an ack in another topic": {promise.P1, func(s *script) {
			m := s.push(message("m"))
			s.settle(s.claim(m, 1), punctual.SettleAck, "ok")
			s.failover("elsewhere")
			s.sleep(2 * scriptLease)
			m.Failures = "1 lease ran out"
			s.claim(m, 2)
		}},
		"a push under way, and once more what became of it": {promise.P1, func(s *script) {
			n, m := s.beginPush(message("m"))
			s.failover()
			s.end(CallPush, n, pushAnswer(message("m"), "stored"))
			m.Created = s.at
			s.reads(missing("m"))
		}},
		"a token": {promise.P4, func(s *script) {
			m := s.push(message("m"))
			s.claim(m, 1)
			s.failover()
			s.token--
			s.claim(m, 1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			h.write(s)
			problems := s.judged(true)
			if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, h.promise) }) {
				t.Errorf("the ledger says %q; want %s broken", problems, h.promise)
			}
		})
	}
}

// TestLedgerKnowsWhatReplicasHave: when the ledger was told by Kept that the replicas have all, it
// reports a failover that loses some of it.
func TestLedgerKnowsWhatReplicasHave(t *testing.T) {
	s := newScript()
	m := s.push(message("m"))
	s.settle(s.claim(m, 1), punctual.SettleAck, "ok")
	caughtUp := len(s.lines)
	s.failover()
	s.sleep(2 * scriptLease)
	m.Failures = "1 lease ran out"
	s.claim(m, 2)
	for _, told := range []bool{true, false} {
		l := New(KeepsConfirmed)
		for i, e := range s.lines {
			if i == caughtUp && told {
				l.Kept()
			}
			l.Add(e)
		}
		if problems := l.Problems(); (len(problems) > 0) != told {
			t.Errorf("told %t, the ledger says %q", told, problems)
		}
	}
}
