package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// terminal is a pseudo-terminal whose screen is read as text.
type terminal struct {
	file  *os.File // what a command sees
	typed *os.File // the other side
	done  chan struct{}
	shown buffer
}

func openTerminal(t *testing.T, columns uint16) *terminal {
	t.Helper()
	typed, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	var number, unlock int32
	size := [4]uint16{40, columns}
	for _, call := range []struct {
		request uintptr
		arg     unsafe.Pointer
	}{
		{syscall.TIOCSPTLCK, unsafe.Pointer(&unlock)},
		{syscall.TIOCGPTN, unsafe.Pointer(&number)},
		{syscall.TIOCSWINSZ, unsafe.Pointer(&size)},
	} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, typed.Fd(), call.request, uintptr(call.arg)); errno != 0 {
			t.Fatalf("pseudo-terminal: %v", errno)
		}
	}
	file, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &terminal{file: file, typed: typed, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_, err := io.Copy(&p.shown, typed)
		if err != nil && !errors.Is(err, syscall.EIO) { // EIO is how a pseudo-terminal ends
			t.Errorf("read the screen: %v", err)
		}
	}()
	return p
}

// close ends the terminal and returns all that was shown.
func (p *terminal) close(t *testing.T) string {
	t.Helper()
	if err := p.file.Close(); err != nil {
		t.Error(err)
	}
	<-p.done
	p.typed.Close()
	return strings.ReplaceAll(p.shown.String(), "\r\n", "\n")
}

// onTerminal runs a command with everything on a terminal, after typing text.
func (r *rig) onTerminal(text string, args ...string) (code int, shown string) {
	r.t.Helper()
	p := openTerminal(r.t, 100)
	if _, err := io.WriteString(p.typed, text); err != nil {
		r.t.Fatal(err)
	}
	r.in = p.file
	code = r.app(p.file, p.file).run(r.t.Context(), args)
	return code, p.close(r.t)
}

func TestColoursAreForTerminals(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x").ok()
	r.kill("t")
	const escape = "\x1b["
	if _, shown := r.onTerminal("", "stats"); !strings.Contains(shown, escape) || !strings.Contains(shown, "│") {
		t.Errorf("no colour or lines on a terminal: %q", shown)
	}
	r.env["NO_COLOR"] = "1"
	if _, shown := r.onTerminal("", "stats"); strings.Contains(shown, escape) {
		t.Errorf("colour on a terminal in spite of NO_COLOR: %q", shown)
	}
	delete(r.env, "NO_COLOR")
	if res := r.run("stats").ok(); strings.Contains(res.out, escape) || strings.Contains(res.out, "│") {
		t.Errorf("colour or lines without a terminal: %q", res.out)
	}
}

func TestDeleteAsksOnATerminal(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x").ok()
	if code, shown := r.onTerminal("no\n", "topic", "delete", "t"); code != exitUnwished || !strings.Contains(shown, "nothing was removed") {
		t.Errorf("answered no: exit %d, %q", code, shown)
	}
	r.run("topic", "show", "t").ok()
	if code, shown := r.onTerminal("t\n", "topic", "delete", "t"); code != exitOK || !strings.Contains(shown, "1 message removed") {
		t.Errorf("answered with the name: exit %d, %q", code, shown)
	}
	r.run("topic", "show", "t").exits(exitUnwished)
}

func TestForecastFillsTheTerminal(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x").ok()
	_, shown := r.onTerminal("", "forecast", "--buckets", "1")
	widest := 0
	for line := range strings.Lines(colours.ReplaceAllString(shown, "")) {
		widest = max(widest, len([]rune(strings.TrimSuffix(line, "\n"))))
	}
	if widest < 90 || widest > 100 {
		t.Errorf("the widest line has %d columns of 100:\n%s", widest, shown)
	}
}

var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// No line of the results is lost under the progress bar.
func TestLinesStandAboveTheProgressBar(t *testing.T) {
	r := newRig(t)
	p := openTerminal(t, 100)
	in, typed := io.Pipe()
	r.in = in
	done := make(chan int)
	go func() { done <- r.app(p.file, p.file).run(t.Context(), []string{"push", "t", "--ndjson"}) }()
	fmt.Fprintln(typed, `{"id":"a","body":""}`)
	waitUntil(t, "the bar counts a line", func() bool { return strings.Contains(p.shown.String(), "[1 in") })
	fmt.Fprintln(typed, `{"id":"b","body":""}`)
	fmt.Fprintln(typed, `bad`)
	typed.Close()
	code := <-done
	shown := p.close(t)
	if code != exitError {
		t.Errorf("exit %d, want 1", code)
	}
	for _, text := range []string{`{"id":"a",`, `{"id":"b",`, "line 3: not a JSON object", "pushed"} {
		if !strings.Contains(screen(shown), text) {
			t.Errorf("the screen does not show %q at the end:\n%s\nfrom %q", text, screen(shown), shown)
		}
	}
}

// screen is what remains on the screen of text with the escape sequences that bars and
// tables use: up by n lines, erase the line, erase what follows.
func screen(text string) string {
	lines, row := []string{""}, 0
	for text != "" {
		if m := moves.FindStringSubmatch(text); m != nil {
			text = text[len(m[0]):]
			switch n := 1; m[2] {
			case "A":
				if m[1] != "" {
					fmt.Sscan(m[1], &n)
				}
				row = max(0, row-n)
			case "K":
				lines[row] = ""
			case "J":
				lines[row] = ""
				lines = lines[:row+1]
			}
			continue
		}
		if text[0] == '\n' {
			if row++; row == len(lines) {
				lines = append(lines, "")
			}
		} else if text[0] != '\r' {
			lines[row] += text[:1]
		}
		text = text[1:]
	}
	return strings.Join(lines, "\n")
}

var moves = regexp.MustCompile("^\x1b\\[([0-9]*)([AKJ])")

// The demo paints its table in place, and shows it once at the end.
func TestDemoPaintsInPlace(t *testing.T) {
	p := openTerminal(t, 100)
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		a := newApp(Streams{In: strings.NewReader(""), Out: p.file, Err: p.file})
		if err := a.playDemo(ctx, func() (punctual.Store, error) { return keptOpen{s}, nil }); err != nil {
			t.Error(err)
		}
	})
	shown := p.close(t)
	if n := strings.Count(shown, "OUTCOME"); n < 20 {
		t.Errorf("the table was painted %d times in 15 seconds", n)
	}
	if last := screen(shown); strings.Count(last, "OUTCOME") != 1 || strings.Count(last, "order-1001") != 1 || strings.Count(last, "kept ") != 8 {
		t.Errorf("the screen at the end:\n%s", last)
	}
}
