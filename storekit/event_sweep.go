package storekit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/punctualmq/punctual"
)

const (
	// sweepEvery is the default of SweepEventsUntil.
	sweepEvery = 10 * time.Minute
	// sweepPage is how many messages SweepEvents reads at once, and sweepPause how long it waits
	// after it has read so many for nothing.
	sweepPage  = 200
	sweepPause = 10 * time.Millisecond
)

// SweepEventsUntil calls SweepEvents each time that every has passed, until stop is closed; every 0
// stands for 10 minutes. An error of SweepEvents is for the log alone, because the next sweep
// removes what this one has left.
func SweepEventsUntil(stop <-chan struct{}, every time.Duration, s punctual.Store, log *slog.Logger) {
	if every == 0 {
		every = sweepEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		if err := SweepEvents(context.Background(), s); err != nil && !errors.Is(err, punctual.ErrClosed) {
			log.Warn("events that nobody has read in time could not be removed; the next sweep tries again", "err", err)
		}
	}
}

// SweepEvents removes the events that a claim would drop, in all topics of events (EventTopic) of a
// store. They leave no finished record. It reads the events that are older than Settings.EmitKeep
// of their topic, and those alone, so that it costs little however many events wait. After an error
// with one topic it goes on with the others.
func SweepEvents(ctx context.Context, s punctual.Store) error {
	namer, err := punctual.As[TopicNamer](s)
	if err != nil {
		return err
	}
	inspector, err := punctual.As[punctual.Inspector](s)
	if err != nil {
		return err
	}
	names, err := namer.TopicNames(ctx, NameQuery{Suffix: EventSuffix})
	if err != nil {
		return err
	}
	var failed []error
	for _, topic := range names {
		if err := sweepEvents(ctx, s, inspector, topic); err != nil && !errors.Is(err, punctual.ErrNotFound) {
			failed = append(failed, fmt.Errorf("sweep of %s: %w", topic, err))
		}
	}
	return errors.Join(failed...)
}

// sweepEvents is SweepEvents for one topic of events.
func sweepEvents(ctx context.Context, s punctual.Store, inspector punctual.Inspector, topic string) error {
	own, err := inspector.Settings(ctx, topic)
	if err != nil {
		return err
	}
	parent, _ := Companion(topic)
	of, err := inspector.Settings(ctx, parent)
	if err != nil {
		return err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	old := now.Add(-of.EmitKeep)
	q := punctual.ListQuery{Topic: topic, State: punctual.StateReady, Limit: sweepPage, Bare: true}
	for {
		page, err := inspector.List(ctx, q)
		if err != nil {
			return err
		}
		var over []punctual.Amendment
		young := false // what follows cannot be too old, unless it is kept for less long than EmitKeep says now
		for i := range page.Messages {
			m := &page.Messages[i]
			young = m.Due.After(old)
			if m.DropExpired && !m.Expires.IsZero() && !m.Expires.After(now) && !m.CancelRequested && hasAttempts(m, &own) {
				over = append(over, punctual.Amendment{Change: punctual.ChangeDelete, Topic: topic, ID: m.ID, IfDue: m.Due})
			}
		}
		if len(over) > 0 {
			// A message of which the result is an error was claimed or changed meanwhile, and is
			// not to be removed.
			if _, err := s.Amend(ctx, over); err != nil {
				return err
			}
		}
		if q.After = page.Next; q.After == "" || len(over) == 0 && young {
			return nil
		}
		if len(over) == 0 {
			time.Sleep(sweepPause)
		}
	}
}

// hasAttempts reports whether a message has attempts left; a claim makes one without any dead, and
// does not drop it.
func hasAttempts(m *punctual.Info, s *punctual.Settings) bool {
	limit := m.MaxAttempts
	if limit == 0 {
		limit = s.MaxAttempts
	}
	return m.Attempt < limit
}
