package punctual

import (
	"context"
	"time"
)

// ConsumerReporter is an optional interface of stores that know who claims messages and who holds their leases: of those whose
// calls go through a server, such as remotestore, because the server sees all calls. As[ConsumerReporter] finds it. Other stores
// do not know, because a lease does not say who holds it. A server.Server has the method, too.
type ConsumerReporter interface {
	// Consumers returns the consumers of a topic, and none for a topic that nobody consumes. A store behind a server that
	// cannot tell returns ErrUnsupported.
	Consumers(ctx context.Context, topic string) (Consumers, error)
}

// Consumers are the consumers of one topic, as one process has seen them since it was started.
type Consumers struct {
	// All has the consumers one by one, the one that holds the most leases first.
	All []Consumer
	// Others has the sums of the consumers for which there is no room in All. It is zero when there are none.
	Others Consumer
	// Since is when the process began to count, by its own clock.
	Since time.Time
}

// Consumer is one client that claims messages of a topic. All calls of the same user, from the same address and under the
// same name, count as one consumer. Times are by the clock of the process that counts.
type Consumer struct {
	// User is the name of the token or certificate of the calls, Address where they come from, without the port, and Name
	// what the consumer calls itself. Each may be empty.
	User, Address, Name string
	// Waiting is the number of the consumer's claims that are under way.
	Waiting int
	// Leases is the number of messages that the consumer holds now, as far as the process sees: a lease that was ended by others,
	// for instance by a purge, counts until it would have run out.
	Leases int
	// NextEnd is when the first of those leases ends; zero when there is none.
	NextEnd time.Time
	// Claimed and Settled count the messages that the consumer claimed and settled in the last five minutes, the present
	// minute included. A release does not count as settled, and neither does a lease that ran out.
	Claimed, Settled int64
	// LastSeen is when the consumer last began or ended a claim, or settled or extended a lease.
	LastSeen time.Time
}

// First returns c with only the first n consumers in All; the rest is added to Others.
func (c Consumers) First(n int) Consumers {
	if n >= len(c.All) {
		return c
	}
	for _, one := range c.All[n:] {
		c.Others.Waiting += one.Waiting
		c.Others.Leases += one.Leases
		c.Others.Claimed += one.Claimed
		c.Others.Settled += one.Settled
		if !one.NextEnd.IsZero() && (c.Others.NextEnd.IsZero() || one.NextEnd.Before(c.Others.NextEnd)) {
			c.Others.NextEnd = one.NextEnd
		}
		if one.LastSeen.After(c.Others.LastSeen) {
			c.Others.LastSeen = one.LastSeen
		}
	}
	c.All = c.All[:n]
	return c
}
