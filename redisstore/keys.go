package redisstore

import (
	"fmt"
	"strconv"
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
	topic  string
	number int    // 0 to 255
	tag    string // prefix and hash tag, which all its keys begin with
}

func (n names) partition(topic string, number int) partition {
	return partition{topic: topic, number: number, tag: n.prefix + "{" + topic + "#" + strconv.Itoa(number) + "}:"}
}

// tokenStep is what the tokens of a partition differ by; the rest of their division by it is
// the number of the partition.
const tokenStep = punctual.MaxPartitions

// partitionOfToken returns the number of the partition whose lease the token is.
func partitionOfToken(token int64) int { return int(uint64(token) % tokenStep) }

// home is the number of the partition, of n, to which a message with the given ID belongs:
// its FNV-1a hash of 64 bits, the upper half folded into the lower, modulo n.
func home(id string, n int) int {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return int((h ^ h>>32) & (1<<32 - 1) % uint64(n))
}

// keys are the KEYS of every script of a partition, in the order that lua/prelude.lua says.
func (p partition) keys() []string {
	return []string{p.tag + "t", p.tag + "l", p.tag + "d", p.tag + "f", p.tag + "m", p.tag + "s", p.tag + "g"}
}

// channel is where hints of the partition are published.
func (p partition) channel() string { return p.tag + "hint" }
