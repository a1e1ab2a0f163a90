package console

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/wire"
)

// call is one request on its way. One goroutine uses it.
type call struct {
	console  *Console
	w        http.ResponseWriter
	r        *http.Request
	route    *route
	path     map[string]string // decoded, by name of the parameter
	form     url.Values        // of the query, in a POST of the body
	look     look
	fragment bool              // only the part of the page that is renewed is asked for
	problem  error             // why a form was refused, shown above its page
	begun    bool              // something was sent
	who      *access.Principal // nil before it is known
	loggedIn bool
	browser  string // what the token of forms is made for; "" before it is needed
	// noStories: the store has said that it keeps no finished messages.
	noStories atomic.Bool
}

// maxForm bounds the bytes of a form; a body of a message that is pushed by hand is the largest part.
const maxForm = 4 << 20

// maxStrangersForm is for forms of those who are not known yet.
const maxStrangersForm = 16 << 10

// findRoute finds the route by path and method. When done, it has answered the request itself.
func (c *call) findRoute() (done bool, err error) {
	path, inside := strings.CutPrefix(c.r.URL.EscapedPath(), c.console.options.Prefix)
	if inside && path == "" {
		http.Redirect(c.w, c.r, c.console.options.Prefix+"/", http.StatusSeeOther)
		return true, nil
	}
	if !inside {
		return false, errNoPage
	}
	var segments []string
	if path != "/" {
		if segments, err = wire.SplitPath(path); err != nil {
			return false, err
		}
	}
	table := c.console.routes
	if len(segments) > 0 && segments[0] == "fragment" {
		c.fragment, segments, table = true, segments[1:], c.console.liveRoutes
	}
	route, values, allowed, ok := table.Find(c.r.Method, segments)
	switch {
	case ok:
		c.route, c.path = route, values
		return false, nil
	case len(allowed) == 0:
		return false, errNoPage
	}
	c.w.Header().Set("Allow", strings.Join(allowed, ", "))
	return false, errMethod
}

// Errors of a request that fits no route.
var (
	errNoPage = fmt.Errorf("there is no such page: %w", punctual.ErrNotFound)
	errMethod = fmt.Errorf("the page does not take this method: %w", punctual.ErrUnsupported)
)

// readForm reads the query, or the form that is posted. A form without the browser's token is refused.
func (c *call) readForm() error {
	if c.r.Method != http.MethodPost {
		c.form = c.r.URL.Query()
		return nil
	}
	most := int64(maxForm)
	if c.route.public {
		most = maxStrangersForm
	}
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, most)
	err := c.r.ParseMultipartForm(most)
	if errors.Is(err, http.ErrNotMultipart) {
		err = c.r.ParseForm()
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return fmt.Errorf("the form has more than %d bytes: %w", most, punctual.ErrTooLarge)
	}
	if err != nil {
		return fmt.Errorf("the form cannot be read (%v): %w", err, punctual.ErrInvalid)
	}
	c.form = c.r.PostForm
	return c.checkForm()
}

// get is a field of the form, without space around it.
func (c *call) get(name string) string { return strings.TrimSpace(c.form.Get(name)) }

// look into the store needs an Inspector.
func (c *call) inspector() (punctual.Inspector, error) {
	if c.console.inspector == nil {
		return nil, fmt.Errorf("this store cannot be inspected: %w", punctual.ErrUnsupported)
	}
	return c.console.inspector, nil
}

// now is the store's clock.
func (c *call) now() (time.Time, error) {
	now, err := c.console.store.Now(c.r.Context())
	if err != nil {
		return now, fmt.Errorf("read the store's clock: %w", err)
	}
	return now, nil
}

// redirect ends a form that was carried out: the browser shows another page, with a notice above it.
func (c *call) redirect(to string, n notice) error {
	c.leaveNotice(n)
	c.begun = true
	http.Redirect(c.w, c.r, to, http.StatusSeeOther)
	return nil
}

// show sends a page, or the part of it that is renewed.
func (c *call) show(page string, data any) error {
	part := "layout"
	if c.fragment {
		part = "live"
	}
	var text bytes.Buffer
	if err := c.console.templates.execute(&text, c.look.language.code, page, part, data); err != nil {
		return fmt.Errorf("show page %s: %w", page, err)
	}
	c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.begun = true
	c.w.WriteHeader(c.status())
	_, err := c.w.Write(text.Bytes())
	if err != nil {
		c.console.log.Debug("an answer could not be sent", "page", page, "error", err)
	}
	return nil
}

// status is that of the page: of its problem, if it has one.
func (c *call) status() int {
	if c.problem == nil {
		return http.StatusOK
	}
	if errors.Is(c.problem, errMethod) {
		return http.StatusMethodNotAllowed
	}
	return wire.StatusOf(cmp.Or(punctual.ErrorCode(c.problem), "internal"))
}

// errorPage says what failed.
type errorPage struct{ *frame }

// fail answers with a page that says what failed.
func (c *call) fail(err error) {
	c.problem, c.fragment = err, false
	if s := c.status(); s >= http.StatusInternalServerError {
		c.console.log.Warn("a page failed", "method", c.r.Method, "path", c.r.URL.Path, "error", err)
	}
	if c.look.language == nil {
		c.look = c.defaultLook()
	}
	if err := c.show("error", &errorPage{c.frame("error")}); err != nil {
		c.console.log.Error("the page of an error failed", "error", err)
		http.Error(c.w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
	}
}
