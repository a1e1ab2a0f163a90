package diskstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// longAgo is a due time in the past of every machine's clock, for messages that must be due at
// once: one without a due time may be due up to a millisecond later.
var longAgo = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// ackWith acks a message with follow-ups, and returns the answer of the item.
func ackWith(t *testing.T, s punctual.Store, d punctual.Delivery, then ...punctual.NewMessage) error {
	t.Helper()
	errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck, Then: then}})
	if err != nil {
		t.Fatalf("settle: %v", err)
	}
	return errs[0]
}

// stateOf returns the state of a message, StateNone if there is none.
func stateOf(t *testing.T, s punctual.Inspector, topic, id string) punctual.State {
	t.Helper()
	i, err := s.Get(t.Context(), topic, id)
	if err != nil && !errors.Is(err, punctual.ErrNotFound) {
		t.Fatal(err)
	}
	return i.State
}

// TestFollowUpsNeedSpace: with too little space a settlement with follow-ups is refused as a push
// is, and an ack without any passes.
func TestFollowUpsNeedSpace(t *testing.T) {
	free := uint64(1 << 30)
	s := openAt(t, t.TempDir(), &Options{fs: scaleFS{vfs.Default, &free}, ReserveBytes: 100 << 20})
	push(t, s, punctual.NewMessage{Topic: "o", ID: "a", Due: longAgo}, punctual.NewMessage{Topic: "o", ID: "b", Due: longAgo})
	ds := claim(t, s, "o", 2)
	atomic.StoreUint64(&free, 99<<20)
	s.owned.ForgetSpace()
	err := ackWith(t, s, ds[0], punctual.NewMessage{Topic: "p", ID: "next"})
	if !errors.Is(err, punctual.ErrNoSpace) || !punctual.Definite(err) || !strings.HasPrefix(err.Error(), "follow-up 1: ") {
		t.Errorf("an ack with a follow-up and too little space: %v; want ErrNoSpace of follow-up 1", err)
	}
	if state := stateOf(t, s, "o", "a"); state != punctual.StateLeased {
		t.Errorf("the message whose ack was refused is %s, want leased", state)
	}
	stale := ds[0]
	stale.Token++
	if err := ackWith(t, s, stale, punctual.NewMessage{Topic: "p", ID: "next"}); !errors.Is(err, punctual.ErrLeaseLost) {
		t.Errorf("the same with a stale token: %v; want ErrLeaseLost, which is judged first", err)
	}
	for _, d := range ds {
		if err := settle(t, s, d, punctual.SettleAck); err != nil {
			t.Errorf("a plain ack with too little space: %v", err)
		}
	}
	if r := mustBeSound(t, s); r.Live != 0 || r.Topics != 1 {
		t.Errorf("%d messages in %d topics; the refused ack was to leave none in 1", r.Live, r.Topics)
	}
}

// TestFollowUpsWakeClaims: a claim that waits for the topic of a follow-up gets it, also when there
// was no such topic.
func TestFollowUpsWakeClaims(t *testing.T) {
	s := openAt(t, t.TempDir(), nil)
	push(t, s, punctual.NewMessage{Topic: "o", ID: "a", Due: longAgo})
	d := claim(t, s, "o", 1)[0]
	got := make(chan error, 3)
	for _, topic := range []string{"o", "p", "o@next"} {
		go func() {
			ds, err := s.Claim(context.Background(), punctual.Claim{Topics: []string{topic}, Max: 1, Wait: time.Hour})
			if err == nil && len(ds) != 1 {
				err = fmt.Errorf("%d deliveries from %s", len(ds), topic)
			}
			got <- err
		}()
	}
	waitUntil(t, "three claims wait", func() bool {
		s.waiters.mu.Lock()
		defer s.waiters.mu.Unlock()
		return len(s.waiters.byTopic) == 3
	})
	if err := ackWith(t, s, d, punctual.NewMessage{Topic: "o"}, punctual.NewMessage{Topic: "p"}, punctual.NewMessage{Topic: "o@next"}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		select {
		case err := <-got:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(waitLimit):
			t.Fatal("P11: a claim sleeps although a follow-up is due in its topic")
		}
	}
}

