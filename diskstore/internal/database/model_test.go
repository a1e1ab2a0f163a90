package database

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// model is a database as maps. It shows what any engine under this package has to promise.
type model struct {
	topics map[string]*modelTopic
	clock  int64
	last   uint64 // the number of the last new message
}

type modelTopic struct {
	settings   punctual.Settings
	messages   map[string]modelMessage      // by ID
	remembered map[string]int64             // by ID, until when
	finished   map[string]punctual.Finished // by ID
}

type modelMessage struct {
	order Order
	at    record.Position
	body  string
	died  punctual.DeathReason
	// attempts is how often Rewrite has counted an attempt in the record.
	attempts int
}

func (m model) clone() model {
	c := model{make(map[string]*modelTopic), m.clock, m.last}
	for name, t := range m.topics {
		c.topics[name] = &modelTopic{t.settings, maps.Clone(t.messages), maps.Clone(t.remembered), maps.Clone(t.finished)}
	}
	return c
}

// in are the IDs of a topic's messages in one order.
func (t *modelTopic) in(order Order) (ids []string) {
	for id, m := range t.messages {
		if m.order == order {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		p, q := t.messages[a].at, t.messages[b].at
		return cmp.Or(cmp.Compare(p.Ms, q.Ms), cmp.Compare(p.Seq, q.Seq))
	})
	return ids
}

func (t *modelTopic) lowest() record.Position {
	if ids := t.in(Live); len(ids) > 0 {
		return t.messages[ids[0]].at
	}
	return record.MaxPosition
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// misused is how often a database that openIn has opened has said that a single deletion met two
// values.
var misused atomic.Int64

// misuses is a handler of logs that counts in n how often the engine says that a single deletion
// met two values.
type misuses struct {
	slog.Handler
	n *atomic.Int64
}

func (m misuses) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "a deleted message may be in the database again") {
		m.n.Add(1)
	}
	return m.Handler.Handle(ctx, r)
}

const testFormat = 7

// openIn opens the database in a file system, and makes its directory if need be.
func openIn(t interface {
	Helper()
	Fatal(args ...any)
}, fs vfs.FS, durable uint64,
) (*DB, Contents) {
	t.Helper()
	if err := fs.MkdirAll("store", 0o700); err != nil {
		t.Fatal(err)
	}
	state := failstop.New("store", quiet, time.Minute)
	own := func() error { return nil }
	log := slog.New(misuses{quiet.Handler(), &misused})
	db, err := Open("store", Options{FS: failstop.NewFS(fs, state, own, failstop.Database), State: state, Log: log, Format: testFormat})
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.Load(durable)
	if err != nil {
		t.Fatal(cmp.Or(db.Close(), err))
	}
	return db, c
}

// run is a database beside its model.
type run struct {
	*rapid.T
	fs      *vfs.MemFS
	db      *DB
	handles map[string]*Topic
	now     model
	then    []model // the models after the last transaction that was waited for and after each later one
	durable uint64
	pending []*Tx // applied and not waited for
	// looks are those of someIDs in the topics that there were at some time since the database was
	// opened.
	looks map[*Topic]*Looks
}

// TestSlowModel compares the database with the model: in a transaction, after it, in a snapshot,
// and after a power cut. A power cut leaves the transactions that were waited for, and perhaps the
// first ones of those that were not.
func TestSlowModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &run{T: t, fs: vfs.NewCrashableMem(), handles: make(map[string]*Topic), looks: make(map[*Topic]*Looks), now: model{topics: make(map[string]*modelTopic), clock: 1000}}
		r.then = []model{r.now.clone()}
		r.db, _ = openIn(t, r.fs, 0)
		r.db.largeFrom, r.db.orderFrom = 2, 2
		defer func() { r.close() }()
		t.Repeat(map[string]func(*rapid.T){
			"transaction": func(t *rapid.T) { r.T = t; r.transaction() },
			"wait":        func(t *rapid.T) { r.T = t; r.wait() },
			"read":        func(t *rapid.T) { r.T = t; r.read() },
			"due":         func(t *rapid.T) { r.T = t; r.countDue() },
			"snapshot":    func(t *rapid.T) { r.T = t; r.snapshot() },
			"power cut":   func(t *rapid.T) { r.T = t; r.powerCut() },
			"look":        func(t *rapid.T) { r.T = t; r.look() },
			"sweep":       func(t *rapid.T) { r.T = t; r.sweepDead() },
			"delete":      func(t *rapid.T) { r.T = t; r.deleteTopic() },
			"tables":      func(t *rapid.T) { r.T = t; r.tables() },
		})
	})
}

