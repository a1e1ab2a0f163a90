package storekit

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/punctualmq/punctual"
)

// MaxFailures bounds the history kept with one message: the newest failures
// stay, and Message.Attempt tells how many there were in all.
const MaxFailures = 16

// LeaseRanOut is the text of a Failure whose holder never answered.
const LeaseRanOut = "lease ran out"

// AddFailure appends f to history, dropping the oldest beyond MaxFailures.
// Every store uses it, so that histories agree.
func AddFailure(history []punctual.Failure, f punctual.Failure) []punctual.Failure {
	if over := len(history) + 1 - MaxFailures; over > 0 {
		history = history[over:]
	}
	out := make([]punctual.Failure, 0, len(history)+1)
	return append(append(out, history...), f)
}

// TrimError shortens the text of an error to MaxErrorBytes for a message's
// history and says so when it does. Bytes that are not UTF-8 become U+FFFD.
func TrimError(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= punctual.MaxErrorBytes {
		return text
	}
	note := fmt.Sprintf("… (%d bytes in all)", len(text))
	cut := punctual.MaxErrorBytes - len(note)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + note
}
