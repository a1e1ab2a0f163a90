package console

import (
	"net/http"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/wire"
)

// frame is what each page has around its own content. The struct of a page embeds it.
type frame struct {
	call *call
	// Page is the name of the page, and of its catalogue key for a title.
	Page string
	// Subject stands in the title before the page's name: a topic, a message.
	Subject string
	// Now is the store's clock when the page was made; AsOf shows it.
	Now time.Time
	// Stale says why the page shows old values, or nothing.
	Stale string
	// Still tells that no part of the page is renewed, since that would take long.
	Still bool
	// Partial tells that the store is counting, and Counted when what a page shows was counted, if that is long ago.
	Partial bool
	Counted time.Time
}

func (c *call) frame(page string) *frame { return &frame{call: c, Page: page, Now: time.Now()} }

// Lang, Theme and Zone are how the page looks.
func (f *frame) Lang() string { return f.call.look.language.code }

// Theme is "light", "dark" or "".
func (f *frame) Theme() string { return f.call.look.theme }

// Zone is the name of the time zone of all times.
func (f *frame) Zone() string { return f.call.look.zone.String() }

// Languages are what the page could be read in.
func (f *frame) Languages() []choice {
	var all []choice
	for _, l := range f.call.console.languages {
		all = append(all, choice{Value: l.code, Text: l.name, Chosen: l == f.call.look.language})
	}
	return all
}

// choice is one of several.
type choice struct {
	Value, Text string
	Chosen      bool
}

// Version is that of the program.
func (f *frame) Version() string { return f.call.console.options.Version }

// User is who is logged in, or "".
func (f *frame) User() string {
	if name := f.call.user(); name != localUser {
		return name
	}
	return f.call.look.language.text("who.local")
}

// localUser is who is on this machine, where nobody logs in. The audit log has that name in every language.
const localUser = "this machine"

// CSRF is the token of forms.
func (f *frame) CSRF() string { return f.call.csrfToken() }

// Here is the path and query of the page, for the way back to it.
func (f *frame) Here() string {
	here := f.call.pagePath()
	if q := f.call.r.URL.RawQuery; q != "" && f.call.r.Method != http.MethodPost {
		here += "?" + q
	}
	return here
}

// Fragment is where the part of the page that changes is renewed from; "" when the page has none.
func (f *frame) Fragment() string {
	if f.call.route == nil || !f.call.route.live || f.Still {
		return ""
	}
	path, query, _ := strings.Cut(strings.TrimPrefix(f.Here(), f.Path("")), "?")
	if path = "/fragment" + strings.TrimSuffix(path, "/"); query != "" {
		path += "?" + query
	}
	return f.Path(path)
}

// Path is a path of the console, such as /topics.
func (f *frame) Path(path string) string { return f.call.console.options.Prefix + path }

// TopicPath is the path of a topic, with what is asked of it behind.
func (f *frame) TopicPath(topic string, rest ...string) string {
	return f.Path(strings.TrimPrefix(wire.TopicPath(topic, rest...), apiVersion))
}

// MessagePath is the path of a message, with what is asked of it behind.
func (f *frame) MessagePath(topic, id string, rest ...string) string {
	return f.Path(strings.TrimPrefix(wire.MessagePath(topic, id, rest...), apiVersion))
}

// apiVersion is what the paths of the HTTP interface begin with. Those of the console are the same behind it.
const apiVersion = wire.PathInfo

// noteCounts notes as of when the counts of the page are.
func (f *frame) noteCounts(asOf, counted time.Time, partial bool) {
	f.Now, f.Partial = asOf, partial
	if !partial && asOf.Sub(counted) >= oldCounts {
		f.Counted = counted
	}
}

// oldCounts is how old counts are whose age is told.
const oldCounts = 10 * time.Second

// Known is a count of what a page does not know before the store has counted.
func (f *frame) Known(n int64) string {
	if f.Partial {
		return "…"
	}
	return f.Count(n)
}

// Count is a number with its thousands apart.
func (f *frame) Count(n int64) string { return thousands(n) }

// May tells whether who looks at the page may do what the word of an action says to a topic. Buttons that would be refused are not shown.
func (f *frame) May(action, topic string) bool {
	a, err := access.ParseActions(action)
	return err == nil && f.call.may(a, topic) == nil
}

// Brief is a count in few characters.
func (f *frame) Brief(n int64) string { return shortCount(n) }

// OnTab tells whether the page is in the part of the console that a tab names.
func (f *frame) OnTab(tab string) bool {
	return f.Page == tab || tab == "topics" && (f.Page == "topic" || f.Page == "message")
}

// Zones are the time zones that a field suggests.
func (f *frame) Zones() []string { return knownZones() }

// Problem is why the form was refused, or the page could not be made; nil if neither.
func (f *frame) Problem() *problem {
	if f.call.problem == nil {
		return nil
	}
	return &problem{
		Code: punctual.ErrorCode(f.call.problem), Status: f.call.status(), Detail: visible(f.call.problem.Error()),
		Definite: punctual.Definite(f.call.problem),
	}
}

// problem is an error as a page shows it.
type problem struct {
	Code     string
	Status   int
	Detail   string
	Definite bool
}
