package sharedstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/remotestore"
)

// open makes this process the owner, or connects it with an owner that shares the directory.
func (s *Store) open(ctx context.Context) error {
	began, owner, owners := time.Now(), "", 0
	since := began // when the present owner was first seen
	for wait := pause; ; wait = min(2*wait, lastPause) {
		locked := s.takeOver()
		if !errors.Is(locked, punctual.ErrLocked) {
			return locked
		}
		err := s.connect(ctx)
		now := time.Now()
		if name := locked.Error(); name != owner { // the error names the owner and since when it has had the directory
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
		s.sleep(ctx, wait/2+rand.N(wait)) // the time is random, so that many programs do not try at the same moment
	}
}

// pause is how long a call waits after an attempt to become the owner, before it tries again.
// Between its attempts Open waits on average for pause at first and twice as long each time, up to
// lastPause.
const (
	pause     = 10 * time.Millisecond
	lastPause = 80 * time.Millisecond
)

// sleep waits for d. It returns earlier when ctx ends or the store is closed.
func (s *Store) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-s.closing.Done():
	}
}

// connect opens the store of the process that owns the directory, through its socket, and sets
// remote.
func (s *Store) connect(ctx context.Context) error {
	ctx, end := context.WithTimeout(ctx, 5*time.Second)
	defer end()
	r, err := remotestore.Open(ctx, []string{"unix:" + filepath.Join(s.dir, SocketName)}, &remotestore.Options{
		Logger: s.opt.Logger,
		// A call is not repeated when nobody listens on the socket, because then this process may
		// become the owner at once.
		RetryFor: -1,
		// The timeout is long, because an owner that answers slowly is still the owner, and no
		// other process could answer.
		Timeout: time.Minute,
	})
	s.remote = r
	return err
}

// takeOver makes this process the owner of the directory, and shares the directory if that is
// possible. It returns the error of diskstore.Open. The caller has the token of turn, or is open,
// beside which there is no other call yet.
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

// Owner reports whether this process owns the directory, or did when the store was closed.
func (s *Store) Owner() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned != nil
}

// next makes this process the owner if no other process is, and waits a moment otherwise.
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
		return nil // another call has made this process the owner meanwhile
	}
	err := s.takeOver()
	if !errors.Is(err, punctual.ErrLocked) {
		return err
	}
	s.sleep(ctx, pause)
	return nil
}
