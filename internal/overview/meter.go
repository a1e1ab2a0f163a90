package overview

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

// MeterMinutes is how far a Meter looks back, in minutes: one day.
const MeterMinutes = 24 * 60

// meteredTopics is how many topics a Meter counts by themselves. Their numbers take at most 17 MB. That is 112 bytes
// for each minute of the day, held by the hour, for hours in which something passed.
const meteredTopics = 100

// PromptLimit is how late a message may be and still count as in time: what promise P11 allows.
const PromptLimit = time.Second

// Meter counts what passes a Server, a Queue or a Worker, by the minute for a day, over all topics and by topic. It knows what
// its Observer was told since it was made, and nothing of other processes. It is in memory alone, and bounded. The
// first 100 topics have numbers of their own, and a topic that was idle for a day makes room. Its methods are safe for
// concurrent use.
//
// MeterMinutes are those of the machine's clock, lateness is by the store's.
type Meter struct {
	mu     sync.Mutex
	since  time.Time          // guarded by mu
	total  series             // guarded by mu
	topics map[string]*series // guarded by mu; never more than meteredTopics
	full   int64              // guarded by mu: the minute in which no topic could make room, so that it is tried once a minute
}

// NewMeter returns a Meter that has seen nothing.
func NewMeter() *Meter {
	return &Meter{since: time.Now(), topics: make(map[string]*series)}
}

// Since is when the Meter began to count.
func (m *Meter) Since() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.since
}

// Traffic is what passed in some time.
type Traffic struct {
	// From is when the time begins: a whole minute of the machine's clock.
	From time.Time
	// Pushes counts the messages that were stored, Deliveries the attempts that were claimed.
	Pushes, Deliveries int64
	// Acks, Retries and Discards count how attempts ended. A message that dies because its attempts are used up is among
	// the Retries or in no count: only the store knows.
	Acks, Retries, Discards int64
	// Late counts the deliveries later than PromptLimit.
	Late int64
	// P50 and P99 are bounds: so many of a hundred deliveries were at most so late. Max is the latest. All are 0 without deliveries.
	P50, P99, Max time.Duration
}

// Series returns what passed in each of the last n minutes, oldest first, the one under way included; n is at most MeterMinutes. An empty topic
// asks for all topics together. It is nil for a topic that the Meter does not count by itself.
func (m *Meter) Series(topic string, n int) []Traffic {
	steps, _ := m.Steps(topic, min(n, MeterMinutes), 1)
	return steps
}

// Steps is Series in steps of some minutes, at most 60, and what passed in all of them together. Steps begin at multiples of their length. They
// reach back a day at most, and are nil for a topic that the Meter does not count by itself.
func (m *Meter) Steps(topic string, n, minutes int) (steps []Traffic, all Traffic) {
	minutes = min(max(minutes, 1), 60)
	n = min(max(n, 1), MeterMinutes/minutes)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.find(topic)
	if s == nil {
		return nil, Traffic{}
	}
	steps = make([]Traffic, n)
	now := minuteOf(time.Now())
	first := now - now%int64(minutes) - int64((n-1)*minutes)
	var whole window
	for i := range steps {
		begin := first + int64(i*minutes)
		var w window
		for number := begin; number < begin+int64(minutes); number++ {
			w.add(s.at(number))
		}
		whole.merge(&w)
		steps[i] = w.traffic(begin)
	}
	return steps, whole.traffic(first)
}

// Total returns what passed in the last n minutes together, the one under way included. It tells whether the Meter counts the topic by
// itself; an empty topic asks for all.
func (m *Meter) Total(topic string, n int) (c Traffic, known bool) {
	n = min(max(n, 1), MeterMinutes)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.find(topic)
	if s == nil {
		return Traffic{}, false
	}
	var w window
	now := minuteOf(time.Now())
	for number := now - int64(n-1); number <= now; number++ {
		w.add(s.at(number))
	}
	return w.traffic(now - int64(n-1)), true
}

