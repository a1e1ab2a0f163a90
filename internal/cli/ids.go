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

// idsHelp is what the help of each command says that can read IDs from standard input.
const idsHelp = `ID "-" reads the IDs from standard input, one on each line, and works on them in batches as they
come.`

// ifDueHelp is what the help of each command with an ifDueFlag says of it.
const ifDueHelp = `--if-due changes the one message that is named only if it is due at that time, as 'punctual get'
shows it. Otherwise somebody has changed it since: its outcome is "changed", and it stays as it is.`

// ifDueFlag is --if-due of the commands that change a message by its ID. That of push is in pushFlags.
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

// takesIDs checks the arguments of a command that takes IDs: there has to be at least one, and "-" has to stand alone.
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

// eachID calls f with the IDs: once with those given as arguments, or in batches with those on standard input. When ctx ends, a batch
// from standard input that is under way is finished. f counts outcomes and changes in t, and eachID returns t.result() at the end.
func (a *app) eachID(ctx context.Context, ids []string, t *tally, f func(context.Context, []string) error) error {
	if !readsIDs(ids) {
		err := f(ctx, ids)
		switch {
		case err == nil:
			return t.result()
		case onlyBrokenPipe(err):
			return err // all was done, and nobody wants to read it
		}
		return t.cutShort(err)
	}
	read := func(put func(string, int) bool) error { return readIDs(a.in, put) }
	if err := inBatches(ctx, punctual.MaxBatch, read, f); err != nil {
		return t.cutShort(err)
	}
	return t.result()
}

// readIDs puts the lines of in that are not empty. It returns io.EOF at the end of in, or when put returns false, and an error of usage for
// a line that is too long for its buffer.
func readIDs(in io.Reader, put func(string, int) bool) error {
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
		case id != "" && !put(id, len(id)), err != nil:
			return io.EOF
		}
	}
}
