// Package promise names the promises of Punctual. A failure of the suite that shows a broken
// promise says its name, mostly at the beginning.
package promise

// The promises by the numbers of docs/promises.md. Of P10 the suite checks only that events which
// nobody reads are removed, and that one step of a schedule stores no more than 50 occurrences.
const (
	P1  = "P1 no loss"
	P2  = "P2 never early"
	P3  = "P3 one holder"
	P4  = "P4 fencing"
	P5  = "P5 cancel is definite"
	P6  = "P6 attempts are bounded and durable"
	P7  = "P7 idempotent push"
	P8  = "P8 one clock"
	P9  = "P9 any horizon"
	P10 = "P10 bounded"
	P11 = "P11 wake-ups are only that"
	P12 = "P12 order"
	P13 = "P13 errors are honest"
	P14 = "P14 isolation"
)
