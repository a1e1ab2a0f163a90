package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore"
	"github.com/punctualmq/punctual/worker"
)

// The systems that are compared on Redis. Each is used as its documentation says, pushes messages
// of the same size, and has a fresh server for each measurement. Consumers are processes of their
// own (consumer.go).
const (
	sysPunctual = "punctual"
	// sysChosen is Punctual with IDs that the caller chooses. With sysPunctual the store makes the
	// IDs.
	sysChosen = "punctual-chosen"
	// sysRaw is the reference of redis_raw.go with a ZADD and an HSET for each message, and
	// sysLists is the reference with one ZADD and one HSET for a whole list of messages.
	sysRaw   = "raw"
	sysLists = "lists"
	// sysAsynq is asynq with its defaults, and sysAsynqFast is asynq with shorter intervals between
	// its polls.
	sysAsynq     = "asynq"
	sysAsynqFast = "asynq-fast"
)

// The intervals between asynq's polls in sysAsynqFast. fastDelayedCheck is how long asynq waits
// between two searches for tasks that have become due (by default 5 s). fastTaskCheck is how long
// it waits before it looks at an empty queue again (by default 1 s).
const (
	fastDelayedCheck = 100 * time.Millisecond
	fastTaskCheck    = 10 * time.Millisecond
)

// sysBullMQ is BullMQ with its defaults. It runs in Node (redis_bullmq.go).
const sysBullMQ = "bullmq"

const asynqQueue = "default"

// asynqVersion returns the version of the module asynq with which this program is built.
func asynqVersion() string { return moduleVersion("github.com/hibiken/asynq") }

func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "unknown"
}

// letter is a message of a comparison. Its number and due time are in its body, so that a handler
// can tell which message it is and how late it is, whichever system has delivered it.
type letter struct {
	seq uint32
	due time.Time // whole milliseconds, except in lives, where nobody asks how late a message is
}

const letterHead = 12 // how many bytes number and due time take

// body returns the number, the due time in ms and random bytes, bodyBytes in all.
func (l letter) body() []byte {
	b := make([]byte, bodyBytes)
	binary.LittleEndian.PutUint32(b, l.seq)
	binary.LittleEndian.PutUint64(b[4:], uint64(l.due.UnixMilli()))
	copy(b[letterHead:], randomBody())
	return b
}

func parseLetter(body []byte) (letter, error) {
	if len(body) != bodyBytes {
		return letter{}, fmt.Errorf("a body of %d bytes was delivered where all have %d", len(body), bodyBytes)
	}
	due := time.UnixMilli(int64(binary.LittleEndian.Uint64(body[4:])))
	return letter{binary.LittleEndian.Uint32(body), due}, nil
}

// ceilMillis rounds up to whole milliseconds, as Punctual rounds due times.
func ceilMillis(t time.Time) time.Time {
	if r := t.Truncate(time.Millisecond); r.Before(t) {
		return r.Add(time.Millisecond)
	}
	return t
}

// contender is a system, and the prefix with which the names of its values begin.
type contender struct{ system, prefix string }

// system is the scheduling side of a system that is compared.
type system interface {
	// push schedules letters. who is the number of the caller, from 0; several callers may push at
	// the same time.
	push(ctx context.Context, who int, ls []letter) error
	// pending returns how many messages the system has that are not finished. Messages being
	// handled count, and so do those that the system has given up on but still keeps.
	pending(ctx context.Context) (int64, error)
	close() error
}

func openSystem(ctx context.Context, name string, s *redisServer, callers int) (system, error) {
	switch name {
	case sysPunctual, sysChosen:
		sys, err := openPunctual(ctx, s)
		if err != nil {
			return nil, err
		}
		sys.chosen = name == sysChosen
		return sys, nil
	case sysRaw, sysLists:
		return openRaw(ctx, s, callers, name == sysLists)
	case sysAsynq, sysAsynqFast:
		return openAsynq(s), nil
	case sysBullMQ:
		return openBullMQ(ctx, s.addr)
	}
	return nil, fmt.Errorf("there is no system %q", name)
}

// punctualSystem schedules through a Queue.
type punctualSystem struct {
	store  *redisstore.Store
	queue  *punctual.Queue
	chosen bool // the caller chooses the IDs
}

// openRedisStore opens a store on Redis as a user does who sets nothing.
func openRedisStore(ctx context.Context, addr string) (*redisstore.Store, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	store, err := redisstore.Open(ctx, client, &redisstore.Options{OwnClient: true})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return store, nil
}

