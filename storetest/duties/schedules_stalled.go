package duties

import (
	"bytes"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/bulk"
	"github.com/punctualmq/punctual/schedule"
)

// wantProblem checks that the list of schedules and the schedule by itself have the same Problem,
// with all of these words; none stands for a schedule without a problem.
func (b *cronBench) wantProblem(words ...string) {
	b.Helper()
	one := b.info()
	for _, word := range words {
		if !strings.Contains(one.Problem, word) {
			b.Errorf("the problem is %q; want one with %q", one.Problem, word)
		}
	}
	if len(words) == 0 && one.Problem != "" {
		b.Errorf("the problem is %q; want none", one.Problem)
	}
	listed := 0
	for s, err := range schedule.List(b.Context(), b.queue, schedule.Query{Topic: b.topic}) {
		if err != nil {
			b.Fatal(err)
		}
		if listed++; s.Problem != one.Problem {
			b.Errorf("the list has the problem %q, the schedule by itself %q", s.Problem, one.Problem)
		}
	}
	if listed != 1 {
		b.Errorf("%d schedules are listed; want 1", listed)
	}
}

// unknownZone: the zone of a schedule is not in the zone data of the processes that do the duty.
func unknownZone(b *cronBench) {
	b.put(schedule.Schedule{Zone: "Europe/Berlin"})
	cron := b.topic + schedule.Suffix
	m := b.get(cron, hourly)
	body := bytes.Replace(m.Body, []byte("Europe/Berlin"), []byte("Europe/Atlantis"), 1)
	if _, err := b.queue.Push(b.Context(), cron, body, punctual.ID(hourly), punctual.At(m.Due), punctual.Replace()); err != nil {
		b.Fatal(err)
	}
	b.at(1, 30*time.Second)
	if m := b.get(cron, hourly); m.State != punctual.StateScheduled {
		b.Fatalf("the duty did not leave the schedule to others: it is %s", m.State)
	}
	b.wantStored()
	b.wantProblem("Europe/Atlantis", "zone data")
	b.put(schedule.Schedule{Zone: "UTC"})
	b.tick()
	b.wantStored(1)
	b.wantProblem()
}

// movedAway: somebody reschedules the message of a schedule, by itself or with others, as if it
// were a message like any other.
func movedAway(b *cronBench) {
	cron := b.topic + schedule.Suffix
	day := 24 * time.Hour
	for name, move := range map[string]func() error{
		"reschedule": func() error {
			_, err := b.queue.Reschedule(b.Context(), cron, hourly, punctual.In(300*day))
			return err
		},
		"bulk": func() error {
			_, err := bulk.Run(b.Context(), b.queue, bulk.Job{Do: bulk.Reschedule, Select: bulk.Selection{Topic: cron}, When: punctual.In(300 * day)})
			return err
		},
	} {
		b.put(schedule.Schedule{Overlap: schedule.OverlapAllow})
		next := b.info().Next[0].Due
		if err := move(); err != nil {
			b.Fatal(name, err)
		}
		if m := b.get(cron, hourly); m.Due.Sub(next) < 299*day {
			b.Fatalf("%s: the message of the schedule is due at %v", name, m.Due)
		}
		b.wantProblem("moved", "put it again")
		b.clock.Set(next.Add(30 * time.Second))
		b.tick()
		b.wantProblem("moved", "put it again")
		if s := b.info(); !s.Overdue.Equal(next) {
			b.Errorf("%s: overdue since %v; want %v", name, s.Overdue, next)
		}
		b.put(schedule.Schedule{Overlap: schedule.OverlapAllow})
		b.tick()
		b.wantProblem()
		if m := b.get(b.topic, hourly+"~"+next.UTC().Format("20060102T150405Z")); m.State != punctual.StateReady {
			b.Errorf("%s: the occurrence is %s after the schedule was put again", name, m.State)
		}
	}
}

// neverTaken: nobody takes an occurrence, so that the schedule leaves out each time after it.
func neverTaken(b *cronBench) {
	b.put(schedule.Schedule{})
	b.at(1)
	b.wantProblem() // a consumer may take it any moment
	for h := 2; h <= 15; h++ {
		b.at(h)
	}
	b.wantStored(1)
	b.wantCounts(1, 0, 14)
	b.wantProblem(b.id(1), "ready", "left out", "cancel it")
	ds, err := b.store.Claim(b.Context(), punctual.Claim{Topics: []string{b.topic}, Max: 1, Lease: 3 * time.Hour})
	if err != nil || len(ds) != 1 {
		b.Fatal(ds, err)
	}
	b.at(16)
	b.wantCounts(1, 0, 15)
	b.wantProblem() // somebody works on it, and the next time waits for that as the schedule says
	b.settle(punctual.Settlement{Topic: b.topic, ID: ds[0].ID, Token: ds[0].Token, Verb: punctual.SettleRetry, Delay: 90 * time.Minute, Error: "busy"})
	b.at(17)
	b.wantProblem() // the next attempt is known
	// The occurrence itself is moved far ahead.
	if _, err := b.queue.Reschedule(b.Context(), b.topic, b.id(1), punctual.In(1000*time.Hour)); err != nil {
		b.Fatal(err)
	}
	b.at(18)
	b.wantProblem(b.id(1), "scheduled", "left out", "cancel it")
	if err := b.queue.Cancel(b.Context(), b.topic, b.id(1)); err != nil {
		b.Fatal(err)
	}
	b.wantProblem()
	b.at(19)
	b.wantStored(19)
}

// notStored: a time has come, and no duty stores it, because none runs or the topic takes nothing.
func notStored(b *cronBench) {
	b.put(schedule.Schedule{})
	b.sets(1, 5*time.Second)
	b.wantProblem() // a duty may be about to store it
	b.sets(1, 30*time.Second)
	b.wantProblem("no duty", "punctual serve")
	b.configure(b.topic, punctual.SettingsPatch{PushPaused: ptr(true)})
	for _, d := range b.ticks() {
		if err := b.decide(&d); err == nil {
			b.Fatal("a topic whose pushes are paused took an occurrence")
		}
	}
	b.wantProblem("pushes of " + b.topic + " are paused")
	b.configure(b.topic, punctual.SettingsPatch{PushPaused: ptr(false)})
	b.configure(b.topic+schedule.Suffix, punctual.SettingsPatch{DeliveryPaused: ptr(true)})
	b.wantProblem("deliveries of " + b.topic + "@cron are paused")
	b.configure(b.topic+schedule.Suffix, punctual.SettingsPatch{DeliveryPaused: ptr(false)})
	b.sets(1, 50*time.Second)
	b.tick()
	b.wantStored(1)
	b.wantProblem()
}
