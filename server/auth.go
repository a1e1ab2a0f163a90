package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
)

// This file has the checks that a request passes before it reaches the store: by which name it was
// sent, whether a page of another site has sent it, who its sender is, and what the sender may do.

// checkOrigin refuses requests that a page of another origin has sent through a browser, unless
// Options.Origins names that origin. It refuses reads as well, because some reads, such as a check
// of the store, are expensive. Links from other sites to pages of the console are allowed.
func (s *Server) checkOrigin(r *http.Request, forConsole bool) error {
	changes := *r
	if !forConsole || r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		changes.Method = http.MethodPost // because net/http lets every GET through
	}
	if err := s.origin.Check(&changes); err != nil {
		return fmt.Errorf("a page of another site sent this request: %w", punctual.ErrForbidden)
	}
	return nil
}

// checkHost refuses a request whose Host is not a name of this server, because a page in a browser
// can send it by DNS rebinding.
func (s *Server) checkHost(r *http.Request) error {
	if r.TLS != nil {
		return nil // the browser has compared the name with the certificate
	}
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && a.Network() == "unix" {
		return nil // browsers cannot connect to unix sockets
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if host == "localhost" || net.ParseIP(host) != nil {
		return nil
	}
	for _, allowed := range s.options.Hosts {
		if allowed == "*" || strings.EqualFold(allowed, host) {
			return nil
		}
	}
	return fmt.Errorf("host %q is not one of this server's names: use localhost or an IP address, or have the name allowed: %w", host, punctual.ErrForbidden)
}

// Authenticate finds out who sends a request, and counts the request against the rate of that
// principal. Its errors wrap punctual.ErrUnauthenticated or punctual.ErrOverloaded. It makes the
// Server an access.Authenticator for other handlers, such as Options.Console. Without
// Options.Authenticator it returns a principal that may do everything.
func (s *Server) Authenticate(r *http.Request) (*access.Principal, error) {
	p, err := s.authenticate(r)
	if err != nil {
		return nil, err
	}
	_, err = s.admit(r, p)
	return p, err
}

// anyone is the principal that authenticate returns if the server has no Authenticator.
var anyone = &access.Principal{
	Name: "anyone", Grants: []access.Grant{access.Everything(), {Actions: access.All, Topics: access.AuditTopic}},
}

// authenticate asks the Authenticator who sends a request.
func (s *Server) authenticate(r *http.Request) (*access.Principal, error) {
	a := s.options.Authenticator
	if a == nil {
		return anyone, nil
	}
	p, err := a.Authenticate(r)
	if err == nil && p == nil {
		err = errors.New("the authenticator returned nobody")
	}
	if err != nil && !errors.Is(err, punctual.ErrUnauthenticated) {
		s.log.Error("the authenticator failed", "error", err)
		err = fmt.Errorf("who sends this cannot be found out: %w", punctual.ErrOverloaded)
	}
	return p, err
}

// authorize checks the client's right to the route's action on the topic in the path, or on all
// topics if the path names none. For a route marked perItem whose path names no topic it only
// checks that the client has this right, or that of orAction, on some topic; the handler checks
// each topic.
func (c *call) authorize() error {
	switch need := c.route.action; {
	case c.route.public, c.route.anyPrincipal:
		return nil
	case need == 0:
		return fmt.Errorf("nobody may use this route: %w", punctual.ErrForbidden)
	case c.route.takes(inPath, "topic"):
		return c.principal.Check(need, c.path["topic"])
	case c.route.perItem && (c.principal.AllowsSomewhere(need) || c.route.orAction != 0 && c.principal.AllowsSomewhere(c.route.orAction)):
		return nil // the right on each topic is checked when the topic is known
	case c.route.perItem: // before the body is read
		return fmt.Errorf("%s may not %s in any topic: %w", c.principal.Name, need, punctual.ErrForbidden)
	default:
		return c.principal.Check(need, "")
	}
}
