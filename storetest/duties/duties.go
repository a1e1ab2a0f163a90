// Package duties shows that the duties of package duty hold their promises over a store: copies for
// groups, forwarded follow-ups and the occurrences of schedules are stored whole or not at all, and
// once, also when the process that does the duties is killed in between.
package duties

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/duty"
	familyrig "github.com/punctualmq/punctual/internal/rigs/family"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/promise"
)

// Run runs every case of copies and of forwarded follow-ups over one store by the real clock. It
// takes some seconds.
func Run(t *testing.T, open storetest.Open) {
	store := open(t, nil)
	if _, err := punctual.As[storekit.TopicNamer](store); err != nil {
		t.Skipf("skipped: %v", err)
	}
	for _, c := range []struct {
		name string
		run  func(*bench)
	}{
		{"copies have all that was pushed", copiesWhole},
		{"one message until it is due", oneUntilDue},
		{"groups of the moment", groupsOfTheMoment},
		{"a message that was put off", putOff},
		{"a second life of an ID", secondLife},
		{"an ID too long for a number", longID},
		{"pauses", pauses},
		{"nobody copies", nobodyCopies},
		{"dead letters of a group", deadLetters},
		{"what cannot be copied", notCopied},
		{"many messages and processes", manyCopies},
		{"a process that stands still", standsStill},
		{"follow-ups are forwarded", forwarded},
		{"a follow-up that is refused", forwardRefused},
		{"a dead envelope is requeued", forwardedBefore},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, store, strings.ReplaceAll(c.name, " ", "-"))
			c.run(b)
		})
	}
	storetest.CheckSound(t, store)
}

// bench is a store in which a case has a topic of its own.
type bench struct {
	*testing.T
	store punctual.Store
	in    punctual.Inspector
	queue *punctual.Queue
	topic string
}

func newBench(t *testing.T, store punctual.Store, topic string) *bench {
	in, err := punctual.As[punctual.Inspector](store)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{T: t, store: store, in: in, queue: punctual.NewQueue(store, nil), topic: topic}
}

// duties does the duties of the case's topic, over the store or a wrapper of it, until stop is
// called or the test ends.
func (b *bench) duties(over ...punctual.Store) (stop func()) {
	b.Helper()
	store := b.store
	if len(over) > 0 {
		store = over[0]
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- duty.Run(ctx, store, &duty.Config{Topics: []string{b.topic}, Logger: slog.New(slog.DiscardHandler)})
	}()
	stop = sync.OnceFunc(func() {
		end()
		if err := <-done; err != nil {
			b.Errorf("duty.Run: %v", err)
		}
	})
	b.Cleanup(stop)
	return stop
}

// groups sets the groups of the case's topic.
func (b *bench) groups(names ...string) {
	b.Helper()
	b.configure(b.topic, punctual.SettingsPatch{Groups: &names})
}

func (b *bench) configure(topic string, p punctual.SettingsPatch) {
	b.Helper()
	if _, err := b.in.Configure(b.Context(), topic, p); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) push(id string, opts ...punctual.PushOption) {
	b.Helper()
	if _, err := b.queue.Push(b.Context(), b.topic, []byte("body of "+id), append(opts, punctual.ID(id))...); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) group(name string) string { return punctual.GroupTopic(b.topic, name) }

// state returns the state of a message, StateNone for one that is not there.
func (b *bench) state(topic, id string) punctual.State {
	b.Helper()
	i, err := b.in.Get(b.Context(), topic, id)
	if err != nil && !errors.Is(err, punctual.ErrNotFound) {
		b.Fatal(err)
	}
	return i.State
}

func (b *bench) get(topic, id string) punctual.Info {
	b.Helper()
	i, err := b.in.Get(b.Context(), topic, id)
	if err != nil {
		b.Fatalf("%s of %s: %v", id, topic, err)
	}
	return i
}

// patience is how long a case waits for what must happen.
const patience = 30 * time.Second

// until waits until a condition holds.
func (b *bench) until(promise, what string, holds func() bool) {
	b.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("%s: after %v not yet: %s", promise, patience, what)
		}
	}
}

