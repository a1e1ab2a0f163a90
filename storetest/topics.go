package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

// topicCases: do a topic's settings hold, and only in that topic?
func topicCases() []testCase {
	return []testCase{
		{"defaults", p13, topicDefaults},
		{"configure sets what is given", p13, topicConfigure},
		{"configure creates the topic", p13, topicCreated},
		{"push creates the topic", p13, topicPushCreates},
		{"refused push creates no topic", p13, topicNotCreated},
		{"stays when it is empty", p13, topicStays},
		{"malformed settings change nothing", p13, topicMalformed},
		{"partitions grow", p7, topicGrows},
		{"partitions never shrink", p13, topicNeverShrinks},
		{"settings are the topic's own", p13, topicApart},
		{"paused in", p13, topicPausedIn},
		{"paused out", p1, topicPausedOut},
		{"dead retention", p13, topicRetention},
		{"dead are kept by default", p1, topicNoRetention},
		{"delete", p13, topicDelete},
		{"deleted starts anew", p13, topicDeletedAnew},
	}
}

// wantSettings compares the settings in force.
func (s *subject) wantSettings(topic string, want punctual.Settings) {
	s.Helper()
	got, err := s.inspector().Settings(s.ctx, topic)
	if err != nil {
		s.fail("Settings of %s: unexpected error: %v", topic, err)
	}
	if !equalSettings(got, want) {
		s.fail("the settings of %s are %+v; want %+v", topic, got, want)
	}
}

func equalSettings(a, b punctual.Settings) bool {
	delays := slices.Equal(a.Backoff.Delays, b.Backoff.Delays)
	back := a.Backoff.Base == b.Backoff.Base && a.Backoff.Max == b.Backoff.Max && a.Backoff.Jitter == b.Backoff.Jitter
	return delays && back && a.Lease == b.Lease && a.MaxAttempts == b.MaxAttempts && a.DeadRetention == b.DeadRetention &&
		a.Remember == b.Remember && a.PausedIn == b.PausedIn && a.PausedOut == b.PausedOut
}

func topicDefaults(s *subject) {
	s.wantSettings("never-heard-of", punctual.DefaultSettings())
	s.push(order(x, 0))
	s.wantSettings(orders, punctual.DefaultSettings())
}

// patches sets one field each, then all.
func patches() []punctual.SettingsPatch {
	return []punctual.SettingsPatch{
		{Lease: ptr(time.Minute)},
		{MaxAttempts: ptr(3)},
		{Backoff: &punctual.Backoff{Delays: []time.Duration{0, time.Second, 15 * time.Hour}}},
		{Backoff: &punctual.Backoff{Base: time.Millisecond, Max: time.Minute, Jitter: 0.25}},
		{DeadRetention: ptr(24 * time.Hour)},
		{Remember: ptr(time.Hour)},
		{PausedIn: ptr(true)},
		{PausedOut: ptr(true)},
		{PausedIn: ptr(false)},
		{},
		{
			Lease: ptr(punctual.MaxLease), MaxAttempts: ptr(punctual.MaxAttemptsLimit), Backoff: &punctual.Backoff{}, DeadRetention: ptr(time.Duration(0)),
			Remember: ptr(time.Duration(0)), PausedIn: ptr(true), PausedOut: ptr(false),
		},
		{Lease: ptr(punctual.MinLease), MaxAttempts: ptr(1)},
	}
}

func topicConfigure(s *subject) {
	want := punctual.DefaultSettings()
	for i, p := range patches() {
		var err error
		if want, err = p.Apply(want); err != nil {
			s.fail("patch %d: %v", i, err)
		}
		if got := s.configure(orders, p); !equalSettings(got, want) {
			s.fail("Configure with patch %d returned %+v; want %+v", i, got, want)
		}
		s.wantSettings(orders, want)
	}
}

// wantTopics compares the names of all topics.
func (s *subject) wantTopics(want ...string) {
	s.Helper()
	all, err := s.inspector().Topics(s.ctx)
	if err != nil {
		s.fail("Topics: unexpected error: %v", err)
	}
	var got []string
	for _, t := range all {
		got = append(got, t.Topic)
	}
	if !slices.Equal(got, want) {
		s.fail("the topics are %q; want %q, sorted", got, want)
	}
}

func topicCreated(s *subject) {
	s.wantTopics()
	s.configure("b", punctual.SettingsPatch{})
	s.configure("a", punctual.SettingsPatch{Lease: ptr(time.Minute)})
	s.wantTopics("a", "b")
}

