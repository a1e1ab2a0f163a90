// Package sharedstore opens the store in a directory, whoever owns it.
//
// A directory has one owner at a time, and that is package diskstore's rule. Here the owner listens on a unix socket
// in the directory, of mode 0600. Every other process of the same user that opens the directory goes through it. So
// any number of processes push, consume, look and cancel at the same time, with the promises of the one store below.
//
// When the owner closes the store or dies, one of the others takes the directory over with its next call. The rest go
// on through that one's socket. A program is restarted without a gap in this way: the new process begins while the
// old one still runs.
//
//   - Calls that had not reached an owner that ended are carried out by the next one.
//   - What an owner that closes the store has begun, it answers.
//   - What was sent to an owner that was killed is ErrIndeterminate, but for claims and settlements, which are made
//     anew. Leases and messages are as durable as ever.
package sharedstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/internal/unixsocket"
	"github.com/punctualmq/punctual/remotestore"
	"github.com/punctualmq/punctual/server"
)

// SocketName is the name of the socket in a directory that is shared.
const SocketName = "punctual.sock"

// Options adjusts a Store. A nil *Options, and each zero field, means the default.
type Options struct {
	// Disk is for the store when this process owns the directory. Its LockWait and Logger are those given here.
	Disk *diskstore.Options
	// Wait is how long Open waits for one owner that does not share the directory, or not yet. Default 2 s; less than zero is not
	// at all. While owners follow each other, as they do when many programs open the directory for a moment, Open waits for its
	// turn up to RetryFor.
	Wait time.Duration
	// RetryFor is how long a call waits for the next owner when one has ended, and Open while owners follow each other. Default 15 s.
	RetryFor time.Duration
	// Logger gets what the store has to say on its own. Default slog.Default.
	Logger *slog.Logger
}

// Store is the store in a directory, in this process or at the directory's owner. All methods are safe for concurrent use.
type Store struct {
	dir  string
	opt  Options
	turn chan struct{} // holds one token: who has it may open the directory

	closing context.Context // ends with Close
	end     context.CancelFunc

	mu      sync.Mutex
	closed  bool               // guarded by mu
	owned   *diskstore.Store   // guarded by mu: set once this process owns the directory, and then for good
	shared  *server.Server     // guarded by mu: set with owned, nil where the directory cannot be shared
	unshare func() error       // guarded by mu: set with owned
	remote  *remotestore.Store // set before Open returns, nil for one that was the owner from the beginning
	calls   sync.WaitGroup     // grows only while not closed
}

// Open opens the store in a directory, and makes it if need be. It owns the directory if nobody else does. Errors: those of
// diskstore.Open; ErrLocked when the owner does not share the directory.
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

// open becomes the owner, or finds one that shares the directory.
func (s *Store) open(ctx context.Context) error {
	began, owner, owners := time.Now(), "", 0
	since := began // when the owner of now was first seen
	for wait := pause; ; wait = min(2*wait, lastPause) {
		locked := s.takeOver()
		if !errors.Is(locked, punctual.ErrLocked) {
			return locked
		}
		err := s.connect(ctx)
		now := time.Now()
		if name := locked.Error(); name != owner { // the error names the owner, and since when it is that
			owner, since = name, now
			owners++
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errors.Join(ctx.Err(), locked)
		case !errors.Is(err, punctual.ErrUnreachable):
			return fmt.Errorf("open store %s at its owner: %w", s.dir, err)
		case now.Sub(since) >= s.opt.Wait:
			return locked
		case now.Sub(began) >= max(s.opt.Wait, s.opt.RetryFor):
			return fmt.Errorf("open store %s: it had %d owners in %v, and it was not this program's turn: %w", s.dir, owners, now.Sub(began).Round(time.Millisecond), locked)
		}
		s.sleep(ctx, wait/2+rand.N(wait)) // not all at the same time
	}
}

// pause is the wait between two attempts to become the owner or to find one. While a store is opened it doubles up to lastPause.
const (
	pause     = 10 * time.Millisecond
	lastPause = 80 * time.Millisecond
)

// sleep returns early when ctx or the store ends.
func (s *Store) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-s.closing.Done():
	}
}

// connect opens the store at the directory's owner.
func (s *Store) connect(ctx context.Context) error {
	ctx, end := context.WithTimeout(ctx, 5*time.Second)
	defer end()
	r, err := remotestore.Open(ctx, []string{"unix:" + filepath.Join(s.dir, SocketName)}, &remotestore.Options{
		Logger: s.opt.Logger,
		// A socket on which nobody listens has no owner, and it may be this process's turn.
		RetryFor: -1,
		// An owner that is slow is there all the same.
		Timeout: time.Minute,
	})
	s.remote = r
	return err
}

