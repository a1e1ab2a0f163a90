package console

import "time"

// fact is one value that is set in a schedule or a bulk change. The catalogue has a label for each
// Name.
type fact struct{ Name, Value string }

// facts are shown on a page, and written into the audit log, in the order in which they were added.
type facts []fact

// add adds a fact, unless the value is empty. It makes what is invisible in the value visible, so
// that the value is safe to show.
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
