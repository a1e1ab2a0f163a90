package console

import "time"

// fact is one thing that is set of a schedule or of a bulk change. The page has a label for each Name.
type fact struct{ Name, Value string }

// facts are shown and recorded in the order in which they were added.
type facts []fact

// add adds a fact, unless its value is empty.
func (f *facts) add(name, value string) {
	if value != "" {
		*f = append(*f, fact{name, visible(value)})
	}
}

// addTime adds an instant by the clock of a zone, unless it is the zero time.
func (f *facts) addTime(name string, at time.Time, zone *time.Location) {
	if !at.IsZero() {
		f.add(name, stamp(at, zone))
	}
}
