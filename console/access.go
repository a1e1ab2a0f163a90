package console

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
)

// identify finds out who sends the request. It puts the token of a session into the header Authorization, where programs send theirs, so
// that each request is authenticated anew. When the token no longer counts, all its sessions end.
func (c *call) identify() error {
	ask := c.console.options.Authenticate
	if ask == nil {
		ask = thisMachine
	}
	s := c.console.sessions.find(c.cookie(c.sessionCookie()))
	if s != nil {
		c.browser = s.key
		c.r = withToken(c.r, s.token)
	}
	user, err := ask(c.r)
	if err == nil && user == nil {
		err = errors.New("Options.Authenticate returned nobody")
	}
	if err != nil {
		if s != nil && errors.Is(err, punctual.ErrUnauthenticated) {
			c.browser = ""
			c.console.sessions.endAll(s.token)
			c.setCookie(c.sessionCookie(), "", -1)
		}
		return err
	}
	c.who, c.loggedIn = user, s != nil
	return nil
}

// withToken is the request as a program with this token would send it.
func withToken(r *http.Request, token string) *http.Request {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// user is the name of who sends the request, or "" before that is known.
func (c *call) user() string {
	if c.who == nil {
		return ""
	}
	return c.who.Name
}

// authorizeRoute checks the route's action on the topic that the path names, or on all topics. A handler whose route is marked perTopic
// checks each topic itself.
func (c *call) authorizeRoute() error {
	switch a := c.route.action; {
	case c.route.anyPrincipal:
		return nil
	case a == 0:
		return fmt.Errorf("nobody may use this page: %w", punctual.ErrForbidden)
	case c.route.perTopic:
		return nil
	default:
		return c.may(a, c.path["topic"])
	}
}

// may returns an ErrForbidden unless who sends the request may do a to the topic, where "" stands for all topics. Nobody changes the audit
// log in a console.
func (c *call) may(a access.Action, topic string) error {
	if topic == access.AuditTopic && a != access.Inspect {
		return fmt.Errorf("topic %s is the audit log, which can only be read: %w", topic, punctual.ErrForbidden)
	}
	if c.who == nil {
		return fmt.Errorf("nobody may %s before it is known who asks: %w", a, punctual.ErrForbidden)
	}
	return c.who.Check(a, topic)
}

// thisMachine authenticates requests to a console without Options.Authenticate: everybody on this machine may do everything, and nobody else
// anything. A request that a proxy passed on may come from elsewhere. A request for a name that is not of this machine may come from a page
// of another site, by DNS rebinding.
func thisMachine(r *http.Request) (*access.Principal, error) {
	switch {
	case r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Forwarded") != "" || r.Header.Get("X-Real-Ip") != "":
	case !overSocket(r) && (!isLoopback(r.RemoteAddr) || !isLoopback(r.Host)):
	default:
		return &access.Principal{Name: localUser, Grants: []access.Grant{access.Everything()}}, nil
	}
	return nil, fmt.Errorf("the console answers to this machine alone, under localhost or 127.0.0.1, until Options.Authenticate says who may use it: %w", punctual.ErrForbidden)
}

// overSocket tells that the request came over a unix socket.
func overSocket(r *http.Request) bool {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && a.Network() == "unix"
}

// isLoopback tells whether a host, with or without a port, is this machine.
func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// askToLogIn shows the form to log in, and then what was asked for. It tells whether it has answered.
func (c *call) askToLogIn(err error) bool {
	if !errors.Is(err, punctual.ErrUnauthenticated) || !c.console.options.LoginByToken || c.fragment || c.r.Method == http.MethodPost {
		return false
	}
	c.begun = true
	if c.r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		// A browser sends a strict cookie with no link from another site. It does when this page leads there once more.
		c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
		c.w.Header().Set("Refresh", "0")
		c.w.WriteHeader(http.StatusOK)
		return true
	}
	http.Redirect(c.w, c.r, c.loginPath(), http.StatusSeeOther)
	return true
}