func (r *run) close() {
	if r.db == nil {
		return // it could not be opened again
	}
	r.wait()
	db := r.db
	r.db = nil
	if err := db.Close(); err != nil {
		r.Fatal(err)
	}
}

func (r *run) wait() {
	for _, tx := range r.pending {
		if err := tx.Wait(); err != nil {
			r.Fatal(err)
		}
		r.durable = tx.Num
	}
	r.pending = nil
	r.then = []model{r.now.clone()}
}

// tables writes what the engine has in its buffer into tables, and perhaps compacts them all, so
// that deletions meet what they delete.
func (r *run) tables() {
	if err := r.db.Flush(); err != nil {
		r.Fatal(err)
	}
	if rapid.Bool().Draw(r.T, "compacts") {
		if err := r.db.Compact(context.Background()); err != nil {
			r.Fatal(err)
		}
	}
	if n := misused.Load(); n > 0 {
		r.Fatalf("%d single deletions met two values", n)
	}
	r.read()
}

func (r *run) pick(of []string, what string) string { return rapid.SampledFrom(of).Draw(r.T, what) }

var (
	someTopics = []string{"a", "b", "c"}
	someIDs    = []string{"1", "2", "3", "4", "5", "6"}
)

func (r *run) topic(tx *Tx) (*Topic, *modelTopic) {
	name := r.pick(someTopics, "topic")
	if m := r.now.topics[name]; m != nil {
		return r.handles[name], m
	}
	t := addTopic(r, tx, name)
	r.handles[name] = t
	m := &modelTopic{punctual.DefaultSettings(), make(map[string]modelMessage), make(map[string]int64), make(map[string]punctual.Finished)}
	r.now.topics[name] = m
	return t, m
}

// addTopic makes a topic with the default settings.
func addTopic(t interface{ Fatal(args ...any) }, tx *Tx, name string) *Topic {
	ts, err := tx.AddTopics([]string{name}, punctual.DefaultSettings(), false)
	if err != nil {
		t.Fatal(err)
	}
	return ts[0]
}

// transaction makes one of a few random verbs, each on what the ones before it have left.
func (r *run) transaction() {
	r.now.clock += rapid.Int64Range(0, 30).Draw(r.T, "time passes")
	tx := r.db.Begin(r.now.clock)
	if tx.SetClock(); tx.Size() == 0 {
		r.Fatal("a transaction with the clock is empty")
	}
	for range rapid.IntRange(1, 8).Draw(r.T, "verbs") {
		r.verb(tx)
	}
	r.apply(tx)
}

func (r *run) apply(tx *Tx) {
	if err := tx.Apply(0); err != nil {
		r.Fatal(err)
	}
	r.pending = append(r.pending, tx)
	r.then = append(r.then, r.now.clone())
}

