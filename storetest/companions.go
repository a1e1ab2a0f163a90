package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/compare"
)

// companionCases: does a companion belong to its topic, and is it a topic of its own in all else?
func companionCases() []testCase {
	return []testCase{
		{"names", p13, companionNames},
		{"push creates both", p13, companionPushed},
		{"configure creates both", p13, companionConfigured},
		{"made with its topic, or behind it", p13, companionLater},
		{"has the partitions of its topic", p12, companionPartitions},
		{"messages are its own", p7, companionApart},
		{"settings are its own", p13, companionSettings},
		{"partitions, groups and the pause of pushes cannot be set", p13, companionRefused},
		{"each group has a topic", p13, companionGroups},
		{"the pauses of the topic do not reach it", p1, companionPauses},
		{"shown as any topic", p13, companionShown},
		{"goes with its topic", p13, companionDeleted},
		{"goes alone", p13, companionDeletedAlone},
		{"deleted starts anew", p13, companionDeletedAnew},
		{"of a group is not deleted while the group is set", p1, companionOfAGroup},
		{"of a group is there however its deletion meets Configure", p1, companionMeetsConfigure},
		{"with follow-ups that wait keeps its topic", p1, companionWithFollowUps},
		{"keeps a follow-up however it meets a deletion", p1, companionMeetsDeletion},
		{"stays without its messages", p13, companionStays},
		{"of a topic that is purged", p13, companionPurged},
		{"a waiting claim hears of it", p11, companionWait},
		{"names of topics", p13, companionTopicNames},
		{"opened anew", p1, companionReopened},
	}
}

// Companions of the topics of the cases. The companion of mails has the same name behind the "@" as
// one of orders.
const (
	bills     = orders + "@bills"
	notes     = orders + "@notes"
	mailBills = mails + "@bills"
)

func companionNames(s *harness) {
	long := strings.Repeat("t", limits.MaxTopicBytes)
	for _, topic := range []string{
		"a@b", "a:1/x@b", "a@b.c_d-e", "a@g.1", "9@9", "a@" + strings.Repeat("c", limits.MaxCompanionBytes), long + "@b",
		long + "@" + strings.Repeat("d", limits.MaxCompanionBytes),
	} {
		s.push(punctual.NewMessage{Topic: topic, ID: x})
		if d := s.one(topic); d.Topic != topic {
			s.fail("a message of topic %q came back with topic %q", topic, d.Topic)
		}
	}
	for _, topic := range []string{
		"@b", "a@", "@", "a@b@c", "a@@b", "a@b/c", "a@b:c", "a@b c", "a@ü", "a b@c", "a@" + strings.Repeat("c", limits.MaxCompanionBytes+1), long + "t@b",
	} {
		s.refused(punctual.NewMessage{Topic: topic, ID: x}, punctual.ErrInvalid, "topic "+topic)
		_, err := s.store.Claim(s.ctx, punctual.Claim{Topics: []string{topic}, Max: 1})
		s.wantErr(err, punctual.ErrInvalid, "a claim from topic %q", topic)
	}
}

func companionPushed(s *harness) {
	s.inspector()
	s.push(punctual.NewMessage{Topic: bills, ID: x})
	s.wantTopics(orders, bills)
	s.wantSettings(orders, s.defaults())
	s.wantSettings(bills, s.defaults())
	s.none(orders, "after a push to its companion")
	s.one(bills)
}

func companionConfigured(s *harness) {
	set := s.configure(bills, punctual.SettingsPatch{Lease: ptr(time.Minute)})
	s.wantTopics(orders, bills)
	if set.Lease != time.Minute {
		s.fail("a companion that was configured with a lease of 1m has one of %v", set.Lease)
	}
	s.wantSettings(orders, s.defaults())
}

