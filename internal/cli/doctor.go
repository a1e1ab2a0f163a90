package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/internal/stalled"
	"github.com/punctualmq/punctual/internal/wire"
)

const doctorHelp = `Doctor examines what a store stands on, its disk or servers, and names the schedules that do not
come. It does not read other messages. It says whether the store can keep its promises there, and
what to do if it cannot. It also works when the store refuses to open, and before there is one. Of a
directory that no process has open it reads no schedules. Each finding has a severity:

  good     as it should be
  warning  the store works, with less than it could have or for not much longer
  bad      a promise does not hold, or the store refuses to open

Doctor changes nothing, except that it makes and removes one small file on a disk. The exit code is
1 when something is bad. 'punctual check' reads all messages of a store.`

const doctorExample = `  punctual doctor
  punctual doctor --store disk:/var/lib/punctual
  punctual doctor --store redis://localhost --json`

func newDoctor(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "doctor",
		Short:   "Say whether disk or server can keep the promises",
		Long:    doctorHelp,
		Example: doctorExample,
		Args:    cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			s, p, err := a.place(a.storeName())
			if err != nil {
				return err
			}
			findings, err := s.examine(ctx, p)
			if err == nil && badFindings(findings) == nil && s.alsoOpen != nil {
				var schedules []punctual.Finding
				schedules, err = examineSchedules(ctx, s.alsoOpen, p)
				findings = append(findings, schedules...)
			}
			return errors.Join(err, a.showFindings(findings), badFindings(findings))
		}),
	}
}

// examineSchedules returns the findings about the schedules of the store that open opens, none if there is no store yet.
func examineSchedules(ctx context.Context, open func(context.Context, place) (punctual.Store, error), p place) (found []punctual.Finding, err error) {
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
func badFindings(findings []punctual.Finding) error {
	var names []string
	for _, f := range findings {
		if f.Severity == punctual.SeverityBad {
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

func (a *app) showFindings(findings []punctual.Finding) error {
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
func (a *app) showFinding(f punctual.Finding, widest int) {
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
