package server

import (
	"github.com/punctualmq/punctual/storekit"
)

// A message's attributes over HTTP: the parameters of a push of one message, their reading, and their schemas in JSON bodies. The
// members of JSON bodies are in wire.Attributes.

// attributeParams are the parameters that attributes reads.
var attributeParams = []param{
	{
		name: "remember", in: inQuery, schema: length(),
		text: "How long after the message finished a push with its ID is a duplicate; left out: as the topic says, or 24h with an Idempotency-Key.",
	},
}

// attributes reads the parameters of attributeParams. Their errors name the parameter.
func (c *call) attributes() (a storekit.Attributes, err error) {
	a.Remember, err = c.duration("remember")
	return a, err
}

// attributeMembers are the schemas of the members of wire.Attributes.
func attributeMembers() map[string]object {
	return map[string]object{
		"Attributes.remember": length(),
	}
}
