package lifecycle_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

var update = flag.Bool("update", false, "write testdata/decisions.txt")

var (
	clock = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	now   = storekit.Millis(clock)
	// between lies in the millisecond that begins now, so that a decision at this time shows which
	// way times are rounded.
	between = clock.Add(500 * time.Microsecond)
	// late is so close to limits.MaxDue that every delay which the tables count from it ends behind
	// limits.MaxDue.
	late = limits.MaxDue.Add(-30 * time.Second)
)

const (
	second = int64(1000)
	minute = 60 * second
	hour   = 60 * minute
)

// TestDecisions compares every decision with the text that people have reviewed. Whoever changes a
// rule runs "go test ./storekit/lifecycle -update" and reads the difference.
func TestDecisions(t *testing.T) {
	var b book
	b.births()
	b.states()
	b.expiries()
	b.pushes()
	b.claims()
	b.leases()
	b.settlements()
	b.amendments()
	b.followUps()
	b.kept()
	b.retention()
	b.steps()
	got := b.String()
	golden := filepath.Join("testdata", "decisions.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	t.Errorf("decisions are not those of %s (go test -update writes it, for review):", golden)
	is, was := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i, printed := 0, 0; i < max(len(is), len(was)) && printed < 10; i++ {
		if a, b := at(was, i), at(is, i); a != b {
			t.Errorf("line %d\n  is to be %s\n  is       %s", i+1, a, b)
			printed++
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

// book is the text of the decisions.
type book struct{ strings.Builder }

func (b *book) chapter(title, text string) {
	fmt.Fprintf(b, "\n%s\n\n%s\n", strings.ToUpper(title), text)
}

func (b *book) section(text string) { fmt.Fprintf(b, "\n%s\n", text) }

func (b *book) row(facts, decision string) { fmt.Fprintf(b, "  %-62s %s\n", facts, decision) }

func (b *book) births() {
	fmt.Fprint(b, "Every decision of package lifecycle, as \"facts  decision\". TestDecisions writes it (go test -update).\n",
		"A decision names where the message goes, what changes of its facts, the failure for its history, and what the\n",
		"caller is answered.\n")
	b.chapter("A new message", "lifecycle.New: lengths are rounded up to whole milliseconds.")
	for _, x := range []struct {
		name string
		n    punctual.NewMessage
	}{
		{"nothing is asked for", punctual.NewMessage{}},
		{"3 attempts", punctual.NewMessage{MaxAttempts: 3}},
		{"expires after 1 h", punctual.NewMessage{ExpireAfter: time.Hour}},
		{"expires after 1 ns and is dropped then", punctual.NewMessage{ExpireAfter: 1, DropExpired: true}},
		{"ID remembered for 1 h", punctual.NewMessage{Remember: time.Hour}},
		{"ID remembered for 1 ns", punctual.NewMessage{Remember: 1}},
	} {
		m := lifecycle.New(&x.n, now+minute, now)
		b.row(x.name, factsOf(&m))
	}
}

func (b *book) states() {
	b.chapter("State", "Message.State, and Message.At: when the message next needs attention.")
	for _, x := range []struct {
		name string
		m    lifecycle.Message
	}{
		{"due in 1 ms", lifecycle.Message{Due: now + 1}},
		{"due now", lifecycle.Message{Due: now}},
		{"due before", lifecycle.Message{Due: now - hour}},
		{"leased for another ms", lifecycle.Message{Due: now - hour, Token: 7, LeaseUntil: now + 1}},
		{"leased until now", lifecycle.Message{Due: now - hour, Token: 7, LeaseUntil: now}},
		{"leased until 1 ms ago", lifecycle.Message{Due: now - hour, Token: 7, LeaseUntil: now - 1}},
		{"leased and cancelled", lifecycle.Message{Due: now - hour, Token: 7, LeaseUntil: now + 1, CancelRequested: true}},
		{"lease ran out, cancelled before", lifecycle.Message{Due: now - hour, Token: 7, LeaseUntil: now, CancelRequested: true}},
		{"died an hour ago", lifecycle.Message{Due: now - 2*hour, Reason: punctual.ReasonDiscarded, Died: now - hour}},
		{"died before its due time", lifecycle.Message{Due: now + hour, Reason: punctual.ReasonDiscarded, Died: now - hour}},
	} {
		b.row(x.name, fmt.Sprintf("%s; at %s", x.m.State(now), relative(x.m.At())))
	}
}

func (b *book) expiries() {
	b.chapter("Expiry", "Message.Expires and Message.Expired: it counts from the first due time, so a retry does not move it.")
	last := limits.MaxDue.UnixMilli()
	for _, x := range []struct {
		name string
		m    lifecycle.Message
	}{
		{"never expires", lifecycle.Message{FirstDue: now - hour}},
		{"expires in 1 ms", lifecycle.Message{Due: now - minute, FirstDue: now - minute, ExpireAfter: minute + 1}},
		{"expires now", lifecycle.Message{Due: now - minute, FirstDue: now - minute, ExpireAfter: minute}},
		{"expired 1 ms ago", lifecycle.Message{Due: now - minute, FirstDue: now - minute, ExpireAfter: minute - 1}},
		{"retried behind its expiry", lifecycle.Message{Due: now + hour, FirstDue: now - hour, ExpireAfter: minute}},
	} {
		at, ok := x.m.Expires()
		text := "never"
		if ok {
			text = fmt.Sprintf("%s, expired %t", relative(at), x.m.Expired(now))
		}
		b.row(x.name, text)
	}
	m := lifecycle.Message{FirstDue: last, ExpireAfter: hour}
	expires, _ := m.Expires()
	b.row("due at MaxDue, expires an hour later", fmt.Sprintf("%d ms behind MaxDue", expires-last))
}

func (b *book) pushes() {
	b.chapter("Push", "lifecycle.Push: what a push does with an ID, by what has it.")
	for _, x := range []struct {
		name string
		h    lifecycle.Holder
	}{
		{"free", lifecycle.Holder{}},
		{"remembered of a finished message", lifecycle.Holder{Remembered: true}},
		{"of a scheduled message, due in 1 h", lifecycle.Holder{State: punctual.StateScheduled, Due: now + hour}},
		{"of a ready message, due 1 h ago", lifecycle.Holder{State: punctual.StateReady, Due: now - hour}},
		{"of a leased message, due 1 h ago", lifecycle.Holder{State: punctual.StateLeased, Due: now - hour}},
		{"of a dead message, died 1 min ago", lifecycle.Holder{State: punctual.StateDead, Due: now - hour, Died: now - minute}},
	} {
		b.section("the ID is " + x.name)
		for on, name := range []string{
			punctual.IfExistsKeep: "keep the first", punctual.IfExistsReplace: "replace", punctual.IfExistsFail: "fail", punctual.IfExistsReplaceDead: "replace a dead one",
		} {
			r := punctual.PushResult{ID: "a", Topic: "orders", Due: clock, Status: punctual.PushReplaced, Existing: punctual.StateLeased, Err: punctual.ErrPaused}
			store := lifecycle.Push(&punctual.NewMessage{IfExists: punctual.IfExists(on)}, x.h, &r)
			b.row(name, pushed(store, &r))
		}
		for _, y := range []struct {
			name string
			at   time.Time
		}{
			{"replace one due an hour ago", storekit.FromMillis(now - hour)},
			{"replace one due in an hour less half a millisecond", between.Add(time.Hour - time.Millisecond)},
			{"replace one due in an hour and half a millisecond", between.Add(time.Hour)},
		} {
			r := punctual.PushResult{ID: "a", Topic: "orders"}
			store := lifecycle.Push(&punctual.NewMessage{IfExists: punctual.IfExistsReplace, IfDue: y.at}, x.h, &r)
			b.row(y.name, pushed(store, &r))
		}
	}
}

// pushed is what a push does and is answered.
func pushed(store bool, r *punctual.PushResult) string {
	text := "not stored"
	if store {
		text = "STORED"
	}
	if r.Status != punctual.PushNone {
		text += fmt.Sprintf("; %s", r.Status)
	}
	if r.Existing != punctual.StateNone {
		text += fmt.Sprintf("; existing %s", r.Existing)
	}
	if !r.Due.IsZero() {
		text += "; due " + relative(storekit.Millis(r.Due))
	}
	return text + answer(r.Err)
}

// topic is the settings of the decisions that depend on them: three attempts, leases of 30 s, and a
// backoff without chance.
func topic() *punctual.Settings {
	set := punctual.DefaultSettings()
	set.MaxAttempts = 3
	set.Backoff = punctual.Backoff{Delays: []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute}}
	return &set
}

func (b *book) claims() {
	b.chapter("Claim", "lifecycle.Meet and lifecycle.MustEnd: what a claim does with a message whose time has come. \"stay\" is: deliver it.\n"+
		"The topic allows 3 attempts. A lease that ran out has token 7.")
	for _, lapsed := range []bool{false, true} {
		for _, drop := range []bool{false, true} {
			b.section(map[bool]string{false: "no lease before", true: "a lease that ran out"}[lapsed] + map[bool]string{false: "", true: ", to be dropped when it expires"}[drop])
			for _, attempts := range []int{0, 2, 3, 4} {
				for _, expiry := range []int64{0, now + 1, now, now - 1} {
					for _, cancelled := range []bool{false, true} {
						if cancelled && !lapsed || lapsed && attempts == 0 {
							continue // there is no such message
						}
						m := lifecycle.Message{Due: now - hour, FirstDue: now - hour, Attempts: attempts, DropExpired: drop, CancelRequested: cancelled}
						name := fmt.Sprintf("%d attempts, ", attempts)
						if expiry != 0 {
							m.ExpireAfter = expiry - m.FirstDue
							name += "expires " + relative(expiry)
						} else {
							name += "never expires"
						}
						if cancelled {
							name += ", cancelled"
						}
						if lapsed {
							m.Token, m.LeaseUntil = 7, now-1
						}
						b.claim(name, m)
					}
				}
			}
		}
	}
	b.section("bounds of a message's own")
	for _, own := range []int{1, 3, 5} {
		for _, attempts := range []int{own - 1, own} {
			b.claim(fmt.Sprintf("%d attempts of its own %d", attempts, own), lifecycle.Message{Due: now, FirstDue: now, Attempts: attempts, MaxAttempts: own})
		}
	}
}

func (b *book) claim(name string, m lifecycle.Message) {
	before, must := m, lifecycle.MustEnd(&m, topic(), now)
	d := lifecycle.Meet(&m, topic(), now)
	text := decision(&before, &m, d, nil)
	if must != (d.To != lifecycle.Stay) {
		text += fmt.Sprintf("; MustEnd is %t", must)
	}
	b.row(name, text)
}

func (b *book) leases() {
	b.chapter("Lease", "lifecycle.Lease: a claim delivers the message with token 8; the topic's leases are 30 s long.")
	lapsed := lifecycle.Message{Due: now - hour, FirstDue: now - hour, Attempts: 1, Token: 7, LeaseUntil: now - 1}
	for _, x := range []struct {
		name   string
		m      lifecycle.Message
		length time.Duration
	}{
		{"first attempt, the topic's length", lifecycle.Message{Due: now, FirstDue: now}, 0},
		{"first attempt, 5 s", lifecycle.Message{Due: now, FirstDue: now}, 5 * time.Second},
		{"first attempt, 1.5 ms", lifecycle.Message{Due: now, FirstDue: now}, 1500 * time.Microsecond},
		{"after a retry", lifecycle.Message{Due: now, FirstDue: now - hour, Attempts: 1}, 0},
		{"after a lease that ran out", lapsed, 0},
	} {
		before := x.m
		d := lifecycle.Lease(&x.m, 8, x.length, topic(), now)
		b.row(x.name, decision(&before, &x.m, d, nil))
	}
	b.chapter("Give back", "lifecycle.GiveBack: nobody has heard of the lease.")
	for _, m := range []lifecycle.Message{held(1, false, false), held(3, false, false), held(1, true, false), held(1, false, true)} {
		before := m
		b.row(holding(&m), decision(&before, &m, lifecycle.GiveBack(&m, now), nil))
	}
}

func (b *book) steps() {
	step := lifecycle.Step{From: now + hour, To: now}
	b.chapter("A step of the clock", "lifecycle.Step.Carry: the clock steps back by an hour, to now.")
	ahead := step.From - minute // within the minute in which the clock was ahead
	for _, x := range []struct {
		name string
		m    lifecycle.Message
	}{
		{"a delay of an hour from before", lifecycle.Message{Due: now + hour - minute, FirstDue: now + hour - minute, Since: now - minute}},
		{"a delay of an hour, set while ahead", lifecycle.Message{Due: ahead + hour, FirstDue: ahead + hour, Since: ahead}},
		{"a delay of nothing, set while ahead", lifecycle.Message{Due: ahead, FirstDue: ahead, Since: ahead}},
		{"a retry after an hour, set while ahead", lifecycle.Message{Due: ahead + hour, FirstDue: now - hour, Since: ahead, Attempts: 1}},
		{"a named due time", lifecycle.Message{Due: now + 2*hour, FirstDue: now + 2*hour}},
		{"expires an hour after a delay, set while ahead", lifecycle.Message{Due: ahead, FirstDue: ahead, Since: ahead, ExpireAfter: hour}},
		{"expires an hour after a due time from before, released while ahead", lifecycle.Message{Due: now - minute, FirstDue: now - minute, Since: ahead, ExpireAfter: hour}},
		{"a lease of 2 h from before", lifecycle.Message{Due: now - hour, FirstDue: now - hour, Since: now - hour, Token: 7, LeaseUntil: now + hour, Attempts: 1}},
		{"a lease of 2 m, granted while ahead", lifecycle.Message{Due: now - hour, FirstDue: now - hour, Since: ahead, Token: 7, LeaseUntil: ahead + 2*minute, Attempts: 1}},
		{"a lease that ran out while ahead", lifecycle.Message{Due: ahead, FirstDue: ahead, Since: ahead, Token: 7, LeaseUntil: ahead + minute, Attempts: 1}},
		{"dead since before", lifecycle.Message{Due: now - hour, Reason: punctual.ReasonDiscarded, Died: now - minute}},
		{"died while ahead", lifecycle.Message{Due: now - hour, Reason: punctual.ReasonDiscarded, Died: ahead}},
	} {
		before := x.m
		changed := step.Carry(&x.m)
		again := x.m
		b.row(x.name, strings.Join(append([]string{fmt.Sprintf("changed: %t", changed)}, changes(&before, &x.m)...), "; "))
		if step.Carry(&again) || again != x.m {
			b.row("the same step again", "changes it again: "+strings.Join(changes(&x.m, &again), "; "))
		}
	}
	for _, ended := range []int64{now - minute, ahead} {
		newEnded, until := step.CarryEnd(ended, ended+hour)
		b.row("ended "+relative(ended)+", kept until "+relative(ended+hour), "ended "+relative(newEnded)+", kept until "+relative(until))
	}
}

// held is a message under a lease with token 7, or with one that ran out.
func held(attempts int, lapsed, cancelled bool) lifecycle.Message {
	m := lifecycle.Message{
		Due: now - minute, FirstDue: now - hour, ExpireAfter: 2 * hour, Attempts: attempts, Token: 7, LeaseUntil: now + 10*second, CancelRequested: cancelled,
	}
	if lapsed {
		m.LeaseUntil = now - 10*second
	}
	return m
}

func holding(m *lifecycle.Message) string {
	text := fmt.Sprintf("%s, attempt %d", m.State(now), m.Attempts)
	if m.State(now) == punctual.StateReady {
		text = fmt.Sprintf("the lease of attempt %d ran out", m.Attempts)
	}
	if m.CancelRequested {
		text += ", cancelled under it"
	}
	return text
}

func (b *book) settlements() {
	b.chapter("Settle", "lifecycle.Settle: what the holder of a lease says. The topic allows 3 attempts, its backoff is 1 min, 2 min, 4 min, and its\n"+
		"leases are 30 s long. The message was due a minute ago, for the first time an hour ago. Its token is 7.")
	for _, lapsed := range []bool{false, true} {
		for _, cancelled := range []bool{false, true} {
			for _, attempts := range []int{1, 2, 3} {
				m := held(attempts, lapsed, cancelled)
				b.section(holding(&m))
				for _, x := range []punctual.Settlement{
					{Verb: punctual.SettleAck},
					{Verb: punctual.SettleDiscard, Error: "broken"},
					{Verb: punctual.SettleRelease},
					{Verb: punctual.SettleRetry, Error: "broken"},
					{Verb: punctual.SettleRetry, Delay: time.Hour, Error: "broken"},
					{Verb: punctual.SettleRetry, Delay: punctual.UseBackoff, Error: "broken"},
					{Verb: punctual.SettleSnooze},
					{Verb: punctual.SettleSnooze, Delay: time.Hour},
					{Verb: punctual.SettleRetry, Due: between.Add(time.Hour), Error: "broken"},
					{Verb: punctual.SettleSnooze, Due: between.Add(time.Hour)},
					{Verb: punctual.SettleSnooze, Due: clock.Add(-24 * time.Hour)},
					{Verb: punctual.SettleExtend},
					{Verb: punctual.SettleExtend, Delay: 5 * time.Second},
					{Verb: punctual.SettleExtend, Delay: time.Hour},
				} {
					x.Token = 7
					b.settle(settlement(&x), m, x, clock)
				}
			}
		}
	}
	retries := []punctual.Settlement{
		{Verb: punctual.SettleRetry, Delay: time.Hour, Token: 7},
		{Verb: punctual.SettleRetry, Delay: punctual.UseBackoff, Token: 7},
		{Verb: punctual.SettleSnooze, Delay: time.Hour, Token: 7},
	}
	for _, x := range []struct {
		name      string
		at        time.Time
		attempts  int
		own       int
		cancelled bool
	}{
		{"attempt 4, begun when the topic allowed more", clock, 4, 0, false},
		{"attempt 1 of its own 1", clock, 1, 1, false},
		{"attempt 3 of its own 5", clock, 3, 5, false},
		{"attempt 5 of its own 5", clock, 5, 5, false},
		{"attempt 1; the clock stands half a millisecond behind now, so that delays end 1 ms later", between, 1, 0, false},
		{"attempt 1; the delay ends behind MaxDue", late, 1, 0, false},
		{"attempt 3; the delay ends behind MaxDue", late, 3, 0, false},
		{"attempt 1, cancelled; the delay ends behind MaxDue", late, 1, 0, true},
	} {
		m := held(x.attempts, false, x.cancelled)
		m.MaxAttempts = x.own
		b.section("leased, " + x.name)
		for _, y := range retries {
			b.settle(settlement(&y), m, y, x.at)
		}
	}
	b.section("leased, attempt 1; the due time lies before the year 1, which no check of the item finds")
	for _, v := range []punctual.Verb{punctual.SettleRetry, punctual.SettleSnooze} {
		b.settle(v.String(), held(1, false, false), punctual.Settlement{Verb: v, Due: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), Token: 7}, clock)
	}
	for _, x := range []struct {
		name  string
		m     lifecycle.Message
		token int64
	}{
		{"leased with token 7, settled with token 6", held(1, false, false), 6},
		{"leased with token 7, settled with token 8", held(1, false, false), 8},
		{"leased with token 7 and cancelled, settled with token 6", held(1, false, true), 6},
		{"no lease, settled with token 7", lifecycle.Message{Due: now, FirstDue: now}, 7},
		{"no lease, settled with token 0", lifecycle.Message{Due: now, FirstDue: now}, 0},
		{"dead, settled with token 7", lifecycle.Message{Due: now, FirstDue: now, Reason: punctual.ReasonDiscarded, Died: now}, 7},
		{"dead, settled with token 0", lifecycle.Message{Due: now, FirstDue: now, Reason: punctual.ReasonDiscarded, Died: now}, 0},
	} {
		b.section(x.name)
		for v := punctual.SettleAck; v <= punctual.SettleExtend; v++ {
			b.settle(v.String(), x.m, punctual.Settlement{Verb: v, Token: x.token}, clock)
		}
	}
	b.section("no message with the ID")
	for v := punctual.SettleAck; v <= punctual.SettleExtend; v++ {
		d, err := lifecycle.Settle(nil, &punctual.Settlement{Topic: "orders", ID: "a", Verb: v, Token: 7}, nil, clock)
		b.row(v.String(), decision(&lifecycle.Message{}, &lifecycle.Message{}, d, err))
	}
}

func (b *book) settle(name string, m lifecycle.Message, x punctual.Settlement, at time.Time) {
	before := m
	x.Topic, x.ID = "orders", "a"
	d, err := lifecycle.Settle(&m, &x, topic(), at)
	b.row(name, decision(&before, &m, d, err))
}

func settlement(x *punctual.Settlement) string {
	switch {
	case x.Delay == punctual.UseBackoff:
		return x.Verb.String() + " by the backoff"
	case !x.Due.IsZero():
		return fmt.Sprintf("%s to %s", x.Verb, relative(storekit.CeilMillis(x.Due)))
	case x.Verb == punctual.SettleExtend && x.Delay == 0:
		return "extend by the topic's length"
	case x.Verb == punctual.SettleRetry || x.Verb == punctual.SettleSnooze || x.Verb == punctual.SettleExtend:
		return fmt.Sprintf("%s by %s", x.Verb, short(x.Delay))
	}
	return x.Verb.String()
}

func (b *book) amendments() {
	b.chapter("Amend", "lifecycle.Amend: what anyone may do by ID. The message was due a minute ago and expires 2 h behind its first due time.")
	waiting := held(0, false, false)
	waiting.Token, waiting.LeaseUntil = 0, 0
	scheduled := waiting
	scheduled.Due = now + minute
	failed := waiting
	failed.Attempts = 2
	dead := waiting
	dead.Attempts, dead.Reason, dead.Died = 3, punctual.ReasonAttemptsUsedUp, now-minute
	for _, x := range []struct {
		name  string
		m     lifecycle.Message
		state punctual.State
	}{
		{"scheduled", scheduled, punctual.StateScheduled},
		{"ready", waiting, punctual.StateReady},
		{"ready after 2 failed attempts", failed, punctual.StateReady},
		{"leased", held(1, false, false), punctual.StateLeased},
		{"leased and cancelled", held(1, false, true), punctual.StateLeased},
		{"the lease of attempt 1 ran out", held(1, true, false), punctual.StateReady},
		{"the lease of attempt 3 of 3 ran out", held(3, true, false), punctual.StateReady},
		{"the lease of attempt 1 ran out, cancelled under it", held(1, true, true), punctual.StateReady},
		{"dead after 3 attempts", dead, punctual.StateDead},
		{"dead and past its retention", dead, punctual.StateNone},
		{"no message with the ID", lifecycle.Message{}, punctual.StateNone},
	} {
		b.section(x.name)
		for _, a := range []struct {
			name string
			a    punctual.Amendment
		}{
			{"cancel", punctual.Amendment{Change: punctual.ChangeCancel}},
			{"delete", punctual.Amendment{Change: punctual.ChangeDelete}},
			{"reschedule to now", punctual.Amendment{Change: punctual.ChangeReschedule}},
			{"reschedule in 3h", punctual.Amendment{Change: punctual.ChangeReschedule, Delay: 3 * time.Hour}},
			{"reschedule to a day ago", punctual.Amendment{Change: punctual.ChangeReschedule, Due: storekit.FromMillis(now - 24*hour)}},
			{"requeue for now", punctual.Amendment{Change: punctual.ChangeRequeue}},
			{"requeue in 3h", punctual.Amendment{Change: punctual.ChangeRequeue, Delay: 3 * time.Hour}},
			{"cancel if due half a millisecond before that", punctual.Amendment{Change: punctual.ChangeCancel, IfDue: just(x.m.Due)}},
			{"cancel if due at another instant", punctual.Amendment{Change: punctual.ChangeCancel, IfDue: clock}},
			{"delete if due half a millisecond before that", punctual.Amendment{Change: punctual.ChangeDelete, IfDue: just(x.m.Due)}},
			{"delete if due at another instant", punctual.Amendment{Change: punctual.ChangeDelete, IfDue: clock}},
			{"reschedule in 3h if due half a millisecond before that", punctual.Amendment{Change: punctual.ChangeReschedule, Delay: 3 * time.Hour, IfDue: just(x.m.Due)}},
			{"reschedule in 3h if due at another instant", punctual.Amendment{Change: punctual.ChangeReschedule, Delay: 3 * time.Hour, IfDue: clock}},
			{"requeue in 3h if due half a millisecond before that", punctual.Amendment{Change: punctual.ChangeRequeue, Delay: 3 * time.Hour, IfDue: just(x.m.Due)}},
			{"requeue in 3h if due at another instant", punctual.Amendment{Change: punctual.ChangeRequeue, Delay: 3 * time.Hour, IfDue: clock}},
		} {
			m := x.m
			a.a.Topic, a.a.ID = "orders", "a"
			due, err := lifecycle.AmendDue(&a.a, clock)
			if err != nil {
				panic(err) // the table is wrong
			}
			d, out := lifecycle.Amend(&m, x.state, &a.a, due, now)
			text := decision(&x.m, &m, d, out.Err)
			if !out.Due.IsZero() {
				text += "; answered: due " + relative(storekit.Millis(out.Due))
			}
			b.row(a.name, text)
		}
	}
	b.section("AmendDue, whether there is a message or not")
	for _, x := range []struct {
		name string
		a    punctual.Amendment
		at   time.Time
	}{
		{"in 1 h", punctual.Amendment{Delay: time.Hour}, clock},
		{"in 1 h, the clock half a millisecond behind now", punctual.Amendment{Delay: time.Hour}, between},
		{"in 1 h, which is behind MaxDue", punctual.Amendment{Delay: time.Hour}, late},
		{"at half a millisecond behind now", punctual.Amendment{Due: between}, clock},
		{"at 1 ms behind MaxDue", punctual.Amendment{Due: limits.MaxDue.Add(time.Millisecond)}, clock},
	} {
		for x.a.Change = punctual.ChangeCancel; x.a.Change <= punctual.ChangeDelete; x.a.Change++ {
			due, err := lifecycle.AmendDue(&x.a, x.at)
			text := "goes on"
			if !due.IsZero() {
				text = "due " + relative(storekit.Millis(due))
			}
			if err != nil {
				text = "refused" + answer(err)
			}
			b.row(x.a.Change.String()+" "+x.name, text)
		}
	}
}

// just is half a millisecond before a due time, which is rounded up to it.
func just(due int64) time.Time { return storekit.FromMillis(due).Add(-500 * time.Microsecond) }

func (b *book) followUps() {
	b.chapter("Follow-ups", "lifecycle.FollowUp: the first follow-up of a settlement, by what has its ID, and Message.Behind: what has the ID of\n"+
		"the settled message behind the settlement. The follow-up is to take effect as a push would; an error refuses the settlement.")
	paused := topic()
	paused.PushPaused = true
	for _, x := range []struct {
		name string
		h    lifecycle.Holder
		set  *punctual.Settings
	}{
		{"there is no such topic", lifecycle.Holder{}, nil},
		{"the topic's pushes are paused", lifecycle.Holder{}, paused},
		{"the topic's pushes are paused, and a scheduled message has the ID", lifecycle.Holder{State: punctual.StateScheduled, Due: now + hour}, paused},
		{"the ID is free", lifecycle.Holder{}, topic()},
		{"the ID is remembered", lifecycle.Holder{Remembered: true}, topic()},
		{"the ID is of a scheduled message, due in 1 h", lifecycle.Holder{State: punctual.StateScheduled, Due: now + hour}, topic()},
		{"the ID is of a leased message, due 1 h ago", lifecycle.Holder{State: punctual.StateLeased, Due: now - hour}, topic()},
		{"the ID is of a dead message, due 1 h ago", lifecycle.Holder{State: punctual.StateDead, Due: now - hour, Died: now - minute}, topic()},
	} {
		b.section(x.name)
		b.behind(punctual.Settlement{Topic: "orders", ID: "a", Verb: punctual.SettleAck, Then: []punctual.NewMessage{{Topic: "bills", ID: "a"}}}, x.h, x.set)
	}
	for _, window := range []time.Duration{0, time.Hour} {
		for _, x := range []punctual.Settlement{
			{Verb: punctual.SettleAck}, {Verb: punctual.SettleDiscard}, {Verb: punctual.SettleSnooze, Delay: time.Hour}, {Verb: punctual.SettleSnooze},
		} {
			x.Topic, x.ID, x.Token = "orders", "a", 7
			x.Then = []punctual.NewMessage{{Topic: "orders", ID: "a"}}
			set := topic()
			set.DedupeWindow = window
			m := held(1, false, false)
			d, err := lifecycle.Settle(&m, &x, set, clock)
			if err != nil || !lifecycle.IsItself(&x, &x.Then[0]) {
				panic("the table is wrong")
			}
			b.section(fmt.Sprintf("itself behind %s, duplicate window %s", settlement(&x), short(window)))
			b.behind(x, m.Behind(d, set, now), set)
		}
	}
	b.section("what Behind answers of a message that is removed")
	m := held(1, false, false)
	b.row("delete", fmt.Sprintf("%+v", m.Behind(lifecycle.Decision{To: lifecycle.Removed}, topic(), now)))
}

// behind writes what becomes of the first follow-up of x for each IfExists, and for a replacement
// with an IfDue.
func (b *book) behind(x punctual.Settlement, h lifecycle.Holder, set *punctual.Settings) {
	for _, y := range []struct {
		name  string
		on    punctual.IfExists
		ifDue time.Time
	}{
		{"keep the first", punctual.IfExistsKeep, time.Time{}},
		{"replace", punctual.IfExistsReplace, time.Time{}},
		{"replace one due an hour ago", punctual.IfExistsReplace, clock.Add(-time.Hour)},
		{"fail", punctual.IfExistsFail, time.Time{}},
		{"replace a dead one", punctual.IfExistsReplaceDead, time.Time{}},
	} {
		n := &x.Then[0]
		n.IfExists, n.IfDue = y.on, y.ifDue
		r := punctual.PushResult{ID: n.ID, Topic: n.Topic}
		store, err := lifecycle.FollowUp(&x, 0, h, set, &r)
		r.Err = err
		b.row(y.name, pushed(store, &r))
	}
}

func (b *book) kept() {
	b.chapter("What is kept", "Message.Keep: until when the ID and the finished record of a message are kept that finishes now.")
	for _, window := range []time.Duration{0, time.Hour, 1500 * time.Microsecond} {
		for _, retention := range []time.Duration{0, 2 * time.Hour, 1500 * time.Microsecond} {
			b.section(fmt.Sprintf("duplicate window %s, finished retention %s", short(window), short(retention)))
			for _, remember := range []int64{0, minute, 24 * hour} {
				set := topic()
				set.DedupeWindow, set.FinishedRetention = window, retention
				m := lifecycle.Message{Remember: remember}
				k := m.Keep(set, now)
				name := "the message follows its topic"
				if remember > 0 {
					name = "the message asks for " + short(time.Duration(remember)*time.Millisecond)
				}
				b.row(name, fmt.Sprintf("ID %s; record %s", until(k.ID), until(k.Record)))
			}
		}
	}
}

func until(at int64) string {
	if at == 0 {
		return "not kept"
	}
	return "until " + relative(at)
}

func (b *book) retention() {
	b.chapter("Retention of the dead", "lifecycle.PastRetention: whether a dead message is gone, and whether a sweep by lifecycle.DeadSince takes it.")
	for _, keep := range []time.Duration{0, time.Hour, 1500 * time.Microsecond} {
		set := topic()
		set.DeadRetention = keep
		b.section("dead retention " + short(keep))
		for _, died := range []int64{now, now - 1, now - 2, now - 3, now - hour + 1, now - hour, now - hour - 1} {
			name := map[bool]string{false: "there", true: "GONE"}
			text := name[lifecycle.PastRetention(died, set, now)]
			if swept := name[died < lifecycle.DeadSince(set, now)]; swept != text {
				text += ", but for a sweep " + swept
			}
			b.row("died "+relative(died), text)
		}
	}
}

// decision is what became of a message: where it goes, its event, what has changed of it, its
// failure, and the answer.
func decision(before, after *lifecycle.Message, d lifecycle.Decision, err error) string {
	text := d.To.String()
	if d.Outcome != "" {
		text += " (" + string(d.Outcome) + ")"
	}
	set := punctual.DefaultSettings()
	set.Emit = event.All
	if e, tell := after.Event(d, &set, now-second, now); tell {
		text += "; event " + e.Event.String()
		if e.Delivered.IsZero() {
			text += " without a lease"
		}
	}
	for _, c := range changes(before, after) {
		text += "; " + c
	}
	if d.Failed {
		text += fmt.Sprintf("; failure: attempt %d at %s %q", d.Failure.Attempt, relative(storekit.Millis(d.Failure.At)), d.Failure.Error)
	}
	return text + answer(err)
}

func answer(err error) string {
	if err == nil {
		return ""
	}
	return "; answered: " + storekit.ErrorCode(err)
}

// changes names the facts that differ, each with its new value.
func changes(before, after *lifecycle.Message) (out []string) {
	was, is := facts(before), facts(after)
	for i := range is {
		if was[i] != is[i] {
			out = append(out, is[i])
		}
	}
	return out
}

// facts are the facts of a message, each as a text.
func facts(m *lifecycle.Message) []string {
	lease, death, expiry := "no lease", "not dead", "never expires"
	if m.Token != 0 || m.LeaseUntil != 0 {
		lease = fmt.Sprintf("token %d until %s", m.Token, relative(m.LeaseUntil))
	}
	if m.Reason != "" || m.Died != 0 {
		death = fmt.Sprintf("died %s: %s", relative(m.Died), m.Reason)
	}
	if at, ok := m.Expires(); ok {
		expiry = "expires " + relative(at)
	}
	since := "since nothing"
	if m.Since != 0 {
		since = "since " + relative(m.Since)
	}
	return []string{
		since, "due " + relative(m.Due), "first due " + relative(m.FirstDue), expiry, fmt.Sprintf("dropped when expired: %t", m.DropExpired),
		fmt.Sprintf("%d attempts", m.Attempts), fmt.Sprintf("at most %d attempts", m.MaxAttempts), fmt.Sprintf("ID remembered for %d ms", m.Remember),
		lease, fmt.Sprintf("cancelled: %t", m.CancelRequested), death,
	}
}

func factsOf(m *lifecycle.Message) string {
	return strings.Join(changes(&lifecycle.Message{}, m), "; ")
}

// relative is a time as its distance from now.
func relative(ms int64) string {
	switch d := time.Duration(ms-now) * time.Millisecond; {
	case d == 0:
		return "now"
	case d > 0:
		return "now+" + short(d)
	default:
		return "now-" + short(-d)
	}
}

// short is a duration without the minutes and seconds at its end that are zero.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
