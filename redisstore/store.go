package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/redisstore/internal/clock"
	"github.com/punctualmq/punctual/redisstore/internal/health"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/redisstore/internal/topics"
	"github.com/punctualmq/punctual/storekit"
	"github.com/redis/go-redis/v9"
)

// Options configure a Store. The zero value is good for use.
type Options struct {
	// Prefix stands in front of all keys and channels. Default "punctual:". Stores with
	// different prefixes know nothing of each other. A prefix has at most 128 bytes, and
	// neither { nor }.
	Prefix string
	// MaxBody is the largest body accepted, in bytes; a push of more is ErrTooLarge. 0 or less
	// means limits.DefaultMaxBody, 1 MiB.
	MaxBody int
	// Durability, if not empty, is the class that the server must give: Open returns
	// ErrDurability, naming the setting, when it cannot. Empty takes the server as it is.
	//
	// The server is checked every 30 s while the store is open. While it does not give the class,
	// pushes are refused with ErrDurability; all else goes on.
	Durability punctual.Durability
	// Replicas is how many replicas have to have synced a change, other than a claim or a
	// settlement, to their disks before the call returns, with Durability punctual.Replicated.
	// Default 1. A failover surely loses no such change only if Replicas is the number of all
	// replicas that may become the primary.
	Replicas int
	// ReplicaTimeout is how long such a change waits for the replicas. After that the call returns
	// ErrIndeterminate: the change is stored, but less durably than was asked for. Default 2 s;
	// never more than three quarters of the client's ReadTimeout, which would end the waiting
	// otherwise.
	ReplicaTimeout time.Duration
	// Logger gets what the store notices by itself, such as a server whose settings have
	// become dangerous. Default slog.Default().
	Logger *slog.Logger
	// OwnClient lets Close close the client, too.
	OwnClient bool
	// Partitions is into how many parts a topic is divided that comes into being through this
	// store, unless its first settings say otherwise. Default 1, at most limits.MaxPartitions. A
	// companion gets as many partitions as its topic.
	Partitions int
	// MustExist makes Open return ErrNotFound, and write nothing, where there is no store with
	// this Prefix.
	MustExist bool

	// clock, for tests, takes the place of the server's.
	clock storekit.Clock
	// checkEvery, for tests, takes the place of the 30 s between two checks of the server, and of
	// the time between two sweeps of events.
	checkEvery time.Duration
	// general, for tests, reports for each call whether its script must not take its fast path. Nil
	// lets all scripts take theirs.
	general func() bool
	// slack, for tests of many servers on one machine, is how long a node may take beyond
	// wait.LateAfter.
	slack time.Duration
}

// Store keeps messages in Redis. It implements punctual.Store, punctual.Inspector,
// storekit.Checker, storekit.Examiner, punctual.FinishedKeeper, storekit.AbilityReporter,
// storekit.TopicNamer, storekit.Repeater, storekit.Reacher and storekit.DurabilityReporter and
// storekit.ClockKeeper, and is safe for concurrent use. Make one with Open, and close it with
// Close.
type Store struct {
	client  redis.UniversalClient
	names   keys.Names
	opt     Options
	clock   *clock.Clock
	waits   waits
	route   *route.Router
	health  *health.Health
	sender  string // names this store in what it publishes, and in the records of its calls
	keyed   keyedClaims
	topics  *topics.Registry
	leases  leases
	scanner scanner

	closing chan struct{}  // closed when Close begins
	calls   storekit.Calls // the methods under way; whether the store is closed or has failed
	duties  sync.WaitGroup // the sweeps of events, and the lookups of topics that waits.renewSoon begins
}

var (
	_ punctual.Store              = (*Store)(nil)
	_ punctual.Inspector          = (*Store)(nil)
	_ storekit.Checker            = (*Store)(nil)
	_ storekit.Examiner           = (*Store)(nil)
	_ punctual.FinishedKeeper     = (*Store)(nil)
	_ storekit.DurabilityReporter = (*Store)(nil)
	_ storekit.AbilityReporter    = (*Store)(nil)
	_ storekit.TopicNamer         = (*Store)(nil)
	_ storekit.ClockKeeper        = (*Store)(nil)
	_ storekit.Repeater           = (*Store)(nil)
	_ storekit.Reacher            = (*Store)(nil)
)

