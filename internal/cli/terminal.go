package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// What people see: tables, bars, colours. Scripts use --json.

// isTerminal tells whether w (or a reader) is a terminal.
func isTerminal(stream any) bool {
	if o, ok := stream.(*output); ok {
		stream = o.w
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// width is the number of columns of the terminal behind w, 80 when there is none.
func width(w io.Writer) int {
	if o, ok := w.(*output); ok {
		w = o.w
	}
	if f, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return 80
}

// colour paints s on a terminal, unless NO_COLOR is set (no-color.org).
func (a *app) colour(c text.Color, s string) string {
	if s == "" || a.getenv("NO_COLOR") != "" || !isTerminal(a.out) {
		return s
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", int(c), s)
}

// newTable returns a table for standard output: with lines on a terminal, bare columns
// in a pipe.
func (a *app) newTable(header ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.Style().Format.Footer = text.FormatDefault
	if !isTerminal(a.out) {
		t.Style().Options = table.OptionsNoBordersAndSeparators
		t.Style().Box.PaddingLeft = ""
		t.Style().Box.PaddingRight = "  "
		t.SuppressTrailingSpaces()
	}
	t.AppendHeader(table.Row(header))
	return t
}

// rightAligned sets the columns, counted from 1, that hold numbers.
func rightAligned(t table.Writer, columns ...int) {
	var configs []table.ColumnConfig
	for _, n := range columns {
		configs = append(configs, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
}

// printable makes text that came from messages safe to show: control and format
// characters, which could steer a terminal, become �.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return '�'
	}, s)
}

// oneLine is printable text of at most n characters, without line breaks.
func oneLine(s string, n int) string {
	s = strings.Join(strings.Fields(printable(s)), " ")
	return text.Snip(s, n, "…")
}

// sayNothing says on standard error that a list is empty, so that people do not take it for a
// failure. Scripts that read JSON see no lines.
func (a *app) sayNothing(what string) {
	if !a.json {
		fmt.Fprintf(a.errs, "no %s\n", what)
	}
}

// printf prints on standard output; its error is looked at when the command ends.
func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.out, format, args...) }

// when is a time for people; "-" when it is not there.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return stamp(t).String()
}

// bar shows on standard error, when that is a terminal, how far a long operation
// has come. Without a terminal its methods do nothing.
type bar struct {
	writer  progress.Writer
	tracker *progress.Tracker
	done    chan struct{} // closed when the writer's goroutine has ended
}

// newBar starts a bar; total is 0 when it is not known. The caller must call stop.
func (a *app) newBar(message string, total int64) *bar {
	if !isTerminal(a.errs) || a.json {
		return &bar{}
	}
	b := &bar{writer: progress.NewWriter(), done: make(chan struct{})}
	exactly := progress.Units{Formatter: func(n int64) string { return strconv.FormatInt(n, 10) }}
	b.tracker = &progress.Tracker{Message: message, Total: total, Units: exactly, AutoStopDisabled: true}
	b.writer.SetOutputWriter(a.errs)
	b.writer.SetTerminalWidth(width(a.errs))
	b.writer.SetUpdateFrequency(100 * time.Millisecond)
	b.writer.SetStyle(progress.StyleBlocks)
	b.writer.Style().Visibility.Speed = true
	b.writer.Style().Visibility.Percentage = total > 0
	b.writer.Style().Options.SpeedPrecision = time.Millisecond
	b.writer.Style().Options.ErrorString = "stopped"
	b.writer.SetAutoStop(true) // ends its goroutine once the tracker is done
	b.writer.AppendTracker(b.tracker)
	go func() {
		defer close(b.done)
		b.writer.Render()
	}()
	return b
}

// print writes lines to o. Those for the terminal go there above the bar, which would otherwise
// be painted over them.
func (b *bar) print(o *output, lines []byte) error {
	if b.tracker == nil || !isTerminal(o) {
		_, err := o.Write(lines)
		return err
	}
	if text := strings.TrimSuffix(string(lines), "\n"); text != "" {
		b.writer.Log(text)
	}
	return nil
}

func (b *bar) set(n int64) {
	if b.tracker != nil {
		b.tracker.SetValue(n)
	}
}

// update sets how far it has come, and what is said of that.
func (b *bar) update(n int64, message string) {
	if b.tracker != nil {
		b.tracker.UpdateMessage(message)
		b.tracker.SetValue(n)
	}
}

// stop leaves the bar on the screen, as done or, after an error, as stopped, and waits for its
// goroutine.
func (b *bar) stop(err error) {
	switch {
	case b.tracker == nil:
		return
	case err != nil:
		b.tracker.MarkAsErrored()
	default:
		b.tracker.MarkAsDone()
	}
	<-b.done
}
