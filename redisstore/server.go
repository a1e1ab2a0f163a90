package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/script"
)

// What is asked of a server at the start, and again and again from then on.
const (
	checkEvery   = 30 * time.Second
	checkTimeout = 10 * time.Second
	// checkRefusing is the same while pushes are refused, so that they soon pass again.
	checkRefusing = time.Second
)

// open checks the server and finds, or begins, the data set.
func (s *Store) open(ctx context.Context) error {
	if err := s.checkRights(ctx); err != nil {
		return err
	}
	class, err := s.checkServer(ctx)
	if err != nil {
		return err
	}
	if err := s.opt.refuses(class); err != nil {
		return err
	}
	s.setDurability(class.durability)
	return s.openData(ctx)
}

// formatVersion is that of the layout drawn in docs/format-redis.md.
const formatVersion = "2"

// otherFormat says what to do about a store of another format.
func otherFormat(format string) string {
	if format == "1" {
		return "format 1 divided topics in another way: let the program that wrote it deliver what is there, and begin anew under another prefix"
	}
	return "use the version of Punctual that wrote it, or another prefix"
}

// openData finds, or begins, the data set.
func (s *Store) openData(ctx context.Context) error {
	newEpoch := rand.Text()
	if s.opt.MustExist {
		newEpoch = ""
	}
	format, epoch, err := s.readStore(ctx, newEpoch, false)
	if err != nil {
		return asRefusal(err)
	}
	if epoch == "" {
		return fmt.Errorf("there is no %s: %w", s.names.Store(), punctual.ErrNotFound)
	}
	if format != formatVersion {
		return fmt.Errorf("%s has format %q, this program knows %q: %s: %w",
			s.names.Store(), format, formatVersion, otherFormat(format), punctual.ErrUnsupported)
	}
	s.epoch = epoch
	if epoch == newEpoch {
		return s.checkRights(ctx) // one right can be tried only where there is a store
	}
	return nil
}

// checkRights is an error that names the rights which this user needs and has not.
func (s *Store) checkRights(ctx context.Context) error {
	lacking, err := s.lackingRights(ctx)
	if err != nil {
		return err
	}
	notifications, err := s.lackingToListen(ctx)
	if err != nil {
		return err
	}
	if notifications = append(notifications, lacking.listening...); len(notifications) > 0 {
		s.opt.Logger.Warn("redis store: no notifications, so waiting claims are up to a second late: this user lacks rights", "rights", strings.Join(notifications, " "))
	}
	return lacking.err()
}

func (s *Store) setDurability(d punctual.Durability) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.durability = d
}

// readStore reads the hash of the whole store, and the clock on the way. If there is none it
// makes one with the given epoch, if that is not empty.
func (s *Store) readStore(ctx context.Context, newEpoch string, writeClock bool) (format, epoch string, err error) {
	a, err := s.runStore(ctx, script.Store, s.names.Store(), newEpoch, formatVersion, flag(writeClock))
	if err != nil {
		return "", "", err
	}
	format, epoch = a.Text(), a.Text()
	if a.Bad {
		return "", "", script.BadReply(script.Store)
	}
	return format, epoch, nil
}

// checkEpoch verifies that the data set is still the one that was opened. If it is not, the
// store stops: what was reported as stored is not there any more.
func (s *Store) checkEpoch(ctx context.Context, writeClock bool) error {
	_, epoch, err := s.readStore(ctx, "", writeClock)
	switch {
	case err != nil:
		return err
	case epoch == "":
		return s.fail(fmt.Errorf("the data set was wiped: %s has vanished, as after FLUSHALL or when the server came back empty; look for what did it and open the store anew: %w", s.names.Store(), punctual.ErrStoreFailed))
	case epoch != s.epoch:
		return s.fail(fmt.Errorf("the data set was wiped and begun anew: %s is another one; open the store anew: %w", s.names.Store(), punctual.ErrStoreFailed))
	}
	return nil
}

// watchServer looks at the server from time to time, and when somebody asks for it, until the
// store closes.
func (s *Store) watchServer() {
	for {
		timer := time.NewTimer(s.untilLook())
		select {
		case <-timer.C:
		case <-s.lookNow:
		case <-s.closing:
			timer.Stop()
			return
		}
		timer.Stop()
		s.lookAtServer()
	}
}

func (s *Store) untilLook() time.Duration {
	every := checkEvery
	if s.opt.checkEvery > 0 {
		every = s.opt.checkEvery
	}
	if s.refusal() != nil {
		return min(every, checkRefusing)
	}
	return every
}

// lookSoon has the server looked at before it is time, because something went wrong.
func (s *Store) lookSoon() {
	select {
	case s.lookNow <- struct{}{}:
	default:
	}
}

// lookAtServer notices what has become dangerous: it refuses pushes as long as the server
// cannot keep them as was asked for, and stops the store when the data is gone.
func (s *Store) lookAtServer() {
	ctx, end := context.WithTimeout(context.Background(), checkTimeout)
	defer end()
	err := s.checkRunning(ctx)
	switch {
	case err == nil, errors.Is(err, punctual.ErrDurability), errors.Is(err, punctual.ErrUnsupported):
		s.refuse(err)
	default: // of a server that cannot be asked nothing is known
		s.opt.Logger.Warn("redis store: check of the server", "error", err)
	}
}

// checkRunning looks again at what Open has checked.
func (s *Store) checkRunning(ctx context.Context) error {
	data := s.checkEpoch(ctx, true)
	if data != nil && !isUnconfirmed(data) {
		return data
	}
	class, err := s.checkServer(ctx)
	if err != nil {
		return err
	}
	if was := s.Durability(); was != class.durability {
		s.opt.Logger.Warn("redis store: the server's durability has changed", "was", was, "is", class.durability, "because", class.why)
		s.setDurability(class.durability)
	}
	if err := cmp.Or(s.opt.refuses(class), asRefusal(data)); err != nil {
		return err
	}
	lacking, err := s.lackingRights(ctx)
	if err != nil {
		return err
	}
	return lacking.err()
}

// refuse makes pushes fail with err, or lets them pass again when it is nil.
func (s *Store) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch was := s.refusing; {
	case err != nil && (was == nil || was.Error() != err.Error()):
		s.opt.Logger.Error("redis store: pushes are refused until this is mended", "error", err)
	case err == nil && was != nil:
		s.opt.Logger.Info("redis store: pushes pass again")
	}
	s.refusing = err
}

// refusal is why pushes are refused, or nil.
func (s *Store) refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusing
}

// checkServer looks at every primary and returns the class that they give, or an error that
// names the setting which makes a server unfit.
func (s *Store) checkServer(ctx context.Context) (durabilityClass, error) {
	found, err := primaries(ctx, s.client)
	if err != nil {
		return durabilityClass{}, err
	}
	for i := range found {
		if err := found[i].fit(); err != nil {
			return durabilityClass{}, err
		}
	}
	return classOf(s.client, found, &s.opt), skewOf(found)
}
