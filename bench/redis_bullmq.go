package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// BullMQ, which most programs that want delayed jobs on Redis pick. It is a library for Node, so bullmq/bullmq.mjs pushes and
// handles in loops of its own, and the bench speaks lines of JSON with it. It works by scripts, as Punctual and asynq do.

const (
	// bullmqDir is the folder of the program, from the one in which the bench runs.
	bullmqDir = "bullmq"
	// bullmqStart is how long a process of Node may take to start.
	bullmqStart = time.Second
	// bullmqBatch is how many jobs addBulk takes where many are scheduled for one instant.
	bullmqBatch = 500
)

// bullmqVersion is the version that is installed, or the reason why there is none.
func bullmqVersion() string {
	var p struct{ Version string }
	data, err := os.ReadFile(filepath.Join(bullmqDir, "node_modules", "bullmq", "package.json"))
	if err != nil || json.Unmarshal(data, &p) != nil || p.Version == "" {
		return "unknown"
	}
	return p.Version
}

// bullmqCommand is Node with the program. It says what to do where something is missing.
func bullmqCommand(ctx context.Context, args ...string) (*exec.Cmd, error) {
	path, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("BullMQ needs Node, which is missing: run tools/deps.sh bench, which installs it on Debian and Ubuntu, or leave the scenarios with bullmq in their names out with -only: %w", err)
	}
	if _, err := os.Stat(filepath.Join(bullmqDir, "node_modules", "bullmq")); err != nil {
		return nil, fmt.Errorf("BullMQ is not installed: run tools/deps.sh bench, or npm ci in bench/%s: %w", bullmqDir, err)
	}
	cmd := exec.CommandContext(ctx, path, append([]string{filepath.Join(bullmqDir, "bullmq.mjs")}, args...)...)
	cmd.Stderr = os.Stderr
	dieWithParent(cmd)
	return cmd, nil
}

// bullmqConsumer is the command of a consumer; what it says is what consumers of the bench say.
func bullmqConsumer(ctx context.Context, t consumerTask) (*exec.Cmd, error) {
	host, port, err := net.SplitHostPort(t.Addr)
	if err != nil {
		return nil, err
	}
	return bullmqCommand(ctx, "consume", host, port, strconv.Itoa(t.Slots), t.Records)
}

// bullmqSystem is the scheduling side: one process of Node, to which one request goes at a time.
type bullmqSystem struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	mu    sync.Mutex
	lines *bufio.Reader // guarded by mu
}

// bullmqRequest is a line to the program; it has the fields that its request needs.
type bullmqRequest struct {
	Do      string     `json:"do"`
	Letters [][2]int64 `json:"letters,omitempty"` // number and due time in ms
	Callers int        `json:"callers,omitempty"`
	Batch   int        `json:"batch,omitempty"`
	MS      int64      `json:"ms,omitempty"`
	N       int64      `json:"n,omitempty"`
	Due     int64      `json:"due,omitempty"`
	Rate    int        `json:"rate,omitempty"`
	LeadMS  int64      `json:"lead_ms,omitempty"`
}

// bullmqAnswer is a line from it.
type bullmqAnswer struct {
	Ready   bool          `json:"ready"`
	Items   int64         `json:"items"`
	Took    time.Duration `json:"took_ns"`
	CPU     time.Duration `json:"cpu_ns"`
	Overdue int64         `json:"overdue"`
	Pending int64         `json:"pending"`
}

func openBullMQ(ctx context.Context, addr string) (*bullmqSystem, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	cmd, err := bullmqCommand(ctx, "push", host, port)
	if err != nil {
		return nil, err
	}
	b := &bullmqSystem{cmd: cmd}
	if b.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start node: %w", err)
	}
	b.lines = bufio.NewReader(out)
	if first, err := b.answer(); err != nil || !first.Ready {
		return nil, errors.Join(errors.New("the program of BullMQ ended before it was ready"), err, b.close())
	}
	return b, nil
}

func (b *bullmqSystem) answer() (a bullmqAnswer, err error) {
	line, err := b.lines.ReadBytes('\n')
	if err != nil {
		return a, fmt.Errorf("the program of BullMQ gives no answer; what it wrote to standard error tells why: %w", err)
	}
	return a, json.Unmarshal(line, &a)
}