// copied waits until a group has a message.
func (b *bench) copied(group, id string) {
	b.Helper()
	b.until(promise.P1, fmt.Sprintf("group %s has %s", group, id), func() bool { return b.state(b.group(group), id) != punctual.StateNone })
}

// ids returns the IDs of a topic's messages, dead ones included, sorted.
func (b *bench) ids(topic string) (ids []string) {
	b.Helper()
	for _, state := range []punctual.State{punctual.StateScheduled, punctual.StateReady, punctual.StateLeased, punctual.StateDead} {
		q := punctual.ListQuery{Topic: topic, State: state, Limit: 10_000, Bare: true}
		for {
			p, err := b.in.List(b.Context(), q)
			if err != nil {
				b.Fatal(err)
			}
			for _, i := range p.Messages {
				ids = append(ids, i.ID)
			}
			if q.After = p.Next; q.After == "" {
				break
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids) // a message that becomes ready between two lists is in both
}

// claim claims one message of a topic and settles it.
func (b *bench) claim(topic string, verb punctual.Verb) punctual.Delivery {
	b.Helper()
	ds, err := b.store.Claim(b.Context(), punctual.Claim{Topics: []string{topic}, Max: 1, Wait: patience})
	if err != nil || len(ds) != 1 {
		b.Fatalf("claim from %s: %v, %v", topic, ds, err)
	}
	b.settle(punctual.Settlement{Topic: topic, ID: ds[0].ID, Token: ds[0].Token, Verb: verb, Error: "given up"})
	return ds[0]
}

func (b *bench) settle(x punctual.Settlement) {
	b.Helper()
	if x.Verb != punctual.SettleRetry && x.Verb != punctual.SettleDiscard {
		x.Error = ""
	}
	errs, err := b.store.Settle(b.Context(), []punctual.Settlement{x})
	if err != nil || errs[0] != nil {
		b.Fatal(errs, err)
	}
}

func ptr[T any](v T) *T { return &v }

func copiesWhole(b *bench) {
	b.groups("billing", "mail")
	due := time.Now().Add(200 * time.Millisecond)
	b.push("a", punctual.At(due), punctual.Header("k", "v"), punctual.MaxAttempts(7), punctual.Expire(2*time.Hour), punctual.DropExpired())
	want := b.get(b.topic, "a")
	b.duties()
	for _, g := range []string{"billing", "mail"} {
		b.copied(g, "a")
		c := b.get(b.group(g), "a")
		if string(c.Body) != string(want.Body) || !maps.Equal(c.Headers, want.Headers) || !c.Due.Equal(want.Due) || !c.FirstDue.Equal(want.FirstDue) ||
			!c.Expires.Equal(want.Expires) || c.DropExpired != want.DropExpired || c.MaxAttempts != want.MaxAttempts || c.Attempt != 0 {
			b.Errorf("the copy for %s is\n%+v\nof\n%+v", g, c, want)
		}
		if c.Created.Before(want.Due) {
			b.Errorf("%s: the copy for %s was made at %v, before the message was due at %v", promise.P2, g, c.Created, want.Due)
		}
	}
	if s := b.state(b.topic, "a"); s != punctual.StateNone {
		b.Errorf("%s: the message is still there, %s", promise.P1, s)
	}
}

func oneUntilDue(b *bench) {
	b.groups("billing", "mail")
	b.duties()
	b.push("cancelled", punctual.In(time.Hour))
	b.push("moved", punctual.In(time.Hour))
	if err := b.queue.Cancel(b.Context(), b.topic, "cancelled"); err != nil {
		b.Fatal(err)
	}
	if _, err := b.queue.Reschedule(b.Context(), b.topic, "moved", punctual.In(0)); err != nil {
		b.Fatal(err)
	}
	b.copied("billing", "moved")
	b.copied("mail", "moved")
	if err := b.queue.Cancel(b.Context(), b.topic, "moved"); !errors.Is(err, punctual.ErrNotFound) {
		b.Errorf("%s: a cancel behind the copying: %v; want ErrNotFound", promise.P5, err)
	}
	if err := b.queue.Cancel(b.Context(), b.group("mail"), "moved"); err != nil {
		b.Errorf("a cancel of a copy: %v", err)
	}
	if got := b.ids(b.group("billing")); !slices.Equal(got, []string{"moved"}) {
		b.Errorf("%s: billing has %q", promise.P5, got)
	}
}

func groupsOfTheMoment(b *bench) {
	b.groups("billing", "mail")
	b.push("first")
	b.duties()
	b.copied("mail", "first")
	b.groups("billing", "audit")
	b.push("second")
	b.copied("audit", "second")
	b.copied("billing", "second")
	if got := append(b.ids(b.group("mail")), b.ids(b.group("audit"))...); !slices.Equal(got, []string{"first", "second"}) {
		b.Errorf("mail and audit have %q; want what fell due while each was a group", got)
	}
}

// putOff: the copies of a message that was put off, as the duty does where copies are refused for a
// while, are due and expire when the message was first due and expires.
func putOff(b *bench) {
	b.groups("billing")
	b.push("a", punctual.Expire(2*time.Hour))
	want := b.get(b.topic, "a")
	ds, err := b.store.Claim(b.Context(), punctual.Claim{Topics: []string{b.topic}, Max: 1, Wait: patience})
	if err != nil || len(ds) != 1 {
		b.Fatal(ds, err)
	}
	b.settle(punctual.Settlement{Topic: b.topic, ID: "a", Token: ds[0].Token, Verb: punctual.SettleSnooze, Delay: 300 * time.Millisecond})
	if i := b.get(b.topic, "a"); !i.Due.After(i.FirstDue) {
		b.Fatalf("the message is %+v, which was not put off, so this test shows nothing", i)
	}
	b.duties()
	b.copied("billing", "a")
	if c := b.get(b.group("billing"), "a"); !c.Due.Equal(want.Due) || !c.FirstDue.Equal(want.FirstDue) || !c.Expires.Equal(want.Expires) {
		b.Errorf("%s: the copy is due %v, first %v, and expires %v; want %v, %v and %v",
			promise.P1, c.Due, c.FirstDue, c.Expires, want.Due, want.FirstDue, want.Expires)
	}
}

func secondLife(b *bench) {
	b.groups("billing", "mail")
	b.duties()
	b.push("a")
	b.copied("mail", "a")
	b.copied("billing", "a")
	b.claim(b.group("billing"), punctual.SettleAck)
	b.claim(b.group("mail"), punctual.SettleDiscard)
	b.push("a") // one group is done with the first, and in the other one it is dead
	b.copied("billing", "a~2")
	b.push("a")
	b.copied("mail", "a~3")
	for g, want := range map[string][]string{"billing": {"a~2", "a~3"}, "mail": {"a", "a~2", "a~3"}} {
		b.until(promise.P1, g+" has its copies", func() bool { return slices.Equal(b.ids(b.group(g)), want) })
	}
	if s := b.state(b.group("mail"), "a"); s != punctual.StateDead {
		b.Errorf("the dead copy is %q now", s)
	}
}

func longID(b *bench) {
	b.groups("billing", "mail")
	b.duties()
	id := strings.Repeat("x", limits.MaxIDBytes)
	b.push(id)
	b.copied("mail", id)
	b.push(id)
	for _, g := range []string{"billing", "mail"} {
		b.until(promise.P1, g+" has both copies", func() bool { return len(b.ids(b.group(g))) == 2 })
	}
}

func pauses(b *bench) {
	b.groups("billing", "mail")
	b.configure(b.topic, punctual.SettingsPatch{DeliveryPaused: ptr(true)})
	b.configure(b.group("mail"), punctual.SettingsPatch{DeliveryPaused: ptr(true)})
	b.push("a")
	b.duties()
	// A topic that is not paused, with duties of its own, shows that there was time for a copy
	// meanwhile.
	other := newBench(b.T, b.store, b.topic+"-other")
	other.groups("billing")
	other.duties()
	other.push("a")
	other.copied("billing", "a")
	if s := b.state(b.topic, "a"); s != punctual.StateReady {
		b.Errorf("a message of a paused topic is %s", s)
	}
	// A copy is a push to a companion, so a pause of pushes to the topic does not stop it.
	b.configure(b.topic, punctual.SettingsPatch{DeliveryPaused: ptr(false), PushPaused: ptr(true)})
	b.copied("billing", "a")
	b.copied("mail", "a")
	ds, err := b.store.Claim(b.Context(), punctual.Claim{Topics: []string{b.group("mail")}, Max: 1})
	if err != nil || len(ds) != 0 {
		b.Errorf("a group whose deliveries are paused got %v, %v", ds, err)
	}
	b.claim(b.group("billing"), punctual.SettleAck)
	b.configure(b.group("mail"), punctual.SettingsPatch{DeliveryPaused: ptr(false)})
	b.claim(b.group("mail"), punctual.SettleAck)
}

func nobodyCopies(b *bench) {
	b.groups("billing", "mail")
	for i := range 20 {
		b.push(fmt.Sprint(i))
	}
	b.until(promise.P1, "all are ready", func() bool {
		s, err := b.in.Stats(b.Context(), b.topic)
		return err == nil && s.Ready == 20
	})
	if got := b.ids(b.group("billing")); len(got) != 0 {
		b.Errorf("billing has %q, and nobody copies", got)
	}
	want := b.get(b.topic, "7")
	b.duties()
	for _, g := range []string{"billing", "mail"} {
		b.until(promise.P1, "all are copied", func() bool { return len(b.ids(b.group(g))) == 20 })
		if c := b.get(b.group(g), "7"); !c.Due.Equal(want.Due) || !c.FirstDue.Equal(want.FirstDue) {
			b.Errorf("the late copy for %s is due %v, first %v; want %v", g, c.Due, c.FirstDue, want.Due)
		}
	}
}

func deadLetters(b *bench) {
	b.groups("billing", "mail")
	b.configure(b.group("billing"), punctual.SettingsPatch{MaxAttempts: ptr(1)})
	b.duties()
	b.push("a")
	b.copied("billing", "a")
	b.copied("mail", "a")
	b.claim(b.group("billing"), punctual.SettleRetry)
	if i := b.get(b.group("billing"), "a"); i.State != punctual.StateDead || i.Reason != punctual.ReasonAttemptsUsedUp {
		b.Errorf("the copy of billing is %+v", i)
	}
	if i := b.get(b.group("mail"), "a"); i.State != punctual.StateReady || i.Attempt != 0 {
		b.Errorf("the copy of mail is %+v", i)
	}
	if _, err := b.queue.Requeue(b.Context(), b.group("billing"), "a", punctual.In(0)); err != nil {
		b.Error(err)
	}
	b.claim(b.group("billing"), punctual.SettleAck)
	b.claim(b.group("mail"), punctual.SettleAck)
}

func notCopied(b *bench) {
	groups := make([]string, 9) // the copies of a message of 1 MiB for nine groups are more than one settlement can have
	for i := range groups {
		groups[i] = fmt.Sprint("g", i)
	}
	b.groups(groups[0])
	b.configure(b.topic, punctual.SettingsPatch{MaxAttempts: ptr(2), Backoff: &punctual.Backoff{}})
	body := make([]byte, limits.DefaultMaxBody)
	if _, err := b.queue.Push(b.Context(), b.topic, body, punctual.ID("a")); err != nil {
		b.Fatal(err)
	}
	b.groups(groups...)
	if _, err := b.queue.Push(b.Context(), b.topic, body, punctual.ID("b")); !errors.Is(err, punctual.ErrTooLarge) {
		b.Errorf("%s: a push whose copies are too large: %v; want ErrTooLarge", promise.P13, err)
	}
	b.duties()
	b.until(promise.P1, "the message is dead", func() bool { return b.state(b.topic, "a") == punctual.StateDead })
	i := b.get(b.topic, "a")
	if len(i.Failures) == 0 || !strings.HasPrefix(i.Failures[0].Error, "not copied: ") || !strings.Contains(i.Failures[0].Error, punctual.ErrTooLarge.Error()) {
		b.Errorf("its history is %+v; want it to say why it was not copied", i.Failures)
	}
	for _, g := range groups {
		if got := b.ids(b.group(g)); len(got) != 0 {
			b.Errorf("%s: group %s has %q of copies that were refused", promise.P13, g, got)
		}
	}
	b.groups("g0", "g1")
	if _, err := b.queue.Requeue(b.Context(), b.topic, "a", punctual.In(0)); err != nil {
		b.Fatal(err)
	}
	b.copied("g0", "a")
	b.copied("g1", "a")
}

func manyCopies(b *bench) {
	groups := []string{"billing", "mail", "audit"}
	b.groups(groups...)
	b.configure(b.topic, punctual.SettingsPatch{Lease: ptr(time.Second)})
	tally := newTally()
	const n = 300
	for range 3 {
		b.duties(&lossy{Store: b.store, every: 7})
	}
	for i := range n {
		id := fmt.Sprint("m", i)
		tally.pushing(id)
		b.push(id, punctual.In(time.Duration(i%40)*10*time.Millisecond))
		tally.pushed(id)
		if i%9 == 0 {
			tally.cancelling(id)
			tally.cancelled(id, b.queue.Cancel(b.Context(), b.topic, id))
		}
	}
	tally.settled(b, groups)
}

// standsStill: the process that has claimed a message stands still until its lease has ended and
// another process has copied the message. Then its ack must fail and make no copies.
func standsStill(b *bench) {
	b.groups("billing", "mail")
	b.configure(b.topic, punctual.SettingsPatch{Lease: ptr(200 * time.Millisecond)})
	still := &standing{Store: b.store, stands: make(chan struct{}), goes: make(chan struct{})}
	b.duties(still)
	b.push("a")
	select {
	case <-still.stands: // the process stands between its claim and its ack
	case <-time.After(patience):
		b.Fatal("no settlement with copies was made, so this test shows nothing")
	}
	b.duties()
	b.copied("billing", "a")
	b.copied("mail", "a")
	close(still.goes)
	b.until(promise.P4, "the late ack is answered", func() bool { return still.answered() })
	if err := still.late(); !errors.Is(err, punctual.ErrLeaseLost) {
		b.Errorf("%s: the late ack: %v; want ErrLeaseLost", promise.P4, err)
	}
	for _, g := range []string{"billing", "mail"} {
		if got := b.ids(b.group(g)); !slices.Equal(got, []string{"a"}) {
			b.Errorf("%s: group %s has %q; want one copy", promise.P4, g, got)
		}
	}
}

// family returns a wrapper of the store that reaches only a family, as a store does whose topics
// lie on several servers.
func (b *bench) family() punctual.Store { return familyrig.New(b.store, 1, false) }

// follow pushes a message, claims it and acks it with a follow-up in another topic.
func (b *bench) follow(id string, m punctual.NewMessage) {
	b.Helper()
	b.push(id)
	ds, err := b.store.Claim(b.Context(), punctual.Claim{Topics: []string{b.topic}, Max: 1, Wait: patience})
	if err != nil || len(ds) != 1 {
		b.Fatal(ds, err)
	}
	x := punctual.Settlement{Topic: b.topic, ID: ds[0].ID, Token: ds[0].Token, Verb: punctual.SettleAck, Then: []punctual.NewMessage{m}}
	storekit.SetAfter(&x)
	errs, err := storekit.Settle(b.Context(), b.family(), []punctual.Settlement{x}, nil)
	if err == nil && errors.Is(errs[0], punctual.ErrForbidden) {
		b.Skipf("skipped: behind a server nobody puts follow-ups into envelopes: %v", errs[0])
	}
	if err != nil || errs[0] != nil {
		b.Fatal(errs, err)
	}
}

func forwarded(b *bench) {
	to := b.topic + "-to"
	b.follow("a", punctual.NewMessage{Topic: to, ID: "a~next", Delay: time.Hour, Body: []byte("next"), MaxAttempts: 3})
	envelopes := b.ids(storekit.OutTopic(b.topic))
	if len(envelopes) != 1 {
		b.Fatalf("the envelopes are %q, so this test shows nothing", envelopes)
	}
	settled := b.get(storekit.OutTopic(b.topic), envelopes[0]).Created
	b.configure(to, punctual.SettingsPatch{PushPaused: ptr(true)})
	stop := b.duties()
	b.until(promise.P1, "the envelope waits", func() bool {
		i, err := b.in.Get(b.Context(), storekit.OutTopic(b.topic), envelopes[0])
		return err == nil && !i.Due.Equal(i.FirstDue) && i.Attempt == 0
	})
	b.configure(to, punctual.SettingsPatch{PushPaused: ptr(false)})
	b.until(promise.P1, "the follow-up is forwarded", func() bool { return b.state(to, "a~next") == punctual.StateScheduled })
	stop()
	i := b.get(to, "a~next")
	if late := i.Due.Sub(settled.Add(time.Hour)); late < 0 || late > 2*time.Millisecond {
		b.Errorf("%s: it is due %v after an hour from the settlement", promise.P2, late)
	}
	if string(i.Body) != "next" || i.MaxAttempts != 3 || i.Remember != 24*time.Hour || i.Headers[storekit.AfterHeader] == "" || len(i.Headers) != 1 {
		b.Errorf("it is %+v", i)
	}
	b.until(promise.P1, "no envelope is left", func() bool { return len(b.ids(storekit.OutTopic(b.topic))) == 0 })
}

func forwardRefused(b *bench) {
	to := b.topic + "-to"
	if _, err := b.queue.Push(b.Context(), to, nil, punctual.ID("taken"), punctual.In(time.Hour)); err != nil {
		b.Fatal(err)
	}
	b.follow("a", punctual.NewMessage{Topic: to, ID: "taken", IfExists: punctual.IfExistsFail})
	b.duties()
	out := storekit.OutTopic(b.topic)
	b.until(promise.P13, "the envelope is dead", func() bool {
		ids := b.ids(out)
		return len(ids) == 1 && b.state(out, ids[0]) == punctual.StateDead
	})
	if f := b.get(out, b.ids(out)[0]).Failures; len(f) != 1 || !strings.HasPrefix(f[0].Error, "not forwarded to "+to+": ") {
		b.Errorf("its history is %+v", f)
	}
}

// forwardedBefore: an envelope may be dead although its follow-up was stored, because the answer to
// that got lost. When somebody requeues the envelope, the follow-up is not stored again, and does
// not count as refused because its ID is in use by itself.
func forwardedBefore(b *bench) {
	to, out := b.topic+"-to", storekit.OutTopic(b.topic)
	b.follow("a", punctual.NewMessage{Topic: to, ID: "next", IfExists: punctual.IfExistsFail, Delay: time.Hour})
	ds, err := b.store.Claim(b.Context(), punctual.Claim{Topics: []string{out}, Max: 1, Wait: patience})
	if err != nil || len(ds) != 1 {
		b.Fatal(ds, err)
	}
	m, err := storekit.Forwarded(&ds[0].Message)
	if err != nil {
		b.Fatal(err)
	}
	if rs, err := b.store.Push(b.Context(), []punctual.NewMessage{m}); err != nil || rs[0].Err != nil {
		b.Fatal(rs, err)
	}
	stored := b.get(to, "next")
	b.settle(punctual.Settlement{Topic: out, ID: ds[0].ID, Token: ds[0].Token, Verb: punctual.SettleDiscard, Error: "no answer"})
	if _, err := b.queue.Requeue(b.Context(), out, ds[0].ID, punctual.In(0)); err != nil {
		b.Fatal(err)
	}
	if i := b.get(out, ds[0].ID); i.Attempt != 0 || !i.Due.Equal(i.FirstDue) || len(i.Failures) != 1 {
		b.Fatalf("the envelope is %+v, so this test shows nothing of one whose failures alone tell of an earlier delivery", i)
	}
	b.duties()
	b.until(promise.P1, "the envelope is acked or dead", func() bool {
		s := b.state(out, ds[0].ID)
		return s == punctual.StateNone || s == punctual.StateDead
	})
	if i, err := b.in.Get(b.Context(), out, ds[0].ID); err == nil {
		b.Errorf("%s: the envelope of a follow-up that was stored is dead again: %+v", promise.P7, i.Failures)
	}
	if i := b.get(to, "next"); !i.Created.Equal(stored.Created) {
		b.Errorf("%s: the follow-up was created %v and is now %+v", promise.P7, stored.Created, i)
	}
}
