package console

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/storekit"
)

// identify finds out who sends the request. For a browser with a session it puts the session's
// token into the header Authorization, where programs send theirs, so that each request is
// authenticated anew. When the token is no longer valid, all sessions of the token end.
func (c *call) identify() error {
	s := c.console.sessions.find(c.cookie(c.sessionCookie()))
	if s != nil {
		c.browser = s.key
		c.r = withToken(c.r, s.token)
	}
	user, err := c.console.authenticate(c.r)
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

// authenticate asks Options.Authenticate who sends a request.
func (c *Console) authenticate(r *http.Request) (user *access.Principal, err error) {
	if c.options.Authenticate == nil {
		return thisMachine(r)
	}
	if user, err = c.options.Authenticate(r); err == nil && user == nil {
		err = errors.New("Options.Authenticate returned nobody")
	}
	return user, err
}

// withToken returns a copy of the request as a program with this token would send it.
func withToken(r *http.Request, token string) *http.Request {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// user returns the name of the principal who sends the request, or "" before identify.
func (c *call) user() string {
	if c.who == nil {
		return ""
	}
	return c.who.Name
}

// authorizeRoute checks the route's action on the topic that the path names, or on all topics if
// the path names none. A handler whose route is marked perTopic checks each topic itself.
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

// may returns an ErrForbidden unless the principal of the request may do a to the topic, where ""
// stands for all topics. In the console nobody may change the audit log, whatever the grants.
func (c *call) may(a access.Action, topic string) error {
	if parent, _ := storekit.Companion(topic); parent == access.AuditTopic && a != access.Inspect {
		return fmt.Errorf("topic %s is the audit log, which can only be read: %w", topic, punctual.ErrForbidden)
	}
	if c.who == nil {
		return fmt.Errorf("nobody may %s before it is known who asks: %w", a, punctual.ErrForbidden)
	}
	return c.who.Check(a, topic)
}

// thisMachine authenticates requests to a console without Options.Authenticate: everybody on this
// machine gets access.Everything, and everybody else nothing. It refuses a request with the headers
// of a proxy, because that request may come from elsewhere. Over TCP it also refuses a request
// whose Host is neither localhost nor a loopback address, because a page of another site can send
// such a request by DNS rebinding.
func thisMachine(r *http.Request) (*access.Principal, error) {
	switch {
	case r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Forwarded") != "" || r.Header.Get("X-Real-Ip") != "":
	case !overSocket(r) && (!isLoopback(r.RemoteAddr) || !isLoopback(r.Host)):
	default:
		return &access.Principal{Name: localUser, Grants: []access.Grant{access.Everything()}}, nil
	}
	return nil, fmt.Errorf("the console answers to this machine alone, under localhost or 127.0.0.1, until Options.Authenticate says who may use it: %w", punctual.ErrForbidden)
}

// overSocket reports whether the request came over a unix socket.
func overSocket(r *http.Request) bool {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && a.Network() == "unix"
}

// isLoopback reports whether a host, with or without a port, is the name localhost or a loopback
// address such as 127.0.0.1.
func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// askToLogIn redirects a request for a page without a valid token to the login form, which leads
// back to that page afterwards. It returns whether it has answered the request. It leaves fragments
// and posted forms to the error page, because neither could go on after a login.
func (c *call) askToLogIn(err error) bool {
	if !errors.Is(err, punctual.ErrUnauthenticated) || !c.console.options.LoginByToken || c.fragment || c.r.Method == http.MethodPost {
		return false
	}
	c.begun = true
	if c.r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		// A browser that follows a link from another site does not send the cookie of its session,
		// which is a strict one. The browser sends the cookie when this empty page, which belongs
		// to the console's own site, loads the same address again.
		c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
		c.w.Header().Set("Refresh", "0")
		c.w.WriteHeader(http.StatusOK)
		return true
	}
	http.Redirect(c.w, c.r, c.loginPath(), http.StatusSeeOther)
	return true
}
