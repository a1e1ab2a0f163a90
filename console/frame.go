package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// frame is what all pages share. The struct of a page embeds it, so that templates can call its
// methods.
type frame struct {
	call *call
	// Page is the name of the page and of its template. The catalogue has the title of the page
	// under Page followed by ".title".
	Page string
	// Subject stands in the title before the page's name, such as the name of a topic.
	Subject string
	// Now is the store's clock when the numbers of the page were read; AsOf shows it. Counts that
	// several requests share were read before the request. On a page that does not ask the store
	// for the time, Now is the clock of this machine.
	Now time.Time
	// Stale says why the page shows old values, or is "".
	Stale string
	// Still is true if no part of the page is renewed although its route is live, for instance
	// because each renewal would take long.
	Still bool
	// Partial is true while there are no counts that may be shown, for instance until the store's
	// first count has ended. Counted is when the numbers were counted if that was at least
	// oldCounts before Now, otherwise zero.
	Partial bool
	Counted time.Time
}

func (c *call) frame(page string) *frame { return &frame{call: c, Page: page, Now: time.Now()} }

// Lang returns the code of the page's language, such as "en".
func (f *frame) Lang() string { return f.call.look.language.code }

// Theme returns "light", "dark", or "" for the theme of the reader's system.
func (f *frame) Theme() string { return f.call.look.theme }

// Zone returns the name of the time zone in which the page shows times.
func (f *frame) Zone() string { return f.call.look.zone.String() }

// Languages returns the languages of the console.
func (f *frame) Languages() []choice {
	var all []choice
	for _, l := range f.call.console.languages {
		all = append(all, choice{Value: l.code, Text: l.name, Chosen: l == f.call.look.language})
	}
	return all
}

// choice is an option that a page offers. Value is a value of a form or the path of a link.
type choice struct {
	Value, Text string
	Chosen      bool
}

// choices returns a choice for each value, with the text of the catalogue whose key is prefix and
// the value.
func (c *call) choices(prefix string, values []string, chosen ...string) (all []choice) {
	for _, v := range values {
		all = append(all, choice{Value: v, Text: c.look.language.text(prefix + v), Chosen: slices.Contains(chosen, v)})
	}
	return all
}

// stateChoices returns the choices of a field for a state.
func (c *call) stateChoices(chosen string) []choice {
	return c.choices("state.", []string{"scheduled", "ready", "leased", "dead"}, chosen)
}

// Version returns Options.Version, which the foot of the page shows.
func (f *frame) Version() string { return f.call.console.options.Version }

// User returns the name of the principal of the request, or "" if the principal is not known. The
// name localUser is translated.
func (f *frame) User() string {
	if name := f.call.user(); name != localUser {
		return name
	}
	return f.call.look.language.text("who.local")
}

// localUser is the principal's name when everybody on this machine may use the console without a
// login. The audit log has this name in every language, and pages translate it.
const localUser = "this machine"

// CSRF returns the token that every form carries whose method is POST.
func (f *frame) CSRF() string { return f.call.csrfToken() }

// Here returns the path of the page, and its query unless the request is a POST, for links and
// forms that lead back to the page.
func (f *frame) Here() string {
	here := f.call.pagePath()
	if q := f.call.r.URL.RawQuery; q != "" && f.call.r.Method != http.MethodPost {
		here += "?" + q
	}
	return here
}

// Fragment returns the path from which the script renews a part of the page, or "" if no part is
// renewed.
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

// Path returns a path of the console, such as /topics, with the prefix.
func (f *frame) Path(path string) string { return f.call.console.options.Prefix + path }

// TopicPath returns the path of a topic's page, followed by the segments of rest.
func (f *frame) TopicPath(topic string, rest ...string) string {
	return f.Path(strings.TrimPrefix(wire.TopicPath(topic, rest...), apiVersion))
}

