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
	"github.com/punctualmq/punctual/limits"
)

// Options configures a Server. A nil *Options and each zero field mean the default.
type Options struct {
	// Authenticator finds out who sends a request. Default: requests are not authenticated, and
	// everybody may do everything. Serve then listens only on loopback addresses and unix sockets,
	// unless ServeOptions say otherwise.
	Authenticator access.Authenticator
	// Hosts are the names, without port, under which clients reach the server, beside "localhost"
	// and IP addresses. A request for another name is refused, because a page in a browser could
	// have sent it by DNS rebinding. The names of requests over TLS and unix sockets are not
	// checked. "*" allows every name.
	Hosts []string
	// Origins are the origins of web pages, such as "https://console.example.com", that may send
	// requests to this server, beside the pages of the server itself.
	Origins []string
	// Limits are the limits of the server.
	Limits Limits
	// Logger gets errors inside the server, and at level debug also requests that were refused. The
	// server writes no tokens and no bodies into it, but the text of a panic, which is logged as it
	// is, may contain some. Default: nothing is logged.
	Logger *slog.Logger
	// Version is the version that GET /v1 reports.
	Version string
	// OnRequest, if not nil, is called after each request was answered, or its answer broke off,
	// from many goroutines at once. It must be quick.
	OnRequest func(ctx context.Context, r RequestInfo)
	// Observer, if not nil, is notified of what clients do with the store, as the Observer of a
	// Queue or a Worker is. OnStart is called for each message that a claim brings, OnSettle for
	// each settlement. OnFinish and OnSchedule are never called. The Observer must not be changed
	// afterwards.
	Observer *punctual.Observer
	// Metrics, if not nil, answers GET /metrics for clients that may inspect all topics.
	Metrics http.Handler
	// Console, if not nil, answers each path whose first segment is not v1, metrics, livez, readyz
	// or openapi.json. Hosts and Origins hold for it too, and of the Limits MaxRequest, MaxMemory,
	// BodyTime and WriteTime. It should find out who sends a request with Server.Authenticate,
	// which also counts the request against Rate.
	Console http.Handler
	// Record, if not nil, is called for each change that a request asks for, except pushes, claims
	// and settlements. Use audit.Log.Record or Console.Record. It has to call do once and to return
	// what do returns. do makes the change and returns how many messages it changed, or 1 for a
	// change of settings or of a schedule. If Record returns an error without calling do, the
	// request is refused with that error.
	Record func(ctx context.Context, ch audit.Change, do func(ctx context.Context) (int64, error)) (int64, error)
	// OnStoreFailed, if not nil, is called with the error of each request that fails as a whole
	// because the store has failed or is damaged. The errors of single items of a batch are only in
	// the answer.
	OnStoreFailed func(err error)
	// Duties says that the program does the duties of the store beside the server (package duty).
	// GET /v1 tells clients, so that their Workers leave the duties to it.
	Duties bool
	// Degraded, if not nil, returns for /readyz the faults with which the service still works, none
	// if there are no faults.
	Degraded func() []string
}

// RequestInfo is one request that was answered.
type RequestInfo struct {
	// Method and Route name the route: "POST", "/v1/topics/{topic}/messages". Route is "" if there
	// is none for the path and the method, as for the pages of the console, or if the request was
	// refused before its route was looked for.
	Method, Route string
	// Status is the status of the answer, 0 if none was begun. Code is the error's code or "".
	Status int
	Code   string
	// Principal is the name of the principal, "anyone" on a server without an Authenticator. It is
	// "" for public routes and the pages of the console, and if the request was refused before its
	// principal was known.
	Principal string
	// Took is the time from the request's head to the end of the answer, Waited the part of it in
	// which a claim was in the store.
	Took, Waited time.Duration
}

