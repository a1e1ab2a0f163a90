package console

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/rigs/rights"
	"github.com/punctualmq/punctual/schedule"
)

var update = flag.Bool("update", false, "write the golden files")

// Every route gives every holder of rights the answer that testdata/rights.txt says. A difference
// is a change of rights. The lines of a new route have to be added to the file with -update.
func TestRights(t *testing.T) {
	tokens, holders := rights.Holders(t)
	r := newRig(t, &Options{LoginByToken: true, Authenticate: tokens.Authenticate})
	r.refill()
	table := rights.NewTable(holders)
	for _, rt := range routes() {
		topics := []string{""}
		if strings.Contains(rt.path, "{topic}") || slices.Contains([]string{"/push", "/week", "/find", "/schedules", "/schedules/new"}, rt.path) {
			topics = []string{rights.Mine, rights.Theirs, rights.Audit}
		}
		name := "daily"
		if rt.path == "/assets/{name}" {
			name = "nothing.css"
		}
		for _, topic := range topics {
			target := strings.NewReplacer("{topic}", topic, "{id}", "m", "{name}", name, "{job}", "none").Replace(rt.path)
			if topic != "" && !strings.Contains(rt.path, "{topic}") && rt.method == http.MethodGet {
				target += "?topic=" + topic
			}
			if rt.path == "/find" {
				target += "&id=m&stay=1"
			}
			form := url.Values{}
			if rt.method == http.MethodPost {
				known, ok := fields()[rt.path]
				if !ok {
					t.Fatalf("the test has no fields for the form of %s", rt.path)
				}
				for name, values := range known {
					form[name] = values
					switch name {
					case "topic", "typed":
						form[name] = []string{topic}
					case "id":
						form[name] = []string{"m"}
					case "was":
						form[name] = []string{contentSum([]byte("body of m"), nil)}
					case "name":
						form[name] = []string{"another"}
					}
				}
			}
			head := strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", rt.method, target, topic)), " ")
			table.Add(head, func(h rights.Holder) string { return r.ask(rt.method, target, form, h) })
		}
	}
	table.Compare(t, "testdata/rights.txt", *update)
}

// refill empties the store, and gives each of the three topics a message that is due later, a dead
// one and a schedule.
func (r *rig) refill() {
	r.t.Helper()
	r.empty()
	for _, topic := range []string{rights.Mine, rights.Theirs, rights.Audit} {
		r.kill(topic, "declined", "dead")
		r.push(topic, "m", time.Hour)
		r.schedule(schedule.Schedule{Topic: topic, Name: "daily", Spec: "@hourly"})
	}
}

// ask sends a request with the token of a holder and returns the answer in words: its status, to
// which topics the page links, whether the store was changed, and whether that was recorded in the
// audit log. If something was changed or recorded, it refills the store.
func (r *rig) ask(method, target string, form url.Values, h rights.Holder) string {
	r.t.Helper()
	before, entries := r.content(), len(r.entries())
	form.Set("csrf", r.console.formKey.token(testBrowser))
	req := httptest.NewRequest(method, target, strings.NewReader(form.Encode()))
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if h.Token != "" {
		req.Header.Set("Authorization", "Bearer "+h.Token)
	}
	a := r.do(req)
	words := []string{fmt.Sprint(a.Code)}
	if to := a.Header().Get("Location"); strings.HasPrefix(to, "/login?") {
		words = append(words, "log in")
	}
	for _, topic := range []string{rights.Mine, rights.Theirs} {
		if a.Code == http.StatusOK && !waits(target) && strings.Contains(a.text, `/topics/`+topic) {
			words = append(words, "links "+topic)
		}
	}
	changed := r.content() != before
	recorded := len(r.entries()) > entries
	if changed {
		words = append(words, "changed")
	}
	if recorded {
		words = append(words, "recorded")
	}
	if changed || recorded {
		r.refill()
	}
	if changed && (a.Code >= 400 || !recorded) {
		r.t.Errorf("%s %s of %q changed the store, was answered with %d and is recorded: %v", method, target, h.Name, a.Code, recorded)
	}
	return strings.Join(words, " ")
}

// waits reports whether a page may be shown before the store has counted what it shows, so that its
// links depend on how quick the count is. Such a page is refused as a whole to those who may not
// inspect its topic, or all topics, so the table need not have its links.
func waits(target string) bool {
	return target == "/" || strings.HasPrefix(target, "/week")
}

// content returns the topics and messages in the store as a text, without the topic of the audit
// log.
func (r *rig) content() string {
	r.t.Helper()
	topics, err := r.store.Topics(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var b strings.Builder
	for _, topic := range topics {
		if topic.Topic == rights.Audit {
			continue
		}
		fmt.Fprintf(&b, "%+v\n", topic)
		for state := punctual.StateScheduled; state <= punctual.StateDead; state++ {
			page, err := r.store.List(r.t.Context(), punctual.ListQuery{Topic: topic.Topic, State: state})
			if err != nil {
				r.t.Fatal(err)
			}
			fmt.Fprintf(&b, "%v: %+v\n", state, page)
		}
	}
	return b.String()
}
