package writer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// due1000 are the facts of a message that is due a second after the beginning of Unix time.
var due1000 = lifecycle.Message{Due: 1000, FirstDue: 1000}

// logHook is a file system that calls a hook before each write and each sync of the database's log.
type logHook struct {
	vfs.FS
	mu   sync.Mutex
	hook func(op string) // guarded by mu; not called if nil
}

func (f *logHook) set(hook func(op string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

func (f *logHook) tell(op string) {
	f.mu.Lock()
	hook := f.hook
	f.mu.Unlock()
	if hook != nil {
		hook(op)
	}
}

func (f *logHook) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return file, err
	}
	return logFile{file, f}, nil
}

type logFile struct {
	vfs.File
	fs *logHook
}

func (f logFile) Write(b []byte) (int, error) {
	f.fs.tell("write")
	return f.File.Write(b)
}

func (f logFile) Sync() error {
	f.fs.tell("sync")
	return f.File.Sync()
}

func (f logFile) SyncData() error {
	f.fs.tell("sync")
	return f.File.SyncData()
}

// rig is a writer over a database on a file system in memory. It is the writer's claim log itself.
type rig struct {
	*Writer
	fs     *logHook
	marked func(txn uint64)
	woken  func(topic string)
}

// MarkDurable implements ClaimLog.
func (r *rig) MarkDurable(txn uint64, _ int64) {
	if r.marked != nil {
		r.marked(txn)
	}
}

