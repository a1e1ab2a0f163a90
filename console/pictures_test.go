package console

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// In the pictures of the page Now each step has the same number as in the table, also in a zone of
// half hours and on a logarithmic scale.
func TestPictureEqualsItsTable(t *testing.T) {
	r := newRig(t, nil)
	for i := range 40 {
		r.push("a", fmt.Sprint("a", i), time.Duration(i*i+1)*time.Minute)
		r.push("b", fmt.Sprint("b", i), time.Duration(i)*24*time.Hour+time.Hour)
	}
	r.page("/") // it begins counts in the background, which Close waits for
	if err := r.console.Close(); err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`class="scale" href="([^"]*)"`).FindAllStringSubmatch(r.page("/"), -1)
	if len(links) == 0 {
		t.Error("the pictures of the page Now have no link to their other scale")
	}
	for _, l := range links {
		if text := r.page(html.UnescapeString(l[1])); !strings.Contains(text, ">linear<") {
			t.Errorf("%s does not show the logarithmic scale", l[1])
		}
	}
	bar := regexp.MustCompile(`<title>([^<]*): ([0-9,]+)</title>`)
	row := regexp.MustCompile(`<th scope="row">(?:<a [^>]*>)?([^<]*)(?:</a>)?</th><td class="n">([0-9,]+)</td>`)
	for _, path := range []string{"/", "/?zone=Asia/Kolkata", "/?scale=log"} {
		text := r.page(path)
		for _, figure := range strings.Split(text, "<figure")[1:] {
			bars, rows := map[string]string{}, map[string]string{}
			for _, m := range bar.FindAllStringSubmatch(figure, -1) {
				if m[1] != "overdue" && m[1] != "beyond" {
					bars[m[1]] = m[2]
				}
			}
			for _, m := range row.FindAllStringSubmatch(figure, -1) {
				rows[m[1]] = m[2]
			}
			if len(bars) == 0 || fmt.Sprint(bars) != fmt.Sprint(rows) {
				t.Errorf("%s: bars %v, rows %v", path, bars, rows)
			}
		}
	}
}

func TestColumns(t *testing.T) {
	f := &frame{call: &call{look: look{language: &language{texts: map[string]string{}}}}}
	k := columns{
		edges: make([]time.Time, 4), label: func(i int) string { return fmt.Sprint(i) }, around: true,
		series: []series{{hue: 1, counts: []int64{1, 0, 100}, beyond: 5000}, {hue: 2, counts: []int64{3, 0, 0}}},
	}
	c := f.draw(k)
	if c.Total != 104 || c.Beyond != 5000 || len(c.Rows) != 3 {
		t.Errorf("%+v", c)
	}
	height := func(b bar) (h float64) {
		for _, p := range b.Parts {
			h += p.Height
		}
		return h
	}
	if len(c.Bars) != 4 { // overdue, two that are not empty, beyond
		t.Fatalf("%d bars", len(c.Bars))
	}
	if first, third := height(c.Bars[1]), height(c.Bars[2]); len(c.Bars[1].Parts) != 2 || first >= third || third > chartHeight {
		t.Errorf("heights %v and %v", first, third)
	}
	k.log = true
	if l := f.draw(k); height(l.Bars[1]) <= height(c.Bars[1]) {
		t.Error("a logarithmic scale does not lift the small")
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1k", 1234: "1.2k", 99_999: "99k", 2_000_000: "2M", 3_400_000_000: "3.4G"} {
		if got := shortCount(n); got != want {
			t.Errorf("shortCount(%d) is %s, want %s", n, got, want)
		}
	}
}

// The days of the page Now are those of the time zone in which the page shows times, in UTC and
// east and west of it.
func TestDaysOfTheLook(t *testing.T) {
	r := newRig(t, nil) // noon of 2026-11-22 UTC
	r.push("t", "a", 8*time.Hour)
	r.push("t", "b", 14*time.Hour)
	for zone, want := range map[string][]string{
		"UTC":              {"Sun 2026-11-22", "Mon 2026-11-23"},
		"Asia/Shanghai":    {"Mon 2026-11-23"},
		"America/New_York": {"Sun 2026-11-22"},
	} {
		text := r.counted("/?zone=" + zone)
		for _, day := range []string{"Sun 2026-11-22", "Mon 2026-11-23"} {
			if got, want := strings.Contains(text, day), slices.Contains(want, day); got != want {
				t.Errorf("in %s the table has %s: %v, want %v", zone, day, got, want)
			}
		}
	}
}

