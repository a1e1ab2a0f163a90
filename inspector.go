package punctual

import (
	"context"
	"time"
)

// Inspector is what people and consoles use to look into a store and to steer its
// topics. It is optional: find it by type assertion (AsInspector). Answers are
// as of one instant of the store's clock but may be overtaken when they arrive.
// All methods are safe for concurrent use.
type Inspector interface {
	// Get returns one message, or ErrNotFound.
	Get(ctx context.Context, topic, id string) (Info, error)
	// List returns one page of a topic's messages, in order of time: due time for
	// scheduled and ready ones, end of lease for leased ones, time of death for dead ones.
	List(ctx context.Context, q ListQuery) (Page, error)
	// Topics returns the statistics of every topic, sorted by name.
	Topics(ctx context.Context) ([]TopicStats, error)
	// Stats returns the statistics of one topic, or ErrNotFound.
	Stats(ctx context.Context, topic string) (TopicStats, error)
	// Forecast counts the messages due in each of q.Buckets steps ahead. Ready and
	// leased messages count in Overdue.
	Forecast(ctx context.Context, q ForecastQuery) (Forecast, error)

	// Settings returns a topic's settings; those of a topic that does not exist
	// are the defaults.
	Settings(ctx context.Context, topic string) (Settings, error)
	// Configure changes the settings that are set in the patch, for every process
	// that uses the store, and returns all of them. It creates the topic if need be.
	Configure(ctx context.Context, topic string, p SettingsPatch) (Settings, error)

	// Purge removes messages without delivering them and returns how many.
	// Leased messages are purged too; their holders learn it from ErrLeaseLost.
	// A purge of many messages may take effect in several atomic steps.
	Purge(ctx context.Context, q PurgeQuery) (int64, error)
	// DeleteTopic removes a topic with its settings and all its messages, leased and
	// dead ones included, and what it remembers; it returns how many messages went.
	// ErrNotFound when there is no such topic. In a topic of several partitions it takes
	// effect in one atomic step for each.
	DeleteTopic(ctx context.Context, topic string) (int64, error)
}

// AsInspector returns the Inspector of a store, or ErrUnsupported.
func AsInspector(s Store) (Inspector, error) {
	if i, ok := s.(Inspector); ok {
		return i, nil
	}
	return nil, errorf(ErrUnsupported, "this store cannot be inspected")
}

// ListQuery asks for one page of a topic's messages.
type ListQuery struct {
	Topic string
	// State is required.
	State State
	// From and To bound the time by which List orders: From included, To not.
	// Zero is no bound.
	From, To time.Time
	// Limit is the size of the page, 1 to 10000; 0 means 100.
	Limit int
	// After continues behind a former Page.Next; empty starts at the beginning.
	After string
}

// Page is a part of a list.
type Page struct {
	Messages []Info
	// Next, if not empty, is the ListQuery.After that continues the list.
	Next string
}

// TopicStats counts the messages of a topic.
type TopicStats struct {
	Topic     string
	Scheduled int64
	Ready     int64
	Leased    int64
	Dead      int64
	// NextDue is the earliest due time among scheduled and ready messages; zero
	// when there is none.
	NextDue  time.Time
	Settings Settings
}

// Live is the number of messages that are not dead.
func (s TopicStats) Live() int64 { return s.Scheduled + s.Ready + s.Leased }

// ForecastQuery asks how many messages are due when.
type ForecastQuery struct {
	// Topic, or empty for all topics.
	Topic string
	// Step is the width of a bucket, at least 1 ms.
	Step time.Duration
	// Buckets is their number, 1 to 10000.
	Buckets int
}

// Forecast counts scheduled messages by due time.
type Forecast struct {
	// From is the store's clock, where the first bucket begins.
	From time.Time
	// Step is the width of a bucket.
	Step time.Duration
	// Counts[i] is the number due in [From+i*Step, From+(i+1)*Step).
	Counts []int64
	// Overdue counts ready and leased messages, Beyond those due after the last bucket.
	Overdue, Beyond int64
}

// PurgeQuery says what to remove.
type PurgeQuery struct {
	Topic string
	// State to purge: StateScheduled, StateReady, StateLeased or StateDead;
	// StateNone purges all but the dead.
	State State
	// From and To bound the time as in ListQuery.
	From, To time.Time
}

