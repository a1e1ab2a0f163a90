package memstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Get implements punctual.Inspector.
func (s *Store) Get(ctx context.Context, topic, id string) (punctual.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enter(ctx)
	if err != nil {
		return punctual.Info{}, err
	}
	if err := cmp.Or(storekit.CheckTopic(topic), storekit.CheckID(id)); err != nil {
		return punctual.Info{}, err
	}
	_, m := s.find(topic, id, now)
	if m == nil {
		return punctual.Info{}, fmt.Errorf("message %s in %s: %w", id, topic, punctual.ErrNotFound)
	}
	return s.topics[m.topic].info(m, now), nil
}

// List implements punctual.Inspector. Messages with equal times are in the order of their IDs. For
// each page List reads all messages of the topic, and sorts all that q selects from there on.
func (s *Store) List(ctx context.Context, q punctual.ListQuery) (punctual.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enter(ctx)
	if err != nil {
		return punctual.Page{}, err
	}
	if q, err = storekit.CheckList(q); err != nil {
		return punctual.Page{}, err
	}
	after, err := parsePlace(q.After)
	if err != nil {
		return punctual.Page{}, err
	}
	found := s.selected(punctual.PurgeQuery{Topic: q.Topic, State: q.State, From: q.From, To: q.To}, now)
	if q.Reason != "" {
		found = slices.DeleteFunc(found, func(m *message) bool { return m.Reason != q.Reason })
	}
	order := place.compare
	if q.Descending {
		order = func(p, q place) int { return q.compare(p) }
	}
	if q.After != "" {
		found = slices.DeleteFunc(found, func(m *message) bool { return order(m.place(now), after) <= 0 })
	}
	slices.SortFunc(found, func(a, b *message) int { return order(a.place(now), b.place(now)) })
	p := s.pageOf(found, q.Limit, now)
	if q.Bare {
		storekit.DropBodies(p.Messages)
	}
	return p, nil
}

func (s *Store) pageOf(found []*message, limit int, now instant) punctual.Page {
	p := punctual.Page{Messages: []punctual.Info{}}
	for _, m := range found[:min(limit, len(found))] {
		p.Messages = append(p.Messages, s.topics[m.topic].info(m, now))
	}
	if len(found) > limit {
		p.Next = found[limit-1].place(now).String()
	}
	return p
}

// selected returns the messages that q selects, in no order.
func (s *Store) selected(q punctual.PurgeQuery, now instant) []*message {
	t := s.existing(q.Topic, now)
	if t == nil {
		return nil
	}
	var found []*message
	for _, m := range t.messages {
		state := m.State(now.ms)
		wanted := state == q.State || q.State == punctual.StateNone && state != punctual.StateDead
		at := storekit.FromMillis(m.place(now).at)
		if wanted && !at.Before(q.From) && (q.To.IsZero() || at.Before(q.To)) {
			found = append(found, m)
		}
	}
	return found
}

// place is the place of a message in a list. As text it is the Next of a page.
type place struct {
	at int64 // Unix ms
	id string
}

// place returns the place of m in a list. Its time is At, except that a message whose lease ran out
// is listed by its due time.
func (m *message) place(now instant) place {
	if m.State(now.ms) == punctual.StateReady {
		return place{at: m.Due, id: m.id}
	}
	return place{at: m.At(), id: m.id}
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.at, q.at), strings.Compare(p.id, q.id))
}

func (p place) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.at, 10) + " " + p.id))
}