// On the day on which clocks go forward, the page Week marks an hour as lacking. On the day on
// which they go back, one cell has the messages of two hours. In a zone of half hours, messages are
// counted in the hours of that zone.
func TestWeekWithChangedClocks(t *testing.T) {
	for _, c := range []struct {
		now    time.Time
		at     []time.Time
		hour   string
		marker string
	}{
		{
			time.Date(2027, 10, 30, 12, 0, 0, 0, time.UTC),
			[]time.Time{time.Date(2027, 10, 31, 0, 30, 0, 0, time.UTC), time.Date(2027, 10, 31, 1, 30, 0, 0, time.UTC)},
			"Sun 10-31 02:00: 2", "this hour comes twice",
		},
		{
			time.Date(2027, 3, 27, 12, 0, 0, 0, time.UTC),
			[]time.Time{time.Date(2027, 3, 28, 1, 30, 0, 0, time.UTC)},
			"Sun 03-28 03:00: 1", "this hour is skipped",
		},
	} {
		r := newRig(t, nil)
		r.clock.Set(c.now)
		for i, at := range c.at {
			r.push("t", fmt.Sprint(i), 0, func(m *punctual.NewMessage) { m.Due = at })
		}
		r.push("t", "far", 200*time.Hour)
		text := r.counted("/week?zone=Europe/Berlin")
		if strings.Count(text, c.hour) == 0 || strings.Count(text, c.marker) != 2 || !strings.Contains(text, fmt.Sprintf("%d messages due within seven days", len(c.at))) {
			t.Errorf("no cell %q, or no mark %q", c.hour, c.marker)
		}
	}
	r := newRig(t, nil)
	r.push("t", "half", 20*time.Minute) // 12:20 is 17:50 in India
	r.push("t", "next", 40*time.Minute)
	if text := r.counted("/week?zone=Asia/Kolkata"); !strings.Contains(text, "Sun 11-22 17:00: 1") || !strings.Contains(text, "Sun 11-22 18:00: 1") {
		t.Error("a zone of half hours is counted by the wrong hours")
	}
}

func TestHistory(t *testing.T) {
	r := newRig(t, nil)
	r.push("t", "m", time.Minute)
	r.clock.Advance(time.Minute)
	ds, err := r.store.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 1})
	if err != nil || len(ds) != 1 {
		t.Fatal(err)
	}
	r.clock.Advance(time.Second)
	if _, err := r.store.Settle(t.Context(), []punctual.Settlement{{Topic: "t", ID: "m", Token: ds[0].Token, Verb: punctual.SettleRetry, Delay: time.Hour, Error: "boom"}}); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(time.Second)
	m := r.message("t", "m")
	var kinds []string
	for _, e := range history(&m, r.clock.Now()) {
		kinds = append(kinds, e.Kind)
	}
	if got := strings.Join(kinds, " "); got != "pushed due failed now again" {
		t.Errorf("the history is %q", got)
	}
}

func TestBodies(t *testing.T) {
	for body, kinds := range map[string]string{`{"a":1}`: "json text hex", "plain": "text hex", "\xff\x00": "hex", "": "text hex"} {
		if got := strings.Join(bodyAs([]byte(body), "").Kinds, " "); got != kinds {
			t.Errorf("%q can be shown as %s, want %s", body, got, kinds)
		}
	}
	if v := bodyAs([]byte(`{"n":12345678901234567890}`), "json"); !strings.Contains(v.Text, "12345678901234567890") {
		t.Error("a large number is damaged: " + v.Text)
	}
	long := []byte(strings.Repeat("é", shownBody))
	for _, kind := range []string{"text", "hex"} {
		if v := bodyAs(long, kind); !v.Cut || len(v.Text) > 5*shownBody || strings.Contains(v.Text, `\x`) {
			t.Errorf("a long body as %s: %d bytes, cut %t", kind, len(v.Text), v.Cut)
		}
	}
}

// Fields for date and time are as wide as a browser needs to show them, so that two of them in a
// form never overlap: the columns of their form wrap instead of shrinking them.
func TestDateFieldsWrap(t *testing.T) {
	style := styleOf(t)
	if rule := regexp.MustCompile(`(?m)^ *\.card \.pair \{.*\}$`).FindAllString(style, -1); len(rule) != 1 || !strings.Contains(rule[0], "repeat(auto-fit, minmax(min(100%, 16.5rem), 1fr))") {
		t.Errorf("two fields for date and time share a line that may be too narrow for them: %q", rule)
	}
	if rule := regexp.MustCompile(`(?m)^\.filter, .*\}$`).FindString(style); !strings.Contains(rule, "flex-wrap: wrap") {
		t.Errorf("the fields of a filter do not wrap: %q", rule)
	}
}

