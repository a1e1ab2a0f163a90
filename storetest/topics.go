package storetest

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/compare"
)

// topicCases: do a topic's settings hold, and only in that topic?
func topicCases() []testCase {
	return []testCase{
		{"defaults", p13, topicDefaults},
		{"configure sets what is given", p13, topicConfigure},
		{"every setting is kept", p13, topicEverySetting},
		{"configure creates the topic", p13, topicCreated},
		{"configure only if", p13, topicConfigureIf},
		{"configured by several at once", p13, topicConfiguredByMany},
		{"push creates the topic", p13, topicPushCreates},
		{"refused push creates no topic", p13, topicNotCreated},
		{"stays when it is empty", p13, topicStays},
		{"malformed settings change nothing", p13, topicMalformed},
		{"partitions", p7, topicDivided},
		{"partitions are fixed", p13, topicPartitionsFixed},
		{"settings are the topic's own", p13, topicApart},
		{"push paused", p13, topicPushPaused},
		{"push paused, malformed and taken", p13, topicPausedOrder},
		{"delivery paused", p1, topicDeliveryPaused},
		{"settings at the moment they matter", p13, topicSettingsUsed},
		{"dead retention", p13, topicRetention},
		{"dead are kept by default", p1, topicNoRetention},
		{"delete", p13, topicDelete},
		{"deleted starts anew", p13, topicDeletedAnew},
	}
}

// wantSettings compares the settings of a topic with the wanted ones.
func (s *harness) wantSettings(topic string, want punctual.Settings) {
	s.Helper()
	got, err := s.inspector().Settings(s.ctx, topic)
	if err != nil {
		s.fail("Settings of %s: unexpected error: %v", topic, err)
	}
	if !compare.EqualSettings(got, want) {
		s.fail("the settings of %s are %+v; want %+v", topic, got, want)
	}
}

// defaults returns the settings of a topic that was never configured. Their Partitions come from
// the store, which may be configured to divide new topics.
func (s *harness) defaults() punctual.Settings {
	s.Helper()
	d := punctual.DefaultSettings()
	if s.hasInspector() {
		d.Partitions = s.settings("never-heard-of").Partitions
	}
	return d
}

// everySetting returns a patch that sets all settings. It goes through the fields by reflection, so
// that a setting which is added later is among them. It leaves out those that the store cannot
// change: Partitions in any case, FinishedRetention in a store that keeps no finished records, Emit
// and EmitKeep in one that tells of no events, the bounds of leases in one that has none, and what
// is said of keys in one without them.
func everySetting(s *harness) punctual.SettingsPatch {
	s.Helper()
	var p punctual.SettingsPatch
	_, err := s.keeper()
	can := map[string]bool{"FinishedRetention": err == nil, "Emit": s.abilities().Emit, "EmitKeep": s.abilities().Emit, "Partitions": false, "MaxLeases": s.abilities().BoundsLeases, "MaxRate": s.abilities().BoundsLeases, "Keyed": s.abilities().Keys, "MaxKeyLeases": s.abilities().Keys, "MaxKeyRate": s.abilities().Keys, "InOrder": s.abilities().Keys}
	v := reflect.ValueOf(&p).Elem()
	settings := v.NumField() - 1 // but not If
	for i := range settings {
		name, to := v.Type().Field(i).Name, reflect.New(v.Type().Field(i).Type.Elem())
		switch x := to.Interface().(type) {
		case *time.Duration:
			*x = time.Duration(i+1) * 1001 * time.Millisecond
		case *int:
			*x = i + 3
		case *bool:
			*x = true
		case *[]string:
			*x = []string{"billing", "a.b_c-9"}
		case *punctual.Events:
			*x = punctual.EventDead | punctual.EventPushed
		case *limits.Rate:
			*x = limits.Rate{N: 7, Per: 90 * time.Second, Burst: 5}
		case *punctual.Backoff:
			*x = punctual.Backoff{Base: 1500 * time.Microsecond, Max: 90 * time.Minute, Jitter: 0.375}
		default:
			s.fail("the suite does not know how to change the setting %s, which is a %T", name, x)
		}
		if able, needed := can[name]; able || !needed {
			v.Field(i).Set(to)
		}
	}
	if set := reflect.TypeFor[punctual.Settings](); set.NumField() != settings {
		s.fail("there are %d settings, and a patch changes %d", set.NumField(), settings)
	}
	return p
}

