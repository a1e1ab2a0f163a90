// Package script has the Lua scripts of a store. It says for each script whether it may be sent
// twice and whether it awaits replicas, packs the header that most scripts are given, and reads the
// values in their answers. It has no state.
package script

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"
)

// Items and Bytes bound what one script is given, though one item alone may have more bytes; longer
// calls are several scripts. The server does nothing else while it runs a script, so a script
// should end within 5 ms.
const (
	Items = 200
	Bytes = 512 << 10
	// StateBytes is what an item counts against Bytes if its state is read and written anew. It is
	// more than the longest state has, because callers do not know the length of the state.
	StateBytes = 20 << 10
)

// RecordWindow is WINDOW of lua/call.lua, in ms.
const RecordWindow = 60_000

// LeasePlaces is PLACES of lua/select.lua.
const LeasePlaces = 1024

// MoreMark begins the error of a script that must prepare more than one script may, and has
// prepared a part: it has put leases that have run out into x, or has stored states. The script is
// to be sent again until the rest is prepared and it does its work.
const MoreMark = "PUNCTUAL_MORE"

// FinishedKeysMark begins the error of a script that needs the keys of the finished records as
// well. The script has done nothing, and is to be sent again with these keys.
const FinishedKeysMark = "PUNCTUAL_FINISHED"

// KeyedMark begins the error of a script that needs the keys of a topic with keys as well. The
// script has done nothing, and is to be sent again with these keys.
const KeyedMark = "PUNCTUAL_KEYED"

// EventKeysMark begins the error of a script that needs the keys of the companion events as well,
// because its topic or that of a follow-up emits events (Settings.Emit). The script has done
// nothing, and is to be sent again with these keys.
const EventKeysMark = "PUNCTUAL_EVENTS"

// StepMark begins the error of a script that needs a partition which has not made a step of the
// clock that the caller knows of, or which is about to. How many steps it has made, and the hash g
// of that partition follow. The script has done nothing, and is to be sent again when the partition
// has made the step (lua/step.lua).
const StepMark = "PUNCTUAL_STEP "

// NoEventsMark begins the error of a script that has an event to add while the companion events
// does not exist. The version that the companion's partition has follows, 0 or negative as in
// Answer. The script has done nothing, and is to be sent again when the companion exists.
const NoEventsMark = "PUNCTUAL_TELLS "

// Script is one file of lua/, with the files that stand in front of it.
type Script struct {
	Name, Text, SHA string
	Repeat          Repeat

	awaits func(args []any) bool // see AwaitsReplicas; nil for a script that never does
}

// AwaitsReplicas reports whether a call with these arguments promises something that must outlast
// the loss of the primary. With class replicated such a call returns only when enough replicas have
// on disk what the script wrote. Claims and settlements promise no such thing, because a message
// whose lease or ack was lost is delivered once more (docs/durability.md).
func (sc *Script) AwaitsReplicas(args []any) bool { return sc.awaits != nil && sc.awaits(args) }

// awaiting declares for which arguments a script awaits replicas.
func (sc *Script) awaiting(when func(args []any) bool) *Script {
	sc.awaits = when
	return sc
}

func always([]any) bool { return true }

// storeWrites reports whether a call of lua/store.lua with these arguments may write the epoch, the
// clock or a step.
func storeWrites(args []any) bool { return args[4] != "" || args[6] == "1" || args[7] != "" }

// Repeat says what happens when a script is sent a second time.
type Repeat uint8

// The values of Repeat.
const (
	Once     Repeat = iota // a second copy might make a second change, so the script must not be sent again
	Harmless               // a second copy changes nothing that the first has not changed
	Reading                // the script changes no message and no setting
	Recorded               // lua/call.lua gives the second copy the answer of the first
)

// The scripts. They never change while a program runs.
var (
	Push         = compose("push", Recorded, "start", "events", "call", "large_sets", "push_fast", "settings", "finished_records", "keyed", "prelude", "intake", "push").awaiting(always)
	Claim        = compose("claim", Recorded, "start", "claim_empty", "events", "call", "large_sets", "keyed", "claim_fast", "settings", "finished_records", "prelude", "claim")
	ClaimIDs     = compose("claim", Recorded, "start", "events", "call", "large_sets", "settings", "finished_records", "keyed", "prelude", "claim")
	Settle       = compose("settle", Recorded, "start", "follow_topics", "events", "call", "finished_records", "keyed", "settle_fast", "settings", "prelude", "large_sets", "intake", "follow", "settle")
	Amend        = compose("amend", Recorded, "start", "events", "call", "kept", "settings", "finished_records", "keyed", "prelude", "amend").awaiting(always)
	Get          = reader("get", "get")
	Finished     = reader("finished", "finished")
	ListFinished = reader("list finished", "list_finished")
	List         = reader("list", "rank", "select", "list")
	Stats        = reader("stats", "stats")
	Forecast     = reader("forecast", "forecast")
	Layout       = reader("layout", "layout")
	Check        = reader("check", "check")
	Configure    = change("configure", "configure")
	Copy         = change("copy settings", "configure")
	Spread       = change("spread", "spread")
	Purge        = change("purge", "rank", "select", "purge")
	Delete       = change("delete", "delete")
	Store        = compose("store", Once, "store").awaiting(storeWrites)
	Step         = compose("step", Harmless, "start", "settings", "finished_records", "keyed", "prelude", "rank", "step")
	Forget       = compose("forget", Once, "forget")
	Refuse       = compose("refuse", Harmless, "start", "refuse")
	Registry     = compose("registry", Harmless, "registry").awaiting(func(args []any) bool { return args[4] != "list" && args[4] != "since" })
	Confirm      = compose("confirm", Harmless, "confirm")
	Rights       = compose("rights", Reading, "rights")
)

// reader makes a script that changes no message and no setting. List and Stats write nevertheless:
// they add leases that have run out to the set x (lapsed in lua/prelude.lua).
func reader(name string, of ...string) *Script {
	return compose(name, Reading, append([]string{"start", "settings", "finished_records", "keyed", "prelude"}, of...)...)
}

// change makes a Recorded script that awaits replicas.
func change(name string, of ...string) *Script {
	return compose(name, Recorded, append([]string{"start", "call", "kept", "settings", "finished_records", "keyed", "prelude"}, of...)...).awaiting(always)
}

//go:embed lua/*.lua
var files embed.FS

// compose makes a script of the named files of lua/, in that order.
func compose(name string, r Repeat, of ...string) *Script {
	var text strings.Builder
	for i, file := range of {
		part, err := files.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // the name is misspelled in this file, and no program with this package would start
		}
		if i > 0 {
			text.WriteByte('\n')
		}
		text.Write(part)
	}
	sum := sha1.Sum([]byte(text.String()))
	return &Script{Name: name, Text: text.String(), SHA: hex.EncodeToString(sum[:]), Repeat: r}
}

// Called puts the name of the script in front of an error, unless the script is Recorded: the
// errors of such a script have the name of the method that it carries out.
func (sc *Script) Called(err error) error {
	if sc.Repeat == Recorded {
		return err
	}
	return fmt.Errorf("%s: %w", sc.Name, err)
}
