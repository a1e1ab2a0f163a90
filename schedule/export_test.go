package schedule

import (
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cron"
)

// NewSchedulerWith is NewScheduler of a process with other zone data.
func NewSchedulerWith(s punctual.Store, zones map[string]*time.Location) *Scheduler {
	return &Scheduler{store: s, zones: cron.ZonesOf(zones)}
}
