package transitions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/storekit"
)

// scene is a topic of one store with messages that go through a situation together, one for each
// operation. It writes down what the store answers, for each message by itself.
type scene struct {
	store     punctual.Store
	inspector punctual.Inspector
	keeper    punctual.FinishedKeeper // nil: the store keeps no finished records
	keeps     bool                    // the topic keeps finished records
	keyed     bool                    // the key of each message is its ID
	clock     *storekit.ManualClock
	begin     time.Time
	topic     string
	messages  []*message
	shared    strings.Builder // what is answered for the topic as a whole
}

// message is one message of a scene, or an ID without a message.
type message struct {
	id   string
	text strings.Builder
	// token is that of the message's newest lease, and stale that of the lease before. Each is 0
	// until there was such a lease.
	token, stale int64
}

func (m *message) note(format string, args ...any) { fmt.Fprintf(&m.text, format+"\n", args...) }

// tokenOf returns the token of the newest lease or, for "stale", that of the lease before. Where
// there was no such lease it returns 1, which is not the current token of the message.
func (m *message) tokenOf(which string) int64 {
	if which == "stale" {
		return max(m.stale, 1)
	}
	return max(m.token, 1)
}

// only returns the scene with one of its messages alone.
func (s *scene) only(m *message) *scene {
	return &scene{
		store: s.store, inspector: s.inspector, keeper: s.keeper, clock: s.clock, begin: s.begin, topic: s.topic, keyed: s.keyed,
		messages: []*message{m},
	}
}

func (s *scene) all(format string, args ...any) {
	for _, m := range s.messages {
		m.note(format, args...)
	}
}

// answer returns the code of an error and whether the error is definite. The text of the error is
// left out, because it differs between stores.
func answer(err error) string {
	if err == nil {
		return "done"
	}
	return fmt.Sprintf("%s, definite %t", storekit.ErrorCode(err), punctual.Definite(err))
}

// begun pushes the messages, due after delay.
func (s *scene) begun(delay time.Duration) {
	s.push(punctual.NewMessage{Delay: delay, Body: []byte("first"), Headers: map[string]string{"k": "v"}})
}

// leased pushes the messages and leases them.
func (s *scene) leased() {
	s.begun(0)
	s.claim()
}

func (s *scene) push(n punctual.NewMessage) {
	s.pushAs(n, func(*message, *punctual.NewMessage) {})
}

// pushAs pushes n with the ID of each message; change sets what else it has.
func (s *scene) pushAs(n punctual.NewMessage, change func(m *message, n *punctual.NewMessage)) {
	var ms []punctual.NewMessage
	for _, m := range s.messages {
		n.Topic, n.ID, n.Key = s.topic, m.id, s.keyOf(m.id)
		change(m, &n)
		ms = append(ms, n)
	}
	rs, err := s.store.Push(context.Background(), ms)
	if err != nil || len(rs) != len(ms) {
		s.all("push: %d results of the call, %s", len(rs), answer(err))
		return
	}
	for i, m := range s.messages {
		r := rs[i]
		m.note("push: %q, existing %q, due %s, %s", r.Status, r.Existing, s.relative(r.Due), answer(r.Err))
	}
}

// keyOf returns the key of the messages of an ID, or "" in a topic without keys.
func (s *scene) keyOf(id string) string {
	if s.keyed {
		return id
	}
	return ""
}

// blocked leases a message of the key of each message.
func (s *scene) blocked() {
	s.pushAs(punctual.NewMessage{MaxAttempts: 1}, func(m *message, n *punctual.NewMessage) { n.ID = m.id + "~blocker" })
	s.claim()
}

func (s *scene) claim() {
	ds, err := s.store.Claim(context.Background(), punctual.Claim{Topics: []string{s.topic}, Max: 1000})
	if err != nil {
		s.all("claim: %s", answer(err))
		return
	}
	claimed := make(map[string]punctual.Delivery, len(ds))
	for _, d := range ds {
		claimed[d.ID] = d
	}
	if len(claimed) != len(ds) {
		s.all("claim: %d deliveries of %d messages", len(ds), len(claimed))
	}
	for _, m := range s.messages {
		d, ok := claimed[m.id]
		if !ok {
			m.note("claim: nothing")
			continue
		}
		grown := "above the tokens before"
		if d.Token <= m.token {
			grown = "NOT above the tokens before"
		}
		m.stale, m.token = m.token, d.Token
		m.note("claim: %s, turn %s, delivered %s, lease until %s, token %s", s.facts(&d.Message), s.relative(d.Turn), s.relative(d.Delivered), s.relative(d.LeaseUntil), grown)
		s.failures(m, d.Failures)
	}
}

func (s *scene) settle(v punctual.Verb, delay time.Duration, token string) {
	s.settleAs(v, token, func(x *punctual.Settlement) { x.Delay = delay })
}

