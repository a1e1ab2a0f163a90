package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/internal/stalled"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/pgstore"
	"github.com/punctualmq/punctual/storekit"
)

func newDoctor(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say whether disk or server can keep the promises",
		Long: `Doctor examines what a store stands on, its disk or servers, and names the schedules that do not
come. It does not read other messages. It says whether the store can keep its promises there, and
what to do if it cannot. It also works when the store refuses to open, and before there is one. Of a
directory that no process has open it reads no schedules. Each finding has a severity:

  good     as it should be
  warning  the store works, with less than it could have or for not much longer
  bad      a promise does not hold, or the store refuses to open

Doctor changes nothing, except that it makes and removes one small file on a disk. The exit code is
1 when something is bad. 'punctual check' reads all messages of a store.`,
		Example: `  punctual doctor
  punctual doctor --store disk:/var/lib/punctual
  punctual doctor --store redis://localhost --json`,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			s, p, err := a.place(a.storeName())
			if err != nil {
				return err
			}
			findings, err := s.examine(ctx, p)
			if err == nil && badFindings(findings) == nil && s.alsoOpen != nil {
				var schedules []storekit.Finding
				schedules, err = examineSchedules(ctx, s.alsoOpen, p)
				findings = append(findings, schedules...)
			}
			findings = append(findings, storekit.Finding{Name: "zone data", Value: cron.ZoneData(), Severity: storekit.SeverityGood})
			return errors.Join(err, a.showFindings(findings), badFindings(findings))
		}),
	}
}

// examineSchedules returns the findings about the schedules of the store that open opens, none if
// there is no store yet.
func examineSchedules(ctx context.Context, open func(context.Context, place) (punctual.Store, error), p place) (found []storekit.Finding, err error) {
	s, err := open(ctx, p)
	var f *failure
	switch {
	case errors.As(err, &f) && f.code == codeNoStore:
		return nil, nil
	case err != nil:
		return nil, err
	case s == nil: // a directory that no process has open
		return nil, nil
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return stalled.Examine(ctx, s)
}

// badFindings is the failure of a command that found something bad, or nil.
func badFindings(findings []storekit.Finding) error {
	var names []string
	for _, f := range findings {
		if f.Severity == storekit.SeverityBad {
			names = append(names, f.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return &failure{
		code: codeProblems, exit: exitError, definite: true,
		text: fmt.Sprintf("not as it must be: %s: see what to do there", strings.Join(names, ", ")),
	}
}

func (a *app) showFindings(findings []storekit.Finding) error {
	if a.json {
		for _, f := range findings {
			if err := a.out.writeJSON(wire.FindingOf(f)); err != nil {
				return err
			}
		}
		return nil
	}
	widest := 0
	for _, f := range findings {
		widest = max(widest, text.StringWidth(term.Printable(f.Name)))
	}
	for _, f := range findings {
		a.showFinding(f, widest)
	}
	return nil
}

// showFinding prints one finding in columns, and below it what to do.
func (a *app) showFinding(f storekit.Finding, widest int) {
	mark, colour := view.Mark(f.Severity)
	severity := a.out.Colour(colour, fmt.Sprintf("%s %-7s", mark, f.Severity))
	a.printf("%s  %s  %s\n", severity, text.Pad(term.Printable(f.Name), widest, ' '), oneLineOf(f.Value))
	if f.Remedy == "" {
		return
	}
	indent := strings.Repeat(" ", len("x warning")+2+widest+2)
	remedy := oneLineOf(f.Remedy)
	if a.out.IsTerminal() { // a pipe keeps lines whole, for those who search them
		remedy = text.WrapSoft(remedy, max(a.out.Width()-len(indent), 30))
	}
	for line := range strings.Lines(remedy) {
		a.printf("%s%s\n", indent, strings.TrimSpace(line))
	}
}

// oneLineOf is printable text without line breaks.
func oneLineOf(s string) string { return strings.Join(strings.Fields(term.Printable(s)), " ") }

func newCheck(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Scan a store for damage",
		Long: `Check reads a whole store and verifies that all of it is sound and consistent, without changing
anything. It prints what it counted and each problem, and exits with 1 when there are problems.`,
		Example: `  punctual check
  punctual check --store disk:/var/lib/punctual
  punctual check --json`,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			return with(ctx, a, mustExist, func(c storekit.Checker, _ punctual.Store) error { return a.check(ctx, c) })
		}),
	}
}

func (a *app) check(ctx context.Context, c storekit.Checker) error {
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

func (a *app) showCheck(r storekit.CheckReport) error {
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

func newClock(a *app) *cobra.Command {
	var set bool
	cmd := &cobra.Command{
		Use:   "clock [STORE]",
		Short: "Show how a store's clock stands, and set it right",
		Long: `Clock shows how a store's clock stands to the one that it follows, that of the machine, the Redis
server or the PostgreSQL server, and when it last stepped back to that clock. STORE is named as with
--store.

A store's clock does not run backwards, so it is ahead after the other clock was set back. When it
has been ahead by more than 2 seconds for 5 seconds, it steps back by itself. With --set it does so
at once.

A store in a directory refuses to open when the machine's clock is more than a year away from the
store's, because nobody can tell which of the two is right. See to the machine's clock first, then
run this command with --set while no process has the store open.

Due times that somebody named stay as they are. What was set by a delay while the clock was ahead
keeps what is left of that delay, and so do leases.`,
		Example: `  punctual clock redis://localhost
  punctual clock postgres://localhost/jobs --set
  punctual clock /var/lib/punctual --json`,
		RunE: a.action(func(ctx context.Context, args []string) error {
			if len(args) > 0 {
				a.storeFlag = args[0]
			}
			keep := storekit.ClockKeeper.Clock
			if set {
				keep = storekit.ClockKeeper.StepClock
				if err := a.setStopped(); err != nil {
					return err
				}
			}
			return with(ctx, a, mustExist, func(keeper storekit.ClockKeeper, _ punctual.Store) error {
				state, err := keep(keeper, ctx)
				if err != nil {
					return err
				}
				return a.showClock(state)
			})
		}),
	}
	cmd.Flags().BoolVar(&set, "set", false, "step the store's clock back if it is ahead; of a stopped store in a directory, set it forward, too")
	return cmd
}

// setStopped sets the clock of a store in a directory, unless a process has the store open. It does
// nothing with another store.
func (a *app) setStopped() error {
	s, p, err := a.place(a.storeName())
	if err != nil || s.name != "disk" {
		return err
	}
	_, err = diskstore.ResetClock(p.where, &diskstore.Options{Logger: a.logger()})
	if errors.Is(err, punctual.ErrLocked) {
		return nil
	}
	return err
}

func (a *app) showClock(state storekit.ClockState) error {
	if a.json {
		return a.out.writeJSON(wire.ClockStateOf(state))
	}
	a.printf("the store's clock says %s\n", when(state.Now))
	return a.showFindings(storekit.ClockFindings(state))
}

func newMigrate(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "migrate",
		Short: "Bring the tables of a store in PostgreSQL to this version",
		Long: `Migrate brings the tables of a store in PostgreSQL to the version that this program needs.
Commands that push, and programs that open the store with Options.Migrate, do so by themselves.
Stores of other kinds have nothing to migrate.`,
		Example: `  punctual migrate status --store postgres://localhost/shop
  punctual migrate up --store postgres://localhost/shop
  punctual migrate up --store 'postgres://localhost/shop?schema=queue'`,
	}, newMigrateUp(a), newMigrateStatus(a))
}

func newMigrateUp(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Apply what is pending",
		Long: `Up makes the tables of a store in PostgreSQL where there are none, and brings older ones to the
version that this program needs. Several processes may do so at once.`,
		Example: `  punctual migrate up --store postgres://localhost/shop
  punctual migrate up --store 'postgres://localhost/shop?schema=queue'
  PUNCTUAL_STORE=postgres://localhost/shop punctual migrate up`,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			return a.migration(ctx, pgstore.MigrateURL)
		}),
	}
}

func newMigrateStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say which version the tables have",
		Long: `Status says which version the tables of a store in PostgreSQL have, and what is pending. It
changes nothing.`,
		Example: `  punctual migrate status --store postgres://localhost/shop
  punctual migrate status --store 'postgres://localhost/shop?schema=queue'
  punctual migrate status --store postgres://localhost/shop --json`,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			return a.migration(ctx, func(context.Context, string, *pgstore.Options) error { return nil })
		}),
	}
}

// migration calls do for the store that is named, which must be one in PostgreSQL, and shows which
// version its tables have.
func (a *app) migration(ctx context.Context, do func(context.Context, string, *pgstore.Options) error) error {
	url := a.storeName()
	if kind, _, _ := strings.Cut(url, ":"); kind != "postgres" && kind != "postgresql" {
		return usagef("only stores in PostgreSQL have something to migrate: name one with --store postgres://HOST/DATABASE")
	}
	o := &pgstore.Options{Logger: a.logger()}
	if err := do(ctx, url, o); err != nil {
		return err
	}
	v, err := pgstore.MigrationStatusURL(ctx, url, o)
	if err != nil {
		return err
	}
	if a.json {
		pending := v.Pending
		if pending == nil {
			pending = []string{}
		}
		return a.out.writeJSON(migrationJSON{Tables: v.Tables, Program: v.Program, Pending: pending})
	}
	a.printf("tables are of version %d, this program needs %d\n", v.Tables, v.Program)
	for _, name := range v.Pending {
		a.printf("pending: %s\n", name)
	}
	return nil
}

// migrationJSON is what migrate up and migrate status print.
type migrationJSON struct {
	Tables  int      `json:"tables"`
	Program int      `json:"program"`
	Pending []string `json:"pending"`
}
