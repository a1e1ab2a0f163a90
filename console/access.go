package console

import (
	"fmt"
	"net"
	"net/http"

	"github.com/punctualmq/punctual"
)

// Action is what a page or form wants to do to a topic.
type Action uint8

// The actions that Options.Authorize is asked for.
const (
	// ActionInspect looks at messages, counts and settings.
	ActionInspect Action = iota + 1
	// ActionPush stores messages.
	ActionPush
	// ActionAmend cancels, reschedules and requeues.
	ActionAmend
	// ActionAdmin changes settings, pauses, purges and deletes.
	ActionAdmin

	// actionPublic is for what everybody may have: style, script and the like.
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

// authorizeRoute asks whether the route's action is allowed on the topic that the path names. Routes that are not of one topic and
// are marked so check each topic themselves.
func (c *call) authorizeRoute() error {
	switch {
	case c.route.action == actionAny:
		return nil
	case c.route.action == 0:
		return fmt.Errorf("nobody may use this page: %w", punctual.ErrForbidden)
	case c.route.perTopic:
		return nil
	default:
		return c.may(c.route.action, c.path["topic"])
	}
}

// may returns an ErrForbidden unless who sends the request may do a to the topic, "" being all topics.
func (c *call) may(a Action, topic string) error {
	if ask := c.console.options.Authorize; ask != nil {
		return ask(c.r, a, topic)
	}
	return fromThisMachine(c.r)
}

// fromThisMachine refuses requests that come over a network.
func fromThisMachine(r *http.Request) error {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if ip := net.ParseIP(host); err == nil && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("the console without Options.Authorize answers to this machine alone: %w", punctual.ErrForbidden)
	}
	return nil
}
