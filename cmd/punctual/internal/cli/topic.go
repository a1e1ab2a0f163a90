package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/internal/settings"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

func newTopic(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "topic",
		Short: "Show or change a topic's settings, pause, purge or delete it",
		Long: `The settings of a topic are kept in the store and apply to every process that uses it. A topic comes
into being with its first message or its first settings.`,
		Example: `  punctual topic show order.cancel
  punctual topic set order.cancel --max-attempts 8 --backoff 2m,10m,10m,1h,2h,6h,15h
  punctual topic pause order.cancel`,
	}, newTopicSet(a), newTopicShow(a), newTopicPause(a), newTopicResume(a), newTopicPurge(a), newTopicDelete(a))
}

func (a *app) showSettings(topic string, s punctual.Settings) error {
	if a.json {
		return a.out.writeJSON(settingsJSON{topic, s})
	}
	show := func(what, value string) { a.printf("%-28s %s\n", what, value) }
	show("topic", topic)
	for _, row := range settings.Table {
		if !row.Pause {
			show(row.Words(), row.Shown(&s))
		}
	}
	show("paused", view.PausedWord(s))
	return nil
}

// configure changes settings and shows them all.
func (a *app) configure(ctx context.Context, create bool, topic string, p punctual.SettingsPatch) error {
	if err := storekit.CheckTopic(topic); err != nil {
		return err
	}
	if _, err := storekit.ApplySettings(punctual.DefaultSettings(), p, storekit.AllAbilities()); err != nil {
		return err // before a store is made for it
	}
	return a.withInspector(ctx, create, func(i punctual.Inspector, _ punctual.Store) error {
		if !create {
			if _, err := topicStats(ctx, i, topic); err != nil {
				return err
			}
		}
		s, err := i.Configure(ctx, topic, p)
		if err != nil {
			return err
		}
		return a.showSettings(topic, s)
	})
}

// confirm asks on a terminal for the name of the topic before something is removed for good.
// Without a terminal, where nobody can answer, --yes is needed.
func (a *app) confirm(topic, what string, yes bool) error {
	if yes {
		return nil
	}
	if !term.IsTerminal(a.in) {
		return usagef("this removes %s for good: say --yes to do it", what)
	}
	return a.ask(topic, what)
}

// ask asks for the name of the topic, and returns an error unless that name was typed.
func (a *app) ask(topic, what string) error {
	fmt.Fprintf(a.errs, "This removes %s for good. Type the topic's name to do it: ", what)
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if strings.TrimSpace(answer) != topic {
		return unwishedf("not_confirmed", "not confirmed: nothing was removed")
	}
	return nil
}

func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVar(yes, "yes", false, "do it without asking")
}

func newTopicSet(a *app) *cobra.Command {
	var p punctual.SettingsPatch
	cmd := &cobra.Command{
		Use:   "set TOPIC",
		Short: "Change settings",
		Long: `Set changes those settings of a topic whose flags are given, for every process that uses the
store, and shows all of them. A backoff is a list of delays, the last one for all that follow, or
exp:BASE..MAX with an optional jitter of 0 to 1. Several partitions let a topic in Redis use more
cores, and the servers of a cluster; order holds within each. Their number can be set only while
there is no such topic. With a finished retention 'punctual get' tells whether a message that was
acked, cancelled or dropped fired, when, and how late. Its body is not kept.`,
		Example: `  punctual topic set order.cancel --lease 1m --max-attempts 5
  punctual topic set notify --max-attempts 8 --backoff 2m,10m,10m,1h,2h,6h,15h
  punctual topic set jobs --backoff exp:1s..1h,jitter=0.2
  punctual topic set order.cancel --dedupe-window 1d --dead-retention 4w --finished-retention 30d
  punctual topic set jobs --partitions 8 --store redis://localhost`,
	}
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		if p == (punctual.SettingsPatch{}) {
			return usagef("no setting is given: see 'punctual topic set --help'")
		}
		return a.configure(ctx, orCreate, args[0], p)
	})
	for _, row := range settings.Table {
		if !row.Pause {
			f := cmd.Flags().VarPF(&settingFlag{row, &p}, row.Flag(), "", row.Usage())
			if row.Kind() == settings.Truth {
				f.NoOptDefVal = "true"
			}
		}
	}
	return cmd
}

