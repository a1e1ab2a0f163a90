package diskstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/claimlog"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/directory"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// Options of Open. The zero value of a field means its default.
type Options struct {
	// Clock is where the store's clock comes from. Default storekit.SystemClock.
	Clock storekit.Clock
	// MaxBody is the largest body accepted, in bytes; a push of more is ErrTooLarge. 0 means
	// limits.DefaultMaxBody, 1 MiB. Open refuses less than 0 and more than 1 GiB.
	MaxBody int
	// Logger gets what the store has to say on its own, above all why it failed.
	// Default slog.Default().
	Logger *slog.Logger
	// MemoryBytes bounds the memory for messages, over all topics. It counts those near their due
	// time, those being pushed, and leases (without the bodies, about half a KiB each). Leases are
	// the work in hand and never refused: when they take more than three quarters of MemoryBytes,
	// what is beyond comes on top. So does what calls under way read and write, for example the
	// messages that a claim brings its caller: at most 64 MiB and one message for each claim.
	// Default 64 MiB.
	MemoryBytes int64
	// CacheBytes is the size of the database's block cache, beside 128 MiB for two of the buffers
	// in which the database gathers what is written. While a buffer is not in use, the cache may
	// take its place. Default 32 MiB.
	CacheBytes int64
	// ReserveBytes is the free disk space below which pushes and follow-ups are refused with
	// ErrNoSpace while other acks and cancels pass. What the database has only in its log yet, 256
	// MiB at most, is not free, because the database will write it once more. Default 256 MiB. With
	// a smaller reserve the disk may fill up all the same, because the database needs room to
	// rewrite its tables. Then the store fails.
	ReserveBytes uint64
	// CommitTimeout is how long a change may wait for the disk before the store is
	// taken for failed. Default 30 s.
	CommitTimeout time.Duration
	// LockWait is how long Open waits for another owner of the directory to end. In a restart the
	// new process may begin before the old one is gone. Default 0: ErrLocked at once.
	LockWait time.Duration

	fs         vfs.FS                               // tests put faults and crashes here
	byHand     bool                                 // maintenance, loader, reclaimer and sweeps of events are not started; tests call what these do
	sweepEvery time.Duration                        // the time between two sweeps of events
	claimLimit int64                                // size at which a segment of the claim log is replaced
	swept      func(order database.Order, keys int) // tests learn how many keys a step of a sweep, or a load, passed
	purging    func(punctual.State)                 // tests act before each pass of a purge, and before it clears a topic at once
	looked     func()                               // tests act after a call has looked its IDs up, before it waits for the write lock
	clearFrom  int64                                // from how many messages on a purge clears all of them in one transaction
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Clock == nil {
		d.Clock = storekit.SystemClock{}
	}
	if d.Logger == nil {
		d.Logger = slog.Default()
	}
	if d.fs == nil {
		d.fs = vfs.Default
	}
	orDefault(&d.MaxBody, limits.DefaultMaxBody)
	orDefault(&d.MemoryBytes, 64<<20)
	orDefault(&d.CacheBytes, 32<<20)
	orDefault(&d.ReserveBytes, 256<<20)
	orDefault(&d.CommitTimeout, 30*time.Second)
	orDefault(&d.claimLimit, 16<<20)
	orDefault(&d.clearFrom, purgeStep)
	return d
}

// maxMaxBody is the largest MaxBody. The database cannot take 4 GiB in one change.
const maxMaxBody = 1 << 30

