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

// The settings of a topic are in the hash g of its partition: as JSON for programs, and field
// by field for the scripts, so that a change holds for every process at once.

// Settings returns a topic's settings; see punctual.Inspector.
func (s *Store) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	if err := s.enter(ctx); err != nil {
		return punctual.Settings{}, err
	}
	defer s.calls.Done()
	if err := punctual.CheckTopic(topic); err != nil {
		return punctual.Settings{}, fmt.Errorf("settings: %w", err)
	}
	set, _, err := s.settings(ctx, s.names.partition(topic))
	if err != nil {
		return punctual.Settings{}, fmt.Errorf("settings of %s: %w", topic, err)
	}
	return set, nil
}

// settings returns the settings with their version, which is 0 for a topic that does not
// exist.
func (s *Store) settings(ctx context.Context, p partition) (punctual.Settings, int64, error) {
	st, exists, err := s.stats(ctx, p)
	if err != nil || !exists {
		return punctual.DefaultSettings(), 0, err
	}
	return st.Settings, st.version, nil
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
	p := s.names.partition(topic)
	for {
		old, version, err := s.settings(ctx, p)
		if err != nil {
			return punctual.Settings{}, fmt.Errorf("configure %s: %w", topic, err)
		}
		changed, err := patch.Apply(old)
		if err != nil {
			return punctual.Settings{}, fmt.Errorf("configure %s: %w", topic, err)
		}
		done, err := s.storeSettings(ctx, p, changed, version)
		if err != nil {
			return punctual.Settings{}, fmt.Errorf("configure %s: %w", topic, err)
		}
		if done {
			changed.Backoff.Delays = slices.Clone(changed.Backoff.Delays) // the caller's
			return changed, nil
		}
	}
}

// createTopic makes a topic with the default settings unless it exists by now.
func (s *Store) createTopic(ctx context.Context, p partition) error {
	_, err := s.storeSettings(ctx, p, punctual.DefaultSettings(), 0)
	return err
}

// storeSettings stores settings made from those of the given version, or reports false when
// they are not current any more. A new topic is entered in the set of topics first, so that
// none is missing there, and once more when it is there, in case it was deleted meanwhile.
func (s *Store) storeSettings(ctx context.Context, p partition, x punctual.Settings, version int64) (bool, error) {
	if version == 0 {
		if err := s.register(ctx, p.topic); err != nil {
			return false, err
		}
	}
	fields, err := settingsFields(x)
	if err != nil {
		return false, err
	}
	a, err := s.runPartition(ctx, configureScript, p, append([]any{s.sender, version}, fields...)...)
	if err != nil {
		return false, err
	}
	done := a.int() == 1
	if a.bad {
		return false, badReply(configureScript)
	}
	if done {
		s.waits.hint(p.topic, -never)
	}
	if version > 0 {
		return done, nil
	}
	return done, s.register(ctx, p.topic)
}

func (s *Store) register(ctx context.Context, topic string) error {
	_, err := s.run(ctx, registryScript, []string{s.names.topics()}, []any{"add", topic})
	return err
}

// settingsFields are the fields of the hash g that hold settings.
func settingsFields(x punctual.Settings) ([]any, error) {
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
