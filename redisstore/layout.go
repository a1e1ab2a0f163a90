package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// Partition 0 of a topic decides on its settings. The number of partitions is one of them, and stays
// as the topic was created with. Every partition has a copy, for its scripts. Each change makes a new version:
//
//  1. partition 0 takes it, if it still has the version that the change was made from;
//  2. all other partitions take it, unless they have a later one;
//  3. partition 0 notes that all have it (spread).
//
// Nobody acts on a version before all partitions have it: who meets one that has not been
// spread does steps 2 and 3 first. So whoever acts on an older version learns of the newer one from
// whatever partition it turns to. There a push for an older version is refused.
//
// docs/decisions/0011 says why.

// layout is a version of a topic's settings, as partition 0 has it. It does not change once another
// goroutine can see it, which is when it is adopted.
type layout struct {
	version  int64             // 0 or less: there is no such topic, see answer.version
	spread   int64             // the version that all partitions are known to have
	token    int64             // the newest of partition 0
	settings punctual.Settings // the defaults if there is no such topic
	fields   []any             // of the hash g: what the partitions have copies of
}

func (l *layout) exists() bool { return l.version > 0 }

// latest is the newest version that partition 0 has had, whether or not the topic exists.
func (l *layout) latest() int64 { return max(l.version, -l.version) }

// size is the number of partitions. Of a topic that does not exist it is 1: partition 0 knows.
func (l *layout) size() int {
	if !l.exists() {
		return 1
	}
	return l.settings.Partitions
}

// layouts remembers what this process knows of topics. What it knows may be out of date, but
// has been spread.
type layouts struct {
	mu sync.Mutex
	of map[string]*layout // guarded by mu: by topic
}

func (k *layouts) init() { k.of = make(map[string]*layout) }

// unknownTopic is a topic of which nothing is known.
var unknownTopic = &layout{settings: punctual.DefaultSettings()}

// known returns what is known of a topic.
func (k *layouts) known(topic string) *layout {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.of[topic]; l != nil {
		return l
	}
	return unknownTopic
}

// learn remembers a layout and reports whether it is another version than what was known.
func (k *layouts) learn(topic string, l *layout) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.of[topic]
	if l.version == 0 {
		delete(k.of, topic) // there may be any number of them
	} else {
		k.of[topic] = l
	}
	return old == nil && l.version != 0 || old != nil && old.version != l.version
}

// layout returns the layout of a topic, from memory if it is known.
func (s *Store) layout(ctx context.Context, topic string) (*layout, error) {
	if l := s.layouts.known(topic); l.exists() {
		return l, nil
	}
	return s.load(ctx, topic)
}

// load asks partition 0 for a topic's layout, and sees to it that all partitions have it.
func (s *Store) load(ctx context.Context, topic string) (*layout, error) {
	l, err := s.readLayout(ctx, s.names.Partition(topic, 0))
	if err != nil {
		return nil, err
	}
	if l.exists() && l.spread < l.version {
		if err := s.spread(ctx, topic, l); err != nil {
			return nil, err
		}
	}
	s.adopt(topic, l)
	return l, nil
}

// adopt makes a layout known to this process, and to the claims that wait in it.
func (s *Store) adopt(topic string, l *layout) {
	changed := s.layouts.learn(topic, l)
	s.waits.waiter.Resize(topic, l.size(), changed)
}

// readLayout reads the layout as one partition has it.
func (s *Store) readLayout(ctx context.Context, p keys.Partition) (*layout, error) {
	a, err := s.route.Run(ctx, script.Layout, p, nil)
	if err != nil {
		return nil, err
	}
	l := &layout{version: a.Version, token: a.Int(), spread: a.Int(), settings: s.newSettings(), fields: a.Items}
	if a.Bad || len(a.Items)%2 != 0 {
		return nil, script.BadReply(script.Layout)
	}
	if !l.exists() {
		return l, nil
	}
	for len(a.Items) > 0 {
		field, value := a.Text(), a.Text()
		if field != "settings" {
			continue
		}
		if l.settings, err = storekit.DecodeSettings([]byte(value)); err != nil {
			return nil, fmt.Errorf("settings of topic %s cannot be read: %w", p.Topic, err)
		}
		if n := l.size(); n < 1 || n > punctual.MaxPartitions {
			return nil, fmt.Errorf("settings of topic %s name %d partitions: %w", p.Topic, n, punctual.ErrCorrupt)
		}
	}
	if a.Bad {
		return nil, script.BadReply(script.Layout)
	}
	return l, nil
}

