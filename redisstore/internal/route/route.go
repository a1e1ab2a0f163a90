// Package route runs scripts. It finds the node, sends the items of a call to their partitions,
// sends again what got no answer and waits for replicas. It knows of a script whether it may be
// sent twice and whether it awaits replicas, not what it does.
package route

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/clock"
	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
	"github.com/redis/go-redis/v9"
)

// Options configure a Router.
type Options struct {
	Names keys.Names
	Clock *clock.Clock
	// Sender names the store in the records of its calls.
	Sender string
	// Replicas is how many replicas must have on disk what a script that awaits replicas has
	// changed; 0 waits for none.
	Replicas int
	// ReplicaTimeout is for how long a change waits for the replicas; 0 stands for the default, 2
	// s.
	ReplicaTimeout time.Duration
	// Slack, for tests of many servers on one machine, is how much longer than wait.LateAfter a
	// node may take to answer.
	Slack time.Duration
	// General, for tests, reports for each call whether its script must take the general path. Nil
	// leaves the choice to scripts.
	General func() bool
	// Closing is closed when the store closes. Closed is the error of a call that ends because of
	// that.
	Closing <-chan struct{}
	Closed  error
	// Unconfirmed is called when too few replicas have confirmed a change.
	Unconfirmed func()
	// NoEvents is called when a script in partition p has an event to add and the companion events
	// does not exist. seen is the version that the script found in the companion's partition.
	// NoEvents makes the companion, or returns why not. tries counts the calls of NoEvents for one
	// script, from 1.
	NoEvents func(ctx context.Context, p keys.Partition, seen int64, tries int) error
	// Answered is called with the version of the settings that a script has found in a partition of
	// the topic. Its error becomes that of the call.
	Answered func(ctx context.Context, sc *script.Script, topic string, version int64) error
}

// Router runs scripts for one store. All methods are safe for concurrent use.
type Router struct {
	// Nodes knows which nodes of a cluster do not answer.
	Nodes *wait.Nodes

	client  redis.UniversalClient
	o       Options
	slots   slots
	keyArgs keys.Args
	work    sync.WaitGroup // the goroutines of FanOut

	unanswered unansweredCalls
	moving     movingPartitions
}

// New returns a Router over a client.
func New(client redis.UniversalClient, o Options) *Router {
	r := &Router{client: client, o: o, slots: slots{sender: o.Sender}}
	r.Nodes = wait.NewNodes(r, r.nodeSlack())
	return r
}

// Close ends the tests of nodes, and waits for these and for the works of calls that did not wait
// for their nodes. No call may follow.
func (r *Router) Close() {
	r.Nodes.Close()
	r.work.Wait()
}

// onceCmd is a command that the client must not send a second time by itself, because the server
// may have carried it out although its answer is lost. Send decides whether to send it again.
type onceCmd struct{ *redis.Cmd }

// NoRetry makes go-redis send the command only once.
func (onceCmd) NoRetry() bool { return true }

// Tries is how often a command is sent, at most, if Redis refuses it for a reason that may pass or
// if no answer comes. The pauses between the tries begin with FirstPause and double.
const (
	Tries      = 5
	FirstPause = 10 * time.Millisecond
)

// Run runs a script of a partition. k is nil unless the call has a key.
func (r *Router) Run(ctx context.Context, sc *script.Script, p keys.Partition, k *script.Key, args ...any) (*script.Answer, error) {
	return r.RunBeside(ctx, sc, p, nil, k, args...)
}

// RunBeside is Run with further keys, in the hash slot of the partition, which follow those of the
// partition and of its records. Only a Recorded script has such keys.
func (r *Router) RunBeside(ctx context.Context, sc *script.Script, p keys.Partition, beside []any, k *script.Key, args ...any) (*script.Answer, error) {
	if err := r.refuse(ctx, p); err != nil {
		return nil, err
	}
	var a *script.Answer
	var err error
	if sc.Repeat == script.Recorded {
		a, err = r.recorded(ctx, sc, p, beside, k, args)
		for tries := 1; isNoEvents(err); tries++ {
			if a, err = nil, r.awaitEvents(ctx, p, err, tries); err == nil {
				a, err = r.recorded(ctx, sc, p, beside, k, args)
			}
		}
	} else {
		a, err = r.timed(ctx, sc, r.keyArgs.Of(p), append([]any{r.header(0, 0), ""}, args...))
	}
	if err != nil {
		return nil, err
	}
	a.Version = a.Int()
	if a.Bad {
		return nil, script.BadReply(sc)
	}
	return a, r.o.Answered(ctx, sc, p.Topic, a.Version)
}

func (r *Router) header(number, deadline int64) script.Header {
	h := script.Header{Number: number, Deadline: deadline, General: r.o.General != nil && r.o.General()}
	h.LowerBound, h.Era, h.Seconds, h.Micros = r.o.Clock.Args()
	return h
}

// RunStore runs a script that belongs to the whole store.
func (r *Router) RunStore(ctx context.Context, sc *script.Script, key string, args ...any) (*script.Answer, error) {
	bound, era, seconds, micros := r.o.Clock.Args()
	times := []any{bound, era, "", ""}
	if seconds >= 0 {
		times[2], times[3] = seconds, micros
	}
	return r.timed(ctx, sc, []any{key}, append(times, args...))
}

// microsEach is what an answer counts each step of the clock, beside the microseconds.
const microsEach = 1000

