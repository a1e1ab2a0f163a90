// Package term is what people see of a command: tables, colours, a progress bar, and text that is
// safe to show. On a terminal tables have lines and words have colours. In a pipe there are bare
// columns and no colours, for the programs that read them; scripts use the JSON of --json instead.
package term

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// Output is standard output or standard error. Each Write is whole, so that lines of different
// goroutines do not mix, and the first error is kept, so that a command that prints many lines can
// look at it once, at its end. It is safe for concurrent use.
type Output struct {
	stream   io.Writer
	colours  bool
	terminal bool

	mu  sync.Mutex
	err error // guarded by mu
}

// NewOutput returns an Output that writes to stream. With colours it has them where stream is a
// terminal; callers leave them out when the user set NO_COLOR (no-color.org).
func NewOutput(stream io.Writer, colours bool) *Output {
	return &Output{stream: stream, colours: colours, terminal: IsTerminal(stream)}
}

// Write writes p, unless an earlier write has failed. In that case it writes nothing and returns
// the error of that write.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.stream.Write(p)
	o.err = err
	return n, err
}

// Printf writes formatted text; Err has the error.
func (o *Output) Printf(format string, args ...any) { fmt.Fprintf(o, format, args...) }

// Err is the error of the first write that failed, nil when none has.
func (o *Output) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Stream is what the Output writes to. Whoever writes there directly gives up on whole lines.
func (o *Output) Stream() io.Writer { return o.stream }

// IsTerminal tells whether people see the output as it is written.
func (o *Output) IsTerminal() bool { return o.terminal }

// Width is the number of columns of the terminal, 80 when there is none.
func (o *Output) Width() int {
	if f, ok := o.stream.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return 80
}

// IsTerminal tells whether a stream that is read or written is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Colour paints s where the output has colours.
func (o *Output) Colour(c text.Color, s string) string {
	if s == "" || !o.colours || !o.terminal {
		return s
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", int(c), s)
}

// Table returns an empty table for the output: with lines on a terminal, with bare columns in a
// pipe. The caller fills, renders and prints it.
func (o *Output) Table(header ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.Style().Format.Footer = text.FormatDefault
	if !o.terminal {
		t.Style().Options = table.OptionsNoBordersAndSeparators
		t.Style().Box.PaddingLeft = ""
		t.Style().Box.PaddingRight = "  "
		t.SuppressTrailingSpaces()
	}
	t.AppendHeader(table.Row(header))
	return t
}

// Fit cuts texts of a Table on a terminal that is too narrow for it, with an ellipsis, so that each
// row takes one line. Of the columns given, counted from 1, the widest is cut first, none to less
// than its header. The other columns, such as those of IDs, which people copy, stay whole, so a row
// of long ones still takes more than a line.
func (o *Output) Fit(header []any, rows [][]any, columns ...int) {
	if !o.terminal || len(columns) == 0 {
		return
	}
	width := make([]int, len(header))
	total := 1 // the line at the left
	for c := range header {
		width[c] = cells(header[c])
		for _, row := range rows {
			width[c] = max(width[c], cells(row[c]))
		}
		total += width[c] + 3 // a space at each side, and the line at the right
	}
	for over := total - o.Width(); over > 0; over-- {
		widest := slices.MaxFunc(columns, func(a, b int) int { return cmp.Compare(width[a-1]-cells(header[a-1]), width[b-1]-cells(header[b-1])) })
		if width[widest-1] <= cells(header[widest-1]) {
			break
		}
		width[widest-1]--
	}
	for _, row := range rows {
		for _, c := range columns {
			row[c-1] = text.Snip(fmt.Sprint(row[c-1]), width[c-1], "…")
		}
	}
}

// cells is how many columns of a terminal a value takes.
func cells(v any) int { return text.StringWidthWithoutEscSequences(fmt.Sprint(v)) }

// RightAligned aligns the columns that hold numbers, counted from 1.
func RightAligned(t table.Writer, columns ...int) {
	var configs []table.ColumnConfig
	for _, n := range columns {
		configs = append(configs, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
}

// Printable makes text that came from messages safe to show: control and format characters, with
// which a message could steer the terminal, become �. Line breaks and tabs stay.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return '�'
	}, s)
}

// OneLine is Printable text in one line of at most n columns, with single spaces in the place of
// line breaks and other white space.
func OneLine(s string, n int) string {
	s = strings.Join(strings.Fields(Printable(s)), " ")
	return text.Snip(s, n, "…")
}

// Bar shows on a terminal how far a long operation has come. A Bar without a terminal, such as the
// zero Bar, shows nothing; its Print writes to the Output alone. One goroutine at a time may use a
// Bar.
type Bar struct {
	writer  progress.Writer
	tracker *progress.Tracker
	done    chan struct{} // closed when the writer's goroutine has ended
}

// NewBar starts a bar on o, if that is a terminal. A total of 0 means that it is not known, and
// that no percentage is shown. The caller must call Stop.
func NewBar(o *Output, message string, total int64) *Bar {
	if !o.IsTerminal() {
		return &Bar{}
	}
	b := &Bar{writer: progress.NewWriter(), done: make(chan struct{})}
	exactly := progress.Units{Formatter: func(n int64) string { return strconv.FormatInt(n, 10) }}
	b.tracker = &progress.Tracker{Message: message, Total: total, Units: exactly, AutoStopDisabled: true}
	b.writer.SetOutputWriter(o)
	b.writer.SetTerminalWidth(o.Width())
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

// Shown tells whether the bar is on a terminal.
func (b *Bar) Shown() bool { return b.tracker != nil }

// Print writes lines to o. Lines for a terminal appear above the bar, which would otherwise be
// painted over them.
func (b *Bar) Print(o *Output, lines []byte) error {
	if b.tracker == nil || !o.IsTerminal() {
		_, err := o.Write(lines)
		return err
	}
	if text := strings.TrimSuffix(string(lines), "\n"); text != "" {
		b.writer.Log(text)
	}
	return nil
}

// Set sets how far the operation has come.
func (b *Bar) Set(n int64) {
	if b.tracker != nil {
		b.tracker.SetValue(n)
	}
}

// Update sets how far the operation has come, and the message beside the bar.
func (b *Bar) Update(n int64, message string) {
	if b.tracker != nil {
		b.tracker.UpdateMessage(message)
		b.tracker.SetValue(n)
	}
}

// Stop leaves the bar on the screen, as done or, after an error, as stopped, and waits for its
// goroutine.
func (b *Bar) Stop(err error) {
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
