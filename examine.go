package punctual

import "context"

// Examiner is an optional interface of stores that can say what they stand on: whether the
// disk or server below them can keep the promises, and what to change when it cannot. It is what
// "punctual doctor" prints. A store's package has a function of the same name for a store that
// refuses to open.
type Examiner interface {
	// Examine looks at what is below the store and changes nothing there. The findings are in
	// an order that reads well; the error is for a look that could not be finished, and comes
	// with what was found until then.
	Examine(ctx context.Context) ([]Finding, error)
}

// Finding is one thing that was looked at below a store.
type Finding struct {
	// Name says what was looked at, in lower case: "eviction policy".
	Name string
	// Value is what was found there: "allkeys-lru".
	Value string
	// Grade says what that means for the promises.
	Grade Grade
	// Cure says why it matters and what to do. It is empty for GradeGood.
	Cure string
}

// Grade says how good a finding is.
type Grade uint8

// The grades of a finding.
const (
	// GradeGood: as it should be.
	GradeGood Grade = iota + 1
	// GradeCare: the store works, with less than it could have or for not much longer.
	GradeCare
	// GradeBad: a promise does not hold; the store refuses to open, or should not be used.
	GradeBad
)

var gradeNames = [...]string{"", "good", "care", "bad"}

// String returns "good", "care" or "bad".
func (g Grade) String() string { return name(gradeNames[:], int(g)) }