// settingFlag is a flag that changes a setting.
type settingFlag struct {
	row *settings.Setting
	p   *punctual.SettingsPatch
}

// Set, String and Type implement pflag.Value.
func (f *settingFlag) Set(text string) error {
	_, err := typed(f.p, f.row.Parse(f.p, text))
	return err
}

func (f *settingFlag) String() string {
	if f.p == nil || !f.row.Given(f.p) {
		return ""
	}
	var s punctual.Settings
	f.row.Apply(&s, f.p)
	return f.row.Text(&s)
}

// Type is the word for the value in a command's help.
func (f *settingFlag) Type() string {
	if f.row.Kind() == settings.Truth {
		return "bool" // so that help shows no value
	}
	return f.row.Kind().String()
}

func newTopicShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show TOPIC",
		Short: "Show settings",
		Long:  `Show prints the settings of a topic. 'punctual stats' counts its messages.`,
		Example: `  punctual topic show order.cancel
  punctual topic show order.cancel --json
  punctual topic show jobs --store disk:/var/lib/punctual`,
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withInspector(ctx, mustExist, func(i punctual.Inspector, _ punctual.Store) error {
				s, err := topicStats(ctx, i, args[0])
				if err != nil {
					return err
				}
				return a.showSettings(args[0], s.Settings)
			})
		}),
	}
}

func newTopicPause(a *app) *cobra.Command {
	return newPausing(a, true, &cobra.Command{
		Use:   "pause TOPIC",
		Short: "Hold back deliveries or refuse pushes",
		Long: `Pause holds back the deliveries of a topic (--delivery, the default), refuses pushes to it (--push),
or both. Messages are kept and fall due as before, and a handler that already works on a message
goes on. 'punctual topic resume' ends the pause.`,
		Example: `  punctual topic pause order.cancel
  punctual topic pause order.cancel --push
  punctual topic pause order.cancel --push --delivery`,
	})
}

func newTopicResume(a *app) *cobra.Command {
	return newPausing(a, false, &cobra.Command{
		Use:   "resume TOPIC",
		Short: "End a pause",
		Long: `Resume ends the pause of deliveries (--delivery) or of pushes (--push), and both when neither is
given. Messages that fell due meanwhile are delivered at once.`,
		Example: `  punctual topic resume order.cancel
  punctual topic resume order.cancel --push
  punctual topic resume order.cancel --delivery --json`,
	})
}

// newPausing completes cmd, which sets the topic's pauses to paused.
func newPausing(a *app, paused bool, cmd *cobra.Command) *cobra.Command {
	var push, delivery bool
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		var p punctual.SettingsPatch
		neither := !push && !delivery
		if push || neither && !paused {
			p.PushPaused = &paused
		}
		if delivery || neither {
			p.DeliveryPaused = &paused
		}
		return a.configure(ctx, mustExist, args[0], p)
	})
	cmd.Flags().BoolVar(&push, "push", false, "pushes")
	cmd.Flags().BoolVar(&delivery, "delivery", false, "deliveries")
	return cmd
}

// purgeFlags are the flags of topic purge and dead purge; each has some of them.
type purgeFlags struct {
	state, before string
	all, yes      bool
	day           dayFlags
}

