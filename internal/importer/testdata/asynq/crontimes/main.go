// Command crontimes draws expressions, and prints with each its times by the parser of another
// program. The tests of package cron compare these with those of Punctual.
//
//	go run ./crontimes asynq > ../../../cron/testdata/asynq.txt
//	go run ./crontimes bullmq | node crontimes/bullmq.cjs > ../../../cron/testdata/bullmq.txt
//
// For bullmq it prints the expressions alone; bullmq.cjs adds the times, and needs npm install
// bullmq@6.7.0 beside it. A line has a zone, a start in Unix seconds, the expression, and how many
// seconds after the start each time comes.
package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	lines = 1000
	times = 8
)

// changes are clock changes of 2025, at which half of the searches begin.
var changes = map[string][]string{
	"UTC":                 {"2025-02-28T12:00:00Z"},
	"Asia/Kolkata":        {"2025-06-30T12:00:00Z"},
	"Europe/Berlin":       {"2025-03-30T01:00:00Z", "2025-10-26T01:00:00Z"},
	"America/New_York":    {"2025-03-09T07:00:00Z", "2025-11-02T06:00:00Z"},
	"Australia/Lord_Howe": {"2025-04-05T15:00:00Z", "2025-10-04T15:30:00Z"},
	"America/Nuuk":        {"2025-03-30T01:00:00Z", "2025-10-26T01:00:00Z"},
	"Antarctica/Troll":    {"2025-03-30T01:00:00Z", "2025-10-26T01:00:00Z"},
	"Africa/Cairo":        {"2025-04-24T22:00:00Z", "2025-10-30T21:00:00Z"},
}

var zones = []string{"UTC", "Asia/Kolkata", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Nuuk", "Antarctica/Troll", "Africa/Cairo"}

func main() {
	if len(os.Args) != 2 || os.Args[1] != "asynq" && os.Args[1] != "bullmq" {
		fmt.Fprintln(os.Stderr, "usage: crontimes asynq|bullmq")
		os.Exit(2)
	}
	bull := os.Args[1] == "bullmq"
	r := rand.New(rand.NewPCG(38, 1))
	for n := 0; n < lines; {
		zone := zones[r.IntN(len(zones))]
		loc, err := time.LoadLocation(zone)
		if err != nil {
			panic(err)
		}
		start := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(r.IntN(300*24*60)) * time.Minute)
		if r.IntN(2) == 0 {
			at := changes[zone]
			start, err = time.Parse(time.RFC3339, at[r.IntN(len(at))])
			if err != nil {
				panic(err)
			}
			start = start.Add(-time.Duration(r.IntN(36*60)) * time.Minute)
		}
		text := draw(r, bull)
		if bull {
			fmt.Printf("%s\t%d\t%s\n", zone, start.Unix(), text)
			n++
			continue
		}
		s, err := cron.ParseStandard(text)
		if err != nil {
			continue
		}
		var after []string
		for t := start.In(loc); len(after) < times; {
			if t = s.Next(t); t.IsZero() {
				break
			}
			after = append(after, fmt.Sprint(t.Unix()-start.Unix()))
		}
		fmt.Printf("%s\t%d\t%s\t%s\n", zone, start.Unix(), text, strings.Join(after, " "))
		n++
	}
}

// draw makes an expression, with preference for hours at which clocks change.
func draw(r *rand.Rand, bull bool) string {
	last := 6
	if bull {
		last = 7
	}
	if bull && r.IntN(20) == 0 {
		return []string{"@daily", "@weekly", "@weekdays", "@weekends", "@minutely", "@hourly", "15 10 * *", "3 * *", "0 9 * * MON#1", "0 9 * * 5L", "0 9 L * *", "0 9 L * 1", "0 2 15,L * 2L", "*/20 * * * * *"}[r.IntN(14)]
	}
	minute := []string{"0", "30", "*", "*/15", "15,45", field(r, 0, 59, nil)}[r.IntN(6)]
	hour := []string{"*", "2", "1-3", "0", "23", "*/2", field(r, 0, 23, nil), field(r, 0, 23, nil)}[r.IntN(8)]
	month := []string{"*", "*", "*", "?", field(r, 1, 12, []string{"jan", "FEB", "Mar", "APR", "may", "JUN", "jul", "AUG", "sep", "OCT", "nov", "DEC"})}[r.IntN(5)]
	day := []string{"*", "*", "?", "*/2", "*/1", field(r, 1, 31, nil)}[r.IntN(6)]
	week := []string{"*", "*", "?", "*/2", "*/1", field(r, 0, last, []string{"SUN", "mon", "TUE", "Wed", "THU", "FRI", "sat"}), field(r, 0, last, nil)}[r.IntN(7)]
	text := strings.Join([]string{minute, hour, day, month, week}, " ")
	if bull && r.IntN(6) == 0 {
		text = []string{"0", "30", "*/20", "5/25"}[r.IntN(4)] + " " + text
	}
	return text
}

// field makes a list of one to three elements.
func field(r *rand.Rand, first, last int, names []string) string {
	value := func(n int) string {
		if names != nil && n-first < len(names) && r.IntN(2) == 0 {
			return names[n-first]
		}
		return fmt.Sprint(n)
	}
	var elements []string
	for range 1 + r.IntN(3)*r.IntN(2) {
		from := first + r.IntN(last-first+1)
		element := value(from)
		switch r.IntN(5) {
		case 0:
			element = "*"
		case 1, 2:
			element += "-" + value(from+r.IntN(last-from+1))
		}
		if r.IntN(3) == 0 {
			element += fmt.Sprintf("/%d", 1+r.IntN(last+3))
		}
		elements = append(elements, element)
	}
	return strings.Join(elements, ",")
}
