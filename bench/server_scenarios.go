package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// These scenarios measure Punctual's server beside the same store as a library, beanstalkd and
// NATS: scheduling, a drain, lateness, and the memory for ten thousand clients that wait. Except
// with memory, CPU time is noted for the server, for all clients, and for both together.

const (
	serverHands   = 64     // consumers
	serverRate    = 2_000  // messages a second where lateness is measured
	serverWaiting = 10_000 // clients that wait where memory is measured

	// serverAlone is the work of one caller that pushes one message in each request and waits for
	// the answer.
	serverAlone = "schedule-single-1"
	serverWaits = "waiting-10k"
)

// serverWork is one kind of work that is measured. callers is how many callers push.
type serverWork struct {
	name, about string
	takes       func(sizes) time.Duration
	run         func(ctx context.Context, e *env, p peer, name string) error
	callers     int
}

func serverWorks() []serverWork {
	var all []serverWork
	for _, x := range []struct{ callers, batch int }{{1, 1}, {16, 1}, {64, 1}, {16, 100}, {64, 100}} {
		name := fmt.Sprintf("schedule-single-%d", x.callers)
		if x.batch > 1 {
			name = fmt.Sprintf("schedule-batch-%d", x.callers)
		}
		all = append(all, serverWork{
			name: name, about: callersLabel(x.callers, x.batch), callers: x.callers,
			takes: func(z sizes) time.Duration { return z.RedisSpan + 2*time.Second },
			run: func(ctx context.Context, e *env, p peer, _ string) error {
				return serverSchedule(ctx, e, p, x.callers, x.batch)
			},
		})
	}
	return append(all,
		serverWork{
			name: "drain", about: "messages due in one instant, 64 consumers", callers: fillers,
			takes: func(z sizes) time.Duration {
				return 4*time.Second + time.Duration(z.RedisBurst)*200*time.Microsecond
			},
			run: serverDrain,
		},
		serverWork{
			name: "lateness-2k", about: "2,000 messages a second, 64 consumers", callers: redisCallers,
			takes: func(z sizes) time.Duration { return z.RedisWindow + lateLead + 2*time.Second }, run: serverLateness,
		},
		serverWork{
			name: serverWaits, about: "10,000 clients that wait for a message", callers: 1,
			takes: func(sizes) time.Duration { return 10 * time.Second }, run: serverMemory,
		})
}

// peers returns the names of the systems for which this work is measured.
func (w serverWork) peers() []string {
	switch w.name {
	case serverAlone: // also peerHTTP, because a program without the Go library sends one push in a request
		return slices.Insert(slices.Clone(peerNames), 2, peerHTTP)
	case serverWaits: // without peerLibrary, to which no clients connect
		return peerNames[1:]
	}
	return peerNames
}

func serverName(work, peer string) string { return "server/" + work + "/" + peer }

func serverScenarios() []scenario {
	var all []scenario
	for _, w := range serverWorks() {
		for _, name := range w.peers() {
			all = append(all, scenario{
				name: serverName(w.name, name), about: w.about + ", " + peerLabel(name), takes: w.takes,
				run: func(ctx context.Context, e *env) error {
					p, err := openPeer(ctx, e, name, w.callers)
					if err != nil {
						return err
					}
					return errors.Join(w.run(ctx, e, p, name), p.close())
				},
			})
		}
	}
	return all
}

// bothCPU returns the CPU time of the server, and that of this process, in which all clients are.
func bothCPU(p peer) (server, clients time.Duration, err error) {
	if server, err = p.process().cpu(); err != nil {
		return 0, 0, err
	}
	clients, err = cpuTime()
	return server, clients, err
}

// noteCPU notes the CPU time for each of n messages since bothCPU returned server and clients.
func (r *Result) noteCPU(p peer, server, clients time.Duration, n int64) error {
	s, c, err := bothCPU(p)
	if err != nil {
		return err
	}
	r.set("server_us_per_message", float64((s-server).Microseconds())/float64(n))
	r.set("clients_us_per_message", float64((c-clients).Microseconds())/float64(n))
	r.set("cpu_us_per_message", float64((s-server+c-clients).Microseconds())/float64(n))
	return nil
}