// Open connects a store to a server. First it checks that the server can keep what it is given
// (Redis 6.2 or newer, no eviction; see Options.Durability). The client stays the caller's. A
// client for Redis Cluster, for Sentinel or for a single server will do. A redis.Ring will not,
// because it loses keys when its members change. Nor will a client of another kind than its server,
// such as one for a single server at a node of a cluster. Nor will a client that waits for an
// answer, or to send, for more than 10 s or without end (ReadTimeout, WriteTimeout), because a
// server that hangs would hold up every call for as long.
func Open(ctx context.Context, client redis.UniversalClient, o *Options) (*Store, error) {
	s, err := newStore(client, o)
	if err != nil {
		return nil, fmt.Errorf("open redis store: %w", err)
	}
	if err := s.health.Open(ctx); err != nil {
		return nil, fmt.Errorf("open redis store: %w", err)
	}
	s.health.Start()
	s.duties.Go(func() { storekit.SweepEventsUntil(s.closing, s.opt.checkEvery, s, s.opt.Logger) })
	return s, nil
}

func newStore(client redis.UniversalClient, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	n, err := keys.New(o.Prefix)
	if err != nil {
		return nil, err
	}
	if _, ring := client.(*redis.Ring); ring {
		return nil, fmt.Errorf("a redis.Ring loses keys when its members change: use a cluster client: %w", punctual.ErrUnsupported)
	}
	if err := checkTimeouts(client); err != nil {
		return nil, err
	}
	s := &Store{client: client, names: n, opt: *o, sender: rand.Text(), closing: make(chan struct{})}
	if s.opt.MaxBody <= 0 {
		s.opt.MaxBody = limits.DefaultMaxBody
	}
	if s.opt.Partitions == 0 {
		s.opt.Partitions = 1
	}
	if s.opt.Partitions < 1 || s.opt.Partitions > limits.MaxPartitions {
		return nil, fmt.Errorf("topics of %d partitions: use 1 to %d: %w", s.opt.Partitions, limits.MaxPartitions, punctual.ErrInvalid)
	}
	if s.opt.Logger == nil {
		s.opt.Logger = slog.Default()
	}
	s.calls.Name, s.calls.Logger = "redis store", s.opt.Logger
	s.clock = clock.New(o.clock)
	s.route = route.New(client, route.Options{
		Names: n, Clock: s.clock, Sender: s.sender, Replicas: s.replicasToAwait(), ReplicaTimeout: s.opt.ReplicaTimeout, Slack: s.opt.slack,
		General: s.opt.general, Closing: s.closing, Closed: s.calls.ErrClosed(), Unconfirmed: func() { s.health.Soon() }, Answered: s.sawVersion, NoEvents: s.makeEvents,
	})
	s.health = health.New(client, health.Options{
		Names: n, Route: s.route, Clock: s.clock, Logger: s.opt.Logger, Durability: s.opt.Durability, Replicas: s.opt.Replicas, MustExist: s.opt.MustExist,
		CheckEvery: s.opt.checkEvery, Fail: s.calls.Fail,
	})
	s.topics = topics.New(topics.Options{
		Names: n, Clock: s.clock, Route: s.route, Logger: s.opt.Logger, Partitions: s.opt.Partitions,
		Adopted: func(topic string, l *topics.Layout, changed bool) { s.waits.waiter.Resize(topic, l.Size(), changed) },
		Arrived: s.tellOfCompanions,
	})
	s.waits.init(s)
	s.leases = leases{
		route: s.route, names: n, clock: s.clock, log: s.opt.Logger, calls: &s.calls,
		settle: func(ctx context.Context, ss []punctual.Settlement) ([]error, error) { return s.settle(ctx, ss, nil) },
	}
	s.scanner.leases, s.scanner.topics, s.scanner.nextDue = &s.leases, s.topics, s.waits.NextDue
	return s, nil
}

// replicasToAwait returns how many replicas have to have a change before a call returns: none
// without class replicated.
func (s *Store) replicasToAwait() int {
	if s.opt.Durability != punctual.Replicated {
		return 0
	}
	return max(s.opt.Replicas, 1)
}

// longestTimeout is how long a client may wait for an answer, or to send, at most.
const longestTimeout = 10 * time.Second

// checkTimeouts refuses a client that would wait for a server that hangs for longer than
// longestTimeout.
func checkTimeouts(client redis.UniversalClient) error {
	var read, write time.Duration
	switch c := client.(type) {
	case *redis.ClusterClient:
		read, write = c.Options().ReadTimeout, c.Options().WriteTimeout
	case *redis.Client:
		read, write = c.Options().ReadTimeout, c.Options().WriteTimeout
	default:
		return nil // a type that wraps a client does not tell its timeouts
	}
	return cmp.Or(fitTimeout("ReadTimeout", read), fitTimeout("WriteTimeout", write))
}

