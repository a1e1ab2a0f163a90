package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

// Workload calls a store from many goroutines with most of what its interface can do, and has each
// call written down for a Ledger. Runs of one history must have different process numbers.
type Workload struct {
	// Store is the store, or a faulty way to it.
	Store punctual.Store
	// Process is the number of the process, from 1.
	Process int64
	// Seed chooses what is done.
	Seed uint64
	// Emit takes a line, as NewRecorder says.
	Emit func(Line)
	// Clock is that of the store's machine; nil is time.Now.
	Clock func() time.Time

	// Pause is the longest that a goroutine rests between two calls.
	Pause time.Duration
	// BigBodies has one message in some hundreds be up to 1 MiB large.
	BigBodies bool
	// Deadlines has some calls end early.
	Deadlines bool
	// ClaimTopics is how many topics a claim names at most, 0 for all there are. So the worker
	// handles no more of its topics either, and the queue pushes to those alone. Where a store
	// claims from each topic by itself, a claim of many may lease messages that it gives back.
	ClaimTopics int
	// FinishedRecords has some of the rare topics, and the first topic of the worker, keep finished
	// records, and reads those of plain pushes. The store has to keep finished records.
	FinishedRecords bool
	// PurgeLive has some purges remove all that is not dead. The ledger takes such a purge to meet
	// every message in its state at one instant, so the store must do so.
	PurgeLive bool
	// Worker runs a Worker and a Queue beside the plain calls. HoldClaims holds some of the
	// worker's claims back for so long that their leases run out on the way.
	Worker, HoldClaims bool

	rec *Recorder
	can storekit.Abilities // of the store
	// bounded are those of boundTopics that the store has.
	bounded []string
	ids     atomic.Int64 // names of messages

	mu        sync.Mutex
	pool      []known             // guarded by mu: IDs that may be there
	unsettled []punctual.Delivery // guarded by mu: deliveries that were not settled at once, or only extended
}

// known is an ID of which there may be a message, and the due time that its push was answered with.
type known struct {
	name
	due int64
}

// The topics of a workload: a few with much to do, many with little, and those of the worker. Only
// the rare ones change their settings while the workload runs, are paused, purged as a whole and
// deleted; the first of the worker may keep finished records. The busy ones have a companion for
// follow-ups, and one more topic tells of its events where the store can.
const (
	hotTopics    = 4
	rareTopics   = 300
	workerTopics = 3
	hotIDs       = 2000
	rareIDs      = 8
)

func hotTopic(i int) string    { return "hot" + strconv.Itoa(i) }
func rareTopic(i int) string   { return fmt.Sprintf("rare%03d", i) }
func workerTopic(i int) string { return "work" + strconv.Itoa(i) }
func nextTopic(i int) string   { return hotTopic(i) + "@next" }

// tellingTopic is the topic that tells of its events.
const tellingTopic = "telling"

// The topics with bounds. In keyedTopic and orderedTopic the key of a message is the stem of its
// ID. A message of orderedTopic has an ID of its own, and ends by a settlement.
const (
	boundedTopic = "bounded"
	keyedTopic   = "keyed"
	orderedTopic = "ordered"
	keysOfTopic  = 6
)

func boundTopics() []string { return []string{boundedTopic, keyedTopic, orderedTopic} }

func hasKeys(topic string) bool { return topic == keyedTopic || topic == orderedTopic }

// boundsOf returns the settings of a topic with bounds. The rates are such that claims meet them,
// and that what is left at the end is delivered within seconds.
func boundsOf(topic string) punctual.Settings {
	s := punctual.DefaultSettings()
	switch topic {
	case boundedTopic:
		s.MaxLeases, s.MaxRate = 4, limits.Rate{N: 200, Per: time.Second, Burst: 5}
	case keyedTopic:
		s.MaxKeyLeases, s.MaxKeyRate = 2, limits.Rate{N: 50, Per: time.Second, Burst: 3}
	case orderedTopic:
		s.InOrder = true
	}
	return s
}

