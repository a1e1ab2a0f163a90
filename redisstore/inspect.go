package redisstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/clock"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/record"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/redisstore/internal/topics"
	"github.com/punctualmq/punctual/storekit"
)

// Get returns one message; see punctual.Inspector.
func (s *Store) Get(ctx context.Context, topic, id string) (punctual.Info, error) {
	check := cmp.Or(storekit.CheckTopic(topic), storekit.CheckID(id))
	return call(ctx, s, "get", id+" of "+topic, check, func() (punctual.Info, error) { return atHome(ctx, s, topic, id, s.getFrom) })
}

// atHome asks the partition that an ID belongs to. If nothing is found and the topic's settings
// have another version than was known, the topic may have another number of partitions, so atHome
// asks again.
func atHome[T any](ctx context.Context, s *Store, topic, id string, ask func(context.Context, keys.Partition, string) (T, int64, error)) (T, error) {
	for l := s.topics.Known(topic); ; {
		p := s.names.Partition(topic, keys.Home(id, l.Size()))
		found, version, err := ask(ctx, p, id)
		if !errors.Is(err, punctual.ErrNotFound) || version == l.Version {
			return found, err
		}
		now, err := s.topics.Renew(ctx, p, version, l)
		if err == nil && now.Version == l.Version {
			err = punctual.ErrNotFound
		}
		if err != nil {
			var none T
			return none, err
		}
		l = now
	}
}

// getFrom asks one partition, and returns the version of the settings there.
func (s *Store) getFrom(ctx context.Context, p keys.Partition, id string) (punctual.Info, int64, error) {
	a, err := s.route.Run(ctx, script.Get, p, nil, id)
	if err != nil {
		return punctual.Info{}, 0, err
	}
	if len(a.Items) == 0 {
		return punctual.Info{}, a.Version, punctual.ErrNotFound
	}
	at, set, message, state := a.Int(), a.Text(), a.Text(), a.Text()
	if a.Bad {
		return punctual.Info{}, 0, script.BadReply(script.Get)
	}
	info, err := infoOf(p.Topic, id, at, set, message, state, a.Now)
	return info, a.Version, err
}

// infoOf puts together what is known of a message: set is the sorted set that it is in, t, l or d,
// with a w behind it if the message waits for its key;
// at is the time that the script gave for it, and now the time of the script, both in ms.
func infoOf(topic, id string, at int64, set, message, state string, now int64) (punctual.Info, error) {
	m, err := record.Read(id, message, state)
	if err != nil {
		return punctual.Info{}, err
	}
	set, waits := strings.CutSuffix(set, "w")
	if set == "t" {
		m.Due = at
		if state == "" {
			m.FirstDue = at
		}
	}
	i := punctual.Info{
		Waiting: waits,
		Message: m.In(topic, id), CancelRequested: m.Cancel, Failures: m.Failures,
		State: punctual.StateScheduled,
	}
	switch {
	case set == "d":
		i.State, i.Died, i.Reason = punctual.StateDead, storekit.FromMillis(at), m.Reason
	case at <= now:
		i.State = punctual.StateReady
	case set == "l":
		i.State, i.LeaseUntil = punctual.StateLeased, storekit.FromMillis(at)
	}
	return i, nil
}

// place is where a message stands in a list. Its text is the cursor of a page.
type place struct {
	at int64 // in ms; of a leased message in 1/script.LeasePlaces ms
	id string
}

func (p place) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.at, 10) + " " + p.id))
}

func (p place) before(o place) bool { return p.at < o.at || p.at == o.at && p.id < o.id }

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
	sel := selection{state: state, from: -clock.Never, to: clock.Never}
	if !from.IsZero() {
		sel.from = storekit.CeilMillis(from)
	}
	if !to.IsZero() {
		sel.to = storekit.CeilMillis(to) - 1
	}
	return sel
}

func (sel selection) args(after place, limit int) []any {
	at, id := after.args()
	return []any{int(sel.state), sel.from, sel.to, at, id, limit}
}

// List returns one page of a topic's messages; see punctual.Inspector. Messages with equal times
// are ordered by ID, leases that end in the same millisecond by their scores first. A page of more
// than 200 messages, or 512 KiB, or of several partitions is put together from several instants.
func (s *Store) List(ctx context.Context, q punctual.ListQuery) (punctual.Page, error) {
	q, err := storekit.CheckList(q)
	return call(ctx, s, "list", q.Topic, err, func() (punctual.Page, error) { return s.list(ctx, q) })
}

