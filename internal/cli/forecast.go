package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
)

const forecastHelp = `Forecast counts the messages that fall due in each minute, hour or day ahead, of one topic or
of all. The first step begins now; ready and leased messages count as overdue.`

const forecastExample = `  punctual forecast
  punctual forecast order.cancel --by minute --buckets 30
  punctual forecast --by day --json`

// forecastStep is one choice of --by.
type forecastStep struct {
	by      string
	step    time.Duration
	buckets int // unless --buckets says otherwise
	layout  string
}

func forecastSteps() []forecastStep {
	return []forecastStep{
		{"minute", time.Minute, 60, "15:04:05"},
		{"hour", time.Hour, 24, "2006-01-02 15:04"},
		{"day", 24 * time.Hour, 14, "2006-01-02 15:04"},
	}
}

func newForecast(a *app) *cobra.Command {
	var by string
	var buckets int
	cmd := &cobra.Command{
		Use:               "forecast [TOPIC]",
		Short:             "Show how many messages fall due when",
		Long:              forecastHelp,
		Example:           forecastExample,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTopics(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			n := slices.IndexFunc(forecastSteps(), func(s forecastStep) bool { return s.by == by })
			if n < 0 {
				return usagef("--by %q: use minute, hour or day", by)
			}
			step := forecastSteps()[n]
			q := punctual.ForecastQuery{Topic: strings.Join(args, ""), Step: step.step, Buckets: buckets}
			if q.Buckets == 0 {
				q.Buckets = step.buckets
			}
			if err := q.Check(); err != nil {
				return err
			}
			return a.withInspector(ctx, mustExist, func(i punctual.Inspector, _ punctual.Store) error {
				return a.forecast(ctx, i, q, step)
			})
		}),
	}
	cmd.Flags().StringVar(&by, "by", "hour", "the length of a step: `minute|hour|day`")
	cmd.Flags().IntVar(&buckets, "buckets", 0, "the number of steps (default: 60 minutes, 24 hours, 14 days)")
	return cmd
}

func (a *app) forecast(ctx context.Context, i punctual.Inspector, q punctual.ForecastQuery, step forecastStep) error {
	if q.Topic != "" {
		if _, err := topicStats(ctx, i, q.Topic); err != nil {
			return err
		}
	}
	f, err := i.Forecast(ctx, q)
	if err != nil {
		return err
	}
	if a.json {
		return a.out.writeJSON(forecastOf(q.Topic, step.by, f))
	}
	a.drawForecast(f, step)
	return nil
}

// drawForecast prints a line for each step with a bar as long as its count.
func (a *app) drawForecast(f punctual.Forecast, step forecastStep) {
	most := max(f.Overdue, f.Beyond, slices.Max(f.Counts))
	digits := len(fmt.Sprint(most))
	labels := max(len(step.layout), len("overdue"))
	room := max(10, width(a.out)-labels-digits-5)
	line := func(label string, n int64, c text.Color) {
		a.printf("%s\n", strings.TrimRight(fmt.Sprintf("%-*s  %*d  %s", labels, label, digits, n, a.colour(c, barOf(n, most, room))), " "))
	}
	a.printf("messages due by %s, times in UTC\n", step.by)
	line("overdue", f.Overdue, text.FgYellow)
	for n, count := range f.Counts {
		line(f.From.Add(time.Duration(n)*f.Step).UTC().Format(step.layout), count, text.FgCyan)
	}
	line("beyond", f.Beyond, text.FgHiBlack)
}

// barOf is a bar for n when most takes all the room; what is not 0 is at least a sliver.
func barOf(n, most int64, room int) string {
	if n <= 0 {
		return ""
	}
	eighths := int(float64(n) / float64(most) * float64(room) * 8)
	slivers := []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}
	bar := strings.Repeat("█", eighths/8) + slivers[eighths%8]
	if bar == "" {
		return slivers[1]
	}
	return bar
}
