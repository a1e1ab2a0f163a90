package storekit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// CheckThen returns what is wrong with the follow-ups of a settlement, an ErrInvalid or
// ErrTooLarge, or nil. maxBody is the greatest length of a body that the store accepts, in bytes. A
// settlement without follow-ups passes.
func CheckThen(x *punctual.Settlement, maxBody int) error {
	if len(x.Then) == 0 {
		return nil
	}
	if x.Verb != punctual.SettleAck && x.Verb != punctual.SettleSnooze && x.Verb != punctual.SettleDiscard {
		return Invalidf("%s with follow-ups: only an ack, a snooze and a discard have them", x.Verb)
	}
	if len(x.Then) > limits.MaxThen {
		return Invalidf("%d follow-ups: use at most %d", len(x.Then), limits.MaxThen)
	}
	type name struct{ topic, id string }
	var named map[name]int // nil for a single follow-up, which needs no comparison
	if len(x.Then) > 1 {
		named = make(map[name]int, len(x.Then))
	}
	size := 0
	for i := range x.Then {
		m := &x.Then[i]
		if err := CheckPush(m, maxBody); err != nil {
			return FollowUpError(i, err)
		}
		if n := (name{m.Topic, m.ID}); m.ID != "" && named != nil {
			if first := named[n]; first != 0 {
				return FollowUpError(i, Invalidf("%s in %s is also follow-up %d", m.ID, m.Topic, first))
			}
			named[n] = i + 1
		}
		size += sizeOfFollowUp(m)
	}
	if size > limits.MaxThenBytes {
		return Errorf(punctual.ErrTooLarge, "follow-ups have %d bytes: at most %d are allowed", size, limits.MaxThenBytes)
	}
	return nil
}

// SizeOfThen returns the bytes of follow-ups that count towards limits.MaxThenBytes.
func SizeOfThen(then []punctual.NewMessage) int {
	n := 0
	for i := range then {
		n += sizeOfFollowUp(&then[i])
	}
	return n
}

// sizeOfFollowUp returns the bytes of a follow-up that count towards limits.MaxThenBytes.
func sizeOfFollowUp(m *punctual.NewMessage) int {
	return len(m.Topic) + len(m.ID) + len(m.Body) + sizeOfHeaders(m.Headers)
}

func sizeOfHeaders(h map[string]string) int {
	n := 0
	for name, value := range h {
		n += len(name) + len(value)
	}
	return n
}

// AfterHeader is the header that a Worker and a server give to follow-ups (SetAfter), so that
// people see what a message came from. Its value names the settled message: the topic, in which "/"
// is written as "%2F", then "/" and the ID, such as orders/A-17.
const AfterHeader = "punctual-after"

// SetAfter gives the follow-ups of x the AfterHeader, in place of one that they have. x.Then
// becomes a new slice, and the maps of headers are copied before they change. A follow-up keeps its
// headers as they are where the header would take it beyond limits.MaxHeaderBytes, or all of them
// beyond limits.MaxThenBytes, because a note for people must not have the settlement refused. The
// copies for the groups of the message's topic keep their headers as well, because they are the
// message.
func SetAfter(x *punctual.Settlement) {
	if len(x.Then) == 0 {
		return
	}
	value := afterValue(x.Topic, x.ID)
	x.Then = slices.Clone(x.Then)
	room := limits.MaxThenBytes - SizeOfThen(x.Then)
	for i := range x.Then {
		m := &x.Then[i]
		if parent, companion := Companion(m.Topic); parent == x.Topic && IsGroup(companion) {
			continue
		}
		old, has := m.Headers[AfterHeader]
		more := len(value) - len(old)
		if !has {
			more += len(AfterHeader)
		}
		if old == value || more > room || sizeOfHeaders(m.Headers)+more > limits.MaxHeaderBytes {
			continue
		}
		room -= more
		m.Headers = maps.Clone(m.Headers)
		if m.Headers == nil {
			m.Headers = make(map[string]string, 1)
		}
		m.Headers[AfterHeader] = value
	}
}

func afterValue(topic, id string) string { return strings.ReplaceAll(topic, "/", "%2F") + "/" + id }

// ParseAfter returns the topic and the ID that the value of an AfterHeader names. ok is false if
// the value names no message, since a client may push any header.
func ParseAfter(value string) (topic, id string, ok bool) {
	topic, id, _ = strings.Cut(value, "/")
	topic = strings.ReplaceAll(topic, "%2F", "/")
	return topic, id, CheckTopic(topic) == nil && CheckID(id) == nil
}

// FollowUpError returns the error of a settlement whose i-th follow-up, from 0, is refused with
// err. The text numbers them from 1.
func FollowUpError(i int, err error) error {
	return fmt.Errorf("follow-up %d: %w", i+1, err)
}
