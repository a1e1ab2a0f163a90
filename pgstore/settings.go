package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// maxPartitions is how many partitions a topic has in this store at most. One is enough, because
// claims pass by what others have locked.
const maxPartitions = 1

// abilities are what this store can do with settings.
var abilities = storekit.CanSet{Partitions: maxPartitions, KeepsFinished: true, Emits: true, BoundsLeases: true, Keys: true}

// Settings returns a topic's settings; see punctual.Inspector.
func (s *Store) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	return call(ctx, s, "settings", "of "+topic, storekit.CheckTopic(topic), func() (punctual.Settings, error) {
		set := punctual.DefaultSettings()
		err := s.db.read(ctx, func() *step {
			return s.db.step().add("settings", []any{topic}, func(rows scanner) (err error) {
				var text []byte
				if err := rows.Scan(&text); err != nil {
					return err
				}
				set, err = s.db.settings.Decode(text)
				return err
			})
		})
		return set, err
	})
}

// Configure changes a topic's settings; see punctual.Inspector. It returns ErrOverloaded if the
// patch makes DeadRetention longer, and another transaction holds a dead message that is past the
// present DeadRetention for more than a second, or if it is the first to set MaxLeases, and another
// transaction holds a leased message for as long.
func (s *Store) Configure(ctx context.Context, topic string, patch punctual.SettingsPatch) (punctual.Settings, error) {
	return call(ctx, s, "configure", topic, storekit.CheckTopic(topic), func() (punctual.Settings, error) {
		// A patch that is wrong by itself must not make a topic.
		if err := storekit.CheckCompanionPatch(topic, &patch); err != nil {
			return punctual.Settings{}, err
		}
		alone := patch
		alone.If = nil
		if _, err := storekit.ApplySettings(punctual.DefaultSettings(), alone, abilities); err != nil {
			return punctual.Settings{}, err
		}
		set, err := s.topics.configure(ctx, topic, patch)
		if err == nil && patch.DeliveryPaused != nil && !set.DeliveryPaused {
			s.waits.resumed(topic)
		}
		if err == nil && (patch.MaxLeases != nil || patch.MaxRate != nil || set.Keyed) {
			s.db.keyed.learn(topic, set.Keyed)
			s.waits.told(nil, topic)
		}
		if err == nil && patch.Groups != nil {
			s.waits.tellOfCompanions()
		}
		return set, err
	})
}

// errRetentionHeld is the error of a change that would bring back a dead message whose retention is
// over.
var errRetentionHeld = fmt.Errorf("a dead message past its retention has to be removed before that becomes longer: %w", errHeld)

// topicSettings makes topics and changes their settings. It has no state.
type topicSettings struct {
	db    *database
	waits *waits
}

// configure makes the topic if need be, and changes it. Dead messages past their retention by the
// old settings go first, so that a longer retention does not bring them back. One that another
// transaction holds is tried again for heldAlone, as by a settlement.
func (t *topicSettings) configure(ctx context.Context, topic string, patch punctual.SettingsPatch) (punctual.Settings, error) {
	ctx, end := within(ctx)
	defer end()
	begun := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, heldAgain) {
		set, held, err := t.configureFree(ctx, topic, patch)
		if errors.Is(held, errUnbounded) {
			err = t.beginBounds(ctx, topic)
		}
		switch {
		case err != nil || held == nil:
			return set, err
		case time.Since(begun) >= heldAlone || sleep(ctx, pause) != nil:
			return punctual.Settings{}, held
		}
	}
}

// errUnbounded is the error of a bound for a topic whose claims do not look for bounds yet.
var errUnbounded = fmt.Errorf("a claim takes long that began before the topic had bounds; try again: %w", punctual.ErrOverloaded)

// beginBounds has all claims of a topic look for bounds and note what they lease. It waits for the
// claims under way, which do not, and changes nothing if that takes longer than stepLockWait.
func (t *topicSettings) beginBounds(ctx context.Context, topic string) error {
	err := t.db.transact(ctx, func(ctx context.Context, tx *transaction) (*step, error) {
		x := t.db.step().add("lock_wait", []any{lockTimeoutOf(stepLockWait)}, nil)
		return nil, tx.send(ctx, x.add("topic_bounded", []any{topic, true}, nil).add("step_lock", nil, nil))
	})
	if errors.Is(err, errLockTimeout) {
		return nil
	}
	return err
}

// bounded reports whether a topic has bounds.
func bounded(set *punctual.Settings) bool { return set.MaxLeases > 0 || set.MaxRate.Interval() > 0 }