func newTopicPurge(a *app) *cobra.Command {
	var f purgeFlags
	cmd := &cobra.Command{
		Use:   "purge TOPIC",
		Short: "Remove messages without delivering them",
		Long: `Purge removes messages of a topic without delivering them: with --state those of one state, else all
that are not dead, leased ones included. The topic and its settings stay.`,
		Example: `  punctual topic purge order.cancel --yes
  punctual topic purge order.cancel --state scheduled --yes
  punctual topic purge order.cancel`,
		RunE: a.action(func(ctx context.Context, args []string) error { return f.purge(ctx, a, args[0]) }),
	}
	cmd.Flags().StringVar(&f.state, "state", "", "only `scheduled|ready|leased|dead` ones")
	yesFlag(cmd, &f.yes)
	return cmd
}

func newDeadPurge(a *app) *cobra.Command {
	f := purgeFlags{state: "dead", yes: true}
	cmd := &cobra.Command{
		Use:   "purge TOPIC (--all|--on DAY|--before TIME)",
		Short: "Remove dead messages for good",
		Long: `Purge removes dead messages of a topic for good: all of them, those that died on one day, or
before a time. It prints how many. Days are those of the local time zone (TZ), or with --utc of
UTC, as in "dead list".`,
		Example: `  punctual dead purge order.cancel --all
  punctual dead purge order.cancel --on 2026-11-20
  punctual dead purge order.cancel --before 2026-11-01`,
		RunE: a.action(func(ctx context.Context, args []string) error {
			if given(f.all, f.day.on != "", f.before != "") != 1 {
				return usagef("say which dead messages to remove: exactly one of --all, --on and --before")
			}
			return f.purge(ctx, a, args[0])
		}),
	}
	cmd.Flags().BoolVar(&f.all, "all", false, "remove all dead messages")
	f.day.register(cmd, "--before")
	cmd.Flags().StringVar(&f.before, "before", "", "only those that died before this `TIME` or day")
	return cmd
}

// given counts the flags that were given.
func given(flags ...bool) (n int) {
	for _, f := range flags {
		if f {
			n++
		}
	}
	return n
}

// purge removes messages of a topic, which must exist, and prints how many were removed.
func (f *purgeFlags) purge(ctx context.Context, a *app, topic string) (err error) {
	q := punctual.PurgeQuery{Topic: topic}
	what, kind := "all messages of "+topic+" that are not dead", ""
	if f.state != "" {
		if q.State, err = punctual.ParseState(f.state); err != nil {
			return err
		}
		what, kind = "all "+f.state+" messages of "+topic, f.state+" "
	}
	if q.From, q.To, err = f.day.bounds(a.localZone()); err != nil {
		return err
	}
	if f.before != "" {
		if q.To, err = f.day.instant(f.before, a.localZone()); err != nil {
			return err
		}
	}
	if err := a.confirm(topic, what, f.yes); err != nil {
		return err
	}
	return a.withInspector(ctx, mustExist, func(i punctual.Inspector, _ punctual.Store) error {
		if _, err := topicStats(ctx, i, topic); err != nil {
			return err
		}
		n, err := a.purgeWithBar(ctx, i, q)
		if err != nil {
			return err
		}
		return a.printPurged(topic, n, kind)
	})
}

// purgeWithBar purges, and meanwhile shows in a bar by how many messages the topic has become
// smaller.
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

func newTopicDelete(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete TOPIC",
		Short: "Remove a topic and all that it holds",
		Long: `Delete removes a topic with its settings and all its messages, dead and leased ones included. The
IDs of its duplicate window and its records of finished messages go as well. The topic comes into
being again, with default settings, when somebody pushes to it.`,
		Example: `  punctual topic delete order.cancel --yes
  punctual topic delete order.cancel
  punctual topic delete old.jobs --yes --json`,
		RunE: a.action(func(ctx context.Context, args []string) error {
			if err := a.confirm(args[0], "the topic "+args[0]+" with all its messages", yes); err != nil {
				return err
			}
			return a.withInspector(ctx, mustExist, func(i punctual.Inspector, _ punctual.Store) error {
				n, err := i.DeleteTopic(ctx, args[0])
				if err != nil {
					return err
				}
				return a.printPurged(args[0], n, "")
			})
		}),
	}
	yesFlag(cmd, &yes)
	return cmd
}