// takeOver makes this process the owner, or returns the error of diskstore.Open.
func (s *Store) takeOver() error {
	disk := diskstore.Options{}
	if s.opt.Disk != nil {
		disk = *s.opt.Disk
	}
	disk.LockWait, disk.Logger = 0, s.opt.Logger
	d, err := diskstore.Open(s.dir, &disk)
	if err != nil {
		return err
	}
	shared, unshare, err := share(d, s.dir, s.opt.Logger)
	if err != nil {
		s.opt.Logger.Info("the directory of a store cannot be shared; other processes find it locked", "dir", s.dir, "error", err)
		unshare = func() error { return nil }
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owned, s.shared, s.unshare = d, shared, unshare
	return nil
}

// Share lets other processes use the store that this process has opened in dir, until stop is called. Call stop
// before you close the store: it answers what is under way and ends waiting claims. Open does this by itself.
func Share(s *diskstore.Store, dir string, log *slog.Logger) (stop func() error, err error) {
	_, stop, err = share(s, dir, log)
	return stop, err
}

// share is Share, and returns the server for the others.
func share(s *diskstore.Store, dir string, log *slog.Logger) (h *server.Server, stop func() error, err error) {
	h, err = server.New(s, &server.Options{Logger: log, Limits: server.Limits{Rate: 1e9, Burst: 1e9}})
	if err != nil {
		return nil, nil, fmt.Errorf("share store %s: %w", dir, err)
	}
	path := filepath.Join(dir, SocketName)
	l, err := unixsocket.Listen(path)
	if err != nil {
		return nil, nil, fmt.Errorf("share store %s: %w", dir, err)
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Serve(ctx, &server.ServeOptions{DrainTime: drainTime}, l) }()
	return h, sync.OnceValue(func() error {
		// Still the owner, so this is no successor's socket.
		err := letNobodyElseIn(path)
		end()
		err = errors.Join(err, <-done)
		if err != nil {
			return fmt.Errorf("stop sharing store %s: %w", dir, err)
		}
		return nil
	}), nil
}

// letNobodyElseIn removes the socket, and returns when every connection that was made before has been accepted. A connection that is
// not accepted when the server ends is cut off. Who sent a request through it does not learn whether it was carried out.
func letNobodyElseIn(path string) error {
	last := path + ".end"
	if err := os.Rename(path, last); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil // somebody has removed it, so nobody can connect
		}
		return err
	}
	// Connections are accepted in the order in which they were made, so an answer to the last one means that all are.
	ctx, end := context.WithTimeout(context.Background(), drainTime)
	defer end()
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return unixsocket.Dial(ctx, last) }}
	defer t.CloseIdleConnections()
	err := asked(ctx, &http.Client{Transport: t})
	return errors.Join(err, os.Remove(last))
}

// asked sends a request that changes nothing, and returns when it is answered.
func asked(ctx context.Context, c *http.Client) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/livez", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// drainTime is how long requests of others may go on when the owner closes the store.
const drainTime = 5 * time.Second

// Close gives the directory back, if this process owns it, when what is under way is answered. Waiting claims end. A second
// one returns ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed()
	}
	s.closed = true
	s.mu.Unlock()
	s.end()
	<-s.turn // nobody takes over any more
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

// Dir is the path of the directory.
func (s *Store) Dir() string { return s.dir }

// reporter returns what the owner of the directory knows of the processes that share it, or an ErrUnsupported while the
// directory is not shared.
func (s *Store) reporter() (punctual.ConsumerReporter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil {
		return nil, fmt.Errorf("this store does not know who claims: its directory is not shared: %w", punctual.ErrUnsupported)
	}
	return s.shared, nil
}

// Owner tells whether this process owns the directory.
func (s *Store) Owner() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned != nil
}

// full is what both kinds of stores can.
type full interface {
	punctual.Store
	punctual.Inspector
	punctual.Checker
	punctual.Examiner
	punctual.FinishedKeeper
	punctual.SpaceReporter
	punctual.Backuper
}

// enter returns the store to call, and the owner's when this process is that. The caller owes a s.calls.Done.
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

// do calls the store. After a call that reached no owner, or that may have been lost if unsure is set, it tries the next owner
// until Options.RetryFor is over.
func do[R any](ctx context.Context, s *Store, call func(f full, anew bool) (R, error), unsure bool) (R, error) {
	anew := false
	var until time.Time // when to give up; zero before the first failure
	for {
		f, owned, err := s.enter()
		if err != nil {
			var none R
			return none, err
		}
		r, err := call(f, anew)
		s.calls.Done()
		lost := unsure && errors.Is(err, punctual.ErrIndeterminate)
		switch {
		case err == nil, owned != nil, ctx.Err() != nil:
			return r, s.orClosed(err)
		case !lost && !errors.Is(err, punctual.ErrUnreachable), !until.IsZero() && !time.Now().Before(until):
			return r, s.orClosed(err)
		case until.IsZero():
			until = time.Now().Add(s.opt.RetryFor)
		}
		anew = anew || lost
		if err := s.next(ctx); err != nil {
			return r, s.orClosed(err)
		}
	}
}

// orClosed is what a call returns that the end of the store has ended.
func (s *Store) orClosed(err error) error {
	if err != nil && s.closing.Err() != nil && punctual.Definite(err) {
		return errClosed()
	}
	return err
}

// next waits a moment for the next owner, and becomes that if nobody else is.
func (s *Store) next(ctx context.Context) error {
	select {
	case <-s.turn:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing.Done():
		return errClosed()
	}
	defer func() { s.turn <- struct{}{} }()
	if s.Owner() {
		return nil // another call was first
	}
	err := s.takeOver()
	if !errors.Is(err, punctual.ErrLocked) {
		return err
	}
	s.sleep(ctx, pause)
	return nil
}
