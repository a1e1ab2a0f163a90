package cli

import (
	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual/internal/wire"
)

// attributeFlags adds the flags of push and of schedule put for the attributes of a message.
func attributeFlags(flags *pflag.FlagSet, a *wire.Attributes) {
	durationTextVar(flags, &a.Remember, "remember", "for how long after a message has finished a push of its ID is a duplicate (default: the duplicate window of the topic)")
	durationTextVar(flags, &a.Timeout, "timeout", "for how long a handler may work on a message (default: as the worker says)")
}
