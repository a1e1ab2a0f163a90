package duty_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/duty"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/schedule"
)

// put stores a schedule.
func (r *rig) put(s schedule.Schedule) {
	r.Helper()
	if _, err := schedule.Put(r.Context(), r.q, s); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) counts(topic, name string) punctual.ScheduleCounts {
	r.Helper()
	i, err := schedule.Get(r.Context(), r.q, topic, name)
	if err != nil {
		r.Fatal(err)
	}
	return i.Counts
}

// TestFullTopicDelaysNoOtherSchedule: a topic that takes nothing for ten minutes does not hold up
// the schedules of another one (P14), and makes up for what it has missed when there is room again.
func TestFullTopicDelaysNoOtherSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := &refusing{Store: r.mem, topic: "full@cron", err: punctual.ErrNoSpace}
		for i := range 30 {
			r.put(schedule.Schedule{Topic: "full", Name: fmt.Sprint("s", i), Spec: "* * * * *"})
		}
		r.put(schedule.Schedule{Topic: "good", Name: "s", Spec: "* * * * *", Overlap: schedule.OverlapAllow})
		stop := r.runs(s, duty.Config{})
		defer stop()
		for i := range 10 {
			time.Sleep(time.Minute - time.Duration(time.Now().UnixNano()%int64(time.Minute)) + time.Second)
			if r.live("good") != int64(i+1) {
				t.Fatalf("P14 isolation: a second after minute %d the good topic has %d occurrences", i+1, r.live("good"))
			}
		}
		stop()
		if n := s.refused.Load(); n < 100 {
			t.Fatalf("%d ticks were refused, so this test shows nothing", n)
		}
		if n := r.live("full"); n != 0 {
			t.Errorf("the full topic has %d messages", n)
		}
		defer r.runs(r.mem, duty.Config{})() // there is room again
		time.Sleep(time.Hour)
		if c := r.counts("full", "s7"); c.Stored != 1 || c.Missed < 5 || c.Stored+c.Missed+c.Skipped < 69 {
			t.Errorf("%+v; want one that makes up for the rest, and each time counted", c)
		}
	})
}

// slow is a store whose settlements take some time.
type slow struct {
	*memstore.Store
	takes time.Duration
}

func (s *slow) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	time.Sleep(s.takes)
	return s.Store.Settle(ctx, ss)
}

// TestManySchedulesDelayNoOther: 100,000 schedules of one topic come in one second, and so does one
// of a quiet topic. The quiet one is not more than a second late (P14), though the others take
// longer than that.
func TestManySchedulesDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const n = 100_000
		r.put(schedule.Schedule{Topic: "busy", Name: "s", Spec: "0 * * * *"})
		first, err := r.mem.Get(t.Context(), "busy@cron", "s")
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < n; i += 1000 { // copies of the first schedule under other names
			ms := make([]punctual.NewMessage, 1000)
			for j := range ms {
				ms[j] = punctual.NewMessage{Topic: "busy@cron", ID: fmt.Sprint("s", i+j), Body: first.Body, Due: first.Due}
			}
			r.push(ms...)
		}
		r.put(schedule.Schedule{Topic: "quiet", Name: "s", Spec: "0 * * * *"})
		time.Sleep(time.Until(first.Due) - 30*time.Second) // before the first look for schedules that do not come, which reads all of them
		defer r.runs(&slow{Store: r.mem, takes: 20 * time.Millisecond}, duty.Config{})()
		time.Sleep(time.Until(first.Due) + time.Second)
		i, err := r.mem.Get(t.Context(), "quiet", "s~"+first.Due.UTC().Format("20060102T150405Z"))
		if err != nil {
			t.Fatalf("P14 isolation: after a second the quiet schedule has not come: %v", err)
		}
		left, err := r.mem.Stats(t.Context(), "busy@cron")
		if err != nil {
			t.Fatal(err)
		}
		if left.Ready < n/10 {
			t.Fatalf("after a second %d of %d schedules wait, so this test shows nothing", left.Ready, n)
		}
		t.Logf("the quiet schedule was %v late; after a second %d of %d others waited", i.Created.Sub(i.Due), left.Ready, n)
	})
}

// dying is a store whose duty dies with its first tick in hand: it settles and extends nothing any
// more.
type dying struct {
	*memstore.Store
	// over ends, by die, when a claim has brought something, because a process that is dead claims
	// no more. Claims that wait at that moment end, too.
	over    context.Context
	die     context.CancelFunc
	claimed atomic.Bool
	buried  chan struct{} // closed when the test is over
}

func (d *dying) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(d.over, end)()
	if d.over.Err() != nil {
		end()
	}
	ds, err := d.Store.Claim(ctx, c)
	if len(ds) > 0 {
		d.die()
	}
	return ds, err
}

func (d *dying) Settle(context.Context, []punctual.Settlement) ([]error, error) {
	d.claimed.Store(true)
	<-d.buried
	return nil, punctual.ErrIndeterminate
}

// TestDeadDutyDelaysFiveSeconds: a duty that dies between the claim and the ack of a schedule
// delays it by five seconds at most, because the lease of a tick does not last longer, whatever the
// topic says.
func TestDeadDutyDelaysFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.put(schedule.Schedule{Topic: "reports", Name: "s", Spec: "0 * * * *"})
		dead := &dying{Store: r.mem, buried: make(chan struct{})}
		dead.over, dead.die = context.WithCancel(t.Context())
		defer r.runs(dead, duty.Config{})()
		defer close(dead.buried)
		i, err := r.mem.Get(t.Context(), "reports@cron", "s")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(i.Due) + 10*time.Millisecond)
		if i, err = r.mem.Get(t.Context(), "reports@cron", "s"); err != nil || i.State != punctual.StateLeased || !dead.claimed.Load() {
			t.Fatalf("%+v, %v: the duty did not die with the tick in hand, so this test shows nothing", i, err)
		}
		defer r.runs(r.mem, duty.Config{})()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := r.live("reports"); n != 1 {
			t.Errorf("five seconds after the duty died there are %d occurrences", n)
		}
	})
}
