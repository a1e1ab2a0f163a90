package cli

import (
	"cmp"
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

func newConsumers(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "consumers TOPIC",
		Short: "List who works on a topic",
		Long: `Consumers lists who works on a topic: whose claims wait, who holds how many leases, and what each
claimed and settled in the last five minutes. A store does not keep whose a lease is. So only a
server can tell, about the clients that it has seen since it started, and the process that owns a
directory, about the other processes that use it.`,
		Example: `  punctual consumers order.close --store http://localhost:7878
  punctual consumers order.close --json --store http://localhost:7878
  punctual consumers jobs --store disk:/var/lib/punctual`,
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

func (a *app) showConsumers(topic string, all storekit.Consumers) error {
	rows := all.All
	others := all.Others != storekit.Consumer{}
	if others {
		rows = append(rows, all.Others)
	}
	isOthers := func(c *storekit.Consumer) bool { return others && c == &rows[len(rows)-1] }
	show := lister[storekit.Consumer]{
		app: a, columns: []any{"CONSUMER", "ADDRESS", "WAITING", "LEASES", "FIRST ENDS", "CLAIMED", "SETTLED", "LAST SEEN"}, numbers: []int{3, 4, 6, 7},
		row: func(c *storekit.Consumer) []any {
			who := cmp.Or(strings.TrimSpace(c.User+" "+c.Name), "-")
			if isOthers(c) {
				who = "all others"
			}
			return []any{who, cmp.Or(c.Address, "-"), c.Waiting, c.Leases, when(c.NextEnd), c.Claimed, c.Settled, when(c.LastSeen)}
		},
		line: func(c *storekit.Consumer, _ string) any { return consumerJSON{topic, isOthers(c), wire.ConsumerOf(*c)} },
	}
	return show.all(rows, "consumers seen since "+stamp(all.Since))
}

// consumerJSON is what consumers prints for one who works on a topic. Others is true for the sum of
// those who are not told apart.
type consumerJSON struct {
	Topic  string `json:"topic"`
	Others bool   `json:"others,omitzero"`
	wire.Consumer
}
