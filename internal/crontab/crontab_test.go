package crontab

import (
	"fmt"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	text := strings.ReplaceAll(`# m h dom mon dow command
SHELL=/bin/bash
MAILTO = "ops@example.com"
0 9 * * 1-5 /usr/bin/report --daily
	*/5	*  * * *   sync "a  b"  # not a comment

CRON_TZ=Europe/Berlin
@daily backup
30 2 * * 7 backup
15,45 1-3 1 jan,JUL * date +\%F > /tmp/x
0 0 * * * mail root%hello%there
@reboot start
0~59 3 * * * jitter
~ 3 * * * jitter
*/90 3 * * * odd
0 22-2 * * * night
0 9 31 2 * never
0 9 * * *
TZ=UTC
RANDOM_DELAY=10
@Daily x
0 9 * * 1-5 -quiet
-5 4 * * 0-SUN tidy
0 5 * * fri-sun never
*/60 */24 * * * x
CRON_TZ=CET-1CEST,M3.5.0,M10.5.0/3
0 6 * * * posix
CRON_TZ=:America/New_York
0 7 * * * colon \\a \%
5/15 * * * * step
`, "|", "\r")
	entries, problems := Read(text, false)
	var got []string
	names := make(map[string]bool)
	for _, e := range entries {
		got = append(got, fmt.Sprintf("%d %q %q %q", e.Line, e.Times.Text, e.Zone, e.Command))
		if names[e.Name] || !strings.HasPrefix(e.Name, "cron-") {
			t.Errorf("line %d has the name %s", e.Line, e.Name)
		}
		names[e.Name] = true
	}
	want := `4 "0 9 * * 1-5" "" "/usr/bin/report --daily"
5 "*/5 * * * *" "" "sync \"a  b\"  # not a comment"
8 "@daily" "Europe/Berlin" "backup"
9 "30 2 * * 7" "Europe/Berlin" "backup"
10 "15,45 1-3 1 jan,JUL *" "Europe/Berlin" "date +%F > /tmp/x"
15 "0 3 * * *" "Europe/Berlin" "odd"
23 "5 4 * * SUN" "Europe/Berlin" "tidy"
25 "0 0 * * *" "Europe/Berlin" "x"
29 "0 7 * * *" "America/New_York" "colon \\\\a %"`
	if g := strings.Join(got, "\n"); g != want {
		t.Errorf("got\n%s\nwant\n%s", g, want)
	}
	got = nil
	for _, p := range problems {
		got = append(got, fmt.Sprintf("%v %s", p, []string{"noted", "changed", "left"}[p.Kind]))
	}
	const zone = "CRON_TZ is the zone of the times behind it, as in cronie; Debian's cron takes no notice of it: leave the line out if that one has run this file noted"
	want = `line 2: SHELL is for the command: whoever runs the command sets it noted
line 3: MAILTO mails what a command prints: a message has no output; whoever runs the command may mail it noted
line 7: ` + zone + `
line 11: cron gives the command what stands behind the % as its standard input: write it like printf 'text\n' | command, and each % that is part of the command as \% left
line 12: @reboot is no time that a clock shows: push a message when the machine starts left
line 13: ~ is a random time, which cron draws anew when it reads the file: write a time, and use --spread to keep schedules apart left
line 14: ~ is a random time, which cron draws anew when it reads the file: write a time, and use --spread to keep schedules apart left
line 16: schedule "0 22-2 * * *": hour "22-2": cron refuses it or never runs it: write 22-23,0-2 left
line 17: schedule "0 9 31 2 *": no time ever matches: no such day is in these months and years left
line 18: there is no command behind the times left
line 19: TZ is the zone that commands see, and not that of their times: whoever runs the command sets it noted
line 20: RANDOM_DELAY delays each run by a random time: --spread delays each schedule by a fixed one changed
line 21: schedule "@Daily": nickname, at character 1: nicknames are in small letters: write @daily left
line 22: the - before the command keeps cron from logging it, and no schedule knows that: leave it out left
line 23: the - in front keeps cron from logging the command, which no schedule does noted
line 24: schedule "0 5 * * fri-sun": day of week "FRI-SUN": cron refuses it or never runs it: write 5-6,0 left
line 26: ` + zone + `
line 27: CRON_TZ: zone "CET-1CEST,M3.5.0,M10.5.0/3" is not known here: use a name of the IANA database, like Europe/Berlin or UTC left
line 28: ` + zone + `
line 30: schedule "5/15 * * * *": minute "5/15": cron refuses a step without a range: write 5-59/15 left`
	if g := strings.Join(got, "\n"); g != want {
		t.Errorf("got\n%s\nwant\n%s", g, want)
	}
}

