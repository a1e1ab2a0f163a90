package server

import (
	"github.com/punctualmq/punctual/storekit"
)

// This file has a message's attributes over HTTP: the parameters of a push of one message, how they
// are read, and the schemas of the members of JSON bodies. wire.Attributes has these members
// themselves.

// attributeParams are the parameters that attributes reads.
var attributeParams = []param{
	{
		name: "remember", in: inQuery, schema: length(),
		text: "How long after the message finished a push with its ID is a duplicate; left out: as the topic says, or 24h with an Idempotency-Key.",
	},
	{name: "timeout", in: inQuery, schema: length(), text: "How long a handler may work on the message; left out: as the worker says."},
}

// attributes reads the parameters of attributeParams. Its error names the parameter.
func (c *call) attributes() (a storekit.Attributes, err error) {
	if a.Remember, err = c.duration("remember"); err != nil {
		return a, err
	}
	a.Timeout, err = c.duration("timeout")
	return a, err
}

// attributeMembers are the schemas of the members of wire.Attributes.
func attributeMembers() map[string]object {
	return map[string]object{
		"Attributes.remember": length(),
		"Attributes.timeout":  length(),
	}
}
