// Package topics knows which partitions a topic has, and how a change of settings reaches all of
// them.
//
// Partition 0 of a topic decides on its settings. The number of partitions is one of them, and
// never changes while the topic exists. Every partition has a copy of the settings, in its hash g,
// for its scripts. Each change makes a new version:
//
//  1. partition 0 takes it, if it still has the version that the change was made from;
//  2. all other partitions take it, unless they have it already, or a later one;
//  3. partition 0 stores that all have it (spread).
//
// No process uses a version before all partitions have it: a process that reads a version which has
// not been spread does steps 2 and 3 first. So a process that uses an older version learns of the
// newer one from any partition that it asks, and that partition refuses a push for the older
// version.
//
// A companion always has as many partitions as its topic, because it comes into being only while
// the topic exists, and the topic is deleted only when it has no companion. The hash g of partition
// 0 of the topic has a field with the name of each companion. The script that creates or deletes
// partition 0 of a companion changes that field in the same step, since both are in one hash slot.
//
// docs/decisions/0011 says why.
package topics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/redisstore/internal/clock"
	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// Options configure a Registry.
type Options struct {
	Names  keys.Names
	Clock  *clock.Clock
	Route  *route.Router
	Logger *slog.Logger
	// Partitions is how many partitions a new topic gets that is no companion, unless its first
	// settings say otherwise.
	Partitions int
	// Adopted is called with each layout of a topic that was read or made; changed says that it has
	// another version than the one that was known before.
	Adopted func(topic string, l *Layout, changed bool)
	// Arrived is called when a companion has come into being.
	Arrived func()
}

// Registry has the layouts of the topics that this process knows, and changes the settings of
// topics. A layout that it has may be out of date, but all partitions had that version once. All
// methods are safe for concurrent use.
type Registry struct {
	o        Options
	settings storekit.SettingsReader

	mu      sync.Mutex
	of      map[string]*Layout // guarded by mu: by topic
	deleted int                // guarded by mu: how many of these topics do not exist any more
}

// mostDeleted is the number of deleted topics, at most, of which a Registry remembers the last
// version. If none were remembered, a claim that waits for a deleted topic would have the topic's
// settings read with each poll, during the day for which the partitions keep the version.
const mostDeleted = 1000

// New returns a Registry that knows of no topic.
func New(o Options) *Registry { return &Registry{o: o, of: make(map[string]*Layout)} }

// Known returns the layout of a topic that this process knows, or Unknown. It asks no server.
func (r *Registry) Known(topic string) *Layout {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.of[topic]; l != nil {
		return l
	}
	return Unknown
}

// learn remembers a layout and reports whether it is another version than what was known.
func (r *Registry) learn(topic string, l *Layout) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.of[topic]
	if old != nil && !old.Exists() {
		r.deleted--
	}
	switch {
	case l.Version == 0:
		delete(r.of, topic) // it is not remembered, because claims may name any number of topics that never existed
	case l.Exists():
		r.of[topic] = l
	default:
		if r.deleted >= mostDeleted {
			maps.DeleteFunc(r.of, func(_ string, l *Layout) bool { return !l.Exists() })
			r.deleted = 0
		}
		r.of[topic] = l
		r.deleted++
	}
	return old == nil && l.Version != 0 || old != nil && old.Version != l.Version
}

// Partitions returns the partitions of a topic with that layout.
func (r *Registry) Partitions(topic string, l *Layout) []keys.Partition {
	var out []keys.Partition
	for n := range l.Size() {
		out = append(out, r.o.Names.Partition(topic, n))
	}
	return out
}

// Get returns the layout of a topic, from memory if it is known.
func (r *Registry) Get(ctx context.Context, topic string) (*Layout, error) {
	if l := r.Known(topic); l.Exists() {
		return l, nil
	}
	return r.Load(ctx, topic)
}

// Load reads a topic's layout from partition 0, spreads it unless all partitions are known to have
// it, and makes it known.
func (r *Registry) Load(ctx context.Context, topic string) (*Layout, error) {
	l, err := r.Read(ctx, r.o.Names.Partition(topic, 0))
	if err != nil {
		return nil, err
	}
	if l.Exists() && l.spread < l.Version {
		if err := r.spread(ctx, topic, l); err != nil {
			return nil, err
		}
	}
	r.adopt(topic, l)
	return l, nil
}

