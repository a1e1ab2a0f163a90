package duties

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/duty"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/ledger"
	"github.com/punctualmq/punctual/storetest/promise"
)

// RunSchedules runs the cases of recurring schedules over one store whose clock the cases move, and
// one more case, of two processes, over a store that reads the real time. The former do the duty by
// hand, so that they take no longer than their calls.
func RunSchedules(t *testing.T, open storetest.Open) {
	clock := storekit.NewManualClock(time.Now().Truncate(time.Hour))
	store := open(t, clock)
	if !hasFollowUps(t, store) {
		t.Skip("skipped: this store has no follow-ups")
	}
	for _, c := range []struct {
		name string
		run  func(*cronBench)
	}{
		{"put and tick", putAndTick},
		{"put again", putAgain},
		{"overlap skip", overlapSkip},
		{"overlap allow", overlapAllow},
		{"overlap replace", overlapReplace},
		{"missed latest", missedLatest},
		{"missed all", missedAll},
		{"missed none and grace", missedNone},
		{"pause and resume", pauseAndResume},
		{"skip and run now", skipAndRunNow},
		{"backfill", backfill},
		{"pause after dead occurrences", pauseAfterDead},
		{"of two duties one stores", oneOfTwoDuties},
		{"edits at once", editsAtOnce},
		{"a topic whose pushes are paused", pausedTopic},
		{"a topic that is deleted", deletedTopic},
		{"many schedules in one instant", manySchedules},
		{"a store that was away for a day", awayForADay},
		{"clocks that step", clockSteps},
		{"a clock that was ahead", clockAhead},
		{"what is left out is told", leftOutTold},
		{"a dead message with the ID of an occurrence", deadHolder},
		{"a zone that is not known", unknownZone},
		{"a schedule that was moved", movedAway},
		{"an occurrence that nobody takes", neverTaken},
		{"a time that nobody stores", notStored},
		{"every time once whatever happens", everyTimeOnce},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(newCronBench(t, store, clock, strings.ReplaceAll(c.name, " ", "-"))) })
	}
	storetest.CheckSound(t, store)
	t.Run("two processes at once", func(t *testing.T) {
		store := open(t, nil)
		twoProcesses(newBench(t, store, "two-processes"))
		storetest.CheckSound(t, store)
	})
}

func hasFollowUps(t *testing.T, store punctual.Store) bool {
	t.Helper()
	r, err := punctual.As[storekit.AbilityReporter](store)
	if err != nil {
		return false
	}
	can, err := r.Abilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return can.Follow != storekit.ReachNone
}

// cronBench is a bench whose store reads its time from a clock that the case moves, and a duty that
// runs when the case says so. The clock of a case begins half an hour after a full hour.
type cronBench struct {
	*bench
	clock *storekit.ManualClock
	duty  *schedule.Scheduler
	// hour is the full hour before the case began. Times of a case are given in hours from there.
	hour time.Time
}

func newCronBench(t *testing.T, store punctual.Store, clock *storekit.ManualClock, topic string) *cronBench {
	hour := clock.Now().Truncate(time.Hour).Add(time.Hour)
	clock.Set(hour.Add(30 * time.Minute))
	return &cronBench{bench: newBench(t, store, topic), clock: clock, duty: schedule.NewScheduler(store), hour: hour}
}

const hourly = "hourly"

// put stores the schedule "hourly" of the case's topic, which comes each hour unless s says
// otherwise.
func (b *cronBench) put(s schedule.Schedule) {
	b.Helper()
	s.Topic, s.Name = b.topic, hourly
	if s.Spec == "" {
		s.Spec = "0 * * * *"
	}
	if _, err := schedule.Put(b.Context(), b.queue, s); err != nil {
		b.Fatal(err)
	}
}