func companionLater(s *harness) {
	s.inspector()
	s.push(order(x, time.Hour))
	want := s.configure(orders, punctual.SettingsPatch{Lease: ptr(time.Hour), MaxAttempts: ptr(3)})
	s.push(punctual.NewMessage{Topic: bills, ID: x})
	s.wantTopics(orders, bills)
	s.wantSettings(orders, want)
	s.wantSettings(bills, s.defaults())
	s.wantState(orders, x, punctual.StateScheduled)
}

func companionPartitions(s *harness) {
	s.divide(orders, 4)
	s.push(punctual.NewMessage{Topic: bills, ID: x})
	if n := s.settings(bills).Partitions; n != 4 {
		s.fail("the companion of a topic with 4 partitions has %d", n)
	}
	if n := s.configure(notes, punctual.SettingsPatch{Lease: ptr(time.Minute)}).Partitions; n != 4 {
		s.fail("a companion that was configured first, of a topic with 4 partitions, has %d", n)
	}
	for i := range 24 {
		s.push(punctual.NewMessage{Topic: bills, ID: string(rune('A' + i))})
	}
	if ds := s.take(bills, 100); len(ds) != 25 {
		s.Fatalf("%s: of 25 messages of a companion with 4 partitions %v were delivered", p1, ids(ds))
	}
}

// companionApart: the same ID names different messages in a topic, in each of its companions and in
// a companion of another topic.
func companionApart(s *harness) {
	all := []string{orders, bills, notes, mailBills}
	for _, topic := range all {
		s.push(punctual.NewMessage{Topic: topic, ID: x, Body: []byte(topic)})
	}
	s.outcome(cancel(notes, x), nil, isReady)
	s.none(notes, "after a cancel in this companion alone")
	ds := s.claim(punctual.Claim{Topics: []string{mailBills, notes, orders, bills}, Max: 10})
	if len(ds) != 3 || ds[0].Topic != mailBills || ds[1].Topic != orders || ds[2].Topic != bills {
		s.fail("a claim from companions and topics, of which one is empty, returned %v", ids(ds))
	}
	for _, d := range ds {
		if string(d.Body) != d.Topic {
			s.fail("a message of %s came with the body of one of %s", d.Topic, d.Body)
		}
	}
	s.done(ds[1], punctual.SettleDiscard, 0)
	s.ack(ds[2])
	s.wantState(orders, x, punctual.StateDead)
	s.wantState(bills, x, punctual.StateNone)
	s.wantState(mailBills, x, punctual.StateLeased)
	s.outcome(requeue(bills, x, 0), punctual.ErrNotFound, isAcked)
	s.outcome(requeue(orders, x, 0), nil, isDead)
}

func companionSettings(s *harness) {
	s.configure(orders, punctual.SettingsPatch{Lease: ptr(time.Hour), DeliveryPaused: ptr(true)})
	s.configure(bills, punctual.SettingsPatch{Lease: ptr(time.Minute), MaxAttempts: ptr(1), DeadRetention: ptr(time.Minute)})
	s.push(punctual.NewMessage{Topic: bills, ID: x})
	d := s.one(bills)
	if !d.LeaseUntil.Equal(noon.Add(time.Minute)) {
		s.fail("the lease of a companion lasts %v; want its own, 1m", d.LeaseUntil.Sub(noon))
	}
	s.done(d, punctual.SettleRetry, 0)
	s.wantState(bills, x, punctual.StateDead)
	s.advance(time.Minute)
	s.wantState(bills, x, punctual.StateNone)
	s.configure(bills, punctual.SettingsPatch{DeliveryPaused: ptr(true)})
	s.configure(orders, punctual.SettingsPatch{DeliveryPaused: ptr(false)})
	s.push(punctual.NewMessage{Topic: bills, ID: x})
	s.push(order(x, 0))
	s.none(bills, "whose deliveries are paused")
	s.one(orders)
}

