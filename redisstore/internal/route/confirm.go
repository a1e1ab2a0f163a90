package route

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/redis/go-redis/v9"
)

// With class replicated, what a call promises is on the disks of the primary and of
// Options.Replicas replicas before the call returns. The script and the WAITAOFs behind it go in
// one pipeline, which is one connection in order, because WAITAOF waits for the changes of its own
// connection.

// defaultReplicaTimeout is the default of Options.ReplicaTimeout. It is more than a second, because
// a replica with appendfsync everysec may need a second.
const defaultReplicaTimeout = 2 * time.Second

// longestWait bounds the timeout of each WAITAOF but the last one, in ms. The last one waits for
// what is left, which is less than twice as long.
const longestWait = 250

// unconfirmed is the error of a change that was made, but that too few servers have confirmed in
// time to have on disk.
type unconfirmed struct {
	disks, replicas, want int
	err                   error // of WAITAOF itself, or nil
}

func (u *unconfirmed) Error() string {
	text := fmt.Sprintf("it is stored, but may be lost with the primary: its disk confirmed %d of 1, replicas %d of %d", u.disks, u.replicas, u.want)
	if u.err != nil {
		text = fmt.Sprintf("it is stored, but may be lost with the primary: no replica could be waited for (%v)", u.err)
	}
	return text + ": " + punctual.ErrIndeterminate.Error()
}

func (*unconfirmed) Unwrap() error { return punctual.ErrIndeterminate }

// IsUnconfirmed reports whether err says that a change was made, but that too few servers have
// confirmed it in time.
func IsUnconfirmed(err error) bool {
	var u *unconfirmed
	return errors.As(err, &u)
}

// AsRefusal turns the error of an unconfirmed change, which was made only as a trial, into the
// error with which the server is refused. It returns any other error as it is.
func AsRefusal(err error) error {
	var u *unconfirmed
	if !errors.As(err, &u) {
		return err
	}
	text := fmt.Sprintf("the disk of the primary confirmed %d of 1, replicas %d of %d in time", u.disks, u.replicas, u.want)
	if u.err != nil {
		text = u.err.Error()
	}
	return fmt.Errorf("the server does not give %q: set appendonly to yes and appendfsync to always on the replicas, too; one that has just begun to follow needs a moment (%s): %w", punctual.Replicated, text, punctual.ErrDurability)
}

// evalConfirmed is evalOnce for a script that awaits replicas.
func (r *Router) evalConfirmed(ctx context.Context, line []any) (any, error) {
	node, err := r.NodeOf(ctx, script.KeyIn(line, 0))
	if err != nil {
		return nil, err
	}
	val, err := r.evalOn(ctx, node, line)
	if node := r.movedTo(ctx, err); node != nil {
		return r.evalOn(ctx, node, line)
	}
	return val, err
}

// evalOn runs a script on a server, and waits until enough disks have what the script has written.
func (r *Router) evalOn(ctx context.Context, node redis.UniversalClient, line []any) (any, error) {
	cmd := onceCmd{redis.NewCmd(ctx, line...)}
	pipe := node.Pipeline()
	_ = pipe.Process(ctx, cmd) // a pipeline only gathers; what goes wrong is in each command
	mark := r.confirm(ctx, pipe, line)
	wait := r.wait(ctx, pipe)
	_, _ = pipe.Exec(ctx)
	if cmd.Err() != nil {
		return nil, cmd.Err()
	}
	got, err := wait.Result()
	if err = errors.Join(mark.Err(), err); err != nil || len(got) != 2 {
		return nil, &unconfirmed{want: r.o.Replicas, err: errors.Join(err, ctx.Err())}
	}
	if got[0] < 1 || got[1] < int64(r.o.Replicas) {
		return nil, &unconfirmed{disks: int(got[0]), replicas: int(got[1]), want: r.o.Replicas}
	}
	return cmd.Result()
}

// wait adds several WAITAOF to a pipeline and returns the last one, whose answer counts.
//
// There are several because each WAITAOF that has to wait makes the primary ask the replicas once
// what they have on disk; unasked they report once a second. The first request nearly always
// reaches a replica that is still writing, so that one WAITAOF alone would take a second. When one
// WAITAOF has what it waited for, those after it return at once.
func (r *Router) wait(ctx context.Context, pipe redis.Pipeliner) *redis.IntSliceCmd {
	left := r.replicaTimeout().Milliseconds()
	for ms := int64(1); ; ms = min(2*ms, longestWait) {
		if 2*ms > left {
			ms = left
		}
		left -= ms
		cmd := redis.NewIntSliceCmd(ctx, "waitaof", 1, r.o.Replicas, ms)
		_ = pipe.Process(ctx, cmd)
		if left == 0 {
			return cmd
		}
	}
}

// confirm adds the script confirm to a pipeline, for the hash g of the partition that the line is
// for, or the hash of the whole store. For the set of topics' names it adds nothing: a name in that
// set is new, or whoever added it has waited for the replicas.
func (r *Router) confirm(ctx context.Context, pipe redis.Pipeliner, line []any) redis.Cmder {
	key, field := script.KeyIn(line, 0), "epoch"
	switch {
	case key == r.o.Names.Topics():
		return redis.NewCmd(ctx)
	case key != r.o.Names.Store():
		key, field = script.KeyIn(line, keys.Settings), "version"
	}
	mark := onceCmd{redis.NewCmd(ctx, "eval", script.Confirm.Text, 1, key, field)}
	_ = pipe.Process(ctx, mark)
	return mark
}

// NodeOf returns a client for the one server that has a key, because a pipeline of a cluster's
// client would send WAITAOF, which has no key, to any node.
func (r *Router) NodeOf(ctx context.Context, key string) (redis.UniversalClient, error) {
	cluster, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return r.client, nil
	}
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	return node, nil
}

// movedTo returns the node that err, a MOVED of a cluster, names as the one that has the keys now.
// It returns nil for any other error and for a node that the client does not know. A cluster's
// client follows a MOVED only for commands that it routes itself.
func (r *Router) movedTo(ctx context.Context, err error) redis.UniversalClient {
	cluster, ok := r.client.(*redis.ClusterClient)
	if !ok || !redis.HasErrorPrefix(err, "MOVED ") {
		return nil
	}
	cluster.ReloadState(ctx)
	fields := strings.Fields(err.Error()) // MOVED SLOT ADDR
	addr := fields[len(fields)-1]
	var mu sync.Mutex
	var node redis.UniversalClient // guarded by mu
	err = cluster.ForEachShard(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if c.Options().Addr == addr {
			node = c
		}
		return nil
	})
	if err != nil {
		return nil // Send sends the script again
	}
	return node
}

// replicaTimeout returns for how long a change waits for replicas: at most three quarters of the
// client's ReadTimeout, so that the answer comes before the client gives up reading.
func (r *Router) replicaTimeout() time.Duration {
	d := r.o.ReplicaTimeout
	if d <= 0 {
		d = defaultReplicaTimeout
	}
	var read time.Duration
	switch c := r.client.(type) {
	case *redis.ClusterClient:
		read = c.Options().ReadTimeout
	case *redis.Client:
		read = c.Options().ReadTimeout
	}
	if read > 0 {
		d = min(d, read*3/4)
	}
	return max(d, time.Millisecond) // 0 would wait for ever
}
