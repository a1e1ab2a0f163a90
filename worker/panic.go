package worker

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// panicError is the error of a handler that panicked. It does not unwrap to the value of the panic,
// so that a panic with Discard(err) is treated as a panic and not as a discard.
type panicError struct{ text string }

func (e *panicError) Error() string { return e.text }

// newPanicError describes a panic with value p: the value, then the stack from where it happened,
// one call a line, so that the calls that matter fit into a message's history
// (limits.MaxErrorBytes). It must be called by the deferred function that recovered.
func newPanicError(p any) *panicError {
	var b strings.Builder
	fmt.Fprintf(&b, "panic: %v", p)
	for _, f := range panicStack() {
		fmt.Fprintf(&b, "\n%s (%s:%d)", f.Function, filepath.Base(f.File), f.Line)
	}
	return &panicError{b.String()}
}

// panicStack returns the calls from the one that panicked to the one that attempt made.
func panicStack() []runtime.Frame {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	var stack []runtime.Frame
	panicked := false
	for {
		f, more := frames.Next()
		switch {
		case strings.HasPrefix(f.Function, "runtime."):
			panicked = panicked || f.Function == "runtime.gopanic"
		case panicked && f.Function == attemptName:
			return stack
		case panicked:
			stack = append(stack, f)
		}
		if !more {
			return stack
		}
	}
}

// attemptName is the function that calls the handler; its own callers are of no use in the stack of
// a panic.
const attemptName = "github.com/punctualmq/punctual/worker.attempt"