// parsePlace is the inverse of place.String. The empty text is the zero place.
func parsePlace(text string) (place, error) {
	if text == "" {
		return place{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	at, id, found := strings.Cut(string(raw), " ")
	ms, err2 := strconv.ParseInt(at, 10, 64)
	if err != nil || err2 != nil || !found {
		return place{}, fmt.Errorf("list after %q: use the Next of a former page: %w", text, punctual.ErrInvalid)
	}
	return place{at: ms, id: id}, nil
}

// Topics implements punctual.Inspector.
func (s *Store) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	out := []punctual.TopicStats{}
	for name := range s.topics {
		out = append(out, s.existing(name, now).stats(name, now))
	}
	slices.SortFunc(out, func(a, b punctual.TopicStats) int { return strings.Compare(a.Topic, b.Topic) })
	return out, nil
}

// Stats implements punctual.Inspector.
func (s *Store) Stats(ctx context.Context, topic string) (punctual.TopicStats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, now, err := s.enterTopic(ctx, topic)
	if err != nil {
		return punctual.TopicStats{}, err
	}
	if t == nil {
		return punctual.TopicStats{}, errNoTopic(topic)
	}
	return t.stats(topic, now), nil
}

// enterTopic is enter for the methods with one topic. The topic is nil when there is none of that
// name.
func (s *Store) enterTopic(ctx context.Context, name string) (*topic, instant, error) {
	now, err := s.enter(ctx)
	if err != nil {
		return nil, now, err
	}
	if err := storekit.CheckTopic(name); err != nil {
		return nil, now, err
	}
	return s.existing(name, now), now, nil
}

func errNoTopic(name string) error {
	return fmt.Errorf("topic %s: %w", name, punctual.ErrNotFound)
}

func (t *topic) stats(name string, now instant) punctual.TopicStats {
	out := punctual.TopicStats{Topic: name, Dead: int64(len(t.dead)), Settings: copySettings(t.settings)}
	for m := range t.alive() {
		switch m.State(now.ms) {
		case punctual.StateLeased:
			out.Leased++
			continue
		case punctual.StateReady:
			out.Ready++
			if t.waits(m, now) {
				out.Waiting++
			}
		default:
			out.Scheduled++
		}
		at := m.Due
		switch {
		case m.key == nil:
		case m.queue == &m.key.waiting:
			continue
		case m.Token == 0:
			at = m.when()
		}
		if due := storekit.FromMillis(at); out.NextDue.IsZero() || due.Before(out.NextDue) {
			out.NextDue = due
		}
	}
	return out
}

// Forecast implements punctual.Inspector. It rounds q.Step up to whole milliseconds.
func (s *Store) Forecast(ctx context.Context, q punctual.ForecastQuery) (punctual.Forecast, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enter(ctx)
	if err != nil {
		return punctual.Forecast{}, err
	}
	if err := storekit.CheckForecast(q); err != nil {
		return punctual.Forecast{}, err
	}
	from, err := storekit.ForecastStart(q, now.ms)
	if err != nil {
		return punctual.Forecast{}, err
	}
	step := storekit.CeilDuration(q.Step)
	f := punctual.Forecast{
		From:   storekit.FromMillis(from),
		Step:   time.Duration(step) * time.Millisecond,
		Counts: make([]int64, q.Buckets),
	}
	for name, t := range s.topics {
		if q.Topic == "" || q.Topic == name {
			t.forecast(&f, from, step, now)
		}
	}
	return f, nil
}

func (t *topic) forecast(f *punctual.Forecast, from, step int64, now instant) {
	for m := range t.alive() {
		bucket := (m.At() - from) / step
		switch {
		case m.State(now.ms) != punctual.StateScheduled:
			f.Overdue++
		case bucket < int64(len(f.Counts)):
			f.Counts[bucket]++
		default:
			f.Beyond++
		}
	}
}

// Settings implements punctual.Inspector.
func (s *Store) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, _, err := s.enterTopic(ctx, topic)
	if err != nil {
		return punctual.Settings{}, err
	}
	if t == nil {
		return punctual.DefaultSettings(), nil
	}
	return copySettings(t.settings), nil
}

