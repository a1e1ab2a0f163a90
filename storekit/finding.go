package storekit

import "github.com/punctualmq/punctual"

// Good returns a finding of punctual.SeverityGood. name and value are its Name and Value.
func Good(name, value string) punctual.Finding {
	return punctual.Finding{Name: name, Value: value, Severity: punctual.SeverityGood}
}

// Warning returns a finding of punctual.SeverityWarning. The remedy says why the value matters and what to do.
func Warning(name, value, remedy string) punctual.Finding {
	return punctual.Finding{Name: name, Value: value, Severity: punctual.SeverityWarning, Remedy: remedy}
}

// Bad returns a finding of punctual.SeverityBad. The remedy says why the value matters and what to do.
func Bad(name, value, remedy string) punctual.Finding {
	return punctual.Finding{Name: name, Value: value, Severity: punctual.SeverityBad, Remedy: remedy}
}
