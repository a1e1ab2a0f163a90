package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// kill lets a process make a call and die before its n-th script, or while the answer to that is on
// its way. It reports whether there was such a script.
func kill(t *testing.T, p *process, n int, behind bool, call func(ctx context.Context) error) bool {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	p.interrupt.arm(n, behind, func() error {
		end()
		return ctx.Err()
	})
	err := call(ctx)
	died := p.interrupt.called()
	if died != (err != nil) {
		t.Fatalf("a call that was broken off (%v) returned %v", died, err)
	}
	return died
}

// survivors are the processes that go on after another one has died: one that knew the topic
// before, if it was there, and one that did not.
type survivors struct {
	t          *testing.T
	old, young *Store
	topic      string
	due        map[string]bool // pushed and not yet delivered
}

func (x *survivors) push(s *Store, name string) {
	x.t.Helper()
	for i := range 12 {
		id := fmt.Sprint(name, " ", i)
		rs, err := s.Push(x.t.Context(), []punctual.NewMessage{{Topic: x.topic, ID: id, Due: time.Unix(1, 0)}})
		if err != nil || rs[0].Err != nil || rs[0].Status != punctual.PushStored {
			x.t.Fatalf("P1: push of %s after another process has died: %+v, %v", id, rs, err)
		}
		x.due[id] = true
	}
}

// drain claims and acks all messages. Those in due must be among them.
func (x *survivors) drain(s *Store) {
	x.t.Helper()
	for {
		ds, err := s.Claim(x.t.Context(), punctual.Claim{Topics: []string{x.topic}, Max: 100})
		if err != nil {
			x.t.Fatal(err)
		}
		for _, d := range ds {
			ack(x.t, s, d)
			delete(x.due, d.ID)
		}
		if len(ds) == 0 {
			break
		}
	}
	for id := range x.due {
		x.t.Errorf("P1: %s was stored after another process had died, and is not delivered", id)
	}
}

// agree fails the test unless the topic has one of these numbers of partitions, and all partitions
// have the version of the settings that partition 0 has.
func (x *survivors) agree(partitions ...int) {
	x.t.Helper()
	set, err := x.young.Settings(x.t.Context(), x.topic)
	if err != nil {
		x.t.Fatal(err)
	}
	ok := false
	for _, n := range partitions {
		ok = ok || set.Partitions == n
	}
	if !ok {
		x.t.Errorf("the topic has %d partitions; want one of %v", set.Partitions, partitions)
	}
	var versions []int64
	for n := range set.Partitions {
		l, err := x.young.topics.Read(x.t.Context(), x.young.names.Partition(x.topic, n))
		if err != nil {
			x.t.Fatal(err)
		}
		if versions = append(versions, l.Version); l.Version != versions[0] || l.Settings().DedupeWindow != set.DedupeWindow {
			x.t.Errorf("P13: the partitions have versions %v of the settings; want one", versions)
		}
	}
	if st, err := x.young.Topics(x.t.Context()); err != nil || len(st) == 0 {
		x.t.Errorf("P1: after it all there are topics %v, %v", st, err)
	}
}

// forget deletes the topic, with its companions, because a scan of the store behind each of many
// deaths would go through the topics of all deaths before.
func (x *survivors) forget() {
	x.t.Helper()
	if _, err := x.young.DeleteTopic(x.t.Context(), x.topic); err != nil && !errors.Is(err, punctual.ErrNotFound) {
		x.t.Fatalf("deletion of %s after another process has died: %v", x.topic, err)
	}
}

// eachDeath runs a test for every script of a call at which its process may die.
func eachDeath(t *testing.T, prepare func(x *survivors), call func(ctx context.Context, s *Store, topic string) error, check func(x *survivors)) {
	prefix := fresh()
	dying := openProcess(t, prefix)
	open := func() *Store { return openStore(t, connect(t, shared), &Options{Prefix: prefix, Partitions: 3}) }
	old, young := open(), open()
	for _, behind := range []bool{false, true} {
		deaths := 0
		for n, died := 1, true; died; n++ {
			x := &survivors{t: t, old: old, young: young, topic: fmt.Sprint("t", n, "-", behind), due: make(map[string]bool)}
			prepare(x)
			if died = kill(t, dying, n, behind, func(ctx context.Context) error { return call(ctx, dying.Store, x.topic) }); died {
				deaths++
			}
			check(x)
			if t.Failed() {
				t.Fatalf("the process died at script %d, with the answer on its way: %v", n, behind)
			}
			x.forget()
		}
		if deaths < 3 { // each call has scripts for several partitions
			t.Errorf("this test shows nothing: the process died %d times", deaths)
		}
	}
}

