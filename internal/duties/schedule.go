package duties

import (
	"strings"
	"time"

	"github.com/punctualmq/punctual"
)

// tickLease is the lease under which the times of a schedule are decided. Deciding takes milliseconds, and a process that dies
// meanwhile delays the schedule by the rest of the lease.
const tickLease = 5 * time.Second

// scheduling is the duty that stores the occurrences of recurring schedules, which are the messages of the companions T@cron.
func scheduling() Duty {
	return Duty{
		Name: "schedule",
		Topic: func(name string) string {
			if strings.HasSuffix(name, punctual.ScheduleSuffix) {
				return name
			}
			return ""
		},
		Lease: tickLease,
		New: func(t *Tools) Handler {
			s := punctual.NewScheduler(t.Store)
			s.Observer = t.Observer
			return scheduler{s, t}
		},
	}
}

// scheduler is a punctual.Scheduler as the handler of a duty.
type scheduler struct {
	*punctual.Scheduler
	t *Tools
}

// LogOutage implements Handler.
func (s scheduler) LogOutage() *Outage { return s.t.Outage }