// TestAckedBesideAFollowUp: an ack needs no write lock. So a message may be acked when a settlement
// has already decided on a follow-up because of that message, and then the decision does not hold
// any more.
func TestAckedBesideAFollowUp(t *testing.T) {
	changed := errors.New("changed") // stands for ErrChanged, and nil for a settlement that passes
	for _, c := range []struct {
		name   string
		follow punctual.NewMessage
		want   error
	}{
		{"kept before", punctual.NewMessage{}, nil},
		{"replaced", punctual.NewMessage{IfExists: punctual.IfExistsReplace}, nil},
		{"replaced if due", punctual.NewMessage{IfExists: punctual.IfExistsReplace, IfDue: longAgo}, changed},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, s, _, d := leasedStore(t)
			defer closeStore(t, s)
			push(t, s, punctual.NewMessage{Topic: "o", ID: "b", Due: longAgo})
			other := claim(t, s, "o", 1)[0]
			c.follow.Topic, c.follow.ID, c.follow.Delay = "o", "b", time.Hour
			st := punctual.Settlement{Topic: "o", ID: "a", Token: d.Token, Verb: punctual.SettleAck, Then: []punctual.NewMessage{c.follow}}
			looks, err := s.lookUpFollowUps([]punctual.Settlement{st})
			if err != nil {
				t.Fatal(err)
			}
			defer looks.close()
			err = s.writer.Do(t.Context(), func(tx *writer.Tx) error {
				h, _ := s.index.Holder(&st)
				follow, result, err := decideFollowUps(tx, &st, 0, lifecycle.Holder{}, looks)
				if result != nil || err != nil {
					t.Errorf("decided before the ack: %v, %v", result, err)
				}
				if err := settle(t, s, other, punctual.SettleAck); err != nil {
					t.Errorf("ack of the other: %v", err)
				}
				if _, _, ok := follow.detach(tx, h); ok {
					t.Error("P7: what was decided because of a message holds although the message was acked")
				}
				var told settled
				result, err = s.settleOne(tx, 0, &st, &told, looks)
				if errors.Is(result, punctual.ErrChanged) {
					result = changed
				}
				if err != nil || !errors.Is(result, c.want) {
					t.Errorf("settled after the ack: %v, %v; want %v", result, err, c.want)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			a, b := punctual.StateNone, punctual.StateScheduled
			if c.want != nil {
				a, b = punctual.StateLeased, punctual.StateNone
			}
			if got := stateOf(t, s, "o", "a"); got != a {
				t.Errorf("the settled message is %q, want %q", got, a)
			}
			if got := stateOf(t, s, "o", "b"); got != b {
				t.Errorf("the follow-up is %q, want %q", got, b)
			}
			mustBeSound(t, s)
		})
	}
}

// TestFollowUpsBesideAcks is the same with goroutines: an ack comes at any moment of a settlement
// whose follow-up replaces the acked message in every other round, and keeps it in the others.
func TestFollowUpsBesideAcks(t *testing.T) {
	s := openAt(t, "store", memOptions(vfs.NewMem()))
	met := 0
	for i := range 500 {
		push(t, s, punctual.NewMessage{Topic: "o", ID: "a", Due: longAgo}, punctual.NewMessage{Topic: "o", ID: "b", Due: longAgo.Add(time.Millisecond)})
		ds := claim(t, s, "o", 2)
		if len(ds) != 2 {
			t.Fatalf("claimed %+v", ds)
		}
		acked := make(chan error, 1)
		go func() {
			errs, err := s.Settle(context.Background(), settlement(ds[1], punctual.SettleAck))
			acked <- errors.Join(append(errs, err)...)
		}()
		follow := punctual.NewMessage{Topic: "o", ID: "b", Body: []byte("new"), Due: longAgo.Add(time.Millisecond)}
		if i%2 == 0 {
			follow.IfExists = punctual.IfExistsReplace
		}
		if err := ackWith(t, s, ds[0], follow); err != nil {
			t.Fatal(err)
		}
		ack := <-acked
		got := claim(t, s, "o", 10)
		// If the ack of b came first, the follow-up is stored. If the follow-up came first, either
		// it took the place of b and the ack was too late, or b was kept and acked afterwards.
		switch kept := follow.IfExists == punctual.IfExistsKeep; {
		case len(got) == 1 && string(got[0].Body) == "new" && ack == nil:
			met++
		case len(got) == 1 && string(got[0].Body) == "new" && !kept && errors.Is(ack, punctual.ErrLeaseLost):
		case len(got) == 0 && kept && ack == nil:
		default:
			t.Fatalf("P4, P7: beside an ack with %v a follow-up left %+v, kept before: %v", ack, got, kept)
		}
		settleAll(t, s, got, punctual.SettleAck)
	}
	mustBeSound(t, s)
	t.Logf("%d acks came first", met)
}

// TestCompanionsGoWithTheirTopic: a push to a companion makes its topic, too, and both are there
// after a kill. The deletion of the topic deletes its companions in the same transaction. A topic
// whose name is only a part of the deleted one's stays.
func TestCompanionsGoWithTheirTopic(t *testing.T) {
	k := newKillRig(t)
	longest := strings.Repeat("t", limits.MaxTopicBytes)
	family := []string{longest + "@" + strings.Repeat("c", limits.MaxCompanionBytes), longest + "@a"}
	names := func(s *Store, q storekit.NameQuery) []string {
		names, err := s.TopicNames(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	push(t, k, punctual.NewMessage{Topic: family[0], ID: "a", Delay: time.Hour})
	push(t, k, punctual.NewMessage{Topic: family[1], ID: "a"}, punctual.NewMessage{Topic: longest[1:] + "@a", ID: "a"}, punctual.NewMessage{Topic: longest[1:], ID: "a"})
	s := k.reopened(k.killed())
	want := []string{longest[1:], longest[1:] + "@a", longest, family[1], family[0]}
	slices.Sort(want)
	if got := names(s, storekit.NameQuery{}); !slices.Equal(got, want) {
		t.Errorf("topics behind a kill are %q, want %q", got, want)
	}
	if got := names(s, storekit.NameQuery{Prefix: longest + "@", Suffix: "a"}); !slices.Equal(got, family[1:]) {
		t.Errorf("the companions a of one topic are %q, want %q", got, family[1:])
	}
	if ds := claim(t, s, family[0], 1); len(ds) != 1 || ds[0].Topic != family[0] {
		t.Errorf("P1: from the companion with the longest name came %+v", ds)
	}
	before := s.db.LastTxn()
	if n, err := s.DeleteTopic(t.Context(), longest); err != nil || n != 2 {
		t.Errorf("a topic with its companions had %d messages, %v; want 2", n, err)
	}
	if made := s.db.LastTxn() - before; made != 1 {
		t.Errorf("a topic and its companions were deleted in %d transactions, want 1", made)
	}
	if got := names(s, storekit.NameQuery{}); !slices.Equal(got, want[:2]) {
		t.Errorf("%q are left, want %q", got, want[:2])
	}
	if r := mustBeSound(t, s); r.Topics != 2 || r.Live != 2 {
		t.Errorf("%d messages in %d topics are left, want 2 in 2", r.Live, r.Topics)
	}
}

// TestCheckFindsACompanionAlone: Check reports a companion without its topic, because no deletion
// of the topic would delete it.
func TestCheckFindsACompanionAlone(t *testing.T) {
	s := openAt(t, "store", memOptions(vfs.NewMem()))
	push(t, s, punctual.NewMessage{Topic: "o@next", ID: "a", Delay: time.Hour})
	mustBeSound(t, s)
	err := s.writer.Do(t.Context(), func(tx *writer.Tx) error {
		tx.DeleteTopic(s.topics.Get("o"), nil)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Check(t.Context(), nil)
	if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "topic o@next: there is no topic o") {
		t.Errorf("a companion without its topic: %q, %v", r.Problems, err)
	}
}

// TestManyCompanionsAreDeletedInASmallTransaction: of more companions than familyKeys allows to
// read, some are deleted by ranges, so that the transaction stays small.
func TestManyCompanionsAreDeletedInASmallTransaction(t *testing.T) {
	r := newSweepRig(t)
	const companions, each = familyKeys/1000 + 5, 500
	for i := range companions {
		ms := make([]punctual.NewMessage, each)
		for j := range ms {
			ms[j] = punctual.NewMessage{Topic: fmt.Sprintf("o@%d", i), ID: fmt.Sprint(j), Delay: time.Hour}
		}
		push(t, r.Store, ms...)
	}
	if n, err := r.DeleteTopic(t.Context(), "o"); err != nil || n != companions*each {
		t.Errorf("%d messages were deleted, %v; want %d", n, err, companions*each)
	}
	if ranges := r.db.DeletedRanges(); ranges == 0 || ranges > 5*companions {
		t.Errorf("%d ranges were deleted in %d topics", ranges, companions)
	}
	if rep := mustBeSound(t, r.Store); rep.Live+rep.Topics != 0 {
		t.Errorf("after the deletion of the only family: %+v", rep)
	}
}

// TestTopicNumbersRunOutForFollowUps: a settlement whose follow-ups need more topics than the store
// has numbers for changes nothing, and the topics for which there would be numbers are not made.
func TestTopicNumbersRunOutForFollowUps(t *testing.T) {
	mem, clock := vfs.NewCrashableMem(), storekit.NewManualClock(testStart)
	closeStore(t, openAt(t, "store", &Options{fs: mem, Clock: clock}))
	setMeta(t, mem, "store", map[string]uint64{"topic": lastTopic - 2})
	s := openAt(t, "store", &Options{fs: mem, Clock: clock})
	push(t, s, punctual.NewMessage{Topic: "o", ID: "a"})
	d := claim(t, s, "o", 1)[0]
	err := ackWith(t, s, d, punctual.NewMessage{Topic: "o", ID: "b"}, punctual.NewMessage{Topic: "p"}, punctual.NewMessage{Topic: "q@next"})
	if !errors.Is(err, punctual.ErrNoSpace) || !strings.HasPrefix(err.Error(), "follow-up 2: ") {
		t.Errorf("follow-ups for three topics where there are numbers for two: %v; want ErrNoSpace of follow-up 2", err)
	}
	if rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "p"}, {Topic: "q@next"}}); err != nil || rs[0].Err != nil || !errors.Is(rs[1].Err, punctual.ErrNoSpace) {
		t.Errorf("pushed to p: %v, %v; to a companion, which needs two topics: %v; want ErrNoSpace", rs[0].Err, err, rs[1].Err)
	}
	if err := ackWith(t, s, d, punctual.NewMessage{Topic: "o", ID: "b"}, punctual.NewMessage{Topic: "q"}); err != nil {
		t.Errorf("a follow-up for the last topic: %v", err)
	}
	if r := mustBeSound(t, s); r.Topics != 3 || r.Live != 3 {
		t.Errorf("%d messages in %d topics, want 3 in 3", r.Live, r.Topics)
	}
}

// TestFollowUpForgetsARememberedID: a follow-up that takes a remembered ID anew leaves nothing of
// the finished message, so the ID is free when the follow-up is purged. That holds for the ID of
// another message and for the one of the acked message itself.
func TestFollowUpForgetsARememberedID(t *testing.T) {
	s := openAt(t, "store", memOptions(vfs.NewMem()))
	if _, err := s.Configure(t.Context(), "o", punctual.SettingsPatch{DedupeWindow: ptr(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	again := func(id string) punctual.PushResult {
		t.Helper()
		return push(t, s, punctual.NewMessage{Topic: "o", ID: id, Due: longAgo})[0]
	}
	again("b")
	settleAll(t, s, claim(t, s, "o", 1), punctual.SettleAck)
	if r := again("b"); r.Status != punctual.PushDuplicate {
		t.Fatalf("P7: the finished ID is not remembered: %+v", r)
	}
	again("a")
	follow := []punctual.NewMessage{{Topic: "o", ID: "b", Due: longAgo, IfExists: punctual.IfExistsReplace}, {Topic: "o", ID: "a", Due: longAgo, IfExists: punctual.IfExistsReplace}}
	if err := ackWith(t, s, claim(t, s, "o", 1)[0], follow...); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: "o", State: punctual.StateReady}); err != nil || n != 2 {
		t.Fatalf("purged %d, %v; want both follow-ups", n, err)
	}
	for _, id := range []string{"a", "b"} {
		if r := again(id); r.Status != punctual.PushStored {
			t.Errorf("P7: %s, which was purged, is still remembered of an earlier message: %+v", id, r)
		}
	}
}
