package redisstore

import (
	"fmt"
	"strings"

	"github.com/punctualmq/punctual"
)

// defaultPrefix stands in front of all keys and channels unless Options say otherwise.
const defaultPrefix = "punctual:"

// formatVersion is that of the layout drawn in docs/format-redis.md.
const formatVersion = "1"

// maxPrefixBytes bounds Options.Prefix.
const maxPrefixBytes = 128

// names makes the names of keys and channels.
type names struct{ prefix string }

func newNames(prefix string) (names, error) {
	if prefix == "" {
		prefix = defaultPrefix
	}
	if strings.ContainsAny(prefix, "{}") || len(prefix) > maxPrefixBytes {
		return names{}, fmt.Errorf("key prefix %q: use at most %d bytes without { and }: %w", prefix, maxPrefixBytes, punctual.ErrInvalid)
	}
	return names{prefix}, nil
}

// store is the key of what belongs to the whole store.
func (n names) store() string { return n.prefix + "store" }

// topics is the key of the set of all topics' names.
func (n names) topics() string { return n.prefix + "topics" }

// partition is a part of a topic. All its keys are in one hash slot.
type partition struct {
	topic string
	tag   string // prefix and hash tag, which all its keys begin with
}

// partitionOf returns the partition that holds a topic's message with the given ID, which is
// the only one: a topic has a single partition, numbered 0.
func (n names) partitionOf(topic, _ string) partition { return n.partition(topic) }

func (n names) partition(topic string) partition {
	return partition{topic: topic, tag: n.prefix + "{" + topic + "#0}:"}
}

// keys are the KEYS of every script of a partition, in the order that lua/prelude.lua says.
func (p partition) keys() []string {
	return []string{p.tag + "t", p.tag + "l", p.tag + "d", p.tag + "f", p.tag + "m", p.tag + "s", p.tag + "g"}
}

// channel is where hints of the partition are published.
func (p partition) channel() string { return p.tag + "hint" }