// adopt makes a layout known to this process, and to the claims that wait in it.
func (r *Registry) adopt(topic string, l *Layout) {
	changed := r.learn(topic, l)
	r.o.Adopted(topic, l, changed)
}

// Read reads the layout as one partition has it.
func (r *Registry) Read(ctx context.Context, p keys.Partition) (*Layout, error) {
	a, err := r.o.Route.Run(ctx, script.Layout, p, nil)
	if err != nil {
		return nil, err
	}
	l := &Layout{Version: a.Version, Token: a.Int(), spread: a.Int(), settings: r.newSettings()}
	for len(a.Items) > 0 && !a.Bad {
		field, value := a.Text(), a.Text()
		if strings.HasPrefix(field, companionField) {
			l.companions = append(l.companions, field[len(companionField):])
			continue
		}
		l.fields = append(l.fields, field, value)
		if field != "settings" || !l.Exists() {
			continue
		}
		if l.settings, err = r.settings.Decode([]byte(value)); err != nil {
			return nil, fmt.Errorf("settings of topic %s cannot be read: %w", p.Topic, err)
		}
		if n := l.Size(); n < 1 || n > limits.MaxPartitions {
			return nil, fmt.Errorf("settings of topic %s name %d partitions: %w", p.Topic, n, punctual.ErrCorrupt)
		}
	}
	if a.Bad {
		return nil, script.BadReply(script.Layout)
	}
	return l, nil
}

// companionField begins the names of the fields of the hash g, in partition 0, that name the
// companions of the topic.
const companionField = "@"

// newSettings returns the settings of a new topic.
func (r *Registry) newSettings() punctual.Settings {
	set := punctual.DefaultSettings()
	set.Partitions = r.o.Partitions
	return set
}

// spread stores a version in all partitions but partition 0, which has it, and then stores in
// partition 0 that all have it. Several processes may do so at once, and again after a part of it
// was done. Each partition also gets the newest token of partition 0, which is above all tokens
// that were given before the topic was last deleted.
func (r *Registry) spread(ctx context.Context, topic string, l *Layout) error {
	for n := 1; n < l.Size(); n++ {
		if _, err := r.store(ctx, script.Copy, r.o.Names.Partition(topic, n), l, "", nil); err != nil {
			return err
		}
	}
	_, err := r.o.Route.Run(ctx, script.Spread, r.o.Names.Partition(topic, 0), nil, l.Version)
	return err
}

// store stores a version of the settings in a partition, and reports whether the partition accepted
// it. base is the version that the partition must have, or empty for any older one. parent is nil
// unless partition 0 of a companion comes into being: then it is the layout of the topic that the
// companion belongs to, and the topic must exist in that version.
func (r *Registry) store(ctx context.Context, sc *script.Script, p keys.Partition, l *Layout, base string, parent *Layout) (bool, error) {
	args := []any{base, l.Version, p.Number, l.Token, script.Flag(l.spread == l.Version), "", "", ""}
	var beside []any
	if parent != nil {
		beside, args[5], args[6] = r.Beside(p), parent.Version, CompanionField(p.Topic)
	}
	if p.Number == 0 {
		args[7] = strings.Join(l.Companions(""), " ")
	}
	args = append(append(args, l.fields...), l.shares(p.Number)...)
	if l.settings.Emit != 0 {
		args = append(args, "event_home", keys.HomeStem(p.Number, l.Size()))
	}
	a, err := r.o.Route.RunBeside(ctx, sc, p, beside, nil, args...)
	if err != nil {
		return false, err
	}
	done := a.Int() == 1
	if a.Bad {
		return false, script.BadReply(sc)
	}
	return done, nil
}

// Beside returns the keys that a script gets beside those of p when it creates or deletes p, if p
// is partition 0 of a companion: the hash g of partition 0 of the topic, which names the
// companions. For any other partition it returns none.
func (r *Registry) Beside(p keys.Partition) []any {
	parent, companion := storekit.Companion(p.Topic)
	if companion == "" || p.Number != 0 {
		return nil
	}
	return []any{r.o.Names.Partition(parent, 0).Keys()[keys.Settings]}
}

// CompanionField returns the name of the field, in partition 0 of the topic that a companion
// belongs to, that names the companion. topic is the name of the companion; for a topic that is
// none CompanionField returns "".
func CompanionField(topic string) string {
	if _, companion := storekit.Companion(topic); companion != "" {
		return companionField + companion
	}
	return ""
}