// timed runs a script that is given the lower bound of the clock and begins its answer with its own
// time, which the clock takes in.
func (r *Router) timed(ctx context.Context, sc *script.Script, keys, args []any) (*script.Answer, error) {
	server, sent := r.serverOf(ctx, keys[0].(string)), time.Now()
	reply, err := r.Send(ctx, sc, keys, args)
	if err != nil {
		return nil, err
	}
	a := &script.Answer{Reader: script.Reader{Items: reply}}
	ms, us := a.Int(), a.Int()
	if a.Bad {
		return nil, script.BadReply(sc)
	}
	a.Now, a.Era = ms, us/microsEach
	r.o.Clock.Hear(server, sent, a.Era, ms, us%microsEach)
	return a, nil
}

// Send runs a script. It sends the script again if Redis certainly refused it for a reason that may
// pass, and also if no answer came and the script may be sent twice. Once a copy may have been
// carried out, no refusal of a later one is definite.
func (r *Router) Send(ctx context.Context, sc *script.Script, keys, args []any) ([]any, error) {
	pause, unsure := FirstPause, false
	for try := 1; ; try++ {
		val, err := r.eval(ctx, sc, keys, args, try > 1)
		if err == nil {
			return itemsOf(val), nil
		}
		if IsUnconfirmed(err) {
			r.o.Unconfirmed()
			return nil, sc.Called(err)
		}
		if redis.HasErrorPrefix(err, script.MoreMark) {
			if err := ctx.Err(); err != nil {
				return nil, errkind.Doubt(unsure, err)
			}
			try-- // the script has prepared a part of its work
			continue
		}
		if redis.HasErrorPrefix(err, script.FinishedKeysMark) {
			keys = r.keyArgs.AddFinished(keys)
			try-- // the script has done nothing, and gets its keys now
			continue
		}
		if redis.HasErrorPrefix(err, script.KeyedMark) {
			keys = r.keyArgs.AddKeyed(keys)
			try-- // the script has done nothing, and gets its keys now
			continue
		}
		if redis.HasErrorPrefix(err, script.EventKeysMark) {
			keys = r.keyArgs.AddEvents(keys)
			try-- // the script has done nothing, and gets its keys now
			continue
		}
		if isNoEvents(err) {
			return nil, errkind.Doubt(unsure, err)
		}
		if redis.HasErrorPrefix(err, script.StepMark) {
			if err := r.step(ctx, err); err != nil {
				return nil, errkind.Doubt(unsure, err)
			}
			try-- // the script has done nothing, because the partition had not made a step of the clock
			continue
		}
		f := errkind.Of(err)
		r.Refresh(ctx, err)
		if f.Unknown() && sc.Repeat == script.Reading {
			f.Err, f.Passing = punctual.ErrUnreachable, true // a read never "may have happened"
		}
		if errors.Is(f.Err, errkind.ErrLate) {
			r.o.Clock.Correct(errkind.LateTime(err))
		}
		unsure = unsure || f.Unknown()
		if again := f.Passing || f.Unknown() && sc.Repeat != script.Once; !again || try == Tries || ctx.Err() != nil {
			return nil, errkind.Doubt(unsure, sc.Called(f.Wrap(err)))
		}
		if err := r.Pause(ctx, pause); err != nil {
			return nil, errkind.Doubt(unsure, err)
		}
		pause *= 2
	}
}

// awaitEvents is called when a script has done nothing because the companion events does not exist.
// It returns nil once the script may be sent again.
func (r *Router) awaitEvents(ctx context.Context, p keys.Partition, why error, tries int) error {
	if tries > 2*Tries {
		return fmt.Errorf("somebody deletes the events of %s again and again: %w", p.Topic, punctual.ErrOverloaded)
	}
	if err := r.o.NoEvents(ctx, p, seenIn(why), tries); err != nil {
		return err
	}
	return r.refuse(ctx, p) // a copy without an answer may be on its way
}

// isNoEvents reports whether a script has done nothing because the companion events does not exist.
func isNoEvents(err error) bool { return redis.HasErrorPrefix(err, script.NoEventsMark) }

// seenIn returns the version in such an error, which the companion's partition has.
func seenIn(err error) int64 {
	_, text, _ := strings.Cut(err.Error(), script.NoEventsMark)
	version, _ := strconv.ParseInt(text, 10, 64) // 0 for a text that no script gives, as if the partition had never had a version
	return version
}

func itemsOf(val any) []any {
	if items, ok := val.([]any); ok {
		return items
	}
	return []any{val}
}

// Refresh has a cluster client ask anew which node serves what, if err says that a node did not
// answer or is the wrong one. By itself the client asks only once a minute (go-redis 9.23), and a
// failover takes seconds.
func (r *Router) Refresh(ctx context.Context, err error) {
	var reply redis.Error
	if cluster, ok := r.client.(*redis.ClusterClient); ok && (!errors.As(err, &reply) || redis.HasErrorPrefix(err, "MOVED")) {
		cluster.ReloadState(ctx)
	}
}

// Pause sleeps for d in real time, and returns an error if the store closes or ctx ends before.
func (r *Router) Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-r.o.Closing:
		return r.o.Closed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// eval sends a script by its hash, and in full to a server that does not know it.
func (r *Router) eval(ctx context.Context, sc *script.Script, keys, args []any, again bool) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, errkind.NotSent(err)
	}
	send := r.evalOnce
	if r.o.Replicas > 0 && sc.AwaitsReplicas(args) {
		send = r.evalConfirmed
	}
	val, err := send(ctx, script.Line("evalsha", sc.SHA, keys, args, again))
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		return send(ctx, script.Line("eval", sc.Text, keys, args, again))
	}
	return val, err
}

func (r *Router) evalOnce(ctx context.Context, line []any) (any, error) {
	cmd := onceCmd{redis.NewCmd(ctx, line...)}
	if err := r.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Result()
}
