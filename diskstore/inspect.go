package diskstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/storekit"
)

// view is the store at one instant: a snapshot of the database, and the time. Until it is closed it
// counts as a call under way.
type view struct {
	s    *Store
	now  int64
	snap *database.Snapshot
	due  map[uint32]database.Due // by number of the topic, the counts of ready messages that were begun; not nil in an open view
}

// topicView is one topic in a view, with what was copied of the leases and acks that memory knows
// of it. Its number is 0 if there is no such topic.
type topicView struct {
	view
	database.Info
	memory.View
	deadFrom record.Position // no dead message that is past its retention lies below
}

// snapshot begins a view, and returns it when all that is in it is durable. The view must be closed
// unless there is an error. capture is called with the write lock held. So what capture copies of
// memory and what the view reads from the database are of the same instant.
func (s *Store) snapshot(ctx context.Context, capture func(v view) error) (v view, err error) {
	if err := s.state.Enter(); err != nil {
		return v, err
	}
	v.s, v.due = s, make(map[uint32]database.Due)
	begun := false
	defer func() {
		if !begun {
			v.close()
		}
	}()
	err = s.writer.Observe(ctx, func(tx *writer.Tx) error {
		v.now, v.snap = tx.Ms, s.db.Snapshot()
		return capture(v)
	})
	if err == nil {
		err = s.claims.KeepClock(v.now)
	}
	begun = err == nil
	return v, err
}

// snapshotTopic takes a view of one topic.
func (s *Store) snapshotTopic(ctx context.Context, name string) (*topicView, error) {
	return s.snapshotInto(ctx, name, func(tv *topicView, t *topics.Topic) error {
		tv.View = t.Memory.View()
		return nil
	})
}

// snapshotCounted takes a view of one topic whose ready messages are to be counted.
func (s *Store) snapshotCounted(ctx context.Context, name string) (*topicView, error) {
	return s.snapshotInto(ctx, name, func(tv *topicView, t *topics.Topic) error {
		tv.View, tv.due[tv.Num] = t.Memory.View(), t.Disk.CountDue(tv.now)
		return nil
	})
}

// snapshotMessage takes a view of one message, and returns where the message is.
func (s *Store) snapshotMessage(ctx context.Context, name, id string) (tv *topicView, p database.Place, err error) {
	tv, err = s.snapshotInto(ctx, name, func(tv *topicView, t *topics.Topic) error {
		p, err = tv.snap.Find(tv.Num, id)
		tv.View = t.Memory.ViewOf(p.At)
		return err
	})
	return tv, p, err
}

// snapshotInto takes a view of one topic. capture copies what memory knows of the topic, with the
// write lock held; it is not called if there is no such topic.
func (s *Store) snapshotInto(ctx context.Context, name string, capture func(tv *topicView, t *topics.Topic) error) (*topicView, error) {
	if err := s.admit(ctx, storekit.CheckTopic(name)); err != nil {
		return nil, err
	}
	tv := &topicView{Info: database.Info{Name: name}}
	v, err := s.snapshot(ctx, func(v view) error {
		tv.view = v
		t := s.topics.Get(name)
		if t == nil {
			return nil
		}
		tv.Num, tv.Settings, tv.Live, tv.Dead = t.Disk.Num(), topics.Copy(*t.Settings()), t.Disk.Live(), t.Disk.Dead()
		tv.Lowest, tv.deadFrom = t.Disk.Lowest(), t.Disk.DeadFrom()
		return capture(tv, t)
	})
	tv.view = v
	return tv, err
}

// snapshotAll takes a view of all topics, sorted by name. How long others wait for the write lock
// depends on how many messages are in hand, and on how many topics are large or have dead messages
// past their retention, not on how many topics there are. All else is read from the database
// without the lock.
func (s *Store) snapshotAll(ctx context.Context) (view, []topicView, error) {
	var inMemory map[uint32]memory.View
	deadFrom := make(map[uint32]record.Position)
	v, err := s.snapshot(ctx, func(v view) error {
		inMemory = s.index.ViewAll()
		maps.Copy(v.due, s.db.CountDue(v.now))
		s.sweeps.each(v.now, func(t *topics.Topic) { deadFrom[t.Disk.Num()] = t.Disk.DeadFrom() })
		return nil
	})
	if err != nil {
		return v, nil, err
	}
	infos, err := v.snap.Topics()
	if err != nil {
		v.close()
		return v, nil, err
	}
	tvs := make([]topicView, len(infos))
	for i, info := range infos {
		tvs[i] = topicView{view: v, Info: info, View: inMemory[info.Num], deadFrom: record.MaxPosition}
		if from, ok := deadFrom[info.Num]; ok {
			tvs[i].deadFrom = from
		}
	}
	return v, tvs, nil
}

