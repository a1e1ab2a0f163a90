package punctual

import (
	"github.com/punctualmq/punctual/limits"
)

// The copies of a message are follow-ups of its settlement, which have at most limits.MaxThenBytes
// together. A store does not compare a push with the groups of its topic. So a Queue and a server
// do, in order that a message which can never be copied is refused at its push and not found among
// the dead ones later.

// CheckCopies returns an ErrTooLarge if m could never be copied to the groups of its topic: if the
// copies could have more than limits.MaxThenBytes together, however long the names of the groups
// are. It calls settings, for those of the topic, only for a message that is large. If settings
// fails, CheckCopies returns nil, because the push then says what is wrong with the store.
func CheckCopies(m *NewMessage, settings func() (Settings, error)) error {
	n := copyBytes(m)
	if n*limits.MaxGroups <= limits.MaxThenBytes {
		return nil
	}
	s, err := settings()
	if err != nil || n*len(s.Groups) <= limits.MaxThenBytes {
		return nil
	}
	return errorf(ErrTooLarge, "message has %d bytes, and its copies for %d groups would have more than %d: store what is large elsewhere",
		n, len(s.Groups), limits.MaxThenBytes)
}

// copyBytes is the most that a copy of m counts towards limits.MaxThenBytes: the names of its topic
// and its ID may be longer than those of m.
func copyBytes(m *NewMessage) int {
	n := len(m.Topic) + 1 + limits.MaxCompanionBytes + limits.MaxIDBytes + len(m.Body)
	for name, value := range m.Headers {
		n += len(name) + len(value)
	}
	return n
}

// GroupTopic returns the name of the topic in which a group has its copies of the messages of a
// topic (Settings.Groups). For example, the group billing of the topic orders has its copies in
// orders@g.billing.
func GroupTopic(topic, group string) string { return topic + "@g." + group }
