package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/consumers"
	"github.com/punctualmq/punctual/storekit"
)

// consumersPage shows who works on a topic.
type consumersPage struct {
	*topicView
	Workers *workers
}

func (c *call) showConsumers() error {
	v, err := c.topicView("consumers", "consumers")
	if err != nil {
		return err
	}
	p := &consumersPage{topicView: v}
	if p.Workers, err = c.workersOf(v.Stats.Topic); err != nil {
		return err
	}
	return c.show("consumers", p)
}

// workers are the consumers of a topic as a page shows them.
type workers struct {
	Rows []workerRow
	// More is how many consumers have no row of their own because there are more than mostWorkers.
	More int
	// Since is when the counting of consumers began. Known is false if nothing counts them.
	Since time.Time
	Known bool
}

// workerRow is one consumer in a table.
type workerRow struct {
	storekit.Consumer
	// Who is the consumer's user and name, or its address if both are unknown. Others marks the row
	// that sums up the consumers without a row of their own.
	Who    string
	Others bool
	// ClaimedPerMinute and SettledPerMinute are means over the last consumers.RateMinutes minutes.
	ClaimedPerMinute, SettledPerMinute string
}

// mostWorkers is how many consumers have a row of their own on a page.
const mostWorkers = 20

// whoClaims returns the function that reports the consumers of a topic: Options.Consumers,
// otherwise the store's, otherwise that of the tracker which Observer fills. It returns nil if
// there is none of the three.
func (c *Console) whoClaims() func(context.Context, string) (storekit.Consumers, error) {
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

// whyItWaits returns a sentence that says why ready messages of a topic are not delivered, as far
// as the console knows, otherwise "". leased is how many of its messages are leased. What Observer
// has observed is not asked, because an observer does not see claims that wait.
func (c *call) whyItWaits(topic string, s *punctual.Settings, leased int64) (string, error) {
	text := c.look.language.text
	switch {
	case s.DeliveryPaused:
		return c.whoPaused(topic)
	case s.MaxLeases > 0 && leased >= int64(s.MaxLeases):
		return text("waits.bound", leased, s.MaxLeases), nil
	case len(s.Groups) > 0:
		return text("waits.groups", strings.Join(s.Groups, ", ")), nil
	case c.console.options.Consumers == nil && c.console.reporter == nil:
		return "", nil
	}
	all, known, err := c.consumersOf(topic)
	switch {
	case !known:
		return "", err
	case len(all.All) == 0:
		return text("workers.nobody", stamp(all.Since, c.look.zone)), nil
	}
	free := func(one storekit.Consumer) bool { return one.Leases == 0 || one.Waiting > 0 }
	if all.Others != (storekit.Consumer{}) || slices.ContainsFunc(all.All, free) {
		return "", nil
	}
	return text("waits.busy", len(all.All), stamp(all.First(0).Others.NextEnd, c.look.zone)), nil
}

// leasedOf returns how many messages of a topic with a bound of leases are leased; 0 for a topic
// without one, whose messages are not counted.
func (c *call) leasedOf(topic string, s *punctual.Settings) (int64, error) {
	if s.MaxLeases == 0 {
		return 0, nil
	}
	stats, err := c.inspector.Stats(c.r.Context(), topic)
	if err != nil {
		return 0, fmt.Errorf("count the leases of %s: %w", topic, err)
	}
	return stats.Leased, nil
}

// whoPaused returns the sentence about a paused topic, with who paused it and when if the audit log
// says so and the reader may read that.
func (c *call) whoPaused(topic string) (string, error) {
	text := c.look.language.text
	if c.may(access.Inspect, access.AuditTopic) != nil {
		return text("waits.paused"), nil
	}
	now, err := c.now()
	if err != nil {
		return "", err
	}
	e, err := c.console.audit.Pauser(c.r.Context(), topic, now)
	if err != nil || e == nil {
		return text("waits.paused"), err
	}
	return text("waits.paused.by", visible(e.Who), stamp(e.At, c.look.zone)), nil
}

// consumersOf asks who works on a topic. known is false after an error, and where nobody can report
// consumers: a store or server may be too old for that.
func (c *call) consumersOf(topic string) (all storekit.Consumers, known bool, err error) {
	tell := c.console.whoClaims()
	if tell == nil {
		return all, false, nil
	}
	all, err = tell(c.r.Context(), topic)
	switch {
	case errors.Is(err, punctual.ErrUnsupported):
		return all, false, nil
	case err != nil:
		return all, false, fmt.Errorf("look who works on topic %s: %w", topic, err)
	}
	return all, true, nil
}

// workersOf returns the consumers of a topic. A store or server that cannot report them, for
// instance because it is too old, is no error: the page then says that the consumers are unknown.
func (c *call) workersOf(topic string) (*workers, error) {
	all, known, err := c.consumersOf(topic)
	if err != nil {
		return nil, err
	}
	if !known {
		return &workers{}, nil
	}
	w := &workers{Known: true, Since: all.Since, More: max(0, len(all.All)-mostWorkers)}
	all = all.First(mostWorkers)
	for _, one := range all.All {
		w.Rows = append(w.Rows, workerRowOf(one))
	}
	if all.Others != (storekit.Consumer{}) {
		others := workerRowOf(all.Others)
		others.Others = true
		w.Rows = append(w.Rows, others)
	}
	return w, nil
}

func workerRowOf(one storekit.Consumer) workerRow {
	row := workerRow{Consumer: one, Who: visible(strings.TrimSpace(one.User + " " + one.Name))}
	row.Who = cmp.Or(row.Who, visible(one.Address))
	row.Address = visible(one.Address)
	row.ClaimedPerMinute = perMinute(one.Claimed, consumers.RateMinutes)
	row.SettledPerMinute = perMinute(one.Settled, consumers.RateMinutes)
	return row
}
