package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual"
)

// stdinIDs, in place of IDs, has them read from standard input.
const stdinIDs = "-"

// idsHelp is what the help of each command that takes IDs says of that.
const idsHelp = `ID "-" reads the IDs from standard input, one on each line, and works on them in batches as they
come.`

// ifDueHelp is what the help of each command with --if-due says of that.
const ifDueHelp = `--if-due changes the one message that is named only if it is due at that time, as 'punctual get'
shows it. Otherwise somebody has changed it since: its outcome is "changed", and it stays as it is.`

// ifDueFlag is --if-due.
type ifDueFlag struct{ timeFlag }

func (f *ifDueFlag) register(a *app, flags *pflag.FlagSet) {
	f.read = a.readTime
	flags.Var(f, "if-due", "change the one message only if it is due at this time")
}

func (f *ifDueFlag) given() bool { return f.t != nil }

// of returns the condition for the message that ids name, the zero Time for none.
func (f *ifDueFlag) of(ids []string) (time.Time, error) {
	switch {
	case !f.given():
		return time.Time{}, nil
	case len(ids) != 1 || readsIDs(ids):
		return time.Time{}, usagef("--if-due goes with one ID: it is the due time of one message")
	case f.t.IsZero():
		return time.Time{}, usagef("time %s cannot be told from none: no message is due then", stamp(*f.t))
	}
	return f.t.Round(0).In(time.UTC), nil
}

func readsIDs(ids []string) bool { return len(ids) == 1 && ids[0] == stdinIDs }

// takesIDs is for the arguments of a command that takes IDs: at least one, and "-" alone.
func takesIDs(cmd *cobra.Command, ids []string) error {
	if err := cobra.MinimumNArgs(1)(cmd, ids); err != nil {
		return err
	}
	if len(ids) > 1 && slices.Contains(ids, stdinIDs) {
		return errStdinAlone()
	}
	return nil
}

func errStdinAlone() error {
	return usagef("\"-\" stands alone, for the IDs on standard input; an ID that is \"-\" can be given there")
}

// eachID calls f with the IDs: those given at once, or those on standard input in batches. The batch
// under way is finished when ctx ends. What the outcomes that f counted in t come to is its error.
func (a *app) eachID(ctx context.Context, ids []string, t *tally, f func(context.Context, []string) error) error {
	if !readsIDs(ids) {
		if err := f(ctx, ids); err != nil {
			return err
		}
		return t.result()
	}
	lines := newBacklog[string](punctual.MaxBatch, batchBytes)
	defer lines.abandon()
	// A read from a terminal or pipe cannot be interrupted: when ctx ends, this goroutine stays
	// behind in it until the process ends.
	go func() { lines.close(readIDs(a.in, lines)) }()
	for {
		batch, end := lines.take(ctx)
		if len(batch) > 0 {
			if err := f(context.WithoutCancel(ctx), batch); err != nil {
				return fmt.Errorf("%w (IDs done before that: %d)", err, t.done)
			}
		}
		switch {
		case errors.Is(end, io.EOF):
			return t.result()
		case end != nil:
			return fmt.Errorf("%w (IDs done before that: %d)", end, t.done)
		}
	}
}

// readIDs reads lines until the end of in, and returns io.EOF then. Empty lines do not count.
func readIDs(in io.Reader, to *backlog[string]) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for number := 1; ; number++ {
		line, err := r.ReadSlice('\n')
		id := strings.TrimSpace(string(line))
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			if errors.Is(err, bufio.ErrBufferFull) {
				return usagef("line %d of standard input is no ID: it is longer than %d bytes", number, r.Size())
			}
			return fmt.Errorf("read standard input: %w", err)
		case id != "" && !to.put(id, len(id)), err != nil:
			return io.EOF
		}
	}
}
