package diskstore

import (
	"math"
	"time"

	"github.com/punctualmq/punctual/storekit"
)

// clock is the store's clock (P8), which does not run backwards across a restart either.
type clock struct{ *storekit.SteadyClock }

// ms is the current time in whole milliseconds, rounded down.
func (c clock) ms() int64 { return storekit.Millis(c.Now()) }

// never stands for "nothing is due", and sorts after every real time. maxSleep is the longest sleep while
// something is pending. Both are in ms.
const (
	never    int64 = 1<<63 - 1
	maxSleep int64 = 1000
)

// after waits until the clock has reached ms, but not longer than limit milliseconds.
// It may be early after a step of its source, so the caller reads the clock again.
func (c clock) after(ms, limit int64) (<-chan time.Time, func()) {
	return c.After(storekit.FromMillis(ms), time.Duration(min(limit, math.MaxInt64/1_000_000))*time.Millisecond)
}

// How the clock survives the process: a time that was given out must not come again after kill
// -9, even if somebody sets the machine's clock back meanwhile. Every transaction writes the clock, and
// so does every frame of the claim log that a call waits for. A call that writes nothing, and returns a
// time or a state that depends on the time, writes the clock alone (claimlog.Log.KeepClock).
//
// A power cut takes the end of the claim log, but no transaction. While times are given out, a transaction is
// made at least once each watermarkInterval.
