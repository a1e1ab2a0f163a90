// Package term is what people see of a command: tables, colours, a progress bar, and text that is
// safe to show. On a terminal tables have lines and words have colours. In a pipe there are bare
// columns and no colours, for the programs that read them; scripts use the JSON of --json instead.
package term

import (
	"fmt"
	"io"
	"os"
	"sync"

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