// A table that scrolls to the side has a shadow at its right edge, which a layer that scrolls with
// the table covers at its end. The cells of the head have no ground of their own, because it would
// hide the shadow.
func TestWideTablesShowThatTheyScroll(t *testing.T) {
	style := styleOf(t)
	if !regexp.MustCompile(`(?m)^\.wide \{ background: linear-gradient\(to left, var\(--sheet\) .*\) right / \d+px 100% no-repeat local, linear-gradient\(.*\) right / \d+px 100% no-repeat scroll, var\(--sheet\); \}$`).MatchString(style) {
		t.Error("a table that scrolls has no shadow at its right edge")
	}
	if head := regexp.MustCompile(`(?m)^thead th \{.*\}$`).FindString(style); head == "" || strings.Contains(head, "background") {
		t.Errorf("the head of a table hides the shadow: %q", head)
	}
}

// The text in each cell of the page Week has a contrast of at least 4.5 to its ground, in both
// themes.
func TestContrastOfWeek(t *testing.T) {
	style := styleOf(t)
	cell := regexp.MustCompile(`(?m)^\.l(\d) \{ background-color: var\(--(\w+)\);(?: color: var\(--([\w-]+)\);)? \}$`).FindAllStringSubmatch(style, -1)
	if len(cell) != 1+weekLevels {
		t.Fatalf("%d shades, want %d", len(cell), 1+weekLevels)
	}
	themes := regexp.MustCompile(`(?s):root[^{]*\{\s*color-scheme: (\w+);.*?\}`).FindAllStringSubmatch(style, -1)
	if len(themes) != 3 {
		t.Fatalf("%d themes, want light, dark, and dark by the system", len(themes))
	}
	luminance := func(theme, name string) (l float64) {
		m := regexp.MustCompile(`--` + name + `: #(\w\w)(\w\w)(\w\w);`).FindStringSubmatch(theme)
		if m == nil {
			t.Fatalf("a theme lacks the colour %s", name)
		}
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			n, err := strconv.ParseUint(m[1+i], 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			v := float64(n) / 255
			if v <= 0.04045 {
				l += weight * v / 12.92
			} else {
				l += weight * math.Pow((v+0.055)/1.055, 2.4)
			}
		}
		return l
	}
	for _, theme := range themes {
		for _, m := range cell {
			text, ground := luminance(theme[0], cmp.Or(m[3], "ink")), luminance(theme[0], m[2])
			if ratio := (max(text, ground) + 0.05) / (min(text, ground) + 0.05); ratio < 4.5 {
				t.Errorf("%s, level %s: contrast %.2f", theme[1], m[1], ratio)
			}
		}
	}
}

// counted is a store that counts the calls of some of its methods, and fails these calls while
// broken is set.
type counted struct {
	punctual.Store
	punctual.Inspector
	calls     atomic.Int64
	forecasts atomic.Int64 // calls of Forecast, also counted in calls
	broken    atomic.Bool
}

var errBroken = fmt.Errorf("connection refused: %w", punctual.ErrUnreachable)

func (s *counted) call() error {
	s.calls.Add(1)
	if s.broken.Load() {
		return errBroken
	}
	return nil
}

func (s *counted) Now(ctx context.Context) (time.Time, error) {
	return callOf(s, func() (time.Time, error) { return s.Store.Now(ctx) })
}

func (s *counted) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	return callOf(s, func() ([]punctual.TopicStats, error) { return s.Inspector.Topics(ctx) })
}

func (s *counted) List(ctx context.Context, q punctual.ListQuery) (punctual.Page, error) {
	return callOf(s, func() (punctual.Page, error) { return s.Inspector.List(ctx, q) })
}

func (s *counted) Get(ctx context.Context, topic, id string) (punctual.Info, error) {
	return callOf(s, func() (punctual.Info, error) { return s.Inspector.Get(ctx, topic, id) })
}

func (s *counted) Stats(ctx context.Context, topic string) (punctual.TopicStats, error) {
	return callOf(s, func() (punctual.TopicStats, error) { return s.Inspector.Stats(ctx, topic) })
}

func (s *counted) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	return callOf(s, func() (punctual.Settings, error) { return s.Inspector.Settings(ctx, topic) })
}

func (s *counted) Forecast(ctx context.Context, q punctual.ForecastQuery) (punctual.Forecast, error) {
	s.forecasts.Add(1)
	return callOf(s, func() (punctual.Forecast, error) { return s.Inspector.Forecast(ctx, q) })
}

func callOf[T any](s *counted, do func() (T, error)) (T, error) {
	if err := s.call(); err != nil {
		var none T
		return none, err
	}
	return do()
}

func newCounted(t *testing.T) (*rig, *counted) {
	t.Helper()
	below := newRig(t, nil)
	s := &counted{Store: below.store, Inspector: below.store}
	return rigOver(t, s, below.store, below.clock, nil), s
}