// WorkloadTopics returns all topics of any workload.
func WorkloadTopics() (all []string) {
	for i := range hotTopics {
		all = append(all, hotTopic(i))
	}
	for i := range rareTopics {
		all = append(all, rareTopic(i))
	}
	for i := range workerTopics {
		all = append(all, workerTopic(i))
	}
	for i := range hotTopics {
		all = append(all, nextTopic(i))
	}
	all = append(all, boundTopics()...)
	return append(all, tellingTopic, storekit.EventTopic(tellingTopic))
}

// claimedTopics returns the topics from which plain claims of a workload claim: all but the
// worker's.
func claimedTopics() []string {
	return slices.DeleteFunc(WorkloadTopics(), func(topic string) bool { return strings.HasPrefix(topic, workerTopic(0)[:4]) })
}

// step is one thing that a goroutine of a workload does.
type step func(ctx context.Context, r *rand.Rand) error

// Begin makes the workload ready for the methods that make one call.
func (w *Workload) Begin() *Workload {
	w.rec = NewRecorder(w.Store, w.Process, w.Clock, w.Emit)
	if a, err := punctual.As[storekit.AbilityReporter](w.Store); err == nil {
		w.can, _ = a.Abilities(context.Background()) // none where the store cannot be asked
	}
	w.tell()
	w.bound()
	return w
}

// bound makes the topics with bounds. Nothing is pushed to those that the store cannot have, or
// whose Configure failed.
func (w *Workload) bound() {
	for _, topic := range boundTopics() {
		if w.rec.in == nil || !w.can.BoundsLeases || hasKeys(topic) && !w.can.Keys {
			continue
		}
		patch := wholePatch(boundsOf(topic))
		if hasKeys(topic) {
			patch.Keyed = new(true)
		}
		if _, err := w.rec.Configure(context.Background(), topic, patch); err == nil {
			w.bounded = append(w.bounded, topic)
		}
	}
}

// tell has the telling topic tell of all endings, for as long as any run lasts. Where this fails
// nothing is pushed there.
func (w *Workload) tell() {
	if !w.can.Emit || w.rec.in == nil {
		w.can.Emit = false
		return
	}
	s := punctual.DefaultSettings()
	s.Emit, s.EmitKeep = allEndings, limits.MaxFinishedRetention
	if _, err := w.rec.Configure(context.Background(), tellingTopic, wholePatch(s)); err != nil {
		w.can.Emit = false
	}
}

// Reopened has the workload go on with another store of the same data, in the same process.
func (w *Workload) Reopened(s punctual.Store) { w.rec.below(s) }

// Recorder returns the recorder of the workload's calls.
func (w *Workload) Recorder() *Recorder { return w.rec }

// Run calls the store until ctx ends, or until the store has failed or is closed.
func (w *Workload) Run(ctx context.Context) {
	if w.rec == nil {
		w.Begin()
	}
	var all sync.WaitGroup
	steps := []step{w.Push, w.Push, w.Amend, w.Claim, w.Claim, w.Claim}
	if w.rec.in != nil {
		steps = append(steps, w.Inspect)
	}
	for i, do := range steps {
		r := rand.New(rand.NewPCG(w.Seed, uint64(i)))
		all.Go(func() {
			for ctx.Err() == nil && goesOn(do(ctx, r)) {
				w.rest(ctx, r)
			}
		})
	}
	if w.Worker {
		all.Go(func() { w.work(ctx) })
	}
	all.Wait()
}

// goesOn tells whether a store can be called again after an error.
func goesOn(err error) bool {
	return !errors.Is(err, punctual.ErrClosed) && !errors.Is(err, punctual.ErrStoreFailed)
}

func (w *Workload) rest(ctx context.Context, r *rand.Rand) {
	if w.Pause <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(r.Int64N(int64(w.Pause)))):
	}
}

