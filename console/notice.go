package console

import (
	"encoding/base64"
	"encoding/json"
)

// notice says above the next page what became of a form: a key of the catalogue, with its arguments.
type notice struct {
	Key  string   `json:"key"`
	Args []string `json:"args,omitempty"`
}

const (
	cookieNotice = "punctual_notice"
	// noticeAge is for how many seconds a notice waits for its page.
	noticeAge = 30
)

// leaveNotice keeps a notice for the next page.
func (c *call) leaveNotice(n notice) {
	if n.Key == "" {
		return
	}
	text, err := json.Marshal(n)
	if err != nil {
		return // a notice has strings alone
	}
	c.setCookie(cookieNotice, base64.RawURLEncoding.EncodeToString(text), noticeAge)
}

// Notice is what became of the form before this page, or "". It is shown once.
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
