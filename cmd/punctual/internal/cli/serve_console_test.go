//go:build unix

package cli

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// person is a browser that is used by hand.
type person struct {
	t      *testing.T
	client *http.Client
	url    string
}

func newPerson(t *testing.T, url string) *person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &person{t, &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}, url}
}

// does sends a request, follows redirects, and returns the status, path and text of the page to
// which they lead.
func (p *person) does(r *http.Request, err error) (status int, path, text string) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
	a, err := p.client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return a.StatusCode, a.Request.URL.Path, string(body)
}

func (p *person) looks(path string) (int, string, string) {
	p.t.Helper()
	return p.does(http.NewRequest("GET", p.url+path, nil))
}

// sends reads page for the token of its form, and sends form to path.
func (p *person) sends(page, path string, form url.Values) (int, string, string) {
	p.t.Helper()
	_, _, text := p.looks(page)
	_, csrf, found := strings.Cut(text, `name="csrf" value="`)
	if !found {
		p.t.Fatalf("%s has no form: %s", page, text)
	}
	form.Set("csrf", csrf[:strings.Index(csrf, `"`)])
	r, err := http.NewRequest("POST", p.url+path, strings.NewReader(form.Encode()))
	if err == nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return p.does(r, err)
}

// People log in to the console with the tokens that programs use, may do what these allow, and are
// logged out when the token is revoked. Changes by people and by programs are in the audit log. The
// HTTP interface still asks for a token.
func TestServeConsole(t *testing.T) {
	s := newShell(t)
	tokens := filepath.Join(t.TempDir(), "tokens.json")
	token := func(name, actions, topics string) string {
		return strings.TrimSpace(s.run("token", "new", name, "--actions", actions, "--topics", topics, "--tokens", tokens).ok().out)
	}
	admin, reader := token("ann", "all", "*"), token("bob", "inspect", "shop.*")
	p := s.start("serve", "--listen", "127.0.0.1:0", "--tokens", tokens, "--console-hide-bodies", "--console-show-header", "tenant")
	base := listening(t, p)
	ann, bob := newPerson(t, base), newPerson(t, base)
	if status, path, text := ann.looks("/topics"); status != 200 || path != "/login" || !strings.Contains(text, `type="password"`) {
		t.Fatalf("without a session: %d %s", status, path)
	}
	for who, secret := range map[*person]string{ann: admin, bob: reader} {
		if status, path, text := who.sends("/login?next=/topics", "/login", url.Values{"token": {secret}, "next": {"/topics"}}); status != 200 || path != "/topics" {
			t.Fatalf("log in: %d %s %s", status, path, text)
		}
	}
	for _, topic := range []string{"shop.close", "pay"} {
		if status, _, text := ann.sends("/topics", "/push", url.Values{"topic": {topic}, "id": {"m1"}, "in": {"1h"}, "body": {"a secret"}}); status != 200 {
			t.Fatalf("push to %s: %d %s", topic, status, text)
		}
	}
	if status, _, text := bob.looks("/topics"); status != 200 || !strings.Contains(text, "shop.close") || strings.Contains(text, "/topics/pay") {
		t.Errorf("topics of who may look at some: %d %s", status, text)
	}
	if status, _, _ := bob.looks("/topics/pay"); status != 403 {
		t.Errorf("a topic that he may not look at: %d", status)
	}
	if status, _, text := bob.looks("/topics/shop.close/messages/m1"); status != 200 || strings.Contains(text, "a secret") {
		t.Errorf("a message with its body hidden: %d %s", status, text)
	}
	if status, _, _ := bob.sends("/topics/shop.close", "/topics/shop.close/messages/m1/amend", url.Values{"do": {"cancel"}}); status != 403 {
		t.Errorf("who may look cancels: %d", status)
	}
	if status, _, text := ann.sends("/topics/pay", "/topics/pay/messages/m1/amend", url.Values{"do": {"cancel"}}); status != 200 {
		t.Errorf("who may do everything cancels: %d %s", status, text)
	}
	if status, _, text := ann.looks("/audit"); status != 200 || !strings.Contains(text, "cancel") || !strings.Contains(text, ">m1<") || strings.Contains(text, "bob") {
		t.Errorf("the audit log: %d %s", status, text)
	}
	if status, _, _ := bob.looks("/audit"); status != 403 {
		t.Errorf("the audit log for who may not look at it: %d", status)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	t.Setenv("PUNCTUAL_TOKEN", admin)
	s.run("topic", "set", "pay", "--finished-retention", "1d", "--store", base).ok()
	for _, line := range []string{"POST /v1/topics/pay/pause", "POST /v1/topics/pay/purge?state=live", "PUT /v1/topics/pay/messages/m2?in=1h", "DELETE /v1/topics/pay/messages/m2"} {
		method, path, _ := strings.Cut(line, " ")
		if status, body := ask(t, client, method, base+path, admin); status/100 != 2 {
			t.Fatalf("%s: %d %s", line, status, body)
		}
	}
	if _, _, text := ann.looks("/audit"); !strings.Contains(text, "delivery paused: true") || !strings.Contains(text, ">purge<") || !strings.Contains(text, ">m2<") {
		t.Errorf("what a program changed is not in the audit log: %s", text)
	}
	if got := s.run("get", "m2", "--topic", "pay", "--store", base).ok().out; !regexp.MustCompile(`finished +cancelled at .*\nby +ann\n`).MatchString(got) {
		t.Errorf("the record of a message that ann cancelled: %s", got)
	}
	if got := s.run("get", "m2", "--topic", "pay", "--store", base, "--json").ok().out; !strings.Contains(got, `"by":"ann"`) {
		t.Errorf("the record of a message that ann cancelled: %s", got)
	}
	if status, body := ask(t, client, "DELETE", base+"/v1/topics/punctual.audit", admin); status != 403 {
		t.Errorf("an admin deletes the audit log: %d %s", status, body)
	}
	if status, _ := ask(t, client, "GET", base+"/v1/topics", ""); status != 401 {
		t.Errorf("the interface without a token: %d", status)
	}
	r, err := http.NewRequest("GET", base+"/topics", nil)
	if err == nil {
		r.Host = "evil.example"
	}
	if status, _, _ := ann.does(r, err); status != 403 {
		t.Errorf("a page under another name: %d", status)
	}
	s.run("token", "revoke", strings.Split(admin, "_")[1], "--tokens", tokens).ok()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, path, _ := ann.looks("/topics"); path == "/login" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a session goes on without its token")
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, p.errs.String())
	}
	for _, secret := range []string{strings.Split(admin, "_")[2], "a secret"} {
		if strings.Contains(p.errs.String(), secret) {
			t.Error("the log holds a token or a body")
		}
	}
}