// call returns the context of one call. With Deadlines about one in 40 ends within 3 ms.
func (w *Workload) call(r *rand.Rand) (context.Context, context.CancelFunc) {
	if w.Deadlines && r.IntN(40) == 0 {
		return context.WithTimeout(context.Background(), time.Duration(r.IntN(3000))*time.Microsecond)
	}
	return context.WithCancel(context.Background())
}

// someTopic returns a topic for a push, a change or a read, mostly a busy one.
func (w *Workload) someTopic(r *rand.Rand) string {
	if w.can.Emit && r.IntN(12) == 0 {
		return tellingTopic
	}
	if len(w.bounded) > 0 && r.IntN(8) == 0 {
		return w.bounded[r.IntN(len(w.bounded))]
	}
	if r.IntN(3) > 0 {
		return hotTopic(r.IntN(hotTopics))
	}
	return rareTopic(someRare(r))
}

// someRare returns the number of a rare topic. In half of the cases it is one of the first twelve,
// so that these have enough to do.
func someRare(r *rand.Rand) int {
	if r.IntN(2) == 0 {
		return r.IntN(12)
	}
	return r.IntN(rareTopics)
}

// someDelay returns a delay in ms: none, up to 40 ms, or about an hour.
func someDelay(r *rand.Rand) int64 {
	switch r.IntN(20) {
	case 0, 1, 2:
		return 0
	case 3:
		return 3_600_000 + int64(r.IntN(1000))
	}
	return int64(r.IntN(40))
}

// size returns the size of a body: mostly small, sometimes larger than a block of a database, and
// with BigBodies seldom up to the limit.
func (w *Workload) size(r *rand.Rand) int {
	switch n := r.IntN(600); {
	case n == 0 && w.BigBodies:
		return limits.DefaultMaxBody >> r.IntN(4)
	case n < 20:
		return 5000
	case n < 40:
		return 0
	}
	return 20 + r.IntN(200)
}

// message returns a new message of any kind. Those of large calls go to topics with many IDs,
// because where dozens of items for one ID overlap, a ledger has too many orders to try.
func (w *Workload) message(r *rand.Rand, now int64, large bool) punctual.NewMessage {
	n := name{topic: w.someTopic(r)}
	kind := r.IntN(5)
	if large {
		n.topic, kind = hotTopic(r.IntN(hotTopics)), max(kind, 1)
	}
	switch kind {
	case 0:
		k := w.some(r, n)
		m := w.messageOf(r, k.name, now)
		if m.IfExists == punctual.IfExistsReplace && r.IntN(2) == 0 {
			m.IfDue = k.ifDue(r)
		}
		return m
	case 1:
		if r.IntN(4) > 0 {
			n.id = w.freshID(r, n.topic)
		}
	default:
		n.id = w.freshID(r, n.topic)
	}
	if n.id == "" && hasKeys(n.topic) {
		n.id = w.freshID(r, n.topic)
	}
	return w.messageOf(r, n, now)
}

func (w *Workload) freshID(r *rand.Rand, topic string) string {
	ids := hotIDs
	switch {
	case topic == orderedTopic:
		return fmt.Sprintf("k%d~%x.%x", r.IntN(keysOfTopic), w.Process, w.ids.Add(1))
	case topic == keyedTopic:
		return fmt.Sprintf("k%d~%d", r.IntN(keysOfTopic), r.IntN(hotIDs/keysOfTopic))
	case topic[0] == 'r':
		ids = rareIDs
	}
	return "m" + strconv.Itoa(r.IntN(ids))
}

