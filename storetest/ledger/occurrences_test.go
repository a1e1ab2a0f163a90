package ledger

import (
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/schedule"
)

// TestOccurrences: the judge of schedules finds times that are stored wrongly, missing or
// miscounted, and nothing where all is well.
func TestOccurrences(t *testing.T) {
	begin := time.Date(2026, 11, 20, 8, 30, 0, 0, time.UTC)
	id := func(clock string) string { return "s~20261120T" + clock + "00Z" }
	hourly := schedule.Schedule{Topic: "t", Name: "s", Spec: "0 * * * *"}
	halves := schedule.Schedule{Topic: "t", Name: "s", Spec: "0,30 * * * *"}
	for name, c := range map[string]struct {
		// second is put at 10:30 without an answer, or with one if answered is set.
		second   *schedule.Schedule
		answered bool
		stored   []string
		twice    string
		left     int64
		counted  int64 // 0: as many as were stored
		want     string
	}{
		"all":                     {stored: []string{"0900", "1000", "1100", "1200"}},
		"one missing":             {stored: []string{"0900", "1000", "1200"}, want: "1 times were not stored"},
		"one left out":            {stored: []string{"0900", "1000", "1200"}, left: 1},
		"one twice":               {stored: []string{"0900", "1000", "1100", "1200"}, twice: "1000", want: "was stored 2 times"},
		"none of the schedule":    {stored: []string{"0900", "0930", "1000", "1100", "1200"}, want: "is no time of the schedule"},
		"before the put":          {stored: []string{"0800", "0900", "1000", "1100", "1200"}, want: "is no time of the schedule"},
		"counted wrongly":         {stored: []string{"0900", "1000", "1100", "1200"}, counted: 5, want: "counts 5 stored"},
		"changed":                 {second: &halves, answered: true, stored: []string{"0900", "1000", "1100", "1130", "1200"}},
		"changed, and one gone":   {second: &halves, answered: true, stored: []string{"0900", "1000", "1100", "1200"}, want: "1 times were not stored"},
		"perhaps changed":         {second: &halves, stored: []string{"0900", "1000", "1100", "1130", "1200"}},
		"perhaps not changed":     {second: &halves, stored: []string{"0900", "1000", "1100", "1200"}},
		"perhaps, but not before": {second: &halves, stored: []string{"0900", "0930", "1000", "1100", "1200"}, want: "is no time of the schedule"},
		"perhaps, but not both":   {second: &halves, stored: []string{"0900", "1000", "1200"}, want: "1 times were not stored"},
	} {
		t.Run(name, func(t *testing.T) {
			var o Occurrences
			o.Putting(hourly, begin)(begin)
			if c.second != nil {
				at := begin.Add(2 * time.Hour)
				if done := o.Putting(*c.second, at); c.answered {
					done(at)
				}
			}
			for _, clock := range c.stored {
				o.Stored(id(clock), begin)
				o.Stored(id(clock), begin) // met twice
			}
			if c.twice != "" {
				o.Stored(id(c.twice), begin.Add(time.Hour))
			}
			info := schedule.Info{
				Counts: punctual.ScheduleCounts{Stored: int64(len(c.stored)), Skipped: c.left},
				Last:   []schedule.Occurrence{{At: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}},
			}
			if c.counted != 0 {
				info.Counts.Stored = c.counted
			}
			got := o.Judge(info, begin.Add(4*time.Hour))
			if (len(got) > 0) != (c.want != "") || len(got) > 0 && !strings.Contains(strings.Join(got, "; "), c.want) {
				t.Errorf("%q; want %q", got, c.want)
			}
		})
	}
}
