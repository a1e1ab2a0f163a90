package wait

import "math/rand/v2"

// contention spreads the claim attempts of several processes that wait for the same partition. All
// of them know when the next message is due, but only one gets it. So a process whose attempts find
// messages goes on at once, and one whose attempts find nothing backs off, which leaves the next
// messages to the first. It still tries now and then, at a time of its own, because the other
// process may have died or may have no free slot.
type contention struct {
	jitter    int64 // by how many ms an attempt is delayed, at most
	empty     int   // how many attempts have found nothing since the backoff last began with 1 ms
	seen      int64 // the partition's clock at the last of these attempts, in ms
	processes int   // how many processes wait, as far as is known; 0 before they were counted
	counted   int64 // when the processes were last counted, in µs; 0 before that
}

const (
	// maxJitter bounds, in ms, the random time by which an attempt is delayed.
	maxJitter = 8
	// backoffEach is by how much each process that waits raises the bound of a backoff, in µs. So
	// one process or another tries about every 8 ms, with up to maxCounted processes.
	backoffEach int64 = 8_000
	// maxCounted bounds the processes that raise the bound: with 64 or more it is 512 ms. By chance
	// a backoff is half to one and a half times as long.
	maxCounted = 64
	// countEvery is how often the processes are counted, at most, in µs. They are counted only
	// after an attempt in vain.
	countEvery int64 = 10_000_000
)

// adapt takes in how many messages an attempt has found that was made at the time at which a
// message was due. If the message was gone, other processes wait for the same messages and ask at
// the same moment. So each process delays its next attempt by a random time: the first of many is
// hardly later than before, and most of the others are notified of the next due time before they
// ask.
func (u *contention) adapt(found int) {
	if found > 0 {
		u.jitter /= 2
		return
	}
	u.jitter = min(2*u.jitter+1, maxJitter)
}

func (u *contention) withJitter(at int64) int64 {
	if u.jitter == 0 || at == Never {
		return at
	}
	return at + 1000*rand.Int64N(u.jitter+1)
}

// backoff returns for how long the process makes no attempt after this answer, in µs. After answers
// without messages that is 1, 2, 4 ms and so on, half to one and a half times as long by chance if
// several processes wait. The bound is pollEvery while the partition's clock stands still, as a
// clock that was set back does. A message that comes more than maxJitter after its due time shows
// that the process which used to claim the messages has left this one, so the next backoff begins
// with 1 ms again.
func (u *contention) backoff(got Answer) int64 {
	if n := len(got.Deliveries); n > 0 && u.processes > 1 && got.Now-got.Deliveries[0].Due.UnixMilli() <= maxJitter {
		return 0 // the next answer in vain goes on with the backoff as it was
	}
	if got.Err != nil || got.Now == 0 || len(got.Deliveries) > 0 {
		u.empty = 0
		return 0
	}
	most := backoffEach * int64(max(1, min(u.processes, maxCounted)))
	if got.Now <= u.seen {
		most = pollEvery
	}
	u.seen = got.Now
	wait := min(int64(1000)<<min(u.empty, 10), most)
	u.empty++
	if u.processes > 1 { // not all at the same time
		wait = wait/2 + rand.Int64N(wait)
	}
	return wait
}

// toCount reports whether the processes are to be counted now.
func (u *contention) toCount(now int64) bool {
	if u.counted != 0 && now-u.counted < countEvery {
		return false
	}
	u.counted = now
	return true
}