func (w *Workload) messageOf(r *rand.Rand, n name, now int64) punctual.NewMessage {
	life := fmt.Sprintf("%x.%x", w.Process, w.ids.Add(1))
	size := w.size(r)
	if n.id == "" {
		size = max(size, 20) // nobody may be told the ID, so the body has to name the message
	}
	m := punctual.NewMessage{Topic: n.topic, ID: n.id}
	m.Body, m.Headers = contentOf(life, size, r.IntN(5) == 0)
	m.IfExists = []punctual.IfExists{punctual.IfExistsKeep, punctual.IfExistsReplaceDead, punctual.IfExistsReplace, punctual.IfExistsFail}[r.IntN(4)]
	if d := someDelay(r); r.IntN(2) == 0 {
		m.Delay = time.Duration(d) * time.Millisecond
	} else {
		m.Due = storekit.FromMillis(now + d)
	}
	switch r.IntN(12) {
	case 0:
		m.MaxAttempts = 1 + r.IntN(3)
	case 1, 2, 3, 4, 5, 6:
		m.MaxAttempts = 100_000
	}
	if hasKeys(n.topic) {
		m.Key = storekit.Stem(n.id)
	}
	if n.topic == orderedTopic {
		m.IfExists, m.MaxAttempts = punctual.IfExistsFail, 100_000
		return m
	}
	if r.IntN(8) == 0 {
		m.ExpireAfter = time.Duration(1+r.IntN(80)) * time.Millisecond
		m.DropExpired = r.IntN(2) == 0
	}
	return m
}

// batch returns how many items a call has.
func batch(r *rand.Rand) int {
	switch r.IntN(60) {
	case 0:
		return 300
	case 1, 2:
		return 40
	}
	return 1 + r.IntN(4)
}

// Push pushes some messages.
func (w *Workload) Push(_ context.Context, r *rand.Rand) error { return w.PushMany(r, batch(r)) }

// PushMany pushes n messages in one call.
func (w *Workload) PushMany(r *rand.Rand, n int) error {
	now := w.rec.now()
	ms := make([]punctual.NewMessage, n)
	for i := range ms {
		ms[i] = w.message(r, now, n > 10)
		if i > 0 && r.IntN(20) == 0 {
			ms[i] = w.messageOf(r, name{ms[i-1].Topic, ms[i-1].ID}, now)
		}
	}
	ctx, end := w.call(r)
	defer end()
	rs, err := w.rec.Push(ctx, ms)
	for i := range rs {
		if rs[i].ID != "" && ms[i].Topic != orderedTopic {
			w.keep(r, known{name{ms[i].Topic, rs[i].ID}, due(rs[i].Due)})
		}
	}
	return err
}

const poolSize = 512

// keep remembers an ID of which there may be a message, in the place of a random one when there are
// poolSize already.
func (w *Workload) keep(r *rand.Rand, n known) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pool) < poolSize {
		w.pool = append(w.pool, n)
		return
	}
	w.pool[r.IntN(poolSize)] = n
}

// some returns an ID of which there may be a message, or a new ID in the topic of other when none
// is known.
func (w *Workload) some(r *rand.Rand, other name) known {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pool) == 0 {
		return known{name: name{other.topic, w.freshID(r, other.topic)}}
	}
	return w.pool[r.IntN(len(w.pool))]
}

// ifDue returns a condition that the message meets if nobody has moved it since its push, or one
// that is a millisecond later, in one of four cases and where the due time is not known.
func (k known) ifDue(r *rand.Rand) time.Time {
	if k.due == 0 || r.IntN(4) == 0 {
		return storekit.FromMillis(k.due + 1)
	}
	return storekit.FromMillis(k.due)
}

// Amend cancels, reschedules and requeues.
func (w *Workload) Amend(_ context.Context, r *rand.Rand) error {
	now := w.rec.now()
	as := make([]punctual.Amendment, min(batch(r), 12))
	for i := range as {
		n := w.some(r, name{topic: w.someTopic(r)})
		if i > 0 && r.IntN(20) == 0 {
			n.name = name{as[i-1].Topic, as[i-1].ID}
		}
		as[i] = punctual.Amendment{Topic: n.topic, ID: n.id, Change: punctual.Change(1 + r.IntN(3))}
		if r.IntN(6) == 0 {
			as[i].IfDue = n.ifDue(r)
		}
		if as[i].Change == punctual.ChangeCancel {
			continue
		}
		if d := someDelay(r); r.IntN(2) == 0 {
			as[i].Delay = time.Duration(d) * time.Millisecond
		} else {
			as[i].Due = storekit.FromMillis(now + d)
		}
	}
	ctx, end := w.call(r)
	defer end()
	_, err := w.rec.Amend(ctx, as)
	return err
}

