package rule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/internal/rigs/seed"
)

// at reads an instant, as in "2026-03-29 00:30".
func at(t testing.TB, text string) int64 {
	t.Helper()
	layout := "2006-01-02 15:04:05"
	i, err := time.Parse(layout[:len(text)], text)
	if err != nil {
		t.Fatal(err)
	}
	return i.UnixMilli()
}

func stamps(times []int64) (out []string) {
	for _, t := range times {
		out = append(out, time.UnixMilli(t).UTC().Format("2006-01-02 15:04:05"))
	}
	return out
}

func read(t testing.TB, timing Timing) *Times {
	t.Helper()
	times, err := timing.Read(new(cron.Zones))
	if err != nil {
		t.Fatal(err)
	}
	return times
}

// between lists the times from one instant to another, the first excluded.
func (t *Times) between(from, to int64) (out []int64) {
	for n := t.Next(t.Behind(from)); n.At != 0 && n.At <= to; n = t.Next(n) {
		out = append(out, n.At)
	}
	return out
}

func TestExceptionsAndBounds(t *testing.T) {
	for name, c := range map[string]struct {
		timing   Timing
		from, to string
		want     []string
	}{
		"days of one year and of every year": {
			Timing{Spec: "0 9 * * *", Zone: "Europe/Berlin", Except: []string{"12-25", "2026-12-27"}},
			"2026-12-24 00:00", "2026-12-28 12:00",
			[]string{"2026-12-24 08:00:00", "2026-12-26 08:00:00", "2026-12-28 08:00:00"},
		},
		"by the calendar of the zone": { // 20:00 in New York is the next day in UTC
			Timing{Spec: "0 20 * * *", Zone: "America/New_York", Except: []string{"2026-12-24"}},
			"2026-12-24 00:00", "2026-12-26 12:00",
			[]string{"2026-12-24 01:00:00", "2026-12-26 01:00:00"},
		},
		"from and until are included": {
			Timing{Spec: "0 * * * *", From: at(t, "2026-11-20 09:00"), Until: at(t, "2026-11-20 11:00")},
			"2026-11-01 00:00", "2026-12-01 00:00",
			[]string{"2026-11-20 09:00:00", "2026-11-20 10:00:00", "2026-11-20 11:00:00"},
		},
		"between whole seconds": {
			Timing{Spec: "* * * * * *", From: at(t, "2026-11-20 09:00") + 1, Until: at(t, "2026-11-20 09:00:03") - 1},
			"2026-11-01 00:00", "2026-12-01 00:00",
			[]string{"2026-11-20 09:00:01", "2026-11-20 09:00:02"},
		},
		"several expressions, of which two name one instant": {
			Timing{Spec: "0 9 * * MON-FRI; 0 11 * * SAT; 0 9 20 * *", Zone: "UTC"},
			"2026-11-19 12:00", "2026-11-23 12:00",
			[]string{"2026-11-20 09:00:00", "2026-11-21 11:00:00", "2026-11-23 09:00:00"},
		},
		"the zone stands in the expression": {
			Timing{Spec: "CRON_TZ=Asia/Kathmandu 0 9 * * *"}, "2026-11-20 00:00", "2026-11-21 00:00", []string{"2026-11-20 03:15:00"},
		},
		"a day without a second hour of its own": { // the clocks go back from 1:00 to 0:00 of the day that is excepted
			Timing{Spec: "30 * * * *", Zone: "America/Havana", Except: []string{"2026-11-01"}},
			"2026-11-01 02:00", "2026-11-02 06:00",
			[]string{"2026-11-01 02:30:00", "2026-11-01 03:30:00", "2026-11-02 05:30:00"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := stamps(read(t, c.timing).between(at(t, c.from), at(t, c.to))); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestAgainstPlainTimes compares with the times that the same expressions have without bounds and
// exceptions, one by one: bounds and exceptions take away exactly the times that they name.
func TestAgainstPlainTimes(t *testing.T) {
	r := rand.New(rand.NewPCG(seedrig.Of(t), 1))
	zones := []string{"UTC", "Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns", "Africa/Casablanca", "Asia/Beirut"}
	specs := []string{"*/7 * * * *", "0 */5 * * *", "30 0,23 * * *", "0 0 * * *; 15 12 * * *", "@every 13m", "*/30 22-23 * * *; 0 3 * * SUN"}
	for range 150 {
		timing := Timing{Spec: specs[r.IntN(len(specs))], Zone: zones[r.IntN(len(zones))]}
		plain := read(t, timing)
		from := at(t, "2026-01-01 00:00") + r.Int64N(365*24*3600)*1000
		to := from + 4*24*3600*1000
		bounded := timing
		bounded.From = from + r.Int64N(to-from)/2
		bounded.Until = bounded.From + r.Int64N(to-bounded.From)
		for range r.IntN(4) {
			day := time.UnixMilli(from + r.Int64N(to-from)).UTC().Format(time.DateOnly)
			bounded.Except = append(bounded.Except, day[r.IntN(2)*5:])
		}
		var want []int64
		for _, at := range plain.between(from, to) {
			day := time.UnixMilli(at).In(plain.loc).Format(time.DateOnly)
			if at >= bounded.From && at <= bounded.Until && !slices.Contains(bounded.Except, day) && !slices.Contains(bounded.Except, day[5:]) {
				want = append(want, at)
			}
		}
		if got := read(t, bounded).between(from, to); !slices.Equal(got, want) {
			t.Fatalf("%+v from %v:\n got %q\nwant %q", bounded, stamp(from), stamps(got), stamps(want))
		}
	}
}

func TestBadTimings(t *testing.T) {
	many := make([]string, MaxExcept+1)
	for text, c := range map[string]Timing{
		`schedule "0 25 * * *": hour, at character 3: 25 is out of range: use 0 to 23`:       {Spec: "0 25 * * *"},
		`schedule "0 26 * * *": hour, at character 3: 26 is out of range`:                    {Spec: "0 9 * * *;0 26 * * *"},
		`zone "Europe/Bern" is not known here: use a name of the IANA database`:              {Spec: "@daily", Zone: "Europe/Bern"},
		`zone "Local" is another one on each machine`:                                        {Spec: "@daily", Zone: "Local"},
		`zone UTC and CRON_TZ=Europe/Berlin contradict each other: name one`:                 {Spec: "CRON_TZ=Europe/Berlin @daily", Zone: "UTC"},
		`until 2026-01-01T00:00:00Z is before from 2027-01-01T00:00:00Z`:                     {Spec: "@daily", From: at(t, "2027-01-01"), Until: at(t, "2026-01-01")},
		`exception 2, "02-30", is no day: write it like 2026-12-24, or 12-25 for every year`: {Spec: "@daily", Except: []string{"02-29", "02-30"}},
		`exception 1, "Christmas", is no day`:                                                {Spec: "@daily", Except: []string{"Christmas"}},
		`401 exceptions: use at most 400`:                                                    {Spec: "@daily", Except: many},
		`12 expressions: use at most 10`:                                                     {Spec: "@daily" + strings.Repeat(";@hourly", 11)},
		`schedule "": it has no fields`:                                                      {Spec: "@daily;"},
	} {
		if _, err := c.Read(new(cron.Zones)); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v, want %q", c, err, text)
		}
	}
}

// A definition that never comes again is refused, however its end comes about.
func TestNever(t *testing.T) {
	now := at(t, "2026-11-20 12:00")
	var all []string
	for day := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() == 2024; day = day.AddDate(0, 0, 1) {
		all = append(all, day.Format("01-02"))
	}
	for _, c := range []Timing{
		{Spec: "0 9 * * *", Until: now},
		{Spec: "0 0 9 * * * 2020-2025"},
		{Spec: "0 9 25 12 *", Except: []string{"12-25"}},
		{Spec: "* * * * * *", Except: all, Zone: "Asia/Kolkata"},
	} {
		start := time.Now()
		if _, err := New(Definition{Timing: c}, now, new(cron.Zones)); err == nil {
			t.Errorf("%+v was taken", c)
		}
		t.Log(c.Spec, time.Since(start))
	}
}

func TestDelaySpreadsEvenly(t *testing.T) {
	const n, spread = 10_000, 300_000
	var slots [10]int
	for i := range n {
		d := Delay(spread, "reports", fmt.Sprintf("tenant-%d", i))
		if d < 0 || d >= spread || d%1000 != 0 || d != Delay(spread, "reports", fmt.Sprintf("tenant-%d", i)) {
			t.Fatalf("a delay of %d ms", d)
		}
		slots[d*10/spread]++
	}
	for _, got := range slots {
		if got < n/10-150 || got > n/10+150 {
			t.Errorf("in tenths of the spread: %v of %d", slots, n)
			break
		}
	}
	if Delay(0, "a", "b") != 0 || Delay(999, "a", "b") >= 999 {
		t.Error("a spread of less than a second")
	}
}

// FuzzTiming shows that nothing that can be written makes a search run for ever, and that times
// only grow.
func FuzzTiming(f *testing.F) {
	f.Add("0 9 * * MON-FRI", "Europe/Berlin", "12-25,2026-12-24", int64(0), int64(0))
	f.Add("* * * * * *; @every 90s", "America/Havana", "11-01,11-02", int64(1_800_000_000_000), int64(1_900_000_000_000))
	f.Add("CRON_TZ=Asia/Kathmandu 0 0 29 2 *", "", "02-29", int64(-5), int64(0))
	zones := new(cron.Zones)
	f.Fuzz(func(t *testing.T, spec, zone, except string, from, until int64) {
		const year9999 = 253402300799000
		timing := Timing{Spec: spec, Zone: zone, From: from % year9999, Until: until % year9999}
		if except != "" {
			timing.Except = strings.Split(except, ",")
		}
		times, err := timing.Read(zones)
		if err != nil {
			return
		}
		_, _ = times.Words(61_000), times.Warnings()
		n := times.Behind(1_800_000_000_000)
		for range 20 {
			next := times.Next(n)
			if next.At == 0 {
				return
			}
			if next.At <= n.At || timing.Until != 0 && next.At > timing.Until || timing.From != 0 && next.At < timing.From {
				t.Fatalf("%+v: behind %d comes %d", timing, n.At, next.At)
			}
			n = next
		}
	})
}
