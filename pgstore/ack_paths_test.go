package pgstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// P7: what stays of an acked message does not depend on the path by which its ack begins. The store
// remembers that path for each topic, and what it remembers may be out of date.
func TestAcksByEachPath(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	hour := time.Hour
	for kind, set := range map[string]punctual.SettingsPatch{
		"plain":  {},
		"own":    {},
		"window": {DedupeWindow: &hour},
		"record": {FinishedRetention: &hour},
		"both":   {DedupeWindow: &hour, FinishedRetention: &hour},
	} {
		if _, err := s.Configure(t.Context(), kind, set); err != nil {
			t.Fatal(err)
		}
		remembers := kind == "own" || set.DedupeWindow != nil
		for _, path := range []ackPath{ackRemoves, ackKeeps, ackTells} {
			for round := range 2 { // the second ack takes the path that the store has learned by the first
				id := fmt.Sprint(path, round)
				m := punctual.NewMessage{Topic: kind, ID: id, Due: longDue}
				if kind == "own" {
					m.Remember = hour
				}
				if rs, err := s.Push(t.Context(), []punctual.NewMessage{m}); err != nil || rs[0].Err != nil {
					t.Fatal(rs, err)
				}
				ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{kind}, Max: 1, Lease: time.Hour})
				if err != nil || len(ds) != 1 {
					t.Fatal(ds, err)
				}
				if round == 0 {
					s.acks.set(kind, path)
				}
				ackAll(t, s, ds...)
				if _, err := s.Get(t.Context(), kind, id); !errors.Is(err, punctual.ErrNotFound) {
					t.Errorf("%s, path %d: an acked message: %v; want not found", kind, path, err)
				}
				if _, err := s.Finished(t.Context(), kind, id); (err == nil) != (set.FinishedRetention != nil) {
					t.Errorf("%s, path %d: the finished record: %v", kind, path, err)
				}
				want := punctual.PushStored
				if remembers {
					want = punctual.PushDuplicate
				}
				m.Due, m.Delay = time.Time{}, time.Hour
				if rs, err := s.Push(t.Context(), []punctual.NewMessage{m}); err != nil || rs[0].Status != want {
					t.Errorf("P7: %s, path %d: push of the ID of an acked message: %v, %v; want %v", kind, path, rs, err, want)
				}
			}
		}
	}
	wantNoProblem(t, s)
}

// The path that a store remembers for a topic follows the topic's settings and its messages, and
// goes back to ackRemoves where nothing is to be kept any more.
func TestAckPaths(t *testing.T) {
	var p ackPaths
	step := func(what string, do func(), want ackPath) {
		t.Helper()
		if do(); p.of("t") != want || p.of("other") != ackRemoves {
			t.Errorf("behind %s the path is %d, that of another topic %d; want %d and %d", what, p.of("t"), p.of("other"), want, ackRemoves)
		}
	}
	learn := func(path ackPath) func() { return func() { p.learn("t", path) } }
	step("nothing", func() {}, ackRemoves)
	step("a message that is remembered", func() { p.keeps("t") }, ackKeeps)
	step("settings that ask for nothing", learn(ackRemoves), ackKeeps)
	step("an ack that kept nothing", func() { p.keepsNot("t") }, ackRemoves)
	step("a window", learn(ackKeeps), ackKeeps)
	step("a topic that tells", learn(ackTells), ackTells)
	step("a message that is remembered there", func() { p.keeps("t") }, ackTells)
	step("an ack that kept nothing there", func() { p.keepsNot("t") }, ackTells)
	step("a topic that tells no more", learn(ackRemoves), ackRemoves)
	for want, set := range map[ackPath]punctual.Settings{
		ackRemoves: {Emit: punctual.EventDead}, ackKeeps: {FinishedRetention: time.Hour}, ackTells: {Emit: punctual.EventAcked, DedupeWindow: time.Hour},
	} {
		if got := pathOf(&set); got != want {
			t.Errorf("settings %+v ask for path %d; want %d", set, got, want)
		}
	}
}