// Claim claims some messages and settles most of them.
func (w *Workload) Claim(_ context.Context, r *rand.Rand) error {
	c := punctual.Claim{
		Topics: []string{hotTopic(r.IntN(hotTopics))}, Max: 1 + r.IntN(8), Wait: 5 * time.Millisecond,
		Lease: time.Duration(20+r.IntN(200)) * time.Millisecond,
	}
	switch r.IntN(7) {
	case 0, 1:
		c.Topics = claimedTopics()
		r.Shuffle(len(c.Topics), func(i, j int) { c.Topics[i], c.Topics[j] = c.Topics[j], c.Topics[i] })
		c.Max = 1 + r.IntN(200)
	case 2:
		c.Topics = []string{nextTopic(r.IntN(hotTopics)), tellingTopic, storekit.EventTopic(tellingTopic)}
		r.Shuffle(3, func(i, j int) { c.Topics[i], c.Topics[j] = c.Topics[j], c.Topics[i] })
	case 3:
		c.Topics = append(c.Topics, rareTopic(someRare(r)), hotTopic(r.IntN(hotTopics)), rareTopic(someRare(r)))
	case 4:
		c.Wait = 0
		for range 5 {
			c.IDs = append(c.IDs, w.freshID(r, c.Topics[0]))
		}
	case 5:
		if len(w.bounded) > 0 {
			c.Topics = slices.Clone(w.bounded)
			r.Shuffle(len(c.Topics), func(i, j int) { c.Topics[i], c.Topics[j] = c.Topics[j], c.Topics[i] })
		}
	}
	if w.ClaimTopics > 0 {
		c.Topics = c.Topics[:min(len(c.Topics), w.ClaimTopics)]
	}
	if r.IntN(4) == 0 {
		c.Lease = 0
	}
	ctx, end := w.call(r)
	defer end()
	ds, err := w.rec.Claim(ctx, c)
	if err != nil || len(ds) == 0 {
		return err
	}
	return w.settle(r, ds)
}

// settle settles most of the deliveries, leaves the others in unsettled, and settles one of those,
// whose lease has often run out.
func (w *Workload) settle(r *rand.Rand, ds []punctual.Delivery) error {
	var ss []punctual.Settlement
	for _, d := range ds {
		if r.IntN(10) == 0 {
			w.forget(r, d)
			continue
		}
		ss = append(ss, w.settlement(r, d))
		if r.IntN(30) == 0 {
			ss = append(ss, w.settlement(r, d)) // twice in one call
		}
		if ss[len(ss)-1].Verb == punctual.SettleExtend {
			w.forget(r, d)
		}
	}
	if d, ok := w.someUnsettled(r); ok {
		ss = append(ss, w.settlement(r, d))
	}
	if len(ss) == 0 {
		return nil
	}
	ctx, end := w.call(r)
	defer end()
	_, err := w.rec.Settle(ctx, ss)
	return err
}

func (w *Workload) forget(r *rand.Rand, d punctual.Delivery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d.Body = nil
	if len(w.unsettled) < 64 {
		w.unsettled = append(w.unsettled, d)
	} else {
		w.unsettled[r.IntN(len(w.unsettled))] = d
	}
}

func (w *Workload) someUnsettled(r *rand.Rand) (d punctual.Delivery, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.unsettled) == 0 {
		return d, false
	}
	return w.unsettled[r.IntN(len(w.unsettled))], true
}

