package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// The exit codes of CMD with a meaning of their own, as in sysexits.h. Any other code but 0 is a
// failed attempt.
const (
	exitDiscard = 65 // EX_DATAERR: a retry cannot help
	exitSnooze  = 75 // EX_TEMPFAIL: try again later
)

const (
	// defaultSnooze is how long exitSnooze puts a message off.
	defaultSnooze = 30 * time.Second
	// keptStderr is how many bytes of the end of CMD's standard error become part of the failure's
	// text. With the exit status in front, the text has at most limits.MaxErrorBytes.
	keptStderr = limits.MaxErrorBytes - 64
	// pipeGrace is how long to wait, after CMD has ended, for a process that CMD left behind to
	// close standard error, and with --then standard output.
	pipeGrace = 2 * time.Second
)

// execute runs CMD with the message, and turns the exit code of CMD into what a handler returns,
// such as a Snooze.
func (c *consumer) execute(ctx context.Context, d *punctual.Delivery) error {
	tail := &tail{max: keptStderr}
	var printed printedMessages
	out := c.commandOut()
	if c.flags.then {
		out = &printed
	}
	err := c.runCommand(ctx, d, out, tail)
	switch code, exited := exitStatus(err); {
	case err == nil:
		return c.succeeded(ctx, d, &printed)
	case ctx.Err() != nil:
		return fmt.Errorf("the command was ended: %w", context.Cause(ctx))
	case exited && code == exitSnooze:
		if c.flags.snooze != nil {
			return punctual.Snooze(*c.flags.snooze)
		}
		return punctual.Snooze(defaultSnooze)
	case exited && code == exitDiscard:
		return punctual.Discard(tail.explain(err))
	default:
		return tail.explain(err)
	}
}

// succeeded returns what execute returns after CMD has ended with 0: nil, with which the message is
// acked, or with --then the messages that CMD printed, to be stored with the ack. If these cannot
// be read, or the JSON line of --json cannot be printed, it returns an error.
func (c *consumer) succeeded(ctx context.Context, d *punctual.Delivery, printed *printedMessages) error {
	then, err := printed.messages(d)
	if err != nil {
		return err
	}
	if c.json {
		if err := c.print(ctx, d); err != nil {
			return err
		}
	}
	return punctual.Follow(nil, then...)
}

// runCommand runs CMD to its end, on Unix in a process group of its own, so that a signal from the
// terminal does not reach CMD and the whole group can be killed.
func (c *consumer) runCommand(ctx context.Context, d *punctual.Delivery, out io.Writer, tail *tail) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", c.flags.exec)
	cmd.Stdin = bytes.NewReader(d.Body)
	cmd.Stdout = out
	lines := &lineWriter{out: c.errs}
	cmd.Stderr = io.MultiWriter(tail, lines)
	cmd.Env = append(os.Environ(), environment(d)...)
	cmd.WaitDelay = pipeGrace
	ownGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	if err := c.children.start(cmd); err != nil {
		return fmt.Errorf("start sh: %w", err)
	}
	err := cmd.Wait()
	lines.end()
	c.children.ended(cmd.Process.Pid)
	if errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success() {
		if c.flags.then {
			return fmt.Errorf("the command has ended, but a process that it left in the background holds its output open: %w", err)
		}
		return nil // CMD has succeeded, and without --then what that process still prints does not matter
	}
	return err
}

// commandOut returns where CMD writes its standard output without --then: to this program's own, or
// in tests to what stands in for it.
func (c *consumer) commandOut() io.Writer {
	if f, ok := c.out.Stream().(*os.File); ok {
		return f
	}
	return c.out
}

// exitStatus returns the exit code in err. exited is false if err has none, for example because CMD
// could not be started or was killed by a signal.
func exitStatus(err error) (code int, exited bool) {
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		return e.ExitCode(), e.Exited()
	}
	return 0, false
}

// environment returns the environment variables that tell CMD about the message; the body is its
// standard input.
func environment(d *punctual.Delivery) []string {
	env := []string{
		"PUNCTUAL_ID=" + d.ID,
		"PUNCTUAL_TOPIC=" + d.Topic,
		fmt.Sprintf("PUNCTUAL_ATTEMPT=%d", d.Attempt),
		"PUNCTUAL_DUE=" + stamp(d.Due),
	}
	var headers []string
	for name, value := range d.Headers {
		headers = append(headers, "PUNCTUAL_HEADER_"+envName(name)+"="+value)
	}
	slices.Sort(headers) // of two headers whose names become the same variable, always the same one counts
	return append(env, headers...)
}

func envName(header string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, header)
}

// tail keeps the last max bytes that were written to it. One goroutine at a time may use it.
type tail struct {
	max  int
	kept []byte
	cut  bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.max; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
		t.cut = true
	}
	return len(p), nil
}

