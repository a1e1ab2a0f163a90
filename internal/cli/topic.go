package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/internal/settings"
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

// confirm asks on a terminal for the name of the topic before something is removed for good. Without a terminal, where
// nobody can answer, --yes is needed.
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