func (b *cronBench) info() schedule.Info {
	b.Helper()
	s, err := schedule.Get(b.Context(), b.queue, b.topic, hourly)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// ticks claims the schedules of the case's topic that are due, as a duty does.
func (b *cronBench) ticks() []punctual.Delivery {
	b.Helper()
	ds, err := b.store.Claim(b.Context(), punctual.Claim{Topics: []string{b.topic + "@cron"}, Max: 100, Lease: 5 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	return ds
}

// decide settles a schedule as the duty says, and returns the error of the settlement.
func (b *cronBench) decide(d *punctual.Delivery) error {
	b.Helper()
	how := punctual.DecisionOf(b.duty.Handle(b.Context(), d))
	errs, err := b.store.Settle(b.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: how.Verb, Delay: how.Delay, Then: how.Then}})
	if err != nil {
		b.Fatal(err)
	}
	return errs[0]
}

// tick runs the duty until no schedule of the topic is due.
func (b *cronBench) tick() {
	b.Helper()
	for ds := b.ticks(); len(ds) > 0; ds = b.ticks() {
		for i := range ds {
			if err := b.decide(&ds[i]); err != nil {
				b.Fatalf("%s: %v", ds[i].ID, err)
			}
		}
	}
}

// at sets the clock to so many hours after hour, plus more, and runs the duty.
func (b *cronBench) at(hours int, more ...time.Duration) {
	b.Helper()
	b.sets(hours, more...)
	b.tick()
}

func (b *cronBench) sets(hours int, more ...time.Duration) {
	t := b.hour.Add(time.Duration(hours) * time.Hour)
	for _, m := range more {
		t = t.Add(m)
	}
	b.clock.Set(t)
}

// id returns the ID of the occurrence that the schedule has so many hours after hour.
func (b *cronBench) id(hours int) string {
	return hourly + "~" + b.hour.Add(time.Duration(hours)*time.Hour).UTC().Format("20060102T150405Z")
}

// wantStored checks the IDs of all messages in the topic, by the hours of their occurrences.
func (b *cronBench) wantStored(hours ...int) {
	b.Helper()
	var want []string
	for _, h := range hours {
		want = append(want, b.id(h))
	}
	if got := b.ids(b.topic); !slices.Equal(got, want) {
		b.Fatalf("%s: the topic has %q, want %q", promise.P1, got, want)
	}
}

func (b *cronBench) wantCounts(stored, missed, skipped int64) {
	b.Helper()
	if got, want := b.info().Counts, (punctual.ScheduleCounts{Stored: stored, Missed: missed, Skipped: skipped}); got != want {
		b.Errorf("counted %+v, want %+v", got, want)
	}
}

// takes claims the occurrences that are ready and settles each.
func (b *cronBench) takes(verb punctual.Verb) {
	b.Helper()
	ds, err := b.store.Claim(b.Context(), punctual.Claim{Topics: []string{b.topic}, Max: 1000})
	if err != nil {
		b.Fatal(err)
	}
	for _, d := range ds {
		b.settle(punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: verb, Error: "given up"})
	}
}

func putAndTick(b *cronBench) {
	b.put(schedule.Schedule{
		Body: []byte("make it \x00\xff"), Headers: map[string]string{"tenant": "acme"}, MaxAttempts: 3,
		ExpireAfter: time.Hour, DropExpired: true, Remember: time.Minute, Timeout: 90 * time.Second, Spread: 5 * time.Minute,
	})
	next := b.info().Next
	if len(next) != 10 || next[0].ID != b.id(1) || !next[0].At.Equal(b.hour.Add(time.Hour)) {
		b.Fatalf("next %+v", next)
	}
	late := next[0].Due.Sub(next[0].At)
	if late < 0 || late >= 5*time.Minute {
		b.Fatalf("spread by %v", late)
	}
	b.sets(1, late, -time.Millisecond)
	b.tick()
	b.wantStored()
	b.sets(1, late)
	b.tick()
	b.wantStored(1)
	m := b.get(b.topic, b.id(1))
	if string(m.Body) != "make it \x00\xff" || m.Headers["tenant"] != "acme" || m.Headers[schedule.HeaderSchedule] != hourly ||
		m.Headers[schedule.HeaderOccurrence] != b.hour.Add(time.Hour).UTC().Format(time.RFC3339) || m.Headers[schedule.HeaderManual] != "" {
		b.Errorf("%q %v", m.Body, m.Headers)
	}
	if !m.Due.Equal(next[0].Due) || m.MaxAttempts != 3 || !m.Expires.Equal(m.Due.Add(time.Hour)) || !m.DropExpired || m.Remember != time.Minute || m.Timeout != 90*time.Second {
		b.Errorf("%+v", m)
	}
	b.takes(punctual.SettleAck)
	b.at(2, late)
	b.wantStored(2)
	b.wantCounts(2, 0, 0)
	last := b.info().Last
	if len(last) != 2 || last[0].Status != "ready" || last[1].Status != schedule.OccurrenceFinished {
		b.Errorf("last %+v", last)
	}
}

