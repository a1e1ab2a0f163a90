package redisstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/clock"
	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/notify"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/redisstore/internal/topics"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
	"github.com/punctualmq/punctual/storekit"
	"github.com/redis/go-redis/v9"
)

// partOf returns the name that package wait has for a partition.
func partOf(p keys.Partition) wait.Part { return wait.Part{Topic: p.Topic, Number: p.Number} }

// waits lets the claims of a Store wait: it is the wait.Store of its Waiter, and passes
// notifications from its Listener on to it.
type waits struct {
	s        *Store
	waiter   *wait.Waiter
	listener *notify.Listener
	arrivals *storekit.Arrivals // lets NewCompanions wait

	mu       sync.Mutex
	renewing map[string]bool // guarded by mu: topics that are being looked up; true for those to be polled once more afterwards
	busy     map[string]int  // guarded by mu: by node, how many topics are being looked up
}

// init sets w up for a store, before its first call.
func (w *waits) init(s *Store) {
	w.s, w.arrivals = s, storekit.NewArrivals()
	w.waiter = wait.New(s.clock, w, s.route.Nodes)
	w.renewing, w.busy = make(map[string]bool), make(map[string]int)
	w.listen(notify.PingEvery)
}

// listen makes the Listener, which pings its connection every pingEvery.
func (w *waits) listen(pingEvery time.Duration) {
	w.listener = notify.New(w.s.client, notify.Options{Receiver: w, Logger: w.s.opt.Logger, Sender: w.s.sender, PingEvery: pingEvery})
}

// Notified implements notify.Receiver.
func (w *waits) Notified(p wait.Part, at int64) {
	switch {
	case p == newCompanions:
		w.arrivals.Tell()
	case at != clock.Never:
		w.waiter.Notice(p, w.s.clock.At(at))
	}
}

// Missed implements notify.Receiver.
func (w *waits) Missed(p wait.Part) {
	if p == newCompanions {
		w.arrivals.Tell()
		return
	}
	w.waiter.Notice(p, -wait.Never)
}

// notify tells the waiting claims that a message of a partition is due at a time, in ms by the
// store's clock; clock.Never means none.
func (w *waits) notify(p keys.Partition, at int64) { w.Notified(partOf(p), at) }

// Node implements wait.Store.
func (w *waits) Node(p wait.Part) string { return w.s.route.Node(p) }

// Partitions implements wait.Store.
func (w *waits) Partitions(topic string) int { return w.s.topics.Known(topic).Size() }

// Subscribe implements wait.Store.
func (w *waits) Subscribe(p wait.Part) {
	w.listener.Subscribe(w.s.names.Partition(p.Topic, p.Number).Channel(), p)
}

// Unsubscribe implements wait.Store.
func (w *waits) Unsubscribe(p wait.Part) {
	w.listener.Unsubscribe(w.s.names.Partition(p.Topic, p.Number).Channel())
}

// Processes implements wait.Store. Each process that waits has one subscription to the partition's
// channel. On a cluster some are not counted, because a process subscribes at one node for all its
// topics, and only the partition's node is asked. Too few counted processes only make backoffs
// shorter.
func (w *waits) Processes(p wait.Part) int {
	ctx := context.Background()
	part := w.s.names.Partition(p.Topic, p.Number)
	node, err := w.s.route.NodeOf(ctx, part.Tag)
	if err != nil {
		return 0
	}
	n, err := node.PubSubNumSub(ctx, part.Channel()).Result()
	if err != nil {
		return 0
	}
	return int(n[part.Channel()])
}

// LeaseEnded implements wait.Store.
func (w *waits) LeaseEnded(d *punctual.Delivery) bool { return w.s.leases.expired(d) }

// Release implements wait.Store.
func (w *waits) Release(ctx context.Context, ds []punctual.Delivery) { w.s.leases.giveBack(ctx, ds) }

