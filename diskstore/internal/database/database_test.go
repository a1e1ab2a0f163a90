package database

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deepError is an error like those of the engine: its text has several lines, and its format %+v
// has a stack, too.
type deepError struct{}

func (deepError) Error() string { return "an error of the database\n<corruption detail carrier>" }

func (e deepError) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "%s\n(1) attached stack trace\n  | /pebble/db.go:1", e.Error())
}

// TestComplaintsAreOneLine: each error that the engine reports is one line of the log, unless the
// level of the log is debug.
func TestComplaintsAreOneLine(t *testing.T) {
	logged := &bytes.Buffer{}
	log := slog.New(slog.NewTextHandler(logged, nil))
	db := &DB{opt: Options{Log: log}, state: failstop.New("store", log, time.Minute)}
	db.engineOptions().EventListener.BackgroundError(deepError{})
	engineLog{db}.Errorf("it complains: %+v", deepError{})
	if n := strings.Count(logged.String(), "\n"); n != 2 || !strings.Contains(logged.String(), "an error of the database") {
		t.Errorf("two complaints make %d lines of log:\n%s", n, logged)
	}
	for _, stack := range []string{`\n`, ".go:", "attached stack trace", "<corruption detail"} {
		if strings.Contains(logged.String(), stack) {
			t.Errorf("the log contains %q: %s", stack, logged)
		}
	}
}

// TestLoadRefuses: Load refuses a database without a transaction that was durable, and one of
// another format. It needs no file that can be written, and the database is loaded as before after
// the refusals.
func TestLoadRefuses(t *testing.T) {
	mem := vfs.NewMem()
	db, _ := openIn(t, mem, 0)
	for range 3 {
		tx := db.Begin(1)
		tx.SetClock()
		if err := errors.Join(tx.Apply(0), tx.Wait()); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what    string
		durable uint64
		format  uint32
		want    error
	}{
		{"all that was durable", 3, testFormat, nil},
		{"a transaction less than was durable", 4, testFormat, punctual.ErrCorrupt},
		{"another format", 3, testFormat + 1, punctual.ErrUnsupported},
		{"all that was durable, after the refusals", 3, testFormat, nil},
	} {
		state := failstop.New("store", quiet, time.Minute)
		db, err := Open("store", Options{FS: failstop.ReadOnly{FS: mem}, State: state, Log: quiet, Format: c.format, ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Load(c.durable); !errors.Is(err, c.want) {
			t.Errorf("a database with %s: %v, want %v", c.what, err, c.want)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamageFailsTheStore: a value that cannot be read is the error of the read, and fails the
// store, in a snapshot and in a transaction.
func TestDamageFailsTheStore(t *testing.T) {
	mem := vfs.NewMem()
	db, _ := openIn(t, mem, 0)
	tx := db.Begin(1000)
	topic := addTopic(t, tx, "orders")
	tx.Remember(topic, "other", 1000, 2000) // because a topic in which nothing is remembered is not asked
	tx.set(idKey(keyID, topic.num, "damaged"), []byte{keyLive, 1})
	tx.set(idKey(keyFinished, topic.num, "damaged"), []byte{1})
	mustApply(t, tx)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for what, read := range map[string]func(db *DB, t *Topic) error{
		"a place in a snapshot": func(db *DB, t *Topic) error {
			snap := db.Snapshot()
			_, err := snap.Find(t.num, "damaged")
			return errors.Join(err, snap.Close())
		},
		"a place in a transaction": func(db *DB, t *Topic) error {
			_, err := db.Begin(1000).Find(t, "damaged", nil)
			return err
		},
		"a remembered ID": func(db *DB, t *Topic) error {
			_, err := db.Begin(1000).Remembered(t, "damaged", nil)
			return err
		},
	} {
		// It is opened to be read alone, because a failed database that may write cannot be closed.
		state := failstop.New("store", quiet, time.Minute)
		db, err := Open("store", Options{FS: failstop.ReadOnly{FS: mem}, State: state, Log: quiet, Format: testFormat, ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		stored, err := db.Load(0)
		if err != nil || state.HasFailed() {
			t.Fatalf("the damage was met at once: %v", err)
		}
		if err := read(db, stored.Topics[0].Topic); !errors.Is(err, punctual.ErrCorrupt) || !state.HasFailed() {
			t.Errorf("%s that is damaged: %v, store failed %v; want ErrCorrupt, and that it has failed", what, err, state.HasFailed())
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpenErrors: an error of opening has the kind that callers know, and the text names what to do
// where Classify knows that.
func TestOpenErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want error
		text string
	}{
		{errors.New("a manifest without sense"), punctual.ErrCorrupt, "a manifest without sense"},
		{&os.PathError{Op: "open", Path: "a", Err: syscall.EIO}, punctual.ErrStoreFailed, "input/output error"},
		{&os.PathError{Op: "open", Path: "a", Err: syscall.EMFILE}, punctual.ErrStoreFailed, "raise RLIMIT_NOFILE"},
		{&os.PathError{Op: "open", Path: "a", Err: syscall.ENFILE}, punctual.ErrStoreFailed, "raise RLIMIT_NOFILE"},
		{&os.PathError{Op: "write", Path: "a", Err: syscall.ENOSPC}, punctual.ErrNoSpace, "no space left"},
		{&os.PathError{Op: "open", Path: "a", Err: syscall.EACCES}, os.ErrPermission, "may write to"},
	} {
		if err := openError(c.err); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: %v, want %v with the text %q", c.err, err, c.want, c.text)
		}
	}
}