func (v view) close() {
	defer v.s.state.Leave()
	for _, d := range v.due {
		d.Abandon()
	}
	if v.snap == nil {
		return
	}
	if err := v.snap.Close(); err != nil {
		v.s.log.Warn("closing a snapshot", "error", err)
	}
}

// leasedNow returns the number of leases that have not run out.
func (tv *topicView) leasedNow() (n int64) {
	for _, h := range tv.Leases {
		if tv.now < h.Lease.Until {
			n++
		}
	}
	return n
}

// isElsewhere tells whether a live message on disk does not stand in the list of those that wait,
// or not at its place on disk: it is leased or acked, or a step of the clock has moved its due
// time.
func (tv *topicView) isElsewhere(seq uint64) bool {
	h, leased := tv.Leases[seq]
	return leased && (tv.now < h.Lease.Until || h.Lease.Due != 0) || tv.isAcked(seq)
}

func (tv *topicView) isAcked(seq uint64) bool {
	_, acked := tv.Acked[seq]
	return acked
}

// Get returns one message; see punctual.Inspector.
func (s *Store) Get(ctx context.Context, topic, id string) (punctual.Info, error) {
	if err := s.admit(ctx, cmp.Or(storekit.CheckTopic(topic), storekit.CheckID(id))); err != nil {
		return punctual.Info{}, fmt.Errorf("get: %w", err)
	}
	tv, p, err := s.snapshotMessage(ctx, topic, id)
	if err != nil {
		return punctual.Info{}, fmt.Errorf("get: %w", err)
	}
	defer tv.close()
	if p.Nowhere() || p.Order == database.Live && tv.isAcked(p.At.Seq) || p.Order == database.Dead && p.At.Less(tv.retentionEnd()) {
		return punctual.Info{}, fmt.Errorf("get %s of %s: %w", id, topic, punctual.ErrNotFound)
	}
	return tv.info(p.Order, p.At)
}

// retentionEnd returns the position below which dead messages are past their retention and not
// shown any more, swept or not.
func (tv *topicView) retentionEnd() record.Position { return writer.RetentionEnd(&tv.Settings, tv.now) }

// info returns the message at a place, which must be there.
func (tv *topicView) info(order database.Order, p record.Position) (punctual.Info, error) {
	v, err := tv.snap.Get(tv.Num, order, p)
	if err != nil {
		return punctual.Info{}, err
	}
	if v == nil {
		return punctual.Info{}, tv.s.state.ReadError("topic "+tv.Name, errkind.Corruptf("message %v is named by its ID but not there", p))
	}
	return tv.infoOf(p, v)
}

func (tv *topicView) infoOf(p record.Position, v []byte) (punctual.Info, error) {
	r, err := record.Decode(v)
	if err != nil {
		return punctual.Info{}, tv.s.state.ReadError("topic "+tv.Name, err)
	}
	if h, ok := tv.Leases[p.Seq]; ok && r.Reason == "" {
		h.Lease.AddTo(r)
		r.CancelRequested = r.CancelRequested || h.Cancelled
	}
	i := punctual.Info{Message: r.Public(tv.Name), State: r.State(tv.now), Reason: r.Reason, Failures: r.Failures}
	switch i.State {
	case punctual.StateDead:
		i.Died = storekit.FromMillis(r.Died)
	case punctual.StateLeased:
		i.LeaseUntil = storekit.FromMillis(r.LeaseUntil)
	}
	i.CancelRequested = r.CancelRequested && r.Token != 0
	return i, nil
}