// Without tokens everybody on this machine may do everything in the console, as over the HTTP
// interface. With --no-console there are no pages.
func TestServeConsoleWithoutTokens(t *testing.T) {
	s := newShell(t)
	p := s.start("serve", "--listen", "127.0.0.1:0")
	base := listening(t, p)
	somebody := newPerson(t, base)
	call(t, "POST", base+"/v1/topics/greetings/messages?id=a", "hello")
	call(t, "POST", base+"/v1/topics/greetings/claim", "")
	if status, path, text := somebody.looks("/"); status != 200 || path != "/" || !strings.Contains(text, "<!doctype html>") {
		t.Errorf("the first page: %d %s", status, path)
	}
	if status, _, text := somebody.sends("/topics/greetings", "/topics/greetings/pause", url.Values{"what": {"push"}, "pause": {"true"}}); status != 200 {
		t.Errorf("pause: %d %s", status, text)
	}
	if got := call(t, "POST", base+"/v1/topics/greetings/messages", "x"); !strings.Contains(got, "paused") {
		t.Errorf("the topic is not paused: %s", got)
	}
	p.signal(syscall.SIGTERM)
	p.wait()

	p = s.start("serve", "--listen", "127.0.0.1:0", "--no-console")
	if status, _, text := newPerson(t, listening(t, p)).looks("/"); status != 404 || strings.Contains(text, "<!doctype html>") {
		t.Errorf("/ without a console: %d", status)
	}
	p.signal(syscall.SIGTERM)
	p.wait()
}

func TestConsoleFlags(t *testing.T) {
	r := newRig(t)
	r.run("serve", "--listen", "127.0.0.1:0", "--no-console", "--console-hide-bodies").exits(exitUsage, "--no-console")
	r.run("serve", "--listen", "127.0.0.1:0", "--console-show-header", "tenant").exits(exitUsage, "--console-hide-bodies")
	r.env["PUNCTUAL_CONSOLE_HIDE_BODIES"] = "true"
	r.run("serve", "--print-config", "--console-show-header", "tenant").ok().contains(
		"# from: PUNCTUAL_CONSOLE_HIDE_BODIES\nconsole-hide-bodies: true\n", "# from: flag\nconsole-show-header:\n- tenant\n", "no-console: false\n")
}