// The name of a line comes from its content and its zone, and not from the place of the line. So a
// line that is moved keeps its name, and so do the others of the same command when one is removed.
func TestNamesStay(t *testing.T) {
	before, _ := Read("0 9 * * * a\n0 10 * * * b\n0 11 * * * a\n0 9 * * * a\n", false)
	after, _ := Read("# moved\n0 11 * * * a\n5 9 * * * a\n0 10 * * * b\nCRON_TZ=UTC\n0 10 * * * b\n", false)
	if before[2].Name != after[0].Name || before[1].Name != after[2].Name {
		t.Errorf("lines that were moved have other names: %+v\n%+v", before, after)
	}
	names := make(map[string]bool)
	for _, e := range append(before, after[1], after[3]) {
		if !IsName(e.Name) || names[e.Name] {
			t.Errorf("%s is the name of two different lines, or none that Read makes", e.Name)
		}
		names[e.Name] = true
	}
	if before[3].Name != before[0].Name+"-2" || IsName("cron-daily") {
		t.Errorf("the same line twice has the names %s and %s", before[0].Name, before[3].Name)
	}
}

// A line CRON_TZ holds for the lines behind it, up to the next one.
func TestZones(t *testing.T) {
	entries, problems := Read("0 1 * * * a\nCRON_TZ=Europe/Berlin\n0 2 * * * b\n0 3 * * * c\nCRON_TZ=\"UTC\"\n0 4 * * * d\n", false)
	var got []string
	for _, e := range entries {
		got = append(got, e.Command+"="+e.Zone)
	}
	if want := "a= b=Europe/Berlin c=Europe/Berlin d=UTC"; strings.Join(got, " ") != want || len(problems) != 2 {
		t.Errorf("got %q and %v, want %q", got, problems, want)
	}
}

// The same command of two users is two schedules, each of which keeps its name when the line of the
// other one is removed.
func TestNamesOfUsers(t *testing.T) {
	both, _ := Read("0 9 * * * ann tidy\n0 9 * * * bob tidy\n", true)
	alone, _ := Read("0 9 * * * bob tidy\n", true)
	if len(both) != 2 || len(alone) != 1 || both[0].Name == both[1].Name || both[1].Name != alone[0].Name {
		t.Errorf("%+v\n%+v", both, alone)
	}
}

func TestWithUser(t *testing.T) {
	entries, problems := Read("17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly\n@daily www-data tidy\n", true)
	if len(entries) != 2 || len(problems) != 0 || entries[0].User != "root" || entries[0].Command != "cd / && run-parts --report /etc/cron.hourly" || entries[1].User != "www-data" {
		t.Errorf("%+v, %v", entries, problems)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("CRON_TZ=Europe/Berlin\n0 9 * * 1-5 root x%y\n", true)
	f.Fuzz(func(t *testing.T, text string, withUser bool) {
		entries, problems := Read(text, withUser)
		for _, e := range entries {
			if e.Command == "" || e.Times.Text == "" || e.Name == "" {
				t.Errorf("%+v", e)
			}
		}
		if lines := strings.Count(text, "\n") + 1; len(entries)+len(problems) > 2*lines {
			t.Errorf("%d entries and %d problems of %d lines", len(entries), len(problems), lines)
		}
	})
}
