//go:build unix

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// The pages for users show commands and code. Those that the tests of this file name are tried as a
// reader would.

// pageText is a page of docs.
func pageText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../../docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// codeOf is the blocks of a language on a page.
func codeOf(page, language string) (blocks []string) {
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// The commands of the quick start, except the last one, typed one after the other in one directory,
// succeed and print what the page says.
func TestQuickStartCommands(t *testing.T) {
	t.Parallel() // it waits for processes
	var commands []string
	for _, m := range regexp.MustCompile(`(?m)^    \$ (.*)$`).FindAllStringSubmatch(pageText(t, "quick-start.md"), -1) {
		commands = append(commands, m[1])
	}
	if len(commands) < 15 || commands[len(commands)-1] != "./notify" {
		t.Fatalf("found %d commands: has the page's form changed?", len(commands))
	}
	out := typeInto(t, t.TempDir(), commands[:len(commands)-1]) // TestReadmeCommands runs the last one
	printsInOrder(t, out, "A-17\n", "A-18\n", "scheduled", "A-17", "cancelled", "close A-18:\n{\"order\":\"A-18\"}", "A-19", "the warehouse does not answer",
		"attempts used up", "close A-19", "order.close")
}

// The workers in Python, TypeScript and Java that docs/http-workers.md shows run: the first attempt
// fails, the second one is answered, and then the server has the message no more.
func TestWorkersInDocuments(t *testing.T) {
	t.Parallel() // it waits for processes
	page := pageText(t, "http-workers.md")
	for language, w := range map[string]struct {
		program, file string
		code          int // with which a SIGTERM ends it
		topic, done   string
		install       func(t *testing.T, dir string) // puts the client where the program finds it
	}{
		"python": {"python3", "worker.py", 0, "order.close", "order A-17, attempt 2: closed", nil},
		"js":     {"node", "worker.mjs", 0, "order.close", "order A-17, attempt 2: closed", installTypeScript},
		"java":   {"java", "Worker.java", 143, "payment.notify", "payment A-17, attempt 2: answered", nil},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			code := codeOf(page, language)
			if len(code) != 1 {
				t.Fatalf("docs/http-workers.md has %d programs", len(code))
			}
			if _, err := exec.LookPath(w.program); err != nil {
				t.Fatalf("there is no %s: install it, on Debian and Ubuntu with: sudo make deps", w.program)
			}
			dir := t.TempDir()
			if w.install != nil {
				w.install(t, dir)
			}
			if err := os.WriteFile(filepath.Join(dir, w.file), []byte(code[0]), 0o600); err != nil {
				t.Fatal(err)
			}
			server := newShell(t).start("serve", "--listen", "127.0.0.1:0", "--store", "mem:")
			url := listening(t, server)
			cmd := exec.Command(w.program, w.file)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "PUNCTUAL_SERVER="+url, "PUNCTUAL_TOKEN=", "PYTHONPATH="+absolute(t, clientsDir+"/python"))
			answersAndEnds(t, cmd, w.code, w.done)
			wantAcked(t, url+"/v1/topics/"+w.topic+"/messages/A-17")
			server.signal(syscall.SIGTERM)
			if code := server.wait(); code != exitOK {
				t.Errorf("the server: exit %d, %s", code, server.errs.String())
			}
		})
	}
}

