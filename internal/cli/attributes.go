package cli

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/storekit"
)

// attributeFlags are the flags of push and of schedule put for the attributes of a message (storekit.Attributes).
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

// attributeMembers are the members of a line of push --ndjson for the attributes. A member that is left out leaves what the flag says.
type attributeMembers struct {
	Remember *string `json:"remember"`
	Timeout  *string `json:"timeout"`
}

func (l *attributeMembers) options() (o []punctual.PushOption, err error) {
	for _, member := range []struct {
		name   string
		given  *string
		option func(time.Duration) punctual.PushOption
	}{{"remember", l.Remember, punctual.Remember}, {"timeout", l.Timeout, punctual.Timeout}} {
		if member.given == nil {
			continue
		}
		d, err := typed(notation.ParseDuration(*member.given))
		if err != nil {
			return nil, fmt.Errorf("%q: %w", member.name, err)
		}
		o = append(o, member.option(d))
	}
	return o, nil
}
