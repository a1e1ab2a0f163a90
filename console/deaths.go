package console

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/punctualmq/punctual"
)

// deathFilter keeps the dead messages whose last error has a text. A store cannot look for that, so it is looked for in the list.
type deathFilter struct {
	Text string
	// Whole tells that the text is all that a group shows of the error; no text then keeps those without an error.
	Whole bool
}

// matchWhole is the value of the field "match" for a whole text.
const matchWhole = "is"

// maxErrorText bounds the text that is looked for, in bytes.
const maxErrorText = 1000

// deathFilter reads the fields of the form.
func (c *call) deathFilter() (deathFilter, error) {
	f := deathFilter{Text: c.get("error"), Whole: c.get("match") == matchWhole}
	if len(f.Text) > maxErrorText {
		return f, fmt.Errorf("the text of the error has %d bytes: use at most %d: %w", len(f.Text), maxErrorText, punctual.ErrTooLarge)
	}
	return f, nil
}

// keepsAll tells that nothing is looked for.
func (f deathFilter) keepsAll() bool { return f.Text == "" && !f.Whole }

func (f deathFilter) keeps(m *punctual.Info) bool {
	if f.Whole {
		return lastError(m) == f.Text
	}
	n := len(m.Failures)
	return f.Text == "" || n > 0 && strings.Contains(visible(m.Failures[n-1].Error), f.Text)
}

// String is the filter in the audit log.
func (f deathFilter) String() string {
	switch {
	case f.keepsAll():
		return "any error"
	case f.Whole:
		return fmt.Sprintf("error %q", f.Text)
	}
	return fmt.Sprintf("error with %q", f.Text)
}

// addTo adds the fields to a query.
func (f deathFilter) addTo(q url.Values) {
	if f.Text != "" {
		q.Set("error", f.Text)
	}
	if f.Whole {
		q.Set("match", matchWhole)
	}
}

// lastError is the first line of what went wrong last, as much of it as tells errors apart.
func lastError(m *punctual.Info) string {
	if len(m.Failures) == 0 {
		return ""
	}
	text, _, _ := strings.Cut(m.Failures[len(m.Failures)-1].Error, "\n")
	const most = 160
	if text = strings.TrimSpace(text); len(text) > most {
		end := most
		for !utf8.RuneStart(text[end]) && end > most-utf8.UTFMax {
			end--
		}
		text = text[:end] + "…"
	}
	return visible(text)
}

// scanned is what was found by looking through a list.
type scanned struct {
	found  []punctual.Info
	looked int
	// last is the time of the last message that was looked at, next where the list goes on, if not "".
	last time.Time
	next string
}

// scan looks through a list for what fits: for scanStep messages or a page of rows, and not for long.
func (c *call) scan(ctx context.Context, i punctual.Inspector, q punctual.ListQuery, fits func(*punctual.Info) bool) (s scanned, err error) {
	for end := time.Now().Add(c.console.scanFor); ; {
		q.Limit = scanPage
		page, err := i.List(ctx, q)
		if err != nil {
			return s, err
		}
		if n := lengthWith(page.Messages, fits, pageRows-len(s.found)); n < len(page.Messages) {
			q.Limit = n // more fit than a page of rows has room for
			if page, err = i.List(ctx, q); err != nil {
				return s, err
			}
		}
		for k := range page.Messages {
			if m := &page.Messages[k]; fits(m) {
				s.found = append(s.found, *m)
			}
			s.last = orderTime(&page.Messages[k])
		}
		s.looked += len(page.Messages)
		s.next, q.After = page.Next, page.Next
		if s.next == "" || s.looked >= scanStep || len(s.found) >= pageRows || time.Now().After(end) {
			return s, nil
		}
	}
}

// lengthWith is how many of the first messages have n in them that fit; all if fewer fit.
func lengthWith(all []punctual.Info, fits func(*punctual.Info) bool, n int) int {
	for k := range all {
		if fits(&all[k]) {
			if n--; n == 0 {
				return k + 1
			}
		}
	}
	return len(all)
}
