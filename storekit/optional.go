package storekit

import (
	"context"
	"io"
	"time"

	"github.com/punctualmq/punctual"
)

// What a store may be beside a punctual.Store. punctual.As finds each of these interfaces, also
// below a wrapper.

// AbilityReporter is an optional interface of stores that can do more than every store must.
// As[AbilityReporter] finds it. A store that is no AbilityReporter has none of the abilities, and
// refuses what needs one with ErrUnsupported.
type AbilityReporter interface {
	// Abilities returns what the store can do. For a store behind a network the answer may be some
	// minutes old.
	Abilities(ctx context.Context) (Abilities, error)
}

// Abilities are what a store can do beside what every store must do.
type Abilities struct {
	// Follow says where the follow-ups of a settlement may go (Settlement.Then).
	Follow Reach
	// Emit: the store can tell of what happens to the messages of a topic (Settings.Emit).
	Emit bool
	// BoundsLeases: the store can bound how many messages of a topic are leased, at once and in a
	// time (Settings.MaxLeases, Settings.MaxRate).
	BoundsLeases bool
	// Keys: messages may have keys (NewMessage.Key, Settings.Keyed).
	Keys bool
	// Duties tells that the server in front of the store does what package duty does, so that a
	// Worker leaves it to the server.
	Duties bool
}

// Reach says which topics a store reaches in one atomic step with a message.
type Reach uint8

// How far a store reaches, from nowhere to everywhere.
const (
	// ReachNone: the store has no follow-ups.
	ReachNone Reach = iota
	// ReachFamily: a topic and its companions reach each other. The message may be in any of them,
	// and so may the follow-up. In a topic of several partitions a message reaches only IDs in its
	// own partition. IDs with the same stem, which is the part before the first "~"
	// (storekit.Stem), always lie in one partition. A follow-up without an ID gets one within
	// reach.
	ReachFamily
	// ReachAny: every topic and every ID.
	ReachAny
)

var reachNames = [...]string{"none", "family", "any"}

// String returns "none", "family" or "any".
func (r Reach) String() string { return Word(reachNames[:], int(r)) }

// TopicNamer is an optional interface of stores that can name their topics without counting
// messages, unlike Inspector.Topics. As[TopicNamer] finds it. A process uses it to find certain
// topics again and again, such as the companions that need a duty.
type TopicNamer interface {
	// TopicNames returns the names of the topics that q selects, sorted. An empty result is an
	// empty slice.
	TopicNames(ctx context.Context, q NameQuery) ([]string, error)
	// NewCompanions returns the names of the companions that have come into being since the call
	// that returned mark. It waits for up to wait, at most MaxAwait, until it is told of one. Such
	// a notification may get lost, so NewCompanions reads the store also when wait has passed. That
	// costs the same whatever number of topics there is. With the empty mark it does not wait, and
	// returns the Mark alone: call TopicNames after that for what is there already.
	//
	// A result may have names that an earlier one had, and some of topics that are about to come
	// into being. It may be empty before wait has passed, such as when the groups of a topic were
	// set (Settings.Groups).
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
	// Prefix and Suffix are what the name begins and ends with: "orders@" selects the companions of
	// orders, and "@cron" the companions cron of all topics.
	Prefix, Suffix string
}

// Surveyor is an optional interface of stores that have to read every message in order to count
// them, such as pgstore. With Survey a console gets all its counts from one reading; with NextDue
// it gets quickly what needs no count. As[Surveyor] finds it. A store that keeps counts does not
// need it, because its Inspector is quick.
type Surveyor interface {
	// Survey reads all messages once. It counts the messages of every topic, as Inspector.Topics
	// does, and the messages due between the edges of q.
	Survey(ctx context.Context, q SurveyQuery) (Survey, error)
	// NextDue returns for every topic, sorted by name, what the store knows without counting its
	// messages: its settings, its ready messages up to MaxReadyCount, and the due time of the one
	// to be claimed next. The time that it takes grows with the number of topics, not of messages.
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
	// Edges are the borders of the intervals of time in which messages are counted: 2 to MaxEdges
	// times, each at least 1 ms later than the one before.
	Edges []time.Time
	// Largest is the number of topics that are also counted one by one, 0 to MaxLargest: the topics
	// with the most live messages, those with equally many in order of their names.
	Largest int
	// Without names topics whose messages are counted neither in Survey.All nor in Survey.Largest.
	Without []string
}

// Survey has the counts of a store at one instant.
type Survey struct {
	// At is the store's clock at that instant.
	At time.Time
	// Topics are the statistics of every topic, as Inspector.Topics returns them.
	Topics []punctual.TopicStats
	// All has the counts of all topics together; its Topic is empty.
	All DueCounts
	// Largest has the counts of the largest topics that have live messages, the largest topic
	// first.
	Largest []DueCounts
}

