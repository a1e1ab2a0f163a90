package answers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/answers"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// slow is a store whose pushes and claims do their work and then wait until the test lets them
// return.
type slow struct {
	*memstore.Store
	done chan struct{} // receives once a call was carried out
	pass chan struct{} // lets one answer go
}

func newSlow() *slow {
	return &slow{memstore.New(nil), make(chan struct{}), make(chan struct{})}
}

func (s *slow) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	rs, err := s.Store.Push(ctx, ms)
	s.done <- struct{}{}
	<-s.pass
	return rs, err
}

func (s *slow) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	ds, err := s.Store.Claim(ctx, c)
	s.done <- struct{}{}
	<-s.pass
	return ds, err
}

func request(key string) context.Context {
	return storekit.WithRequest(context.Background(), storekit.Request{Key: key})
}

var (
	one     = []punctual.NewMessage{{Topic: "t", ID: "a"}}
	claimed = punctual.Claim{Topics: []string{"t"}, Max: 10}
)

func push(t *testing.T, s punctual.Store, ms ...punctual.NewMessage) {
	t.Helper()
	rs, err := s.Push(context.Background(), ms)
	for _, r := range rs {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		t.Fatalf("push: %v", err)
	}
}

func claim(t *testing.T, s punctual.Store, ctx context.Context) []punctual.Delivery {
	t.Helper()
	ds, err := s.Claim(ctx, claimed)
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return ds
}

// TestCallerLeaves: a push continues after its caller has left, and a copy of the push gets its
// answer.
func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newSlow()
		s := answers.New(below, nil)
		ctx, leave := context.WithCancel(request("k"))
		left := make(chan error)
		go func() {
			_, err := s.Push(ctx, one)
			left <- err
		}()
		<-below.done // it was carried out
		leave()
		if err := <-left; !errors.Is(err, punctual.ErrIndeterminate) || !errors.Is(err, context.Canceled) {
			t.Errorf("the caller who left got %v", err)
		}
		go func() { below.pass <- struct{}{} }()
		rs, err := s.Push(request("k"), one)
		if err != nil || rs[0].Status != punctual.PushStored {
			t.Errorf("the copy got %v, %v; want stored", rs, err)
		}
		s.Drain()
	})
}

// TestClaimerLeaves: leases of a claim whose caller has left are released.
func TestClaimerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newSlow()
		s := answers.New(below, nil)
		push(t, below.Store, one...)
		ctx, leave := context.WithCancel(request("k"))
		left := make(chan error)
		go func() {
			_, err := s.Claim(ctx, claimed)
			left <- err
		}()
		<-below.done // it leased
		if info, err := below.Get(ctx, "t", "a"); err != nil || info.State != punctual.StateLeased {
			t.Fatalf("the claim under way left %v, %v; want it leased", info.State, err)
		}
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) || !punctual.Definite(err) {
			t.Errorf("the claimer who left got %v", err)
		}
		below.pass <- struct{}{}
		s.Drain()
		info, err := below.Get(context.Background(), "t", "a")
		if err != nil || info.State != punctual.StateReady || info.Attempt != 0 {
			t.Errorf("after its claimer left, the message is %v, attempt %d, %v; want ready and 0", info.State, info.Attempt, err)
		}
	})
}

// TestWaitingClaimEnds: a waiting claim ends when its last caller leaves.
func TestWaitingClaimEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := memstore.New(nil)
		s := answers.New(below, nil)
		waiting := claimed
		waiting.Wait = time.Hour
		ctx, leave := context.WithTimeout(request("k"), time.Second)
		defer leave()
		if _, err := s.Claim(ctx, waiting); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the claimer who left got %v", err)
		}
		s.Drain() // returns, because nothing waits any more
	})
}

// TestLateCopyEndsClaim: a late copy, which only asks for the result of a claim, ends the claim's
// wait.
func TestLateCopyEndsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answers.New(memstore.New(nil), nil)
		waiting := claimed
		waiting.Wait = time.Hour
		first := make(chan error)
		go func() {
			_, err := s.Claim(request("k"), waiting)
			first <- err
		}()
		synctest.Wait()
		late := storekit.WithRequest(context.Background(), storekit.Request{Key: "k", NotAfter: time.Now().Add(-time.Second)})
		if _, err := s.Claim(late, waiting); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the late copy got %v", err)
		}
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the claim that it ended got %v", err)
		}
	})
}

// TestAnswerAfterItsLease: leases that end before any caller got the answer are released, and their
// attempts do not count.
func TestAnswerAfterItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newSlow()
		s := answers.New(below, nil)
		push(t, below.Store, one...)
		go func() {
			<-below.done
			time.Sleep(time.Hour) // longer than the lease
			below.pass <- struct{}{}
		}()
		if ds := claim(t, s, request("k")); len(ds) != 0 {
			t.Errorf("a claim whose leases have ended returned %v", ds)
		}
		info, err := below.Get(context.Background(), "t", "a")
		if err != nil || info.State != punctual.StateReady || info.Attempt != 0 {
			t.Errorf("the message is %v, attempt %d, %v; want ready and 0", info.State, info.Attempt, err)
		}
	})
}

func TestUndelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := memstore.New(nil)
		s := answers.New(below, nil)
		state := func() punctual.State {
			info, err := below.Get(context.Background(), "t", "a")
			if err != nil {
				t.Fatal(err)
			}
			return info.State
		}
		undelivered := func(ctx context.Context, ds []punctual.Delivery) {
			if err := s.Undelivered(ctx, ds); err != nil {
				t.Fatal(err)
			}
		}
		push(t, s, one...)

		ds := claim(t, s, context.Background())
		undelivered(context.Background(), ds)
		if got := state(); got != punctual.StateReady {
			t.Errorf("after a claim without a key that was not delivered: %v", got)
		}

		ds = claim(t, s, request("k"))
		undelivered(request("k"), ds)
		if got := state(); got != punctual.StateReady {
			t.Errorf("after a claim that was not delivered: %v", got)
		}
		again := claim(t, s, request("k"))
		if len(again) != 1 || again[0].Token == ds[0].Token {
			t.Fatalf("the copy of a claim whose leases were released got %v; want a lease of its own", again)
		}

		claim(t, s, request("k")) // a copy has the answer now
		undelivered(request("k"), again)
		if got := state(); got != punctual.StateLeased {
			t.Errorf("after one of two answers of a claim was not delivered: %v", got)
		}
		undelivered(request("k"), again)
		if got := state(); got != punctual.StateReady {
			t.Errorf("after both answers of a claim were not delivered: %v", got)
		}
	})
}

// TestBound: at the bound, answers to claims are dropped first. Then new calls are refused until
// callers report their answers as received, or the time of the answers is over.
func TestBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answers.New(memstore.New(nil), &answers.Options{MaxBytes: 5000})
		push(t, s, punctual.NewMessage{Topic: "t", ID: "large", Body: make([]byte, 6000)})
		claim(t, s, request("claim"))
		if _, err := s.Push(request("0"), []punctual.NewMessage{{Topic: "t", ID: "m0"}}); err != nil {
			t.Fatalf("a push that needs the room of a claim's answer: %v", err)
		}
		if _, err := s.Claim(request("claim"), claimed); !errors.Is(err, punctual.ErrIndeterminate) {
			t.Errorf("a copy of a claim whose answer went: %v", err)
		}
		n := 0
		var err error
		for ; err == nil && n < 100; n++ {
			_, err = s.Push(request(fmt.Sprint("p", n)), []punctual.NewMessage{{Topic: "t", ID: fmt.Sprint(n)}})
		}
		if !errors.Is(err, punctual.ErrOverloaded) {
			t.Fatalf("%d pushes fill 5000 bytes and end with %v", n, err)
		}
		if rs, err := s.Push(request("p0"), []punctual.NewMessage{{Topic: "t", ID: "0"}}); err != nil || rs[0].Status != punctual.PushStored {
			t.Errorf("a copy of the first push, with no room left: %v, %v", rs, err)
		}
		s.Answered("p0", "unknown")
		if _, err := s.Push(request("new"), []punctual.NewMessage{{Topic: "t", ID: "new"}}); err != nil {
			t.Errorf("a push after an answer was forgotten: %v", err)
		}
		if _, err := s.Push(request("more"), []punctual.NewMessage{{Topic: "t", ID: "more"}}); !errors.Is(err, punctual.ErrOverloaded) {
			t.Errorf("a push with no room left: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := s.Push(request("later"), []punctual.NewMessage{{Topic: "t", ID: "later"}}); err != nil {
			t.Errorf("a push after the answers' time is over: %v", err)
		}
	})
}

// TestAnswersAreForgotten: after Repeats a key is free.
func TestAnswersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answers.New(memstore.New(nil), &answers.Options{Keep: time.Second})
		for i, want := range []punctual.PushStatus{punctual.PushStored, punctual.PushStored, punctual.PushDuplicate} {
			rs, err := s.Push(request("k"), one)
			if err != nil || rs[0].Status != want {
				t.Errorf("push %d: %v, %v; want %v", i, rs, err, want)
			}
			if i == 1 {
				time.Sleep(time.Second)
			}
		}
	})
}

