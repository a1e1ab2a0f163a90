package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// runAsCommand makes the test binary the command itself, for tests that need a process.
const runAsCommand = "PUNCTUAL_TEST_RUN_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(runAsCommand) != "" {
		os.Exit(Main())
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(typescript.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}))
}

// typescript is what tsc has made of the client in TypeScript, once for all tests.
var typescript struct {
	once sync.Once
	dir  string
	err  error
}

// start is where the rig's clock stands first.
var start = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// rig runs command lines in this process on one store in memory, which lives on from one
// command to the next as a directory would.
type rig struct {
	t     *testing.T
	store *memstore.Store
	clock *storekit.ManualClock
	in    io.Reader
	env   map[string]string
	// amended, if not nil, is called when the store has answered changes of messages by their IDs,
	// before the command gets the answer. If amended returns an error, the command gets that.
	amended func(as []punctual.Amendment) error
	// outcome, if not nil, may change what the command is told of an amendment.
	outcome func(a punctual.Amendment, out *punctual.Amended)
	// reporter, if not nil, is what the store knows of consumers.
	reporter *reporter
	// pushed, if not nil, is called while messages are being pushed, before they are stored.
	pushed func()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	clock := storekit.NewManualClock(start)
	s := memstore.New(&memstore.Options{Clock: clock})
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("close the store: %v", err)
		}
	})
	return &rig{t: t, store: s, clock: clock, in: strings.NewReader(""), env: map[string]string{"PUNCTUAL_STORE": "mem:"}}
}

// keptOpen is a store that a command does not close.
type keptOpen struct{ *memstore.Store }

func (keptOpen) Close() error { return nil }

// rigStore is the store of a rig.
type rigStore struct {
	keptOpen
	r *rig
}

func (s rigStore) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	out, err := s.Store.Amend(ctx, as)
	if err == nil && s.r.amended != nil {
		err = s.r.amended(as)
	}
	for n := range out {
		if s.r.outcome != nil {
			s.r.outcome(as[n], &out[n])
		}
	}
	return out, err
}

func (s rigStore) Consumers(ctx context.Context, topic string) (storekit.Consumers, error) {
	if s.r.reporter == nil {
		return storekit.Consumers{}, fmt.Errorf("this store does not know who claims: %w", punctual.ErrUnsupported)
	}
	return s.r.reporter.Consumers(ctx, topic)
}

func (s rigStore) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	if s.r.pushed != nil {
		s.r.pushed()
	}
	return s.Store.Push(ctx, ms)
}

// result is what one command line came to.
type result struct {
	t        *testing.T
	args     []string
	code     int
	out, err string
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// app returns a run of the command line for which mem: is the rig's store, and the only kind of
// store.
func (r *rig) app(out, err io.Writer) *app {
	a := newApp(Streams{In: r.in, Out: out, Err: err, Getenv: func(name string) string { return r.env[name] }, Environ: r.environ})
	a.now = r.clock.Now
	a.schemes = []scheme{{name: "mem", form: "mem:", open: func(context.Context, place) (punctual.Store, error) {
		return rigStore{keptOpen{r.store}, r}, nil
	}}}
	return a
}

// environ lists the rig's environment.
func (r *rig) environ() []string {
	var list []string
	for name, value := range r.env {
		list = append(list, name+"="+value)
	}
	return list
}

func (r *rig) run(args ...string) result {
	r.t.Helper()
	return r.runContext(r.t.Context(), args...)
}

func (r *rig) runContext(ctx context.Context, args ...string) result {
	r.t.Helper()
	var out, err buffer
	code := r.app(&out, &err).run(ctx, args)
	return result{r.t, args, code, out.String(), err.String()}
}

// runInput runs with text on standard input.
func (r *rig) runInput(text string, args ...string) result {
	r.t.Helper()
	r.in = strings.NewReader(text)
	return r.run(args...)
}

// ok fails the test unless the exit code is 0 and standard error is empty.
func (r result) ok() result {
	r.t.Helper()
	if r.code != exitOK || r.err != "" {
		r.t.Fatalf("punctual %q: exit %d, standard error %q; want exit 0 and none", r.args, r.code, r.err)
	}
	return r
}

// exits fails the test unless the exit code is code and standard error holds each text.
func (r result) exits(code int, texts ...string) result {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("punctual %q: exit %d, want %d; standard error %q", r.args, r.code, code, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.err, text) {
			r.t.Errorf("punctual %q: standard error %q does not say %q", r.args, r.err, text)
		}
	}
	return r
}

// prints fails the test unless standard output is exactly want.
func (r result) prints(want string) result {
	r.t.Helper()
	if r.out != want {
		r.t.Errorf("punctual %q: printed\n%s\nwant\n%s", r.args, r.out, want)
	}
	return r
}

// contains fails the test unless standard output holds each text.
func (r result) contains(texts ...string) result {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.out, text) {
			r.t.Errorf("punctual %q: printed %q, which does not hold %q", r.args, r.out, text)
		}
	}
	return r
}

// printsJSON fails the test unless standard output has exactly one line for each of want and
// holds the same JSON.
func (r result) printsJSON(want ...string) result {
	r.t.Helper()
	lines := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
	if r.out == "" {
		lines = nil
	}
	if len(lines) != len(want) {
		r.t.Fatalf("punctual %q: printed %d lines, want %d:\n%s", r.args, len(lines), len(want), r.out)
	}
	for n := range lines {
		if got, want := decode(r.t, lines[n]), decode(r.t, want[n]); !reflect.DeepEqual(got, want) {
			r.t.Errorf("punctual %q: line %d is\n%s\nwant\n%v", r.args, n+1, lines[n], want)
		}
	}
	return r
}

// failsWith fails the test unless standard error is one JSON error with this code and this
// definite, and with a message.
func (r result) failsWith(code string, definite bool) result {
	r.t.Helper()
	var e errorJSON
	if err := json.Unmarshal([]byte(r.err), &e); err != nil {
		r.t.Fatalf("punctual %q: standard error %q is not one JSON object: %v", r.args, r.err, err)
	}
	if e.Error.Code != code || e.Error.Definite != definite || e.Error.Message == "" {
		r.t.Errorf("punctual %q: error %+v, want code %q, definite %v and a message", r.args, e.Error, code, definite)
	}
	return r
}

func decode(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%q is not JSON: %v", text, err)
	}
	return v
}

// claim leases n due messages of a topic.
func (r *rig) claim(topic string, n int) []punctual.Delivery {
	r.t.Helper()
	ds, err := r.store.Claim(r.t.Context(), punctual.Claim{Topics: []string{topic}, Max: n})
	if err != nil || len(ds) != n {
		r.t.Fatalf("claim %d of %s: got %d, %v", n, topic, len(ds), err)
	}
	return ds
}

// kill makes one due message of a topic dead.
func (r *rig) kill(topic string) {
	r.t.Helper()
	d := r.claim(topic, 1)[0]
	errs, err := r.store.Settle(r.t.Context(), []punctual.Settlement{{
		Topic: topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleDiscard, Error: "no such customer",
	}})
	if err != nil || errs[0] != nil {
		r.t.Fatalf("discard %s: %v, %v", d.ID, err, errs)
	}
}

// get returns a stored message.
func (r *rig) get(topic, id string) punctual.Info {
	r.t.Helper()
	m, err := r.store.Get(r.t.Context(), topic, id)
	if err != nil {
		r.t.Fatalf("get %s of %s: %v", id, topic, err)
	}
	return m
}
