package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
)

const getHelp = `Get shows messages with all that the store knows of them: state, times, attempts, the
history of failures, headers and body. A message that was acked or cancelled is not stored any
more.`

const getExample = `  punctual get order-42
  punctual get visit-7 --topic reminder
  punctual get order-42 --json`

func newGet(a *app) *cobra.Command {
	var topic string
	cmd := &cobra.Command{
		Use:     "get ID...",
		Short:   "Show messages",
		Long:    getHelp,
		Example: getExample,
		Args:    cobra.MinimumNArgs(1),
		RunE: a.action(func(ctx context.Context, ids []string) error {
			return a.withInspector(ctx, mustExist, func(i punctual.Inspector, _ punctual.Store) error {
				return a.get(ctx, i, topic, ids)
			})
		}),
	}
	cmd.Flags().StringVar(&topic, "topic", "", topicFlagHelp)
	return cmd
}

func (a *app) get(ctx context.Context, i punctual.Inspector, topic string, ids []string) error {
	places, err := lookUp(ctx, i, topic, ids)
	if err != nil {
		return err
	}
	var missing []string
	for _, p := range places {
		m, err := getFound(ctx, i, p)
		if punctual.ErrorCode(err) == "not_found" {
			missing = append(missing, p.id)
			continue
		}
		if err != nil {
			return err
		}
		if err := a.showMessage(m); err != nil {
			return err
		}
	}
	if missing != nil {
		return unwishedf("not_found", "ID %q: not found: there is no such message; one that was acked or cancelled is not kept", strings.Join(missing, `", "`))
	}
	return nil
}

func getFound(ctx context.Context, i punctual.Inspector, f found) (punctual.Info, error) {
	if f.topic == "" {
		return punctual.Info{}, punctual.ErrNotFound
	}
	return i.Get(ctx, f.topic, f.id)
}

func (a *app) showMessage(m punctual.Info) error {
	if a.json {
		return a.out.writeJSON(messageOf(m))
	}
	row := func(name, format string, args ...any) {
		a.printf("%-12s %s\n", name, printable(fmt.Sprintf(format, args...)))
	}
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
	for _, f := range m.Failures {
		row("failure", "%d at %s: %s", f.Attempt, stamp(f.At), f.Error)
	}
	for _, name := range sortedNames(m.Headers) {
		row("header", "%s=%s", name, m.Headers[name])
	}
	row("body", "%s", bodyText(m.Body))
	return nil
}

func sortedNames(h map[string]string) []string {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// bodyText is a body for people; its exact bytes come with --json.
func bodyText(body []byte) string {
	if utf8.Valid(body) {
		return string(body)
	}
	return fmt.Sprintf("(%d bytes that are not text: see --json)", len(body))
}
