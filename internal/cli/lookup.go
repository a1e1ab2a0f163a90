package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// IDs are unique within a topic. A command that gets an ID without a topic searches all topics for
// it.

const topicFlagHelp = "the topic of the IDs (default: the only topic that has the ID)"

// found is an ID, and the topic that was named for it or in which it was found.
type found struct {
	id    string
	topic string // empty: the ID was found in no topic
}

// lookUp finds the topic of each ID: the one given, or the only one that holds the ID. An ID that
// several topics hold is an error of usage, before the message of any of ids is changed.
func lookUp(ctx context.Context, i punctual.Inspector, topic string, ids []string) ([]found, error) {
	out := make([]found, len(ids))
	var topics []punctual.TopicStats
	if topic == "" {
		var err error
		switch topics, err = i.Topics(ctx); {
		case errors.Is(err, punctual.ErrForbidden):
			return nil, fmt.Errorf("look for the topics of the IDs: %w; name the topic with --topic", err)
		case err != nil:
			return nil, err
		}
	}
	for n, id := range ids {
		if err := storekit.CheckID(id); err != nil {
			return nil, err
		}
		out[n] = found{id, topic}
		if topic != "" {
			continue
		}
		holders, err := view.TopicsWith(ctx, i, topics, id)
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

// notLookedInto is a remark for IDs that were found in no topic: the token or certificate may not
// allow to inspect all topics. The remark is empty if topic was given, and for a store that is
// asked without a token and not over https.
func (a *app) notLookedInto(topic string) string {
	kind, _, _ := strings.Cut(a.storeName(), ":")
	_, p, _ := a.place(a.storeName()) // it was opened
	if byToken := p.token != "" || p.tokenFile != ""; topic != "" || kind != "https" && (!byToken || kind != "http" && kind != "unix") {
		return ""
	}
	return "; only topics that the token or certificate may inspect were looked into: name another one with --topic"
}

// amended is the outcome for one ID.
type amended struct {
	found
	outcome punctual.Amended
}

// amend makes the change c of the messages that were found, in batches. A delete is of dead
// messages alone. The changes are counted in t, also those that were made before an error.
func amend(ctx context.Context, i punctual.Inspector, s punctual.Store, c punctual.Amendment, ids []found, t *tally) ([]amended, error) {
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
			if o.Err == nil {
				t.changed++
			}
		}
		as, places = as[:0], places[:0]
		return nil
	}
	for n, f := range ids {
		out[n] = amended{f, punctual.Amended{Err: punctual.ErrNotFound}}
		if f.topic == "" {
			continue
		}
		c.Topic, c.ID = f.topic, f.id
		one, err := c, error(nil)
		if c.Change == punctual.ChangeDelete {
			one.IfDue, err = dueOfDead(ctx, i, f, c.IfDue)
		}
		if errors.Is(err, punctual.ErrNotFound) || errors.Is(err, punctual.ErrNotDead) {
			out[n].outcome.Err = err
			continue
		}
		if err != nil {
			return nil, err
		}
		as, places = append(as, one), append(places, n)
		if len(as) == limits.MaxBatch {
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

// dueOfDead returns the condition for the delete of a dead message: ifDue, or else the due time
// that the message has, so that it stays if somebody requeues it in between. The error of a message
// that is not dead is an ErrNotDead.
func dueOfDead(ctx context.Context, i punctual.Inspector, f found, ifDue time.Time) (time.Time, error) {
	m, err := i.Get(ctx, f.topic, f.id)
	if err == nil && m.State != punctual.StateDead {
		err = fmt.Errorf("%s in %s: %w", f.id, f.topic, punctual.ErrNotDead)
	}
	if ifDue.IsZero() {
		ifDue = m.Due
	}
	return ifDue, err
}

// changeFound changes messages, prints each outcome and counts it. A message that was refused has
// no outcome. The first error of such a message is returned once the outcomes of the others are
// printed.
func (a *app) changeFound(ctx context.Context, i punctual.Inspector, s punctual.Store, places []found, c punctual.Amendment, t *tally) error {
	done, err := amend(ctx, i, s, c, places, t)
	if err != nil {
		return err
	}
	var refused error
	for _, d := range done {
		if err := d.outcome.Err; err != nil && exitOf(storekit.ErrorCode(err)) != exitUnwished {
			refused = cmp.Or(refused, fmt.Errorf("ID %q: %w", d.id, err))
			continue
		}
		if err := a.printAmended(d, c.Change, ""); err != nil {
			return err
		}
		if t.add(d); t.others == 1 && t.first.id == d.id {
			t.firstIsDead = a.isDead(ctx, i, d)
		}
	}
	return refused
}

// isDead reports whether a message that was not found among those to be delivered is dead.
func (a *app) isDead(ctx context.Context, i punctual.Inspector, d amended) bool {
	if d.topic == "" || !errors.Is(d.outcome.Err, punctual.ErrNotFound) {
		return false
	}
	m, err := i.Get(ctx, d.topic, d.id)
	return err == nil && m.State == punctual.StateDead // after an error the outcome stays "not found"
}

// tally counts outcomes, and keeps the first that was not the wished one.
type tally struct {
	change       punctual.Change
	unseen       string // the remark of app.notLookedInto
	done, others int    // how many outcomes there were, and how many of them were not the wished one
	changed      int    // how many changes were made, also those whose outcome is not printed yet
	first        amended
	firstIsDead  bool
}

// cutShort returns err, which ended the run before its last ID, with the number of IDs that were
// done by then.
func (t *tally) cutShort(err error) error {
	if t.changed+t.done == 0 {
		return err
	}
	return soFar(err, t.changed > 0, "IDs done before that: %d", t.done)
}

func (t *tally) add(d amended) {
	t.done++
	if d.outcome.Err == nil {
		return
	}
	if t.others++; t.others == 1 {
		t.first = d
	}
}

// result returns nil if every outcome was the wished one, and otherwise an error about the first
// that was not.
func (t *tally) result() error {
	if t.others == 0 {
		return nil
	}
	text := fmt.Sprintf("ID %q: %s", t.first.id, view.Explain(t.first.outcome.Err, t.change))
	if t.firstIsDead {
		text = fmt.Sprintf("ID %q: it is dead: 'punctual dead requeue' delivers it again, 'punctual dead delete' removes it", t.first.id)
	}
	if t.first.topic == "" {
		text += t.unseen
	}
	if t.done > 1 {
		text = fmt.Sprintf("%d of %d messages were not %s; the first: %s", t.others, t.done, wire.OutcomeWord(t.change), text)
	}
	return &failure{code: storekit.ErrorCode(t.first.outcome.Err), exit: exitUnwished, definite: t.changed == 0, text: text}
}

// amendJSON is what cancel, reschedule, dead requeue and dead delete print for one ID.
type amendJSON struct {
	ID      string    `json:"id"`
	Topic   string    `json:"topic,omitempty"` // left out when the ID was found in no topic
	Outcome string    `json:"outcome"`         // "cancelled", "rescheduled", "requeued", "deleted", "leased", "not_found", "not_dead" or "changed"
	Due     wire.Time `json:"due,omitzero"`
}

// printAmended prints the outcome for one ID. where, such as " in TOPIC", says for people where the
// ID was changed.
func (a *app) printAmended(d amended, c punctual.Change, where string) error {
	status := cmp.Or(storekit.ErrorCode(d.outcome.Err), wire.OutcomeWord(c))
	if a.json {
		return a.out.writeJSON(amendJSON{ID: d.id, Topic: d.topic, Outcome: status, Due: wire.Time(d.outcome.Due)})
	}
	if !d.outcome.Due.IsZero() {
		status += ", due " + stamp(d.outcome.Due)
	}
	a.printf("%s%s %s\n", d.id, where, status)
	return nil
}

// completionTime bounds how long the Tab key waits for the store.
const completionTime = 2 * time.Second

// completeTopics completes topic names for the first n arguments, all for -1. It offers nothing
// when the store cannot be opened or does not answer within completionTime, and says nothing then.
func (a *app) completeTopics(n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		a.log = slog.New(slog.DiscardHandler)
		var names []cobra.Completion
		err := a.withInspector(ctx, mustExist, func(i punctual.Inspector, _ punctual.Store) error {
			topics, err := i.Topics(ctx)
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

// complete has a shell complete, for a command and those below it, the names of topics that an
// argument or --topic takes, and the values of flags whose help names them as `a|b` or `a,b`.
func (a *app) complete(cmd *cobra.Command) {
	_, takes, _ := strings.Cut(cmd.Use, " ")
	if strings.HasPrefix(strings.Trim(takes, "[("), "TOPIC") && cmd.Parent().Name() != "import" { // which takes topics of another system
		cmd.ValidArgsFunction = a.completeTopics(1)
		if takes == "TOPIC..." {
			cmd.ValidArgsFunction = a.completeTopics(-1)
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		complete := a.completeTopics(-1)
		switch value, _ := pflag.UnquoteUsage(f); {
		case valuesInUsage.MatchString(value):
			complete = fixedValues(append(strings.FieldsFunc(value, func(r rune) bool { return r == '|' || r == ',' }), value)...)
		case f.Name != "topic" || cmd.Name() == "copy": // which takes topics of its own store
			return
		}
		registerCompletion(cmd, f.Name, complete)
	})
	for _, sub := range cmd.Commands() {
		a.complete(sub)
	}
}

// valuesInUsage matches the values of a flag as its help names them.
var valuesInUsage = regexp.MustCompile(`^[a-z-]+([|,][a-z-]+)+$`)

// fixedValues completes values. One with a | in it is none.
func fixedValues(values ...string) cobra.CompletionFunc {
	values = slices.DeleteFunc(values, func(v string) bool { return strings.Contains(v, "|") })
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

func registerCompletion(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic("punctual: " + err.Error()) // there is no such flag, or it is completed already
	}
}
