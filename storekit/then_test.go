package storekit

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

func TestCheckThen(t *testing.T) {
	many := make([]punctual.NewMessage, limits.MaxThen+1)
	for i := range many {
		many[i] = punctual.NewMessage{Topic: "t", ID: fmt.Sprint(i)}
	}
	big := make([]punctual.NewMessage, 9)
	for i := range big {
		big[i] = punctual.NewMessage{Topic: "t", Body: make([]byte, 1<<20)}
	}
	one := many[:1]
	for _, c := range []struct {
		name string
		x    punctual.Settlement
		kind error  // nil: it is allowed
		text string // a part of the error's text
	}{
		{"ack", punctual.Settlement{Verb: punctual.SettleAck, Then: one}, nil, ""},
		{"snooze", punctual.Settlement{Verb: punctual.SettleSnooze, Then: one}, nil, ""},
		{"discard", punctual.Settlement{Verb: punctual.SettleDiscard, Then: one}, nil, ""},
		{"retry", punctual.Settlement{Verb: punctual.SettleRetry, Then: one}, punctual.ErrInvalid, "retry with follow-ups"},
		{"retry by the backoff", punctual.Settlement{Verb: punctual.SettleRetry, Delay: punctual.UseBackoff, Then: one}, punctual.ErrInvalid, "retry with follow-ups"},
		{"release", punctual.Settlement{Verb: punctual.SettleRelease, Then: one}, punctual.ErrInvalid, "release with follow-ups"},
		{"extend", punctual.Settlement{Verb: punctual.SettleExtend, Then: one}, punctual.ErrInvalid, "extend with follow-ups"},
		{"as many as there may be", punctual.Settlement{Verb: punctual.SettleAck, Then: many[:limits.MaxThen]}, nil, ""},
		{"too many", punctual.Settlement{Verb: punctual.SettleAck, Then: many}, punctual.ErrInvalid, "65 follow-ups"},
		{"no IDs", punctual.Settlement{Verb: punctual.SettleAck, Then: big[:2]}, nil, ""},
		{"too many bytes", punctual.Settlement{Verb: punctual.SettleAck, Then: big}, punctual.ErrTooLarge, "follow-ups have"},
		{"the same ID twice", punctual.Settlement{Verb: punctual.SettleAck, Then: []punctual.NewMessage{many[3], many[4], many[3]}}, punctual.ErrInvalid, "follow-up 3: 3 in t is also follow-up 1"},
		{"the same ID in two topics", punctual.Settlement{Verb: punctual.SettleAck, Then: []punctual.NewMessage{{Topic: "t", ID: "a"}, {Topic: "u", ID: "a"}}}, nil, ""},
		{"malformed", punctual.Settlement{Verb: punctual.SettleAck, Then: []punctual.NewMessage{many[1], {Topic: ""}}}, punctual.ErrInvalid, "follow-up 2: topic is empty"},
		{"long body", punctual.Settlement{Verb: punctual.SettleAck, Then: []punctual.NewMessage{{Topic: "t", Body: make([]byte, 1<<20+1)}}}, punctual.ErrTooLarge, "follow-up 1: body"},
		{"due with a retry", punctual.Settlement{Verb: punctual.SettleRetry, Due: time.Unix(1, 0)}, nil, ""},
		{"due with a snooze", punctual.Settlement{Verb: punctual.SettleSnooze, Due: limits.MaxDue}, nil, ""},
		{"due with an ack", punctual.Settlement{Verb: punctual.SettleAck, Due: time.Unix(1, 0)}, punctual.ErrInvalid, "ack with a due time"},
		{"due with an extension", punctual.Settlement{Verb: punctual.SettleExtend, Due: time.Unix(1, 0)}, punctual.ErrInvalid, "extend with a due time"},
		{"due and delay", punctual.Settlement{Verb: punctual.SettleSnooze, Due: time.Unix(1, 0), Delay: 1}, punctual.ErrInvalid, "use one"},
		{"due and backoff", punctual.Settlement{Verb: punctual.SettleRetry, Due: time.Unix(1, 0), Delay: punctual.UseBackoff}, punctual.ErrInvalid, "use one"},
		{"due after MaxDue", punctual.Settlement{Verb: punctual.SettleRetry, Due: limits.MaxDue.Add(1)}, punctual.ErrInvalid, "lies after"},
	} {
		c.x.Topic, c.x.ID = "orders", "a"
		err := CheckSettlement(&c.x, limits.DefaultMaxBody)
		if !errors.Is(err, c.kind) || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v; want %v with %q", c.name, err, c.kind, c.text)
		}
	}
}