func companionRefused(s *harness) {
	in := s.inspector()
	for name, p := range map[string]punctual.SettingsPatch{
		"partitions":                      {Partitions: ptr(4)},
		"the partitions it has":           {Partitions: ptr(s.defaults().Partitions)},
		"paused pushes":                   {PushPaused: ptr(true)},
		"pushes that are not paused":      {PushPaused: ptr(false)},
		"groups":                          {Groups: ptr([]string{"billing"})},
		"no groups":                       {Groups: ptr([]string(nil))},
		"events":                          {Emit: ptr(punctual.EventDead)},
		"paused pushes beside good value": {PushPaused: ptr(true), Lease: ptr(time.Hour)},
	} {
		_, err := in.Configure(s.ctx, notes, p)
		s.wantErr(err, punctual.ErrInvalid, "Configure of a companion with %s", name)
	}
	s.wantTopics()
	s.push(punctual.NewMessage{Topic: bills, ID: x})
	_, err := in.Configure(s.ctx, bills, punctual.SettingsPatch{PushPaused: ptr(true), Lease: ptr(time.Hour)})
	s.wantErr(err, punctual.ErrInvalid, "Configure of a companion that exists with paused pushes")
	s.wantSettings(bills, s.defaults())
	s.wantTopics(orders, bills)
}

// companionGroups: Configure creates the topic of each group, because a process that copies for
// groups finds the groups by the names of these topics, also before the first copy.
func companionGroups(s *harness) {
	billing, mail := punctual.GroupTopic(orders, "billing"), punctual.GroupTopic(orders, "mail")
	want := s.defaults()
	want.Groups, want.Lease = []string{"billing", "mail"}, time.Hour
	p := punctual.SettingsPatch{Groups: &want.Groups, Lease: &want.Lease}
	if got := s.configure(orders, p); !compare.EqualSettings(got, want) {
		s.fail("Configure of groups returned %+v; want %+v", got, want)
	}
	s.wantSettings(orders, want)
	s.wantTopics(orders, billing, mail)
	s.wantSettings(billing, s.defaults())
	s.configure(billing, punctual.SettingsPatch{MaxAttempts: ptr(3)})
	s.push(punctual.NewMessage{Topic: mail, ID: x, Delay: time.Hour})
	s.configure(orders, punctual.SettingsPatch{Groups: ptr([]string{"audit", "billing"})})
	s.wantTopics(orders, punctual.GroupTopic(orders, "audit"), billing, mail)
	s.wantState(mail, x, punctual.StateScheduled)
	changed := s.defaults()
	changed.MaxAttempts = 3
	s.wantSettings(billing, changed)
	want.Groups = nil
	if got := s.configure(orders, punctual.SettingsPatch{Groups: ptr([]string{})}); !compare.EqualSettings(got, want) {
		s.fail("Configure of no groups returned %+v; want %+v", got, want)
	}
	_, err := s.inspector().Configure(s.ctx, mails, punctual.SettingsPatch{Groups: ptr([]string{"a", "a"}), Lease: ptr(time.Hour)})
	s.wantErr(err, punctual.ErrInvalid, "Configure of a new topic with a group twice")
	s.wantTopics(orders, punctual.GroupTopic(orders, "audit"), billing, mail)
}

func companionPauses(s *harness) {
	s.configure(orders, punctual.SettingsPatch{PushPaused: ptr(true), DeliveryPaused: ptr(true)})
	s.push(punctual.NewMessage{Topic: bills, ID: x})
	s.ack(s.one(bills))
	s.wantErr(s.try(order(x, 0)).Err, punctual.ErrPaused, "a push to a topic whose pushes are paused, behind one to its companion")
}

