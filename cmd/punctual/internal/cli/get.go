package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/view"
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
				return a.get(ctx, i, s, topic, ids)
			})
		}),
	}
	cmd.Flags().StringVar(&topic, "topic", "", topicFlagHelp)
	return cmd
}

func (a *app) get(ctx context.Context, i punctual.Inspector, s punctual.Store, topic string, ids []string) error {
	places, err := lookUp(ctx, i, topic, ids)
	if err != nil {
		return err
	}
	var missing []string
	for _, p := range places {
		stored := false
		if p.topic != "" {
			m, err := i.Get(ctx, p.topic, p.id)
			if stored = err == nil; stored {
				err = a.showMessage(m)
			}
			if err != nil && storekit.ErrorCode(err) != "not_found" {
				return err
			}
		}
		records, err := finishedRecords(ctx, i, s, p)
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

// finishedRecords returns the finished records of an ID: the one in the topic of p, or those in all
// topics if p has no topic. It returns none if the store keeps no records.
func finishedRecords(ctx context.Context, i punctual.Inspector, s punctual.Store, p found) (records []punctual.Finished, err error) {
	keeper, err := punctual.As[punctual.FinishedKeeper](s)
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
	var rows view.Rows
	rows.Add("id", f.ID)
	rows.Add("topic", f.Topic)
	rows.Add("finished", string(f.Outcome)+" at "+stamp(f.At))
	rows.Add("by", by)
	rows.Add("due", stamp(f.Due))
	if !f.FirstDue.Equal(f.Due) {
		rows.Add("first due", stamp(f.FirstDue))
	}
	if !f.Delivered.IsZero() {
		rows.Add("delivered", stamp(f.Delivered)+", "+notation.FormatDuration(f.ReadyFor())+" after it was due")
	}
	rows.Add("created", stamp(f.Created))
	rows.Add("attempts", strconv.Itoa(f.Attempt))
	rows.Failures(f.Failures, stamp)
	rows.Add("kept until", stamp(f.KeptUntil))
	a.showRows(rows)
	return nil
}

// showRows prints lines of a name and a value each.
func (a *app) showRows(rows view.Rows) {
	for _, r := range rows {
		a.printf("%-12s %s\n", r[0], term.Printable(r[1]))
	}
}

func (a *app) showMessage(m punctual.Info) error {
	if a.json {
		return a.out.writeJSON(wire.MessageOf(&m))
	}
	a.showRows(view.MessageRows(&m, stamp))
	return nil
}

const topicFlagHelp = "the topic of the IDs (default: the only topic that has the ID)"

// found is an ID, and the topic that was named for it or in which it was found.
type found struct {
	id    string
	topic string // empty: the ID was found in no topic
}

// lookUp finds the topic of each ID: the one given, or the only one that holds the ID. IDs are
// unique only within a topic, so an ID that several topics hold is an error of usage, before the
// message of any of ids is changed.
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