// configureFree is configure without the further tries. If a longer retention would bring back a
// message that another transaction holds, or beginBounds has to come first, held says so and no
// setting is changed.
//
// A topic gets MaxLeases in the transaction that has the leases count which were given before it
// had bounds. Those given since are counted by the claims.
func (t *topicSettings) configureFree(ctx context.Context, topic string, patch punctual.SettingsPatch) (set punctual.Settings, held, err error) {
	var micros int64
	err = t.db.transact(ctx, func(ctx context.Context, tx *transaction) (*step, error) {
		held = nil
		number, old, wasBounded, err := t.lockTopic(ctx, tx, topic, storekit.GroupTopics(topic, &patch), patch.Keyed != nil && *patch.Keyed)
		if err != nil {
			return nil, err
		}
		if set, err = storekit.ApplySettings(old, patch, abilities); err == nil {
			err = storekit.CheckKeyedChange(topic, &old, &set)
		}
		if err != nil {
			return nil, err
		}
		set = set.Clone()
		args, err := settingsArgs(set)
		if err != nil {
			return nil, err
		}
		var left int64
		x := t.db.step().add("past_retention_all", t.db.writing(number), func(rows scanner) error { return rows.Scan(&micros, &left) })
		if err := tx.send(ctx, x); err != nil {
			return nil, err
		}
		switch {
		case left > 0 && longer(set.DeadRetention, old.DeadRetention):
			held = errRetentionHeld
		case bounded(&set) && !wasBounded:
			held = errUnbounded
		}
		if held != nil {
			return nil, nil // what was removed stays so, because the next try would have to remove it again
		}
		x = t.db.step()
		if set.MaxLeases > 0 && old.MaxLeases == 0 {
			x.add("lock_wait", []any{lockTimeoutOf(heldAlone)}, nil).add("count_leases", []any{number}, nil)
		}
		if set.MaxRate != old.MaxRate {
			x.add("rate", t.db.writing(number, set.MaxRate.Interval(), set.MaxRate.AtOnce()), nil)
		}
		if !bounded(&set) && wasBounded {
			x.add("topic_bounded", []any{topic, false}, nil)
		}
		x.add("topic_change", append([]any{number}, args...), nil)
		if set.InOrder != old.InOrder {
			x.add("lock_wait", []any{lockTimeoutOf(heldAlone)}, nil).add("key_places", []any{number}, nil)
		}
		if set.InOrder != old.InOrder || set.MaxKeyLeases != old.MaxKeyLeases || set.MaxKeyRate != old.MaxKeyRate {
			x.add("key_bounds", keyBounds(number, &set), nil).add("key_look", t.db.writing(number), nil)
		}
		return x, nil
	})
	if err == nil {
		t.db.clock.hear(micros)
	}
	return set, held, err
}

// longer reports whether dead messages are kept for longer than before. 0 keeps them for ever.
func longer(retention, before time.Duration) bool {
	return before > 0 && (retention == 0 || retention > before)
}

// lockTopic locks the row of a topic. If there is no such topic it makes it, and also the topic
// that it is a companion of, and those of the named companions that there are not. keyed makes a
// topic with keys.
func (t *topicSettings) lockTopic(ctx context.Context, tx *transaction, topic string, companions []string, keyed bool) (number int32, set punctual.Settings, bounded bool, err error) {
	topics := withParents(append(companions, topic))
	x := t.db.shareTopics(topics, 0)
	if keyed { // before its companions
		t.db.addCreate(x, []string{topic}, []string{topic})
	}
	x = t.db.addCreate(x, topics, nil).
		add("topic_lock", []any{topic}, func(rows scanner) (err error) {
			var text []byte
			if err := rows.Scan(&number, &text, &bounded); err != nil {
				return err
			}
			set, err = t.db.settings.Decode(text)
			return err
		})
	err = tx.send(ctx, x)
	return number, set, bounded, err
}

// settingsArgs returns settings as the arguments of topic_create.sql and topic_change.sql, which
// take others beside them.
func settingsArgs(set punctual.Settings) ([]any, error) {
	text, err := storekit.EncodeSettings(set)
	if err != nil {
		return nil, err
	}
	return []any{
		string(text), storekit.CeilDuration(set.Lease), int32(set.MaxAttempts), storekit.CeilDuration(set.DedupeWindow),
		storekit.CeilDuration(set.DeadRetention), set.PushPaused, set.DeliveryPaused,
		storekit.CeilDuration(set.FinishedRetention), int32(set.Emit), int32(set.MaxLeases),
		set.Keyed, set.InOrder,
	}, nil
}

// keyBounds returns the arguments of key_bounds.sql.
func keyBounds(number int32, set *punctual.Settings) []any {
	return []any{number, int32(storekit.KeyLeases(set)), set.MaxKeyRate.Interval(), set.MaxKeyRate.AtOnce()}
}

// newTopicArgs returns the arguments of topic_create.sql but for the first and the last: the
// settings of a new topic, and as text those of one with keys.
func newTopicArgs() ([]any, error) {
	args, err := settingsArgs(punctual.DefaultSettings())
	keyed := punctual.DefaultSettings()
	keyed.Keyed = true
	text, err2 := storekit.EncodeSettings(keyed)
	return append(args, string(text)), cmp.Or(err, err2)
}
