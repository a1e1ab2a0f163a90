package storekit_test

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	familyrig "github.com/punctualmq/punctual/internal/rigs/family"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// outbox is a store that reaches a family, with a message of pay under a lease.
type outbox struct {
	*testing.T
	mem   *memstore.Store
	store *familyrig.Store
	clock *storekit.ManualClock
	lease punctual.Settlement
	moved int
}

func newOutbox(t *testing.T, silent bool) *outbox {
	o := &outbox{T: t, clock: storekit.NewManualClock(time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC))}
	o.mem = memstore.New(&memstore.Options{Clock: o.clock})
	o.store = familyrig.New(o.mem, 4, silent)
	if _, err := o.mem.Push(t.Context(), []punctual.NewMessage{{Topic: "pay", ID: "A-17"}}); err != nil {
		t.Fatal(err)
	}
	ds, err := o.mem.Claim(t.Context(), punctual.Claim{Topics: []string{"pay"}, Max: 1})
	if err != nil || len(ds) != 1 {
		t.Fatal(ds, err)
	}
	o.lease = punctual.Settlement{Topic: "pay", ID: "A-17", Token: ds[0].Token, Verb: punctual.SettleAck}
	return o
}

// settle acks the message with follow-ups and returns the answer.
func (o *outbox) settle(ctx context.Context, then ...punctual.NewMessage) error {
	o.Helper()
	x := o.lease
	x.Then = then
	given := []punctual.Settlement{x}
	before := reflect.ValueOf(x.Then).Pointer()
	answers, err := storekit.Settle(ctx, o.store, given, func(_ *punctual.Settlement, n int) { o.moved += n })
	if err != nil {
		o.Fatal(err)
	}
	if len(then) > 0 && reflect.ValueOf(given[0].Then).Pointer() != before {
		o.Error("the caller's settlement was changed")
	}
	return answers[0]
}

// envelopes returns the envelopes of pay.
func (o *outbox) envelopes() []punctual.Message {
	o.Helper()
	p, err := o.mem.List(o.Context(), punctual.ListQuery{Topic: "pay@out", State: punctual.StateReady})
	if err != nil {
		o.Fatal(err)
	}
	var ms []punctual.Message
	for _, i := range p.Messages {
		ms = append(ms, i.Message)
	}
	return ms
}

// TestSettleForwardsWhatIsBeyondReach: an envelope has all of the follow-up that it carries, and
// the due time of the follow-up does not depend on when it is taken out of the envelope.
func TestSettleForwardsWhatIsBeyondReach(t *testing.T) {
	at := time.Date(2027, 1, 2, 3, 4, 5, 678e6, time.UTC)
	whole := punctual.NewMessage{
		Topic: "invoice", ID: "A-17~invoice", Body: bytes.Repeat([]byte{0, 255}, limits.DefaultMaxBody/2), Headers: map[string]string{"k": "v\xff", storekit.ForwardHeader: "the user's own"},
		Due: at, MaxAttempts: 3, ExpireAfter: time.Hour, DropExpired: true, Remember: 48 * time.Hour, Timeout: time.Minute, Key: "A-17", IfExists: punctual.IfExistsReplace, IfDue: at.Add(time.Hour),
	}
	for v, i := reflect.ValueOf(whole), 0; i < v.NumField(); i++ {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() != (name == "Delay") { // Delay and Due exclude each other
			t.Fatalf("give the follow-up that is compared below a value for %s", name)
		}
	}
	for _, silent := range []bool{false, true} {
		o := newOutbox(t, silent)
		now := o.clock.Now()
		if err := o.settle(t.Context(), whole, punctual.NewMessage{Topic: "invoice", ID: "soon"}, punctual.NewMessage{Topic: "invoice", ID: "later", Delay: 1500 * time.Microsecond}); err != nil {
			t.Fatal(err)
		}
		if n := o.store.Refused(); n > 0 != silent || o.moved != 3 {
			t.Errorf("silent %v: %d settlements were refused, %d follow-ups moved", silent, n, o.moved)
		}
		o.clock.Advance(time.Hour)
		got := map[string]punctual.NewMessage{}
		for _, e := range o.envelopes() {
			if storekit.Stem(e.ID) != "A-17" || !e.Due.Equal(now) {
				t.Errorf("envelope %s is due %v", e.ID, e.Due)
			}
			m, err := storekit.Forwarded(&e)
			if err != nil {
				t.Fatal(err)
			}
			got[m.ID] = m
		}
		want := map[string]punctual.NewMessage{
			"A-17~invoice": whole,
			"soon":         {Topic: "invoice", ID: "soon", Due: now},
			"later":        {Topic: "invoice", ID: "later", Due: now.Add(3 * time.Millisecond)}, // rounded up, and the clock down
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("silent %v: forwarded\n%+v\nwant\n%+v", silent, got, want)
		}
	}
}

