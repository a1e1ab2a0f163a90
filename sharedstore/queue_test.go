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

// TestShortOwners: many programs that open the directory, push one message and end, all at the same time. A directory without an owner has
// a new one every few milliseconds then. Each program gets its turn, or goes through another one, and each push is answered.
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
			// An owner may end between doing and answering. The answer is in doubt then, and the push is sent again with its ID.
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
