package server

import (
	"fmt"
	"net/http"

	"golang.org/x/time/rate"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
)

// admit counts a request against its principal's rate, and its connection as one of the principal.
func (s *Server) admit(r *http.Request, p *access.Principal) (*client, error) {
	s.mu.Lock()
	k := s.clients[p.Key()]
	if k == nil {
		k = &client{rate: rate.NewLimiter(rate.Limit(s.limits.Rate), s.limits.Burst)}
		s.clients[p.Key()] = k
	}
	s.mu.Unlock()
	if k.rate.Allow() {
		if conn := connOf(r); conn != nil {
			return k, conn.in.letIn(conn, p.Key())
		}
		return k, nil
	}
	return k, &refusal{
		status: http.StatusTooManyRequests,
		err:    fmt.Errorf("%s sends more than %v requests a second: %w", p.Name, s.limits.Rate, punctual.ErrOverloaded),
	}
}
