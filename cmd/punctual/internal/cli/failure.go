package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/storekit"
)

// The exit codes.
const (
	exitOK       = 0
	exitError    = 1
	exitUsage    = 2
	exitUnwished = 3
	// exitSignal plus the number of a signal is the exit code after a second SIGINT or SIGTERM,
	// and, with the number of SIGPIPE, when whoever read standard output has gone.
	exitSignal = 128
)

// exitCode is one row of the table of exit codes, which `punctual help exit-codes`
// and docs/cli.md show.
type exitCode struct {
	code    string
	meaning string
}

func exitCodes() []exitCode {
	return []exitCode{
		{fmt.Sprint(exitOK), "All was done as asked; also a consume that was drained by a signal."},
		{fmt.Sprint(exitError), "An error: the text on standard error says what and how to mend it; also a check that found problems, a doctor that found something bad, a demo that saw a promise broken."},
		{fmt.Sprint(exitUsage), "Wrong usage: an unknown flag, a malformed value, a missing argument. Nothing was changed."},
		{fmt.Sprint(exitUnwished), "An outcome was not the wished one: not found, too late, changed meanwhile, the ID in use. The outcomes are printed."},
		{"130, 143", "Ended at once by a second SIGINT, SIGTERM."},
		{"141", "Whoever read standard output has gone, as head does. That is no error, and nothing is said."},
	}
}

// errorCode is one row of the table of the codes in {"error":{"code":…}}: those of
// storekit.ErrorKinds, the command line's own, and "canceled", "deadline" and "internal" of
// storekit.ErrorCode.
type errorCode struct {
	code string
	exit int
}

// exitOf tells the exit code for an error code of the library.
func exitOf(code string) int {
	switch code {
	case "invalid":
		return exitUsage
	case "not_found", "duplicate", "leased", "not_dead", "changed":
		return exitUnwished
	}
	return exitError
}

func errorCodes() []errorCode {
	var codes []errorCode
	for _, k := range storekit.ErrorKinds() {
		codes = append(codes, errorCode{k.Code, exitOf(k.Code)})
	}
	return append(codes,
		errorCode{codeUsage, exitUsage},
		errorCode{codeNoStore, exitError},
		errorCode{codeOutput, exitError},
		errorCode{codeProblems, exitError},
		errorCode{codeSomeFailed, exitError},
		errorCode{"not_confirmed", exitUnwished},
		errorCode{"canceled", exitError},
		errorCode{"deadline", exitError},
		errorCode{"internal", exitError},
	)
}

// The command line's own error codes, except for "not_confirmed".
const (
	codeUsage      = "usage"       // wrong usage
	codeNoStore    = "no_store"    // there is no store, and the command does not create one
	codeOutput     = "output"      // standard output could not be written
	codeProblems   = "problems"    // a check or doctor found problems, a demo a broken promise, or a copy lacks messages
	codeSomeFailed = "some_failed" // at least one of the items failed
)

// failure is an error whose code and exit code the command line has chosen.
type failure struct {
	code     string
	exit     int
	definite bool
	text     string
	cause    error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.cause }

// usagef returns an error of usage: what the user gave is wrong, by flags, input, the environment
// or a file. The error says that nothing was changed (definite).
func usagef(format string, args ...any) error {
	return &failure{code: codeUsage, exit: exitUsage, definite: true, text: fmt.Sprintf(format, args...)}
}

// asUsage returns err, which came from reading the command line of a command, as an error of usage.
// A failure stays as it is.
func asUsage(err error, command string) error {
	if f := (*failure)(nil); errors.As(err, &f) {
		return err
	}
	text := strings.Join(strings.Fields(err.Error()), " ") // suggestions come in lines of their own
	return usagef("%s: see '%s --help'", text, command)
}

// unwishedf returns the failure of an outcome that was not the wished one. code is the error code
// of that outcome.
func unwishedf(code, format string, args ...any) error {
	return &failure{code: code, exit: exitUnwished, definite: true, text: fmt.Sprintf(format, args...)}
}

// cutShort is an error that ended a command in the middle of its work.
type cutShort struct {
	err     error
	changed bool   // the command had changed something before
	note    string // says how far the command had come
}

func (e *cutShort) Error() string { return fmt.Sprintf("%v (%s)", e.err, e.note) }
func (e *cutShort) Unwrap() error { return e.err }

// soFar returns err with a note of how far the command had come. If the command had changed
// something by then, the error returned is not definite, and its exit code is not exitUsage, which
// says that nothing was changed.
func soFar(err error, changed bool, format string, args ...any) error {
	return &cutShort{err, changed, fmt.Sprintf(format, args...)}
}