// Checker is an optional interface of stores that can scan themselves for damage.
type Checker interface {
	// Check reads everything and returns what it counted and what is wrong. progress,
	// if not nil, is called from time to time with the number of messages read. The
	// error is for a scan that could not be finished.
	Check(ctx context.Context, progress func(read int64)) (CheckReport, error)
}

// CheckReport is the result of a full scan.
type CheckReport struct {
	Topics, Live, Dead int64
	// Problems is empty for a sound store; one sentence each, at most 100.
	Problems []string
}

// Settings are a topic's rules. They live in the store and apply to every process.
type Settings struct {
	// Lease is how long a claim may work before the message is ready again, unless
	// extended. Default 30 s.
	Lease time.Duration
	// MaxAttempts is how many deliveries a message gets before it is dead. Default 10.
	MaxAttempts int
	// Backoff is the delay before a retry. Default DefaultBackoff.
	Backoff Backoff
	// DeadRetention is how long dead messages are kept. Default 0: until purged.
	DeadRetention time.Duration
	// Remember is how long the IDs of finished messages (acked, cancelled, dropped) are
	// taken as duplicates. Default 0: not at all.
	Remember time.Duration
	// PausedIn refuses pushes with ErrPaused; PausedOut lets claims find nothing.
	PausedIn, PausedOut bool
	// Partitions is into how many parts the topic is divided, which may lie on different
	// servers; order holds within a part (P12). It can grow and never shrink. Default 1, at most
	// MaxPartitions. Stores that cannot divide topics refuse more than 1 with ErrUnsupported.
	Partitions int
}

// DefaultSettings returns the settings of a topic that was never configured.
func DefaultSettings() Settings {
	return Settings{Lease: 30 * time.Second, MaxAttempts: 10, Backoff: DefaultBackoff(), Partitions: 1}
}

// SettingsPatch changes the settings whose field is not nil.
type SettingsPatch struct {
	Lease         *time.Duration
	MaxAttempts   *int
	Backoff       *Backoff
	DeadRetention *time.Duration
	Remember      *time.Duration
	PausedIn      *bool
	PausedOut     *bool
	Partitions    *int
}

// Apply returns s with the patch applied, or an ErrInvalid that names the field.
func (p SettingsPatch) Apply(s Settings) (Settings, error) {
	if p.Partitions != nil && *p.Partitions < s.Partitions {
		return s, invalidf("%d partitions: the topic has %d, and their number can only grow", *p.Partitions, s.Partitions)
	}
	set(&s.Lease, p.Lease)
	set(&s.MaxAttempts, p.MaxAttempts)
	set(&s.Backoff, p.Backoff)
	set(&s.DeadRetention, p.DeadRetention)
	set(&s.Remember, p.Remember)
	set(&s.PausedIn, p.PausedIn)
	set(&s.PausedOut, p.PausedOut)
	set(&s.Partitions, p.Partitions)
	return s, s.check()
}

func set[T any](dst, src *T) {
	if src != nil {
		*dst = *src
	}
}

func (s Settings) check() error {
	switch {
	case s.Lease < MinLease || s.Lease > MaxLease:
		return invalidf("lease %v: use %v to %v", s.Lease, MinLease, MaxLease)
	case s.MaxAttempts < 1 || s.MaxAttempts > MaxAttemptsLimit:
		return invalidf("max attempts %d: use 1 to %d", s.MaxAttempts, MaxAttemptsLimit)
	case s.DeadRetention < 0:
		return invalidf("dead retention %v: use a positive duration, or 0 to keep dead messages until purged", s.DeadRetention)
	case s.Remember < 0:
		return invalidf("remember %v: use a positive duration, or 0 to forget finished IDs at once", s.Remember)
	case s.Partitions < 1 || s.Partitions > MaxPartitions:
		return invalidf("%d partitions: use 1 to %d", s.Partitions, MaxPartitions)
	}
	return s.Backoff.check()
}

// CheckUndivided returns an ErrUnsupported unless the topic has a single partition. It is for
// stores that cannot divide topics.
func (s Settings) CheckUndivided() error {
	if s.Partitions > 1 {
		return errorf(ErrUnsupported, "%d partitions: this store keeps each topic in one", s.Partitions)
	}
	return nil
}
