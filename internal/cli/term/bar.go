package term

import (
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

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
