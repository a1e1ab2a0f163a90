package rule

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/internal/rigs/seed"
)

const (
	second = int64(1000)
	minute = 60 * second
	hour   = 60 * minute
)

// put returns a schedule that was put at an instant.
func put(t testing.TB, d Definition, now int64) *Record {
	t.Helper()
	if d.Grace == 0 {
		d.Grace = minute
	}
	r, err := New(d, now, new(cron.Zones))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func decide(t testing.TB, r *Record, now int64, fates map[int64]Fate) Step {
	t.Helper()
	s, err := r.Decide(Occasion{Now: now, Fates: fates, Room: MostStored}, new(cron.Zones))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPolicies decides about the times of an hourly schedule that was put at 8:30, once at 9:00 and
// again at the time of the case.
func TestPolicies(t *testing.T) {
	live := map[int64]Fate{at(t, "2026-11-20 09:00"): Live}
	dead := map[int64]Fate{at(t, "2026-11-20 09:00"): Dead}
	for name, c := range map[string]struct {
		d               Definition
		now             string
		fates           map[int64]Fate
		store           []string // hours
		missed, skipped int64
		cancel          bool
		next            string
	}{
		"in time":                         {now: "10:00:00", store: []string{"10"}, next: "11"},
		"within grace":                    {now: "10:01:00", store: []string{"10"}, next: "11"},
		"latest: one late time":           {now: "10:01:01", store: []string{"10"}, next: "11"},
		"latest: of several the last":     {now: "13:30:00", store: []string{"13"}, missed: 3, next: "14"},
		"latest: one in time does for it": {now: "13:00:30", store: []string{"13"}, missed: 3, next: "14"},
		"all":                             {d: Definition{Missed: MissedAll, Overlap: OverlapAllow}, now: "13:30:00", store: []string{"10", "11", "12", "13"}, next: "14"},
		"all that may not overlap":        {d: Definition{Missed: MissedAll}, now: "13:30:00", store: []string{"10"}, skipped: 3, next: "14"},
		"none":                            {d: Definition{Missed: MissedNone}, now: "13:30:00", missed: 4, next: "14"},
		"none, and one in time":           {d: Definition{Missed: MissedNone}, now: "13:00:59", store: []string{"13"}, missed: 3, next: "14"},
		"skip while the last is live":     {now: "10:00:00", fates: live, skipped: 1, next: "11"},
		"skip, though the last is dead":   {now: "10:00:00", fates: dead, store: []string{"10"}, next: "11"},
		"skip what makes up for others":   {now: "13:30:00", fates: live, missed: 3, skipped: 1, next: "14"},
		"allow":                           {d: Definition{Overlap: OverlapAllow}, now: "10:00:00", fates: live, store: []string{"10"}, next: "11"},
		"replace":                         {d: Definition{Overlap: OverlapReplace}, now: "10:00:00", fates: live, store: []string{"10"}, cancel: true, next: "11"},
		"replace one that is gone":        {d: Definition{Overlap: OverlapReplace}, now: "10:00:00", store: []string{"10"}, next: "11"},
		"replace: of several the last":    {d: Definition{Overlap: OverlapReplace, Missed: MissedAll}, now: "12:00:00", fates: live, store: []string{"12"}, skipped: 2, cancel: true, next: "13"},
		"the limit":                       {d: Definition{Limit: 2, Missed: MissedAll, Overlap: OverlapAllow}, now: "12:00:00", store: []string{"10"}},
		"until":                           {d: Definition{Timing: Timing{Until: at(t, "2026-11-20 10:30")}}, now: "12:00:00", store: []string{"10"}},
		"not yet":                         {now: "09:59:59", next: "10"},
	} {
		t.Run(name, func(t *testing.T) {
			c.d.Spec = "0 * * * *"
			r := put(t, c.d, at(t, "2026-11-20 08:30"))
			if s := decide(t, r, at(t, "2026-11-20 09:00"), nil); len(s.Store) != 1 {
				t.Fatalf("at 9:00: %+v", s)
			}
			s := decide(t, r, at(t, "2026-11-20 "+c.now), c.fates)
			var hours []string
			for _, at := range s.Store {
				hours = append(hours, time.UnixMilli(at).UTC().Format("15"))
			}
			next := ""
			if r.State.Next.At != 0 {
				next = time.UnixMilli(r.State.Next.At).UTC().Format("15")
			}
			if !slices.Equal(hours, c.store) || s.Missed != c.missed || s.Skipped != c.skipped || (s.Cancel != 0) != c.cancel || next != c.next {
				t.Errorf("stores %v, missed %d, skipped %d, cancels %v, next %q; want %v, %d, %d, %v, %q", hours, s.Missed, s.Skipped, s.Cancel != 0, next, c.store, c.missed, c.skipped, c.cancel, c.next)
			}
			if r.State.Stored != 1+int64(len(hours)) || r.State.Missed != c.missed || r.State.Skipped != c.skipped {
				t.Errorf("counted %d, %d, %d", r.State.Stored, r.State.Missed, r.State.Skipped)
			}
			if c.cancel && s.Cancel != at(t, "2026-11-20 09:00") {
				t.Errorf("cancels %s", stamp(s.Cancel))
			}
		})
	}
}

func TestPauseAfterDeadOccurrences(t *testing.T) {
	r := put(t, Definition{Timing: Timing{Spec: "0 * * * *"}, MaxDead: 2}, at(t, "2026-11-20 08:30"))
	fates := make(map[int64]Fate)
	for _, h := range []string{"09", "10"} {
		now := at(t, "2026-11-20 "+h+":00")
		if s := decide(t, r, now, fates); s.Paused || len(s.Store) != 1 {
			t.Fatalf("at %s: %+v", h, s)
		}
		fates[now] = Dead
	}
	fates[at(t, "2026-11-20 09:00")] = Gone
	copied := *r
	if s := decide(t, &copied, at(t, "2026-11-20 11:00"), fates); s.Paused {
		t.Error("paused after one dead occurrence behind one that was acked")
	}
	fates[at(t, "2026-11-20 09:00")] = Dead
	if q := r.Question(); !slices.Equal(q.Watched, []int64{at(t, "2026-11-20 10:00"), at(t, "2026-11-20 09:00")}) {
		t.Errorf("asks for %q", stamps(q.Watched))
	}
	if s := decide(t, r, at(t, "2026-11-20 11:00"), fates); !s.Paused || len(s.Store) > 0 || r.State.Paused == nil || r.State.Paused.Note != "the last 2 occurrences are dead" {
		t.Errorf("after two: %+v, %+v", s, r.State.Paused)
	}
	if s := decide(t, r, at(t, "2026-11-20 12:00"), fates); s.Paused || len(s.Store) > 0 {
		t.Errorf("paused: %+v", s)
	}
	r.Resume(true, at(t, "2026-11-20 12:30"))
	if s := decide(t, r, at(t, "2026-11-20 12:30"), fates); s.Paused || !slices.Equal(s.Store, []int64{at(t, "2026-11-20 12:00")}) || s.Missed != 1 {
		t.Errorf("resumed: %+v", s)
	}
}

func TestPauseResumeSkip(t *testing.T) {
	zones := new(cron.Zones)
	start := at(t, "2026-11-20 08:30")
	r := put(t, Definition{Timing: Timing{Spec: "0 * * * *"}}, start)
	if times, err := r.Skip(2, start, zones); err != nil || !slices.Equal(times, []int64{at(t, "2026-11-20 09:00"), at(t, "2026-11-20 10:00")}) {
		t.Fatalf("skips %q, %v", stamps(times), err)
	}
	if due, err := r.Due(7, 1<<50, zones); err != nil || due != at(t, "2026-11-20 11:00")+7 {
		t.Errorf("due %v, %v", due, err)
	}
	if s := decide(t, r, at(t, "2026-11-20 11:00"), nil); s.Skipped != 2 || len(s.Store) != 1 || len(r.State.Skip) != 0 {
		t.Errorf("at 11:00: %+v, still skips %v", s, r.State.Skip)
	}
	r.Pause("anna", "until the API is back", at(t, "2026-11-20 11:30"))
	first, err := r.Due(7, 1<<50, zones)
	r.Pause("anna", "longer", at(t, "2026-11-20 12:30"))
	second, err2 := r.Due(7, 1<<50, zones)
	if err != nil || err2 != nil || first == second || first > 1<<50 || first < 1<<50-1000 {
		t.Errorf("two edits of a paused schedule are due at %d and %d: the second would undo what it has not seen", first, second)
	}
	if r.State.Paused.At != at(t, "2026-11-20 11:30") || r.State.Paused.Note != "longer" {
		t.Errorf("paused: %+v", r.State.Paused)
	}
	r.Resume(false, at(t, "2026-11-20 15:10"))
	if due, err := r.Due(0, 1<<50, zones); err != nil || due != at(t, "2026-11-20 16:00") {
		t.Errorf("due %s, %v", stamp(due), err)
	}
	if s := decide(t, r, at(t, "2026-11-20 16:00"), nil); s.Skipped != 4 || s.Missed != 0 || !slices.Equal(s.Store, []int64{at(t, "2026-11-20 16:00")}) {
		t.Errorf("after the pause: %+v", s)
	}
	if _, err := r.Skip(MaxSkip, start, zones); err != nil {
		t.Error(err)
	}
	if _, err := r.Skip(1, start, zones); err == nil {
		t.Errorf("skips %d times", MaxSkip+1)
	}
	r.State.Skip = nil
	r.Definition.Limit = r.State.Stored + 2
	if times, err := r.Upcoming(10, zones); err != nil || len(times) != 2 {
		t.Errorf("with two left of the limit: %q, %v", stamps(times), err)
	}
}

// A large backlog takes several steps, each of them short.
func TestManyTimesTakeSeveralSteps(t *testing.T) {
	start := at(t, "2026-01-01 00:00")
	now := start + 60*3600*second
	for missed, want := range map[Missed]struct{ stored, missed, steps int64 }{
		MissedLatest: {61, 60*3600 - 61, 7}, // those of the last minute are in time, 50 in a step
		MissedNone:   {61, 60*3600 - 61, 7},
	} {
		r := put(t, Definition{Timing: Timing{Spec: "* * * * * *"}, Missed: missed, Overlap: OverlapAllow}, start)
		steps := int64(0)
		for ; r.State.Next.At <= now && steps < 100; steps++ {
			decide(t, r, now, nil)
		}
		if r.State.Stored != want.stored || r.State.Missed != want.missed || steps > want.steps {
			t.Errorf("%q: stored %d, missed %d in %d steps, want %+v", missed, r.State.Stored, r.State.Missed, steps, want)
		}
	}
	r := put(t, Definition{Timing: Timing{Spec: "* * * * *"}, Missed: MissedAll, Overlap: OverlapAllow}, start)
	for _, want := range []int{50, 50, 20, 0} {
		if s := decide(t, r, start+2*hour, nil); len(s.Store) != want {
			t.Errorf("stored %d, want %d", len(s.Store), want)
		}
	}
}

func TestRedefine(t *testing.T) {
	zones := new(cron.Zones)
	hourly := Definition{Timing: Timing{Spec: "0 * * * *"}, Grace: minute}
	daily := Definition{Timing: Timing{Spec: "30 10 * * *"}, Grace: minute}
	r := put(t, hourly, at(t, "2026-11-20 08:30"))
	if changed, err := r.Redefine(hourly, at(t, "2026-11-20 08:40"), zones); changed || err != nil {
		t.Errorf("the same: %v, %v", changed, err)
	}
	body := hourly
	body.SetBody([]byte("x"))
	if changed, err := r.Redefine(body, at(t, "2026-11-20 08:40"), zones); !changed || err != nil || r.State.Next.At != at(t, "2026-11-20 09:00") || r.State.Earlier != nil {
		t.Errorf("another body: %v, %v, %+v", changed, err, r.State)
	}
	// 9:00 has come and no duty has taken it up yet. It counts, and no time of the new definition
	// before the change does.
	if changed, err := r.Redefine(daily, at(t, "2026-11-20 09:00")+200, zones); !changed || err != nil || len(r.State.Earlier) != 1 {
		t.Fatalf("%v, %v, %+v", changed, err, r.State)
	}
	if got, err := r.Upcoming(3, zones); err != nil || !slices.Equal(stamps(got), []string{"2026-11-20 09:00:00", "2026-11-20 10:30:00", "2026-11-21 10:30:00"}) {
		t.Errorf("%q, %v", stamps(got), err)
	}
	s := decide(t, r, at(t, "2026-11-20 09:00")+400, nil)
	if !slices.Equal(s.Store, []int64{at(t, "2026-11-20 09:00")}) || r.State.Earlier != nil || r.State.Next.At != at(t, "2026-11-20 10:30") {
		t.Errorf("%+v, %+v", s, r.State)
	}
	for i := range mostEarlier + 1 {
		d := Definition{Timing: Timing{Spec: fmt.Sprintf("%d * * * *", i)}}
		_, err := r.Redefine(d, at(t, "2026-11-20 12:00")+int64(i)*hour, zones)
		if want := i == mostEarlier; (err == ErrBehind) != want {
			t.Errorf("change %d behind a time that waits: %v", i+1, err)
		}
	}
	over := put(t, Definition{Timing: Timing{Spec: "0 * * * *"}, Limit: 1}, at(t, "2026-11-20 08:30"))
	decide(t, over, at(t, "2026-11-20 09:00"), nil)
	if changed, err := over.Redefine(over.Definition, at(t, "2026-11-20 12:10"), zones); changed || err != nil || over.State.Next.At != 0 {
		t.Errorf("the same after its end: %v, %v, %+v", changed, err, over.State)
	}
	more := over.Definition
	more.Limit = 2
	if changed, err := over.Redefine(more, at(t, "2026-11-20 12:10"), zones); !changed || err != nil || over.State.Next.At != at(t, "2026-11-20 13:00") {
		t.Errorf("a higher limit: %v, %v, %+v", changed, err, over.State)
	}
}

// TestEveryTimeOnce lets the clock jump, definitions change, schedules pause and steps come late or
// twice, and compares with a list of all times: each time is decided once, by the definition that
// held when it came.
func TestEveryTimeOnce(t *testing.T) {
	seed := seedrig.Of(t)
	specs := []string{"*/10 * * * *", "7 * * * *; 0 9 * * *", "@every 7m", "30 2 * * *", "*/20 1-3 * * *"}
	zoneNames := []string{"UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Havana"}
	zones := new(cron.Zones)
	for n := range 300 {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		draw := func() Definition {
			return Definition{
				Timing:  Timing{Spec: specs[r.IntN(len(specs))], Zone: zoneNames[r.IntN(len(zoneNames))]},
				Missed:  []Missed{MissedAll, MissedLatest, MissedNone}[r.IntN(3)],
				Overlap: OverlapAllow, Grace: (1 + r.Int64N(30)) * minute,
			}
		}
		now := at(t, "2026-10-24 00:00") + r.Int64N(48)*hour + r.Int64N(1000)
		rec := put(t, draw(), now)
		decided := make(map[int64]int)
		want := make(map[int64]bool)
		since := now
		owe := func(d Definition, to int64) { // notes the times of a definition from the last change to this one
			for _, at := range mustRead(t, d.Timing, zones).between(since, to) {
				want[at] = true
			}
			since = to
		}
		step := func() {
			before, err := rec.Encode()
			if err != nil {
				t.Fatal(err)
			}
			s, err := rec.Decide(Occasion{Now: now, Room: 1 + r.IntN(MostStored)}, zones)
			if err != nil {
				t.Fatal(err)
			}
			if r.IntN(5) == 0 { // another duty has had the lease: this step did not happen
				if rec, err = Decode(before); err != nil { // as the next duty reads it
					t.Fatal(err)
				}
				return
			}
			for _, at := range s.Store {
				decided[at]++
			}
			if int64(len(s.Left)) != min(s.Missed+s.Skipped, kept) {
				t.Fatalf("%+v", s)
			}
			for at := range want { // what is not stored was left out, by the counts below
				if at <= rec.State.Mark.At && decided[at] == 0 {
					decided[at] = -1
				}
			}
		}
		for range 60 {
			now += r.Int64N(2 * hour)
			switch r.IntN(8) {
			case 0:
				d := draw()
				old := rec.Definition
				if _, err := rec.Redefine(d, now, zones); err == ErrBehind {
					continue
				} else if err != nil {
					t.Fatal(err)
				}
				owe(old, now)
			case 1:
				if rec.State.Paused == nil {
					rec.Pause("", "", now)
				} else {
					rec.Resume(r.IntN(2) == 0, now)
				}
			case 2:
				if _, err := rec.Skip(1, now, zones); err != nil {
					t.Fatal(err)
				}
			default:
				owe(rec.Definition, now)
				step()
			}
		}
		rec.Resume(true, now)
		owe(rec.Definition, now)
		for i := 0; i < 1000 && rec.State.Next.At <= now; i++ {
			step()
		}
		stored, left := int64(0), int64(0)
		for _, at := range slices.Sorted(maps.Keys(decided)) {
			switch {
			case !want[at]:
				t.Fatalf("round %d: %s was stored and is no time of the schedule", n, stamp(at))
			case decided[at] > 1:
				t.Fatalf("round %d: %s was stored %d times", n, stamp(at), decided[at])
			case decided[at] == 1:
				stored++
			default:
				left++
			}
		}
		if rec.State.Stored != stored || rec.State.Missed+rec.State.Skipped != left || len(decided) != len(want) {
			t.Fatalf("round %d: %d times; stored %d, counted %d; left out %d, counted %d missed and %d skipped", n, len(want), stored, rec.State.Stored, left, rec.State.Missed, rec.State.Skipped)
		}
	}
}

func mustRead(t testing.TB, timing Timing, zones *cron.Zones) *Times {
	t.Helper()
	times, err := timing.Read(zones)
	if err != nil {
		t.Fatal(err)
	}
	return times
}

// TestZoneChangesAtATime changes the zone of a schedule at the very instant of one of its times, 3
// o'clock in Berlin and 21 o'clock of the day before in Havana. The next time of the new definition
// is that day's, 2:30 in Havana: it must not be looked for behind 3 o'clock on the clocks of
// Havana.
func TestZoneChangesAtATime(t *testing.T) {
	zones := new(cron.Zones)
	berlin := Definition{Timing: Timing{Spec: "0 3 * * *", Zone: "Europe/Berlin"}}
	havana := Definition{Timing: Timing{Spec: "30 2 * * *", Zone: "America/Havana"}, Grace: minute}
	now, want := at(t, "2026-11-20 02:00"), at(t, "2026-11-20 07:30")
	redefined := func(r *Record) {
		t.Helper()
		if changed, err := r.Redefine(havana, now, zones); err != nil || !changed {
			t.Fatalf("redefine: %t, %v", changed, err)
		}
	}

	r := put(t, berlin, now-hour)
	redefined(r) // before a duty decides about the time
	if s := decide(t, r, now, nil); !slices.Equal(s.Store, []int64{now}) || r.State.Next.At != want {
		t.Errorf("stored %v, next %s; want the time of Berlin, then %s", s.Store, stamp(r.State.Next.At), stamp(want))
	}

	r = put(t, berlin, now-hour)
	decide(t, r, now, nil)
	redefined(r) // in the ms in which it has been decided
	if r.State.Next.At != want {
		t.Errorf("behind a time that is decided, next %s; want %s", stamp(r.State.Next.At), stamp(want))
	}
	if changed, err := r.Redefine(havana, now, zones); err != nil || changed || r.State.Next.At != want {
		t.Errorf("the same definition again: changed %t, %v, next %s; want no change", changed, err, stamp(r.State.Next.At))
	}

	r = put(t, berlin, now-hour)
	redefined(r)
	r.Pause("", "", now)
	r.Resume(false, now) // which leaves the time of Berlin out
	if next, err := r.Upcoming(1, zones); err != nil || !slices.Equal(next, []int64{want}) {
		t.Errorf("upcoming %v, %v; want %s", next, err, stamp(want))
	}
}

// TestTwoVersionsOfAZone lets processes with different zone data take turns. Each of the two times
// of a day comes once, at the instant that the one or the other process knows for it, and the
// instants only grow.
func TestTwoVersionsOfAZone(t *testing.T) {
	seed := seedrig.Of(t)
	load := func(name string) *time.Location {
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		return loc
	}
	// By the newer version of its data the zone is an hour farther east than by the older one.
	newer := cron.ZonesOf(map[string]*time.Location{"Test/City": load("Europe/Berlin")})
	older := cron.ZonesOf(map[string]*time.Location{"Test/City": load("Europe/London")})
	for n := range 200 {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		both := []*cron.Zones{newer, older}
		const days = 40
		start := at(t, "2026-10-01 00:30") // the clocks go back within these days
		rec, err := New(Definition{Timing: Timing{Spec: "0 9,17 * * *", Zone: "Test/City"}, Grace: minute}, start, both[r.IntN(2)])
		if err != nil {
			t.Fatal(err)
		}
		var stored []int64
		for now := start; now < start+days*24*hour; now += 10 * minute {
			if rec.State.Next.At > now {
				continue
			}
			zones := both[r.IntN(2)]
			s, err := rec.Decide(Occasion{Now: now, Room: MostStored}, zones)
			if err != nil {
				t.Fatal(err)
			}
			stored = append(stored, s.Store...)
			if r.IntN(4) == 0 { // a program starts and declares its schedules
				if _, err := rec.Redefine(rec.Definition, now, both[r.IntN(2)]); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !slices.IsSorted(stored) || len(stored) != 2*days || len(slices.Compact(slices.Clone(stored))) != 2*days || rec.State.Missed != 0 {
			t.Fatalf("round %d: %d times in %d days, missed %d: %q", n, len(stored), days, rec.State.Missed, stamps(stored))
		}
	}
}

// TestForget: a schedule that was decided, ended, changed or resumed while the clock was ahead
// comes again from the step on.
func TestForget(t *testing.T) {
	hourly := Timing{Spec: "0 * * * *"}
	until := hourly
	until.Until = at(t, "2026-11-20 12:00")
	begun, step, now, ahead := at(t, "2026-11-20 08:30"), at(t, "2026-11-20 10:15"), at(t, "2026-11-20 10:20"), at(t, "2026-11-25 08:30")
	far := func(r *Record) { decide(t, r, ahead, nil) }
	for name, c := range map[string]struct {
		d         Definition
		meanwhile func(*Record)
		next      string // of the day; empty when it has ended
	}{
		"decided":                   {Definition{Timing: hourly}, far, "11:00"},
		"stored in time":            {Definition{Timing: hourly, Overlap: OverlapAllow}, func(r *Record) { decide(t, r, at(t, "2026-11-20 11:00"), nil); far(r) }, "12:00"},
		"ended by its Until":        {Definition{Timing: until, Missed: MissedNone}, far, "11:00"},
		"ended by its Limit":        {Definition{Timing: hourly, Limit: 2}, far, ""},
		"changed":                   {Definition{Timing: hourly}, func(r *Record) { far(r); redefine(t, r, Timing{Spec: "45 * * * *"}, ahead) }, "10:45"},
		"changed with times behind": {Definition{Timing: hourly}, func(r *Record) { redefine(t, r, Timing{Spec: "45 * * * *"}, ahead) }, "10:45"},
		"resumed":                   {Definition{Timing: hourly}, func(r *Record) { r.Pause("", "", ahead); r.Resume(false, ahead) }, "11:00"},
		"paused":                    {Definition{Timing: hourly}, func(r *Record) { far(r); r.Pause("", "", ahead) }, "11:00"},
	} {
		r := put(t, c.d, begun)
		decide(t, r, at(t, "2026-11-20 09:00"), nil)
		if r.Ahead(now) != 0 {
			t.Fatalf("%s: ahead at first", name)
		}
		c.meanwhile(r)
		if r.Ahead(now) == 0 || r.Ahead(ahead) != 0 {
			t.Errorf("%s: not ahead after the step: %+v", name, r.State)
		}
		r.Forget(step, now, new(cron.Zones))
		want := int64(0)
		if c.next != "" {
			want = at(t, "2026-11-20 "+c.next)
		}
		next, err := r.Upcoming(1, new(cron.Zones))
		if err != nil || r.Ahead(now) != 0 || len(next) > 0 != (want != 0) || want != 0 && next[0] != want {
			t.Errorf("%s: after the step comes %v, %v; want %v; %+v", name, next, err, want, r.State)
		}
		if p := r.State.Paused; p != nil && p.At > now || r.State.Watch > now || slices.ContainsFunc(r.State.Left, func(l Left) bool { return l.At > step }) {
			t.Errorf("%s: something is still ahead: %+v", name, r.State)
		}
		before := fmt.Sprint(r.State.Next, r.State.Skip)
		if r.Forget(step, now, new(cron.Zones)); fmt.Sprint(r.State.Next, r.State.Skip) != before {
			t.Errorf("%s: forgotten twice it differs: %s, %+v", name, before, r.State)
		}
	}
	// A schedule whose zone is not known here stays as it is, so that a definition with another
	// zone mends it, and it begins again then.
	z := put(t, Definition{Timing: hourly}, ahead)
	z.Zone = "Nowhere/Land"
	if z.Forget(step, now, new(cron.Zones)); z.Ahead(now) == 0 {
		t.Error("a schedule whose times are not known has forgotten some")
	}
	redefine(t, z, hourly, now)
	if z.Forget(step, now, new(cron.Zones)); z.Ahead(now) != 0 || z.State.Next.At != at(t, "2026-11-20 11:00") {
		t.Errorf("with a zone that is known it comes at %+v", z.State.Next)
	}
	// A clock that differs by up to 2 s, as from node to node of a cluster, is none that stepped.
	r := put(t, Definition{Timing: hourly}, begun)
	if r.Ahead(begun-2*second) != 0 || r.Ahead(begun-2*second-1) != begun {
		t.Error("the step begins elsewhere than 2 s behind")
	}
}

func redefine(t *testing.T, r *Record, timing Timing, now int64) {
	t.Helper()
	d := r.Definition
	d.Timing = timing
	if changed, err := r.Redefine(d, now, new(cron.Zones)); err != nil || !changed {
		t.Fatal(changed, err)
	}
}
