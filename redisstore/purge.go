package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/redisstore/internal/topics"
	"github.com/punctualmq/punctual/storekit"
)

// Purge removes messages; see punctual.Inspector. Each step of up to 200 messages is atomic.
func (s *Store) Purge(ctx context.Context, q punctual.PurgeQuery) (int64, error) {
	var total int64 // is returned also beside an error
	_, err := call(ctx, s, "purge", "of "+q.Topic, storekit.CheckTopic(q.Topic), func() (_ struct{}, err error) {
		total, err = s.purgeAll(ctx, q)
		return
	})
	return total, err
}

func (s *Store) purgeAll(ctx context.Context, q punctual.PurgeQuery) (total int64, err error) {
	if q.State > punctual.StateDead {
		return 0, storekit.Plain(fmt.Errorf("purge of state %d: use scheduled, ready, leased or dead: %w", q.State, punctual.ErrInvalid))
	}
	parts, err := s.partitions(ctx, q.Topic)
	if err != nil {
		return 0, err
	}
	for _, p := range parts {
		n, err := s.purge(ctx, p, newSelection(q.State, q.From, q.To))
		if total += n; err == nil {
			continue
		}
		err = fmt.Errorf("purge of %s, %d removed so far: %w", q.Topic, total, err)
		if total > 0 {
			err = errkind.HalfDone(err)
		}
		return total, storekit.Plain(err)
	}
	return total, nil
}

// purgeRounds bounds how many rounds a purge of all live messages makes in a partition.
const purgeRounds = 16

// purge removes the selected messages of a partition. Each script goes on after the last message
// removed, so that the purge ends even if others push faster. A purge of all live messages makes
// another round until the first script of a round finds them all, or until purgeRounds is reached,
// because a message may have been claimed meanwhile and released to a place that the purge had
// passed.
func (s *Store) purge(ctx context.Context, p keys.Partition, sel selection) (total int64, err error) {
	var after place
	for rounds := 1; ; {
		whole := after == place{}
		a, err := s.route.Run(ctx, script.Purge, p, nil, sel.args(after, script.Items)...)
		if err != nil {
			return total, err
		}
		n := a.Int()
		after = place{at: a.Int(), id: a.Text()}
		if a.Bad {
			return total, script.BadReply(script.Purge)
		}
		if total += n; n == script.Items {
			continue
		}
		if whole || sel.state != punctual.StateNone || rounds == purgeRounds {
			return total, nil
		}
		after = place{}
		rounds++
	}
}

// DeleteTopic removes a topic with everything in it, and its companions before it; see
// punctual.Inspector. Each partition is emptied in one atomic step, and the topic exists until the
// last of these. A DeleteTopic that breaks off before that may have removed some of the messages,
// and can be called again.
func (s *Store) DeleteTopic(ctx context.Context, topic string) (int64, error) {
	return call(ctx, s, "delete topic", "", storekit.CheckTopic(topic), func() (int64, error) {
		d := deletion{s: s, topic: topic}
		if err := d.run(ctx); err != nil {
			return 0, storekit.Plain(fmt.Errorf("delete topic %s, %d messages removed so far: %w", topic, d.removed, err))
		}
		return d.removed, nil
	})
}

// deletion is a DeleteTopic on its way. It empties partition 0 last. Until then a partition that
// was emptied refuses pushes, so that no message is stored behind the deletion and left over. If
// nobody goes on with the deletion, the topic can be used again (topics.Registry.Supersede). When
// partition 0 is empty the topic is gone, and the next one of its name begins with a higher
// version.
type deletion struct {
	s       *Store
	topic   string
	family  bool // the topic is a companion that goes with the topic that it belongs to
	removed int64
	begun   bool // a partition was emptied
}

