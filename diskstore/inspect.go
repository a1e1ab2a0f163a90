package diskstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/punctualmq/punctual"
)

// view is the store at one instant: a snapshot of the database and the leases of that
// moment. It counts as a method under way.
type view struct {
	s    *Store
	now  int64
	snap *pebble.Snapshot
}

// topicView is one topic in a view.
type topicView struct {
	view
	t          *topic
	num        uint32
	settings   punctual.Settings
	live, dead int64
	mark       pos
	leases     map[uint64]entry // leased messages, those whose lease ran out too
	acked      map[uint64]bool  // finished messages that are still on disk
}

// look takes a view of some topics, all if names is empty. It must be closed.
func (s *Store) look(ctx context.Context, names ...string) (view, []topicView, error) {
	if err := s.enter(); err != nil {
		return view{}, nil, err
	}
	tx, err := s.beginLook(ctx)
	if err != nil {
		s.calls.Done()
		return view{}, nil, err
	}
	defer s.abort(tx)
	v := view{s: s, now: tx.ms, snap: s.db.NewSnapshot()}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []topicView
	for name, t := range s.topics {
		if len(names) == 0 || slices.Contains(names, name) {
			out = append(out, v.topic(t))
		}
	}
	slices.SortFunc(out, func(a, b topicView) int { return cmp.Compare(a.t.name, b.t.name) })
	return v, out, nil
}

// beginLook begins a transaction after the dead whose retention is over have gone.
func (s *Store) beginLook(ctx context.Context) (*txn, error) {
	for _, t := range s.allTopics() {
		if err := s.sweepDead(ctx, t); err != nil {
			return nil, err
		}
	}
	return s.begin(ctx)
}

func (v view) close() {
	defer v.s.calls.Done()
	if err := v.snap.Close(); err != nil {
		v.s.log.Warn("closing a snapshot", "error", err)
	}
}

// topic copies what memory knows of a topic. Called with mu held.
func (v view) topic(t *topic) topicView {
	tv := topicView{
		view: v, t: t, num: t.num, settings: copySettings(t.settings), live: t.live, dead: t.dead, mark: t.mark,
		leases: make(map[uint64]entry, len(t.leased)), acked: make(map[uint64]bool, t.acked),
	}
	if t.acked > 0 {
		for seq, a := range v.s.acked {
			if a.topic == t {
				tv.acked[seq] = true
			}
		}
	}
	for seq, e := range t.leased {
		if e.held() {
			tv.leases[seq] = *e
		}
	}
	return tv
}

func copySettings(s punctual.Settings) punctual.Settings {
	s.Partitions = max(s.Partitions, 1) // older versions did not write it
	s.Backoff.Delays = slices.Clone(s.Backoff.Delays)
	return s
}

// leasedNow is the number of leases that have not run out.
func (tv *topicView) leasedNow() (n int64) {
	for _, e := range tv.leases {
		if tv.now < e.next {
			n++
		}
	}
	return n
}

func (tv *topicView) isLeased(seq uint64) bool {
	e, ok := tv.leases[seq]
	return ok && tv.now < e.next
}

// lookTopic is look for one topic; the view is of no topic when there is none.
func (s *Store) lookTopic(ctx context.Context, name string) (*topicView, error) {
	if err := punctual.CheckTopic(name); err != nil {
		return nil, err
	}
	v, tvs, err := s.look(ctx, name)
	if err != nil {
		return nil, err
	}
	if len(tvs) == 0 {
		return &topicView{view: v}, nil
	}
	return &tvs[0], nil
}

// Get returns one message; see punctual.Inspector.
func (s *Store) Get(ctx context.Context, topic, id string) (punctual.Info, error) {
	if err := cmp.Or(punctual.CheckTopic(topic), punctual.CheckID(id)); err != nil {
		return punctual.Info{}, fmt.Errorf("get: %w", err)
	}
	tv, err := s.lookTopic(ctx, topic)
	if err != nil {
		return punctual.Info{}, fmt.Errorf("get: %w", err)
	}
	defer tv.close()
	p, err := tv.find(id)
	if err != nil {
		return punctual.Info{}, fmt.Errorf("get: %w", err)
	}
	if p.kind == 0 || p.kind == keyLive && tv.acked[p.pos.seq] {
		return punctual.Info{}, fmt.Errorf("get %s of %s: %w", id, topic, punctual.ErrNotFound)
	}
	return tv.info(p.kind, p.pos)
}