func serverSchedule(ctx context.Context, e *env, p peer, callers, batch int) error {
	e.say("scheduling for %v", e.sizes.RedisSpan)
	server, clients, err := bothCPU(p)
	if err != nil {
		return err
	}
	var seq atomic.Uint32
	t, err := flatOut(ctx, callers, e.sizes.RedisSpan, func(ctx context.Context, who int) (int, error) {
		return batch, p.push(ctx, who, farLetters(batch, &seq))
	})
	if err != nil {
		return err
	}
	n := t.items.Load()
	if err := e.out.noteCPU(p, server, clients, n); err != nil {
		return err
	}
	e.out.set("rate", t.rate())
	e.out.setQuantiles("call", t.calls.merged())
	return expectPending(ctx, p, n)
}

// consuming starts a peer's consumers. stop ends them and returns what they handled. Until then
// handled may be asked how many messages that is.
func consuming(ctx context.Context, p peer) (handled *records, stop func() ([]record, error)) {
	ctx, end := context.WithCancel(ctx)
	handled = new(records)
	done := make(chan error, 1)
	go func() { done <- p.consume(ctx, serverHands, handled.handle) }()
	return handled, func() ([]record, error) {
		end()
		err := <-done
		handled.mu.Lock()
		defer handled.mu.Unlock()
		return handled.list, errors.Join(err, handled.bad)
	}
}

// awaitHandled waits until n messages were handled. It returns an error when none was handled for
// settleTime.
func awaitHandled(ctx context.Context, r *records, n int64) error {
	last, progress := int64(-1), time.Now()
	for {
		now := r.count()
		switch {
		case now >= n:
			return nil
		case now > last:
			last, progress = now, time.Now()
		case time.Since(progress) > settleTime:
			return fmt.Errorf("%d of %d messages were handled, and none within the last %v", now, n, settleTime)
		}
		if err := sleepUntil(ctx, time.Now().Add(5*time.Millisecond)); err != nil {
			return err
		}
	}
}

func serverDrain(ctx context.Context, e *env, p peer, name string) error {
	n, each := int64(e.sizes.RedisBurst), 150*time.Microsecond
	if name == peerBinlog { // it makes an fsync for each message, so that a fiftieth takes about as long
		n, each = max(1, n/50), 8*time.Millisecond
	}
	// The instant is a whole second, because beanstalkd's delays are whole seconds.
	due := time.Now().Add(3*time.Second + time.Duration(n)*each).Truncate(time.Second)
	e.say("scheduling %d messages for one instant", n)
	if err := fillFor(ctx, p, name, n, due); err != nil {
		return err
	}
	if late := time.Since(due); late > 0 {
		return fmt.Errorf("the last message was pushed %v after it was due: %w", late, errLateFill)
	}
	begin := func() (*records, func() ([]record, error)) { return consuming(ctx, p) }
	var handled *records
	var stop func() ([]record, error)
	rounded := name == peerBeanstalk || name == peerBinlog
	if !rounded {
		handled, stop = begin()
	}
	if err := sleepUntil(ctx, due.Add(-20*time.Millisecond)); err != nil {
		return err
	}
	server, clients, err := bothCPU(p)
	if err != nil {
		return err
	}
	e.say("draining")
	if rounded { // beanstalkd's messages are ready too early, so its consumers start only at the instant
		if err := sleepUntil(ctx, due); err != nil {
			return err
		}
		handled, stop = begin()
	}
	err = awaitHandled(ctx, handled, n)
	cerr := e.out.noteCPU(p, server, clients, n)
	list, serr := stop()
	if err := errors.Join(err, cerr, serr); err != nil {
		return err
	}
	v, err := check(n, list)
	if err != nil {
		return err
	}
	e.out.set("rate", float64(n)/v.last.Sub(due).Seconds())
	e.out.set("first_ms", ms(v.first.Sub(due)))
	e.out.set("messages", float64(n))
	return noteOutcome(e.out, name, v, n)
}

