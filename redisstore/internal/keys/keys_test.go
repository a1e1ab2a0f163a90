package keys

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
)

// The homes of an ID are part of the format. What follows the first ~ of an ID does not count,
// unless the ID begins with ~.
func TestHome(t *testing.T) {
	for id, want := range map[string][3]int{
		"": {2, 1, 193}, "a": {1, 0, 192}, "order-1001": {2, 6, 30}, "01JD4Z3V9Q8XKJ6T7W5R2M1N0P": {0, 7, 175},
		"order-1001~invoice": {2, 6, 30}, "a~": {1, 0, 192}, "a~b~c": {1, 0, 192}, "~a": {2, 7, 71},
	} {
		if got := [3]int{Home(id, 3), Home(id, 8), Home(id, 256)}; got != want {
			t.Errorf("homes of %q among 3, 8 and 256 are %v; want %v", id, got, want)
		}
	}
	var count [8]int
	for i := range 8000 {
		count[Home(fmt.Sprint("order-", i), 8)]++
	}
	if slices.Min(count[:]) < 800 || slices.Max(count[:]) > 1200 {
		t.Errorf("8000 IDs among 8 partitions: %v; want about 1000 each", count)
	}
}

// All keys of a partition, and its channel, are in one hash slot, and no two are the same.
func TestKeysOfAPartition(t *testing.T) {
	n, err := New("")
	if err != nil {
		t.Fatal(err)
	}
	p := n.Partition("orders", 3)
	all := append(append(p.Keys(), p.Records(0), p.Records(1), p.Channel()), p.Finished()...)
	for _, key := range all {
		if !strings.HasPrefix(key, "punctual:{orders#3}:") {
			t.Errorf("%s is in another slot", key)
		}
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != Count+5 {
		t.Errorf("two of %q are the same", all)
	}
	if got := p.Keys()[Settings]; got != "punctual:{orders#3}:g" {
		t.Errorf("the settings are in %s", got)
	}
	if got := OfToken(7*tokenStep + 3); got != 3 {
		t.Errorf("the token is of partition %d, want 3", got)
	}
}

// The keys of the finished records are given behind all others, and only where there may be such
// records, because the scripts recognize them by the last letter of the last key.
func TestFinishedKeys(t *testing.T) {
	var a Args
	p := Names{Prefix: "p:"}.Partition("topic", 0)
	without := [][]any{a.Of(p), a.WithRecords(p), a.WithRecords(p, "beside")}
	for i, n := range []int{Count, Count + 2, Count + 3} {
		if len(without[i]) != n {
			t.Errorf("the keys are %v; want %d", without[i], n)
		}
	}
	told := a.AddFinished(without[1])
	for i, names := range [][]any{a.Of(p), a.WithRecords(p), a.WithRecords(p, "beside")} {
		if want := append(slices.Clone(without[i]), "p:{topic#0}:h", "p:{topic#0}:u"); !slices.Equal(names, want) {
			t.Errorf("the keys are %v; want %v", names, want)
		}
	}
	if !slices.Equal(told, a.WithRecords(p)) {
		t.Errorf("the keys to send at once are %v", told)
	}
	for _, key := range append(p.Keys(), p.Records(0), p.Records(1)) {
		if strings.HasSuffix(key, "u") {
			t.Errorf("%s looks as if the keys of finished records were there", key)
		}
	}
}

// The keys of events stand in front of those of the finished records, and behind all others. Where
// they go follows from the keys of the script alone, because another call may learn of finished
// records of the partition, or the partition may be forgotten, between two copies of one script.
func TestEventKeys(t *testing.T) {
	p := Names{Prefix: "p:"}.Partition("topic", 0)
	events := anys(Names{Prefix: "p:"}.Partition("topic@events", 0).Keys())
	records := (&Args{}).WithRecords(p)
	for name, before := range map[string]func(a *Args, names []any) []any{
		"without finished records": func(_ *Args, names []any) []any { return names },
		"with finished records":    func(a *Args, names []any) []any { return a.AddFinished(names) },
		"finished records that another call learns of": func(a *Args, names []any) []any {
			a.AddFinished(a.WithRecords(p))
			return names
		},
		"a partition that is forgotten": func(a *Args, names []any) []any {
			names = a.AddFinished(names)
			for i := range mostArgs {
				a.Of(Names{}.Partition(fmt.Sprint("other", i), 0))
			}
			return names
		},
	} {
		var a Args
		names := before(&a, a.WithRecords(p))
		want := append(slices.Concat(records, events), names[len(records):]...)
		if got := a.AddEvents(names); !slices.Equal(got, want) {
			t.Errorf("%s: the keys are %v; want %v", name, got, want)
		}
	}
}

// The keys and the channel of a companion are in the slot of its topic, and none is also a key of
// the topic or of another companion.
func TestKeysOfCompanions(t *testing.T) {
	n := Names{Prefix: "p:"}
	seen := make(map[string]string)
	for _, topic := range []string{"orders", "orders@events", "orders@g.events", "orders@e"} {
		p := n.Partition(topic, 3)
		if p.Topic != topic || p.Number != 3 {
			t.Errorf("the partition of %s is %+v", topic, p)
		}
		for _, key := range append(append(p.Keys(), p.Records(0), p.Records(1), p.Channel()), p.Finished()...) {
			if !strings.HasPrefix(key, "p:{orders#3}") {
				t.Errorf("%s is in another slot than orders", key)
			}
			if other := seen[key]; other != "" {
				t.Errorf("%s belongs to %s and %s", key, other, topic)
			}
			seen[key] = topic
		}
	}
	if got, want := n.Partition("orders@events", 3).Keys()[Settings], "p:{orders#3}@events:g"; got != want {
		t.Errorf("the settings of orders@events are in %s; want %s", got, want)
	}
}

// A prefix with a brace, which could put all keys into one slot, is refused, and so is one that is
// too long.
func TestPrefix(t *testing.T) {
	for _, prefix := range []string{"{a}", "a}", strings.Repeat("p", maxPrefixBytes+1)} {
		if _, err := New(prefix); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("prefix %q: %v; want ErrInvalid", prefix, err)
		}
	}
}

