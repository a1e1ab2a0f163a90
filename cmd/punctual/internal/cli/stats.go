package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

func newStats(a *app) *cobra.Command {
	groups := false
	cmd := &cobra.Command{
		Use:     "stats [TOPIC]",
		Aliases: []string{"topics"},
		Short:   "List the topics, and count their messages by state",
		Long: `Stats lists the topics, or one of them, with the number of their messages by state and the next due
time. The numbers are of one instant of the store's clock. A topic comes into being with its first
message or its first settings. The audit log of the console, punctual.audit, is listed only when it
is named. 'punctual topics' is the same command.`,
		Example: `  punctual stats
  punctual stats order.cancel
  punctual stats orders --groups
  punctual stats --json`,
		RunE: a.action(func(ctx context.Context, args []string) error {
			if groups && len(args) == 0 {
				return usagef("--groups: name the topic whose groups to count")
			}
			return a.withInspector(ctx, mustExist, func(i punctual.Inspector, s punctual.Store) error {
				all, err := statsOf(ctx, i, args)
				if err == nil && groups {
					all, err = groupStats(ctx, i, s, all[0])
				}
				if err != nil {
					return err
				}
				return a.showStats(all)
			})
		}),
	}
	cmd.Flags().BoolVar(&groups, "groups", false, "count the copies of each group of the topic as well")
	return cmd
}

// groupStats returns the statistics of the topic of, and behind them those of its groups.
func groupStats(ctx context.Context, i punctual.Inspector, s punctual.Store, of punctual.TopicStats) ([]punctual.TopicStats, error) {
	topics, err := groupTopics(ctx, i, s, of.Topic)
	if err != nil {
		return nil, err
	}
	all := []punctual.TopicStats{of}
	for _, topic := range topics[1:] {
		stats, err := i.Stats(ctx, topic)
		if errors.Is(err, punctual.ErrNotFound) {
			stats, err = punctual.TopicStats{Topic: topic, Settings: punctual.DefaultSettings()}, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, stats)
	}
	return all, nil
}

// statsOf returns the statistics of the topic named in args, or of all topics but the audit log if
// args is empty.
func statsOf(ctx context.Context, i punctual.Inspector, args []string) ([]punctual.TopicStats, error) {
	if len(args) == 0 {
		all, err := i.Topics(ctx)
		return slices.DeleteFunc(all, func(t punctual.TopicStats) bool { return t.Topic == access.AuditTopic }), err
	}
	s, err := topicStats(ctx, i, args[0])
	return []punctual.TopicStats{s}, err
}

// topicStats returns the statistics of a topic that a command names and that must exist.
func topicStats(ctx context.Context, i punctual.Inspector, topic string) (punctual.TopicStats, error) {
	s, err := i.Stats(ctx, topic)
	if errors.Is(err, punctual.ErrNotFound) {
		return s, unwishedf("not_found", "topic %q: not found: 'punctual topics' lists those that there are", topic)
	}
	return s, err
}

func (a *app) showStats(all []punctual.TopicStats) error {
	show := lister[punctual.TopicStats]{
		app: a, columns: []any{"TOPIC", "SCHEDULED", "READY", "LEASED", "DEAD", "NEXT DUE", "PAUSED"}, numbers: []int{2, 3, 4, 5},
		row: func(s *punctual.TopicStats) []any {
			return []any{s.Topic, s.Scheduled, readyCount(s), s.Leased, a.deadCount(s.Dead), when(s.NextDue), view.PausedWord(s.Settings)}
		},
		line: func(s *punctual.TopicStats, _ string) any { return topicOf(*s) },
	}
	if len(all) > 1 {
		var sum punctual.TopicStats
		for _, s := range all {
			sum.Scheduled += s.Scheduled
			sum.Ready += s.Ready
			sum.Waiting += s.Waiting
			sum.Leased += s.Leased
			sum.Dead += s.Dead
		}
		show.footer = []any{"total", sum.Scheduled, readyCount(&sum), sum.Leased, sum.Dead, "", ""}
	}
	return show.all(all, "topics")
}

// readyCount is the number of ready messages, and of those that wait for their keys if any do.
func readyCount(s *punctual.TopicStats) any {
	if s.Waiting == 0 {
		return s.Ready
	}
	return fmt.Sprintf("%d (%d wait)", s.Ready, s.Waiting)
}

