package storekit

import (
	"slices"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// Companion divides the name of a companion topic, such as orders@events, into the topic that it
// belongs to and its own name: "orders" and "events". For any other topic it returns the whole name
// and "".
func Companion(topic string) (parent, name string) {
	parent, name, _ = strings.Cut(topic, "@")
	return parent, name
}

// IsGroup reports whether the name of a companion, as Companion returns it, is that of a group's
// topic (punctual.GroupTopic).
func IsGroup(companion string) bool { return strings.HasPrefix(companion, "g.") }

// Stem returns the part of an ID that decides in which partition of its topic the message lies:
// what stands before the first "~", unless the ID begins with it, and else the whole ID. So a
// message with the ID A-17, its follow-up A-17~invoice and the follow-up of that, A-17~invoice~2,
// lie in one partition, in the topic and in its companions.
func Stem(id string) string {
	if i := strings.IndexByte(id, '~'); i > 0 {
		return id[:i]
	}
	return id
}

// CheckTopic returns an ErrInvalid unless name is 1 to 128 bytes of [A-Za-z0-9._:/-], or a
// companion's: after that "@" and 1 to 64 bytes of [A-Za-z0-9._-].
func CheckTopic(name string) error {
	if name == "" {
		return Invalidf("topic is empty: name it with 1 to %d of A-Z a-z 0-9 . _ : / -", limits.MaxTopicBytes)
	}
	for i := range len(name) {
		// The bytes from - to : are - . / the digits and : which are all allowed, so that one
		// comparison does for them. A claim may name a thousand topics.
		c := name[i]
		if c == '@' && i > 0 {
			if i > limits.MaxTopicBytes {
				return Invalidf("topic name has %d bytes before the @: use at most %d", i, limits.MaxTopicBytes)
			}
			return checkCompanion(name, name[i+1:])
		}
		if (c < 'a' || c > 'z') && (c < '-' || c > ':') && (c < 'A' || c > 'Z') && c != '_' {
			return Invalidf("topic %q: byte %d is not one of A-Z a-z 0-9 . _ : / -", name, i+1)
		}
	}
	if len(name) > limits.MaxTopicBytes {
		return Invalidf("topic name has %d bytes: use at most %d", len(name), limits.MaxTopicBytes)
	}
	return nil
}

// checkCompanion checks what follows the "@" of a topic.
func checkCompanion(topic, name string) error {
	if name == "" || len(name) > limits.MaxCompanionBytes {
		return Invalidf("topic %q: name its companion with 1 to %d bytes behind the @", topic, limits.MaxCompanionBytes)
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && c != '.' && c != '_' && c != '-' {
			return Invalidf("topic %q: byte %d is not one of A-Z a-z 0-9 . _ -", topic, len(topic)-len(name)+i+1)
		}
	}
	return nil
}

// CheckCompanionPatch returns an ErrInvalid if topic is a companion and the patch has a setting
// that a companion cannot have of its own (see punctual.Store), or nil.
func CheckCompanionPatch(topic string, p *punctual.SettingsPatch) error {
	parent, name := Companion(topic)
	switch {
	case name == "":
		return nil
	case p.Partitions != nil:
		return Invalidf("%s: a companion has the partitions of its topic: set those of %s", topic, parent)
	case p.Keyed != nil:
		return Invalidf("%s: a companion has keys if its topic has: set keyed of %s when it comes into being", topic, parent)
	case p.Groups != nil:
		return Invalidf("%s: a companion has no groups: set those of %s", topic, parent)
	case p.PushPaused != nil:
		return Invalidf("%s: pushes to a companion cannot be paused: pause those to %s", topic, parent)
	case p.Emit != nil && !IsGroup(name):
		return Invalidf("%s: a companion that is no group tells of no events: set those of %s", topic, parent)
	}
	return nil
}

// GroupTopics returns the names of the topics of the groups that a patch gives a topic. A store
// makes these topics in one step with the change, because a process that looks for topics with
// groups finds them by these names.
func GroupTopics(topic string, p *punctual.SettingsPatch) (names []string) {
	if p.Groups != nil {
		for _, group := range *p.Groups {
			names = append(names, punctual.GroupTopic(topic, group))
		}
	}
	return names
}

// CheckKeyed returns an ErrInvalid if m has a key and its topic takes none: if set are the settings
// of the topic, or of the topic that it is a companion of while it does not exist itself. They are
// nil if neither exists; m then makes a topic with keys.
func CheckKeyed(m *punctual.NewMessage, set *punctual.Settings) error {
	if m.Key == "" || set == nil || set.Keyed {
		return nil
	}
	return Invalidf("message with the key %q for %s, whose messages have no keys, which is fixed once a topic exists: push it to a topic that was made with keyed, or without a key", m.Key, m.Topic)
}

// KeyLeases returns how many messages of a key may be leased at once, 0 for no bound.
func KeyLeases(set *punctual.Settings) int {
	if set.InOrder {
		return 1
	}
	return set.MaxKeyLeases
}

// CheckKeyedChange returns an ErrInvalid if the settings of a topic cannot become s because of what
// they say of keys, or nil. A store with keys calls it with the settings that the topic has, or
// with nil for a topic that does not exist, in one step with the change.
func CheckKeyedChange(topic string, was, s *punctual.Settings) error {
	switch {
	case was != nil && s.Keyed != was.Keyed:
		return Invalidf("topic %s: keyed is fixed once a topic exists: use another topic, or delete this one first", topic)
	case !s.Keyed && (s.MaxKeyLeases > 0 || s.MaxKeyRate != limits.Rate{} || s.InOrder):
		return Invalidf("topic %s has no keys, which bounds by key need: set keyed as well, before the topic exists", topic)
	}
	return nil
}

// CheckNoKey returns an ErrUnsupported if m has a key, for a store without keys (Abilities.Keys).
func CheckNoKey(m *punctual.NewMessage) error {
	if m.Key == "" {
		return nil
	}
	return Errorf(punctual.ErrUnsupported, "message with the key %q: this store has no messages with keys", m.Key)
}

// CheckNoKeys is CheckNoKey for the follow-ups of a settlement.
func CheckNoKeys(s *punctual.Settlement) error {
	for i := range s.Then {
		if err := CheckNoKey(&s.Then[i]); err != nil {
			return FollowUpError(i, err)
		}
	}
	return nil
}

// CheckDelete returns an ErrInvalid if the deletion of a topic would lose messages in silence, or
// nil. parent are the settings of the topic that a companion belongs to, and waiting is how many
// messages of the topic's companion OutTopic are not dead. A store calls CheckDelete in one step
// with the deletion.
func CheckDelete(topic string, parent *punctual.Settings, waiting int64) error {
	of, name := Companion(topic)
	group, isGroup := strings.CutPrefix(name, "g.")
	switch {
	case isGroup && slices.Contains(parent.Groups, group):
		return Invalidf("%s has the group %s, and its messages would wait for ever without this topic: take %s out of the groups of %s first", of, group, group, of)
	case name == "" && waiting > 0:
		return Invalidf("%d follow-ups for other topics wait in %s: have a worker of %s, \"punctual serve\" or duty.Run forward them, or purge %s, first", waiting, OutTopic(topic), of, OutTopic(topic))
	}
	return nil
}
