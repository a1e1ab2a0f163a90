package pgstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// P7: what stays of an acked message does not depend on whether ack.sql or a transaction carries
// the ack out. What the store remembers of a topic that tells of acks may be out of date.
func TestAcksByEachWay(t *testing.T) {
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
		for _, transaction := range []bool{false, true} {
			for round := range 2 { // the second ack takes the way that the store has learned by the first
				id := fmt.Sprint(transaction, round)
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
					s.db.acks.learn(kind, transaction)
				}
				ackAll(t, s, ds...)
				if _, err := s.Get(t.Context(), kind, id); !errors.Is(err, punctual.ErrNotFound) {
					t.Errorf("%s, by a transaction %v: an acked message: %v; want not found", kind, transaction, err)
				}
				if _, err := s.Finished(t.Context(), kind, id); (err == nil) != (set.FinishedRetention != nil) {
					t.Errorf("%s, by a transaction %v: the finished record: %v", kind, transaction, err)
				}
				want := punctual.PushStored
				if remembers {
					want = punctual.PushDuplicate
				}
				m.Due, m.Delay = time.Time{}, time.Hour
				if rs, err := s.Push(t.Context(), []punctual.NewMessage{m}); err != nil || rs[0].Status != want {
					t.Errorf("P7: %s, by a transaction %v: push of the ID of an acked message: %v, %v; want %v", kind, transaction, rs, err, want)
				}
			}
		}
	}
	wantNoProblem(t, s)
}
