package storekit

import (
	"fmt"
	"time"
)

// Good returns a finding of SeverityGood. name and value are its Name and Value.
func Good(name, value string) Finding {
	return Finding{Name: name, Value: value, Severity: SeverityGood}
}

// Warning returns a finding of SeverityWarning. The remedy says why the value matters and what to
// do.
func Warning(name, value, remedy string) Finding {
	return Finding{Name: name, Value: value, Severity: SeverityWarning, Remedy: remedy}
}

// Bad returns a finding of SeverityBad. The remedy says why the value matters and what to do.
func Bad(name, value, remedy string) Finding {
	return Finding{Name: name, Value: value, Severity: SeverityBad, Remedy: remedy}
}

// ClockFindings says how a store's clock stands, for the Examiner of the store. The first finding,
// "store's clock", is a warning while the clock is ahead by more than StepBeyond. The second one,
// "clock steps", tells of the last step, if there was one, and is a warning for a day.
func ClockFindings(c ClockState) []Finding {
	ntp := "check the time synchronization (NTP) of the " + c.Follows
	found := []Finding{Good("store's clock", "not ahead of that of the "+c.Follows)}
	if c.Ahead > StepBeyond {
		found[0] = Warning("store's clock", fmt.Sprintf("%v ahead of that of the %s", c.Ahead.Round(time.Second), c.Follows), fmt.Sprintf(
			"the clock of the %s was set back: a store that is open follows it by itself after %v, or at once by 'punctual clock STORE --set'; %s", c.Follows, StepAfter, ntp))
	}
	if c.Steps == 0 {
		return found
	}
	value := fmt.Sprintf("%d, the last one back from %s to %s", c.Steps, c.Last.From.UTC().Format(time.RFC3339), c.Last.To.UTC().Format(time.RFC3339))
	if c.Now.Sub(c.Last.To) > 24*time.Hour {
		return append(found, Good("clock steps", value))
	}
	return append(found, Warning("clock steps", value, "what was set while the clock was ahead has moved along; so that it does not get ahead again, "+ntp))
}
