// Package keys makes the names of a store's keys and channels in Redis. It also computes which partition a message or a token
// belongs to.
package keys

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// DefaultPrefix stands in front of all keys and channels unless Options say otherwise.
const DefaultPrefix = "punctual:"

// maxPrefixBytes bounds Options.Prefix.
const maxPrefixBytes = 128

// Names makes the names of keys and channels. They begin with Prefix.
type Names struct{ Prefix string }

// New returns the Names with a prefix, or ErrInvalid for one that no store may have; the empty prefix stands for DefaultPrefix.
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

// Partition is a part of a topic. All its keys are in one hash slot, and so are those of the partition with the same number
// of each companion of the topic. So one script can change a message of the topic and one of a companion.
type Partition struct {
	Topic  string
	Number int    // 0 to 255
	Tag    string // prefix, hash tag and name of the companion, which all its keys begin with
}

// Partition returns the partition of a topic with that number. The keys of orders begin with "{orders#3}:" behind the prefix,
// and those of orders@events with "{orders#3}@events:".
func (n Names) Partition(topic string, number int) Partition {
	parent, companion := storekit.Companion(topic)
	if companion != "" {
		companion = "@" + companion
	}
	return Partition{Topic: topic, Number: number, Tag: n.Prefix + "{" + parent + "#" + strconv.Itoa(number) + "}" + companion + ":"}
}

// Count is how many keys a partition has beside its two hashes of records.
const Count = 8

// Settings is the index, in the keys of a partition, of the hash g, which has the settings.
const Settings = 6

// Args remembers the keys of partitions as arguments of scripts, so that the strings are made once and not for each call. All
// methods are safe for concurrent use.
type Args struct {
	mu sync.RWMutex
	of map[string]args // guarded by mu: by Partition.Tag; the slices never change
}

// args are the keys of a partition.
type args struct {
	own     []any // of the partition
	records []any // of its two hashes of records
	// events are those of the partition with the events of the topic, finished those of the finished records. Both are empty
	// until a script has asked for them.
	events, finished []any
}

// mostArgs is how many partitions Args remembers.
const mostArgs = 10_000

// Of returns the keys of p for a script without records. The caller must not change the slice.
func (k *Args) Of(p Partition) []any {
	a := k.get(p)
	if len(a.finished) == 0 {
		return a.own
	}
	return slices.Concat(a.own, a.finished)
}

// WithRecords returns the keys of p for a script that has its record in the hash of that number, 0 or 1. If the call has a
// key, the keys include the other hash of records, too. Behind them stand the keys beside, which are none of p.
func (k *Args) WithRecords(p Partition, number int64, key bool, beside ...any) []any {
	a := k.get(p)
	names := append(make([]any, 0, Count+records+len(beside)+len(a.events)+len(a.finished)), a.own...)
	names = append(names, a.records[number])
	if key {
		names = append(names, a.records[1-number])
	}
	return append(append(append(names, beside...), a.events...), a.finished...)
}

// records is how many hashes of records a partition has.
const records = 2

// get returns the keys of p.
func (k *Args) get(p Partition) args {
	k.mu.RLock()
	a, is := k.of[p.Tag]
	k.mu.RUnlock()
	if is {
		return a
	}
	return k.change(p, func(*args) {})
}

// AddFinished remembers that a partition may have finished records, so that all further scripts for it get their keys. names
// are the keys of a script for that partition; AddFinished returns them with the keys of the finished records added.
func (k *Args) AddFinished(names []any) []any {
	p := ofKey(names[0])
	a := k.change(p, func(a *args) { a.finished = anys(p.Finished()) })
	return slices.Concat(names, a.finished)
}

// AddEvents remembers that the topic of a partition tells of events, so that all further scripts with records for it get the keys
// of these. names are the keys of a script for that partition; AddEvents returns them with the keys of the events added.
func (k *Args) AddEvents(names []any) []any {
	p := ofKey(names[0])
	events := Partition{Tag: p.Tag[:strings.LastIndexByte(p.Tag, '}')+1] + "@events:"}
	a := k.change(p, func(a *args) { a.events = anys(events.Keys()) })
	end := len(names) - len(a.finished)
	return slices.Concat(names[:end], a.events, names[end:])
}

// ofKey returns the partition whose first key is given.
func ofKey(first any) Partition {
	key := first.(string)
	return Partition{Tag: key[:len(key)-1]}
}

// change changes the keys of p, and returns them.
func (k *Args) change(p Partition, f func(*args)) args {
	k.mu.Lock()
	defer k.mu.Unlock()
	a, is := k.of[p.Tag]
	if !is {
		a = args{own: anys(p.Keys()), records: []any{p.Records(0), p.Records(1)}}
	}
	f(&a)
	if k.of == nil || len(k.of) >= mostArgs {
		k.of = make(map[string]args)
	}
	k.of[p.Tag] = a
	return a
}

func anys(names []string) (all []any) {
	for _, name := range names {
		all = append(all, name)
	}
	return all
}

// tokenStep is TOKEN_STEP of lua/start.lua: a token modulo tokenStep is the number of its partition.
const tokenStep = punctual.MaxPartitions

// OfToken returns the number of the partition that gave a token.
func OfToken(token int64) int { return int(uint64(token) % tokenStep) }

// Home returns which of n partitions a message with the given ID belongs to: the FNV-1a hash of 64 bits of the ID's stem, its
// upper half folded into the lower by XOR, modulo n. So IDs with one stem (storekit.Stem) have one home.
func Home(id string, n int) int {
	h, stem := uint64(14695981039346656037), storekit.Stem(id)
	for i := range len(stem) {
		h = (h ^ uint64(stem[i])) * 1099511628211
	}
	return int((h ^ h>>32) & (1<<32 - 1) % uint64(n))
}

// HomeStem returns a short stem without "~" that is at home in that one of n partitions, for the IDs of its events
// (storekit.EventID).
func HomeStem(number, n int) string {
	for i := 0; ; i++ {
		if stem := strconv.Itoa(i); Home(stem, n) == number {
			return stem
		}
	}
}

// Keys returns the keys that every script of a partition gets, in the order that lua/start.lua gives.
func (p Partition) Keys() []string {
	return []string{p.Tag + "t", p.Tag + "l", p.Tag + "d", p.Tag + "f", p.Tag + "m", p.Tag + "s", p.Tag + "g", p.Tag + "x"}
}

// Channel returns the channel on which notifications of the partition are published.
func (p Partition) Channel() string { return p.Tag + "notify" }

// Records returns the key of the hash of records i, 0 or 1: the records have the answers that calls got.
func (p Partition) Records(i int64) string { return p.Tag + "r" + strconv.FormatInt(i, 10) }

// Finished returns the keys of the finished records: the hash h of the records, and the sorted set u of the times at which
// they are past their retention. They come last in KEYS, and only if there may be such records: a script recognizes them by
// the last letter of its last key.
func (p Partition) Finished() []string { return []string{p.Tag + "h", p.Tag + "u"} }

// Never returns a key that does not exist, in the hash slot of the key Store.
func (n Names) Never() string { return n.Prefix + "{" + n.Store() + "}:never" }

// NeverChannel returns a channel that nobody subscribes to.
func (n Names) NeverChannel() string { return n.Never() + ":notify" }
