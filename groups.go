package punctual

import (
	"github.com/punctualmq/punctual/limits"
)

// The copies of a message are follow-ups of its settlement, which have at most limits.MaxThenBytes
// together. A store does not compare a push with the groups of its topic. So a Queue and a server
// do, in order that a message which can never be copied is refused at its push and not found among
// the dead ones later.

// CopiesFit reports whether the copies of m are small enough however many groups the topic has,
// which is so for nearly every message. For any other message CheckCopies decides, once the
// settings of the topic are known.
func CopiesFit(m *NewMessage) bool { return copyBytes(m)*limits.MaxGroups <= limits.MaxThenBytes }

// CheckCopies returns an ErrTooLarge if the copies of m for the groups of its topic could have more
// than limits.MaxThenBytes together, however long the names of the groups are, or nil. s are the
// settings of that topic.
func (s Settings) CheckCopies(m *NewMessage) error {
	if n := copyBytes(m); n*len(s.Groups) > limits.MaxThenBytes {
		return errorf(ErrTooLarge, "message has %d bytes, and its copies for %d groups would have more than %d: store what is large elsewhere",
			n, len(s.Groups), limits.MaxThenBytes)
	}
	return nil
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
