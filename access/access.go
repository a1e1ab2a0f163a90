// Package access says who may do what with which topics. The server and the console ask it for each request: an Authenticator finds out
// who sends the request, and the grants of that Principal say what it may do. Package tokens keeps principals in a file.
package access

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/punctualmq/punctual"
)

// Action is what a request wants to do to a topic. Several actions are joined with |.
type Action uint8

// The actions. A Grant gives some of them.
const (
	// Push stores messages.
	Push Action = 1 << iota
	// Work claims and settles messages.
	Work
	// Inspect reads messages, counts and settings.
	Inspect
	// Amend cancels, reschedules and requeues messages.
	Amend
	// Admin changes settings, pauses, purges, deletes topics and messages, checks and examines the store. A copy of the store needs Inspect
	// beside it.
	Admin

	// All is every action.
	All = Push | Work | Inspect | Amend | Admin
)

var actionNames = [...]string{"push", "work", "inspect", "amend", "admin"}

// ParseActions reads "push", "work", "inspect", "amend", "admin" and "all", separated by commas. Anything else is an ErrInvalid.
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

// String writes the actions as ParseActions reads them.
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

// Authenticator finds out who sends a request. A server calls it for each request, and again when a claim that waited has messages, from
// many goroutines at once; so it must be quick.
type Authenticator interface {
	// Authenticate returns who sends the request, or an error that wraps punctual.ErrUnauthenticated.
	Authenticate(r *http.Request) (*Principal, error)
}

// AuditTopic is the topic in which a console keeps who changed what in a store. A grant of all topics lets it be read; only a grant that
// names it lets it be changed over the interface of a server. Nothing lets it be changed in a console.
const AuditTopic = "punctual.audit"

// Principal is who sends a request, and what this sender may do. It must not be changed once an Authenticator has returned it.
type Principal struct {
	// ID tells the principal from all others: limits and kept answers are counted by it. Empty means that Name is the ID.
	ID string
	// Name stands in logs and in the audit log. Several principals may have the same name.
	Name string
	// Grants are what the principal may do: whatever any one of them allows. Without a grant it may do nothing.
	Grants []Grant
}

// Grant allows actions on topics.
type Grant struct {
	Actions Action
	// Topics is a topic's name, or the beginning of names followed by *: "order.*", "*". A beginning allows Inspect alone on AuditTopic.
	Topics string
}

// Everything is the grant that allows all actions on all topics, but for changes of AuditTopic.
func Everything() Grant { return Grant{Actions: All, Topics: "*"} }

// Allows tells whether the grants cover every action of a on the topic. An empty topic stands for all topics, also those that do not exist
// yet.
func (p *Principal) Allows(a Action, topic string) bool {
	for _, g := range p.Grants {
		if !g.covers(topic) {
			continue
		}
		if topic == AuditTopic && g.Topics != topic {
			g.Actions &= Inspect // whoever may change all topics must not thereby change what the log says about that
		}
		a &^= g.Actions
	}
	return a == 0
}

// AllowsSomewhere tells whether one grant allows every action of a on some topic.
func (p *Principal) AllowsSomewhere(a Action) bool {
	return slices.ContainsFunc(p.Grants, func(g Grant) bool { return g.Actions&a == a })
}

// Check returns an ErrForbidden that names principal, action and topic unless Allows does.
func (p *Principal) Check(a Action, topic string) error {
	switch {
	case p.Allows(a, topic):
		return nil
	case topic == "":
		return fmt.Errorf("%s may not %s in all topics: %w", p.Name, a, punctual.ErrForbidden)
	}
	return fmt.Errorf("%s may not %s in topic %q: %w", p.Name, a, topic, punctual.ErrForbidden)
}

// Key is what limits and kept answers of the principal are counted by.
func (p *Principal) Key() string { return cmp.Or(p.ID, p.Name) }

func (g Grant) covers(topic string) bool {
	if prefix, ok := strings.CutSuffix(g.Topics, "*"); ok {
		return strings.HasPrefix(topic, prefix)
	}
	return topic == g.Topics
}
