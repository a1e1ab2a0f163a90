package punctual

import (
	"context"
	"slices"
	"time"

	"github.com/punctualmq/punctual/limits"
)

// Inspector is an optional interface of stores that can list and count their messages, and change
// the settings of topics. The command line and the console use it; As[Inspector] finds it. An
// answer is true of one instant of the store's clock, and may be out of date when it arrives. Where
// the documentation of a store says so, as that of redisstore does for topics of several
// partitions, an answer is put together from several instants. All methods are safe for concurrent
// use. They check their arguments in the order that Store describes: a closed or failed store comes
// first, then an ended context, then a malformed argument.
type Inspector interface {
	// Get returns one message in any state, or ErrNotFound.
	Get(ctx context.Context, topic, id string) (Info, error)
	// List returns one page of a topic's messages in order of time, the earliest first. The time is
	// the due time of scheduled and ready messages, the end of the lease of leased ones, and the
	// time of death of dead ones. Messages with equal times are listed in an order that the store
	// chooses and keeps from page to page. The list of a topic that does not exist is empty.
	List(ctx context.Context, q ListQuery) (Page, error)
	// Topics returns the statistics of every topic, sorted by name.
	Topics(ctx context.Context) ([]TopicStats, error)
	// Stats returns the statistics of one topic, or ErrNotFound.
	Stats(ctx context.Context, topic string) (TopicStats, error)
	// Forecast counts the scheduled messages due in each of q.Buckets steps of time, and in Overdue
	// the ready and leased ones. A topic that does not exist has none.
	Forecast(ctx context.Context, q ForecastQuery) (Forecast, error)

	// Settings returns a topic's settings; those of a topic that does not exist
	// are the defaults.
	Settings(ctx context.Context, topic string) (Settings, error)
	// Configure changes the settings whose fields are set in the patch, for every process that uses
	// the store, and returns all settings of the topic. It creates a topic that does not exist, and
	// with a companion the topic that the companion belongs to. Partitions, Groups and PushPaused
	// of a companion are ErrInvalid, and so is Emit except for a group
	// (storekit.CheckCompanionPatch).
	Configure(ctx context.Context, topic string, p SettingsPatch) (Settings, error)

	// Purge removes messages without delivering them and returns how many. It removes leased
	// messages too; their holders get ErrLeaseLost. In a topic that does not exist it removes 0. A
	// purge of many messages may take effect in several atomic steps. A purge of StateNone without
	// bounds removes all messages that are live when it begins, also those that become ready or
	// whose lease runs out meanwhile. The IDs of purged messages may be used again at once,
	// whatever Settings.DedupeWindow says.
	Purge(ctx context.Context, q PurgeQuery) (int64, error)
	// DeleteTopic removes a topic with its settings, all its messages in any state, its finished
	// records and the IDs that it remembers, and all that of its companions. It returns how many
	// messages it removed, those of companions included, or ErrNotFound. It is ErrInvalid for the
	// topic of a group that is set (Settings.Groups), whose messages would wait for ever without
	// it, and for a topic whose follow-ups for other topics still wait in its companion out
	// (storekit.ReachFamily); then nothing is removed. All IDs of the topic may be used again at
	// once. In a topic of several partitions DeleteTopic takes effect in one atomic step for each
	// partition, and for each companion.
	DeleteTopic(ctx context.Context, topic string) (int64, error)
}

// ListQuery asks for one page of a topic's messages.
type ListQuery struct {
	Topic string
	// State is required.
	State State
	// Reason selects the messages that are dead for this reason; empty selects all. It needs
	// StateDead. A store may stop when it has read about 10,000 messages for one page. So where few
	// of many messages are selected, a page may have fewer messages than Limit, even none, while
	// Page.Next says where the list continues.
	Reason DeathReason
	// From and To bound the time by which List orders: From is the first time included, To the
	// first one excluded. The zero Time sets no bound.
	From, To time.Time
	// Limit is the most messages of the page, 1 to 10000; 0 means 100. A page may have fewer
	// although the list goes on, for example because its messages are large; Page.Next tells.
	Limit int
	// After is the Page.Next of the page before; empty starts at the beginning.
	After string
	// Descending reverses the list: the latest time comes first, and messages of the same time are
	// in the reverse order, too. A page then continues towards the earlier ones.
	Descending bool
	// Bare leaves out the bodies (Message.Body is nil), because whoever chooses messages by time,
	// ID or header needs none. A page of messages with large bodies is answered sooner and in fewer
	// steps. The headers stay.
	Bare bool
}

// Page is a part of a list.
type Page struct {
	Messages []Info
	// Next is the ListQuery.After of the next page. It is empty when this page is the last one, and
	// may be set although this page is empty.
	Next string
}

