package punctual

import "context"

// Examiner is an optional interface of stores that can examine the disk or server below them: whether it can keep the
// store's promises, and what to change when it cannot. "punctual doctor" prints the findings. As[Examiner] finds it. Packages
// diskstore, redisstore and pgstore also have a function Examine, for a store that refuses to open.
type Examiner interface {
	// Examine examines the disk or server below the store and leaves it as it was; on a disk it may write and remove one small
	// file. It returns the findings in an order for people to read. An error says that the examination could not be finished; the
	// findings made until then come with it.
	Examine(ctx context.Context) ([]Finding, error)
}

// Finding is the result of examining one thing, such as a setting of a server.
type Finding struct {
	// Name names what was examined, in lower case: "eviction policy".
	Name string
	// Value is what was found: "allkeys-lru".
	Value string
	// Severity says what the value means for the promises of the store.
	Severity Severity
	// Remedy says why the value matters and what to do. It is empty for SeverityGood.
	Remedy string
}

// Severity says what a finding means for the promises of a store.
type Severity uint8

// The severities of a finding.
const (
	// SeverityGood: the value is as it should be.
	SeverityGood Severity = iota + 1
	// SeverityWarning: the store works, but not as well as it could, or not for much longer.
	SeverityWarning
	// SeverityBad: a promise does not hold. The store refuses to open, or should not be used.
	SeverityBad
)

var severityNames = [...]string{"", "good", "warning", "bad"}

// String returns "good", "warning" or "bad".
func (s Severity) String() string { return name(severityNames[:], int(s)) }
