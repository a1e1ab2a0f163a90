package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/wire"
)

const checkHelp = `Check reads a whole store and verifies that all of it is sound and consistent, without changing
anything. It prints what it counted and each problem, and exits with 1 when there are problems.`

const checkExample = `  punctual check
  punctual check --store disk:/var/lib/punctual
  punctual check --json`

func newCheck(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "check",
		Short:   "Scan a store for damage",
		Long:    checkHelp,
		Example: checkExample,
		Args:    cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			return a.withStore(ctx, mustExist, func(s punctual.Store) error {
				c, err := punctual.As[punctual.Checker](s)
				if err != nil {
					return err
				}
				return a.check(ctx, c)
			})
		}),
	}
}

func (a *app) check(ctx context.Context, c punctual.Checker) error {
	b := a.newBar("messages read", 0)
	report, err := c.Check(ctx, b.Set)
	b.Stop(err)
	if err != nil {
		return err
	}
	if err := a.showCheck(report); err != nil {
		return err
	}
	if n := len(report.Problems); n > 0 {
		return &failure{
			code: codeProblems, exit: exitError, definite: true,
			text: fmt.Sprintf("%d problems were found: keep a copy of the store as it is before anything else", n),
		}
	}
	return nil
}

func (a *app) showCheck(r punctual.CheckReport) error {
	if a.json {
		return a.out.writeJSON(wire.CheckReportOf(r))
	}
	a.printf("topics %d, live messages %d, dead messages %d\n", r.Topics, r.Live, r.Dead)
	for _, p := range r.Problems {
		a.printf("problem: %s\n", term.Printable(p))
	}
	if len(r.Problems) == 0 {
		a.printf("no problems\n")
	}
	return nil
}
