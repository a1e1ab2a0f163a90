package console

import (
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/punctualmq/punctual"
)

// deathFilter selects dead messages by the text of their last error. A store cannot search for such
// a text, so the console reads the list and filters it.
type deathFilter struct {
	Text string
	// With Whole the filter selects the messages for which lastError returns exactly Text, and with
	// an empty Text those without an error. Without Whole the last error has to contain Text.
	Whole bool
}

// matchWhole is the value of the form's field "match" for deathFilter.Whole.
const matchWhole = "is"

// maxErrorText bounds deathFilter.Text, in bytes.
const maxErrorText = 1000

// deathFilter reads the filter from the form's fields "error" and "match".
func (c *call) deathFilter() (deathFilter, error) {
	f := deathFilter{Text: c.get("error"), Whole: c.get("match") == matchWhole}
	if len(f.Text) > maxErrorText {
		return f, fmt.Errorf("the text of the error has %d bytes: use at most %d: %w", len(f.Text), maxErrorText, punctual.ErrTooLarge)
	}
	return f, nil
}

// keepsAll reports whether the filter selects every message.
func (f deathFilter) keepsAll() bool { return f.Text == "" && !f.Whole }

func (f deathFilter) keeps(m *punctual.Info) bool {
	if f.Whole {
		return lastError(m) == f.Text
	}
	n := len(m.Failures)
	return f.Text == "" || n > 0 && strings.Contains(visible(m.Failures[n-1].Error), f.Text)
}

// addTo sets the form's fields of the filter in a query.
func (f deathFilter) addTo(q url.Values) {
	if f.Text != "" {
		q.Set("error", f.Text)
	}
	if f.Whole {
		q.Set("match", matchWhole)
	}
}

// lastError returns the first line of a message's last error, by which dead messages are grouped.
// It cuts a longer line after at most 160 bytes and adds "…".
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

// scanned is the result of a scan: found are the messages that fit, looked is how many messages
// were read.
type scanned struct {
	found  []punctual.Info
	looked int
	// last is the time of the last message that was read. next is where the list goes on, or "" at
	// its end.
	last time.Time
	next string
}

// scan reads a list and returns the messages that fit. It stops when it has read scanStep messages
// or found pageRows, and when scanFor is over.
func (c *call) scan(q punctual.ListQuery, fits func(*punctual.Info) bool) (s scanned, err error) {
	for end := time.Now().Add(c.console.scanFor); ; {
		q.Limit = scanPage
		page, err := c.inspector.List(c.r.Context(), q)
		if err != nil {
			return s, err
		}
		if n := lengthWith(page.Messages, fits, pageRows-len(s.found)); n < len(page.Messages) {
			q.Limit = n // the page fills up before its end, so it is read again up to the last row, where the next page has to go on
			if page, err = c.inspector.List(c.r.Context(), q); err != nil {
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

// lengthWith returns the length of the shortest beginning of the slice all that contains n messages
// that fit, or len(all) if fewer fit.
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
