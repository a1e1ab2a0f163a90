package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/storekit"
)

// wantPartitions fails the test unless a topic has so many partitions.
func wantPartitions(t *testing.T, s *Store, topic string, want int) {
	t.Helper()
	set, err := s.Settings(t.Context(), topic)
	if err != nil || set.Partitions != want {
		t.Errorf("%s has %d partitions, %v; want %d", topic, set.Partitions, err, want)
	}
}

// wantTopics fails the test unless exactly these topics are there.
func wantTopics(t *testing.T, s *Store, want ...string) {
	t.Helper()
	got, err := s.TopicNames(t.Context(), storekit.NameQuery{})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("there are topics %q, %v; want %q", got, err, want)
	}
}

// A companion has as many partitions as its topic, however many a new topic of the process would
// have.
func TestCompanionHasThePartitionsOfItsTopic(t *testing.T) {
	s := openStore(t, connect(t, shared), &Options{Prefix: fresh(), Partitions: 4})
	divide(t, s, "orders", 3)
	push(t, s, punctual.NewMessage{Topic: "orders@events", ID: "x"})
	wantPartitions(t, s, "orders@events", 3)
	lease := time.Minute
	if _, err := s.Configure(t.Context(), "orders@cron", punctual.SettingsPatch{Lease: &lease}); err != nil {
		t.Fatal(err)
	}
	wantPartitions(t, s, "orders@cron", 3)
	push(t, s, punctual.NewMessage{Topic: "bills@out", ID: "x"})
	wantPartitions(t, s, "bills", 4)
	wantTopics(t, s, "bills", "bills@out", "orders", "orders@cron", "orders@events")
	wantSound(t, s)
}

// A message and its follow-ups by name have one home, in the topic and in its companions.
func TestOneStemHasOneHome(t *testing.T) {
	s := openStore(t, connect(t, shared), &Options{Prefix: fresh(), Partitions: 8})
	for i := range 20 {
		stem := fmt.Sprint("A-", i)
		for _, topic := range []string{"orders", "orders@events"} {
			for _, id := range []string{stem, stem + "~bill", stem + "~bill~2"} {
				push(t, s, punctual.NewMessage{Topic: topic, ID: id, Delay: time.Hour})
				p := s.names.Partition(topic, keys.Home(stem, 8))
				if _, err := s.client.ZScore(t.Context(), p.Keys()[0], id).Result(); err != nil {
					t.Errorf("%s of %s is not in partition %d, where %s is at home: %v", id, topic, p.Number, stem, err)
				}
			}
		}
	}
	wantSound(t, s)
}

// A topic takes its companions along when it is deleted, also those of which the process knows
// nothing. It may come again with another number of partitions, and then companions have that.
func TestDeletionTakesCompanionsAlong(t *testing.T) {
	prefix := fresh()
	open := func(n int) *Store { return openStore(t, connect(t, shared), &Options{Prefix: prefix, Partitions: n}) }
	s, other := open(4), open(2)
	for _, topic := range []string{"orders", "orders@events", "orders@g.bills", "orders2@events"} {
		for i := range 10 {
			push(t, s, punctual.NewMessage{Topic: topic, ID: fmt.Sprint(i), Delay: time.Hour})
		}
	}
	if n, err := other.DeleteTopic(t.Context(), "orders"); err != nil || n != 30 {
		t.Fatalf("a deletion with companions removed %d, %v; want 30", n, err)
	}
	wantTopics(t, s, "orders2", "orders2@events")
	push(t, other, punctual.NewMessage{Topic: "orders@events", ID: "x", Due: time.Unix(1, 0)})
	wantPartitions(t, other, "orders@events", 2)
	// A process that still knows the companion with four partitions finds the ID where it is now.
	if rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders@events", ID: "x"}}); err != nil || rs[0].Status != punctual.PushDuplicate {
		t.Errorf("P7: the ID was pushed again: %+v, %v; want a duplicate", rs, err)
	}
	if n, err := s.DeleteTopic(t.Context(), "orders@events"); err != nil || n != 1 {
		t.Errorf("the deletion of a companion alone removed %d, %v; want 1", n, err)
	}
	wantTopics(t, s, "orders", "orders2", "orders2@events")
	wantSound(t, s)
}

// While a topic is deleted another process makes a companion, in front of any script. Either the
// companion goes with the topic, or the topic is there again; there is no companion with another
// number of partitions than its topic.
func TestCompanionMadeDuringDeletion(t *testing.T) {
	for n := 1; ; n++ {
		prefix := fresh()
		deleter, other := openProcess(t, prefix), openStore(t, connect(t, shared), &Options{Prefix: prefix, Partitions: 3})
		push(t, other, punctual.NewMessage{ID: "a", Delay: time.Hour}, punctual.NewMessage{Topic: "orders@events", ID: "b", Delay: time.Hour})
		deleter.interrupt.arm(n, false, func() error {
			push(t, other, punctual.NewMessage{Topic: "orders@new", ID: "c", Delay: time.Hour})
			return nil
		})
		if _, err := deleter.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatalf("deletion beside a new companion, in front of script %d: %v", n, err)
		}
		done := deleter.interrupt.called()
		names, err := deleter.TopicNames(t.Context(), storekit.NameQuery{})
		if err != nil {
			t.Fatal(err)
		}
		if len(names) > 0 && !slices.Equal(names, []string{"orders", "orders@new"}) {
			t.Errorf("in front of script %d: there are %q", n, names)
		}
		wantSound(t, deleter.Store)
		if !done {
			if n < 9 { // a layout and three partitions for each of two topics, and a name
				t.Errorf("this test shows nothing: the deletion had %d scripts", n-1)
			}
			return
		}
	}
}