// propose stores a version in partition 0, if that still has the version base, and then spreads the
// new version. It reports whether partition 0 accepted it. parent is as in store.
func (r *Registry) propose(ctx context.Context, topic string, l *Layout, base int64, parent *Layout) (bool, error) {
	if l.Size() == 1 {
		l.spread = l.Version
		l.fields = append(slices.Clone(l.fields), "spread", l.Version)
	}
	done, err := r.store(ctx, script.Configure, r.o.Names.Partition(topic, 0), l, strconv.FormatInt(base, 10), parent)
	if err != nil || !done {
		return false, err
	}
	if l.spread < l.Version {
		if err := r.spread(ctx, topic, l); err != nil {
			return false, errkind.HalfDone(err)
		}
	}
	r.adopt(topic, l)
	return true, nil
}

// Renew is called when partition p has answered with the version seen, and not with that of old, by
// which it was asked. It returns the layout to go on with, which has old's version again if
// partition 0 knows no other.
func (r *Registry) Renew(ctx context.Context, p keys.Partition, seen int64, old *Layout) (*Layout, error) {
	l, err := r.Load(ctx, p.Topic)
	if err != nil || l.Version != old.Version || !l.Exists() {
		return l, err
	}
	if max(seen, -seen) < l.Version {
		r.o.Logger.Warn("redis store: a partition has lost its latest settings, and perhaps messages with them, as after a failover", "topic", p.Topic, "partition", p.Number)
		return l, r.spread(ctx, p.Topic, l)
	}
	return l, nil
}

// Supersede makes a new version when partition p does not accept the present one l. That is so when
// a deletion of the topic broke off after p had been emptied, and also when partition 0 has lost,
// in a failover, a version that p still has. The new version has the newest settings that partition
// 0 or p has.
func (r *Registry) Supersede(ctx context.Context, p keys.Partition, l *Layout) error {
	other, err := r.Read(ctx, p)
	if err != nil {
		return err
	}
	from := l
	if other.Exists() && other.Version > l.Version {
		from = other
	}
	next := &Layout{Version: max(other.latest(), l.Version) + 1, Token: max(other.Token, l.Token), settings: from.settings, fields: from.fields}
	_, err = r.propose(ctx, p.Topic, next, l.Version, nil)
	return err
}

// Configure changes a topic's settings, and creates the topic if there is none. It makes the topics
// of the groups before the topic has its groups, and partition 0 takes the groups only if these
// topics are there.
func (r *Registry) Configure(ctx context.Context, topic string, patch punctual.SettingsPatch) (punctual.Settings, error) {
	for {
		old, err := r.Load(ctx, topic)
		if err != nil {
			return punctual.Settings{}, err
		}
		if n := patch.Partitions; n != nil && old.Exists() && *n != old.Size() {
			return punctual.Settings{}, fmt.Errorf("%d partitions: the topic has %d, which is fixed when a topic comes into being; use a new topic: %w", *n, old.Size(), punctual.ErrInvalid)
		}
		was, had := old.Settings(), &old.settings
		if !old.Exists() {
			had = nil
		}
		if parent, name := storekit.Companion(topic); name != "" && had == nil {
			of, err := r.Load(ctx, parent)
			if err != nil {
				return punctual.Settings{}, err
			}
			was.Keyed, was.Partitions = of.settings.Keyed, of.settings.Partitions
		}
		set, err := storekit.ApplySettings(was, patch, storekit.AllAbilities())
		if err != nil {
			return punctual.Settings{}, err
		}
		if err := cmp.Or(storekit.CheckKeyedChange(topic, had, &set), checkShares(&set)); err != nil {
			return punctual.Settings{}, err
		}
		made := false
		for _, name := range storekit.GroupTopics(topic, &punctual.SettingsPatch{Groups: &set.Groups}) {
			if !slices.Contains(old.Companions(topic), name) {
				if _, err := r.Present(ctx, name, set.Keyed); err != nil {
					return punctual.Settings{}, err
				}
				made = true
			}
		}
		if made { // perhaps the topic was made with them, so it is read again
			continue
		}
		l, done, err := r.change(ctx, topic, old, set)
		if err != nil {
			return punctual.Settings{}, err
		}
		if done {
			return l.Settings(), nil
		}
	}
}

