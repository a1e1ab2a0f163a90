// Package sharedstore opens the store in a directory that several processes use at the same time.
//
// A directory has one owner at a time, because package diskstore lets only one process open it. In
// this package the owner listens on a unix socket in the directory (share.go), and the other
// processes of the same user call the store through that socket. So any number of processes can
// push, claim and inspect at the same time, with the promises of the embedded store.
//
// When the owner closes the store or dies, one of the other processes becomes the owner with its
// next call, or with one under way (owner.go), and the rest call the store through the socket of
// that owner. So a program can be restarted without a gap: the new process opens the directory
// while the old one still runs.
//
//   - A call that had not reached the owner before the owner ended is carried out by the next
//     owner.
//   - A call that an owner has begun when it closes the store gets its answer, if the answer takes
//     no longer than drainTime. A claim that waits goes on at the next owner.
//   - A call that changes something, and that was sent to an owner that was killed, fails with
//     ErrIndeterminate. Claims and settlements are repeated at the next owner instead. They fail
//     with ErrIndeterminate if no owner answers them, or if the next one refuses the whole call or,
//     with ErrLeaseLost, a settlement. A claim that ends with its context or with Close returns the
//     error of that instead. Messages and leases survive as those of diskstore do.
package sharedstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/remotestore"
	"github.com/punctualmq/punctual/server"
	"github.com/punctualmq/punctual/storekit"
)

// SocketName is the name of the socket in a directory that is shared.
const SocketName = "punctual.sock"

// Options adjusts a Store. A nil *Options, and each zero field, means the default.
type Options struct {
	// Disk has the options of the embedded store, which apply when this process owns the directory.
	// Its LockWait is not used, because Wait takes its place, and its Logger is replaced by the
	// Logger below.
	Disk *diskstore.Options
	// Wait is how long Open waits while the same owner does not share the directory, or does not
	// share it yet. Default 2 s. With less than zero Open does not wait. When many programs open
	// the directory for a moment, one owner follows the other. Open then waits for its turn: for
	// RetryFor, or for Wait if that is longer.
	Wait time.Duration
	// RetryFor is how long a call waits for the next owner after one has ended. Default 15 s.
	RetryFor time.Duration
	// Logger gets what happens outside of calls. Default slog.Default.
	Logger *slog.Logger
}

// Store is the store in a directory. It calls the store in this process, or the one of the process
// that owns the directory. All methods are safe for concurrent use.
type Store struct {
	dir  string
	opt  Options
	turn chan struct{} // holds one token: the goroutine that has it may try to become the owner

	closing context.Context // ends with Close
	end     context.CancelFunc

	mu      sync.Mutex
	closed  bool               // guarded by mu
	owned   *diskstore.Store   // guarded by mu: nil until this process owns the directory; not changed after that
	shared  *server.Server     // guarded by mu: set together with owned; nil if the directory cannot be shared
	unshare func() error       // guarded by mu: set together with owned
	remote  *remotestore.Store // set only before Open returns; nil if this process has been the owner from the beginning
	calls   sync.WaitGroup     // the calls under way; grows only while not closed
}

// Open opens the store in a directory, and creates the store if there is none. This process becomes
// the owner of the directory unless another process is the owner. Errors: those of diskstore.Open,
// and those of remotestore.Open except ErrUnreachable. ErrLocked means that the owner does not
// share the directory, or that other processes were the owner all the time. If ctx ends meanwhile,
// the error has both its error and ErrLocked.
func Open(ctx context.Context, dir string, o *Options) (*Store, error) {
	s := &Store{turn: make(chan struct{}, 1)}
	if o != nil {
		s.opt = *o
	}
	if s.opt.Wait == 0 {
		s.opt.Wait = 2 * time.Second
	}
	if s.opt.RetryFor <= 0 {
		s.opt.RetryFor = 15 * time.Second
	}
	if s.opt.Logger == nil {
		s.opt.Logger = slog.Default()
	}
	full, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	s.dir = full
	s.closing, s.end = context.WithCancel(context.Background())
	s.turn <- struct{}{}
	if err := s.open(ctx); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// Close ends waiting claims, waits for all calls under way, and gives the directory up if this
// process owns it. In the owner a change whose transaction has begun gets its answer. A change that
// still waits for its turn, and a read that takes long, such as a check or a backup, get ErrClosed.
// In another process Close ends all calls: they return ErrClosed, and a call that changes
// something, other than a claim, returns ErrIndeterminate as well if an owner may have carried it
// out. A second Close returns ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed()
	}
	s.closed = true
	s.mu.Unlock()
	s.end()
	<-s.turn // from now on no call of this process becomes the owner
	var err error
	if s.remote != nil {
		err = s.remote.Close()
	}
	s.mu.Lock()
	owned, unshare := s.owned, s.unshare
	s.mu.Unlock()
	if owned != nil {
		err = errors.Join(err, unshare(), owned.Close())
	}
	s.calls.Wait()
	return err
}