// P10: the keys of a partition are made once, and the number of partitions whose keys are
// remembered is bounded.
func TestArgs(t *testing.T) {
	var a Args
	n := Names{Prefix: "p:"}
	first := a.Of(n.Partition("topic", 0))
	if again := testing.AllocsPerRun(10, func() { a.get(n.Partition("topic", 0)) }); again > 2 { // the tag of the partition
		t.Errorf("the keys were made twice: %v allocations", again)
	}
	for i := range mostArgs {
		a.Of(n.Partition(fmt.Sprint("topic", i), 0))
	}
	if len(a.of) > mostArgs {
		t.Errorf("P10: %d partitions are remembered, want at most %d", len(a.of), mostArgs)
	}
	if got := a.Of(n.Partition("topic", 0)); !slices.Equal(got, first) {
		t.Errorf("the keys are %v, and were %v", got, first)
	}
}

// The keys of a topic with keys stand behind those of events and in front of those of the finished
// records. The companion events then has such keys, too, also if its keys were known before.
func TestKeyedKeys(t *testing.T) {
	n := Names{Prefix: "p:"}
	p, events := n.Partition("topic", 0), n.Partition("topic@events", 0)
	var a Args
	names := a.AddEvents(a.AddFinished(a.WithRecords(p)))
	if len(names) != Count+records+Count+2 {
		t.Fatalf("before the topic has keys, the keys are %v", names)
	}
	if told, want := a.AddKeyed(names), slices.Concat(names[:len(names)-2], anys(p.Keyed()), anys(p.Finished())); !slices.Equal(told, want) {
		t.Errorf("the keys to send at once are %v; want %v", told, want)
	}
	if got, want := a.Of(p), anys(slices.Concat(p.All(), p.Finished())); !slices.Equal(got, want) {
		t.Errorf("the keys without records are %v; want %v", got, want)
	}
	names = a.WithRecords(p)
	a.AddEvents(names)
	want := slices.Concat(names[:Count+records], anys(events.All()), names[Count+records:])
	if got := a.WithRecords(p); !slices.Equal(got, want) || !slices.Equal(names[Count+records:], anys(append(p.Keyed(), p.Finished()...))) {
		t.Errorf("with events the keys are %v; want %v", got, want)
	}
}
