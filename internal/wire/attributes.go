package wire

import (
	"time"

	"github.com/punctualmq/punctual/internal/wire/compact"
	"github.com/punctualmq/punctual/storekit"
)

// Attributes are the members of storekit.Attributes, in a message to push, a delivery, a stored
// message and a schedule alike. The structs of these embed Attributes, so that in this package only
// this file and schedule.go name an attribute.
type Attributes struct {
	// Remember is the message's own duplicate window: how long after its end a push with the same
	// ID is a duplicate. Left out means the topic's.
	Remember Given `json:"remember,omitzero"`
	// Timeout is how long a handler may work on the message. Left out leaves that to whoever
	// handles the message.
	Timeout Given `json:"timeout,omitzero"`
}

// attributesOf returns the attributes of a message as they stand in JSON.
func attributesOf(a storekit.Attributes) Attributes {
	return Attributes{Remember: Given(DurationText(a.Remember)), Timeout: Given(DurationText(a.Timeout))}
}

// read returns the attributes as a store takes and returns them, or an ErrInvalid that names the
// member.
func (a Attributes) read() (out storekit.Attributes, err error) {
	if out.Remember, err = ParseDurationText("remember", string(a.Remember)); err != nil {
		return out, err
	}
	out.Timeout, err = ParseDurationText("timeout", string(a.Timeout))
	return out, err
}

// answered returns the attributes of an answer. A member that cannot be read is an
// ErrIndeterminate, because no server of this interface sends one.
func (a Attributes) answered() (storekit.Attributes, error) {
	out, err := a.read()
	if err != nil {
		return out, strangeAnswer("%v", err)
	}
	return out, nil
}

// Attribute is an attribute of a message for people: the name of its member, and its value as text.
type Attribute struct{ Name, Value string }

// AttributesToShow returns those attributes that are set.
func AttributesToShow(a storekit.Attributes) (shown []Attribute) {
	if a.Remember != 0 {
		shown = append(shown, Attribute{"remember", DurationText(a.Remember)})
	}
	if a.Timeout != 0 {
		shown = append(shown, Attribute{"timeout", DurationText(a.Timeout)})
	}
	return shown
}

// attributes appends the members of a, as attributesOf spells them.
func (w *jsonWriter) attributes(a storekit.Attributes) {
	if a.Remember != 0 {
		w.text(`,"remember":`, DurationText(a.Remember))
	}
	if a.Timeout != 0 {
		w.text(`,"timeout":`, DurationText(a.Timeout))
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
