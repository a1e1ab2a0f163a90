package punctual_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

func TestDecisionOf(t *testing.T) {
	boom := errors.New("boom")
	cases := []struct {
		name string
		err  error
		verb punctual.Verb
		text string
	}{
		{"nil", nil, punctual.SettleAck, ""},
		{"plain", boom, punctual.SettleRetry, "boom"},
		{"discard of nothing", punctual.Discard(nil), punctual.SettleDiscard, "discarded by the handler"},
		{"discard around retry after", punctual.Discard(punctual.RetryAfter(1, boom)), punctual.SettleDiscard, "boom"},
		{"retry after around discard", punctual.RetryAfter(1, punctual.Discard(boom)), punctual.SettleRetry, "boom"},
		{"retry after nothing", punctual.RetryAfter(time.Minute, nil), punctual.SettleRetry, "retry after 1m0s"},
		{"snooze leaves no text", fmt.Errorf("locked: %w", punctual.Snooze(1)), punctual.SettleSnooze, ""},
		{"wrapped keeps the whole text", fmt.Errorf("order 7: %w", punctual.Discard(boom)), punctual.SettleDiscard, "order 7: boom"},
		{"settled by a verb that ends no lease", punctual.Settled(punctual.SettleExtend), punctual.SettleRetry, ""},
		{"joined", errors.Join(boom, punctual.Discard(boom)), punctual.SettleDiscard, "boom\nboom"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := punctual.DecisionOf(c.err)
			if d.Verb != c.verb {
				t.Errorf("got %s, want %s", d.Verb, c.verb)
			}
			if !errors.Is(d.Err, c.err) || c.err != nil && c.text != "" && d.Err.Error() != c.text {
				t.Errorf("got error %q, want %q", d.Err, c.text)
			}
		})
	}
	bill, mail := punctual.NewMessage{Topic: "invoice", ID: "a"}, punctual.NewMessage{Topic: "mail", ID: "b"}
	for _, c := range []struct {
		name string
		err  error
		verb punctual.Verb
		then []punctual.NewMessage
	}{
		{"nil", punctual.Follow(nil, bill, mail), punctual.SettleAck, []punctual.NewMessage{bill, mail}},
		{"snooze", punctual.Follow(punctual.Snooze(1), bill), punctual.SettleSnooze, []punctual.NewMessage{bill}},
		{"discard", punctual.Follow(punctual.Discard(boom), bill), punctual.SettleDiscard, []punctual.NewMessage{bill}},
		{"retry after", punctual.Follow(punctual.RetryAfter(1, boom), bill), punctual.SettleRetry, nil},
		{"another error", punctual.Follow(boom, bill), punctual.SettleRetry, nil},
		{"twice", punctual.Follow(punctual.Follow(nil, bill), mail), punctual.SettleAck, []punctual.NewMessage{bill, mail}},
		{"wrapped by middleware", fmt.Errorf("traced: %w", punctual.Follow(nil, bill)), punctual.SettleAck, []punctual.NewMessage{bill}},
		{"discard around it", punctual.Discard(punctual.Follow(nil, bill)), punctual.SettleDiscard, nil},
		{"nothing to store", punctual.Follow(nil), punctual.SettleAck, nil},
	} {
		t.Run("follow "+c.name, func(t *testing.T) {
			if d := punctual.DecisionOf(c.err); d.Verb != c.verb || !reflect.DeepEqual(d.Then, c.then) {
				t.Errorf("got %s with %v, want %s with %v", d.Verb, d.Then, c.verb, c.then)
			}
		})
	}
	nine := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		err  error
		verb punctual.Verb
		due  time.Time
	}{
		{"an instant", fmt.Errorf("closed: %w", punctual.SnoozeUntil(nine)), punctual.SettleSnooze, nine},
		{"with follow-ups", punctual.Follow(punctual.SnoozeUntil(nine), bill), punctual.SettleSnooze, nine},
		{"the last instant", punctual.SnoozeUntil(limits.MaxDue), punctual.SettleSnooze, limits.MaxDue},
		{"the zero Time", punctual.SnoozeUntil(time.Time{}), punctual.SettleRetry, time.Time{}},
		{"an instant too late", punctual.SnoozeUntil(limits.MaxDue.Add(1)), punctual.SettleRetry, time.Time{}},
	} {
		t.Run("snooze until "+c.name, func(t *testing.T) {
			if d := punctual.DecisionOf(c.err); d.Verb != c.verb || !d.Due.Equal(c.due) || d.Verb == punctual.SettleSnooze && d.Delay != 0 {
				t.Errorf("got %s at %v after %v, want %s at %v", d.Verb, d.Due, d.Delay, c.verb, c.due)
			}
		})
	}
	if !errors.Is(punctual.Discard(boom), boom) || !errors.Is(punctual.RetryAfter(0, boom), boom) {
		t.Error("the handler's own error is not found in the decision")
	}
}
