package punctual

import (
	"context"
	"time"
)

// ConsumerReporter is an optional interface of what knows who claims messages and who holds their leases: a server, and a
// store behind one. As[ConsumerReporter] finds it. A lease does not say who holds it, so a store by itself
// does not know.
type ConsumerReporter interface {
	// Consumers returns who works on a topic now. It is empty for a topic on which nobody works. A store behind a server that cannot
	// tell answers ErrUnsupported.
	Consumers(ctx context.Context, topic string) (Consumers, error)
}

// Consumers are those who work on one topic, as far as one process saw them since it began.
type Consumers struct {
	// All are those who hold most leases first.
	All []Consumer
	// Others are summed up: those for whom there is no room in All. It is zero when there are none.
	Others Consumer
	// Since is when the process began to look, by its own clock.
	Since time.Time
}

// Consumer is one who claims messages of a topic. Calls of the same user from the same address under the same name are one.
// Times are those of the process that looked.
type Consumer struct {
	// User is who asked: the name of a token or certificate. Address is from where, without the port. Name is what the consumer calls
	// itself. Each may be empty.
	User, Address, Name string
	// Waiting is how many of its claims are under way.
	Waiting int
	// Leases is how many messages it holds now.
	Leases int
	// NextEnd is when the first of those leases ends; zero when there is none.
	NextEnd time.Time
	// Claimed and Settled count messages of the last five minutes, the present one included. A lease that ran out is not settled.
	Claimed, Settled int64
	// LastSeen is when it claimed or settled last.
	LastSeen time.Time
}

// First returns the first n of All, and the rest among the Others.
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
