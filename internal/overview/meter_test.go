package overview

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/punctualmq/punctual"
)

// feed calls a Meter's Observer as a server would.
type feed struct {
	t *testing.T
	o *punctual.Observer
}

func (f feed) push(topic string, status punctual.PushStatus, err error) {
	f.o.OnPush(f.t.Context(), punctual.PushResult{Topic: topic, Status: status, Err: err}, time.Millisecond)
}

func (f feed) deliver(topic string, late time.Duration) {
	due := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	f.o.OnStart(f.t.Context(), &punctual.Delivery{Message: punctual.Message{Topic: topic, Due: due, Created: due.Add(-time.Hour)}, Delivered: due.Add(late)})
}

func (f feed) settle(topic string, v punctual.Verb, err error) {
	f.o.OnSettle(f.t.Context(), punctual.Settlement{Topic: topic, Verb: v}, time.Millisecond, err)
}

func TestMeterCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMeter()
		f := feed{t, m.Observer()}
		refused := errors.New("refused")
		f.push("a", punctual.PushStored, nil)
		f.push("a", punctual.PushReplaced, nil)
		f.push("a", punctual.PushDuplicate, nil)
		f.push("a", punctual.PushNone, refused)
		f.push("made.up", punctual.PushNone, refused)
		f.deliver("a", 0)
		f.deliver("b", 1001*time.Millisecond)
		for _, err := range []error{nil, refused} {
			f.settle("a", punctual.SettleAck, err)
			f.settle("b", punctual.SettleRetry, err)
			f.settle("b", punctual.SettleDiscard, err)
			f.settle("b", punctual.SettleExtend, err)
			f.settle("b", punctual.SettleSnooze, err)
			f.settle("b", punctual.SettleRelease, err)
		}
		begin := m.Since().UTC().Truncate(time.Minute)
		want := func(topic string, want Traffic) {
			t.Helper()
			want.From = begin
			if got, known := totalOf(m, topic, 1); got != want || !known {
				t.Errorf("topic %q: %+v, want %+v", topic, got, want)
			}
		}
		late := 1001 * time.Millisecond
		want("", Traffic{Pushes: 2, Deliveries: 2, Acks: 1, Retries: 1, Discards: 1, Late: 1, P50: time.Millisecond, P99: late, Max: late})
		want("a", Traffic{Pushes: 2, Deliveries: 1, Acks: 1})
		want("b", Traffic{Deliveries: 1, Retries: 1, Discards: 1, Late: 1, P50: late, P99: late, Max: late})
		if got := m.Topics(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("topics %q", got)
		}
		if got, known := totalOf(m, "made.up", 1); known || got != (Traffic{}) || seriesOf(m, "made.up", 1) != nil {
			t.Errorf("a topic that was named with an error alone: %+v, %v", got, known)
		}
	})
}

// Exactly the limit is in time, one millisecond more is late, also where both are in one minute
// with many others. Quantiles are bounds that hold.
func TestMeterLateness(t *testing.T) {
	if !slices.Contains(latenessBounds[:], uint32(PromptLimit/time.Millisecond)) || !slices.IsSorted(latenessBounds[:]) {
		t.Fatalf("%v does not have the limit %v", latenessBounds, PromptLimit)
	}
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name           string
			late           []time.Duration
			p50, p99, most time.Duration
			count          int64
		}{
			{"in time", []time.Duration{0, 0, 0}, 0, 0, 0, 0},
			{"the limit", []time.Duration{time.Second, time.Second}, time.Second, time.Second, time.Second, 0},
			{"above it", []time.Duration{0, time.Second + time.Microsecond}, time.Millisecond, time.Second + time.Millisecond, time.Second + time.Millisecond, 1},
			{"one of a hundred", append(slices.Repeat([]time.Duration{3 * time.Millisecond}, 99), time.Hour), 5 * time.Millisecond, 5 * time.Millisecond, time.Hour, 1},
			{"two of a hundred", append(slices.Repeat([]time.Duration{3 * time.Millisecond}, 98), time.Hour, 3*time.Hour), 5 * time.Millisecond, 5000 * time.Second, 3 * time.Hour, 2},
			{"a year", []time.Duration{365 * 24 * time.Hour}, (1<<32 - 1) * time.Millisecond, (1<<32 - 1) * time.Millisecond, (1<<32 - 1) * time.Millisecond, 1},
		} {
			m := NewMeter()
			f := feed{t, m.Observer()}
			for _, late := range c.late {
				f.deliver("a", late)
			}
			got, _ := totalOf(m, "a", 1)
			if got.P50 != c.p50 || got.P99 != c.p99 || got.Max != c.most || got.Late != c.count {
				t.Errorf("%s: p50 %v, p99 %v, max %v, %d late; want %v, %v, %v, %d", c.name, got.P50, got.P99, got.Max, got.Late, c.p50, c.p99, c.most, c.count)
			}
			if got.Deliveries != int64(len(c.late)) {
				t.Errorf("%s: %d deliveries", c.name, got.Deliveries)
			}
		}
	})
}

func TestMeterMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMeter()
		f := feed{t, m.Observer()}
		for n := range 3 { // 1 push in the first minute, none in the second, 3 in the third
			for range []int{1, 0, 3}[n] {
				f.push("a", punctual.PushStored, nil)
			}
			time.Sleep(time.Minute)
		}
		pushes := func(topic string, n int) (out []int64) {
			for i, c := range seriesOf(m, topic, n) {
				if want := time.Now().UTC().Truncate(time.Minute).Add(time.Duration(i-n+1) * time.Minute); !c.From.Equal(want) {
					t.Errorf("minute %d begins at %v, want %v", i, c.From, want)
				}
				out = append(out, c.Pushes)
			}
			return out
		}
		for _, topic := range []string{"", "a"} {
			if got := pushes(topic, 5); !slices.Equal(got, []int64{0, 1, 0, 3, 0}) {
				t.Errorf("topic %q: %v", topic, got)
			}
			if c, _ := totalOf(m, topic, 3); c.Pushes != 3 {
				t.Errorf("topic %q: %d pushes in three minutes", topic, c.Pushes)
			}
			if c, _ := totalOf(m, topic, MeterMinutes); c.Pushes != 4 {
				t.Errorf("topic %q: %d pushes in a day", topic, c.Pushes)
			}
		}
		if n := len(seriesOf(m, "", 1<<40)); n != MeterMinutes {
			t.Errorf("%d minutes, want %d", n, MeterMinutes)
		}
		// A day later everything is out of sight, and an hour of the ring is used again.
		time.Sleep(MeterMinutes*time.Minute - 2*time.Minute)
		if c, _ := totalOf(m, "", MeterMinutes); c.Pushes != 3 {
			t.Errorf("%d pushes in a day less the first minute, want 3", c.Pushes)
		}
		time.Sleep(2 * time.Minute)
		if c, _ := totalOf(m, "", MeterMinutes); c.Pushes != 0 {
			t.Errorf("%d pushes behind a day", c.Pushes)
		}
		f.push("", punctual.PushStored, nil)
		time.Sleep(time.Duration(len(m.total.ring)) * time.Hour) // the hour that is in its place now is out of sight
		if c, _ := totalOf(m, "", 1); c.Pushes != 0 {
			t.Errorf("%d pushes in a minute without any", c.Pushes)
		}
		for range 60 {
			f.push("a", punctual.PushStored, nil)
			time.Sleep(59 * time.Minute) // more hours than the ring has
		}
		if c, _ := totalOf(m, "a", MeterMinutes); c.Pushes != MeterMinutes/59 {
			t.Errorf("%d pushes in the last day, want %d", c.Pushes, MeterMinutes/59)
		}
	})
}

// The memory of a Meter is bounded, whatever topics there are. One that was idle for a day makes
// room.
func TestMeterIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMeter()
		f := feed{t, m.Observer()}
		for n := range 3 * meteredTopics {
			f.push(fmt.Sprint("t", n), punctual.PushStored, nil)
		}
		if got := len(m.Topics()); got != meteredTopics {
			t.Errorf("%d topics are counted, want %d", got, meteredTopics)
		}
		if c, _ := totalOf(m, "", 1); c.Pushes != 3*meteredTopics {
			t.Errorf("%d pushes over all topics, want %d", c.Pushes, 3*meteredTopics)
		}
		if m.find("t0") == nil || m.find("t99") == nil || m.find("t100") != nil {
			t.Errorf("%q are counted, want the first ones", m.Topics())
		}
		time.Sleep(12 * time.Hour)
		f.push("t0", punctual.PushStored, nil)
		time.Sleep(12*time.Hour + time.Minute)
		f.push("new", punctual.PushStored, nil)
		if got := m.Topics(); !slices.Equal(got, []string{"new", "t0"}) {
			t.Errorf("a day later %q are counted, want the one that was in use and the new one", got)
		}
		for range 10 * len(m.total.ring) {
			f.push("new", punctual.PushStored, nil)
			time.Sleep(time.Hour)
		}
		hours := 0
		for _, h := range m.topics["new"].ring {
			if h != nil {
				hours++
			}
		}
		if worst := (meteredTopics + 1) * hours * int(unsafe.Sizeof(slots{})); hours != 25 || worst > 18e6 {
			t.Errorf("%d hours of a topic are held, and with all topics %d bytes", hours, worst)
		}
	})
}

