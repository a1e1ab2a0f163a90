package cli

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
)

// attributeFlags are the flags of push for the attributes of a message (storekit.Attributes).
type attributeFlags struct {
	remember durationFlag
}

func (f *attributeFlags) register(flags *pflag.FlagSet) {
	flags.Var(&f.remember, "remember", "for how long after the message has finished a push of its ID is a duplicate (default: the duplicate window of the topic)")
}

func (f *attributeFlags) options() []punctual.PushOption {
	return []punctual.PushOption{punctual.Remember(f.remember.or(0))}
}

// attributeMembers are the members of a line of push --ndjson for the attributes. A member that is left out leaves what the flag says.
type attributeMembers struct {
	Remember *string `json:"remember"`
}

func (l *attributeMembers) options() (o []punctual.PushOption, err error) {
	if l.Remember != nil {
		d, err := typed(notation.ParseDuration(*l.Remember))
		if err != nil {
			return nil, fmt.Errorf("\"remember\": %w", err)
		}
		o = append(o, punctual.Remember(d))
	}
	return o, nil
}
