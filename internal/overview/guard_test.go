package overview

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// panicking is a store whose first counts panic.
type panicking struct {
	*memstore.Store
	panics atomic.Int64
}

func (s *panicking) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	if s.panics.Add(1) == 1 {
		panic("broken")
	}
	return s.Store.Topics(ctx)
}

// A reading runs in a goroutine of its own. When the store panics in it, the reading fails and the
// program goes on.
func TestLookThatPanics(t *testing.T) {
	s := &panicking{Store: memstore.New(nil)}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	var log bytes.Buffer
	r, err := New(s, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	_, failed := r.Read(t.Context())
	if s.panics.Load() == 0 {
		t.Fatal("this test shows nothing: the store did not panic")
	}
	if failed == nil || !strings.Contains(failed.Error(), "the store panicked") || strings.Contains(failed.Error(), "broken") {
		t.Errorf("a read whose look panicked: %v", failed)
	}
	if err := r.Close(); err != nil { // it waits for the reading, so the log is whole
		t.Error(err)
	}
	if text := log.String(); !strings.Contains(text, "broken") || !strings.Contains(text, "guard_test.go") {
		t.Errorf("the log does not tell where the store panicked: %s", text)
	}
}
