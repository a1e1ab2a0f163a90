package transitions

import (
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// operation is one thing that somebody may do to a message by its ID or by a lease of it.
type operation struct {
	name string
	do   func(s *scene)
	// alone is whether it meets all messages of the topic, and so must not find those of other operations.
	alone bool
}

func operations() []operation {
	var ops []operation
	add := func(do func(*scene), name string, args ...any) {
		ops = append(ops, operation{name: fmt.Sprintf(name, args...), do: do})
	}
	for on, name := range []string{
		punctual.IfExistsKeep: "keep", punctual.IfExistsReplace: "replace", punctual.IfExistsFail: "fail", punctual.IfExistsReplaceDead: "replace the dead",
	} {
		add(func(s *scene) {
			s.push(punctual.NewMessage{IfExists: punctual.IfExists(on), Delay: 30 * time.Minute, Body: []byte("pushed"), MaxAttempts: 3})
		}, "push, %s", name)
	}
	for _, token := range []string{"current", "stale"} {
		settle := func(v punctual.Verb, delay time.Duration) {
			add(func(s *scene) { s.settle(v, delay, token) }, "%s after %v, %s token", v, delay, token)
		}
		settle(punctual.SettleAck, 0)
		settle(punctual.SettleDiscard, 0)
		settle(punctual.SettleRelease, 0)
		for _, delay := range []time.Duration{0, 90 * time.Minute, punctual.UseBackoff} {
			settle(punctual.SettleRetry, delay)
		}
		for _, delay := range []time.Duration{0, 90 * time.Minute} {
			settle(punctual.SettleSnooze, delay)
		}
		for _, delay := range []time.Duration{0, time.Second, 90 * time.Minute} {
			settle(punctual.SettleExtend, delay)
		}
	}
	add(func(s *scene) {
		s.push(punctual.NewMessage{IfExists: punctual.IfExistsReplace, Body: []byte("pushed"), Remember: 4 * time.Hour})
	}, "push, replace, to be remembered")
	add(func(s *scene) { s.amend(punctual.ChangeCancel, 0) }, "cancel")
	add(func(s *scene) { s.amend(punctual.ChangeDelete, 0) }, "delete")
	for _, change := range []punctual.Change{punctual.ChangeReschedule, punctual.ChangeRequeue} {
		for _, delay := range []time.Duration{0, 90 * time.Minute} {
			add(func(s *scene) { s.amend(change, delay) }, "%s after %v", change, delay)
		}
	}
	return append(ops, operation{name: "claim", do: (*scene).claim, alone: true})
}
