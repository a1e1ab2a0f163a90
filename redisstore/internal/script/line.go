package script

import "github.com/punctualmq/punctual/redisstore/internal/record"

// Header is what lua/start.lua and lua/call.lua are given as ARGV[1].
type Header struct {
	LowerBound      int64 // of the store's clock, in ms: the latest time that an answer had
	Era             int64 // how many steps of the store's clock the caller knows of
	Seconds, Micros int64 // the time of a test; seconds below 0 have the script read the server's clock
	Number          int64 // of the call
	Deadline        int64 // of the call, in ms
	General         bool  // for tests: the script takes its general path, never its fast path
	Stepping        bool  // the script is Step
	Key             *Key
}

// Flags of a header.
const (
	flagAgain   = 1 // the call was sent before, or may have been
	flagGeneral = 2 // no fast path
	flagStep    = 4 // the script is Step
)

// Pack encodes the header as ARGV[1]. again says that the call was sent before.
func (h Header) Pack(again bool) []byte {
	b := make([]byte, 0, 6*8+1)
	for _, n := range [...]int64{h.LowerBound, h.Era, h.Seconds, h.Micros, h.Number, h.Deadline} {
		b = record.AppendDouble(b, float64(n))
	}
	var flags byte
	if again || h.Key != nil && h.Key.Again {
		flags |= flagAgain
	}
	if h.General {
		flags |= flagGeneral
	}
	if h.Stepping {
		flags |= flagStep
	}
	b = append(b, flags)
	if h.Key != nil {
		b = append(append(b, h.Key.Field...), h.Key.Content...)
	}
	return b
}

// Key identifies a call to which the caller has given a key of its own (storekit.Request).
type Key struct {
	Field, Content []byte
	Again          bool // of a claim: a copy may have been sent before
}

// Line makes the command that runs a script. again says that this copy of the call is not the
// first. If the first of args is a Header, it is packed and tells the script so, too.
func Line(command, body string, keys, args []any, again bool) []any {
	line := make([]any, 0, FirstKey+len(keys)+len(args))
	line = append(line, command, body, len(keys))
	line = append(append(line, keys...), args...)
	if h, ok := args[0].(Header); ok {
		line[FirstKey+len(keys)] = h.Pack(again)
	}
	return line
}

// FirstKey is the index of the first key in what Line returns.
const FirstKey = 3

// KeyIn returns key i, from 0, of a command that Line has made.
func KeyIn(line []any, i int) string { return line[FirstKey+i].(string) }

// Flag returns "1" or "0", as the scripts take a yes or no.
func Flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}
