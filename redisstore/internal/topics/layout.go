package topics

import (
	"slices"
	"strconv"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// Layout is a version of a topic's settings, as partition 0 has it. It does not change any more
// once it is adopted, because other goroutines can see it from then on.
type Layout struct {
	// Version is 0 or less if there is no such topic; see script.Answer.Version.
	Version int64
	// Token is the newest token of partition 0.
	Token int64

	spread     int64             // the version that all partitions are known to have; 0 if that is not known
	settings   punctual.Settings // the defaults if there is no such topic
	fields     []any             // the fields of the hash g of which every partition has a copy, each followed by its value
	companions []string          // the names behind the "@" of the topic's companions, as partition 0 had them when it was read, or must have to take the layout
}

// Unknown is the layout of a topic that this process does not know.
var Unknown = &Layout{settings: punctual.DefaultSettings()}

// Exists reports whether there is such a topic.
func (l *Layout) Exists() bool { return l.Version > 0 }

// Size returns the number of partitions. It is 1 for a topic that does not exist, so that callers
// ask partition 0.
func (l *Layout) Size() int {
	if !l.Exists() {
		return 1
	}
	return l.settings.Partitions
}

// Settings returns a copy of the settings, which the caller may change.
func (l *Layout) Settings() punctual.Settings {
	return l.settings.Clone()
}

// Companions returns the names of the companions, such as orders@events. topic is the name of the
// topic that has this layout. The companions are those that partition 0 had when the layout was
// read.
func (l *Layout) Companions(topic string) []string {
	var out []string
	for _, name := range l.companions {
		out = append(out, topic+companionField+name)
	}
	return out
}

// latest returns the newest version that partition 0 has had, whether or not the topic exists.
func (l *Layout) latest() int64 { return max(l.Version, -l.Version) }

// with returns the layout of the next version, with other settings. The version of a new topic is
// at least now, in ms, so that it is above the versions that a deleted topic of that name had,
// which may be forgotten.
func (l *Layout) with(set punctual.Settings, now int64) (*Layout, error) {
	version := l.latest() + 1
	if !l.Exists() {
		version = max(version, now)
	}
	next := &Layout{Version: version, Token: l.Token, settings: set.Clone()}
	for _, group := range set.Groups {
		_, name := storekit.Companion(punctual.GroupTopic("", group))
		next.companions = append(next.companions, name)
	}
	var err error
	next.fields, err = fieldsOf(set)
	// A topic that never kept finished records does not have the field, so that its scripts need no
	// keys of finished records. A topic that keeps none any more has the field with 0, because it
	// may still have some.
	if keep := storekit.CeilDuration(set.FinishedRetention); keep > 0 || slices.Contains(l.fields, any(FinishedField)) {
		next.fields = append(next.fields, FinishedField, keep)
	}
	// In the same way the scripts of a topic that never emitted events find no field emit, and need
	// no keys of the companion events.
	if set.Emit != 0 || slices.Contains(l.fields, any(EmitField)) {
		next.fields = append(next.fields, EmitField, int(set.Emit), "emit_keep", storekit.CeilDuration(set.EmitKeep))
	}
	if set.Keyed {
		next.fields = append(next.fields, "key_leases", storekit.KeyLeases(&set), "key_interval", set.MaxKeyRate.Interval(), "key_at_once", set.MaxKeyRate.AtOnce(), "in_order", script.Flag(set.InOrder))
	}
	return next, err
}

// pushField returns the field push_paused of the hash g: 1 if pushes are paused, and 2 more in a
// topic with keys, so that the scripts of other topics need not look for keys.
func pushField(set punctual.Settings) int {
	paused := 0
	if set.PushPaused {
		paused = 1
	}
	if set.Keyed {
		paused += 2
	}
	return paused
}

// bounded reports whether a topic bounds its leases.
func bounded(set punctual.Settings) bool { return set.MaxLeases > 0 || set.MaxRate != (limits.Rate{}) }

// checkShares returns an ErrInvalid if a bound of a topic is too small for each partition to have a
// share of it.
func checkShares(set *punctual.Settings) error {
	n := int64(set.Partitions)
	switch {
	case n == 1:
		return nil
	case set.MaxLeases > 0 && int64(set.MaxLeases) < n:
		return storekit.Invalidf("max leases %d: each of the %d partitions of the topic has its share of them: use %d or more", set.MaxLeases, n, n)
	case set.MaxRate != limits.Rate{} && set.MaxRate.AtOnce() < n:
		return storekit.Invalidf("max rate %s begins at most %d leases at once: each of the %d partitions of the topic has its share of them: use a burst of %d or more", set.MaxRate, set.MaxRate.AtOnce(), n, n)
	}
	return nil
}

// shares returns the fields of the hash g for what partition number has of the bounds of the topic.
// The shares of all partitions are as much as the bounds.
func (l *Layout) shares(number int) []any {
	set, n := &l.settings, int64(l.Size())
	if !bounded(*set) {
		return nil
	}
	share := func(of int64) int64 { return (of + n - 1 - int64(number)) / n }
	return []any{"max_leases", share(int64(set.MaxLeases)), "rate_interval", set.MaxRate.Interval() * n, "rate_at_once", share(set.MaxRate.AtOnce())}
}

// deliveryField returns the field delivery_paused of the hash g: 1 if the delivery is paused, else
// 2 if the topic bounds its leases, so that a script that reads 0 need not look for bounds.
func deliveryField(set punctual.Settings) string {
	if bounded(set) && !set.DeliveryPaused {
		return "2"
	}
	return script.Flag(set.DeliveryPaused)
}

// EmitField is the field of the hash g that says which events the topic emits (Settings.Emit).
const EmitField = "emit"

// FinishedField is the field of the hash g that says for how long finished records are kept, in ms.
const FinishedField = "finished_retention"

// fieldsOf returns the fields of the hash g that hold settings: all settings as JSON for programs,
// and some one by one for the scripts. with adds those that only some topics have.
func fieldsOf(set punctual.Settings) ([]any, error) {
	text, err := storekit.EncodeSettings(set)
	if err != nil {
		return nil, err
	}
	delays, jitter := backoffFields(set.Backoff)
	return []any{
		"settings", text,
		"lease", storekit.CeilDuration(set.Lease),
		"max_attempts", set.MaxAttempts,
		"push_paused", pushField(set),
		"delivery_paused", deliveryField(set),
		"dedupe_window", storekit.CeilDuration(set.DedupeWindow),
		"dead_retention", storekit.CeilDuration(set.DeadRetention),
		"delays", delays,
		"jitter", jitter,
	}, nil
}

// maxDoublings is a number of attempts after which the delay of a backoff grows no more: a Base
// above 0 has come to Max by then, which is at most 3650 days and so less than 2^59 ns, and a Base
// of 0 stays 0.
const maxDoublings = 60

// backoffFields returns a backoff as the scripts take it: the delays after the first attempts, in
// ms, of which the last is for all further attempts, too, and the jitter.
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
