package duties

import (
	"strings"

	"github.com/punctualmq/punctual"
)

// scheduling is the duty that stores the occurrences of recurring schedules, which are the messages of the companions T@cron.
func scheduling() Duty {
	return Duty{
		Name: "schedule",
		Topic: func(name string) string {
			if strings.HasSuffix(name, "@cron") {
				return name
			}
			return ""
		},
		New: func(t *Tools) Handler { return scheduler{punctual.NewScheduler(t.Store)} },
	}
}

// scheduler is a punctual.Scheduler as the handler of a duty.
type scheduler struct{ *punctual.Scheduler }

// IsDuty implements Handler.
func (scheduler) IsDuty() {}
