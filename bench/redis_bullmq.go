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

// BullMQ is a queue on Redis with delayed jobs. It is a library for Node, so the program
// bullmq/bullmq.mjs pushes and handles in loops of its own, and the bench exchanges lines of JSON
// with that program. BullMQ calls scripts, as Punctual and asynq do.

const (
	// bullmqDir is the folder of the program, relative to the folder in which the bench runs.
	bullmqDir = "bullmq"
	// bullmqStart is how long each process of Node may take to start.
	bullmqStart = time.Second
	// bullmqBatch is how many jobs are in each call of addBulk where many jobs are scheduled for
	// one instant.
	bullmqBatch = 500
)

// bullmqVersion returns the version of BullMQ that is installed in bullmqDir, or "unknown".
func bullmqVersion() string {
	var p struct{ Version string }
	data, err := os.ReadFile(filepath.Join(bullmqDir, "node_modules", "bullmq", "package.json"))
	if err != nil || json.Unmarshal(data, &p) != nil || p.Version == "" {
		return "unknown"
	}
	return p.Version
}

// bullmqCommand returns the command that runs the program in Node. If Node or BullMQ is missing,
// the error says how to install it.
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

// bullmqConsumer returns the command of a consumer, which writes the same reports as the bench's
// own consumers.
func bullmqConsumer(ctx context.Context, t consumerTask) (*exec.Cmd, error) {
	host, port, err := net.SplitHostPort(t.Addr)
	if err != nil {
		return nil, err
	}
	return bullmqCommand(ctx, "consume", host, port, strconv.Itoa(t.Slots), t.Records)
}

// bullmqSystem is the scheduling side of BullMQ: one process of Node, which gets one request at a
// time.
type bullmqSystem struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	mu    sync.Mutex
	lines *bufio.Reader // guarded by mu once openBullMQ has returned
}

// bullmqRequest is a line to the program. Do says what to do, and of the other fields those are set
// that it needs.
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

// bullmqAnswer is a line from the program: that it is ready, or the answer to a request.
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
	err = json.Unmarshal(line, &a)
	return a, err
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

// bullmqWays are the ways of scheduling that are measured. bullmqTable shows each beside the
// scenario in which Punctual schedules the same way.
var bullmqWays = []redisSchedule{{1, 1, everySecond}, {redisCallers, 1, everySecond}, {1, 100, everySecond}, {1, 1000, everySecond}}

func bullmqScheduleName(x redisSchedule) string { return "redis-bullmq/" + filepath.Base(x.name()) }

// bullmqDrains are the drains that are measured. Each has as many processes and as much concurrency
// as one of redisDrains.
var bullmqDrains = []redisDrain{{1, redisHands, everySecond, false}, {8, redisHands, everySecond, false}}

func bullmqDrainName(x redisDrain) string { return "redis-bullmq/drain-" + filepath.Base(x.name()) }

// bullmqScenarios returns the scenarios in which BullMQ schedules and drains. They are apart from
// those of Punctual and asynq, so that these do not fail where Node is missing. The lateness of
// BullMQ is measured by scenarios of redisLatenesses.
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

// scheduleBullMQ first pushes for a second, or for RedisSpan if that is shorter, which is not
// measured, because Node compiles meanwhile what it runs often. Then it measures as long as for the
// other systems.
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
	// The rate counts from the first delivery, as that of asynq does; how long BullMQ waits before
	// is noted as first_ms.
	e.out.set("rate", d.rateSince(d.first))
	e.out.set("first_ms", ms(d.first.Sub(d.due)))
	return nil
}

// readBullMQRecords reads the file of a consumer of BullMQ. It has a line for each job: the
// letter's number, its due time, when the handler started, and the size of the body.
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

// bullmqTable returns the table that shows BullMQ beside Punctual and asynq, as measured in the
// same run.
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
