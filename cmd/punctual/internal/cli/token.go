package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access/tokens"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/wire"
)

func newToken(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke the tokens of a server",
		Long: `Tokens say who may do what on a server. They are kept in a file that 'punctual serve --tokens FILE'
reads; a change of the file is in force at once, without a restart. The file holds no secrets, only
their hashes, and nobody but its owner may read it (mode 0600).`,
		Example: `  punctual token new billing --actions push --topics 'order.*'
  punctual token list
  punctual token revoke k3wq5y7ahx`,
	}
	cmd.PersistentFlags().StringVar(&file, "tokens", "", "the `FILE` of tokens (PUNCTUAL_TOKENS, else "+defaultTokens+")")
	path := func() string { return cmp.Or(file, a.getenv("PUNCTUAL_TOKENS"), defaultTokens) }
	cmd.AddCommand(newTokenNew(a, path), newTokenList(a, path), newTokenRevoke(a, path))
	return cmd
}

const (
	defaultTokens = "punctual-tokens.json"
	// defaultTokenLife is how long a token lasts unless its maker says otherwise.
	defaultTokenLife = 90 * 24 * time.Hour
)

func newTokenNew(a *app, path func() string) *cobra.Command {
	var e tokens.Entry
	var expires string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Make a token",
		Long: `New makes a token and prints it. It is shown this once: keep it where secrets are kept. Clients send
it as "Authorization: Bearer TOKEN".

The actions are:

  inspect  read: get, list, statistics, forecast, settings
  push     store messages
  amend    cancel, reschedule, requeue
  work     claim and settle
  admin    settings, pauses, purges, deletions, the check of the store
  all      all of these

With --subject there is no token: whoever shows a client certificate with that subject may do
the same.`,
		Example: `  punctual token new billing --actions push --topics 'order.*'
  punctual token new worker-1 --actions work,inspect --topics mail,reminder --expires 30d
  punctual token new admin --actions all --expires never
  punctual token new worker-2 --actions work --subject 'CN=worker-2,O=Example'`,
		RunE: a.action(func(_ context.Context, args []string) error {
			now := a.now().UTC().Truncate(time.Second)
			e.Name, e.Created = args[0], now
			if expires != "never" {
				life, err := typed(notation.ParseDuration(expires))
				if err != nil {
					return err
				}
				e.Expires = now.Add(life)
			}
			var token string
			if e.Subject == "" {
				token = tokens.NewToken(&e)
			} else {
				tokens.NewSubject(&e, e.Subject)
			}
			if err := tokens.Change(path(), func(all []tokens.Entry) ([]tokens.Entry, error) { return append(all, e), nil }); err != nil {
				return err
			}
			return a.showNewToken(&e, token)
		}),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&e.Actions, "actions", nil, "what it may do, separated by commas: inspect, push, amend, work, admin, all")
	flags.StringSliceVar(&e.Topics, "topics", []string{"*"}, "with which `TOPICS`, separated by commas: names, or the beginning of names and a *")
	flags.StringVar(&expires, "expires", notation.FormatDuration(defaultTokenLife), "for how long, or never")
	flags.StringVar(&e.Subject, "subject", "", "make no token but let in the client certificate with this `SUBJECT`")
	if err := cmd.MarkFlagRequired("actions"); err != nil {
		panic("punctual: token new has no flag --actions: " + err.Error())
	}
	return cmd
}

func (a *app) showNewToken(e *tokens.Entry, token string) error {
	if a.json {
		return a.out.writeJSON(newTokenJSON{tokenJSON: a.tokenOf(e), Token: token})
	}
	if token != "" {
		a.printf("%s\n", token)
	}
	return nil
}

func newTokenList(a *app, path func() string) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the tokens",
		Long:  `List shows the tokens, and whether each is still valid. The secrets cannot be shown.`,
		Example: `  punctual token list
  punctual token list --json
  punctual token list --tokens /etc/punctual/tokens.json`,
		RunE: a.action(func(context.Context, []string) error {
			f, err := tokens.Open(path(), a.logger())
			if err != nil {
				return err
			}
			entries, err := f.Entries()
			if err != nil {
				return err
			}
			return a.showTokens(entries.All())
		}),
	}
}

func (a *app) showTokens(all []tokens.Entry) error {
	show := lister[tokens.Entry]{
		app: a, columns: []any{"ID", "NAME", "ACTIONS", "TOPICS", "EXPIRES", "STATE", "SUBJECT"},
		row: func(e *tokens.Entry) []any {
			subject := cmp.Or(term.Printable(e.Subject), "-")
			return []any{e.ID, term.Printable(e.Name), strings.Join(e.Actions, ","), strings.Join(e.Topics, ","), when(e.Expires), a.stateOf(e), subject}
		},
		line: func(e *tokens.Entry, _ string) any { return a.tokenOf(e) },
	}
	return show.all(all, "tokens")
}

// stateOf is one word for whether an entry counts.
func (a *app) stateOf(e *tokens.Entry) string {
	switch {
	case !e.Revoked.IsZero():
		return "revoked"
	case !e.Live(a.now()):
		return "expired"
	}
	return "live"
}

func newTokenRevoke(a *app, path func() string) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID...",
		Short: "End tokens",
		Long:  `Revoke ends tokens at once. They stay in the file, so that the list shows who had access when.`,
		Example: `  punctual token revoke k3wq5y7ahx
  punctual token revoke k3wq5y7ahx m2x7c4tnqd
  punctual token revoke k3wq5y7ahx m2x7c4tnqd --tokens /etc/punctual/tokens.json`,
		RunE: a.action(func(_ context.Context, ids []string) error {
			return tokens.Change(path(), func(all []tokens.Entry) ([]tokens.Entry, error) {
				for _, id := range ids {
					i := slices.IndexFunc(all, func(e tokens.Entry) bool { return e.ID == id })
					if i < 0 {
						return nil, fmt.Errorf("no token has the ID %q: see 'punctual token list'; nothing was revoked: %w", id, punctual.ErrNotFound)
					}
					if all[i].Revoked.IsZero() {
						all[i].Revoked = a.now().UTC().Truncate(time.Second)
					}
				}
				return all, nil
			})
		}),
	}
}

// tokenJSON is what token list prints for one entry. Its times are by the clock of the machine on
// which the command ran.
type tokenJSON struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Subject string    `json:"subject,omitempty"`
	Actions []string  `json:"actions"`
	Topics  []string  `json:"topics"`
	Created wire.Time `json:"created"`
	Expires wire.Time `json:"expires,omitzero"` // left out when it never does
	Revoked wire.Time `json:"revoked,omitzero"`
	State   string    `json:"state"` // "live", "expired" or "revoked"
}

// newTokenJSON is what token new prints. Token is left out for the subject of a certificate.
type newTokenJSON struct {
	tokenJSON
	Token string `json:"token,omitempty"`
}

func (a *app) tokenOf(e *tokens.Entry) tokenJSON {
	return tokenJSON{
		ID: e.ID, Name: e.Name, Subject: e.Subject, Actions: e.Actions, Topics: e.Topics,
		Created: wire.Time(e.Created), Expires: wire.Time(e.Expires), Revoked: wire.Time(e.Revoked), State: a.stateOf(e),
	}
}