func (d *deletion) run(ctx context.Context) error {
	for {
		l, err := d.s.topics.Load(ctx, d.topic)
		if err == nil && !l.Exists() {
			err = punctual.ErrNotFound
		}
		var as int64
		if err == nil {
			as, err = d.check(ctx)
		}
		if err == nil {
			err = d.companions(ctx, l)
		}
		done := false
		if err == nil {
			done, err = d.empty(ctx, l, as)
		}
		switch {
		case err != nil && d.begun:
			return errkind.HalfDone(errors.Join(err, d.keepGroups(ctx, l)))
		case err != nil:
			return err
		case done:
			if err := d.s.topics.Deleted(ctx, d.topic, l); err != nil {
				return errkind.HalfDone(err)
			}
			return nil
		}
	}
}

// check returns the error of a deletion that is refused (storekit.CheckDelete). For the topic of a
// group it also returns the version that the topic it belongs to has to have when partition 0 is
// emptied, because another version may have the group.
func (d *deletion) check(ctx context.Context) (version int64, err error) {
	of, name := storekit.Companion(d.topic)
	switch {
	case name == "" || d.family && d.topic == storekit.OutTopic(of):
		st, err := d.s.stats(ctx, storekit.OutTopic(of))
		if err != nil && !errors.Is(err, punctual.ErrNotFound) {
			return 0, err
		}
		return 0, storekit.CheckDelete(of, nil, st.Live())
	case d.family || !storekit.IsGroup(name):
		return 0, nil
	}
	l, err := d.s.topics.Load(ctx, of)
	if err != nil {
		return 0, err
	}
	set := l.Settings()
	return l.Version, storekit.CheckDelete(d.topic, &set, 0)
}

// keepGroups makes the topics of the groups anew, if the deletion of a topic with groups has
// removed some of them and goes no further.
func (d *deletion) keepGroups(ctx context.Context, l *topics.Layout) error {
	if l == nil || !l.Exists() {
		return nil
	}
	for _, group := range l.Settings().Groups {
		if _, err := d.s.topics.Present(ctx, punctual.GroupTopic(d.topic, group), l.Settings().Keyed); err != nil {
			return fmt.Errorf("and the topics of its groups are not made anew: %w", err)
		}
	}
	return nil
}

// companions deletes the companions of the topic, the one with follow-ups first, because that may
// be refused. If another one comes into being before the topic is gone, partition 0 refuses to be
// emptied, and the deletion begins anew.
func (d *deletion) companions(ctx context.Context, l *topics.Layout) error {
	names := l.Companions(d.topic)
	slices.SortFunc(names, func(a, b string) int {
		out := storekit.OutTopic(d.topic)
		return cmp.Compare(script.Flag(b == out), script.Flag(a == out))
	})
	for _, name := range names {
		of := deletion{s: d.s, topic: name, family: true}
		err := of.run(ctx)
		d.removed += of.removed
		d.begun = d.begun || of.begun
		if err != nil && (of.begun || !errors.Is(err, punctual.ErrNotFound)) { // somebody else may have deleted it
			return fmt.Errorf("companion %s: %w", name, err)
		}
	}
	return nil
}

// empty empties all partitions, partition 0 last, and reports whether it could. It could not if the
// settings have changed meanwhile, if the topic has a companion, or if it has follow-ups that
// nobody has forwarded. as, unless it is 0, is the version that the topic to which a companion
// belongs must have. In partition 0 stays a token that is not below any that was given.
func (d *deletion) empty(ctx context.Context, l *topics.Layout, as int64) (bool, error) {
	above := l.Token
	of, _ := storekit.Companion(d.topic)
	waits := script.Flag(d.family && d.topic == storekit.OutTopic(of))
	for n := l.Size() - 1; n >= 0; n-- {
		p := d.s.names.Partition(d.topic, n)
		beside, field := d.s.topics.Beside(p), ""
		if len(beside) > 0 {
			field = topics.CompanionField(d.topic)
		}
		a, err := d.s.route.RunBeside(ctx, script.Delete, p, beside, nil, l.Version, script.Flag(n == 0), n, above, field, as, waits)
		if err != nil {
			return false, err
		}
		done, removed, token := a.Int() == 1, a.Int(), a.Int()
		if a.Bad {
			return false, script.BadReply(script.Delete)
		}
		if !done {
			return false, nil
		}
		d.begun = true
		d.removed += removed
		above = max(above, token)
	}
	return true, nil
}