func errClosed() error { return fmt.Errorf("shared store: %w", punctual.ErrClosed) }

// Dir returns the absolute path of the directory.
func (s *Store) Dir() string { return s.dir }

// reporter returns the server by which this process, as the owner, shares the directory. The server
// knows what the other processes claim. If the directory is not shared, reporter returns an
// ErrUnsupported.
func (s *Store) reporter() (storekit.ConsumerReporter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil {
		return nil, fmt.Errorf("this store does not know who claims: its directory is not shared: %w", punctual.ErrUnsupported)
	}
	return s.shared, nil
}

// full has methods of Store that a diskstore.Store and a remotestore.Store both have. The code
// reaches some others with punctual.As.
type full interface {
	punctual.Store
	punctual.Inspector
	storekit.Checker
	storekit.Examiner
	punctual.FinishedKeeper
	storekit.SpaceReporter
	storekit.Backuper
	storekit.ClockKeeper
}

// enter returns the store to call: that of this process, also as owned, if this process is the
// owner, and otherwise the remote one. Unless enter fails, the caller has to call s.calls.Done
// after its call.
func (s *Store) enter() (f full, owned *diskstore.Store, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, nil, errClosed()
	case s.owned != nil:
		s.calls.Add(1)
		return s.owned, s.owned, nil
	}
	s.calls.Add(1)
	return s.remote, nil, nil
}

// do calls the store. If the call did not reach an owner, do calls the next owner, until
// Options.RetryFor is over. With unsure, do also repeats a call whose answer was lost. The argument
// anew is then true, because the call may have been carried out before. If do gives such a call up,
// the error wraps ErrIndeterminate, whatever the last owner has said.
func do[R any](ctx context.Context, s *Store, call func(f full, anew bool) (R, error), unsure bool) (R, error) {
	r, anew, err := untilAnswered(ctx, s, call, unsure)
	if err == nil || !punctual.Definite(err) {
		return r, err
	}
	if s.closing.Err() != nil {
		err = errClosed()
	}
	if anew {
		err = inDoubt(err)
	}
	return r, err
}

// untilAnswered makes the calls of do. anew reports that the answer to one of them was lost before
// the last one.
func untilAnswered[R any](ctx context.Context, s *Store, call func(f full, anew bool) (R, error), unsure bool) (r R, anew bool, _ error) {
	var until time.Time // when to give up; zero before the first failure
	for {
		f, owned, err := s.enter()
		if err != nil {
			return r, anew, err
		}
		r, err = call(f, anew)
		s.calls.Done()
		lost := unsure && errors.Is(err, punctual.ErrIndeterminate)
		switch {
		case err == nil, owned != nil, ctx.Err() != nil:
			return r, anew, err
		case !lost && !errors.Is(err, punctual.ErrUnreachable), !until.IsZero() && !time.Now().Before(until):
			return r, anew, err
		case until.IsZero():
			until = time.Now().Add(s.opt.RetryFor)
		}
		anew = anew || lost
		if err := s.next(ctx); err != nil {
			return r, anew, err
		}
	}
}

// inDoubt returns the error of a call that an earlier owner may have carried out. err is what came
// of the call after that.
func inDoubt(err error) error {
	return fmt.Errorf("the owner of the directory that was told first has ended: %w; now: %w", punctual.ErrIndeterminate, err)
}
