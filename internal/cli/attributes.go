package cli

import (
	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// attributeFlags are the flags of push and of schedule put for the attributes of a message
// (storekit.Attributes).
type attributeFlags struct {
	remember, timeout durationFlag
}

func (f *attributeFlags) register(flags *pflag.FlagSet) {
	flags.Var(&f.remember, "remember", "for how long after a message has finished a push of its ID is a duplicate (default: the duplicate window of the topic)")
	flags.Var(&f.timeout, "timeout", "for how long a handler may work on a message (default: as the worker says)")
}

func (f *attributeFlags) options() []punctual.PushOption {
	return []punctual.PushOption{punctual.Remember(f.remember.or(0)), punctual.Timeout(f.timeout.or(0))}
}

func (f *attributeFlags) attributes() storekit.Attributes {
	return storekit.Attributes{Remember: f.remember.or(0), Timeout: f.timeout.or(0)}
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
