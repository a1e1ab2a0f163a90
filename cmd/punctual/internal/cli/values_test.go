package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

func TestMalformedValuesAreErrorsOfUsage(t *testing.T) {
	_, duration := typed(notation.ParseDuration("5 m"))
	_, instant := typed(notation.ParseTime("noon"))
	_, backoff := typed(notation.ParseBackoff("exp:"))
	for _, err := range []error{duration, instant, backoff} {
		if f := describe(err); f.code != codeUsage || f.exit != exitUsage || strings.HasSuffix(f.text, "invalid") {
			t.Errorf("%v has code %q and exit %d; want %q and %d", err, f.code, f.exit, codeUsage, exitUsage)
		}
	}
}

func exitFor(err error) int {
	if err == nil {
		return exitOK
	}
	return describe(err).exit
}

func TestStampsHaveExactlyMilliseconds(t *testing.T) {
	for in, want := range map[time.Time]string{
		start: "2026-11-20T10:00:00.000Z",
		start.Add(1500 * time.Microsecond).In(time.FixedZone("", 3600)): "2026-11-20T10:00:00.001Z",
		limits.MaxDue: "9999-12-31T23:59:59.999Z",
	} {
		if got := stamp(in); got != want {
			t.Errorf("stamp of %v is %s, want %s", in, got, want)
		}
	}
}

func TestPrintableTakesControlCharactersAway(t *testing.T) {
	if got, want := term.Printable("a\x1b[31mb\u202ec\x00\n"), "a�[31mb�c�\n"; got != want {
		t.Errorf("printable gives %q, want %q", got, want)
	}
}

// An error of the library has the code of its kind, an exit code, and is definite if its kind is.
// The codes of other errors are in the table of error codes.
func TestEveryErrorCodeHasItsExit(t *testing.T) {
	codes := errorCodes()
	for _, err := range []error{context.Canceled, context.DeadlineExceeded, errors.New("any other")} {
		if f := describe(err); !slices.Contains(codes, errorCode{f.code, f.exit}) {
			t.Errorf("%v: code %q with exit %d is not in the table of errorCodes", err, f.code, f.exit)
		}
	}
	for _, k := range storekit.ErrorKinds() {
		f := describe(errors.Join(errors.New("push"), k.Err))
		if f.code != k.Code || f.exit == exitOK || f.definite != k.Definite {
			t.Errorf("%v: code %q, exit %d, definite %v; want code %q, an exit and definite %v (P13)", k.Err, f.code, f.exit, f.definite, k.Code, k.Definite)
		}
	}
}
