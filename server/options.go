package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/wire"
)

// Options configure a Server. A nil *Options and each zero field mean the default.
type Options struct {
	// Authenticator finds out who sends a request. Default: nobody is asked, and everybody may do everything. Serve then listens
	// on loopback addresses and unix sockets alone.
	Authenticator access.Authenticator
	// Hosts are the names, without port, under which clients reach the server, beside "localhost", loopback and other
	// IP addresses. A request for another name is refused, since a page in a browser could have sent it by DNS
	// rebinding. Those over TLS and unix sockets are not looked at. "*" allows every name.
	Hosts []string
	// Origins are those of web pages, such as "https://console.example.com", that may send requests which change something.
	Origins []string
	// Limits are what the server lets through.
	Limits Limits
	// Logger gets what fails inside. It never gets tokens or bodies. Default: none.
	Logger *slog.Logger
	// Version is what GET /v1 reports.
	Version string
	// OnRequest, if not nil, is told of each request when it has been answered. It must be quick.
	OnRequest func(ctx context.Context, r RequestInfo)
	// Observer, if not nil, is told what clients do with the store, as one of a Queue or a Worker is. OnStart is
	// called for each message that a claim brings, OnSettle for each settlement. OnFinish is never called. It must
	// not be changed afterwards.
	Observer *punctual.Observer
	// Metrics, if not nil, answers GET /metrics, for who may inspect all topics.
	Metrics http.Handler
	// Console, if not nil, answers what is not for the interface: each path that does not begin with /v1, /metrics, /livez, /readyz or
	// /openapi.json. Hosts, Origins and Limits hold for it too. It asks Server.Authenticate who sends a request.
	Console http.Handler
	// Record, if not nil, is called for each change that a request asks for beside pushes, claims and settlements, such as
	// audit.Log.Record or Console.Record. It is to call do once, which makes the change and returns how many messages that changed, and to
	// return what do does. If it returns an error without a call of do, the request is refused with that error.
	Record func(ctx context.Context, ch audit.Change, do func(ctx context.Context) (int64, error)) (int64, error)
	// OnStoreFailed, if not nil, is told when the store says that it has failed or is damaged, each time.
	OnStoreFailed func(err error)
	// Degraded, if not nil, returns why the service is worse than it should be, for /readyz; empty when all is well.
	Degraded func() []string
}

// RequestInfo is one request that was answered.
type RequestInfo struct {
	// Method and Route name the route: "POST", "/v1/topics/{topic}/messages". Route is "" when there is none.
	Method, Route string
	// Status is that of the answer, Code the error's code or "".
	Status int
	Code   string
	// Principal is who sent it, or "".
	Principal string
	// Took is the time from the request's head to the end of the answer; Waited the part in which a claim waited in the store.
	Took, Waited time.Duration
}

// Limits are what a server lets through. Beyond them a request is refused with 413, 429 or 503. Each zero field means the
// default.
type Limits struct {
	// MaxBody bounds the bytes of one message's body. 0 means punctual.DefaultMaxBody, 1 MiB. The store below has a limit of its own,
	// which may be lower.
	MaxBody int64
	// MaxRequest bounds the bytes of a request's body. Default 32 MiB.
	MaxRequest int64
	// MaxMemory bounds the bytes of all requests and answers that are held at once, as they are in memory. With an Authenticator
	// one client may have as much of it as is free, so at most half. Default 256 MiB.
	MaxMemory int64
	// MaxBatch bounds the items of a request. Default punctual.MaxBatch.
	MaxBatch int
	// MaxClaim bounds the messages of a claim. Default punctual.MaxClaim.
	MaxClaim int
	// MaxTopics bounds the topics that clients make by pushes and settings, with those that the store has. Beyond it a push to a topic that
	// does not exist is an ErrOverloaded. Stores that are no punctual.Inspector have no limit. Default 10000.
	MaxTopics int
	// MaxWait bounds how long a claim waits. Default 55 s, since many proxies end a request at 60 s.
	MaxWait time.Duration
	// MaxWaiting bounds the claims and streams of one principal that are under way at once. Default 10000.
	MaxWaiting int
	// MaxWindow bounds the unsettled messages of a stream. Default 1000.
	MaxWindow int
	// Rate bounds the requests of one principal in a second, Burst how many of them may come at once. Default 20000 and
	// twice that.
	Rate  float64
	Burst int
	// BodyTime bounds how long the body of a request may take. Default 60 s. WriteTime bounds how long a client may
	// take to read an answer, or one line of a stream. Default 30 s.
	BodyTime, WriteTime time.Duration
	// StoreTime bounds a call of the store beside its waiting; a check is not bounded. Default 60 s.
	StoreTime time.Duration
}