func fitTimeout(name string, d time.Duration) error {
	switch {
	case d <= 0:
		return fmt.Errorf("the client has no %s, so one lost answer would hold up all calls: set it to at most %v: %w", name, longestTimeout, punctual.ErrInvalid)
	case d > longestTimeout:
		return fmt.Errorf("the client's %s is %v: set it to at most %v, so that a server that hangs does not hold up all calls: %w", name, d, longestTimeout, punctual.ErrInvalid)
	}
	return nil
}

// Now returns the time by the store's clock (P8): that of the server, made not to run backwards but
// for a step (storekit.ClockKeeper).
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	return call(ctx, s, "now", "", nil, func() (time.Time, error) {
		err := s.health.CheckData(ctx, false)
		return storekit.FromMillis(s.clock.LowerBound()), err
	})
}

// Clock implements storekit.ClockKeeper.
func (s *Store) Clock(ctx context.Context) (storekit.ClockState, error) {
	return call(ctx, s, "clock", "", nil, func() (storekit.ClockState, error) { return s.health.Clock(ctx, false) })
}

// StepClock implements storekit.ClockKeeper. Each partition makes the step when it is next asked.
func (s *Store) StepClock(ctx context.Context) (storekit.ClockState, error) {
	return call(ctx, s, "step clock", "", nil, func() (storekit.ClockState, error) { return s.health.Clock(ctx, true) })
}

// Durability returns the class that the server gave at the last check that could tell.
func (s *Store) Durability() punctual.Durability { return s.health.Durability() }

// Abilities returns what the store can do: the follow-ups of a settlement reach its topic and the
// other topics of that family, in the partition of its message, topics tell of their events, can
// bound their leases and have messages with keys.
func (s *Store) Abilities(ctx context.Context) (storekit.Abilities, error) {
	return call(ctx, s, "abilities", "", nil, func() (storekit.Abilities, error) {
		return storekit.Abilities{Follow: storekit.ReachFamily, Emit: true, BoundsLeases: true, Keys: true}, nil
	})
}

// Close ends waiting claims, waits for calls under way, stops the store's goroutines and writes the
// clock down. The client is left open unless Options.OwnClient is set. A second Close returns
// ErrClosed.
func (s *Store) Close() error {
	if err := s.calls.Close(); err != nil {
		return err
	}
	close(s.closing)
	s.waits.arrivals.Close()
	s.calls.Wait()
	s.waits.waiter.Close()
	s.waits.listener.Close()
	s.health.Close()
	s.duties.Wait()
	s.route.Close()
	s.writeClock()
	if s.opt.OwnClient {
		return s.client.Close()
	}
	return nil
}

// writeClockTimeout bounds how long Close tries to write the clock. A try that is under way by then
// ends with the client's own timeouts.
const writeClockTimeout = 2 * time.Second

// writeClock keeps the clock for the next process. When that fails, the next one begins with the
// time of the last regular check, or with the server's own time if that is later; the partitions
// keep clocks of their own.
func (s *Store) writeClock() {
	ctx, end := context.WithTimeout(context.Background(), writeClockTimeout)
	defer end()
	if err := s.health.CheckData(ctx, true); err != nil {
		s.opt.Logger.Debug("the store's clock was not written down", "error", err)
	}
}

// call is storekit.Call for a method of this store.
func call[T any](ctx context.Context, s *Store, method, subject string, check error, work func() (T, error)) (T, error) {
	return storekit.Call(ctx, &s.calls, method, subject, check, func() (T, error) {
		if err := s.health.StepFakeClock(ctx); err != nil {
			var none T
			return none, err
		}
		return work()
	})
}

// sawVersion is told the version of the settings that a script has found. Version 0, of a topic
// that is not there, may mean that the whole data set is gone, so sawVersion checks that; if it is
// gone the store stops. A claim from a topic of which this process knows nothing is no reason to
// check, because such claims may wait for long.
func (s *Store) sawVersion(ctx context.Context, sc *script.Script, topic string, version int64) error {
	if version != 0 || (sc == script.Claim || sc == script.ClaimIDs) && s.topics.Known(topic).Version == 0 {
		return nil
	}
	return s.health.CheckData(ctx, false)
}
