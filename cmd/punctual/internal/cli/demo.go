package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/demo"
	"github.com/punctualmq/punctual/diskstore"
)

func newDemo(a *app) *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See unpaid orders closed on time, in 20 seconds",
		Long: `Demo plays 20 seconds in a shop, on a fresh store in a temporary directory. An order that is not
paid in time is closed. Some orders are paid, one gets more time, one fails and is retried, and one
can never be closed and ends dead. Each closed order has a follow-up, of which the groups billing
and mail each get a copy; a schedule has a report made every four seconds. In between the store is
closed and opened again. At the end the demo says how late the deliveries were and checks each
promise; it exits with 1 if one was broken.`,
		Example: `  punctual demo
  punctual demo --json
  punctual demo --keep`,
		RunE: a.action(func(ctx context.Context, _ []string) (err error) {
			dir, err := os.MkdirTemp("", "punctual-demo-")
			if err != nil {
				return fmt.Errorf("make a temporary directory: %w", err)
			}
			defer func() { err = errors.Join(err, a.leaveDemo(dir, keep)) }()
			return a.playDemo(ctx, func() (punctual.Store, error) {
				s, err := diskstore.Open(dir, &diskstore.Options{Logger: a.logger()})
				if err != nil {
					return nil, err
				}
				return s, nil
			})
		}),
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the store, to look into it afterwards")
	return cmd
}

// leaveDemo removes the store, or says where it is.
func (a *app) leaveDemo(dir string, keep bool) error {
	if keep {
		fmt.Fprintf(a.errs, "the store was kept: punctual stats --store disk:%s\n", dir)
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the demo's store: %w", err)
	}
	return nil
}

// playDemo plays the story on the store that open opens, prints what came of it, and fails if a
// promise was broken.
func (a *app) playDemo(ctx context.Context, open func() (punctual.Store, error)) error {
	live := a.out.Output
	if a.json {
		live = nil
	}
	r, err := demo.Play(ctx, open, live)
	if err != nil {
		return err
	}
	return a.showDemo(r)
}

func (a *app) showDemo(r *demo.Report) error {
	if !a.json {
		r.Show(a.out.Output)
	} else if err := a.out.writeJSON(r); err != nil {
		return err
	}
	if n := r.Broken(); n > 0 {
		return &failure{
			code: codeProblems, exit: exitError, definite: true,
			text: fmt.Sprintf("%d promises were broken: please report this with the output above", n),
		}
	}
	return nil
}