// A process dies anywhere while it makes a companion, or deletes a topic with one. The others go
// on, and a companion and its topic have the same partitions.
func TestSlowKilledWithCompanions(t *testing.T) {
	check := func(x *survivors) {
		for _, s := range []*Store{x.old, x.young} {
			rs, err := s.Push(x.t.Context(), []punctual.NewMessage{{Topic: x.topic + "@events", IfExists: punctual.IfExistsReplace, ID: "e", Delay: time.Hour}})
			if err != nil || rs[0].Err != nil {
				x.t.Errorf("P1: push to the companion: %+v, %v", rs, err)
			}
		}
		x.push(x.old, "old")
		x.push(x.young, "new")
		x.agree(1, 3) // the process that died makes topics of one partition
		x.drain(x.young)
		wantSound(x.t, x.young)
	}
	t.Run("made", func(t *testing.T) {
		eachDeath(t, func(*survivors) {}, func(ctx context.Context, s *Store, topic string) error {
			keep := time.Hour
			_, err := s.Configure(ctx, topic+"@events", punctual.SettingsPatch{DedupeWindow: &keep})
			return err
		}, func(x *survivors) {
			wantSound(x.t, x.young)
			check(x)
		})
	})
	t.Run("deleted", func(t *testing.T) {
		eachDeath(t, func(x *survivors) {
			push(x.t, x.old, punctual.NewMessage{Topic: x.topic + "@events", ID: "e", Delay: time.Hour})
		}, func(ctx context.Context, s *Store, topic string) error {
			_, err := s.DeleteTopic(ctx, topic)
			return err
		}, func(x *survivors) {
			wantSound(x.t, x.young)
			check(x)
		})
	})
}

// A check finds a companion that its topic does not name. The limit of a report's problems counts
// those of companions, too.
func TestCheckOfCompanions(t *testing.T) {
	s := openStore(t, connect(t, shared), &Options{Prefix: fresh()})
	push(t, s, punctual.NewMessage{Topic: "orders@events", ID: "x"})
	do(t, shared, "HDEL", s.names.Partition("orders", 0).Keys()[keys.Settings], "@events")
	r, err := s.Check(t.Context(), nil)
	if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "orders does not name its companion orders@events") {
		t.Fatalf("Check = %q, %v; want that orders does not name its companion", r.Problems, err)
	}
	for i := range maxProblems { // orders comes before its companion
		do(t, shared, "HSET", s.names.Partition("orders", 0).Keys()[5], fmt.Sprint("damaged", i), "nonsense")
	}
	if r, err = s.Check(t.Context(), nil); err != nil || len(r.Problems) != maxProblems {
		t.Errorf("Check of a companion behind %d damaged states returned %d problems, %v; want %d", maxProblems, len(r.Problems), err, maxProblems)
	}
}

// A name that was entered for a topic that never came into being is not among the names of topics.
func TestTopicNamesAreOfTopics(t *testing.T) {
	s := openStore(t, connect(t, shared), &Options{Prefix: fresh()})
	push(t, s, punctual.NewMessage{Topic: "orders@cron", ID: "x"}, punctual.NewMessage{Topic: "bills", ID: "x"})
	do(t, shared, "ZADD", s.names.Topics(), "1", "never@cron")
	if n := do(t, shared, "ZCARD", s.names.Topics()); n != "4" {
		t.Fatalf("this test shows nothing: %s names are entered", n)
	}
	for _, c := range []struct {
		q    storekit.NameQuery
		want []string
	}{
		{storekit.NameQuery{}, []string{"bills", "orders", "orders@cron"}},
		{storekit.NameQuery{Suffix: "@cron"}, []string{"orders@cron"}},
		{storekit.NameQuery{Prefix: "orders@"}, []string{"orders@cron"}},
		{storekit.NameQuery{Prefix: "none"}, []string{}},
	} {
		if got, err := s.TopicNames(t.Context(), c.q); err != nil || got == nil || !slices.Equal(got, c.want) {
			t.Errorf("the names by %+v are %q, %v; want %q", c.q, got, err, c.want)
		}
	}
}

// P14: one node of a cluster hangs. The names of topics are returned nevertheless, and among them
// those of topics on that node, which may be there.
func TestSlowTopicNamesBesideAHungNode(t *testing.T) {
	h := onHungNode(t)
	both := []string{h.hung, h.sound}
	slices.Sort(both)
	wantTopics(t, h.Store, both...)
	h.halt(t)
	begun := time.Now()
	wantTopics(t, h.Store, both...)
	if took := time.Since(begun); took > soon {
		t.Errorf("P14: beside a node that hangs the names took %v", took)
	}
}
