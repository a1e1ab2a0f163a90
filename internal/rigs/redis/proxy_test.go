package redisrig

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	netrig "github.com/punctualmq/punctual/internal/rigs/net"
)

// told is a test that notes what it is told, and has its cleanup called.
type told struct {
	testing.TB
	cleanups []func()
	errors   []string
}

func (t *told) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }
func (t *told) Failed() bool     { return len(t.errors) > 0 }
func (t *told) Skipped() bool    { return false }
func (t *told) Errorf(format string, a ...any) {
	t.errors = append(t.errors, fmt.Sprintf(format, a...))
}

func (t *told) end() {
	for _, f := range t.cleanups {
		f()
	}
}

func command(name string) Which {
	return func(words []string) bool { return strings.EqualFold(words[0], name) }
}

// through sends a command through a proxy, on a connection of its own.
func through(p *Proxy, words ...string) (string, error) {
	return (&Server{Addr: p.Addr}).Do(words...)
}

// want fails the test unless a command is answered so.
func want(t *testing.T, p *Proxy, reply string, words ...string) {
	t.Helper()
	if got, err := through(p, words...); err != nil || got != reply {
		t.Errorf("%v: %q, %v; want %q", words, got, err, reply)
	}
}

// Each fault has its effect on the server or the client. A loss and a repetition also show what the
// server has answered.
func TestFaults(t *testing.T) {
	server := Start(t)
	p := StartProxy(t, server)
	want(t, p, "PONG", "PING")

	lost := p.Lose(1, command("INCR"))
	if _, err := through(p, "SET", "text", "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := through(p, "INCR", "text"); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("an answer that is an error was lost: %v", err)
	}
	if _, err := through(p, "INCR", "n"); !errors.Is(err, io.EOF) {
		t.Errorf("a lost answer: %v; want EOF", err)
	}
	if got := lost.Happened(); len(got) != 1 || got[0].Answer != ":1\r\n" || got[0].Request[1] != "n" {
		t.Errorf("lost: %q", got)
	}
	want(t, p, "1", "GET", "n")

	held := p.Hold(Nth(2, command("INCR")))
	want(t, p, "2", "INCR", "n")
	if _, err := through(p, "INCR", "n"); !errors.Is(err, io.EOF) {
		t.Errorf("a request that is held: %v; want EOF", err)
	}
	want(t, p, "3", "INCR", "n")
	if got := held.Release(); got != ":4\r\n" {
		t.Errorf("the request that was held was answered %q", got)
	}

	repeated := p.Repeat(command("INCR"))
	want(t, p, "5", "INCR", "n")
	if got := repeated.Happened(); got[0].Answer != ":5\r\n" || got[0].Again != ":6\r\n" {
		t.Errorf("repeated: %q", got)
	}

	counted := p.Count(command("INCR"))
	refused := p.Refuse("OOM full", Nth(2, command("INCR")))
	want(t, p, "7", "INCR", "n")
	if _, err := through(p, "INCR", "n"); err == nil || err.Error() != "OOM full" {
		t.Errorf("refused: %v", err)
	}
	refused.Happened()
	want(t, p, "7", "GET", "n")
	if got := counted.Seen(); got != 2 {
		t.Errorf("counted %d; want 2", got)
	}

	gone := p.Unreachable()
	if _, err := p.Dial(t.Context(), "tcp", ""); err == nil {
		t.Error("a connection was not refused")
	}
	gone.Happened()
	gone.End()
	c, err := p.Dial(t.Context(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const ping = "*1\r\n$4\r\nPING\r\n"
	_, err = io.WriteString(c, ping)
	if err == nil {
		_, err = readReply(bufio.NewReader(c)) // so that the proxy has the connection
	}
	if err != nil {
		t.Fatal(err)
	}
	frozen := p.Freeze()
	if _, err := io.WriteString(c, ping); err != nil {
		t.Fatal(err)
	}
	frozen.Await()
	want(t, p, "PONG", "PING")
}

// A paused fault stops between the server's work and the client's learning of it.
func TestPausedFault(t *testing.T) {
	server := Start(t)
	p := StartProxy(t, server)
	lost := p.Lose(1, command("INCR")).Paused()
	got := make(chan error, 1)
	go func() {
		_, err := through(p, "INCR", "n")
		got <- err
	}()
	lost.Await()
	if n, err := server.Do("GET", "n"); n != "1" {
		t.Errorf("while the answer is lost n is %s, %v; want 1", n, err)
	}
	select {
	case err := <-got:
		t.Errorf("the client has learned of the loss: %v", err)
	default:
	}
	lost.Resume()
	if err := <-got; !errors.Is(err, io.EOF) {
		t.Errorf("a lost answer: %v; want EOF", err)
	}
}

// A test whose fault did not happen fails, and is told which one.
func TestFaultsThatDoNotHappen(t *testing.T) {
	server := Start(t)
	for name, ask := range map[string]func(p *Proxy) *Fault{
		"the loss of an answer":                           func(p *Proxy) *Fault { return p.Lose(2, command("INCR")) },
		"the holding of a request":                        func(p *Proxy) *Fault { return p.Hold(command("DECR")) },
		"the repetition of a request":                     func(p *Proxy) *Fault { return p.Repeat(command("DECR")) },
		"the refusal of a request":                        func(p *Proxy) *Fault { return p.Refuse("ERR", command("DECR")) },
		"the refusal of a connection":                     func(p *Proxy) *Fault { return p.Unreachable() },
		"the loss of something on a forgotten connection": func(p *Proxy) *Fault { return p.Freeze() },
	} {
		other := &told{TB: t}
		p := StartProxy(other, server)
		ask(p)
		_, _ = through(p, "INCR", "n") // may be lost
		other.end()
		if len(other.errors) != 1 || !strings.Contains(other.errors[0], name) || !strings.Contains(other.errors[0], "proxy_test.go:") {
			t.Errorf("%s, asked for and not met: the test was told %q; want what did not happen and where it was asked for", name, other.errors)
		}
	}
}

// A request that cannot pass a cut wire reaches the server when the cut ends, also when its sender
// has closed its connection by then. A cut in the other direction does not hold the request up.
func TestWire(t *testing.T) {
	server := Start(t)
	w := netrig.StartWire(t, server.Addr)
	over := &Server{Addr: w.Addr}
	if n, err := over.Do("INCR", "n"); err != nil || n != "1" {
		t.Fatalf("INCR over a wire: %s, %v; want 1", n, err)
	}
	for d, before := range map[netrig.Direction]string{netrig.ToServer: "1", netrig.FromServer: "2"} {
		if _, err := server.Do("SET", "n", "1"); err != nil {
			t.Fatal(err)
		}
		w.Cut(d)
		c, err := net.Dial("tcp", w.Addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n"); err != nil {
			t.Fatal(err)
		}
		w.AwaitHeld(t, d, 1)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if n, err := server.Do("GET", "n"); err != nil || n != before {
			t.Errorf("while the wire is cut %v n is %s, %v; want %s", d, n, err, before)
		}
		w.Mend(d)
		for n, err := server.Do("GET", "n"); n != "2"; n, err = server.Do("GET", "n") {
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
	}
}