func topicPushCreates(s *subject) {
	for _, topic := range []string{"b", "B", "a/1", "a", "a.1", "a-1", "a:1", "a_1", "10", "9"} {
		s.push(punctual.NewMessage{Topic: topic})
	}
	s.wantTopics("10", "9", "B", "a", "a-1", "a.1", "a/1", "a:1", "a_1", "b")
}

func topicNotCreated(s *subject) {
	in := s.inspector()
	s.try(punctual.NewMessage{Topic: orders, Delay: -1})
	s.none(orders, "on an empty store")
	s.outcome(cancel(orders, x), punctual.NotFound, isUnknown)
	_, err := in.Settings(s.ctx, orders)
	s.wantErr(err, nil, "Settings of an unknown topic")
	s.wantTopics()
	_, err = in.Stats(s.ctx, orders)
	s.wantErr(err, punctual.ErrNotFound, "Stats of an unknown topic")
	_, err = in.DeleteTopic(s.ctx, orders)
	s.wantErr(err, punctual.ErrNotFound, "DeleteTopic of an unknown topic")
	s.wantTopics()
}

func topicStays(s *subject) {
	s.inspector()
	bringAcked(s)
	s.wantTopics(orders)
	s.wantStats(punctual.TopicStats{Topic: orders, Settings: punctual.DefaultSettings()})
}

func topicMalformed(s *subject) {
	in := s.inspector()
	want := s.configure(orders, punctual.SettingsPatch{Lease: ptr(time.Minute), MaxAttempts: ptr(5)})
	bad := map[string]punctual.SettingsPatch{
		"lease under 10ms":   {Lease: ptr(punctual.MinLease - 1)},
		"lease of 0":         {Lease: ptr(time.Duration(0))},
		"lease beyond 24h":   {Lease: ptr(punctual.MaxLease + 1)},
		"no attempts":        {MaxAttempts: ptr(0)},
		"negative attempts":  {MaxAttempts: ptr(-1)},
		"too many attempts":  {MaxAttempts: ptr(punctual.MaxAttemptsLimit + 1)},
		"negative retention": {DeadRetention: ptr(-time.Second)},
		"negative remember":  {Remember: ptr(-time.Second)},
		"negative delay":     {Backoff: &punctual.Backoff{Delays: []time.Duration{time.Second, -1}}},
		"endless delay":      {Backoff: &punctual.Backoff{Delays: []time.Duration{1<<63 - 1}}},
		"negative base":      {Backoff: &punctual.Backoff{Base: -1}},
		"max under base":     {Backoff: &punctual.Backoff{Base: time.Minute, Max: time.Second}},
		"jitter above 1":     {Backoff: &punctual.Backoff{Base: 1, Max: 1, Jitter: 1.1}},
		"negative jitter":    {Backoff: &punctual.Backoff{Base: 1, Max: 1, Jitter: -0.1}},
		"jitter NaN":         {Backoff: &punctual.Backoff{Base: 1, Max: 1, Jitter: math.NaN()}},
		"one bad of several": {MaxAttempts: ptr(7), PausedIn: ptr(true), Lease: ptr(time.Duration(-1))},
	}
	for name, p := range bad {
		_, err := in.Configure(s.ctx, orders, p)
		s.wantErr(err, punctual.ErrInvalid, "Configure with %s", name)
		s.wantSettings(orders, want)
		_, err = in.Configure(s.ctx, "other", p)
		s.wantErr(err, punctual.ErrInvalid, "Configure of a new topic with %s", name)
	}
	for _, topic := range []string{"", "a b", "ü"} {
		_, err := in.Configure(s.ctx, topic, punctual.SettingsPatch{})
		s.wantErr(err, punctual.ErrInvalid, "Configure of topic %q", topic)
		_, err = in.Settings(s.ctx, topic)
		s.wantErr(err, punctual.ErrInvalid, "Settings of topic %q", topic)
	}
	s.wantTopics(orders)
}

func topicApart(s *subject) {
	s.configure(orders, punctual.SettingsPatch{Lease: ptr(time.Hour), MaxAttempts: ptr(1), PausedIn: ptr(true)})
	s.wantSettings(mails, punctual.DefaultSettings())
	s.push(punctual.NewMessage{Topic: mails, ID: x})
	if d := s.one(mails); !d.LeaseUntil.Equal(noon.Add(30 * time.Second)) {
		s.fail("the lease of another topic lasts %v; want 30s", d.LeaseUntil.Sub(noon))
	}
}