func TestStem(t *testing.T) {
	for id, want := range map[string]string{"A-17": "A-17", "A-17~invoice": "A-17", "A~b~c": "A", "~a": "~a", "~a~b": "~a~b", "a~": "a", "~": "~"} {
		if got := Stem(id); got != want {
			t.Errorf("Stem(%q) = %q, want %q", id, got, want)
		}
	}
}

func TestCompanion(t *testing.T) {
	for topic, want := range map[string][2]string{"orders": {"orders", ""}, "orders@events": {"orders", "events"}, "a/b@g.mail": {"a/b", "g.mail"}} {
		if parent, name := Companion(topic); parent != want[0] || name != want[1] {
			t.Errorf("Companion(%q) = %q, %q, want %q", topic, parent, name, want)
		}
	}
	one, on := 1, true
	if err := CheckCompanionPatch("orders", &punctual.SettingsPatch{Partitions: &one, PushPaused: &on}); err != nil {
		t.Errorf("settings of a topic: %v", err)
	}
	if err := CheckCompanionPatch("orders@x", &punctual.SettingsPatch{MaxAttempts: &one, DeliveryPaused: &on}); err != nil {
		t.Errorf("settings that a companion has: %v", err)
	}
	for _, p := range []punctual.SettingsPatch{{Partitions: &one}, {PushPaused: &on}} {
		if err := CheckCompanionPatch("orders@x", &p); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%+v of a companion: %v, want ErrInvalid", p, err)
		}
	}
}

// A follow-up says which message it came from, also when topic and ID contain what the header
// separates them by.
func TestAfterHeader(t *testing.T) {
	for _, c := range []struct{ topic, id, value string }{
		{"orders", "A-17", "orders/A-17"},
		{"eu/orders@events", "a/b~c%2F", "eu%2Forders@events/a/b~c%2F"},
		{"orders", " ", "orders/ "},
	} {
		own := map[string]string{"kind": "bill"}
		x := punctual.Settlement{Topic: c.topic, ID: c.id, Verb: punctual.SettleAck, Then: []punctual.NewMessage{
			{Topic: "a"},
			{Topic: "b", Headers: own},
			{Topic: "c", Headers: map[string]string{AfterHeader: "forged/1"}},
		}}
		given := x.Then
		SetAfter(&x)
		for i, m := range x.Then {
			if m.Headers[AfterHeader] != c.value {
				t.Errorf("follow-up %d of %s in %s has the header %q instead of %q", i+1, c.id, c.topic, m.Headers[AfterHeader], c.value)
			}
		}
		if x.Then[1].Headers["kind"] != "bill" {
			t.Error("a header of the follow-up is lost")
		}
		if len(own) != 1 || given[0].Headers != nil || given[2].Headers[AfterHeader] != "forged/1" {
			t.Error("SetAfter changed what its caller owns")
		}
		topic, id, ok := ParseAfter(c.value)
		if topic != c.topic || id != c.id || !ok {
			t.Errorf("%q names %q in %q, %v", c.value, id, topic, ok)
		}
	}
	for _, value := range []string{"", "orders", "orders/", "/1", "or ders/1", "orders/é"} {
		if topic, id, ok := ParseAfter(value); ok {
			t.Errorf("%q names %q in %q", value, id, topic)
		}
	}
}

// The header never has a settlement refused that would pass without it.
func TestAfterHeaderWithoutRoom(t *testing.T) {
	full := punctual.NewMessage{Topic: "t", ID: "1", Headers: map[string]string{"h": strings.Repeat("x", limits.MaxHeaderBytes-1)}}
	x := punctual.Settlement{Topic: "orders", ID: "A-17", Token: 1, Verb: punctual.SettleAck, Then: []punctual.NewMessage{full, {Topic: "t", ID: "2"}}}
	SetAfter(&x)
	if _, has := x.Then[0].Headers[AfterHeader]; has {
		t.Error("a message with full headers has got another one")
	}
	if x.Then[1].Headers[AfterHeader] != "orders/A-17" {
		t.Error("the message beside it has not got the header")
	}
	x.Then = make([]punctual.NewMessage, 8)
	left := limits.MaxThenBytes - len(AfterHeader) - len("orders/A-17")
	for i := range x.Then {
		n := min(left-1, 1<<20)
		x.Then[i] = punctual.NewMessage{Topic: "t", Body: make([]byte, n)}
		left -= n + 1
	}
	SetAfter(&x)
	n := 0
	for _, m := range x.Then {
		n += len(m.Headers)
	}
	if n != 1 {
		t.Errorf("%d follow-ups have the header where there is room for one", n)
	}
	if err := CheckSettlement(&x, limits.DefaultMaxBody); err != nil {
		t.Errorf("the settlement is refused now: %v", err)
	}
}
