package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/limits"
)

// TestRowsAreTheFields: each field of Settings and of SettingsPatch has its row, at the same place
// and under the same name, and the row reads and changes that field.
func TestRowsAreTheFields(t *testing.T) {
	var s punctual.Settings
	var p punctual.SettingsPatch
	set, patch := reflect.ValueOf(&s).Elem(), reflect.ValueOf(&p).Elem()
	if set.NumField() != len(Table) || patch.NumField() != len(Table)+1 { // If
		t.Fatalf("Settings has %d fields, SettingsPatch %d, and the table %d rows", set.NumField(), patch.NumField(), len(Table))
	}
	for i, row := range Table {
		if want := words(set.Type().Field(i).Name); row.Name != want {
			t.Errorf("row %d is %s, the field %s", i+1, row.Name, want)
		}
		if want := words(patch.Type().Field(i).Name); row.Name != want {
			t.Errorf("row %d is %s, the field of the patch %s", i+1, row.Name, want)
		}
		of, in := row.kind.(interface {
			places(*punctual.Settings, *punctual.SettingsPatch) (of, in any)
		}).places(&s, &p)
		if of != set.Field(i).Addr().Interface() {
			t.Errorf("%s reads another field of Settings", row.Name)
		}
		if in != patch.Field(i).Addr().Interface() {
			t.Errorf("%s reads another field of SettingsPatch", row.Name)
		}
		if row.About == "" || strings.ContainsAny(row.About, "|\n`\"") {
			t.Errorf("%s: %q is no line for a table and a flag", row.Name, row.About)
		}
	}
}

func (f *field[T]) places(s *punctual.Settings, p *punctual.SettingsPatch) (of, in any) {
	return f.of(s), f.in(p)
}

// words returns a Go name in lower case, its words joined by _.
func words(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// draw returns a patch that gives the setting of the row a value within its bounds.
func draw(t *rapid.T, row *Setting) punctual.SettingsPatch {
	var p punctual.SettingsPatch
	least, most := row.Range()
	if most == 0 {
		most = math.MaxInt64
	}
	switch f := row.kind.(type) {
	case *field[time.Duration]:
		d := time.Duration(rapid.Int64Range(least, most).Draw(t, row.Name))
		*f.in(&p) = &d
	case *field[int]:
		n := int(rapid.Int64Range(least, most).Draw(t, row.Name))
		*f.in(&p) = &n
	case *field[bool]:
		b := rapid.Bool().Draw(t, row.Name)
		*f.in(&p) = &b
	case *field[punctual.Events]:
		e := punctual.Events(rapid.IntRange(0, int(event.All)).Draw(t, row.Name))
		*f.in(&p) = &e
	case *field[punctual.Backoff]:
		b := drawBackoff(t, row.Name)
		*f.in(&p) = &b
	case *field[[]string]:
		list := rapid.SliceOfNDistinct(rapid.StringMatching(`[A-Za-z0-9._-]{1,62}`), 0, limits.MaxGroups, rapid.ID).Draw(t, row.Name)
		if list = slices.DeleteFunc(list, func(name string) bool { return name == none || name == "all" }); len(list) == 0 {
			list = nil
		}
		*f.in(&p) = &list
	case *field[limits.Rate]:
		r := limits.Rate{N: rapid.IntRange(1, 1000).Draw(t, row.Name), Per: time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(limits.MaxRatePer)).Draw(t, row.Name+" per"))}
		r.Burst = rapid.IntRange(0, r.N).Draw(t, row.Name+" burst")
		*f.in(&p) = &r
	default:
		t.Fatalf("%s: this test draws no %T", row.Name, row.kind)
	}
	return p
}

func drawBackoff(t *rapid.T, name string) punctual.Backoff {
	delay := rapid.Map(rapid.Int64Range(0, int64(maxDelay)), func(ns int64) time.Duration { return time.Duration(ns) })
	if delays := rapid.SliceOfN(delay, 0, 5).Draw(t, name+" delays"); len(delays) > 0 {
		return punctual.Backoff{Delays: delays}
	}
	base := delay.Draw(t, name+" base")
	return punctual.Backoff{
		Base: base, Max: max(base, delay.Draw(t, name+" max")), Jitter: rapid.Float64Range(0, 1).Draw(t, name+" jitter"),
	}
}

