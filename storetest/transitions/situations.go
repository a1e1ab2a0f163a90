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
}

// situations returns the situations between which the rules differ. All start with a clock at a
// whole second.
func situations() []situation {
	const none, scheduled, ready, leased, dead = punctual.StateNone, punctual.StateScheduled, punctual.StateReady, punctual.StateLeased, punctual.StateDead
	return []situation{
		{"absent", none, func(*scene) {}},
		{"scheduled", scheduled, func(s *scene) { s.begun(time.Hour) }},
		{"ready", ready, func(s *scene) { s.begun(0) }},
		{"ready after waiting", ready, func(s *scene) { s.begun(time.Hour); s.advance(2 * time.Hour) }},
		{"rescheduled", scheduled, func(s *scene) { s.begun(0); s.amend(punctual.ChangeReschedule, time.Hour) }},
		{"rescheduled to now", ready, func(s *scene) { s.begun(time.Hour); s.amend(punctual.ChangeReschedule, 0) }},
		{"replaced", scheduled, func(s *scene) {
			s.begun(0)
			s.push(punctual.NewMessage{IfExists: punctual.IfExistsReplace, Delay: time.Hour, Body: []byte("second")})
		}},
		{"replaced under its lease", ready, func(s *scene) {
			s.leased()
			s.push(punctual.NewMessage{IfExists: punctual.IfExistsReplace, Body: []byte("second")})
		}},
		{"paused and scheduled", scheduled, func(s *scene) { s.begun(time.Hour); s.pause() }},
		{"paused and ready", ready, func(s *scene) { s.begun(0); s.pause() }},
		{"paused and absent", none, func(s *scene) { s.pause() }},

		{"leased", leased, func(s *scene) { s.leased() }},
		{"leased and extended", leased, func(s *scene) { s.leased(); s.settle(punctual.SettleExtend, 3*time.Hour, "current") }},
		{"leased and cancelled", leased, func(s *scene) { s.leased(); s.amend(punctual.ChangeCancel, 0) }},
		{"leased for the last time", leased, func(s *scene) { s.leased(); s.advance(leaseLength); s.claim() }},
		{"leased for the last time and cancelled", leased, func(s *scene) {
			s.leased()
			s.advance(leaseLength)
			s.claim()
			s.amend(punctual.ChangeCancel, 0)
		}},
		{"leased and expired meanwhile", leased, func(s *scene) {
			s.push(punctual.NewMessage{ExpireAfter: time.Second})
			s.claim()
			s.advance(10 * time.Second)
		}},
		{"leased without bound of attempts", leased, func(s *scene) { s.push(punctual.NewMessage{MaxAttempts: 1000}); s.claim() }},

		{"lapsed", ready, func(s *scene) { s.leased(); s.advance(leaseLength) }},
		{"lapsed and cancelled before", ready, func(s *scene) { s.leased(); s.amend(punctual.ChangeCancel, 0); s.advance(leaseLength) }},
		{"lapsed and rescheduled", scheduled, func(s *scene) {
			s.leased()
			s.advance(leaseLength)
			s.amend(punctual.ChangeReschedule, time.Hour)
		}},
		{"lapsed for the last time", ready, func(s *scene) { s.leased(); s.advance(leaseLength); s.claim(); s.advance(leaseLength) }},

		{"retried", scheduled, func(s *scene) { s.leased(); s.settle(punctual.SettleRetry, time.Hour, "current") }},
		{"retried and ready", ready, func(s *scene) { s.leased(); s.settle(punctual.SettleRetry, 0, "current") }},
		{"retried and leased again", leased, func(s *scene) { s.leased(); s.settle(punctual.SettleRetry, 0, "current"); s.claim() }},
		{"snoozed", scheduled, func(s *scene) { s.leased(); s.settle(punctual.SettleSnooze, time.Hour, "current") }},
		{"snoozed and leased again", leased, func(s *scene) { s.leased(); s.settle(punctual.SettleSnooze, 0, "current"); s.claim() }},
		{"released", ready, func(s *scene) { s.leased(); s.settle(punctual.SettleRelease, 0, "current") }},

		{"expired", ready, func(s *scene) { s.push(punctual.NewMessage{ExpireAfter: time.Second}); s.advance(time.Minute) }},
		{"expired and to be dropped", ready, func(s *scene) {
			s.push(punctual.NewMessage{ExpireAfter: time.Second, DropExpired: true})
			s.advance(time.Minute)
		}},
		{"expired and to be dropped with its attempts used up", ready, func(s *scene) {
			s.push(punctual.NewMessage{ExpireAfter: time.Second, DropExpired: true, MaxAttempts: 1})
			s.claim()
			s.advance(leaseLength)
		}},
		{"expired and cancelled with its attempts used up", ready, func(s *scene) {
			s.push(punctual.NewMessage{ExpireAfter: time.Second, MaxAttempts: 1})
			s.claim()
			s.amend(punctual.ChangeCancel, 0)
			s.advance(leaseLength)
		}},
		{"expired and dropped", none, func(s *scene) {
			s.push(punctual.NewMessage{ExpireAfter: time.Second, DropExpired: true})
			s.advance(time.Minute)
			s.claim()
		}},

		{"dead because it was discarded", dead, func(s *scene) { s.leased(); s.settle(punctual.SettleDiscard, 0, "current") }},
		{"dead because attempts were used up", dead, func(s *scene) {
			s.push(punctual.NewMessage{MaxAttempts: 1})
			s.claim()
			s.settle(punctual.SettleRetry, time.Hour, "current")
		}},
		{"dead because it expired", dead, func(s *scene) {
			s.push(punctual.NewMessage{ExpireAfter: time.Second})
			s.advance(time.Minute)
			s.claim()
		}},
		{"requeued", scheduled, func(s *scene) {
			s.leased()
			s.settle(punctual.SettleDiscard, 0, "current")
			s.amend(punctual.ChangeRequeue, time.Hour)
		}},
		{"requeued and leased again", leased, func(s *scene) {
			s.leased()
			s.settle(punctual.SettleDiscard, 0, "current")
			s.amend(punctual.ChangeRequeue, 0)
			s.claim()
		}},

		{"scheduled and to be remembered", scheduled, func(s *scene) { s.push(punctual.NewMessage{Delay: time.Hour, Remember: 30 * time.Minute}) }},
		{"leased and to be remembered", leased, func(s *scene) { s.push(punctual.NewMessage{Remember: 90 * time.Minute}); s.claim() }},
		{"lapsed and to be remembered", ready, func(s *scene) {
			s.push(punctual.NewMessage{Remember: 90 * time.Minute})
			s.claim()
			s.advance(leaseLength)
		}},
		{"dead and to be remembered", dead, func(s *scene) {
			s.push(punctual.NewMessage{Remember: 90 * time.Minute})
			s.claim()
			s.settle(punctual.SettleDiscard, 0, "current")
		}},
		{"acked and remembered", none, func(s *scene) {
			s.push(punctual.NewMessage{Remember: 3 * time.Hour})
			s.claim()
			s.settle(punctual.SettleAck, 0, "current")
		}},
		{"cancelled and remembered", none, func(s *scene) {
			s.push(punctual.NewMessage{Remember: time.Minute})
			s.amend(punctual.ChangeCancel, 0)
			s.advance(30 * time.Second)
		}},
		{"acked, remembered, and deleted", none, func(s *scene) {
			s.push(punctual.NewMessage{Remember: 3 * time.Hour})
			s.claim()
			s.settle(punctual.SettleAck, 0, "current")
			s.amend(punctual.ChangeDelete, 0)
		}},
		{"deleted under its lease", none, func(s *scene) { s.leased(); s.amend(punctual.ChangeDelete, 0) }},

		{"acked", none, func(s *scene) { s.leased(); s.settle(punctual.SettleAck, 0, "current") }},
		{"acked half an hour ago", none, func(s *scene) {
			s.leased()
			s.settle(punctual.SettleAck, 0, "current")
			s.advance(30 * time.Minute)
		}},
		{"acked long ago", none, func(s *scene) { s.leased(); s.settle(punctual.SettleAck, 0, "current"); s.advance(5 * time.Hour) }},
		{"cancelled", none, func(s *scene) { s.begun(time.Hour); s.amend(punctual.ChangeCancel, 0) }},
		{"cancelled under its lease and ended", none, func(s *scene) {
			s.leased()
			s.amend(punctual.ChangeCancel, 0)
			s.settle(punctual.SettleRelease, 0, "current")
		}},
	}
}
