package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/schedule/internal/rule"
)

const (
	// lateSchedule is how long a time may wait for a duty before that is a problem. A duty that
	// dies has the next one wait for the end of its lease, which is 5 s.
	lateSchedule = 10 * time.Second
	// longReady is how long an occurrence may be ready before it is a problem that it holds up the
	// ones after it.
	longReady = time.Minute
)

// scheduleReading is what the calls that read several schedules keep from one to the next.
type scheduleReading struct {
	now   int64 // the store's clock when the reading began
	zones cron.Zones
	// settings are those that were read, by topic.
	settings map[string]punctual.Settings
}

// problem decides what keeps the schedule of the message m from coming as its Spec says:
// Info.Problem and ProblemSince. want is when the schedule is to come, and timesErr why its times
// cannot be found.
func problem(ctx context.Context, q *punctual.Queue, topic string, m *punctual.Info, r *rule.Record, want time.Time, timesErr error, look *scheduleReading) (text string, since time.Time, err error) {
	now := timeOf(look.now)
	var zone *cron.UnknownZoneError
	switch {
	case m.State == punctual.StateDead:
		return "its message is dead, so that it does not come: put it again", want, nil
	case r.State.Paused == nil && r.Ahead(look.now) != 0:
		return fmt.Sprintf("its times up to %s are decided, because the store's clock was ahead: a duty has it begin again, and so does putting it "+
			"again", instant(timeOf(r.Ahead(look.now)))), want, nil
	case r.State.Next.At == 0:
		return "", time.Time{}, nil
	case errors.As(timesErr, &zone):
		return fmt.Sprintf("the zone data here lacks %q, so that its times are not known: install the time zone data (tzdata) on each machine that "+
			"stores or shows schedules, or put it again with another zone", zone.Name), want, nil
	case timesErr != nil:
		return fmt.Sprintf("its times are not known: %v: put it again", timesErr), want, nil
	case r.State.Paused != nil:
		return "", time.Time{}, nil
	case now.Sub(want) >= lateSchedule:
		text, err = whyOverdue(ctx, q, topic, m, want, look)
		return text, want, err
	case m.State == punctual.StateScheduled && m.FirstDue.After(want):
		return movedText(m, want), want, nil
	}
	return heldUp(ctx, q, topic, m.ID, r, want, look)
}

// whyOverdue says why nobody has stored the time want, which has come.
func whyOverdue(ctx context.Context, q *punctual.Queue, topic string, m *punctual.Info, want time.Time, look *scheduleReading) (string, error) {
	parent, err := settingsIn(ctx, q, topic, look)
	if err != nil {
		return "", err
	}
	own, err := settingsIn(ctx, q, m.Topic, look)
	switch {
	case err != nil:
		return "", err
	case parent.PushPaused:
		return fmt.Sprintf("its time %s waits, because pushes of %s are paused: end the pause", instant(want), topic), nil
	case own.DeliveryPaused:
		return fmt.Sprintf("its time %s waits, because deliveries of %s are paused: end the pause", instant(want), m.Topic), nil
	case m.State == punctual.StateScheduled && m.FirstDue.After(want):
		return movedText(m, want), nil
	}
	return fmt.Sprintf("its time %s has come, and no duty has stored it: run 'punctual serve', duty.Run or a worker with Schedules; where one "+
		"runs, its log says why", instant(want)), nil
}

func movedText(m *punctual.Info, want time.Time) string {
	return fmt.Sprintf("its message was moved from %s to %s, and it does not come before: put it again", instant(want), instant(m.Due))
}

// heldUp returns the problem of a schedule with OverlapSkip that has left out its latest time
// because of an occurrence on which nobody works: one that is ready, or that was moved. One that
// somebody works on, or that waits for its next attempt, is no problem.
func heldUp(ctx context.Context, q *punctual.Queue, topic, name string, r *rule.Record, want time.Time, look *scheduleReading) (string, time.Time, error) {
	latest := r.Latest(1)
	if len(latest) == 0 || latest[0].Why != rule.WhyOverlap || len(r.State.Ran) == 0 {
		return "", time.Time{}, nil
	}
	before := r.State.Ran[len(r.State.Ran)-1]
	m, err := q.Get(ctx, topic, occurrenceID(name, before))
	switch {
	case errors.Is(err, punctual.ErrNotFound):
		return "", time.Time{}, nil
	case err != nil:
		return "", time.Time{}, err
	}
	now, moved := timeOf(look.now), m.FirstDue.Equal(m.Due) && m.Due.After(want)
	if m.State == punctual.StateReady && now.Sub(m.Due) >= longReady && now.Sub(m.Created) >= longReady || m.State == punctual.StateScheduled && moved {
		since := map[punctual.State]string{punctual.StateReady: "since", punctual.StateScheduled: "for"}[m.State]
		text := fmt.Sprintf("its times are left out, because nobody works on the occurrence %s, which is %s %s %s: have a consumer take it, or cancel it, "+
			"or put the schedule with another overlap", m.ID, m.State, since, instant(m.Due))
		return text, timeOf(before + rule.Delay(r.Spread, topic, name)), nil
	}
	return "", time.Time{}, nil
}

// settingsIn returns the settings of a topic, which a reading asks for once.
func settingsIn(ctx context.Context, q *punctual.Queue, topic string, look *scheduleReading) (punctual.Settings, error) {
	if s, ok := look.settings[topic]; ok {
		return s, nil
	}
	i, err := punctual.As[punctual.Inspector](q.Store())
	if err != nil {
		return punctual.Settings{}, err
	}
	s, err := i.Settings(ctx, topic)
	if err != nil {
		return punctual.Settings{}, err
	}
	if look.settings == nil {
		look.settings = make(map[string]punctual.Settings)
	}
	look.settings[topic] = s
	return s, nil
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }
