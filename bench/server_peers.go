package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/remotestore"
	"github.com/punctualmq/punctual/server"
	"github.com/punctualmq/punctual/worker"
)

// The systems that are measured: Punctual's server, and beside it the same store as a library,
// beanstalkd, and NATS with message schedules. Servers are processes of their own, and all clients
// are in the process of the round.
const (
	peerLibrary   = "library"
	peerServer    = "punctual"
	peerHTTP      = "http"              // Punctual's server too, but requests are sent by net/http and not by remotestore
	peerBeanstalk = "beanstalkd"        // keeps messages in memory only
	peerBinlog    = "beanstalkd-binlog" // with -b and -f0, so that it makes an fsync before every answer to a push
	peerNATS      = "nats"              // with file storage and its defaults, by which it makes an fsync every two minutes
)

var peerNames = []string{peerLibrary, peerServer, peerBeanstalk, peerBinlog, peerNATS}

// peer is a system that is measured, with its server if it has one.
type peer interface {
	system
	// consume passes the bodies of messages to handle, by n consumers, and finishes the messages,
	// until ctx ends.
	consume(ctx context.Context, n int, handle func(body []byte)) error
	// process returns the process of the server, or nil for peerLibrary, which has none.
	process() *serverProcess
	// waiting opens the connection of a client that waits for a message.
	waiting(ctx context.Context) (net.Conn, error)
}

func openPeer(ctx context.Context, e *env, name string, callers int) (peer, error) {
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		return nil, err
	}
	switch name {
	case peerLibrary:
		store, err := openStore(e)
		if err != nil {
			return nil, err
		}
		return &storePeer{store: store, queue: punctual.NewQueue(store, nil)}, nil
	case peerServer, peerHTTP:
		p, err := startSelf(ctx, servePunctualVerb, e.dir)
		if err != nil {
			return nil, err
		}
		store, err := remotestore.Open(ctx, []string{"http://" + p.addr}, nil)
		if err != nil {
			return nil, errors.Join(err, p.stop())
		}
		own := &storePeer{store: store, queue: punctual.NewQueue(store, nil), server: p}
		if name == peerHTTP {
			return newHTTPPeer(own), nil
		}
		return own, nil
	case peerBeanstalk, peerBinlog:
		return openBeanstalk(ctx, e, callers, name == peerBinlog)
	case peerNATS:
		return openNATS(ctx, e)
	}
	return nil, fmt.Errorf("there is no system %q", name)
}

// serverProcess is the process of a server that the round has started.
type serverProcess struct {
	addr string
	cmd  *exec.Cmd
}

func (p *serverProcess) stop() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = p.cmd.Wait() // the error only says that the process was killed
	return nil
}

// cpu returns the CPU time that the server has used, 0 without a server.
func (p *serverProcess) cpu() (time.Duration, error) {
	if p == nil {
		return 0, nil
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // what follows the name of the program
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat has %d fields", len(fields))
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	kernel, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+kernel) * 10 * time.Millisecond, errors.Join(err1, err2)
}

// memory returns the server's resident memory in bytes.
func (p *serverProcess) memory() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return statusKiB(string(status), "VmRSS:")
}

// The verbs with which this program runs a server.
const (
	servePunctualVerb = "serve-punctual"
	serveNATSVerb     = "serve-nats"
)

// startSelf starts this program as a server that keeps its files in dir. It returns when the server
// listens and has written its address to standard output.
func startSelf(ctx context.Context, verb, dir string) (*serverProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, verb, dir)
	cmd.Stderr = os.Stderr
	dieWithParent(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &serverProcess{cmd: cmd}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s ended before it listened: %w", verb, err), p.stop())
	}
	p.addr = strings.TrimSpace(line)
	return p, nil
}

// serverCommand runs a server, Punctual's or NATS, until ctx ends or the process is killed. It
// writes the server's address to stdout.
func serverCommand(ctx context.Context, verb string, args []string, stdout io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("%s is for the bench itself: use bench run", verb)
	}
	if verb == serveNATSVerb {
		s, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, JetStream: true, StoreDir: args[0], NoSigs: true})
		if err != nil {
			return err
		}
		s.Start()
		if !s.ReadyForConnections(10 * time.Second) {
			return errors.New("nats does not listen")
		}
		if _, err := fmt.Fprintln(stdout, s.Addr()); err != nil {
			return err
		}
		<-ctx.Done()
		s.Shutdown()
		return nil
	}
	store, err := diskstore.Open(args[0], nil)
	if err != nil {
		return err
	}
	h, err := server.New(store, nil)
	if err != nil {
		return closeStore(store, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return closeStore(store, err)
	}
	if _, err := fmt.Fprintln(stdout, l.Addr()); err != nil {
		return closeStore(store, errors.Join(err, l.Close()))
	}
	return closeStore(store, h.Serve(ctx, nil, l))
}

// storePeer is Punctual: a server that is used by remotestore, or the embedded store in this
// process.
type storePeer struct {
	store interface {
		punctual.Store
		punctual.Inspector
	}
	queue  *punctual.Queue
	server *serverProcess // nil for the embedded store
}