// KeepClock implements ClaimLog.
func (r *rig) KeepClock(int64) error { return nil }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{fs: &logHook{FS: vfs.NewMem()}}
	if err := r.fs.MkdirAll("store", 0o700); err != nil {
		t.Fatal(err)
	}
	state := failstop.New("store", quiet, time.Minute)
	// The database is not behind the fail-stop file system, because it is closed here also after
	// the store has failed.
	db, err := database.Open("store", database.Options{FS: r.fs, State: state, Log: quiet, Format: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Load(0); err != nil {
		t.Fatal(err)
	}
	index := memory.New(1<<20, func(topic string, _ int64) {
		if r.woken != nil {
			r.woken(topic)
		}
	})
	index.StartTokens(1, 1)
	r.Writer = New(Options{
		State: state, DB: db, Index: index, Topics: topics.New(index), ClaimLog: r, Died: func(*topics.Topic) {},
		Now: func() time.Time { return time.UnixMilli(1000) }, Timeout: time.Minute, Dir: "store", Log: quiet,
	})
	t.Cleanup(func() {
		r.Close(func(*Tx) bool { return false })
		if err := db.Close(); err != nil && !state.HasFailed() {
			t.Error(err)
		}
	})
	return r
}

// push stores a message that is due.
func (r *rig) push(ctx context.Context, id string) error {
	return r.Do(ctx, func(tx *Tx) error {
		topic, err := tx.Topic("o")
		if err == nil {
			tx.Insert(topic, &record.Record{ID: id, Message: due1000})
		}
		return err
	})
}

// claimable is how many messages a claim would take: those in the window, which are all due.
func (r *rig) claimable() int { return r.opt.Index.Stats().Window }

// TestOrderOfACommit: a commit applies the transaction, gives the write lock back, waits for the
// fsync, marks the transaction as durable in the claim log, publishes its messages, and answers.
// Each step is seen to come after the one before it.
func TestOrderOfACommit(t *testing.T) {
	r := newRig(t)
	if err := r.push(t.Context(), "first"); err != nil { // so that there are topic and tokens
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order []string // guarded by mu
	step := func(name string) {
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(order, name) {
			order = append(order, name)
		}
	}
	syncing, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.fs.set(func(op string) {
		if op != "sync" {
			return
		}
		once.Do(func() {
			step("applied")
			close(syncing)
			<-release
			step("synced")
		})
	})
	var done <-chan error
	unanswered := func() {
		if r.durableUpTo() >= r.opt.DB.LastTxn() || len(done) > 0 {
			t.Error("P13: a commit is answered before all of it is done")
		}
	}
	r.marked = func(uint64) {
		step("marked")
		unanswered()
		if n := r.claimable(); n != 1 {
			t.Errorf("P1 no loss: %d messages can be claimed before the claim log knows of their transaction, want the first", n)
		}
	}
	published := make(chan struct{})
	r.woken = func(string) {
		step("published")
		unanswered()
		close(published)
	}
	tx, err := r.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx.Insert(r.opt.Topics.Get("o"), &record.Record{ID: "second", Message: due1000})
	done = tx.start()
	<-syncing
	// The write lock is free while the fsync hangs, and what was applied is seen.
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if tx, err = r.Begin(ctx); err != nil {
		t.Fatalf("no transaction can begin during an fsync: %v", err)
	}
	step("lock given back")
	if f, err := tx.Find(r.opt.Topics.Get("o"), "second", nil); err != nil || !f.Exists() {
		t.Errorf("P7: a transaction does not see the one before it: %v", err)
	}
	tx.Close(&err)
	waited, cancel := context.WithCancel(t.Context())
	seen := make(chan error, 1)
	go func() { seen <- r.WaitDurable(waited) }()
	if n := r.claimable(); n != 1 {
		t.Errorf("P1 no loss: %d messages can be claimed during the fsync, want the first", n)
	}
	cancel()
	if err := <-seen; !errors.Is(err, context.Canceled) {
		t.Errorf("P13: what may have seen the transaction was answered during its fsync: %v", err)
	}
	close(release)
	<-published // until then nobody receives from done, so that unanswered sees an answer that comes too early
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.marked, r.woken = nil, nil
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"applied", "lock given back", "synced", "marked", "published"}; !slices.Equal(order, want) {
		t.Errorf("a commit went %v, want %v", order, want)
	}
	if n := r.claimable(); n != 2 {
		t.Errorf("%d messages can be claimed, want both", n)
	}
}

// TestNobodyWritesBesideACommit: the write lock is held until the transaction is applied, also when
// that takes a while.
func TestNobodyWritesBesideACommit(t *testing.T) {
	r := newRig(t)
	for i := range 10 {
		tx, err := r.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		topic, err := tx.Topic("o")
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint(i)
		tx.Insert(topic, &record.Record{ID: id, Message: due1000, Body: make([]byte, 4<<20)})
		done := tx.start()
		next, err := r.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if f, err := next.Find(topic, id, nil); err != nil || !f.Exists() {
			t.Fatalf("a transaction begins before the one before it is applied: %v", err)
		}
		if next.Close(&err); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// TestAnswersAreDurable: no call that may have seen an applied transaction answers before the fsync
// of that transaction, also a call that changes nothing.
func TestAnswersAreDurable(t *testing.T) {
	r := newRig(t)
	syncing, released := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	t.Cleanup(release) // runs before the cleanup of newRig, which waits for the fsync
	var once sync.Once
	r.fs.set(func(op string) {
		if op == "sync" {
			once.Do(func() {
				close(syncing)
				<-released
			})
		}
	})
	pushed := make(chan error, 1)
	go func() { pushed <- r.push(context.Background(), "a") }()
	select {
	case <-syncing:
	case err := <-pushed:
		t.Fatalf("P13: a push was answered without an fsync: %v", err)
	}
	answers := map[string]func(ctx context.Context) error{
		"an empty transaction": func(ctx context.Context) error { return r.Do(ctx, func(*Tx) error { return nil }) },
		"a look":               func(ctx context.Context) error { return r.Observe(ctx, func(*Tx) error { return nil }) },
		"a barrier":            r.Barrier,
	}
	for what, ask := range answers {
		ctx, stop := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- ask(ctx) }()
		// The call is to wait until the transaction of the push is durable.
		for r.waitingFor() == 0 {
			select {
			case err := <-done:
				t.Fatalf("P13: %s was answered before what it saw was durable: %v", what, err)
			case <-time.After(time.Millisecond):
			}
		}
		stop(errors.New("enough"))
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("P13: %s was answered before what it saw was durable: %v", what, err)
		}
		r.forgetWaiting()
	}
	release()
	if err := <-pushed; err != nil {
		t.Fatal(err)
	}
	for what, ask := range answers {
		if err := ask(t.Context()); err != nil {
			t.Errorf("%s when all is durable: %v", what, err)
		}
	}
}

func (r *rig) durableUpTo() uint64 {
	r.durable.mu.Lock()
	defer r.durable.mu.Unlock()
	return r.durable.last
}

func (r *rig) waitingFor() int {
	r.durable.mu.Lock()
	defer r.durable.mu.Unlock()
	return len(r.durable.waiting)
}

func (r *rig) forgetWaiting() {
	r.durable.mu.Lock()
	defer r.durable.mu.Unlock()
	clear(r.durable.waiting)
}

// TestUnfinishedChangesEndTheStore: however a function leaves its transaction, the write lock is
// given back. The store ends after an error or a panic of the function, and if memory and disk may
// differ.
func TestUnfinishedChangesEndTheStore(t *testing.T) {
	errRead := errors.New("reading failed")
	detach := func(tx *Tx) memory.Detached {
		f, err := tx.Find(tx.w.opt.Topics.Get("o"), "a", nil)
		if err != nil || !f.Exists() {
			panic("the message is not there")
		}
		d, _ := tx.Detach(f)
		return d
	}
	for _, c := range []struct {
		what string
		do   func(tx *Tx) error
		ends bool
	}{
		{"nothing", func(*Tx) error { return nil }, false},
		{"an error before any change", func(*Tx) error { return errRead }, true},
		{"a message removed", func(tx *Tx) error { tx.Remove(detach(tx), "a"); return nil }, false},
		{"a message taken and left", func(tx *Tx) error { detach(tx); return nil }, true},
		{"a message taken, and an error", func(tx *Tx) error { detach(tx); return errRead }, true},
		{"a message removed, and an error", func(tx *Tx) error { tx.Remove(detach(tx), "a"); return errRead }, true},
		{"a panic", func(*Tx) error { panic("a mistake") }, true},
	} {
		r := newRig(t)
		if err := r.push(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		err := r.Do(t.Context(), c.do)
		if failed := r.opt.State.HasFailed(); failed != c.ends {
			t.Errorf("%s: the store ended: %v, want %v", c.what, failed, c.ends)
		}
		if ends := errors.Is(err, punctual.ErrStoreFailed); ends != c.ends {
			t.Errorf("%s: %v; a failure of the store: %v, want %v", c.what, err, ends, c.ends)
		}
		if len(r.lock) != 1 {
			t.Errorf("%s: the write lock is not given back", c.what)
		}
	}
}
