package storekit

import "github.com/punctualmq/punctual"

// Good is a finding that all is as it should be.
func Good(name, value string) punctual.Finding {
	return punctual.Finding{Name: name, Value: value, Severity: punctual.SeverityGood}
}

// Warning is a finding that the operator should know of. The remedy says why it matters and what to do.
func Warning(name, value, remedy string) punctual.Finding {
	return punctual.Finding{Name: name, Value: value, Severity: punctual.SeverityWarning, Remedy: remedy}
}

// Bad is a finding of something that breaks a promise of the store. The remedy says why it matters and what to do.
func Bad(name, value, remedy string) punctual.Finding {
	return punctual.Finding{Name: name, Value: value, Severity: punctual.SeverityBad, Remedy: remedy}
}