func (b *bullmqSystem) ask(r bullmqRequest) (bullmqAnswer, error) {
	line, err := json.Marshal(r)
	if err != nil {
		return bullmqAnswer{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.stdin.Write(append(line, '\n')); err != nil {
		return bullmqAnswer{}, fmt.Errorf("ask the program of BullMQ to %s: %w", r.Do, err)
	}
	return b.answer()
}

func (b *bullmqSystem) push(_ context.Context, _ int, ls []letter) error {
	r := bullmqRequest{Do: "push"}
	for _, l := range ls {
		r.Letters = append(r.Letters, [2]int64{int64(l.seq), l.due.UnixMilli()})
	}
	_, err := b.ask(r)
	return err
}

func (b *bullmqSystem) pending(context.Context) (int64, error) {
	a, err := b.ask(bullmqRequest{Do: "pending"})
	return a.Pending, err
}

func (b *bullmqSystem) close() error { return errors.Join(b.stdin.Close(), b.cmd.Wait()) }

// bullmqWays are the ways of scheduling that are measured, and the scenarios of Punctual beside which they stand.
var bullmqWays = []redisSchedule{{1, 1, everySecond}, {redisCallers, 1, everySecond}, {1, 100, everySecond}, {1, 1000, everySecond}}

func bullmqScheduleName(x redisSchedule) string { return "redis-bullmq/" + filepath.Base(x.name()) }

// bullmqDrains are drains with as many processes and as much concurrency as Punctual's.
var bullmqDrains = []redisDrain{{1, redisHands, everySecond, false}, {8, redisHands, everySecond, false}}

func bullmqDrainName(x redisDrain) string { return "redis-bullmq/drain-" + filepath.Base(x.name()) }

// bullmqScenarios have rounds of their own, so that where there is no Node only they fail. Its lateness is among
// redisLatenesses.
func bullmqScenarios() []scenario {
	var all []scenario
	for _, x := range bullmqWays {
		all = append(all, scenario{
			name: bullmqScheduleName(x), about: "BullMQ: " + callersLabel(x.callers, x.batch),
			takes: func(z sizes) time.Duration { return z.RedisSpan + 2*bullmqStart },
			run:   func(ctx context.Context, e *env) error { return scheduleBullMQ(ctx, e, x) },
		})
	}
	for _, x := range bullmqDrains {
		all = append(all, scenario{
			name: bullmqDrainName(x), about: fmt.Sprintf("BullMQ: jobs of one instant by %s with concurrency %d", processes(x.processes), x.slots),
			takes: func(z sizes) time.Duration {
				return time.Duration(x.processes+4)*bullmqStart + time.Duration(drainSize(sysBullMQ, z))*200*time.Microsecond
			},
			run: func(ctx context.Context, e *env) error { return drainBullMQ(ctx, e, x) },
		})
	}
	return all
}

// scheduleBullMQ pushes for a second unmeasured, in which Node compiles what it runs often, and then as long as the others.
func scheduleBullMQ(ctx context.Context, e *env, x redisSchedule) error {
	return e.withRedis(ctx, x.fsync, func(s *redisServer) error {
		b, err := openBullMQ(ctx, s.addr)
		if err != nil {
			return err
		}
		return errors.Join(b.schedule(ctx, e, s, x), b.close())
	})
}

func (b *bullmqSystem) schedule(ctx context.Context, e *env, s *redisServer, x redisSchedule) error {
	flat := bullmqRequest{Do: "flatOut", Callers: x.callers, Batch: x.batch, MS: min(e.sizes.RedisSpan, time.Second).Milliseconds()}
	warm, err := b.ask(flat)
	if err != nil {
		return err
	}
	flat.MS = e.sizes.RedisSpan.Milliseconds()
	e.say("bullmq for %v", e.sizes.RedisSpan)
	from, err := s.usage(ctx)
	if err != nil {
		return err
	}
	did, err := b.ask(flat)
	if err != nil {
		return err
	}
	to, err := s.usage(ctx)
	if err != nil {
		return err
	}
	e.out.set("rate", float64(did.Items)/did.Took.Seconds())
	e.out.set("cpu_us_per_message", float64(did.CPU.Microseconds())/float64(did.Items))
	e.out.setCost("", cost(from, to, true), did.Items)
	return expectPending(ctx, b, warm.Items+did.Items)
}

func drainBullMQ(ctx context.Context, e *env, x redisDrain) error {
	d, err := x.drain(ctx, e, sysBullMQ)
	if err != nil {
		return err
	}
	d.note(e.out, "")
	// From its first job on, as with asynq: how long it waits before that is in a value of its own.
	e.out.set("rate", d.rateSince(d.first))
	e.out.set("first_ms", ms(d.first.Sub(d.due)))
	return nil
}

// readBullMQRecords reads what a consumer of BullMQ handled: a line for each job with number, due time, time and size of the body.
func readBullMQRecords(path string) (list []record, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(data) {
		var r [4]int64
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if r[3] != bodyBytes {
			return nil, fmt.Errorf("a body of %d bytes was delivered where all have %d", r[3], bodyBytes)
		}
		list = append(list, record{uint32(r[0]), time.UnixMilli(r[1]), time.UnixMilli(r[2])})
	}
	return list, nil
}

// bullmqTable has BullMQ beside Punctual and asynq, as measured in the same run.
func bullmqTable(r run) string {
	type line struct{ label, bullmq, punctual, asynq string }
	var lines []line
	for _, x := range bullmqWays {
		lines = append(lines, line{"schedule, " + callersLabel(x.callers, x.batch), bullmqScheduleName(x), x.name(), "asynq_rate"})
	}
	for _, x := range bullmqDrains {
		lines = append(lines, line{fmt.Sprintf("drain, %s, concurrency %d", processes(x.processes), x.slots), bullmqDrainName(x), x.name(), "asynq_fast_rate"})
	}
	text := "| | BullMQ/s | Punctual/s | times BullMQ | asynq/s | BullMQ: Redis CPU µs per message | Punctual's | BullMQ: process CPU µs per message | Punctual's | CPU used by others | rounds |\n" +
		"|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
	for _, x := range lines {
		cell := func(scenario, value string, f func(float64) string) string {
			if s, ok := r.over(scenario, value); ok {
				return s.figure(f)
			}
			if r.rounds(scenario) > 0 {
				return "-"
			}
			return "not measured"
		}
		times := "not measured"
		theirs, measured := r.over(x.bullmq, "rate")
		if own, ok := r.over(x.punctual, "rate"); ok && measured {
			times = digits(own.median / theirs.median)
		}
		text += fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %d |\n", x.label,
			cell(x.bullmq, "rate", digits), cell(x.punctual, "rate", digits), times, cell(x.punctual, x.asynq, digits),
			cell(x.bullmq, "redis_us_per_message", digits), cell(x.punctual, "redis_us_per_message", digits),
			cell(x.bullmq, "cpu_us_per_message", digits), cell(x.punctual, "cpu_us_per_message", digits),
			cell(x.bullmq, "others_cpu", percent), r.rounds(x.bullmq))
	}
	return text
}
