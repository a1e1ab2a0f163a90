//go:build unix

package cli

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newcomer is a variable. When it is set, TestReadmeCommands carries out each command, the clone,
// the demo and the installation included. Only the address of the server is another one, and git
// clones this directory. 'make newcomer' sets the variable.
const newcomer = "PUNCTUAL_NEWCOMER"

// The README's commands, typed into a shell one after the other in an empty directory, do what the
// page says. Without PUNCTUAL_NEWCOMER the clone is this directory, the demo is not played, and the
// binary is that of the test.
func TestReadmeCommands(t *testing.T) {
	t.Parallel() // it waits for processes
	page, err := os.ReadFile("../../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	text := regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(string(page), "")
	for _, m := range regexp.MustCompile(`(?m)^    (.*)$`).FindAllStringSubmatch(text, -1) {
		command, ok := strings.CutPrefix(m[1], "$ ")
		if !ok {
			t.Errorf("the README has an indented line that is no command: %s", m[1])
		}
		commands = append(commands, command)
	}
	const last = "./notify"
	if len(commands) != 13 || !strings.HasPrefix(commands[12], last) {
		t.Fatalf("found %d commands, the last one %q: has the page's form changed?", len(commands), commands[len(commands)-1])
	}
	dir := t.TempDir()
	out := typeInto(t, dir, commands[:12])
	printsInOrder(t, out, "run ./cmd/punctual demo", `"result":"stored"`, "A-17", `"token":"`, `{"topic":"order.close","id":"A-17"}`)
	if os.Getenv(newcomer) != "" && (strings.Contains(out, "BROKEN") || !strings.Contains(out, "kept")) {
		t.Errorf("the demo:\n%s", out)
	}
	runUntil(t, dir, last, "payment A-17, attempt 2: answered")
}

// printsInOrder fails the test unless out, as typeInto returns it, has the wanted parts one after
// another, and no command failed.
func printsInOrder(t *testing.T, out string, wanted ...string) {
	t.Helper()
	text := out
	for _, want := range wanted {
		_, rest, ok := strings.Cut(text, want)
		if !ok {
			t.Fatalf("the commands do not print %q, or not in this order:\n%s", want, out)
		}
		text = rest
	}
	if m := regexp.MustCompile(`<[1-9]\d*>`).FindString(out); m != "" {
		t.Errorf("a command failed with %s:\n%s", m, out)
	}
}

// typeInto runs the commands of a page in dir, and returns what they print. Behind the output of
// each stands its exit code, as in <0>, or for a server and for kill that of the wait which
// follows.
func typeInto(t *testing.T, dir string, commands []string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // another program may listen on 7878
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	// The tests of the clone are not run by a test. TestReadmeBegins shows that there is the
	// target.
	tests := []string{"make -C punctual test", "grep '^test: deps' punctual/Makefile"}
	elsewhere := strings.NewReplacer(append(tests, "localhost:7878", addr, "punctual serve --store", "punctual serve --listen "+addr+" --store")...)
	if os.Getenv(newcomer) == "" {
		elsewhere = strings.NewReplacer(append(tests, "localhost:7878", addr, "punctual serve --store", "punctual serve --listen "+addr+" --store",
			"git clone https://github.com/punctualmq/punctual", "ln -s '"+root+"' punctual",
			"make -C punctual demo", "make -n -C punctual demo",
			"go install -C punctual ./cmd/punctual", "go list -C punctual ./cmd/punctual")...)
		wrapper := "#!/bin/sh\n" + runAsCommand + "=1 exec '" + os.Args[0] + "' \"$@\"\n"
		if err := os.WriteFile(filepath.Join(bin, "punctual"), []byte(wrapper), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	script := "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n"
	for _, command := range commands {
		script += elsewhere.Replace(command) + "\n"
		switch {
		case strings.Contains(command, "punctual serve"):
			script += "until curl -fs http://" + addr + "/readyz >/dev/null; do sleep 0.05; done\n"
		case strings.HasPrefix(command, "kill"):
			script += "wait\n"
		}
		script += "echo \"<$?>\"\n"
	}
	shell := exec.Command("bash", "-c", script)
	shell.Dir, shell.WaitDelay = dir, time.Minute
	shell.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GOBIN="+bin, "PUNCTUAL_STORE=", "GORACE=atexit_sleep_ms=0",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+root+".insteadOf", "GIT_CONFIG_VALUE_0=https://github.com/punctualmq/punctual")
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Errorf("the shell: %v", err)
	}
	return string(out)
}

// runUntil runs a command in dir until text is on its standard error, and then ends it as Ctrl-C
// does. The test fails if there is another line behind that.
func runUntil(t *testing.T, dir, command, text string) {
	t.Helper()
	shell := exec.Command("bash", "-c", "exec "+command)
	shell.Dir, shell.WaitDelay = dir, time.Minute
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	logged, err := shell.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	found := false
	lines := bufio.NewScanner(logged)
	for !found && lines.Scan() {
		t.Log(lines.Text())
		found = strings.Contains(lines.Text(), text)
	}
	if err := syscall.Kill(-shell.Process.Pid, syscall.SIGINT); err != nil && found {
		t.Error(err)
	}
	for lines.Scan() {
		t.Errorf("behind Ctrl-C: %s", lines.Text())
	}
	if err := shell.Wait(); err != nil {
		t.Errorf("%s, ended with Ctrl-C: %v", command, err)
	}
	if !found {
		t.Errorf("%s did not print %q", command, text)
	}
}