// TestAnswersAreForgottenAfterAStep: an answer of a call that ended while the clock was ahead is
// kept for Repeats after the step, and no longer. Otherwise answers fill the memory until the clock
// is there again.
func TestAnswersAreForgottenAfterAStep(t *testing.T) {
	clock := storekit.NewManualClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	below := memstore.New(&memstore.Options{Clock: clock})
	s := answers.New(below, &answers.Options{Keep: time.Minute})
	ask := func(key, id string, want punctual.PushStatus) {
		t.Helper()
		rs, err := s.Push(request(key), []punctual.NewMessage{{Topic: "t", ID: id}})
		if err != nil || rs[0].Status != want {
			t.Errorf("push of %s with the key %s: %v, %v; want %v", id, key, rs, err, want)
		}
	}
	clock.Advance(365 * 24 * time.Hour)
	ask("ahead", "a", punctual.PushStored)
	ask("ahead-too", "b", punctual.PushStored)
	clock.Advance(-365 * 24 * time.Hour)
	if c, err := below.StepClock(t.Context()); err != nil || c.Steps != 1 {
		t.Fatal(c, err)
	}
	ask("ahead", "a", punctual.PushStored) // the answer that is kept
	clock.Advance(59 * time.Second)
	ask("ahead-too", "b", punctual.PushStored)
	ask("after", "c", punctual.PushStored)
	clock.Advance(time.Second)
	ask("ahead", "a", punctual.PushDuplicate) // the key is free
	ask("ahead-too", "b", punctual.PushDuplicate)
	ask("after", "c", punctual.PushStored)
}

// TestOtherCalls: a call is refused if it differs from the one with the same key: in its kind, in
// the number of its messages or in a field of one. A due time in another zone is no difference.
func TestOtherCalls(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	pushes := map[string]punctual.NewMessage{
		"topic": {Topic: "u", ID: "a"}, "id": {Topic: "t", ID: "b"}, "shifted": {Topic: "ta", ID: ""},
		"body": {Topic: "t", ID: "a", Body: []byte("b")}, "header": {Topic: "t", ID: "a", Headers: map[string]string{"h": "v"}},
		"due": {Topic: "t", ID: "a", Due: at}, "delay": {Topic: "t", ID: "a", Delay: 1},
		"attempts": {Topic: "t", ID: "a", MaxAttempts: 1}, "expiry": {Topic: "t", ID: "a", ExpireAfter: 1},
		"drop": {Topic: "t", ID: "a", DropExpired: true}, "exists": {Topic: "t", ID: "a", IfExists: punctual.IfExistsFail},
	}
	s := answers.New(memstore.New(nil), nil)
	if _, err := s.Push(request("k"), one); err != nil {
		t.Fatal(err)
	}
	refused := func(name string, err error) {
		if !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "another call") {
			t.Errorf("another %s with the same key: %v", name, err)
		}
	}
	for name, m := range pushes {
		_, err := s.Push(request("k"), []punctual.NewMessage{m})
		refused(name, err)
	}
	_, err := s.Push(request("k"), append(one, one...))
	refused("number of messages", err)
	_, err = s.Claim(request("k"), claimed)
	refused("kind, a claim,", err)
	_, err = s.Settle(request("k"), []punctual.Settlement{{Topic: "t", ID: "a", Verb: punctual.SettleAck}})
	refused("kind, a settlement,", err)
	_, err = s.Amend(request("k"), []punctual.Amendment{{Topic: "t", ID: "a", Change: punctual.ChangeCancel}})
	refused("kind, an amendment,", err)
	local := time.FixedZone("elsewhere", 3600)
	for _, when := range []time.Time{at, at.In(local)} { // the same instant is the same call
		if _, err := s.Push(request("due"), []punctual.NewMessage{{Topic: "t", ID: "due", Due: when}}); err != nil {
			t.Errorf("push due at %v: %v", when, err)
		}
	}
}

// waiting is a store whose settlements wait before they are carried out.
type waiting struct {
	punctual.Store
	entered, pass chan struct{}
}

func (w waiting) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	w.entered <- struct{}{}
	<-w.pass
	return w.Store.Settle(ctx, ss)
}

// TestFollowUpsAreCopied: a caller that has left may change its follow-ups, and the store stores
// them as they were.
func TestFollowUpsAreCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := memstore.New(nil)
		defer below.Close()
		w := waiting{below, make(chan struct{}), make(chan struct{})}
		s := answers.New(w, nil)
		if _, err := s.Push(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		d := claim(t, s, t.Context())[0]
		follow := punctual.NewMessage{Topic: "b", ID: "1", Body: []byte("x"), Headers: map[string]string{"h": "v"}}
		ss := []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck, Then: []punctual.NewMessage{follow}}}
		ctx, leave := context.WithCancel(request("k"))
		left := make(chan error)
		go func() {
			_, err := s.Settle(ctx, ss)
			left <- err
		}()
		<-w.entered
		leave()
		if err := <-left; !errors.Is(err, punctual.ErrIndeterminate) {
			t.Errorf("the caller who left got %v", err)
		}
		follow.Body[0], follow.Headers["h"], ss[0].Then[0].ID = 'y', "w", "2"
		close(w.pass)
		s.Drain()
		if m, err := below.Get(t.Context(), "b", "1"); err != nil || string(m.Body) != "x" || m.Headers["h"] != "v" {
			t.Errorf("stored is %q with %v, %v", m.Body, m.Headers, err)
		}
	})
}