// List returns one page of a topic's messages; see punctual.Inspector. Messages with equal times
// are in the order in which they were pushed.
func (s *Store) List(ctx context.Context, q punctual.ListQuery) (punctual.Page, error) {
	q, err := storekit.CheckList(q)
	if err := s.admit(ctx, err); err != nil {
		return punctual.Page{}, fmt.Errorf("list: %w", err)
	}
	after, err := parseCursor(q.After)
	if err != nil {
		return punctual.Page{}, fmt.Errorf("list: %w", err)
	}
	tv, err := s.snapshotTopic(ctx, q.Topic)
	if err != nil {
		return punctual.Page{}, fmt.Errorf("list: %w", err)
	}
	defer tv.close()
	page := punctual.Page{Messages: []punctual.Info{}}
	if tv.Num == 0 {
		return page, nil
	}
	looks, size := 0, 0 // how many messages were read that q.Reason leaves out of the page, and how many bytes their bodies have
	err = tv.scan(ctx, q.State, tv.bounds(q, after), func(order database.Order, at, key record.Position) (bool, error) {
		if len(page.Messages) == q.Limit || looks >= storekit.ReadLimit || size >= claimBytes {
			page.Next = cursor(after)
			return false, nil
		}
		after = at
		i, err := tv.info(order, key)
		if q.Reason != "" && i.Reason != q.Reason {
			looks, size = looks+1, size+len(i.Body)
			return true, err
		}
		if q.Bare {
			i.Body = nil
		}
		page.Messages = append(page.Messages, i)
		return true, err
	})
	return page, err
}

// span is a range of positions: from is included, to is not.
type span struct {
	from, to  record.Position
	backwards bool // the range is read from its end
}

// bounds returns the range of a list query.
func (tv *topicView) bounds(q punctual.ListQuery, after record.Position) span {
	b := spanOf(q.From.IsZero(), storekit.CeilMillis(q.From), q.To.IsZero(), storekit.CeilMillis(q.To))
	b.backwards = q.Descending
	switch {
	case q.After == "":
	case q.Descending && after.Less(b.to):
		b.to = after
	case !q.Descending && !after.Less(b.from):
		b.from = after.Next()
	}
	return b
}

func spanOf(noFrom bool, from int64, noTo bool, to int64) span {
	b := span{from: record.MinPosition, to: record.MaxPosition}
	if !noFrom {
		b.from = record.Position{Ms: from}
	}
	if !noTo {
		b.to = record.Position{Ms: to}
	}
	return b
}

// scan calls f for the messages of a state in a span, in order, until f returns false. StateNone
// stands for scheduled and ready. at is where the message stands in the list, key where it is
// stored.
func (tv *topicView) scan(ctx context.Context, state punctual.State, b span, f func(order database.Order, at, key record.Position) (bool, error)) error {
	switch state {
	case punctual.StateDead:
		if p := tv.retentionEnd(); b.from.Less(p) {
			b.from = p
		}
		return tv.scanStored(ctx, database.Dead, b, f)
	case punctual.StateLeased:
		return tv.scanLeased(b, f)
	case punctual.StateReady:
		if p := (record.Position{Ms: tv.now + 1}); p.Less(b.to) {
			b.to = p
		}
	case punctual.StateScheduled:
		if p := (record.Position{Ms: tv.now + 1}); b.from.Less(p) {
			b.from = p
		}
	}
	moved, more := tv.moved(b), true
	// flush calls f for those of moved that stand before a position.
	flush := func(before func(place) bool) (err error) {
		for more && err == nil && len(moved) > 0 && before(moved[0]) {
			p := moved[0]
			moved = moved[1:]
			more, err = f(database.Live, p.at, p.key)
		}
		return err
	}
	err := tv.scanStored(ctx, database.Live, b, func(order database.Order, at, key record.Position) (bool, error) {
		if tv.isElsewhere(at.Seq) {
			return true, nil
		}
		if err := flush(func(p place) bool { return p.at.Less(at) != b.backwards }); err != nil || !more {
			return false, err
		}
		var err error
		more, err = f(order, at, key)
		return more, err
	})
	if err != nil {
		return err
	}
	return flush(func(place) bool { return true })
}

// place is where a message stands in a list, and where it is stored.
type place struct{ at, key record.Position }