// TopicStats counts the messages of a topic.
type TopicStats struct {
	Topic     string
	Scheduled int64
	Ready     int64
	Leased    int64
	Dead      int64
	// Waiting is how many of the ready messages wait for their keys (Info.Waiting).
	Waiting int64
	// NextDue is the earliest due time of the scheduled and ready messages; zero when there are
	// none. Messages that wait for their keys do not count. One with a key counts from its turn, so
	// that a wait for the key is no lateness.
	NextDue  time.Time
	Settings Settings
}

// Live is the number of messages that are not dead.
func (s TopicStats) Live() int64 { return s.Scheduled + s.Ready + s.Leased }

// ForecastQuery asks how many messages are due when.
type ForecastQuery struct {
	// Topic is the topic to count; empty counts all topics together.
	Topic string
	// From is the time at which the first bucket begins, rounded down to whole milliseconds. The
	// zero Time is the store's clock; a later time than that is ErrInvalid. With an earlier one the
	// buckets can begin with a whole hour or day.
	From time.Time
	// Step is the width of a bucket, at least 1 ms. It is rounded up to whole milliseconds.
	Step time.Duration
	// Buckets is their number, 1 to 10000.
	Buckets int
}

// Forecast counts scheduled messages by due time.
type Forecast struct {
	// From is the time at which the first bucket begins. Messages due between From and the store's
	// clock count in Overdue.
	From time.Time
	// Step is the width of a bucket, rounded up to whole milliseconds.
	Step time.Duration
	// Counts[i] is the number due in [From+i*Step, From+(i+1)*Step).
	Counts []int64
	// Overdue counts the ready and leased messages, Beyond the scheduled ones due after the last
	// bucket.
	Overdue, Beyond int64
}

// PurgeQuery says which messages of a topic to remove.
type PurgeQuery struct {
	Topic string
	// State is the state of the messages to remove; StateNone stands for all that are not dead.
	State State
	// From and To bound the time as in ListQuery.
	From, To time.Time
}

