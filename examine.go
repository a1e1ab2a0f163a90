package punctual

import "context"

// Examiner is an optional interface of stores that can say what they stand on. It tells whether the
// disk or server below them can keep the promises, and what to change when it cannot. It is what
// "punctual doctor" prints. As[Examiner] finds it. A store's package has a function of the same name for a store that
// refuses to open.
type Examiner interface {
	// Examine looks at what is below the store and changes nothing there. The findings are in an order that reads
	// well. The error is for a look that could not be finished, and comes with what was found until then.
	Examine(ctx context.Context) ([]Finding, error)
}

// Finding is one thing that was looked at below a store.
type Finding struct {
	// Name says what was looked at, in lower case: "eviction policy".
	Name string
	// Value is what was found there: "allkeys-lru".
	Value string
	// Severity says what it means for the promises.
	Severity Severity
	// Remedy says why it matters and what to do. It is empty for SeverityGood.
	Remedy string
}

// Severity says how much a finding matters.
type Severity uint8

// The severities of a finding.
const (
	// SeverityGood: as it should be.
	SeverityGood Severity = iota + 1
	// SeverityWarning: the store works, with less than it could have or for not much longer.
	SeverityWarning
	// SeverityBad: a promise does not hold; the store refuses to open, or should not be used.
	SeverityBad
)

var severityNames = [...]string{"", "good", "warning", "bad"}

// String returns "good", "warning" or "bad".
func (s Severity) String() string { return name(severityNames[:], int(s)) }
