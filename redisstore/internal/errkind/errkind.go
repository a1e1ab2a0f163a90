// Package errkind classifies the error of a failed command: whether its change may have happened,
// whether another try can succeed, and what the user can do. It has no state.
package errkind

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/redis/go-redis/v9"
)

// Kind is a kind of failure of a command.
type Kind struct {
	// prefix is how Redis's error begins.
	prefix string
	// Err is the error that Wrap wraps; nil stands for ErrIndeterminate.
	Err error
	// Passing says that the reason may pass soon, so that the command should be tried again.
	Passing bool
	// remedy says what is wrong and what the user can do.
	remedy string
}

// kinds are the errors with which Redis, or a script itself, refuses a call before it has changed
// anything but the clock of a partition. Such an error of a command inside a script is definite,
// too, because the scripts check all that they need before their first write.
var kinds = []Kind{
	{"MOVED", punctual.ErrOverloaded, true, "the slot is on another node: use a cluster client (redis+cluster://)"},
	{"ASK", punctual.ErrOverloaded, true, "the slot is being moved to another node: use a cluster client (redis+cluster://)"},
	{"TRYAGAIN", punctual.ErrOverloaded, true, "the slot of the topic is being moved to another node, and until that is over no script runs there; try again. A move that was broken off stays so: end it with redis-cli --cluster fix"},
	{"CLUSTERDOWN", punctual.ErrUnreachable, true, "the cluster is down or does not cover all slots; try again"},
	{"LOADING", punctual.ErrUnreachable, true, "the server is loading its data; try again"},
	{"READONLY", punctual.ErrUnreachable, true, "the server is a replica: name the primary, its Sentinels or the cluster; after a failover try again"},
	{"MASTERDOWN", punctual.ErrUnreachable, true, "the server is a replica without its primary; try again"},
	{"BUSY", punctual.ErrOverloaded, true, "the server is busy with somebody's script; try again, or end that one with SCRIPT KILL"},
	{"ERR max number of clients reached", punctual.ErrOverloaded, true, "raise maxclients or use fewer connections"},
	{"PUNCTUAL_LATE", ErrLate, false, "by the server's clock the time of the call was over when it arrived; try again"},
	{"PUNCTUAL_OTHER", punctual.ErrInvalid, false, "the key of the request was used for another call: take a new key for each call"},
	{"OOM", punctual.ErrNoSpace, false, "the server has reached maxmemory and refuses pushes and new topics; all else passes"},
	{"MISCONF", punctual.ErrDurability, false, "the server cannot write its data to disk and refuses changes: look at its log"},
	{"NOREPLICAS", punctual.ErrDurability, false, "fewer replicas are in reach than min-replicas-to-write asks for"},
	{"WRONGTYPE", punctual.ErrCorrupt, false, "a key of this store is of another type: somebody else has written to it"},
	{"NOAUTH", punctual.ErrUnsupported, false, "the server asks for a password"},
	{"WRONGPASS", punctual.ErrUnsupported, false, "the server does not accept this user and password"},
	{"NOPERM", punctual.ErrUnsupported, false, "this user lacks a right; see docs/format-redis.md for those that are needed"},
	{"ERR DB index is out of range", punctual.ErrInvalid, false, "the server has no database of this number: use a smaller one, or raise databases in its configuration"},
	{"ERR This instance has cluster support disabled", punctual.ErrUnsupported, false, "the server is not part of a cluster: use redis:// (redis.NewClient)"},
	{"ERR unknown command", punctual.ErrUnsupported, false, "the server does not know a command: it is a Sentinel (redis+sentinel://), or older than Redis 6.2"},
}

// LateMark begins the error of a script that refuses its call as late. Behind it stand the script's
// time, in ms, and how many steps the store's clock had made by then. lua/call.lua says when a call
// is late.
const LateMark = "PUNCTUAL_LATE "

// ErrLate is the error of a copy that a script has refused, mostly because the deadline of its call
// was past or too far ahead. The copy has changed nothing but, perhaps, the clock of its partition.
var ErrLate = fmt.Errorf("late: %w", punctual.ErrOverloaded)

// LateTime returns the time, in ms, of the script that refused a copy as late, and how many steps
// the store's clock had made by then. It returns zeros if the error does not name them.
func LateTime(err error) (ms, era int64) {
	_, text, _ := strings.Cut(err.Error(), LateMark)
	at, steps, _ := strings.Cut(text, " ")
	ms, err1 := strconv.ParseInt(at, 10, 64)
	era, err2 := strconv.ParseInt(steps, 10, 64)
	if err1 != nil || err2 != nil {
		return 0, 0
	}
	return ms, era
}

// corruptMark begins the error of a script that found damaged data.
const corruptMark = "PUNCTUAL_CORRUPT "

// noAnswer is the remedy of a Kind whose change may or may not have been made.
const noAnswer = "the connection broke before the answer came"

// Unknown reports whether no answer came, so that the change may or may not have been made.
func (k Kind) Unknown() bool { return k.Err == nil && k.remedy == noAnswer }

// NotSent marks why as the reason for which a command was not sent, so that Of knows that nothing
// has changed.
func NotSent(why error) error { return unsent{why} }