// A page costs a bounded number of calls of the store, however many topics and messages there are.
func TestPagesCostFewCalls(t *testing.T) {
	r, s := newCounted(t)
	for i := range 500 {
		r.push(fmt.Sprintf("topic-%03d", i), "m", time.Duration(i)*time.Minute)
		r.kill(fmt.Sprintf("topic-%03d", i), "no", "dead")
	}
	for path, most := range map[string]int64{
		"/topics": 3 + pageRows, "/topics/topic-007": 7, "/topics/topic-007/settings": 6, "/topics/topic-007/schedules": 6, "/schedules": 4, "/topics/topic-007/messages/m": 3, "/week": 4, "/find": 2, "/dead": 2 + deadTopics,
		"/topics/topic-007?state=dead": 8, "/?from=2026-11-22T12:10:00Z&to=2026-11-22T12:20:00Z": 2 + 20 + 20 + betweenTopics, "/find?id=m&stay=1": 503,
	} {
		before := s.calls.Load()
		own := rigOver(t, s, r.store, r.clock, nil)
		own.page(path)
		if err := own.console.Close(); err != nil { // the calls that the console makes in the background count, too
			t.Error(err)
		}
		if n := s.calls.Load() - before; n > most {
			t.Errorf("GET %s costs %d calls of the store, want at most %d", path, n, most)
		}
	}
	r.page("/")
	before, began := s.calls.Load(), time.Now()
	for range 100 {
		r.page("/fragment")
	}
	// An overview costs two calls and all pictures 20. Their answers are used for at least a
	// second.
	if n := s.calls.Load() - before; n > 22*(2+int64(time.Since(began)/time.Second)) {
		t.Errorf("a hundred looks at once cost %d calls of the store", n)
	}
}

// When the store fails, the first page shows its old values and says why there is nothing newer;
// another page says what failed. When the store answers again, the first page is no longer old.
func TestStoreThatFails(t *testing.T) {
	r, s := newCounted(t)
	r.push("t", "m", time.Hour)
	r.page("/")
	s.broken.Store(true)
	a := r.get("/topics/t")
	if a.Code != 503 || !strings.Contains(a.text, "connection refused") || !strings.Contains(a.text, "unreachable") {
		t.Errorf("a page of a store that fails: %d", a.Code)
	}
	deadline := time.Now().Add(2 * time.Minute)
	for !strings.Contains(r.page("/"), "Nothing newer: ") {
		if time.Now().After(deadline) {
			t.Fatal("the first page does not say that it is old")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if text := r.page("/"); !strings.Contains(text, "asof old") || !strings.Contains(text, "is not known") {
		t.Error("the first page shows old values as new")
	}
	s.broken.Store(false)
	for strings.Contains(r.page("/"), "asof old") {
		if time.Now().After(deadline) {
			t.Fatal("the first page stays old")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A store without an Inspector has few pages. The others, and the first page, say that the store
// cannot be inspected.
func TestStoreThatCannotBeInspected(t *testing.T) {
	below := newRig(t, nil)
	r := rigOver(t, struct{ punctual.Store }{below.store}, below.store, below.clock, nil)
	for _, path := range []string{"/topics", "/topics/t", "/dead", "/find", "/week", "/topics/t/messages/m"} {
		if a := r.get(path); a.Code != 422 || !strings.Contains(a.text, "cannot be inspected") {
			t.Errorf("GET %s: %d", path, a.Code)
		}
	}
	if text := r.page("/"); !strings.Contains(text, "cannot be inspected") {
		t.Error("the first page does not say what is lacking")
	}
}

// counted returns a page once the store has counted everything that the page shows.
func (r *rig) counted(path string) string {
	r.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		text := r.page(path)
		if !strings.Contains(text, "still counting") {
			return text
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s is never counted", path)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A bar leads to the topics that have messages in its step, and to no others.
func TestWhatABarLeadsTo(t *testing.T) {
	r := newRig(t, nil)
	for i := range 9 { // more topics than a picture draws one by one
		r.push(fmt.Sprint("in-", i), "m", 90*time.Minute)
		r.push(fmt.Sprint("in-", i), "soon", time.Minute)
		r.push(fmt.Sprint("out-", i), "m", 30*time.Minute)
	}
	_, table, _ := strings.Cut(r.counted("/?span=48h&from=2026-11-22T13:00:00Z&to=2026-11-22T14:00:00Z"), `id="between"`)
	rows := regexp.MustCompile(`state=scheduled&amp;to=[^"]*">([^<]*)</a></td><td class="n">([^<]*)</td>`).FindAllStringSubmatch(table, -1)
	if len(rows) != 9 {
		t.Errorf("the bar leads to %d topics, want 9", len(rows))
	}
	for _, m := range rows {
		if !strings.HasPrefix(m[1], "in-") || m[2] != "1" {
			t.Errorf("%s has %s messages in the hour, want 1 of those that begin with in-", m[1], m[2])
		}
	}
}
