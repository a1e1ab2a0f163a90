package punctualtest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
)

// Scheduled returns the scheduled messages of a topic, which are due in the future, the earliest
// first.
func (k *Kit) Scheduled(topic string) []punctual.Info {
	k.tb.Helper()
	return k.list(topic, punctual.StateScheduled)
}

// Ready returns the messages of a topic whose time has come and that no handler works on, the
// earliest first. The next Advance has them handled, unless deliveries of the topic are paused or
// the topic has no handler.
func (k *Kit) Ready(topic string) []punctual.Info {
	k.tb.Helper()
	return k.list(topic, punctual.StateReady)
}

// Dead returns the dead messages of a topic, in the order in which they died.
func (k *Kit) Dead(topic string) []punctual.Info {
	k.tb.Helper()
	return k.list(topic, punctual.StateDead)
}

func (k *Kit) list(topic string, state punctual.State) []punctual.Info {
	k.tb.Helper()
	var out []punctual.Info
	q := punctual.ListQuery{Topic: topic, State: state, Limit: 1000}
	for {
		p, err := k.Store.List(k.ctx, q)
		if err != nil {
			k.tb.Fatalf("punctualtest: list %s: %v", topic, err)
			return nil
		}
		out = append(out, p.Messages...)
		if q.After = p.Next; q.After == "" {
			return out
		}
	}
}

// WantScheduled fails the test unless the message is scheduled and due exactly d from now. It
// returns the message, so that the test can check its body or attempts.
func (k *Kit) WantScheduled(topic, id string, d time.Duration) punctual.Info {
	k.tb.Helper()
	i, ok := k.get(topic, id)
	switch {
	case !ok:
		k.tb.Errorf("%s/%s is not stored, want it scheduled in %v%s", topic, id, d, k.held(topic))
	case i.State != punctual.StateScheduled:
		k.tb.Errorf("%s/%s is %s, want it scheduled in %v", topic, id, k.describe(i), d)
	case i.Due.Sub(k.Now()) != d:
		k.tb.Errorf("%s/%s is %s, want it in %v", topic, id, k.describe(i), d)
	}
	return i
}

// WantDead fails the test unless the message is dead for the reason given. It returns the
// message with the history of its failures.
func (k *Kit) WantDead(topic, id string, reason punctual.DeathReason) punctual.Info {
	k.tb.Helper()
	i, ok := k.get(topic, id)
	switch {
	case !ok:
		k.tb.Errorf("%s/%s is not stored, want it dead (%s)%s", topic, id, reason, k.held(topic))
	case i.State != punctual.StateDead || i.Reason != reason:
		k.tb.Errorf("%s/%s is %s, want it dead (%s)", topic, id, k.describe(i), reason)
	}
	return i
}

// WantGone fails the test if the message is stored in any state. A message is gone when it was
// handled, cancelled or dropped, or was never pushed.
func (k *Kit) WantGone(topic, id string) {
	k.tb.Helper()
	if i, ok := k.get(topic, id); ok {
		k.tb.Errorf("%s/%s is %s, want it gone", topic, id, k.describe(i))
	}
}

func (k *Kit) get(topic, id string) (punctual.Info, bool) {
	k.tb.Helper()
	i, err := k.Store.Get(k.ctx, topic, id)
	if err != nil && !errors.Is(err, punctual.ErrNotFound) {
		k.tb.Fatalf("punctualtest: %v", err)
	}
	return i, err == nil
}

// describe returns the state of a message in words, with the time that it waits or has waited.
func (k *Kit) describe(i punctual.Info) string {
	switch i.State {
	case punctual.StateScheduled:
		return fmt.Sprintf("scheduled in %v", i.Due.Sub(k.Now()))
	case punctual.StateReady:
		return fmt.Sprintf("ready since %v", k.Now().Sub(i.Due))
	case punctual.StateDead:
		return fmt.Sprintf("dead (%s)", i.Reason)
	}
	return i.State.String()
}

// held says how many messages the topic has and describes at most ten of them, so that the failure
// of a test shows what went wrong.
func (k *Kit) held(topic string) string {
	k.tb.Helper()
	var b strings.Builder
	n := 0
	for _, state := range []punctual.State{punctual.StateScheduled, punctual.StateReady, punctual.StateLeased, punctual.StateDead} {
		for _, i := range k.list(topic, state) {
			if n++; n <= 10 {
				fmt.Fprintf(&b, "\n\t%s: %s", i.ID, k.describe(i))
			}
		}
	}
	if n == 0 {
		return "; the topic holds nothing"
	}
	return fmt.Sprintf("; the topic holds %d:%s", n, b.String())
}