// noteOutcome notes the lateness. It returns an error if Punctual, as a server or as a library,
// delivered a message early or twice.
func noteOutcome(out *Result, name string, v outcome, n int64) error {
	out.setQuantiles("start", v.late.merged())
	out.set("early_share", float64(v.early)/float64(n))
	out.set("earliest_ms", ms(v.earliest))
	out.set("repeated", float64(v.twice))
	if name == peerServer || name == peerLibrary {
		return v.strict()
	}
	return nil
}

func serverLateness(ctx context.Context, e *env, p peer, name string) error {
	n := int64(serverRate * e.sizes.RedisWindow.Seconds())
	handled, stop := consuming(ctx, p)
	e.say("%d messages a second for %v", serverRate, e.sizes.RedisWindow)
	server, clients, err := bothCPU(p)
	if err != nil {
		_, serr := stop()
		return errors.Join(err, serr)
	}
	overdue, err := pushEvenly(ctx, p, n, serverRate)
	if err == nil {
		err = awaitHandled(ctx, handled, n)
	}
	cerr := e.out.noteCPU(p, server, clients, n)
	list, serr := stop()
	if err := errors.Join(err, cerr, serr); err != nil {
		return err
	}
	v, err := check(n, list)
	if err != nil {
		return err
	}
	e.out.set("overdue_share", float64(overdue)/float64(n))
	return noteOutcome(e.out, name, v, n)
}

// serverMemory notes how much memory each client that waits costs the server.
func serverMemory(ctx context.Context, e *env, p peer, _ string) error {
	before, err := settledMemory(ctx, p)
	if err != nil {
		return err
	}
	e.say("%d clients come to wait", serverWaiting)
	conns := make([]net.Conn, serverWaiting)
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	var next atomic.Int64
	if err := inParallel(ctx, 16, func(ctx context.Context, _ int) error {
		for {
			i := next.Add(1) - 1
			if i >= serverWaiting {
				return nil
			}
			c, err := p.waiting(ctx)
			if err != nil {
				return fmt.Errorf("client %d of %d: %w", i+1, serverWaiting, err)
			}
			conns[i] = c
		}
	}); err != nil {
		return err
	}
	after, err := settledMemory(ctx, p)
	if err != nil {
		return err
	}
	if err := stillOpen(conns); err != nil {
		return err
	}
	e.out.set("rss_before_bytes", before)
	e.out.set("rss_bytes", after)
	e.out.set("bytes_per_client", (after-before)/serverWaiting)
	return nil
}

// settledMemory returns the server's resident memory once it has not changed within a second.
func settledMemory(ctx context.Context, p peer) (float64, error) {
	last := -1.0
	for {
		now, err := p.process().memory()
		if err != nil || now == last {
			return now, err
		}
		last = now
		if err := sleepUntil(ctx, time.Now().Add(time.Second)); err != nil {
			return 0, err
		}
	}
}

// stillOpen returns an error if the server has ended a connection. It reads from all for up to a
// second and ignores what the server sends, because NATS sends something to a client that waits.
func stillOpen(conns []net.Conn) error {
	var all sync.WaitGroup
	var ended atomic.Int64
	at := time.Now().Add(time.Second)
	for _, c := range conns {
		all.Go(func() {
			if err := c.SetReadDeadline(at); err != nil {
				ended.Add(1)
				return
			}
			_, err := io.Copy(io.Discard, c)
			if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
				ended.Add(1)
			}
		})
	}
	all.Wait()
	if n := ended.Load(); n > 0 {
		return fmt.Errorf("%d of %d clients do not wait any more", n, len(conns))
	}
	return nil
}