func outputError(err error) error {
	if err == nil {
		return nil
	}
	return &failure{code: codeOutput, exit: exitError, text: fmt.Sprintf("write standard output: %v", err), cause: err}
}

// errorJSON is an error as --json prints it on standard error.
type errorJSON struct {
	Error errorBody `json:"error"`
	// Line is the number of the input line that push --ndjson refused.
	Line int64 `json:"line,omitzero"`
}

// errorBody says what failed. Definite tells that the operation certainly did not happen.
type errorBody struct {
	Code     string `json:"code"`
	Message  string `json:"message"`
	Definite bool   `json:"definite"`
}

// report prints err on standard error, as a line or with --json as an object, and returns the exit
// code. It prints nothing if err only says that whoever read standard output has gone.
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	if onlyBrokenPipe(err) {
		return exitSignal + int(syscall.SIGPIPE)
	}
	f := describe(err)
	if a.json {
		a.errs.writeJSON(errorJSON{Error: errorBody{Code: f.code, Message: f.text, Definite: f.definite}})
		return f.exit
	}
	text := strings.TrimPrefix(f.text, a.prefix()) // a store names the operation as well
	fmt.Fprintf(a.errs, "punctual: %s%s\n", a.prefix(), term.Printable(text))
	return f.exit
}

// onlyBrokenPipe tells whether nothing went wrong but that whoever read standard output has gone,
// as head does when it has seen enough.
func onlyBrokenPipe(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !onlyBrokenPipe(e) })
	}
	f, ok := err.(*failure)
	return ok && f.code == codeOutput && errors.Is(f.cause, syscall.EPIPE)
}

func (a *app) prefix() string {
	if a.operation == "" {
		return ""
	}
	return a.operation + ": "
}

// describe returns the code, the exit code and the text of any error, and whether it is definite.
func describe(err error) failure {
	f := describeKind(err)
	if e := (*cutShort)(nil); errors.As(err, &e) && e.changed {
		f.definite = false
		if f.exit == exitUsage {
			f.exit = exitError
		}
	}
	return f
}

// describeKind describes an error as if nothing had been changed before it. A failure has its own
// code, exit code and text; to the text of any other error the remedy is added.
func describeKind(err error) failure {
	if f := (*failure)(nil); errors.As(err, &f) {
		return failure{code: f.code, exit: f.exit, definite: f.definite, text: inOneLine(err)}
	}
	code := storekit.ErrorCode(err)
	text := inOneLine(err)
	if code == "invalid" {
		text = strings.TrimSuffix(text, ": "+punctual.ErrInvalid.Error())
	}
	if c := remedies[code]; c != "" {
		text += ": " + c
	}
	return failure{code: code, exit: exitOf(code), definite: punctual.Definite(err), text: text}
}

// inOneLine is the text of err in one line. Joined errors have a line each in their text, so
// semicolons take the place of line breaks.
func inOneLine(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}

// remedies say in the words of the command line what to do about errors, by their codes. For the
// other codes there is nothing to add.
var remedies = map[string]string{
	"duplicate":       "use another ID, requeue the message that has it if it is dead, or see --if-exists",
	"locked":          "end the other one, or wait for it with --wait 10s, or name another store with --store",
	"paused":          "let pushes in again with 'punctual topic resume TOPIC'",
	"no_space":        "make room where the store is (disk, or maxmemory of Redis), or purge what is not needed",
	"corrupt":         "keep a copy of the data as it is; 'punctual check' lists what is wrong",
	"store_failed":    "mend what stopped it, then start again",
	"unreachable":     "see that it runs and that the network is up, then try again",
	"unauthenticated": "put the token into PUNCTUAL_TOKEN, or the path of its file into PUNCTUAL_TOKEN_FILE",
	"forbidden":       "use a token that may do this: PUNCTUAL_TOKEN, or the file that PUNCTUAL_TOKEN_FILE names, holds it",
	"overloaded":      "try again later",
	"indeterminate":   "repeat it with the same ID, or see with 'punctual get' whether it happened",
	"canceled":        "interrupted before it was done",
}

func newExitCodesHelp() *cobra.Command {
	var b strings.Builder
	b.WriteString("The exit code of every command says how it went:\n\n")
	for _, e := range exitCodes() {
		fmt.Fprintf(&b, "  %-9s %s\n", e.code, e.meaning)
	}
	b.WriteString("\nWith --json an error is one line on standard error,\n")
	b.WriteString("{\"error\":{\"code\":…,\"message\":…,\"definite\":…}}, where definite tells that the\n")
	b.WriteString("operation certainly did not happen. The codes and their exit codes:\n\n")
	for _, e := range errorCodes() {
		fmt.Fprintf(&b, "  %-15s %d\n", e.code, e.exit)
	}
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: b.String()}
}
