package cli

import (
	"cmp"
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/internal/wire"
)

const consumersHelp = `Consumers lists who works on a topic: whose claims wait, who holds how many leases, and what each
claimed and settled in the last five minutes. A store does not keep whose a lease is. So only a
server can tell, about the clients that it has seen since it started, and the process that owns a
directory, about the other processes that use it.`

const consumersExample = `  punctual consumers order.close --store http://localhost:7878
  punctual consumers order.close --json --store http://localhost:7878
  punctual consumers jobs --store disk:/var/lib/punctual`

func newConsumers(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "consumers TOPIC",
		Short:   "List who works on a topic",
		Long:    consumersHelp,
		Example: consumersExample,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withStore(ctx, mustExist, func(s punctual.Store) error {
				all, err := view.Consumers(ctx, s, args[0])
				if err != nil {
					return err
				}
				return a.showConsumers(args[0], all)
			})
		}),
	}
}

func (a *app) showConsumers(topic string, all punctual.Consumers) error {
	rows := all.All
	if all.Others != (punctual.Consumer{}) {
		rows = append(rows, all.Others)
	}
	if a.json {
		for n, c := range rows {
			if err := a.out.writeJSON(consumerJSON{topic, n >= len(all.All), wire.ConsumerOf(c)}); err != nil {
				return err
			}
		}
		return nil
	}
	if len(rows) == 0 {
		a.sayNothing("consumers seen since " + stamp(all.Since).String())
		return nil
	}
	t := a.out.Table("CONSUMER", "ADDRESS", "WAITING", "LEASES", "FIRST ENDS", "CLAIMED", "SETTLED", "LAST SEEN")
	term.RightAligned(t, 3, 4, 6, 7)
	for n, c := range rows {
		who := cmp.Or(strings.TrimSpace(c.User+" "+c.Name), "-")
		if n >= len(all.All) {
			who = "all others"
		}
		t.AppendRow([]any{who, cmp.Or(c.Address, "-"), c.Waiting, c.Leases, when(c.NextEnd), c.Claimed, c.Settled, when(c.LastSeen)})
	}
	a.printf("%s\n", t.Render())
	return nil
}

// consumerJSON is what consumers prints for one who works on a topic. Others is true for the sum of those who are not told
// apart.
type consumerJSON struct {
	Topic  string `json:"topic"`
	Others bool   `json:"others,omitzero"`
	wire.Consumer
}