func putAgain(b *cronBench) {
	s := schedule.Schedule{Topic: b.topic, Name: hourly, Spec: "0 * * * *", Body: []byte("a")}
	for i, want := range []punctual.PushStatus{punctual.PushStored, punctual.PushDuplicate, punctual.PushReplaced, punctual.PushDuplicate} {
		if i == 2 {
			s.Body = []byte("b")
		}
		if got, err := schedule.Put(b.Context(), b.queue, s); err != nil || got != want {
			b.Errorf("put %d: %v, %v; want %v", i+1, got, err, want)
		}
	}
	if _, err := schedule.Put(b.Context(), b.queue, schedule.Schedule{Topic: b.topic, Name: hourly, Spec: "0 25 * * *"}); !errors.Is(err, punctual.ErrInvalid) {
		b.Errorf("%s: a malformed schedule: %v", promise.P13, err)
	}
	b.at(1)
	b.wantStored(1)
	if m := b.get(b.topic, b.id(1)); string(m.Body) != "b" {
		b.Errorf("the body is %q", m.Body)
	}
	// The schedule is changed while a time has come that no duty has decided. That time is still
	// stored, by the former definition.
	b.sets(2, 10*time.Minute)
	b.takes(punctual.SettleAck)
	s.Spec = "30 * * * *"
	if got, err := schedule.Put(b.Context(), b.queue, s); err != nil || got != punctual.PushReplaced {
		b.Fatal(got, err)
	}
	b.tick()
	b.wantStored(2)
	if next := b.info().Next[0]; !next.At.Equal(b.hour.Add(2*time.Hour + 30*time.Minute)) {
		b.Errorf("next %+v", next)
	}
}

func overlapSkip(b *cronBench) {
	b.put(schedule.Schedule{})
	b.at(1)
	b.at(2)
	b.wantStored(1)
	b.wantCounts(1, 0, 1)
	ds, err := b.store.Claim(b.Context(), punctual.Claim{Topics: []string{b.topic}, Max: 1, Lease: 3 * time.Hour})
	if err != nil || len(ds) != 1 {
		b.Fatal(ds, err)
	}
	b.at(3) // while the first occurrence is leased
	b.wantStored(1)
	b.settle(punctual.Settlement{Topic: b.topic, ID: ds[0].ID, Token: ds[0].Token, Verb: punctual.SettleDiscard, Error: "given up"})
	b.at(4) // a dead occurrence does not count as an overlap
	b.wantStored(1, 4)
	b.wantCounts(2, 0, 2)
	var last []schedule.OccurrenceStatus
	for _, o := range b.info().Last {
		last = append(last, o.Status)
	}
	if want := []schedule.OccurrenceStatus{"ready", schedule.OccurrenceOverlap, schedule.OccurrenceOverlap, "dead"}; !slices.Equal(last, want) {
		b.Errorf("last %q, want %q", last, want)
	}
}

func overlapAllow(b *cronBench) {
	b.put(schedule.Schedule{Overlap: schedule.OverlapAllow})
	for h := 1; h <= 3; h++ {
		b.at(h)
	}
	b.wantStored(1, 2, 3)
	b.wantCounts(3, 0, 0)
}

func overlapReplace(b *cronBench) {
	b.put(schedule.Schedule{Overlap: schedule.OverlapReplace})
	b.at(1)
	b.at(2)
	b.wantStored(2)
	ds, err := b.store.Claim(b.Context(), punctual.Claim{Topics: []string{b.topic}, Max: 1, Lease: 3 * time.Hour})
	if err != nil || len(ds) != 1 {
		b.Fatal(ds, err)
	}
	b.at(3) // the leased occurrence is cancelled, so it ends with this attempt
	b.wantStored(2, 3)
	if i := b.get(b.topic, b.id(2)); !i.CancelRequested {
		b.Errorf("%s: the one before was not cancelled: %+v", promise.P5, i)
	}
	b.settle(punctual.Settlement{Topic: b.topic, ID: ds[0].ID, Token: ds[0].Token, Verb: punctual.SettleAck})
	b.wantStored(3)
	b.wantCounts(3, 0, 0)
}

func missedLatest(b *cronBench) {
	b.put(schedule.Schedule{})
	b.at(5, 30*time.Minute)
	b.wantStored(5)
	b.wantCounts(1, 4, 0)
	if m := b.get(b.topic, b.id(5)); !m.Due.Equal(b.hour.Add(5 * time.Hour)) {
		b.Errorf("it is due %v: its lateness would not show", m.Due)
	}
	b.takes(punctual.SettleAck)
	b.at(8, 30*time.Second) // the last of them is in time and stored anyway, so the missed ones need no occurrence of their own
	b.wantStored(8)
	b.wantCounts(2, 6, 0)
}

func missedAll(b *cronBench) {
	b.put(schedule.Schedule{Missed: schedule.MissedAll, Overlap: schedule.OverlapAllow})
	const days = 5
	b.sets(days*24, 30*time.Minute)
	ds := b.ticks()
	if len(ds) != 1 {
		b.Fatal(ds)
	}
	if err := b.decide(&ds[0]); err != nil {
		b.Fatal(err)
	}
	if got := len(b.ids(b.topic)); got != 50 {
		b.Errorf("%s: one step stored %d occurrences; want 50, and the next ones in steps of their own", promise.P10, got)
	}
	b.tick()
	var want []int
	for h := 1; h <= days*24; h++ {
		want = append(want, h)
	}
	b.wantStored(want...)
	b.wantCounts(days*24, 0, 0)
}