func (l Limits) withDefaults() Limits {
	orDefault(&l.MaxBody, punctual.DefaultMaxBody)
	orDefault(&l.MaxRequest, 32<<20)
	orDefault(&l.MaxMemory, 256<<20)
	orDefault(&l.MaxBatch, punctual.MaxBatch)
	orDefault(&l.MaxClaim, punctual.MaxClaim)
	orDefault(&l.MaxTopics, 10_000)
	orDefault(&l.MaxWait, 55*time.Second)
	orDefault(&l.MaxWaiting, 10_000)
	orDefault(&l.MaxWindow, 1000)
	orDefault(&l.Rate, 20_000)
	orDefault(&l.Burst, int(min(2*l.Rate, 1e9))+1)
	orDefault(&l.BodyTime, time.Minute)
	orDefault(&l.WriteTime, 30*time.Second)
	orDefault(&l.StoreTime, time.Minute)
	return l
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// check returns an ErrInvalid that names the limit which cannot be.
func (l Limits) check() error {
	for _, limit := range []struct {
		name  string
		value float64
	}{
		{"MaxBody", float64(l.MaxBody)},
		{"MaxRequest", float64(l.MaxRequest)},
		{"MaxMemory", float64(l.MaxMemory)},
		{"MaxBatch", float64(l.MaxBatch)},
		{"MaxClaim", float64(l.MaxClaim)},
		{"MaxTopics", float64(l.MaxTopics)},
		{"MaxWait", float64(l.MaxWait)},
		{"MaxWaiting", float64(l.MaxWaiting)},
		{"MaxWindow", float64(l.MaxWindow)},
		{"Rate", l.Rate},
		{"Burst", float64(l.Burst)}, // behind the rate, from which its default comes
		{"BodyTime", float64(l.BodyTime)},
		{"WriteTime", float64(l.WriteTime)},
		{"StoreTime", float64(l.StoreTime)},
	} {
		if !(limit.value > 0) {
			return fmt.Errorf("server limit %s is %v: use a positive one, or 0 for the default: %w", limit.name, limit.value, punctual.ErrInvalid)
		}
	}
	if l.MaxBatch > punctual.MaxBatch || l.MaxClaim > punctual.MaxClaim {
		return fmt.Errorf("server limits MaxBatch %d and MaxClaim %d: use at most %d and %d: %w",
			l.MaxBatch, l.MaxClaim, punctual.MaxBatch, punctual.MaxClaim, punctual.ErrInvalid)
	}
	return nil
}

// mostHeld bounds the bytes that one request takes in memory. They are those of its body, the same once more as values, and what each
// item and some headers take.
func (l Limits) mostHeld() int64 { return 4*l.MaxRequest + wire.ItemBytes(l.MaxBatch) }

func (l Limits) onWire() wire.Limits {
	return wire.Limits{
		MaxBody: l.MaxBody, MaxRequest: l.MaxRequest, MaxBatch: l.MaxBatch, MaxClaim: l.MaxClaim,
		MaxWait: wire.Duration(l.MaxWait), MaxWindow: l.MaxWindow,
	}
}
