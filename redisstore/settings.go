package redisstore

import (
	"cmp"
	"context"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Settings returns a topic's settings; see punctual.Inspector.
func (s *Store) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	return call(ctx, s, "settings", "of "+topic, storekit.CheckTopic(topic), func() (punctual.Settings, error) {
		l, err := s.topics.Load(ctx, topic)
		if err != nil {
			return punctual.Settings{}, err
		}
		return l.Settings(), nil
	})
}

// Configure changes a topic's settings; see punctual.Inspector.
func (s *Store) Configure(ctx context.Context, topic string, patch punctual.SettingsPatch) (punctual.Settings, error) {
	check := cmp.Or(storekit.CheckTopic(topic), storekit.CheckCompanionPatch(topic, &patch))
	return call(ctx, s, "configure", topic, check, func() (punctual.Settings, error) {
		set, err := s.topics.Configure(ctx, topic, patch)
		if err == nil && patch.Groups != nil {
			s.tellOfCompanions()
		}
		return set, err
	})
}