// settleAs settles by a verb; change sets what else the settlement of a message has.
func (s *scene) settleAs(v punctual.Verb, token string, change func(x *punctual.Settlement)) {
	text := ""
	if v == punctual.SettleRetry || v == punctual.SettleDiscard {
		text = "no answer"
	}
	var ss []punctual.Settlement
	for _, m := range s.messages {
		x := punctual.Settlement{Topic: s.topic, ID: m.id, Token: m.tokenOf(token), Verb: v, Error: text}
		change(&x)
		ss = append(ss, x)
	}
	errs, err := s.store.Settle(context.Background(), ss)
	if err != nil || len(errs) != len(ss) {
		s.all("%s: %d results of the call, %s", v, len(errs), answer(err))
		return
	}
	for i, m := range s.messages {
		m.note("%s: %s", v, answer(errs[i]))
	}
}

// follow settles by a verb with two follow-ups: one for a companion of the topic, with an ID that
// is free there, and the one that then returns.
func (s *scene) follow(v punctual.Verb, token string, then func(x *punctual.Settlement) punctual.NewMessage) {
	s.settleAs(v, token, func(x *punctual.Settlement) {
		if v == punctual.SettleSnooze {
			x.Delay = 90 * time.Minute
		}
		free := punctual.NewMessage{Topic: s.topic + companion, ID: x.ID + followUp, Body: []byte("followed"), Delay: 30 * time.Minute}
		itself := then(x)
		if itself.Topic == s.topic {
			itself.Key = s.keyOf(x.ID)
		}
		x.Then = []punctual.NewMessage{free, itself}
	})
}

// The companion of the topic to which follow-ups go, and what is added to the ID of a message for
// its follow-up there.
const (
	companion = "@then"
	followUp  = "~then"
)

func (s *scene) amend(c punctual.Change, delay time.Duration) {
	s.amendIf(c, delay, func(*message) time.Time { return time.Time{} })
}

// dueBut returns the due time of a message plus by, or the beginning of the scene where there is no
// message.
func (s *scene) dueBut(m *message, by time.Duration) time.Time {
	info, err := s.inspector.Get(context.Background(), s.topic, m.id)
	if err != nil {
		return s.begin
	}
	return info.Due.Add(by)
}

// amendIf amends the messages. ifDue returns the IfDue for each of them.
func (s *scene) amendIf(c punctual.Change, delay time.Duration, ifDue func(m *message) time.Time) {
	var as []punctual.Amendment
	for _, m := range s.messages {
		as = append(as, punctual.Amendment{Change: c, Topic: s.topic, ID: m.id, Delay: delay, IfDue: ifDue(m)})
	}
	rs, err := s.store.Amend(context.Background(), as)
	if err != nil || len(rs) != len(as) {
		s.all("%s: %d results of the call, %s", c, len(rs), answer(err))
		return
	}
	for i, m := range s.messages {
		m.note("%s: %s, due %s", c, answer(rs[i].Err), s.relative(rs[i].Due))
	}
}

func (s *scene) configure(p punctual.SettingsPatch) {
	if _, err := s.inspector.Configure(context.Background(), s.topic, p); err != nil {
		s.all("configure: %s", answer(err))
	}
}

func (s *scene) pause() {
	s.configure(punctual.SettingsPatch{PushPaused: ptr(true), DeliveryPaused: ptr(true)})
}

func (s *scene) advance(d time.Duration) { s.clock.Advance(d) }

func (s *scene) state(m *message) punctual.State {
	info, err := s.inspector.Get(context.Background(), s.topic, m.id)
	if err != nil {
		return punctual.StateNone
	}
	return info.State
}

// observe writes down what Get, Finished, List and Stats show of the messages, of their follow-ups
// and events, and of the topic.
func (s *scene) observe() {
	for _, m := range s.messages {
		info, err := s.inspector.Get(context.Background(), s.topic, m.id)
		if err != nil {
			m.note("get: %s", answer(err))
		} else {
			s.shown(m, info)
		}
		s.finished(m)
	}
	s.list(s.topic)
	s.whole()
}

// observeLists is observe without a Get for each message, which would be most of the calls of a
// situation. It takes the messages from the lists of their topic, and leaves finished records out
// where the topic keeps none.
func (s *scene) observeLists() {
	listed := s.list(s.topic)
	for _, m := range s.messages {
		if info, ok := listed[m.id]; ok {
			s.shown(m, info)
		}
		if s.keeps {
			s.finished(m)
		}
	}
	s.whole()
}

// shown writes down what the store shows of a message.
func (s *scene) shown(m *message, info punctual.Info) {
	m.note("shown: %s, waiting %t, %s, lease until %s, cancel requested %t, died %s %q", info.State, info.Waiting, s.facts(&info.Message),
		s.relative(info.LeaseUntil), info.CancelRequested, s.relative(info.Died), info.Reason)
	s.failures(m, info.Failures)
}

