//go:build unix

package cli

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/punctualmq/punctual/internal/cli/scaffold"
)

// clone is the directory of this module, for --clone of punctual new.
func clone(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func TestNewSaysWhatItWrote(t *testing.T) {
	r := newRig(t)
	dir := filepath.Join(t.TempDir(), "notify")
	r.run("new", dir, "--clone", clone(t)).ok().contains("wrote "+dir+"/main.go", "wrote "+dir+"/go.mod", "go run -C "+dir+" .")
	for kind, files := range map[scaffold.Kind][]string{
		scaffold.KindGo: {"main.go", "go.mod", ".gitignore", "go.sum"}, scaffold.KindGoHTTP: {"main.go", "go.mod"},
		scaffold.KindPython: {"worker.py"}, scaffold.KindNode: {"worker.mjs"},
	} {
		dir := filepath.Join(t.TempDir(), "a b") // quoted for a shell
		args := []string{"new", dir, "--json", "--kind", string(kind)}
		if kind == scaffold.KindGo {
			args = append(args, "--clone", clone(t))
		}
		var got newJSON
		if err := json.Unmarshal([]byte(r.run(args...).ok().out), &got); err != nil {
			t.Fatal(err)
		}
		if got.Dir != dir || got.Kind != kind || !slices.Equal(got.Files, files) || !strings.Contains(got.Run, "'") {
			t.Errorf("%s: %+v", kind, got)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != len(files) {
			t.Errorf("%s: %v, %v", kind, entries, err)
		}
	}
}

// When punctual new refuses something, it has written nothing.
func TestNewRefuses(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.run("new", dir, "--kind", "python").exits(exitUsage, "is not an empty directory", "name one that is empty")
	r.run("new", filepath.Join(dir, "mine"), "--kind", "node").exits(exitUsage, "is not an empty directory")
	r.run("new", filepath.Join(dir, "mine", "x"), "--kind", "node", "--json").exits(exitError).failsWith("internal", false)
	r.run("new", filepath.Join(dir, "x"), "--kind", "ruby").exits(exitUsage, "use go, go-http, python or node")
	r.run("new", filepath.Join(dir, "x"), "--kind", "python", "--clone", ".").exits(exitUsage, "--clone belongs to --kind go")
	r.run("new", filepath.Join(dir, "x"), "--clone", dir).exits(exitUsage, "has no go.mod")
	r.run("new", filepath.Join(dir, "x")).exits(exitUsage, "name the clone by --clone DIR")
	r.run("new").exits(exitUsage)
	r.run("__complete", "new", "x", "--kind", "").contains("go\n", "go-http\n", "python\n", "node\n")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("what was refused has left %v, %v", entries, err)
	}
}

// When a file can be written only in part, new removes it, the files before it and the directory. A limit on the size of files stands for
// a disk that is full: go.sum is beyond it.
func TestNewRemovesWhatItWroteInPart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "notify")
	cmd := newShell(t).command("new", dir, "--clone", clone(t))
	cmd.Args = append([]string{"sh", "-c", `ulimit -f 8 && exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	var err error
	if cmd.Path, err = exec.LookPath("sh"); err != nil {
		t.Skip("there is no sh")
	}
	if text, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(text), "go.sum: file too large") {
		t.Fatalf("this test shows nothing, because go.sum could be written: %v: %s", err, text)
	} else if strings.Contains(string(text), "directory not empty") {
		t.Errorf("new could not remove the directory: %s", text)
	}
	if entries, err := os.ReadDir(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is there with %v, %v", entries, err)
	}
}

// A clone is found beside the program and above it, and a release needs none.
func TestNewFindsTheLibrary(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(clone(t), filepath.Join(dir, "punctual")); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"notify", "a/b/c", "punctual/x"} {
		from, err := sourceOf(filepath.Join(dir, program), "", nil)
		if err != nil || from.Clone != filepath.Join(dir, "punctual") {
			t.Errorf("%s: %+v, %v", program, from, err)
		}
	}
	build := &debug.BuildInfo{Main: debug.Module{Version: "v0.3.1"}}
	if from, err := sourceOf(filepath.Join(dir, "notify"), "", build); err != nil || from.Version != "v0.3.1" || from.Clone != "" {
		t.Errorf("of a release: %+v, %v", from, err)
	}
	build.Main.Version = "v0.3.2-0.20261120100000-0123456789ab"
	if from, err := sourceOf(filepath.Join(dir, "notify"), "", build); err != nil || from.Clone == "" {
		t.Errorf("of a commit: %+v, %v", from, err)
	}
}

// The program of the library is examples/notify, which the README shows. Every program that punctual new writes is run if its language is
// installed, and one in Go is built before: the first attempt fails, and the second one is answered. Where there is a server, it then has
// the message no more.
func TestNewProgramsRun(t *testing.T) {
	t.Parallel() // it waits for processes
	if text, err := os.ReadFile("../../examples/notify/main.go"); err != nil || string(text) != scaffold.Template("main.go") {
		t.Errorf("internal/cli/scaffold/templates/main.go.txt is not examples/notify/main.go (%v)", err)
	}
	for kind, program := range map[scaffold.Kind]string{
		scaffold.KindGo: "go", scaffold.KindGoHTTP: "go", scaffold.KindPython: "python3", scaffold.KindNode: "node",
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(program); err != nil {
				t.Skipf("NOT TESTED: what punctual new --kind %s writes, because there is no %s here", kind, program)
			}
			dir := filepath.Join(t.TempDir(), "worker")
			args := []string{"new", dir, "--kind", string(kind)}
			if kind == scaffold.KindGo {
				args = append(args, "--clone", clone(t))
			}
			newRig(t).run(args...).ok()
			if !kind.NeedsServer() {
				runNew(t, dir, kind, "")
				return
			}
			server := newShell(t).start("serve", "--listen", "127.0.0.1:0", "--store", "mem:")
			url := listening(t, server)
			runNew(t, dir, kind, url)
			wantAcked(t, url)
			server.signal(syscall.SIGTERM)
			if code := server.wait(); code != exitOK {
				t.Errorf("the server: exit %d, %s", code, server.errs.String())
			}
		})
	}
}

// runNew runs a program until it has handled its message, and fails the test unless a SIGTERM or Ctrl-C ends it with 0.
func runNew(t *testing.T, dir string, kind scaffold.Kind, url string) {
	t.Helper()
	var cmd *exec.Cmd
	switch kind {
	case scaffold.KindPython:
		cmd = exec.Command("python3", "worker.py")
	case scaffold.KindNode:
		cmd = exec.Command("node", "worker.mjs")
	default:
		build := exec.Command("go", "build", "-o", "program", ".")
		build.Dir = dir
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		cmd = exec.Command("./program")
	}
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PUNCTUAL_SERVER="+url, "PUNCTUAL_TOKEN=")
	answersAndEnds(t, cmd, 0)
}

// wantAcked fails the test if a server still has the message of the programs.
func wantAcked(t *testing.T, url string) {
	t.Helper()
	answer, err := http.Get(url + "/v1/topics/payment.notify/messages/A-17")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusNotFound {
		t.Errorf("after the ack: %s, %s, %v", answer.Status, text, err)
	}
}

// answersAndEnds runs a program until its second attempt was answered. It fails the test unless a SIGTERM, or for a program in Go a
// Ctrl-C, then ends the program with the exit code. The ack may be under way at that moment, and the program waits for it.
func answersAndEnds(t *testing.T, cmd *exec.Cmd, code int) {
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
	for !strings.Contains(both.String(), "payment A-17, attempt 2: answered") {
		n, err := pipe.Read(buf)
		both.Write(buf[:n])
		if err != nil {
			break
		}
	}
	sig := syscall.SIGTERM
	if strings.HasSuffix(cmd.Path, "program") {
		sig = syscall.SIGINT
	}
	if err := cmd.Process.Signal(sig); err != nil {
		t.Error(err)
	}
	rest, err := io.ReadAll(pipe)
	both.Write(rest)
	_ = cmd.Wait() // the exit code is looked at below
	if got := cmd.ProcessState.ExitCode(); got != code || err != nil || !strings.Contains(both.String(), "attempt 1: no answer") || !strings.Contains(both.String(), "attempt 2: answered") {
		t.Errorf("exit code %d, %v; printed\n%s", got, err, both)
	}
}