func (tv *topicView) find(id string) (place, error) {
	if tv.t == nil {
		return place{}, nil
	}
	v, err := tv.get(idKey(keyID, tv.num, id))
	if err != nil || v == nil {
		return place{}, err
	}
	return parsePlace(v)
}

// get reads a key of the snapshot; nil if it is not there.
func (v view) get(key []byte) ([]byte, error) {
	val, closer, err := v.snap.Get(key)
	if err == pebble.ErrNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, v.s.readError("read", err)
	}
	val = slices.Clone(val)
	return val, closer.Close()
}

// info returns a message of which the place is known.
func (tv *topicView) info(kind byte, p pos) (punctual.Info, error) {
	v, err := tv.get(posKey(kind, tv.num, p))
	if err != nil {
		return punctual.Info{}, err
	}
	if v == nil {
		return punctual.Info{}, tv.s.readError("topic "+tv.t.name, corruptf("message %v is named by its ID but not there", p))
	}
	return tv.infoOf(p, v)
}

func (tv *topicView) infoOf(p pos, v []byte) (punctual.Info, error) {
	r, err := decodeRecord(v)
	if err != nil {
		return punctual.Info{}, tv.s.readError("topic "+tv.t.name, err)
	}
	i := punctual.Info{State: punctual.StateScheduled}
	if r.dead {
		i.State, i.Died, i.Reason = punctual.StateDead, punctual.FromMillis(r.died), r.reason
	} else {
		tv.addLease(&i, r, p)
	}
	i.Message, i.Failures = r.message(tv.t.name), r.failures
	return i, nil
}

// addLease adds the state of a live message, and what its lease, running or run out, says of it.
func (tv *topicView) addLease(i *punctual.Info, r *record, p pos) {
	if p.ms <= tv.now {
		i.State = punctual.StateReady
	}
	e, ok := tv.leases[p.seq]
	if !ok {
		return
	}
	e.addTo(r)
	i.CancelRequested = e.cancel || r.cancel
	if tv.now < e.next {
		i.State, i.LeaseUntil = punctual.StateLeased, punctual.FromMillis(e.next)
	}
}

// List returns one page of a topic's messages; see punctual.Inspector. Equal times are
// ordered by arrival.
func (s *Store) List(ctx context.Context, q punctual.ListQuery) (punctual.Page, error) {
	q, err := q.CheckList()
	if err != nil {
		return punctual.Page{}, fmt.Errorf("list: %w", err)
	}
	after, err := parseCursor(q.After)
	if err != nil {
		return punctual.Page{}, fmt.Errorf("list: %w", err)
	}
	tv, err := s.lookTopic(ctx, q.Topic)
	if err != nil {
		return punctual.Page{}, fmt.Errorf("list: %w", err)
	}
	defer tv.close()
	page := punctual.Page{Messages: []punctual.Info{}}
	if tv.t == nil {
		return page, nil
	}
	err = tv.scan(ctx, q.State, tv.bounds(q, after), func(kind byte, at, key pos) (bool, error) {
		if len(page.Messages) == q.Limit {
			page.Next = cursor(after)
			return false, nil
		}
		after = at
		i, err := tv.info(kind, key)
		page.Messages = append(page.Messages, i)
		return true, err
	})
	return page, err
}

// span is a range of places, from included, to not.
type span struct{ from, to pos }

// bounds is the range of a list query.
func (tv *topicView) bounds(q punctual.ListQuery, after pos) span {
	b := spanOf(q.From.IsZero(), punctual.CeilMillis(q.From), q.To.IsZero(), punctual.CeilMillis(q.To))
	if q.After != "" && !after.less(b.from) {
		b.from = pos{after.ms, after.seq + 1}
	}
	return b
}

func spanOf(noFrom bool, from int64, noTo bool, to int64) span {
	b := span{minPos, maxPos}
	if !noFrom {
		b.from = pos{ms: from}
	}
	if !noTo {
		b.to = pos{ms: to}
	}
	return b
}

