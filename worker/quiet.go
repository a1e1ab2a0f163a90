package worker

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cron"
)

// QuietHours are hours in which messages are not to be handled, for example because they make a
// telephone ring.
type QuietHours struct {
	// From and To are times of the day, such as "22:00" and "08:00": From is the first quiet
	// minute, To the first that is not quiet any more. With a To before From they lie around
	// midnight.
	From, To string
	// Zone is the IANA name of the time zone in which From and To are read. Default UTC.
	Zone string
	// ZoneHeader, if not empty, names a header of messages that has the zone of each, for example
	// that of its receiver. Zone counts for a message without the header, and for one whose header
	// names no zone that this program knows.
	ZoneHeader string
	// Spread has the messages come back over this time after the end of the quiet hours, so that
	// not all of a night come at once. Default 5 minutes; a negative one spreads nothing.
	Spread time.Duration
}

const defaultQuietSpread = 5 * time.Minute

// Quiet returns middleware that snoozes the messages which come in quiet hours to the end of these.
// No attempt is counted, and a retry that falls into quiet hours waits as well. A message that
// expires before then is not handled. Malformed hours or zones are ErrInvalid. For example:
//
//	quiet, err := worker.Quiet(worker.QuietHours{From: "22:00", To: "08:00", Zone: "Europe/Berlin", ZoneHeader: "zone"})
//	w := worker.New(store, &worker.Config{Middleware: []worker.Middleware{quiet}})
func Quiet(h QuietHours) (Middleware, error) {
	q := &quiet{header: h.ZoneHeader, spread: h.Spread}
	if q.spread == 0 {
		q.spread = defaultQuietSpread
	}
	var err error
	if q.from, err = timeOfDay("From", h.From); err != nil {
		return nil, err
	}
	if q.to, err = timeOfDay("To", h.To); err != nil {
		return nil, err
	}
	if q.from == q.to {
		return nil, fmt.Errorf("quiet hours from %s to %s: use two times: %w", h.From, h.To, punctual.ErrInvalid)
	}
	if q.zone, err = q.zones.Load(h.Zone); err != nil {
		return nil, fmt.Errorf("quiet hours: %w: %w", err, punctual.ErrInvalid)
	}
	return func(next punctual.Handler) punctual.Handler {
		return punctual.HandlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			if end := q.end(d.Delivered, d.Headers); !end.IsZero() {
				return punctual.SnoozeUntil(end.Add(q.later(d.ID)))
			}
			return next.Handle(ctx, d)
		})
	}, nil
}

// timeOfDay reads a time of the day, as the time since midnight.
func timeOfDay(field, text string) (time.Duration, error) {
	t, err := time.Parse("15:04", text)
	if err != nil {
		return 0, fmt.Errorf("quiet hours: %s is %q: write it like 22:00: %w", field, text, punctual.ErrInvalid)
	}
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, nil
}

// quiet are QuietHours that were read.
type quiet struct {
	from, to time.Duration
	zone     *time.Location
	header   string
	spread   time.Duration
	zones    cron.Zones // the zones that were loaded: that of QuietHours.Zone, and those that headers named
}

// end returns the end of the quiet hours in which an instant lies, and the zero Time for one that
// is not quiet. Where clocks are set back, the hours end when the clock first shows their end.
func (q *quiet) end(at time.Time, headers map[string]string) time.Time {
	zone := q.zone
	if name := headers[q.header]; q.header != "" && name != "" {
		if loc, err := q.zones.Load(name); err == nil {
			zone = loc
		}
	}
	wall := at.In(zone)
	hour, minute, second := wall.Clock()
	clock := time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute + time.Duration(second)*time.Second
	day := wall.Day()
	switch {
	case q.from < q.to && (clock < q.from || clock >= q.to):
		return time.Time{}
	case q.from > q.to && clock >= q.from:
		day++
	case q.from > q.to && clock >= q.to:
		return time.Time{}
	}
	end := cron.FirstInstant(time.Date(wall.Year(), wall.Month(), day, 0, 0, 0, 0, time.UTC).Add(q.to), zone)
	if !end.After(at) {
		return time.Time{}
	}
	return end
}

// later returns a part of the spread, always the same for one ID.
func (q *quiet) later(id string) time.Duration {
	if q.spread < 0 {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(id))
	return time.Duration(h.Sum64() % uint64(q.spread))
}
