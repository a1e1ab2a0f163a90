// Package access decides who may do what with which topics. The server and the console use it: an
// Authenticator finds out which Principal sends a request, and the grants of the Principal say what
// it may do. Package tokens keeps principals in a file.
package access

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Action is a right on a topic, or several rights joined with |.
type Action uint8

// The actions. A Grant gives some of them.
const (
	// Push stores messages and schedules.
	Push Action = 1 << iota
	// Work claims and settles messages.
	Work
	// Inspect reads, for example messages, counts, schedules and settings.
	Inspect
	// Amend cancels, reschedules and requeues messages.
	Amend
	// Admin changes settings, pauses, purges, deletes topics and messages, pauses, resumes, skips,
	// runs, backfills and deletes schedules, and checks and examines the store. Whoever copies the
	// store needs Admin and Inspect.
	Admin

	// All is every action.
	All = Push | Work | Inspect | Amend | Admin
)

var actionNames = [...]string{"push", "work", "inspect", "amend", "admin"}

// ParseActions reads "push", "work", "inspect", "amend", "admin" and "all", separated by commas.
// Anything else is an ErrInvalid.
func ParseActions(text string) (Action, error) {
	var out Action
words:
	for word := range strings.SplitSeq(text, ",") {
		if word == "all" {
			out |= All
			continue
		}
		for i, name := range actionNames {
			if word == name {
				out |= 1 << i
				continue words
			}
		}
		return 0, fmt.Errorf("action %q: use push, work, inspect, amend, admin or all, separated by commas: %w", word, punctual.ErrInvalid)
	}
	return out, nil
}

// String returns the actions in the form that ParseActions reads, and "" for none.
func (a Action) String() string {
	if a&All == All {
		return "all"
	}
	var words []string
	for i, name := range actionNames {
		if a&(1<<i) != 0 {
			words = append(words, name)
		}
	}
	return strings.Join(words, ",")
}

// Authenticator finds out who sends a request. A server calls it for each request to a route that
// is not public, and again when a claim has messages, from many goroutines at once, so it must be
// quick and safe for concurrent use.
type Authenticator interface {
	// Authenticate returns who sends the request, or an error, which wraps
	// punctual.ErrUnauthenticated if the request does not show that. With any other error the
	// request is refused as well, for instance because the principal sends too many
	// (server.Server.Authenticate).
	Authenticate(r *http.Request) (*Principal, error)
}

// AuditTopic is the topic with the audit log of a store. A grant for a prefix of topic names, such
// as "*", allows Inspect alone on it. Over the interface of a server only a grant that names the
// topic allows more. In a console nothing does.
const AuditTopic = "punctual.audit"

// Principal is the sender of a request, with what it may do. It must not be changed after an
// Authenticator has returned it.
type Principal struct {
	// ID identifies the principal: limits are counted, and answers are kept, for each ID. Empty
	// means that Name is the ID.
	ID string
	// Name appears in logs and in the audit log. Several principals may have the same name.
	Name string
	// Grants are what the principal may do. Their rights add up. Without a grant the principal may
	// do nothing.
	Grants []Grant
}

// Grant allows actions on topics.
type Grant struct {
	Actions Action
	// Topics is the name of a topic, or a prefix of names followed by *, such as "order.*" or "*".
	// A name stands for the companions of the topic as well: "orders" covers orders@events, while
	// "orders@events" covers that companion alone. A prefix allows only Inspect on AuditTopic and
	// its companions.
	Topics string
}

// Everything returns the grant that allows all actions on all topics, except changes of AuditTopic
// and what no grant covers (Allows).
func Everything() Grant { return Grant{Actions: All, Topics: "*"} }

// Allows reports whether the grants together cover every action of a on the topic. An empty topic
// stands for all topics, also those that do not exist yet.
//
// No grant covers a push to a companion "out". A duty of the server, which may push everywhere,
// forwards each message there to the topic that the message names. So only the server itself puts
// messages there: the follow-ups of a settlement whose topics the principal may push to.
//
// Work and Amend on a companion "cron" take Admin as well. Its messages are the schedules of the
// topic, so whoever claims, settles or amends one of them moves or removes a schedule.
func (p *Principal) Allows(a Action, topic string) bool {
	switch _, companion := storekit.Companion(topic); {
	case companion == "out" && a&Push != 0:
		return false
	case companion == "cron" && a&(Work|Amend) != 0:
		a |= Admin
	}
	for _, g := range p.Grants {
		if !g.covers(topic) {
			continue
		}
		if parent, _ := storekit.Companion(topic); parent == AuditTopic && strings.HasSuffix(g.Topics, "*") {
			g.Actions &= Inspect // so that a principal who may change all topics cannot change what the log says about it
		}
		a &^= g.Actions
	}
	return a == 0
}

// AllowsSomewhere reports whether a single grant has every action of a, whatever its topics are.
func (p *Principal) AllowsSomewhere(a Action) bool {
	return slices.ContainsFunc(p.Grants, func(g Grant) bool { return g.Actions&a == a })
}

// Check returns nil if Allows does, otherwise an ErrForbidden that names principal, action and
// topic.
func (p *Principal) Check(a Action, topic string) error {
	switch {
	case p.Allows(a, topic):
		return nil
	case topic == "":
		return fmt.Errorf("%s may not %s in all topics: %w", p.Name, a, punctual.ErrForbidden)
	}
	if parent, companion := storekit.Companion(topic); companion == "cron" && p.Allows(a, parent) {
		return fmt.Errorf("%s may not %s in topic %q without admin, because its messages are schedules: %w", p.Name, a, topic, punctual.ErrForbidden)
	}
	return fmt.Errorf("%s may not %s in topic %q: %w", p.Name, a, topic, punctual.ErrForbidden)
}

// Key returns the ID, or the Name if there is no ID.
func (p *Principal) Key() string { return cmp.Or(p.ID, p.Name) }

func (g Grant) covers(topic string) bool {
	if prefix, ok := strings.CutSuffix(g.Topics, "*"); ok {
		return strings.HasPrefix(topic, prefix)
	}
	parent, _ := storekit.Companion(topic)
	return topic == g.Topics || parent == g.Topics
}
