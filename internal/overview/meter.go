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

// meteredTopics is how many topics a Meter counts one by one. Their numbers take at most 17 MB: 112
// bytes for each minute of the day, in blocks of an hour, and a block only for hours in which
// something passed.
const meteredTopics = 100

// PromptLimit is how late a message may be and still count as in time: what promise P11 allows.
const PromptLimit = time.Second

// Meter counts the pushes, deliveries and settlements that pass a Server, a Queue or a Worker: in
// each minute of the last day, over all topics together and for each topic. It knows only what its
// Observer reported since the Meter was made, so it knows nothing of other processes, and a restart
// begins anew. Its memory is bounded, because only 100 topics have numbers of their own. When a
// further topic comes, the topics that were idle for a day make room for it; while none was, the
// further topic is counted among all topics only. The methods of a Meter are safe for concurrent
// use.
//
// The minutes are those of the machine's clock, because a Meter has no store to ask. Lateness is by
// the store's clock.
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

// Since returns when the Meter began to count: when it was made, or the earliest time given to At
// if that is earlier.
func (m *Meter) Since() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.since
}

// Traffic counts what passed in a span of time.
type Traffic struct {
	// From is when the span begins: a whole minute of the machine's clock.
	From time.Time
	// Pushes counts the messages that were stored, Deliveries the attempts for which a Worker
	// called a handler or which a Server gave to a client.
	Pushes, Deliveries int64
	// Acks, Retries and Discards count how attempts ended. A message that dies because its attempts
	// are used up is among the Retries or in no count: only the store knows.
	Acks, Retries, Discards int64
	// Late counts the deliveries later than PromptLimit.
	Late int64
	// P50 and P99 are upper bounds: 50 and 99 of a hundred deliveries were at most as late. Max is
	// the lateness of the latest one. All three are 0 when there was no delivery.
	P50, P99, Max time.Duration
}

// Steps returns what passed in each of the last n steps, oldest first, and in all of them together.
// A step has 1 to 60 minutes and begins at a multiple of its length, so that a step of 5 minutes
// begins at 10:00, 10:05 and so on. The last of them is the present one, which is not over. The
// steps reach back a day at most. An empty topic asks for all topics together. The steps are nil
// for a topic that has no numbers of its own.
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
			whole.add(s.at(number))
		}
		steps[i] = w.traffic(begin)
	}
	return steps, whole.traffic(first)
}

// Topics returns the topics that have numbers of their own, sorted by name.
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

// Observer returns the Observer through which the Meter learns what passes. Any number of Servers,
// Queues and Workers may have it.
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

// instant is the key under which At keeps its time in a context.
type instant struct{}

// At returns a context with which a Meter counts in the minute of t and not in the present one. A t
// before Since moves Since back to t. Programs that show a Meter with the traffic of an hour, for
// the pictures in documents, use it so that they need not run for an hour.
func At(ctx context.Context, t time.Time) context.Context {
	return context.WithValue(ctx, instant{}, t)
}

// count calls add with the present minute, or that of At: with that of all topics, and with that of
// the topic if it has numbers of its own.
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

// admit returns the series of a topic, and makes one for a new topic if there is room. It returns
// nil when there is none. The caller holds mu.
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
	m.topics[strings.Clone(topic)] = s // a copy, because an Observer must keep nothing that it is given
	return s
}

// minuteOf is the number of the minute since 1970.
func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// series holds the minutes of the last day. An hour takes memory only if something passed in it,
// and 25 hours later another hour uses that memory again.
type series struct {
	ring [MeterMinutes/60 + 1]*slots // hour n is in place n modulo its length
	last int64                       // the latest minute in which something was counted
}

type slots struct {
	hour    int64
	minutes [60]slot
}

// enter returns the slot of a minute, for the caller to count in.
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

// at returns the slot of a minute for reading, or nil when nothing passed in its hour.
func (s *series) at(number int64) *slot {
	n := number / 60
	h := s.ring[n%int64(len(s.ring))]
	if h == nil || h.hour != n {
		return nil
	}
	return &h.minutes[number%60]
}

// idle reports whether nothing passed in the last day.
func (s *series) idle(now int64) bool { return now-s.last >= MeterMinutes }

// latenessBounds are the upper bounds of the buckets of lateness, in milliseconds. They are 1, 2
// and 5 times the powers of ten, up to 1.4 hours; the last bucket has what is later. PromptLimit is
// one of the bounds, so that Late is exact.
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
	// At most 49 days fit into 32 bits; a later delivery counts as 49 days late.
	ms := uint32(min(max((late+time.Millisecond-1)/time.Millisecond, 0), math.MaxUint32))
	i, _ := slices.BinarySearch(latenessBounds[:], ms)
	c.deliveries++
	c.lateness[i]++
	c.max = max(c.max, ms)
}

// window adds up minutes. Its counters are wider than those of a minute, because a day of minutes
// may not fit into 32 bits.
type window struct {
	sum      Traffic
	lateness [len(latenessBounds)]int64
}

// add adds a minute; nil stands for a minute in which nothing passed.
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

// traffic returns the window as a Traffic that begins with the minute first.
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

// quantile returns a lateness that so many percent of the deliveries did not exceed: the upper
// bound of the bucket in which they are reached, or the greatest lateness when that is less.
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