// newSettings are those of a topic that comes into being.
func (s *Store) newSettings() punctual.Settings {
	set := punctual.DefaultSettings()
	set.Partitions = s.opt.Partitions
	return set
}

// spread carries a version to all partitions, and has partition 0 note it. It may be done by
// several processes at once, and again after some of it was done. A token of partition 0 goes
// along: it is above all that were given before the topic was last deleted.
func (s *Store) spread(ctx context.Context, topic string, l *layout) error {
	for n := 1; n < l.size(); n++ {
		if _, err := s.store(ctx, script.Copy, s.names.Partition(topic, n), l, ""); err != nil {
			return err
		}
	}
	_, err := s.route.Run(ctx, script.Spread, s.names.Partition(topic, 0), nil, l.version)
	return err
}

// store gives a partition a version of the settings, and reports whether it took it. base is the
// version that it must have, or empty for any older one.
func (s *Store) store(ctx context.Context, sc *script.Script, p keys.Partition, l *layout, base string) (bool, error) {
	args := append([]any{base, l.version, p.Number, l.token, script.Flag(l.spread == l.version)}, l.fields...)
	a, err := s.route.Run(ctx, sc, p, nil, args...)
	if err != nil {
		return false, err
	}
	done := a.Int() == 1
	if a.Bad {
		return false, script.BadReply(sc)
	}
	return done, nil
}

// propose makes a version the one of partition 0, if that still has the version base, and
// then spreads it.
func (s *Store) propose(ctx context.Context, topic string, l *layout, base int64) (bool, error) {
	if l.size() == 1 {
		l.spread = l.version
		l.fields = append(slices.Clone(l.fields), "spread", l.version)
	}
	done, err := s.store(ctx, script.Configure, s.names.Partition(topic, 0), l, strconv.FormatInt(base, 10))
	if err != nil || !done {
		return false, err
	}
	if l.spread < l.version {
		if err := s.spread(ctx, topic, l); err != nil {
			return false, errkind.HalfDone(err)
		}
	}
	s.adopt(topic, l)
	return true, nil
}

// renew is called when partition p has answered with another version than that of old, by
// which it was asked. It returns the layout to go on with; that is old's version again if
// partition 0 does not know any other.
func (s *Store) renew(ctx context.Context, p keys.Partition, seen int64, old *layout) (*layout, error) {
	l, err := s.load(ctx, p.Topic)
	if err != nil || l.version != old.version || !l.exists() {
		return l, err
	}
	if max(seen, -seen) < l.version {
		s.opt.Logger.Warn("redis store: a partition has lost its latest settings, and perhaps messages with them, as after a failover", "topic", p.Topic, "partition", p.Number)
		return l, s.spread(ctx, p.Topic, l)
	}
	return l, nil
}

// supersede makes a new version when partition p will not take the present one. That is so when a deletion of the
// topic broke off after p had been emptied. It is also so when partition 0 has lost a version, in a failover, that p
// still has. The newest settings that are left go on.
func (s *Store) supersede(ctx context.Context, p keys.Partition, l *layout) error {
	other, err := s.readLayout(ctx, p)
	if err != nil {
		return err
	}
	from := l
	if other.exists() && other.version > l.version {
		from = other
	}
	next := &layout{version: max(other.latest(), l.version) + 1, token: max(other.token, l.token), settings: from.settings, fields: from.fields}
	_, err = s.propose(ctx, p.Topic, next, l.version)
	return err
}
