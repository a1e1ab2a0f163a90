// Package keys names what a store has in Redis: the keys and channels of partitions. It also tells which partition a
// message or a token belongs to.
package keys

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/punctualmq/punctual"
)

// DefaultPrefix stands in front of all keys and channels unless Options say otherwise.
const DefaultPrefix = "punctual:"

// maxPrefixBytes bounds Options.Prefix.
const maxPrefixBytes = 128

// Names makes the names of keys and channels. They begin with Prefix.
type Names struct{ Prefix string }

// New checks a prefix; the empty one is DefaultPrefix.
func New(prefix string) (Names, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if strings.ContainsAny(prefix, "{}") || len(prefix) > maxPrefixBytes {
		return Names{}, fmt.Errorf("key prefix %q: use at most %d bytes without { and }: %w", prefix, maxPrefixBytes, punctual.ErrInvalid)
	}
	return Names{prefix}, nil
}

// Store is the key of what belongs to the whole store.
func (n Names) Store() string { return n.Prefix + "store" }

// Topics is the key of the set of all topics' names.
func (n Names) Topics() string { return n.Prefix + "topics" }

// Partition is a part of a topic. All its keys are in one hash slot.
type Partition struct {
	Topic  string
	Number int    // 0 to 255
	Tag    string // prefix and hash tag, which all its keys begin with
}

// Partition is the part of a topic with a number.
func (n Names) Partition(topic string, number int) Partition {
	return Partition{Topic: topic, Number: number, Tag: n.Prefix + "{" + topic + "#" + strconv.Itoa(number) + "}:"}
}

// Count is how many keys a partition has beside its two hashes of records.
const Count = 8

// Settings is the place of the hash g, which has the settings, among the keys of a partition.
const Settings = 6

// Args has the keys of partitions as arguments of scripts, so that they are made once.
type Args struct {
	mu sync.RWMutex
	of map[string][]any // guarded by mu: by Partition.Tag, what all returns; the slices never change
}

// mostArgs is how many partitions Args remembers.
const mostArgs = 10_000

// Of returns the keys of p for a script that only reads. Nobody may change them.
func (k *Args) Of(p Partition) []any {
	all := k.all(p)
	return withStories(all[:Count:Count], all)
}

// WithRecords returns the keys of p for a script with a record in the hash of that number. If the call has a key they
// include both hashes.
func (k *Args) WithRecords(p Partition, number int64, key bool) []any {
	all := k.all(p)
	names := append(all[:Count:Count], all[Count+number])
	if key {
		names = append(names, all[Count+1-number])
	}
	return withStories(names, all)
}

// withStories adds the keys of the stories, where there may be some.
func withStories(names, all []any) []any {
	if more := all[Count+records:]; len(more) > 0 {
		return append(names, more...)
	}
	return names
}

// records is how many hashes of records a partition has.
const records = 2

// all returns the keys of p, those of its hashes of records, and those of its stories where there may be some.
func (k *Args) all(p Partition) []any {
	k.mu.RLock()
	args := k.of[p.Tag]
	k.mu.RUnlock()
	if args != nil {
		return args
	}
	return k.keep(p, false)
}

// Tell notes that a partition may have stories. Given and returned are the keys of a script for it, to which those of the
// stories are added.
func (k *Args) Tell(names []any) []any {
	first := names[0].(string)
	return withStories(names, k.keep(Partition{Tag: first[:len(first)-1]}, true))
}

func (k *Args) keep(p Partition, stories bool) (args []any) {
	of := append(p.Keys(), p.Records(0), p.Records(1))
	if stories {
		of = append(of, p.Stories()...)
	}
	for _, key := range of {
		args = append(args, key)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil || len(k.of) >= mostArgs {
		k.of = make(map[string][]any)
	}
	k.of[p.Tag] = args
	return args
}

// tokenStep is what the tokens of a partition differ by; the rest of their division by it is
// the number of the partition.
const tokenStep = punctual.MaxPartitions

// OfToken returns the number of the partition whose lease the token is.
func OfToken(token int64) int { return int(uint64(token) % tokenStep) }

// Home is the number of the partition, of n, to which a message with the given ID belongs. It is the ID's FNV-1a hash
// of 64 bits, the upper half folded into the lower, modulo n.
func Home(id string, n int) int {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return int((h ^ h>>32) & (1<<32 - 1) % uint64(n))
}

// Keys are the KEYS of every script of a partition, in the order that lua/start.lua says.
func (p Partition) Keys() []string {
	return []string{p.Tag + "t", p.Tag + "l", p.Tag + "d", p.Tag + "f", p.Tag + "m", p.Tag + "s", p.Tag + "g", p.Tag + "x"}
}

// Channel is where notifications of the partition are published.
func (p Partition) Channel() string { return p.Tag + "notify" }

// Records is the key of one of the two hashes, 0 and 1, that have what calls were answered.
func (p Partition) Records(i int64) string { return p.Tag + "r" + strconv.FormatInt(i, 10) }

// Stories are the keys of the stories of finished messages: of them, and of when they are forgotten. Their names are the last in
// KEYS of scripts where there may be stories, and tell so.
func (p Partition) Stories() []string { return []string{p.Tag + "h", p.Tag + "u"} }

// Never is a key that is never there, in the slot of the store's own.
func (n Names) Never() string { return n.Prefix + "{" + n.Store() + "}:never" }

// NeverChannel is a channel that nobody listens to.
func (n Names) NeverChannel() string { return n.Never() + ":notify" }
