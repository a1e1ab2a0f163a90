package sharedstore_test

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/sharedstore"
)

// TestShortOwners: many programs open a directory, push one message and end, all at the same time,
// so that the directory has a new owner every few milliseconds. Each program becomes the owner or
// calls one, and each push is stored.
func TestShortOwners(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const programs = 40
	var owners atomic.Int64
	var all sync.WaitGroup
	for i := range programs {
		all.Go(func() {
			s, err := sharedstore.Open(t.Context(), dir, &sharedstore.Options{Logger: slog.New(slog.DiscardHandler), Wait: time.Minute, RetryFor: time.Minute})
			if err != nil {
				t.Errorf("program %d does not get in: %v", i, err)
				return
			}
			// A push that meets the end of an owner may get no answer. It then is an
			// ErrIndeterminate, and is sent again with its ID.
			m := []punctual.NewMessage{{Topic: "t", ID: fmt.Sprint("m", i)}}
			rs, err := s.Push(t.Context(), m)
			for errors.Is(err, punctual.ErrIndeterminate) && t.Context().Err() == nil {
				rs, err = s.Push(t.Context(), m)
			}
			if err != nil || rs[0].Err != nil {
				t.Errorf("push of program %d: %v, %v; want it stored", i, rs, err)
			}
			if s.Owner() {
				owners.Add(1)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close of program %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if owners.Load() < 2 {
		t.Error("one program was the owner all the time, so this shows nothing")
	}
	s := open(t, dir)
	if stats, err := s.Stats(t.Context(), "t"); err != nil || stats.Live() != programs {
		t.Errorf("%+v, %v; want %d messages", stats, err, programs)
	}
	t.Logf("%d programs, of which %d were the owner", programs, owners.Load())
}
