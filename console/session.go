package console

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

const (
	// sessionLife is how long somebody stays logged in.
	sessionLife = 12 * time.Hour
	// maxSessions bounds all sessions, maxSessionsOfOne those of one token. Beyond them the oldest one ends.
	maxSessions, maxSessionsOfOne = 1000, 20
)

// session is a browser in which somebody logged in.
type session struct {
	key   string // what its cookie has
	token string
	began time.Time
}

// sessions are those of one console. They are in memory alone: who starts the console anew logs in anew. Its methods are
// safe for concurrent use.
type sessions struct {
	mu sync.Mutex
	// list has them in the order in which they began, so the first is the oldest. Guarded by mu.
	list []*session
	// byHash finds them by the hash of their key, so how long a search takes tells nothing of a key. Guarded by mu.
	byHash map[[sha256.Size]byte]*session
}

func newSessions() *sessions { return &sessions{byHash: make(map[[sha256.Size]byte]*session)} }

// begin begins a session of a token that counts, with a new key.
func (s *sessions) begin(token string) *session {
	n := &session{key: rand.Text(), token: token, began: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(func(o *session) bool { return !o.lives() })
	if same := s.of(token); len(same) >= maxSessionsOfOne {
		s.remove(func(o *session) bool { return o == same[0] })
	}
	if len(s.list) >= maxSessions {
		s.remove(func(o *session) bool { return o == s.list[0] })
	}
	s.list = append(s.list, n)
	s.byHash[sha256.Sum256([]byte(n.key))] = n
	return n
}

// lives tells that a session has not come to its end.
func (o *session) lives() bool { return time.Since(o.began) < sessionLife }

// find returns the session with this key, or nil.
func (s *sessions) find(key string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.byHash[sha256.Sum256([]byte(key))]
	if o == nil || !o.lives() {
		return nil
	}
	return o
}

// end ends the session with this key.
func (s *sessions) end(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(func(o *session) bool { return o.key == key })
}

// endAll ends all sessions of a token, which does not count any more.
func (s *sessions) endAll(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(func(o *session) bool { return o.token == token })
}

// of returns the sessions of a token, the oldest first. The caller holds mu.
func (s *sessions) of(token string) (same []*session) {
	for _, o := range s.list {
		if o.token == token {
			same = append(same, o)
		}
	}
	return same
}

// remove ends sessions. The caller holds mu.
func (s *sessions) remove(which func(*session) bool) {
	var kept []*session
	for _, o := range s.list {
		if which(o) {
			delete(s.byHash, sha256.Sum256([]byte(o.key)))
		} else {
			kept = append(kept, o)
		}
	}
	s.list = kept
}

// formKey makes the tokens of forms. A page of another site cannot know the one of a browser, so it cannot send a form in its name.
type formKey [32]byte

func newFormKey() (k formKey) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

// token is that of the forms of one browser.
func (k *formKey) token(browser string) string {
	mac := hmac.New(sha256.New, k[:])
	mac.Write([]byte(browser))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// The cookies of a session, and of a browser that has none. Cookies are shared by all ports of a host, so their names have the port.
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

// csrfToken is what each form carries. A browser without a session gets a name of its own first.
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

// checkForm refuses a form that does not carry the token.
func (c *call) checkForm() error {
	browser := cmp.Or(c.browser, c.cookie(withPort(cookieBrowser, c.r)))
	want := c.console.formKey.token(browser)
	if browser == "" || subtle.ConstantTimeCompare([]byte(c.form.Get("csrf")), []byte(want)) != 1 {
		return fmt.Errorf("the form is not of this browser, or out of date, so nothing was done: load its page again: %w", punctual.ErrForbidden)
	}
	return nil
}

// loginPage asks for a token.
type loginPage struct {
	*frame
	Next string
}

// loginPath leads to the form to log in, and from there back here.
func (c *call) loginPath() string {
	return c.console.options.Prefix + "/login?next=" + url.QueryEscape(c.frame("").Here())
}

func (c *call) showLogin() error {
	if !c.console.options.LoginByToken {
		return errNoPage
	}
	return c.show("login", &loginPage{c.frame("login"), c.inside(c.get("next"))})
}

// logIn begins a session, if the token counts.
func (c *call) logIn() error {
	if !c.console.options.LoginByToken || c.console.options.Authenticate == nil {
		return errNoPage
	}
	token := c.get("token")
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return fmt.Errorf("type a token, as the file of tokens or 'punctual token new' gives it: %w", punctual.ErrUnauthenticated)
	}
	user, err := c.console.options.Authenticate(withToken(c.r, token))
	if err == nil && user == nil {
		err = errors.New("Options.Authenticate returned nobody")
	}
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
	c.begun = true
	http.Redirect(c.w, c.r, c.inside(c.get("next")), http.StatusSeeOther)
	return nil
}

// logOut ends the session.
func (c *call) logOut() error {
	c.console.sessions.end(c.cookie(c.sessionCookie()))
	c.setCookie(c.sessionCookie(), "", -1)
	c.begun = true
	http.Redirect(c.w, c.r, c.console.options.Prefix+"/login", http.StatusSeeOther)
	return nil
}

// LoggedIn tells that there is a session to end.
func (f *frame) LoggedIn() bool { return f.call.loggedIn }

// inside is a path of the console that somebody names, or that of its first page when it leads elsewhere. Browsers take a
// backslash for a slash, and leave out control characters.
func (c *call) inside(path string) string {
	first := c.console.options.Prefix + "/"
	if !strings.HasPrefix(path, first) || strings.HasPrefix(path, "//") || strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }) {
		return first
	}
	return path
}

// seldom lets a bounded number of lines into the log. Otherwise whoever can connect could fill the disk with them.
type seldom struct {
	mu     sync.Mutex
	minute time.Time // guarded by mu: when the minute under way began
	said   int       // guarded by mu: lines in it
	silent int       // guarded by mu: lines left out since the last one
}

// linesAMinute is how many lines of one kind are logged in a minute.
const linesAMinute = 10

// count counts a line, and tells whether it is to be logged and how many before it were left out.
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
