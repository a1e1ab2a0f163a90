//go:build unix

package cli

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

// serve prints where it listens, and answers there. After SIGTERM the exit code is 0. A message
// that was pushed is there when serve runs again.
func TestServe(t *testing.T) {
	s := newShell(t)
	p := s.start("serve", "--listen", "127.0.0.1:0")
	url := listening(t, p)
	if got := call(t, "POST", url+"/v1/topics/greetings/messages?in=1h&id=a", "hello"); !strings.Contains(got, `"stored"`) {
		t.Errorf("push: %s", got)
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code %d, want 0: %s", code, p.errs.String())
	}

	p = s.start("serve", "--listen", "127.0.0.1:0")
	if got := call(t, "GET", listening(t, p)+"/v1/topics/greetings/messages/a", ""); !strings.Contains(got, `"body":"hello"`) {
		t.Errorf("the message is gone: %s", got)
	}
	p.signal(syscall.SIGTERM)
	p.wait()
}

// serve does the duties of its store, and tells its clients that it does. With --duties=false it
// does not, and messages for groups wait.
func TestServeDoesTheDuties(t *testing.T) {
	s := newShell(t)
	p := s.start("serve", "--listen", "127.0.0.1:0", "--duties=false")
	url := listening(t, p)
	call(t, "PATCH", url+"/v1/topics/orders/settings", `{"groups":["billing","mail"]}`)
	call(t, "POST", url+"/v1/topics/orders/messages?id=a", "hello")
	if got := call(t, "GET", url+"/v1", ""); strings.Contains(got, `"duties":true`) {
		t.Errorf("without duties GET /v1 says %s", got)
	}
	if got := call(t, "GET", url+"/v1/topics/orders/messages/a", ""); !strings.Contains(got, `"state":"ready"`) {
		t.Errorf("without duties the message is %s", got)
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code %d, want 0: %s", code, p.errs.String())
	}

	p = s.start("serve", "--listen", "127.0.0.1:0")
	url = listening(t, p)
	if got := call(t, "GET", url+"/v1", ""); !strings.Contains(got, `"duties":true`) {
		t.Errorf("GET /v1 says %s", got)
	}
	for _, group := range []string{"billing", "mail"} {
		if got := call(t, "POST", url+"/v1/topics/orders@g."+group+"/claim?wait=30s", ""); !strings.Contains(got, `"id":"a"`) {
			t.Errorf("group %s got %s", group, got)
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK || strings.Contains(p.errs.String(), "level=ERROR") {
		t.Errorf("exit code %d, want 0: %s", code, p.errs.String())
	}
}

func TestServeRefuses(t *testing.T) {
	r := newRig(t)
	r.run("serve", "--listen", "0.0.0.0:0").exits(exitError, "other machines reach this address").prints("")
	r.run("serve", "--listen", "nowhere").exits(exitError, "--listen")
	r.run("serve", "--allow-origin", "console", "--listen", "127.0.0.1:0").exits(exitUsage, "https://console.example.com")
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	r.run("serve", "--listen", busy.Addr().String()).exits(exitError, "address already in use")
}

func TestServeOnASocket(t *testing.T) {
	s := newShell(t)
	path := filepath.Join(t.TempDir(), "api.sock")
	p := s.start("serve", "--listen", "unix:"+path)
	if line := p.line(); !strings.Contains(line, "unix:"+path) {
		t.Errorf("serve says %q", line)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /v1 HTTP/1.0\r\nHost: anything\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || !strings.Contains(string(answer), "200 OK") {
		t.Errorf("%s, %v", answer, err)
	}
	p.signal(syscall.SIGTERM)
	p.wait()
}

func TestWithoutPassword(t *testing.T) {
	for store, want := range map[string]string{
		"disk:punctual-data": "disk:punctual-data", "mem:": "mem:", "disk:/a b%zz": "disk",
		"redis://user:secret@host:6379/1": "redis://user:xxxxx@host:6379/1", "disk:/a b": "disk:/a b",
		"postgres://host/shop?password=secret&schema=a": "postgres://host/shop?password=xxxxx&schema=a",
	} {
		if got := withoutPassword(store); got != want {
			t.Errorf("%s is printed as %s, want %s", store, got, want)
		}
	}
}

// listening is the URL that serve prints first.
func listening(t *testing.T, p *process) string {
	t.Helper()
	line := p.line()
	_, url, ok := strings.Cut(strings.TrimSpace(line), " on ")
	if !ok {
		t.Fatalf("serve says %q; %s", line, p.errs.String())
	}
	return url
}

// call sends a request and returns the body of the answer, or the status when the body is empty.
func call(t *testing.T, method, url, body string) string {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return ""
	}
	req.Close = true
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Error(err)
	}
	if len(text) == 0 {
		return answer.Status
	}
	return string(text)
}

// An outage of Redis is two lines in the log of a server whose clients go on sending requests: one
// when it begins, one when it is over.
func TestServeLogsAnOutageOnce(t *testing.T) {
	redis := redisrig.Start(t)
	p := newShell(t).start("serve", "--store", "redis://"+redis.Addr, "--listen", "127.0.0.1:0")
	url := listening(t, p)
	push := func() bool {
		r, err := http.Post(url+"/v1/topics/orders/messages", "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Body.Close(); err != nil {
			t.Error(err)
		}
		return r.StatusCode == http.StatusCreated
	}
	before := 0 // lines
	lines := func() []string { return slices.Collect(strings.Lines(p.errs.String()))[before:] }
	until := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("after 30 s not yet: %s; the log has %q", what, lines())
			}
		}
	}
	until("a push before the outage", push)
	before = len(lines())
	if err := redis.Kill(); err != nil {
		t.Fatal(err)
	}
	until("the log tells of the outage", func() bool { return !push() && len(lines()) > 0 })
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); { // to see that nothing else is logged
		if push() {
			t.Fatal("a push without Redis has succeeded")
		}
	}
	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	until("a push after the outage", push)
	until("the log tells that it is over", func() bool { return len(lines()) > 1 })
	time.Sleep(time.Second) // to see that nothing else is logged
	if all := lines(); len(all) != 2 || !strings.Contains(all[1], "succeed again") {
		t.Errorf("the log has %d lines:\n%s", len(all), strings.Join(all, ""))
	}
	p.signal(syscall.SIGTERM)
	p.wait()
}