// scan calls f for the messages of a state in a span, in order, until it returns false. at
// is where the message stands in the list, key where it is stored.
func (tv *topicView) scan(ctx context.Context, state punctual.State, b span, f func(kind byte, at, key pos) (bool, error)) error {
	switch state {
	case punctual.StateDead:
		return tv.scanStored(ctx, keyDead, b, f)
	case punctual.StateLeased:
		return tv.scanLeased(b, f)
	case punctual.StateReady:
		b.to = least(b.to, pos{ms: tv.now + 1})
	case punctual.StateScheduled:
		if p := (pos{ms: tv.now + 1}); b.from.less(p) {
			b.from = p
		}
	}
	return tv.scanStored(ctx, keyLive, b, func(kind byte, at, key pos) (bool, error) {
		if tv.isLeased(at.seq) || tv.acked[at.seq] {
			return true, nil
		}
		return f(kind, at, key)
	})
}

func least(a, b pos) pos {
	if a.less(b) {
		return a
	}
	return b
}

func (tv *topicView) scanStored(ctx context.Context, kind byte, b span, f func(kind byte, at, key pos) (bool, error)) error {
	if kind == keyLive && b.from.less(tv.mark) {
		b.from = tv.mark
	}
	hi := upper(topicKey(kind, tv.num))
	if b.to != maxPos {
		hi = posKey(kind, tv.num, b.to)
	}
	it, err := tv.snap.NewIter(&pebble.IterOptions{LowerBound: posKey(kind, tv.num, b.from), UpperBound: hi})
	if err != nil {
		return tv.s.readError("read topic "+tv.t.name, err)
	}
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n%1024 == 0 {
			if err := ctxOrUsable(ctx, tv.s); err != nil {
				return joinClose(err, it)
			}
		}
		_, p, err := parsePosKey(it.Key())
		if err != nil {
			return joinClose(tv.s.readError("topic "+tv.t.name, err), it)
		}
		if more, err := f(kind, p, p); err != nil || !more {
			return joinClose(err, it)
		}
	}
	return tv.s.readError("read topic "+tv.t.name, joinClose(it.Error(), it))
}

func (tv *topicView) scanLeased(b span, f func(kind byte, at, key pos) (bool, error)) error {
	es := make([]entry, 0, len(tv.leases))
	for _, e := range tv.leases {
		at := pos{e.next, e.key.seq}
		if tv.now < e.next && !at.less(b.from) && at.less(b.to) {
			es = append(es, e)
		}
	}
	slices.SortFunc(es, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.next, b.next), cmp.Compare(a.key.seq, b.key.seq))
	})
	for _, e := range es {
		if more, err := f(keyLive, pos{e.next, e.key.seq}, e.key); err != nil || !more {
			return err
		}
	}
	return nil
}

func cursor(p pos) string { return base64.RawURLEncoding.EncodeToString(p.append(nil)) }

func parseCursor(text string) (pos, error) {
	if text == "" {
		return minPos, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != 16 {
		return pos{}, fmt.Errorf("after %q: use the Next of a former page: %w", text, punctual.ErrInvalid)
	}
	return parsePos(raw)
}

// Topics returns the statistics of every topic; see punctual.Inspector. It counts ready
// messages one by one.
func (s *Store) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	v, tvs, err := s.look(ctx)
	if err != nil {
		return nil, fmt.Errorf("topics: %w", err)
	}
	defer v.close()
	out := make([]punctual.TopicStats, len(tvs))
	for i := range tvs {
		if out[i], err = tvs[i].stats(ctx); err != nil {
			return nil, fmt.Errorf("topics: %w", err)
		}
	}
	return out, nil
}

// Stats returns the statistics of one topic; see punctual.Inspector. It counts ready
// messages one by one.
func (s *Store) Stats(ctx context.Context, topic string) (punctual.TopicStats, error) {
	tv, err := s.lookTopic(ctx, topic)
	if err != nil {
		return punctual.TopicStats{}, fmt.Errorf("stats: %w", err)
	}
	defer tv.close()
	if tv.t == nil {
		return punctual.TopicStats{}, fmt.Errorf("stats of topic %s: %w", topic, punctual.ErrNotFound)
	}
	return tv.stats(ctx)
}

