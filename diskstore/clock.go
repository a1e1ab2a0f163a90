package diskstore

import (
	"math"
	"time"

	"github.com/punctualmq/punctual/storekit"
)

// clock is the store's clock (P8), which does not run backwards, not across a restart either, but
// for a step.
type clock struct{ *storekit.SteadyClock }

// ms returns the current time in whole Unix milliseconds, rounded down.
func (c clock) ms() int64 { return storekit.Millis(c.Now()) }

// never stands for "nothing is due", and sorts after every real time. maxSleep is the longest sleep
// of a claim that knows a next due time, and of the loader while there is something to load and
// room for it. Both are in ms.
const (
	never    int64 = 1<<63 - 1
	maxSleep int64 = 1000
)

// after returns a channel that receives a value when the clock has reached ms, or after limit
// milliseconds if that is earlier, and a function that ends the wait. The value may come early, or
// up to limit late, after a step of the clock's source, so the caller reads the clock again.
func (c clock) after(ms, limit int64) (<-chan time.Time, func()) {
	return c.After(storekit.FromMillis(ms), time.Duration(min(limit, math.MaxInt64/1_000_000))*time.Millisecond)
}

// How the clock survives the process: a time that was given out must not come again after kill -9,
// even if somebody sets the machine's clock back meanwhile. If the clock has moved on, every
// transaction writes it, and so does every write of the claim log that a call waits for. A call
// that writes nothing, and returns a time or a state that depends on the time, writes the clock
// alone (claimlog.Log.KeepClock).
//
// A power cut takes the end of the claim log, but no transaction that was reported. While times are
// given out, maintenance makes a transaction with the clock about once each watermarkInterval,
// unless another transaction has written the clock meanwhile.