func (o *Options) check() error {
	if o.MaxBody < 0 || o.MaxBody > maxMaxBody {
		return fmt.Errorf("MaxBody is %d: %w; use 1 to %d bytes", o.MaxBody, punctual.ErrInvalid, maxMaxBody)
	}
	if o.LockWait < 0 {
		return fmt.Errorf("LockWait is %v: %w; use 0 or more", o.LockWait, punctual.ErrInvalid)
	}
	return nil
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// restAlone tells whether err, met at the item next of a call, is the error of the items from next
// on alone: the items before have happened, and those from next on certainly have not. Otherwise
// err is the error of the whole call.
func restAlone(next int, err error) bool { return next > 0 && punctual.Definite(err) }

// Store is an open embedded store. It implements punctual.Store, Inspector, Checker,
// storekit.Examiner, FinishedKeeper, storekit.SpaceReporter, storekit.Backuper,
// storekit.AbilityReporter, storekit.TopicNamer, storekit.ClockKeeper and
// storekit.DurabilityReporter (Fsync). Its methods are safe for concurrent use.
type Store struct {
	dir   string
	opt   Options
	state *failstop.State
	fs    vfs.FS // the store's own side of failstop.FS
	owned *directory.Dir
	log   *slog.Logger
	db    *database.DB
	clock clock

	// topics has every topic of the store, by name.
	topics *topics.Registry
	// index holds those messages that are in memory: those that are due soon, and those that are
	// being pushed, are reserved, leased, or acked and not deleted yet. All others are on disk
	// alone.
	index *memory.Index
	// writer has the write lock. It is taken before claimlog.Log.mu and the lock of the index, and
	// inside archiving, forgetting and claimlog.Log.replacing.
	writer *writer.Writer
	// watermarksAt is db.NextNumber when watermarks were written last; guarded by the write lock.
	watermarksAt uint64

	claims *claimlog.Log

	// endings are the messages that claims have encountered and that must not be delivered any
	// more; see ending.go.
	endings endings

	// waiters are the claims under way; see wait.go.
	waiters waiters

	// sweeps are the topics that have dead messages to sweep, in the order of when the first of
	// these is past its retention.
	sweeps sweeps

	// stepping is the step of the clock under way; see clock_step.go.
	stepping stepping

	// reset is not nil while ResetClock has the store open.
	reset *ClockReset

	maintenanceKick chan struct{} // holds one hint for maintenance

	// forgetting is held by the sweep of finished IDs or finished records under way. It is taken
	// before the write lock.
	forgetting sync.Mutex

	// archiving is held by the copy under way. It is taken before every other lock.
	archiving sync.Mutex

	background sync.WaitGroup
}

var (
	_ punctual.Store              = (*Store)(nil)
	_ punctual.Inspector          = (*Store)(nil)
	_ storekit.Checker            = (*Store)(nil)
	_ storekit.Examiner           = (*Store)(nil)
	_ punctual.FinishedKeeper     = (*Store)(nil)
	_ storekit.DurabilityReporter = (*Store)(nil)
	_ storekit.SpaceReporter      = (*Store)(nil)
	_ storekit.Backuper           = (*Store)(nil)
	_ storekit.AbilityReporter    = (*Store)(nil)
	_ storekit.TopicNamer         = (*Store)(nil)
	_ storekit.ClockKeeper        = (*Store)(nil)
)

// admit returns why a call is not made, or nil: the store is closed or has failed, ctx has ended,
// or the call itself is wrong, which the caller has checked already and hands over as wrong. The
// first of these counts, as punctual.Store asks of all stores. Before the call goes on, the store's
// clock follows the machine's.
func (s *Store) admit(ctx context.Context, wrong error) error {
	if err := s.state.Usable(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errkind.Ended(ctx)
	}
	if wrong != nil {
		return wrong
	}
	return s.followClock(ctx)
}

// Now returns the store's clock in whole milliseconds.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.admit(ctx, nil); err != nil {
		return time.Time{}, fmt.Errorf("now: %w", err)
	}
	if err := s.state.Enter(); err != nil {
		return time.Time{}, fmt.Errorf("now: %w", err)
	}
	defer s.state.Leave()
	now := s.clock.ms()
	if err := s.claims.KeepClock(now); err != nil {
		return time.Time{}, fmt.Errorf("now: %w", err)
	}
	return storekit.FromMillis(now), nil
}

// Durability returns punctual.Fsync.
func (s *Store) Durability() punctual.Durability { return punctual.Fsync }

// Abilities returns what the store can do: follow-ups go to every topic and every ID, and topics
// tell of their events, because a transaction holds any messages. Leases can be bounded.
func (s *Store) Abilities(ctx context.Context) (storekit.Abilities, error) {
	if err := s.admit(ctx, nil); err != nil {
		return storekit.Abilities{}, fmt.Errorf("abilities: %w", err)
	}
	return storekit.Abilities{Follow: storekit.ReachAny, Emit: true, BoundsLeases: true}, nil
}

// Close ends waiting claims and scans, waits for the methods under way unless the store has failed,
// and closes the files. Leases stay as they are. It returns an error when something could not be
// written, or the failure of a failed store. It waits as long as the disk works, and fails the
// store when no change of a file has ended for CommitTimeout.
func (s *Store) Close() error {
	if !s.state.BeginClose() {
		return nil
	}
	s.topics.Arrivals.Close()
	done := make(chan error, 1)
	go func() { done <- s.shutDown() }()
	err := s.state.AwaitProgress("close", done)
	// The database of a failed store may hang on what it could not write, so Close does not wait
	// for it.
	s.owned.Release()
	return errkind.Classify("close store "+s.dir, err)
}

// shutDown ends everything in order. If it hangs, Close leaves it behind once the store has failed.
func (s *Store) shutDown() error {
	s.background.Wait()
	s.state.WaitCalls()
	if !s.state.HasFailed() { // because the last transaction could not end
		s.writer.Close(func(tx *writer.Tx) bool { return s.saveWatermarks(tx, watermarksLimit) })
	}
	if s.state.HasFailed() {
		s.state.StopReads()
		return s.state.Failure()
	}
	s.stepping.mu.Lock()
	err := errors.Join(s.claims.Close(), s.stepping.end())
	s.stepping.mu.Unlock()
	// A compaction may read for long, above all one that drops what was deleted. It gets half of
	// the time after which Close would take the disk for hanging; a compaction that is cut short
	// begins again after the next Open.
	enough := time.AfterFunc(s.opt.CommitTimeout/2, s.state.RefuseReads)
	defer enough.Stop()
	if err := errors.Join(err, s.db.Close()); err != nil {
		s.state.Fail(errkind.Classify("close the database", err))
		return s.state.Failure()
	}
	return nil
}
