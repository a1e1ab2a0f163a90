package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Each measurement on Redis has a fresh redis-server, which the bench starts. It listens on
// loopback, and its append-only file is in the folder of the round.

// The values of appendfsync, the setting that says when the server syncs its append-only file.
const (
	everySecond = "everysec"
	always      = "always"
)

// redisServer is a running redis-server.
type redisServer struct {
	addr string
	dir  string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	// asks is the client by which the bench asks the server for figures. What is measured has
	// clients of its own.
	asks *redis.Client
}

// withRedis runs f with a fresh server. When f has returned, the server is ended and its files are
// removed.
func (e *env) withRedis(ctx context.Context, fsync string, f func(*redisServer) error) (err error) {
	s, err := startRedis(ctx, filepath.Join(e.dir, "redis"), fsync)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	return f(s)
}

// redisStartTimeout is how long a server may take until it answers. It holds for beanstalkd, too.
const redisStartTimeout = 20 * time.Second

// startRedis starts a server and returns when it answers. The server does not rewrite its
// append-only file in the background, because a rewrite would fall into some measurements and not
// into others.
func startRedis(ctx context.Context, dir, fsync string) (*redisServer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("redis-server is missing: apt-get install redis-server (or: make deps): %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	addr, port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &redisServer{addr: addr, dir: dir, done: make(chan struct{})}
	s.cmd = exec.CommandContext(ctx, path, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--daemonize", "no",
		"--logfile", s.logPath(), "--save", "", "--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0")
	dieWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait() // the error only says how the server ended; stop kills it
	}()
	s.asks = redis.NewClient(&redis.Options{Addr: addr})
	if err := s.await(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// freePort returns a loopback address on which nobody listens at this moment, and its port.
func freePort() (addr, port string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	addr = l.Addr().String()
	_, port, err = net.SplitHostPort(addr)
	return addr, port, errors.Join(err, l.Close())
}

func (s *redisServer) logPath() string { return filepath.Join(s.dir, "redis.log") }

// await returns nil when the server answers, or an error when it ends or does not answer in time.
func (s *redisServer) await(ctx context.Context) error {
	for end := time.Now().Add(redisStartTimeout); time.Now().Before(end); {
		if err := s.asks.Ping(ctx).Err(); err == nil {
			return nil
		}
		select {
		case <-s.done:
			text, err := os.ReadFile(s.logPath())
			return errors.Join(fmt.Errorf("redis-server ended at once; its log says: %s", text), err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("redis-server does not answer at %s", s.addr)
}

// stop ends the server and removes its files.
func (s *redisServer) stop() error {
	err := s.asks.Close()
	if kerr := s.cmd.Process.Kill(); kerr != nil && !errors.Is(kerr, os.ErrProcessDone) {
		err = errors.Join(err, kerr)
	}
	<-s.done
	return errors.Join(err, os.RemoveAll(s.dir))
}

// serverUsage is what the server reports of itself at one moment.
type serverUsage struct {
	at    time.Time
	cpu   time.Duration    // CPU time since the server's start
	calls map[string]int64 // how often each command was executed since the server's start, in scripts too
	// memory is used_memory in bytes, without the buffers of connections and of the append-only
	// file, because these come and go.
	memory int64
}

// usage asks the server by one INFO.
func (s *redisServer) usage(ctx context.Context) (serverUsage, error) {
	text, err := s.asks.Info(ctx, "all").Result()
	if err != nil {
		return serverUsage{}, fmt.Errorf("ask redis-server for its usage: %w", err)
	}
	u, err := parseUsage(text)
	u.at = time.Now()
	return u, err
}

// parseUsage reads the answer to INFO.
func parseUsage(text string) (serverUsage, error) {
	u := serverUsage{calls: make(map[string]int64)}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		fields[name] = value
		if command, ok := strings.CutPrefix(name, "cmdstat_"); ok {
			var calls int64
			if _, err := fmt.Sscanf(value, "calls=%d,", &calls); err != nil {
				return u, fmt.Errorf("INFO: %s is %q: %w", name, value, err)
			}
			u.calls[command] = calls
		}
	}
	var errs []error
	number := func(name string) float64 {
		v, err := strconv.ParseFloat(fields[name], 64)
		if err != nil {
			errs = append(errs, fmt.Errorf("INFO: %s is %q: %w", name, fields[name], err))
		}
		return v
	}
	u.cpu = time.Duration((number("used_cpu_user") + number("used_cpu_sys")) * float64(time.Second))
	u.memory = int64(number("used_memory") - number("mem_clients_normal") - number("mem_aof_buffer"))
	return u, errors.Join(errs...)
}

// redisVersion returns the version of the program redis-server, or "unknown".
func redisVersion() string {
	out, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		return "unknown"
	}
	for _, word := range strings.Fields(string(out)) {
		if v, ok := strings.CutPrefix(word, "v="); ok {
			return v
		}
	}
	return "unknown"
}

// serverCost is what the server did between two moments.
type serverCost struct {
	took time.Duration
	cpu  time.Duration
	// scripts counts the scripts that clients ran. calls counts them together with the other
	// commands of sentOnly. others counts all other commands, whether a script called them or a
	// client sent them. Where no script runs, calls counts all commands.
	scripts, calls, others int64
}

// sentOnly has the commands that no script of Punctual, asynq or BullMQ calls, so a client has sent
// them. Of every other command the server does not tell whether a client or a script called it:
// commandstats and total_commands_processed count both. For example, claims of Punctual that wait
// look for what is due next by TIME, ZRANGE and HMGET without a script, and its scripts call these,
// too. A subcommand counts as its command.
var sentOnly = map[string]bool{
	"eval": true, "evalsha": true, "script": true, "ping": true, "subscribe": true, "unsubscribe": true,
	"hello": true, "client": true, "info": true, "config": true, "select": true, "auth": true,
	"wait": true, "waitaof": true, "acl": true, "cluster": true, "command": true, "role": true,
}

// cost returns what the server did from one moment to another. scripted tells whether scripts may
// have run.
func cost(from, to serverUsage, scripted bool) serverCost {
	c := serverCost{took: to.at.Sub(from.at), cpu: to.cpu - from.cpu}
	for command, calls := range to.calls {
		n := calls - from.calls[command]
		name, _, _ := strings.Cut(command, "|")
		if name == "info" {
			n-- // the INFO by which the bench asked at the first moment
		}
		if scripted && !sentOnly[name] {
			c.others += n
		} else {
			c.calls += n
		}
		if name == "eval" || name == "evalsha" {
			c.scripts += n
		}
	}
	return c
}

// plus returns the sum of two costs.
func (c serverCost) plus(o serverCost) serverCost {
	return serverCost{c.took + o.took, c.cpu + o.cpu, c.scripts + o.scripts, c.calls + o.calls, c.others + o.others}
}

// setCost notes what one of so many messages cost the server. The names of the values begin with
// prefix. Two of them are older than the words of the tables, and stay as they are because files of
// results have them: commands_per_message are calls, and script_commands_per_message are others.
func (r *Result) setCost(prefix string, c serverCost, messages int64) {
	n := float64(messages)
	r.set(prefix+"redis_us_per_message", float64(c.cpu.Microseconds())/n)
	r.set(prefix+"commands_per_message", float64(c.calls)/n)
	r.set(prefix+"script_commands_per_message", float64(c.others)/n)
}
