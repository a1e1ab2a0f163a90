package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/redis/go-redis/v9"
)

// What is asked of a server, at the start and every checkEvery from then on.
const (
	checkEvery   = 30 * time.Second
	checkTimeout = 10 * time.Second
	// maxSkew is how far the clocks of a cluster's nodes may be apart.
	maxSkew = 5 * time.Second
	// oldest is the oldest version of Redis that has all that the scripts need.
	oldest = "6.2.0"
)

// open checks the server and finds, or begins, the data set.
func (s *Store) open(ctx context.Context) error {
	class, err := s.checkServer(ctx)
	if err != nil {
		return err
	}
	if want := s.opt.Durability; want != "" && want != class.durability && want != punctual.Volatile {
		return fmt.Errorf("the server gives %q, not %q: %s: %w", class.durability, want, class.why, punctual.ErrDurability)
	}
	s.setDurability(class.durability)
	newEpoch := rand.Text()
	if s.opt.MustExist {
		newEpoch = ""
	}
	format, epoch, err := s.readStore(ctx, newEpoch, false)
	if err != nil {
		return err
	}
	if epoch == "" {
		return fmt.Errorf("there is no %s: %w", s.names.store(), punctual.ErrNotFound)
	}
	if format != formatVersion {
		return fmt.Errorf("%s has format %q, this program knows %q: use the version of Punctual that wrote it, or another prefix: %w",
			s.names.store(), format, formatVersion, punctual.ErrUnsupported)
	}
	s.epoch = epoch
	return nil
}

func (s *Store) setDurability(d punctual.Durability) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.durability = d
}

// readStore reads the hash of the whole store, and the clock on the way. If there is none it
// makes one with the given epoch, if that is not empty.
func (s *Store) readStore(ctx context.Context, newEpoch string, writeClock bool) (format, epoch string, err error) {
	a, err := s.runTimed(ctx, storeScript, []string{s.names.store()}, []any{newEpoch, formatVersion, flag(writeClock)})
	if err != nil {
		return "", "", err
	}
	format, epoch = a.string(), a.string()
	if a.bad {
		return "", "", badReply(storeScript)
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
		return s.fail(fmt.Errorf("the data set was wiped: %s has vanished, as after FLUSHALL or when the server came back empty; look for what did it and open the store anew: %w", s.names.store(), punctual.ErrStoreFailed))
	case epoch != s.epoch:
		return s.fail(fmt.Errorf("the data set was wiped and begun anew: %s is another one; open the store anew: %w", s.names.store(), punctual.ErrStoreFailed))
	}
	return nil
}

// watchServer looks at the server from time to time, until the store closes.
func (s *Store) watchServer() {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.lookAtServer()
		case <-s.closing:
			return
		}
	}
}

// lookAtServer notices what has become dangerous, and stops the store when the data is gone.
func (s *Store) lookAtServer() {
	ctx, end := context.WithTimeout(context.Background(), checkTimeout)
	defer end()
	if err := s.checkEpoch(ctx, true); err != nil {
		s.opt.Logger.Warn("redis store: check of the data set", "error", err)
		return
	}
	class, err := s.checkServer(ctx)
	if err != nil {
		s.opt.Logger.Warn("redis store: check of the server", "error", err)
		return
	}
	if was := s.Durability(); was != class.durability {
		s.opt.Logger.Warn("redis store: the server's durability has changed", "was", was, "is", class.durability, "because", class.why)
		s.setDurability(class.durability)
	}
}

// durabilityClass is what a server gives and why not more.
type durabilityClass struct {
	durability punctual.Durability
	why        string
}

// checkServer looks at every primary and returns the weakest class, or an error that
// names the setting which makes a server unfit.
func (s *Store) checkServer(ctx context.Context) (durabilityClass, error) {
	found, err := s.primaries(ctx)
	if err != nil {
		return durabilityClass{}, err
	}
	class := durabilityClass{durability: punctual.Fsync}
	for _, p := range found {
		if err := p.fit(); err != nil {
			return class, err
		}
		if c := p.class(); c.durability != punctual.Fsync {
			class = c
		}
	}
	if why := s.failsOver(found); why != "" {
		class = durabilityClass{punctual.Volatile, why}
	}
	return class, skewOf(found)
}

// failsOver says why a replica without the last changes may take over, or nothing.
func (s *Store) failsOver(found []primary) string {
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		for _, p := range found {
			if p.info["connected_slaves"] != "0" {
				return "a cluster with replicas fails over without the latest changes"
			}
		}
	case *redis.Client:
		if c.Options().Addr == sentinelAddr {
			return "Sentinel fails over without the latest changes"
		}
	}
	return ""
}

// sentinelAddr is what the client for Sentinel has in the place of an address.
const sentinelAddr = "FailoverClient"

// primary is a server that takes writes.
type primary struct {
	info  map[string]string // of INFO
	fsync string            // of CONFIG GET appendfsync; empty if the user may not read it
	ahead time.Duration     // its clock before the machine's
}

// primaries asks the server, or each primary of a cluster.
func (s *Store) primaries(ctx context.Context) ([]primary, error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		p, err := ask(ctx, s.client)
		return []primary{p}, err
	}
	var mu sync.Mutex
	var found []primary
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		p, err := ask(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		found = append(found, p)
		return err
	})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("the cluster has no primary: %w", punctual.ErrOverloaded)
	}
	return found, err
}

func ask(ctx context.Context, c redis.Cmdable) (primary, error) {
	text, err := c.Info(ctx).Result()
	if err != nil {
		return primary{}, classify(err).wrap("INFO", err)
	}
	now, err := c.Time(ctx).Result()
	if err != nil {
		return primary{}, classify(err).wrap("TIME", err)
	}
	p := primary{info: parseInfo(text), ahead: time.Until(now)}
	// Some providers hide CONFIG; then the weakest is assumed.
	if got, err := c.ConfigGet(ctx, "appendfsync").Result(); err == nil {
		p.fsync = got["appendfsync"]
	}
	return p, nil
}

func parseInfo(text string) map[string]string {
	out := make(map[string]string)
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[k] = v
		}
	}
	return out
}

// fit says why a server must not be used, or nothing.
func (p *primary) fit() error {
	if older(p.info["redis_version"], oldest) {
		return fmt.Errorf("the server is Redis %s: %s or newer is needed: %w", p.info["redis_version"], oldest, punctual.ErrUnsupported)
	}
	if policy := p.info["maxmemory_policy"]; policy != "noeviction" {
		return fmt.Errorf("the server may evict messages: set maxmemory-policy to noeviction (it is %s): %w", policy, punctual.ErrDurability)
	}
	return nil
}

// class is the durability of one server, as promise P1 counts it.
func (p *primary) class() durabilityClass {
	switch {
	case p.info["aof_enabled"] != "1":
		return durabilityClass{punctual.Volatile, "set appendonly to yes and appendfsync to always (there is no append-only file)"}
	case p.fsync == "":
		return durabilityClass{punctual.Volatile, "let this user run CONFIG GET appendfsync (it may not, so appendfsync is unknown)"}
	case p.fsync != "always":
		return durabilityClass{punctual.Volatile, "set appendfsync to always (it is " + p.fsync + ")"}
	}
	return durabilityClass{durability: punctual.Fsync}
}

// skewOf is an error when the clocks of servers are too far apart to be one clock (P8).
func skewOf(found []primary) error {
	byClock := func(a, b primary) int { return int(a.ahead - b.ahead) }
	first, last := slices.MinFunc(found, byClock), slices.MaxFunc(found, byClock)
	if apart := last.ahead - first.ahead; apart > maxSkew {
		return fmt.Errorf("the clocks of the cluster's nodes are %v apart: set them, as with NTP: %w", apart.Round(time.Millisecond), punctual.ErrDurability)
	}
	return nil
}

// older compares versions of the form 7.0.15.
func older(version, than string) bool {
	a, errA := numbers(version)
	b, errB := numbers(than)
	return errors.Join(errA, errB) != nil || slices.Compare(a, b) < 0
}

func numbers(version string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("version %q: %w", version, err)
		}
		out = append(out, n)
	}
	return out, nil
}
