package duties

import (
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// leastPostponed keeps a message that is put off by a topic without backoff from being claimed
// again and again without a pause.
const leastPostponed = 100 * time.Millisecond

// Postponed returns by how much the backoff of a topic puts off a message that is not to lose an
// attempt. Because attempts do not count here, it takes the first delay that ends later than the
// message has been put off already, so that the delays grow as they do with attempts.
func Postponed(d *punctual.Delivery, b punctual.Backoff) time.Duration {
	even := b
	even.Jitter = 0
	attempt, waited := 1, storekit.RetryDelay(even, 1)
	for attempt < 100 && waited <= d.Due.Sub(d.FirstDue) {
		attempt++
		waited += storekit.RetryDelay(even, attempt)
	}
	return max(storekit.RetryDelay(b, attempt), leastPostponed)
}
