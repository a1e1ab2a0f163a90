package duties

import (
	"strings"
	"time"

	"github.com/punctualmq/punctual/schedule"
)

// tickLease is the lease under which the times of a schedule are decided. Deciding takes
// milliseconds, and a process that dies meanwhile delays the schedule by the rest of the lease.
const tickLease = 5 * time.Second

// scheduling is the duty that stores the occurrences of recurring schedules, which are the messages
// of the companions T@cron.
func scheduling() Duty {
	return Duty{
		Name: "schedule",
		Topic: func(name string) string {
			if strings.HasSuffix(name, schedule.Suffix) {
				return name
			}
			return ""
		},
		Lease: tickLease,
		New: func(t *Tools) Handler {
			s := schedule.NewScheduler(t.Store)
			s.Observer = t.Observer
			return scheduler{s, t}
		},
	}
}

// scheduler is a schedule.Scheduler as the handler of a duty.
type scheduler struct {
	*schedule.Scheduler
	*Tools
}