func (r *run) verb(tx *Tx) {
	t, m := r.topic(tx)
	id := r.pick(someIDs, "ID")
	p, rec := r.find(tx, t, m, id)
	now, until := r.now.clock, r.now.clock+rapid.Int64Range(-20, 60).Draw(r.T, "ms")
	set := func(order Order, at record.Position, body string, died punctual.DeathReason) {
		m.messages[id] = modelMessage{order, at, body, died, m.messages[id].attempts}
	}
	switch verb := rapid.IntRange(0, 11).Draw(r.T, "verb"); {
	case verb == 0:
		m.settings.MaxAttempts = rapid.IntRange(1, 99).Draw(r.T, "attempts")
		tx.PutSettings(t, m.settings)
	case verb == 2:
		tx.Remember(t, id, until-1, until)
		m.remembered[id] = until
	case verb == 4:
		f := punctual.Finished{
			ID: id, Outcome: punctual.OutcomeAcked, At: storekit.FromMillis(now), Created: storekit.FromMillis(now - 1),
			FirstDue: storekit.FromMillis(now), Due: storekit.FromMillis(now), KeptUntil: storekit.FromMillis(until),
		}
		tx.KeepFinished(t, &f)
		m.finished[id] = f
	case verb == 3:
		tx.Forget(t, id)
		delete(m.remembered, id)
	case verb == 5:
		tx.SetLowest(t, min2(m.lowest(), record.Position{Ms: now}))
	case p.Nowhere():
		body := fmt.Sprint("body", rapid.IntRange(0, 9).Draw(r.T, "body"))
		s := tx.Put(t, Place{}, &record.Record{ID: id, Message: lifecycle.Message{Due: until, FirstDue: until}, Body: []byte(body)})
		if s.At.Seq <= r.now.last || s.At.Ms != until {
			r.Fatalf("a new message stands at %v, want a number behind %d, at %d", s.At, r.now.last, until)
		}
		r.now.last = s.At.Seq
		set(Live, s.At, body, "")
	case p.Order == Dead && verb <= 8:
		tx.Remove(t, p, id)
		delete(m.messages, id)
	case p.Order == Dead:
		rec.Due, rec.FirstDue, rec.Died, rec.Reason = until, until, 0, ""
		s := tx.Put(t, p, rec)
		set(Live, s.At, string(rec.Body), "")
	case verb <= 7:
		rec.Due, rec.FirstDue = until, until
		if s := tx.Put(t, p, rec); s.At != (record.Position{Ms: until, Seq: p.At.Seq}) {
			r.Fatalf("a message is moved from %v to %v, want %d", p.At, s.At, until)
		}
		set(Live, record.Position{Ms: until, Seq: p.At.Seq}, string(rec.Body), "")
	case verb == 8:
		rec.Attempts++
		tx.Rewrite(t, p.At, rec)
		was := m.messages[id]
		was.attempts++
		m.messages[id] = was
	case verb == 9:
		tx.Remove(t, p, id)
		delete(m.messages, id)
	default:
		rec.Died, rec.Reason = now, punctual.ReasonDiscarded
		tx.DeadLetter(t, p.At, rec)
		set(Dead, record.Position{Ms: now, Seq: p.At.Seq}, string(rec.Body), punctual.ReasonDiscarded)
	}
}

func min2(p, q record.Position) record.Position {
	if q.Less(p) {
		return q
	}
	return p
}

// look looks up all IDs of a topic, for transactions that come later.
func (r *run) look() {
	t, _ := r.known()
	if t == nil {
		return
	}
	var asks []Ask
	for i := range someIDs {
		asks = append(asks, Ask{Topic: t, ID: someIDs[i], New: true}, Ask{Topic: t, ID: someIDs[i], Record: true})
	}
	l, err := r.db.LookUp(asks)
	if err != nil {
		r.Fatal(err)
	}
	r.looks[t].Close()
	r.looks[t] = l
}

// looked returns what look found out about an ID at some time, by an Ask with New or by one with
// Record; nil if look was not called for the topic.
func (r *run) looked(t *Topic, id string) *Look {
	return r.looks[t].At(2*slices.Index(someIDs, id) + rapid.IntRange(0, 1).Draw(r.T, "kind of look"))
}