func topicEverySetting(s *harness) {
	for _, backoff := range []*punctual.Backoff{nil, {Delays: []time.Duration{0, 1500 * time.Microsecond, 15 * time.Hour}}} {
		p := everySetting(s)
		if backoff != nil {
			p.Backoff = backoff
		}
		want, err := storekit.ApplySettings(s.defaults(), p, storekit.AllAbilities())
		if err != nil {
			s.fail("%v", err)
		}
		if got := s.configure(orders, p); !compare.EqualSettings(got, want) {
			s.fail("Configure of every setting returned %+v; want %+v", got, want)
		}
		s.wantSettings(orders, want)
		if s.opener.reopen != nil {
			s.reopen()
			s.wantSettings(orders, want)
		}
	}
}

func topicDefaults(s *harness) {
	s.wantSettings("never-heard-of", s.defaults())
	s.push(order(x, 0))
	s.wantSettings(orders, s.defaults())
}

// patches returns patches of one setting each, then an empty one, and two of several settings.
func patches() []punctual.SettingsPatch {
	return []punctual.SettingsPatch{
		{Lease: ptr(time.Minute)},
		{MaxAttempts: ptr(3)},
		{Backoff: &punctual.Backoff{Delays: []time.Duration{0, time.Second, 15 * time.Hour}}},
		{Backoff: &punctual.Backoff{Base: time.Millisecond, Max: time.Minute, Jitter: 0.25}},
		{DeadRetention: ptr(24 * time.Hour)},
		{DedupeWindow: ptr(time.Hour)},
		{Groups: ptr([]string{"billing", "mail"})},
		{Groups: ptr([]string(nil))},
		{PushPaused: ptr(true)},
		{DeliveryPaused: ptr(true)},
		{PushPaused: ptr(false)},
		{},
		{
			Lease: ptr(limits.MaxLease), MaxAttempts: ptr(limits.MaxAttemptsLimit), Backoff: &punctual.Backoff{}, DeadRetention: ptr(time.Duration(0)),
			DedupeWindow: ptr(time.Duration(0)), PushPaused: ptr(true), DeliveryPaused: ptr(false),
		},
		{Lease: ptr(limits.MinLease), MaxAttempts: ptr(1)},
	}
}

func topicConfigure(s *harness) {
	want := s.defaults()
	for i, p := range patches() {
		var err error
		if want, err = storekit.ApplySettings(want, p, storekit.AllAbilities()); err != nil {
			s.fail("patch %d: %v", i, err)
		}
		if got := s.configure(orders, p); !compare.EqualSettings(got, want) {
			s.fail("Configure with patch %d returned %+v; want %+v", i, got, want)
		}
		s.wantSettings(orders, want)
	}
}

