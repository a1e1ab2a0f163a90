package console

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// manyDead makes n dead messages. One in ten has the error "rare", one in ten "often 1", the others
// "often 2".
func (r *rig) manyDead(topic string, n int) {
	r.t.Helper()
	for part := 0; part < n; part += limits.MaxBatch {
		ms := make([]punctual.NewMessage, min(limits.MaxBatch, n-part))
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: topic, ID: fmt.Sprintf("m%06d", part+i)}
		}
		if _, err := r.store.Push(r.t.Context(), ms); err != nil {
			r.t.Fatal(err)
		}
		ds, err := r.store.Claim(r.t.Context(), punctual.Claim{Topics: []string{topic}, Max: len(ms)})
		if err != nil || len(ds) != len(ms) {
			r.t.Fatal(err, len(ds))
		}
		ss := make([]punctual.Settlement, len(ds))
		for i, d := range ds {
			text := []string{"rare", "often 1\ndetail", "often 2"}[min(2, (part+i)%10)]
			ss[i] = punctual.Settlement{Topic: topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleDiscard, Error: text}
		}
		if _, err := r.store.Settle(r.t.Context(), ss); err != nil {
			r.t.Fatal(err)
		}
		r.clock.Advance(time.Second)
	}
}

func TestDeathFilter(t *testing.T) {
	dead := func(texts ...string) *punctual.Info {
		m := &punctual.Info{}
		for _, text := range texts {
			m.Failures = append(m.Failures, punctual.Failure{Error: text})
		}
		return m
	}
	long := strings.Repeat("é", 200)
	for _, c := range []struct {
		m     *punctual.Info
		text  string
		whole bool
		keeps bool
	}{
		{dead("a", "503 busy\nstack"), "busy", false, true},
		{dead("a", "503 busy\nstack"), "stack", false, true},
		{dead("a", "503 busy"), "a", false, false},
		{dead("503 busy\nstack"), "503 busy", true, true},
		{dead("503 busy\nstack"), "503", true, false},
		{dead("  503 busy \r\n"), "503 busy", true, true},
		{dead(), "", true, true},
		{dead("x"), "", true, false},
		{dead(), "x", false, false},
		{dead(), "", false, true},
		{dead("a\u202Eb"), `a\u202Eb`, true, true},
		{dead("a\u202Eb"), `\u202E`, false, true},
		{dead(long), lastError(dead(long)), true, true},
	} {
		if got := (deathFilter{c.text, c.whole}).keeps(c.m); got != c.keeps {
			t.Errorf("%q, whole %t, keeps %+v: %t", c.text, c.whole, c.m.Failures, got)
		}
	}
	if text := lastError(dead(long)); strings.Contains(text, `\x`) || len(text) > 170 {
		t.Errorf("a long error is cut within a character: %s", text)
	}
}

var (
	groupLink = regexp.MustCompile(`<td class="n">([0-9]+)</td>\s*<td><a class="chip"[^>]*>[^<]*</a></td>\s*<td class="error"><a href="([^"]*)">([^<]*)</a>`)
	hidden    = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
)

// requeueForm returns the hidden fields, but for the token against forged requests, of the form on
// a page that requeues the messages of the page's list.
func requeueForm(t *testing.T, page string) url.Values {
	t.Helper()
	_, form, ok := strings.Cut(page, `<form method="post" action="/topics/pay/bulk">`)
	if !ok {
		t.Fatal("the page has no form that requeues")
	}
	form, _, _ = strings.Cut(form, "</form>")
	fields := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(form, -1) {
		if m[1] != "csrf" {
			fields.Set(m[1], strings.NewReplacer("&amp;", "&", "&#43;", "+", "&#34;", `"`).Replace(m[2]))
		}
	}
	return fields
}

// A group of dead messages is listed to its last message, exported and requeued, and no other
// message is.
func TestGroupOfTheDead(t *testing.T) {
	r := newRig(t, nil)
	r.console.scanFor = time.Hour // however slow the machine is
	r.manyDead("pay", 1000)
	groups := groupLink.FindAllStringSubmatch(r.page("/topics/pay?state=dead"), -1)
	if len(groups) != 3 || groups[2][3] != "often 1" && groups[1][3] != "often 1" {
		t.Fatalf("the groups are %q", groups)
	}
	for _, g := range groups {
		if g[3] != "rare" {
			continue
		}
		page := r.page(strings.ReplaceAll(g[2], "&amp;", "&"))
		if !strings.Contains(page, "Looked at 491 messages of pay") || !strings.Contains(page, `data-from=""`) {
			t.Error("the list does not say how far it looked, or is renewed")
		}
		listed := make(map[string]bool)
		for path := ""; ; page = r.page(path) {
			for _, m := range regexp.MustCompile(`<tr id="m-(m[0-9]*)">`).FindAllStringSubmatch(page, -1) {
				if listed[m[1]] || !strings.HasSuffix(m[1], "0") {
					t.Errorf("%s is listed a second time, or is of another group", m[1])
				}
				listed[m[1]] = true
			}
			next := regexp.MustCompile(`href="([^"]*)" rel="next"`).FindStringSubmatch(page)
			if next == nil {
				break
			}
			path = strings.ReplaceAll(next[1], "&amp;", "&")
		}
		if len(listed) != 100 {
			t.Errorf("%d messages of the group are listed, want 100", len(listed))
		}
		export := regexp.MustCompile(`href="([^"]*)" download`).FindStringSubmatch(page)
		if lines := strings.Count(r.get(strings.ReplaceAll(export[1], "&amp;", "&")).text, "\n"); lines != 100 {
			t.Errorf("the export of the group has %d lines, want 100", lines)
		}
		r.kill("pay", "very rare", "other") // which a filter by a part of the text would keep
		form := requeueForm(t, page)
		form.Set("spread", "10m")
		if text := wordsOf(r.page(r.bulk("pay", form))); !strings.Contains(text, "Requeued 100 / 100") || !strings.Contains(text, "Last error is rare") {
			t.Errorf("the requeue of the group: %s", text)
		}
	}
	stats, err := r.store.Stats(t.Context(), "pay")
	if err != nil || stats.Dead != 901 || stats.Live() != 100 || r.message("pay", "m000001").State != punctual.StateDead {
		t.Errorf("%+v, %v", stats, err)
	}
	if text := wordsOf(r.page(r.bulk("pay", url.Values{"run": {"1"}, "change": {"requeue"}, "error": {"detail"}}))); !strings.Contains(text, "Requeued 100 / 100") {
		t.Errorf("by a text in the error: %s", text)
	}
	if a := r.get("/topics/pay?state=dead&error=" + strings.Repeat("x", 2000)); a.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a text of 2,000 bytes: %d", a.Code)
	}
	if !strings.Contains(r.page("/audit"), "error detail") {
		t.Error("the log does not say which were requeued")
	}
}
