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

// Action is what a page or form wants to do to a topic.
type Action uint8

// The actions that a User is asked for.
const (
	// ActionInspect looks at messages, counts and settings.
	ActionInspect Action = iota + 1
	// ActionPush stores messages.
	ActionPush
	// ActionAmend cancels, reschedules and requeues.
	ActionAmend
	// ActionAdmin changes settings, pauses, purges and deletes, single messages too.
	ActionAdmin

	// actionPublic is for what everybody may have: style, script, the form to log in.
	actionPublic
	// actionAny is for pages that everybody may see who is known at all.
	actionAny
)

var actionNames = [...]string{"", "inspect", "push", "amend", "admin", "", ""}

// String returns "inspect", "push", "amend" or "admin".
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return "invalid"
}

// User is who uses the console.
type User struct {
	// Name is who he is, in the audit log.
	Name string
	// May tells whether he may do a to a topic; an empty topic stands for all topics. It is called several times for a
	// request, so it must be quick. A nil May allows nothing.
	May func(a Action, topic string) bool
}

// Everything is a May that allows everything.
func Everything(Action, string) bool { return true }

// identify finds out who sends the request. The token of a session goes into the header Authorization, where programs have theirs.
// So each request is judged anew, and the sessions of a token end with it.
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

// user is who sends the request, or "".
func (c *call) user() string {
	if c.who == nil {
		return ""
	}
	return c.who.Name
}

// authorizeRoute asks whether the route's action is allowed on the topic that the path names, or on all topics. Routes that are not of
// one topic and are marked so check each topic themselves.
func (c *call) authorizeRoute() error {
	switch a := c.route.action; {
	case a == actionAny:
		return nil
	case a < ActionInspect || a > ActionAdmin:
		return fmt.Errorf("nobody may use this page: %w", punctual.ErrForbidden)
	case c.route.perTopic:
		return nil
	default:
		return c.may(a, c.path["topic"])
	}
}

// may returns an ErrForbidden unless who sends the request may do a to the topic, "" being all topics. Nobody changes the audit log.
func (c *call) may(a Action, topic string) error {
	switch {
	case topic == access.AuditTopic && a != ActionInspect:
		return fmt.Errorf("topic %s is the audit log, which can only be read: %w", topic, punctual.ErrForbidden)
	case c.who != nil && c.who.May != nil && c.who.May(a, topic):
		return nil
	case topic == "":
		return fmt.Errorf("%s may not %s in all topics: %w", c.user(), a, punctual.ErrForbidden)
	}
	return fmt.Errorf("%s may not %s in topic %s: %w", c.user(), a, topic, punctual.ErrForbidden)
}

// thisMachine is who uses a console without Options.Authenticate: everybody on this machine, and nobody else. A request that a proxy passed
// on may come from elsewhere. One for a name that is not of this machine may come from a page of another site, by DNS rebinding.
func thisMachine(r *http.Request) (*User, error) {
	switch {
	case r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Forwarded") != "" || r.Header.Get("X-Real-Ip") != "":
	case !overSocket(r) && (!isLoopback(r.RemoteAddr) || !isLoopback(r.Host)):
	default:
		return &User{Name: localUser, May: Everything}, nil
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
