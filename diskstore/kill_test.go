package diskstore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// killCycles is how often the ordinary test run kills the process; PUNCTUAL_TORTURE_CYCLES
// asks for another number.
const killCycles = 100

// seedFlag repeats the random choices of a run; what the scheduler does cannot be repeated.
var seedFlag = flag.Uint64("torture.seed", 0, "seed of the torture tests, 0 for a new one")

func tortureSeed(t *testing.T) uint64 {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d; repeat with: go test ./diskstore -run '^%s$' -args -torture.seed=%d", seed, t.Name(), seed)
	return seed
}

// fromEnv is a number from the environment, or def.
func fromEnv(t *testing.T, name string, def int) int {
	text := os.Getenv(name)
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: use a positive number", name, text)
	}
	return n
}

// TestKill kills a process that works on a store, again and again, at random moments, some of
// them during its recovery, and holds all that was ever acknowledged against what it finds.
func TestKill(t *testing.T) {
	k := &killer{
		t: t, dir: t.TempDir(), ledger: newLedger(), rng: rand.New(rand.NewPCG(tortureSeed(t), 0)),
	}
	cycles := fromEnv(t, "PUNCTUAL_TORTURE_CYCLES", killCycles)
	began := time.Now()
	for i := range cycles {
		k.cycle(i)
		if len(k.ledger.problems) > 0 || t.Failed() {
			break
		}
		if (i+1)%100 == 0 {
			t.Logf("%d cycles in %v: %s", i+1, time.Since(began).Round(time.Second), k.ledger)
		}
	}
	if err := k.ledger.judge(k.dir, Options{Logger: quiet}); err != nil {
		t.Errorf("after %d cycles: %v", k.ledger.crashes, err)
	}
	for _, p := range k.ledger.problems {
		t.Error(p)
	}
	t.Logf("in all %v: %s, %d kills during recovery", time.Since(began).Round(time.Second), k.ledger, k.early)
	if k.ledger.deliveries == 0 || k.ledger.acked == 0 {
		t.Error("the cycles were too short for anything to happen")
	}
}

func (l *ledger) String() string {
	ended := 0
	for _, h := range l.msgs {
		if h.ended > 0 {
			ended++
		}
	}
	return fmt.Sprintf("%d crashes, %d calls acknowledged, %d messages, %d of them ended, %d deliveries",
		l.crashes, l.acked, len(l.msgs), ended, l.deliveries)
}

// killer is the parent of the processes that are killed.
type killer struct {
	t      *testing.T
	dir    string
	ledger *ledger
	rng    *rand.Rand
	early  int
}

// The child says opening before it opens the store; its first event means that it is open.
const lineOpening = "opening"

// cycle runs a child and kills it: mostly some time after its first acknowledgement, sometimes
// soon after it began to open the store.
func (k *killer) cycle(i int) {
	early := i%5 == 4
	after := time.Duration(30+k.rng.IntN(220)) * time.Millisecond
	if early {
		k.early++
		after = time.Duration(k.rng.IntN(20_000)) * time.Microsecond
	}
	out, in, err := os.Pipe()
	if err != nil {
		k.t.Fatal(err)
	}
	defer out.Close()
	var stderr bytes.Buffer
	cmd := exec.Command(os.Args[0], "-test.run=^TestKillChild$", "-test.count=1")
	cmd.Env = append(os.Environ(), "PUNCTUAL_KILL_DIR="+k.dir, fmt.Sprintf("PUNCTUAL_KILL_CYCLE=%d", i+1),
		fmt.Sprintf("PUNCTUAL_KILL_SEED=%d", k.rng.Uint64()))
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{in}, &stderr, &stderr
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	in.Close()
	k.listen(out, early, func() { time.AfterFunc(after, func() { cmd.Process.Kill() }) })
	err = cmd.Wait()
	k.ledger.crash(false)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		k.t.Errorf("cycle %d: the child ended by itself (%v):\n%s", i, err, stderr.String())
	}
}

// listen reads what the child says until it is dead, and arms the kill.
func (k *killer) listen(out io.Reader, early bool, arm func()) {
	armed := false
	lines := bufio.NewReaderSize(out, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if len(line) > 0 {
				k.t.Errorf("the child's last line is torn: %q", line)
			}
			return
		}
		opening := string(line) == lineOpening+"\n"
		var e event
		if !opening {
			if err := json.Unmarshal(line, &e); err != nil {
				k.t.Errorf("line %q: %v", line, err)
			}
			if e.Err != "" {
				k.t.Errorf("a healthy store refused a call: %s: %s", e.Kind, e.Err)
			}
			k.ledger.add(e)
		}
		if !armed && (opening && early || e.Done) {
			armed = true
			arm()
		}
	}
}

// TestKillChild is the process that TestKill starts and kills; by itself it does nothing.
func TestKillChild(t *testing.T) {
	dir := os.Getenv("PUNCTUAL_KILL_DIR")
	if dir == "" {
		t.Skip("this is the child process of TestKill")
	}
	cycle := fromEnv(t, "PUNCTUAL_KILL_CYCLE", 0)
	seed, err := strconv.ParseUint(os.Getenv("PUNCTUAL_KILL_SEED"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	out := os.NewFile(3, "events")
	say := func(line []byte) {
		if len(line) > 4096 {
			panic("a line longer than PIPE_BUF may be torn")
		}
		if _, err := out.Write(line); err != nil {
			panic(err)
		}
	}
	say([]byte(lineOpening + "\n"))
	// Small buffers and segments, so that flushes and replaced segments are among what is cut.
	s, err := Open(dir, &Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), claimLimit: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	w := &workload{store: s, prefix: "c" + strconv.Itoa(cycle), seed: seed, emit: func(e event) {
		line, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		say(append(line, '\n'))
	}}
	w.calls.Store(int64(cycle+1) << 32)
	w.adopt(t, s)
	w.run(context.Background())
}

// adopt fills the pool with messages of earlier processes.
func (w *workload) adopt(t *testing.T, s *Store) {
	for _, topic := range allTopicNames() {
		p, err := s.List(t.Context(), punctual.ListQuery{Topic: topic, State: punctual.StateScheduled, Limit: 50})
		if err != nil && !errors.Is(err, punctual.ErrNotFound) {
			t.Fatal(err)
		}
		for _, i := range p.Messages {
			if strings.HasPrefix(i.ID, "c") {
				w.keep(i.ID)
			}
		}
	}
}
