package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// P13: when no copy gets an answer, the error says that it may have happened, also when the
// last try was certainly refused.
func TestNoAnswerAtAll(t *testing.T) {
	server := redisrig.Start(t)
	s, p := openBehind(t, server, nil)
	push(t, s, punctual.NewMessage{ID: "there", Delay: time.Hour})
	for name, lose := range map[string]func() (faults []*redisrig.Fault){
		"every answer lost": func() []*redisrig.Fault { return []*redisrig.Fault{p.Lose(route.Tries, runs(script.Push))} },
		"then out of reach": func() []*redisrig.Fault {
			return []*redisrig.Fault{p.Lose(1, runs(script.Push)), p.Unreachable()}
		},
	} {
		faults := lose()
		m := []punctual.NewMessage{{Topic: "orders", ID: name, Delay: time.Hour}}
		_, err := s.Push(t.Context(), m)
		wantIndeterminate(t, "push, "+name, err)
		for _, f := range faults {
			f.Happened()
			f.End()
		}
		if rs, err := s.Push(t.Context(), m); err != nil || rs[0].Status != punctual.PushDuplicate {
			t.Errorf("P7: %s: the same push again = %+v, %v; want a duplicate", name, rs, err)
		}
	}
}

// P3: a copy of a claim that arrives after another one changes nothing. It gets the answer of the
// other, and an error when the slot has gone on to the next call.
func TestLateCopy(t *testing.T) {
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), nil)
	p := s.names.Partition("orders", 0)
	push(t, s, punctual.NewMessage{ID: "a", Due: time.Unix(1, 0)}, punctual.NewMessage{ID: "b", Due: time.Unix(2, 0)})
	deadline := s.clock.Deadline(t.Context(), route.CallTime)
	claim := func(number, again int) ([]any, error) {
		h := script.Header{Seconds: -1, Number: int64(number), Deadline: deadline}
		args := []any{h.Pack(again == 1), "somebody", 1, 0, script.Bytes, "0"}
		once := &script.Script{Name: "claim", Text: script.Claim.Text, SHA: script.Claim.SHA}
		var names []any
		for _, key := range append(p.Keys(), p.Records(0), p.Records(1)) {
			names = append(names, key)
		}
		return s.route.Send(t.Context(), once, names, args)
	}
	ids := func(items []any) string {
		const before = 7 // what stands before the IDs
		r := script.Reader{Items: items[min(before, len(items)):]}
		return strings.Join(r.List(), " ")
	}
	for _, again := range []int{0, 1, 0} {
		if items, err := claim(1, again); err != nil || ids(items) != "a" {
			t.Fatalf("P3: a copy claimed %q, %v; want a", ids(items), err)
		}
	}
	if items, err := claim(2, 0); err != nil || ids(items) != "b" {
		t.Fatalf("the next call claimed %q, %v; want b", ids(items), err)
	}
	push(t, s, punctual.NewMessage{ID: "x", Due: time.Unix(1, 0)})
	if items, err := claim(1, 0); err == nil || !strings.Contains(err.Error(), "PUNCTUAL_LATE") {
		t.Errorf("P3: a late copy = %v, %v; want an error", items, err)
	}
	if d := claimOne(t, s, 0); d.ID != "x" {
		t.Errorf("claimed %s; want x", d.ID)
	}
	// The copy that was sent again found nothing. The first one, which comes later, must not lease
	// for nobody.
	if items, err := claim(3, 1); err != nil || ids(items) != "" {
		t.Fatalf("claimed %q, %v; want nothing", ids(items), err)
	}
	push(t, s, punctual.NewMessage{ID: "c", Due: time.Unix(1, 0)})
	if items, err := claim(3, 0); err != nil || ids(items) != "" {
		t.Errorf("P3: a late copy claimed %q, %v; want nothing", ids(items), err)
	}
	if d := claimOne(t, s, 0); d.ID != "c" {
		t.Errorf("claimed %s; want c", d.ID)
	}
}

