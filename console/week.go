package console

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/overview"
)

// weekPage shows how many messages are due in each hour of seven days, today included.
type weekPage struct {
	*frame
	Topic  string
	Topics []string
	Hours  []int
	Days   []weekDay
	Most   int64
	Total  int64
	Levels []string
	// Counting is true if the page has no counts yet.
	Counting bool
}

// weekDay is one day of the picture, with a cell for each of 24 hours. On a day on which clocks
// change, one hour does not exist or comes twice.
type weekDay struct {
	Label string
	Cells []weekCell
	Total int64
	Today bool
}

// weekCell is one hour of a day. A cell with Twice has the count of two hours with the same name.
// The hour of a cell with Lacking does not exist on that day.
type weekCell struct {
	Hour           int
	Count          int64
	Level          int
	Path, Text     string
	Past           bool
	Lacking, Twice bool
}

// weekLevels is how many shades there are for counts above 0.
const weekLevels = 6

func (c *call) showWeek() error {
	p := &weekPage{frame: c.frame("week"), Topic: c.get("topic")}
	topics, err := c.visibleTopics(p.frame)
	if err != nil {
		return err
	}
	for _, t := range topics {
		p.Topics = append(p.Topics, t.Topic)
	}
	if err := c.may(access.Inspect, p.Topic); err != nil {
		return err
	}
	// Eight days are counted, because a week in which clocks go back is an hour longer than 7 times
	// 24 hours.
	a, err := c.console.reader.Ahead(c.r.Context(), overview.AheadQuery{Topic: p.Topic, Step: overview.Hour, Steps: 8 * 24, Zone: c.look.zone})
	switch {
	case errors.Is(err, overview.ErrCounting):
		p.Counting = true
	case err != nil:
		return fmt.Errorf("count what is due in the week: %w", err)
	default:
		c.fillWeek(p, a)
	}
	return c.show("week", p)
}

// fillWeek fills the page with the count of each hour.
func (c *call) fillWeek(p *weekPage, a *overview.Ahead) {
	now := p.Now.In(c.look.zone)
	text := c.look.language.text
	for h := range 24 {
		p.Hours = append(p.Hours, h)
	}
	for d := range 7 {
		day := time.Date(now.Year(), now.Month(), now.Day()+d, 12, 0, 0, 0, c.look.zone)
		p.Days = append(p.Days, weekDay{Label: text("weekday."+fmt.Sprint(int(day.Weekday()))) + " " + day.Format("01-02"), Cells: c.hoursOf(p, day), Today: d == 0})
	}
	for i, n := range a.Counts {
		at := a.Edges[i].In(c.look.zone)
		d := daysBetween(now, at)
		if d < 0 || d >= len(p.Days) {
			continue
		}
		cell := &p.Days[d].Cells[at.Hour()]
		cell.Count += n
		p.Days[d].Total += n
		p.Total += n
		p.Most = max(p.Most, cell.Count)
	}
	for d := range p.Days {
		for h := range p.Days[d].Cells {
			cell := &p.Days[d].Cells[h]
			cell.Level = levelOf(cell.Count, p.Most)
			cell.Text = fmt.Sprintf("%s %02d:00: %s", p.Days[d].Label, h, overview.Grouped(cell.Count))
		}
	}
	for l := 1; l <= weekLevels; l++ {
		p.Levels = append(p.Levels, fmt.Sprint(l))
	}
}

// hoursOf returns the cells of the 24 hours that a clock can show, for one day.
func (c *call) hoursOf(p *weekPage, day time.Time) []weekCell {
	cells := make([]weekCell, 24)
	for h := range cells {
		begin := time.Date(day.Year(), day.Month(), day.Day(), h, 0, 0, 0, c.look.zone)
		cell := weekCell{Hour: h, Lacking: begin.Hour() != h}
		if before := begin.Add(-time.Hour); before.Hour() == h {
			begin = before // the first of two
		}
		end := begin.Add(time.Hour)
		if end.In(c.look.zone).Hour() == h {
			cell.Twice, end = true, end.Add(time.Hour)
		}
		cell.Past = !end.After(p.Now)
		if !cell.Past && !cell.Lacking {
			cell.Path = p.dueBetween(begin, end, spans()[1])
			if p.Topic != "" {
				cell.Path = p.listBetween(p.Topic, "scheduled", begin, end)
			}
		}
		cells[h] = cell
	}
	return cells
}

// daysBetween returns how many days the date of b is after that of a. Both are in the same time
// zone.
func daysBetween(a, b time.Time) int {
	date := func(t time.Time) time.Time { return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC) }
	return int(date(b).Sub(date(a)) / (24 * time.Hour))
}

// levelOf returns the shade of a count: 0 for none, otherwise 1 to weekLevels by its logarithm, so
// that one hour with very many messages leaves the others visible.
func levelOf(n, most int64) int {
	if n == 0 {
		return 0
	}
	if most == 1 {
		return 1
	}
	return 1 + int(math.Log(float64(n))/math.Log(float64(most))*(weekLevels-0.001))
}

// knownZones returns the time zones that the field for a time zone suggests. Other zones can be
// typed.
func knownZones() []string {
	return []string{
		"UTC", "Local", "Africa/Cairo", "Africa/Johannesburg", "Africa/Lagos", "America/Chicago", "America/Los_Angeles", "America/New_York",
		"America/Sao_Paulo", "Asia/Dubai", "Asia/Hong_Kong", "Asia/Kolkata", "Asia/Shanghai", "Asia/Singapore", "Asia/Tokyo", "Australia/Sydney",
		"Europe/Berlin", "Europe/Istanbul", "Europe/London", "Europe/Madrid", "Europe/Moscow", "Europe/Paris", "Pacific/Auckland",
	}
}
