package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// readQuery sets the route's parameters. It refuses unknown parameters, because the client meant
// something by them, parameters that are given twice, and empty ones, because a shell sends those
// for a variable that is not set. A param with mayBeEmpty may be empty.
func (c *call) readQuery() error {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return storekit.Invalidf("query: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		p := c.route.param(inQuery, name)
		switch {
		case p == nil:
			return storekit.Invalidf("parameter %q is not known here: use %s", name, orNone(c.route.queryNames()))
		case len(query[name]) > 1:
			return storekit.Invalidf("parameter %q is given twice", name)
		case query[name][0] == "" && !p.mayBeEmpty:
			return storekit.Invalidf("parameter %q is empty: give a value, or leave it out", name)
		}
	}
	c.query = query
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// readBody reads the whole body before the request is carried out, so that an incomplete request
// changes nothing, and so that net/http notices the end of the connection while a claim waits.
func (c *call) readBody() error {
	s, r := c.server, c.r
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return &refusal{status: http.StatusUnsupportedMediaType, err: storekit.Invalidf("Content-Encoding %q: send the body as it is", e)}
	}
	limit := s.limits.MaxRequest
	switch c.route.body {
	case bodyNone:
		limit = 0
	case bodyMessage:
		limit = s.limits.MaxBody
	}
	if r.ContentLength > limit {
		return c.tooLarge(limit)
	}
	if r.ContentLength == 0 {
		return nil
	}
	control := http.NewResponseController(c.w)
	if err := control.SetReadDeadline(time.Now().Add(s.limits.BodyTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("read the body: %w (%w)", punctual.ErrInvalid, err)
	}
	var b bytes.Buffer
	in := http.MaxBytesReader(c.w, r.Body, limit)
	for left := r.ContentLength; ; left -= bodyStep {
		step := int64(bodyStep) // not all of Content-Length at once, because the bytes may never come
		if r.ContentLength >= 0 {
			step = min(step, max(left, 0))
		}
		if err := c.hold(step); err != nil {
			return err
		}
		c.heldBody += step
		b.Grow(int(step) + bytes.MinRead)
		n, err := io.CopyN(&b, in, bodyStep)
		switch {
		case n == bodyStep && err == nil:
			continue
		case errors.Is(err, io.EOF):
			c.body, c.hasRead = b.Bytes(), true
			if r.ProtoMajor > 1 {
				return nil // in HTTP/2 the deadline is only for this body
			}
			if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
				return fmt.Errorf("read the body: %w (%w)", punctual.ErrInvalid, err)
			}
			return nil
		}
		if tooMany := (*http.MaxBytesError)(nil); errors.As(err, &tooMany) {
			return c.tooLarge(limit)
		}
		return &refusal{status: http.StatusRequestTimeout, header: http.Header{"Connection": {"close"}}, err: fmt.Errorf("the body did not arrive: %w (%w)", punctual.ErrInvalid, err)}
	}
}

// bodyStep is how many bytes of a body are read at a time.
const bodyStep = 64 << 10

func (c *call) tooLarge(limit int64) error {
	header := http.Header{"Connection": {"close"}}
	if limit == 0 {
		return &refusal{header: header, err: storekit.Invalidf("the request has a body: this route takes none, and its parameters stand in the query")}
	}
	return &refusal{header: header, err: fmt.Errorf("the body has more than %d bytes: %w", limit, punctual.ErrTooLarge)}
}

// param returns a parameter of the query, "" if it is not given.
func (c *call) param(name string) string { return c.query.Get(name) }

// duration returns a parameter of the query as a duration, 0 if it is not given.
func (c *call) duration(name string) (time.Duration, error) {
	return wire.ParseDurationText(name, c.param(name))
}

// instant returns a parameter of the query as a time, the zero time if it is not given.
func (c *call) instant(name string) (time.Time, error) {
	return wire.ParseTimeText(name, c.param(name))
}

// span returns the parameters from and to.
func (c *call) span() (from, to time.Time, err error) {
	if from, err = c.instant("from"); err != nil {
		return from, to, err
	}
	to, err = c.instant("to")
	return from, to, err
}

func (c *call) number(name string, otherwise int) (int, error) {
	text := c.param(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, storekit.Invalidf("parameter %q is %q: use a whole number", name, text)
	}
	return n, nil
}

func (c *call) truth(name string) (value, given bool, err error) {
	switch text := c.param(name); text {
	case "":
		return false, false, nil
	case "true":
		return true, true, nil
	case "false":
		return false, true, nil
	default:
		return false, true, storekit.Invalidf("parameter %q is %q: use true or false", name, text)
	}
}

// wants reports whether this media type comes first in the request's header Accept.
func (c *call) wants(mediaType string) bool {
	first, _, _ := strings.Cut(c.r.Header.Get("Accept"), ",")
	first, _, _ = strings.Cut(first, ";")
	return strings.EqualFold(strings.TrimSpace(first), mediaType)
}
