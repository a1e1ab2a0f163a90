package redisstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
)

// Get returns one message; see punctual.Inspector.
func (s *Store) Get(ctx context.Context, topic, id string) (punctual.Info, error) {
	if err := s.enter(ctx); err != nil {
		return punctual.Info{}, err
	}
	defer s.calls.Done()
	if err := cmp.Or(punctual.CheckTopic(topic), punctual.CheckID(id)); err != nil {
		return punctual.Info{}, fmt.Errorf("get: %w", err)
	}
	a, err := s.runPartition(ctx, getScript, s.names.partitionOf(topic, id), id)
	if err != nil {
		return punctual.Info{}, fmt.Errorf("get %s of %s: %w", id, topic, err)
	}
	if len(a.items) == 0 {
		return punctual.Info{}, fmt.Errorf("get %s of %s: %w", id, topic, punctual.ErrNotFound)
	}
	at, set, message, state := a.int(), a.string(), a.string(), a.string()
	if a.bad {
		return punctual.Info{}, badReply(getScript)
	}
	info, err := infoOf(topic, id, at, set, message, state, a.now)
	if err != nil {
		return punctual.Info{}, fmt.Errorf("get %s of %s: %w", id, topic, err)
	}
	return info, nil
}

// infoOf puts together what is known of a message that is in the given set at the given
// time.
func infoOf(topic, id string, at int64, set, message, state string, now int64) (punctual.Info, error) {
	m, err := decodeMessage(id, message)
	if err != nil {
		return punctual.Info{}, err
	}
	if state != "" {
		if err := m.addState(id, state); err != nil {
			return punctual.Info{}, err
		}
	}
	if set == "t" {
		m.due = at
		if state == "" {
			m.base = at
		}
	}
	i := punctual.Info{
		Message: m.message(topic, id), CancelRequested: m.cancel, Failures: m.failures,
		State: punctual.StateScheduled,
	}
	switch {
	case set == "d":
		i.State, i.Died, i.Reason = punctual.StateDead, punctual.FromMillis(at), m.reason
	case at <= now:
		i.State = punctual.StateReady
	case set == "l":
		i.State, i.LeaseUntil = punctual.StateLeased, punctual.FromMillis(at)
	}
	return i, nil
}

// place is where a message stands in a list. Its text is the cursor of a page.
type place struct {
	at int64 // ms
	id string
}

func (p place) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.at, 10) + " " + p.id))
}

// args are the place as select.lua takes it; the zero place is before the first.
func (p place) args() (at any, id string) {
	if p.id == "" {
		return "", ""
	}
	return p.at, p.id
}