// P3: a script that is answered again gives the claim what it has leased and still holds, and
// leases nothing more. The next message comes from another script of the claim, under another
// lease.
func TestClaimAnsweredAgainAfterChanges(t *testing.T) {
	server := redisrig.Start(t)
	other := openStore(t, connect(t, server), nil)
	s, p := openBehind(t, server, nil)
	for i, id := range []string{"acked", "cancelled", "damaged", "replaced", "retried", "untouched", "next"} {
		push(t, other, punctual.NewMessage{ID: id, Due: time.Unix(int64(1+i), 0)})
	}
	lost := p.Lose(1, runs(script.Claim)).Paused()
	sent := p.Count(runs(script.Claim))
	got := begin(func() (string, error) {
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 6})
		var ids []string
		for _, d := range ds {
			ids = append(ids, fmt.Sprint(d.ID, " ", d.Token, " ", d.Attempt))
		}
		return strings.Join(ids, ", "), err
	})
	lost.Await()
	keys := other.names.Partition("orders", 0).Keys()
	token, err := strconv.ParseInt(do(t, server, "HGET", keys[6], "token"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	ss := []punctual.Settlement{
		{Topic: "orders", ID: "acked", Token: token, Verb: punctual.SettleAck},
		{Topic: "orders", ID: "retried", Token: token, Verb: punctual.SettleRetry, Delay: time.Hour},
	}
	if errs, err := other.Settle(t.Context(), ss); err != nil || errs[0] != nil || errs[1] != nil {
		t.Fatalf("settle what the lost answer has leased: %v, %v", errs, err)
	}
	push(t, other, punctual.NewMessage{ID: "replaced", Delay: time.Hour, IfExists: punctual.IfExistsReplace})
	if out, err := other.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: "cancelled"}}); err != nil || !errors.Is(out[0].Err, punctual.ErrLeased) {
		t.Fatalf("cancel: %+v, %v; want ErrLeased", out, err)
	}
	do(t, server, "HDEL", keys[4], "damaged")
	lost.Resume()
	a := <-got
	still := fmt.Sprintf("cancelled %d 1, untouched %d 1, next ", token, token)
	if a.err != nil || !strings.HasPrefix(a.text, still) || strings.Contains(a.text, fmt.Sprint("next ", token)) {
		t.Errorf("P3: the claim that was answered again returned %q, %v; want %q by another script and lease", a.text, a.err, still)
	}
	if n := sent.Seen(); n != 3 {
		t.Errorf("claim was sent %d times; want the first copy, the second one, and one for the next message", n)
	}
}

// P3: a claim that is answered again tells when the lease began, not when it was asked again. When
// the lease has run out by then, the message is given back unstarted, and claimed anew. Behind the
// deadline of the call somebody may have been given the answer, so the attempt counts (P6).
func TestClaimAnsweredAgainLater(t *testing.T) {
	server := redisrig.Start(t)
	for _, c := range []struct {
		name          string
		lease, passed time.Duration // passed is the time from the first copy to the second
		from          time.Duration // from the first copy to the beginning of the lease
		attempt       string
	}{
		{"under the lease", time.Minute, 59 * time.Second, 0, "1"},
		{"when the lease has run out", 10 * time.Second, 10 * time.Second, 10 * time.Second, "1"},
		{"behind the deadline", time.Minute, time.Minute, time.Minute, "2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Unix(1_800_000_000, 0)
			clock := storekit.NewManualClock(start)
			o := &Options{Prefix: fresh(), clock: clock}
			s, p := openBehind(t, server, o)
			other := openStore(t, connect(t, server), o)
			push(t, s, punctual.NewMessage{ID: "a", Due: time.Unix(1, 0)})
			lost := p.Lose(1, runs(script.Claim)).Paused()
			got := begin(func() (string, error) {
				ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 2, Lease: c.lease})
				var text []string
				for _, d := range ds {
					text = append(text, fmt.Sprint(d.ID, " attempt ", d.Attempt, " from ", d.Delivered.Sub(start), " to ", d.LeaseUntil.Sub(start)))
				}
				return strings.Join(text, ", "), err
			})
			lost.Await()
			clock.Advance(c.passed)
			push(t, other, punctual.NewMessage{ID: "later", Delay: time.Hour}) // takes the partition's clock along
			lost.Resume()
			want := fmt.Sprint("a attempt ", c.attempt, " from ", c.from, " to ", c.from+c.lease)
			if a := <-got; a.err != nil || a.text != want {
				t.Errorf("P3: the claim that was answered again returned %q, %v; want %q", a.text, a.err, want)
			}
			wantSound(t, s)
		})
	}
}