// A server that was killed leaves its socket behind, and the next server replaces that. It does not
// replace the socket of a server that runs, nor a file.
func TestServeBehindAKilledServer(t *testing.T) {
	s := newShell(t)
	path := filepath.Join(t.TempDir(), "api.sock")
	p := s.start("serve", "--listen", "unix:"+path)
	p.line()
	newRig(t).run("serve", "--listen", "unix:"+path).exits(exitError, "a server listens on "+path+" already")
	p.signal(syscall.SIGKILL)
	p.wait()
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSocket {
		t.Fatalf("this test shows nothing: no socket is left: %v, %v", info, err)
	}
	p = s.start("serve", "--listen", "unix:"+path)
	if line := p.line(); !strings.Contains(line, "unix:"+path) {
		t.Errorf("serve says %q, %s", line, p.errs.String())
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, p.errs.String())
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	newRig(t).run("serve", "--listen", "unix:"+path).exits(exitError, "use another path")
	if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
		t.Errorf("the file holds %q, %v", text, err)
	}
}

// TestSocketIsNeverOpen: whoever watches the directory never sees the socket of serve with a mode
// that lets others connect.
func TestSocketIsNeverOpen(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0)) // the umask closes nothing by itself
	path := filepath.Join(t.TempDir(), "api.sock")
	var open, seen atomic.Int64
	watching, end := context.WithCancel(t.Context())
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for watching.Err() == nil {
			if info, err := os.Lstat(path); err == nil {
				seen.Add(1)
				if info.Mode().Perm()&0o077 != 0 {
					open.Add(1)
				}
			}
		}
	})
	for i := 0; i < 300 || seen.Load() < 300 && i < 100_000; i++ {
		l, err := listen("unix:" + path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(path)
		if err != nil || info.Mode() != os.ModeSocket|0o600 {
			t.Fatalf("mode %v, %v; want a socket with 0600", info.Mode(), err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	end()
	watcher.Wait()
	if seen.Load() < 300 {
		t.Fatalf("this test shows nothing: the socket was seen %d times", seen.Load())
	}
	if n := open.Load(); n > 0 {
		t.Errorf("others could connect to the socket %d times of %d", n, seen.Load())
	}
	if umask := syscall.Umask(0); umask != 0 {
		t.Errorf("the umask is %#o afterwards; want it as before", umask)
	}
}
