package transitions

import (
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// operation is one thing that somebody may do to a message: by its ID, by a lease of it, or by a
// claim of its topic.
type operation struct {
	name string
	do   func(s *scene)
	// alone tells that the operation acts on all messages of the topic, so that it needs a topic
	// without those of other operations.
	alone bool
}

// operations returns the operations that a store with this reach of follow-ups can carry out.
func operations(reach storekit.Reach) []operation {
	ops := slices.Concat(pushes(), settlements(), amendments())
	if reach != storekit.ReachNone {
		ops = append(ops, followUps()...)
	}
	return append(ops, operation{name: "claim", do: (*scene).claim, alone: true})
}

func pushes() []operation {
	var ops table
	for on, name := range ifExists {
		ops.add(func(s *scene) {
			s.push(punctual.NewMessage{IfExists: punctual.IfExists(on), Delay: 30 * time.Minute, Body: []byte("pushed"), MaxAttempts: 3})
		}, "push, %s", name)
	}
	ops.add(func(s *scene) {
		s.push(punctual.NewMessage{IfExists: punctual.IfExistsReplace, Body: []byte("pushed"), Remember: 4 * time.Hour})
	}, "push, replace, to be remembered")
	for _, by := range conditions {
		ops.add(func(s *scene) {
			s.pushAs(punctual.NewMessage{IfExists: punctual.IfExistsReplace, Body: []byte("pushed")}, func(m *message, n *punctual.NewMessage) { n.IfDue = s.dueBut(m, by) })
		}, "push, replace if due as it is and %v", by)
	}
	return ops
}

// ifExists names what a push does when its ID is in use.
var ifExists = []string{
	punctual.IfExistsKeep: "keep", punctual.IfExistsReplace: "replace", punctual.IfExistsFail: "fail", punctual.IfExistsReplaceDead: "replace the dead",
}

// conditions are added to the due time of a message, and the sum is the IfDue of a change. Rounded
// up, two of the sums are the due time, and the other ones are not.
var conditions = []time.Duration{0, -time.Microsecond, time.Microsecond, -time.Millisecond, time.Hour}

// table collects operations.
type table []operation

func (t *table) add(do func(*scene), name string, args ...any) {
	*t = append(*t, operation{name: fmt.Sprintf(name, args...), do: do})
}

func settlements() []operation {
	var ops table
	for _, token := range []string{"current", "stale"} {
		settle := func(v punctual.Verb, delay time.Duration) {
			ops.add(func(s *scene) { s.settle(v, delay, token) }, "%s after %v, %s token", v, delay, token)
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
		for _, v := range []punctual.Verb{punctual.SettleRetry, punctual.SettleSnooze} {
			for _, at := range []time.Duration{-time.Hour, 24*time.Hour + time.Microsecond} {
				ops.add(func(s *scene) {
					s.settleAs(v, token, func(x *punctual.Settlement) { x.Due = s.begin.Add(at) })
				}, "%s to %v from the beginning, %s token", v, at, token)
			}
		}
	}
	return ops
}

func followUps() []operation {
	var ops table
	for _, v := range []punctual.Verb{punctual.SettleAck, punctual.SettleSnooze, punctual.SettleDiscard} {
		follow := func(token, name string, then func(x *punctual.Settlement) punctual.NewMessage) {
			ops.add(func(s *scene) { s.follow(v, token, then) }, "%s followed by %s, %s token", v, name, token)
		}
		itself := func(on punctual.IfExists) func(*punctual.Settlement) punctual.NewMessage {
			return func(x *punctual.Settlement) punctual.NewMessage {
				return punctual.NewMessage{Topic: x.Topic, ID: x.ID, Body: []byte("itself"), Delay: 30 * time.Minute, IfExists: on, MaxAttempts: 3}
			}
		}
		for on, name := range ifExists {
			follow("current", "itself, "+name, itself(punctual.IfExists(on)))
		}
		follow("stale", "itself, replace", itself(punctual.IfExistsReplace))
		for _, by := range []time.Duration{0, 90 * time.Minute} {
			ops.add(func(s *scene) {
				s.follow(v, "current", func(x *punctual.Settlement) punctual.NewMessage {
					n := itself(punctual.IfExistsReplace)(x)
					n.IfDue = s.clock.Now().Add(by)
					return n
				})
			}, "%s followed by itself if due %v from now", v, by)
		}
		follow("current", "one that is refused", func(x *punctual.Settlement) punctual.NewMessage {
			return punctual.NewMessage{Topic: x.Topic + companion, ID: x.ID + followUp + "2", IfExists: punctual.IfExistsReplace, IfDue: noon}
		})
	}
	return ops
}

func amendments() []operation {
	var ops table
	ops.add(func(s *scene) { s.amend(punctual.ChangeCancel, 0) }, "cancel")
	ops.add(func(s *scene) { s.amend(punctual.ChangeDelete, 0) }, "delete")
	for _, change := range []punctual.Change{punctual.ChangeReschedule, punctual.ChangeRequeue} {
		for _, delay := range []time.Duration{0, 90 * time.Minute} {
			ops.add(func(s *scene) { s.amend(change, delay) }, "%s after %v", change, delay)
		}
	}
	for change := punctual.ChangeCancel; change <= punctual.ChangeDelete; change++ {
		for _, by := range conditions {
			ops.add(func(s *scene) {
				s.amendIf(change, 0, func(m *message) time.Time { return s.dueBut(m, by) })
			}, "%s if due as it is and %v", change, by)
		}
	}
	return ops
}
