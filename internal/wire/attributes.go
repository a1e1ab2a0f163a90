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
	// Key is what the bounds of the topic count together, such as a customer. Left out means a
	// message without a key.
	Key Given `json:"key,omitzero"`
}

// AttributeField is an attribute in the interfaces: a length of time or a text.
type AttributeField struct {
	// Name is that of the member in JSON, of the parameter in a query, and of the flag.
	Name string
	// Help says what the attribute is for.
	Help string
	// Member is where the attribute stands in a body of JSON.
	Member func(*Attributes) *Given
	// length or text is where a store has it, as its kind says; the other one is nil.
	length func(*storekit.Attributes) *time.Duration
	text   func(*storekit.Attributes) *string
}

// Length reports whether the attribute is a length of time.
func (f AttributeField) Length() bool { return f.length != nil }

// Text returns the attribute as people write it, "" if it is not set.
func (f AttributeField) Text(a *storekit.Attributes) string {
	if f.length != nil {
		return DurationText(*f.length(a))
	}
	return *f.text(a)
}

// Set sets the attribute to what Text returns for it.
func (f AttributeField) Set(a *storekit.Attributes, text string) (err error) {
	if f.length != nil {
		*f.length(a), err = ParseDurationText(f.Name, text)
		return err
	}
	*f.text(a) = text
	return nil
}

// AttributeFields are all attributes, in the order in which people see them.
var AttributeFields = [...]AttributeField{
	{
		Name: "remember", Help: "for how long after a message has finished a push of its ID is a duplicate (default: the duplicate window of the topic)",
		Member: func(a *Attributes) *Given { return &a.Remember },
		length: func(a *storekit.Attributes) *time.Duration { return &a.Remember },
	},
	{
		Name: "timeout", Help: "for how long a handler may work on a message (default: as the worker says)",
		Member: func(a *Attributes) *Given { return &a.Timeout },
		length: func(a *storekit.Attributes) *time.Duration { return &a.Timeout },
	},
	{
		Name: "key", Help: "what the bounds of the topic count together, such as a customer (default: no key)",
		Member: func(a *Attributes) *Given { return &a.Key },
		text:   func(a *storekit.Attributes) *string { return &a.Key },
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
		*f.Member(&out) = Given(f.Text(&a))
	}
	return out
}

// Read returns the attributes as a store takes and returns them, or an ErrInvalid that names the
// member.
func (a Attributes) Read() (out storekit.Attributes, err error) {
	for _, f := range &AttributeFields {
		if err = f.Set(&out, string(*f.Member(&a))); err != nil {
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
		if text := f.Text(&a); text != "" {
			shown = append(shown, Attribute{f.Name, text})
		}
	}
	return shown
}

// attributes appends the members of a, as attributesOf spells them.
func (w *jsonWriter) attributes(a storekit.Attributes) {
	for _, f := range &AttributeFields {
		if text := f.Text(&a); text != "" {
			w.text(`,"`+f.Name+`":`, text)
		}
	}
}

// compactAttributes returns the attributes as they stand in the compact form, nil for none.
func compactAttributes(a storekit.Attributes) *compact.Attributes {
	if a == (storekit.Attributes{}) {
		return nil
	}
	return &compact.Attributes{RememberNs: int64(a.Remember), TimeoutNs: int64(a.Timeout), Key: a.Key}
}

func readCompactAttributes(a *compact.Attributes) storekit.Attributes {
	return storekit.Attributes{Remember: time.Duration(a.GetRememberNs()), Timeout: time.Duration(a.GetTimeoutNs()), Key: a.GetKey()}
}