func (p *storePeer) push(ctx context.Context, _ int, ls []letter) error {
	return (&punctualSystem{queue: p.queue}).push(ctx, 0, ls)
}

func (p *storePeer) pending(ctx context.Context) (int64, error) {
	st, err := p.store.Stats(ctx, topic)
	return st.Scheduled + st.Ready + st.Leased + st.Dead, err
}

func (p *storePeer) close() error {
	err := p.store.Close()
	if p.server != nil {
		err = errors.Join(err, p.server.stop())
	}
	return err
}

func (p *storePeer) process() *serverProcess { return p.server }

func (p *storePeer) consume(ctx context.Context, n int, handle func(body []byte)) error {
	w := worker.New(p.store, &worker.Config{Concurrency: n})
	w.Handle(topic, punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		handle(d.Body)
		return nil
	}))
	if err := w.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	return stopWorker(w)
}

func (p *storePeer) waiting(ctx context.Context) (net.Conn, error) {
	return dialAndSay(ctx, p.server.addr, "POST /v1/topics/idle/claim?wait=55s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
}

func dialAndSay(ctx context.Context, addr, text string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// httpPeer pushes to Punctual's server as a program in any language can: by a request for each
// message, with a common HTTP client that uses its connections again.
type httpPeer struct {
	*storePeer
	client *http.Client
	to     string
}

func newHTTPPeer(p *storePeer) *httpPeer {
	return &httpPeer{p, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: fillers}}, "http://" + p.server.addr + "/v1/topics/" + topic + "/messages?due="}
}

func (p *httpPeer) push(ctx context.Context, _ int, ls []letter) error {
	for _, l := range ls {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.to+l.due.UTC().Format(time.RFC3339Nano), bytes.NewReader(l.body()))
		if err != nil {
			return err
		}
		answer, err := p.client.Do(req)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(answer.Body) // the body is read to its end, because otherwise the connection is not used again
		if err = errors.Join(err, answer.Body.Close()); err != nil {
			return err
		}
		if answer.StatusCode/100 != 2 {
			return fmt.Errorf("the server answers a push with %s: %s", answer.Status, text)
		}
	}
	return nil
}

func (p *httpPeer) close() error {
	p.client.CloseIdleConnections()
	return p.storePeer.close()
}

// beanstalk is beanstalkd. It can delay a message only by whole seconds. push rounds a delay down,
// so messages come up to a second early.
type beanstalk struct {
	server  *serverProcess
	callers []*beanstalkConn // the first asks for statistics; the others are one for each caller of push
}

// beanstalkConn is a connection to beanstalkd.
type beanstalkConn struct {
	net.Conn
	in *bufio.Reader
}

func openBeanstalk(ctx context.Context, e *env, callers int, binlog bool) (*beanstalk, error) {
	path, err := exec.LookPath("beanstalkd")
	if err != nil {
		return nil, fmt.Errorf("beanstalkd is missing: apt-get install beanstalkd: %w", err)
	}
	addr, port, err := freePort()
	if err != nil {
		return nil, err
	}
	args := []string{"-l", "127.0.0.1", "-p", port}
	if binlog {
		dir := filepath.Join(e.dir, "binlog")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		args = append(args, "-b", dir, "-f0")
	}
	b := &beanstalk{server: &serverProcess{addr: addr, cmd: exec.CommandContext(ctx, path, args...)}}
	dieWithParent(b.server.cmd)
	if err := b.server.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(redisStartTimeout); ; time.Sleep(5 * time.Millisecond) {
		var c *beanstalkConn
		if c, err = b.dial(ctx); err == nil {
			b.callers = append(b.callers, c)
			break
		}
		if time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("beanstalkd does not answer: %w", err), b.close())
		}
	}
	for range callers {
		c, err := b.dial(ctx)
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		b.callers = append(b.callers, c)
	}
	return b, nil
}

func (b *beanstalk) dial(ctx context.Context) (*beanstalkConn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", b.server.addr)
	if err != nil {
		return nil, err
	}
	return &beanstalkConn{c, bufio.NewReaderSize(c, 64<<10)}, nil
}

// expect reads a line and returns what follows the word in it, or an error if the line does not
// begin with that word.
func (c *beanstalkConn) expect(word string) (string, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), word)
	if !ok {
		return "", fmt.Errorf("beanstalkd answers %q, want %s", line, word)
	}
	return strings.TrimSpace(rest), nil
}

func (b *beanstalk) push(_ context.Context, who int, ls []letter) error {
	c := b.callers[who+1]
	var out []byte
	for _, l := range ls {
		out = fmt.Appendf(out, "put 0 %d 60 %d\r\n", max(0, int(time.Until(l.due).Seconds())), bodyBytes)
		out = append(append(out, l.body()...), "\r\n"...)
	}
	if _, err := c.Write(out); err != nil {
		return err
	}
	for range ls {
		if _, err := c.expect("INSERTED"); err != nil {
			return err
		}
	}
	return nil
}

