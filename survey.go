package punctual

import (
	"context"
	"time"
)

// Surveyor is an optional interface of stores that read every message to count them. It answers all questions of a
// console in one such look. What must be known at once it tells without that look. As[Surveyor] finds it. Stores that
// keep counts do without.
type Surveyor interface {
	// Survey counts the messages of every topic as Inspector.Topics does. In the same look it counts what is due
	// between the edges. It reads all messages.
	Survey(ctx context.Context, q SurveyQuery) (Survey, error)
	// Heads tells of every topic what can be told without a count, sorted by name. How long it takes follows the
	// topics, not the messages.
	Heads(ctx context.Context) (Heads, error)
}

// Bounds of a SurveyQuery.
const (
	// MaxEdges is how many edges a survey may have.
	MaxEdges = 10_000
	// MaxLargest is how many topics a survey may count by themselves.
	MaxLargest = 100
)

// SurveyQuery says what a survey counts besides the topics.
type SurveyQuery struct {
	// Edges are at least two times, each later than the one before by 1 ms or more.
	Edges []time.Time
	// Largest is how many topics are counted by themselves: those with most live messages, then by name.
	Largest int
	// Without are topics that All and Largest leave out.
	Without []string
}

// Survey is what a store held at one instant.
type Survey struct {
	// At is the store's clock at that instant.
	At time.Time
	// Topics are as those of Inspector.Topics.
	Topics []TopicStats
	// All counts what is due in all topics together; its Topic is empty.
	All DueCounts
	// Largest counts the same in the largest topics that have live messages, most first.
	Largest []DueCounts
}

// DueCounts counts live messages by due time, between the edges of a survey.
type DueCounts struct {
	Topic string
	// Counts[i] are the scheduled messages due from Edges[i] until before Edges[i+1].
	Counts []int64
	// Overdue counts ready and leased messages, Beyond scheduled ones due at the last edge or later. Scheduled ones due
	// before the first edge count nowhere.
	Overdue, Beyond int64
}

// HeadReady is up to how many ready messages Heads counts in a topic.
const HeadReady = 1000

// Heads is what is known of topics without a count.
type Heads struct {
	// At is the store's clock at the look.
	At     time.Time
	Topics []TopicHead
}

// TopicHead is the head of a topic's messages in order of time.
type TopicHead struct {
	Topic    string
	Settings Settings
	// Ready is the number of ready messages, or HeadReady when there are as many or more.
	Ready int64
	// Due is when the message was due that is claimed next; zero when none is ready.
	Due time.Time
}