// Limits are the limits of a server. A request beyond them is refused with 413, 429 or 503, for a
// longer wait or window with 400, and for a body that comes too slowly with 408. An item of a batch
// that is beyond MaxBody or MaxTopics is refused alone. The answer to a client that reads too
// slowly breaks off. Each zero field means the default.
type Limits struct {
	// MaxBody bounds the bytes of one message's body. 0 means limits.DefaultMaxBody, 1 MiB. The
	// store below has a limit of its own, which may be lower.
	MaxBody int64
	// MaxRequest bounds the bytes of a request's body. Default 32 MiB.
	MaxRequest int64
	// MaxMemory bounds about how many bytes the bodies of requests, what is decoded from them, and
	// large answers take in memory at once. With an Authenticator one client may have as much of it
	// as it leaves free, so at most half. Default 256 MiB.
	MaxMemory int64
	// MaxBatch bounds the items of a request. Default limits.MaxBatch.
	MaxBatch int
	// MaxClaim bounds the messages of a claim that is not a stream. Default limits.MaxClaim.
	MaxClaim int
	// MaxTopics bounds the topics that clients can make by pushes, follow-ups, schedules and
	// settings. A topic that does not exist is an ErrOverloaded when the store has so many. Those
	// that the store has when the server starts count from the first request on, unless the store
	// takes longer than a second to name them; then they count later, and clients can make so many
	// beside them. What other servers of the store let pass since then counts only after this
	// server has reached the limit and counted again. A store that is not a punctual.Inspector has
	// no such limit. Default 10000.
	MaxTopics int
	// MaxWait bounds how long a claim waits. Default 55 s, because many proxies end a request after
	// 60 s.
	MaxWait time.Duration
	// MaxWaiting bounds the claims and streams of one principal that are under way at once. Default
	// 10000.
	MaxWaiting int
	// MaxWindow bounds the unsettled messages of a stream. Default 1000.
	MaxWindow int
	// Rate bounds the requests of one principal per second, Burst how many of them may come at
	// once. Default 20000, and one more than twice the rate.
	Rate  float64
	Burst int
	// BodyTime bounds how long the body of a request may take. Default 60 s. WriteTime bounds how
	// long a client may take to read an answer, or one part of a stream, a list, a backup or a page
	// of the console. Default 30 s.
	BodyTime, WriteTime time.Duration
	// StoreTime bounds how long a call of the store takes, without the wait of a claim. A call that
	// takes longer is an ErrOverloaded, or an ErrIndeterminate if it may have been carried out.
	// Checks, backups and bulks have no such bound. Default 60 s.
	StoreTime time.Duration
}

func (l Limits) withDefaults() Limits {
	orDefault(&l.MaxBody, limits.DefaultMaxBody)
	orDefault(&l.MaxRequest, 32<<20)
	orDefault(&l.MaxMemory, 256<<20)
	orDefault(&l.MaxBatch, limits.MaxBatch)
	orDefault(&l.MaxClaim, limits.MaxClaim)
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

// check returns an ErrInvalid that names a limit which is not positive, or higher than package
// punctual allows.
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
		{"Burst", float64(l.Burst)}, // after Rate, because the default of Burst comes from Rate
		{"BodyTime", float64(l.BodyTime)},
		{"WriteTime", float64(l.WriteTime)},
		{"StoreTime", float64(l.StoreTime)},
	} {
		if !(limit.value > 0) {
			return fmt.Errorf("server limit %s is %v: use a positive one, or 0 for the default: %w", limit.name, limit.value, punctual.ErrInvalid)
		}
	}
	if l.MaxBatch > limits.MaxBatch || l.MaxClaim > limits.MaxClaim {
		return fmt.Errorf("server limits MaxBatch %d and MaxClaim %d: use at most %d and %d: %w",
			l.MaxBatch, l.MaxClaim, limits.MaxBatch, limits.MaxClaim, punctual.ErrInvalid)
	}
	return nil
}

// mostHeld bounds the bytes that one request takes in memory: for its body, for the values decoded
// from the body, and for what items and headers take beside their text.
func (l Limits) mostHeld() int64 { return 4*l.MaxRequest + wire.ItemBytes(l.MaxBatch) }

func (l Limits) onWire() wire.Limits {
	return wire.Limits{
		MaxBody: l.MaxBody, MaxRequest: l.MaxRequest, MaxBatch: l.MaxBatch, MaxClaim: l.MaxClaim,
		MaxWait: wire.Duration(l.MaxWait), MaxWindow: l.MaxWindow,
	}
}
