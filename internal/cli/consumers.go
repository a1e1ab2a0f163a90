package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
)

const consumersHelp = `Consumers lists who works on a topic: who has claims waiting, and who holds how many leases. It
counts what each claimed and settled in the last five minutes. A lease does not say whose it is.
So only a server knows, of the clients that it has seen since it started. The process that owns a
directory knows the others that use it.`

const consumersExample = `  punctual consumers order.close --store http://localhost:7878
  punctual consumers order.close --json --store http://localhost:7878
  punctual consumers jobs --store disk:/var/lib/punctual`

func newConsumers(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "consumers TOPIC",
		Short:             "List who works on a topic",
		Long:              consumersHelp,
		Example:           consumersExample,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeTopics(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withStore(ctx, mustExist, func(s punctual.Store) error {
				all, err := consumersOf(ctx, s, args[0])
				if err != nil {
					return err
				}
				return a.showConsumers(args[0], all)
			})
		}),
	}
}

// consumersOf asks a store who works on a topic.
func consumersOf(ctx context.Context, s punctual.Store, topic string) (punctual.Consumers, error) {
	r, err := punctual.As[punctual.ConsumerReporter](s)
	var all punctual.Consumers
	if err == nil {
		all, err = r.Consumers(ctx, topic)
	}
	if errors.Is(err, punctual.ErrUnsupported) {
		err = fmt.Errorf("%w; name a server with --store", err)
	}
	return all, err
}

func (a *app) showConsumers(topic string, all punctual.Consumers) error {
	rows := all.All
	if all.Others != (punctual.Consumer{}) {
		rows = append(rows, all.Others)
	}
	if a.json {
		for n, c := range rows {
			if err := a.out.writeJSON(consumerOf(topic, c, n >= len(all.All))); err != nil {
				return err
			}
		}
		return nil
	}
	if len(rows) == 0 {
		a.sayNothing("consumers seen since " + stamp(all.Since).String())
		return nil
	}
	t := a.newTable("CONSUMER", "ADDRESS", "WAITING", "LEASES", "FIRST ENDS", "CLAIMED", "SETTLED", "LAST SEEN")
	rightAligned(t, 3, 4, 6, 7)
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

// consumersLine says it in one line.
func consumersLine(all punctual.Consumers) string {
	all = all.First(0)
	line := fmt.Sprintf("%d leases held, %d claims wait", all.Others.Leases, all.Others.Waiting)
	if all.Others == (punctual.Consumer{}) {
		line = "no consumers"
	}
	return line
}
