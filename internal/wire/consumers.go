package wire

import (
	"time"

	"github.com/punctualmq/punctual/storekit"
)

// Consumers are the consumers of a topic that this server knows of.
type Consumers struct {
	Consumers []Consumer `json:"consumers"`
	// Others sums up the consumers that are left out of Consumers. It is nil if there are none.
	Others *Consumer `json:"others,omitempty"`
	// Since is when the server began to count.
	Since Time `json:"since"`
}

// Consumer is a client that claims messages of a topic.
type Consumer struct {
	User    string `json:"user,omitempty"`
	Address string `json:"address,omitempty"`
	Name    string `json:"name,omitempty"`
	// Waiting is how many of the consumer's claims are under way, Leases how many messages it has
	// leased.
	Waiting int `json:"waiting"`
	Leases  int `json:"leases"`
	// NextEnd is when the first of these leases ends.
	NextEnd Time `json:"next_end,omitzero"`
	// Claimed and Settled count the messages of the last five minutes.
	Claimed  int64 `json:"claimed"`
	Settled  int64 `json:"settled"`
	LastSeen Time  `json:"last_seen"`
}

// ConsumersOf returns c for an answer.
func ConsumersOf(c storekit.Consumers) Consumers {
	out := Consumers{Consumers: make([]Consumer, 0, len(c.All)), Since: whole(c.Since)}
	for _, one := range c.All {
		out.Consumers = append(out.Consumers, ConsumerOf(one))
	}
	if c.Others != (storekit.Consumer{}) {
		others := ConsumerOf(c.Others)
		out.Others = &others
	}
	return out
}

// ConsumerOf returns c for an answer.
func ConsumerOf(c storekit.Consumer) Consumer {
	return Consumer{
		User: c.User, Address: c.Address, Name: c.Name, Waiting: c.Waiting, Leases: c.Leases, NextEnd: whole(c.NextEnd),
		Claimed: c.Claimed, Settled: c.Settled, LastSeen: whole(c.LastSeen),
	}
}

// whole cuts a time of this machine's clock down to milliseconds, as all other times have them.
func whole(t time.Time) Time { return Time(t.Truncate(time.Millisecond)) }

// All returns the answer as a storekit.Consumers. Its error is always nil.
func (c *Consumers) All() (storekit.Consumers, error) {
	out := storekit.Consumers{Since: time.Time(c.Since)}
	for _, one := range c.Consumers {
		out.All = append(out.All, one.consumer())
	}
	if c.Others != nil {
		out.Others = c.Others.consumer()
	}
	return out, nil
}

func (c Consumer) consumer() storekit.Consumer {
	return storekit.Consumer{
		User: c.User, Address: c.Address, Name: c.Name, Waiting: c.Waiting, Leases: c.Leases, NextEnd: time.Time(c.NextEnd),
		Claimed: c.Claimed, Settled: c.Settled, LastSeen: time.Time(c.LastSeen),
	}
}
