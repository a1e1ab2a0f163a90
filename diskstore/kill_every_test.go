package diskstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/ledger"
)

// TestSlowKillAtEveryChange plays one history that uses leases in every way, and copies the files
// before every change of one, as kill -9 would leave them. Each copy must open and answer like
// package memstore after the calls that had returned. The call under way may have happened too, and
// so may one of the parts that its step names.
func TestSlowKillAtEveryChange(t *testing.T) {
	k := playAndCopy(t)
	each := 4 // one copy of so many is followed by kills during recovery, unless it was made during a step
	if !ledger.Tortured() {
		each = 10
	}
	for i, c := range k.copies {
		k.checkCopy(t, c)
		if c.done && i%each == 0 {
			for _, again := range k.copyRecovery(t, c) {
				k.checkCopy(t, again)
			}
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d steps, %d kills, %d of them during recovery", len(killSteps), len(k.copies)+k.recoveries, k.recoveries)
}

// killStep is one step of the history, mostly one call.
type killStep struct {
	name  string
	after time.Duration // how far the clock moves before the step
	do    func(p *player)
	// parts do what else may have taken effect when the process is killed during the step.
	parts []func(p *player)
	// quiet tells that the answer depends on no time and nothing is written, so that the clock may
	// start again before the step.
	quiet bool
}

// player is one store on which the history is played, with what it answered.
type player struct {
	t       *testing.T
	store   inspectable
	clock   *storekit.ManualClock
	leases  []punctual.Delivery // all deliveries so far, in their order
	answers []string
}

type inspectable interface {
	punctual.Store
	punctual.Inspector
}

func (p *player) answer(format string, args ...any) {
	p.answers = append(p.answers, fmt.Sprintf(format, args...))
}

func (p *player) push(ms ...punctual.NewMessage) {
	for i := range ms {
		if ms[i].Topic == "" {
			ms[i].Topic = "o"
		}
		ms[i].Body = []byte("body of " + ms[i].ID)
	}
	rs, err := p.store.Push(p.t.Context(), ms)
	p.answer("push %v", err)
	for _, r := range rs {
		p.answer("%s: %s %s %v %v", r.ID, r.Status, r.Existing, r.Due, storekit.ErrorCode(r.Err))
	}
}

// claim takes what is due in a topic. A length of 0 is an hour.
func (p *player) claim(topic string, n int, length time.Duration) {
	if length == 0 {
		length = time.Hour
	}
	ds, err := p.store.Claim(p.t.Context(), punctual.Claim{Topics: []string{topic}, Max: n, Lease: length})
	p.answer("claim %v", err)
	for _, d := range ds {
		p.answer("%s", deliveryText(d))
	}
	p.leases = append(p.leases, ds...)
}

func deliveryText(d punctual.Delivery) string {
	return fmt.Sprintf("%s/%s %q attempt %d due %v expires %v at %v until %v, before: %v",
		d.Topic, d.ID, d.Body, d.Attempt, d.Due, d.Expires, d.Delivered, d.LeaseUntil, d.Failures)
}

// of returns a settlement by the last holder of a message.
func (p *player) of(id string, verb punctual.Verb, delay time.Duration) punctual.Settlement {
	for _, d := range slices.Backward(p.leases) {
		if d.ID == id {
			st := punctual.Settlement{Topic: d.Topic, ID: id, Token: d.Token, Verb: verb, Delay: delay}
			if verb == punctual.SettleRetry || verb == punctual.SettleDiscard {
				st.Error = "no luck with " + id
			}
			return st
		}
	}
	p.t.Fatalf("%s was never claimed", id)
	return punctual.Settlement{}
}

func (p *player) settle(ss ...punctual.Settlement) {
	errs, err := p.store.Settle(p.t.Context(), ss)
	p.answer("settle %v", err)
	for _, err := range errs {
		p.answer("%s", storekit.ErrorCode(err))
	}
}

func (p *player) amend(change punctual.Change, id string, delay time.Duration) {
	out, err := p.store.Amend(p.t.Context(), []punctual.Amendment{{Change: change, Topic: "o", ID: id, Delay: delay}})
	p.answer("%v %v", out, err)
}

func (p *player) configure(topic string, patch punctual.SettingsPatch) {
	_, err := p.store.Configure(p.t.Context(), topic, patch)
	p.answer("configure %v", err)
}

// tick settles the last delivery, which must be that of a schedule, as the duty of schedules
// decides.
func (p *player) tick() {
	d := p.leases[len(p.leases)-1]
	how := punctual.DecisionOf(schedule.NewScheduler(p.store).Handle(p.t.Context(), &d))
	p.answer("decided %v, %d follow-ups", how.Verb, len(how.Then))
	p.settle(punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: how.Verb, Delay: how.Delay, Then: how.Then})
}

// replaceClaims replaces the claim log, if the store has one.
func (p *player) replaceClaims() {
	if s, ok := p.store.(*Store); ok {
		p.must(s.replaceFullSegment(context.Background()))
	}
}

func (p *player) maintenance() {
	if s, ok := p.store.(*Store); ok {
		p.must(s.maintain(true))
	}
}

// reopen closes the store and opens it again, if it is one on disk.
func (p *player) reopen() {
	if s, ok := p.store.(*Store); ok {
		p.must(s.Close())
		again, err := Open(s.dir, &s.opt)
		p.must(err)
		p.store = again
	}
}

func (p *player) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func message(id string) punctual.NewMessage { return punctual.NewMessage{ID: id} }

// settles returns a step that makes one settlement.
func settles(id string, verb punctual.Verb, delay time.Duration) func(*player) {
	return func(p *player) { p.settle(p.of(id, verb, delay)) }
}

// follows returns a step that makes one settlement with follow-ups.
func follows(id string, verb punctual.Verb, delay time.Duration, then ...punctual.NewMessage) func(*player) {
	return func(p *player) {
		st := p.of(id, verb, delay)
		for _, m := range then {
			if m.Topic == "" {
				m.Topic = "o"
			}
			m.Body = []byte("follows " + id)
			st.Then = append(st.Then, m)
		}
		p.settle(st)
	}
}

func claims(topic string, n int, length time.Duration) func(*player) {
	return func(p *player) { p.claim(topic, n, length) }
}

func amends(change punctual.Change, id string, delay time.Duration) func(*player) {
	return func(p *player) { p.amend(change, id, delay) }
}

func purges(state punctual.State) func(*player) {
	return func(p *player) {
		n, err := p.store.Purge(p.t.Context(), punctual.PurgeQuery{Topic: "o", State: state})
		p.answer("purged %d %v", n, err)
	}
}

// killSteps is the history. Where several messages are due, their times differ, so that both
// stores deliver them in one order.
var killSteps = []killStep{
	{name: "configure", do: func(p *player) {
		three, hour := 3, time.Hour
		p.configure("o", punctual.SettingsPatch{MaxAttempts: &three})
		p.configure("r", punctual.SettingsPatch{DedupeWindow: &hour})
	}, parts: []func(p *player){func(p *player) {
		three := 3
		p.configure("o", punctual.SettingsPatch{MaxAttempts: &three})
	}}},
	{name: "push a", do: func(p *player) { p.push(message("a")) }},
	{name: "push b", do: func(p *player) { p.push(message("b")) }},
	{name: "push c", do: func(p *player) { p.push(message("c")) }},
	{name: "push more", do: func(p *player) {
		ms := []punctual.NewMessage{{ID: "same", Due: testStart.Add(30 * time.Second)}}
		for i, id := range []string{"d", "e", "f", "g", "h", "i", "j", "k", "l"} {
			ms = append(ms, punctual.NewMessage{ID: id, Due: testStart.Add(time.Duration(i+1) * time.Minute)})
		}
		p.push(ms...)
	}},
	{name: "claim a, b, c", do: claims("o", 3, 0)},
	{name: "ack a", do: settles("a", punctual.SettleAck, 0)},
	{name: "extend b", do: settles("b", punctual.SettleExtend, 2*time.Hour)},
	{name: "extend b again", do: settles("b", punctual.SettleExtend, 90*time.Minute)},
	{name: "retry c", do: settles("c", punctual.SettleRetry, 20*time.Millisecond)},
	{name: "replace claims", do: (*player).replaceClaims},
	{name: "release b", do: settles("b", punctual.SettleRelease, 0)},
	{name: "claim b again", do: claims("o", 1, 0)},
	{name: "extend b a third time", do: settles("b", punctual.SettleExtend, 3*time.Hour)},
	{name: "snooze b", do: settles("b", punctual.SettleSnooze, 5*time.Millisecond)},
	{name: "claim c again", after: 20 * time.Millisecond, do: claims("o", 2, 0)},
	{name: "two acks", do: func(p *player) {
		p.settle(p.of("b", punctual.SettleAck, 0), p.of("c", punctual.SettleAck, 0))
	}},
	{name: "maintenance", do: (*player).maintenance},

	{name: "claim same", after: 30 * time.Second, do: claims("o", 1, 10*time.Millisecond)},
	{name: "reschedule same to its old due time when its lease ran out", after: 10 * time.Millisecond, do: func(p *player) {
		out, err := p.store.Amend(p.t.Context(), []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: "o", ID: "same", Due: testStart.Add(30 * time.Second)}})
		p.answer("%v %v", out, err)
	}},
	{name: "claim same again", do: claims("o", 1, 0)},
	{name: "ack same", do: settles("same", punctual.SettleAck, 0)},

	{name: "claim d", after: 30 * time.Second, do: claims("o", 1, 20*time.Millisecond)},
	{name: "replace claims with d leased", do: (*player).replaceClaims},
	{name: "d's lease runs out", after: 30 * time.Millisecond, do: claims("o", 1, 20*time.Millisecond)},
	{name: "replace claims with an expired attempt of d", do: (*player).replaceClaims},
	{name: "d's lease runs out again", after: 30 * time.Millisecond, do: claims("o", 1, 0)},
	{name: "cancel d under its lease", do: amends(punctual.ChangeCancel, "d", 0)},
	{name: "extend d, which is cancelled", quiet: true, do: settles("d", punctual.SettleExtend, time.Minute)},
	{name: "replace claims with d cancelled", do: (*player).replaceClaims},
	{name: "retry d, which is cancelled", do: settles("d", punctual.SettleRetry, 0)},

	{name: "claim e", after: time.Minute, do: claims("o", 1, 10*time.Millisecond)},
	{name: "reschedule e when its lease ran out", after: 10 * time.Millisecond, do: amends(punctual.ChangeReschedule, "e", 10*time.Millisecond)},
	{name: "claim e a second time", after: 20 * time.Millisecond, do: claims("o", 1, 0)},
	{name: "retry e", do: settles("e", punctual.SettleRetry, 0)},
	{name: "claim e a third time", do: claims("o", 1, 10*time.Millisecond)},
	{name: "e's attempts are used up", after: 20 * time.Millisecond, do: claims("o", 1, 0)},
	{name: "requeue e", do: amends(punctual.ChangeRequeue, "e", 0)},
	{name: "claim e as if new", do: claims("o", 1, 0)},
	{name: "discard e", do: settles("e", punctual.SettleDiscard, 0)},

	{name: "claim f", after: time.Minute, do: claims("o", 1, 10*time.Millisecond)},
	{name: "cancel f under its lease", do: amends(punctual.ChangeCancel, "f", 0)},
	{name: "f's lease runs out", after: 20 * time.Millisecond, do: claims("o", 1, 0)},

	{name: "claim g and h", after: 2 * time.Minute, do: claims("o", 2, 0)},
	{
		name: "retry g and ack h", do: func(p *player) {
			p.settle(p.of("g", punctual.SettleRetry, time.Hour), p.of("h", punctual.SettleAck, 0))
		},
		parts: []func(p *player){settles("h", punctual.SettleAck, 0)}, // the ack is written before the transaction
	},
	{name: "cancel g", do: amends(punctual.ChangeCancel, "g", 0)},
	{name: "cancel h, which is acked", do: amends(punctual.ChangeCancel, "h", 0)},

	{name: "claim i", after: time.Minute, do: claims("o", 1, 0)},
	{name: "push i in place of the leased one", do: func(p *player) {
		p.push(punctual.NewMessage{ID: "i", Delay: 5 * time.Millisecond, IfExists: punctual.IfExistsReplace})
	}},
	{name: "ack i, which is replaced", quiet: true, do: settles("i", punctual.SettleAck, 0)},
	{name: "claim the new i", after: 10 * time.Millisecond, do: claims("o", 1, 0)},
	{name: "ack the new i", do: settles("i", punctual.SettleAck, 0)},
	{name: "push i after its ack", do: func(p *player) { p.push(punctual.NewMessage{ID: "i", Delay: time.Hour}) }},

	{name: "push r", do: func(p *player) {
		p.push(punctual.NewMessage{Topic: "r", ID: "r", ExpireAfter: time.Minute}, punctual.NewMessage{Topic: "r", ID: "s", Delay: time.Millisecond, ExpireAfter: time.Minute})
	}},
	{name: "claim r", do: claims("r", 1, 0)},
	{name: "ack r, which is remembered", do: settles("r", punctual.SettleAck, 0)},
	{name: "push r again", do: func(p *player) { p.push(punctual.NewMessage{Topic: "r", ID: "r"}) }},
	{name: "s expires", after: 2 * time.Minute, do: claims("r", 1, 0)},

	{name: "claim j, k and l", after: 5 * time.Minute, do: claims("o", 3, 0)},
	{name: "release j", do: settles("j", punctual.SettleRelease, 0)},
	{name: "close and reopen", do: (*player).reopen},
	{name: "extend k", do: settles("k", punctual.SettleExtend, 2*time.Hour)},
	{name: "claim j again", do: claims("o", 1, 0)},
	{name: "ack j", do: settles("j", punctual.SettleAck, 0)},
	{name: "purge what is leased", do: purges(punctual.StateLeased)},
	{name: "push m, n and p", do: func(p *player) {
		p.push(message("m"), punctual.NewMessage{ID: "n", Delay: time.Millisecond}, punctual.NewMessage{ID: "p", Delay: time.Hour})
	}},
	{name: "claim m and n", after: time.Second, do: claims("o", 2, 0)},
	{name: "ack m", do: settles("m", punctual.SettleAck, 0)},
	{name: "purge what is live", do: purges(punctual.StateNone)},
	{name: "ack n, which is purged", quiet: true, do: settles("n", punctual.SettleAck, 0)},
	{name: "push n again", do: func(p *player) { p.push(message("n")) }},
	{name: "claim n again", do: claims("o", 1, 0)},
	{name: "purge what is dead", do: purges(punctual.StateDead)},

	{name: "push fa to fh", do: func(p *player) {
		var ms []punctual.NewMessage
		for i, id := range []string{"fa", "fb", "fc", "fd", "fe", "ff", "fg", "fh"} {
			ms = append(ms, punctual.NewMessage{ID: id, Delay: time.Duration(i) * time.Millisecond})
		}
		p.push(ms...)
	}},
	{name: "claim fa to fh", after: time.Second, do: claims("o", 8, 0)},
	{name: "ack fa with follow-ups, which make three topics", do: follows(
		"fa", punctual.SettleAck, 0, punctual.NewMessage{ID: "fa1", Due: testStart.Add(2 * time.Hour)},
		punctual.NewMessage{Topic: "o@next", ID: "x1", Delay: time.Millisecond}, punctual.NewMessage{Topic: "u@next", ID: "y1", MaxAttempts: 2},
	)},
	{name: "ack fb with a follow-up that is refused", do: follows(
		"fb", punctual.SettleAck, 0, punctual.NewMessage{Topic: "v", ID: "fb1"}, punctual.NewMessage{ID: "fa1", IfExists: punctual.IfExistsFail},
	)},
	{name: "ack fb with a follow-up in place of fc, which is leased", do: follows(
		"fb", punctual.SettleAck, 0, punctual.NewMessage{ID: "fc", Delay: time.Hour, IfExists: punctual.IfExistsReplace},
	)},
	{name: "ack fc, which is replaced", quiet: true, do: settles("fc", punctual.SettleAck, 0)},
	{name: "snooze fd with a follow-up that is there, and one in place of a message due then", do: follows(
		"fd", punctual.SettleSnooze, 5*time.Millisecond, punctual.NewMessage{ID: "fc"},
		punctual.NewMessage{ID: "fa1", Due: testStart.Add(3 * time.Hour), IfExists: punctual.IfExistsReplace, IfDue: testStart.Add(2 * time.Hour)},
	)},
	{name: "discard fe with follow-ups in place of a dead message, and of a remembered ID", do: follows(
		"fe", punctual.SettleDiscard, 0, punctual.NewMessage{Topic: "r", ID: "s", IfExists: punctual.IfExistsReplaceDead},
		punctual.NewMessage{Topic: "r", ID: "r", Delay: 5 * time.Millisecond, IfExists: punctual.IfExistsReplace},
	)},
	{name: "claim fd again", after: 5 * time.Millisecond, do: claims("o", 1, 0)},
	{name: "ack fd with itself anew", do: follows("fd", punctual.SettleAck, 0, punctual.NewMessage{ID: "fd", Delay: 5 * time.Millisecond})},
	{name: "claim the new fd", after: 5 * time.Millisecond, do: claims("o", 1, 0)},
	{name: "discard fd with itself anew", do: follows(
		"fd", punctual.SettleDiscard, 0, punctual.NewMessage{ID: "fd", Delay: 5 * time.Millisecond, IfExists: punctual.IfExistsReplaceDead},
	)},
	{name: "claim fd a third time", after: 5 * time.Millisecond, do: claims("o", 1, 0)},
	{name: "snooze fd with itself in its place", do: follows(
		"fd", punctual.SettleSnooze, time.Hour, punctual.NewMessage{ID: "fd", Delay: time.Minute, IfExists: punctual.IfExistsReplace},
	)},
	{name: "claim s and r, which follow", after: time.Second, do: claims("r", 2, 0)},
	{name: "ack r with itself anew, where IDs are remembered", do: follows(
		"r", punctual.SettleAck, 0, punctual.NewMessage{Topic: "r", ID: "r", Delay: time.Hour, IfExists: punctual.IfExistsReplace}, punctual.NewMessage{Topic: "u", ID: "y2"},
	)},
	{name: "ack s with itself, which is remembered", do: follows("s", punctual.SettleAck, 0, punctual.NewMessage{Topic: "r", ID: "s"})},
	{name: "pause pushes to u", do: func(p *player) { p.configure("u", punctual.SettingsPatch{PushPaused: ptr(true)}) }},
	{name: "ack ff with a follow-up to a paused topic", do: follows(
		"ff", punctual.SettleAck, 0, punctual.NewMessage{ID: "ff1"}, punctual.NewMessage{Topic: "u", ID: "ff1"},
	)},
	{name: "cancel ff under its lease", do: amends(punctual.ChangeCancel, "ff", 0)},
	{name: "snooze ff, which is cancelled, with a follow-up", do: follows("ff", punctual.SettleSnooze, 0, punctual.NewMessage{ID: "ff1"})},
	{
		name: "ack fg, and fh with a follow-up", do: func(p *player) {
			st := p.of("fh", punctual.SettleAck, 0)
			st.Then = []punctual.NewMessage{{Topic: "u@next", ID: "fh1", Delay: time.Hour}}
			p.settle(p.of("fg", punctual.SettleAck, 0), st)
		},
		parts: []func(p *player){settles("fg", punctual.SettleAck, 0)}, // the ack is written before the transaction
	},
	{name: "cancel fc if it is due when it is not", do: func(p *player) {
		out, err := p.store.Amend(p.t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "o", ID: "fc", IfDue: testStart}})
		p.answer("%v %v", out, err)
	}},

	{name: "have e tell of all events", do: func(p *player) {
		p.configure("e", punctual.SettingsPatch{Emit: ptr(event.All), EmitKeep: ptr(time.Hour), MaxAttempts: ptr(2)})
	}},
	{name: "push ea to ee", do: func(p *player) {
		var ms []punctual.NewMessage
		for i, id := range []string{"ea", "eb", "ec", "ed", "ee"} {
			ms = append(ms, punctual.NewMessage{Topic: "e", ID: id, Delay: time.Duration(i) * time.Millisecond})
		}
		p.push(ms...)
	}},
	{name: "claim ea to ed", after: time.Second, do: claims("e", 4, 0)},
	{name: "ack ea, which is told", do: settles("ea", punctual.SettleAck, 0)},
	{name: "discard eb and retry ec, which are told", do: func(p *player) {
		p.settle(p.of("eb", punctual.SettleDiscard, 0), p.of("ec", punctual.SettleRetry, time.Hour))
	}},
	{name: "ack ed with itself anew, which is told twice", do: follows(
		"ed", punctual.SettleAck, 0, punctual.NewMessage{Topic: "e", ID: "ed", Delay: 2 * time.Hour},
	)},
	{name: "cancel ec, which is told", do: func(p *player) {
		out, err := p.store.Amend(p.t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "e", ID: "ec"}})
		p.answer("%v %v", out, err)
	}},
	{name: "claim ee for too short a time", do: claims("e", 1, 10*time.Millisecond)},
	{name: "claim ee again for too short a time", after: time.Second, do: claims("e", 1, 10*time.Millisecond)},
	{name: "a claim ends ee, which is told", after: time.Second, do: claims("e", 1, 0)},
	{name: "cancel ed, which is told and lets go of what is too old", after: time.Hour, do: func(p *player) {
		out, err := p.store.Amend(p.t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "e", ID: "ed"}})
		p.answer("%v %v", out, err)
	}},

	{name: "have c tell of times of schedules that were left out", do: func(p *player) {
		p.configure("c", punctual.SettingsPatch{Emit: ptr(punctual.EventMissed | punctual.EventSkipped)})
	}},
	{name: "put a schedule of c", do: func(p *player) {
		status, err := schedule.Put(p.t.Context(), punctual.NewQueue(p.store, nil), schedule.Schedule{Topic: "c", Name: "often", Spec: "*/10 * * * *", Body: []byte("b")})
		p.answer("put %v %v", status, err)
	}},
	{name: "claim the schedule when it comes, for too short a time", after: time.Hour, do: claims("c@cron", 1, 10*time.Millisecond)},
	{name: "claim the schedule anew", after: time.Second, do: claims("c@cron", 1, 5*time.Second)},
	{name: "a tick, which makes up for times and tells of those that were missed", do: (*player).tick},
	{name: "claim the schedule, whose last occurrence waits", after: 10 * time.Minute, do: claims("c@cron", 1, 5*time.Second)},
	{name: "a tick that skips, and tells of that", do: (*player).tick},
	{name: "pause the schedule", do: func(p *player) {
		p.answer("pause %v", schedule.Pause(p.t.Context(), punctual.NewQueue(p.store, nil), "c", "often", "anna", "a while"))
	}},

	{name: "delete u and its companion", do: func(p *player) {
		n, err := p.store.DeleteTopic(p.t.Context(), "u")
		p.answer("deleted %d %v", n, err)
	}},
	{name: "delete r", do: func(p *player) {
		n, err := p.store.DeleteTopic(p.t.Context(), "r")
		p.answer("deleted %d %v", n, err)
	}},
}