func (b *beanstalk) pending(context.Context) (int64, error) {
	c := b.callers[0]
	if _, err := io.WriteString(c, "stats\r\n"); err != nil {
		return 0, err
	}
	size, err := c.expect("OK")
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(size)
	if err != nil {
		return 0, err
	}
	text := make([]byte, n+2)
	if _, err := io.ReadFull(c.in, text); err != nil {
		return 0, err
	}
	total := int64(0)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name {
		case "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed", "current-jobs-buried":
			jobs, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0, err
			}
			total += jobs
		}
	}
	return total, nil
}

func (b *beanstalk) close() error {
	var errs []error
	for _, c := range b.callers {
		errs = append(errs, c.Close())
	}
	return errors.Join(append(errs, b.server.stop())...)
}

func (b *beanstalk) process() *serverProcess { return b.server }

func (b *beanstalk) consume(ctx context.Context, n int, handle func(body []byte)) error {
	return inParallelUntil(ctx, n, func() error {
		c, err := b.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Close() })()
		for {
			if _, err := io.WriteString(c, "reserve\r\n"); err != nil {
				return err
			}
			rest, err := c.expect("RESERVED")
			if err != nil {
				return err
			}
			id, size, _ := strings.Cut(rest, " ")
			bytes, err := strconv.Atoi(size)
			if err != nil {
				return err
			}
			body := make([]byte, bytes+2)
			if _, err := io.ReadFull(c.in, body); err != nil {
				return err
			}
			handle(body[:bytes])
			if _, err := io.WriteString(c, "delete "+id+"\r\n"); err != nil {
				return err
			}
			if _, err := c.expect("DELETED"); err != nil {
				return err
			}
		}
	})
}

// inParallelUntil has n goroutines call f once each and waits for all of them. It returns the first
// error that came before ctx had ended. An error does not end the other goroutines.
func inParallelUntil(ctx context.Context, n int, f func() error) error {
	var all sync.WaitGroup
	failed := make(chan error, n)
	for range n {
		all.Go(func() {
			if err := f(); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func (b *beanstalk) waiting(ctx context.Context) (net.Conn, error) {
	return dialAndSay(ctx, b.server.addr, "reserve\r\n")
}

// natsPeer is NATS JetStream with message schedules. Each message is a schedule of its own, on a
// subject of its own. When its time comes the server publishes the message on the subject "due",
// from which the consumers take it.
type natsPeer struct {
	server *serverProcess
	conn   *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
}

func openNATS(ctx context.Context, e *env) (*natsPeer, error) {
	p, err := startSelf(ctx, serveNATSVerb, e.dir)
	if err != nil {
		return nil, err
	}
	n := &natsPeer{server: p}
	if err := n.open(ctx); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *natsPeer) open(ctx context.Context) (err error) {
	if n.conn, err = nats.Connect("nats://" + n.server.addr); err != nil {
		return err
	}
	if n.js, err = jetstream.New(n.conn, jetstream.WithPublishAsyncMaxPending(20_000)); err != nil {
		return err
	}
	n.stream, err = n.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: topic, Subjects: []string{"later.*", "due"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, AllowMsgSchedules: true,
	})
	return err
}

func (n *natsPeer) push(ctx context.Context, _ int, ls []letter) error {
	acks := make([]jetstream.PubAckFuture, len(ls))
	for i, l := range ls {
		m := &nats.Msg{Subject: "later." + strconv.FormatUint(uint64(l.seq), 10), Data: l.body(), Header: nats.Header{
			"Nats-Schedule": {"@at " + l.due.UTC().Format(time.RFC3339Nano)}, "Nats-Schedule-Target": {"due"},
		}}
		var err error
		if acks[i], err = n.js.PublishMsgAsync(m); err != nil {
			return err
		}
	}
	for _, a := range acks {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (n *natsPeer) pending(ctx context.Context) (int64, error) {
	info, err := n.stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return int64(info.State.Msgs), nil
}

func (n *natsPeer) close() error {
	if n.conn != nil {
		n.conn.Close()
	}
	return n.server.stop()
}

func (n *natsPeer) process() *serverProcess { return n.server }

func (n *natsPeer) consume(ctx context.Context, many int, handle func(body []byte)) error {
	c, err := n.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "workers", FilterSubject: "due", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 100_000})
	if err != nil {
		return err
	}
	return inParallelUntil(ctx, many, func() error {
		failed := make(chan error, 1)
		running, err := c.Consume(func(m jetstream.Msg) {
			handle(m.Data())
			if err := m.Ack(); err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
		if err != nil {
			return err
		}
		defer running.Stop()
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		}
	})
}

func (n *natsPeer) waiting(ctx context.Context) (net.Conn, error) {
	return dialAndSay(ctx, n.server.addr, "CONNECT {\"verbose\":false}\r\nSUB idle 1\r\nPING\r\n")
}

// peerVersions returns the names and versions of beanstalkd and NATS.
func peerVersions() string {
	versions := []string{"beanstalkd unknown", "nats-server " + natsserver.VERSION}
	if out, err := exec.Command("beanstalkd", "-v").Output(); err == nil {
		versions[0] = strings.TrimSpace(string(out))
	}
	return strings.Join(versions, ", ")
}