// list merges what the partitions list.
func (s *Store) list(ctx context.Context, q punctual.ListQuery) (punctual.Page, error) {
	after, err := parsePlace(q.After)
	if err != nil {
		return punctual.Page{}, storekit.Plain(err)
	}
	parts, err := s.partitions(ctx, q.Topic)
	if err != nil {
		return punctual.Page{}, err
	}
	var lists []*lister
	for _, p := range parts {
		// One message more than the page holds shows whether there is another page.
		l := &lister{s: s, p: p, sel: newSelection(q.State, q.From, q.To), backwards: q.Descending, after: after, share: len(parts), most: q.Limit + 1}
		if q.Reason != "" {
			l.reason, l.most = record.ReasonNumber(q.Reason), script.Items
		}
		lists = append(lists, l)
	}
	page := punctual.Page{Messages: []punctual.Info{}}
	for looks := storekit.ReadLimit; ; {
		first, open, err := earliest(ctx, lists, &looks)
		switch {
		case err != nil:
			return page, err
		case open != nil && (first == nil || open.before(open.after, first.ahead[0].place)):
			page.Next = open.after.String()
			return page, nil
		case first == nil:
			return page, nil
		case len(page.Messages) == q.Limit:
			page.Next = after.String()
			return page, nil
		}
		var e listed
		e, first.ahead = first.ahead[0], first.ahead[1:]
		if q.Bare {
			e.info.Body = nil
		}
		page.Messages, after = append(page.Messages, e.info), e.place
	}
}

// lister lists the messages of one partition, some at a time.
type lister struct {
	s   *Store
	p   keys.Partition
	sel selection
	// backwards says that the list begins with the latest message.
	backwards bool
	after     place    // of the last that was read
	ahead     []listed // read and not yet on the page
	most      int      // how many messages a script reads at most
	share     int      // among how many listers script.Items and script.Bytes are divided
	begun     bool     // a script was sent
	ended     bool     // there are no more to read

	reason int // of the dead to list, as in a state; 0 for all
}

// before reports whether the list shows a message at p before one at o.
func (l *lister) before(p, o place) bool {
	if l.backwards {
		p, o = o, p
	}
	return p.before(o)
}

// listed is a message and where it stands.
type listed struct {
	place
	info punctual.Info
}

// earliest returns the lister whose next message comes first, or nil if none has any. open is the
// one that has come the least far and may have more to read, nil if there is none. Each script
// lowers looks by the number of messages that it may read; a list by reason reads no more when
// looks is used up, except that each lister reads at least once.
func earliest(ctx context.Context, lists []*lister, looks *int) (first, open *lister, err error) {
	for _, l := range lists {
		for len(l.ahead) == 0 && !l.ended && (!l.begun || l.reason == 0 || *looks > 0) {
			if err := l.fill(ctx, looks); err != nil {
				return nil, nil, err
			}
		}
		switch {
		case len(l.ahead) > 0:
			if first == nil || l.before(l.ahead[0].place, first.ahead[0].place) {
				first = l
			}
		case !l.ended && (open == nil || l.before(l.after, open.after)):
			open = l
		}
	}
	return first, open, nil
}

// leastShare and leastShareBytes are the least share of a script, in messages and in bytes, however
// many partitions there are.
const (
	leastShare      = 16
	leastShareBytes = 64 << 10
)

// fill reads the next messages of the partition.
func (l *lister) fill(ctx context.Context, looks *int) error {
	n := min(l.most, max(script.Items/l.share, leastShare))
	asked := n
	if l.backwards {
		asked = -n
	}
	a, err := l.s.route.Run(ctx, script.List, l.p, nil, append(l.sel.args(l.after, asked), max(script.Bytes/l.share, leastShareBytes), l.reason)...)
	if err != nil {
		return err
	}
	l.begun = true
	*looks -= n
	last := place{at: a.Int(), id: a.Text()}
	if l.ended = last.id == ""; !l.ended {
		l.after = last
	}
	for len(a.Items) > 0 {
		id, at, set, message, state := a.Text(), a.Int(), a.Text(), a.Text(), a.Text()
		if a.Bad {
			return script.BadReply(script.List)
		}
		ms := at
		if l.sel.state == punctual.StateLeased {
			ms = (at + script.LeasePlaces - 1) / script.LeasePlaces
		}
		i, err := infoOf(l.p.Topic, id, ms, set, message, state, a.Now)
		if err != nil {
			return err
		}
		l.ahead = append(l.ahead, listed{place{at: at, id: id}, i})
	}
	if a.Bad {
		return script.BadReply(script.List)
	}
	return nil
}

// partitions returns all partitions of a topic as it is now.
func (s *Store) partitions(ctx context.Context, topic string) ([]keys.Partition, error) {
	l, err := s.topics.Load(ctx, topic)
	if err != nil {
		return nil, err
	}
	return s.topics.Partitions(topic, l), nil
}

