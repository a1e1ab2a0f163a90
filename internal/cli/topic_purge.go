package cli

import (
	"context"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
)

const topicPurgeHelp = `Purge removes messages of a topic without delivering them: with --state those of one state, else all
that are not dead, leased ones included. The topic and its settings stay.`

const topicPurgeExample = `  punctual topic purge order.cancel --yes
  punctual topic purge order.cancel --state scheduled --yes
  punctual topic purge order.cancel`

func newTopicPurge(a *app) *cobra.Command {
	var yes bool
	var state string
	cmd := &cobra.Command{
		Use:     "purge TOPIC",
		Short:   "Remove messages without delivering them",
		Long:    topicPurgeHelp,
		Example: topicPurgeExample,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			q := punctual.PurgeQuery{Topic: args[0]}
			what, kind := "all messages of "+q.Topic+" that are not dead", ""
			if state != "" {
				var err error
				if q.State, err = punctual.ParseState(state); err != nil {
					return err
				}
				what, kind = "all "+state+" messages of "+q.Topic, state+" "
			}
			if err := a.confirm(q.Topic, what, yes); err != nil {
				return err
			}
			return a.purge(ctx, q, kind)
		}),
	}
	cmd.Flags().StringVar(&state, "state", "", "only `scheduled|ready|leased|dead` ones")
	yesFlag(cmd, &yes)
	return cmd
}

const deadPurgeHelp = `Purge removes dead messages of a topic for good: all of them, those that died on one day, or
before a time. It prints how many. Days are those of the local time zone (TZ), or with --utc of
UTC, as in "dead list".`

const deadPurgeExample = `  punctual dead purge order.cancel --all
  punctual dead purge order.cancel --on 2026-11-20
  punctual dead purge order.cancel --before 2026-11-01`

type deadPurgeFlags struct {
	all    bool
	day    dayFlags
	before string
}

func newDeadPurge(a *app) *cobra.Command {
	var f deadPurgeFlags
	cmd := &cobra.Command{
		Use:     "purge TOPIC (--all|--on DAY|--before TIME)",
		Short:   "Remove dead messages for good",
		Long:    deadPurgeHelp,
		Example: deadPurgeExample,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			q, err := f.query(args[0], a.localZone())
			if err != nil {
				return err
			}
			return a.purge(ctx, q, "dead ")
		}),
	}
	cmd.Flags().BoolVar(&f.all, "all", false, "remove all dead messages")
	f.day.register(cmd, "--before")
	cmd.Flags().StringVar(&f.before, "before", "", "only those that died before this `TIME` or day")
	return cmd
}

func (f *deadPurgeFlags) query(topic string, local *time.Location) (q punctual.PurgeQuery, err error) {
	q = punctual.PurgeQuery{Topic: topic, State: punctual.StateDead}
	given := 0
	for _, g := range []bool{f.all, f.day.on != "", f.before != ""} {
		if g {
			given++
		}
	}
	if given != 1 {
		return q, usagef("say which dead messages to remove: exactly one of --all, --on and --before")
	}
	q.From, q.To, err = f.day.bounds(local)
	if err == nil && f.before != "" {
		q.To, err = f.day.instant(f.before, local)
	}
	return q, err
}

// purge removes messages of a topic, which must exist, and prints how many were removed. kind, such as "dead ", is printed before the
// word for messages.
func (a *app) purge(ctx context.Context, q punctual.PurgeQuery, kind string) error {
	return a.withInspector(ctx, mustExist, func(i punctual.Inspector, _ punctual.Store) error {
		if _, err := topicStats(ctx, i, q.Topic); err != nil {
			return err
		}
		n, err := a.purgeWithBar(ctx, i, q)
		if err != nil {
			return err
		}
		return a.printPurged(q.Topic, n, kind)
	})
}

// purgeWithBar purges, and meanwhile shows in a bar by how many messages the topic has become smaller.
func (a *app) purgeWithBar(ctx context.Context, i punctual.Inspector, q punctual.PurgeQuery) (int64, error) {
	count := func() (int64, bool) {
		s, err := i.Stats(ctx, q.Topic)
		return s.Live() + s.Dead, err == nil
	}
	before, _ := count()
	b := a.newBar("messages removed", 0)
	done := make(chan struct{})
	var watching sync.WaitGroup
	if b.Shown() {
		watching.Go(func() {
			for ticker := time.NewTicker(time.Second / 2); ; {
				select {
				case <-done:
					return
				case <-ticker.C:
				}
				if now, ok := count(); ok { // else the bar stands still
					b.Set(max(0, before-now))
				}
			}
		})
	}
	n, err := i.Purge(ctx, q)
	close(done)
	watching.Wait()
	b.Set(n)
	b.Stop(err)
	return n, err
}

func (a *app) printPurged(topic string, n int64, kind string) error {
	if a.json {
		return a.out.writeJSON(wire.Purged{Topic: topic, Purged: n})
	}
	word := "messages"
	if n == 1 {
		word = "message"
	}
	a.printf("%s: %d %s%s removed\n", topic, n, kind, word)
	return nil
}
