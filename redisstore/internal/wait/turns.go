package wait

import "math/rand/v2"

// turns says when a process looks into a partition for which others wait, too. All know when the next message is due,
// and one gets it. So whoever finds messages goes on, and whoever looks in vain leaves the next ones to him for a while.
// The others still look now and then, each at another time, because he may have died or have no free slot.
type turns struct {
	jitter    int64 // by how many ms polls are put off, at most
	empty     int   // how many claims found nothing, since one came late
	seen      int64 // the partition's clock at the last of them
	processes int   // how many wait, as far as is known
	counted   int64 // when they were counted
}

const (
	// maxJitter bounds, in ms, by how much a poll is put off.
	maxJitter = 8
	// restEach is how long a process rests after claims that found nothing, in µs, at most, for each process that waits.
	// So one of them looks in that time, however many there are.
	restEach int64 = 8_000
	// maxResting bounds for how many processes that counts.
	maxResting = 64
	// countEvery is how often processes are counted, at most, in µs. It happens only where some look in vain.
	countEvery int64 = 10_000_000
)

// adapt learns from a claim at the time at which a message was due. If it was gone, other processes wait for the same
// messages, and all of them ask at the same moment. So each asks a little later, by chance. The first of many is
// hardly later than before. Most of the others learn of what comes next without having asked in vain.
func (u *turns) adapt(found int) {
	if found > 0 {
		u.jitter /= 2
		return
	}
	u.jitter = min(2*u.jitter+1, maxJitter)
}

func (u *turns) withJitter(at int64) int64 {
	if u.jitter == 0 || at == Never {
		return at
	}
	return at + 1000*rand.Int64N(u.jitter+1)
}

// restAfter is how long the process rests after a claim, in µs. After one that found nothing that is 1, 2, 4 ms and so
// on. When the partition's clock stands still, as one does that was set back, it is up to a second. What came late was
// left by whoever was to take it, so the process begins with short rests again.
func (u *turns) restAfter(got Answer) int64 {
	if n := len(got.Deliveries); n > 0 && u.processes > 1 && got.Now-got.Deliveries[0].Due.UnixMilli() <= maxJitter {
		return 0
	}
	if got.Err != nil || got.Now == 0 || len(got.Deliveries) > 0 {
		u.empty = 0
		return 0
	}
	most := restEach * int64(max(1, min(u.processes, maxResting)))
	if got.Now <= u.seen {
		most = pollEvery
	}
	u.seen = got.Now
	rest := min(int64(1000)<<min(u.empty, 10), most)
	u.empty++
	if u.processes > 1 { // not all at the same time
		rest = rest/2 + rand.Int64N(rest)
	}
	return rest
}

// toCount reports whether the processes are to be counted now.
func (u *turns) toCount(now int64) bool {
	if u.counted != 0 && now-u.counted < countEvery {
		return false
	}
	u.counted = now
	return true
}
