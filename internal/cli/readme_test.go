//go:build unix

package cli

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The README's commands of a server, typed into a shell one after the other, do what their comments say.
func TestReadmeCommands(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // 7878 may be another's
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, m := range regexp.MustCompile(`(?m)^    \$ ((?:punctual|curl) .*)$`).FindAllStringSubmatch(string(page), -1) {
		command := strings.NewReplacer("localhost:7878", addr, "serve --store", "serve --listen "+addr+" --store", "--in 5s", "--in 1s").Replace(m[1])
		commands = append(commands, "echo; echo \"<$?>\"; "+command)
		if strings.Contains(command, "serve --listen") {
			commands = append(commands, `server=$!; until curl -fs http://`+addr+`/readyz >/dev/null; do sleep 0.05; done`)
		}
	}
	if len(commands) != 6 {
		t.Fatalf("found %d commands: has the page's form changed?", len(commands))
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	wrapper := "#!/bin/sh\n" + runAsCommand + "=1 exec '" + os.Args[0] + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "punctual"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	script := "trap 'kill $server; wait' EXIT\n" + strings.Join(commands, "\n") + "\necho \"<$?>\"\n"
	shell := exec.Command("bash", "-c", script)
	shell.Dir, shell.WaitDelay = dir, time.Minute
	shell.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "PUNCTUAL_STORE=", "GORACE=atexit_sleep_ms=0")
	out, err := shell.CombinedOutput()
	text := string(out)
	if err != nil {
		t.Errorf("the shell: %v", err)
	}
	// In this order: stored, moved, claimed with its body, too late to cancel.
	for _, want := range []string{`"result":"stored"`, `A-17`, `"token":`, `"code":"leased"`} {
		_, rest, ok := strings.Cut(text, want)
		if !ok {
			t.Fatalf("the commands do not print %s, or not in this order:\n%s", want, out)
		}
		text = rest
	}
	if strings.Contains(string(out), "<1>") || strings.Contains(string(out), "<2>") {
		t.Errorf("a command failed:\n%s", out)
	}
}