// parsePlace is the inverse of String; the empty text is the zero place.
func parsePlace(text string) (place, error) {
	if text == "" {
		return place{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	at, id, found := strings.Cut(string(raw), " ")
	ms, err2 := strconv.ParseInt(at, 10, 64)
	if err != nil || err2 != nil || !found || id == "" {
		return place{}, fmt.Errorf("list after %q: use the Next of a former page: %w", text, punctual.ErrInvalid)
	}
	return place{at: ms, id: id}, nil
}

// selection is a choice of messages, as select.lua takes it.
type selection struct {
	state    punctual.State
	from, to int64 // both included
}

func newSelection(state punctual.State, from, to time.Time) selection {
	sel := selection{state: state, from: -never, to: never}
	if !from.IsZero() {
		sel.from = punctual.CeilMillis(from)
	}
	if !to.IsZero() {
		sel.to = punctual.CeilMillis(to) - 1
	}
	return sel
}

func (sel selection) args(after place, limit int) []any {
	at, id := after.args()
	return []any{int(sel.state), sel.from, sel.to, at, id, limit}
}

// List returns one page of a topic's messages; see punctual.Inspector. Equal times are
// ordered by ID. A page of more than 500 messages, or 4 MiB, is put together from
// several instants.
func (s *Store) List(ctx context.Context, q punctual.ListQuery) (punctual.Page, error) {
	if err := s.enter(ctx); err != nil {
		return punctual.Page{}, err
	}
	defer s.calls.Done()
	q, err := q.CheckList()
	if err != nil {
		return punctual.Page{}, fmt.Errorf("list: %w", err)
	}
	after, err := parsePlace(q.After)
	if err != nil {
		return punctual.Page{}, err
	}
	page := punctual.Page{Messages: []punctual.Info{}}
	for len(page.Messages) < q.Limit {
		n := len(page.Messages)
		if after, err = s.listSome(ctx, &page, q, after); err != nil {
			return punctual.Page{}, fmt.Errorf("list %s: %w", q.Topic, err)
		}
		if len(page.Messages) == n {
			return page, nil
		}
	}
	rest := punctual.Page{}
	one := q
	one.Limit = 1
	if _, err := s.listSome(ctx, &rest, one, after); err != nil {
		return punctual.Page{}, fmt.Errorf("list %s: %w", q.Topic, err)
	}
	if len(rest.Messages) > 0 {
		page.Next = after.String()
	}
	return page, nil
}

// listSome appends what one script may list behind a place, and returns the new place.
func (s *Store) listSome(ctx context.Context, page *punctual.Page, q punctual.ListQuery, after place) (place, error) {
	sel := newSelection(q.State, q.From, q.To)
	n := min(q.Limit-len(page.Messages), scriptItems)
	a, err := s.runPartition(ctx, listScript, s.names.partition(q.Topic), append(sel.args(after, n), scriptBytes)...)
	if err != nil {
		return after, err
	}
	for len(a.items) > 0 {
		id, at, set, message, state := a.string(), a.int(), a.string(), a.string(), a.string()
		if a.bad {
			return after, badReply(listScript)
		}
		i, err := infoOf(q.Topic, id, at, set, message, state, a.now)
		if err != nil {
			return after, err
		}
		page.Messages = append(page.Messages, i)
		after = place{at: at, id: id}
	}
	return after, nil
}

// counts are a topic's statistics with what only this package needs.
type counts struct {
	punctual.TopicStats
	version int64
}

// stats counts one topic, or reports that there is none.
func (s *Store) stats(ctx context.Context, p partition) (counts, bool, error) {
	a, err := s.runPartition(ctx, statsScript, p)
	if err != nil {
		return counts{}, false, err
	}
	if !a.exists {
		return counts{}, false, nil
	}
	c := counts{TopicStats: punctual.TopicStats{
		Topic: p.topic, Scheduled: a.int(), Ready: a.int(), Leased: a.int(), Dead: a.int(),
	}}
	if next := a.int(); next != never {
		c.NextDue = punctual.FromMillis(next)
	}
	c.version = a.int()
	text := a.string()
	if a.bad {
		return counts{}, false, badReply(statsScript)
	}
	if err := json.Unmarshal([]byte(text), &c.Settings); err != nil {
		return counts{}, false, fmt.Errorf("the settings of topic %s cannot be read: %w (%w)", p.topic, punctual.ErrCorrupt, err)
	}
	return c, true, nil
}

// Stats returns the statistics of one topic; see punctual.Inspector.
func (s *Store) Stats(ctx context.Context, topic string) (punctual.TopicStats, error) {
	if err := s.enter(ctx); err != nil {
		return punctual.TopicStats{}, err
	}
	defer s.calls.Done()
	if err := punctual.CheckTopic(topic); err != nil {
		return punctual.TopicStats{}, fmt.Errorf("stats: %w", err)
	}
	c, exists, err := s.stats(ctx, s.names.partition(topic))
	if err == nil && !exists {
		err = punctual.ErrNotFound
	}
	if err != nil {
		return punctual.TopicStats{}, fmt.Errorf("stats of topic %s: %w", topic, err)
	}
	return c.TopicStats, nil
}

// Topics returns the statistics of every topic; see punctual.Inspector. Each topic is counted
// at an instant of its own.
func (s *Store) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	topics, err := s.topicNames(ctx)
	if err != nil {
		return nil, fmt.Errorf("topics: %w", err)
	}
	out := []punctual.TopicStats{}
	for _, topic := range topics {
		c, exists, err := s.stats(ctx, s.names.partition(topic))
		if err != nil {
			return nil, fmt.Errorf("topics: %w", err)
		}
		if exists {
			out = append(out, c.TopicStats)
		}
	}
	return out, nil
}

// topicNames returns the names of all topics, sorted, and perhaps some that were deleted.
func (s *Store) topicNames(ctx context.Context) ([]string, error) {
	reply, err := s.run(ctx, registryScript, []string{s.names.topics()}, []any{"list", ""})
	if err != nil {
		return nil, err
	}
	r := reader{items: reply}
	var topics []string
	for len(r.items) > 0 {
		topics = append(topics, r.string())
	}
	if r.bad {
		return nil, badReply(registryScript)
	}
	slices.Sort(topics)
	return topics, nil
}

// Forecast counts messages by due time; see punctual.Inspector. The step is rounded up to
// whole milliseconds. More than 500 buckets are counted at several instants.
func (s *Store) Forecast(ctx context.Context, q punctual.ForecastQuery) (punctual.Forecast, error) {
	if err := s.enter(ctx); err != nil {
		return punctual.Forecast{}, err
	}
	defer s.calls.Done()
	if err := q.Check(); err != nil {
		return punctual.Forecast{}, fmt.Errorf("forecast: %w", err)
	}
	topics := []string{q.Topic}
	if q.Topic == "" {
		var err error
		if topics, err = s.topicNames(ctx); err != nil {
			return punctual.Forecast{}, fmt.Errorf("forecast: %w", err)
		}
	}
	if err := s.checkEpoch(ctx, false); err != nil {
		return punctual.Forecast{}, fmt.Errorf("forecast: %w", err)
	}
	from := s.clock.floorMillis()
	f := punctual.Forecast{From: punctual.FromMillis(from), Step: millis(punctual.CeilDuration(q.Step)), Counts: make([]int64, q.Buckets)}
	for _, topic := range topics {
		if err := s.forecast(ctx, s.names.partition(topic), &f, from, punctual.CeilDuration(q.Step)); err != nil {
			return punctual.Forecast{}, fmt.Errorf("forecast of %s: %w", topic, err)
		}
	}
	return f, nil
}

// forecast adds the counts of one topic.
func (s *Store) forecast(ctx context.Context, p partition, f *punctual.Forecast, from, step int64) error {
	for first := 0; first < len(f.Counts); first += scriptItems {
		end := min(first+scriptItems, len(f.Counts))
		a, err := s.runPartition(ctx, forecastScript, p, from, step, first, end, len(f.Counts))
		if err != nil {
			return err
		}
		overdue, beyond := a.int(), a.int()
		if first == 0 {
			f.Overdue, f.Beyond = f.Overdue+overdue, f.Beyond+beyond
		}
		n := len(a.items)
		for i := range n {
			f.Counts[first+i] += a.int()
		}
		if a.bad || first+n > end {
			return badReply(forecastScript)
		}
		if n < end-first {
			return nil
		}
	}
	return nil
}