// A change of settings that breaks off anywhere is finished by the next process, or has not
// begun; nothing is lost, and all partitions agree.
func TestKilledConfigure(t *testing.T) {
	before := func(x *survivors) { x.push(x.old, "before") }
	change := func(ctx context.Context, s *Store, topic string) error {
		keep := time.Hour
		_, err := s.Configure(ctx, topic, punctual.SettingsPatch{DedupeWindow: &keep})
		return err
	}
	eachDeath(t, before, change, func(x *survivors) {
		x.push(x.old, "old")
		x.push(x.young, "new")
		x.agree(3)
		x.drain(x.old)
	})
	// The first process that reads the settings finishes the change.
	eachDeath(t, before, change, func(x *survivors) {
		x.agree(3)
		x.push(x.old, "old")
		x.drain(x.old)
	})
}

// A topic whose creation by a Configure breaks off is there or not. The next push finishes the
// creation, or creates the topic.
func TestKilledCreation(t *testing.T) {
	eachDeath(t, func(*survivors) {}, func(ctx context.Context, s *Store, topic string) error {
		n := 6
		_, err := s.Configure(ctx, topic, punctual.SettingsPatch{Partitions: &n})
		return err
	}, func(x *survivors) {
		x.push(x.old, "old")
		x.push(x.young, "new")
		x.agree(3, 6)
		x.drain(x.young)
	})
}

// A deletion that breaks off anywhere may have removed some messages. Messages that are stored
// afterwards stay, also those of a process that still knows the old topic.
func TestKilledDeletion(t *testing.T) {
	eachDeath(t, func(x *survivors) {
		x.push(x.old, "before")
		x.due = make(map[string]bool)
	}, func(ctx context.Context, s *Store, topic string) error {
		_, err := s.DeleteTopic(ctx, topic)
		return err
	}, func(x *survivors) {
		x.push(x.old, "old")
		x.push(x.young, "new")
		x.agree(3)
		x.drain(x.young)
	})
}

// P1: a topic is made anew in front of any script of a deletion, and the process that deletes it
// dies in front of the next script. If the topic is there then, it is among the topics that are
// listed.
func TestKilledDeletionOfTopicMadeAnew(t *testing.T) {
	loadScripts(t, shared)
	for n := 1; ; n++ {
		prefix := fresh()
		deleter, other := openProcess(t, prefix), openStore(t, connect(t, shared), &Options{Prefix: prefix, Partitions: 1})
		push(t, other, punctual.NewMessage{ID: "old", Delay: time.Hour})
		ctx, end := context.WithCancel(t.Context())
		// The topic is made anew in front of a script, and the process dies in front of the next
		// one.
		deleter.interrupt.arm(n, false, func() error {
			push(t, other, punctual.NewMessage{ID: "new", Delay: time.Hour})
			deleter.interrupt.arm(1, false, func() error {
				end()
				return ctx.Err()
			})
			return nil
		})
		_, err := deleter.DeleteTopic(ctx, "orders")
		end()
		died := deleter.interrupt.called()
		if died != (err != nil) {
			t.Fatalf("a deletion that was broken off (%v) returned %v", died, err)
		}
		_, err = other.Get(t.Context(), "orders", "new")
		if all, err2 := other.Topics(t.Context()); err2 != nil || err == nil && len(all) != 1 {
			t.Errorf("P1: when the process died behind its script %d, a topic with a message is not listed: %v, %v", n, all, err2)
		}
		if !died {
			if n < 3 {
				t.Errorf("this test shows nothing: the deletion had %d scripts", n)
			}
			return
		}
	}
}

// One process deletes a topic again and again while another one pushes to it. No call fails, but
// that a deletion may find no topic, and every message that was pushed after the last deletion is
// delivered.
func TestDeletionsUnderLoad(t *testing.T) {
	prefix := fresh()
	open := func() *Store { return openStore(t, connect(t, shared), &Options{Prefix: prefix, Partitions: 3}) }
	deleter, pusher := open(), open()
	done, enough := make(chan error, 1), make(chan struct{})
	var deletions atomic.Int64
	go func() {
		for {
			_, err := deleter.DeleteTopic(context.Background(), "orders")
			select {
			case <-enough:
				done <- err
				return
			default:
			}
			if err != nil && !errors.Is(err, punctual.ErrNotFound) {
				done <- err
				return
			}
			if err == nil {
				deletions.Add(1)
			}
		}
	}()
	x := &survivors{t: t, topic: "orders", due: make(map[string]bool)}
	for i := 0; i < 8 || deletions.Load() < 4 && len(done) == 0; i++ {
		x.push(pusher, fmt.Sprint(i))
	}
	close(enough)
	if err := <-done; err != nil && !errors.Is(err, punctual.ErrNotFound) {
		t.Fatalf("P13: deletion under load: %v", err)
	}
	x.due = make(map[string]bool)
	x.push(pusher, "last")
	x.drain(deleter)
}