// whole writes down the follow-ups in the companion, what the topic tells of, and its counts.
func (s *scene) whole() {
	followed := s.list(s.topic + companion)
	for _, m := range s.messages {
		if info, ok := followed[m.id+followUp]; ok {
			m.note("follow-up: %s, %s", info.State, s.facts(&info.Message))
		}
	}
	s.events()
	stats, err := s.inspector.Stats(context.Background(), s.topic)
	fmt.Fprintf(&s.shared, "stats: scheduled %d, ready %d, of them waiting %d, leased %d, dead %d, next due %s, %s\n",
		stats.Scheduled, stats.Ready, stats.Waiting, stats.Leased, stats.Dead, s.relative(stats.NextDue), answer(err))
}

// list returns the messages of a topic by ID, and writes down how many are in each state.
func (s *scene) list(topic string) map[string]punctual.Info {
	listed := make(map[string]punctual.Info)
	for _, state := range []punctual.State{punctual.StateScheduled, punctual.StateReady, punctual.StateLeased, punctual.StateDead} {
		page, err := s.inspector.List(context.Background(), punctual.ListQuery{Topic: topic, State: state, Limit: 10_000})
		fmt.Fprintf(&s.shared, "list of %s in %s: %d, more %t, %s\n", state, topic, len(page.Messages), page.Next != "", answer(err))
		for _, i := range page.Messages {
			listed[i.ID] = i
		}
	}
	return listed
}

// events writes down what the topic tells of the messages, for each of them in the order of the
// events.
func (s *scene) events() {
	page, err := s.inspector.List(context.Background(), punctual.ListQuery{Topic: storekit.EventTopic(s.topic), State: punctual.StateReady, Limit: 10_000})
	if err != nil || page.Next != "" {
		s.all("events: %s, more %t", answer(err), page.Next != "")
	}
	slices.SortFunc(page.Messages, func(a, b punctual.Info) int { return strings.Compare(a.ID, b.ID) })
	for _, i := range page.Messages {
		e, err := event.Parse(i.Body)
		if err != nil {
			s.all("event %q: %v", i.Body, err)
		}
		for _, m := range s.messages {
			if m.id == e.ID {
				m.note("event: %s %q, attempt %d, at %s, created %s, first due %s, due %s, delivered %s, kept until %s", e.Event, e.Reason, e.Attempt, s.relative(e.At),
					s.relative(e.Created), s.relative(e.FirstDue), s.relative(e.Due), s.relative(e.Delivered), s.relative(i.Expires))
			}
		}
	}
}

func (s *scene) finished(m *message) {
	if s.keeper == nil {
		return
	}
	f, err := s.keeper.Finished(context.Background(), s.topic, m.id)
	switch {
	case errors.Is(err, punctual.ErrNotFound):
	case err != nil:
		m.note("finished: %s", answer(err))
	default:
		m.note("finished: %s at %s, created %s, first due %s, due %s, attempt %d, delivered %s, kept until %s", f.Outcome, s.relative(f.At),
			s.relative(f.Created), s.relative(f.FirstDue), s.relative(f.Due), f.Attempt, s.relative(f.Delivered), s.relative(f.KeptUntil))
		s.failures(m, f.Failures)
	}
}

// future writes down what becomes of the messages later, because a rule may have changed what
// nothing shows yet: whether an ID is remembered, how many attempts are left, whether an old token
// still counts.
func (s *scene) future() {
	s.push(punctual.NewMessage{IfExists: punctual.IfExistsFail, Delay: 20 * time.Minute})
	s.settle(punctual.SettleExtend, time.Second, "current")
	s.configure(punctual.SettingsPatch{PushPaused: ptr(false), DeliveryPaused: ptr(false)})
	s.advance(2 * time.Hour)
	s.claim()
	s.settle(punctual.SettleRetry, 0, "current")
	s.claim()
	s.observeLists()
	s.settle(punctual.SettleAck, 0, "current")
	s.push(punctual.NewMessage{})
	s.advance(100 * time.Minute)
	s.push(punctual.NewMessage{})
}

// facts returns the fields of a message as a text.
func (s *scene) facts(m *punctual.Message) string {
	return fmt.Sprintf("body %q headers %v, due %s, first due %s, attempt %d of %d, created %s, expires %s, drop %t, attributes %+v", m.Body, m.Headers,
		s.relative(m.Due), s.relative(m.FirstDue), m.Attempt, m.MaxAttempts, s.relative(m.Created), s.relative(m.Expires), m.DropExpired, storekit.AttributesOf(m))
}

func (s *scene) failures(m *message, fs []punctual.Failure) {
	for _, f := range fs {
		m.note("    attempt %d failed at %s: %s", f.Attempt, s.relative(f.At), f.Error)
	}
}

// relative returns the distance of a time from the beginning of the scene, or "-" for the zero
// Time.
func (s *scene) relative(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return fmt.Sprint(t.Sub(s.begin))
}
