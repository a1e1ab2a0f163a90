package punctual

import (
	"context"
	"time"
)

// Surveyor is an optional interface of stores that have to read every message in order to count them, such as pgstore. With
// Survey a console gets all its counts from one reading; with NextDue it gets quickly what needs no count. As[Surveyor] finds
// it. A store that keeps counts does not need it, because its Inspector is quick.
type Surveyor interface {
	// Survey reads all messages once. It counts the messages of every topic, as Inspector.Topics does, and the messages due
	// between the edges of q.
	Survey(ctx context.Context, q SurveyQuery) (Survey, error)
	// NextDue returns for every topic, sorted by name, what the store knows without counting its messages: its settings, its
	// ready messages up to MaxReadyCount, and the due time of the one to be claimed next. The time that it takes grows with the
	// number of topics, not of messages.
	NextDue(ctx context.Context) (NextDueTimes, error)
}

// Bounds of a SurveyQuery.
const (
	// MaxEdges is the most edges that a survey may have.
	MaxEdges = 10_000
	// MaxLargest is the most topics that a survey may count one by one.
	MaxLargest = 100
)

// SurveyQuery says what a survey counts besides the topics.
type SurveyQuery struct {
	// Edges are the borders of the intervals of time in which messages are counted: 2 to MaxEdges times, each at least 1 ms
	// later than the one before.
	Edges []time.Time
	// Largest is the number of topics that are also counted one by one, 0 to MaxLargest: the topics with the most live
	// messages, those with equally many in order of their names.
	Largest int
	// Without names topics whose messages are counted neither in Survey.All nor in Survey.Largest.
	Without []string
}

// Survey has the counts of a store at one instant.
type Survey struct {
	// At is the store's clock at that instant.
	At time.Time
	// Topics are the statistics of every topic, as Inspector.Topics returns them.
	Topics []TopicStats
	// All has the counts of all topics together; its Topic is empty.
	All DueCounts
	// Largest has the counts of the largest topics that have live messages, the largest topic first.
	Largest []DueCounts
}

// DueCounts counts live messages by due time, between the edges of a survey.
type DueCounts struct {
	Topic string
	// Counts[i] is the number of scheduled messages due at Edges[i] or later, and before Edges[i+1].
	Counts []int64
	// Overdue counts the ready and leased messages, Beyond the scheduled ones due at the last edge or later. Scheduled
	// messages due before the first edge are not counted.
	Overdue, Beyond int64
}

// MaxReadyCount is the number up to which Surveyor.NextDue counts the ready messages of a topic.
const MaxReadyCount = 1000

// NextDueTimes has the next due time of every topic, and what else a store knows of its topics without counting their
// messages.
type NextDueTimes struct {
	// At is the store's clock when the store read it.
	At     time.Time
	Topics []TopicNextDue
}

// TopicNextDue has the next due time of one topic, and what else a store knows of the topic without counting its messages.
type TopicNextDue struct {
	Topic    string
	Settings Settings
	// Ready is the number of ready messages, or MaxReadyCount when there are as many or more.
	Ready int64
	// Due is the due time of the ready message that is claimed next; zero when none is ready.
	Due time.Time
}