// leases returns the messages under a lease that at selects, in a span and in its order. at returns
// where a message stands in the list.
func (tv *topicView) leases(b span, at func(h memory.Held) (ms int64, ok bool)) []place {
	places := make([]place, 0, len(tv.Leases))
	for _, h := range tv.Leases {
		ms, ok := at(h)
		if p := (record.Position{Ms: ms, Seq: h.Lease.At.Seq}); ok && !p.Less(b.from) && p.Less(b.to) {
			places = append(places, place{p, h.Lease.At})
		}
	}
	slices.SortFunc(places, func(p, q place) int {
		return cmp.Or(cmp.Compare(p.at.Ms, q.at.Ms), cmp.Compare(p.at.Seq, q.at.Seq))
	})
	if b.backwards {
		slices.Reverse(places)
	}
	return places
}

// moved returns the messages whose lease has run out and whose due time a step of the clock has
// moved.
func (tv *topicView) moved(b span) []place {
	return tv.leases(b, func(h memory.Held) (int64, bool) { return h.Lease.Due, h.Lease.Due != 0 && h.Lease.Until <= tv.now })
}

func (tv *topicView) scanStored(ctx context.Context, order database.Order, b span, f func(order database.Order, at, key record.Position) (bool, error)) error {
	if order == database.Live && b.from.Less(tv.Lowest) {
		b.from = tv.Lowest
	}
	scan := tv.snap.Scan
	if b.backwards {
		scan = tv.snap.ScanBack
	}
	return scan(ctx, tv.Num, order, b.from, b.to, func(p record.Position) (bool, error) { return f(order, p, p) })
}

func (tv *topicView) scanLeased(b span, f func(order database.Order, at, key record.Position) (bool, error)) error {
	leased := tv.leases(b, func(h memory.Held) (int64, bool) { return h.Lease.Until, tv.now < h.Lease.Until })
	for _, p := range leased {
		if more, err := f(database.Live, p.at, p.key); err != nil || !more {
			return err
		}
	}
	return nil
}

func cursor(p record.Position) string { return base64.RawURLEncoding.EncodeToString(p.Append(nil)) }