func topicPausedIn(s *subject) {
	s.push(order("before", 0))
	s.configure(orders, punctual.SettingsPatch{PausedIn: ptr(true)})
	rs := s.pushAll(order(x, 0), punctual.NewMessage{Topic: mails, ID: "m"}, order("y", 0))
	for i, want := range []error{punctual.ErrPaused, nil, punctual.ErrPaused} {
		s.wantErr(rs[i].Err, want, "item %d of a batch for a paused, a running and a paused topic", i)
	}
	d := s.one(orders)
	if d.ID != "before" {
		s.fail("%s was delivered from a topic that took no pushes", d.ID)
	}
	s.done(d, punctual.SettleRetry, 0)
	s.ack(s.one(orders))
	s.ack(s.one(mails))
	s.configure(orders, punctual.SettingsPatch{PausedIn: ptr(false)})
	s.push(order(x, 0))
	s.ack(s.one(orders))
}

func topicPausedOut(s *subject) {
	s.push(order("held", 0))
	held := s.one(orders)
	s.configure(orders, punctual.SettingsPatch{PausedOut: ptr(true)})
	s.push(order(x, time.Second))
	s.push(punctual.NewMessage{Topic: mails, ID: "m"})
	s.advance(time.Minute)
	s.none(orders, "while the topic is paused out")
	ds := s.claim(punctual.Claim{Topics: []string{orders, mails}, Max: 10})
	if len(ds) != 1 || ds[0].ID != "m" {
		s.fail("a claim from a paused and a running topic returned %v; want m", ids(ds))
	}
	s.ack(held)
	s.outcome(reschedule(orders, x, time.Second), punctual.Rescheduled, isReady)
	s.configure(orders, punctual.SettingsPatch{PausedOut: ptr(false)})
	s.none(orders, "before the new due time")
	s.advance(time.Second)
	s.ack(s.one(orders))
}

func topicRetention(s *subject) {
	s.configure(orders, punctual.SettingsPatch{DeadRetention: ptr(time.Hour)})
	bringDead(s)
	s.advance(time.Hour - time.Millisecond)
	s.wantDead(orders, x, punctual.ReasonDiscarded)
	s.advance(2 * time.Millisecond)
	s.wantState(orders, x, punctual.StateNone)
	s.outcome(requeue(orders, x, 0), punctual.NotFound, "dead for longer than the retention")
	s.wantList(punctual.ListQuery{Topic: orders, State: punctual.StateDead})
	s.wantStats(punctual.TopicStats{Topic: orders, Settings: s.settings(orders)})
	s.push(order(x, 0))
	s.ack(s.one(orders))
}

// settings needs an Inspector.
func (s *subject) settings(topic string) punctual.Settings {
	s.Helper()
	got, err := s.inspector().Settings(s.ctx, topic)
	if err != nil {
		s.fail("Settings of %s: unexpected error: %v", topic, err)
	}
	return got
}

func topicNoRetention(s *subject) {
	bringDead(s)
	s.advance(50 * 365 * 24 * time.Hour)
	s.none(orders, "50 years later")
	s.outcome(requeue(orders, x, 0), punctual.Requeued, "dead for 50 years")
	s.ack(s.one(orders))
}

func topicDelete(s *subject) {
	in := s.inspector()
	for i := range 3 {
		s.push(order(fmt.Sprint("scheduled", i), time.Hour))
		s.push(order(fmt.Sprint("ready", i), 0))
	}
	s.done(s.take(orders, 1)[0], punctual.SettleDiscard, 0)
	held := s.take(orders, 1)[0]
	s.push(punctual.NewMessage{Topic: mails, ID: "m"})
	n, err := in.DeleteTopic(s.ctx, orders)
	if err != nil || n != 6 {
		s.fail("DeleteTopic of 3 scheduled, 1 ready, 1 leased and 1 dead message: %d, %v; want 6", n, err)
	}
	s.wantErr(s.settle(held, punctual.SettleAck, 0), punctual.ErrLeaseLost, "ack after the topic was deleted")
	s.wantTopics(mails)
	s.advance(24 * time.Hour)
	s.none(orders, "a day after the topic was deleted")
	s.ack(s.one(mails))
	_, err = in.DeleteTopic(s.ctx, orders)
	s.wantErr(err, punctual.ErrNotFound, "DeleteTopic twice")
}

func topicDeletedAnew(s *subject) {
	in := s.inspector()
	s.configure(orders, punctual.SettingsPatch{Lease: ptr(time.Hour), Remember: ptr(24 * time.Hour), PausedOut: ptr(true)})
	s.push(order(x, 0))
	s.outcome(cancel(orders, x), punctual.Cancelled, isReady)
	if n, err := in.DeleteTopic(s.ctx, orders); err != nil || n != 0 {
		s.fail("DeleteTopic of an empty topic: %d, %v; want 0", n, err)
	}
	s.wantSettings(orders, punctual.DefaultSettings())
	s.wantPush(s.try(order(x, 0)), punctual.PushStored, "remembered by the topic before it was deleted")
	s.ack(s.one(orders))
}

