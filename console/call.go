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
	"github.com/punctualmq/punctual/storekit"
)

// call is the state of one request. The goroutine of the request owns it. The goroutines of
// eachInParallel read it as well, and set only noFinished.
type call struct {
	console   *Console
	inspector punctual.Inspector // nil only on routes with anyStore or anyPrincipal, and public ones
	w         http.ResponseWriter
	r         *http.Request
	route     *route
	path      map[string]string // the path's parameters by name, decoded
	form      url.Values        // the fields of the query, or of the body of a POST
	look      look
	fragment  bool              // the script asks for the part of the page that is renewed
	problem   error             // why a form was refused, shown above its page, or why there is only an error page
	begun     bool              // the answer has begun, so an error page can no longer be sent
	who       *access.Principal // nil before it is known
	loggedIn  bool
	browser   string // the session, or the browser without one, for which the form token is made; "" before it is known
	// noFinished is set once the store has answered that it keeps no finished records. It is atomic
	// because a search in several topics sets it from several goroutines.
	noFinished atomic.Bool
}

// maxForm bounds the bytes of a form. Its largest part is the body of a message that somebody
// pushes by hand.
const maxForm = 4 << 20

// maxStrangersForm bounds the bytes of a form on a public route, whose sender has not been
// authenticated.
const maxStrangersForm = 16 << 10

// findRoute sets route, path and fragment from the request's path and method. When done is true, it
// has answered the request itself, with a redirect from the bare prefix to the first page.
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

// readForm sets form from the query, or for a POST from the form in the body. A posted form without
// the browser's token is refused.
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

// get returns a field of the form without the space around it.
func (c *call) get(name string) string { return strings.TrimSpace(c.form.Get(name)) }

// now reads the store's clock.
func (c *call) now() (time.Time, error) {
	now, err := c.console.store.Now(c.r.Context())
	if err != nil {
		return now, fmt.Errorf("read the store's clock: %w", err)
	}
	return now, nil
}

// redirect answers a form that was carried out: the browser goes to another page, which shows the
// notice if n has a key.
func (c *call) redirect(to string, n notice) error {
	c.leaveNotice(n)
	c.begun = true
	http.Redirect(c.w, c.r, to, http.StatusSeeOther)
	return nil
}

// show sends a page, or for a fragment the part of it that is renewed.
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

// status returns the HTTP status of the page: that of its problem, or 200 if it has none.
func (c *call) status() int {
	if c.problem == nil {
		return http.StatusOK
	}
	if errors.Is(c.problem, errMethod) {
		return http.StatusMethodNotAllowed
	}
	return wire.StatusOf(cmp.Or(storekit.ErrorCode(c.problem), "internal"))
}

// errorPage is a page that shows nothing but the problem of its frame.
type errorPage struct{ *frame }

// fail answers with the error page for err. It logs err if its status is 500 or more.
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
