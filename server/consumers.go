package server

import (
	"context"
	"net"
	"net/http"

	"github.com/punctualmq/punctual/internal/consumers"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// Consumers implements storekit.ConsumerReporter. It reports the consumers that claim from a topic
// through this server. The server counts up to 200,000 leases and distinguishes up to 1,000
// consumers, where a consumer of two topics counts as two.
func (s *Server) Consumers(ctx context.Context, topic string) (storekit.Consumers, error) {
	return s.tracker.Consumers(ctx, topic)
}

// caller returns the consumer that sends the request, as Consumers reports it.
func (c *call) caller() consumers.Caller {
	out := consumers.Caller{User: c.principal.Name}
	if c.principal == anyone {
		out.User = ""
	}
	out.Address = c.address()
	name := c.r.Header.Get(wire.HeaderConsumer)
	if wire.CheckConsumerName(name) == nil {
		out.Name = name
	}
	return out
}

// address returns the address of the client without its port, "" for a unix socket.
func (c *call) address() string {
	host, _, err := net.SplitHostPort(c.r.RemoteAddr)
	if err != nil {
		return ""
	}
	return host
}

// mostConsumers bounds the consumers that an answer has one by one. Further consumers are summed
// up.
const mostConsumers = 100

// consumers answers with the consumers of a topic.
func (c *call) consumers() error {
	topic := c.path["topic"]
	if err := storekit.CheckTopic(topic); err != nil {
		return err
	}
	all, err := c.server.Consumers(c.r.Context(), topic)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, wire.ConsumersOf(all.First(mostConsumers)))
}