// divide asks for more partitions, and skips the rest of the case on a store that cannot divide
// topics, after having seen that the refusal changed nothing.
func (s *subject) divide(topic string, n int) {
	s.Helper()
	before := s.settings(topic)
	got, err := s.inspector().Configure(s.ctx, topic, punctual.SettingsPatch{Partitions: ptr(n), Lease: ptr(time.Hour)})
	if errors.Is(err, punctual.ErrUnsupported) {
		s.wantSettings(topic, before)
		if after := s.settings(topic); after.Partitions != 1 {
			s.fail("a topic in a store that cannot divide it has %d partitions; want 1", after.Partitions)
		}
		s.Skipf("skipped: the store keeps each topic in one partition")
	}
	if err != nil || got.Partitions != n || got.Lease != time.Hour {
		s.fail("Configure with %d partitions and a lease of 1h returned %+v, %v", n, got, err)
	}
	if now := s.settings(topic); now.Partitions != n || now.Lease != time.Hour {
		s.fail("after a change to %d partitions and a lease of 1h the settings are %+v", n, now)
	}
}

// topicGrows: messages from before the topic grew are found in every way, and their IDs are
// taken.
func topicGrows(s *subject) {
	const n = 24
	pushed := func(r punctual.PushResult, want punctual.PushStatus, when string) {
		s.Helper()
		if r.Err != nil || r.Status != want {
			s.fail("push of %s, %s: got %q, error %v; want %q", r.ID, when, r.Status, r.Err, want)
		}
	}
	for i := range n {
		s.push(order(fmt.Sprint(i), time.Duration(i)*time.Second))
	}
	s.advance(4 * time.Second)
	held := s.take(orders, 3)
	s.done(held[2], punctual.SettleDiscard, 0)
	s.divide(orders, 5)
	s.divide(orders, 16)
	again := order(fmt.Sprint(n-1), 0)
	pushed(s.try(again), punctual.PushDuplicate, "pushed before the topic grew")
	again.OnDuplicate = punctual.FailDuplicate
	s.wantErr(s.try(again).Err, punctual.ErrDuplicate, "push that fails on an ID pushed before the topic grew")
	again.OnDuplicate = punctual.ReplaceFirst
	pushed(s.try(again), punctual.PushReplaced, "pushed before the topic grew")
	pushed(s.try(order(held[2].ID, 0)), punctual.PushDuplicate, "dead since before the topic grew")
	s.ack(held[0])
	s.outcome(cancel(orders, held[1].ID), punctual.TooLate, "leased since before the topic grew")
	s.outcome(requeue(orders, held[2].ID, 0), punctual.Requeued, "dead since before the topic grew")
	s.outcome(cancel(orders, fmt.Sprint(n-2)), punctual.Cancelled, "pushed before the topic grew")
	s.outcome(reschedule(orders, fmt.Sprint(n-3), 0), punctual.Rescheduled, "pushed before the topic grew")
	for i := range n {
		s.push(order(fmt.Sprint("new ", i), 0))
	}
	s.advance(20 * time.Minute)
	// Of the old ones one was acked, one is leased and one was cancelled.
	if ds := s.take(orders, 3*n); len(ds) != 2*n-3 {
		s.Fatalf("%s: after the topic grew %d messages were delivered, %v; want %d", p1, len(ds), ids(ds), 2*n-3)
	}
	pushed(s.try(order(held[0].ID, 0)), punctual.PushStored, "acked after the topic grew")
	if d := s.one(orders); d.ID != held[0].ID || d.Token <= held[0].Token {
		s.Fatalf("%s: %s was delivered with token %d after the topic grew; want %s with one above %d", p4, d.ID, d.Token, held[0].ID, held[0].Token)
	}
}

func topicNeverShrinks(s *subject) {
	for _, n := range []int{0, -1, punctual.MaxPartitions + 1} {
		_, err := s.inspector().Configure(s.ctx, mails, punctual.SettingsPatch{Partitions: ptr(n)})
		s.wantErr(err, punctual.ErrInvalid, "Configure with %d partitions", n)
	}
	s.divide(orders, 4)
	for _, n := range []int{3, 1, 0} {
		_, err := s.inspector().Configure(s.ctx, orders, punctual.SettingsPatch{Partitions: ptr(n)})
		s.wantErr(err, punctual.ErrInvalid, "Configure of a topic of 4 partitions with %d", n)
	}
	if now := s.settings(orders); now.Partitions != 4 {
		s.fail("after refused changes the topic has %d partitions; want 4", now.Partitions)
	}
}
