package console

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
)

// number returns the value of a field of the form as a whole number, 0 if it is none.
func (c *call) number(name string) int {
	n, err := strconv.Atoi(c.get(name))
	if err != nil {
		return 0
	}
	return n
}

// withQuery returns the page's own path and query with one field changed. An empty value removes
// the field.
func (c *call) withQuery(name, value string) string {
	q := c.r.URL.Query()
	if q.Set(name, value); value == "" {
		q.Del(name)
	}
	path := c.pagePath()
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// pagePath returns the path of the page that is shown. For a fragment that is the page which has
// the fragment, and for a POST the page which has the form (route.page).
func (c *call) pagePath() string {
	path := strings.TrimPrefix(c.r.URL.EscapedPath(), c.console.options.Prefix)
	if c.fragment {
		path = strings.TrimPrefix(path, "/fragment")
	}
	if c.r.Method == http.MethodPost && c.route != nil {
		path = path[:strings.LastIndexByte(path, '/')]
		if c.route.page != "" || path == "" {
			path += "/" + c.route.page
		}
	}
	return c.console.options.Prefix + path
}

// wallClock is the format in which a browser's field for date and time sends its value: a time to
// the second, without a zone.
const wallClock = "2006-01-02T15:04:05"

// instant returns the value of a field that is a time: in RFC 3339, or in the time zone of the page
// as a browser's field sends it or as people write it, such as 2026-11-20 10:00 or 2026-11-20. An
// empty field is the zero time. A time that clocks skip when they go forward is an ErrInvalid.
func (c *call) instant(name string) (time.Time, error) {
	text := c.get(name)
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := notation.ParseTime(text); err == nil {
		return t, nil
	}
	for _, form := range []string{wallClock, "2006-01-02T15:04", "2006-01-02T15:04:05.999", time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		t, err := time.ParseInLocation(form, text, c.look.zone)
		if err != nil {
			continue
		}
		if wall, _ := time.Parse(form, text); form != time.DateOnly && wall.Format(wallClock) != t.Format(wallClock) {
			return time.Time{}, fmt.Errorf("there is no %s in %s: clocks go forward over it, choose another time: %w", text, c.look.zone, punctual.ErrInvalid)
		}
		return t, nil
	}
	return time.Time{}, fmt.Errorf("time %q is not understood: write it like 2026-11-20 10:00 or 2026-11-20T10:00:00Z: %w", text, punctual.ErrInvalid)
}

// window reads the form's fields "from" and "to", as instant does.
func (c *call) window() (from, to time.Time, err error) {
	if from, err = c.instant("from"); err == nil {
		to, err = c.instant("to")
	}
	return from, to, err
}

var errNoTime = fmt.Errorf("neither a time nor a delay is given: use one, such as 30m: %w", punctual.ErrInvalid)

// when reads the fields "in" and "at" of a form, the delay and the due time of a message. At most
// one of them may be given.
func (c *call) when() (due time.Time, delay time.Duration, err error) {
	if due, err = c.instant("at"); err != nil {
		return due, 0, inField("at", err)
	}
	text := c.get("in")
	if text == "" {
		return due, 0, nil
	}
	if !due.IsZero() {
		return due, 0, inField("in", fmt.Errorf("both a time and a delay are given: use one: %w", punctual.ErrInvalid))
	}
	delay, err = notation.ParseDuration(text)
	return due, delay, inField("in", err)
}