// deadCount is the number of dead messages, in red unless it is 0.
func (a *app) deadCount(n int64) any {
	if n == 0 {
		return n
	}
	return a.out.Colour(text.FgRed, fmt.Sprint(n))
}

// forecastStep is one choice of --by.
type forecastStep struct {
	overview.Step
	buckets int // unless --buckets says otherwise
	layout  string
}

func forecastSteps() []forecastStep {
	return []forecastStep{{overview.Minute, 60, "15:04"}, {overview.Hour, 24, "2006-01-02 15:04"}, {overview.Day, 14, time.DateOnly}}
}

func newForecast(a *app) *cobra.Command {
	var by string
	var buckets int
	var utc bool
	cmd := &cobra.Command{
		Use:   "forecast [TOPIC]",
		Short: "Show how many messages fall due when",
		Long: `Forecast counts the messages that fall due in each minute, hour or day ahead, of one topic or of
all. The first line is the present minute, hour or day, and counts what is still to come in it.
Ready and leased messages count as overdue. Hours and days are those of the local time zone (TZ),
or with --utc of UTC; a day may have 23 or 25 hours.`,
		Example: `  punctual forecast
  punctual forecast order.cancel --by minute --buckets 30
  punctual forecast --by day --json`,
	}
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		n := slices.IndexFunc(forecastSteps(), func(s forecastStep) bool { return s.String() == by })
		if n < 0 {
			return usagef("--by %q: use minute, hour or day", by)
		}
		step := forecastSteps()[n]
		if cmd.Flags().Changed("buckets") {
			step.buckets = buckets
		}
		if step.buckets < 1 || step.buckets > mostSteps {
			return usagef("--buckets %d: use 1 to %d", step.buckets, mostSteps)
		}
		zone := a.localZone()
		if utc {
			zone = time.UTC
		}
		return a.withInspector(ctx, mustExist, func(i punctual.Inspector, s punctual.Store) error {
			return a.forecast(ctx, i, s, strings.Join(args, ""), step, zone)
		})
	})
	cmd.Flags().StringVar(&by, "by", "hour", "the length of a step: `minute|hour|day`")
	cmd.Flags().IntVar(&buckets, "buckets", 0, "the number of steps (default: 60 minutes, 24 hours, 14 days)")
	cmd.Flags().BoolVar(&utc, "utc", false, "hours and days are those of UTC")
	return cmd
}

// mostSteps is how many steps a forecast can have. A store counts in steps of one length, 10000 at
// most, so days that differ in length are counted in hours or half hours.
const mostSteps = 200

// forecast counts what falls due in each step from the one under way on.
func (a *app) forecast(ctx context.Context, i punctual.Inspector, s punctual.Store, topic string, step forecastStep, zone *time.Location) error {
	if topic != "" {
		if _, err := topicStats(ctx, i, topic); err != nil {
			return err
		}
	}
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	f, err := overview.Forecast(ctx, i, overview.AheadQuery{Topic: topic, Step: step.Step, Steps: step.buckets, Zone: zone}, now)
	if err != nil {
		return err
	}
	if topic == "" {
		if err := withoutAudit(ctx, i, f, overview.AheadQuery{Topic: access.AuditTopic, Step: step.Step, Steps: step.buckets, Zone: zone}, now); err != nil {
			return err
		}
	}
	out := forecastJSON{Topic: topic, By: step.String(), Overdue: f.Overdue, Beyond: f.Beyond}
	for n, count := range f.Counts {
		out.Buckets = append(out.Buckets, bucketJSON{wire.Time(f.Edges[n]), count})
	}
	if a.json {
		return a.out.writeJSON(out)
	}
	a.drawForecast(out, step, zone)
	return nil
}

// withoutAudit takes the entries of the audit log, which nobody delivers, out of a forecast of all
// topics.
func withoutAudit(ctx context.Context, i punctual.Inspector, f *overview.Ahead, q overview.AheadQuery, now time.Time) error {
	switch _, err := i.Stats(ctx, q.Topic); {
	case errors.Is(err, punctual.ErrNotFound), errors.Is(err, punctual.ErrForbidden):
		return nil // there is no audit log, or this client may not count it, so that it is not in f
	case err != nil:
		return err
	}
	audit, err := overview.Forecast(ctx, i, q, now)
	if err != nil {
		return err
	}
	f.Overdue, f.Beyond = max(0, f.Overdue-audit.Overdue), max(0, f.Beyond-audit.Beyond)
	for n := range min(len(f.Counts), len(audit.Counts)) {
		f.Counts[n] = max(0, f.Counts[n]-audit.Counts[n])
	}
	return nil
}