// TestSettleMovesNoMoreThanNeeded: what is within reach goes its direct way, and so does all in a
// store that reaches everything.
func TestSettleMovesNoMoreThanNeeded(t *testing.T) {
	home := []punctual.NewMessage{{Topic: "pay", ID: "A-17"}, {Topic: "pay@note", ID: "A-17~n"}, {Topic: "pay@g.x"}, {Topic: "pay"}}
	for _, silent := range []bool{false, true} {
		o := newOutbox(t, silent)
		if err := o.settle(t.Context(), home...); err != nil || o.moved != 0 || o.store.Refused() != 0 {
			t.Errorf("%v, %d moved, %d refused", err, o.moved, o.store.Refused())
		}
		if n := len(o.envelopes()); n != 0 {
			t.Errorf("%d envelopes", n)
		}
	}
	o := newOutbox(t, false)
	x := o.lease
	x.Then = []punctual.NewMessage{{Topic: "invoice", ID: "i"}}
	if answers, err := storekit.Settle(t.Context(), o.mem, []punctual.Settlement{x}, nil); err != nil || answers[0] != nil {
		t.Fatal(answers, err)
	}
	if i, err := o.mem.Get(t.Context(), "invoice", "i"); err != nil || i.Headers != nil {
		t.Errorf("%+v, %v", i, err)
	}
}

// TestSettleTellsOnlyOfWhatIsMoved: a settlement that the store refuses, or a call that does
// nothing, has moved no follow-up.
func TestSettleTellsOnlyOfWhatIsMoved(t *testing.T) {
	invoice := punctual.NewMessage{Topic: "invoice"}
	for _, silent := range []bool{false, true} {
		o := newOutbox(t, silent)
		o.lease.Token++
		if err := o.settle(t.Context(), invoice); !errors.Is(err, punctual.ErrLeaseLost) || o.moved != 0 {
			t.Errorf("silent %v: a settlement that is answered with %v has moved %d follow-ups; want ErrLeaseLost and none", silent, err, o.moved)
		}
		o.lease.Token--
		x := o.lease
		x.Then = []punctual.NewMessage{invoice}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		answers, err := storekit.Settle(ctx, o.store, []punctual.Settlement{x}, func(_ *punctual.Settlement, n int) { o.moved += n })
		if !errors.Is(err, context.Canceled) || o.moved != 0 {
			t.Errorf("silent %v: a call that is answered with %v, %v has moved %d follow-ups; want the error of its context and none", silent, answers, err, o.moved)
		}
		if err := o.settle(t.Context(), invoice); err != nil || o.moved != 1 {
			t.Errorf("silent %v: a settlement that is answered with %v has moved %d follow-ups; want 1", silent, err, o.moved)
		}
	}
}

// TestSettleRefusesWhatIsMalformed: a follow-up that can never be pushed is refused with the
// settlement and not when it is forwarded, and the lease stays.
func TestSettleRefusesWhatIsMalformed(t *testing.T) {
	for name, m := range map[string]punctual.NewMessage{
		"topic":    {Topic: "no topic"},
		"delay":    {Topic: "invoice", Delay: -1},
		"body":     {Topic: "invoice", Body: make([]byte, limits.DefaultMaxBody+1)},
		"too late": {Topic: "invoice", Due: limits.MaxDue.Add(time.Second)},
	} {
		for _, silent := range []bool{false, true} {
			o := newOutbox(t, silent)
			err := o.settle(t.Context(), m)
			if !errors.Is(err, punctual.ErrInvalid) && !errors.Is(err, punctual.ErrTooLarge) && !errors.Is(err, punctual.ErrUnsupported) || !strings.Contains(err.Error(), "follow-up 1") {
				t.Errorf("%s, silent %v: %v", name, silent, err)
			}
			if err := o.settle(t.Context()); err != nil {
				t.Errorf("%s: the lease is gone: %v", name, err)
			}
		}
	}
}

// TestSettleOfACopy: a copy of a call makes the same envelopes, whichever process makes it, so that
// the store recognizes it.
func TestSettleOfACopy(t *testing.T) {
	var made [][]punctual.NewMessage
	for range 2 {
		o := newOutbox(t, false)
		ctx := storekit.WithRequest(t.Context(), storekit.Request{Key: "call-1"})
		if err := o.settle(ctx, punctual.NewMessage{Topic: "invoice"}, punctual.NewMessage{Topic: "mail"}); err != nil {
			t.Fatal(err)
		}
		var ms []punctual.NewMessage
		for _, e := range o.envelopes() {
			m, err := storekit.Forwarded(&e)
			if err != nil {
				t.Fatal(err)
			}
			ms = append(ms, punctual.NewMessage{Topic: e.ID, ID: m.ID})
		}
		made = append(made, ms)
	}
	if len(made[0]) != 2 || !reflect.DeepEqual(made[0], made[1]) {
		t.Errorf("the two calls made\n%v\n%v", made[0], made[1])
	}
}

// TestForwardedRefusesOthers: a message of T@out that is no envelope is not taken for one.
func TestForwardedRefusesOthers(t *testing.T) {
	for _, header := range []string{"", "{}", "nonsense", `{"topic":"no topic","id":"x"}`, `{"topic":"t","id":""}`} {
		m := punctual.Message{Topic: "pay@out", ID: "x", Headers: map[string]string{storekit.ForwardHeader: header}}
		if n, err := storekit.Forwarded(&m); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%q: %+v, %v", header, n, err)
		}
	}
}