// MessagePath returns the path of a message's page, followed by the segments of rest.
func (f *frame) MessagePath(topic, id string, rest ...string) string {
	return f.Path(strings.TrimPrefix(wire.MessagePath(topic, id, rest...), apiVersion))
}

// apiVersion is the beginning of the paths of topics and messages in the HTTP interface. Without it
// they are the paths of the same topics and messages in the console.
const apiVersion = wire.PathInfo

// noteCounts sets Now to asOf, Partial, and Counted if counted is at least oldCounts before asOf.
func (f *frame) noteCounts(asOf, counted time.Time, partial bool) {
	f.Now, f.Partial = asOf, partial
	if !partial && asOf.Sub(counted) >= oldCounts {
		f.Counted = counted
	}
}

// oldCounts is the age from which a page says how old its counts are.
const oldCounts = 10 * time.Second

// Known writes a count with separators between its thousands, or … while the page is Partial.
func (f *frame) Known(n int64) string {
	if f.Partial {
		return "…"
	}
	return f.Count(n)
}

// Count writes a number with separators between its thousands.
func (f *frame) Count(n int64) string { return overview.Grouped(n) }

// May reports whether the reader of the page may do an action, such as "amend", to a topic, so that
// templates can leave out buttons whose forms would be refused.
func (f *frame) May(action, topic string) bool {
	a, err := access.ParseActions(action)
	return err == nil && f.call.may(a, topic) == nil
}

// MayPush reports whether the principal may push to some topic.
func (f *frame) MayPush() bool { return f.call.who.AllowsSomewhere(access.Push) }

// Typed returns the fields of the form that was refused, nil without one.
func (f *frame) Typed() url.Values {
	if f.call.problem == nil {
		return nil
	}
	return f.call.form
}

// PushOpen reports whether the form that pushes a message is shown open: a link asks for it, or the
// form was refused.
func (f *frame) PushOpen() bool { return f.call.get("push") != "" || f.Typed().Has("body") }

// Brief writes a count in few characters, such as 12k.
func (f *frame) Brief(n int64) string { return shortCount(n) }

// OnTab reports whether the page belongs to a tab of the navigation. The pages of a topic and of a
// message belong to "topics", those of a schedule to "schedules".
func (f *frame) OnTab(tab string) bool {
	ofSchedule := strings.HasPrefix(f.Page, "schedule")
	switch {
	case tab == "topics" && f.call.path["topic"] != "":
		return !ofSchedule
	case tab == "schedules":
		return ofSchedule
	}
	return f.Page == tab
}

// Bare reports whether the page is shown without the navigation: the login page, and an error page
// for a request whose principal is not known.
func (f *frame) Bare() bool { return f.Page == "login" || f.call.who == nil }

// Zones returns the time zones that the field for a time zone suggests.
func (f *frame) Zones() []string { return knownZones() }

// Problem returns why a form was refused or the page could not be made, or nil.
func (f *frame) Problem() *problem {
	if f.call.problem == nil {
		return nil
	}
	return &problem{
		Code: storekit.ErrorCode(f.call.problem), Status: f.call.status(), Detail: visible(f.call.problem.Error()),
		Definite: punctual.Definite(f.call.problem),
	}
}

// fieldError says what is wrong with one field of a form.
type fieldError struct {
	field string
	error
}

func (e *fieldError) Unwrap() error { return e.error }

// inField returns err as what is wrong with a field, nil for nil.
func inField(field string, err error) error {
	if err == nil {
		return nil
	}
	return &fieldError{field, err}
}

// Wrong returns what is wrong with a field of the form that pushes or edits a message, if that form
// was refused because of the field, otherwise "". The form has a body, and the other forms of the
// same pages have none.
func (f *frame) Wrong(field string) string {
	var e *fieldError
	if !f.call.form.Has("body") || !errors.As(f.call.problem, &e) || e.field != field {
		return ""
	}
	return visible(e.Error())
}

// problem is an error as a page shows it.
type problem struct {
	Code     string
	Status   int
	Detail   string
	Definite bool
}
