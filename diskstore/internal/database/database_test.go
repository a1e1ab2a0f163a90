package database

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deepError is as the errors of the engine are: its text has several lines, and a stack when it is logged.
type deepError struct{}

func (deepError) Error() string { return "an error of the database\n<corruption detail carrier>" }

func (e deepError) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "%s\n(1) attached stack trace\n  | /pebble/db.go:1", e.Error())
}

// TestComplaintsAreOneLine in the log, where the level is not debug.
func TestComplaintsAreOneLine(t *testing.T) {
	logged := &bytes.Buffer{}
	db := &DB{opt: Options{Log: slog.New(slog.NewTextHandler(logged, nil))}}
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

// TestLoadRefuses what it must not go on from, and writes nothing first.
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

// A store that was made before there were single deletions has messages whose keys were written more than once. They go by plain
// deletions, and those that are stored from then on by single ones.
func TestMessagesFromBeforeSingleDeletions(t *testing.T) {
	mem := vfs.NewMem()
	db, _ := openIn(t, mem, 0)
	commit := func(f func(tx *Tx)) {
		t.Helper()
		tx := db.Begin(1000)
		f(tx)
		mustApply(t, tx)
	}
	message := func(id string) *record.Record {
		return &record.Record{ID: id, Message: lifecycle.Message{Due: 2000, FirstDue: 2000}}
	}
	var topic *Topic
	commit(func(tx *Tx) {
		topic = addTopic(t, tx, "orders")
		tx.Put(topic, Place{}, message("rewritten"))
		tx.Put(topic, Place{}, message("moved"))
	})
	place := func(tx *Tx, id string) Place {
		t.Helper()
		p, err := tx.Find(topic, id, nil)
		if err != nil || p.Nowhere() {
			t.Fatalf("message %s is at %+v, %v", id, p, err)
		}
		return p
	}
	commit(func(tx *Tx) { // as a program that knows no single deletions writes over a record, and over the place of an ID
		tx.set(posKey(Live, topic.num, place(tx, "rewritten").At), message("rewritten").Encode())
		from := place(tx, "moved")
		to := from
		to.At.Ms = 3000
		later := message("moved")
		later.Due = to.At.Ms
		tx.set(posKey(Live, topic.num, from.At), nil)
		tx.set(posKey(Live, topic.num, to.At), later.Encode())
		tx.set(idKey(keyID, topic.num, "moved"), to.value())
	})
	// From here on as a program that knows them, as Load begins with such a store. The values are still in the engine's buffer, all
	// of them; the engine drops those that were written over when it makes a table.
	db.single = db.next
	before := misused.Load()
	gone := []string{"rewritten", "moved", "new"}
	commit(func(tx *Tx) { tx.Put(topic, Place{}, message("new")) })
	commit(func(tx *Tx) {
		for _, id := range gone {
			tx.Remove(topic, place(tx, id), id)
		}
		tx.Put(topic, Place{}, message("moved")) // the ID is in use again
	})
	for range 2 {
		if err := cmp.Or(db.Flush(), db.Compact(t.Context())); err != nil {
			t.Fatal(err)
		}
		commit(func(tx *Tx) {
			for _, id := range []string{"rewritten", "new"} {
				if p, err := tx.Find(topic, id, nil); err != nil || !p.Nowhere() {
					t.Errorf("the deleted message %s is at %+v, %v", id, p, err)
				}
			}
			if p := place(tx, "moved"); p.At.Ms != 2000 {
				t.Errorf("the new message is at %+v", p)
			}
			tx.SetClock()
		})
	}
	live, err := db.kv.NewIter(&pebble.IterOptions{LowerBound: []byte{keyLive}, UpperBound: []byte{keyLive + 1}})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ok := live.First(); ok; ok = live.Next() {
		n++
	}
	if err := live.Close(); err != nil || n != 1 || misused.Load() != before {
		t.Errorf("there are %d messages and %d misuses, %v; want 1 message", n, misused.Load()-before, err)
	}

	commit(func(tx *Tx) { tx.set([]byte(metaSingle), nil) })
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, _ = openIn(t, mem, db.LastTxn())
	if db.singleWritten || db.single != db.next {
		t.Errorf("without their begin on disk (%v) single deletions begin at message %d; want the next one, %d", db.singleWritten, db.single, db.next)
	}
	commit(func(tx *Tx) { tx.SetClock() })
	from := db.single
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, _ = openIn(t, mem, db.LastTxn())
	if err := db.Close(); err != nil || !db.singleWritten || db.single != from {
		t.Errorf("single deletions begin at message %d (on disk: %v), %v; want %d as before", db.single, db.singleWritten, err, from)
	}
}