// Settings are the rules of a topic. They live in the store and apply to every process.
//
// A change applies as soon as the setting is used next. A claim and an extension use Lease, a claim
// and a retry use MaxAttempts, a retry uses Backoff, a push and a claim use the pauses.
// DeadRetention applies to all dead messages of the topic, also to those that died before the
// change. DedupeWindow and FinishedRetention are fixed, for each message, when it finishes, and
// EmitKeep, for each event, when it happens.
type Settings struct {
	// Lease is how long a claim may work before the message is ready again, unless the lease is
	// extended. Allowed: 10ms to 1d (limits.MinLease to limits.MaxLease). Default: 30s.
	Lease time.Duration
	// MaxAttempts is how many deliveries a message gets before it is dead. NewMessage.MaxAttempts
	// takes its place for one message. Allowed: 1 to 1000000 (limits.MaxAttemptsLimit). Default:
	// 10.
	MaxAttempts int
	// Backoff is how long a message that failed waits before its next attempt. Zero is no wait: the
	// message is ready at once. Allowed: delays like 2m,10m,1h or exp:1s..1h,jitter=0.2, each 0 to
	// 3650d. Default: exp:1s..1h,jitter=0.2.
	Backoff Backoff
	// DeadRetention is how long dead messages are kept. From that long after Info.Died on nobody
	// sees the message any more, whether or not the store has removed it already. Allowed: 0 (until
	// purged) or more. Default: 0s.
	DeadRetention time.Duration
	// DedupeWindow is how long the ID of a finished message (acked, cancelled, dropped) counts as a
	// duplicate. NewMessage.Remember takes its place for one message. Allowed: 0 (not at all) or
	// more. Default: 0s.
	DedupeWindow time.Duration
	// FinishedRetention is how long the record of a finished message (acked, cancelled, dropped) is
	// kept; see FinishedKeeper. Zero costs nothing. A store that keeps none refuses more than zero
	// with ErrUnsupported. Allowed: 0 (not at all) to 366d (limits.MaxFinishedRetention). Default:
	// 0s.
	FinishedRetention time.Duration
	// Emit has the store tell of what happens to the topic's messages. For each event it stores a
	// message in the topic's companion events, such as orders@events, in the same atomic step as
	// the change that the event tells of: exactly one for each. The message is due at once, and
	// event.Parse reads its body. Whoever reads events handles messages of that companion; as with
	// any message, one may be delivered more than once. The topic of a group (GroupTopic) tells in
	// the companion events of the group's topic; Event.Topic says which one it was. No other
	// companion tells of its messages: Emit is ErrInvalid there. A store that cannot tell
	// (Abilities.Emit) refuses any event with ErrUnsupported. Allowed: acked, dead, cancelled,
	// expired, pushed, retried, missed, skipped with commas between them, or none. Default: none.
	Emit Events
	// EmitKeep is how long an event is kept for a reader. An event that no reader has taken by then
	// is dropped, so that a topic whose events nobody reads does not grow without end. Allowed: 1s
	// to 366d (limits.MaxFinishedRetention). Default: 1d.
	EmitKeep time.Duration
	// PushPaused refuses pushes with ErrPaused. All else goes on, a requeue included.
	// Allowed: true or false. Default: false.
	PushPaused bool
	// DeliveryPaused lets claims find nothing. Claims that wait go on waiting, and the end of the
	// pause wakes them. Allowed: true or false. Default: false.
	DeliveryPaused bool
	// Partitions is into how many parts the topic is divided, which may lie on different servers;
	// order holds within a part (P12). The number is fixed once the topic exists, so that a later
	// change is ErrInvalid. A store that cannot divide topics refuses more than 1 with
	// ErrUnsupported. Allowed: 1 to 256 (limits.MaxPartitions). Default: 1.
	Partitions int
	// Groups are the names of groups, each of which gets a copy of every message of the topic once
	// it is due; see GroupTopic. The copies are made by a Worker that handles one of the groups
	// (worker.Worker.HandleGroup), by package duty and by the program "punctual serve". A group
	// that is added gets what falls due afterwards; one that is removed keeps the copies that it
	// has, in its topic. The names are unlike, and neither "none" nor "all", which people write for
	// no groups and for all. A companion topic has no groups, so that setting them there is
	// ErrInvalid. Configure makes the topics of the groups. Allowed: none, or 1 to 32 names of 1 to
	// 62 bytes of A-Z a-z 0-9 . _ - (limits.MaxGroups, limits.MaxGroupBytes). Default: none.
	Groups []string
	// LateAfter is how long a message of the topic may be ready before the console and "punctual
	// top" warn that the topic is late. From sixty times as long on they call it bad. No delivery
	// depends on LateAfter. Allowed: 1s to 366d (limits.MaxFinishedRetention). Default: 10s.
	LateAfter time.Duration
	// MaxLeases is how many messages of the topic may be leased at once, over all processes. A
	// claim that meets the bound leaves the rest ready. A message whose lease has run out counts
	// until it is claimed again, which needs no further place. A bound that is lowered ends no
	// lease. A store that cannot bound leases refuses more than 0 with ErrUnsupported. Allowed: 0
	// (no bound) to 1000000 (limits.MaxLeases). Default: 0.
	MaxLeases int
	// MaxRate is how many leases of the topic begin in a time, over all processes: see limits.Rate.
	// A claim that meets the rate leaves the rest ready. A lease counts also if the message is
	// given back, and so does the lease of a message whose lease has run out. A store that cannot
	// bound leases refuses any rate with ErrUnsupported. Allowed: none, or a rate like 10/1s or
	// 1000/1m,burst=5 (limits.MaxRateN, limits.MaxRatePer). Default: none.
	MaxRate limits.Rate
	// Keyed tells that the topic's messages may have keys (NewMessage.Key). The keys take turns: a
	// claim takes the messages of a key in order of time, and between keys the one whose turn came
	// first (Delivery.Turn). What waits for its key costs no claim anything. It is fixed once the
	// topic exists, so that a later change is ErrInvalid. A companion is Keyed if its topic is. A
	// store without keys (Abilities.Keys) refuses true with ErrUnsupported. Allowed: true or false.
	// Default: false.
	Keyed bool
	// MaxKeyLeases is how many messages of one key may be leased at once, as MaxLeases is for the
	// topic. It needs Keyed. Allowed: 0 (no bound) to 1000000 (limits.MaxLeases). Default: 0.
	MaxKeyLeases int
	// MaxKeyRate is how many leases of one key begin in a time, as MaxRate is for the topic. It
	// needs Keyed. Allowed: none, or a rate like 10/1s or 1000/1m,burst=5 (limits.MaxRateN,
	// limits.MaxRatePer). Default: none.
	MaxKeyRate limits.Rate
	// InOrder has the messages of a key delivered one after the other, in order of FirstDue and
	// then of their pushes. One that is retried or snoozed is not overtaken: its key waits for it.
	// One that has become dead, was cancelled or has expired lets the next one pass. It needs
	// Keyed, and bounds the leases of a key to one. Allowed: true or false. Default: false.
	InOrder bool
}

// Clone returns a copy of s that shares no memory with it.
func (s Settings) Clone() Settings {
	s.Backoff.Delays, s.Groups = slices.Clone(s.Backoff.Delays), slices.Clone(s.Groups)
	return s
}