// DueCounts counts live messages by due time, between the edges of a survey.
type DueCounts struct {
	Topic string
	// Counts[i] is the number of scheduled messages due at Edges[i] or later, and before
	// Edges[i+1].
	Counts []int64
	// Overdue counts the ready and leased messages, Beyond the scheduled ones due at the last edge
	// or later. Scheduled messages due before the first edge are not counted.
	Overdue, Beyond int64
}

// MaxReadyCount is the number up to which Surveyor.NextDue counts the ready messages of a topic.
const MaxReadyCount = 1000

// NextDueTimes has the next due time of every topic, and what else a store knows of its topics
// without counting their messages.
type NextDueTimes struct {
	// At is the store's clock when the store read it.
	At     time.Time
	Topics []TopicNextDue
}

// TopicNextDue has the next due time of one topic, and what else a store knows of the topic without
// counting its messages.
type TopicNextDue struct {
	Topic    string
	Settings punctual.Settings
	// Ready is the number of ready messages, or MaxReadyCount when there are as many or more.
	Ready int64
	// Due is the due time of the ready message that is claimed next; zero when none is ready.
	Due time.Time
}

// ConsumerReporter is an optional interface of stores that know who claims messages and who holds
// their leases: of those whose calls go through a server, such as remotestore, because the server
// sees all calls. As[ConsumerReporter] finds it. Other stores do not know, because a lease does not
// say who holds it. A server.Server has the method, too.
type ConsumerReporter interface {
	// Consumers returns the consumers of a topic, and none for a topic that nobody consumes. A
	// store behind a server that cannot tell returns ErrUnsupported.
	Consumers(ctx context.Context, topic string) (Consumers, error)
}

// Consumers are the consumers of one topic, as one process has seen them since it was started.
type Consumers struct {
	// All has the consumers one by one, the one that holds the most leases first.
	All []Consumer
	// Others has the sums of the consumers for which there is no room in All. It is zero when there
	// are none.
	Others Consumer
	// Since is when the process began to count, by its own clock.
	Since time.Time
}

// Consumer is one client that claims messages of a topic. All calls of the same user, from the same
// address and under the same name, count as one consumer. Times are by the clock of the process
// that counts.
type Consumer struct {
	// User is the name of the token or certificate of the calls, Address where they come from,
	// without the port, and Name what the consumer calls itself. Each may be empty.
	User, Address, Name string
	// Waiting is the number of the consumer's claims that are under way.
	Waiting int
	// Leases is the number of messages that the consumer holds now, as far as the process sees: a
	// lease that was ended by others, for instance by a purge, counts until it would have run out.
	Leases int
	// NextEnd is when the first of those leases ends; zero when there is none.
	NextEnd time.Time
	// Claimed and Settled count the messages that the consumer claimed and settled in the last five
	// minutes, the present minute included. A release does not count as settled, and neither does a
	// lease that ran out.
	Claimed, Settled int64
	// LastSeen is when the consumer last began or ended a claim, or settled or extended a lease.
	LastSeen time.Time
}

// First returns c with only the first n consumers in All; the rest is added to Others.
func (c Consumers) First(n int) Consumers {
	if n >= len(c.All) {
		return c
	}
	for _, one := range c.All[n:] {
		c.Others.Waiting += one.Waiting
		c.Others.Leases += one.Leases
		c.Others.Claimed += one.Claimed
		c.Others.Settled += one.Settled
		if !one.NextEnd.IsZero() && (c.Others.NextEnd.IsZero() || one.NextEnd.Before(c.Others.NextEnd)) {
			c.Others.NextEnd = one.NextEnd
		}
		if one.LastSeen.After(c.Others.LastSeen) {
			c.Others.LastSeen = one.LastSeen
		}
	}
	c.All = c.All[:n]
	return c
}

// Checker is an optional interface of stores that can scan themselves for damage. As[Checker] finds
// it.
type Checker interface {
	// Check reads everything that is stored, and returns how much it counted and what is damaged.
	// It calls progress, if not nil, from time to time with the number of messages read so far. The
	// error says that the scan could not be finished.
	Check(ctx context.Context, progress func(read int64)) (CheckReport, error)
}

// CheckReport is the result of a full scan.
type CheckReport struct {
	Topics, Live, Dead int64
	// Problems has a sentence for each damage, at most 100. It is empty for a sound store.
	Problems []string
}

// Examiner is an optional interface of stores that can examine the disk or server below them:
// whether it can keep the store's promises, and what to change when it cannot. "punctual doctor"
// prints the findings. As[Examiner] finds it. Packages diskstore, redisstore and pgstore also have
// a function Examine, for a store that refuses to open.
type Examiner interface {
	// Examine examines the disk or server below the store and leaves it as it was; on a disk it may
	// write and remove one small file. It returns the findings in an order for people to read. An
	// error says that the examination could not be finished; the findings made until then come with
	// it.
	Examine(ctx context.Context) ([]Finding, error)
}

