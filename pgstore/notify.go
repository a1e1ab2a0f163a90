package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// notifyGap is how long a process pauses after it has sent all that is pending, mostly in one
	// notification.
	notifyGap = 2 * time.Millisecond
	// notifyBytes bounds the payload of a notification; PostgreSQL takes less than 8000.
	notifyBytes = 7000
	// heartbeat is how often the connection that listens is pinged, and how long a ping and the
	// making of the connection may take.
	heartbeat = 10 * time.Second
	// listenAgain is how long to wait before listening is tried again.
	listenAgain = time.Second
)

// notifier notifies other processes of what is due soon, and receives their notifications. A
// notification is sent after the commit, in a transaction of its own; topics that come meanwhile go
// into the next one. Any notification may be lost (P11).
type notifier struct {
	s      *Store
	sender string          // names this process in its notifications
	ctx    context.Context // of the connection that listens and of the pauses of send; ends when Close begins
	end    context.CancelFunc
	calls  context.Context // of the notifications that are sent; ends answerGrace after ctx
	hangUp context.CancelFunc
	work   sync.WaitGroup
	signal chan struct{} // holds one signal that something is pending

	mu      sync.Mutex
	pending coming // guarded by mu: topics to announce
	off     bool   // guarded by mu: no notifications are sent, because they are not used or do not come through
}

func (n *notifier) init(s *Store) {
	n.s, n.sender, n.signal, n.off = s, rand.Text(), make(chan struct{}, 1), s.opt.NoListen
	n.pending = s.waits.coming()
	n.ctx, n.end = context.WithCancel(context.Background())
	n.calls, n.hangUp = context.WithCancel(context.Background())
}

func (n *notifier) start() {
	if n.s.opt.NoListen {
		return
	}
	n.work.Go(n.listen)
	n.work.Go(n.send)
}

// close sends what is pending, for answerGrace at most, because what a process stores just before
// it ends, such as a command in a shell, would otherwise wait for the polls of the other processes.
func (n *notifier) close() {
	n.end()
	late := time.AfterFunc(answerGrace, n.hangUp)
	n.work.Wait()
	late.Stop()
	n.hangUp()
}

func (n *notifier) channel() string { return n.s.opt.Schema + "_due" }

// add queues topics for the next notification. It leaves out topics whose first time is more than
// scanAhead ahead.
func (n *notifier) add(come coming) {
	soon := n.s.db.clock.guess()/1000 + scanAhead.Milliseconds()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.off {
		return
	}
	n.pending.overdue = come.overdue
	for topic, in := range come.topics {
		if in.from <= soon {
			n.pending.put(topic, in)
		}
	}
	if len(n.pending.topics) > 0 {
		select {
		case n.signal <- struct{}{}:
		default:
		}
	}
}

// send sends what is pending, until close, and then once more.
func (n *notifier) send() {
	for open := true; open; {
		select {
		case <-n.signal:
		case <-n.ctx.Done():
			open = false
		}
		for payload := range n.payloads() {
			if err := n.notify(payload); err != nil {
				n.s.opt.Logger.Debug("other processes were not notified of what is due; they find it within a second", "error", err)
			}
		}
		_ = sleep(n.ctx, notifyGap) // close ends the pause, and what has come meanwhile is sent
	}
}

func (n *notifier) notify(payload string) error {
	ctx, end := context.WithTimeout(n.calls, callTime)
	defer end()
	return n.s.db.sendAlone(ctx, n.s.db.step().add("notify", []any{n.channel(), payload}, nil).own(""))
}

// payloads empties pending into payloads: each has the sender, then a line for each topic, with its
// first time and, if that is another one, its last time. Older programs ignore lines with two
// times, and find what is due by their poll.
func (n *notifier) payloads() func(yield func(string) bool) {
	n.mu.Lock()
	pending := n.pending
	n.pending = n.s.waits.coming()
	n.mu.Unlock()
	return func(yield func(string) bool) {
		text := n.sender
		for topic, in := range pending.topics {
			line := fmt.Sprintf("\n%s %d", topic, in.from)
			if in.until > in.from {
				line += fmt.Sprintf(" %d", in.until)
			}
			if len(text)+len(line) > notifyBytes {
				if !yield(text) {
					return
				}
				text = n.sender
			}
			text += line
		}
		if text != n.sender {
			yield(text)
		}
	}
}

// errPooler says that notifications do not come through, because the connection has no session of
// its own.
var errPooler = errors.New("a pooler is in between")

