package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/punctualmq/punctual"
)

// The settings of a topic are in the hash g of its partitions: as JSON for programs, and field
// by field for the scripts, so that a change holds for every process at once. How a change
// gets to all partitions is in layout.go.

// Settings returns a topic's settings; see punctual.Inspector.
func (s *Store) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	if err := s.enter(ctx); err != nil {
		return punctual.Settings{}, err
	}
	defer s.calls.Done()
	if err := punctual.CheckTopic(topic); err != nil {
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
	if err := punctual.CheckTopic(topic); err != nil {
		return punctual.Settings{}, fmt.Errorf("configure: %w", err)
	}
	for {
		old, err := s.load(ctx, topic)
		if err != nil {
			return punctual.Settings{}, fmt.Errorf("configure %s: %w", topic, err)
		}
		set, err := patch.Apply(old.settings)
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
// more. A new topic is entered in the set of topics first, so that none is missing there, and
// once more when it is there, in case it was deleted meanwhile.
func (s *Store) change(ctx context.Context, topic string, old *layout, set punctual.Settings) (*layout, bool, error) {
	l, err := old.with(set)
	if err != nil {
		return nil, false, err
	}
	if old.exists() {
		done, err := s.propose(ctx, topic, l, old.latest())
		return l, done, err
	}
	if err := s.register(ctx, topic); err != nil {
		return nil, false, err
	}
	done, err := s.propose(ctx, topic, l, old.latest())
	if err != nil || !done {
		return nil, false, err
	}
	return l, true, s.register(ctx, topic)
}

// with is the next version, with other settings.
func (l *layout) with(set punctual.Settings) (*layout, error) {
	next := &layout{version: l.latest() + 1, token: l.token, settings: set}
	if l.exists() {
		next.sizes = slices.Clone(l.sizes)
	}
	if len(next.sizes) == 0 || next.size() != set.Partitions {
		next.sizes = append(next.sizes, set.Partitions)
	}
	next.settings.Backoff.Delays = slices.Clone(set.Backoff.Delays)
	var err error
	next.fields, err = next.hash()
	return next, err
}

func (s *Store) register(ctx context.Context, topic string) error {
	_, err := s.run(ctx, registryScript, []string{s.names.topics()}, []any{"add", topic})
	return err
}

// hash are the fields of the hash g that hold the settings.
func (l *layout) hash() ([]any, error) {
	x := l.settings
	text, err := json.Marshal(x)
	if err != nil {
		return nil, fmt.Errorf("settings cannot be written down: %w", err)
	}
	delays, jitter := backoffFields(x.Backoff)
	return []any{
		"settings", text,
		"lease", punctual.CeilDuration(x.Lease),
		"attempts", x.MaxAttempts,
		"pausedin", flag(x.PausedIn),
		"pausedout", flag(x.PausedOut),
		"remember", punctual.CeilDuration(x.Remember),
		"retention", punctual.CeilDuration(x.DeadRetention),
		"delays", delays,
		"jitter", jitter,
		"sizes", strings.Trim(fmt.Sprint(l.sizes), "[]"),
	}, nil
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

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
			steps = append(steps, b.Delay(n))
		}
	}
	var out []string
	for _, d := range steps {
		out = append(out, strconv.FormatInt(punctual.CeilDuration(d), 10))
	}
	if jitter == "" {
		jitter = "0"
	}
	return strings.Join(out, " "), jitter
}
