package cron

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Expressions that the parsers of asynq, BullMQ and Quartz have read, with the times that these
// found, mean the same here after Translate. At clock changes In names what differs. The
// expressions are drawn by internal/importer/testdata/asynq/crontimes and testdata/quartz.
func TestTranslateMeansWhatPeersMean(t *testing.T) {
	for d, model := range map[Dialect]func(Spec) search{
		Asynq:  func(s Spec) search { return s.nextOfRobfig },
		BullMQ: func(s Spec) search { return s.nextOfCronParser },
		Quartz: func(s Spec) search { return s.nextOfQuartz },
	} {
		text, err := os.ReadFile("testdata/" + string(d) + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		equal, changed, named, refused := 0, 0, 0, 0
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		for _, line := range lines {
			f := strings.Split(line, "\t")
			loc, err := time.LoadLocation(f[0])
			if err != nil {
				t.Fatal(err)
			}
			start, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			times := func(next search) (out []string) {
				for at, ok := next(time.Unix(start, 0), loc); ok && len(out) < 8; at, ok = next(at, loc) {
					out = append(out, strconv.FormatInt(at.Unix()-start, 10))
				}
				return out
			}
			translated, err := Translate(f[2], d)
			if err != nil {
				refused++
				if testing.Verbose() {
					t.Logf("%s: %q is refused: %v", d, f[2], err)
				}
				continue
			}
			s, err := Parse(translated.Text)
			if err != nil {
				t.Errorf("%s: %q became %q: %v", d, f[2], translated.Text, err)
				continue
			}
			if translated.Text != f[2] {
				changed++
			}
			want := strings.Fields(f[3])
			if got := times(model(s)); !slices.Equal(got, want) {
				t.Errorf("%s: %q in %s from %d comes there at\n%v, and its model %q at\n%v", d, f[2], loc, start, want, translated.Text, got)
			}
			if slices.Equal(times(s.Next), want) {
				equal++
				continue
			}
			if _, found := translated.In("it", loc, time.Unix(start, 0)); !slices.ContainsFunc(found, func(f Finding) bool { return f.Kind == Changed }) {
				t.Errorf("%s: %q in %s from %d comes there at\n%v, and %q here at\n%v: nothing says so", d, f[2], loc, start, want, translated.Text, times(s.Next))
			}
			named++
		}
		t.Logf("%s: of %d expressions %d have the same times (%d written anew), %d differ at a clock change and are named, %d are refused", d, len(lines), equal, changed, named, refused)
		if len(lines) < 800 || refused > len(lines)/20 || changed < 50 || named < 20 {
			t.Errorf("%s: the expressions no longer show what they are for", d)
		}
	}
}

func TestTranslate(t *testing.T) {
	for _, c := range []struct {
		d          Dialect
		text, want string // want may be the start of an error, behind "! "
	}{
		{BullMQ, "0 9 * * 1/3", "0 9 * * SUN,MON,THU"},
		{BullMQ, "0 9 * * MON/2", "0 9 * * SUN,MON,WED,FRI"},
		{BullMQ, "0 9 1 * 7/2", "0 9 1 * SUN"},
		{BullMQ, "0 6 */2 * 1", "0 6 1-31/2 * 1"},
		{BullMQ, "0 9 */1 * 1", "0 9 1-31/1 * 1"},
		{BullMQ, "0 6 13 * */2", "0 6 13 * 0-6/2"},
		{BullMQ, "15 10 * *", "* 15 10 * *"},
		{BullMQ, "@weekdays", "0 0 * * 1-5"},
		{BullMQ, "0 30 2 * * ?", "0 30 2 * * ?"},
		{BullMQ, "0 H * * *", "! schedule \"0 H * * *\": hour, at character 3: H is not taken"},
		{Asynq, "0 6 */2 * 1", "0 6 1-31/2 * 1"},
		{Asynq, "0 9 */1 * 1", "0 9 */1 * 1"},
		{Asynq, "0 9 5,* * 1", "0 9 5,* * +1"},
		{Asynq, "? 9 * ? *", "* 9 * * *"},
		{Asynq, "*/90 * * * *", "0 * * * *"},
		{Asynq, "0 9 * * mon-fri", "0 9 * * mon-fri"},
		{Asynq, "@every 90s", "@every 90s"},
		{Asynq, "0 9 * *", "! schedule \"0 9 * *\": it has 4 fields, and asynq wants 5"},
		{Kubernetes, "0 6 */2 * 1", "0 6 1-31/2 * 1"},
		{Kubernetes, "0 9 * *", "! schedule \"0 9 * *\": it has 4 fields, and kubernetes wants 5"},
		{Quartz, "0 0 9 ? * 2-6", "0 0 9 ? * MON-FRI"},
		{Quartz, "0 0 9 ? * FRI-MON", "0 0 9 ? * SUN,MON,FRI,SAT"},
		{Quartz, "0 0 22-2 * * ?", "0 0 0-2,22,23 * * ?"},
		{Quartz, "0 0 9 25-2 * ?", "0 0 9 1,2,25-31 * ?"},
		{Quartz, "0 /5 9 * * ?", "0 */5 9 * * ?"},
		{Quartz, "0 0 9 ? * 1", "0 0 9 ? * SUN"},
		{Quartz, "0 0 9 ? * 2/2 2027-2030", "0 0 9 ? * MON,WED,FRI 2027-2030"},
		{Quartz, "0 0 9 ? * 6L", "0 0 9 ? * FRI#L"},
		{Quartz, "0 0 9 ? * 2#1", "0 0 9 ? * MON#1"},
		{Quartz, "0 0 9 ? * L", "0 0 9 ? * SAT"},
		{Quartz, "0 0 9 LW * ?", "0 0 9 LW * ?"},
		{Quartz, "0 0 9 ? * MON-FRI;CRON_TZ=Asia/Tokyo 0 0 10 ? * 7", "0 0 9 ? * MON-FRI;CRON_TZ=Asia/Tokyo 0 0 10 ? * SAT"},
		{Quartz, "0 0 12 31W * ?", "! schedule \"0 0 12 31W * ?\": day of month \"31W\": where a month has no such day"},
		{Quartz, "0 0 9 * * 2", "! schedule \"0 0 9 * * 2\": quartz wants ? in one"},
		{Quartz, "0 0 9 ? * 8", "! schedule \"0 0 9 ? * 8\": day of week, at character 11: 8 is out of range"},
		{Quartz, "0 9 ? * 2", "! schedule \"0 9 ? * 2\": it has 5 fields, and quartz wants 6-7"},
		{EventBridge, "cron(0 9 ? * 2-6 *)", "0 9 ? * MON-FRI"},
		{EventBridge, "0 9 ? * 2-6 2027", "0 0 9 ? * MON-FRI 2027"},
		{EventBridge, "rate(5 minutes)", "@every 5m"},
		{EventBridge, "rate(1 day)", "@every 24h"},
		{EventBridge, "rate(5 weeks)", "! schedule \"rate(5 weeks)\": rate(5 weeks) is not understood"},
		{Spring, "0 0 9 ? * 1-5", "0 0 9 ? * 1-5"},
		{Spring, "0 0 9 13 * FRI", "0 0 9 13 * +FRI"},
		{Spring, "0 0 9 * * */2", "0 0 9 * * SUN,MON,WED,FRI"},
		{Spring, "0 0 9 * * 7-2", "0 0 9 * * SUN-TUE"},
		{Spring, "0 0 9 * * SUN/2", "0 0 9 * * SUN"},
		{Spring, "@daily", "@daily"},
		{Crontab, "0 9 * * 0-SUN", "0 9 * * SUN"},
		{Crontab, "*/60 */24 * * *", "0 0 * * *"},
		{Crontab, "0 6 */2 * 1", "0 6 */2 * 1"},
		{Crontab, "0 0 * * fri-sun", "! schedule \"0 0 * * fri-sun\": day of week \"FRI-SUN\": cron refuses it or never runs it: write 5-6,0"},
		{Crontab, "5/15 * * * *", "! schedule \"5/15 * * * *\": minute \"5/15\": cron refuses a step without a range: write 5-59/15"},
		{"jenkins", "H * * * *", "! dialect \"jenkins\" is not known: use one of [asynq bullmq crontab eventbridge kubernetes quartz spring]"},
	} {
		got, err := Translate(c.text, c.d)
		if want, fails := strings.CutPrefix(c.want, "! "); fails {
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: %q became %q, %v; want the error %q", c.d, c.text, got.Text, err, want)
			}
		} else if err != nil || got.Text != c.want {
			t.Errorf("%s: %q became %q, %v; want %q", c.d, c.text, got.Text, err, c.want)
		}
	}
}