func openPunctual(ctx context.Context, s *redisServer) (*punctualSystem, error) {
	store, err := openRedisStore(ctx, s.addr)
	if err != nil {
		return nil, err
	}
	return &punctualSystem{store: store, queue: punctual.NewQueue(store, nil)}, nil
}

func (p *punctualSystem) push(ctx context.Context, _ int, ls []letter) error {
	if len(ls) == 1 {
		options := []punctual.PushOption{punctual.At(ls[0].due)}
		if p.chosen {
			options = append(options, punctual.ID(chosenID()))
		}
		_, err := p.queue.Push(ctx, topic, ls[0].body(), options...)
		return err
	}
	ms := make([]punctual.NewMessage, len(ls))
	for i, l := range ls {
		ms[i] = punctual.NewMessage{Topic: topic, Body: l.body(), Due: l.due}
		if p.chosen {
			ms[i].ID = chosenID()
		}
	}
	return checkPushed(p.queue.PushMany(ctx, ms))
}

func (p *punctualSystem) pending(ctx context.Context) (int64, error) {
	st, err := p.store.Stats(ctx, topic)
	return st.Scheduled + st.Ready + st.Leased + st.Dead, err
}

func (p *punctualSystem) close() error { return p.store.Close() }

// asynqSystem schedules through an asynq.Client, one message at a time, because the client has no
// call for many.
type asynqSystem struct {
	client    *asynq.Client
	inspector *asynq.Inspector
}

func openAsynq(s *redisServer) *asynqSystem {
	at := asynq.RedisClientOpt{Addr: s.addr}
	return &asynqSystem{asynq.NewClient(at), asynq.NewInspector(at)}
}

func (a *asynqSystem) push(ctx context.Context, _ int, ls []letter) error {
	for _, l := range ls {
		if _, err := a.client.EnqueueContext(ctx, asynq.NewTask(topic, l.body()), asynq.ProcessAt(l.due)); err != nil {
			return err
		}
	}
	return nil
}

func (a *asynqSystem) pending(context.Context) (int64, error) {
	info, err := a.inspector.GetQueueInfo(asynqQueue)
	if err != nil {
		return 0, err
	}
	return int64(info.Size), nil
}

func (a *asynqSystem) close() error { return errors.Join(a.client.Close(), a.inspector.Close()) }

// consume is the handling side of a system in this process. It calls ready once it waits for
// messages, or for the reference before it connects, and handle with the body of each message. It
// returns when ctx has ended and the messages being handled are finished; the reference also
// returns when none are left.
func consume(ctx context.Context, t consumerTask, ready func(), handle func(body []byte)) error {
	switch t.System {
	case sysPunctual:
		return consumePunctual(ctx, t, ready, handle)
	case sysAsynq, sysAsynqFast:
		return consumeAsynq(ctx, t, ready, handle)
	case sysRaw:
		ready()
		return consumeRaw(ctx, t, handle)
	case postgresConsumer(sysPunctual):
		return consumePostgres(ctx, sysPunctual, t, ready, handle)
	case postgresConsumer(sysRiverFast):
		return consumePostgres(ctx, sysRiverFast, t, ready, handle)
	}
	return fmt.Errorf("there is no consumer for %q", t.System)
}

// warnings returns a logger that writes warnings and errors to standard error.
func warnings() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func consumePunctual(ctx context.Context, t consumerTask, ready func(), handle func(body []byte)) error {
	store, err := openRedisStore(ctx, t.Addr)
	if err != nil {
		return err
	}
	w := worker.New(store, &worker.Config{Concurrency: t.Slots, Logger: warnings()})
	h := punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		handle(d.Body)
		return nil
	})
	for n := range t.Topics {
		w.Handle(numberedTopic(n), h)
	}
	if t.Topics == 0 {
		w.Handle(topic, h)
	}
	if err := w.Start(context.WithoutCancel(ctx)); err != nil {
		return closeStore(store, err)
	}
	ready()
	<-ctx.Done()
	return closeStore(store, stopWorker(w))
}

func consumeAsynq(ctx context.Context, t consumerTask, ready func(), handle func(body []byte)) error {
	cfg := asynq.Config{Concurrency: t.Slots, LogLevel: asynq.ErrorLevel}
	if t.System == sysAsynqFast {
		cfg.DelayedTaskCheckInterval, cfg.TaskCheckInterval = fastDelayedCheck, fastTaskCheck
	}
	srv := asynq.NewServer(asynq.RedisClientOpt{Addr: t.Addr}, cfg)
	err := srv.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		handle(task.Payload())
		return nil
	}))
	if err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	srv.Shutdown()
	return nil
}