// Finding is the result of examining one thing, such as a setting of a server.
type Finding struct {
	// Name names what was examined, in lower case: "eviction policy".
	Name string
	// Value is what was found: "allkeys-lru".
	Value string
	// Severity says what the value means for the promises of the store.
	Severity Severity
	// Remedy says why the value matters and what to do. It is empty for SeverityGood.
	Remedy string
}

// Severity says what a finding means for the promises of a store.
type Severity uint8

// The severities of a finding.
const (
	// SeverityGood: the value is as it should be.
	SeverityGood Severity = iota + 1
	// SeverityWarning: the store works, but not as well as it could, or not for much longer.
	SeverityWarning
	// SeverityBad: a promise does not hold. The store refuses to open, or should not be used.
	SeverityBad
)

var severityNames = [...]string{"", "good", "warning", "bad"}

// String returns "good", "warning" or "bad".
func (s Severity) String() string { return Word(severityNames[:], int(s)) }

// Backuper is an optional interface of stores that can be copied while they run: the embedded
// store, and its clients. As[Backuper] finds it.
//
// A copy has the store as it was at one instant after the call began. So it has every message whose
// push was reported before the call, and no message whose ack, cancel or purge was reported before
// the call. Opened as a store, the copy behaves as the original would after kill -9 at that
// instant. It does not know what happened afterwards, so it delivers a message again that was acked
// after that instant. One copy is made at a time; a second call is refused with ErrOverloaded.
type Backuper interface {
	// Backup writes the copy into a directory that does not exist or is empty. When it returns nil,
	// everything in the directory has been synced to disk. After an error the directory is as it
	// was before. Backup calls progress, if not nil, from time to time with the bytes written so
	// far and the bytes that the copy will have.
	Backup(ctx context.Context, dir string, progress func(written, total int64)) error
	// Archive writes the copy to w as a tar archive of the files that Backup writes. It calls size,
	// if not nil, once, before the first byte, with the size of the archive in bytes. After an
	// error the bytes written so far are of no use.
	Archive(ctx context.Context, w io.Writer, size func(total int64)) error
}

// DurabilityReporter is an optional interface of stores that know their class of durability.
// As[DurabilityReporter] finds it.
type DurabilityReporter interface {
	// Durability returns the class, or "" when it is not known.
	Durability() punctual.Durability
}

// SpaceReporter is an optional interface of stores that know how much room their medium has.
// As[SpaceReporter] finds it.
type SpaceReporter interface {
	// Space returns how much room there is now, or ErrUnsupported when the medium does not tell.
	Space(ctx context.Context) (Space, error)
}

// Space is the room of a store's medium, in bytes.
type Space struct {
	// Free is how much may still be written, Total the size of the medium.
	Free, Total int64
	// Reserve is the part that is kept for acks and cancels: while less than it is free, pushes
	// fail with ErrNoSpace.
	Reserve int64
}

// ClockKeeper is an optional interface of stores whose clock follows another one: the clock of the
// machine, or of a server. As[ClockKeeper] finds it.
//
// A store's clock does not run backwards, so it is ahead of the other clock after that one was set
// back. When it has been ahead by more than 2 s for 5 s on end, the store steps its clock back to
// the other one (P8). The step cuts leases to their length and keeps what is left of delays; see
// package storekit/lifecycle.
type ClockKeeper interface {
	// Clock returns how the store's clock stands to the clock that it follows.
	Clock(ctx context.Context) (ClockState, error)
	// StepClock steps the store's clock back at once if it is ahead at all, without the 5 s, and
	// returns what Clock returns then.
	StepClock(ctx context.Context) (ClockState, error)
}

// ClockState is how a store's clock stands to the clock that it follows.
type ClockState struct {
	// Now is the store's clock.
	Now time.Time
	// Follows names whose clock the store's clock follows, such as "machine" or "Redis server".
	Follows string
	// Ahead is by how much the store's clock is ahead of the one that it follows; 0 when it agrees.
	// A store behind a network may say 0 for less than 2 s.
	Ahead time.Duration
	// Steps is how often the store's clock has stepped back since the store was made, or since it
	// was opened if it is kept in memory.
	Steps int64
	// Last is the last step; zero when there was none.
	Last ClockStep
}

// ClockStep is a step of a store's clock back, from From to To. The step happened at To.
type ClockStep struct{ From, To time.Time }

// Word returns the word of the i-th value of an enumeration, or "invalid" when there is none.
func Word(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "invalid"
}