// settlement returns a settlement of a delivery: an ack in nearly half of the cases.
func (w *Workload) settlement(r *rand.Rand, d punctual.Delivery) punctual.Settlement {
	s := punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
	delay := time.Duration(r.IntN(40)) * time.Millisecond
	switch r.IntN(20) {
	case 0, 1:
		s.Verb, s.Delay, s.Error = punctual.SettleRetry, delay, "failed"
	case 2:
		s.Verb, s.Delay, s.Error = punctual.SettleRetry, punctual.UseBackoff, "failed too"
	case 3, 4:
		s.Verb, s.Delay = punctual.SettleSnooze, delay
	case 9:
		s.Verb, s.Due = punctual.SettleSnooze, storekit.FromMillis(w.rec.now()+int64(r.IntN(40)))
	case 10:
		s.Verb, s.Due, s.Error = punctual.SettleRetry, storekit.FromMillis(w.rec.now()+int64(r.IntN(40))), "failed for now"
	case 5:
		s.Verb = punctual.SettleRelease
	case 6, 7:
		s.Verb, s.Delay = punctual.SettleExtend, 10*time.Millisecond+2*delay
	case 8:
		s.Verb, s.Error = punctual.SettleDiscard, "given up"
	}
	if r.IntN(6) == 0 && (s.Verb == punctual.SettleAck || s.Verb == punctual.SettleSnooze || s.Verb == punctual.SettleDiscard) {
		s.Then = w.followUps(r, d)
	}
	return s
}

// followUps returns one or two follow-ups that the store reaches: with the ID of the message or
// another ID of the same stem, in its topic or in the companion, and with storekit.ReachAny also in
// any topic for pushes. It returns none if the store has no follow-ups, for an event, and in
// orderedTopic.
func (w *Workload) followUps(r *rand.Rand, d punctual.Delivery) (then []punctual.NewMessage) {
	if w.can.Follow == storekit.ReachNone || isEvents(d.Topic) || d.Topic == orderedTopic {
		return nil
	}
	now := w.rec.now()
	for range 1 + r.IntN(2) {
		n := name{d.Topic, d.ID}
		parent, _ := storekit.Companion(d.Topic)
		switch r.IntN(4) {
		case 0:
		case 1:
			n.id = storekit.Stem(d.ID) + "~" + strconv.Itoa(r.IntN(3))
		case 2:
			if strings.HasPrefix(parent, "hot") {
				n.topic = parent + "@next"
			}
		case 3:
			if w.can.Follow == storekit.ReachAny {
				n.topic = w.someTopic(r)
				if n.id = ""; hasKeys(n.topic) || r.IntN(4) > 0 {
					n.id = w.freshID(r, n.topic)
				}
			}
		}
		m := w.messageOf(r, n, now)
		if r.IntN(3) > 0 && m.IfExists == punctual.IfExistsFail {
			m.IfExists = punctual.IfExistsReplace // a settlement that is refused is not tried again, so most must not be refused
		}
		if !slices.ContainsFunc(then, func(x punctual.NewMessage) bool { return x.ID != "" && x.ID == m.ID && x.Topic == m.Topic }) {
			then = append(then, m)
		}
	}
	return then
}

// Inspect makes one call that reads, configures, purges or deletes a topic.
func (w *Workload) Inspect(_ context.Context, r *rand.Rand) error {
	ctx, end := w.call(r)
	defer end()
	rare := rareTopic(someRare(r))
	var err error
	switch n := r.IntN(40); {
	case n < 6 && w.FinishedRecords:
		x := w.some(r, name{topic: rare})
		err = w.rec.ReadRecord(ctx, x.topic, x.id)
	case n < 14:
		x := w.some(r, name{topic: w.someTopic(r)})
		_, err = w.rec.Get(ctx, x.topic, x.id)
	case n < 20:
		q := punctual.ListQuery{Topic: w.someTopic(r), State: punctual.State(1 + r.IntN(4)), Limit: 1 + r.IntN(30)}
		_, err = w.rec.List(ctx, q)
	case n < 26:
		_, err = w.rec.Stats(ctx, w.someTopic(r))
	case n < 27:
		_, err = w.rec.Settings(ctx, rare)
	case n < 33:
		_, err = w.rec.Configure(ctx, rare, w.someSettings(r))
	case n < 36:
		_, err = w.rec.Purge(ctx, punctual.PurgeQuery{Topic: rare, State: w.purgedState(r)})
	case n < 38:
		err = w.purgeSome(ctx, r)
	default:
		_, err = w.rec.DeleteTopic(ctx, rare)
	}
	if errors.Is(err, punctual.ErrNotFound) {
		return nil
	}
	return err
}