// wantTopics compares the names of all topics.
func (s *harness) wantTopics(want ...string) {
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

// topicConfigureIf: with If a change is made only while the settings have the values that it names,
// which are the defaults for a topic that does not exist.
func topicConfigureIf(s *harness) {
	in := s.inspector()
	refused := func(p punctual.SettingsPatch, what string) {
		s.Helper()
		_, err := in.Configure(s.ctx, orders, p)
		s.wantErr(err, punctual.ErrChanged, "Configure %s", what)
		if err != nil && !punctual.Definite(err) {
			s.fail("%v is not definite", err)
		}
	}
	want := s.defaults()
	refused(punctual.SettingsPatch{MaxAttempts: ptr(3), Groups: ptr([]string{"billing"}), If: &punctual.SettingsPatch{MaxAttempts: ptr(want.MaxAttempts + 1)}}, "of a topic that does not exist")
	s.wantTopics()
	s.configure(orders, punctual.SettingsPatch{MaxAttempts: ptr(3), If: &punctual.SettingsPatch{MaxAttempts: &want.MaxAttempts, Groups: ptr([]string{})}})
	want.MaxAttempts = 3
	s.wantSettings(orders, want)
	for _, only := range []punctual.SettingsPatch{
		{MaxAttempts: ptr(4)},
		{MaxAttempts: ptr(3), Lease: ptr(want.Lease + time.Millisecond)},
		{Groups: ptr([]string{"mail"})},
		{Backoff: ptr(punctual.Backoff{Delays: []time.Duration{time.Second}})},
		{PushPaused: ptr(true)},
	} {
		refused(punctual.SettingsPatch{MaxAttempts: ptr(5), Groups: ptr([]string{"billing"}), If: &only}, "with settings that it has not")
		s.wantSettings(orders, want)
	}
	_, err := in.Configure(s.ctx, orders, punctual.SettingsPatch{MaxAttempts: ptr(0), If: &punctual.SettingsPatch{MaxAttempts: ptr(4)}})
	s.wantErr(err, punctual.ErrInvalid, "Configure with a malformed setting and an If that does not hold")
	s.configure(orders, punctual.SettingsPatch{
		Groups: ptr([]string{"billing"}),
		If:     &punctual.SettingsPatch{MaxAttempts: ptr(3), Backoff: &want.Backoff, Lease: &want.Lease, Groups: &want.Groups, Emit: &want.Emit},
	})
	want.Groups = []string{"billing"}
	s.wantSettings(orders, want)
}

// topicConfiguredByMany: programs that each add a group at the same time undo no change of another
// one.
func topicConfiguredByMany(s *harness) {
	s.inspector()
	const programs = 12
	var want []string
	var all, read sync.WaitGroup
	read.Add(programs)
	var calls atomic.Int64
	for n := range programs {
		group := fmt.Sprintf("group-%02d", n)
		want = append(want, group)
		all.Go(func() {
			var first sync.Once
			_, err := punctual.NewQueue(s.store, nil).Configure(s.ctx, orders, func(set *punctual.Settings) {
				calls.Add(1)
				first.Do(func() { read.Done(); read.Wait() }) // all have read the settings before the first one changes them
				set.Groups = append(set.Groups, group)
			})
			if err != nil {
				s.Errorf("Configure of program %d: %v", n, err)
			}
		})
	}
	all.Wait()
	got, err := s.inspector().Settings(s.ctx, orders)
	if slices.Sort(got.Groups); err != nil || !slices.Equal(got.Groups, want) {
		s.fail("%d programs have each added a group, and the topic has the groups %q, %v", programs, got.Groups, err)
	}
	if calls.Load() <= programs {
		s.fail("%d programs that have read the same settings have changed them without reading them again", programs)
	}
}

func topicCreated(s *harness) {
	s.wantTopics()
	s.configure("b", punctual.SettingsPatch{})
	s.configure("a", punctual.SettingsPatch{Lease: ptr(time.Minute)})
	s.wantTopics("a", "b")
}

func topicPushCreates(s *harness) {
	for _, topic := range []string{"b", "B", "a/1", "a", "a.1", "a-1", "a:1", "a_1", "10", "9"} {
		s.push(punctual.NewMessage{Topic: topic})
	}
	s.wantTopics("10", "9", "B", "a", "a-1", "a.1", "a/1", "a:1", "a_1", "b")
}

func topicNotCreated(s *harness) {
	in := s.inspector()
	s.try(punctual.NewMessage{Topic: orders, Delay: -1})
	s.none(orders, "on an empty store")
	s.outcome(cancel(orders, x), punctual.ErrNotFound, isUnknown)
	_, err := in.Settings(s.ctx, orders)
	s.wantErr(err, nil, "Settings of an unknown topic")
	s.wantTopics()
	_, err = in.Stats(s.ctx, orders)
	s.wantErr(err, punctual.ErrNotFound, "Stats of an unknown topic")
	_, err = in.DeleteTopic(s.ctx, orders)
	s.wantErr(err, punctual.ErrNotFound, "DeleteTopic of an unknown topic")
	s.wantTopics()
}

func topicStays(s *harness) {
	s.inspector()
	bringAcked(s)
	s.wantTopics(orders)
	s.wantStats(punctual.TopicStats{Topic: orders, Settings: s.defaults()})
}

func topicMalformed(s *harness) {
	in := s.inspector()
	want := s.configure(orders, punctual.SettingsPatch{Lease: ptr(time.Minute), MaxAttempts: ptr(5)})
	bad := map[string]punctual.SettingsPatch{
		"lease under 10ms":    {Lease: ptr(limits.MinLease - 1)},
		"lease of 0":          {Lease: ptr(time.Duration(0))},
		"lease beyond 24h":    {Lease: ptr(limits.MaxLease + 1)},
		"no attempts":         {MaxAttempts: ptr(0)},
		"negative attempts":   {MaxAttempts: ptr(-1)},
		"too many attempts":   {MaxAttempts: ptr(limits.MaxAttemptsLimit + 1)},
		"negative retention":  {DeadRetention: ptr(-time.Second)},
		"negative window":     {DedupeWindow: ptr(-time.Second)},
		"negative delay":      {Backoff: &punctual.Backoff{Delays: []time.Duration{time.Second, -1}}},
		"endless delay":       {Backoff: &punctual.Backoff{Delays: []time.Duration{1<<63 - 1}}},
		"negative base":       {Backoff: &punctual.Backoff{Base: -1}},
		"max under base":      {Backoff: &punctual.Backoff{Base: time.Minute, Max: time.Second}},
		"jitter above 1":      {Backoff: &punctual.Backoff{Base: 1, Max: 1, Jitter: 1.1}},
		"negative jitter":     {Backoff: &punctual.Backoff{Base: 1, Max: 1, Jitter: -0.1}},
		"jitter NaN":          {Backoff: &punctual.Backoff{Base: 1, Max: 1, Jitter: math.NaN()}},
		"an empty group":      {Groups: ptr([]string{"billing", ""})},
		"a group twice":       {Groups: ptr([]string{"billing", "billing"})},
		"a group with @":      {Groups: ptr([]string{"billing@mail"})},
		"unknown events":      {Emit: ptr(event.All + 1)},
		"events for no time":  {Emit: ptr(punctual.EventDead), EmitKeep: ptr(time.Duration(0))},
		"events for too long": {EmitKeep: ptr(limits.MaxFinishedRetention + 1)},
		"one bad of several":  {MaxAttempts: ptr(7), PushPaused: ptr(true), Lease: ptr(time.Duration(-1))},
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

func topicApart(s *harness) {
	s.configure(orders, punctual.SettingsPatch{Lease: ptr(time.Hour), MaxAttempts: ptr(1), PushPaused: ptr(true)})
	s.wantSettings(mails, s.defaults())
	s.push(punctual.NewMessage{Topic: mails, ID: x})
	if d := s.one(mails); !d.LeaseUntil.Equal(noon.Add(30 * time.Second)) {
		s.fail("the lease of another topic lasts %v; want 30s", d.LeaseUntil.Sub(noon))
	}
}

func topicPushPaused(s *harness) {
	s.push(order("before", 0))
	s.configure(orders, punctual.SettingsPatch{PushPaused: ptr(true)})
	rs := s.pushAll(order(x, 0), punctual.NewMessage{Topic: mails, ID: "m"}, order("y", 0))
	for i, want := range []error{punctual.ErrPaused, nil, punctual.ErrPaused} {
		s.wantErr(rs[i].Err, want, "item %d of a batch for a paused, a running and a paused topic", i)
	}
	d := s.one(orders)
	if d.ID != "before" {
		s.fail("%s was delivered from a topic that took no pushes", d.ID)
	}
	s.done(d, punctual.SettleRetry, 0)
	s.done(s.one(orders), punctual.SettleDiscard, 0)
	s.outcome(requeue(orders, "before", time.Second), nil, "dead in a topic that takes no pushes")
	s.outcome(reschedule(orders, "before", 0), nil, "requeued in a topic that takes no pushes")
	s.ack(s.one(orders))
	s.ack(s.one(mails))
	s.configure(orders, punctual.SettingsPatch{PushPaused: ptr(false)})
	s.push(order(x, 0))
	s.ack(s.one(orders))
}

// topicPausedOrder: a push is checked for what is wrong in itself, then for the topic's pause, then
// for its ID.
func topicPausedOrder(s *harness) {
	bringReady(s)
	s.configure(orders, punctual.SettingsPatch{PushPaused: ptr(true)})
	for _, on := range []punctual.IfExists{punctual.IfExistsKeep, punctual.IfExistsReplace, punctual.IfExistsFail} {
		r := s.try(second(on))
		s.wantErr(r.Err, punctual.ErrPaused, "push of a taken ID to a paused topic")
		if r.Status != punctual.PushNone {
			s.fail("push of a taken ID to a paused topic: status %q with %v; want none", r.Status, r.Err)
		}
	}
	bad := second(punctual.IfExistsKeep)
	bad.Delay = -1
	s.wantErr(s.try(bad).Err, punctual.ErrInvalid, "push of a malformed message to a paused topic")
	s.wantErr(s.try(punctual.NewMessage{Topic: orders, Delay: time.Duration(1<<63 - 1), Due: noon}).Err, punctual.ErrInvalid, "push with two due times to a paused topic")
	s.wantErr(s.try(punctual.NewMessage{Topic: orders, ID: x, Due: limits.MaxDue.Add(time.Millisecond)}).Err, punctual.ErrInvalid, "push beyond the end of time to a paused topic")
	s.wantBody("body of x")
}

// topicSettingsUsed: a setting counts as it is when it is used. The time for which an ID is
// remembered, however, is fixed when its message finishes.
func topicSettingsUsed(s *harness) {
	s.configure(orders, punctual.SettingsPatch{Lease: ptr(time.Hour), DedupeWindow: ptr(time.Hour), Backoff: &punctual.Backoff{Delays: []time.Duration{time.Hour}}})
	bringReady(s)
	s.push(order("dead", 0))
	s.configure(orders, punctual.SettingsPatch{Lease: ptr(time.Minute)})
	for _, d := range s.take(orders, 2) {
		if !d.LeaseUntil.Equal(noon.Add(time.Minute)) {
			s.fail("pushed under a lease of 1h and claimed under one of 1m, %s is leased until %v", d.ID, d.LeaseUntil)
		}
		if d.ID == "dead" {
			s.done(d, punctual.SettleDiscard, 0)
			continue
		}
		s.configure(orders, punctual.SettingsPatch{Lease: ptr(2 * time.Minute), Backoff: &punctual.Backoff{Delays: []time.Duration{time.Second}}})
		s.done(d, punctual.SettleExtend, 0)
		if s.get(orders, x).LeaseUntil != noon.Add(2*time.Minute) {
			s.fail("extended under a topic's lease of 2m, the lease lasts until %v", s.get(orders, x).LeaseUntil)
		}
		s.done(d, punctual.SettleRetry, punctual.UseBackoff)
	}
	s.clock.Set(s.dueAtOnly(time.Second, "the backoff as it is when the message is retried"))
	s.ack(s.one(orders))
	acked := s.now()

	s.configure(orders, punctual.SettingsPatch{DeadRetention: ptr(time.Minute)})
	s.wantDead(orders, "dead", punctual.ReasonDiscarded)
	s.configure(orders, punctual.SettingsPatch{DeadRetention: ptr(500 * time.Millisecond)})
	s.wantState(orders, "dead", punctual.StateNone)

	s.configure(orders, punctual.SettingsPatch{DedupeWindow: ptr(time.Duration(0))})
	s.clock.Set(acked.Add(time.Hour - time.Millisecond))
	s.wantPush(s.try(order(x, 0)), punctual.PushDuplicate, "acked while IDs were remembered for an hour, nearly an hour ago")
	s.clock.Set(acked.Add(time.Hour))
	s.wantPush(s.try(order(x, 0)), punctual.PushStored, "acked while IDs were remembered for an hour, an hour ago")
}

func topicDeliveryPaused(s *harness) {
	s.push(order("held", 0))
	held := s.one(orders)
	s.configure(orders, punctual.SettingsPatch{DeliveryPaused: ptr(true)})
	s.push(order(x, time.Second))
	s.push(punctual.NewMessage{Topic: mails, ID: "m"})
	s.advance(time.Minute)
	s.none(orders, "while deliveries are paused")
	ds := s.claim(punctual.Claim{Topics: []string{orders, mails}, Max: 10})
	if len(ds) != 1 || ds[0].ID != "m" {
		s.fail("a claim from a paused and a running topic returned %v; want m", ids(ds))
	}
	s.ack(held)
	s.outcome(reschedule(orders, x, time.Second), nil, isReady)
	s.configure(orders, punctual.SettingsPatch{DeliveryPaused: ptr(false)})
	s.none(orders, "before the new due time")
	s.advance(time.Second)
	s.ack(s.one(orders))
}

func topicRetention(s *harness) {
	s.configure(orders, punctual.SettingsPatch{DeadRetention: ptr(time.Hour)})
	bringDead(s)
	s.advance(time.Hour - time.Millisecond)
	s.wantDead(orders, x, punctual.ReasonDiscarded)
	s.advance(time.Millisecond)
	s.wantState(orders, x, punctual.StateNone)
	s.outcome(requeue(orders, x, 0), punctual.ErrNotFound, "dead for longer than the retention")
	s.wantList(punctual.ListQuery{Topic: orders, State: punctual.StateDead})
	s.wantStats(punctual.TopicStats{Topic: orders, Settings: s.settings(orders)})
	s.push(order(x, 0))
	s.ack(s.one(orders))
}

// settings returns the settings of a topic. It skips the case when the store has no Inspector.
func (s *harness) settings(topic string) punctual.Settings {
	s.Helper()
	got, err := s.inspector().Settings(s.ctx, topic)
	if err != nil {
		s.fail("Settings of %s: unexpected error: %v", topic, err)
	}
	return got
}

func topicNoRetention(s *harness) {
	bringDead(s)
	s.advance(50 * 365 * 24 * time.Hour)
	s.none(orders, "50 years later")
	s.outcome(requeue(orders, x, 0), nil, "dead for 50 years")
	s.ack(s.one(orders))
}

func topicDelete(s *harness) {
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

func topicDeletedAnew(s *harness) {
	in := s.inspector()
	s.configure(orders, punctual.SettingsPatch{Lease: ptr(time.Hour), DedupeWindow: ptr(24 * time.Hour), DeliveryPaused: ptr(true)})
	s.push(order(x, 0))
	s.outcome(cancel(orders, x), nil, isReady)
	if n, err := in.DeleteTopic(s.ctx, orders); err != nil || n != 0 {
		s.fail("DeleteTopic of an empty topic: %d, %v; want 0", n, err)
	}
	s.wantSettings(orders, s.defaults())
	s.wantPush(s.try(order(x, 0)), punctual.PushStored, "remembered by the topic before it was deleted")
	s.ack(s.one(orders))
}

// divide makes a topic of n partitions. On a store that cannot divide topics it skips the rest of
// the case, once it has seen that the refusal changed nothing.
func (s *harness) divide(topic string, n int) {
	s.Helper()
	got, err := s.inspector().Configure(s.ctx, topic, punctual.SettingsPatch{Partitions: ptr(n), Lease: ptr(time.Hour)})
	if errors.Is(err, punctual.ErrUnsupported) {
		s.wantSettings(topic, s.defaults())
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

// topicDivided: the messages of a topic in many partitions are found by a push of their IDs, by
// Get, by a cancel and by a claim. After a deletion the topic may be created again with another
// number of partitions.
func topicDivided(s *harness) {
	const n = 24
	var last int64
	for _, size := range []int{5, 16, 2} {
		s.divide(orders, size)
		for i := range n {
			s.push(order(fmt.Sprint(i), 0))
		}
		for i := range n {
			if r := s.try(order(fmt.Sprint(i), 0)); r.Err != nil || r.Status != punctual.PushDuplicate {
				s.fail("push of %d, pushed before to a topic of %d partitions: got %q, error %v; want a duplicate", i, size, r.Status, r.Err)
			}
			if i%3 == 0 {
				s.get(orders, fmt.Sprint(i))
			}
		}
		s.outcome(cancel(orders, "0"), nil, isReady)
		ds := s.take(orders, 2*n)
		if len(ds) != n-1 {
			s.Fatalf("%s: of %d messages in %d partitions %v were delivered", p1, n-1, size, ids(ds))
		}
		for _, d := range ds {
			if d.ID == "1" {
				if d.Token <= last {
					s.Fatalf("%s: %s was delivered with token %d in a topic that came again; want one above %d", p4, d.ID, d.Token, last)
				}
				last = d.Token
			}
			s.ack(d)
		}
		if _, err := s.inspector().DeleteTopic(s.ctx, orders); err != nil {
			s.fail("DeleteTopic: %v", err)
		}
	}
}

func topicPartitionsFixed(s *harness) {
	for _, n := range []int{0, -1, limits.MaxPartitions + 1} {
		_, err := s.inspector().Configure(s.ctx, mails, punctual.SettingsPatch{Partitions: ptr(n)})
		s.wantErr(err, punctual.ErrInvalid, "Configure with %d partitions", n)
	}
	s.divide(orders, 4)
	for _, n := range []int{5, 3, 1, 0} {
		_, err := s.inspector().Configure(s.ctx, orders, punctual.SettingsPatch{Partitions: ptr(n), Lease: ptr(time.Minute)})
		s.wantErr(err, punctual.ErrInvalid, "Configure of a topic of 4 partitions with %d", n)
	}
	if now := s.settings(orders); now.Partitions != 4 || now.Lease != time.Hour {
		s.fail("after refused changes the settings are %+v; want 4 partitions and a lease of 1h", now)
	}
	s.configure(orders, punctual.SettingsPatch{Partitions: ptr(4), Lease: ptr(time.Minute)})
	if now := s.settings(orders); now.Lease != time.Minute {
		s.fail("a patch with the number that the topic has changed nothing else: %+v", now)
	}
}
