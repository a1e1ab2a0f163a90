package punctual

import (
	"context"
	"time"
)

// AbilityReporter is an optional interface of stores that can do more than every store must. As[AbilityReporter] finds it. A
// store that is no AbilityReporter has none of the abilities, and refuses what needs one with ErrUnsupported.
type AbilityReporter interface {
	// Abilities returns what the store can do. For a store behind a network the answer may be some minutes old.
	Abilities(ctx context.Context) (Abilities, error)
}

// Abilities are what a store can do beside what every store must do.
type Abilities struct {
	// Follow says where the follow-ups of a settlement may go (Settlement.Then).
	Follow Reach
	// Emit: the store can tell of what happens to the messages of a topic (Settings.Emit).
	Emit bool
	// Duties tells that the server in front of the store does what package duty does, so that a Worker leaves it to the server.
	Duties bool
}

// Reach says which topics a store reaches in one atomic step with a message.
type Reach uint8

// How far a store reaches, from nowhere to everywhere.
const (
	// ReachNone: the store has no follow-ups.
	ReachNone Reach = iota
	// ReachFamily: a topic and its companions reach each other. The message may be in any of them, and so may the follow-up. In
	// a topic of several partitions a message reaches only IDs in its own partition. IDs with the same stem, which is the part
	// before the first "~" (storekit.Stem), always lie in one partition. A follow-up without an ID gets one within reach.
	ReachFamily
	// ReachAny: every topic and every ID.
	ReachAny
)

var reachNames = [...]string{"none", "family", "any"}

// String returns "none", "family" or "any".
func (r Reach) String() string { return name(reachNames[:], int(r)) }

// TopicNamer is an optional interface of stores that can name their topics without counting messages, unlike Inspector.Topics.
// As[TopicNamer] finds it. A process uses it to find certain topics again and again, such as the companions that need a duty.
type TopicNamer interface {
	// TopicNames returns the names of the topics that q selects, sorted. An empty result is an empty slice.
	TopicNames(ctx context.Context, q NameQuery) ([]string, error)
	// NewCompanions returns the names of the companions that have come into being since the call that returned mark. It waits for up
	// to wait, at most MaxAwait, until it is told of one. Such a notification may get lost, so NewCompanions reads the store also when
	// wait has passed. That costs the same whatever number of topics there is. With the empty mark it does not wait, and returns the
	// Mark alone: call TopicNames after that for what is there already.
	//
	// A result may have names that an earlier one had, and some of topics that are about to come into being. It may be empty before
	// wait has passed, such as when the groups of a topic were set (Settings.Groups).
	NewCompanions(ctx context.Context, mark string, wait time.Duration) (Companions, error)
}

// MaxAwait is how long TopicNamer.NewCompanions waits at most.
const MaxAwait = time.Second

// Companions is what TopicNamer.NewCompanions returns.
type Companions struct {
	// Names are the names of companions, sorted. An empty result is an empty slice.
	Names []string
	// Mark is for the next call.
	Mark string
}

// NameQuery selects topics by their names; the zero value selects all.
type NameQuery struct {
	// Prefix and Suffix are what the name begins and ends with: "orders@" selects the companions of orders, and "@cron" the
	// companions cron of all topics.
	Prefix, Suffix string
}
