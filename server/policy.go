package server

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/punctualmq/punctual"
)

// Action is what a request wants to do to a topic. Actions can be joined with |.
type Action uint8

// The actions. A Grant gives some of them.
const (
	// ActionPush stores messages.
	ActionPush Action = 1 << iota
	// ActionWork claims and settles.
	ActionWork
	// ActionInspect looks at messages, counts and settings.
	ActionInspect
	// ActionAmend cancels, reschedules and requeues.
	ActionAmend
	// ActionAdmin changes settings, pauses, purges, deletes topics and messages, checks and examines. With ActionInspect it copies the store.
	ActionAdmin

	// actionAny is for routes that everybody may use who is known at all, actionPublic for those that ask nobody who he is.
	actionAny
	actionPublic

	// ActionAll is every action that a Grant can give.
	ActionAll = ActionPush | ActionWork | ActionInspect | ActionAmend | ActionAdmin
)

var actionNames = [...]string{"push", "work", "inspect", "amend", "admin"}

// ParseActions reads "push", "work", "inspect", "amend", "admin" and "all", separated by commas.
func ParseActions(text string) (Action, error) {
	var out Action
words:
	for word := range strings.SplitSeq(text, ",") {
		if word == "all" {
			out |= ActionAll
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

// String is the inverse of ParseActions.
func (a Action) String() string {
	if a&ActionAll == ActionAll {
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

// Authenticator says who sends a request. It is called for each request, and again when a claim that waited has messages, from
// many goroutines at once; so it must be quick.
type Authenticator interface {
	// Authenticate returns who sends the request, or an error that wraps punctual.ErrUnauthenticated.
	Authenticate(r *http.Request) (*Principal, error)
}

// Principal is who sends a request, and what he may do. It must not be changed once it was returned.
type Principal struct {
	// ID tells him from everybody else: limits and answers are his alone. Empty is as Name.
	ID string
	// Name is how logs and people call him. Several may have the same name.
	Name string
	// Grants are what he may do: what any of them allows.
	Grants []Grant
}

// Grant allows actions on topics.
type Grant struct {
	Actions Action
	// Topics is a topic's name, or the beginning of names followed by *: "order.*", "*". Of punctual.AuditTopic a beginning allows
	// ActionInspect alone.
	Topics string
}

// Everything is the grant that allows all actions on all topics.
func Everything() Grant { return Grant{Actions: ActionAll, Topics: "*"} }

// Allows tells whether the grants cover every action of a on the topic, or, when it is empty, on every topic that there can be.
func (p *Principal) Allows(a Action, topic string) bool {
	for _, g := range p.Grants {
		if !g.covers(topic) {
			continue
		}
		if topic == punctual.AuditTopic && g.Topics != topic {
			g.Actions &= ActionInspect // who may change all topics does not thereby change what is known of him
		}
		a &^= g.Actions
	}
	return a == 0
}

// mayAnywhere tells whether a grant allows a on some topic.
func (p *Principal) mayAnywhere(a Action) bool {
	return slices.ContainsFunc(p.Grants, func(g Grant) bool { return g.Actions&a == a })
}

func (g Grant) covers(topic string) bool {
	if prefix, ok := strings.CutSuffix(g.Topics, "*"); ok {
		return strings.HasPrefix(topic, prefix)
	}
	return topic == g.Topics
}

// may returns an ErrForbidden unless p may do a to the topic.
func (p *Principal) may(a Action, topic string) error {
	if p.Allows(a, topic) {
		return nil
	}
	return fmt.Errorf("%s may not %s in topic %q: %w", p.Name, a, topic, punctual.ErrForbidden)
}

// id is what he is counted by.
func (p *Principal) id() string { return cmp.Or(p.ID, p.Name) }

// anyone is the principal of a server without an Authenticator.
var anyone = &Principal{Name: "anyone", Grants: []Grant{Everything(), {Actions: ActionAll, Topics: punctual.AuditTopic}}}