// Cron takes a line for times of a day unless its minute or its hour begins with *. Where that
// makes a difference in the zone, the expression is written so that it comes at cron's times.
func TestTranslateKeepsCronsClockChanges(t *testing.T) {
	from := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ zone, text, want string }{
		{"Europe/Berlin", "0 1-3 * * *", "0 1,2,3 * * *"},
		{"Europe/Berlin", "0-30/15 2 * * 7", "0,15,30 2 * * 7"},
		{"Europe/Berlin", "0 9-17 * * *", "0 9-17 * * *"},
		{"Europe/Berlin", "*/60 2 * * *", "0-0 2 * * *"},
		{"Europe/Berlin", "30 2 * * *", "30 2 * * *"},
		{"Europe/Berlin", "*/10 2 * * *", "*/10 2 * * *"},
		{"Asia/Tokyo", "0 1-3 * * *", "0 1-3 * * *"},
	} {
		loc, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		translated, err := Translate(c.text, Crontab)
		if err != nil {
			t.Fatal(err)
		}
		text, found := translated.In("line 1", loc, from)
		if text != c.want {
			t.Errorf("%q in %s is %q; want %q", c.text, c.zone, text, c.want)
		}
		var want []Finding
		if c.want != c.text {
			want = []Finding{{"line 1", c.text + " is written " + c.want + " here, so that it means the same", Noted}}
		}
		if !slices.Equal(found, want) {
			t.Errorf("of %q in %s is said %q; want %q", c.text, c.zone, found, want)
		}
	}
}

