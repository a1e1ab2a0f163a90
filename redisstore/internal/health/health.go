// Package health checks the servers of a store when the store opens, and regularly from then on:
// version, eviction, durability, clocks, the user's rights, and whether the data set is still the
// one that was opened. It has pushes refused while the servers do not give what was asked for, and
// makes the store's clock step back when the servers' clocks were set back. It has one background
// loop.
package health

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/clock"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
	"github.com/redis/go-redis/v9"
)

// Options configure a Health.
type Options struct {
	Names  keys.Names
	Route  *route.Router
	Clock  *clock.Clock
	Logger *slog.Logger
	// Durability is the class that the server must give; empty takes the server as it is.
	Durability punctual.Durability
	// Replicas is how many replicas have to confirm a change with class replicated; 0 stands for 1.
	Replicas int
	// MustExist makes Open fail if there is no data set, instead of beginning one.
	MustExist bool
	// CheckEvery is the time between two checks of the server; 0 stands for checkEvery, 30 s.
	CheckEvery time.Duration
	// Fail stops the store for good because of err, and returns the error with which it has
	// stopped.
	Fail func(error) error
}

// Health checks a store's servers and keeps the results. All methods are safe for concurrent use
// once Open has returned, or if Open is never called, as for an examination alone.
type Health struct {
	client redis.UniversalClient
	o      Options
	epoch  string        // proves that the data set is the one that was opened
	soon   chan struct{} // holds one request to check the server
	quit   chan struct{} // closed by Close
	work   sync.WaitGroup

	mu         sync.Mutex
	durability punctual.Durability // guarded by mu
	refusing   error               // guarded by mu: why pushes are refused, or nil
}

// New returns a Health that has checked nothing yet.
func New(client redis.UniversalClient, o Options) *Health {
	return &Health{client: client, o: o, soon: make(chan struct{}, 1), quit: make(chan struct{})}
}

// Start starts the background loop, which watches the clock each second, and checks the server
// every Options.CheckEvery, at least each second while pushes are refused, and when Soon was
// called.
func (h *Health) Start() { h.work.Go(h.watch) }

// Close ends the background loop and waits for it.
func (h *Health) Close() {
	close(h.quit)
	h.work.Wait()
}

// Durability returns the class that the servers gave at the last check that could tell.
func (h *Health) Durability() punctual.Durability {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.durability
}

// checkEvery is the time between two checks of the server. A check that has taken checkTimeout
// sends no further command.
const (
	checkEvery   = 30 * time.Second
	checkTimeout = 10 * time.Second
	// checkRefusing is the time between two checks while pushes are refused, so that pushes pass
	// again soon after the server has been set right.
	checkRefusing = time.Second
)

// Open checks the server, and finds the data set or begins one.
func (h *Health) Open(ctx context.Context) error {
	if err := h.checkMode(ctx); err != nil {
		return err
	}
	if err := h.checkRights(ctx); err != nil {
		return err
	}
	class, err := h.checkServer(ctx, true)
	if err != nil {
		return err
	}
	if err := h.o.refuses(class); err != nil {
		return err
	}
	h.setDurability(class.durability)
	return h.openData(ctx)
}

// formatVersion is the version of the format that docs/format-redis.md draws.
const formatVersion = "2"

// otherFormat returns what a user can do about a store of another format.
func otherFormat(format string) string {
	if format == "1" {
		return "format 1 divided topics in another way: let the program that wrote it deliver what is there, and begin anew under another prefix"
	}
	return "use the version of Punctual that wrote it, or another prefix"
}