func companionShown(s *harness) {
	in := s.inspector()
	s.push(order(x, time.Hour))
	for i := range 3 {
		s.push(punctual.NewMessage{Topic: bills, ID: string(rune('a' + i)), Delay: time.Duration(i) * time.Minute})
	}
	s.done(s.one(bills), punctual.SettleDiscard, 0)
	s.wantStats(punctual.TopicStats{Topic: orders, Scheduled: 1, NextDue: noon.Add(time.Hour), Settings: s.defaults()})
	s.wantStats(punctual.TopicStats{Topic: bills, Scheduled: 2, Dead: 1, NextDue: noon.Add(time.Minute), Settings: s.defaults()})
	s.wantTopics(orders, bills)
	s.wantForecast(punctual.ForecastQuery{Topic: orders, Step: time.Minute, Buckets: 4}, []int64{0, 0, 0, 0}, 0, 1)
	s.wantForecast(punctual.ForecastQuery{Topic: bills, Step: time.Minute, Buckets: 4}, []int64{0, 1, 1, 0}, 0, 0)
	s.wantForecast(punctual.ForecastQuery{Step: time.Minute, Buckets: 4}, []int64{0, 1, 1, 0}, 0, 1)
	p, err := in.List(s.ctx, punctual.ListQuery{Topic: bills, State: punctual.StateScheduled})
	if err != nil || len(p.Messages) != 2 || p.Messages[0].ID != "b" || p.Messages[0].Topic != bills {
		s.fail("the scheduled messages of a companion are %v, %v; want b and c", p.Messages, err)
	}
}

// companionDeleted: DeleteTopic removes the companions of the topic with all that they keep, and no
// companion of another topic.
func companionDeleted(s *harness) {
	in := s.inspector()
	s.configure(bills, punctual.SettingsPatch{DedupeWindow: ptr(time.Hour), Lease: ptr(time.Hour)})
	others := []string{mailBills, mails, orders + "x@bills", orders + ".1@bills", "a@" + orders}
	for _, topic := range append([]string{orders, bills, notes}, others...) {
		s.push(punctual.NewMessage{Topic: topic, ID: x})
		s.push(punctual.NewMessage{Topic: topic, ID: "later", Delay: time.Hour})
	}
	leased := s.one(bills)
	s.done(s.one(notes), punctual.SettleDiscard, 0)
	s.push(punctual.NewMessage{Topic: bills, ID: "finished"})
	s.ack(s.one(bills))

	if n, err := in.DeleteTopic(s.ctx, orders); err != nil || n != 6 {
		s.fail("DeleteTopic of a topic with two messages, and two companions with two each, removed %d, %v; want 6", n, err)
	}
	want := append([]string{"a", orders + ".1", orders + "x"}, others...)
	slices.Sort(want)
	s.wantTopics(want...)
	for _, topic := range others {
		s.one(topic)
		s.wantState(topic, "later", punctual.StateScheduled)
	}
	s.wantErr(s.settle(leased, punctual.SettleAck, 0), punctual.ErrLeaseLost, "ack in a companion whose topic was deleted")
	for _, topic := range []string{orders, bills, notes} {
		_, err := in.DeleteTopic(s.ctx, topic)
		s.wantErr(err, punctual.ErrNotFound, "DeleteTopic of %s, deleted before", topic)
	}
	s.push(punctual.NewMessage{Topic: bills, ID: "finished"})
	s.wantSettings(bills, s.defaults())
}

func companionDeletedAlone(s *harness) {
	in := s.inspector()
	for _, topic := range []string{orders, bills, notes} {
		s.push(punctual.NewMessage{Topic: topic, ID: x})
	}
	if n, err := in.DeleteTopic(s.ctx, bills); err != nil || n != 1 {
		s.fail("DeleteTopic of a companion with one message removed %d, %v; want 1", n, err)
	}
	s.wantTopics(orders, notes)
	s.none(bills, "after it was deleted")
	s.one(orders)
	s.one(notes)
}