// killed is the history with the copies of the files.
type killed struct {
	disk       *player
	at         []time.Time // of each step
	tokens     []int       // how many leases there were after each step
	recoveries int

	mu     sync.Mutex
	step   int        // guarded by mu: the step under way, -1 outside of the history
	copies []killCopy // guarded by mu
}

// killCopy is what a kill leaves.
type killCopy struct {
	mem  *vfs.MemFS
	step int  // the step under way, or the last one that had returned
	done bool // the step had returned
	op   string
}

func (c killCopy) String() string {
	when := "during"
	if c.done {
		when = "after"
	}
	return fmt.Sprintf("killed %s step %d (%s), before %s", when, c.step, killSteps[c.step].name, c.op)
}

// playAndCopy plays the history on a store on disk.
func playAndCopy(t *testing.T) *killed {
	k := &killed{}
	mem := vfs.NewCrashableMem()
	clock := storekit.NewManualClock(testStart)
	// The lock is held while the files are copied, because the database changes files in goroutines
	// of its own, and the next step must not begin between the copy of the files and the reading of
	// k.step.
	copyNow := func(c killCopy) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.step < 0 {
			return
		}
		c.mem, c.step = afterKill(mem), k.step
		k.copies = append(k.copies, c)
	}
	hook := func(op fsOp) error {
		copyNow(killCopy{op: op.kind + " of " + op.name})
		return nil
	}
	k.step = -1
	s, err := Open("store", &Options{fs: hookFS{mem, hook}, Clock: clock, Logger: quiet, clearFrom: 1})
	if err != nil {
		t.Fatal(err)
	}
	k.disk = &player{t: t, store: s, clock: clock}
	defer func() { closeStore(t, k.disk.store) }()
	for i, step := range killSteps {
		clock.Advance(step.after + time.Millisecond)
		k.mu.Lock()
		k.step = i
		k.mu.Unlock()
		k.at = append(k.at, clock.Now())
		step.do(k.disk)
		k.tokens = append(k.tokens, len(k.disk.leases))
		copyNow(killCopy{op: "the next step", done: true})
	}
	k.mu.Lock()
	k.step = -1
	k.mu.Unlock()
	model := k.model(t, len(killSteps), nil)
	if got, want := k.disk.answers, model.answers; !slices.Equal(got, want) {
		t.Fatalf("the store answered\n%s\nand the model\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return k
}

// model returns a store of package memstore after the first n steps, and after a part of the next
// one unless part is nil.
func (k *killed) model(t *testing.T, n int, part func(*player)) *player {
	clock := storekit.NewManualClock(testStart)
	p := &player{t: t, clock: clock, store: memstore.New(&memstore.Options{Clock: clock})}
	for i, step := range killSteps[:n] {
		clock.Set(k.at[i])
		step.do(p)
	}
	if part != nil {
		clock.Set(k.at[n])
		part(p)
	}
	return p
}

// copyRecovery opens a copy and copies its files at every change that opening makes.
func (k *killed) copyRecovery(t *testing.T, c killCopy) (copies []killCopy) {
	mem := afterKill(c.mem)
	var mu sync.Mutex
	opening := true
	s, err := Open("store", &Options{Clock: storekit.NewManualClock(k.at[c.step]), Logger: quiet, fs: hookFS{mem, func(op fsOp) error {
		mu.Lock()
		defer mu.Unlock()
		if opening {
			again := c
			again.mem, again.op = afterKill(mem), c.op+", and again during recovery, before "+op.kind+" of "+op.name
			copies = append(copies, again)
		}
		return nil
	}}})
	if err != nil {
		t.Fatalf("%v: open: %v", c, err)
	}
	mu.Lock()
	opening = false
	mu.Unlock()
	closeStore(t, s)
	k.recoveries += len(copies)
	return copies
}

// checkCopy compares a copy with the model after the steps that had returned. If a step was under
// way, the copy may also be like the model after that step, or after one of its parts.
func (k *killed) checkCopy(t *testing.T, c killCopy) {
	t.Helper()
	models := []*player{k.model(t, c.step+1, nil)}
	if !c.done {
		models = append(models, k.model(t, c.step, nil))
		for _, part := range killSteps[c.step].parts {
			models = append(models, k.model(t, c.step, part))
		}
	}
	var all []string
	for _, m := range models {
		problems := k.compare(t, c, m)
		if len(problems) == 0 {
			return
		}
		all = append(all, fmt.Sprintf("%d answers of the model:", len(m.answers)))
		all = append(all, problems...)
	}
	t.Errorf("%v: the store is like none of %d models\n%s", c, len(models), strings.Join(all, "\n"))
}

// compare opens a copy and returns in what it differs from a model.
func (k *killed) compare(t *testing.T, c killCopy, model *player) (problems []string) {
	t.Helper()
	clock := storekit.NewManualClock(k.at[c.step].Add(-time.Hour)) // as if somebody had set it back
	s, err := Open("store", &Options{fs: hookFS{afterKill(c.mem), func(fsOp) error { return nil }}, Clock: clock, Logger: quiet})
	if err != nil {
		t.Fatalf("P1: %v: open: %v", c, err)
	}
	defer closeStore(t, s)
	k.judgeClock(t, c, s)
	clock.Set(k.at[c.step])
	model.clock.Set(k.at[c.step])
	disk := &player{t: t, store: s, clock: clock, leases: k.disk.leases[:k.tokens[c.step]]}
	if got, want := picture(t, disk), picture(t, model); got != want {
		return []string{"it shows\n" + got + "want\n" + want}
	}
	problems = append(compareTokens(disk, model), compareRest(disk, model)...)
	mustBeSound(t, s)
	return problems
}

// judgeClock checks that the clock of a reopened store is not behind what the last call was told
// (P8), although its source was set back by an hour.
func (k *killed) judgeClock(t *testing.T, c killCopy, s *Store) {
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last := c.step
	if !c.done {
		last--
	}
	for last >= 0 && killSteps[last].quiet {
		last--
	}
	floor := testStart
	if last >= 0 {
		floor = k.at[last]
	}
	if now.Before(floor) || now.After(k.at[c.step]) {
		t.Errorf("P8: %v: the clock was at %v when the last call returned, and starts again at %v", c, floor, now)
	}
}

// picture returns what Topics and List show of a store and its messages.
func picture(t *testing.T, p *player) string {
	t.Helper()
	var b strings.Builder
	p.must(storekit.SweepEvents(t.Context(), p.store)) // because each store chooses when it removes old events
	all, err := p.store.Topics(t.Context())
	p.must(err)
	for _, stats := range all {
		fmt.Fprintf(&b, "%+v\n", stats)
		for state := punctual.StateScheduled; state <= punctual.StateDead; state++ {
			page, err := p.store.List(t.Context(), punctual.ListQuery{Topic: stats.Topic, State: state})
			p.must(err)
			slices.SortFunc(page.Messages, func(x, y punctual.Info) int { return strings.Compare(x.ID, y.ID) })
			if strings.HasSuffix(stats.Topic, "@events") {
				showEvents(&b, page.Messages)
				continue
			}
			for _, i := range page.Messages {
				fmt.Fprintf(&b, "  %s %s %q attempt %d of %d, due %v, created %v, expires %v %t, until %v, cancelled %t, died %v of %q, %v\n", i.State, i.ID, i.Body, i.Attempt,
					i.MaxAttempts, i.Due, i.Created, i.Expires, i.DropExpired, i.LeaseUntil, i.CancelRequested, i.Died, i.Reason, i.Failures)
			}
		}
	}
	return b.String()
}

// showEvents shows what messages tell of, without their IDs, which differ between stores, and
// without Event.Delivered.
func showEvents(b *strings.Builder, ms []punctual.Info) {
	var texts []string
	for _, m := range ms {
		e, err := event.Parse(m.Body)
		e.Delivered = time.Time{} // which a store has lost when the process was killed under the lease
		texts = append(texts, fmt.Sprintf("  %s, due %v, created %v, expires %v: %+v %v\n", m.State, m.Due, m.Created, m.Expires, e, err))
	}
	slices.Sort(texts)
	for _, text := range texts {
		b.WriteString(text)
	}
}

// compareTokens extends with every token that was given out so far, and compares the answers.
func compareTokens(disk, model *player) (problems []string) {
	for i, d := range disk.leases[:min(len(disk.leases), len(model.leases))] {
		got, want := disk.extend(i), model.extend(i)
		if got != want {
			problems = append(problems, fmt.Sprintf("P3, P4: the token of delivery %d, of %s as attempt %d: %q, want %q", i+1, d.ID, d.Attempt, got, want))
		}
	}
	return problems
}

// extend returns the answer to the holder of the i-th delivery when it extends its lease.
func (p *player) extend(i int) string {
	d := p.leases[i]
	errs, err := p.store.Settle(p.t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleExtend, Delay: 10 * time.Millisecond}})
	p.must(err)
	return storekit.ErrorCode(errs[0])
}

