package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/creack/pty"
	"github.com/jedib0t/go-pretty/v6/text"

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
	typed, file, err := pty.Open()
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	if err := pty.Setsize(file, &pty.Winsize{Rows: 40, Cols: columns}); err != nil {
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

// onTerminal runs a command whose input, output and errors are a terminal, into which text was
// typed before.
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

// A purge shows how many messages it has removed.
func TestPurgeShowsProgress(t *testing.T) {
	r := newRig(t)
	for range 3 {
		r.run("push", "jobs", "x", "--in", "1h").ok()
	}
	code, shown := r.onTerminal("", "topic", "purge", "jobs", "--yes")
	if code != exitOK || !strings.Contains(shown, "messages removed") || !strings.Contains(shown, "jobs: 3 messages removed") {
		t.Errorf("exit %d, shown %q", code, shown)
	}
}

func TestForecastFillsTheTerminal(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x").ok()
	_, shown := r.onTerminal("", "forecast", "--buckets", "1")
	if n := widest(shown); n < 90 || n > 100 {
		t.Errorf("the widest line has %d columns of 100:\n%s", n, shown)
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
	for _, text := range []string{`{"id":"a",`, `{"id":"b",`, "line 3: JSON at byte 0", "pushed"} {
		if !strings.Contains(screen(shown), text) {
			t.Errorf("the screen does not show %q at the end:\n%s\nfrom %q", text, screen(shown), shown)
		}
	}
}

// The bar of a file shows a percentage of the file, and after an error it does not say that all is
// done.
func TestTheBarOfAFileHasAPercentage(t *testing.T) {
	line := `{"body":"x"}` + "\n"
	for _, c := range []struct {
		input, says, silent string
		code                int
	}{
		{strings.Repeat(line, 3000), "done!", "stopped", exitOK},
		{strings.Repeat(line, 2500) + "bad\n", "stopped", "done!", exitError},
	} {
		r := newRig(t)
		name := filepath.Join(t.TempDir(), "input")
		if err := os.WriteFile(name, []byte(c.input), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		p := openTerminal(t, 100)
		var batches int
		r.in, r.pushed = f, func() {
			if batches++; batches == 2 {
				waitUntil(t, "the bar shows a part of the file", func() bool { return partly.MatchString(p.shown.String()) })
			}
		}
		code := r.app(&buffer{}, p.file).run(t.Context(), []string{"push", "t", "--ndjson"})
		shown := p.close(t)
		if last := screen(shown); code != c.code || !strings.Contains(last, c.says) || strings.Contains(last, c.silent) || batches < 2 {
			t.Errorf("exit %d after %d batches; the screen at the end:\n%s\nwant exit %d and %q", code, batches, last, c.code, c.says)
		}
	}
}

// partly is a percentage that is neither 0 nor 100.
var partly = regexp.MustCompile(`(0\.0[1-9]|0\.[1-9]\d|[1-9]\d?\.\d+)%`)

// screen is what remains on the screen after text was shown. It knows the escape sequences that
// bars and tables use: up by n lines, erase the line, erase from there to the end.
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
		t.Errorf("the table was painted %d times in 20 seconds", n)
	}
	if last := screen(shown); strings.Count(last, "OUTCOME") != 1 || strings.Count(last, "order-1001") != 1 || strings.Count(last, "kept ") != 11 {
		t.Errorf("the screen at the end:\n%s", last)
	}
}

// On a terminal of 80 columns top draws its pages, goes to a message, and leaves the screen as it
// was. With NO_COLOR it uses no colours.
func TestTopOnATerminal(t *testing.T) {
	for _, c := range []struct{ term, noColor string }{{"xterm-256color", ""}, {"xterm-256color", "1"}} {
		r := newRig(t)
		r.run("push", "order.cancel", "x", "--id", "order-42", "--in", "1h").ok()
		r.env["TERM"], r.env["NO_COLOR"] = c.term, c.noColor
		p := openTerminal(t, 80)
		r.in = p.file
		done := make(chan int)
		go func() { done <- r.app(p.file, p.file).run(t.Context(), []string{"top", "--utc"}) }()
		type_ := func(keys, shows string) {
			t.Helper()
			if _, err := io.WriteString(p.typed, keys); err != nil {
				t.Fatal(err)
			}
			waitUntil(t, "the screen shows "+shows, func() bool { return strings.Contains(p.shown.String(), shows) })
		}
		type_("", "durability")
		type_("gt", "SCHEDULED")
		type_("\r", "order-42")
		type_("\r", "created")
		type_("q", "\x1b[?1049l") // brings back the screen as it was before
		if code := <-done; code != exitOK {
			t.Errorf("exit %d", code)
		}
		shown := p.close(t)
		if coloured := strings.Contains(shown, "\x1b[32m"); coloured != (c.noColor == "") {
			t.Errorf("NO_COLOR=%q: colours %v: %q", c.noColor, coloured, shown)
		}
	}
}

// On a terminal a row of list and dead list takes one line: its texts are cut, not its ID. In a
// pipe and with --json they are as long as ever.
func TestListsFitTheTerminal(t *testing.T) {
	r := newRig(t)
	id, topic, body := strings.Repeat("i", 20), strings.Repeat("topic.", 9), strings.Repeat("消息 ", 7)
	r.run("push", topic, body, "--id", id).ok()
	r.kill(topic)
	for _, command := range [][]string{{"list", topic}, {"dead", "list"}} {
		piped := r.run(command...).ok()
		piped.contains(topic, strings.TrimSpace(body), "discarded: no such customer")
		if widest(piped.out) <= 100 {
			t.Fatalf("this test shows nothing, because the table has %d columns", widest(piped.out))
		}
		_, shown := r.onTerminal("", command...)
		if n := widest(shown); n > 100 || n < 95 || !strings.Contains(shown, id) || !strings.Contains(shown, "…") {
			t.Errorf("%q: %d columns of 100:\n%s", command, n, shown)
		}
		if _, shown := r.onTerminal("", append(command, "--json")...); !strings.Contains(shown, topic) || !strings.Contains(shown, strings.TrimSpace(body)) {
			t.Errorf("%q --json: %s", command, shown)
		}
	}
}

// widest is how many columns the widest line of a text takes.
func widest(shown string) (n int) {
	for line := range strings.Lines(colours.ReplaceAllString(shown, "")) {
		n = max(n, text.StringWidthWithoutEscSequences(strings.TrimRight(line, "\n")))
	}
	return n
}