func (tv *topicView) stats(ctx context.Context) (punctual.TopicStats, error) {
	out := punctual.TopicStats{Topic: tv.t.name, Leased: tv.leasedNow(), Dead: tv.dead, Settings: tv.settings}
	err := tv.scan(ctx, punctual.StateReady, span{minPos, maxPos}, func(_ byte, at, _ pos) (bool, error) {
		if out.Ready++; out.Ready == 1 {
			out.NextDue = punctual.FromMillis(at.ms)
		}
		return true, nil
	})
	if err != nil {
		return out, err
	}
	out.Scheduled = tv.live - int64(len(tv.acked)) - out.Ready - out.Leased
	if out.Ready > 0 || out.Scheduled == 0 {
		return out, nil
	}
	return out, tv.scan(ctx, punctual.StateScheduled, span{minPos, maxPos}, func(_ byte, at, _ pos) (bool, error) {
		out.NextDue = punctual.FromMillis(at.ms)
		return false, nil
	})
}

// Forecast counts messages by due time; see punctual.Inspector. It reads the keys of all
// messages in range, and rounds the step up to whole milliseconds.
func (s *Store) Forecast(ctx context.Context, q punctual.ForecastQuery) (punctual.Forecast, error) {
	if err := q.Check(); err != nil {
		return punctual.Forecast{}, fmt.Errorf("forecast: %w", err)
	}
	var names []string
	if q.Topic != "" {
		names = []string{q.Topic}
	}
	v, tvs, err := s.look(ctx, names...)
	if err != nil {
		return punctual.Forecast{}, fmt.Errorf("forecast: %w", err)
	}
	defer v.close()
	step := punctual.CeilDuration(q.Step)
	out := punctual.Forecast{From: punctual.FromMillis(v.now), Step: msDuration(step), Counts: make([]int64, q.Buckets)}
	for i := range tvs {
		if err := tvs[i].forecast(ctx, &out, step); err != nil {
			return out, fmt.Errorf("forecast: %w", err)
		}
	}
	return out, nil
}

func (tv *topicView) forecast(ctx context.Context, out *punctual.Forecast, step int64) error {
	st, err := tv.stats(ctx)
	if err != nil {
		return err
	}
	out.Overdue += st.Ready + st.Leased
	ahead := int64(0)
	end := maxPos
	if n := int64(len(out.Counts)); step < (never-tv.now)/n {
		end = pos{ms: tv.now + n*step}
	}
	err = tv.scan(ctx, punctual.StateScheduled, span{minPos, end}, func(_ byte, at, _ pos) (bool, error) {
		out.Counts[(at.ms-tv.now)/step]++
		ahead++
		return true, nil
	})
	out.Beyond += st.Scheduled - ahead
	return err
}

// Settings returns a topic's settings; see punctual.Inspector.
func (s *Store) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	if err := punctual.CheckTopic(topic); err != nil {
		return punctual.Settings{}, fmt.Errorf("settings: %w", err)
	}
	if err := ctxOrUsable(ctx, s); err != nil {
		return punctual.Settings{}, fmt.Errorf("settings: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[topic]; t != nil {
		return copySettings(t.settings), nil
	}
	return punctual.DefaultSettings(), nil
}

// Configure changes a topic's settings; see punctual.Inspector.
func (s *Store) Configure(ctx context.Context, topic string, p punctual.SettingsPatch) (punctual.Settings, error) {
	set, err := s.configure(ctx, topic, p)
	if err != nil {
		return punctual.Settings{}, fmt.Errorf("configure %s: %w", strings.ToValidUTF8(topic, "?"), err)
	}
	return set, nil
}

func (s *Store) configure(ctx context.Context, topic string, p punctual.SettingsPatch) (punctual.Settings, error) {
	if err := punctual.CheckTopic(topic); err != nil {
		return punctual.Settings{}, err
	}
	if err := s.enter(); err != nil {
		return punctual.Settings{}, err
	}
	defer s.calls.Done()
	tx, err := s.beginLook(ctx) // a longer retention does not bring back what has lapsed
	if err != nil {
		return punctual.Settings{}, err
	}
	old := punctual.DefaultSettings()
	if t := s.topicNamed(topic); t != nil {
		old = t.settings
	}
	settings, err := p.Apply(copySettings(old))
	if err == nil {
		err = settings.CheckUndivided()
	}
	if err != nil {
		s.abort(tx)
		return punctual.Settings{}, err
	}
	t := tx.topic(topic)
	s.mu.Lock()
	t.settings = copySettings(settings)
	s.mu.Unlock()
	tx.putTopic(t)
	if err := s.commit(ctx, tx); err != nil {
		return punctual.Settings{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake(t, -never) // it may be resumed
	return copySettings(settings), nil
}
