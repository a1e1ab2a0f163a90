package transitions

import (
	"time"

	"github.com/punctualmq/punctual"
)

// leaseLength is how long the leases of a topic last.
const leaseLength = time.Minute

// situation is a point in a message's life. Its bring function takes the messages of a scene there,
// from a topic without messages.
type situation struct {
	name  string
	state punctual.State // which the Inspector shows then, so that a situation that was not brought about is noticed
	bring func(s *scene)
	keyed bool // it needs a topic with keys
}

// situations returns the situations between which the rules differ. All start with a clock at a
// whole second.
func situations() []situation {
	const none, scheduled, ready, leased, dead = punctual.StateNone, punctual.StateScheduled, punctual.StateReady, punctual.StateLeased, punctual.StateDead
	return []situation{
		{name: "absent", state: none, bring: func(*scene) {}},
		{name: "scheduled", state: scheduled, bring: func(s *scene) { s.begun(time.Hour) }},
		{name: "ready", state: ready, bring: func(s *scene) { s.begun(0) }},
		{name: "ready after waiting", state: ready, bring: func(s *scene) { s.begun(time.Hour); s.advance(2 * time.Hour) }},
		{name: "rescheduled", state: scheduled, bring: func(s *scene) { s.begun(0); s.amend(punctual.ChangeReschedule, time.Hour) }},
		{name: "rescheduled to now", state: ready, bring: func(s *scene) { s.begun(time.Hour); s.amend(punctual.ChangeReschedule, 0) }},
		{name: "replaced", state: scheduled, bring: func(s *scene) {
			s.begun(0)
			s.push(punctual.NewMessage{IfExists: punctual.IfExistsReplace, Delay: time.Hour, Body: []byte("second")})
		}},
		{name: "replaced under its lease", state: ready, bring: func(s *scene) {
			s.leased()
			s.push(punctual.NewMessage{IfExists: punctual.IfExistsReplace, Body: []byte("second")})
		}},
		{name: "paused and scheduled", state: scheduled, bring: func(s *scene) { s.begun(time.Hour); s.pause() }},
		{name: "paused and ready", state: ready, bring: func(s *scene) { s.begun(0); s.pause() }},
		{name: "paused and absent", state: none, bring: func(s *scene) { s.pause() }},

		{name: "leased", state: leased, bring: func(s *scene) { s.leased() }},
		{name: "leased and extended", state: leased, bring: func(s *scene) { s.leased(); s.settle(punctual.SettleExtend, 3*time.Hour, "current") }},
		{name: "leased and cancelled", state: leased, bring: func(s *scene) { s.leased(); s.amend(punctual.ChangeCancel, 0) }},
		{name: "leased for the last time", state: leased, bring: func(s *scene) { s.leased(); s.advance(leaseLength); s.claim() }},
		{name: "leased for the last time and cancelled", state: leased, bring: func(s *scene) {
			s.leased()
			s.advance(leaseLength)
			s.claim()
			s.amend(punctual.ChangeCancel, 0)
		}},
		{name: "leased and expired meanwhile", state: leased, bring: func(s *scene) {
			s.push(punctual.NewMessage{ExpireAfter: time.Second})
			s.claim()
			s.advance(10 * time.Second)
		}},
		{name: "leased without bound of attempts", state: leased, bring: func(s *scene) { s.push(punctual.NewMessage{MaxAttempts: 1000}); s.claim() }},

		{name: "lapsed", state: ready, bring: func(s *scene) { s.leased(); s.advance(leaseLength) }},
		{name: "lapsed and cancelled before", state: ready, bring: func(s *scene) { s.leased(); s.amend(punctual.ChangeCancel, 0); s.advance(leaseLength) }},
		{name: "lapsed and rescheduled", state: scheduled, bring: func(s *scene) {
			s.leased()
			s.advance(leaseLength)
			s.amend(punctual.ChangeReschedule, time.Hour)
		}},
		{name: "lapsed for the last time", state: ready, bring: func(s *scene) { s.leased(); s.advance(leaseLength); s.claim(); s.advance(leaseLength) }},

		{name: "retried", state: scheduled, bring: func(s *scene) { s.leased(); s.settle(punctual.SettleRetry, time.Hour, "current") }},
		{name: "retried and ready", state: ready, bring: func(s *scene) { s.leased(); s.settle(punctual.SettleRetry, 0, "current") }},
		{name: "retried and leased again", state: leased, bring: func(s *scene) { s.leased(); s.settle(punctual.SettleRetry, 0, "current"); s.claim() }},
		{name: "snoozed", state: scheduled, bring: func(s *scene) { s.leased(); s.settle(punctual.SettleSnooze, time.Hour, "current") }},
		{name: "snoozed and leased again", state: leased, bring: func(s *scene) { s.leased(); s.settle(punctual.SettleSnooze, 0, "current"); s.claim() }},
		{name: "released", state: ready, bring: func(s *scene) { s.leased(); s.settle(punctual.SettleRelease, 0, "current") }},

		{name: "expired", state: ready, bring: func(s *scene) { s.push(punctual.NewMessage{ExpireAfter: time.Second}); s.advance(time.Minute) }},
		{name: "expired and to be dropped", state: ready, bring: func(s *scene) {
			s.push(punctual.NewMessage{ExpireAfter: time.Second, DropExpired: true})
			s.advance(time.Minute)
		}},
		{name: "expired and to be dropped with its attempts used up", state: ready, bring: func(s *scene) {
			s.push(punctual.NewMessage{ExpireAfter: time.Second, DropExpired: true, MaxAttempts: 1})
			s.claim()
			s.advance(leaseLength)
		}},
		{name: "expired and cancelled with its attempts used up", state: ready, bring: func(s *scene) {
			s.push(punctual.NewMessage{ExpireAfter: time.Second, MaxAttempts: 1})
			s.claim()
			s.amend(punctual.ChangeCancel, 0)
			s.advance(leaseLength)
		}},
		{name: "expired and dropped", state: none, bring: func(s *scene) {
			s.push(punctual.NewMessage{ExpireAfter: time.Second, DropExpired: true})
			s.advance(time.Minute)
			s.claim()
		}},

		{name: "dead because it was discarded", state: dead, bring: func(s *scene) { s.leased(); s.settle(punctual.SettleDiscard, 0, "current") }},
		{name: "dead because attempts were used up", state: dead, bring: func(s *scene) {
			s.push(punctual.NewMessage{MaxAttempts: 1})
			s.claim()
			s.settle(punctual.SettleRetry, time.Hour, "current")
		}},
		{name: "dead because it expired", state: dead, bring: func(s *scene) {
			s.push(punctual.NewMessage{ExpireAfter: time.Second})
			s.advance(time.Minute)
			s.claim()
		}},
		{name: "requeued", state: scheduled, bring: func(s *scene) {
			s.leased()
			s.settle(punctual.SettleDiscard, 0, "current")
			s.amend(punctual.ChangeRequeue, time.Hour)
		}},
		{name: "requeued and leased again", state: leased, bring: func(s *scene) {
			s.leased()
			s.settle(punctual.SettleDiscard, 0, "current")
			s.amend(punctual.ChangeRequeue, 0)
			s.claim()
		}},

		{name: "scheduled and to be remembered", state: scheduled, bring: func(s *scene) { s.push(punctual.NewMessage{Delay: time.Hour, Remember: 30 * time.Minute}) }},
		{name: "leased and to be remembered", state: leased, bring: func(s *scene) { s.push(punctual.NewMessage{Remember: 90 * time.Minute}); s.claim() }},
		{name: "lapsed and to be remembered", state: ready, bring: func(s *scene) {
			s.push(punctual.NewMessage{Remember: 90 * time.Minute})
			s.claim()
			s.advance(leaseLength)
		}},
		{name: "dead and to be remembered", state: dead, bring: func(s *scene) {
			s.push(punctual.NewMessage{Remember: 90 * time.Minute})
			s.claim()
			s.settle(punctual.SettleDiscard, 0, "current")
		}},
		{name: "acked and remembered", state: none, bring: func(s *scene) {
			s.push(punctual.NewMessage{Remember: 3 * time.Hour})
			s.claim()
			s.settle(punctual.SettleAck, 0, "current")
		}},
		{name: "cancelled and remembered", state: none, bring: func(s *scene) {
			s.push(punctual.NewMessage{Remember: time.Minute})
			s.amend(punctual.ChangeCancel, 0)
			s.advance(30 * time.Second)
		}},
		{name: "acked, remembered, and deleted", state: none, bring: func(s *scene) {
			s.push(punctual.NewMessage{Remember: 3 * time.Hour})
			s.claim()
			s.settle(punctual.SettleAck, 0, "current")
			s.amend(punctual.ChangeDelete, 0)
		}},
		{name: "deleted under its lease", state: none, bring: func(s *scene) { s.leased(); s.amend(punctual.ChangeDelete, 0) }},

		{name: "acked", state: none, bring: func(s *scene) { s.leased(); s.settle(punctual.SettleAck, 0, "current") }},
		{name: "acked half an hour ago", state: none, bring: func(s *scene) {
			s.leased()
			s.settle(punctual.SettleAck, 0, "current")
			s.advance(30 * time.Minute)
		}},
		{name: "acked long ago", state: none, bring: func(s *scene) { s.leased(); s.settle(punctual.SettleAck, 0, "current"); s.advance(5 * time.Hour) }},
		{name: "cancelled", state: none, bring: func(s *scene) { s.begun(time.Hour); s.amend(punctual.ChangeCancel, 0) }},
		{name: "cancelled under its lease and ended", state: none, bring: func(s *scene) {
			s.leased()
			s.amend(punctual.ChangeCancel, 0)
			s.settle(punctual.SettleRelease, 0, "current")
		}},

		{name: "waiting for its key", state: ready, keyed: true, bring: func(s *scene) { s.blocked(); s.begun(0) }},
		{name: "scheduled while its key is blocked", state: scheduled, keyed: true, bring: func(s *scene) { s.blocked(); s.begun(time.Hour) }},
		{name: "waiting for a key whose lease has run out", state: ready, keyed: true, bring: func(s *scene) { s.blocked(); s.begun(0); s.advance(leaseLength) }},
		{name: "next after its key was blocked", state: ready, keyed: true, bring: func(s *scene) {
			s.blocked()
			s.begun(0)
			s.advance(leaseLength)
			s.claim()
			s.settle(punctual.SettleRelease, 0, "current")
		}},
		{name: "expired while its key was blocked", state: ready, keyed: true, bring: func(s *scene) {
			s.blocked()
			s.push(punctual.NewMessage{ExpireAfter: time.Second})
			s.advance(2 * time.Second)
		}},
	}
}