// TestRoundTrips: whatever a setting can be is read back as the same value from each of the three
// ways to write it, and alone.
func TestRoundTrips(t *testing.T) {
	for _, row := range Table {
		t.Run(row.Name, rapid.MakeCheck(func(t *rapid.T) {
			given := draw(t, row)
			want := punctual.DefaultSettings()
			row.Apply(&want, &given)
			if err := row.Check(&want); err != nil {
				t.Fatalf("%s is refused: %v", row.Text(&want), err)
			}
			kept, err := row.Stored(&want)
			if err != nil || !json.Valid(kept) || !json.Valid(row.JSON(&want)) {
				t.Fatalf("%s is stored as %s, %v, and in JSON %s", row.Text(&want), kept, err, row.JSON(&want))
			}
			var took punctual.SettingsPatch
			row.Take(&took, &want)
			for way, p := range map[string]func(*punctual.SettingsPatch) error{
				"text":   func(p *punctual.SettingsPatch) error { return row.Parse(p, row.Text(&want)) },
				"JSON":   func(p *punctual.SettingsPatch) error { return row.FromJSON(p, row.JSON(&want)) },
				"stored": func(p *punctual.SettingsPatch) error { return row.FromStored(p, kept) },
				"taken":  func(p *punctual.SettingsPatch) error { *p = took; return nil },
			} {
				var read punctual.SettingsPatch
				if err := p(&read); err != nil || !reflect.DeepEqual(read, given) {
					t.Fatalf("%s of %s is read as %+v, %v; want %+v", way, row.Text(&want), read, err, given)
				}
			}
			for _, other := range Table {
				if got := other.Given(&given); got != (other == row) {
					t.Fatalf("a patch of %s changes %s: %v", row.Name, other.Name, got)
				}
			}
		}))
	}
}

// TestBounds: the default of each setting is allowed. Of durations and counts the least and the
// most value are allowed, and a value beyond them is refused with an error that says what is
// allowed.
func TestBounds(t *testing.T) {
	d := punctual.DefaultSettings()
	for _, row := range Table {
		if err := row.Check(&d); err != nil || !row.IsDefault(&d) {
			t.Errorf("the default of %s: %v", row.Name, err)
		}
		least, most := row.Range()
		at := func(n int64) error {
			s := punctual.DefaultSettings()
			switch f := row.kind.(type) {
			case *field[time.Duration]:
				*f.of(&s) = time.Duration(n)
			case *field[int]:
				*f.of(&s) = int(n)
			}
			return row.Check(&s)
		}
		if row.Kind() == Truth || row.Kind() == Backoff || row.Kind() == List || row.Kind() == Events || row.Kind() == Rate {
			continue
		}
		bad := []int64{least - 1}
		if most > 0 {
			bad = append(bad, most+1)
		}
		for _, n := range bad {
			err := at(n)
			if !errors.Is(err, punctual.ErrInvalid) || !strings.HasPrefix(err.Error(), row.Words()+" ") || !strings.Contains(err.Error(), ": use "+row.Allowed()) {
				t.Errorf("%s of %d: %v; want it to name the setting and say that it takes %s", row.Name, n, err, row.Allowed())
			}
		}
		for _, n := range []int64{least, most} {
			if err := at(n); err != nil && (n > 0 || least == 0) {
				t.Errorf("%s of %d: %v", row.Name, n, err)
			}
		}
	}
}

// TestRates: what cannot be meant as a rate is refused with what can.
func TestRates(t *testing.T) {
	row := Find("max_rate")
	for text, want := range map[string]string{
		"0/1s": "begins 0 leases: use 1 to 1000000", "5/0s": "counts in 0s: use 1ms to", "10": "write it like 10/1s", "x/1s": "write it like 10/1s", "5/fortnight": "write it like",
		"5/1s,burst=6": "has a burst of 6: use 0", "0/0s": "nothing begin in no time", "5/1s,burst=": "write it like", "1000000/1ms": "more than one in a microsecond", "-5/1s": "begins -5 leases", "1000001/1s": "use 1 to 1000000",
	} {
		var p punctual.SettingsPatch
		s := punctual.DefaultSettings()
		err := row.Parse(&p, text)
		if err == nil {
			row.Apply(&s, &p)
			err = row.Check(&s)
		}
		if !errors.Is(err, punctual.ErrInvalid) || !strings.HasPrefix(err.Error(), "max rate") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want it to say %q", text, err, want)
		}
	}
	for text, want := range map[string]limits.Rate{"10/s": limits.PerSecond(10), "7/1m30s,burst=2": {N: 7, Per: 90 * time.Second, Burst: 2}, "none": {}} {
		var p punctual.SettingsPatch
		if err := row.Parse(&p, text); err != nil || *p.MaxRate != want {
			t.Errorf("%q: %v, %v; want %v", text, p.MaxRate, err, want)
		}
	}
}

