package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
)

const demoHelp = `Demo plays the story of a shop for about 15 seconds, on a fresh store in a temporary directory. An
order that is not paid in time is closed. Some orders are paid, one gets more time, one fails and
is retried, one can never be closed and ends dead. The store is closed and opened again in
between. At the end it says how late the deliveries were and checks each promise; it exits with 1
if one was broken.`

const demoExample = `  punctual demo
  punctual demo --json
  punctual demo --keep`

func newDemo(a *app) *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:     "demo",
		Short:   "See unpaid orders closed on time, in 15 seconds",
		Long:    demoHelp,
		Example: demoExample,
		Args:    cobra.NoArgs,
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

// playDemo plays the story on the store that open opens, and reports.
func (a *app) playDemo(ctx context.Context, open func() (punctual.Store, error)) error {
	l := newLedger()
	stop := a.showLive(l)
	err := playStory(ctx, open, l)
	stop()
	if err != nil {
		return err
	}
	return a.reportDemo(l)
}

// reportDemo prints the end of the story and fails if a promise was broken.
func (a *app) reportDemo(l *ledger) error {
	results := l.results()
	if a.json {
		if err := a.out.writeJSON(demoOf(l, results)); err != nil {
			return err
		}
	} else {
		a.showEnd(l, results)
	}
	broken := 0
	for _, v := range results {
		if !v.kept {
			broken++
		}
	}
	if broken > 0 {
		return &failure{
			code: codeProblems, exit: exitError, definite: true,
			text: fmt.Sprintf("%d promises were broken: please report this with the output above", broken),
		}
	}
	return nil
}

// demoJSON is what demo prints.
type demoJSON struct {
	Lateness latenessJSON  `json:"lateness"`
	Promises []promiseJSON `json:"promises"`
}

// latenessJSON sums up how late the deliveries were, in milliseconds.
type latenessJSON struct {
	Count int   `json:"n"`
	P50   int64 `json:"p50_ms"`
	P99   int64 `json:"p99_ms"`
	Max   int64 `json:"max_ms"`
}

// promiseJSON is one promise that was checked.
type promiseJSON struct {
	Promise string `json:"promise"`
	Kept    bool   `json:"kept"`
	Detail  string `json:"detail,omitempty"`
}

func demoOf(l *ledger, results []outcome) demoJSON {
	s := l.lateness()
	out := demoJSON{Lateness: latenessJSON{s.n, s.p50.Milliseconds(), s.p99.Milliseconds(), s.max.Milliseconds()}}
	for _, v := range results {
		out.Promises = append(out.Promises, promiseJSON{v.promise, v.kept, v.detail})
	}
	return out
}

// demoEnd bounds how long the story waits for its last message beyond its plan.
const demoEnd = time.Minute
