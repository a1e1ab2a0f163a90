package console

import (
	"errors"
	"fmt"
	"html/template"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual/internal/overview"
)

// A cached picture is shown only for the same numbers, and the cache is bounded.
func TestDrawn(t *testing.T) {
	made := func(change func(p *overview.Picture)) *overview.Picture {
		noon := time.Date(2027, 3, 28, 12, 0, 0, 0, time.UTC)
		ahead := func(topic string) *overview.Ahead {
			return &overview.Ahead{AheadQuery: overview.AheadQuery{Topic: topic}, Edges: []time.Time{noon, noon.Add(time.Hour)}, Counts: []int64{3}, Overdue: 1, Beyond: 2}
		}
		p := &overview.Picture{All: ahead(""), Topics: []*overview.Ahead{ahead("a"), ahead("b")}}
		change(p)
		return p
	}
	same := hashOf(made(func(*overview.Picture) {}))
	if same != hashOf(made(func(*overview.Picture) {})) {
		t.Error("equal pictures are not taken for equal")
	}
	for what, change := range map[string]func(p *overview.Picture){
		"a count": func(p *overview.Picture) { p.Topics[1].Counts[0]++ }, "overdue": func(p *overview.Picture) { p.All.Overdue++ }, "beyond": func(p *overview.Picture) { p.All.Beyond++ },
		"a name": func(p *overview.Picture) { p.Topics[0].Topic = "c" }, "a topic": func(p *overview.Picture) { p.Topics = p.Topics[:1] },
		"the time": func(p *overview.Picture) { p.All.Edges[1] = p.All.Edges[1].Add(time.Minute) },
	} {
		if hashOf(made(change)) == same {
			t.Errorf("pictures that differ in %s are taken for equal", what)
		}
	}
	var d drawn
	calls := 0
	for n := range 3 * mostDrawn {
		for range 2 {
			text, err := d.get(drawnKey{span: fmt.Sprint(n)}, func() (template.HTML, error) { calls++; return template.HTML(fmt.Sprint(n)), nil })
			if err != nil || string(text) != fmt.Sprint(n) || len(d.all) > mostDrawn {
				t.Fatalf("picture %d is %q, %v, of %d kept", n, text, err, len(d.all))
			}
		}
	}
	if calls != 3*mostDrawn {
		t.Errorf("%d pictures were drawn, want %d", calls, 3*mostDrawn)
	}
	if _, err := d.get(drawnKey{span: "fails"}, func() (template.HTML, error) { return "", errors.New("no") }); err == nil {
		t.Error("a picture that cannot be drawn is no error")
	}
}

// The first page shows new numbers when there are some, although pictures are cached, and shows
// pictures in the language of the reader.
func TestOpenPageIsRenewed(t *testing.T) {
	r := newRig(t, nil)
	r.push("a", "1", 10*time.Minute)
	first := r.counted("/")
	if again := r.counted("/"); again != first {
		t.Error("the same numbers are another page")
	}
	if chinese := r.page("/?lang=zh-CN"); !strings.Contains(chinese, "未来 60 分钟到期") {
		t.Errorf("the picture is not in the language of who looks: %s", chinese)
	}
	r.push("a", "2", 10*time.Minute)
	for end := time.Now().Add(2 * time.Minute); !strings.Contains(r.page("/"), "12:10: 2"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a picture of old numbers is shown")
		}
	}
}