// compareRest compares what both stores deliver in 12 rounds in which every attempt fails, what
// they have in the end, and what they answer to pushes of the IDs r and s, which the history
// finishes in a topic that remembers them.
func compareRest(disk, model *player) (problems []string) {
	highest := make(map[string]int64)
	for _, d := range disk.leases {
		highest[d.ID] = max(highest[d.ID], d.Token)
	}
	for round := range 12 {
		got, low := deliverAll(disk, round, highest)
		want, _ := deliverAll(model, round, make(map[string]int64))
		problems = append(problems, low...)
		if !slices.Equal(got, want) {
			return append(problems, fmt.Sprintf("P1, P6: round %d of what follows delivers\n%s\nwant\n%s", round, strings.Join(got, "\n"), strings.Join(want, "\n")))
		}
	}
	if got, want := picture(disk.t, disk), picture(model.t, model); got != want {
		problems = append(problems, "P6: in the end there is\n"+got+"want\n"+want)
	}
	for _, id := range []string{"r", "s"} {
		if got, want := disk.pushAgain(id), model.pushAgain(id); got != want {
			problems = append(problems, fmt.Sprintf("P7: pushed again: %s, want %s", got, want))
		}
	}
	return problems
}

// pushAgain pushes an ID in topic r, which remembers finished IDs from the first step to its
// deletion.
func (p *player) pushAgain(id string) string {
	rs, err := p.store.Push(p.t.Context(), []punctual.NewMessage{{Topic: "r", ID: id, Due: testStart}})
	p.must(err)
	return fmt.Sprint(rs)
}

// deliverAll moves the clock, claims what is due in some topics, and retries it. low says which
// tokens are not above the highest one that the message had before.
func deliverAll(p *player, round int, highest map[string]int64) (texts, low []string) {
	p.clock.Advance(4 * time.Minute)
	if round == 6 {
		p.clock.Advance(4 * time.Hour) // now all leases are over
	}
	for _, topic := range []string{"e", "o", "o@next", "r", "u", "u@next"} {
		ds, err := p.store.Claim(p.t.Context(), punctual.Claim{Topics: []string{topic}, Max: 100})
		p.must(err)
		var ss []punctual.Settlement
		for _, d := range ds {
			if d.Token <= highest[d.ID] {
				low = append(low, fmt.Sprintf("P4: %s is delivered with token %d, not above %d", d.ID, d.Token, highest[d.ID]))
			}
			highest[d.ID] = d.Token
			texts = append(texts, deliveryText(d))
			ss = append(ss, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleRetry, Error: "in the end"})
		}
		errs, err := p.store.Settle(p.t.Context(), ss)
		p.must(errors.Join(append(errs, err)...))
	}
	slices.Sort(texts)
	return texts, low
}