// openData reads the data set's epoch, or begins a data set if there is none and MustExist is not
// set.
func (h *Health) openData(ctx context.Context) error {
	newEpoch := rand.Text()
	if h.o.MustExist {
		newEpoch = ""
	}
	d, err := h.readStore(ctx, newEpoch, false, "")
	if err != nil {
		return route.AsRefusal(err)
	}
	if d.epoch == "" {
		return fmt.Errorf("there is no %s: %w", h.o.Names.Store(), punctual.ErrNotFound)
	}
	if d.format != formatVersion {
		return fmt.Errorf("%s has format %q, this program knows %q: %s: %w",
			h.o.Names.Store(), d.format, formatVersion, otherFormat(d.format), punctual.ErrUnsupported)
	}
	h.epoch = d.epoch
	return nil
}

// checkRights returns an error that names the rights which this user needs and lacks, or nil. It
// logs a warning if the user lacks rights to notifications alone.
func (h *Health) checkRights(ctx context.Context) error {
	lacking, err := h.lackingRights(ctx)
	if err != nil {
		return err
	}
	if err := lacking.err(); err != nil {
		return err
	}
	notifications, err := h.lackingToListen(ctx)
	if err != nil {
		return err
	}
	if notifications = append(notifications, lacking.listening...); len(notifications) > 0 {
		h.o.Logger.Warn("redis store: no notifications, so waiting claims are up to a second late: this user lacks rights", "rights", strings.Join(notifications, " "))
	}
	return nil
}

func (h *Health) setDurability(d punctual.Durability) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.durability = d
}

// dataSet is what the hash of the whole store says.
type dataSet struct {
	format, epoch string              // empty if there is no such hash
	clock         storekit.ClockState // but Ahead
	stepped       bool                // the call that has read this has made the last step of the clock
}

// readStore reads the hash of the whole store, and its answer tells the clock the time. If there is
// no such hash, readStore makes one with the given epoch, unless that is empty. writeClock has the
// time written into the hash. stepTo is empty, or the time in ms to which the clock is to step back
// if it is ahead.
func (h *Health) readStore(ctx context.Context, newEpoch string, writeClock bool, stepTo string) (dataSet, error) {
	a, err := h.o.Route.RunStore(ctx, script.Store, h.o.Names.Store(), newEpoch, formatVersion, script.Flag(writeClock), stepTo)
	if err != nil {
		return dataSet{}, err
	}
	d := dataSet{format: a.Text(), epoch: a.Text()}
	d.clock = storekit.ClockState{Now: storekit.FromMillis(a.Now), Follows: "Redis server", Steps: a.Era}
	if from, to, ok := script.StepOf(a.Text()); ok {
		d.clock.Last = storekit.ClockStep{From: storekit.FromMillis(from), To: storekit.FromMillis(to)}
	}
	d.stepped = a.Int() == 1
	if a.Bad {
		return dataSet{}, script.BadReply(script.Store)
	}
	return d, nil
}

// CheckData verifies that the data set is still the one that was opened. If it is not, CheckData
// stops the store, because what was reported as stored is not there any more. writeClock has the
// time written down for the next process.
func (h *Health) CheckData(ctx context.Context, writeClock bool) error {
	d, err := h.readStore(ctx, "", writeClock, "")
	switch {
	case err != nil:
		return err
	case d.epoch == "":
		return h.o.Fail(fmt.Errorf("the data set was wiped: %s has vanished, as after FLUSHALL or when the server came back empty; look for what did it and open the store anew: %w", h.o.Names.Store(), punctual.ErrStoreFailed))
	case d.epoch != h.epoch:
		return h.o.Fail(fmt.Errorf("the data set was wiped and begun anew: %s is another one; open the store anew: %w", h.o.Names.Store(), punctual.ErrStoreFailed))
	}
	return nil
}

// watch is the background loop: it watches the clock and checks the server regularly, and checks
// whenever Soon was called, until Close.
func (h *Health) watch() {
	for checked := time.Now(); ; {
		left := h.untilCheck() - time.Since(checked)
		timer := time.NewTimer(min(left, watchClockEvery))
		select {
		case <-timer.C:
		case <-h.soon:
			left = 0
		case <-h.quit:
			timer.Stop()
			return
		}
		timer.Stop()
		if left <= watchClockEvery {
			h.Check()
			checked = time.Now()
		}
		h.watchClock()
	}
}