// dueRead is what NextDue reads of a partition.
type dueRead struct {
	t, l *redis.ZSliceCmd // the first two messages that wait, and the first one under a lease
	g    *redis.SliceCmd  // version, lease, clock, stepped, moving
	// known is what was known of the topic before the partition was read.
	known *topics.Layout
}

func (h dueRead) err() error { return cmp.Or(h.t.Err(), h.l.Err(), h.g.Err()) }

// NextDue implements wait.Store. It reads without a script, because most often nothing is due and a
// script would only cost the server more.
func (w *waits) NextDue(_ string, ps []wait.Part) []wait.NextDue {
	ctx := context.Background()
	got := make([]wait.NextDue, len(ps))
	node, err := w.s.route.NodeOf(ctx, w.s.names.Partition(ps[0].Topic, ps[0].Number).Tag)
	if err != nil {
		for i := range got {
			got[i] = wait.NextDue{At: wait.Never, Err: unread(err)}
		}
		return got
	}
	pipe := node.Pipeline()
	reads := make([]dueRead, len(ps))
	for i, part := range ps {
		names := w.s.names.Partition(part.Topic, part.Number).Keys()
		reads[i] = dueRead{
			pipe.ZRangeWithScores(ctx, names[0], 0, 1), pipe.ZRangeWithScores(ctx, names[1], 0, 0),
			pipe.HMGet(ctx, names[keys.Settings], "version", "lease", "clock", "stepped", "moving"), w.s.topics.Known(part.Topic),
		}
	}
	server := pipe.Time(ctx)
	_, _ = pipe.Exec(ctx) // what goes wrong is in each command
	var micros int64
	if server.Err() == nil {
		micros = server.Val().UnixMicro()
	}
	for i, h := range reads {
		got[i] = w.nextDue(ps[i], h, micros)
	}
	return got
}

// nextDue takes in the answers about a partition of a server whose clock said micros.
func (w *waits) nextDue(part wait.Part, h dueRead, micros int64) wait.NextDue {
	switch err := h.err(); {
	case err == nil:
	case isElsewhere(err): // a claim asks at once: the cluster's client follows the redirection of a script
		return wait.NextDue{At: w.s.clock.Now()}
	default:
		w.s.route.Refresh(context.Background(), err)
		return wait.NextDue{At: wait.Never, Err: unread(err)}
	}
	next, then := h.next()
	version, err := numberIn(h.g.Val()[0])
	past, err2 := numberIn(h.g.Val()[2])
	if err := cmp.Or(err, err2); err != nil {
		return wait.NextDue{At: wait.Never, Err: fmt.Errorf("the settings of partition %d of %s cannot be read: %w (%v)", part.Number, part.Topic, punctual.ErrCorrupt, err)}
	}
	if h.g.Val()[1] == nil { // the topic is not there
		version = -version
	}
	w.renewSoon(part, version, h.known)
	era, underWay := eraIn(h.g.Val()[3])
	switch {
	case past == 0: // there is nothing yet
	case underWay, era < w.s.clock.Era(): // a claim asks at once, and has the partition step
		return wait.NextDue{At: w.s.clock.Now()}
	default:
		w.s.clock.Learn(era, past)
	}
	if h.g.Val()[4] != nil {
		w.s.route.Move(w.s.names.Partition(part.Topic, part.Number))
	}
	if next == clock.Never {
		return wait.NextDue{At: wait.Never, Then: wait.Never}
	}
	if w.s.clock.Fake() {
		return wait.NextDue{At: w.s.clock.At(next), Then: w.s.clock.At(then)}
	}
	// The store's clock is that of the server, but never earlier than a time that the partition or
	// this process has seen of it.
	micros = max(micros, 1000*past, 1000*w.s.clock.LowerBound())
	ahead := w.s.clock.Now() - micros
	return wait.NextDue{At: ahead + 1000*next, Then: ahead + 1000*then}
}

// eraIn returns how many steps of the clock a partition has made, by the field stepped of its hash
// g, and whether it is making one.
func eraIn(stepped any) (era int64, underWay bool) {
	text, ok := stepped.(string)
	if !ok || len(text) < 8 {
		return 0, false
	}
	return int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(text)))), len(text) > 16
}

