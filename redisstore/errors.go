package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/redis/go-redis/v9"
)

// fault is a kind of failure of a command.
type fault struct {
	// prefix of Redis's error.
	prefix string
	// kind is what it wraps; nil is ErrIndeterminate.
	kind error
	// passing says that it is worth trying again soon.
	passing bool
	// remedy is what the user is told.
	remedy string
}

// faults are the errors with which Redis refuses a script before it has changed anything.
// The scripts check what they are given before they write, so a refusal of their first
// command is definite too.
var faults = []fault{
	{"MOVED", punctual.ErrOverloaded, true, "the slot is on another node: use a cluster client (redis+cluster://)"},
	{"ASK", punctual.ErrOverloaded, true, "the slot is being moved to another node: use a cluster client (redis+cluster://)"},
	{"TRYAGAIN", punctual.ErrOverloaded, true, "the slot is being moved to another node; try again"},
	{"CLUSTERDOWN", punctual.ErrUnreachable, true, "the cluster is down or does not cover all slots; try again"},
	{"LOADING", punctual.ErrUnreachable, true, "the server is loading its data; try again"},
	{"READONLY", punctual.ErrUnreachable, true, "the server is a replica, as during a failover; try again"},
	{"MASTERDOWN", punctual.ErrUnreachable, true, "the server is a replica without its primary; try again"},
	{"BUSY", punctual.ErrOverloaded, true, "the server is busy with somebody's script; try again, or end that one with SCRIPT KILL"},
	{"ERR max number of clients reached", punctual.ErrOverloaded, true, "raise maxclients or use fewer connections"},
	{"PUNCTUAL_LATE", errLate, false, "by the server's clock the time of the call was over when it arrived; try again"},
	{"PUNCTUAL_OTHER", punctual.ErrInvalid, false, "the key of the request was used for another call: take a new key for each call"},
	{"OOM", punctual.ErrNoSpace, false, "the server has reached maxmemory and refuses pushes and new topics; all else passes"},
	{"MISCONF", punctual.ErrDurability, false, "the server cannot write its data to disk and refuses changes: look at its log"},
	{"NOREPLICAS", punctual.ErrDurability, false, "fewer replicas are in reach than min-replicas-to-write asks for"},
	{"WRONGTYPE", punctual.ErrCorrupt, false, "a key of this store is of another type: somebody else has written to it"},
	{"NOAUTH", punctual.ErrUnsupported, false, "the server asks for a password"},
	{"WRONGPASS", punctual.ErrUnsupported, false, "the server does not accept this user and password"},
	{"NOPERM", punctual.ErrUnsupported, false, "this user lacks a right; see docs/format-redis.md for those that are needed"},
	{"ERR unknown command", punctual.ErrUnsupported, false, "the server does not know a command: Redis 6.2 or newer is needed"},
}

// lateMark begins what a script says of a copy that came too late; the time by its clock follows, in ms.
const lateMark = "PUNCTUAL_LATE "

// errLate is the kind of a call that was refused for its deadline. Nothing was done, now or later.
var errLate = fmt.Errorf("late: %w", punctual.ErrOverloaded)

// lateNow is the time of the script that refused a call.
func lateNow(err error) int64 {
	_, text, _ := strings.Cut(err.Error(), lateMark)
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return ms
}

// corruptMark begins what the scripts say of damaged data.
const corruptMark = "PUNCTUAL_CORRUPT "

// noAnswer is what is wrong when the change may or may not have been made.
const noAnswer = "the connection broke before the answer came"

func (f fault) unknown() bool { return f.kind == nil && f.remedy == noAnswer }

// unsent is the error of a command that was not sent.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// classify says what a failed command means for the change that it carried.
func classify(err error) fault {
	var u unsent
	var reply redis.Error
	switch {
	case errors.As(err, &u):
		return fault{kind: u.error}
	case errors.As(err, &reply):
		return classifyReply(reply.Error())
	case errors.Is(err, redis.ErrClosed):
		return fault{kind: punctual.ErrClosed, remedy: "the Redis client was closed"}
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return fault{kind: punctual.ErrOverloaded, remedy: "all connections of the pool are in use: raise PoolSize"}
	case distrusts(err):
		return fault{kind: punctual.ErrUnsupported, remedy: "the server's certificate is not trusted: name who vouches for it (ca=FILE, or RootCAs of the client's TLSConfig), and the server as its certificate does"}
	case isDistrusted(err):
		return fault{kind: punctual.ErrUnsupported, remedy: "the server wants a certificate of this program that it trusts (cert=FILE and key=FILE, or Certificates of the client's TLSConfig)"}
	case isPlain(err):
		return fault{kind: punctual.ErrUnsupported, remedy: "the server does not speak TLS at this port: use redis in place of rediss, or its other port"}
	case isDial(err):
		return fault{kind: punctual.ErrUnreachable, passing: true, remedy: "nobody listens there, or the network is down"}
	}
	return fault{remedy: noAnswer}
}

// classifyReply is classify for what Redis itself answered.
func classifyReply(text string) fault {
	if _, what, ok := strings.Cut(text, corruptMark); ok {
		return fault{kind: punctual.ErrCorrupt, remedy: what}
	}
	for _, f := range faults {
		// Some versions put what happened inside a script behind a prefix of their own.
		if strings.HasPrefix(text, f.prefix) || strings.Contains(text, ": "+f.prefix+" ") || strings.Contains(text, "-"+f.prefix+" ") {
			if f.prefix == "NOPERM" {
				f.remedy = remedyOf(text)
			}
			return f
		}
	}
	return fault{remedy: "the script failed"}
}

// isDial reports whether there was no connection to send anything on.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// distrusts reports whether the server's certificate was refused here. No command was sent.
func distrusts(err error) bool {
	var bad *tls.CertificateVerificationError
	return errors.As(err, &bad)
}

// isDistrusted reports whether the server refused this program's certificate, or that there
// is none. It does so before it reads a command.
func isDistrusted(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" && strings.Contains(op.Error(), "certificate")
}

// isPlain reports whether the server answered something that is not TLS.
func isPlain(err error) bool {
	var header tls.RecordHeaderError
	return errors.As(err, &header)
}

// wrap says what a failed command means and what to do.
func (f fault) wrap(err error) error {
	kind := f.kind
	if kind == nil {
		kind = punctual.ErrIndeterminate
	}
	switch {
	case f.remedy == "":
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w (%w)", f.remedy, kind, err)
	}
	return fmt.Errorf("%s: %w (%v)", f.remedy, kind, err)
}

// doubt marks a definite error of a call of which a former copy may have been carried out.
func doubt(unsure bool, err error) error {
	if !unsure || errors.Is(err, punctual.ErrIndeterminate) {
		return err
	}
	return fmt.Errorf("a former try got no answer: %w (%w)", punctual.ErrIndeterminate, err)
}

// halfDone marks the error of a call of which an earlier part took effect.
func halfDone(err error) error {
	if errors.Is(err, punctual.ErrIndeterminate) {
		return err
	}
	return fmt.Errorf("a part of the call took effect: %w (%w)", punctual.ErrIndeterminate, err)
}

func errClosed() error { return fmt.Errorf("redis store: %w", punctual.ErrClosed) }
