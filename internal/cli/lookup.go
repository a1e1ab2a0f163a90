package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
)

// IDs are unique within a topic. Commands that take IDs alone look for the topic.

const topicFlagHelp = "the topic of the IDs (default: looked for; it must be the only one with the ID)"

// found is where an ID given on the command line was found.
type found struct {
	id    string
	topic string // empty: in no topic
}

// lookUp finds the topic of each ID: the one given, or the only one that holds the ID. An ID
// that several topics hold is an error of usage, before anything is changed.
func lookUp(ctx context.Context, i punctual.Inspector, topic string, ids []string) ([]found, error) {
	out := make([]found, len(ids))
	var topics []punctual.TopicStats
	if topic == "" {
		var err error
		if topics, err = i.Topics(ctx); err != nil {
			return nil, err
		}
	}
	for n, id := range ids {
		if err := punctual.CheckID(id); err != nil {
			return nil, err
		}
		out[n] = found{id, topic}
		if topic != "" {
			continue
		}
		holders, err := topicsWith(ctx, i, topics, id)
		switch {
		case err != nil:
			return nil, err
		case len(holders) > 1:
			return nil, usagef("ID %q is in the topics %s: name one with --topic", id, strings.Join(holders, ", "))
		case len(holders) == 1:
			out[n].topic = holders[0]
		}
	}
	return out, nil
}

func topicsWith(ctx context.Context, i punctual.Inspector, topics []punctual.TopicStats, id string) ([]string, error) {
	var holders []string
	for _, t := range topics {
		_, err := i.Get(ctx, t.Topic, id)
		switch {
		case err == nil:
			holders = append(holders, t.Topic)
		case !errors.Is(err, punctual.ErrNotFound):
			return nil, err
		}
	}
	return holders, nil
}

// amended is what became of one ID.
type amended struct {
	found
	outcome punctual.Outcome
}

// amend changes the messages that were found, each as template says, in batches.
func amend(ctx context.Context, s punctual.Store, template punctual.Amendment, ids []found) ([]amended, error) {
	out := make([]amended, len(ids))
	var as []punctual.Amendment
	var places []int // places[k] is where the outcome of as[k] goes
	flush := func() error {
		outcomes, err := s.Amend(ctx, as)
		if err != nil {
			return err
		}
		for k, o := range outcomes {
			out[places[k]].outcome = o
		}
		as, places = as[:0], places[:0]
		return nil
	}
	for n, f := range ids {
		out[n] = amended{f, punctual.Outcome{Status: punctual.NotFound}}
		if f.topic == "" {
			continue
		}
		template.Topic, template.ID = f.topic, f.id
		as, places = append(as, template), append(places, n)
		if len(as) == punctual.MaxBatch {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	if len(as) == 0 {
		return out, nil
	}
	return out, flush()
}

// changeByID is what cancel, reschedule and dead requeue do: find the IDs, change them,
// print each outcome, and fail unless all are the wished one.
func (a *app) changeByID(ctx context.Context, topic string, ids []string, template punctual.Amendment, wished punctual.OutcomeStatus) error {
	if topic != "" {
		if err := punctual.CheckTopic(topic); err != nil {
			return err
		}
	}
	return a.withInspector(ctx, mustExist, func(i punctual.Inspector, s punctual.Store) error {
		places, err := lookUp(ctx, i, topic, ids)
		if err != nil {
			return err
		}
		return a.changeFound(ctx, s, places, template, wished)
	})
}

func (a *app) changeFound(ctx context.Context, s punctual.Store, places []found, template punctual.Amendment, wished punctual.OutcomeStatus) error {
	done, err := amend(ctx, s, template, places)
	if err != nil {
		return err
	}
	for _, d := range done {
		if d.outcome.Err != nil {
			return fmt.Errorf("ID %q: %w", d.id, d.outcome.Err)
		}
		if err := a.printAmended(d, template.Change); err != nil {
			return err
		}
	}
	return unlessAll(done, wished)
}

func (a *app) printAmended(d amended, c punctual.Change) error {
	status := d.outcome.Status.String()
	switch {
	case !a.json && d.outcome.Due.IsZero():
		a.printf("%s %s\n", d.id, status)
	case !a.json:
		a.printf("%s %s, due %s\n", d.id, status, stamp(d.outcome.Due))
	case c == punctual.ChangeCancel:
		return a.out.writeJSON(cancelJSON{ID: d.id, Outcome: status})
	default:
		return a.out.writeJSON(amendJSON{ID: d.id, Topic: d.topic, Outcome: status, Due: stamp(d.outcome.Due)})
	}
	return nil
}

// unlessAll is nil when every outcome is the wished one.
func unlessAll(done []amended, wished punctual.OutcomeStatus) error {
	var others []amended
	for _, d := range done {
		if d.outcome.Status != wished {
			others = append(others, d)
		}
	}
	if len(others) == 0 {
		return nil
	}
	first := others[0]
	text := fmt.Sprintf("ID %q: %s", first.id, explain(first.outcome.Status, wished))
	if len(done) > 1 {
		text = fmt.Sprintf("%d of %d messages were not %s; the first: %s", len(others), len(done), wished, text)
	}
	return unwishedf(first.outcome.Status.String(), "%s", text)
}

// explain says what an outcome that was not wished means.
func explain(s, wished punctual.OutcomeStatus) string {
	switch s {
	case punctual.TooLate:
		if wished == punctual.Cancelled {
			return "too late: it is being worked on; no further attempt will be made after this one"
		}
		return "too late: it is being worked on; nothing was changed"
	case punctual.NotDead:
		return "it is not dead: nothing was changed; 'punctual reschedule' moves a message that is to be delivered"
	}
	return "not found: there is no such message to be " + wished.String()
}

// completeTopics completes topic names for the first n arguments, all for -1. It is quiet
// about a store that cannot be opened, such as one that is in use.
func (a *app) completeTopics(n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		err := a.withInspector(cmd.Context(), mustExist, func(i punctual.Inspector, _ punctual.Store) error {
			topics, err := i.Topics(cmd.Context())
			for _, t := range topics {
				names = append(names, t.Topic)
			}
			return err
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