// find compares what a transaction sees of an ID with the model. It gives the transaction looks
// that may be out of date.
func (r *run) find(tx *Tx, t *Topic, m *modelTopic, id string) (Place, *record.Record) {
	p, err := tx.Find(t, id, r.looked(t, id))
	want := m.messages[id]
	if err != nil || p.Order != want.order || p.At != want.at {
		r.Fatalf("ID %s of topic %s is at %+v, %v; want %+v", id, t.Name(), p, err, want)
	}
	known, err := tx.Remembered(t, id, r.looked(t, id))
	if until, ok := m.remembered[id]; err != nil || known != (ok && until > r.now.clock) {
		r.Fatalf("ID %s of topic %s is remembered: %v, %v; want until %d at %d", id, t.Name(), known, err, until, r.now.clock)
	}
	if p.Nowhere() {
		return p, nil
	}
	rec, err := tx.Read(t, p, r.looked(t, id))
	if err != nil || rec.ID != id || string(rec.Body) != want.body || rec.Reason != want.died || rec.Attempts != want.attempts {
		r.Fatalf("message %s of topic %s: %+v, %v; want %+v", id, t.Name(), rec, err, want)
	}
	return p, rec
}

// known picks a topic that there is, if there is one.
func (r *run) known() (*Topic, *modelTopic) {
	if len(r.now.topics) == 0 {
		return nil, nil
	}
	name := r.pick(slices.Sorted(maps.Keys(r.now.topics)), "topic")
	return r.handles[name], r.now.topics[name]
}

// meanwhile makes a transaction between the two halves of a step, or not.
func (r *run) meanwhile() {
	if rapid.Bool().Draw(r.T, "meanwhile") {
		r.transaction()
	}
}

// sweepDead removes the first of the dead that died before a time. What happens after the step
// began does not count, but what was taken away meanwhile is not taken away again.
func (r *run) sweepDead() {
	t, m := r.known()
	if t == nil {
		return
	}
	to := record.Position{Ms: r.now.clock - rapid.Int64Range(0, 60).Draw(r.T, "retention")}
	limit := rapid.IntRange(1, 3).Draw(r.T, "limit")
	then := maps.Clone(m.messages)
	var want []string
	for _, id := range m.in(Dead) {
		if then[id].at.Less(to) && len(want) < limit {
			want = append(want, id)
		}
	}
	tx := r.db.Begin(r.now.clock)
	step, err := tx.SweepDead(t, to, limit)
	if err != nil {
		r.Fatal(err)
	}
	if step == nil {
		if len(want) > 0 {
			r.Fatalf("nothing is swept of %v", want)
		}
		return
	}
	r.meanwhile()
	if err := step.Read(); err != nil {
		r.Fatal(err)
	}
	want = slices.DeleteFunc(want, func(id string) bool { return m.messages[id] != then[id] })
	tx = r.db.Begin(r.now.clock)
	tx.SetClock()
	more, err := tx.RemoveSwept(step)
	if err != nil || more != (len(want) == limit) {
		r.Fatalf("a sweep tells that there is more: %v, %v; %d of %d were to go", more, err, len(want), limit)
	}
	for _, id := range want {
		delete(m.messages, id)
	}
	r.apply(tx)
}

// deleteTopic deletes a topic by the keys that were read before, or by ranges.
func (r *run) deleteTopic() {
	t, _ := r.known()
	if t == nil || rapid.IntRange(0, 3).Draw(r.T, "delete") > 0 {
		return
	}
	var keys *TopicKeys
	if rapid.Bool().Draw(r.T, "by keys") {
		keys = r.db.TopicKeys(t)
		r.meanwhile()
		if err := keys.Read(); err != nil {
			r.Fatal(err)
		}
	}
	tx := r.db.Begin(r.now.clock)
	tx.DeleteTopic(t, keys)
	delete(r.now.topics, t.Name())
	delete(r.handles, t.Name())
	r.apply(tx)
}

