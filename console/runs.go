package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual/schedule"
)

// comingRuns are the times at which schedules come, for a picture of what falls due.
type comingRuns struct {
	all []run
	// until is the time up to which the times of all schedules in the picture are known, zero if
	// that is the end of the picture.
	until time.Time
	// left is true if the topic has more schedules than were read.
	left bool
}

// run is one time at which a schedule comes.
type run struct {
	at   time.Time
	name string
}

const (
	// runSchedules is how many schedules of a topic are read for a picture, in the order of
	// schedule.List. runTimes is how many times of each schedule are read.
	runSchedules, runTimes = 20, 1000
	// runNames is how many schedules the text of a mark names at most.
	runNames = 4
)

// comingRuns returns when the schedules of a topic that are not paused come before end.
func (c *call) comingRuns(topic string, end time.Time) (r comingRuns, err error) {
	n := 0
	for s, err := range schedule.List(c.r.Context(), c.console.queue, schedule.Query{Topic: topic, Next: runTimes}) {
		if err != nil {
			return r, fmt.Errorf("look when the schedules of %s come: %w", topic, err)
		}
		if n++; n > runSchedules {
			r.left = true
			return r, nil
		}
		if s.Paused != nil {
			continue
		}
		for _, o := range s.Next {
			if !o.Due.Before(end) {
				break
			}
			r.all = append(r.all, run{o.Due, visible(s.Name)})
		}
		if k := len(s.Next); k == runTimes && s.Next[k-1].Due.Before(end) && (r.until.IsZero() || s.Next[k-1].Due.Before(r.until)) {
			r.until = s.Next[k-1].Due
		}
	}
	return r, nil
}

// runMark is a mark above a column of a chart: the schedules that come in it.
type runMark struct{ X, Text string }

// addRuns adds the marks of runs to a chart whose columns have these edges, and sets the number of
// runs in each row of its table. middle returns the x of the middle of a column.
func (c *chart) addRuns(r comingRuns, edges []time.Time, middle func(i int) string, text func(key string, args ...any) string) {
	c.RunsUntil, c.RunsLeft = r.until, r.left
	names := make([][]string, len(c.Rows))
	for _, one := range r.all {
		i, found := slices.BinarySearchFunc(edges, one.at, time.Time.Compare)
		if !found {
			i--
		}
		if i < 0 || i >= len(c.Rows) {
			continue
		}
		c.Rows[i].Runs++
		if !slices.Contains(names[i], one.name) {
			names[i] = append(names[i], one.name)
		}
	}
	for i, of := range names {
		if len(of) == 0 {
			continue
		}
		c.HasRuns = true
		more := ""
		if len(of) > runNames {
			more = " …"
			of = of[:runNames]
		}
		c.Runs = append(c.Runs, runMark{middle(i), c.Rows[i].Label + ": " + text("chart.run", c.Rows[i].Runs, strings.Join(of, ", ")+more)})
	}
}