// companionOfAGroup: without the topic of a group nobody would find that its topic has groups, and
// later messages would wait for ever.
func companionOfAGroup(s *harness) {
	in := s.inspector()
	billing := punctual.GroupTopic(orders, "billing")
	s.configure(orders, punctual.SettingsPatch{Groups: ptr([]string{"billing"})})
	s.push(punctual.NewMessage{Topic: billing, ID: x})
	_, err := in.DeleteTopic(s.ctx, billing)
	s.wantErr(err, punctual.ErrInvalid, "DeleteTopic of the topic of a group that is set")
	if err == nil || !strings.Contains(err.Error(), "take billing out of the groups of orders first") {
		s.fail("the refusal is %v; want it to say what to do", err)
	}
	s.wantTopics(orders, billing)
	s.wantState(billing, x, punctual.StateReady)
	s.configure(orders, punctual.SettingsPatch{Groups: ptr([]string{"mail"})})
	if n, err := in.DeleteTopic(s.ctx, billing); err != nil || n != 1 {
		s.fail("DeleteTopic of the topic of a group that is not set any more: %d, %v; want 1", n, err)
	}
	s.wantTopics(orders, punctual.GroupTopic(orders, "mail"))
	if _, err := in.DeleteTopic(s.ctx, orders); err != nil {
		s.fail("DeleteTopic of a topic with a group: %v", err)
	}
	s.wantTopics()
}

// companionMeetsConfigure: whatever order a Configure of a group and a deletion of the group's
// topic take effect in, the topic of a group that is set is there.
func companionMeetsConfigure(s *harness) {
	in := s.inspector()
	billing := punctual.GroupTopic(orders, "billing")
	met := 0
	for range 30 {
		s.configure(orders, punctual.SettingsPatch{Groups: ptr([]string(nil))})
		s.configure(billing, punctual.SettingsPatch{})
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := in.Configure(s.ctx, orders, punctual.SettingsPatch{Groups: ptr([]string{"billing"})}); err != nil {
				s.Errorf("Configure beside a deletion: %v", err)
			}
		})
		both.Go(func() {
			switch _, err := in.DeleteTopic(s.ctx, billing); {
			case err == nil:
				met++
			case !errors.Is(err, punctual.ErrInvalid) && !errors.Is(err, punctual.ErrNotFound) && !errors.Is(err, punctual.ErrIndeterminate):
				s.Errorf("DeleteTopic beside a Configure: %v", err)
			}
		})
		both.Wait()
		s.wantTopics(orders, billing)
	}
	s.Logf("%d of 30 deletions came before the group", met)
}

// outTopic returns the companion out of orders. It skips the case behind a server, which lets
// nobody push to that companion.
func (s *harness) outTopic() string {
	s.Helper()
	out := storekit.OutTopic(orders)
	switch r := s.try(punctual.NewMessage{Topic: out, ID: x}); {
	case errors.Is(r.Err, punctual.ErrForbidden):
		s.Skipf("skipped: behind a server nobody puts follow-ups into %s: %v", out, r.Err)
	case r.Err != nil:
		s.fail("push of %s/%s: %v", out, x, r.Err)
	}
	if n, err := s.inspector().Purge(s.ctx, punctual.PurgeQuery{Topic: out}); err != nil || n != 1 {
		s.fail("Purge of %s: %d, %v; want 1", out, n, err)
	}
	return out
}

// companionMeetsDeletion: a follow-up that is stored while its topic is being deleted is there
// afterwards, whether the deletion came before it or was refused because of it. A deletion that was
// refused leaves the topics of groups.
func companionMeetsDeletion(s *harness) {
	in := s.inspector()
	out, billing := s.outTopic(), punctual.GroupTopic(orders, "billing")
	deleted := 0
	for n := range 30 {
		s.configure(orders, punctual.SettingsPatch{Groups: ptr([]string{"billing"})})
		ids := []string{fmt.Sprint(n, x), fmt.Sprint(n, "y"), fmt.Sprint(n, "z")} // so that several partitions get one
		var both sync.WaitGroup
		both.Go(func() {
			for range n / 2 { // so that the pushes meet different steps of the deletion
				if _, err := s.store.Now(s.ctx); err != nil {
					s.Errorf("Now: %v", err)
				}
			}
			for _, id := range ids {
				if rs, err := s.store.Push(s.ctx, []punctual.NewMessage{{Topic: out, ID: id}}); err != nil || rs[0].Err != nil {
					s.Errorf("push beside a deletion: %+v, %v", rs, err)
				}
			}
		})
		var err error
		both.Go(func() { _, err = in.DeleteTopic(s.ctx, orders) })
		both.Wait()
		for _, id := range ids {
			s.wantState(out, id, punctual.StateReady)
		}
		switch {
		case err == nil:
			deleted++
			s.wantTopics(orders, out) // which the pushes have made anew
		case !errors.Is(err, punctual.ErrInvalid) && !errors.Is(err, punctual.ErrIndeterminate):
			s.fail("DeleteTopic beside pushes to %s: %v", out, err)
		default:
			s.wantTopics(orders, billing, out)
		}
		if _, err := in.Purge(s.ctx, punctual.PurgeQuery{Topic: out}); err != nil {
			s.fail("Purge of %s: %v", out, err)
		}
	}
	s.Logf("%d of 30 deletions came before the follow-ups", deleted)
}

