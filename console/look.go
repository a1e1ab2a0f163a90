package console

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cron"
)

// look is a reader's choice of language, colours and time zone.
type look struct {
	language *language
	// theme is "light", "dark" or "", which follows the system.
	theme string
	zone  *time.Location
}

// The names of the cookies that keep a look. The cookies hold no secrets.
const (
	cookieLanguage = "punctual_language"
	cookieTheme    = "punctual_theme"
	cookieZone     = "punctual_zone"
)

// chooseLook sets the look. The fields lang and zone of the query take precedence over defaultLook.
func (c *call) chooseLook() error {
	c.look = c.defaultLook()
	if l := c.languageCalled(c.r.URL.Query().Get("lang")); l != nil {
		c.look.language = l
	}
	name := c.r.URL.Query().Get("zone")
	if name == "" {
		return nil
	}
	zone, err := zoneCalled(name)
	if err == nil {
		c.look.zone = zone
	}
	return err
}

// defaultLook returns the look of the cookies. For lack of a cookie, the language is the browser's,
// the theme that of the system, and the time zone Options.Location.
func (c *call) defaultLook() look {
	k := look{language: c.languageOfBrowser(), zone: c.console.options.Location}
	if l := c.languageCalled(c.cookie(cookieLanguage)); l != nil {
		k.language = l
	}
	if t := c.cookie(cookieTheme); t == "light" || t == "dark" {
		k.theme = t
	}
	if name := c.cookie(cookieZone); name != "" {
		if zone, err := zoneCalled(name); err == nil {
			k.zone = zone
		}
	}
	return k
}

// zoneCalled returns the time zone with a name such as Europe/Berlin; "local" is that of this
// process. An unknown name is an ErrInvalid.
func zoneCalled(name string) (*time.Location, error) {
	if strings.EqualFold(name, "local") {
		return time.Local, nil
	}
	zone, err := cron.LoadZone(name)
	if err != nil {
		return nil, fmt.Errorf("time zone %q is not known: use a name like UTC, Europe/Berlin or Asia/Shanghai: %w", name, punctual.ErrInvalid)
	}
	return zone, nil
}

func (c *call) cookie(name string) string {
	k, err := c.r.Cookie(name)
	if err != nil {
		return ""
	}
	return k.Value
}

func (c *call) languageCalled(code string) *language {
	for _, l := range c.console.languages {
		if strings.EqualFold(l.code, code) {
			return l
		}
	}
	return nil
}

// languageOfBrowser returns the first language in the browser's list that the console has,
// otherwise the console's first one. It compares only what is before the hyphen, so that zh-TW gets
// zh-CN.
func (c *call) languageOfBrowser() *language {
	for want := range strings.SplitSeq(c.r.Header.Get("Accept-Language"), ",") {
		want, _, _ = strings.Cut(strings.TrimSpace(want), ";")
		want, _, _ = strings.Cut(want, "-")
		for _, l := range c.console.languages {
			if family, _, _ := strings.Cut(l.code, "-"); strings.EqualFold(family, want) {
				return l
			}
		}
	}
	return c.console.languages[0]
}

// keepLook stores the look that the form chooses in cookies and redirects to the path in the form's
// field "back".
func (c *call) keepLook() error {
	if l := c.languageCalled(c.get("language")); l != nil {
		c.setCookie(cookieLanguage, l.code, lookAge)
	}
	switch theme := c.get("theme"); theme {
	case "light", "dark":
		c.setCookie(cookieTheme, theme, lookAge)
	case "system":
		c.setCookie(cookieTheme, "", -1)
	}
	if name := c.get("zone"); name != "" {
		zone, err := zoneCalled(name)
		if err != nil {
			return err
		}
		c.setCookie(cookieZone, zone.String(), lookAge)
	}
	return c.redirect(c.inside(c.get("back")), notice{})
}

// lookAge is how many seconds a browser keeps a look.
const lookAge = 365 * 24 * 3600

// setCookie sets one of the console's cookies for age seconds. With age 0 the cookie lasts until
// the browser ends, with an age below 0 it is deleted.
func (c *call) setCookie(name, value string, age int) {
	http.SetCookie(c.w, &http.Cookie{
		Name: name, Value: value, Path: c.console.options.Prefix + "/", MaxAge: age,
		HttpOnly: true, Secure: c.r.TLS != nil || c.r.Header.Get("X-Forwarded-Proto") == "https", SameSite: http.SameSiteStrictMode,
	})
}