type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// Of classifies the error of a command that may change something. OfRead does so for one that only
// reads.
func Of(err error) Kind {
	var u unsent
	var reply redis.Error
	switch {
	case errors.As(err, &u):
		return Kind{Err: u.error}
	case askedSentinels(err) && errors.Is(err, redis.Nil):
		return Kind{Err: punctual.ErrUnreachable, Passing: true, remedy: "the Sentinels know no primary of this name: correct it, or have them monitor one (SENTINEL MASTERS shows them)"}
	case askedSentinels(err) && strings.Contains(err.Error(), "unknown command"):
		return Kind{Err: punctual.ErrUnsupported, remedy: "what was named as a Sentinel is none: name the Sentinels, as a rule at port 26379, or use redis:// (redis.NewClient)"}
	case errors.As(err, &reply):
		return classifyReply(reply.Error())
	case errors.Is(err, redis.ErrClosed):
		return Kind{Err: punctual.ErrClosed, remedy: "the Redis client was closed"}
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return Kind{Err: punctual.ErrOverloaded, remedy: "all connections of the pool are in use: raise PoolSize"}
	case distrusts(err):
		return Kind{Err: punctual.ErrUnsupported, remedy: "the server's certificate is not trusted: name who vouches for it (ca=FILE, or RootCAs of the client's TLSConfig), and the server as its certificate does"}
	case isDistrusted(err):
		return Kind{Err: punctual.ErrUnsupported, remedy: "the server wants a certificate of this program that it trusts (cert=FILE and key=FILE, or Certificates of the client's TLSConfig)"}
	case isPlain(err):
		return Kind{Err: punctual.ErrUnsupported, remedy: "the server does not speak TLS at this port: use redis in place of rediss, or its other port"}
	case isDial(err):
		return Kind{Err: punctual.ErrUnreachable, Passing: true, remedy: "nobody listens there, or the network is down"}
	}
	return Kind{remedy: noAnswer}
}

// OfRead classifies and wraps the error of a command that only reads. It is never ErrIndeterminate.
func OfRead(err error) error {
	k := Of(err)
	switch {
	case k.Unknown() && errors.Is(err, context.Canceled):
		return err
	case k.Unknown():
		k = Kind{Err: punctual.ErrUnreachable, remedy: "no answer came: see that Redis listens there, and that it speaks TLS just where the client does (rediss://)"}
	case k.Err == nil:
		k = Kind{Err: punctual.ErrUnsupported, remedy: "the server refuses what is needed"}
	}
	return k.Wrap(err)
}

// askedSentinels reports whether the client for Sentinel has found no primary.
func askedSentinels(err error) bool { return strings.Contains(err.Error(), "all sentinels specified") }

// classifyReply is Of for an error that Redis itself answered.
func classifyReply(text string) Kind {
	if _, what, ok := strings.Cut(text, corruptMark); ok {
		return Kind{Err: punctual.ErrCorrupt, remedy: what}
	}
	for _, f := range kinds {
		// Some versions put a prefix of their own in front of the error of a command inside a
		// script.
		if strings.HasPrefix(text, f.prefix) || strings.Contains(text, ": "+f.prefix+" ") || strings.Contains(text, "-"+f.prefix+" ") {
			if f.prefix == "NOPERM" {
				f.remedy = remedyOf(text)
			}
			return f
		}
	}
	return Kind{remedy: "the script failed"}
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

// isDistrusted reports whether the server refused this program because of its certificate, or
// because it has none. A server does that before it reads a command.
func isDistrusted(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" && strings.Contains(op.Error(), "certificate")
}

// isPlain reports whether the server answered something that is not TLS.
func isPlain(err error) bool {
	var header tls.RecordHeaderError
	return errors.As(err, &header)
}

// Wrap puts the remedy of the kind in front of err and wraps the error of the kind. A kind without
// a remedy leaves err as it is.
func (k Kind) Wrap(err error) error {
	kind := k.Err
	if kind == nil {
		kind = punctual.ErrIndeterminate
	}
	switch {
	case k.remedy == "":
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w (%w)", k.remedy, kind, err)
	}
	return fmt.Errorf("%s: %w (%v)", k.remedy, kind, err)
}

// Doubt returns err, or with unsure ErrIndeterminate that wraps it: an earlier copy of the call got
// no answer and may have been carried out.
func Doubt(unsure bool, err error) error {
	if !unsure || errors.Is(err, punctual.ErrIndeterminate) {
		return err
	}
	return fmt.Errorf("a former try got no answer: %w (%w)", punctual.ErrIndeterminate, err)
}

// HalfDone makes the error of a call ErrIndeterminate, because an earlier part of the call took
// effect.
func HalfDone(err error) error {
	if errors.Is(err, punctual.ErrIndeterminate) {
		return err
	}
	return fmt.Errorf("a part of the call took effect: %w (%w)", punctual.ErrIndeterminate, err)
}

// RefusedCommand returns the command that a server's NOPERM error names, in small letters, or the
// empty string if the error names none.
func RefusedCommand(said string) string {
	m := refusedCommand.FindStringSubmatch(said)
	if m == nil {
		return ""
	}
	return strings.ToLower(m[1])
}

var refusedCommand = regexp.MustCompile(`run the '([^']+)' command`)

// remedyOf returns the remedy of a NOPERM error, with the right that the user lacks if the server
// names it.
func remedyOf(said string) string {
	what := "lacks a right"
	if name := RefusedCommand(said); name != "" {
		what = "lacks the right +" + name
	}
	return "this user " + what + "; see docs/format-redis.md for those that are needed"
}