// Topics returns the topics that are counted by themselves, sorted by name.
func (m *Meter) Topics() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := make([]string, 0, len(m.topics))
	for name := range m.topics {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (m *Meter) find(topic string) *series {
	if topic == "" {
		return &m.total
	}
	return m.topics[topic]
}

// Observer returns what feeds the Meter. It may be given to any number of Servers, Queues and Workers.
func (m *Meter) Observer() *punctual.Observer {
	return &punctual.Observer{
		OnPush: func(ctx context.Context, r punctual.PushResult, _ time.Duration) {
			if r.Err == nil && r.Status != punctual.PushDuplicate {
				m.count(ctx, r.Topic, func(c *slot) { c.pushes++ })
			}
		},
		OnStart: func(ctx context.Context, d *punctual.Delivery) {
			late := d.ReadyFor()
			m.count(ctx, d.Topic, func(c *slot) { c.delivered(late) })
		},
		OnSettle: func(ctx context.Context, s punctual.Settlement, _ time.Duration, err error) {
			if err != nil {
				return
			}
			switch s.Verb {
			case punctual.SettleAck:
				m.count(ctx, s.Topic, func(c *slot) { c.acks++ })
			case punctual.SettleRetry:
				m.count(ctx, s.Topic, func(c *slot) { c.retries++ })
			case punctual.SettleDiscard:
				m.count(ctx, s.Topic, func(c *slot) { c.discards++ })
			}
		},
	}
}

// instant is the key of a context's time.
type instant struct{}

// At has a Meter count what it is told with the context in the minute of t. A Meter that is told of a time before its first has counted since
// then. It is for pictures, which cannot wait an hour.
func At(ctx context.Context, t time.Time) context.Context {
	return context.WithValue(ctx, instant{}, t)
}

// count counts in the present minute of the topic and of all.
func (m *Meter) count(ctx context.Context, topic string, add func(*slot)) {
	at, ok := ctx.Value(instant{}).(time.Time)
	if !ok {
		at = time.Now()
	}
	now := minuteOf(at)
	m.mu.Lock()
	defer m.mu.Unlock()
	if ok && at.Before(m.since) {
		m.since = at
	}
	add(m.total.enter(now))
	if s := m.admit(topic, now); s != nil {
		add(s.enter(now))
	}
}

// admit returns the series of a topic, or nil when there are too many topics. The caller holds mu.
func (m *Meter) admit(topic string, now int64) *series {
	s := m.topics[topic]
	if s != nil {
		return s
	}
	if len(m.topics) >= meteredTopics {
		if m.full == now {
			return nil
		}
		for name, s := range m.topics {
			if s.idle(now) {
				delete(m.topics, name)
			}
		}
		if len(m.topics) >= meteredTopics {
			m.full = now
			return nil
		}
	}
	s = &series{}
	m.topics[strings.Clone(topic)] = s // an observer keeps nothing of what it is told
	return s
}

// minuteOf is the number of the minute since 1970.
func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// series are the minutes of the last day. An hour takes memory once something passed in it, and its memory is used again a day
// later.
type series struct {
	ring [MeterMinutes/60 + 1]*slots // hour n is in place n modulo its length
	last int64                       // the minute in which something was counted last
}

type slots struct {
	hour    int64
	minutes [60]slot
}

// enter returns a minute to be counted in.
func (s *series) enter(number int64) *slot {
	s.last = max(s.last, number)
	n := number / 60
	place := &s.ring[n%int64(len(s.ring))]
	if *place == nil {
		*place = &slots{hour: n}
	} else if (*place).hour != n {
		**place = slots{hour: n}
	}
	return &(*place).minutes[number%60]
}

// at returns a minute to be read, or nil when nothing passed in its hour.
func (s *series) at(number int64) *slot {
	n := number / 60
	h := s.ring[n%int64(len(s.ring))]
	if h == nil || h.hour != n {
		return nil
	}
	return &h.minutes[number%60]
}

// idle tells that nothing passed in the last day.
func (s *series) idle(now int64) bool { return now-s.last >= MeterMinutes }

// latenessBounds are the upper bounds of the buckets of lateness, in milliseconds. They are 1, 2 and 5 times the
// powers of ten, up to 1.4 hours, and one for what is later. PromptLimit is one of them.
var latenessBounds = [...]uint32{
	1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, math.MaxUint32,
}

// slot is what passed in one minute.
type slot struct {
	pushes, deliveries, acks, retries, discards uint32
	max                                         uint32 // lateness in milliseconds
	lateness                                    [len(latenessBounds)]uint32
}

func (c *slot) delivered(late time.Duration) {
	// The latest that fits is 49 days; what is later counts as that.
	ms := uint32(min(max((late+time.Millisecond-1)/time.Millisecond, 0), math.MaxUint32))
	i, _ := slices.BinarySearch(latenessBounds[:], ms)
	c.deliveries++
	c.lateness[i]++
	c.max = max(c.max, ms)
}

// window is what passed in some minutes together. It counts further than a minute can.
type window struct {
	sum      Traffic
	lateness [len(latenessBounds)]int64
}

// add adds a minute; nil is one in which nothing passed.
func (w *window) add(c *slot) {
	if c == nil {
		return
	}
	w.sum.Pushes += int64(c.pushes)
	w.sum.Deliveries += int64(c.deliveries)
	w.sum.Acks += int64(c.acks)
	w.sum.Retries += int64(c.retries)
	w.sum.Discards += int64(c.discards)
	w.sum.Max = max(w.sum.Max, milliseconds(c.max))
	for i, n := range c.lateness {
		w.lateness[i] += int64(n)
	}
}

// merge adds another window.
func (w *window) merge(other *window) {
	w.sum.Pushes += other.sum.Pushes
	w.sum.Deliveries += other.sum.Deliveries
	w.sum.Acks += other.sum.Acks
	w.sum.Retries += other.sum.Retries
	w.sum.Discards += other.sum.Discards
	w.sum.Max = max(w.sum.Max, other.sum.Max)
	for i, n := range other.lateness {
		w.lateness[i] += n
	}
}

// traffic is the window as it is shown; first is its first minute.
func (w *window) traffic(first int64) Traffic {
	out := w.sum
	out.From = time.Unix(first*60, 0).UTC()
	out.P50, out.P99 = w.quantile(50), w.quantile(99)
	for i, n := range w.lateness {
		if i > 0 && milliseconds(latenessBounds[i-1]) >= PromptLimit {
			out.Late += n
		}
	}
	return out
}

// quantile is the bound of the bucket in which so many percent of the deliveries are reached, or the latest when that is less.
func (w *window) quantile(percent int64) time.Duration {
	want := (w.sum.Deliveries*percent + 99) / 100
	var seen int64
	for i, n := range w.lateness {
		if seen += n; seen >= want {
			return min(milliseconds(latenessBounds[i]), w.sum.Max)
		}
	}
	return w.sum.Max
}

func milliseconds(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }
