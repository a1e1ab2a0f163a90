// Package keys makes the names of a store's keys and channels in Redis. It also computes which
// partition a message or a token belongs to.
package keys

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// DefaultPrefix stands in front of all keys and channels unless redisstore.Options has another
// Prefix.
const DefaultPrefix = "punctual:"

// maxPrefixBytes bounds the prefix that New is given.
const maxPrefixBytes = 128

// Names makes the names of keys and channels. They begin with Prefix.
type Names struct{ Prefix string }

// New returns the Names with a prefix, or ErrInvalid for one that no store may have; the empty
// prefix stands for DefaultPrefix.
func New(prefix string) (Names, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if strings.ContainsAny(prefix, "{}") || len(prefix) > maxPrefixBytes {
		return Names{}, fmt.Errorf("key prefix %q: use at most %d bytes without { and }: %w", prefix, maxPrefixBytes, punctual.ErrInvalid)
	}
	return Names{prefix}, nil
}

// Store returns the key of the hash that belongs to the whole store: its format, epoch and clock.
func (n Names) Store() string { return n.Prefix + "store" }

// Topics returns the key of the sorted set with the names of all topics, and perhaps of some that
// are not there.
func (n Names) Topics() string { return n.Prefix + "topics" }

// Companions returns the channel on which processes tell of new companions.
func (n Names) Companions() string { return n.Prefix + "companions" }

// Partition is a part of a topic. All its keys are in one hash slot. The keys of the partition with
// the same number of each companion of the topic are in that slot, too, so that one script can
// change a message of the topic and one of a companion.
type Partition struct {
	Topic  string
	Number int    // 0 to 255
	Tag    string // prefix, hash tag, name of the companion and a colon, with which all its keys begin
}

// Partition returns the partition of a topic with that number. For example, the keys of partition 3
// of orders begin with "{orders#3}:" behind the prefix, and those of orders@events with
// "{orders#3}@events:".
func (n Names) Partition(topic string, number int) Partition {
	parent, companion := storekit.Companion(topic)
	if companion != "" {
		companion = "@" + companion
	}
	return Partition{Topic: topic, Number: number, Tag: n.Prefix + "{" + parent + "#" + strconv.Itoa(number) + "}" + companion + ":"}
}

// Count is how many keys Partition.Keys returns. The hashes of records and the keys of finished
// records come beside these.
const Count = 8

// Settings is the index, in what Partition.Keys returns, of the hash g, which has the settings.
const Settings = 6

// Args remembers the keys of partitions as arguments of scripts, so that the strings are made once
// and not for each call. All methods are safe for concurrent use.
type Args struct {
	mu sync.RWMutex
	of map[string]args // guarded by mu: by Partition.Tag; the slices never change
}

// args are the keys of a partition.
type args struct {
	own     []any // what Partition.Keys returns
	records []any // of its two hashes of records
	// events are the keys of the partition of the companion events, keyed those of a topic with
	// keys, and finished those of the finished records. Each is empty until a script has asked for
	// it.
	events, keyed, finished []any
}

// mostArgs is how many partitions Args remembers at most. Args forgets all of them before it would
// remember more.
const mostArgs = 10_000

// Of returns the keys of p for a script without records: those of the partition, and behind them
// those of a topic with keys and of the finished records once a script has asked for these. The
// caller must not change the slice.
func (k *Args) Of(p Partition) []any {
	a := k.get(p)
	if len(a.finished) == 0 && len(a.keyed) == 0 {
		return a.own
	}
	return slices.Concat(a.own, a.keyed, a.finished)
}

// WithRecords returns the keys of p for a script with records. Behind the two hashes of records
// stand the keys beside, which are none of p, and then the keys of events and of finished records
// once a script has asked for these.
func (k *Args) WithRecords(p Partition, beside ...any) []any {
	a := k.get(p)
	names := append(make([]any, 0, Count+records+len(beside)+len(a.events)+len(a.keyed)+len(a.finished)), a.own...)
	names = append(append(names, a.records...), beside...)
	return append(append(append(names, a.events...), a.keyed...), a.finished...)
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

// AddFinished remembers that a partition may have finished records, so that all further scripts for
// it get their keys. names are the keys of a script for that partition; AddFinished returns them
// with the keys of the finished records added.
func (k *Args) AddFinished(names []any) []any {
	p := ofKey(names[0])
	a := k.change(p, func(a *args) { a.finished = anys(p.Finished()) })
	return slices.Concat(names, a.finished)
}

// AddKeyed remembers that a partition is one of a topic with keys, so that all further scripts for
// it get the keys that come with that. names are the keys of a script for that partition; AddKeyed
// returns them with these keys in front of those of the finished records. The keys of events are
// forgotten, because that companion has keys, too.
func (k *Args) AddKeyed(names []any) []any {
	p := ofKey(names[0])
	a := k.change(p, func(a *args) { a.keyed, a.events = anys(p.Keyed()), nil })
	end := behind(names, p.Finished())
	return slices.Concat(names[:end], a.keyed, names[end:])
}

// behind returns where in names the keys at its end begin, or the length of names if it does not
// end with them. What is remembered of the partition does not say, because other calls change it.
func behind(names []any, at []string) int {
	if end := len(names) - len(at); end >= 0 && names[len(names)-1] == any(at[len(at)-1]) {
		return end
	}
	return len(names)
}

// AddEvents remembers that a script of a partition adds events, so that all further scripts with
// records for that partition get the keys of the companion events, which has keys if the topic has.
// names are the keys of such a script; AddEvents returns them with the keys of the companion in
// front of those of AddKeyed and AddFinished.
func (k *Args) AddEvents(names []any) []any {
	p := ofKey(names[0])
	events := Partition{Tag: p.Tag[:strings.LastIndexByte(p.Tag, '}')+1] + "@events:"}
	end := behind(names, p.Finished())
	all := events.Keys()
	if own := behind(names[:end], p.Keyed()); own < end {
		end, all = own, events.All()
	}
	a := k.change(p, func(a *args) { a.events = anys(all) })
	return slices.Concat(names[:end], a.events, names[end:])
}

// ofKey returns the partition whose first key is given. Of its fields only Tag is set.
func ofKey(first any) Partition {
	key := first.(string)
	return Partition{Tag: key[:len(key)-1]}
}

// Others returns, of the partitions that the given keys belong to, the tags of all but the first
// one.
func Others(names []any) (tags []string) {
	own := ofKey(names[0]).Tag
	for _, name := range names {
		key := name.(string)
		tag := key[:strings.LastIndexByte(key, ':')+1]
		if tag != own && !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
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

// tokenStep is TOKEN_STEP of lua/start.lua: a token modulo tokenStep is the number of its
// partition.
const tokenStep = limits.MaxPartitions

// OfToken returns the number of the partition that gave a token.
func OfToken(token int64) int { return int(uint64(token) % tokenStep) }

// Home returns the number of the partition, of n, that a message with the given ID belongs to: the
// 64-bit FNV-1a hash of the ID's stem, its upper half combined with the lower one by XOR, modulo n.
// So IDs with one stem (storekit.Stem) have one home.
func Home(id string, n int) int {
	h, stem := uint64(14695981039346656037), storekit.Stem(id)
	for i := range len(stem) {
		h = (h ^ uint64(stem[i])) * 1099511628211
	}
	return int((h ^ h>>32) & (1<<32 - 1) % uint64(n))
}

// HomeStem returns a short text without "~" whose home among n partitions is the one with that
// number. The IDs of the events of that partition begin with it (storekit.EventID).
func HomeStem(number, n int) string {
	for i := 0; ; i++ {
		if stem := strconv.Itoa(i); Home(stem, n) == number {
			return stem
		}
	}
}

// Keys returns the first keys of each script that begins with lua/start.lua, in the order given
// there.
func (p Partition) Keys() []string {
	return []string{p.Tag + "t", p.Tag + "l", p.Tag + "d", p.Tag + "f", p.Tag + "m", p.Tag + "s", p.Tag + "g", p.Tag + "x"}
}

// Keyed returns the keys of a partition of a topic with keys that come beside those of Keys, in the
// order of lua/keyed.lua. A script is given them only if there are such messages.
func (p Partition) Keyed() []string {
	return []string{p.Tag + "q", p.Tag + "w", p.Tag + "k", p.Tag + "o", p.Tag + "i"}
}

// All returns what Keys and Keyed return, as scripts are given the keys of another topic.
func (p Partition) All() []string { return append(p.Keys(), p.Keyed()...) }

// Channel returns the channel on which notifications of the partition are published.
func (p Partition) Channel() string { return p.Tag + "notify" }

// Records returns the key of hash i, 0 or 1, of records. A record has the answer that a call got.
func (p Partition) Records(i int64) string { return p.Tag + "r" + strconv.FormatInt(i, 10) }

// Finished returns the keys of the finished records: the hash h of the records, and the sorted set
// u of the times at which they are past their retention. A script is given them only if there may
// be such records, as its last two keys: it recognizes them by the last letter of its last key.
func (p Partition) Finished() []string { return []string{p.Tag + "h", p.Tag + "u"} }

// Never returns a key that does not exist, in the hash slot of the key Store.
func (n Names) Never() string { return n.Prefix + "{" + n.Store() + "}:never" }

// NeverChannel returns a channel that nobody subscribes to.
func (n Names) NeverChannel() string { return n.Never() + ":notify" }