// lineWriter writes to out whole lines, each in one Write together with those that came with it, so
// that the lines of commands that run at the same time do not mix. A longer line than longestLine
// is written in parts. One goroutine at a time may use it.
type lineWriter struct {
	out  io.Writer
	rest []byte // the beginning of a line
}

const longestLine = 64 << 10

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	whole := bytes.LastIndexByte(w.rest, '\n') + 1
	if len(w.rest)-whole > longestLine {
		whole = len(w.rest)
	}
	if whole == 0 {
		return len(p), nil
	}
	_, err := w.out.Write(w.rest[:whole])
	w.rest = append(w.rest[:0], w.rest[whole:]...)
	return len(p), err
}

// end writes a last line that has no line break, and a line break behind it. An error is kept in
// out.
func (w *lineWriter) end() {
	if len(w.rest) > 0 {
		_, _ = w.Write([]byte("\n"))
	}
}

// explain returns err with the bytes that were kept behind its text.
func (t *tail) explain(err error) error {
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.kept), ""))
	if text == "" {
		return err
	}
	if t.cut {
		text = "…" + text
	}
	return fmt.Errorf("%w: %s", err, text)
}

// processes has the process groups of the commands that run now. It is safe for concurrent use.
type processes struct {
	mu     sync.Mutex
	pids   map[int]bool // guarded by mu
	killed bool         // no process starts any more; guarded by mu
}

// errKilled is the error of a command that is not started because this process is about to end.
var errKilled = errors.New("interrupted")

func (p *processes) start(cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		return errKilled
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if p.pids == nil {
		p.pids = make(map[int]bool)
	}
	p.pids[cmd.Process.Pid] = true
	return nil
}

func (p *processes) ended(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pids, pid)
}

// kill kills the process groups of all commands that run, and has start refuse further ones.
func (p *processes) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
	for pid := range p.pids {
		_ = killGroup(pid) // it may have ended just now
	}
}

// maxPrinted bounds what CMD may print with --then. The longest JSON text of a byte of a body has
// six bytes, as in \u0000, and each message may have 1 KiB around its body.
const maxPrinted = 6*limits.MaxThenBytes + limits.MaxThen<<10

// printedMessages keeps what CMD prints with --then. One goroutine at a time may use it.
type printedMessages struct {
	text    []byte
	tooLong bool
}

// Write keeps text, up to maxPrinted bytes in all. It never fails, so that CMD goes on to its end
// and its exit code counts.
func (p *printedMessages) Write(text []byte) (int, error) {
	if p.tooLong = p.tooLong || len(p.text)+len(text) > maxPrinted; !p.tooLong {
		p.text = append(p.text, text...)
	}
	return len(text), nil
}

// messages reads the lines as messages that follow d, and checks them as a store with the default
// limits does, so that what is wrong with them is said before the message is settled.
func (p *printedMessages) messages(d *punctual.Delivery) ([]punctual.NewMessage, error) {
	if p.tooLong {
		return nil, fmt.Errorf("the command printed more than %d bytes: %w", maxPrinted, punctual.ErrTooLarge)
	}
	var ms []punctual.NewMessage
	number := 0
	for line := range bytes.Lines(p.text) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		m, err := new(pushFlags).line(line, "")
		if err != nil {
			return nil, fmt.Errorf("line %d of what the command printed: %w", number, err)
		}
		ms = append(ms, m)
	}
	x := punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck, Then: ms}
	if err := storekit.CheckSettlement(&x, limits.DefaultMaxBody); err != nil {
		return nil, fmt.Errorf("what the command printed: %w", err)
	}
	return ms, nil
}

// settled is the OnSettle of the worker's Observer. For a message that was acked with follow-ups it
// prints which follow-ups these are. With --json it prints nothing, because standard output then
// has a line for each message. It prints nothing either of the messages of duties, which the worker
// settles as well: a copy for a group is a follow-up, too.
func (c *consumer) settled(_ context.Context, s punctual.Settlement, _ time.Duration, err error) {
	if err != nil || len(s.Then) == 0 || c.json || !slices.Contains(c.topics, s.Topic) {
		return
	}
	var then []string
	for i := range s.Then {
		m := &s.Then[i]
		then = append(then, fmt.Sprintf("%s/%s %s", m.Topic, cmp.Or(m.ID, "a new ID"), dueWords(m)))
	}
	c.printf("✓ %s acked, then %s\n", s.ID, strings.Join(then, ", "))
	c.fail(c.out.failed())
}

// dueWords says when a message that is to be pushed is due.
func dueWords(m *punctual.NewMessage) string {
	switch {
	case !m.Due.IsZero():
		return "due at " + stamp(m.Due)
	case m.Delay != 0:
		return "due in " + notation.FormatDuration(m.Delay)
	}
	return "due now"
}
