package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

func newGet(a *app) *cobra.Command {
	var topic string
	cmd := &cobra.Command{
		Use:   "get ID...",
		Short: "Show messages",
		Long: `Get shows messages with all that the store knows about them: state, times, attempts, the history
of failures, headers and body. A message that was acked, cancelled or dropped is gone, but a topic
with a finished retention keeps a record of it ('punctual topic set --finished-retention 30d'). Get
shows that record too: how the message ended, when, how late it was delivered, and who cancelled
it if the audit log of a console says so. When an ID was used again, both are shown: the message,
and the record of the earlier one.`,
		Example: `  punctual get order-42
  punctual get visit-7 --topic reminder
  punctual get order-42 --json`,
		RunE: a.action(func(ctx context.Context, ids []string) error {
			return a.withInspector(ctx, mustExist, func(i punctual.Inspector, s punctual.Store) error {
				return a.get(ctx, i, finishedRecords{s}, topic, ids)
			})
		}),
	}
	cmd.Flags().StringVar(&topic, "topic", "", topicFlagHelp)
	return cmd
}

func (a *app) get(ctx context.Context, i punctual.Inspector, k finishedRecords, topic string, ids []string) error {
	places, err := lookUp(ctx, i, topic, ids)
	if err != nil {
		return err
	}
	var missing []string
	for _, p := range places {
		m, err := getFound(ctx, i, p)
		stored := err == nil
		if stored {
			err = a.showMessage(m)
		}
		if err != nil && storekit.ErrorCode(err) != "not_found" {
			return err
		}
		records, err := k.of(ctx, i, p)
		if err != nil {
			return err
		}
		if !stored && len(records) == 0 {
			missing = append(missing, p.id)
		}
		for _, f := range records {
			e, err := audit.Canceller(ctx, i, &f)
			if err != nil {
				return err
			}
			by := ""
			if e != nil {
				by = e.Who
			}
			if err := a.showFinished(f, by); err != nil {
				return err
			}
		}
	}
	if missing != nil {
		hint := ""
		if topic == "" && len(ids) > 1 {
			hint = "; each argument is an ID: name a topic with --topic"
		}
		return unwishedf("not_found", "ID \"%s\": not found: there is no such message, and no record of a finished one is kept%s", strings.Join(missing, `", "`), hint+a.notLookedInto(topic))
	}
	return nil
}

// finishedRecords reads the records of finished messages that a store keeps, if it keeps any.
type finishedRecords struct{ store punctual.Store }

// of returns the finished records of an ID: the one in the topic of p, or those in all topics if p
// has no topic. It returns none if the store keeps no records.
func (k finishedRecords) of(ctx context.Context, i punctual.Inspector, p found) (records []punctual.Finished, err error) {
	keeper, err := punctual.As[punctual.FinishedKeeper](k.store)
	if err != nil {
		return nil, nil
	}
	topics := []punctual.TopicStats{{Topic: p.topic}}
	if p.topic == "" {
		if topics, err = i.Topics(ctx); err != nil {
			return nil, err
		}
	}
	for _, t := range topics {
		f, err := keeper.Finished(ctx, t.Topic, p.id)
		switch {
		case err == nil:
			records = append(records, f)
		case errors.Is(err, punctual.ErrUnsupported):
			return nil, nil
		case !errors.Is(err, punctual.ErrNotFound):
			return nil, err
		}
	}
	return records, nil
}

// showFinished shows the record of a message that was cancelled by by, if that is not "".
func (a *app) showFinished(f punctual.Finished, by string) error {
	if a.json {
		line := wire.FinishedOf(&f)
		line.By = by
		return a.out.writeJSON(line)
	}
	row := a.row
	row("id", "%s", f.ID)
	row("topic", "%s", f.Topic)
	row("finished", "%s at %s", f.Outcome, stamp(f.At))
	if by != "" {
		row("by", "%s", by)
	}
	row("due", "%s", stamp(f.Due))
	if !f.FirstDue.Equal(f.Due) {
		row("first due", "%s", stamp(f.FirstDue))
	}
	if !f.Delivered.IsZero() {
		row("delivered", "%s, %s after it was due", stamp(f.Delivered), notation.FormatDuration(f.ReadyFor()))
	}
	row("created", "%s", stamp(f.Created))
	row("attempts", "%d", f.Attempt)
	a.showFailures(f.Failures)
	row("kept until", "%s", stamp(f.KeptUntil))
	return nil
}

// row prints a line of a name and a value.
func (a *app) row(name, format string, args ...any) {
	a.printf("%-12s %s\n", name, term.Printable(fmt.Sprintf(format, args...)))
}

func (a *app) showFailures(fs []punctual.Failure) {
	for _, f := range fs {
		a.row("failure", "%d at %s: %s", f.Attempt, stamp(f.At), f.Error)
	}
}

func getFound(ctx context.Context, i punctual.Inspector, f found) (punctual.Info, error) {
	if f.topic == "" {
		return punctual.Info{}, punctual.ErrNotFound
	}
	return i.Get(ctx, f.topic, f.id)
}

func (a *app) showMessage(m punctual.Info) error {
	if a.json {
		return a.out.writeJSON(wire.MessageOf(&m))
	}
	row := a.row
	row("id", "%s", m.ID)
	row("topic", "%s", m.Topic)
	row("state", "%s", m.State)
	row("due", "%s", stamp(m.Due))
	if !m.FirstDue.Equal(m.Due) {
		row("first due", "%s", stamp(m.FirstDue))
	}
	row("created", "%s", stamp(m.Created))
	row("attempts", "%d", m.Attempt)
	if m.MaxAttempts > 0 {
		row("max attempts", "%d", m.MaxAttempts)
	}
	if !m.Expires.IsZero() {
		row("expires", "%s", stamp(m.Expires))
	}
	if !m.LeaseUntil.IsZero() {
		row("lease until", "%s", stamp(m.LeaseUntil))
	}
	if m.CancelRequested {
		row("cancel", "asked for; no further attempt")
	}
	if m.State == punctual.StateDead {
		row("died", "%s, %s", stamp(m.Died), m.Reason)
	}
	a.showFailures(m.Failures)
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		row("header", "%s=%s", name, m.Headers[name])
	}
	row("body", "%s", view.BodyText(m.Body))
	return nil
}