func missedNone(b *cronBench) {
	b.put(schedule.Schedule{Missed: schedule.MissedNone, Grace: 10 * time.Minute, Overlap: schedule.OverlapAllow})
	b.at(3, 11*time.Minute)
	b.wantStored()
	b.wantCounts(0, 3, 0)
	b.at(5, 10*time.Minute) // within the grace
	b.wantStored(5)
	b.wantCounts(1, 4, 0)
}

func pauseAndResume(b *cronBench) {
	b.put(schedule.Schedule{})
	if err := schedule.Pause(b.Context(), b.queue, b.topic, hourly, "anna", "until the API is back"); err != nil {
		b.Fatal(err)
	}
	b.at(3)
	b.wantStored()
	if p := b.info().Paused; p == nil || p.By != "anna" || p.Note != "until the API is back" {
		b.Errorf("paused %+v", p)
	}
	if err := schedule.Resume(b.Context(), b.queue, b.topic, hourly, false); err != nil {
		b.Fatal(err)
	}
	b.tick()
	b.wantStored()
	b.at(4)
	b.wantStored(4)
	b.wantCounts(1, 0, 3)
	b.takes(punctual.SettleAck)
	if err := schedule.Pause(b.Context(), b.queue, b.topic, hourly, "", ""); err != nil {
		b.Fatal(err)
	}
	b.at(7, 30*time.Minute)
	if err := schedule.Resume(b.Context(), b.queue, b.topic, hourly, true); err != nil {
		b.Fatal(err)
	}
	b.tick()
	b.wantStored(7) // the latest time of the pause is made up for
	b.wantCounts(2, 2, 3)
}

func skipAndRunNow(b *cronBench) {
	b.put(schedule.Schedule{Overlap: schedule.OverlapAllow})
	skipped, err := schedule.Skip(b.Context(), b.queue, b.topic, hourly, 2)
	if err != nil || len(skipped) != 2 || skipped[0].ID != b.id(1) || skipped[1].ID != b.id(2) {
		b.Fatalf("%+v, %v", skipped, err)
	}
	run, err := schedule.Run(b.Context(), b.queue, b.topic, hourly)
	if err != nil || run.Status != punctual.PushStored {
		b.Fatalf("%+v, %v", run, err)
	}
	if m := b.get(b.topic, run.ID); m.Headers[schedule.HeaderManual] != "run" {
		b.Errorf("%+v", m)
	}
	b.takes(punctual.SettleAck)
	b.at(2)
	b.wantStored()
	b.at(3)
	b.wantStored(3)
	b.wantCounts(1, 0, 2)
	if err := schedule.Delete(b.Context(), b.queue, b.topic, hourly); err != nil {
		b.Fatal(err)
	}
	b.at(5)
	b.wantStored(3)
	if _, err := schedule.Get(b.Context(), b.queue, b.topic, hourly); !errors.Is(err, punctual.ErrNotFound) {
		b.Errorf("a deleted schedule: %v", err)
	}
}

func backfill(b *cronBench) {
	b.put(schedule.Schedule{})
	b.at(1)
	b.takes(punctual.SettleDiscard)
	b.sets(1, 30*time.Minute)
	from, to := b.hour.Add(-3*time.Hour), b.hour.Add(time.Hour)
	r, err := schedule.Backfill(b.Context(), b.queue, b.topic, hourly, from, to, true)
	if err != nil || len(r.Times) != 5 || r.Stored+r.Kept != 0 {
		b.Fatalf("%+v, %v", r, err)
	}
	b.wantStored(1)
	for i, want := range []schedule.BackfillReport{{Stored: 4, Kept: 1}, {Kept: 5}} {
		if r, err = schedule.Backfill(b.Context(), b.queue, b.topic, hourly, from, to, false); err != nil || r.Stored != want.Stored || r.Kept != want.Kept {
			b.Errorf("backfill %d: %+v, %v", i+1, r, err)
		}
	}
	b.wantStored(-3, -2, -1, 0, 1)
	b.wantCounts(1, 0, 0)
}

func pauseAfterDead(b *cronBench) {
	b.put(schedule.Schedule{MaxDead: 2})
	for h := 1; h <= 2; h++ {
		b.at(h)
		b.takes(punctual.SettleDiscard)
	}
	b.at(3)
	b.wantStored(1, 2)
	if p := b.info().Paused; p == nil || p.Note != "the last 2 occurrences are dead" {
		b.Errorf("paused %+v", p)
	}
	if err := schedule.Resume(b.Context(), b.queue, b.topic, hourly, false); err != nil {
		b.Fatal(err)
	}
	b.at(4)
	b.wantStored(1, 2, 4)
}

