package console

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

const (
	// sessionLife is how long after its login a session ends.
	sessionLife = 12 * time.Hour
	// maxSessions bounds the sessions of a console, maxSessionsOfOne those of one token. A login
	// beyond a bound ends the oldest session.
	maxSessions, maxSessionsOfOne = 1000, 20
)

// session is one login of one browser.
type session struct {
	key   string // the value of its cookie
	hash  [sha256.Size]byte
	token string
	began time.Time
}

// sessions are the sessions of one console. They are only in memory, so a restart of the console
// logs everybody out. Its methods are safe for concurrent use.
type sessions struct {
	mu sync.Mutex
	// list has the sessions in the order in which they began, the oldest first. Guarded by mu.
	list []*session
}

// begin begins a session for a valid token, with a new key. It removes sessions that have ended,
// and the oldest one beyond each bound.
func (s *sessions) begin(token string) *session {
	n := &session{key: rand.Text(), token: token, began: time.Now()}
	n.hash = sha256.Sum256([]byte(n.key))
	s.remove(func(o *session) bool { return !o.lives() })
	s.mu.Lock()
	defer s.mu.Unlock()
	sameToken := func(o *session) bool { return o.token == token }
	same := 0
	for _, o := range s.list {
		if sameToken(o) {
			same++
		}
	}
	if same >= maxSessionsOfOne {
		oldest := slices.IndexFunc(s.list, sameToken)
		s.list = slices.Delete(s.list, oldest, oldest+1)
	}
	if len(s.list) >= maxSessions {
		s.list = slices.Delete(s.list, 0, 1)
	}
	s.list = append(s.list, n)
	return n
}

// lives reports whether a session is younger than sessionLife.
func (o *session) lives() bool { return time.Since(o.began) < sessionLife }

// find returns the session with this key, or nil if there is none or it has ended. It compares
// hashes, so that the duration of a search reveals nothing about keys.
func (s *sessions) find(key string) *session {
	hash := sha256.Sum256([]byte(key))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.list {
		if o.hash == hash && o.lives() {
			return o
		}
	}
	return nil
}

// end ends the session with this key.
func (s *sessions) end(key string) { s.remove(func(o *session) bool { return o.key == key }) }

// endAll ends all sessions of a token that is no longer valid.
func (s *sessions) endAll(token string) { s.remove(func(o *session) bool { return o.token == token }) }

// remove ends the sessions that the function which selects.
func (s *sessions) remove(which func(*session) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, which)
}

// formKey is the secret from which the tokens of forms are made. A page of another site cannot know
// the token of a browser, so it cannot make that browser send a form that the console accepts.
type formKey [32]byte

func newFormKey() (k formKey) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

// token returns the token of the forms of one browser.
func (k *formKey) token(browser string) string {
	mac := hmac.New(sha256.New, k[:])
	mac.Write([]byte(browser))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// The names of the cookies of a session, and of a browser without one. The port of the address is
// added to them, because all ports of a host share their cookies.
const (
	cookieSession = "punctual_session"
	cookieBrowser = "punctual_browser"
)

func (c *call) sessionCookie() string { return withPort(cookieSession, c.r) }

func withPort(name string, r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil && strings.Trim(port, "0123456789") == "" {
		return name + "_" + port
	}
	return name
}

// csrfToken returns the token that each form of this browser carries. A browser without a session
// gets a random name in a cookie first, unless it has one.
func (c *call) csrfToken() string {
	if c.browser == "" {
		name := withPort(cookieBrowser, c.r)
		c.browser = c.cookie(name)
		if c.browser == "" {
			c.browser = rand.Text()
			c.setCookie(name, c.browser, 0)
		}
	}
	return c.console.formKey.token(c.browser)
}

// checkForm refuses a form that does not carry the token of its browser.
func (c *call) checkForm() error {
	browser := cmp.Or(c.browser, c.cookie(withPort(cookieBrowser, c.r)))
	want := c.console.formKey.token(browser)
	if browser == "" || subtle.ConstantTimeCompare([]byte(c.form.Get("csrf")), []byte(want)) != 1 {
		return fmt.Errorf("the form is not of this browser, or out of date, so nothing was done: load its page again: %w", punctual.ErrForbidden)
	}
	return nil
}

// loginPage asks for a token. Next is the path to which a login leads.
type loginPage struct {
	*frame
	Next string
}

// loginPath returns the path of the login form, which leads back to this page.
func (c *call) loginPath() string {
	return c.console.options.Prefix + "/login?next=" + url.QueryEscape(c.frame("").Here())
}

func (c *call) showLogin() error {
	if !c.console.options.LoginByToken {
		return errNoPage
	}
	return c.show("login", &loginPage{c.frame("login"), c.inside(c.get("next"))})
}

// logIn begins a session if the token of the form is valid.
func (c *call) logIn() error {
	if !c.console.options.LoginByToken || c.console.options.Authenticate == nil {
		return errNoPage
	}
	token := c.get("token")
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return fmt.Errorf("type a token, as the file of tokens or 'punctual token new' gives it: %w", punctual.ErrUnauthenticated)
	}
	user, err := c.console.authenticate(withToken(c.r, token))
	if err != nil {
		if say, silent := c.console.failedLogins.count(time.Now()); say {
			c.console.log.Warn("nobody was logged in", "from", c.r.RemoteAddr, "error", err, "not_logged_before", silent)
		}
		return err
	}
	c.console.sessions.end(c.cookie(c.sessionCookie()))
	s := c.console.sessions.begin(token)
	c.setCookie(c.sessionCookie(), s.key, int(sessionLife/time.Second))
	c.console.log.Info("logged in", "who", user.Name, "from", c.r.RemoteAddr)
	return c.redirect(c.inside(c.get("next")), notice{})
}

// logOut ends the session of the browser.
func (c *call) logOut() error {
	c.console.sessions.end(c.cookie(c.sessionCookie()))
	c.setCookie(c.sessionCookie(), "", -1)
	return c.redirect(c.console.options.Prefix+"/login", notice{})
}

// LoggedIn reports whether the browser has a session, which a button can end.
func (f *frame) LoggedIn() bool { return f.call.loggedIn }

// inside returns path if it is a path of the console, and the path of the first page otherwise, so
// that a redirect never leads to another site. Paths with backslashes, spaces or control characters
// count as paths of other sites, because browsers read backslashes as slashes and drop some of the
// other characters.
func (c *call) inside(path string) string {
	first := c.console.options.Prefix + "/"
	if !strings.HasPrefix(path, first) || strings.HasPrefix(path, "//") || strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }) {
		return first
	}
	return path
}

// seldom bounds how many lines of one kind are logged in a minute, so that nobody can fill the disk
// of the log by failed logins.
type seldom struct {
	mu     sync.Mutex
	minute time.Time // guarded by mu: when the minute under way began, with a line
	said   int       // guarded by mu: how many lines were logged in that minute
	silent int       // guarded by mu: how many lines were left out since the last one that was logged
}

// linesAMinute is how many lines of one kind are logged in a minute.
const linesAMinute = 10

// count counts a line. It returns whether the line is to be logged, and if so, how many lines were
// left out since the last one.
func (s *seldom) count(now time.Time) (say bool, silent int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.minute) >= time.Minute {
		s.minute, s.said = now, 0
	}
	if s.said >= linesAMinute {
		s.silent++
		return false, 0
	}
	s.said++
	silent, s.silent = s.silent, 0
	return true, silent
}
