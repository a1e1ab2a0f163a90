package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/consumers"
)

// workers is who works on a topic.
type workers struct {
	Rows []workerRow
	// More is how many are not in Rows.
	More int
	// Since is when somebody began to look. Known is false where nobody looks.
	Since time.Time
	Known bool
}

// workerRow is one consumer in a table.
type workerRow struct {
	punctual.Consumer
	// Who is its user and name as text; "" is one of whom nothing is known, Others the sum of those left out.
	Who    string
	Others bool
	// ClaimedPerMinute and SettledPerMinute are the means of the last minutes.
	ClaimedPerMinute, SettledPerMinute string
}

// mostWorkers is how many consumers a page shows.
const mostWorkers = 20

// whoClaims returns what tells who works on a topic, or nil: Options.Consumers, the store, or what the Observer was told.
func (c *Console) whoClaims() func(context.Context, string) (punctual.Consumers, error) {
	switch {
	case c.options.Consumers != nil:
		return c.options.Consumers
	case c.reporter != nil:
		return c.reporter.Consumers
	case c.observed.Load():
		return c.tracker.Consumers
	}
	return nil
}

// workersOf are those of a topic. That a server is too old to tell is no error of the page.
func (c *call) workersOf(topic string) (*workers, error) {
	tell := c.console.whoClaims()
	if tell == nil {
		return &workers{}, nil
	}
	all, err := tell(c.r.Context(), topic)
	if errors.Is(err, punctual.ErrUnsupported) {
		return &workers{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look who works on topic %s: %w", topic, err)
	}
	w := &workers{Known: true, Since: all.Since, More: max(0, len(all.All)-mostWorkers)}
	all = all.First(mostWorkers)
	for _, one := range all.All {
		w.Rows = append(w.Rows, workerRowOf(one))
	}
	if all.Others != (punctual.Consumer{}) {
		others := workerRowOf(all.Others)
		others.Others = true
		w.Rows = append(w.Rows, others)
	}
	return w, nil
}

func workerRowOf(one punctual.Consumer) workerRow {
	row := workerRow{Consumer: one, Who: visible(strings.TrimSpace(one.User + " " + one.Name))}
	row.Who = cmp.Or(row.Who, visible(one.Address))
	row.Address = visible(one.Address)
	row.ClaimedPerMinute = perMinute(one.Claimed, consumers.RateMinutes)
	row.SettledPerMinute = perMinute(one.Settled, consumers.RateMinutes)
	return row
}
