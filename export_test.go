package punctual

import (
	"time"

	"github.com/punctualmq/punctual/internal/cron"
)

// NewSchedulerWith is NewScheduler of a process with other zone data.
func NewSchedulerWith(s Store, zones map[string]*time.Location) *Scheduler {
	return &Scheduler{store: s, zones: cron.ZonesOf(zones)}
}
