package cron

import (
	"archive/zip"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

// zones returns the names of all zones that this Go release brings.
func zones(t *testing.T) (names []string) {
	root, err := exec.Command("go", "env", "GOROOT").Output() // runtime.GOROOT is empty in a binary built with -trimpath
	if err != nil {
		t.Fatal(err)
	}
	r, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib/time/zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, f := range r.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	return names
}

// TestEveryChangeOfEveryZone steps the minutes around each change of offset from 2018 to 2029, and
// around two days that a zone left out. It compares what Next gives with what the wall showed:
// fixed times at the first instant at which the wall reaches or passes them, intervals whenever it
// matches.
func TestEveryChangeOfEveryZone(t *testing.T) {
	texts := []string{"30 2 * * *", "0 0 * * *", "15 2 * * SUN", "15,45 0,1,3,12 * * *", "*/15 * * * *", "7 1-3 * * *", "15 * * * *"}
	seen := make(map[[40]byte]bool)
	changes := 0
	step := int64(60)
	for _, name := range zones(t) {
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for day := time.Date(2018, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2030; day = day.AddDate(0, 0, 1) {
			_, before := day.In(loc).Zone()
			_, after := day.AddDate(0, 0, 1).In(loc).Zone()
			if before == after {
				continue
			}
			_, change := day.In(loc).ZoneBounds()
			var k [40]byte
			copy(k[:], change.In(time.UTC).Format("200601021504")+string(rune(before/60+2000))+string(rune(after/60+2000)))
			if seen[k] {
				continue
			}
			seen[k] = true
			changes++
			// Twice in the hour that is repeated and not again for a year, so that a search which
			// looks ahead too far misses it.
			last := change.Add(-time.Second).In(loc)
			sparse := "20-21 " + last.Format("15 2 1") + " *"
			compare(t, name, loc, change.Unix()-6*3600, change.Unix()+6*3600, step, append(texts[:len(texts):len(texts)], sparse))
		}
	}
	for name, day := range map[string]string{"Pacific/Apia": "2011-12-30", "Pacific/Kwajalein": "1993-08-21"} {
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		d, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, name, loc, d.Unix()-2*daySeconds, d.Unix()+3*daySeconds, step, texts)
	}
	if changes < 100 {
		t.Fatalf("only %d changes of zones were looked at", changes)
	}
}

// compare steps from one instant to another, and compares the times that Next gives with those at
// which the wall matches.
func compare(t *testing.T, name string, loc *time.Location, from, to, step int64, texts []string) {
	t.Helper()
	for _, text := range texts {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		matches := func(wall int64) bool {
			w := time.Unix(wall, 0).UTC()
			return s.dates.minute>>w.Minute()&1 == 1 && s.dates.hour>>w.Hour()&1 == 1 && s.dates.dayOfWeek>>w.Weekday()&1 == 1
		}
		var want []int64
		reached := int64(-1 << 62)
		for i := from - 2*daySeconds; i <= to; i += step {
			_, offset := time.Unix(i, 0).In(loc).Zone()
			wall := i + int64(offset)
			hit := false
			if s.fixed {
				for w := max(reached+step, wall-2*daySeconds); w <= wall; w += step {
					hit = hit || matches(w)
				}
			} else {
				hit = matches(wall)
			}
			reached = max(reached, wall)
			if hit && i > from {
				want = append(want, i)
			}
		}
		var got []int64
		for at := time.Unix(from, 0); ; {
			next, ok := s.Next(at, loc)
			if ok && !next.After(at) {
				t.Fatalf("%s in %s: after %v comes %v", text, name, at, next)
			}
			if !ok || next.Unix() > to {
				break
			}
			got, at = append(got, next.Unix()), next
		}
		// Next is asked at instants between the times, too, such as inside an hour that is
		// repeated.
		for i := from; i < to; i += 7 * step {
			n, _ := slices.BinarySearch(want, i+1)
			if n == len(want) {
				break
			}
			if next, ok := s.Next(time.Unix(i, 0), loc); !ok || next.Unix() != want[n] {
				t.Errorf("%s in %s: after %v comes %v, want %v", text, name, time.Unix(i, 0).In(loc), next, time.Unix(want[n], 0).In(loc))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s in %s from %v:\n got %v\nwant %v", text, name, time.Unix(from, 0).UTC(), got, want)
		}
	}
}

// TestMeaning has what each form of an expression means: the first times after 2026-01-01 00:00 in
// UTC, a Thursday.
func TestMeaning(t *testing.T) {
	for text, want := range map[string]string{
		// 0 and 7 are both Sunday, alone, in a list, at the end and at the start of a range, with a
		// step, and with # and L.
		"0 9 * * 7":       "01-04 09:00, 01-11 09:00",
		"0 9 * * 0":       "01-04 09:00, 01-11 09:00",
		"0 9 * * 5-7":     "01-02 09:00, 01-03 09:00, 01-04 09:00, 01-09 09:00",
		"0 9 * * 0-1":     "01-04 09:00, 01-05 09:00, 01-11 09:00",
		"0 9 * * FRI-SUN": "01-02 09:00, 01-03 09:00, 01-04 09:00, 01-09 09:00",
		"0 9 * * SUN-MON": "01-04 09:00, 01-05 09:00, 01-11 09:00",
		"0 9 * * 1,7":     "01-04 09:00, 01-05 09:00, 01-11 09:00",
		"0 9 * * 7#2":     "01-11 09:00, 02-08 09:00, 03-08 09:00",
		"0 9 * * 7L":      "01-25 09:00, 02-22 09:00, 03-29 09:00",
		"0 9 * * SUN#5":   "03-29 09:00, 05-31 09:00",
		// Steps: from the start of a range, from a number to the last value, and not across the
		// end.
		"50/5 3 1 * *":        "01-01 03:50, 01-01 03:55, 02-01 03:50",
		"10-20/7 3 1 * *":     "01-01 03:10, 01-01 03:17, 02-01 03:10",
		"*/25 0 1 * *":        "01-01 00:25, 01-01 00:50, 02-01 00:00",
		"0 20/3 1 * *":        "01-01 20:00, 01-01 23:00, 02-01 20:00",
		"0 0 29/2 * *":        "01-29 00:00, 01-31 00:00, 03-29 00:00",
		"0 0 1 10/2 *":        "10-01 00:00, 12-01 00:00, 10-01 00:00",
		"0 9 * * 4/2":         "01-01 09:00, 01-03 09:00, 01-08 09:00", // Thursday and Saturday: a step ends with the week on Saturday
		"0 9 * * 1-7/3":       "01-01 09:00, 01-04 09:00, 01-05 09:00",
		"59 58 23 31 12 * *":  "12-31 23:58:59, 12-31 23:58:59",
		"*/40 0 0 1 * *":      "01-01 00:00:40, 02-01 00:00, 02-01 00:00:40",
		"0 0 0 29 2 ? *":      "02-29 00:00, 02-29 00:00",
		"0 0 0 1 1 ? 2027":    "01-01 00:00",
		"0 0 0 1 1 ? 2030/50": "01-01 00:00, 01-01 00:00, 01-01 00:00, 01-01 00:00",
		// Both days: either of them, or both where one begins with * or the day of week with +.
		"0 0 13 * FRI":   "01-02 00:00, 01-09 00:00, 01-13 00:00, 01-16 00:00",
		"0 0 13 * +FRI":  "02-13 00:00, 03-13 00:00, 11-13 00:00",
		"0 0 */10 * FRI": "05-01 00:00, 07-31 00:00, 08-21 00:00",
		"0 0 13 * */6":   "06-13 00:00, 09-13 00:00, 12-13 00:00", // Sunday and Saturday
		"0 0 13 * ?":     "01-13 00:00, 02-13 00:00",
		// The last days, and the nearest working days, which stay in their month.
		"0 0 L * *":     "01-31 00:00, 02-28 00:00, 03-31 00:00, 04-30 00:00",
		"0 0 L-3 * *":   "01-28 00:00, 02-25 00:00, 03-28 00:00",
		"0 0 LW * *":    "01-30 00:00, 02-27 00:00, 03-31 00:00",
		"0 0 1W * *":    "02-02 00:00, 03-02 00:00, 04-01 00:00, 05-01 00:00, 06-01 00:00, 07-01 00:00, 08-03 00:00", // not 01-01 00:00 itself
		"0 0 31W * *":   "01-30 00:00, 03-31 00:00, 05-29 00:00",
		"0 0 15W * *":   "01-15 00:00, 02-16 00:00, 03-16 00:00, 04-15 00:00, 05-15 00:00, 06-15 00:00, 07-15 00:00, 08-14 00:00",
		"0 0 * * FRI#1": "01-02 00:00, 02-06 00:00, 03-06 00:00, 04-03 00:00, 05-01 00:00",
		"0 0 * * SAT#L": "01-31 00:00, 02-28 00:00, 03-28 00:00",
		"0 0 * * 6L":    "01-31 00:00, 02-28 00:00, 03-28 00:00",
		"0 0 * * MONL":  "01-26 00:00, 02-23 00:00, 03-30 00:00",
		"@weekly":       "01-04 00:00, 01-11 00:00",
		"@monthly":      "02-01 00:00, 03-01 00:00",
		"@yearly":       "01-01 00:00, 01-01 00:00",
		"@hourly":       "01-01 01:00, 01-01 02:00",
		"@every 90m":    "01-01 01:30, 01-01 03:00",
	} {
		s, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []string
		for at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC); len(got) <= strings.Count(want, ","); {
			next, ok := s.Next(at, time.UTC)
			if !ok {
				break
			}
			at = next
			got = append(got, strings.TrimSuffix(next.Format("01-02 15:04:05"), ":00"))
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%s comes at\n%s, want\n%s", text, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"0 9 * * MON-FRI": "at 09:00 on Monday to Friday", "*/5 * * * *": "every 5 minutes", "30 2 1 * MON": "at 02:30 on the 1st and on every Monday",
		"0 12 1 * +MON": "at 12:00 on the 1st, only if it is a Monday", "@hourly": "every hour", "@every 90m": "every 1h30m, counted from 1970",
		"*/7 * * * *": "at every 7th minute from 0 to 59 of every hour", "0 0 9 * * * 2027": "at 09:00 every day in 2027",
	} {
		if s, err := Parse(text); err != nil || s.Words() != want {
			t.Errorf("%s: %q, %v; want %q", text, s.Words(), err, want)
		}
	}
	s, err := Parse("0 12 1 * MON")
	if want := "on the 1st and on every Monday; +MON for Mondays that are the 1st"; err != nil || !slices.Equal(s.Warnings(), []string{want}) {
		t.Errorf("%q, %v; want %q", s.Warnings(), err, want)
	}
	for text, want := range map[string]string{
		"0 0 9 ? * 2-6":   "2-6 is on Tuesday to Saturday here, where Sunday is 0; in Quartz and EventBridge Sunday is 1, and it is on Monday to Friday: names of days, or --dialect quartz",
		"0 0 9 ? * 6L":    "6L is on the last Saturday of the month here, where Sunday is 0; in Quartz and EventBridge Sunday is 1, and it is on the last Friday of the month: names of days, or --dialect quartz",
		"0 0 9 ? * 2#1":   "2#1 is on the 1st Tuesday of the month here, where Sunday is 0; in Quartz and EventBridge Sunday is 1, and it is on the 1st Monday of the month: names of days, or --dialect quartz",
		"0 0 9 ? * MON":   "",
		"0 0 9 * * 2-6":   "",
		"0 0 9 ? * */2":   "",
		"0 9 ? * MON-FRI": "",
	} {
		if s, err := Parse(text); err != nil || strings.Join(s.Warnings(), "; ") != want {
			t.Errorf("%s: %q, %v; want %q", text, s.Warnings(), err, want)
		}
	}
}

func TestErrorsNameThePlace(t *testing.T) {
	for text, want := range map[string]string{
		"0 25 * * *":           `schedule "0 25 * * *": hour, at character 3: 25 is out of range: use 0 to 23`,
		"0 0 10-5 * *":         `schedule "0 0 10-5 * *": day of month, at character 5: the range 10-5 runs backwards: write 10-31,1-5`,
		"0 0 * * 7-1":          `schedule "0 0 * * 7-1": day of week, at character 9: the range 7-1 runs backwards: write 0-1`,
		"0 0 * * FRI-MON":      `schedule "0 0 * * FRI-MON": day of week, at character 9: the range FRI-MON runs backwards: write 5-6,0-1`,
		"0 22-0 * * *":         `schedule "0 22-0 * * *": hour, at character 3: the range 22-0 runs backwards: write 22-23,0`,
		"rate(5 minutes)":      `schedule "rate(5 minutes)": it is EventBridge's: write '@every 5m'`,
		"cron(0 9 ? * 2-6 *)":  `schedule "cron(0 9 ? * 2-6 *)": it is EventBridge's: write '0 9 ? * MON-FRI'`,
		"cron(0 9 * * 2-6 *)":  `schedule "cron(0 9 * * 2-6 *)": it is EventBridge's, and eventbridge wants ? in one of the two day fields`,
		"Mon..Fri *-*-* 09:00": `schedule "Mon..Fri *-*-* 09:00": it is systemd's OnCalendar: 'Mon..Fri *-*-* 09:00' is '0 9 * * MON-FRI' here`,
		"@every 1d":            `schedule "@every 1d": duration, at character 8: days are not always 24 hours long: write 24h, or @daily for each midnight`,
		"0 0 /30 * *":          `schedule "0 0 /30 * *": day of month, at character 5: the step "/30" has no base: write */30`,
		"@Daily":               `schedule "@Daily": nickname, at character 1: nicknames are in small letters: write @daily`,
		"0 12 +1 * MON":        `schedule "0 12 +1 * MON": day of month, at character 6: + stands only at the start of the day of week: write it like +MON`,
		"? 12 * * *":           `schedule "? 12 * * *": minute, at character 1: ? is for the two day fields: write *`,
		"@daily 0 0 * *":       `schedule "@daily 0 0 * *": nickname, at character 8: @daily stands alone: leave out "0"`,
	} {
		if _, err := Parse(text); err == nil || err.Error() != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Parse("* * 31 2 *"); !errors.Is(err, ErrNever) {
		t.Errorf("31 February: %v", err)
	}
}

func FuzzNext(f *testing.F) {
	for _, text := range []string{"0 9 * * MON-FRI", "@every 90s", "0 0 L-3 * FRI#2", "CRON_TZ=UTC 0 0 1W * ?", "* * * * * * 1970-2199/2"} {
		f.Add(text, int64(1_800_000_000))
	}
	loc, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string, at int64) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		_, _ = s.Words(), s.Warnings()
		after := time.Unix(at%(1<<33), 0)
		if next, ok := s.Next(after, loc); ok {
			if !next.After(after) {
				t.Fatalf("%q: after %v comes %v", text, after, next)
			}
			if again, ok := s.Next(next.Add(-time.Second), loc); !ok || !again.Equal(next) {
				t.Fatalf("%q: after %v-1s comes %v", text, next, again)
			}
		}
	})
}
