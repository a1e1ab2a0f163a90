// Package rabbitrig starts a real RabbitMQ for tests, on loopback, with a folder of its own, and
// ends it.
package rabbitrig

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	processrig "github.com/punctualmq/punctual/internal/rigs/process"
)

// remedy is what to do when a program is missing.
const remedy = "apt-get install rabbitmq-server (or: make deps)"

// startTimeout bounds how long the broker may take to answer; it only bounds hangs.
const startTimeout = 2 * time.Minute

// Server is a running broker, with the user guest and the password guest.
type Server struct {
	// Addr is its host and port.
	Addr string
	// Dir is where it keeps its files.
	Dir string

	env        []string
	bin        string
	names, cmd *exec.Cmd // names is Erlang's port mapper
	named      <-chan struct{}
	done       <-chan struct{}
}

// Shared is a broker for all tests of a package. It starts when a test first needs it, which takes
// some ten seconds. The TestMain calls Kill.
type Shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Server returns the broker.
func (s *Shared) Server(t testing.TB) *Server {
	t.Helper()
	s.once.Do(func() {
		dir, err := os.MkdirTemp("", "rabbitrig-")
		if err != nil {
			s.err = err
			return
		}
		s.server, s.err = launch(dir)
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.server
}

// Kill ends the broker, if it was started, and removes its files.
func (s *Shared) Kill() error {
	if s.server == nil {
		return nil
	}
	return errors.Join(s.server.Kill(), os.RemoveAll(s.server.Dir))
}

// Start starts a broker for one test.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := launch(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the log of the broker at %s:\n%s", s.Addr, s.log())
		}
	})
	return s
}

// URL names the broker's virtual host /, for user guest.
func (s *Server) URL() string { return "amqp://guest:guest@" + s.Addr + "/" }

// launch starts a broker with its files in dir. Its host is one of nearly all of 127/8, so that its
// ports are nobody else's.
func launch(dir string) (*Server, error) {
	folders, err := filepath.Glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin")
	if err != nil {
		return nil, err
	}
	epmd, err := exec.LookPath("epmd")
	if len(folders) == 0 || err != nil {
		return nil, errors.Join(fmt.Errorf("RabbitMQ is missing: %s", remedy), err)
	}
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	ports := make([]string, 3)
	for i := range ports {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		if _, ports[i], err = net.SplitHostPort(l.Addr().String()); err != nil {
			return nil, err
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
	}
	s := &Server{Addr: net.JoinHostPort(host, ports[0]), Dir: dir, bin: folders[len(folders)-1]}
	s.env = append(os.Environ(),
		"HOME="+dir, "ERL_EPMD_ADDRESS="+host, "ERL_EPMD_PORT="+ports[2],
		"RABBITMQ_NODENAME=rabbit@"+host, "RABBITMQ_USE_LONGNAME=true", "RABBITMQ_NODE_IP_ADDRESS="+host, "RABBITMQ_NODE_PORT="+ports[0], "RABBITMQ_DIST_PORT="+ports[1],
		"RABBITMQ_MNESIA_BASE="+filepath.Join(dir, "data"), "RABBITMQ_LOG_BASE="+filepath.Join(dir, "log"), "RABBITMQ_GENERATED_CONFIG_DIR="+filepath.Join(dir, "config"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(dir, "plugins"), "RABBITMQ_CONFIG_FILE="+filepath.Join(dir, "none"), "RABBITMQ_CONF_ENV_FILE=/dev/null",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {"+strings.ReplaceAll(host, ".", ",")+"} +sbwt none +sbwtdcpu none +sbwtdio none",
		"RUNNING_UNDER_SYSTEMD=true", // so that the script becomes the broker, which a signal then reaches
	)
	s.names = exec.Command(epmd, "-port", ports[2], "-address", host) // otherwise the broker starts one that outlives it
	s.names.Env, s.names.Stdout, s.names.Stderr = s.env, io.Discard, io.Discard
	if s.named, err = processrig.Start(s.names, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("start of epmd: %w", err)
	}
	return s, s.Restart()
}

// Restart starts a broker that was killed, on the same ports and with the same files.
func (s *Server) Restart() (err error) {
	s.cmd = exec.Command(filepath.Join(s.bin, "rabbitmq-server"))
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = s.env, io.Discard, io.Discard
	if s.done, err = processrig.Start(s.cmd, syscall.SIGKILL); err != nil {
		return fmt.Errorf("start of rabbitmq-server: %w", err)
	}
	for end := time.Now().Add(startTimeout); time.Now().Before(end); {
		if c, err := net.Dial("tcp", s.Addr); err == nil {
			return c.Close()
		}
		select {
		case <-s.done:
			return errors.Join(fmt.Errorf("rabbitmq-server ended at once; its log says: %s", s.log()), s.Kill())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return errors.Join(fmt.Errorf("rabbitmq-server does not answer at %s; its log says: %s", s.Addr, s.log()), s.Kill())
}

// Queue is a durable queue whose messages wait for a TTL, and a connection to the broker.
type Queue struct {
	t    testing.TB
	name string
	ch   *amqp.Channel // with confirms
}

// Queue makes a queue for one test.
func (s *Server) Queue(t testing.TB, name string, ttl time.Duration) *Queue {
	t.Helper()
	conn, err := amqp.Dial(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	q := &Queue{t: t, name: name}
	if q.ch, err = conn.Channel(); err == nil {
		err = q.ch.Confirm(false)
	}
	if err == nil {
		_, err = q.ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-message-ttl": ttl.Milliseconds(), "x-dead-letter-exchange": "amq.direct"})
	}
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// Publish adds a message with a timestamp, and returns when the broker has it on disk.
func (q *Queue) Publish(body string) {
	q.t.Helper()
	done, err := q.ch.PublishWithDeferredConfirm("", q.name, true, false, amqp.Publishing{Body: []byte(body), DeliveryMode: amqp.Persistent, Timestamp: time.Now()})
	if err != nil || !done.Wait() {
		q.t.Fatalf("publish: %v", err)
	}
}

// Ready returns how many messages a queue has that nobody holds, and how many consumers.
func (q *Queue) Ready(name string) (messages, consumers int) {
	q.t.Helper()
	state, err := q.ch.QueueDeclarePassive(name, true, false, false, false, nil)
	if err != nil {
		q.t.Fatal(err)
	}
	return state.Messages, state.Consumers
}

func (s *Server) log() string {
	files, _ := filepath.Glob(filepath.Join(s.Dir, "log", "*.log"))
	var b strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		fmt.Fprintf(&b, "%s: %v\n%s\n", f, err, text)
	}
	return b.String()
}

// Crash ends the broker as kill -9 does, so that Restart can start it again.
func (s *Server) Crash() error { return kill(s.cmd, s.done) }

// Kill ends the broker for good.
func (s *Server) Kill() error { return errors.Join(s.Crash(), kill(s.names, s.named)) }

func kill(cmd *exec.Cmd, done <-chan struct{}) error {
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-done
	return nil
}

// Control runs rabbitmqctl, which takes some seconds, and returns what it says.
func (s *Server) Control(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(s.bin, "rabbitmqctl"), args...)
	cmd.Env = s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("rabbitmqctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