// Configure implements punctual.Inspector.
func (s *Store) Configure(ctx context.Context, topic string, p punctual.SettingsPatch) (punctual.Settings, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, now, err := s.enterTopic(ctx, topic)
	if err = cmp.Or(err, storekit.CheckCompanionPatch(topic, &p)); err != nil {
		return punctual.Settings{}, err
	}
	was := punctual.DefaultSettings()
	if of := s.keySettings(topic); of != nil {
		was.Keyed = of.Keyed
	}
	var had *punctual.Settings
	if t != nil {
		was, had = t.settings, &t.settings
	}
	changed, err := storekit.ApplySettings(was, p, storekit.CanSet{Partitions: 1, KeepsFinished: true, Emits: true, BoundsLeases: true, Keys: true})
	if err != nil {
		return punctual.Settings{}, err
	}
	if err := storekit.CheckKeyedChange(topic, had, &changed); err != nil {
		return punctual.Settings{}, err
	}
	t = s.ensure(topic, changed.Keyed)
	t.settings = copySettings(changed)
	t.bound(now)
	if t.settings.Keyed {
		t.rearrange(now)
	}
	for _, name := range storekit.GroupTopics(topic, &p) {
		s.ensure(name, changed.Keyed)
	}
	if p.Groups != nil {
		s.arrivals.Tell()
	}
	s.wakeClaims()
	return copySettings(changed), nil
}

func copySettings(x punctual.Settings) punctual.Settings {
	return x.Clone()
}

// Purge implements punctual.Inspector. It takes effect in one atomic step.
func (s *Store) Purge(ctx context.Context, q punctual.PurgeQuery) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, now, err := s.enterTopic(ctx, q.Topic)
	if err != nil {
		return 0, err
	}
	if q.State > punctual.StateDead {
		return 0, fmt.Errorf("purge of state %d: use scheduled, ready, leased or dead: %w", q.State, punctual.ErrInvalid)
	}
	found := s.selected(q, now)
	for _, m := range found {
		t.remove(m, now)
	}
	s.wakeClaims()
	return int64(len(found)), nil
}

// DeleteTopic implements punctual.Inspector. It counts the messages of the companions as well.
func (s *Store) DeleteTopic(ctx context.Context, topic string) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, now, err := s.enterTopic(ctx, topic)
	if err != nil {
		return 0, err
	}
	if t == nil {
		return 0, errNoTopic(topic)
	}
	of, _ := storekit.Companion(topic)
	var waiting int64
	if out := s.existing(storekit.OutTopic(topic), now); out != nil {
		waiting = out.stats("", now).Live()
	}
	if err := storekit.CheckDelete(topic, &s.existing(of, now).settings, waiting); err != nil {
		return 0, err
	}
	removed := 0
	for name := range s.topics {
		if parent, _ := storekit.Companion(name); name == topic || parent == topic {
			removed += len(s.existing(name, now).messages)
			delete(s.topics, name)
		}
	}
	return int64(removed), nil
}

// TopicNames implements storekit.TopicNamer.
func (s *Store) TopicNames(ctx context.Context, q storekit.NameQuery) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.enter(ctx); err != nil {
		return nil, err
	}
	names := []string{}
	for name := range s.topics {
		if strings.HasPrefix(name, q.Prefix) && strings.HasSuffix(name, q.Suffix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// NewCompanions implements storekit.TopicNamer.
func (s *Store) NewCompanions(ctx context.Context, mark string, wait time.Duration) (storekit.Companions, error) {
	a := s.arrivals.Await(ctx, mark, wait)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.enter(ctx); err != nil {
		return storekit.Companions{}, err
	}
	c := storekit.Companions{Names: []string{}, Mark: a.Mark(s.made)}
	if a.First || a.Same && a.Since == s.made {
		return c, nil
	}
	for name, t := range s.topics {
		if _, companion := storekit.Companion(name); companion != "" && (!a.Same || t.number > a.Since) {
			c.Names = append(c.Names, name)
		}
	}
	slices.Sort(c.Names)
	return c, nil
}