// forecastJSON is what forecast prints.
type forecastJSON struct {
	Topic   string       `json:"topic,omitempty"` // left out: all topics
	By      string       `json:"by"`              // "minute", "hour" or "day"
	Overdue int64        `json:"overdue"`         // ready and leased messages
	Buckets []bucketJSON `json:"buckets"`
	Beyond  int64        `json:"beyond"` // due after the last bucket
}

// bucketJSON counts the scheduled messages due from From on, until the next bucket.
type bucketJSON struct {
	From  wire.Time `json:"from"`
	Count int64     `json:"count"`
}

// drawForecast prints a line for what is overdue, for each step, and for what lies beyond. Each
// line has a bar in proportion to its count.
func (a *app) drawForecast(f forecastJSON, step forecastStep, zone *time.Location) {
	most := max(f.Overdue, f.Beyond)
	for _, b := range f.Buckets {
		most = max(most, b.Count)
	}
	digits := len(fmt.Sprint(most))
	labels := max(len(step.layout), len("overdue"))
	room := max(10, a.out.Width()-labels-digits-5)
	line := func(label string, n int64, c text.Color) {
		a.printf("%s\n", strings.TrimRight(fmt.Sprintf("%-*s  %*d  %s", labels, label, digits, n, a.out.Colour(c, view.Bar(n, most, room))), " "))
	}
	in := "local time"
	if zone == time.UTC {
		in = "UTC"
	}
	a.printf("messages due by %s, in %s\n", step.Step, in)
	line("overdue", f.Overdue, text.FgYellow)
	for _, b := range f.Buckets {
		line(time.Time(b.From).In(zone).Format(step.layout), b.Count, text.FgCyan)
	}
	line("beyond", f.Beyond, text.FgHiBlack)
}

func newConsumers(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "consumers TOPIC",
		Short: "List who works on a topic",
		Long: `Consumers lists who works on a topic: whose claims wait, who holds how many leases, and what each
claimed and settled in the last five minutes. A store does not keep whose a lease is. So only a
server can tell, about the clients that it has seen since it started, and the process that owns a
directory, about the other processes that use it.`,
		Example: `  punctual consumers order.close --store http://localhost:7878
  punctual consumers order.close --json --store http://localhost:7878
  punctual consumers jobs --store disk:/var/lib/punctual`,
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withStore(ctx, mustExist, func(s punctual.Store) error {
				all, err := view.Consumers(ctx, s, args[0])
				if err != nil {
					return err
				}
				return a.showConsumers(args[0], all)
			})
		}),
	}
}

func (a *app) showConsumers(topic string, all storekit.Consumers) error {
	rows := all.All
	others := all.Others != storekit.Consumer{}
	if others {
		rows = append(rows, all.Others)
	}
	isOthers := func(c *storekit.Consumer) bool { return others && c == &rows[len(rows)-1] }
	show := lister[storekit.Consumer]{
		app: a, columns: []any{"CONSUMER", "ADDRESS", "WAITING", "LEASES", "FIRST ENDS", "CLAIMED", "SETTLED", "LAST SEEN"}, numbers: []int{3, 4, 6, 7},
		row: func(c *storekit.Consumer) []any {
			who := cmp.Or(strings.TrimSpace(c.User+" "+c.Name), "-")
			if isOthers(c) {
				who = "all others"
			}
			return []any{who, cmp.Or(c.Address, "-"), c.Waiting, c.Leases, when(c.NextEnd), c.Claimed, c.Settled, when(c.LastSeen)}
		},
		line: func(c *storekit.Consumer, _ string) any { return consumerJSON{topic, isOthers(c), wire.ConsumerOf(*c)} },
	}
	return show.all(rows, "consumers seen since "+stamp(all.Since))
}

// consumerJSON is what consumers prints for one who works on a topic. Others is true for the sum of
// those who are not told apart.
type consumerJSON struct {
	Topic  string `json:"topic"`
	Others bool   `json:"others,omitzero"`
	wire.Consumer
}