// companionWithFollowUps: a follow-up for another topic may wait in the companion out until
// somebody forwards it. DeleteTopic would lose it.
func companionWithFollowUps(s *harness) {
	in := s.inspector()
	out := s.outTopic()
	refused := func(state string) {
		s.Helper()
		_, err := in.DeleteTopic(s.ctx, orders)
		s.wantErr(err, punctual.ErrInvalid, "DeleteTopic while a follow-up is %s", state)
		if err == nil || !strings.Contains(err.Error(), "forward") {
			s.fail("the refusal is %v; want it to say what to do", err)
		}
		s.wantTopics(orders, bills, out)
		s.wantState(bills, x, punctual.StateReady)
	}
	s.push(punctual.NewMessage{Topic: orders, ID: x})
	s.push(punctual.NewMessage{Topic: bills, ID: x})
	s.push(punctual.NewMessage{Topic: out, ID: x, Delay: time.Hour})
	refused("scheduled")
	s.advance(time.Hour)
	refused("ready")
	d := s.one(out)
	refused("being forwarded")
	s.ack(d)
	if n, err := in.DeleteTopic(s.ctx, orders); err != nil || n != 2 {
		s.fail("DeleteTopic when the follow-up was forwarded: %d, %v; want 2", n, err)
	}
	s.push(punctual.NewMessage{Topic: out, ID: x})
	s.done(s.one(out), punctual.SettleDiscard, 0)
	s.push(punctual.NewMessage{Topic: out, ID: "y"})
	if n, err := in.Purge(s.ctx, punctual.PurgeQuery{Topic: out}); err != nil || n != 1 {
		s.fail("Purge of the companion out: %d, %v; want 1", n, err)
	}
	if n, err := in.DeleteTopic(s.ctx, orders); err != nil || n != 1 { // what was given up on does not wait
		s.fail("DeleteTopic when only a dead follow-up is left: %d, %v; want 1", n, err)
	}
}

func companionDeletedAnew(s *harness) {
	in := s.inspector()
	var last int64
	for range 3 {
		s.push(punctual.NewMessage{Topic: bills, ID: x})
		d := s.one(bills)
		if d.Attempt != 1 || d.Token <= last {
			s.Fatalf("%s: in a companion that came again the delivery is attempt %d with token %d; want 1, above %d", p4, d.Attempt, d.Token, last)
		}
		last = d.Token
		if _, err := in.DeleteTopic(s.ctx, orders); err != nil {
			s.fail("DeleteTopic: %v", err)
		}
		s.wantTopics()
	}
}

func companionStays(s *harness) {
	s.inspector()
	s.push(punctual.NewMessage{Topic: bills, ID: x})
	s.ack(s.one(bills))
	s.advance(24 * time.Hour)
	s.none(bills, "a day after its last message")
	s.wantTopics(orders, bills)
	s.wantStats(punctual.TopicStats{Topic: bills, Settings: s.defaults()})
}

func companionPurged(s *harness) {
	s.inspector()
	s.push(order(x, 0))
	s.push(punctual.NewMessage{Topic: bills, ID: x})
	s.purge(punctual.PurgeQuery{Topic: orders}, 1)
	s.one(bills)
	s.purge(punctual.PurgeQuery{Topic: bills}, 1)
	s.wantTopics(orders, bills)
}