// purgedState returns the State of a purge of a rare topic: one state, or with PurgeLive also
// StateNone.
func (w *Workload) purgedState(r *rand.Rand) punctual.State {
	if w.PurgeLive {
		return punctual.State(r.IntN(5))
	}
	return punctual.State(1 + r.IntN(4))
}

// purgeSome purges from a busy topic what is due far ahead, or the dead, so that these topics do
// not grow without bound.
func (w *Workload) purgeSome(ctx context.Context, r *rand.Rand) error {
	q := punctual.PurgeQuery{Topic: hotTopic(r.IntN(hotTopics)), State: punctual.StateDead}
	if r.IntN(2) == 0 {
		q.State = punctual.StateScheduled
		q.From = storekit.FromMillis(w.rec.now() + 3_000_000)
		q.To = q.From.Add(3_000_000 * time.Millisecond)
	}
	_, err := w.rec.Purge(ctx, q)
	return err
}

// someSettings returns a patch for a rare topic that sets all that wholePatch sets. Groups stay
// none, because nobody copies for them here.
func (w *Workload) someSettings(r *rand.Rand) punctual.SettingsPatch {
	s := punctual.DefaultSettings()
	s.Lease = []time.Duration{30 * time.Second, 50 * time.Millisecond, 200 * time.Millisecond}[r.IntN(3)]
	s.MaxAttempts = []int{1, 2, 10, 1000}[r.IntN(4)]
	if r.IntN(2) == 0 {
		s.Backoff = punctual.Backoff{Delays: []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond}}
	}
	s.DeadRetention = []time.Duration{0, 0, 60 * time.Millisecond, time.Hour}[r.IntN(4)]
	s.DedupeWindow = []time.Duration{0, 0, 40 * time.Millisecond, time.Hour}[r.IntN(4)]
	s.PushPaused, s.DeliveryPaused = r.IntN(10) == 0, r.IntN(10) == 0
	if w.FinishedRecords {
		s.FinishedRetention = []time.Duration{0, recordRetention, recordRetention}[r.IntN(3)]
	}
	s.LateAfter = []time.Duration{10 * time.Second, time.Second, time.Hour}[r.IntN(3)]
	return wholePatch(s)
}

// recordRetention is for how long finished records are kept: longer than any run takes.
const recordRetention = 30 * 24 * time.Hour

// wholePatch returns a patch that sets every setting as in s, except Partitions and Keyed, which
// are fixed once the topic exists.
func wholePatch(s punctual.Settings) punctual.SettingsPatch {
	return punctual.SettingsPatch{
		Lease: &s.Lease, MaxAttempts: &s.MaxAttempts, Backoff: &s.Backoff, DeadRetention: &s.DeadRetention,
		DedupeWindow: &s.DedupeWindow, FinishedRetention: &s.FinishedRetention, Emit: &s.Emit, EmitKeep: &s.EmitKeep,
		PushPaused: &s.PushPaused, DeliveryPaused: &s.DeliveryPaused, Groups: &s.Groups, LateAfter: &s.LateAfter,
		MaxLeases: &s.MaxLeases, MaxRate: &s.MaxRate, MaxKeyLeases: &s.MaxKeyLeases, MaxKeyRate: &s.MaxKeyRate, InOrder: &s.InOrder,
	}
}

// The worker of a workload, with a queue that pushes the messages which it handles.

const workerLease = 300 * time.Millisecond