func oneOfTwoDuties(b *cronBench) {
	b.put(schedule.Schedule{Overlap: schedule.OverlapAllow})
	b.sets(1)
	slow := b.ticks()
	if len(slow) != 1 || !slow[0].LeaseUntil.Equal(slow[0].Delivered.Add(5*time.Second)) {
		b.Fatalf("%+v", slow)
	}
	if again := b.ticks(); len(again) != 0 {
		b.Fatalf("%s: a second duty got %+v", promise.P3, again)
	}
	b.at(1, 5*time.Second)
	b.wantStored(1)
	b.takes(punctual.SettleAck)
	if err := b.decide(&slow[0]); !errors.Is(err, punctual.ErrLeaseLost) {
		b.Errorf("%s: the slow duty: %v", promise.P4, err)
	}
	b.wantStored()
	b.sets(2)
	slow = b.ticks()
	b.put(schedule.Schedule{Overlap: schedule.OverlapAllow, Body: []byte("changed under the lease")})
	b.tick()
	b.wantStored(2)
	if err := b.decide(&slow[0]); !errors.Is(err, punctual.ErrLeaseLost) {
		b.Errorf("%s: the duty whose schedule was changed: %v", promise.P4, err)
	}
	b.wantStored(2)
	b.wantCounts(2, 0, 0)
}

