package database

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
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
