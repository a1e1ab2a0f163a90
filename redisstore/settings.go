package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// The settings of a topic are in the hash g of its partitions: as JSON for programs, and field by field for the
// scripts. So a change holds for every process at once. How a change gets to all partitions is in layout.go.

// Settings returns a topic's settings; see punctual.Inspector.
func (s *Store) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	if err := s.enter(ctx); err != nil {
		return punctual.Settings{}, err
	}
	defer s.calls.Done()
	if err := storekit.CheckTopic(topic); err != nil {
		return punctual.Settings{}, fmt.Errorf("settings: %w", err)
	}
	l, err := s.load(ctx, topic)
	if err != nil {
		return punctual.Settings{}, fmt.Errorf("settings of %s: %w", topic, err)
	}
	return l.ownSettings(), nil
}

// ownSettings are for the caller to keep.
func (l *layout) ownSettings() punctual.Settings {
	set := l.settings
	set.Backoff.Delays = slices.Clone(set.Backoff.Delays)
	return set
}

// Configure changes a topic's settings; see punctual.Inspector.
func (s *Store) Configure(ctx context.Context, topic string, patch punctual.SettingsPatch) (punctual.Settings, error) {
	if err := s.enter(ctx); err != nil {
		return punctual.Settings{}, err
	}
	defer s.calls.Done()
	if err := storekit.CheckTopic(topic); err != nil {
		return punctual.Settings{}, fmt.Errorf("configure: %w", err)
	}
	for {
		old, err := s.load(ctx, topic)
		if err != nil {
			return punctual.Settings{}, fmt.Errorf("configure %s: %w", topic, err)
		}
		if n := patch.Partitions; n != nil && old.exists() && *n != old.size() {
			return punctual.Settings{}, fmt.Errorf("configure %s: %d partitions: the topic has %d, which is fixed when a topic comes into being; use a new topic: %w", topic, *n, old.size(), punctual.ErrInvalid)
		}
		set, err := storekit.ApplySettings(old.settings, patch, storekit.AllAbilities())
		if err != nil {
			return punctual.Settings{}, fmt.Errorf("configure %s: %w", topic, err)
		}
		l, done, err := s.change(ctx, topic, old, set)
		if err != nil {
			return punctual.Settings{}, fmt.Errorf("configure %s: %w", topic, err)
		}
		if done {
			return l.ownSettings(), nil
		}
	}
}

// create makes a topic that does not exist, and returns what is known of it then.
func (s *Store) create(ctx context.Context, topic string, old *layout) (*layout, error) {
	l, done, err := s.change(ctx, topic, old, s.newSettings())
	if err != nil || done {
		return l, err
	}
	return s.load(ctx, topic)
}

// change gives a topic other settings, or reports false when the old ones are not current any
// more. A new topic is entered among the names of topics first, so that none is missing there. A deletion of
// an older version leaves the name.
func (s *Store) change(ctx context.Context, topic string, old *layout, set punctual.Settings) (*layout, bool, error) {
	l, err := old.with(set, s.clock.Guess()/1000)
	if err != nil {
		return nil, false, err
	}
	if !old.exists() {
		if _, err := s.registry(ctx, "add", topic, l.version); err != nil {
			return nil, false, err
		}
	}
	done, err := s.propose(ctx, topic, l, old.latest())
	return l, done, err
}

// with is the next version, with other settings. That of a topic that comes into being is not below now, in
// ms, because nobody may know the versions that there were before.
func (l *layout) with(set punctual.Settings, now int64) (*layout, error) {
	version := l.latest() + 1
	if !l.exists() {
		version = max(version, now)
	}
	next := &layout{version: version, token: l.token, settings: set}
	next.settings.Backoff.Delays = slices.Clone(set.Backoff.Delays)
	var err error
	next.fields, err = next.hash()
	// A topic that never kept stories does not have the field, by which the scripts know it. One that keeps none any more may
	// still have some.
	if keep := storekit.CeilDuration(set.FinishedRetention); keep > 0 || slices.Contains(l.fields, any(finishedField)) {
		next.fields = append(next.fields, finishedField, keep)
	}
	return next, err
}

// registry runs the script of the names of topics, for one that comes into being with a version, or was deleted from
// one.
func (s *Store) registry(ctx context.Context, verb, topic string, version int64) (*script.Answer, error) {
	a, err := s.route.RunStore(ctx, script.Registry, s.names.Topics(), verb, topic, version, s.clock.Deadline(ctx, route.CallTime))
	if errors.Is(err, errkind.ErrLate) && punctual.Definite(err) && s.clock.Passed(ctx) {
		return nil, context.DeadlineExceeded
	}
	return a, err
}

// hash are the fields of the hash g that hold the settings.
func (l *layout) hash() ([]any, error) {
	x := l.settings
	text, err := storekit.EncodeSettings(x)
	if err != nil {
		return nil, err
	}
	delays, jitter := backoffFields(x.Backoff)
	return []any{
		"settings", text,
		"lease", storekit.CeilDuration(x.Lease),
		"max_attempts", x.MaxAttempts,
		"push_paused", script.Flag(x.PushPaused),
		"delivery_paused", script.Flag(x.DeliveryPaused),
		"dedupe_window", storekit.CeilDuration(x.DedupeWindow),
		"dead_retention", storekit.CeilDuration(x.DeadRetention),
		"delays", delays,
		"jitter", jitter,
	}, nil
}

// finishedField is the field of the hash g for how long stories are kept.
const finishedField = "finished_retention"

// maxDoublings is after how many attempts the longest delay is surely reached: it is at most
// ten years, which is less than 2^59 ns.
const maxDoublings = 60

// backoffFields writes a backoff as the delays, in ms, after the first attempts, of which the
// last is for all further ones, and the jitter.
func backoffFields(b punctual.Backoff) (delays, jitter string) {
	steps := b.Delays
	if len(steps) == 0 {
		jitter = strconv.FormatFloat(b.Jitter, 'g', -1, 64)
		b.Jitter = 0
		for n := 1; n <= maxDoublings && (n == 1 || steps[n-2] < b.Max); n++ {
			steps = append(steps, storekit.RetryDelay(b, n))
		}
	}
	var out []string
	for _, d := range steps {
		out = append(out, strconv.FormatInt(storekit.CeilDuration(d), 10))
	}
	if jitter == "" {
		jitter = "0"
	}
	return strings.Join(out, " "), jitter
}