func TestClockChangesAreNamed(t *testing.T) {
	loc, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		d          Dialect
		text, want string
	}{
		{Asynq, "30 2 * * *", "at the clock change of 2027-03-28 Punctual comes at Sun 03:00:00 +02:00, and asynq does not; " +
			"at the clock change of 2027-10-31 asynq comes at Sun 02:30:00 +01:00, and Punctual does not; at the clock change of 2028-03-26"},
		{BullMQ, "30 2 * * *", "at the clock change of 2027-03-28 BullMQ comes at Sun 03:30:00 +02:00, and Punctual at Sun 03:00:00 +02:00; at the clock change of 2028"},
		{Asynq, "0 9 * * *", ""},
		{Asynq, "@every 90s", ""},
		{Quartz, "0 30 2 * * ?", ""},
	} {
		translated, err := Translate(c.text, c.d)
		if err != nil {
			t.Fatal(err)
		}
		_, found := translated.In("it", loc, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
		if len(found) == 0 && c.want == "" {
			continue
		}
		if len(found) != 1 || found[0].Kind != Changed || !strings.HasPrefix(found[0].Text, c.want) {
			t.Errorf("%s: %q: %q; want %q and those of 2028", c.d, c.text, found, c.want)
		}
	}
}

// What Translate returns can be parsed, whatever the text is.
func FuzzTranslate(f *testing.F) {
	for _, text := range []string{"0 9 * * 1/3", "0 0 22-2 ? * FRI-MON", "cron(0 9 ? * 2-6 *)", "CRON_TZ=UTC 5/9223372036854775807 0 * * ?", "@weekdays;0-SUN"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for d := range dialects {
			translated, err := Translate(text, d)
			if err != nil {
				continue
			}
			for part := range strings.SplitSeq(translated.Text, ";") {
				if _, err := Parse(part); err != nil {
					t.Errorf("%s: %q became %q: %v", d, text, translated.Text, err)
				}
			}
			translated.In("it", time.UTC, time.Unix(0, 0))
		}
	})
}
