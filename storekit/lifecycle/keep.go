package lifecycle

import (
	"cmp"
	"math"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Kept is until when something of a finished message is kept; 0 is not at all. What is kept until
// now is gone.
type Kept struct {
	ID     int64 // the ID counts as in use: the topic's DedupeWindow, or the message's own Remember
	Record int64 // the finished record: the topic's FinishedRetention
}

// Keep returns what is kept of a message that finishes at now, by the settings of its topic at that
// moment. A message that is removed leaves nothing.
func (m *Message) Keep(set *punctual.Settings, now int64) (k Kept) {
	if keep := cmp.Or(m.Remember, storekit.CeilDuration(set.DedupeWindow)); keep > 0 {
		k.ID = now + keep
	}
	if keep := storekit.CeilDuration(set.FinishedRetention); keep > 0 {
		k.Record = now + keep
	}
	return k
}

// DeadUntil returns when a message that died at died is past its retention: from then on nobody may
// see it. It is math.MaxInt64 in a topic that keeps the dead until they are purged.
func DeadUntil(died int64, set *punctual.Settings) int64 {
	if keep := storekit.CeilDuration(set.DeadRetention); keep > 0 {
		return died + keep
	}
	return math.MaxInt64
}

// PastRetention tells whether a message that died at died is to be removed by now.
func PastRetention(died int64, set *punctual.Settings, now int64) bool {
	return DeadUntil(died, set) <= now
}

// DeadSince returns the time from which on the dead are kept at now, for a sweep of those that died
// before. It is math.MinInt64 in a topic that keeps all.
func DeadSince(set *punctual.Settings, now int64) int64 {
	if keep := storekit.CeilDuration(set.DeadRetention); keep > 0 {
		return now - keep + 1
	}
	return math.MinInt64
}