// read compares what is read without a transaction.
func (r *run) read() {
	for _, name := range slices.Sorted(maps.Keys(r.now.topics)) {
		m, t := r.now.topics[name], r.handles[name]
		until, n := r.now.clock+rapid.Int64Range(-20, 60).Draw(r.T, "until"), rapid.IntRange(1, 5).Draw(r.T, "messages")
		after := t.Lowest().Prev()
		got, next, err := r.db.ReadDue(t, after, Limits{Until: until, Messages: n, Bytes: 1 << 20})
		wantNext := record.MaxPosition
		var want []record.Position
		for _, id := range m.in(Live) {
			if at := m.messages[id].at; at.Ms > until || len(want) == n {
				wantNext = at
				break
			} else {
				want = append(want, at)
			}
		}
		var at []record.Position
		for _, s := range got {
			at = append(at, s.At)
			if rec, err := r.db.Live(t.Num(), s.At); err != nil || string(rec) != string(s.Record) {
				r.Fatalf("message at %v is %q, %v; read as due it is %q", s.At, rec, err, s.Record)
			}
		}
		if err != nil || !slices.Equal(at, want) || next != wantNext {
			r.Fatalf("topic %s until %d: %v and then %v, %v; want %v and then %v", name, until, at, next, err, want, wantNext)
		}
		if live, dead := int64(len(m.in(Live))), int64(len(m.in(Dead))); t.Live() != live || t.Dead() != dead {
			r.Fatalf("topic %s counts %d and %d, want %d and %d", name, t.Live(), t.Dead(), live, dead)
		}
	}
	r.compare(r.db, r.now)
}

// countDue counts the due messages of each topic in a snapshot, from where the last count ended, as
// the store does for its statistics. What changes meanwhile shows in the next count. Some counts
// are given up, and some begin while another one is under way.
func (r *run) countDue() {
	snap, then := r.db.Snapshot(), r.now.clone()
	all := r.db.CountDue(then.clock)
	counts, numbers := make(map[string][]Due), make(map[string]uint32)
	for name, t := range r.handles {
		numbers[name] = t.num
		if due, ok := all[t.num]; ok {
			counts[name] = append(counts[name], due)
		}
		counts[name] = append(counts[name], t.CountDue(then.clock))
	}
	r.meanwhile()
	for _, name := range slices.Sorted(maps.Keys(then.topics)) {
		var want int64
		for _, id := range then.topics[name].in(Live) {
			if then.topics[name].messages[id].at.Ms <= then.clock {
				want++
			}
		}
		for _, due := range counts[name] {
			n := due.Known
			err := snap.Scan(r.Context(), numbers[name], Live, due.From, record.Position{Ms: then.clock + 1}, func(record.Position) (bool, error) {
				n++
				return true, nil
			})
			if err != nil || n != want {
				r.Fatalf("topic %s at %d: %d due, of which %d known before %v, %v; want %d", name, then.clock, n, due.Known, due.From, err, want)
			}
			if rapid.IntRange(0, 3).Draw(r.T, "give up") > 0 {
				due.Counted(n)
			}
			due.Abandon()
		}
	}
	if err := snap.Close(); err != nil {
		r.Fatal(err)
	}
}

// snapshot takes one, changes the database, and compares.
func (r *run) snapshot() {
	snap, then := r.db.Snapshot(), r.now.clone()
	r.transaction()
	r.compareSnapshot(snap, then)
}

func (r *run) compare(db *DB, m model) { r.compareSnapshot(db.Snapshot(), m) }

// compareSnapshot compares a snapshot and closes it.
func (r *run) compareSnapshot(snap *Snapshot, m model) {
	diff := r.difference(snap, m)
	if err := snap.Close(); err != nil {
		r.Fatal(err)
	}
	if diff != "" {
		r.Fatal(diff)
	}
}