// next returns when the first message needs attention, and a time that is not after that of the
// second.
func (h dueRead) next() (next, then int64) {
	next, then = clock.Never, clock.Never
	see := func(at int64) {
		if at < next {
			next, at = at, next
		}
		then = min(then, at)
	}
	for _, z := range h.t.Val() {
		see(int64(math.Ceil(z.Score)))
	}
	for _, z := range h.l.Val() { // the second lease was not read, and may end at the same time
		see(int64(math.Ceil(z.Score)))
		see(int64(math.Ceil(z.Score)))
	}
	return next, then
}

// numberIn returns a number that was read from a hash; 0 if it is not there.
func numberIn(value any) (int64, error) {
	text, ok := value.(string)
	if !ok {
		return 0, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

// unread returns the error of a read that failed with err.
func unread(err error) error {
	f := errkind.Of(err)
	if f.Unknown() {
		f.Err = punctual.ErrUnreachable // a read never "may have happened"
	}
	return f.Wrap(err)
}

// isElsewhere reports whether another node has the keys, or will have them.
func isElsewhere(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "TRYAGAIN")
}

// Claim implements wait.Store.
func (w *waits) Claim(ctx context.Context, part wait.Part, n int, lease time.Duration, tidy bool) wait.Answer {
	c := w.s.clock
	p := w.s.names.Partition(part.Topic, part.Number)
	for {
		guess, known := c.Guess(), w.s.topics.Known(p.Topic)
		ds, version, got, err := w.s.leases.some(ctx, lease, p, min(n, script.Items), tidy)
		if err != nil {
			return wait.Answer{At: wait.Never, Err: err}
		}
		w.renewSoon(part, version, known)
		final := len(ds) == 0 && got.token != 0 && claimKey(ctx) != nil
		if len(ds) == 0 && !final && got.next <= got.now { // the script ended messages that were due, and more are due
			continue
		}
		at := c.At(got.next)
		if c.Fake() {
			return wait.Answer{Deliveries: ds, At: at, Final: final}
		}
		// If the guess was ahead of the server's clock, the time is reckoned from what that clock
		// says in this answer: it may have been set back, and the clocks of a cluster differ.
		if got.next != clock.Never && guess >= (got.now+1)*1000 {
			at = c.Now() + (got.next-got.now)*1000
		}
		return wait.Answer{Deliveries: ds, At: at, Now: got.now, Final: final}
	}
}

// renewalsAtOnce is how many topics whose partitions had another version are looked up at a time,
// of each node.
const renewalsAtOnce = 8

// renewSoon looks a topic up in the background if a partition has another version than was known.
// When its node fails, or has renewalsAtOnce lookups under way, nothing happens until the next poll
// of the partition.
func (w *waits) renewSoon(part wait.Part, version int64, known *topics.Layout) {
	if version == known.Version || known != w.s.topics.Known(part.Topic) { // in the second case another lookup has ended by now
		return
	}
	node := w.Node(wait.Part{Topic: part.Topic})
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, under := w.renewing[part.Topic]; under {
		w.renewing[part.Topic] = true // the lookup under way may have read the version before
		return
	}
	if w.busy[node] >= renewalsAtOnce || w.s.route.Nodes.Failing(node) {
		return
	}
	w.renewing[part.Topic] = false
	w.busy[node]++
	w.s.duties.Go(func() {
		p := w.s.names.Partition(part.Topic, part.Number)
		_, err := w.s.topics.Renew(context.Background(), p, version, known)
		if err != nil && punctual.Definite(err) && !errors.Is(err, punctual.ErrUnreachable) {
			w.waiter.Fail(part.Topic, err)
		}
		w.mu.Lock()
		more := w.renewing[part.Topic]
		delete(w.renewing, part.Topic)
		w.busy[node]--
		w.mu.Unlock()
		if more {
			w.waiter.Notice(wait.Part{Topic: part.Topic}, -wait.Never)
		}
	})
}