func TestMeterAllocatesNothing(t *testing.T) {
	m := NewMeter()
	f := feed{t, m.Observer()}
	d := &punctual.Delivery{Message: punctual.Message{Topic: "a"}}
	f.push("a", punctual.PushStored, nil)
	n := testing.AllocsPerRun(1000, func() {
		f.push("a", punctual.PushStored, nil)
		f.o.OnStart(t.Context(), d)
		f.settle("a", punctual.SettleAck, nil)
	})
	if n >= 1 { // an hour may begin
		t.Errorf("%v allocations for a message", n)
	}
}

// Many goroutines feed and read at once, and nothing is lost.
func TestMeterIsShared(t *testing.T) {
	m := NewMeter()
	f := feed{t, m.Observer()}
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for n := range 500 {
				f.push(fmt.Sprint("t", (g+n)%10), punctual.PushStored, nil)
				if n%50 == 0 {
					seriesOf(m, "", 60)
					m.Topics()
				}
			}
		})
	}
	all.Wait()
	var byTopic int64
	for _, name := range m.Topics() {
		c, _ := totalOf(m, name, MeterMinutes)
		byTopic += c.Pushes
	}
	if c, _ := totalOf(m, "", MeterMinutes); c.Pushes != 4000 || byTopic != 4000 {
		t.Errorf("%d pushes, %d by topic; want 4000", c.Pushes, byTopic)
	}
}

// Steps add up minutes, begin at multiples of their length, and have the sums and quantiles of all
// their minutes.
func TestMeterSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(7 * time.Minute) // in the middle of a quarter of an hour
		m := NewMeter()
		f := feed{t, m.Observer()}
		for n := range 40 { // one each minute, so whole steps have 15
			f.deliver("a", time.Duration(n+1)*100*time.Millisecond)
			if n < 39 {
				time.Sleep(time.Minute)
			}
		}
		steps, all := m.Steps("a", 4, 15)
		var counts []int64
		for n, s := range steps {
			counts = append(counts, s.Deliveries)
			if s.From.Minute()%15 != 0 || n > 0 && s.From.Sub(steps[n-1].From) != 15*time.Minute {
				t.Errorf("step %d begins at %v", n, s.From)
			}
		}
		if want := []int64{8, 15, 15, 2}; !slices.Equal(counts, want) {
			t.Errorf("the steps have %v deliveries, want %v", counts, want)
		}
		if all.Deliveries != 40 || all.Max != 4*time.Second || all.Late != 30 || all.P50 != 2*time.Second {
			t.Errorf("all together: %+v", all)
		}
		sum, _ := totalOf(m, "a", 60)
		if sum.P99 != all.P99 || sum.Deliveries != all.Deliveries {
			t.Errorf("steps %+v differ from the minutes %+v", all, sum)
		}
		if steps, _ := m.Steps("unknown", 4, 15); steps != nil {
			t.Error("a topic that is not counted has steps")
		}
		if steps, _ := m.Steps("", 1000, 60); len(steps) != 24 {
			t.Errorf("%d hours", len(steps))
		}
	})
}

// A Meter that counts something in the past (At) moves Since back to then, so that Since agrees
// with what it shows.
func TestMeterOfThePast(t *testing.T) {
	m := NewMeter()
	made, past := m.Since(), time.Now().Add(-3*time.Hour)
	o := m.Observer()
	o.OnPush(At(t.Context(), time.Now().Add(time.Minute)), punctual.PushResult{Topic: "a", Status: punctual.PushStored}, 0)
	o.OnPush(t.Context(), punctual.PushResult{Topic: "a", Status: punctual.PushStored}, 0)
	if !m.Since().Equal(made) {
		t.Errorf("it has counted since %v, but was made at %v", m.Since(), made)
	}
	o.OnPush(At(t.Context(), past), punctual.PushResult{Topic: "a", Status: punctual.PushStored}, 0)
	if !m.Since().Equal(past) {
		t.Errorf("it has counted since %v, and was told of %v", m.Since(), past)
	}
}

// totalOf returns what passed in the last n minutes together, and whether the meter has numbers of
// the topic.
func totalOf(m *Meter, topic string, n int) (c Traffic, known bool) {
	steps, c := m.Steps(topic, n, 1)
	return c, steps != nil
}

func seriesOf(m *Meter, topic string, n int) []Traffic {
	steps, _ := m.Steps(topic, n, 1)
	return steps
}
