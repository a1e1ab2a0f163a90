package redisstore

import (
	"context"
	"fmt"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Settings returns a topic's settings; see punctual.Inspector.
func (s *Store) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	if err := s.enter(ctx); err != nil {
		return punctual.Settings{}, err
	}
	defer s.calls.Done()
	if err := storekit.CheckTopic(topic); err != nil {
		return punctual.Settings{}, fmt.Errorf("settings: %w", err)
	}
	l, err := s.topics.Load(ctx, topic)
	if err != nil {
		return punctual.Settings{}, fmt.Errorf("settings of %s: %w", topic, err)
	}
	return l.Settings(), nil
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
	set, err := s.topics.Configure(ctx, topic, patch)
	if err != nil {
		return punctual.Settings{}, fmt.Errorf("configure %s: %w", topic, err)
	}
	return set, nil
}