func parseCursor(text string) (record.Position, error) {
	if text == "" {
		return record.MinPosition, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != 16 {
		return record.Position{}, fmt.Errorf("after %q: use the Next of a former page: %w", text, punctual.ErrInvalid)
	}
	return record.ParsePosition(raw)
}

// Topics returns the statistics of every topic; see punctual.Inspector. It reads the keys of the
// messages that are due; in topics of 1000 live messages or more only of those that have become due
// since the last count.
func (s *Store) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	if err := s.admit(ctx, nil); err != nil {
		return nil, fmt.Errorf("topics: %w", err)
	}
	v, tvs, err := s.snapshotAll(ctx)
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

// TopicNames returns the names of the topics that q selects; see storekit.TopicNamer. It counts no
// messages and reads nothing from disk, so it has the write lock only for a moment.
func (s *Store) TopicNames(ctx context.Context, q storekit.NameQuery) ([]string, error) {
	if err := s.admit(ctx, nil); err != nil {
		return nil, fmt.Errorf("topic names: %w", err)
	}
	if err := s.state.Enter(); err != nil {
		return nil, fmt.Errorf("topic names: %w", err)
	}
	defer s.state.Leave()
	names := s.topics.Names(q)
	if err := s.writer.WaitDurable(ctx); err != nil { // a topic may have been made or deleted a moment ago
		return nil, fmt.Errorf("topic names: %w", err)
	}
	return names, nil
}

// NewCompanions returns the names of new companions; see storekit.TopicNamer. It reads nothing from
// disk.
func (s *Store) NewCompanions(ctx context.Context, mark string, wait time.Duration) (storekit.Companions, error) {
	a := s.topics.Arrivals.Await(ctx, mark, wait)
	if err := s.admit(ctx, nil); err != nil {
		return storekit.Companions{}, fmt.Errorf("new companions: %w", err)
	}
	if err := s.state.Enter(); err != nil {
		return storekit.Companions{}, fmt.Errorf("new companions: %w", err)
	}
	defer s.state.Leave()
	c := s.topics.NewCompanions(a)
	if len(c.Names) > 0 {
		if err := s.writer.WaitDurable(ctx); err != nil { // a topic may have been made a moment ago
			return storekit.Companions{}, fmt.Errorf("new companions: %w", err)
		}
	}
	return c, nil
}

// Stats returns the statistics of one topic; see punctual.Inspector. It reads keys as Topics does.
func (s *Store) Stats(ctx context.Context, topic string) (punctual.TopicStats, error) {
	tv, err := s.snapshotCounted(ctx, topic)
	if err != nil {
		return punctual.TopicStats{}, fmt.Errorf("stats: %w", err)
	}
	defer tv.close()
	if tv.Num == 0 {
		return punctual.TopicStats{}, fmt.Errorf("stats of topic %s: %w", topic, punctual.ErrNotFound)
	}
	return tv.stats(ctx)
}

func (tv *topicView) stats(ctx context.Context) (punctual.TopicStats, error) {
	out := punctual.TopicStats{Topic: tv.Name, Leased: tv.leasedNow(), Dead: tv.Dead, Settings: tv.Settings}
	unswept, err := tv.unswept(ctx)
	if err != nil {
		return out, err
	}
	out.Dead -= unswept
	if out.Ready, err = tv.countReady(ctx); err != nil {
		return out, err
	}
	out.Scheduled = tv.Live - int64(len(tv.Acked)) - out.Ready - out.Leased
	first := punctual.StateReady
	if out.Ready == 0 {
		first = punctual.StateScheduled
	}
	if out.Ready+out.Scheduled == 0 {
		return out, nil
	}
	return out, tv.scan(ctx, first, span{from: record.MinPosition, to: record.MaxPosition}, func(_ database.Order, at, _ record.Position) (bool, error) {
		out.NextDue = storekit.FromMillis(at.Ms)
		return false, nil
	})
}

// countReady counts the ready messages: those on disk whose due time has come, less those that are
// leased, and less those that are acked and not deleted yet. After a step of the clock the time at
// which a leased or acked message is stored may lie ahead. If the lease of such a message has run
// out, the message is ready all the same.
func (tv *topicView) countReady(ctx context.Context) (int64, error) {
	due, ok := tv.due[tv.Num]
	if !ok {
		due.From = record.MinPosition
	}
	n := due.Known
	err := tv.scanStored(ctx, database.Live, span{from: due.From, to: record.Position{Ms: tv.now + 1}}, func(database.Order, record.Position, record.Position) (bool, error) {
		n++
		return true, nil
	})
	if err != nil {
		return 0, err
	}
	due.Counted(n)
	for _, h := range tv.Leases {
		switch stored, leased := h.Lease.At.Ms <= tv.now, tv.now < h.Lease.Until; {
		case stored && leased:
			n--
		case !stored && !leased:
			n++
		}
	}
	for _, p := range tv.Acked {
		if p.Ms <= tv.now {
			n--
		}
	}
	return n, nil
}

// unswept counts the dead messages that are past their retention and still on disk.
func (tv *topicView) unswept(ctx context.Context) (n int64, err error) {
	if to := tv.retentionEnd(); tv.deadFrom.Less(to) {
		err = tv.scanStored(ctx, database.Dead, span{from: tv.deadFrom, to: to}, func(database.Order, record.Position, record.Position) (bool, error) {
			n++
			return true, nil
		})
	}
	return n, err
}

// Forecast counts messages by due time; see punctual.Inspector. It reads the keys of all
// messages in range, and rounds the step up to whole milliseconds.
func (s *Store) Forecast(ctx context.Context, q punctual.ForecastQuery) (punctual.Forecast, error) {
	if err := s.admit(ctx, storekit.CheckForecast(q)); err != nil {
		return punctual.Forecast{}, fmt.Errorf("forecast: %w", err)
	}
	v, tvs, err := s.snapshotForecast(ctx, q.Topic)
	if err != nil {
		return punctual.Forecast{}, fmt.Errorf("forecast: %w", err)
	}
	defer v.close()
	from, err := storekit.ForecastStart(q, v.now)
	if err != nil {
		return punctual.Forecast{}, fmt.Errorf("forecast: %w", err)
	}
	step := storekit.CeilDuration(q.Step)
	out := punctual.Forecast{From: storekit.FromMillis(from), Step: msDuration(step), Counts: make([]int64, q.Buckets)}
	for i := range tvs {
		if err := tvs[i].forecast(ctx, &out, from, step); err != nil {
			return out, fmt.Errorf("forecast: %w", err)
		}
	}
	return out, nil
}

// snapshotForecast takes a view of the named topic, or of all topics if the name is empty.
func (s *Store) snapshotForecast(ctx context.Context, topic string) (view, []topicView, error) {
	if topic == "" {
		return s.snapshotAll(ctx)
	}
	tv, err := s.snapshotCounted(ctx, topic)
	if err != nil {
		return view{}, nil, err
	}
	if tv.Num == 0 {
		return tv.view, nil, nil
	}
	return tv.view, []topicView{*tv}, nil
}

func (tv *topicView) forecast(ctx context.Context, out *punctual.Forecast, from, step int64) error {
	st, err := tv.stats(ctx)
	if err != nil {
		return err
	}
	out.Overdue += st.Ready + st.Leased
	ahead := int64(0)
	end := record.MaxPosition
	if n := int64(len(out.Counts)); step < (never-from)/n {
		end = record.Position{Ms: from + n*step}
	}
	err = tv.scan(ctx, punctual.StateScheduled, span{from: record.MinPosition, to: end}, func(_ database.Order, at, _ record.Position) (bool, error) {
		out.Counts[(at.Ms-from)/step]++
		ahead++
		return true, nil
	})
	out.Beyond += st.Scheduled - ahead
	return err
}

// Settings returns a topic's settings; see punctual.Inspector.
func (s *Store) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	if err := s.admit(ctx, storekit.CheckTopic(topic)); err != nil {
		return punctual.Settings{}, fmt.Errorf("settings: %w", err)
	}
	if err := s.state.Enter(); err != nil {
		return punctual.Settings{}, fmt.Errorf("settings: %w", err)
	}
	defer s.state.Leave()
	settings := punctual.DefaultSettings()
	err := s.writer.Observe(ctx, func(*writer.Tx) error {
		if t := s.topics.Get(topic); t != nil {
			settings = topics.Copy(*t.Settings())
		}
		return nil
	})
	if err != nil {
		return punctual.Settings{}, fmt.Errorf("settings: %w", err)
	}
	return settings, nil
}

