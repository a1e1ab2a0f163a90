package storekit

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// MaxFailures is the most failures that the history of a message holds (Info.Failures,
// Delivery.Failures, Finished.Failures). A further failure pushes out the oldest; Message.Attempt
// still tells how many attempts there were.
const MaxFailures = 16

// LeaseRanOut is the Failure.Error of an attempt whose lease ended without a settlement.
const LeaseRanOut = "lease ran out"

// AddFailure returns a new history with f after the failures of history, without the oldest ones
// beyond MaxFailures. It does not change history.
func AddFailure(history []punctual.Failure, f punctual.Failure) []punctual.Failure {
	if over := len(history) + 1 - MaxFailures; over > 0 {
		history = history[over:]
	}
	out := make([]punctual.Failure, 0, len(history)+1)
	return append(append(out, history...), f)
}

// TrimError returns the text of an error as a history keeps it: at most limits.MaxErrorBytes long,
// and valid UTF-8. A longer text is cut between characters, and a note such as "… (5000 bytes in
// all)" stands at its end. Bytes that are not UTF-8 become U+FFFD.
func TrimError(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limits.MaxErrorBytes {
		return text
	}
	note := fmt.Sprintf("… (%d bytes in all)", len(text))
	cut := limits.MaxErrorBytes - len(note)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + note
}
