package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	callrig "github.com/punctualmq/punctual/internal/rigs/calls"
)

// Every method that takes a context refuses a closed store and an ended context before it checks
// anything else: the other arguments here are zero values, many of which are refused otherwise.
func TestMethodsRefuse(t *testing.T) {
	pool := newPool(t, shared)
	defer pool.Close()
	s := openStore(t, pool, &Options{Schema: emptySchema(t, pool)})
	ended, end := context.WithCancel(t.Context())
	end()
	methods := callrig.EachWithContext(ended, s)
	if len(methods) < 24 {
		t.Errorf("%d methods take a context; there were 24 when this test was written", len(methods))
	}
	for name, err := range methods {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with an ended context: %v; want its error", name, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, err := range callrig.EachWithContext(t.Context(), s) {
		if !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("P13: %s of a closed store: %v; want ErrClosed", name, err)
		}
	}
}

// Close returns only when the calls under way have.
func TestCloseWaitsForCalls(t *testing.T) {
	pool := newPool(t, shared)
	defer pool.Close()
	s := openStore(t, pool, &Options{Schema: emptySchema(t, pool)})
	begun, closed, worked := make(chan struct{}), make(chan error, 1), make(chan bool, 1)
	go func() {
		_, _ = call(t.Context(), s, "work", "", nil, func() (struct{}, error) {
			close(begun)
			<-s.closing
			select {
			case <-closed:
				worked <- false
			case <-time.After(100 * time.Millisecond):
				worked <- true
			}
			return struct{}{}, nil
		})
	}()
	<-begun
	go func() { closed <- s.Close(); close(closed) }()
	if !<-worked {
		t.Error("Close returned while a call was under way")
	}
	for err := range closed {
		if err != nil {
			t.Error(err)
		}
	}
}