func editsAtOnce(b *cronBench) {
	b.put(schedule.Schedule{})
	if err := schedule.Pause(b.Context(), b.queue, b.topic, hourly, "anna", "first"); err != nil {
		b.Fatal(err)
	}
	const editors, edits = 4, 5
	var all sync.WaitGroup
	for i := range editors {
		all.Go(func() {
			for range edits {
				if _, err := schedule.Skip(b.Context(), b.queue, b.topic, hourly, 1); err != nil {
					b.Errorf("editor %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	if next := b.info().Next[0]; next.ID != b.id(1+editors*edits) {
		b.Errorf("after %d skipped times comes %+v", editors*edits, next)
	}
}

func pausedTopic(b *cronBench) {
	b.put(schedule.Schedule{})
	b.configure(b.topic, punctual.SettingsPatch{PushPaused: ptr(true)})
	b.sets(1)
	ds := b.ticks()
	if len(ds) != 1 {
		b.Fatal(ds)
	}
	if err := b.decide(&ds[0]); !errors.Is(err, punctual.ErrPaused) {
		b.Fatalf("%s: pushes are paused, and the settlement says %v", promise.P13, err)
	}
	b.wantStored()
	b.configure(b.topic, punctual.SettingsPatch{PushPaused: ptr(false)})
	b.at(3, 30*time.Minute)
	b.wantStored(3)
	b.wantCounts(1, 2, 0)
	b.configure(b.topic, punctual.SettingsPatch{DeliveryPaused: ptr(true)})
	b.at(4) // the occurrence before still waits
	b.wantStored(3)
	b.wantCounts(1, 2, 1)
}

func deletedTopic(b *cronBench) {
	b.put(schedule.Schedule{})
	b.at(1)
	b.wantStored(1)
	b.sets(2)
	ds := b.ticks()
	if len(ds) != 1 {
		b.Fatal(ds)
	}
	if _, err := b.in.DeleteTopic(b.Context(), b.topic); err != nil {
		b.Fatal(err)
	}
	if err := b.decide(&ds[0]); !errors.Is(err, punctual.ErrLeaseLost) {
		b.Errorf("%s: a tick of a deleted topic: %v", promise.P4, err)
	}
	b.at(3)
	b.wantStored()
	if _, err := schedule.Get(b.Context(), b.queue, b.topic, hourly); !errors.Is(err, punctual.ErrNotFound) {
		b.Errorf("the schedule of a deleted topic: %v", err)
	}
}

func manySchedules(b *cronBench) {
	const n = 250
	var want []string
	for i := range n {
		name := fmt.Sprintf("tenant-%03d", i)
		if _, err := schedule.Put(b.Context(), b.queue, schedule.Schedule{Topic: b.topic, Name: name, Spec: "0 * * * *"}); err != nil {
			b.Fatal(err)
		}
		want = append(want, strings.Replace(b.id(1), hourly, name, 1))
	}
	b.at(1)
	if got := b.ids(b.topic); !slices.Equal(got, want) {
		b.Errorf("%s: %d of %d schedules of one instant were stored", promise.P1, len(got), n)
	}
	seen := 0
	for s, err := range schedule.List(b.Context(), b.queue, schedule.Query{Topic: b.topic, Next: 1}) {
		if err != nil || s.Counts.Stored != 1 || len(s.Next) != 1 || !s.Next[0].At.Equal(b.hour.Add(2*time.Hour)) {
			b.Fatalf("%+v, %v", s, err)
		}
		seen++
	}
	if seen != n {
		b.Errorf("%d of %d schedules are listed", seen, n)
	}
}

// awayForADay: no duty ran for a day, in which the times of a schedule of each Missed policy came.
func awayForADay(b *cronBench) {
	for _, m := range []schedule.Missed{schedule.MissedLatest, schedule.MissedAll, schedule.MissedNone} {
		s := schedule.Schedule{Topic: b.topic, Name: m.String(), Spec: "0 * * * *", Missed: m, Overlap: schedule.OverlapAllow}
		if _, err := schedule.Put(b.Context(), b.queue, s); err != nil {
			b.Fatal(err)
		}
	}
	b.at(24, 30*time.Minute)
	for name, want := range map[string]punctual.ScheduleCounts{"latest": {Stored: 1, Missed: 23}, "all": {Stored: 24}, "none": {Missed: 24}} {
		s, err := schedule.Get(b.Context(), b.queue, b.topic, name)
		if err != nil || s.Counts != want || !s.Overdue.IsZero() {
			b.Errorf("%s: %+v, overdue %v, %v; want %+v", name, s.Counts, s.Overdue, err, want)
		}
	}
	if got := len(b.ids(b.topic)); got != 25 {
		b.Errorf("%s: %d occurrences; want 25", promise.P1, got)
	}
}

// clockSteps: the clock goes a day ahead, and then an hour back.
func clockSteps(b *cronBench) {
	b.put(schedule.Schedule{Missed: schedule.MissedAll, Overlap: schedule.OverlapAllow})
	b.at(24)
	if got := len(b.ids(b.topic)); got != 24 {
		b.Fatalf("a day ahead: %d occurrences", got)
	}
	ahead := b.clock.Now()
	b.clock.Set(ahead.Add(-time.Hour))
	b.takes(punctual.SettleAck)
	b.tick()
	b.put(schedule.Schedule{Missed: schedule.MissedAll, Overlap: schedule.OverlapAllow, Body: []byte("put again")})
	b.clock.Set(ahead.Add(-time.Minute))
	b.tick()
	for _, id := range b.ids(b.topic) {
		if id <= b.id(24) {
			b.Errorf("%s: %s was stored a second time when the clock had gone back", promise.P1, id)
		}
	}
	b.clock.Set(ahead)
	b.at(26)
	b.wantCounts(26, 0, 0)
}

// clockAhead: the clock is three years ahead for a moment, in which a duty decides about many
// times. After the step the schedule begins again: what was stored meanwhile is not stored again,
// as far as the schedule knows it, and what was left out comes at its time.
func clockAhead(b *cronBench) {
	k, err := punctual.As[storekit.ClockKeeper](b.store)
	if err != nil {
		b.Skipf("skipped: the case needs a ClockKeeper: %v", err)
	}
	const last = 3 * 365 * 24
	b.put(schedule.Schedule{})
	b.at(1)
	b.takes(punctual.SettleAck)
	b.at(2) // from here on the clock is ahead
	b.at(3) // left out, because 2 waits
	b.takes(punctual.SettleAck)
	b.at(last)         // the only one that is not missed
	b.wantStored(last) // nobody takes it, so it waits for its time after the step
	for _, name := range []string{"put", "paused"} {
		if _, err := schedule.Put(b.Context(), b.queue, schedule.Schedule{Topic: b.topic, Name: name, Spec: "0 * * * *"}); err != nil {
			b.Fatal(err)
		}
	}
	if err := schedule.Pause(b.Context(), b.queue, b.topic, "paused", "", ""); err != nil {
		b.Fatal(err)
	}
	b.sets(1, 30*time.Minute)
	state, err := k.StepClock(b.Context())
	if err != nil || state.Steps == 0 || !state.Now.Equal(b.clock.Now()) {
		b.Fatalf("this case shows nothing: %+v, %v", state, err)
	}
	if i := b.info(); !i.Ahead.Equal(b.hour.Add(last*time.Hour)) || i.Problem == "" {
		b.Fatalf("%s: after the step the schedule has decided until %v, problem %q; want %d hours on and a problem", promise.P8, i.Ahead, i.Problem, last)
	}
	b.clock.Advance(time.Minute)
	for _, name := range []string{hourly, "put"} { // as a process that does the duties has them begin again
		as, err := b.store.Amend(b.Context(), []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: b.topic + "@cron", ID: name}})
		if err != nil || as[0].Err != nil {
			b.Fatal(as, err)
		}
	}
	b.tick()
	if err := schedule.Resume(b.Context(), b.queue, b.topic, "paused", false); err != nil {
		b.Fatal(err)
	}
	for name, want := range map[string]int{hourly: 3, "put": 2, "paused": 2} { // 2 of the first was stored
		i, err := schedule.Get(b.Context(), b.queue, b.topic, name)
		if err != nil || !i.Ahead.IsZero() || i.Problem != "" || len(i.Next) == 0 || !i.Next[0].At.Equal(b.hour.Add(time.Duration(want)*time.Hour)) {
			b.Errorf("%s: the schedule %s comes next at %+v, ahead %v, problem %q, %v; want hour %d", promise.P8, name, i.Next, i.Ahead, i.Problem, err, want)
		}
	}
	b.wantStored(last)
	b.at(2)
	b.at(3)
	if got := b.ids(b.topic); len(got) != 4 || !slices.Contains(got, b.id(3)) {
		b.Errorf("%s: at hour 3 the topic has %q; want that of the first schedule, and hour 2 of the others", promise.P8, got)
	}
	b.wantCounts(4, last-4, 2)
}

// leftOutTold: a topic tells of the times that were left out, each once.
func leftOutTold(b *cronBench) {
	r, err := punctual.As[storekit.AbilityReporter](b.store)
	if err != nil {
		b.Fatal(err)
	}
	if can, err := r.Abilities(b.Context()); err != nil || !can.Emit {
		b.Skipf("skipped: this store tells of nothing: %v", err)
	}
	b.configure(b.topic, punctual.SettingsPatch{Emit: ptr(punctual.EventMissed | punctual.EventSkipped)})
	b.put(schedule.Schedule{})
	b.at(5, 30*time.Minute) // 1 to 4 are missed, 5 makes up for them
	b.at(6)                 // 6 is skipped, because 5 still waits
	if _, err := schedule.Skip(b.Context(), b.queue, b.topic, hourly, 1); err != nil {
		b.Fatal(err)
	}
	b.takes(punctual.SettleAck)
	b.at(7)
	b.at(8)
	hour := func(n int) time.Time { return b.hour.Add(time.Duration(n) * time.Hour).UTC() }
	want := []event.Event{
		{Event: punctual.EventMissed, ID: b.id(4), At: hour(5).Add(30 * time.Minute), FirstDue: hour(1), Due: hour(4), Count: 4},
		{Event: punctual.EventSkipped, ID: b.id(6), At: hour(6), FirstDue: hour(6), Due: hour(6), Count: 1, Why: string(schedule.OccurrenceOverlap)},
		{Event: punctual.EventSkipped, ID: b.id(7), At: hour(8), FirstDue: hour(7), Due: hour(7), Count: 1, Why: string(schedule.OccurrenceSkipped)},
	}
	events := b.topic + "@events"
	ds, err := b.store.Claim(b.Context(), punctual.Claim{Topics: []string{events}, Max: 10})
	if err != nil || len(ds) != len(want) {
		b.Fatalf("%d events, %v; want %d", len(ds), err, len(want))
	}
	for i, d := range ds {
		got, err := event.Parse(d.Body)
		want[i].Topic = b.topic
		if err != nil || got != want[i] || d.Expires.Sub(d.Due) != 24*time.Hour || !d.DropExpired {
			b.Errorf("event %d: %+v, %v\nwant %+v", i+1, got, err, want[i])
		}
	}
	b.wantCounts(2, 4, 2)
	// An event that nobody takes is dropped when its time is over, although the store itself tells
	// of nothing here. Durable stores do that by themselves from time to time.
	b.at(9)
	b.clock.Set(hour(9).Add(25 * time.Hour))
	b.tick()
	b.at(35, 5*time.Minute)
	if err := storekit.SweepEvents(b.Context(), b.store); err != nil {
		b.Fatal(err)
	}
	if ids := b.ids(events); slices.ContainsFunc(ids, func(id string) bool { return strings.HasPrefix(id, b.id(9)) }) {
		b.Errorf("%s: an event that nobody took in 25 hours is still there: %q", promise.P10, ids)
	}
}

func deadHolder(b *cronBench) {
	b.push(b.id(1))
	b.takes(punctual.SettleDiscard)
	b.put(schedule.Schedule{Body: []byte("new")})
	b.at(1)
	b.wantStored(1)
	if m := b.get(b.topic, b.id(1)); m.State != punctual.StateReady || string(m.Body) != "new" {
		b.Errorf("%+v", m)
	}
}

// everyTimeOnce has a schedule go through random hours: duties whose ack comes when their lease has
// ended, changed definitions, consumers that ack or discard. ledger.Occurrences judges what was
// stored.
func everyTimeOnce(b *cronBench) {
	for _, problem := range randomHours(b) {
		b.Error(problem)
	}
}

// randomHours goes through the hours of everyTimeOnce and returns what ledger.Occurrences finds
// wrong.
func randomHours(b *cronBench) (problems []string) {
	r := rand.New(rand.NewPCG(ledger.TortureSeed(b.T), 9))
	var told ledger.Occurrences
	specs := []string{"*/10 * * * *", "5 * * * *", "@every 25m", "0,7,31 */2 * * *"}
	s := schedule.Schedule{Spec: specs[0], Missed: schedule.MissedAll, Overlap: schedule.OverlapAllow}
	put := func() error {
		s.Topic, s.Name = b.topic, hourly
		done := told.Putting(s, b.clock.Now())
		_, err := schedule.Put(b.Context(), b.queue, s)
		if err == nil {
			done(b.clock.Now())
		}
		return err
	}
	take := func() {
		ds, err := b.store.Claim(b.Context(), punctual.Claim{Topics: []string{b.topic}, Max: 1000})
		if err != nil {
			b.Fatal(err)
		}
		for _, d := range ds {
			told.Stored(d.ID, d.Created)
			verb := []punctual.Verb{punctual.SettleAck, punctual.SettleAck, punctual.SettleDiscard}[r.IntN(3)]
			b.settle(punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: verb, Error: "given up"})
		}
	}
	if err := put(); err != nil {
		b.Fatal(err)
	}
	for range 40 {
		b.clock.Advance(time.Duration(r.Int64N(int64(2 * time.Hour))))
		switch r.IntN(5) {
		case 0:
			before := s
			s.Spec = specs[r.IntN(len(specs))]
			if err := put(); errors.Is(err, punctual.ErrOverloaded) {
				told.Refused() // the former definitions of four changes wait for a duty already
				s = before
				b.tick()
			} else if err != nil {
				b.Fatal(err)
			}
		case 1:
			var late []punctual.Settlement // the acks of a duty that stands still after its claim
			for _, d := range b.ticks() {
				how := punctual.DecisionOf(b.duty.Handle(b.Context(), &d))
				late = append(late, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: how.Verb, Delay: how.Delay, Then: how.Then})
			}
			b.clock.Advance(5 * time.Second)
			b.tick()
			take()
			b.clock.Advance(time.Millisecond) // so that an occurrence that is stored a second time has another Created
			if len(late) > 0 {
				if _, err := b.store.Settle(b.Context(), late); err != nil {
					b.Fatal(err)
				}
			}
		default:
			b.tick()
			take()
		}
	}
	b.tick()
	take()
	info, err := schedule.Get(b.Context(), b.queue, b.topic, hourly)
	if err != nil {
		return []string{fmt.Sprintf("%s: the schedule is gone: %v", promise.P1, err)}
	}
	return told.Judge(info, b.clock.Now())
}

// twoProcesses: two runs of package duty, as of two processes, do the duties of a store by the real
// clock, over wrappers that lose some answers, and a consumer acks what they store. Each second of
// a schedule must be stored once.
func twoProcesses(b *bench) {
	var told ledger.Occurrences
	s := schedule.Schedule{Topic: b.topic, Name: "each", Spec: "* * * * * *", Missed: schedule.MissedAll, Overlap: schedule.OverlapAllow}
	begin, err := b.store.Now(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	done := told.Putting(s, begin)
	if _, err := schedule.Put(b.Context(), b.queue, s); err != nil {
		b.Fatal(err)
	}
	put, err := b.store.Now(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	done(put)
	stops := []func(){b.duties(&lossy{Store: b.store, every: 3}), b.duties(&lossy{Store: b.store, every: 4})}
	const times = 4
	for seen := map[string]bool{}; len(seen) < times; {
		d := b.claim(b.topic, punctual.SettleAck)
		told.Stored(d.ID, d.Created)
		seen[d.ID] = true
	}
	for _, stop := range stops {
		stop()
	}
	if err := schedule.Pause(b.Context(), b.queue, b.topic, "each", "", ""); err != nil {
		b.Fatal(err)
	}
	for _, id := range b.ids(b.topic) {
		told.Stored(id, b.get(b.topic, id).Created)
	}
	info, err := schedule.Get(b.Context(), b.queue, b.topic, "each")
	if err != nil {
		b.Fatal(err)
	}
	for _, problem := range told.Judge(info, time.Now()) {
		b.Error(problem)
	}
}

// runDuty does the duties of a topic until the returned function is called.
func runDuty(store punctual.Store, topic string) (stop func() error) {
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- duty.Run(ctx, store, &duty.Config{Topics: []string{topic}, Logger: slog.New(slog.DiscardHandler)})
	}()
	return func() error {
		end()
		return <-done
	}
}
