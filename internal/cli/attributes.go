package cli

import (
	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// attributeFlags adds the flags of push and of schedule put for the attributes of a message.
func attributeFlags(flags *pflag.FlagSet, a *storekit.Attributes) {
	durationVar(flags, &a.Remember, "remember", "for how long after a message has finished a push of its ID is a duplicate (default: the duplicate window of the topic)")
	durationVar(flags, &a.Timeout, "timeout", "for how long a handler may work on a message (default: as the worker says)")
}

func attributeOptions(a storekit.Attributes) []punctual.PushOption {
	return []punctual.PushOption{punctual.Remember(a.Remember), punctual.Timeout(a.Timeout)}
}

// attributes returns what a line gives of the attributes as what Compose takes. said is the line as
// a message.
func (l *lineJSON) attributes(said *punctual.NewMessage) (o []punctual.PushOption) {
	if l.Remember != "" {
		o = append(o, punctual.Remember(said.Remember))
	}
	if l.Timeout != "" {
		o = append(o, punctual.Timeout(said.Timeout))
	}
	return o
}