// TestNames: a list has at most 32 unlike names of at most 62 bytes, and the words "none" and "all"
// are no names.
func TestNames(t *testing.T) {
	row := Find("groups")
	many := make([]string, limits.MaxGroups+1)
	for i := range many {
		many[i] = fmt.Sprint("g", i)
	}
	long := strings.Repeat("x", limits.MaxGroupBytes)
	for _, good := range [][]string{nil, {}, {"billing"}, {"billing", "mail"}, {"a.b_c-D9", long}, many[1:]} {
		if err := row.Check(&punctual.Settings{Groups: good}); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range [][]string{{""}, {"billing", ""}, {"a b"}, {"a@b"}, {"a/b"}, {"ä"}, {"billing", "mail", "billing"}, {"none"}, {"all"}, {long + "x"}, many} {
		if err := row.Check(&punctual.Settings{Groups: bad}); !errors.Is(err, punctual.ErrInvalid) || !strings.HasPrefix(err.Error(), "groups ") {
			t.Errorf("%q: %v; want an ErrInvalid that names the setting", bad, err)
		}
	}
	var p punctual.SettingsPatch
	if err := row.Parse(&p, "billing, mail"); err != nil || !slices.Equal(*p.Groups, []string{"billing", "mail"}) {
		t.Errorf("%v, %v", p.Groups, err)
	}
}

// TestErrorsOfText: a text that cannot be read is an ErrInvalid that begins with the setting's name
// and says what is allowed or how to write it.
func TestErrorsOfText(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"lease", "", "lease is empty: use 10ms to 1d"},
		{"lease", "5", `lease: duration "5" is not understood: write it like 500ms, 90s, 30m, 2h30m, 2d12h or 1w`},
		{"dedupe_window", "-1s", `dedupe window: duration "-1s" is negative: use 0 or more`},
		{"max_attempts", "3x", `max attempts "3x" is not a whole number: use 1 to 1000000`},
		{"max_attempts", "99999999999999999999", `max attempts "99999999999999999999" is not a whole number: use 1 to 1000000`},
		{"push_paused", "yes", `push paused: "yes": use true or false`},
		{"backoff", "sometimes", `backoff "sometimes": duration "sometimes" is not understood: write it like 500ms, 90s, 30m, 2h30m, 2d12h or 1w`},
		{"emit", "born", `emit: event "born": use acked, dead, cancelled, expired, pushed, retried, missed, skipped with commas between them, or none`},
		{"backoff", "", "backoff is empty: use delays like 2m,10m,1h or exp:1s..1h,jitter=0.2, each 0 to 3650d"},
	} {
		var p punctual.SettingsPatch
		err := Find(c.name).Parse(&p, c.text)
		if !errors.Is(err, punctual.ErrInvalid) || err.Error() != c.want+": "+punctual.ErrInvalid.Error() || p != (punctual.SettingsPatch{}) {
			t.Errorf("%s %q: %v, %+v; want %s", c.name, c.text, err, p, c.want)
		}
	}
}

// TestErrorsOfJSON: a value of the wrong kind is told what is expected; null is a setting that is
// not given.
func TestErrorsOfJSON(t *testing.T) {
	for _, row := range Table {
		good := jsonKind(row.JSON(new(punctual.DefaultSettings())))
		for _, value := range []string{`"x`, `"5 fortnights"`, "5.5", "true", "{}", "[1]", "null", ""} {
			var p punctual.SettingsPatch
			err := row.FromJSON(&p, []byte(value))
			switch kind := jsonKind([]byte(value)); {
			case value == "null":
				if err != nil {
					t.Errorf("%s: null: %v", row.Name, err)
				}
			case kind == good && good == jsonTruth:
				if err != nil {
					t.Errorf("%s: %s: %v", row.Name, value, err)
				}
			case !errors.Is(err, punctual.ErrInvalid), !strings.HasPrefix(err.Error(), row.Words()),
				kind != good && !strings.Contains(err.Error(), kind+" where "):
				t.Errorf("%s: %s: %v; want an error that names it", row.Name, value, err)
			}
		}
	}
}

func TestFind(t *testing.T) {
	for _, row := range Table {
		if Find(row.Name) != row || !strings.Contains(Names(), row.Name) {
			t.Errorf("%s is not found", row.Name)
		}
	}
	if Find("colour") != nil {
		t.Error("a setting is found that there is not")
	}
}