func (w *Workload) work(ctx context.Context) {
	if w.FinishedRecords {
		s := punctual.DefaultSettings()
		s.FinishedRetention = recordRetention
		// Where this fails, the next process configures the topic.
		_, _ = w.rec.Configure(ctx, workerTopic(0), wholePatch(s))
	}
	runner := worker.New(w.rec, &worker.Config{
		Concurrency: 8, Lease: workerLease, Logger: slog.New(slog.DiscardHandler), ShutdownTimeout: 5 * time.Second,
	})
	if w.HoldClaims {
		rec := NewRecorder(w.Store, w.Process, w.Clock, w.Emit)
		rec.calls.Store(w.rec.calls.Load() + 1<<30)
		rec.hold = holdSome(w.Seed)
		runner = worker.New(rec, &worker.Config{
			Concurrency: 8, Lease: workerLease, Logger: slog.New(slog.DiscardHandler), ShutdownTimeout: 5 * time.Second,
		})
	}
	for i := range w.handledTopics() {
		runner.Handle(workerTopic(i), w.rec.Handler(punctual.HandlerFunc(handle)))
	}
	if err := runner.Start(context.Background()); err != nil {
		return
	}
	queue := punctual.NewQueue(w.rec, nil)
	var all sync.WaitGroup
	for i := range 3 {
		r := rand.New(rand.NewPCG(w.Seed, uint64(1000+i)))
		all.Go(func() {
			for ctx.Err() == nil && goesOn(w.enqueue(r, queue)) {
				w.rest(ctx, r)
			}
		})
	}
	all.Wait()
	stop, end := context.WithTimeout(context.Background(), 10*time.Second)
	defer end()
	_ = runner.Stop(stop)
	_ = queue.Close(stop)
}

// handledTopics returns how many of the worker's topics the worker handles and the queue pushes to:
// the first ones.
func (w *Workload) handledTopics() int {
	if w.ClaimTopics > 0 {
		return min(w.ClaimTopics, workerTopics)
	}
	return workerTopics
}

// enqueue pushes, cancels or reschedules one message by way of a queue.
func (w *Workload) enqueue(r *rand.Rand, q *punctual.Queue) error {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	topic, id := workerTopic(r.IntN(w.handledTopics())), "q"+strconv.Itoa(r.IntN(300))
	var err error
	switch r.IntN(6) {
	case 0:
		err = q.Cancel(ctx, topic, id)
	case 1:
		_, err = q.Reschedule(ctx, topic, id, punctual.In(time.Duration(r.IntN(40))*time.Millisecond))
	default:
		m := w.messageOf(r, name{topic, id}, w.rec.now())
		_, err = q.PushMany(ctx, []punctual.NewMessage{m})
	}
	if errors.Is(err, punctual.ErrLeased) || errors.Is(err, punctual.ErrNotFound) {
		return nil
	}
	return err
}

// holdSome returns a Recorder.hold that holds about one answer in a hundred back for eight times
// the lease.
func holdSome(seed uint64) func(context.Context) {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 77))
	return func(ctx context.Context) {
		mu.Lock()
		hold := r.IntN(100) == 0
		mu.Unlock()
		if !hold {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(8 * workerLease):
		}
	}
}

// handle is a handler that acks, fails, snoozes, retries, discards or panics, and now and then
// works for two leases.
func handle(ctx context.Context, d *punctual.Delivery) error {
	r := rand.New(rand.NewPCG(uint64(d.Token), uint64(d.Attempt)))
	lasts := time.Duration(r.IntN(3000)) * time.Microsecond
	if r.IntN(100) == 0 {
		lasts = 2 * workerLease
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(lasts):
	}
	switch r.IntN(20) {
	case 0:
		return errors.New("failed")
	case 1:
		return punctual.Snooze(time.Duration(r.IntN(20)) * time.Millisecond)
	case 2:
		return punctual.RetryAfter(time.Duration(r.IntN(20))*time.Millisecond, errors.New("later"))
	case 3:
		return punctual.Discard(errors.New("never"))
	case 4:
		panic("a handler panics")
	}
	return nil
}