// stats counts the messages of one topic, or returns ErrNotFound. If a partition has another
// version of the settings than was known, stats looks the topic up, and counts again if the topic
// has another version.
func (s *Store) stats(ctx context.Context, topic string) (punctual.TopicStats, error) {
	for l := s.topics.Known(topic); ; {
		out := punctual.TopicStats{Topic: topic, Settings: l.Settings()}
		x, err := s.count(ctx, l, &out)
		if err != nil {
			return punctual.TopicStats{}, err
		}
		now := l
		if x != nil {
			if now, err = s.topics.Renew(ctx, x.p, x.seen, l); err != nil {
				return punctual.TopicStats{}, err
			}
		}
		switch {
		case now.Version != l.Version:
			l = now
		case l.Exists():
			return out, nil
		default:
			return punctual.TopicStats{}, punctual.ErrNotFound
		}
	}
}

// count adds up the counts of all partitions, and returns one that has another version of the
// settings, if there is one.
func (s *Store) count(ctx context.Context, l *topics.Layout, out *punctual.TopicStats) (x *mismatch, err error) {
	for _, p := range s.topics.Partitions(out.Topic, l) {
		a, err := s.route.Run(ctx, script.Stats, p, nil)
		if err != nil {
			return nil, err
		}
		if a.Version != l.Version {
			x = &mismatch{p, a.Version}
		}
		if a.Version <= 0 {
			continue
		}
		out.Scheduled += a.Int()
		out.Ready += a.Int()
		out.Leased += a.Int()
		out.Dead += a.Int()
		if next := a.Int(); next != clock.Never && (out.NextDue.IsZero() || next < out.NextDue.UnixMilli()) {
			out.NextDue = storekit.FromMillis(next)
		}
		out.Waiting += a.Int()
		if a.Bad {
			return nil, script.BadReply(script.Stats)
		}
	}
	return x, nil
}

// Stats returns the statistics of one topic; see punctual.Inspector. Each partition is counted
// at an instant of its own.
func (s *Store) Stats(ctx context.Context, topic string) (punctual.TopicStats, error) {
	return call(ctx, s, "stats", "of topic "+topic, storekit.CheckTopic(topic), func() (punctual.TopicStats, error) { return s.stats(ctx, topic) })
}

// Topics returns the statistics of every topic; see punctual.Inspector. Each partition
// is counted at an instant of its own.
func (s *Store) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	return call(ctx, s, "topics", "", nil, func() ([]punctual.TopicStats, error) {
		topics, err := s.topics.All(ctx)
		if err != nil {
			return nil, err
		}
		out := []punctual.TopicStats{}
		for _, topic := range topics {
			st, err := s.stats(ctx, topic)
			if errors.Is(err, punctual.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			out = append(out, st)
		}
		return out, nil
	})
}

// Forecast counts messages by due time; see punctual.Inspector. The step is rounded up to whole
// milliseconds. More than 200 buckets are counted at several instants, and so are several
// partitions.
func (s *Store) Forecast(ctx context.Context, q punctual.ForecastQuery) (punctual.Forecast, error) {
	return call(ctx, s, "forecast", "", storekit.CheckForecast(q), func() (punctual.Forecast, error) { return s.forecast(ctx, q) })
}

// forecast adds up what the partitions of one topic, or of all topics, count.
func (s *Store) forecast(ctx context.Context, q punctual.ForecastQuery) (f punctual.Forecast, err error) {
	topics := []string{q.Topic}
	if q.Topic == "" {
		if topics, err = s.topics.All(ctx); err != nil {
			return f, err
		}
	}
	if err := s.health.CheckData(ctx, false); err != nil {
		return f, err
	}
	now := s.clock.LowerBound()
	from, err := storekit.ForecastStart(q, now)
	if err != nil {
		return f, err
	}
	f = punctual.Forecast{From: storekit.FromMillis(from), Step: record.Millis(storekit.CeilDuration(q.Step)), Counts: make([]int64, q.Buckets)}
	for _, topic := range topics {
		parts, err := s.partitions(ctx, topic)
		if err != nil {
			return f, storekit.Plain(fmt.Errorf("forecast of %s: %w", topic, err))
		}
		for _, p := range parts {
			if err := s.addForecast(ctx, p, &f, now, from, storekit.CeilDuration(q.Step)); err != nil {
				return f, storekit.Plain(fmt.Errorf("forecast of %s: %w", topic, err))
			}
		}
	}
	return f, nil
}

// addForecast adds the counts of one partition.
func (s *Store) addForecast(ctx context.Context, p keys.Partition, f *punctual.Forecast, now, from, step int64) error {
	for first := 0; first < len(f.Counts); first += script.Items {
		end := min(first+script.Items, len(f.Counts))
		a, err := s.route.Run(ctx, script.Forecast, p, nil, from, step, first, end, len(f.Counts), now)
		if err != nil {
			return err
		}
		overdue, beyond := a.Int(), a.Int()
		if first == 0 {
			f.Overdue, f.Beyond = f.Overdue+overdue, f.Beyond+beyond
		}
		n := len(a.Items)
		for i := range n {
			f.Counts[first+i] += a.Int()
		}
		if a.Bad || first+n > end {
			return script.BadReply(script.Forecast)
		}
		if n < end-first {
			return nil
		}
	}
	return nil
}
