package console

import (
	"encoding/base64"
	"encoding/json"
)

// notice is the result of a form, which the next page shows at its top: a key of the catalogue,
// with the arguments of its text.
type notice struct {
	Key  string   `json:"key"`
	Args []string `json:"args,omitempty"`
}

const (
	cookieNotice = "punctual_notice"
	// noticeAge is how many seconds a browser keeps a notice for the next page.
	noticeAge = 30
)

// leaveNotice puts a notice into a cookie for the next page, unless its key is empty.
func (c *call) leaveNotice(n notice) {
	if n.Key == "" {
		return
	}
	text, err := json.Marshal(n)
	if err != nil {
		return // cannot happen, because a notice consists of strings
	}
	c.setCookie(cookieNotice, base64.RawURLEncoding.EncodeToString(text), noticeAge)
}

// Notice returns the text of the notice that the last form has left, or "" if there is none. It
// deletes the notice's cookie, so that the notice is shown once.
func (f *frame) Notice() string {
	kept := f.call.cookie(cookieNotice)
	if kept == "" {
		return ""
	}
	f.call.setCookie(cookieNotice, "", -1)
	var n notice
	text, err := base64.RawURLEncoding.DecodeString(kept)
	if err != nil || json.Unmarshal(text, &n) != nil {
		return ""
	}
	args := make([]any, len(n.Args))
	for i, a := range n.Args {
		args[i] = visible(a)
	}
	return f.call.look.language.text(n.Key, args...)
}
