package diskstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/punctualmq/punctual"
)

// Options of Open. The zero value of a field means its default.
type Options struct {
	// Clock is where the store's clock comes from. Default punctual.SystemClock.
	Clock punctual.Clock
	// MaxBody is the largest body accepted, in bytes. Default punctual.DefaultMaxBody.
	MaxBody int
	// Logger gets what the store has to say on its own, above all why it failed.
	// Default slog.Default().
	Logger *slog.Logger
	// NearBytes bounds the memory for messages loaded ahead of their due time.
	// Default 64 MiB.
	NearBytes int64
	// CacheBytes is the size of the database's block cache. Default 32 MiB.
	CacheBytes int64
	// ReserveBytes is the free disk space below which pushes are refused with ErrNoSpace
	// while acks and cancels pass. Default 256 MiB. With less the disk may fill up all the same,
	// because the database needs room to put in order what it has, and the store fails.
	ReserveBytes uint64
	// CommitTimeout is how long a change may wait for the disk before the store is
	// taken for failed. Default 30 s.
	CommitTimeout time.Duration

	fs         vfs.FS // tests put faults and crashes here
	claimLimit int64  // size at which a segment of the claim log is replaced
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Clock == nil {
		d.Clock = punctual.SystemClock{}
	}
	if d.Logger == nil {
		d.Logger = slog.Default()
	}
	if d.fs == nil {
		d.fs = vfs.Default
	}
	orDefault(&d.MaxBody, punctual.DefaultMaxBody)
	orDefault(&d.NearBytes, 64<<20)
	orDefault(&d.CacheBytes, 32<<20)
	orDefault(&d.ReserveBytes, 256<<20)
	orDefault(&d.CommitTimeout, 30*time.Second)
	orDefault(&d.claimLimit, 16<<20)
	return d
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Store is an open embedded store. It implements punctual.Store, Inspector, Checker, Examiner
// and DurabilityReporter (Fsync). Its methods are safe for concurrent use.
type Store struct {
	dir   string
	opt   Options
	fs    vfs.FS // the store's own side of safeFS
	gate  *gate
	log   *slog.Logger
	db    *pebble.DB
	lock  io.Closer // of the directory; let go through gate
	clock *clock
	space *spaceGuard

	// sequencer holds one token; who has it may read and change the database.
	// Lock order: sequencer, then claims.mu, then mu.
	sequencer chan struct{}
	// numbers are given out with the sequencer held.
	numbers numbers
	// txns is the number of the last transaction; same owner.
	txns uint64
	// markedAt is numbers.next when marks were written last; same owner.
	markedAt uint64

	claims *claimLog

	mu sync.Mutex
	// topics by name; all other fields down to waiters are guarded by mu too.
	topics map[string]*topic
	// topicNum is the number of the next new topic.
	topicNum uint32
	// live are the messages in memory by number; see entry.
	live map[uint64]*entry
	// byToken are the leased ones by token.
	byToken map[int64]*entry
	// unsynced are the messages whose transaction is applied but not yet durable, by
	// number. They are on disk but must not be claimed; nil when they were taken away again.
	unsynced map[uint64]*entry
	// acked are the finished messages that are still on disk, by number; see acked.go.
	acked map[uint64]acked
	// deleted are the numbers of topics that were deleted and may have left much; see reclaim.go.
	deleted []uint32
	// nearBytes is what the near parts of all timelines cost.
	nearBytes int64
	// tokens are the lease tokens that may be given out: [next, limit).
	tokens struct{ next, limit int64 }
	// waiters are the waiting claims by topic.
	waiters map[string]map[*waiter]struct{}
	closed  bool
	// calls counts the methods under way; added to with mu held and closed false.
	calls sync.WaitGroup

	dutyKick chan struct{} // holds one hint for the housekeeper

	failOnce sync.Once
	failErr  error         // written before failed is closed
	failed   chan struct{} // closed by fail
	closing  chan struct{} // closed by Close
	duties   sync.WaitGroup
	commits  sync.WaitGroup // transactions on their way; added to with the sequencer held
}

var (
	_ punctual.Store              = (*Store)(nil)
	_ punctual.Inspector          = (*Store)(nil)
	_ punctual.Checker            = (*Store)(nil)
	_ punctual.Examiner           = (*Store)(nil)
	_ punctual.DurabilityReporter = (*Store)(nil)
)

// Now returns the store's clock in whole milliseconds.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.usable(); err != nil {
		return time.Time{}, err
	}
	return punctual.FromMillis(s.clock.ms()), nil
}

// Durability returns punctual.Fsync.
func (s *Store) Durability() punctual.Durability { return punctual.Fsync }

// usable returns why the store takes no calls, or nil.
func (s *Store) usable() error {
	select {
	case <-s.closing:
		return fmt.Errorf("store %s: %w", s.dir, punctual.ErrClosed)
	case <-s.failed:
		return s.failure()
	default:
		return nil
	}
}

// enter counts a method in, or says why the store takes no calls. Each success needs its
// s.calls.Done.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if s.closed {
		return fmt.Errorf("store %s: %w", s.dir, punctual.ErrClosed)
	}
	s.calls.Add(1)
	return nil
}

// Close ends waiting claims and scans, waits for the methods under way and closes the files.
// Leases stay as they are. It returns an error when something could not be written, or the
// failure of a failed store; a disk that hangs is given CommitTimeout.
func (s *Store) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	if again {
		return nil
	}
	close(s.closing)
	done := make(chan error, 1)
	go func() { done <- s.shutDown() }()
	timer := time.NewTimer(s.opt.CommitTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		s.letGo()
		return classify("close store "+s.dir, err)
	case <-timer.C:
		s.fail(s.hung("close"))
	case <-s.failed:
	}
	// The database may hang on what it could not write: nothing waits for it.
	s.letGo()
	return fmt.Errorf("close store %s: %w", s.dir, s.failure())
}

// letGo gives the directory back as soon as no change of a file is under way, and waits a
// moment for that.
func (s *Store) letGo() {
	gone := make(chan struct{})
	s.gate.close(func() {
		if err := s.lock.Close(); err != nil {
			s.log.Warn("giving back the lock of a store", "dir", s.dir, "error", err)
		}
		close(gone)
	})
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-gone:
	case <-timer.C: // the disk hangs
	}
}

// shutDown ends everything in order. It is left where it hangs when the store fails.
func (s *Store) shutDown() error {
	s.duties.Wait()
	s.calls.Wait()
	select {
	case <-s.sequencer: // taken for good
	case <-s.failed:
		return s.failure()
	}
	tx := s.newTxn()
	s.saveMarks(tx)
	s.finish(tx)
	s.commits.Add(1)
	go s.carryOut(tx, make(chan error, 1)) // its error is a failure of the store
	s.commits.Wait()
	if s.hasFailed() {
		return s.failure()
	}
	err := s.claims.close()
	if derr := s.closeDB(); err == nil {
		err = derr
	}
	return err
}

// closeDB flushes and closes the database, in a goroutine of its own because the database may stop the
// goroutine that calls it.
func (s *Store) closeDB() error {
	return s.bounded("close the database", func() error {
		// Tables carry checksums throughout; the end of a log can be damaged or cut off unseen.
		return errors.Join(s.db.Flush(), s.db.Close())
	})
}
