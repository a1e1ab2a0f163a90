package wire

import (
	"time"

	"github.com/punctualmq/punctual/internal/wire/compact"
	"github.com/punctualmq/punctual/storekit"
)

// Attributes are the members of storekit.Attributes, in a message to push, a delivery, a stored
// message and a schedule alike. The structs of these embed Attributes. Only this file names an
// attribute; the parameters of HTTP, the flags of the command line and the form of a schedule are
// made from AttributeFields.
type Attributes struct {
	// Remember is the message's own duplicate window: how long after its end a push with the same
	// ID is a duplicate. Left out means the topic's.
	Remember Given `json:"remember,omitzero"`
	// Timeout is how long a handler may work on the message. Left out leaves that to whoever
	// handles the message.
	Timeout Given `json:"timeout,omitzero"`
}

// AttributeField is an attribute in the interfaces. Each is a length of time.
type AttributeField struct {
	// Name is that of the member in JSON, of the parameter in a query, and of the flag.
	Name string
	// Help says what the attribute is for.
	Help string
	// Member is where the attribute stands in a body of JSON, Value where a store has it.
	Member func(*Attributes) *Given
	Value  func(*storekit.Attributes) *time.Duration
}

// AttributeFields are all attributes, in the order in which people see them.
var AttributeFields = [...]AttributeField{
	{
		"remember", "for how long after a message has finished a push of its ID is a duplicate (default: the duplicate window of the topic)",
		func(a *Attributes) *Given { return &a.Remember },
		func(a *storekit.Attributes) *time.Duration { return &a.Remember },
	},
	{
		"timeout", "for how long a handler may work on a message (default: as the worker says)",
		func(a *Attributes) *Given { return &a.Timeout },
		func(a *storekit.Attributes) *time.Duration { return &a.Timeout },
	},
}

// AttributeNames are the names of all attributes.
func AttributeNames() []string {
	names := make([]string, len(AttributeFields))
	for i := range AttributeFields {
		names[i] = AttributeFields[i].Name
	}
	return names
}

// attributesOf returns the attributes of a message as they stand in JSON.
func attributesOf(a storekit.Attributes) (out Attributes) {
	for _, f := range &AttributeFields {
		*f.Member(&out) = Given(DurationText(*f.Value(&a)))
	}
	return out
}

// Read returns the attributes as a store takes and returns them, or an ErrInvalid that names the
// member.
func (a Attributes) Read() (out storekit.Attributes, err error) {
	for _, f := range &AttributeFields {
		if *f.Value(&out), err = ParseDurationText(f.Name, string(*f.Member(&a))); err != nil {
			return out, err
		}
	}
	return out, nil
}

// answered returns the attributes of an answer. A member that cannot be read is an
// ErrIndeterminate, because no server of this interface sends one.
func (a Attributes) answered() (storekit.Attributes, error) {
	out, err := a.Read()
	if err != nil {
		return out, strangeAnswer("%v", err)
	}
	return out, nil
}

// Attribute is an attribute of a message for people: the name of its member, and its value as text.
type Attribute struct{ Name, Value string }

// AttributesToShow returns those attributes that are set.
func AttributesToShow(a storekit.Attributes) (shown []Attribute) {
	for _, f := range &AttributeFields {
		if d := *f.Value(&a); d != 0 {
			shown = append(shown, Attribute{f.Name, DurationText(d)})
		}
	}
	return shown
}

// attributes appends the members of a, as attributesOf spells them.
func (w *jsonWriter) attributes(a storekit.Attributes) {
	for _, f := range &AttributeFields {
		if d := *f.Value(&a); d != 0 {
			w.text(`,"`+f.Name+`":`, DurationText(d))
		}
	}
}

// compactAttributes returns the attributes as they stand in the compact form, nil for none.
func compactAttributes(a storekit.Attributes) *compact.Attributes {
	if a == (storekit.Attributes{}) {
		return nil
	}
	return &compact.Attributes{RememberNs: int64(a.Remember), TimeoutNs: int64(a.Timeout)}
}

func readCompactAttributes(a *compact.Attributes) storekit.Attributes {
	return storekit.Attributes{Remember: time.Duration(a.GetRememberNs()), Timeout: time.Duration(a.GetTimeoutNs())}
}