// Configure changes a topic's settings; see punctual.Inspector.
func (s *Store) Configure(ctx context.Context, topic string, p punctual.SettingsPatch) (punctual.Settings, error) {
	set, err := s.configure(ctx, topic, p)
	if err != nil {
		return punctual.Settings{}, fmt.Errorf("configure %s: %w", strings.ToValidUTF8(topic, "?"), err)
	}
	if p.Groups != nil {
		s.topics.Arrivals.Tell()
	}
	return set, nil
}

func (s *Store) configure(ctx context.Context, topic string, p punctual.SettingsPatch) (settings punctual.Settings, err error) {
	if err := s.admit(ctx, cmp.Or(storekit.CheckTopic(topic), storekit.CheckCompanionPatch(topic, &p))); err != nil {
		return punctual.Settings{}, err
	}
	if err := s.state.Enter(); err != nil {
		return punctual.Settings{}, err
	}
	defer s.state.Leave()
	if err := s.sweepAll(ctx, topic); err != nil { // so that a longer retention does not bring back messages that are past the old one
		return punctual.Settings{}, err
	}
	tx, err := s.writer.Begin(ctx)
	if err != nil {
		return punctual.Settings{}, err
	}
	defer tx.Close(&err)
	old, t := punctual.DefaultSettings(), s.topics.Get(topic)
	if t != nil {
		old = topics.Copy(*t.Settings())
	}
	settings, err = storekit.ApplySettings(old, p, storekit.CanSet{Partitions: 1, KeepsFinished: true, Emits: true, BoundsLeases: true})
	if t != nil && err == nil {
		err = s.sweepRest(tx, t)
	}
	if err != nil { // the refusal may rest on settings that are not durable yet, so the answer waits for them
		return punctual.Settings{}, cmp.Or(tx.Commit(ctx), err)
	}
	if err = tx.MakeTopics(append(storekit.GroupTopics(topic, &p), topic)...); err != nil {
		return punctual.Settings{}, err
	}
	t = tx.Existing(topic)
	t.Configure(settings, s.clock.ms())
	s.sweeps.plan(t)
	tx.Maintenance().PutSettings(t.Disk, settings)
	if err := tx.Commit(ctx); err != nil {
		return punctual.Settings{}, err
	}
	s.waiters.wake(topic, -never) // because the change may have ended a pause of its deliveries
	return topics.Copy(settings), nil
}