// installTypeScript builds the client in TypeScript as a module for programs in dir.
func installTypeScript(t *testing.T, dir string) {
	t.Helper()
	into := filepath.Join(dir, "node_modules/punctual")
	buildTypeScript(t, filepath.Join(into, "dist"))
	text, err := os.ReadFile(clientsDir + "/typescript/package.json")
	if err == nil {
		err = os.WriteFile(filepath.Join(into, "package.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// wantAcked fails the test if a server still has the message of the programs.
func wantAcked(t *testing.T, url string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusNotFound {
		t.Errorf("after the ack: %s, %s, %v", answer.Status, text, err)
	}
}

// answersAndEnds runs a program until its second attempt was answered. It fails the test unless a
// SIGTERM then ends the program with the exit code. The ack may be under way at that moment, and
// the program waits for it.
func answersAndEnds(t *testing.T, cmd *exec.Cmd, code int, done string) {
	t.Helper()
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	both := &strings.Builder{}
	buf := make([]byte, 4096)
	for !strings.Contains(both.String(), done) {
		n, err := pipe.Read(buf)
		both.Write(buf[:n])
		if err != nil {
			break
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	rest, err := io.ReadAll(pipe)
	both.Write(rest)
	_ = cmd.Wait() // the exit code is looked at below
	if got := cmd.ProcessState.ExitCode(); got != code || err != nil || !strings.Contains(both.String(), "attempt 1: no answer") || !strings.Contains(both.String(), done) {
		t.Errorf("exit code %d, %v; printed\n%s", got, err, both)
	}
}

// The worker in Java of docs/http-workers.md goes on when the answer of a claim or of a renewal is
// lost, when 3 % of all answers are, and when the server is killed during a claim and started
// again. Each message is handled and acked, and none waits for the end of a lease.
func TestWorkersOverAKilledServer(t *testing.T) {
	t.Parallel() // it waits for processes
	page := pageText(t, "http-workers.md")
	for language, w := range map[string]struct{ program, file, lease, first, slow string }{
		"java": {"java", "Worker.java", "LEASE = 30", "if (m.attempt() == 1) {", `if (m.id().equals("slow")) Thread.sleep(10_000);` + "\nif (m.id().equals(\"none\")) {"},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(w.program); err != nil {
				t.Fatalf("there is no %s: install it, on Debian and Ubuntu with: sudo make deps", w.program)
			}
			code := codeOf(page, language)[0]
			for _, part := range []string{w.lease, w.first} {
				if strings.Count(code, part) != 1 {
					t.Fatalf("this test shows nothing, because the program has not one %q", part)
				}
			}
			code = strings.NewReplacer(w.lease, strings.ReplaceAll(w.lease, "30", "9"), w.first, w.slow).Replace(code)
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, w.file), []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			s := newShell(t)
			server := s.start("serve", "--listen", "127.0.0.1:0")
			url := listening(t, server)
			between := &cutter{t: t, url: url}
			front := httptest.NewServer(between)
			defer front.Close()
			cmd := exec.Command(w.program, w.file)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "PUNCTUAL_SERVER="+front.URL, "PUNCTUAL_TOKEN=")
			worker := s.startCommand(cmd)
			defer front.CloseClientConnections() // before Close, because the worker's claim may wait still

			push := func(id string) {
				call(t, "POST", url+"/v1/topics/payment.notify/messages?id="+id, id)
			}
			handled := func(ids ...string) {
				t.Helper()
				for waits := len(ids); waits > 0; {
					line := worker.line()
					for _, id := range ids {
						if line == "payment "+id+", attempt 1: answered" {
							waits--
						} else if strings.HasPrefix(line, "payment "+id+", ") {
							t.Fatalf("%s, so a lease was lost; standard error %q", line, worker.errs.String())
						}
					}
				}
				waitUntil(t, "all are acked", func() bool {
					return strings.Contains(call(t, "GET", url+"/v1/topics/payment.notify", ""), `"scheduled":0,"ready":0,"leased":0`)
				})
			}
			ids := []string{"A-17", "slow"}
			push("slow")
			for i := range 60 {
				ids = append(ids, fmt.Sprint("m", i))
				push(ids[i+2])
			}
			handled(ids...)
			waitUntil(t, "a claim waits", func() bool { return between.claims.Load() > 0 })
			server.signal(syscall.SIGKILL)
			server.wait()
			server = s.start("serve", "--listen", "127.0.0.1:0")
			url = listening(t, server)
			between.lead(url)
			push("after")
			handled("after")
			if between.cut["claim"] == 0 || between.cut["extend"] == 0 || between.cut["ack"] == 0 {
				t.Errorf("this test shows nothing, because of the answers to these calls so many were cut: %v", between.cut)
			}
		})
	}
}

// cutter is a proxy that loses the answer of the first claim that brings something, of the first
// extension, of the first ack and of every 33rd request after it was carried out, and every answer
// while the server is gone.
type cutter struct {
	t      *testing.T
	claims atomic.Int64 // the claims that are under way

	mu  sync.Mutex
	url string         // of the server; guarded by mu
	n   int            // the answers; guarded by mu
	cut map[string]int // the answers that were lost, by the last part of the path; guarded by mu
}

func (c *cutter) lead(url string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.url = url
}

// loses tells whether an answer is to be lost.
func (c *cutter) loses(path string, status int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	verb := path[strings.LastIndex(path, "/")+1:]
	if status == http.StatusNoContent || c.n%33 != 0 && (c.cut[verb] > 0 || verb == "messages") {
		return false
	}
	if c.cut == nil {
		c.cut = make(map[string]int)
	}
	c.cut[verb]++
	return true
}

func (c *cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/claim") {
		c.claims.Add(1)
		defer c.claims.Add(-1)
	}
	c.mu.Lock()
	to, err := url.Parse(c.url)
	c.mu.Unlock()
	if err != nil {
		c.t.Error(err)
		return
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	proxy.ModifyResponse = func(answer *http.Response) error {
		if c.loses(r.URL.Path, answer.StatusCode) {
			return errors.New("lost")
		}
		return nil
	}
	proxy.ServeHTTP(w, r)
}

// snippetHead is put before code that is not a whole file. It imports the packages that the pages
// use, and declares closeOrder.
const snippetHead = `package page

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/pgstore"
	"github.com/punctualmq/punctual/punctualtest"
	"github.com/punctualmq/punctual/redisstore"
	"github.com/punctualmq/punctual/worker"
)

var (
	_ = context.Background
	_ = errors.Is
	_ = slog.Info
	_ = os.Exit
	_ = signal.Notify
	_ = syscall.SIGTERM
	_ = time.Second
	_ = punctual.NewQueue
	_ = event.Parse
	_ = punctualtest.New
	_ = worker.New
	_ = redis.NewClient
	_ = redisstore.Open
	_ *testing.T
	_ pgx.Tx
	_ *pgstore.Store
)

func closeOrder(context.Context, string) error { return nil }
`

// The Go on the pages that are listed here compiles. Whole files are tried as they stand, functions
// and types behind snippetHead, and statements within a function beside the variables that the
// pages use.
func TestGoOnPagesCompiles(t *testing.T) {
	t.Parallel() // it waits for processes
	dir := filepath.Join(t.TempDir(), "pages")
	usesClone(t, dir)
	n := 0
	for _, name := range []string{"quick-start.md", "handlers.md", "settings.md", "ids.md", "testing.md", "moving.md", "events.md"} {
		for _, code := range codeOf(pageText(t, name), "go") {
			n++
			pack := filepath.Join(dir, fmt.Sprintf("p%d", n))
			if err := os.Mkdir(pack, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(pack, strings.TrimSuffix(name, ".md")+".go"), []byte(asFile(code)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n < 11 {
		t.Errorf("found %d blocks of Go", n)
	}
	build := exec.Command("go", "vet", "./...") // checks types as a build does, and links nothing
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// usesClone makes dir the directory of a module that requires this one, and what this one requires.
func usesClone(t *testing.T, dir string) {
	t.Helper()
	root, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "go.mod" {
			const module = "github.com/punctualmq/punctual"
			text = bytes.Replace(text, []byte("module "+module), []byte("module example.com/pages"), 1)
			text = fmt.Appendf(text, "\nrequire %s v0.0.0\n\nreplace %s => %s\n", module, module, root)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// asFile is a block of Go as a file that compiles on its own.
func asFile(code string) string {
	declaration := regexp.MustCompile(`(?m)^(func [A-Za-z(]|type )`)
	switch {
	case strings.Contains(code, "\npackage ") || strings.HasPrefix(code, "package "):
		return code
	case declaration.MatchString(code):
		return snippetHead + code
	}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)(?:, (\w+))? :=`).FindAllStringSubmatch(code, -1) {
		for _, name := range m[1:] {
			if name != "" && name != "_" {
				code += "\t_ = " + name + "\n"
			}
		}
	}
	return snippetHead + `
var (
	ctx           context.Context
	store         punctual.Store
	q             *punctual.Queue
	w             *worker.Worker
	body, payload []byte
)

func snippet() error {
` + code + "\n\treturn nil\n}\n"
}