// Create creates a topic that does not exist, of which old is the layout, and returns the new
// layout. If another process has created the topic meanwhile, Create returns what Load finds. keyed
// says that the topic has keys, and so has the one that it is a companion of if Create makes that.
func (r *Registry) Create(ctx context.Context, topic string, old *Layout, keyed bool) (*Layout, error) {
	set := r.newSettings()
	set.Keyed = keyed
	l, done, err := r.change(ctx, topic, old, set)
	if err != nil || done {
		return l, err
	}
	return r.Load(ctx, topic)
}

// change gives a topic other settings, or reports false when the layout old is not current any
// more. The name of a new topic is added to the names of topics first, so that no topic is missing
// there; a deletion of an older version does not remove the name. A new companion gets as many
// partitions as its topic, which change creates if need be.
func (r *Registry) change(ctx context.Context, topic string, old *Layout, set punctual.Settings) (l *Layout, done bool, err error) {
	var parent *Layout
	if name, companion := storekit.Companion(topic); companion != "" && !old.Exists() {
		if parent, err = r.Present(ctx, name, set.Keyed); err != nil {
			return nil, false, err
		}
		set.Partitions, set.Keyed = parent.Size(), parent.settings.Keyed
	}
	l, err = old.with(set, r.o.Clock.Guess()/1000)
	if err != nil {
		return nil, false, err
	}
	if !old.Exists() {
		if _, err := r.names(ctx, "add", topic, l.Version); err != nil {
			return nil, false, err
		}
	}
	done, err = r.propose(ctx, topic, l, old.latest(), parent)
	if done && parent != nil {
		r.o.Arrived()
	}
	return l, done, err
}

// Present returns the layout of a topic as partition 0 has it, and creates the topic first if it
// does not exist; see Create.
func (r *Registry) Present(ctx context.Context, topic string, keyed bool) (*Layout, error) {
	l, err := r.Load(ctx, topic)
	for err == nil && !l.Exists() {
		l, err = r.Create(ctx, topic, l, keyed)
	}
	return l, err
}

// names runs the script registry with the verb add for a topic that is created with a version,
// remove for one that was deleted in a version, since for the names of topics that were created
// with that version or a greater one, or list for all names.
func (r *Registry) names(ctx context.Context, verb, topic string, version int64) (*script.Answer, error) {
	a, err := r.o.Route.RunStore(ctx, script.Registry, r.o.Names.Topics(), verb, topic, version, r.o.Clock.Deadline(ctx, route.CallTime))
	if errors.Is(err, errkind.ErrLate) && punctual.Definite(err) && r.o.Clock.Passed(ctx) {
		return nil, context.DeadlineExceeded
	}
	return a, err
}

// Deleted is called when a topic was deleted that had the layout l. It makes the deletion known to
// this process, and removes the topic from the names. If that fails, a name without a topic stays,
// which does no harm.
func (r *Registry) Deleted(ctx context.Context, topic string, l *Layout) error {
	r.adopt(topic, &Layout{Version: -l.Version - 1, settings: r.newSettings()})
	_, err := r.names(ctx, "remove", topic, l.Version)
	return err
}

// All returns the names of all topics, sorted, and perhaps some of topics that are not there.
func (r *Registry) All(ctx context.Context) ([]string, error) {
	topics, _, err := r.listed(ctx, "list", 0)
	return topics, err
}

// versionsAgain is by how much earlier Since begins than it is asked to, in ms, because the version
// of a new topic comes from the clock as its process knows it, and is stored a while after that.
const versionsAgain = 10_000

// Since returns names of topics that have come into being since a time of the store's clock, in ms,
// sorted, and the time of the clock now. Some of them may be older or not there yet.
func (r *Registry) Since(ctx context.Context, at int64) (topics []string, now int64, err error) {
	return r.listed(ctx, "since", min(at, r.o.Clock.Guess()/1000)-versionsAgain) // the clock may have been set back since at
}

func (r *Registry) listed(ctx context.Context, verb string, version int64) (topics []string, now int64, err error) {
	a, err := r.names(ctx, verb, "", version)
	if err != nil {
		return nil, 0, err
	}
	topics = a.List()
	if a.Bad {
		return nil, 0, script.BadReply(script.Registry)
	}
	slices.Sort(topics)
	return topics, a.Now, nil
}