// DefaultSettings returns the settings of a topic that was never configured.
func DefaultSettings() Settings {
	return Settings{Lease: 30 * time.Second, MaxAttempts: 10, Backoff: Backoff{Base: time.Second, Max: time.Hour, Jitter: 0.2}, EmitKeep: 24 * time.Hour, Partitions: 1, LateAfter: 10 * time.Second}
}

// SettingsPatch changes the settings whose field is not nil. A value that is not allowed is an
// ErrInvalid that names the setting, and then nothing is changed.
type SettingsPatch struct {
	// Lease changes Settings.Lease. Allowed: 10ms to 1d.
	Lease *time.Duration
	// MaxAttempts changes Settings.MaxAttempts. Allowed: 1 to 1000000.
	MaxAttempts *int
	// Backoff changes Settings.Backoff as a whole: Delays, or Base, Max and Jitter.
	// Allowed: delays like 2m,10m,1h or exp:1s..1h,jitter=0.2, each 0 to 3650d.
	Backoff *Backoff
	// DeadRetention changes Settings.DeadRetention. Allowed: 0 (until purged) or more.
	DeadRetention *time.Duration
	// DedupeWindow changes Settings.DedupeWindow. Allowed: 0 (not at all) or more.
	DedupeWindow *time.Duration
	// FinishedRetention changes Settings.FinishedRetention. Allowed: 0 (not at all) to 366d.
	FinishedRetention *time.Duration
	// Emit changes Settings.Emit. Allowed: acked, dead, cancelled, expired, pushed, retried,
	// missed, skipped with commas between them, or none.
	Emit *Events
	// EmitKeep changes Settings.EmitKeep. Allowed: 1s to 366d.
	EmitKeep *time.Duration
	// PushPaused changes Settings.PushPaused. Allowed: true or false.
	PushPaused *bool
	// DeliveryPaused changes Settings.DeliveryPaused. Allowed: true or false.
	DeliveryPaused *bool
	// Partitions is Settings.Partitions of a topic that this change makes. Allowed: 1 to 256.
	Partitions *int
	// Groups changes Settings.Groups as a whole. Allowed: none, or 1 to 32 names of 1 to 62 bytes
	// of A-Z a-z 0-9 . _ -.
	Groups *[]string
	// LateAfter changes Settings.LateAfter. Allowed: 1s to 366d.
	LateAfter *time.Duration
	// MaxLeases changes Settings.MaxLeases. Allowed: 0 (no bound) to 1000000.
	MaxLeases *int
	// MaxRate changes Settings.MaxRate. Allowed: none, or a rate like 10/1s or 1000/1m,burst=5.
	MaxRate *limits.Rate
	// Keyed changes Settings.Keyed. Allowed: true or false.
	Keyed *bool
	// MaxKeyLeases changes Settings.MaxKeyLeases. Allowed: 0 (no bound) to 1000000.
	MaxKeyLeases *int
	// MaxKeyRate changes Settings.MaxKeyRate.
	// Allowed: none, or a rate like 10/1s or 1000/1m,burst=5.
	MaxKeyRate *limits.Rate
	// InOrder changes Settings.InOrder. Allowed: true or false.
	InOrder *bool
	// If makes the change only while the settings that are given there have these values; otherwise
	// it is ErrChanged, and nothing is changed. So a program that has read settings undoes no
	// change that somebody has made since. A topic that does not exist has the defaults. The If of
	// an If does not count.
	If *SettingsPatch
}

// Backoff says how long a failed message waits before its next attempt: an explicit list of delays,
// or delays that double, with jitter. The delays are 0 to 3650 days. For example, Backoff{Base:
// time.Second, Max: time.Minute} waits 1 s, 2 s, 4 s, … 32 s, and from the seventh failed attempt
// on 1 min.
type Backoff struct {
	// Delays, if not empty, is the explicit list: Delays[0] is the delay after the first failed
	// attempt, Delays[1] after the second, and the last one after every further one. The other
	// fields then have no effect.
	Delays []time.Duration
	// Base is the delay after the first failed attempt. The delay doubles with each further failed
	// attempt, up to Max.
	Base time.Duration
	// Max is the longest delay before jitter is added; at least Base.
	Max time.Duration
	// Jitter, 0 to 1, lengthens each delay by a random time of up to Jitter times the delay, so
	// that messages which failed together are not all due again together.
	Jitter float64
}

// RetryDelays returns a change for Queue.Configure with which a failed message is delivered again
// after each of the delays in turn, and becomes dead when the attempt after the last delay has
// failed, too. It sets Backoff.Delays, and MaxAttempts to the number of delays plus one.
func RetryDelays(delays ...time.Duration) func(s *Settings) {
	return func(s *Settings) { s.Backoff.Delays, s.MaxAttempts = delays, len(delays)+1 }
}
