package console

import (
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// IDs, bodies, headers and errors of messages, and fields of the query, are shown as text, whatever
// they contain.
func TestHostileTextIsText(t *testing.T) {
	r := newRig(t, &Options{API: "/"})
	const script, turn = `<script>alert(1)</script>`, "\u202Egnp.exe\u2066\u200B\x00\x1b[31m"
	r.push("t", `"><img src=x onerror=alert(1)>'`, time.Minute, func(m *punctual.NewMessage) {
		m.Body = []byte(script + turn)
		m.Headers = map[string]string{script: turn + "\r\n" + script, "\xff\xfe": "\xff"}
	})
	r.push("t", "javascript:alert(1)", time.Minute, func(m *punctual.NewMessage) { m.Body = []byte(strings.Repeat("<b>", 300_000)) })
	r.kill("d", script+turn+"{{.}}", "..", "%2e%2e", `<svg onload=alert(1)>`)
	for _, path := range []string{
		"/", "/topics", "/topics/t", "/topics/t/messages/%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E%27", "/topics/t/messages/javascript:alert(1)",
		"/dead", "/topics/d?state=dead", "/topics/d/messages/%2E%2E", "/topics/d/messages/%3Csvg%20onload=alert(1)%3E",
		"/find?id=%3Cscript%3Ealert(1)%3C/script%3E&topic=%22%3E%3Cscript%3E", "/topics?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E", "/week?zone=%3Cscript%3E",
		"/topics/%3Cscript%3E", "/?span=%22%3E%3Cscript%3E", "/topics?push=%22%3E%3Cscript%3E",
	} {
		a := r.get(path)
		if a.Code >= 500 {
			t.Errorf("GET %s: %d", path, a.Code)
		}
		for _, bad := range []string{"<script>", "<img", "onload=alert(1)>", "\u202E", "\u2066", "\u200B", "\x00", "\x1b", `href="javascript:`} {
			if strings.Contains(a.text, bad) {
				t.Errorf("GET %s sends %q", path, bad)
			}
		}
		if len(a.text) > 600_000 {
			t.Errorf("GET %s sends %d bytes", path, len(a.text))
		}
	}
	if text := r.page("/topics/t/messages/%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E%27"); !strings.Contains(text, `\u202Egnp.exe`) || !strings.Contains(text, `\u0000\u001B[31m`) {
		t.Error("marks that deceive are not written out")
	}
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain\n\ttext é 漢": "plain\n\ttext é 漢", "a\u202Eb": `a\u202Eb`, "a\xffb": `a\xFFb`, "\uFFFD": "\uFFFD", "\xef": `\xEF`, "\xef\xbf": `\xEF\xBF`, "\xef\uFFFD": `\xEF` + "\uFFFD", "\x7f": `\u007F`, "": "",
	} {
		if got := visible(in); got != want {
			t.Errorf("visible(%q) is %q, want %q", in, got, want)
		}
	}
}
