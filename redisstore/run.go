package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/redis/go-redis/v9"
)

// onceCmd is a command that the client must not send a second time by itself: when its
// answer is lost, it may have been done. Whether to send it again is for run to say.
type onceCmd struct{ *redis.Cmd }

// NoRetry tells the client.
func (onceCmd) NoRetry() bool { return true }

// tries is how often a command is sent that Redis certainly did not carry out, for a reason
// that may pass; between them it waits from firstPause, doubling.
const (
	tries      = 5
	firstPause = 10 * time.Millisecond
)

// runPartition runs a script of a partition. It notices when the whole data set is gone.
func (s *Store) runPartition(ctx context.Context, sc *script.Script, p keys.Partition, args ...any) (*script.Answer, error) {
	return s.runKeyed(ctx, sc, p, nil, args...)
}

// runKeyed is runPartition for a part of a call that has a key; nil is none.
func (s *Store) runKeyed(ctx context.Context, sc *script.Script, p keys.Partition, k *script.Key, args ...any) (*script.Answer, error) {
	var a *script.Answer
	var err error
	if sc.Repeat == script.Recorded {
		a, err = s.runCall(ctx, sc, p, k, args)
	} else {
		a, err = s.runTimed(ctx, sc, s.keyArgs.Of(p)[:keys.Count], append([]any{s.header(0, 0), ""}, args...))
	}
	if err != nil {
		return nil, err
	}
	a.Version = a.Int()
	if a.Bad {
		return nil, script.BadReply(sc)
	}
	return a, s.sawVersion(ctx, sc, p.Topic, a.Version)
}

func (s *Store) header(number, deadline int64) script.Header {
	h := script.Header{Number: number, Deadline: deadline, General: s.opt.general != nil && s.opt.general()}
	h.Floor, h.Seconds, h.Micros = s.clock.Args()
	return h
}

// runStore runs a script that belongs to the whole store.
func (s *Store) runStore(ctx context.Context, sc *script.Script, key string, args ...any) (*script.Answer, error) {
	floor, seconds, micros := s.clock.Args()
	times := []any{floor, "", ""}
	if seconds >= 0 {
		times[1], times[2] = seconds, micros
	}
	return s.runTimed(ctx, sc, []any{key}, append(times, args...))
}

// runTimed runs a script that is told the time, and answers with it.
func (s *Store) runTimed(ctx context.Context, sc *script.Script, keys, args []any) (*script.Answer, error) {
	reply, err := s.run(ctx, sc, keys, args)
	if err != nil {
		return nil, err
	}
	a := &script.Answer{Reader: script.Reader{Items: reply}}
	ms, us := a.Int(), a.Int()
	if a.Bad {
		return nil, script.BadReply(sc)
	}
	a.Now = ms
	s.clock.Hear(ms, us)
	return a, nil
}

// run runs a script: again if Redis certainly refused to for a reason that may pass, and also
// if no answer came, where it may be sent twice. Once a copy may have been carried out, no
// refusal of a later one is definite.
func (s *Store) run(ctx context.Context, sc *script.Script, keys, args []any) ([]any, error) {
	if err := s.refusal(); err != nil && sc == script.Push {
		return nil, err
	}
	pause, unsure := firstPause, false
	for try := 1; ; try++ {
		val, err := s.eval(ctx, sc, keys, args, try > 1)
		if err == nil {
			return itemsOf(val), nil
		}
		if isUnconfirmed(err) {
			s.lookSoon()
			return nil, sc.Called(err)
		}
		if redis.HasErrorPrefix(err, script.MoreMark) {
			if err := ctx.Err(); err != nil {
				return nil, errkind.Doubt(unsure, err)
			}
			try-- // it has come further
			continue
		}
		f := errkind.Of(err)
		s.lookForNodes(ctx, err)
		if f.Unknown() && sc.Repeat == script.Reading {
			f.Err, f.Passing = punctual.ErrUnreachable, true // a read never "may have happened"
		}
		if errors.Is(f.Err, errkind.Late) {
			s.clock.Correct(errkind.LateTime(err))
		}
		unsure = unsure || f.Unknown()
		if again := f.Passing || f.Unknown() && sc.Repeat != script.Once; !again || try == tries || ctx.Err() != nil {
			return nil, errkind.Doubt(unsure, sc.Called(f.Wrap(err)))
		}
		if err := s.pause(ctx, pause); err != nil {
			return nil, errkind.Doubt(unsure, err)
		}
		pause *= 2
	}
}

func itemsOf(val any) []any {
	if items, ok := val.([]any); ok {
		return items
	}
	return []any{val}
}

// lookForNodes lets a cluster client ask who serves what, when a node does not answer or is
// the wrong one. By itself it asks only once a minute (go-redis 9.23), and a failover takes seconds.
func (s *Store) lookForNodes(ctx context.Context, err error) {
	var reply redis.Error
	if cluster, ok := s.client.(*redis.ClusterClient); ok && (!errors.As(err, &reply) || redis.HasErrorPrefix(err, "MOVED")) {
		cluster.ReloadState(ctx)
	}
}

// pause sleeps in real time.
func (s *Store) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.closing:
		return errClosed()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// eval sends a script by its hash, and in full to a server that does not know it.
func (s *Store) eval(ctx context.Context, sc *script.Script, keys, args []any, again bool) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, errkind.NotSent(err)
	}
	send := s.evalOnce
	if s.promises(sc, args) {
		send = s.evalConfirmed
	}
	val, err := send(ctx, script.Line("evalsha", sc.SHA, keys, args, again))
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		return send(ctx, script.Line("eval", sc.Text, keys, args, again))
	}
	return val, err
}

func (s *Store) evalOnce(ctx context.Context, line []any) (any, error) {
	cmd := onceCmd{redis.NewCmd(ctx, line...)}
	if err := s.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Result()
}