// watchClock is WatchClock for the background loop. While a server does not answer, Check says so.
// Close ends the pauses between the tries of the client.
func (h *Health) watchClock() {
	ctx, end := context.WithTimeout(context.Background(), checkTimeout)
	defer end()
	watched := make(chan struct{})
	defer close(watched)
	h.work.Go(func() {
		select {
		case <-h.quit:
			end()
		case <-watched:
		}
	})
	if err := h.WatchClock(ctx); err != nil {
		h.o.Logger.Debug("redis store: the clocks of the servers", "error", err)
	}
}

func (h *Health) untilCheck() time.Duration {
	every := checkEvery
	if h.o.CheckEvery > 0 {
		every = h.o.CheckEvery
	}
	if h.Refusal() != nil {
		return min(every, checkRefusing)
	}
	return every
}

// Soon makes the background loop check the server at once, because something went wrong. It does
// not wait.
func (h *Health) Soon() {
	select {
	case h.soon <- struct{}{}:
	default:
	}
}

// Check checks the server once. It has pushes refused if the server does not give the durability
// that was asked for or has become unfit for another reason, and lets them pass again if nothing is
// wrong. It stops the store if the data is gone.
func (h *Health) Check() {
	ctx, end := context.WithTimeout(context.Background(), checkTimeout)
	defer end()
	err := h.CheckRunning(ctx)
	switch {
	case err == nil, errors.Is(err, punctual.ErrDurability), errors.Is(err, punctual.ErrUnsupported):
		h.Refuse(err)
	case errors.Is(err, punctual.ErrUnreachable): // nothing is known then, so pushes pass or are refused as before, and the errors of calls say why
		h.o.Logger.Debug("redis store: check of the server", "error", err)
	default:
		h.o.Logger.Warn("redis store: check of the server", "error", err)
	}
}

// CheckRunning repeats the checks of Open on a store that is open, but not those of the client's
// kind, of the format and of the rights to notifications.
func (h *Health) CheckRunning(ctx context.Context) error {
	data := h.CheckData(ctx, true)
	if data != nil && !route.IsUnconfirmed(data) {
		return data
	}
	class, err := h.checkServer(ctx, false) // in a failover the calls say themselves that the server is a replica
	if err != nil {
		return err
	}
	if was := h.Durability(); was != class.durability {
		h.o.Logger.Warn("redis store: the server's durability has changed", "was", was, "is", class.durability, "because", class.why)
		h.setDurability(class.durability)
	}
	if err := cmp.Or(h.o.refuses(class), route.AsRefusal(data)); err != nil {
		return err
	}
	lacking, err := h.lackingRights(ctx)
	if err != nil {
		return err
	}
	return lacking.err()
}

// Refuse makes pushes fail with err, or lets them pass again when it is nil.
func (h *Health) Refuse(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch was := h.refusing; {
	case err != nil && (was == nil || was.Error() != err.Error()):
		h.o.Logger.Error("redis store: pushes are refused until this is mended", "error", err)
	case err == nil && was != nil:
		h.o.Logger.Info("redis store: pushes pass again")
	}
	h.refusing = err
}

// Refusal returns why pushes are refused, or nil.
func (h *Health) Refusal() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refusing
}

// checkServer asks every primary and returns the class that they give together. It returns an error
// if a primary does not answer, if one is unfit, or if their clocks are too far apart; with opening
// also if one is a replica.
func (h *Health) checkServer(ctx context.Context, opening bool) (durabilityClass, error) {
	found, err := primaries(ctx, h.client)
	if err != nil {
		return durabilityClass{}, err
	}
	for i := range found {
		if err := found[i].fit(); err != nil {
			return durabilityClass{}, err
		}
	}
	if opening {
		err = refuseReplica(found)
	}
	return classOf(h.client, found, &h.o), cmp.Or(err, skewOf(found))
}