// difference tells in what a snapshot differs from the topics, messages and finished records of the
// model; "" if in nothing. What the verification of the snapshot finds fails the test.
func (r *run) difference(snap *Snapshot, m model) string {
	infos, err := snap.Topics()
	if err != nil {
		r.Fatal(err)
	}
	if len(infos) != len(m.topics) {
		return fmt.Sprintf("%d topics, want %d", len(infos), len(m.topics))
	}
	v := Verifier{Step: func(bool) error { return nil }, Problem: func(format string, args ...any) { r.Errorf(format, args...) }}
	for _, i := range infos {
		want := m.topics[i.Name]
		if want == nil {
			return fmt.Sprintf("there is a topic %s", i.Name)
		}
		if !reflect.DeepEqual(i.Settings, want.settings) {
			return fmt.Sprintf("settings of %s: %+v, want %+v", i.Name, i.Settings, want.settings)
		}
		if _, _, err := snap.VerifyTopic(i, v); err != nil {
			r.Fatal(err)
		}
		for _, order := range []Order{Live, Dead} {
			var got, ids []record.Position
			err := snap.Scan(r.Context(), i.Num, order, record.MinPosition, record.MaxPosition, func(p record.Position) (bool, error) {
				got = append(got, p)
				return true, nil
			})
			if err != nil {
				r.Fatal(err)
			}
			for _, id := range want.in(order) {
				ids = append(ids, want.messages[id].at)
				p, err := snap.Find(i.Num, id)
				if err != nil || p.Order != order || p.At != want.messages[id].at {
					return fmt.Sprintf("ID %s of %s is at %+v, %v; want %+v", id, i.Name, p, err, want.messages[id])
				}
			}
			if !slices.Equal(got, ids) {
				return fmt.Sprintf("topic %s has in %c %v, want %v", i.Name, order, got, ids)
			}
		}
		if diff := r.finishedDifference(snap, i, want); diff != "" {
			return diff
		}
	}
	if err := snap.VerifyRest(infos, v); err != nil {
		r.Fatal(err)
	}
	return ""
}

// finishedDifference tells in what the finished records of a topic in a snapshot differ from those
// of the model, one by one, in the order of their IDs, and in that in which they are deleted; "" if
// in nothing.
func (r *run) finishedDifference(snap *Snapshot, i Info, m *modelTopic) string {
	byID := slices.SortedFunc(maps.Values(m.finished), func(a, b punctual.Finished) int { return cmp.Compare(a.ID, b.ID) })
	byEnd := slices.SortedStableFunc(slices.Values(byID), func(a, b punctual.Finished) int { return a.KeptUntil.Compare(b.KeptUntil) })
	for _, want := range byID {
		if got, ok, err := snap.Finished(i.Num, want.ID); err != nil || !ok || !reflect.DeepEqual(got, want) {
			return fmt.Sprintf("the finished record of %s in %s is %+v, %v, %v; want %+v", want.ID, i.Name, got, ok, err, want)
		}
	}
	var got []punctual.Finished
	err := snap.FinishedByID(r.Context(), i.Num, func(f *punctual.Finished) bool {
		got = append(got, *f)
		return true
	})
	if err != nil || !reflect.DeepEqual(got, byID) {
		return fmt.Sprintf("the finished records of %s by ID are %+v, %v; want %+v", i.Name, got, err, byID)
	}
	got = nil
	all := FinishedRange{To: storekit.FinishedPlace{Until: math.MaxInt64}}
	err = snap.FinishedByEnd(r.Context(), i.Num, all, func(_ storekit.FinishedPlace, f *punctual.Finished) bool {
		if f != nil {
			got = append(got, *f)
		}
		return true
	})
	if err != nil || !reflect.DeepEqual(got, byEnd) {
		return fmt.Sprintf("the finished records of %s by their ends are %+v, %v; want %+v", i.Name, got, err, byEnd)
	}
	return ""
}

