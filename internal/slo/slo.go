// Package slo watches the objective that messages are delivered in time. It computes the burn rate:
// how many times more deliveries were late in a window of time than the objective allows.
package slo

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
)

// Objective is what an operator has promised: at least Percent of all deliveries are at most Limit
// late.
type Objective struct {
	Limit   time.Duration
	Percent float64
}

// Parse reads an objective such as "1s@99" or "500ms@99.9". Anything else is an ErrInvalid.
func Parse(text string) (Objective, error) {
	limit, percent, ok := strings.Cut(text, "@")
	var o Objective
	var err error
	if ok {
		if o.Limit, err = notation.ParseDuration(limit); err == nil {
			o.Percent, err = strconv.ParseFloat(percent, 64)
		}
	}
	if !ok || err != nil || o.Limit <= 0 || !(o.Percent > 0 && o.Percent < 100) {
		return Objective{}, fmt.Errorf("lateness objective %q: write how late, and how many percent are at most so late: 1s@99: %w", text, punctual.ErrInvalid)
	}
	return o, nil
}

// String is the inverse of Parse.
func (o Objective) String() string {
	return notation.FormatDuration(o.Limit) + "@" + strconv.FormatFloat(o.Percent, 'f', -1, 64)
}

// Windows returns the windows for which burn rates are shown.
func Windows() []time.Duration { return []time.Duration{5 * time.Minute, time.Hour, 6 * time.Hour} }

const (
	// grain is the length of a slot. The length of a window is exact to one slot.
	grain = 15 * time.Second
	slots = int(6*time.Hour/grain) + 1
)

// Lateness counts deliveries in time and late ones. Its methods are safe for concurrent use.
type Lateness struct {
	objective Objective
	epoch     time.Time // slots are counted from here, by the monotonic clock

	mu sync.Mutex
	// ring has the counts of the last slots: those of slot n are at index n modulo its length.
	// Guarded by mu.
	ring [slots]struct {
		number      int64
		total, late int64
	}
}

// New returns a Lateness that has seen nothing.
func New(o Objective) *Lateness { return &Lateness{objective: o, epoch: time.Now()} }

// Objective returns the objective.
func (l *Lateness) Objective() Objective { return l.objective }

// slot returns the number of the present slot. Numbers begin at 1, so that the zero elements of the
// ring belong to no slot.
func (l *Lateness) slot() int64 { return int64(time.Since(l.epoch)/grain) + 1 }

// Delivered counts one delivery. The lateness of a message that was pushed after its due time
// counts from the push.
func (l *Lateness) Delivered(d *punctual.Delivery) {
	late := d.ReadyFor()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.slot()
	s := &l.ring[n%int64(slots)]
	if s.number != n {
		s.number, s.total, s.late = n, 0, 0
	}
	s.total++
	if late > l.objective.Limit {
		s.late++
	}
}

// BurnRate returns how many times more deliveries were late in the last window than the objective
// allows. It is 0 when no delivery was late, and 1 when exactly as many were late as allowed. With
// the objective 1s@99 it is 100 when all deliveries were late.
func (l *Lateness) BurnRate(window time.Duration) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.slot()
	var total, late int64
	for n := max(1, now-int64(window/grain)); n <= now; n++ {
		if s := &l.ring[n%int64(slots)]; s.number == n {
			total, late = total+s.total, late+s.late
		}
	}
	if total == 0 {
		return 0
	}
	return 100 * float64(late) / float64(total) / (100 - l.objective.Percent)
}

// Degraded returns a sentence that says that the objective is not met at present, or nil. That is
// so while more deliveries were late than the objective allows both in the last five minutes and in
// the last hour. The hour alone would still report a fault that is over, and five minutes alone
// would report a few late deliveries.
func (l *Lateness) Degraded() []string {
	short, long := l.BurnRate(5*time.Minute), l.BurnRate(time.Hour)
	if short <= 1 || long <= 1 {
		return nil
	}
	return []string{fmt.Sprintf("deliveries are late: %s allows 1, the last 5 minutes had %.1f and the last hour %.1f times as many late ones as that", l.objective, short, long)}
}