func companionWait(s *harness) {
	for range rounds {
		w := s.wait(s.ctx, punctual.Claim{Topics: []string{notes, bills}, Max: 1, Wait: time.Hour})
		asleep()
		s.push(order(x, 0)) // the claim does not wait for this topic
		s.push(punctual.NewMessage{Topic: bills, ID: "b"})
		s.ack(w.wakes("b", "a push to the companion"))
		s.ack(s.one(orders))
	}
}

// namer returns the store's storekit.TopicNamer. It skips the case when the store has none.
func (s *harness) namer() storekit.TopicNamer {
	s.Helper()
	n, err := punctual.As[storekit.TopicNamer](s.store)
	if err != nil {
		s.Skipf("skipped: the case needs a TopicNamer: %v", err)
	}
	return n
}

func (s *harness) wantNames(q storekit.NameQuery, want ...string) {
	s.Helper()
	got, err := s.namer().TopicNames(s.ctx, q)
	if err != nil || got == nil || !slices.Equal(got, want) {
		s.fail("TopicNames with prefix %q and suffix %q: %q, %v; want %q, sorted", q.Prefix, q.Suffix, got, err, want)
	}
}

func companionTopicNames(s *harness) {
	n := s.namer()
	s.wantNames(storekit.NameQuery{})
	s.wantNames(storekit.NameQuery{Prefix: orders})
	for _, topic := range []string{"b@cron", "a@cron", "a@events", "a", "ab@cron", "a@g.cron", "B", "10", "9"} {
		s.push(punctual.NewMessage{Topic: topic, ID: x, Delay: time.Hour})
	}
	s.wantNames(storekit.NameQuery{}, "10", "9", "B", "a", "a@cron", "a@events", "a@g.cron", "ab", "ab@cron", "b", "b@cron")
	s.wantNames(storekit.NameQuery{Suffix: "@cron"}, "a@cron", "ab@cron", "b@cron")
	s.wantNames(storekit.NameQuery{Prefix: "a@"}, "a@cron", "a@events", "a@g.cron")
	s.wantNames(storekit.NameQuery{Prefix: "a"}, "a", "a@cron", "a@events", "a@g.cron", "ab", "ab@cron")
	s.wantNames(storekit.NameQuery{Prefix: "a@", Suffix: "@cron"}, "a@cron")
	s.wantNames(storekit.NameQuery{Prefix: "a@g.cron", Suffix: "cron"}, "a@g.cron")
	s.wantNames(storekit.NameQuery{Prefix: "10", Suffix: "10"}, "10")
	for _, odd := range []string{"*", "?", "[ab]", "%", "_", `\`, "a*", "A", "a b", "ü"} {
		s.wantNames(storekit.NameQuery{Prefix: odd})
		s.wantNames(storekit.NameQuery{Suffix: odd})
	}
	ended, stop := context.WithCancel(s.ctx)
	stop()
	_, err := n.TopicNames(ended, storekit.NameQuery{})
	s.wantErr(err, context.Canceled, "TopicNames with a context that has ended")
	s.closeStore()
	_, err = n.TopicNames(s.ctx, storekit.NameQuery{})
	s.wantErr(err, punctual.ErrClosed, "TopicNames of a closed store")
}

func companionReopened(s *harness) {
	s.inspector()
	s.configure(bills, punctual.SettingsPatch{Lease: ptr(time.Minute)})
	want := s.settings(bills)
	s.push(punctual.NewMessage{Topic: notes, ID: x})
	s.reopen()
	s.wantTopics(orders, bills, notes)
	s.wantSettings(bills, want)
	s.one(notes)
	if n, err := s.inspector().DeleteTopic(s.ctx, orders); err != nil || n != 1 {
		s.fail("DeleteTopic of a topic whose companion has one message removed %d, %v; want 1", n, err)
	}
	s.wantTopics()
}