// powerCut goes on with what a power cut leaves. About half of the power cuts may leave some of
// what was not synced.
func (r *run) powerCut() {
	cfg := vfs.CrashCloneCfg{}
	if rapid.Bool().Draw(r.T, "keep some") {
		cfg.UnsyncedDataPercent = 50
		cfg.RNG = rand.New(rand.NewPCG(rapid.Uint64().Draw(r.T, "seed"), 0))
	}
	clone, durable := r.fs.CrashClone(cfg), r.durable
	models := r.then
	r.close()
	var c Contents
	r.fs = clone
	r.db, c = openIn(r.T, clone, durable)
	r.db.largeFrom, r.db.orderFrom = 2, 2
	kept := int(r.db.LastTxn() - durable)
	if kept < 0 || kept >= len(models) {
		r.Fatalf("after a power cut %d transactions are there, %d of them waited for, %d were made", r.db.LastTxn(), durable, int(durable)+len(models)-1)
	}
	r.now, r.durable = models[kept].clone(), r.db.LastTxn()
	r.then = []model{r.now.clone()}
	r.handles, r.looks = make(map[string]*Topic), make(map[*Topic]*Looks)
	for _, l := range c.Topics {
		r.handles[l.Name()] = l.Topic
	}
	if c.Timed && c.Clock > r.now.clock {
		r.Fatalf("the clock is at %d, want %d", c.Clock, r.now.clock)
	}
	r.compare(r.db, r.now)
}

// TestForgetting: each remembered ID, or finished record, is deleted by the steps of a sweep when
// its time is over and not before. That holds also when it is kept anew between the two halves of a
// step.
func TestForgetting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		db, _ := openIn(t, vfs.NewMem(), 0)
		defer func() {
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}()
		now, want := int64(1000), make(map[string]int64)
		commit := func(f func(tx *Tx)) {
			tx := db.Begin(now)
			if f(tx); tx.Size() == 0 {
				return
			}
			if err := cmp.Or(tx.Apply(0), tx.Wait()); err != nil {
				t.Fatal(err)
			}
		}
		var topic *Topic
		commit(func(tx *Tx) { topic = addTopic(t, tx, "a") })
		of := rapid.SampledFrom([]Order{Remembered, FinishedRecords}).Draw(t, "of")
		remember := func(tx *Tx) {
			for range rapid.IntRange(0, 5).Draw(t, "IDs") {
				id, until := fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "ID")), now+rapid.Int64Range(1, 50).Draw(t, "ms")
				if of == FinishedRecords {
					tx.KeepFinished(topic, &punctual.Finished{ID: id, KeptUntil: storekit.FromMillis(until)})
				} else {
					tx.Remember(topic, id, until-1, until)
				}
				want[id] = until
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			commit(remember)
			now += rapid.Int64Range(0, 20).Draw(t, "time passes")
			due := db.ForgetDue(of, now)
			for more := true; more; {
				tx := db.Begin(now)
				step, err := tx.SweepFinished(of, rapid.IntRange(1, 5).Draw(t, "limit"))
				if err := cmp.Or(err, step.Read()); err != nil {
					t.Fatal(err)
				}
				commit(remember)
				commit(func(tx *Tx) { more = tx.ForgetSwept(step) })
			}
			tx := db.Begin(now)
			for id, until := range want {
				if known, err := tx.Remembered(topic, id, nil); err != nil || of == Remembered && known != (until > now) {
					t.Fatalf("ID %s, to be remembered until %d, is remembered at %d: %v, %v", id, until, now, known, err)
				}
			}
			snap, left := db.Snapshot(), 0
			for id, until := range want {
				v, err := snap.get(idKey(byte(of), topic.num, id))
				if err != nil || until > now && len(v) < 8 {
					t.Fatalf("ID %s, to be remembered until %d, is %x at %d: %v", id, until, v, now, err)
				}
				if until <= now && v != nil {
					t.Fatalf("ID %s is remembered at %d, not until %d", id, now, until)
				}
				if until <= now && !due && v == nil {
					left++
				}
				if until <= now {
					delete(want, id)
				}
			}
			if left > 0 {
				t.Fatalf("%d IDs were due at %d, and nothing told so", left, now)
			}
			if err := snap.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
