package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
)

// defaultPrefix stands in front of all keys and channels unless Options say otherwise.
const defaultPrefix = "punctual:"

// formatVersion is that of the layout drawn in docs/format-redis.md.
const formatVersion = "2"

// otherFormat says what to do about a store of another format.
func otherFormat(format string) string {
	if format == "1" {
		return "format 1 divided topics in another way: let the program that wrote it deliver what is there, and begin anew under another prefix"
	}
	return "use the version of Punctual that wrote it, or another prefix"
}

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

// partitionKeys is how many keys a partition has beside its two hashes of records.
const partitionKeys = 8

// keyArgs has the keys of partitions as arguments of scripts, so that they are made once.
type keyArgs struct {
	mu sync.RWMutex
	of map[string][]any // guarded by mu: by partition.tag; the slices never change
}

// keyArgsMost is how many partitions keyArgs remembers.
const keyArgsMost = 10_000

// get returns the keys of p, and behind them those of its two hashes of records. Nobody may change them.
func (k *keyArgs) get(p partition) []any {
	k.mu.RLock()
	args := k.of[p.tag]
	k.mu.RUnlock()
	if args != nil {
		return args
	}
	for _, key := range append(p.keys(), p.records(0), p.records(recordWindow)) {
		args = append(args, key)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil || len(k.of) >= keyArgsMost {
		k.of = make(map[string][]any)
	}
	k.of[p.tag] = args
	return args
}

// part names the partition to the part that waits.
func (p partition) part() wait.Part { return wait.Part{Topic: p.topic, Number: p.number} }

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

// keys are the KEYS of every script of a partition, in the order that lua/start.lua says.
func (p partition) keys() []string {
	return []string{p.tag + "t", p.tag + "l", p.tag + "d", p.tag + "f", p.tag + "m", p.tag + "s", p.tag + "g", p.tag + "x"}
}

// channel is where notifications of the partition are published.
func (p partition) channel() string { return p.tag + "notify" }