// listen receives notifications until close, or until it turns out that they cannot come through.
// It logs one warning for each time without notifications at a server that answers. While the
// server does not answer, the errors of calls say so.
func (n *notifier) listen() {
	answers, warned := false, false
	for {
		heard, err := n.listenOnce()
		if heard {
			warned = false
		}
		switch {
		case n.ctx.Err() != nil:
			return
		case errors.Is(err, errPooler):
			n.mu.Lock()
			n.off = true
			n.mu.Unlock()
			n.s.opt.Logger.Info("postgres store: a pooler is in between, so other processes are not notified of pushes; they poll once a second")
			return
		}
		level := slog.LevelDebug
		if answers && !heard && !warned {
			level, warned = slog.LevelWarn, true
		}
		n.s.opt.Logger.Log(n.ctx, level, "postgres store: no connection that listens, so other processes' pushes are found once a second; it is made again", "error", err)
		answers = n.answers()
		if sleep(n.ctx, listenAgain) != nil {
			return
		}
	}
}

// answers reports whether the server answers on a connection of the pool.
func (n *notifier) answers() bool {
	ctx, end := context.WithTimeout(n.ctx, n.s.opt.heartbeat)
	defer end()
	return n.s.db.pool.Ping(ctx) == nil
}

// listenOnce receives notifications on a connection of its own until that breaks. heard reports
// whether it could listen.
func (n *notifier) listenOnce() (heard bool, err error) {
	conn, err := n.connect()
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, end := context.WithTimeout(context.Background(), time.Second)
		defer end()
		_ = conn.Close(ctx) // it may be broken
	}()
	if err := n.begin(conn); err != nil {
		return false, err
	}
	n.s.waits.pollNow() // notifications sent before are lost
	for {
		if err := n.hearUntil(conn, time.Now().Add(n.s.opt.heartbeat)); err != nil {
			return true, err
		}
		ctx, end := context.WithTimeout(n.ctx, n.s.opt.heartbeat)
		err := conn.Ping(ctx)
		end()
		if err != nil {
			return true, err
		}
	}
}

// begin has a connection listen. It returns errPooler if a pooler is in between.
func (n *notifier) begin(conn *pgx.Conn) error {
	var backend uint32
	if err := conn.QueryRow(n.ctx, "SELECT pg_backend_pid()::bigint").Scan(&backend); err != nil {
		return err
	}
	if backend != conn.PgConn().PID() {
		return errPooler
	}
	// A process that is paused reads nothing, and the server would wait for it inside a
	// transaction, which keeps dead rows from being removed. So the server is to end the connection
	// after a while.
	if _, err := conn.Exec(n.ctx, fmt.Sprintf("SET tcp_user_timeout = %d", 3*n.s.opt.heartbeat.Milliseconds())); err != nil {
		return err
	}
	_, err := conn.Exec(n.ctx, "LISTEN "+pgx.Identifier{n.channel()}.Sanitize())
	return err
}

// connect makes a connection beside the pool, with the pool's ConnConfig and BeforeConnect.
func (n *notifier) connect() (*pgx.Conn, error) {
	ctx, end := context.WithTimeout(n.ctx, n.s.opt.heartbeat)
	defer end()
	pool := n.s.db.pool.Config()
	config := pool.ConnConfig.Copy()
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, config)
}

// hearUntil receives notifications until a time. It returns an error if the connection breaks.
func (n *notifier) hearUntil(conn *pgx.Conn, until time.Time) error {
	ctx, end := context.WithDeadline(n.ctx, until)
	defer end()
	for {
		note, err := conn.WaitForNotification(ctx)
		if err != nil {
			if ctx.Err() != nil && n.ctx.Err() == nil && !conn.IsClosed() {
				return nil
			}
			return err
		}
		n.hear(note.Payload)
	}
}

// hear acts on one notification, unless this process has sent it. It ignores lines that it cannot
// read, because others may use the channel too.
func (n *notifier) hear(payload string) {
	sender, rest, _ := strings.Cut(payload, "\n")
	if sender == n.sender {
		return
	}
	for line := range strings.SplitSeq(rest, "\n") {
		if topic, in, ok := readLine(line); ok {
			n.s.waits.notice(topic, in)
		}
	}
}

// readLine reads a line of a notification.
func readLine(line string) (topic string, in span, ok bool) {
	topic, times, ok := strings.Cut(line, " ")
	first, last, two := strings.Cut(times, " ")
	from, err := strconv.ParseInt(first, 10, 64)
	if !ok || err != nil {
		return "", span{}, false
	}
	until := from
	if two {
		until, err = strconv.ParseInt(last, 10, 64)
	}
	return topic, span{from, until}, err == nil
}
